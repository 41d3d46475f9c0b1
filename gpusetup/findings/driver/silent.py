"""A driver that was asked and answered not at all, not of every GPU, late, or an error."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.evidence.context import (
    RuleContext,
    driver_answers,
    events,
    gpus,
    in_container,
    in_full,
    is_report,
    silent_children,
    whole_number,
)
from gpusetup.evidence.places import IN_A_CONTAINER
from gpusetup.findings import alike
from gpusetup.findings.device.access import DEVICE_PERMISSION
from gpusetup.findings.device.faults import GPU_FELL_OFF_BUS, HARDWARE_FAULT
from gpusetup.findings.driver.cuda_api import WITH_COMPUTE
from gpusetup.findings.driver.state import GPU_INIT_FAILED
from gpusetup.findings.layers import Layer
from gpusetup.findings.message_rules import (
    case_of,
    finding,
    from_message,
    from_messages,
    seen,
    shown,
)
from gpusetup.findings.record import Alike, Cause, Message
from gpusetup.model.finding import Finding, Severity
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Event

HERE = Message(
    where=(IN_A_CONTAINER,),
    text="Look at the GPU on the host of this container (its kernel log has the reason); then "
    "start the container again with its GPUs",
    needs_root=True,
)
OTHER = Message(
    text="Reboot; if it stays, install the driver anew",
    commands=("sudo reboot",),
    look=(alike.KERNEL_LOG,),
    see="look first at what the system says",
    needs_root=True,
    needs_reboot=True,
    cases=(HERE,),
)


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
    message=replace(
        OTHER,
        title="{asked}: {problem}",
        plain="The driver gets no answer",
        detail="A driver call that hangs or crashes is mostly a GPU that stopped working, or a "
        "driver half updated.",
        text="Reboot; where it only needs long to start its GPUs, wait longer (--timeout 120)",
    ),
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
        OTHER,
        title="GPU {place} by slot ({bus}) is not among the GPUs that {asked} lists, although "
        "{why}",
        plain="A GPU is not among those that the driver lists",
        text="Reboot; until then leave this GPU out (CUDA_VISIBLE_DEVICES)",
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


def driver_does_not_answer(context: RuleContext) -> Iterator[Finding]:
    """A library of the driver crashed or hung when it was asked."""
    children = silent_children(context)
    told = [event for event in children if "gpu" in event.values]
    said = (*told, *children, *events(context, "driver-does-not-answer"))
    if said:
        values = {"asked": "The driver", "problem": "it gets no answer", **said[0].values}
        at = f" in {values['step']}" if "step" in values else ""
        at += f" of {named_gpu(context, said[0])}" if told else ""
        works = not children and driver_answers(context)
        first = replace(said[0], values={**values, "problem": f"{values['problem']}{at}"})
        only = Severity.WARNING if works else None
        yield finding(context, DRIVER_DOES_NOT_ANSWER, (first, *said[1:]), severity=only)


def named_gpu(context: RuleContext, event: Event) -> str:
    """The GPU that an event speaks of, in NVML's order or in CUDA's."""
    number, by_cuda = event.values.get("gpu"), event.values.get("asked") == "libcuda"
    for gpu in gpus(context):
        if number == str(gpu.cuda_index if by_cuda else gpu.nvml_index):
            return in_full(gpu)
    return f"GPU {number} {event.values.get('bus', '')}"


MEASURED = {"temperature_celsius", "power_watts"}
NOT_SUPPORTED = "3"


def gpu_does_not_answer(context: RuleContext) -> Iterator[Finding]:
    """A GPU fails to tell what it should; what no GPU here has is no fault of one."""
    failed: dict[str, list[Event]] = {}
    for event in events(context, "gpu-read-failed"):
        if event.values.get("code") != NOT_SUPPORTED:
            failed.setdefault(named_gpu(context, event), []).append(event)
    for gpu, said in failed.items():
        fields = {event.values.get("field", "") for event in said}
        codes = [e.values.get("code") for e in said if e.values.get("asked") == "nvml"]
        known = (CODES[n] for code in codes if (n := whole_number(code) or 0) in CODES)
        others = [one for one in gpus(context) if in_full(one) != gpu]
        nowhere = not any(getattr(one, name, None) for one in others for name in fields)
        title = f"{gpu} does not answer when it is asked for its {', '.join(sorted(fields))}"
        message = Message(title=title, look=(alike.KERNEL_LOG,), needs_root=True)
        cause = next(known, GPU_DOES_NOT_ANSWER)
        only = Severity.WARNING if nowhere and fields <= MEASURED else None
        yield from_message(context, cause, message, tuple(said), severity=only)
    yield from from_messages(context, (GPU_DOES_NOT_ANSWER,))


CODES = {
    4: DEVICE_PERMISSION,
    8: GPU_INIT_FAILED,
    10: DRIVER_DOES_NOT_ANSWER,
    11: GPU_INIT_FAILED,
    14: HARDWARE_FAULT,
    15: GPU_FELL_OFF_BUS,
    16: HARDWARE_FAULT,
    17: DEVICE_PERMISSION,
}
"""What NVML's errors mean (nvml.h, enum nvmlReturn_t), at its start or for one GPU."""
ANSWERED = Message(
    title="The driver's NVML does not start: it answers {said}",
    look=(alike.KERNEL_LOG,),
    needs_root=True,
    cases=(HERE,),
)
NO_LIBRARY = (9, 12, 13)
LIBRARIES = Message(
    title="NVML does not start although a driver runs: it answers {said}",
    text="Install the driver's libraries anew, of exactly the version of its kernel module, and "
    "reboot",
    look=("ldconfig -p | grep libnvidia-ml",),
    needs_root=True,
    needs_reboot=True,
    cases=(
        Message(where=(IN_A_CONTAINER,), text=WITH_COMPUTE.text, way=lambda _, __: WITH_COMPUTE),
    ),
)


