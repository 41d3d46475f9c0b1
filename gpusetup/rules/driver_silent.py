"""A driver that was asked and did not answer: not at all, not of every GPU, or with an error."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpusetup.model import Event, Evidence, Finding, Fix, Gpu
from gpusetup.rules import ways
from gpusetup.rules.case import (
    Case,
    driver_answers,
    error,
    events,
    gpus,
    in_container,
    in_full,
    is_cuda_build,
    is_report,
    on,
    shown,
    silent_children,
    told,
    warning,
    whole_number,
)
from gpusetup.rules.driver import nvml_said
from gpusetup.rules.driver_state import compute_libraries
from gpusetup.rules.nvml_codes import CODES, ELSEWHERE, LOG, ONE_GPU, OTHER, Answer
from gpusetup.shell import Line, lines

CALLED = {"nvml": "NVML", "libcuda": "CUDA's driver library (libcuda)", "nvidia-smi": "nvidia-smi"}


# --- no answer at all ----------------------------------------------------------------------------


def driver_does_not_answer(case: Case) -> Iterator[Finding]:
    """A library of the driver crashed or hung when it was asked."""
    children = silent_children(case)
    said = events(case, "driver-does-not-answer")
    if not children and not said:
        return
    make = error if children or not driver_answers(case) else warning
    yield make(
        "driver-does-not-answer",
        _stopped(case, _most_telling(children)) if children else _said_so(said[0]),
        detail="A driver call that hangs or crashes is mostly a GPU that stopped working, or a "
        "driver half updated.",
        evidence=(*told(children), *told(said)),
        fix=_silent_fix(case, children),
    )


def _most_telling(children: Sequence[Event]) -> Event:
    """The one that names a GPU, else the first."""
    return next((one for one in children if one.values.get("gpu")), children[0])


def _stopped(case: Case, event: Event) -> str:
    values = event.values
    problem = values.get("problem", "")
    what = CALLED.get(values.get("asked", ""), "the driver")
    step = f" in {values['step']}" if values.get("step") else ""
    gpu = f" of {_named(case, event)}" if values.get("gpu") else ""
    return f"{what} {'gave ' if values.get('how') == 'hung' else ''}{problem}{step}{gpu}"


def _said_so(event: Event) -> str:
    how = event.values.get("how", "gets no answer")
    what = event.values.get("asked", "the driver")
    return f"Asking {what} {how}: {event.values.get('problem', '')}".rstrip(": ")


def _silent_fix(case: Case, children: Sequence[Event]) -> Fix:
    hung = any(event.values.get("how") == "hung" for event in children)
    longer = "; where it only needs long to start its GPUs, wait longer (--timeout 120)"
    linux = on(case, "linux")
    return Fix(
        text=f"Reboot{longer if hung else ''}",
        commands=lines("sudo reboot") if linux else (),
        looks=ways.look("look first into the kernel's log", *LOG) if linux else (),
        needs_root=True,
        needs_reboot=True,
    )


# --- which GPU -----------------------------------------------------------------------------------


def _gpu_of(case: Case, event: Event) -> Gpu | None:
    """The GPU that an event speaks of, in NVML's order or in CUDA's."""
    index = whole_number(event.values.get("gpu"))
    order = "cuda_index" if event.values.get("asked") == "libcuda" else "nvml_index"
    listed = (gpu for gpu in gpus(case) if index is not None and getattr(gpu, order) == index)
    return next(listed, None)


def _named(case: Case, event: Event) -> str:
    gpu = _gpu_of(case, event)
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


def gpu_does_not_answer(case: Case) -> Iterator[Finding]:
    """A GPU fails to tell what it should."""
    failed: dict[tuple[str, str], list[Event]] = {}
    for event in events(case, "gpu-read-failed"):
        key = (event.values.get("asked", ""), event.values.get("gpu", ""))
        failed.setdefault(key, []).append(event)
    for said in failed.values():
        if not _no_gpu_has_it(case, said):
            yield _failed_gpu(case, tuple(said))


def _failed_gpu(case: Case, said: tuple[Event, ...]) -> Finding:
    fields = tuple(event.values.get("field", "") for event in said)
    asked = dict.fromkeys(WHAT.get(field, field) for field in fields)
    why = dict.fromkeys(event.values.get("problem", "") for event in said)
    codes = {whole_number(e.values.get("code")) for e in said if e.values.get("asked") == "nvml"}
    row = next((CODES[code] for code in codes if code in CODES), ONE_GPU)
    gap = all(field in MEASURED for field in fields) and _none_tells(case, said)
    gpu = _named(case, said[0])
    return (warning if gap else error)(
        row.id,
        f"{gpu} does not answer when it is asked for {' and '.join(asked)}: {', '.join(why)}",
        detail=row.detail,
        evidence=tuple(Evidence(source=e.source or "", text=f"{gpu}: {e.text}") for e in said[:3]),
        fix=row.fix(case),
    )


NOT_SUPPORTED = 3


def _no_gpu_has_it(case: Case, said: Sequence[Event]) -> bool:
    """A laptop, a vGPU: this kind of GPU has no such value, and says so."""
    codes = {whole_number(event.values.get("code")) for event in said}
    fields = {event.values.get("field") for event in said}
    return codes == {NOT_SUPPORTED} and fields <= set(MEASURED) and _none_tells(case, tuple(said))


def _none_tells(case: Case, said: tuple[Event, ...]) -> bool:
    """Whether no other GPU has these values either: then this kind of GPU has none of them."""
    own = _gpu_of(case, said[0])
    others = [gpu for gpu in gpus(case) if gpu is not own]
    fields = [event.values.get("field", "") for event in said]
    return all(getattr(gpu, field, None) is None for gpu in others for field in fields)


# --- NVML that does not start --------------------------------------------------------------------


def nvml_init_failed(case: Case) -> Iterator[Finding]:
    """NVML's own answer, live: each code has its cause."""
    if is_report(case) or case.other_host:
        return
    failed = events(case, "nvml-call-failed")
    if failed:
        yield _cannot_tell(case, failed)
    driver = case.snapshot.driver
    code = driver.nvml_code
    if code is None or code in ELSEWHERE or _of_a_container(case):
        return
    row = CODES.get(code, OTHER)
    yield error(
        row.id,
        row.title.format(said=f"{driver.nvml_message or 'an error'} (code {code})"),
        detail=row.detail,
        evidence=nvml_said(case),
        fix=row.fix(case),
    )


