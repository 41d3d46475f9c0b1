"""Messages of DataLoader workers, shared memory, NCCL and RDMA.

Sources: torch/utils/data (signal handling), torch's shared memory manager, NCCL 2.4 to 2.28
(shmutils.cc, bootstrap.cc, ibvwrap.cc, init.cc), torch.distributed, accelerate, torch's TCPStore
(socket.cpp).
"""

from __future__ import annotations

from gpusetup.messages.row import row, rows

FEW_PORTS = r"\bonly (?:the )?ports? [\d -]{2,15}(?:are|is) (?:open|allowed)|\bports?\b[^.\n]{0,40}\b(?:blocked|closed|not open)\b|\bfirewall (?:blocks|is active|between)"
FEW_PORTS_OPEN = "not every port is open between the machines"
"""How somebody's own words say that NCCL's ranks do not reach each other."""
HANGS = r"(?:hangs?|hung|hanging|stuck|freezes|froze|frozen|stalls?)"
OF_SEVERAL = r"\b(?:tensor[-_ ]parallel(?:ism)?(?:[-_ ]size)?[ =:]{0,3}(?:of )?(?:[2-9]|1\d)?\b|NCCL version \d)"
"""A model over several GPUs, whose first exchange is NCCL's."""

HOW = (
    "(?P<how>Connection (?:refused|timed out|reset by peer)|No route to host|Network is unreachable"
    "|Software caused connection abort|Cannot assign requested address)"
)
"""What the system says of a connection that was not made."""

SLURMS = (
    *rows(
        "slurm-job",
        {
            "slurm_job": r"(?<![\w'\"])SLURM_JOB_?(?:ID|NAME|PARTITION|NODELIST)=\w",
            "#sbatch": r"#SBATCH +-",
            "srun": r"\bsrun(?:: job \d| +-)",
            "salloc": r"\bsalloc(?:: (?:Granted|job \d)| +-)",
        },
    ),
    row(
        "slurm-job",
        "slurm",
        r"(?i)\b(?:through|via|with|under|by|using|our|an?) slurm\b|\bslurm (?:job|script|queue|cluster)\b",
        gpus="not shown",
    ),
    *rows(
        "slurm-job",
        {
            "--gres": r"--gres[= ]gpu",
            "--gpus": r"(?:sbatch|srun|salloc)\b[^\n]{0,120}? --gpus(?:-per-\w{3,6})?[= ]\w",
            "slurm_": r"SLURM_(?:JOB_GPUS|GPUS\w{0,12}|STEP_GPUS)[=:] ?\w",
        },
        gpus="asked for",
    ),
    row(
        "shared-node",
        ("cluster", "login node"),
        r"\b(?:(?:our|the|my|a|university|school|HPC|GPU|compute|computing|shared|lab)(?:'s)? )+cluster\b(?! cent)|\bHPC cluster|\blogin node\b",
    ),
)
"""That a text is of a Slurm job, and that the job asked for GPUs (sbatch's manual page)."""

SERVERS_PORT = {
    "stage": "start",
    "says": "The port on which the server listens is in use: another program, or an older run of it, has it",
    "way": "End what listens there (`ss -ltnp` names it; on Windows `netstat -ano`), or give the server another port",
}
PORTS = (
    *rows(
        "port-in-use",
        {
            "server socket has failed to": r"server socket has failed to (?:bind|listen)(?: (?:to|on))? \S{1,60}?:(?P<port>\d{2,5})\W{1,3}(?:\(?(?:errno|system error): ?\d{1,5} - )?(?:Address already in use|Only one usage of each socket address)",
            "address already in use": r"(?:init_process_group|TCPStore|rendezvous)\b.{0,400}?Address already in use",
        },
    ),
    row(
        "port-in-use",
        "eaddrinuse",
        r"EADDRINUSE, message: ?address already in use",
        unless="server socket has failed to",
    ),
    row(
        "program-failed",
        "bind",
        r"\b(?:attempting to bind on address \('[\w.:]{0,40}', (?P<port>\d{2,5})\)|listen tcp \S{0,40}?:(?P<listens>\d{2,5}): bind): ?\W?(?:\[[^\]]{1,40}\] ?)?(?:address already in use|Only one usage of each socket address)",
        **SERVERS_PORT,
    ),
    row(
        "program-failed",
        "empty port in range",
        r"Cannot find empty port in range: (?P<port>\d{2,5})",
        **SERVERS_PORT,
    ),
)

