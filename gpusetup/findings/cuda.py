"""Whether device nodes can be opened, how one GPU is shared (MIG, compute modes, vGPU), and a
driver or CUDA that does not respond, responds late, or returns an error."""

from __future__ import annotations

import re

from gpusetup.causes.record import RECORDS
from gpusetup.evidence.context import (
    NO_KERNEL_DRIVER,
    RuleContext,
    cuda_errors,
    driver_answers,
    events,
    failed_children,
    gpus,
    has_nvidia,
    in_container,
    is_cuda_build,
    is_report,
    listed_gpus,
    nvidia_on_pci,
    whole_number,
)
from gpusetup.evidence.proofs import ON_NVSWITCH
from gpusetup.findings.gpu_faults import UNCORRECTABLE
from gpusetup.findings.message_rules import finding, is_only_set, of_gpus, seen, shown
from gpusetup.fixes import gpu_naming
from gpusetup.model.finding import Findings, Fix
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Event, Events, Gpu
from gpusetup.model.shell import filled


def uvm_missing(context: RuleContext) -> Findings:
    """The unified memory module or its node is missing: NVML works, but CUDA cannot start."""
    # In WSL, the Windows driver manages the memory, so this module does not exist.
    if context.os.wsl:
        return
    unfound = events(context, "module-not-found")
    messages = list(events(context, "uvm-missing"))
    messages += [event for event in unfound if "uvm" in event.values.get("module", "")]
    machine = context.snapshot
    paths = [node.path for node in machine.devices or ()]
    # A list without nvidiactl has no NVIDIA nodes at all, which is another fault.
    has_no_node = "/dev/nvidiactl" in paths and "/dev/nvidia-uvm" not in paths
    lacks_uvm = machine.driver.uvm_loaded is False or has_no_node
    # If CUDA starts, it loads the module and creates the node itself.
    if lacks_uvm and driver_answers(context) and machine.cuda_api.init_code:
        text = "the nvidia_uvm module is not loaded, or /dev/nvidia-uvm is missing"
        messages.append(shown(context, "devices", text))
    if messages:
        yield finding(context, "uvm-missing", messages)


def device_permission(context: RuleContext) -> Findings:
    """This user has no permission to open the device nodes."""
    messages = list(events(context, "device-permission"))
    # The nodes in nvidia-caps belong to MIG, and some are for root only on machines that work.
    nodes = [
        node
        for node in context.snapshot.devices or ()
        if node.path.startswith("/dev/nvidia") and "caps" not in node.path
    ]
    closed_nodes = [node for node in nodes if False in (node.readable, node.writable)]
    # The shortest path, /dev/nvidia0, comes before /dev/nvidiactl and /dev/nvidia-uvm, because the
    # title names the first one and people know it best.
    for node in sorted(closed_nodes, key=lambda node: len(node.path)):
        text = f"{node.path} {node.mode or 'is not accessible'}"
        messages.append(shown(context, "devices", text, node=node.path))
    if messages:
        yield finding(context, "device-permission", messages)


INVALID_DEVICE = 101
"""cudaErrorInvalidDevice. It also appears if the variable names several MIG instances, because CUDA
uses only the first."""

BUSY = 46
"""cudaErrorDevicesUnavailable, which a vGPU without a licence returns after a while."""


def mig_without_instances(context: RuleContext) -> Findings:
    """MIG is on, but a GPU has no MIG instance that can compute."""
    empty = [gpu for gpu in _gpus_with_mig(context) if _instance_count(gpu) == 0]
    # A message of a program shows the other fault: `mig_instance_not_chosen`.
    if not empty or _messages_about_mig(context):
        return
    # The first GPU if none of them can be identified.
    indices = gpu_naming.smi_list(empty) or "0"
    create = filled("sudo nvidia-smi mig -i {gpus} -cgi 0 -C", gpus=indices)
    text = "Create MIG instances with the command below. If it reports that the GPU is in use, "
    "stop the programs on the GPU first"
    fix = Fix(text=text, commands=(create,), needs_root=True)
    what = "MIG is on, but there is no MIG instance that programs can compute on"
    yield of_gpus(context, "mig-misconfigured", empty, *MIG_FIELDS, "name", fix=fix, what=what)


