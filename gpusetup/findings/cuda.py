"""Rules for a driver or CUDA that does not respond, responds late, or returns an error."""

from __future__ import annotations

from gpusetup.catalog.facts import switched
from gpusetup.causes import alike
from gpusetup.causes.cuda_start import WITH_COMPUTE
from gpusetup.causes.driver import HERE
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
"""The error codes of the driver API (cuda.h, CUresult) -> the causes."""
CODE_OF_KIND = {kind: code for code, kind in CODES.items()}
"""Kind of event -> the code of the same cause."""


ALIASES = {30: 999, 38: 100, 10: 101, 71: 801}
"""Error numbers of older CUDA runtimes -> the current numbers."""


RUNS_ALREADY = (2, 36)
"""Codes that have a different meaning after CUDA has started, because then they do not come from
cuInit."""


def cuda_answers(context: RuleContext) -> Findings:
    """The error that CUDA returns when it starts: the probe's own reading, or the one in a
    program's message."""
    api = context.snapshot.cuda_api
    messages_by_code = _messages_by_code(context)
    init_code = api.init_code
    # In a text, the quoted line already contains the code.
    is_quoted = is_report(context) and init_code in messages_by_code
    if init_code and not context.other_host and not is_quoted:
        text = f"cuInit: {api.init_name} {init_code}"
        answer = shown(context, "cuda_api.init_code", text, code=str(init_code))
        messages_by_code[init_code] = (*messages_by_code.get(init_code, ()), answer)
    for code, messages in messages_by_code.items():
        if _is_a_fault(context, code, messages):
            cause = CODES.get(code, "cuda-init-failed")
            # A program that fails after hours of work had started CUDA, so this is not a failed
            # start.
            yield finding(context, cause, messages, weak=events(context, "ran-first"))


def _messages_by_code(context: RuleContext) -> dict[int, Events]:
    """Error code of the driver API -> the messages of programs that failed with it when CUDA
    started."""
    messages_by_code: dict[int, Events] = {}
    for event in events(context, "cuda-error", *CODE_OF_KIND):
        code = CODE_OF_KIND.get(event.kind)
        if not code:
            code = whole_number(event.values.get("code")) or 0
        code = ALIASES.get(code, code)
        is_known = code in CODES and (event.kind in CODE_OF_KIND or code not in RUNS_ALREADY)
        if is_known or code == context.snapshot.cuda_api.init_code:
            messages_by_code[code] = (*messages_by_code.get(code, ()), event)
    return messages_by_code


NO_DEVICE, SYSTEM_NOT_READY = 100, 802


def _is_a_fault(context: RuleContext, code: int, messages: Events) -> bool:
    """Whether an error code means that something is wrong on this machine."""
    # This code has its own finding, which names the GPU.
    if code == UNCORRECTABLE:
        return False
    # Only machines with an NVSwitch need a Fabric Manager.
    is_our_answer = code == context.snapshot.cuda_api.init_code
    if code == SYSTEM_NOT_READY and not is_our_answer and _has_no_fabric(context):
        return any(event.kind not in CODE_OF_KIND for event in messages)
    if code != NO_DEVICE:
        return True
    # On a machine without an NVIDIA GPU, "no device" is correct. A text rarely lists the GPU that
    # its program looked for.
    if (not gpus(context) and not nvidia_on_pci(context)) and not is_report(context):
        return False
    return has_nvidia(context) is not False


def _has_no_fabric(context: RuleContext) -> bool:
    """Whether no GPU here is behind an NVSwitch, as far as the GPUs are known."""
    if events(context, "no-nvswitch"):
        return True
    are_switched = [switched(gpu.name) for gpu in gpus(context)]
    return bool(are_switched) and not any(are_switched)


def fabric_not_completed(context: RuleContext) -> Findings:
    """The driver reports that the NVSwitch fabric is not set up yet."""
    if _has_no_fabric(context):
        return
    unready = ("in_progress", "not_started")
    waiting_gpus = [gpu for gpu in gpus(context) if gpu.fabric_state in unready]
    if waiting_gpus:
        yield of_gpus(context, CODES[802], waiting_gpus, "fabric_state")


def libcuda_missing(context: RuleContext) -> Findings:
    """A driver is running, or its library is installed, but CUDA cannot start with it.

    Server packages lack libcuda, a container did not get it, or an installation broke off.
    """
    driver, os = context.driver, context.os
    nvml_works = driver.nvml_code == 0
    has_library = driver.library_found and has_nvidia(context) is not False
    has_driver = nvml_works or driver.module_loaded or has_library
    messages: Events = ()
    # In a container and in WSL, nvidia-smi's "ERR!" has other causes.
    version_errors: Events = ()
    if not in_container(context) and not os.wsl:
        version_errors = events(context, "cuda-version-err")
    if version_errors:
        messages = version_errors
    elif has_driver and not os.jetson:
        messages = events(context, "libcuda-missing")
    messages += events(context, "libcuda-unlinked")
    if messages:
        # A person without a CUDA build of torch may not need CUDA at all.
        is_weak = nvml_works and not (version_errors or is_cuda_build(context.torch))
        yield finding(context, "libcuda-missing", messages, weak=is_weak)