NO_LIBRARY = (12, 13)
"""No libnvidia-ml, or one that lacks the driver's calls."""
ALTHOUGH = Answer(
    id="nvml-init-failed",
    title="NVML does not start although {shown}: it answers {said}",
    detail="torch and every tool ask NVML for memory, links and health; nvidia-smi does nothing "
    "else.",
    text="Install the driver's libraries anew, of exactly the version of its kernel module, and "
    "reboot",
    look=lines("ldconfig -p | grep libnvidia-ml"),
    needs_reboot=True,
)


def nvml_beside_another(case: Case) -> Iterator[Finding]:
    """NVML finds no driver or is no library, and something else shows that a driver runs."""
    driver = case.snapshot.driver
    code = driver.nvml_code
    if is_report(case) or case.other_host or case.snapshot.os.jetson:
        return
    proof = _runs_all_the_same(case)
    if code not in (9, *NO_LIBRARY) or proof is None:
        return
    said = f"{driver.nvml_message or 'an error'} (code {code})"
    make = warning if code in NO_LIBRARY and _without_utility(case) else error
    yield make(
        ALTHOUGH.id,
        ALTHOUGH.title.format(shown=proof, said=said),
        detail=ALTHOUGH.detail,
        evidence=(*nvml_said(case), Evidence(source="driver", text=proof)),
        fix=_libraries_fix(case),
    )


def _runs_all_the_same(case: Case) -> str | None:
    machine = case.snapshot
    if machine.cuda_api.init_code == 0:
        return f"CUDA starts and sees {machine.cuda_api.device_count or 'its'} GPUs"
    nodes = any("nvidia" in node.path for node in machine.devices or ())
    if machine.driver.module_loaded and (nodes or not in_container(case)):
        version = f" {machine.driver.version}" if machine.driver.version else ""
        return f"the kernel module{version} is loaded"
    return None


def _without_utility(case: Case) -> bool:
    """A container that asked for CUDA alone has no NVML, and said so."""
    named = case.snapshot.environment.get("NVIDIA_DRIVER_CAPABILITIES", "")
    return in_container(case) and bool(named) and not {"all", "utility"} & set(named.split(","))


def _libraries_fix(case: Case) -> Fix:
    if not in_container(case):
        return ALTHOUGH.fix(case)
    return Fix(
        text="Start the container again with utility among its driver capabilities "
        "(NVIDIA_DRIVER_CAPABILITIES=compute,utility; the command does it with a plain image), and "
        "keep driver packages and copies of libnvidia-ml out of the image",
        commands=_compute_and_utility(),
    )


def _of_a_container(case: Case) -> bool:
    """A rule of containers has this: the GPU was taken away from a running one."""
    works = case.snapshot.cuda_api.init_code == 0
    return in_container(case) and case.snapshot.driver.nvml_code == 999 and not works


SYSTEM = {
    "devices": "which GPUs there are",
    "driver_version": "the driver's version",
    "cuda_version": "the driver's CUDA version",
    "nvml_version": "its own version",
}


