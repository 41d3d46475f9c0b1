"""A driver that was asked and did not answer: not at all, not of every GPU, or with an error."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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
    whole_number,
)
from gpusetup.findings.driver.nvml_codes import (
    CODES,
    DRIVER_DOES_NOT_ANSWER,
    ELSEWHERE,
    LOG,
    NVML_INIT_FAILED,
    ONE_GPU,
    OTHER,
    Answer,
)
from gpusetup.findings.driver.presence import nvml_said
from gpusetup.fixes import paste
from gpusetup.model.finding import Evidence, Finding, Fix
from gpusetup.model.machine import Event, Gpu
from gpusetup.model.shell import Line, lines

CALLED = {"nvml": "NVML", "libcuda": "CUDA's driver library (libcuda)", "nvidia-smi": "nvidia-smi"}


# --- no answer at all ----------------------------------------------------------------------------


def driver_does_not_answer(context: RuleContext) -> Iterator[Finding]:
    """A library of the driver crashed or hung when it was asked."""
    children = silent_children(context)
    messages = events(context, "driver-does-not-answer")
    if not children and not messages:
        return
    make = (
        DRIVER_DOES_NOT_ANSWER.found
        if children or not driver_answers(context)
        else DRIVER_DOES_NOT_ANSWER.as_warning
    )
    yield make(
        _stopped(context, _most_telling(children)) if children else _said_so(messages[0]),
        detail="A driver call that hangs or crashes is mostly a GPU that stopped working, or a "
        "driver half updated.",
        evidence=(*event_evidence(children), *event_evidence(messages)),
        fix=_silent_fix(context, children),
    )


def _most_telling(children: Sequence[Event]) -> Event:
    """The one that names a GPU, else the first."""
    return next((one for one in children if one.values.get("gpu")), children[0])


def _stopped(context: RuleContext, event: Event) -> str:
    values = event.values
    problem = values.get("problem", "")
    what = CALLED.get(values.get("asked", ""), "the driver")
    step = f" in {values['step']}" if values.get("step") else ""
    gpu = f" of {named_gpu(context, event)}" if values.get("gpu") else ""
    return f"{what} {'gave ' if values.get('how') == 'hung' else ''}{problem}{step}{gpu}"


def _said_so(event: Event) -> str:
    how = event.values.get("how", "gets no answer")
    what = event.values.get("asked", "the driver")
    return f"Asking {what} {how}: {event.values.get('problem', '')}".rstrip(": ")


def _silent_fix(context: RuleContext, children: Sequence[Event]) -> Fix:
    hung = any(event.values.get("how") == "hung" for event in children)
    longer = "; where it only needs long to start its GPUs, wait longer (--timeout 120)"
    linux = on(context, "linux")
    return Fix(
        text=f"Reboot{longer if hung else ''}",
        commands=lines("sudo reboot") if linux else (),
        looks=paste.look("look first into the kernel's log", *LOG) if linux else (),
        needs_root=True,
        needs_reboot=True,
    )


# --- which GPU -----------------------------------------------------------------------------------


def _gpu_of(context: RuleContext, event: Event) -> Gpu | None:
    """The GPU that an event speaks of, in NVML's order or in CUDA's."""
    index = whole_number(event.values.get("gpu"))
    order = "cuda_index" if event.values.get("asked") == "libcuda" else "nvml_index"
    listed = (gpu for gpu in gpus(context) if index is not None and getattr(gpu, order) == index)
    return next(listed, None)


def named_gpu(context: RuleContext, event: Event) -> str:
    gpu = _gpu_of(context, event)
    if gpu is not None:
        return in_full(gpu)
    order = " in CUDA's order" if event.values.get("asked") == "libcuda" else ""
    bus = f" ({event.values['bus']})" if event.values.get("bus") else ""
    return f"GPU {event.values.get('gpu')}{order}{bus}"


# --- a GPU that does not answer beside others that do --------------------------------------------

WHAT = {
    "handle": "itself",
    "device": "itself",
    "memory_total_bytes": "its memory",
    "memory_used_bytes": "its memory",
    "temperature_celsius": "its temperature",
    "power_watts": "its power",
    "power_limit_watts": "its power limit",
    "utilization_percent": "its utilisation",
    "pci_bus_id": "its address",
    "uuid": "its UUID",
    "name": "its name",
    "compute_capability": "its compute capability",
}
MEASURED = ("temperature_celsius", "power_watts")


def gpu_does_not_answer(context: RuleContext) -> Iterator[Finding]:
    """A GPU fails to tell what it should."""
    failed: dict[tuple[str, str], list[Event]] = {}
    for event in events(context, "gpu-read-failed"):
        key = (event.values.get("asked", ""), event.values.get("gpu", ""))
        failed.setdefault(key, []).append(event)
    for messages in failed.values():
        if not _no_gpu_has_it(context, messages):
            yield _failed_gpu(context, tuple(messages))


def _failed_gpu(context: RuleContext, messages: tuple[Event, ...]) -> Finding:
    fields = tuple(event.values.get("field", "") for event in messages)
    asked = dict.fromkeys(WHAT.get(field, field) for field in fields)
    why = dict.fromkeys(event.values.get("problem", "") for event in messages)
    codes = {
        whole_number(e.values.get("code")) for e in messages if e.values.get("asked") == "nvml"
    }
    row = next((CODES[code] for code in codes if code in CODES), ONE_GPU)
    gap = all(field in MEASURED for field in fields) and _none_tells(context, messages)
    gpu = named_gpu(context, messages[0])
    make = row.cause.as_warning if gap else row.cause.found
    return make(
        f"{gpu} does not answer when it is asked for {' and '.join(asked)}: {', '.join(why)}",
        detail=row.detail,
        evidence=tuple(
            Evidence(source=e.source or "", text=f"{gpu}: {e.text}") for e in messages[:3]
        ),
        fix=row.fix(context),
    )


NOT_SUPPORTED = 3


def _no_gpu_has_it(context: RuleContext, messages: Sequence[Event]) -> bool:
    """A laptop, a vGPU, one that shares the host's memory: it has no such value, and says so."""
    codes = {whole_number(event.values.get("code")) for event in messages}
    fields = {event.values.get("field") for event in messages}
    return (
        codes == {NOT_SUPPORTED}
        and fields <= {*MEASURED, "memory_total_bytes"}
        and _none_tells(context, tuple(messages))
    )