def nvml_init_failed(context: RuleContext) -> Iterator[Finding]:
    """NVML's own answer, live: each code has its cause."""
    yield from from_messages(context, (NVML_INIT_FAILED,))
    machine, inside = context.snapshot, in_container(context)
    code = machine.driver.nvml_code or 0
    starts = machine.cuda_api.init_code == 0
    # No order: only our own question has a code; the messages of a text have causes of their own.
    if is_report(context) or context.other_host or code in (0, 18):
        return
    if code in NO_LIBRARY and (machine.os.jetson or not (starts or machine.driver.module_loaded)):
        return  # no driver at all
    if inside and not starts and code in (*NO_LIBRARY, 999):
        return  # a rule of containers has it: the GPU was taken away, or never given
    message = LIBRARIES if code in NO_LIBRARY else ANSWERED
    said = f"{machine.driver.nvml_message or 'an error'} (code {code})"
    answer = (shown(context, "driver.nvml_code", said, said=said),)
    only = Severity.WARNING if message is LIBRARIES and inside else None
    cause, case = CODES.get(code, NVML_INIT_FAILED), case_of(context, message, answer)
    yield from_message(context, cause, *case, severity=only)


SLOW_SECONDS = 5.0


DRIVER_SLOW = Cause(
    id="driver-slow",
    severity=Severity.WARNING,
    title="the driver took long to answer",
    means="Without persistence mode the driver starts every GPU anew for each program: 10"
    " to 30 s on a big node.",
    proven_by="An answer after more than 5 s",
    way_out="Enable nvidia-persistenced",
    source='NVIDIA, "Driver Persistence"',
    message=Message(
        title="The driver took {seconds} s to answer",
        text="Keep the driver loaded between programs; where it is, look at the machine's load and "
        "at the kernel's log",
        commands=("sudo systemctl enable --now nvidia-persistenced",),
        needs_root=True,
    ),
)


def driver_slow(context: RuleContext) -> Iterator[Finding]:
    """The driver took long to answer."""
    seconds = context.snapshot.driver.seconds or 0.0
    if seconds > SLOW_SECONDS:
        text = f"{seconds:.0f}"
        yield seen(context, DRIVER_SLOW, "driver.seconds", f"{text} s", seconds=text)


RULES = (
    driver_does_not_answer,
    gpu_does_not_answer,
    nvml_init_failed,
    driver_slow,
)