def driver_does_not_answer(context: RuleContext) -> Findings:
    """A library of the driver crashed or hung when gpusetup queried it."""
    children = failed_children(context)
    # The child process that queried one GPU tells more than the one that queried all GPUs.
    children_of_a_gpu = [event for event in children if "gpu" in event.values]
    messages = (*children_of_a_gpu, *children, *events(context, "driver-does-not-answer"))
    if not messages:
        return
    first = messages[0]
    values = {**first.values}
    # Without these values, for example in a text, the title is the record's plain one.
    if children:
        values = {"asked": "The driver", "problem": "no response", **values}
    if children_of_a_gpu:
        values["problem"] += f" for {named_gpu(context, first)}"
    first = replace(first, values=values)
    # If the driver in the text responds, the problem that the text describes is over.
    is_over = not children and driver_answers(context)
    yield finding(context, "driver-does-not-answer", (first, *messages[1:]), weak=is_over)


def named_gpu(context: RuleContext, event: Event) -> str:
    """The GPU that an event is about; its number is NVML's or CUDA's."""
    number = event.values.get("gpu")
    is_cudas_number = event.values.get("asked") == "libcuda"
    for gpu in gpus(context):
        if number == str(gpu.cuda_index if is_cudas_number else gpu.nvml_index):
            return gpu_naming.gpu_in_full(gpu)
    return f"GPU {number} {event.values.get('bus', '')}"


NOT_SUPPORTED = "3"


UNREAD = Message(
    title="{gpu} does not respond when gpusetup reads its {field}",
    look=(alike.KERNEL_LOG,),
    needs_root=True,
)


def gpu_does_not_answer(context: RuleContext) -> Findings:
    """A GPU returned errors instead of values when it was queried."""
    for event in events(context, "gpu-read-failed"):
        values = {**event.values, "gpu": named_gpu(context, event)}
        # Some GPUs do not have this value.
        if values.get("code") == NOT_SUPPORTED:
            continue
        nvml_code = 0
        if values.get("asked") == "nvml":
            nvml_code = whole_number(values.get("code")) or 0
        cause = NVML.get(nvml_code, "gpu-does-not-answer")
        # A failing sensor does not keep programs from using the GPU.
        is_sensor = values.get("field") in MEASURED
        message = replace(event, values=values)
        yield finding(context, cause, (message,), message=UNREAD, weak=is_sensor)


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
"""The causes of NVML's error codes (nvml.h, enum nvmlReturn_t), when NVML starts or when one GPU is
queried."""


ANSWERED = Message(
    title="The driver's NVML does not start: it reports {said}",
    look=(alike.KERNEL_LOG,),
    needs_root=True,
    cases=(HERE,),
)


LIBRARIES = Message(
    title="NVML does not start although a driver runs: it reports {said}",
    text="Reinstall the driver's libraries in exactly the version of its kernel module, and reboot",
    look=("ldconfig -p | grep libnvidia-ml",),
    needs_root=True,
    needs_reboot=True,
    cases=(
        Message(where=(IN_A_CONTAINER,), text=WITH_COMPUTE.text, way=lambda _, __: WITH_COMPUTE),
    ),
)


def nvml_init_failed(context: RuleContext) -> Findings:
    """NVML failed to start on this machine; each error code has its own cause."""
    machine, is_in_container = context.snapshot, in_container(context)
    code = machine.driver.nvml_code or 0
    # Only a probed machine has an NVML code; other rules handle the messages in a text.
    if is_report(context) or context.other_host or code in (NVML_STARTS, NVML_OTHER_LIBRARY):
        return
    cuda_starts = machine.cuda_api.init_code == 0
    lacks_kernel_driver = code in NO_KERNEL_DRIVER
    driver_runs = cuda_starts or machine.driver.module_loaded
    # There is no driver at all, and other rules report that.
    if lacks_kernel_driver and (machine.os.jetson or not driver_runs):
        return
    # The rules for containers report it: the container lost its GPU or never had one.
    if is_in_container and not cuda_starts and code in (*NO_KERNEL_DRIVER, NVML_UNKNOWN_ERROR):
        return
    message = LIBRARIES if lacks_kernel_driver else ANSWERED
    answer = f"{machine.driver.nvml_message or 'an error'} (code {code})"
    yield seen(
        context,
        NVML.get(code, "nvml-init-failed"),
        "driver.nvml_code",
        answer,
        message=message,
        # A container without NVML's library may still compute.
        weak=lacks_kernel_driver and is_in_container,
        said=answer,
    )


NVML_STARTS, NVML_OTHER_LIBRARY, NVML_UNKNOWN_ERROR = 0, 18, 999
"""NVML's codes for success, for a library that does not match the kernel module (another finding),
and for an unknown error."""


SLOW_SECONDS = 5.0
"""A loaded driver responds within a second. A driver that must first start its GPUs needs several
seconds."""


def driver_slow(context: RuleContext) -> Findings:
    """The driver took long to respond, usually because no process keeps it loaded."""
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