def _none_tells(context: RuleContext, messages: tuple[Event, ...]) -> bool:
    """Whether no other GPU has these values either: then this kind of GPU has none of them."""
    own = _gpu_of(context, messages[0])
    others = [gpu for gpu in gpus(context) if gpu is not own]
    fields = [event.values.get("field", "") for event in messages]
    return all(getattr(gpu, field, None) is None for gpu in others for field in fields)


# --- NVML that does not start --------------------------------------------------------------------


def nvml_init_failed(context: RuleContext) -> Iterator[Finding]:
    """NVML's own answer, live: each code has its cause."""
    # No order: only our own question has a code; the messages of a text have causes of their own.
    if is_report(context) or context.other_host:
        return
    failed = events(context, "nvml-init-failed")
    if failed:
        yield _cannot_tell(context, failed)
    driver = context.snapshot.driver
    code = driver.nvml_code
    if code is None or code in ELSEWHERE or _of_a_container(context):
        return
    row = CODES.get(code, OTHER)
    yield row.cause.found(
        row.title.format(said=f"{driver.nvml_message or 'an error'} (code {code})"),
        detail=row.detail,
        evidence=nvml_said(context),
        fix=row.fix(context),
    )


def nvml_unknown_in_a_text(context: RuleContext) -> Iterator[Finding]:
    """A program's log has NVML's code 999, and nothing of the text shows a container."""
    said = events(context, "nvml-unknown-error")
    if said and not in_container(context) and not driver_answers(context):
        yield NVML_INIT_FAILED.found(
            "The driver's NVML does not start: it answers an unknown error (code 999)",
            detail="On a host often the device nodes or nvidia_uvm are in a bad state (after "
            "suspend or an update of the driver); in a container its device rules are gone.",
            evidence=event_evidence(said),
            fix=OTHER.fix(context),
        )


