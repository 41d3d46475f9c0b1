"""What NVML's errors mean (nvml.h, enum nvmlReturn_t), at its start or for one GPU."""

from __future__ import annotations

from gpusetup.evidence.context import RuleContext, driver_answers, events, in_container
from gpusetup.findings.device.access import DEVICE_PERMISSION
from gpusetup.findings.device.faults import GPU_FELL_OFF_BUS, HARDWARE_FAULT
from gpusetup.findings.driver.state import GPU_INIT_FAILED
from gpusetup.findings.layers import Layer
from gpusetup.findings.message_rules import fix_of
from gpusetup.findings.record import Alike, Cause, Message
from gpusetup.model.finding import Fix
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Event

OTHER = Message(
    title="The driver's NVML does not start: it answers {said}",
    text="Reboot; if it stays, install the driver anew",
    commands=("sudo reboot",),
    look=("sudo dmesg | grep -iE 'nvrm|xid'",),
    see="look first at what the system says",
    needs_root=True,
    needs_reboot=True,
)
"""At NVML's start, what has no cause of its own."""
ONE_GPU = replace(
    OTHER,
    title="A GPU does not answer",
    text="Reboot; until then leave this GPU out (CUDA_VISIBLE_DEVICES)",
)
"""For one GPU, what has no cause of its own."""


DRIVER_DOES_NOT_ANSWER = Cause(
    id="driver-does-not-answer",
    symptom=True,
    place=(Layer.DRIVER, 110),
    title="asking the driver hung or crashed",
    means="A library of the driver crashed or did not come back: a GPU that stopped, or a"
    " driver half updated. The finding names the call and the GPU where it stopped.",
    proven_by="The child that asked ran into its time limit, or died by a signal",
    not_when="driver-slow: it answered within --timeout",
    way_out="Kernel log, reboot",
    source="gpusetup asks in children with a time limit",
    explains=("gpu-does-not-answer", "cuda-misses-gpu"),
)


GPU_DOES_NOT_ANSWER = Cause(
    id="gpu-does-not-answer",
    symptom=True,
    place=(Layer.DRIVER, 130),
    title="one GPU fails to tell what it should",
    means="The driver lists the GPU and cannot read it, or what it tells cannot be.",
    proven_by="NVML's error for the GPU, its memory, temperature or power; CUDA's for its name",
    not_when="gpu-fell-off-bus: NVML says that it is lost; a value that no GPU here has",
    way_out="Kernel log, reset or reboot; leave the GPU out until then",
    source="NVML API reference, nvmlReturn_t",
    explains=("cuda-misses-gpu",),
    events=("gpu-not-listed",),
    holds=(lambda c: any("CUDA" in e.values.get("why", "") for e in events(c, "gpu-not-listed")),),
    message=replace(
        ONE_GPU,
        title="GPU {place} by slot ({bus}) is not among the GPUs that {asked} lists, although "
        "{why}",
        plain="A GPU is not among those that the driver lists",
    ),
)


NVML_INIT_FAILED = Cause(
    id="nvml-init-failed",
    symptom=True,
    place=(Layer.DRIVER, 120),
    title="the driver's NVML does not start, or cannot list the GPUs",
    means="The kernel driver is there and refuses; nvidia-smi and NCCL fail with it.",
    proven_by="What nvmlInit or nvmlDeviceGetCount answers; 9, 12 and 13 beside a "
    "loaded module or a CUDA that starts; a version that cannot be",
    not_when="Codes that have a cause of their own: 4, 8, 10, 11, 14, 15, 16, 17, 18",
    way_out="Kernel log, reboot",
    source="NVML API reference, nvmlReturn_t",
    events=("nvml-init-failed", "nvml-unknown-error"),
    holds=(
        lambda context: (
            bool(events(context, "nvml-init-failed"))
            or not (in_container(context) or driver_answers(context))
        ),
        lambda context: not context.other_host,
    ),
    message=replace(
        OTHER,
        title="NVML starts and cannot tell its {field}: {problem}",
        plain="The driver's NVML does not start: it answers an unknown error (code 999)",
        detail="On a host often the device nodes or nvidia_uvm are in a bad state (after suspend "
        "or an update of the driver); in a container its device rules are gone.",
    ),
    alike=(
        Alike(
            causes=("container-nvml-lost", "uvm-missing", "cuda-unknown-error"), asks="nvidia-smi"
        ),
    ),
)


NO_START = (
    GPU_INIT_FAILED,
    replace(
        OTHER,
        title="The driver cannot start the GPU: NVML answers {said}",
        text="Power the machine off, look at the GPU's power cables and seating, and start it "
        "again",
        commands=(),
    ),
)
PERMISSION = (
    DEVICE_PERMISSION,
    Message(
        title="This user may not ask the driver: NVML answers {said}",
        text="Join the group that owns the nodes and log in again; in a container start it anew "
        "with its GPUs (--gpus all), whose device rules are gone or were never given",
        look=("ls -l /dev/nvidia*",),
        needs_root=True,
    ),
)
FAULT = (
    HARDWARE_FAULT,
    replace(
        OTHER,
        title="The driver finds a fault of the GPU: NVML answers {said}",
        text="Power the machine off and on; if it comes back have the GPU replaced",
    ),
)
CODES: dict[int, tuple[Cause, Message]] = {
    4: PERMISSION,
    8: NO_START,
    10: (
        DRIVER_DOES_NOT_ANSWER,
        replace(OTHER, title="NVML gave up waiting for the driver: {said}"),
    ),
    11: NO_START,
    14: FAULT,
    15: (
        GPU_FELL_OFF_BUS,
        replace(
            OTHER,
            title="A GPU has fallen off the PCI bus: NVML answers {said}",
            text="Power the machine off and on; if it comes back: power cables, heat, seating, "
            "riser",
        ),
    ),
    16: FAULT,
    17: PERMISSION,
}
LIBRARIES = (
    NVML_INIT_FAILED,
    replace(
        OTHER,
        title="NVML does not start although a driver runs: it answers {said}",
        text="Install the driver's libraries anew, of exactly the version of its kernel module, "
        "and reboot",
        commands=(),
        look=("ldconfig -p | grep libnvidia-ml",),
    ),
)
"""What it answers beside a kernel module that is loaded, or a CUDA that starts."""


def way_out(context: RuleContext, cause: Cause, message: Message) -> Fix:
    """Inside a container there is nothing to do but to look at its host."""
    if in_container(context) and cause is not DEVICE_PERMISSION:
        text = "Look at the GPU on the host of this container: its kernel log has the reason"
        return Fix(text=text, needs_root=True)
    return fix_of(context, message, (Event(kind="nvml"),))