WITHOUT_A_GROUP = {
    "stage": "distributed",
    "says": "The ranks were not set up: the run was not started by its launcher, or its code makes no process group",
    "way": "Start it by `torchrun --nproc-per-node=GPUS SCRIPT`, which gives each rank its variables, and call "
    "`torch.distributed.init_process_group()` before the model is wrapped; on one GPU switch the distributed mode off",
}
GROUPS = (
    *(
        row("program-failed", needle, pattern, unless=unless, **WITHOUT_A_GROUP)
        for needle, pattern, unless in (
            (
                "process group has not been initialized",
                r"\bDefault process group has not been initialized",
                "",
            ),
            (
                "expected, but not set",
                r"environment variable (?:(?:LOCAL_)?RANK|(?:LOCAL_)?WORLD_SIZE|MASTER_(?:ADDR|PORT)) expected, but not set",
                "",
            ),
        )
    ),
    row(
        "program-failed",
        "unrecognized arguments",
        r"error: unrecognized arguments:[^\n]{0,200}? ?--local[-_]rank\b",
        stage="distributed",
        says="The script does not take the rank as the launcher of torch 2 writes it (`--local-rank`)",
        way="Start it by `torchrun`, and read LOCAL_RANK from the environment; or take both spellings: "
        "`parser.add_argument('--local-rank', '--local_rank', type=int)`",
    ),
)

