"""A driver or a CUDA that was asked and answered not at all, late, or with an error."""

from __future__ import annotations

from gpusetup.catalog.facts import switched
from gpusetup.causes import alike
from gpusetup.causes.cuda_start import WITH_COMPUTE
from gpusetup.causes.driver_state import HERE
from gpusetup.causes.record import Message
from gpusetup.evidence.context import (
    NO_KERNEL_DRIVER,
    RuleContext,
    driver_answers,
    events,
    failed_children,
    gpus,
    has_nvidia,
    in_container,
    is_cuda_build,
    is_report,
    nvidia_on_pci,
    whole_number,
)
from gpusetup.evidence.places import IN_A_CONTAINER
from gpusetup.findings.gpu_faults import UNCORRECTABLE
from gpusetup.findings.message_rules import (
    finding,
    of_gpus,
    seen,
    shown,
)
from gpusetup.fixes import gpu_naming
from gpusetup.model.finding import Findings
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Event, Events

CODES: dict[int, str] = {
    2: "cuda-init-out-of-memory",
    34: "libcuda-stub",
    36: "driver-call-unsupported",
    46: "compute-mode-exclusive",
    100: "cuda-sees-no-device",
    101: "invalid-device-ordinal",
    102: "vgpu-no-compute",
    304: "os-call-failed",
    800: "os-call-failed",
    801: "vgpu-no-compute",
    802: "system-not-ready-fabric-manager",
    803: "libcuda-driver-mismatch",
    804: "forward-compat-unsupported",
    **dict.fromkeys(range(805, 810), "mps-server"),
    999: "cuda-unknown-error",
}
"""What the driver API answers (cuda.h, CUresult)."""
SAID = {id: code for code, id in CODES.items()}
"""Kind of event -> the code of the same cause."""


ALIASES = {30: 999, 38: 100, 10: 101, 71: 801}
"""Numbers of the older runtime -> today's."""


RUNS_ALREADY = (2, 36)
"""Codes that mean another thing once CUDA runs: then they are no answer of cuInit."""


def cuda_answers(context: RuleContext) -> Findings:
    """What CUDA answers where it starts: to our own question, or in the words of programs."""
    api = context.snapshot.cuda_api
    by_code: dict[int, Events] = {}
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
            cause = CODES.get(code, "cuda-init-failed")
            # What fails after hours of work is no cause of a start, which it had.
            yield finding(context, cause, said, weak=events(context, "ran-first"))


def _says_something(context: RuleContext, code: int, said: Events) -> bool:
    """100 without any NVIDIA GPU is only the truth, and 802 is none without a switch."""
    if code == 802 and context.snapshot.cuda_api.init_code != 802 and _has_no_fabric(context):
        return any(event.kind not in SAID for event in said)
    # No order: a text seldom lists the GPU that its program looked for.
    live = not is_report(context) and not gpus(context) and not nvidia_on_pci(context)
    there = False if live else has_nvidia(context)
    return code != UNCORRECTABLE and (code != 100 or there is not False)


def _has_no_fabric(context: RuleContext) -> bool:
    """A Fabric Manager that does not start where there is no NVSwitch: nothing needs it."""
    listed = [switched(gpu.name) for gpu in gpus(context)]
    return bool(events(context, "no-nvswitch") or (listed and not any(listed)))


def fabric_not_completed(context: RuleContext) -> Findings:
    """The driver itself says that the NVSwitch fabric is not set up."""
    waiting = [gpu for gpu in gpus(context) if gpu.fabric_state in ("in_progress", "not_started")]
    if waiting and not _has_no_fabric(context):
        yield of_gpus(context, CODES[802], waiting, "fabric_state")


def libcuda_missing(context: RuleContext) -> Findings:
    """A driver runs or its library is there, and that does not start CUDA: server packages, a
    container, an installation that broke off."""
    driver, os = context.driver, context.os
    works = driver.nvml_code == 0
    there = driver.module_loaded or (driver.library_found and has_nvidia(context) is not False)
    said = events(context, "libcuda-missing") if (works or there) and not os.jetson else ()
    blind = () if in_container(context) or os.wsl else events(context, "cuda-version-err")
    if seen := (*(blind or said), *events(context, "libcuda-unlinked")):
        weak = works and not (blind or is_cuda_build(context.torch))
        yield finding(context, "libcuda-missing", seen, weak=weak)