NO_LIBRARY = (12, 13)
"""No libnvidia-ml, or one that lacks the driver's calls."""
ALTHOUGH = Answer(
    cause=NVML_INIT_FAILED,
    title="NVML does not start although {shown}: it answers {said}",
    detail="torch and every tool ask NVML for memory, links and health; nvidia-smi does nothing "
    "else.",
    text="Install the driver's libraries anew, of exactly the version of its kernel module, and "
    "reboot",
    look=lines("ldconfig -p | grep libnvidia-ml"),
    needs_reboot=True,
)


def nvml_beside_another(context: RuleContext) -> Iterator[Finding]:
    """NVML finds no driver or is no library, and something else shows that a driver runs."""
    driver = context.snapshot.driver
    code = driver.nvml_code
    # No order: the parts of a text may be of different days; only live sources can contradict.
    if is_report(context) or context.other_host or context.snapshot.os.jetson:
        return
    proof = _runs_all_the_same(context)
    if code not in (9, *NO_LIBRARY) or proof is None:
        return
    answer = f"{driver.nvml_message or 'an error'} (code {code})"
    tolerable = code in NO_LIBRARY and _without_utility(context)
    make = NVML_INIT_FAILED.as_warning if tolerable else NVML_INIT_FAILED.found
    yield make(
        ALTHOUGH.title.format(shown=proof, said=answer),
        detail=ALTHOUGH.detail,
        evidence=(*nvml_said(context), Evidence(source="driver", text=proof)),
        fix=_libraries_fix(context),
    )


def _runs_all_the_same(context: RuleContext) -> str | None:
    machine = context.snapshot
    if machine.cuda_api.init_code == 0:
        return f"CUDA starts and sees {machine.cuda_api.device_count or 'its'} GPUs"
    nodes = any("nvidia" in node.path for node in machine.devices or ())
    if machine.driver.module_loaded and (nodes or not in_container(context)):
        version = f" {machine.driver.version}" if machine.driver.version else ""
        return f"the kernel module{version} is loaded"
    return None


def _without_utility(context: RuleContext) -> bool:
    """A container that asked for CUDA alone has no NVML, and said so."""
    named = context.snapshot.environment.get("NVIDIA_DRIVER_CAPABILITIES", "")
    return in_container(context) and bool(named) and not {"all", "utility"} & set(named.split(","))


def _libraries_fix(context: RuleContext) -> Fix:
    if not in_container(context):
        return ALTHOUGH.fix(context)
    return Fix(
        text="Start the container again with utility among its driver capabilities "
        "(NVIDIA_DRIVER_CAPABILITIES=compute,utility; the command does it with a plain image), and "
        "keep driver packages and copies of libnvidia-ml out of the image",
        commands=with_compute_and_utility(),
    )


def _of_a_container(context: RuleContext) -> bool:
    """A rule of containers has this: the GPU was taken away from a running one."""
    works = context.snapshot.cuda_api.init_code == 0
    return in_container(context) and context.snapshot.driver.nvml_code == 999 and not works


SYSTEM = {
    "devices": "which GPUs there are",
    "driver_version": "the driver's version",
    "cuda_version": "the driver's CUDA version",
    "nvml_version": "its own version",
}


def _cannot_tell(context: RuleContext, failed: tuple[Event, ...]) -> Finding:
    fields = (event.values.get("field", "") for event in failed)
    what = " and ".join(dict.fromkeys(SYSTEM.get(field, field) for field in fields))
    return OTHER.cause.found(
        f"NVML starts and cannot tell {what}: {failed[0].values.get('problem', 'an error')}",
        evidence=event_evidence(failed),
        fix=OTHER.fix(context),
    )


# --- CUDA's library ------------------------------------------------------------------------------


def with_compute_and_utility() -> tuple[Line, ...]:
    return lines(
        'docker run --rm --gpus all -e "NVIDIA_DRIVER_CAPABILITIES=compute,utility" '
        "ubuntu nvidia-smi"
    )


RULES = (
    driver_does_not_answer,
    gpu_does_not_answer,
    nvml_init_failed,
    nvml_beside_another,
    nvml_unknown_in_a_text,
)