def mig_instance_not_chosen(context: RuleContext) -> Findings:
    """There are several MIG instances, or an instance and whole GPUs, and the process does not
    choose between them, or a program's message shows that it chose wrongly."""
    divided, messages = _gpus_with_mig(context), _messages_about_mig(context)
    instance_count = sum(_instance_count(gpu) or 0 for gpu in divided)
    # A process computes on one MIG instance, or on whole GPUs, so CUDA leaves these out.
    whole_gpus_left_out = [
        gpu for gpu in unhidden(context) if not gpu.mig_enabled and gpu.visible is False
    ]
    has_a_choice = instance_count > 1 or (instance_count and whole_gpus_left_out)
    is_chosen = context.snapshot.environment.get(VISIBLE_DEVICES, "").startswith("MIG-")
    if messages or (has_a_choice and not is_chosen):
        # If CUDA starts, it uses the first instance, which may be what the person wants.
        is_weak = not messages and not context.snapshot.cuda_api.init_code
        yield of_gpus(
            context,
            "mig-misconfigured",
            divided,
            *MIG_FIELDS,
            messages=messages,
            weak=is_weak,
            what="MIG is on, but the process does not select exactly one MIG instance",
        )


VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
MIG_FIELDS = ("mig_enabled", "mig_count", "mig_instances")


def _gpus_with_mig(context: RuleContext) -> list[Gpu]:
    """The GPUs on which MIG is on and that no variable hides."""
    return [gpu for gpu in unhidden(context) if gpu.mig_enabled]


def _messages_about_mig(context: RuleContext) -> Events:
    """The messages of a program that does not use exactly one MIG instance."""
    chosen = context.snapshot.environment.get(VISIBLE_DEVICES, "")
    messages = events(context, "mig-misconfigured")
    # torch's assertion about the number of devices means this only if MIG is on. Its row marks it.
    if not _gpus_with_mig(context) and "MIG-" not in chosen:
        messages = tuple(message for message in messages if "only_with" not in message.values)
    # CUDA accepts one instance. If the variable names several, CUDA reports it as invalid.
    if chosen.count("MIG-") > 1:
        messages += cuda_errors(context, INVALID_DEVICE)
    return messages


def unhidden(context: RuleContext) -> list[Gpu]:
    """The GPUs that no variable hides and that are not lost. CUDA may still skip one of them
    because it is faulty."""
    is_set = VISIBLE_DEVICES in context.snapshot.environment
    listed = gpus(context)
    return [gpu for gpu in listed if not gpu.lost and not (is_set and gpu.visible is False)]


def _instance_count(gpu: Gpu) -> int | None:
    """How many MIG instances a GPU has, from their names or their number; None if unknown."""
    return len(gpu.mig_instances) or gpu.mig_count


def compute_mode(context: RuleContext) -> Findings:
    """The GPU's compute mode excludes other processes, or its vGPU profile lacks CUDA."""
    fields = ("name", "compute_mode")
    without_cuda = [gpu for gpu in unhidden(context) if _lacks_cuda(gpu)]
    if without_cuda:
        yield of_gpus(context, "vgpu-no-compute", without_cuda, *fields)
    with_cuda = [gpu for gpu in unhidden(context) if gpu not in without_cuda]
    for mode in ("prohibited", "exclusive"):
        closed = [gpu for gpu in with_cuda if _mode(gpu) == mode]
        if closed:
            # The command names these GPUs, because the others of a shared node belong to other
            # people. (The record's own command, without `-i`, is for a text without a list.) If no
            # source tells how to name one of them, it is the first.
            indices = gpu_naming.smi_list(closed) or "0"
            command = filled("sudo nvidia-smi -i {gpus} -c DEFAULT", gpus=indices)
            text = RECORDS["compute-mode-exclusive"].text
            fix = Fix(text=text, commands=(command,), needs_root=True)
            # One process may compute in the exclusive mode.
            weak = mode == "exclusive"
            yield of_gpus(context, "compute-mode-exclusive", closed, *fields, fix=fix, weak=weak)


def _lacks_cuda(gpu: Gpu) -> bool:
    """Whether a virtual GPU's profile has no CUDA: the driver prohibits it, or the profile's name
    ends in A or B (`GRID T4-2A`), not in Q or C."""
    is_prohibited = (gpu.virtualization or "").lower() == "vgpu" and _mode(gpu) == "prohibited"
    return is_prohibited or bool(re.search(r"-\d{1,3}[AB]$", gpu.name.strip()))


def _mode(gpu: Gpu) -> str:
    """The compute mode in one word: `exclusive` for `Exclusive_Process`."""
    return (gpu.compute_mode or "").lower().partition("_")[0]


def vgpu_unlicensed(context: RuleContext) -> Findings:
    """A vGPU has no licence, so it becomes slow or refuses CUDA."""
    messages = events(context, "vgpu-unlicensed")
    if messages:
        is_refused = cuda_errors(context, BUSY) or context.snapshot.cuda_api.init_code == BUSY
        yield finding(context, "vgpu-unlicensed", messages, weak=not is_refused)