def driver_does_not_answer(context: RuleContext) -> Findings:
    """A library of the driver crashed or hung when it was asked."""
    children = failed_children(context)
    told = [event for event in children if "gpu" in event.values]
    said = (*told, *children, *events(context, "driver-does-not-answer"))
    if said:
        values = {"asked": "The driver", "problem": "it gets no answer", **said[0].values}
        at = f" of {named_gpu(context, said[0])}" if told else ""
        first = replace(said[0], values={**values, "problem": f"{values['problem']}{at}"})
        works = not children and driver_answers(context)
        yield finding(context, "driver-does-not-answer", (first, *said[1:]), weak=works)


def named_gpu(context: RuleContext, event: Event) -> str:
    """The GPU that an event speaks of, in NVML's order or in CUDA's."""
    number, by_cuda = event.values.get("gpu"), event.values.get("asked") == "libcuda"
    for gpu in gpus(context):
        if number == str(gpu.cuda_index if by_cuda else gpu.nvml_index):
            return gpu_naming.gpu_in_full(gpu)
    return f"GPU {number} {event.values.get('bus', '')}"


NOT_SUPPORTED = "3"


UNREAD = Message(
    title="{gpu} does not answer when gpusetup asks for its {field}",
    look=(alike.KERNEL_LOG,),
    needs_root=True,
)


def gpu_does_not_answer(context: RuleContext) -> Findings:
    """A GPU fails to tell what it should."""
    for event in events(context, "gpu-read-failed"):
        values = {**event.values, "gpu": named_gpu(context, event)}
        code = values.get("code", "") if values.get("asked") == "nvml" else ""
        cause = NVML.get(whole_number(code) or 0, "gpu-does-not-answer")
        if values.get("code") != NOT_SUPPORTED:
            said = (replace(event, values=values),)
            yield finding(
                context, cause, said, message=UNREAD, weak=values.get("field") in MEASURED
            )


MEASURED = {"temperature_celsius", "power_watts"}


NVML = {
    4: "device-permission",
    8: "gpu-init-failed",
    10: "driver-does-not-answer",
    11: "gpu-init-failed",
    14: "hardware-fault",
    15: "gpu-fell-off-bus",
    16: "hardware-fault",
    17: "device-permission",
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
    text="Reinstall the driver's libraries in exactly the version of its kernel module, and reboot",
    look=("ldconfig -p | grep libnvidia-ml",),
    needs_root=True,
    needs_reboot=True,
    cases=(
        Message(where=(IN_A_CONTAINER,), text=WITH_COMPUTE.text, way=lambda _, __: WITH_COMPUTE),
    ),
)


def nvml_init_failed(context: RuleContext) -> Findings:
    """NVML's own answer, live: each code has its cause."""
    machine, inside = context.snapshot, in_container(context)
    code = machine.driver.nvml_code or 0
    starts = machine.cuda_api.init_code == 0
    # No order: only our own question has a code; the messages of a text have causes of their own.
    if is_report(context) or context.other_host or code in (0, 18):
        return
    if code in NO_KERNEL_DRIVER and (
        machine.os.jetson or not (starts or machine.driver.module_loaded)
    ):
        return  # no driver at all
    if inside and not starts and code in (*NO_KERNEL_DRIVER, 999):
        return  # a rule of containers has it: the GPU was taken away, or never given
    message = LIBRARIES if code in NO_KERNEL_DRIVER else ANSWERED
    said = f"{machine.driver.nvml_message or 'an error'} (code {code})"
    cause, weak = NVML.get(code, "nvml-init-failed"), message is LIBRARIES and inside
    yield seen(context, cause, "driver.nvml_code", said, message=message, weak=weak, said=said)


SLOW_SECONDS = 5.0


def driver_slow(context: RuleContext) -> Findings:
    """The driver took long to answer."""
    seconds = context.driver.seconds or 0.0
    if seconds > SLOW_SECONDS:
        text = f"{seconds:.0f}"
        yield seen(context, "driver-slow", "driver.seconds", f"{text} s", seconds=text)


RULES = (
    cuda_answers,
    fabric_not_completed,
    libcuda_missing,
    driver_does_not_answer,
    gpu_does_not_answer,
    nvml_init_failed,
    driver_slow,
)
