"""Messages of containers, rented machines, NCCL and multi-node jobs about where a program runs.

Sources: the error texts of moby, containerd, podman, libnvidia-container, nvidia-container-toolkit,
kube-scheduler, kubelet and the NVIDIA device plugin; the entry script of NVIDIA's images, kubectl.

Sources: torch/utils/data (signal handling), torch's shared memory manager, NCCL 2.4 to 2.28
(shmutils.cc, bootstrap.cc, ibvwrap.cc, init.cc), torch.distributed, accelerate, torch's TCPStore
(socket.cpp).
"""

from __future__ import annotations

from gpusetup.messages.row import row, rows

# `a `, `my free hosted `.
ARTICLE = r"(?:an? |the |my |free )?(?:hosted )?"


# `works on LENT`, `LENT or OTHER`: the names of two notebook services replace these two words.
ELSEWHERE = (
    r"\b(?:works?|worked|working|fine|well|runs) (?:on|in|with) (?:an? |the |my )?LENT|LENT\b[^.\n]{0,50}\b(?:works|worked|is fine|runs fine|no problem|same code)"
    r"|LENT`?,? (?:and|or|/) `?OTHER|OTHER`?,? (?:and|or|/) `?LENT|\b(?:not|neither|unlike|like|also)(?: \w+)? (?:on|in|with) (?:an? |the )?LENT|LENT I also|usage limits in LENT"
)


def elsewhere(name: str, other: str) -> str:
    """A pattern for sentences that say that a failure did not happen on a notebook service, or not
    only there.

    For example "It works on Colab" or "in Colab or Kaggle". `name` is the service, `other` is
    another service.
    """
    name_pattern = f"(?:google )?{name}"
    pattern = ELSEWHERE.replace("LENT", name_pattern)
    return pattern.replace("OTHER", other)


# `only port 22 is open`, `the firewall blocks`.
FEW_PORTS = r"\bonly (?:the )?ports? [\d -]{2,15}(?:are|is) (?:open|allowed)|\bports?\b[^.\n]{0,40}\b(?:blocked|closed|not open)\b|\bfirewall (?:blocks|is active|between)"


FEW_PORTS_OPEN = "not every port is open between the machines"
"""The value for a message in which somebody says that ports are closed, so NCCL's ranks cannot
reach each other."""


HANGS = r"(?:hangs?|hung|hanging|stuck|freezes|froze|frozen|stalls?)"


# `--tensor-parallel-size 2`, `NCCL version 2.21.5`.
OF_SEVERAL = r"\b(?:tensor[-_ ]parallel(?:ism)?(?:[-_ ]size)?[ =:]{0,3}(?:of )?(?:[2-9]|1\d)?\b|NCCL version \d)"
"""Words that show that a model is split over several GPUs, so NCCL is used."""


# `Connection refused`, `No route to host`.
HOW = (
    "(?P<how>Connection (?:refused|timed out|reset by peer)|No route to host|Network is unreachable"
    "|Software caused connection abort|Cannot assign requested address)"
)
"""The system's reason why a connection failed."""


