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
from gpusetup.findings.message_rules import finding, from_message, from_messages, seen, shown
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
    # A child that names the GPU goes first.
    said = (
        *sorted(children, key=lambda event: "gpu" not in event.values),
        *events(context, "driver-does-not-answer"),
    )
    if said:
        step, gpu = said[0].values.get("step"), said[0].values.get("gpu")
        where = f" in {step}" if step else ""
        of = f" of {named_gpu(context, said[0])}" if gpu else ""
        problem = f"{said[0].values.get('problem') or 'it gets no answer'}{where}{of}"
        works = not children and driver_answers(context)
        yield finding(
            context,
            DRIVER_DOES_NOT_ANSWER,
            (replace(said[0], values={**said[0].values, "problem": problem}), *said[1:]),
            severity=Severity.WARNING if works else None,
        )


def named_gpu(context: RuleContext, event: Event) -> str:
    """The GPU that an event speaks of, in NVML's order or in CUDA's."""
    number, bus = event.values.get("gpu"), event.values.get("bus", "")
    by_cuda = event.values.get("asked") == "libcuda"
    for gpu in gpus(context):
        if number == str(gpu.cuda_index if by_cuda else gpu.nvml_index):
            return in_full(gpu)
    return f"GPU {number}{' in the order of CUDA' if by_cuda else ''} {bus}"


MEASURED = {"temperature_celsius", "power_watts"}
NOT_SUPPORTED = "3"


def gpu_does_not_answer(context: RuleContext) -> Iterator[Finding]:
    """A GPU fails to tell what it should; what no GPU here has is no fault of one."""
    failed: dict[str, list[Event]] = {}
    for event in events(context, "gpu-read-failed"):
        failed.setdefault(named_gpu(context, event), []).append(event)
    for gpu, said in failed.items():
        fields = {event.values.get("field", "") for event in said}
        codes = {e.values.get("code") for e in said if e.values.get("asked") == "nvml"}
        others = [one for one in gpus(context) if in_full(one) != gpu]
        none = all(getattr(one, name, None) is None for one in others for name in fields)
        if codes == {NOT_SUPPORTED} and none and fields <= {*MEASURED, "memory_total_bytes"}:
            continue
        known = (CODES[n] for code in codes if (n := whole_number(code) or 0) in CODES)
        yield from_message(
            context,
            next(known, GPU_DOES_NOT_ANSWER),
            Message(
                title=f"{gpu} does not answer when it is asked for its {', '.join(sorted(fields))}",
                look=(alike.KERNEL_LOG,),
                needs_root=True,
            ),
            tuple(said),
            severity=Severity.WARNING if none and fields <= MEASURED else None,
        )
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
LIBRARIES = Message(
    title="NVML does not start although a driver runs: it answers {said}",
    text="Install the driver's libraries anew, of exactly the version of its kernel module, and "
    "reboot",
    look=("ldconfig -p | grep libnvidia-ml",),
    needs_root=True,
    needs_reboot=True,
)


def nvml_init_failed(context: RuleContext) -> Iterator[Finding]:
    """NVML's own answer, live: each code has its cause."""
    yield from from_messages(context, (NVML_INIT_FAILED,))
    machine = context.snapshot
    code = machine.driver.nvml_code
    # No order: only our own question has a code; the messages of a text have causes of their own.
    if is_report(context) or context.other_host or code in (None, 0, 18):
        return
    inside, starts = in_container(context), machine.cuda_api.init_code == 0
    nodes = not inside or any("nvidia" in node.path for node in machine.devices or ())
    runs = starts or (machine.driver.module_loaded and nodes)
    no_library = code in (9, 12, 13)
    if (no_library and (machine.os.jetson or not runs)) or (code == 999 and inside and not starts):
        return  # no driver at all; or a rule of containers has it: the GPU was taken away
    said = f"{machine.driver.nvml_message or 'an error'} (code {code})"
    answer = (shown(context, "driver.nvml_code", said, said=said),)
    cause = CODES.get(code or 0, NVML_INIT_FAILED)
    yield from_message(
        context,
        cause,
        LIBRARIES if no_library else ANSWERED,
        answer,
        severity=Severity.WARNING if no_library and inside and starts else None,
        fix=WITH_COMPUTE if no_library and inside else None,
    )


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
