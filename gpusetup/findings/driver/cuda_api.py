"""What CUDA itself answers: each code has its cause; its library, missing or blind to a GPU."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.catalog.facts import switched
from gpusetup.evidence.context import (
    RuleContext,
    events,
    gpus,
    has_nvidia,
    in_container,
    is_cuda_build,
    is_report,
    nvidia_on_pci,
    on,
    whole_number,
)
from gpusetup.findings.device.faults import UNCORRECTABLE
from gpusetup.findings.driver.cuda_codes import (
    ALIASES,
    CODES,
    CUDA_INIT_FAILED,
    CUDA_MISSES_GPU,
    OTHER_CODE,
    RUNS_ALREADY,
    SAID,
)
from gpusetup.findings.layers import Layer
from gpusetup.findings.message_rules import (
    case_of,
    finding,
    from_message,
    from_messages,
    marked,
    shown,
)
from gpusetup.findings.record import Cause, Message
from gpusetup.fixes import drivers, paste, which
from gpusetup.model.finding import Finding, Fix, Severity
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Event
from gpusetup.model.shell import lines


def cuda_answers(context: RuleContext) -> Iterator[Finding]:
    """What CUDA answers where it starts: to our own question, or in the words of programs."""
    api = context.snapshot.cuda_api
    by_code: dict[int, tuple[Event, ...]] = {}
    for event in events(context, "cuda-error", *SAID):
        code = SAID.get(event.kind) or whole_number(event.values.get("code")) or 0
        code = ALIASES.get(code, code)
        starts = code not in RUNS_ALREADY or event.kind in SAID
        if code == api.init_code or (code in CODES and starts):
            by_code[code] = (*by_code.get(code, ()), event)
    init = api.init_code
    # No order: a text gives the code in the line that is quoted already.
    if init and not context.other_host and not (is_report(context) and init in by_code):
        text = f"cuInit: {api.init_name} {init}"
        answer = shown(context, "cuda_api.init_code", text, code=str(init))
        by_code[init] = (*by_code.get(init, ()), answer)
    for code, said in by_code.items():
        if _says_something(context, code, said):
            cause, message = CODES.get(code, OTHER_CODE)
            # What fails after hours of work is no cause of a start, which it had.
            only = Severity.WARNING if events(context, "ran-first") else None
            yield from_message(context, cause, *case_of(context, message, said), severity=only)


def _says_something(context: RuleContext, code: int, said: tuple[Event, ...]) -> bool:
    """100 without any NVIDIA GPU is only the truth, and 802 is none without a switch."""
    if code == 802 and context.snapshot.cuda_api.init_code != 802 and _has_no_fabric(context):
        return any(event.kind not in SAID for event in said)
    # No order: a text seldom lists the GPU that its program looked for.
    live = not is_report(context) and not gpus(context) and not nvidia_on_pci(context)
    there = False if live else has_nvidia(context)
    # A program that asks for a function which this driver has under another version.
    asks_late = code == UNCORRECTABLE or events(context, "program-release-too-old")
    return not asks_late and (code != 100 or there is not False)


def _has_no_fabric(context: RuleContext) -> bool:
    """A Fabric Manager that does not start where there is no NVSwitch: nothing needs it."""
    listed = [switched(gpu.name) for gpu in gpus(context)]
    return bool(events(context, "no-nvswitch") or (listed and not any(listed)))


def fabric_not_completed(context: RuleContext) -> Iterator[Finding]:
    """The driver itself says that the NVSwitch fabric is not set up."""
    waiting = [gpu for gpu in gpus(context) if gpu.fabric_state in ("in_progress", "not_started")]
    if waiting and not _has_no_fabric(context):
        cause, message = CODES[802]
        title = f"The NVSwitch fabric is not ready at {which.titled(context, waiting)}"
        said = marked(context, waiting, "fabric_state")
        yield from_message(context, cause, replace(message, title=title), said)


LIBCUDA_MISSING = Cause(
    id="libcuda-missing",
    kind_of="driver-missing",
    place=(Layer.DRIVER, 100),
    title="the driver's libcuda is missing or does not load",
    means="nvidia-smi works without it, CUDA does not.",
    proven_by="nvidia-smi prints CUDA Version ERR!",
    not_when="wsl-driver; container-driver-capability-missing (in a container)",
    way_out="The driver's compute libraries, of its exact version",
    source="nvidia-smi's manual page; NVIDIA, driver README, installed components",
    explains=("nvml-init-failed",),
    message=Message(
        title="The driver's CUDA library is missing or does not load: CUDA cannot start",
        detail="nvidia-smi talks to the kernel driver through another library. Server installs and "
        "containers at times leave the compute libraries out; an installation that broke off "
        "leaves files of two versions.",
        text="Install the compute libraries of exactly this driver version (libnvidia-compute, "
        "nvidia-driver-cuda-libs); in a container give it the capability compute",
        way=lambda context, text: _compute_libraries(context, text),
        cases=(
            Message(
                having={"asker": ""},
                title="{asker} does not find libcuda.so by its plain name",
                detail="The driver's library is there as libcuda.so.1; the name without a number "
                "is a link to it.",
                text="Let the loader look where the driver's libcuda.so is",
                way=lambda context, text: Fix(
                    text=text, commands=(paste.first_on(context, *where_libcuda_is(context)),)
                ),
            ),
        ),
    ),
    stage="import",
)


def where_libcuda_is(context: RuleContext) -> tuple[str, str]:
    wsl = context.snapshot.os.wsl
    return "LD_LIBRARY_PATH", "/usr/lib/wsl/lib" if wsl else "/usr/lib/x86_64-linux-gnu"


def libcuda_missing(context: RuleContext) -> Iterator[Finding]:
    """A driver runs or its library is there, and that does not start CUDA: server packages, a
    container, an installation that broke off."""
    driver, os = context.snapshot.driver, context.snapshot.os
    works = driver.nvml_code == 0
    there = driver.module_loaded or (driver.library_found and has_nvidia(context) is not False)
    said = events(context, "libcuda-missing") if (works or there) and not os.jetson else ()
    only = None if is_cuda_build(context.snapshot.torch) or not works else Severity.WARNING
    if blind := () if in_container(context) or os.wsl else events(context, "cuda-version-err"):
        said, only = blind, None
    if said := (*said, *events(context, "libcuda-unlinked")):
        yield finding(context, LIBCUDA_MISSING, said, severity=only)
    yield from from_messages(context, (CUDA_INIT_FAILED, CUDA_MISSES_GPU))


WITH_COMPUTE = Fix(
    text="Start the container again with compute and utility among its driver capabilities (the "
    "command does it with a plain image); keep driver packages out of the image",
    commands=lines(
        'docker run --rm --gpus all -e "NVIDIA_DRIVER_CAPABILITIES=compute,utility" '
        "ubuntu nvidia-smi"
    ),
)


def _compute_libraries(context: RuleContext, text: str) -> Fix:
    """The libraries of the driver that CUDA needs, where only the others are installed."""
    if in_container(context):
        return WITH_COMPUTE
    if on(context, "windows") or context.snapshot.os.wsl:
        return drivers.driver(context, "Install the NVIDIA driver again")
    return Fix(text=text, commands=drivers.driver_commands(context), needs_root=True)


RULES = (
    cuda_answers,
    fabric_not_completed,
    libcuda_missing,
)
