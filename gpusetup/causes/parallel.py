"""Causes in runs with several processes on several GPUs, including NCCL's errors.

Sources, where a record names no other: NCCL documentation, troubleshooting; NCCL's sources (WARN
lines); torch documentation, distributed.
"""

from __future__ import annotations

from gpusetup.causes.record import Cause, Message
from gpusetup.evidence import checks, proofs
from gpusetup.messages.row import says

LOCAL_RANK = r"--local[-_]rank(?![\w-])"


CAUSES = (
    Cause(
        "local-rank-argument",
        certain_if=proofs.message_states_it,
        title="The script does not accept --local-rank, which the old launcher passes to it",
        means="The deprecated torch.distributed.launch passes the rank as an argument; torchrun "
        "sets the LOCAL_RANK variable instead.",
        text="Start the training with torchrun (replace train.py with your own script). In the "
        "script, read the rank from the environment instead of an argument: "
        '`local_rank = int(os.environ["LOCAL_RANK"])`',
        commands=("torchrun --nproc-per-node=gpu train.py",),
        # Source: torch documentation, torchrun, "Migrating from torch.distributed.launch".
        says=(
            says(rf"unrecognized arguments?: (?:\S{{1,80}} ){{0,30}}?{LOCAL_RANK}", example="train.py: error: unrecognized arguments: --local-rank=0"),
            says(rf"no such option:? {LOCAL_RANK}", example="Error: No such option: --local_rank"),
            says(r"unknown (?:command line )?(?:flag|option|argument):? ['\"]?(?:--)?local[-_]rank\b", example="FATAL Flags parsing error: Unknown command line flag 'local_rank'"),
        ),
        formerly=("launcher-deprecated",),
    ),
    Cause(
        "nccl-no-socket-interface",
        title="NCCL cannot find a network interface called {interface}",
        plain="NCCL cannot find a usable network interface",
        means="NCCL_SOCKET_IFNAME matches no interface, or the machine has no network.",
        text="Unset NCCL_SOCKET_IFNAME (also in scripts), or set it to this machine's network "
        "interface. On a single node, `lo` works",
        commands=("unset NCCL_SOCKET_IFNAME",),
        asks=(checks.NCCL_LOG,),
        says=(
            r"no socket interface found|no interface found in the same subnet",
            says(r"Unable to find interface for: ?\[?(?P<interface>[\w.-]+)", example="RuntimeError: Unable to find interface for: [eth7]"),
            says(r"makeDeviceFor(?:Hostname|Interface)\(\): unsupported gloo device", example="RuntimeError: [enforce fail at device.cc] makeDeviceForHostname(): unsupported gloo device"),
        ),
    ),
    Cause(
        "nccl-p2p-failure",
        title="These GPUs cannot access each other's memory (peer access)",
        means="Peer access is not available on most GeForce cards and in virtual machines, or if "
        "an IOMMU or ACS on the PCIe bridges blocks it.",
        text="Make NCCL use host memory instead, and turn off the server's custom all-reduce "
        "(vLLM: --disable-custom-all-reduce)",
        commands=("export NCCL_P2P_DISABLE=1",),
        asks=(f"export NCCL_P2P_DISABLE=1 NCCL_DEBUG=INFO  {checks.RUN_AGAIN}",),
        says=(
            r"peer access is not supported|peer mapping resources exhausted|cudaErrorPeerAccessUnsupported|(?:peer[- ]to[- ]peer|P2P)(?: \(P2P\))? access is not supported|\bpeer \(P2P\) access is not supported",
        ),
    ),
    Cause(
        "nccl-unavailable-windows",
        title="This build of torch has no NCCL",
        means="NCCL runs on Linux only, and CPU builds of torch do not include it.",
        text='Use init_process_group("gloo"), train on one GPU, or use Linux or WSL 2',
        cases=(
            Message(
                # Source: torch documentation, "Introduction to Libuv TCPStore Backend".
                having={"lacks": "libuv"},
                title="This build of torch has no libuv, which its TCP store needs",
                means="Since torch 2.4, the TCP store uses libuv, which wheels for Windows lack.",
                text="Turn libuv off for the TCP store, and start the program again from the same "
                "shell. Or, in your own code, add `?use_libuv=0` to init_process_group's address",
                commands=("export USE_LIBUV=0",),
            ),
        ),
        formerly=("libuv-missing",),
        says=(
            r"(?:doesn't|does not) have NCCL built.?in",
            says(r"NCCL (?:backend )?is not (?:available|supported)", example="ProcessGroupNCCL: NCCL backend is not available"),
            says(r"use_libuv was requested but PyTorch was buil[dt] without libuv", example="RuntimeError: use_libuv was requested but PyTorch was build without libuv support", lacks="libuv"),
        ),
    ),
    Cause(
        "nccl-duplicate-gpu",
        certain_if=proofs.message_states_it,
        title="Two NCCL ranks ({rank} and {other}) use the same GPU",
        text="Start at most one process per GPU, for example with `torchrun --nproc-per-node=gpu`. "
        "Before NCCL starts, call torch.cuda.set_device(int(os.environ['LOCAL_RANK']))",
        look=("nvidia-smi -L",),
        says=(r"Duplicate GPU detected ?:? ?rank (?P<rank>\d+) and rank (?P<other>\d+)",),
    ),
    Cause(
        "nccl-shm-error",
        certain_if=proofs.message_states("nccl-shm-error", "No space left|shm"),
        title="NCCL cannot create its shared memory segment ({path})",
        means="/dev/shm is full, too small, or not writable.",
        text="Make /dev/shm writable (`sudo chmod 1777 /dev/shm`) and large enough (docker: "
        "--shm-size=8g or --ipc=host), and delete the files that dead processes left there. "
        "NCCL_SHM_DISABLE=1 avoids shared memory, but is slower",
        look=("df -h /dev/shm", "ls -ld /dev/shm"),
        says=(
            says(r"(?:shared memory segment (?P<path>[^\s:]+)|posix_fallocate|/dev/shm/nccl)[^\n]{0,240}?No space left on device", why="space", example="include/shm.h:48 NCCL WARN Call to posix_fallocate failed : No space left on device"),
            says(r"(?:shared memory segment (?P<path>[^\s:]+)|shm_open|/dev/shm/nccl)[^\n]{0,160}?Permission denied", why="permission", example="NCCL WARN Error while creating shared memory segment /dev/shm/nccl-x (size 9637888): Permission denied"),
            says(r"Error while (?:creating|attaching to) shared memory segment (?P<path>\S+)", example="NCCL WARN Error while attaching to shared memory segment /dev/shm/nccl-XyZ"),
            r"NCCL WARN Call to (?:shm_open|posix_fallocate|ftruncate|mmap) failed",
            r"failed to (?:extend|create|open|attach|mmap)[ \w]{0,12} (?P<path>/dev/shm/nccl-\S+)",
        ),
    ),
    Cause(
        "nccl-error",
        title="NCCL failed: {name}",
        plain="NCCL failed, or one of its collectives timed out",
        means="Every rank (process) of the job prints this message, but only NCCL's own log lines "
        "show the reason. After a timeout, look for a rank that died, hangs or has another error.",
        text="Run the program again with NCCL's log turned on, and read the first line with WARN. "
        "If no rank shows an error, find out where each rank waits (`py-spy dump --pid PID`)",
        symptom=True,
        commands=("export NCCL_DEBUG=INFO", "export TORCH_NCCL_TRACE_BUFFER_SIZE=2000"),
        asks=(checks.NCCL_LOG,),
        says=(
            r"NCCL WARN Cuda failure (?:\d{1,3} )?'(?P<name>(?!out of memory)[^']{3,60})'",
            says(r"Call to ibv_\w{3,30} failed(?: with error (?P<how>(?:No such device|Invalid argument|Operation not \w+|Permission denied)))", example="Call to ibv_modify_qp failed with error No such device"),
            says(r"NCCL WARN Call to (?P<name>ibv_(?:create|open|query|poll|post|alloc|get)_\w{2,20}) failed(?! with error)", example="misc/ibvwrap.cc:280 NCCL WARN Call to ibv_create_qp failed"),
            says(r"NCCL error in:? ?\S{0,120}?(?:, |: )(?P<name>unhandled \w+ error|internal error|invalid usage|remote process \w+)", example="RuntimeError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1275, unhandled system error, NCCL version 2.14.3"),
            says(r"NCCL [Ee]rror(?: \d{1,2})?: (?P<name>unhandled \w+ error|internal error|invalid usage|remote process \w+)", example="NCCL Error 2: unhandled system error (run with NCCL_DEBUG=INFO for details)"),
            r"NCCL error:? ?(?:in:? ?)?\S{0,120}?NCCLUtils\.\w{3}:\d{1,5}, .{0,60}?(?P<name>nccl(?:System|Internal|UnhandledCuda|Remote)Error|ncclInvalid(?:Usage|Argument))",
            r"(?P<name>ncclSystemError): System call \(e\.g\. socket",
            says(r"NCCL INFO init\.cc:\d{1,5} -> (?P<code>[1-3])\b", example="host:57:75 [0] NCCL INFO init.cc:876 -> 2"),
            says(r"\bRank (?P<rank>\d{1,5}) -- GPU (?P<gpu_index>\d{1,2}) managed by process (?P<pid>\d{1,8}) on node (?P<node>[\w.:-]{1,60})", example="MISMATCH\n  Rank 5 -- GPU 5 managed by process 2211 on node 10.0.0.7"),
            says(r"\b[Mm]issing ranks?(?: are)?:? ?\{(?P<rank>\d{1,5}(?:, \d{1,5}){0,15})\}", example="Not all ranks joining collective, missing ranks: {3, 4}"),
            says(r"watchdog caught collective operation timeout|watchdog got stuck for \d{1,6} seconds|NCCL watchdog (?:timeout|timed out|got stuck|stuck)\b|Heartbeat monitor timed out!|rendezvous\.api\.RendezvousTimeoutError", example="ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress in monitoring enqueued collectives.", name="a collective timed out"),
            says(r"Timed out after \d{1,6} seconds waiting for clients\. \d{1,5}/\d{1,5} clients joined", example="torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 clients joined.", name="not all clients joined"),
        ),
        formerly=("rdma-memlock", "nccl-timeout"),
    ),
)  # fmt: skip