ROWS = (
    # `/vllm-workspace/`.
    row("gpu-image", r"(?<![\w/])/(?:vllm|sgl)-workspace/"),
    # `The command '/bin/sh -c python x.py' returned a non-zero code`.
    row("image-build", r"failed to solve: process|=> ERROR \[|The command '/bin/sh -c .{1,400}?returned a non-zero code|\bbuilding at STEP\b"),
    # in `docker build
    row("image-build", r"\b(?:in|during|while|when) (?:\S{1,12} ){0,4}?`?(?:docker|podman)(?:[ -]compose)?(?: buildx)? build\b", unless=r"(?:docker|podman) run|compose up|\bworks?\b|succe"),
    # `load library failed: libnvidia-ml.so.1`.
    row("no-nvidia-driver", r"load library failed: (?P<library>libnvidia-ml\.so[.\d]*)", place="host"),
    # `/content/t`.
    *rows(
        "hosted-notebook",
        "google/colab",
        r"\bcondacolab\b",
        r"google\.colab",
        r"(?<![\w./-])/content(?:/(?!images?/|media/)\w|[#$] )",
        service="Google Colab",
    ),
    # `Platform:** Google Colab`.
    row("hosted-notebook", rf"\b(?:(?:on|in|using|my|this|from) {ARTICLE}|(?:environment|platform|system|os|running on)" r"\W{1,6})(?:Google )?Colab(?:oratory)?\b|\bColab(?:oratory)?(?:'s)? (?:\((?=[TLAV]))?(?:T4|L4|[AV]100|TPU|GPUs?|notebooks?|runtime|pro|instance|session|page|free)\b|(?:运行环境|环境|在) ?(?:是|为|：|:)? ?(?:Google )?Colab", unless=elsewhere("colab(?:oratory)?", "kaggle"), service="Google Colab"),
    # `Environment: Kaggle`.
    row("hosted-notebook", rf"\b(?:(?:on|in|using|my|this) {ARTICLE}|(?:environment|platform|system|os|running on)" r"\W{1,6})Kaggle\b(?! ?(?:data|competition|api\b|cli\b|[./_-]))|\bKaggle(?:'?s)? (?:\((?=[TP]))?(?:T4|P100|TPU|GPUs?|notebooks?|kernel|session|runtime|free)\b", unless=elsewhere("kaggle", "colab"), service="Kaggle"),
    # `cannot currently connect to a GPU backend`.
    *rows(
        "gpu-not-chosen",
        r"[Cc]annot (?:currently )?connect to (?:a )?GPU backend",
        "due to usage limits in colab",
        service="Google Colab",
    ),
    # `/kaggle/working`.
    row("hosted-notebook", r"(?<![\w.])/kaggle/(?:working|input|tmp)\b", service="Kaggle"),
    # `/home/ec2-user/SageMaker`.
    row("hosted-notebook", r"/home/ec2-user/SageMaker|/home/sagemaker-user", service="SageMaker"),
    # `SLURM_JOB_ID=8`.
    *rows(
        "slurm-job",
        r"(?<![\w'\"])SLURM_JOB_?(?:ID|NAME|PARTITION|NODELIST)=\w",
        r"#SBATCH +-",
        r"\bsrun(?:: job \d| +-)",
        r"\bsalloc(?:: (?:Granted|job \d)| +-)",
    ),
    # `through slurm`.
    row("slurm-job", r"(?i)\b(?:through|via|with|under|by|using|our|an?) slurm\b|\bslurm (?:job|script|queue|cluster)\b|[$%>] (?:sinfo|squeue|sbatch)\b|\b(?:sinfo|squeue|sbatch) --?\w|\bscontrol show\b", gpus="not shown"),
    # `AllocTRES=cpu=4,mem=16G,node=1`.
    row("slurm-job", r"\b(?:Alloc|Req)TRES=(?=\w)(?![^\n]*gres/gpu)", gave="none"),
    row("slurm-job", r"\b(?:Alloc|Req)TRES=[^\n]*gres/gpu", gpus="asked for"),
    # `CUDA_VISIBLE_DEVICES=NoDevFiles`.
    row("slurm-job", r"\bCUDA_VISIBLE_DEVICES\}?\W{1,3}NoDevFiles\b", gave="none"),
    # `--gres gpu`.
    *rows(
        "slurm-job",
        r"--gres[= ]gpu",
        r"(?:sbatch|srun|salloc)\b[^\n]{0,120}? --gpus(?:-per-\w{3,6})?[= ]\w",
        r"SLURM_(?:JOB_GPUS|GPUS\w{0,12}|STEP_GPUS)[=:] ?\w",
        gpus="asked for",
    ),
    # `#SBATCH --gpus-per-task=1`.
    row("slurm-job", r"--gpus-per-task[= ]\d|--gpu-bind[= ]\w", gpus="asked for", binding="task"),
    # `jobs on node dgk713`.
    row("shared-node", r"\bjobs? (?:\S{1,20} ){0,3}on node \w|\b[Jj]ob IDs? (?:are|is|were)\b"),
    # `our cluster`.
    row("shared-node", r"\b(?:(?:our|the|my|a|university|school|HPC|GPU|compute|computing|shared|lab)(?:'s)? )+cluster\b(?! cent)|\bHPC cluster"),
    # `login-node`.
    row("login-node", r"\blogin[ -]node\b|\w@[\w-]{0,20}login[\w-]{0,20}[.: ~]", "login"),
    row("gpus-not-given", r"(?:ray::|ray\.exceptions|RayTaskError).{0,550}?No CUDA GPUs are available", who="Ray"),
    # `Call to ibv_modify_qp failed with error Connection timed out`.
    row("nccl-connect-failed", r"Call to ibv_\w{3,30} failed(?: with error (?P<how>(?:Network is unreachable|Connection timed out|No route to host)))", unless=r"Cannot allocate memory"),
    # `Connect to 10.1.2.3<40001> failed : No route to host`.
    *rows(
        "nccl-connect-failed",
        rf"Connect to (?P<peer>[\w.:%-]{{3,60}}<\d{{1,5}}>) failed ?: {HOW}",
        rf"NCCL \w{{4}} Call to connect (?:to \S{{3,60}} )?(?:returned|failed:?) {HOW}",
        rf"Net ?: Call to (?:recv from|send to) (?P<peer>[\w.:%-]{{3,60}}<\d{{1,5}}>) failed ?: {HOW}",
        "gloo connectfullmesh failed",
        r"client socket has failed to connect to \[?(?P<peer>[\w.:%-]{3,80}?)\]?:\d{1,5} \(errno: \d{1,3} - (?P<how>No route to host|Network is unreachable|Connection timed out)",
        r"client socket has (?P<how>timed out) after \d{1,9}(?:ms|s) while trying to connect to \(?(?P<peer>[\w.:%\[\]-]{3,80}, \d{1,5})",
    ),
    # `ncclSystemError: System call failed. The firewall is active`.
    row("nccl-connect-failed", rf"ncclSystemError\b.{{0,900}}?(?:{FEW_PORTS})|(?:{FEW_PORTS}).{{0,900}}?ncclSystemError\b", how=FEW_PORTS_OPEN),
    # `hangs | vLLM hangs when tensor_parallel_size=2`.
    row("nccl-hangs", rf"\b{HANGS}\b[^\n]{{0,160}}?{OF_SEVERAL}|{OF_SEVERAL}[^\n]{{0,160}}?\b{HANGS}\b", "tensor-parallel", "tensor_parallel", "tensor parallel", "nccl version", unless=r"Watchdog|[Tt]imed? ?out|out of memory|\b(?:if|may|might|could|can) (?:\w+ ){0,3}(?:hang|get stuck)"),
)  # fmt: skip
