"""The boundary around a process: containers, WSL, and variables that hide GPUs from it."""

from __future__ import annotations

import re

from gpusetup.causes.windows import LINUX_DRIVER_IN_WSL, WSL_LIBRARIES
from gpusetup.evidence.context import (
    RuleContext,
    cuda_errors,
    cuda_was_refused,
    driver_answers,
    events,
    gpus,
    has_nvidia,
    in_container,
    is_cuda_build,
    is_report,
    listed_gpus,
    nvidia_on_pci,
    whole_number,
)
from gpusetup.evidence.places import in_an_image_build, job_without_gpu
from gpusetup.findings.cuda import NO_DEVICE, NOT_INITIALIZED, NVML_UNKNOWN_ERROR
from gpusetup.findings.message_rules import finding, shown
from gpusetup.model.finding import Findings
from gpusetup.model.machine import Events


def wsl_driver(context: RuleContext) -> Findings:
    """Programs in WSL cannot reach the Windows driver."""
    os = context.os
    # Options that describe another host say nothing about WSL there.
    if context.other_host:
        return
    messages = events(context, "wsl-driver")
    # Only a list of GPUs shows that WSL reaches the driver. A version in a text may come from
    # Windows itself.
    is_unreached = os.wsl and not listed_gpus(context) and _nothing_answers_in_wsl(context)
    if messages or is_unreached:
        kernel = shown(context, "os.wsl", f"WSL, kernel {os.kernel or 'unknown'}")
        failures = events(context, *UNREACHED_IN_WSL, "cuda-unavailable")
        evidence = (*messages, *failures, kernel)
        yield finding(context, "wsl-driver", evidence)


FINDS_NO_DRIVER = ("no-nvidia-driver", "smi-not-found")
"""Events of a program that finds no part of the driver."""

UNREACHED_IN_WSL = (*FINDS_NO_DRIVER, "driver-not-loaded")
"""Events of programs in WSL that cannot reach a driver. WSL has no kernel module of NVIDIA's, so
"not loaded" means there that the Windows driver does not respond."""


def _nothing_answers_in_wsl(context: RuleContext) -> bool:
    """Whether the Windows driver cannot be reached: its library is missing, NVML returns an error,
    there is no device node, or programs in a text find no driver or no GPU."""
    driver, nodes = context.driver, context.snapshot.devices
    if driver.library_found is False or driver.nvml_code:
        return True
    # WSL reaches the Windows driver through this device node.
    if nodes is not None and "/dev/dxg" not in [node.path for node in nodes]:
        return True
    # On a probed machine, the driver itself was asked above.
    if not is_report(context):
        return False
    is_refused = is_cuda_build(context.torch) and cuda_was_refused(context)
    return is_refused or bool(events(context, *UNREACHED_IN_WSL))


def wsl_linux_driver(context: RuleContext) -> Findings:
    """A Linux driver library inside WSL is loaded instead of the one that Windows provides."""
    path = context.driver.libcuda_path or ""
    # A name without a folder (`libcuda.so.1`) does not show which library is loaded.
    if not context.os.wsl or not path.startswith("/") or WSL_LIBRARIES in path:
        return
    # Only a warning as long as no error of CUDA is known.
    is_weak = not context.snapshot.cuda_api.init_code
    evidence = (shown(context, "driver.libcuda_path", path, path=path),)
    yield finding(context, "wsl-driver", evidence, message=LINUX_DRIVER_IN_WSL, weak=is_weak)


NAMES_NO_GPU = ("", "-1", "none", "void", "NoDevFiles")
"""Values of CUDA_VISIBLE_DEVICES and NVIDIA_VISIBLE_DEVICES that give no GPU."""


def container_no_gpu(context: RuleContext) -> Findings:
    """A container that was started without its host's GPU."""
    # Options that describe another host say nothing about a container there.
    if context.other_host:
        return
    messages = (*events(context, "container-no-gpu"), *_no_driver_beside_working_host(context))
    # While an image is built, there is no GPU, so a build step that needs one always fails.
    if in_an_image_build(context):
        messages += events(context, *FINDS_NO_DRIVER, *USED_NO_GPU)
        messages += cuda_errors(context, NOT_INITIALIZED, NO_DEVICE)
    if messages:
        yield finding(context, "container-no-gpu", messages)
    elif _has_no_gpu(context):
        failures = events(context, *FINDS_NO_DRIVER, *USED_NO_GPU)
        kind = shown(context, "container.kind", f"container: {context.snapshot.container.kind}")
        yield finding(context, "container-no-gpu", (*failures, kind))


USED_NO_GPU = ("cuda-unavailable", "driver-check-failed")
"""Events of a program that could not use a GPU, whether there is a driver or not."""