def _cannot_tell(case: Case, failed: tuple[Event, ...]) -> Finding:
    fields = (event.values.get("field", "") for event in failed)
    what = " and ".join(dict.fromkeys(SYSTEM.get(field, field) for field in fields))
    return error(
        OTHER.id,
        f"NVML starts and cannot tell {what}: {failed[0].values.get('problem', 'an error')}",
        evidence=told(failed),
        fix=OTHER.fix(case),
    )


# --- CUDA's library ------------------------------------------------------------------------------


def libcuda_not_loaded(case: Case) -> Iterator[Finding]:
    """A driver runs, and no libcuda is there to start CUDA with: server packages, a container."""
    said = events(case, "libcuda-not-loaded")
    driver = case.snapshot.driver
    nvml_works = driver.nvml_code == 0
    runs = nvml_works or (driver.module_loaded and driver.nvml_code in (9, *NO_LIBRARY))
    if not said or not runs or case.snapshot.os.jetson:
        return
    works = "NVML works, " if nvml_works else ""
    make = error if is_cuda_build(case.snapshot.torch) else warning
    yield make(
        "libcuda-missing",
        f"The driver's libcuda is missing or does not load: {works}CUDA cannot start",
        detail="Server installs and containers at times leave the compute libraries out.",
        evidence=told(said),
        fix=_libcuda_fix(case),
    )


def _libcuda_fix(case: Case) -> Fix:
    if not in_container(case):
        return compute_libraries(case)
    return Fix(
        text="Start the container again with compute among its driver capabilities "
        "(NVIDIA_DRIVER_CAPABILITIES=compute,utility; the command does it with a plain image)",
        commands=_compute_and_utility(),
    )


def _compute_and_utility() -> tuple[Line, ...]:
    return lines(
        'docker run --rm --gpus all -e "NVIDIA_DRIVER_CAPABILITIES=compute,utility" '
        "ubuntu nvidia-smi"
    )


def cuda_call_failed(case: Case) -> Iterator[Finding]:
    """CUDA starts and cannot say how many GPUs there are."""
    said = events(case, "cuda-call-failed")
    if said and not case.other_host:
        first = said[0].values
        what = first.get("field", "devices").replace("_", " ")
        yield error(
            "cuda-init-failed",
            f"CUDA fails when it is asked for its {what}: {first.get('problem', 'an error')}",
            evidence=told(said),
            fix=Fix(
                text="Reboot; if it stays, install the driver anew",
                commands=lines("sudo reboot") if on(case, "linux") else (),
                needs_root=True,
                needs_reboot=True,
            ),
        )


def cuda_misses_gpu(case: Case) -> Iterator[Finding]:
    """A GPU that NVML lists and CUDA does not, though nothing hides it."""
    said = events(case, "gpu-missed-by-cuda")
    if not said or case.other_host:
        return
    count = case.snapshot.cuda_api.device_count
    yield error(
        "cuda-misses-gpu",
        f"CUDA does not see {' and '.join(_named(case, event) for event in said[:4])}, which the "
        "driver lists",
        detail="Nothing hides it: CUDA_VISIBLE_DEVICES is not set, and MIG is off.",
        evidence=(
            shown(case, "gpus", f"the driver lists {len(gpus(case))}"),
            shown(case, "cuda_api.device_count", f"CUDA sees {count}"),
        ),
        fix=ONE_GPU.fix(case),
    )


def gpu_not_listed(case: Case) -> Iterator[Finding]:
    """A GPU that CUDA or the kernel's driver has is not in the list of the driver's GPUs."""
    said = events(case, "gpu-not-listed")
    if not said or case.other_host:
        return
    seen = [event for event in said if event.values.get("why", "").startswith("CUDA")]
    concerned = tuple(_unlisted(event) for event in said)
    yield error(
        "gpu-does-not-answer" if seen else "gpu-init-failed",
        f"{' and '.join(concerned[:4])} {'is' if len(said) == 1 else 'are'} not among the GPUs "
        f"that {said[0].values.get('asked')} lists, although {said[0].values.get('why')}",
        detail="A GPU that cannot be started is left out of the list; torch does without it and "
        "says nothing.",
        evidence=(*told(said), shown(case, "gpus", f"{len(gpus(case))} GPUs are listed")),
        fix=ONE_GPU.fix(case),
    )


def _unlisted(event: Event) -> str:
    values = event.values
    named = values.get("name") if values.get("name") not in ("", "unknown") else None
    more = ", ".join(part for part in (values.get("bus"), named) if part)
    return f"GPU {values.get('place', '')} by slot ({more})"


RULES = (
    driver_does_not_answer,
    gpu_does_not_answer,
    nvml_init_failed,
    nvml_beside_another,
    gpu_not_listed,
    libcuda_not_loaded,
    cuda_call_failed,
    cuda_misses_gpu,
)
