"""Several processes and several GPUs: workers, shared memory, NCCL."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.evidence.context import RuleContext, events
from gpusetup.findings import alike
from gpusetup.findings.layers import NCCL_SAYS, Layer
from gpusetup.findings.message_rules import from_message, from_messages
from gpusetup.findings.record import Alike, Cause, Message
from gpusetup.findings.sources import NCCL_DOC
from gpusetup.model.finding import Finding

NCCL_NO_SOCKET_INTERFACE = Cause(
    id="nccl-no-socket-interface",
    place=(Layer.RUNNING, 60),
    title="NCCL finds no network interface",
    means="NCCL_SOCKET_IFNAME names none, or there is no network.",
    proven_by="NCCL's or gloo's line",
    way_out="Unset it, or name one that exists",
    source=NCCL_DOC,
    explains=NCCL_SAYS,
    message=Message(
        title="NCCL finds no network interface called {interface}",
        plain="NCCL finds no network interface that it may use",
        text="Unset NCCL_SOCKET_IFNAME (also where a script sets it), or let it name an interface "
        "of this machine; `lo` serves for a single node",
        commands=("unset NCCL_SOCKET_IFNAME",),
        look=("ip -brief addr",),
        see="see the interfaces of this machine",
    ),
    stage="distributed",
    alike=(Alike(causes=("nccl-error",), asks=alike.NCCL_LOG, unless=alike.interface_is_said),),
)


NCCL_P2P_FAILURE = Cause(
    id="nccl-p2p-failure",
    place=(Layer.RUNNING, 80),
    title="no peer access between GPUs",
    means="GeForce, virtual machines, an IOMMU.",
    proven_by="Error 217, or the program's refusal; likely where a model over several GPUs hangs",
    way_out="NCCL_P2P_DISABLE=1",
    source=NCCL_DOC,
    explains=NCCL_SAYS,
    message=Message(
        title="Peer access between these GPUs is not possible",
        detail="GeForce cards, virtual machines, an IOMMU or ACS on the PCIe bridges forbid it.",
        text="Let NCCL go through memory instead, and switch off custom all-reduce kernels of "
        "the serving program (vLLM: --disable-custom-all-reduce)",
        commands=("export NCCL_P2P_DISABLE=1",),
        look=("nvidia-smi topo -p2p r",),
        see="see which pairs of GPUs have it",
    ),
    stage="distributed",
    alike=(
        Alike(
            causes=("nccl-timeout", "nccl-shm-error"),
            asks=f"export NCCL_P2P_DISABLE=1 NCCL_DEBUG=INFO  {alike.RUN_AGAIN}",
            unless=alike.p2p_is_said,
        ),
    ),
)

HANGS = Message(
    title="A model over several GPUs hangs, as where peer access between them does not work",
    detail="NCCL waits without a word where a virtual machine, an IOMMU or ACS on the PCIe bridges "
    "breaks what the driver promises.",
    text="See first whether it runs without peer access; then let NCCL's log say where it waits",
    commands=("export NCCL_P2P_DISABLE=1", "export NCCL_DEBUG=INFO"),
    look=("nvidia-smi topo -p2p r",),
    see="see which pairs of GPUs have it",
)

MESSAGES: tuple[Cause, ...] = (
    Cause(
        id="dataloader-worker-killed",
        place=(Layer.RUNNING, 130),
        title="a DataLoader worker was killed",
        means="The host's memory ran out.",
        proven_by="torch's message with the signal Killed",
        not_when="shm-too-small (signal Bus error)",
        way_out="Fewer workers, more memory",
        source="torch/utils/data/_utils/signal_handling.py",
        message=Message(
            title="A DataLoader worker was killed: the host's memory ran out",
            detail="The kernel (or a cgroup, or the batch system) ends the largest process when "
            "memory runs out; every worker holds a copy of what the dataset keeps.",
            text="Use fewer workers (num_workers=0 shows the real error), a smaller "
            "prefetch_factor, or give the job more memory",
            look=("free -g", "sudo dmesg | grep -iE 'killed process|out of memory'"),
            see="see what was ended, and for want of what",
        ),
    ),
    Cause(
        id="nccl-unavailable-windows",
        place=(Layer.RUNNING, 30),
        title="this torch has no NCCL",
        means="Windows and CPU builds have none.",
        proven_by="torch's message",
        way_out="gloo, or Linux",
        source="torch documentation, distributed",
        message=Message(
            title="This build of torch has no NCCL",
            detail="Wheels for Windows (and CPU builds) have none; NCCL runs on Linux.",
            text='Use the backend "gloo" here (init_process_group("gloo")), one GPU, or Linux or '
            "WSL 2",
        ),
        stage="distributed",
    ),
    Cause(
        id="nccl-duplicate-gpu",
        place=(Layer.RUNNING, 50),
        title="two ranks use one GPU",
        means="More processes than GPUs, or a device that is not set.",
        proven_by="NCCL's line",
        not_when="invalid-device-ordinal",
        way_out="One process a GPU, LOCAL_RANK",
        source=NCCL_DOC,
        explains=NCCL_SAYS,
        message=Message(
            title="Two NCCL ranks ({rank} and {other}) use the same GPU",
            plain="Two NCCL ranks use the same GPU",
            text="Start at most one process a GPU, and choose the device from LOCAL_RANK before "
            "NCCL starts: torch.cuda.set_device(int(os.environ['LOCAL_RANK'])); `torchrun "
            "--nproc-per-node=gpu` starts one a GPU",
            look=("nvidia-smi -L",),
            see="see how many GPUs there are",
        ),
        stage="distributed",
    ),
    NCCL_NO_SOCKET_INTERFACE,
    NCCL_P2P_FAILURE,
    Cause(
        id="nccl-shm-error",
        place=(Layer.RUNNING, 70),
        title="NCCL cannot use shared memory",
        means="/dev/shm is full, small or not writable.",
        proven_by="NCCL's line about its segment",
        not_when="shm-too-small: a DataLoader's bus error",
        way_out="A larger, writable /dev/shm",
        source=NCCL_DOC,
        explains=NCCL_SAYS,
        message=Message(
            title="NCCL cannot create its segment of shared memory ({path})",
            plain="NCCL cannot create or attach its segment of shared memory",
            text="Make /dev/shm writable and large enough (docker: --shm-size=8g or --ipc=host), "
            "and remove segments that dead processes left; NCCL_SHM_DISABLE=1 does without, slower",
            commands=("sudo chmod 1777 /dev/shm",),
            look=("df -h /dev/shm", "ls -ld /dev/shm"),
            see="see how large it is, and who may write",
            needs_root=True,
        ),
        stage="distributed",
    ),
    Cause(
        id="nccl-timeout",
        symptom=True,
        place=(Layer.RUNNING, 160),
        title="a collective ran into its time limit",
        means="Another rank died or hangs.",
        proven_by="torch's watchdog",
        not_when="Any other finding of NCCL or memory: then that is why",
        way_out="The first error of all ranks",
        source="torch documentation, distributed",
        explains=("nccl-error",),
        message=Message(
            title="A collective of NCCL ran into its time limit",
            detail="One rank waits for another that died, does other work, or hangs; the first "
            "rank with an error of its own shows why.",
            text="Look at the log of every rank for the first error; log what NCCL does",
            commands=("export NCCL_DEBUG=INFO", "export TORCH_NCCL_TRACE_BUFFER_SIZE=2000"),
        ),
        stage="distributed",
        alike=(
            Alike(
                causes=("nccl-p2p-failure", "nccl-no-socket-interface", "gpu-fell-off-bus"),
                asks=f"export NCCL_DEBUG=INFO TORCH_NCCL_TRACE_BUFFER_SIZE=2000  {alike.RUN_AGAIN}",
            ),
        ),
    ),
)


def nccl_error(context: RuleContext) -> Iterator[Finding]:
    """NCCL failed, and the text does not say over what."""
    yield from from_messages(context, MESSAGES)
    unreached = events(context, "nccl-connect-failed")
    if unreached and not events(context, *ENDS_A_RANK):
        yield from_message(context, NCCL_NO_SOCKET_INTERFACE, UNREACHED, unreached)
    hangs = events(context, "nccl-hangs")
    if hangs and not events(context, *TELLS_WHY):
        yield from_message(context, NCCL_P2P_FAILURE, HANGS, hangs)
    yield from from_messages(context, (UNEXPLAINED,) if events(context, "nccl-error") else ())


TELLS_WHY = ("nccl-p2p-failure", "nccl-timeout", "nccl-connect-failed", "cuda-error", "xid")


ENDS_A_RANK = ("out-of-memory", "host-out-of-memory", "dataloader-worker-killed")
"""Where one rank ended for a reason of its own, the others cannot reach it."""

UNREACHED = Message(
    title="NCCL cannot reach the rank at {peer}: {how}",
    plain="NCCL cannot reach another rank through the network interface that it took",
    text="Let NCCL_SOCKET_IFNAME name the interface of the network that joins the machines (NCCL "
    "may have taken a bridge or lo), open the ports between them, and see that the other rank runs",
    commands=("export NCCL_DEBUG=INFO",),
    look=("ip -brief addr",),
    see="see the interfaces of this machine",
)

UNEXPLAINED = Cause(
    id="nccl-error",
    symptom=True,
    place=(Layer.RUNNING, 170),
    title="NCCL failed without a reason",
    means="Every rank says so; NCCL's own lines hold the reason.",
    proven_by="unhandled system or cuda error",
    not_when="Any other finding of NCCL",
    way_out="NCCL_DEBUG=INFO",
    source=NCCL_DOC,
    message=Message(
        title="NCCL failed: {name}",
        plain="NCCL failed",
        detail="This is what every rank says; the reason stands in NCCL's own lines.",
        text="Run it again with NCCL's own log, and read the first line with WARN",
        commands=("export NCCL_DEBUG=INFO",),
    ),
    stage="distributed",
    alike=(
        Alike(
            causes=("nccl-no-socket-interface", "nccl-shm-error", "nccl-p2p-failure"),
            asks=alike.NCCL_LOG,
            unless=lambda context: not alike.is_the_systems(context),
        ),
        Alike(causes=("nccl-p2p-failure", "nccl-shm-error"), asks=alike.NCCL_LOG),
    ),
)

RULES = (nccl_error,)