CODES: dict[int, str] = {
    2: "cuda-init-out-of-memory",
    34: "libcuda-stub",
    36: "libcuda-driver-mismatch",
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
"""Kind of event -> the code of the same cause, the highest if it has several."""

ALSO_AFTER_START = (2, 36)
"""Codes with which programs also fail after CUDA has started, for other reasons (2: an allocation
failed; 36: a call needs a newer driver). They count only if cuInit itself returned them."""


def cuda_answers(context: RuleContext) -> Findings:
    """The error that CUDA returns at its start: as the probe read it, or in a program's message."""
    api = context.snapshot.cuda_api
    messages: dict[int, Events] = {}
    for event in events(context, "cuda-error", *CODE_OF_KIND):
        # A message of the cause itself has no code. A "cuda-error" has one, of any call.
        code_of_cause = CODE_OF_KIND.get(event.kind)
        code = code_of_cause or whole_number(event.values.get("code"))
        is_of_start = code_of_cause or (code in CODES and code not in ALSO_AFTER_START)
        # Without a code it is unknown which error it is.
        if code is not None and (is_of_start or code == api.init_code):
            messages[code] = (*messages.get(code, ()), event)
    # In a text, the quoted line already contains the code.
    is_quoted = is_report(context) and api.init_code in messages
    if api.init_code and not context.other_host and not is_quoted:
        text = f"cuInit: {api.init_name} {api.init_code}"
        result = shown(context, "cuda_api.init_code", text, code=str(api.init_code))
        messages[api.init_code] = (*messages.get(api.init_code, ()), result)
    for code, evidence in messages.items():
        if not _is_a_fault(context, code, evidence):
            continue
        # A program that computed steps first had started CUDA, so this is not a failed start.
        is_weak = events(context, "ran-first") or is_only_set(context, evidence)
        yield finding(context, CODES.get(code, "cuda-init-failed"), evidence, weak=is_weak)


NOT_INITIALIZED, NO_DEVICE, SYSTEM_NOT_READY = 3, 100, 802
"""CUDA's errors for a call before CUDA started, for no GPU at all, and for an NVSwitch fabric that
is not set up."""


def _is_a_fault(context: RuleContext, code: int, messages: Events) -> bool:
    """Whether an error code means that something is wrong on this machine."""
    # This code has its own finding, which names the GPU.
    if code == UNCORRECTABLE:
        return False
    # Only machines with an NVSwitch need a Fabric Manager. Elsewhere its log shows no fault, but
    # CUDA's own error does.
    names = [gpu.name for gpu in gpus(context)]
    has_no_switch = names and not any(map(ON_NVSWITCH.search, names))
    if code == SYSTEM_NOT_READY and (has_no_switch or events(context, "no-nvswitch")):
        return any(event.kind != CODES[SYSTEM_NOT_READY] for event in messages)
    # On a machine without an NVIDIA GPU, "no device" is correct. A text rarely lists the GPU that
    # its program looked for.
    may_have_a_gpu = gpus(context) or nvidia_on_pci(context) or is_report(context)
    return code != NO_DEVICE or (bool(may_have_a_gpu) and has_nvidia(context) is not False)


def fabric_not_completed(context: RuleContext) -> Findings:
    """The driver reports that the NVSwitch fabric is not set up yet."""
    unready = ("in_progress", "not_started")
    waiting_gpus = [gpu for gpu in gpus(context) if gpu.fabric_state in unready]
    if waiting_gpus:
        yield of_gpus(context, CODES[SYSTEM_NOT_READY], waiting_gpus, "fabric_state")


def libcuda_missing(context: RuleContext) -> Findings:
    """A driver is running, or its library is installed, but CUDA cannot start with it.

    Server packages lack libcuda, a container did not get it, or an installation broke off.
    """
    driver, os = context.driver, context.os
    nvml_works = driver.nvml_code == 0
    has_library = driver.library_found and has_nvidia(context) is not False
    has_driver = nvml_works or driver.module_loaded or has_library
    # nvidia-smi prints "CUDA Version: ERR!". In a container and in WSL, that has other causes.
    is_on_host = not in_container(context) and not os.wsl
    version_errors = events(context, "cuda-version-err") if is_on_host else ()
    messages = (*version_errors, *events(context, "libcuda-unlinked"))
    # The fix names packages that a Jetson does not have: its libcuda comes with JetPack.
    if not version_errors and has_driver and not os.jetson:
        messages += events(context, "libcuda-missing")
    if messages:
        # A person without a CUDA build of torch may not need CUDA at all.
        is_weak = nvml_works and not (version_errors or is_cuda_build(context.torch))
        yield finding(context, "libcuda-missing", messages, weak=is_weak)


def driver_does_not_answer(context: RuleContext) -> Findings:
    """A library of the driver crashed or hung when gpusetup queried it."""
    children = failed_children(context)
    # The child process that queried one GPU tells more than the one that queried all GPUs, so its
    # event comes first (and again among all, which the evidence leaves out).
    of_a_gpu = [event for event in children if "gpu" in event.values]
    messages = (*of_a_gpu, *children, *events(context, "driver-does-not-answer"))
    if not messages:
        return
    first = messages[0]
    values = dict(first.values)
    # The title is filled with these two values. A message in a text has none, so that the record's
    # plain title is used.
    if children:
        values = {"asked": "The driver", "problem": "no response", **values}
    if of_a_gpu:
        values["problem"] += f" for {named_gpu(first)}"
    evidence = (replace(first, values=values), *messages[1:])
    # If nvidia-smi in the text lists GPUs, the problem that the text describes is over.
    is_over = is_report(context) and listed_gpus(context)
    yield finding(context, "driver-does-not-answer", evidence, weak=is_over)


def named_gpu(event: Event) -> str:
    """The GPU that an event is about: `GPU 1 (0000:0f:00.0)`; its number is NVML's or CUDA's."""
    number, bus = event.values.get("gpu"), event.values.get("bus")
    return f"GPU {number} ({bus})" if bus else f"GPU {number}"


NVML_NOT_SUPPORTED, NVML_LIBRARY_MISMATCH, NVML_UNKNOWN_ERROR = 3, 18, 999
"""NVML's errors (nvml.h) for a value that a GPU does not have, for a library of another version
than the kernel module, and for an unknown error."""


def gpu_does_not_answer(context: RuleContext) -> Findings:
    """A GPU returned errors instead of values when it was queried, or CUDA leaves it out."""
    for event in events(context, "gpu-read-failed"):
        # CUDA's codes have other meanings than NVML's.
        is_from_nvml = event.values.get("asked") == "nvml"
        nvml_code = whole_number(event.values.get("code")) if is_from_nvml else None
        # Some GPUs do not have this value.
        if nvml_code == NVML_NOT_SUPPORTED:
            continue
        cause = NVML_CAUSES.get(nvml_code or 0, "driver-does-not-answer")
        gpu, problem = named_gpu(event), event.values.get("problem", "")
        # The titles of these causes have different placeholders.
        names = {"gpu": gpu, "who": gpu, "what": problem, "asked": gpu}
        values = {**event.values, **names, "problem": "does not respond properly"}
        # A failing sensor does not keep programs from using the GPU.
        is_sensor = values.get("field") in ("temperature_celsius", "power_watts")
        yield finding(context, cause, (replace(event, values=values),), weak=is_sensor)
    # The list of the machine that was read says nothing about a host that the options describe.
    left_out = () if context.other_host else events(context, "cuda-misses-gpu")
    for event in left_out:
        values = {"asked": named_gpu(event), "problem": "CUDA does not list this GPU"}
        yield finding(context, "driver-does-not-answer", (replace(event, values=values),))


NVML_CAUSES = {
    4: "device-permission",
    8: "gpu-init-failed",
    11: "gpu-init-failed",
    14: "hardware-fault",
    15: "gpu-fell-off-bus",
    16: "hardware-fault",
    17: "device-permission",
}
"""The causes of NVML's error codes (nvml.h, enum nvmlReturn_t) at its start and for one GPU."""


def nvml_init_failed(context: RuleContext) -> Findings:
    """NVML failed to start on this machine; each error code has its own cause."""
    machine, is_in_container = context.snapshot, in_container(context)
    code = machine.driver.nvml_code or 0
    cuda_starts = machine.cuda_api.init_code == 0
    # Only a probed machine has an NVML code; other rules handle the messages in a text. A library
    # that does not match the kernel module has its own finding.
    if is_report(context) or context.other_host or code in (0, NVML_LIBRARY_MISMATCH):
        return
    lacks_kernel_driver = code in NO_KERNEL_DRIVER
    driver_runs = cuda_starts or machine.driver.module_loaded
    # A Jetson may lack NVML. Elsewhere there is then no driver at all, which other rules report.
    if lacks_kernel_driver and (machine.os.jetson or not driver_runs):
        return
    # The rules for containers report it: the container lost its GPU or never had one.
    if is_in_container and not cuda_starts and code in (*NO_KERNEL_DRIVER, NVML_UNKNOWN_ERROR):
        return
    answer = f"{machine.driver.nvml_message or 'an error'} (code {code})"
    yield seen(
        context,
        NVML_CAUSES.get(code, "driver-does-not-answer"),
        "driver.nvml_code",
        answer,
        # A container without NVML's library may still compute.
        weak=lacks_kernel_driver and is_in_container,
        asked="NVML",
        problem=answer,
    )


RULES = (
    uvm_missing,
    device_permission,
    mig_without_instances,
    mig_instance_not_chosen,
    compute_mode,
    vgpu_unlicensed,
    cuda_answers,
    fabric_not_completed,
    libcuda_missing,
    driver_does_not_answer,
    gpu_does_not_answer,
    nvml_init_failed,
)
