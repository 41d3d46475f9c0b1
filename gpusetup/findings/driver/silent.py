"""A driver that was asked and answered not at all, not of every GPU, late, or an error."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.evidence.context import (
    RuleContext,
    driver_answers,
    event_evidence,
    events,
    gpus,
    in_container,
    in_full,
    is_report,
    on,
    silent_children,
    value_evidence,
    whole_number,
)
from gpusetup.findings.driver.cuda_api import WITH_COMPUTE
from gpusetup.findings.driver.nvml_codes import (
    CODES,
    DRIVER_DOES_NOT_ANSWER,
    GPU_DOES_NOT_ANSWER,
    LIBRARIES,
    NVML_INIT_FAILED,
    ONE_GPU,
    OTHER,
    way_out,
)
from gpusetup.findings.message_rules import fix_of, from_message, from_messages
from gpusetup.findings.record import Cause
from gpusetup.model.finding import Finding, Fix, Severity
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Event
from gpusetup.model.shell import lines

CALLED = {"nvml": "NVML", "libcuda": "CUDA's driver library (libcuda)"}


def driver_does_not_answer(context: RuleContext) -> Iterator[Finding]:
    """A library of the driver crashed or hung when it was asked."""
    children = silent_children(context)
    said = (*children, *events(context, "driver-does-not-answer"))
    works = not children and driver_answers(context)
    make = DRIVER_DOES_NOT_ANSWER.as_warning if works else DRIVER_DOES_NOT_ANSWER.found
    if said:
        told = next((one for one in children if one.values.get("gpu")), said[0])
        values = told.values
        asked = values.get("asked", "the driver")
        step = f" in {values['step']}" if values.get("step") else ""
        gpu = f" of {named_gpu(context, told)}" if values.get("gpu") else ""
        problem = values.get("problem") or "it gets no answer"
        yield make(
            f"{CALLED.get(asked, asked)}: {problem}{step}{gpu}",
            detail="A driver call that hangs or crashes is mostly a GPU that stopped working, or a "
            "driver half updated.",
            evidence=event_evidence(said),
            fix=fix_of(context, SILENT, said),
        )


SILENT = replace(
    OTHER,
    text="Reboot; where it only needs long to start its GPUs, wait longer (--timeout 120)",
)


def named_gpu(context: RuleContext, event: Event) -> str:
    """The GPU that an event speaks of, in NVML's order or in CUDA's."""
    index = whole_number(event.values.get("gpu"))
    by_cuda = event.values.get("asked") == "libcuda"
    for gpu in gpus(context):
        if index is not None and index == (gpu.cuda_index if by_cuda else gpu.nvml_index):
            return in_full(gpu)
    bus = f" ({event.values['bus']})" if event.values.get("bus") else ""
    return f"GPU {event.values.get('gpu')}{' in the order of CUDA' if by_cuda else ''}{bus}"


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
        cause, message = next(known, (GPU_DOES_NOT_ANSWER, ONE_GPU))
        make = cause.as_warning if none and fields <= MEASURED else cause.found
        asked = ", ".join(sorted(fields)).replace("_", " ")
        yield make(
            f"{gpu} does not answer when it is asked for its {asked}",
            evidence=event_evidence(tuple(said)),
            fix=way_out(context, cause, message),
        )
    yield from from_messages(context, (GPU_DOES_NOT_ANSWER,))


def nvml_init_failed(context: RuleContext) -> Iterator[Finding]:
    """NVML's own answer, live: each code has its cause."""
    yield from from_messages(context, (NVML_INIT_FAILED,))
    machine = context.snapshot
    code = machine.driver.nvml_code
    # No order: only our own question has a code; the messages of a text have causes of their own.
    if is_report(context) or context.other_host or code in (None, 0, 18):
        return
    cause, message = CODES.get(code or 0, (NVML_INIT_FAILED, OTHER))
    inside = in_container(context)
    starts = machine.cuda_api.init_code == 0
    nodes = any("nvidia" in node.path for node in machine.devices or ())
    runs = starts or (machine.driver.module_loaded and (nodes or not inside))
    own = code in (9, 12, 13)
    if own:
        cause, message = LIBRARIES
    if (own and (machine.os.jetson or not runs)) or (code == 999 and inside and not starts):
        return  # no driver at all; or a rule of containers has it: the GPU was taken away
    said = f"{machine.driver.nvml_message or 'an error'} (code {code})"
    event = Event(kind="nvml", values={"said": said}, source="NVML", text=said)
    found = from_message(context, cause, message, (event,))
    named = machine.environment.get("NVIDIA_DRIVER_CAPABILITIES", "all").split(",")
    without = own and inside and code != 9 and not {"utility", "all"} & set(named)
    yield replace(
        found,
        severity=Severity.WARNING if without else found.severity,
        fix=WITH_COMPUTE if own and inside else way_out(context, cause, message),
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
)


def driver_slow(context: RuleContext) -> Iterator[Finding]:
    """The driver took long to answer."""
    seconds = context.snapshot.driver.seconds or 0.0
    if seconds > SLOW_SECONDS:
        yield DRIVER_SLOW.found(
            f"The driver took {seconds:.0f} s to answer",
            evidence=(value_evidence(context, "driver.seconds", f"{seconds:.1f} s"),),
            fix=Fix(
                text="Keep the driver loaded between programs; where it is, look at the machine's "
                "load and at the kernel's log",
                commands=lines("sudo systemctl enable --now nvidia-persistenced")
                if on(context, "linux")
                else (),
                needs_root=True,
            ),
        )


RULES = (
    driver_does_not_answer,
    gpu_does_not_answer,
    nvml_init_failed,
    driver_slow,
)