ROWS = (
    *SLURMS,
    *GROUPS,
    row(
        "gpus-not-given",
        "no cuda gpus are available",
        r"(?:ray::|ray\.exceptions|RayTaskError).{0,550}?No CUDA GPUs are available",
        who="Ray",
    ),
    row(
        "dataloader-worker-killed",
        "dataloader worker",
        r"\bdataloader workers?(?: \(pid[^)]{0,24}\))? (?:(?:is|was|were|are|gets?|got) )?killed(?: by signal(?:ed|led):? (?:Killed|SIGKILL)\b|$| (?!by\b)|[.,!?])",
        unless=r"\bif (?:the |a )?dataloader",
    ),
    row(
        "dataloader-worker-killed",
        "dataloader worker",
        r"""(?x)
        DataLoader\ worker\ \(pid\(?s?\)?:?\ ?[\d, ]+\)
        \ (?:is\ killed\ by\ signal:\ (?P<signal>Killed|Terminated|Segmentation\ fault|Aborted|Unknown\ signal)
          |exited\ unexpectedly)
        """,
    ),
    *rows(
        "shm-too-small",
        {
            "bus error": r"killed by signal: Bus error|bus error encountered in worker",
            "(sigbus)": r"Signal 7 \(SIGBUS\) received",
            "exitcode": r"exitcode\s{0,8}: ?-7\b",
            "insufficient shared memory": r"insufficient shared memory \(shm\)",
            "out of shared memory": r"workers are out of shared memory",
            "unable to write to file": r"unable to write to file </?torch_\w+>",
            "</torch_": r"unable to (?:mmap|resize|allocate|open).{0,80}</?torch_\w+>.{0,60}(?:No space|Cannot allocate)",
            "/dev/shm": r"No space left on device.{0,20}'/dev/shm/(?!nccl)",
        },
    ),
    *rows(
        "open-files-limit",
        {
            "too many open files": r"Too many open files|received 0 items of ancdata",
            "items of ancdata": r"received 0 items of ancdata",
        },
    ),
    *rows(
        "port-in-use",
        {
            "failed to listen on any local": r"failed to listen on any local network\s?address\..{0,60}?(?:port: ?|\]:)(?P<port>\d{2,5}).{0,60}?(?:EADDRINUSE|Address already in use)",
            "eaddrinuse": r"server socket has failed to (?:listen|bind)\b.{0,200}?EADDRINUSE(?!.{0,40}port: ?\d)",
        },
    ),
    *rows(
        "nccl-unavailable-windows",
        {
            "nccl built in": r"(?:doesn't|does not) have NCCL built.?in",
            "nccl": r"NCCL (?:backend )?is not (?:available|supported)",
        },
    ),
    *rows(
        "nccl-error",
        {
            "nccl error in": r"NCCL error in:? ?\S{0,120}?(?:, |: )(?P<name>unhandled \w+ error|internal error|invalid usage|remote process \w+)",
            "nccl error": r"NCCL Error \d{1,2}: (?P<name>unhandled \w+ error|internal error|invalid usage|remote process \w+)",
            "nccl error: ": r"NCCL error: (?P<name>unhandled \w+ error|internal error|invalid usage|remote process \w+)",
            "ncclutils": r"NCCL error:? ?(?:in:? ?)?\S{0,120}?NCCLUtils\.\w{3}:\d{1,5}, .{0,60}?(?P<name>nccl(?:System|Internal|UnhandledCuda|Remote)Error|ncclInvalid(?:Usage|Argument))",
            "ncclgroupend": r"(?P<name>unhandled system error|unhandled cuda error)\W{1,12}(?:ncclGroupEnd|ncclCommInit\w{2,12})\b",
            "system call (e.g.": r"(?P<name>ncclSystemError): System call \(e\.g\. socket",
            "nccl info init.cc:": r"NCCL INFO init\.cc:\d{1,5} -> (?P<code>[1-3])\b",
            "nccl warn cuda failure": r"NCCL WARN Cuda failure (?:\d{1,3} )?'(?P<name>(?!out of memory)[^']{3,60})'",
        },
    ),
    *(
        row(
            kind,
            needle,
            rf"Call to ibv_\w{{3,30}} failed(?: with error (?P<how>{how}))",
            unless=r"Cannot allocate memory",
        )
        for kind, needle, how in (
            (
                "nccl-error",
                "ibv_modify_qp failed",
                r"(?:No such device|Invalid argument|Operation not \w+|Permission denied)",
            ),
            (
                "nccl-connect-failed",
                "failed with error ",
                r"(?:Network is unreachable|Connection timed out|No route to host)",
            ),
        )
    ),
    row(
        "nccl-error",
        "ibv_",
        r"NCCL WARN Call to (?P<name>ibv_(?:create|open|query|poll|post|alloc|get)_\w{2,20}) failed(?! with error)",
        unless=r"Cannot allocate memory",
    ),
    row(
        "nccl-duplicate-gpu",
        "duplicate gpu detected",
        r"Duplicate GPU detected ?:? ?rank (?P<rank>\d+) and rank (?P<other>\d+)",
    ),
    *rows(
        "nccl-no-socket-interface",
        {
            "no socket interface found": "",
            "no interface found in the same subnet": "",
            "unable to find interface for": r"Unable to find interface for: ?\[?(?P<interface>[\w.-]+)",
            "unsupported gloo device": r"makeDeviceFor(?:Hostname|Interface)\(\): unsupported gloo device",
        },
    ),
    *rows(
        "nccl-connect-failed",
        {
            "connect to ": rf"Connect to (?P<peer>[\w.:%-]{{3,60}}<\d{{1,5}}>) failed ?: {HOW}",
            "call to connect": rf"NCCL \w{{4}} Call to connect (?:to \S{{3,60}} )?(?:returned|failed:?) {HOW}",
            "net : call to": rf"Net ?: Call to (?:recv from|send to) (?P<peer>[\w.:%-]{{3,60}}<\d{{1,5}}>) failed ?: {HOW}",
            "gloo connectfullmesh failed": "",
            "client socket has timed out": r"client socket has (?P<how>timed out) after \d{1,9}(?:ms|s) while trying to connect to \(?(?P<peer>[\w.:%\[\]-]{3,80}, \d{1,5})",
        },
    ),
    *rows(
        "nccl-p2p-failure",
        {
            "p2p": r"(?:doesn't|does not) support faster communication broadband via P2P",
            "peer": r"peer mapping resources exhausted|cudaErrorPeerAccessUnsupported",
        },
    ),
    *rows(
        "nccl-shm-error",
        {
            "creating shared memory segment": r"Error while (?:creating|attaching to) shared memory segment (?P<path>\S+)",
            "attaching to shared memory segment": r"Error while attaching to shared memory segment (?P<path>\S+)",
            "shm": r"NCCL WARN Call to (?:shm_open|posix_fallocate|ftruncate|mmap) failed",
            "/dev/shm/nccl": r"failed to (?:extend|create|open|attach|mmap)[ \w]{0,12} (?P<path>/dev/shm/nccl-\S+)",
        },
    ),
    row(
        "nccl-connect-failed",
        "ncclsystemerror",
        rf"ncclSystemError\b.{{0,900}}?(?:{FEW_PORTS})|(?:{FEW_PORTS}).{{0,900}}?ncclSystemError\b",
        how=FEW_PORTS_OPEN,
    ),
    row(
        "nccl-hangs",
        ("tensor-parallel", "tensor_parallel", "tensor parallel", "nccl version"),
        rf"\b{HANGS}\b[^\n]{{0,160}}?{OF_SEVERAL}|{OF_SEVERAL}[^\n]{{0,160}}?\b{HANGS}\b",
        unless=r"Watchdog|[Tt]imed? ?out|out of memory|\b(?:if|may|might|could|can) (?:\w+ ){0,3}(?:hang|get stuck)",
    ),
    *rows(
        "nccl-timeout",
        {
            "watchdog caught collective operation timeout": "",
            "watchdog got stuck for": r"watchdog got stuck for \d{1,6} seconds",
            "nccl watchdog": r"NCCL watchdog (?:timeout|timed out|got stuck|stuck)\b",
            "heartbeat monitor timed out": r"Heartbeat monitor timed out!",
            "clients joined": r"Timed out after \d{1,6} seconds waiting for clients\. \d{1,5}/\d{1,5} clients joined",
            "socket timeout": r"c10d key-value store by key .{0,80}?got error:.{0,60}?Socket Timeout",
            "rendezvoustimeouterror": r"rendezvous\.api\.RendezvousTimeoutError",
        },
    ),
    row(
        "nccl-timeout",
        "timed out waiting",
        r"gloo/transport.{0,80}?Timed out waiting \d{2,9}ms for (?:recv|send) operation",
        unless="Capture cuda graph failed",
    ),
    *rows(
        "rdma-memlock",
        {
            "ibv_reg_mr": r"ibv_reg_mr\w* failed",
            "ibv_create": r"ibv_create_\w+ failed.{0,40}Cannot allocate memory",
            "memlock": r"(?:RLIMIT_MEMLOCK|memlock limit).{0,60}(?:too (?:small|low)|exceed|insufficient)",
            "max locked memory": r"max locked memory.{0,60}(?:too (?:small|low)|exceed|insufficient)",
        },
    ),
    *PORTS,
)