def _has_no_gpu(context: RuleContext) -> bool:
    """Whether a container was not given the GPU that its host has, or that a program in it needs.

    False if the command that started the container requests a GPU, because then something else
    fails.
    """
    machine = context.snapshot
    is_requested = machine.container.nvidia_requested
    if not in_container(context) or driver_answers(context) or is_requested:
        return False
    # Container engines mount nvidia-smi together with the devices; in LXC it is installed by hand.
    by_hand = ("driver-not-loaded",) if machine.container.kind == "lxc" else ()
    finds_no_driver = events(context, *FINDS_NO_DRIVER, *by_hand)
    # An image for GPUs sets this variable. If the PCI bus was read, the bus decides.
    visible = machine.environment.get("NVIDIA_VISIBLE_DEVICES", "void")
    is_gpu_image = visible not in NAMES_NO_GPU and machine.pci_devices is None
    if finds_no_driver or nvidia_on_pci(context) or is_gpu_image:
        return True
    # A text need not list the device nodes that a live container shows.
    if not is_report(context):
        return False
    # The command that started the container gave it no GPU, and NVML does not start in it: the
    # driver is not old, it is not there.
    if is_requested is False and machine.driver.nvml_code and machine.driver.version is None:
        return True
    if not cuda_was_refused(context) and not events(context, *USED_NO_GPU):
        return False
    needs_gpu = is_cuda_build(machine.torch) or events(context, "gpu-image")
    return is_requested is False or bool(needs_gpu)


def _no_driver_beside_working_host(context: RuleContext) -> Events:
    """Messages of a program that finds no driver, in a text whose nvidia-smi shows that the host's
    driver works: the program runs in a container, even if the text does not say so."""
    if not is_report(context) or not driver_answers(context):
        return ()
    # In WSL itself, Windows is the host, and `wsl_driver` judges what programs find.
    is_in_wsl_itself = context.os.wsl and not in_container(context)
    if is_in_wsl_itself or events(context, *OTHER_REASONS):
        return ()
    # A container that was started without a GPU has no nvidia-smi either.
    if context.snapshot.container.nvidia_requested is False:
        return events(context, *FINDS_NO_DRIVER)
    return events(context, "no-nvidia-driver")


OTHER_REASONS = (
    "program-lib-missing",
    "driver-not-loaded",
    "nvml-mismatch",
    "container-driver-capability-missing",
)
"""Events that explain why a program finds no driver although the host's works. TensorFlow, for
example, prints the same message if its own libraries are missing."""


def cuda_visible_devices_hidden(context: RuleContext) -> Findings:
    """CUDA_VISIBLE_DEVICES hides every GPU from the process, because a person set it so or a
    scheduler assigned no GPU."""
    # Options that describe another host say nothing about variables there.
    if context.other_host:
        return
    messages = events(context, "gpus-not-given") or job_without_gpu(context)
    value = context.snapshot.environment.get("CUDA_VISIBLE_DEVICES")
    if not messages and value is not None and _hides_every_gpu(context, value):
        messages = (shown(context, "environment", f"CUDA_VISIBLE_DEVICES={value}", value=value),)
    if messages:
        yield finding(context, "cuda-visible-devices-hidden", messages)


def _hides_every_gpu(context: RuleContext, value: str) -> bool:
    """Whether CUDA_VISIBLE_DEVICES hides every GPU: the driver lists GPUs and CUDA none of them, or
    the variable's first entry names no GPU."""
    listed = gpus(context)
    if listed and all(gpu.visible is False for gpu in listed):
        return True
    first_entry = value.split(",")[0].strip()
    # `all` gives GPUs in NVIDIA_VISIBLE_DEVICES, but names none for CUDA. On a machine without an
    # NVIDIA GPU, such a value hides nothing.
    if first_entry in (*NAMES_NO_GPU, "all"):
        return bool(listed or has_nvidia(context) or cuda_was_refused(context))
    # CUDA stops at the first entry that names no GPU. nvidia-smi ignores the variable and lists all
    # GPUs, so its list shows which numbers exist.
    if not listed or not cuda_was_refused(context):
        return False
    # Other words (`$GPUS`) may be a variable that the text does not resolve.
    index = whole_number(first_entry)
    return index is not None and index >= len(listed)


def container_nvml_lost(context: RuleContext) -> Findings:
    """A running container has lost its GPU, usually because systemd on the host was reloaded."""
    messages = events(context, "container-nvml-lost")
    is_live_container = in_container(context) and not is_report(context)
    cuda_starts = context.snapshot.cuda_api.init_code == 0
    if is_live_container and context.driver.nvml_code == NVML_UNKNOWN_ERROR and not cuda_starts:
        messages += (shown(context, "driver.nvml_code", "999: Unknown Error"),)
    if messages:
        yield finding(context, "container-nvml-lost", messages)


def container_driver_capability_missing(context: RuleContext) -> Findings:
    """NVML works in the container, but libcuda was not mounted into it."""
    machine, variable = context.snapshot, "NVIDIA_DRIVER_CAPABILITIES"
    messages = events(context, "container-driver-capability-missing")
    # Outside of a container, the variable has no effect. A text from a Linux host may quote the
    # command that starts its container.
    if machine.container.kind == "none" and context.os.family != "linux":
        return
    if in_container(context):
        messages += events(context, "cuda-version-err")
        value = machine.environment.get(variable, "all")
        capabilities = re.split(r"[, ]+", value)
        has_compute = "compute" in capabilities or "all" in capabilities
        if not has_compute and not machine.driver.library_found and driver_answers(context):
            messages += (shown(context, "environment", f"{variable}={value}"),)
    if messages:
        yield finding(context, "container-driver-capability-missing", messages)


RULES = (
    wsl_linux_driver,
    wsl_driver,
    cuda_visible_devices_hidden,
    container_no_gpu,
    container_nvml_lost,
    container_driver_capability_missing,
)
