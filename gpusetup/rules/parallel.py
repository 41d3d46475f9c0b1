"""Several processes and several GPUs: workers, shared memory, NCCL."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.model import Finding
from gpusetup.rules.case import Case, events
from gpusetup.rules.messages import Message, said

NCCL = "NCCL documentation, troubleshooting"

MESSAGES: tuple[Message, ...] = (
    Message(
        kind="dataloader-worker-killed",
        id="dataloader-worker-killed",
        title="A DataLoader worker was killed: the host's memory ran out",
        detail="The kernel (or a cgroup, or the batch system) ends the largest process when memory "
        "runs out; every worker holds a copy of what the dataset keeps.",
        text="Use fewer workers (num_workers=0 shows the real error), a smaller prefetch_factor, "
        "or give the job more memory",
        look=("free -g", "sudo dmesg | grep -iE 'killed process|out of memory'"),
        see="see what was ended, and for want of what",
    ),
    Message(
        kind="nccl-unavailable",
        id="nccl-unavailable-windows",
        title="This build of torch has no NCCL",
        detail="Wheels for Windows (and CPU builds) have none; NCCL runs on Linux.",
        text='Use the backend "gloo" here (init_process_group("gloo")), one GPU, or Linux or WSL 2',
    ),
    Message(
        kind="nccl-duplicate-gpu",
        id="nccl-duplicate-gpu",
        title="Two NCCL ranks ({rank} and {other}) use the same GPU",
        plain="Two NCCL ranks use the same GPU",
        text="Start at most one process a GPU, and choose the device from LOCAL_RANK before NCCL "
        "starts: torch.cuda.set_device(int(os.environ['LOCAL_RANK'])); `torchrun "
        "--nproc-per-node=gpu` starts one a GPU",
        look=("nvidia-smi -L",),
        see="see how many GPUs there are",
    ),
    Message(
        kind="nccl-no-socket-interface",
        id="nccl-no-socket-interface",
        title="NCCL finds no network interface called {interface}",
        plain="NCCL finds no network interface that it may use",
        text="Unset NCCL_SOCKET_IFNAME (also where a script sets it), or let it name an interface "
        "of this machine; `lo` serves for a single node",
        commands=("unset NCCL_SOCKET_IFNAME",),
        look=("ip -brief addr",),
        see="see the interfaces of this machine",
    ),
    Message(
        kind="nccl-p2p-failure",
        id="nccl-p2p-failure",
        title="Peer access between these GPUs is not possible",
        detail="GeForce cards, virtual machines, an IOMMU or ACS on the PCIe bridges forbid it.",
        text="Let NCCL go through memory instead, and switch off custom all-reduce kernels of the "
        "serving program (vLLM: --disable-custom-all-reduce)",
        commands=("export NCCL_P2P_DISABLE=1",),
        look=("nvidia-smi topo -p2p r",),
        see="see which pairs of GPUs have it",
    ),
    Message(
        kind="nccl-shm-error",
        id="nccl-shm-error",
        title="NCCL cannot create its segment of shared memory ({path})",
        plain="NCCL cannot create or attach its segment of shared memory",
        text="Make /dev/shm writable and large enough (docker: --shm-size=8g or --ipc=host), and "
        "remove segments that dead processes left; NCCL_SHM_DISABLE=1 does without, slower",
        commands=("sudo chmod 1777 /dev/shm",),
        look=("df -h /dev/shm", "ls -ld /dev/shm"),
        see="see how large it is, and who may write",
        needs_root=True,
    ),
    Message(
        kind="nccl-timeout",
        id="nccl-timeout",
        title="A collective of NCCL ran into its time limit",
        detail="One rank waits for another that died, does other work, or hangs; the first rank "
        "with an error of its own shows why.",
        text="Look at the log of every rank for the first error; log what NCCL does",
        commands=("export NCCL_DEBUG=INFO", "export TORCH_NCCL_TRACE_BUFFER_SIZE=2000"),
    ),
)


def nccl_error(case: Case) -> Iterator[Finding]:
    """NCCL failed, and the text does not say over what."""
    yield from said(case, MESSAGES)
    if not events(case, *ENDS_A_RANK):
        yield from said(case, (UNREACHED,))
    yield from said(case, (UNEXPLAINED,) if events(case, "nccl-error") else ())


ENDS_A_RANK = ("cuda-out-of-memory", "host-out-of-memory", "dataloader-worker-killed")
"""Where one rank ended for a reason of its own, the others cannot reach it."""

UNREACHED = Message(
    kind="nccl-connect-failed",
    id="nccl-no-socket-interface",
    title="NCCL cannot reach the rank at {peer}: {how}",
    plain="NCCL cannot reach another rank through the network interface that it took",
    text="Let NCCL_SOCKET_IFNAME name the interface of the network that joins the machines (NCCL "
    "may have taken a bridge or lo), open the ports between them, and see that the other rank runs",
    commands=("export NCCL_DEBUG=INFO",),
    look=("ip -brief addr",),
    see="see the interfaces of this machine",
)

UNEXPLAINED = Message(
    kind="nccl-error",
    id="nccl-error",
    title="NCCL failed: {name}",
    plain="NCCL failed",
    detail="This is what every rank says; the reason stands in NCCL's own lines.",
    text="Run it again with NCCL's own log, and read the first line with WARN",
    commands=("export NCCL_DEBUG=INFO",),
)

RULES = (nccl_error,)
