"""The boundary around the process: containers, WSL, and what the process itself is told to hide."""

from __future__ import annotations

import re

from gpusetup.causes.windows import WSL_LIBRARIES
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
from gpusetup.findings.message_rules import finding, seen, shown
from gpusetup.findings.presence import NVML_UNKNOWN
from gpusetup.model.finding import Findings
from gpusetup.model.machine import Events


def wsl_driver(context: RuleContext) -> Findings:
    """WSL without a way to the Windows driver."""
    machine = context.snapshot
    said = events(context, "wsl-driver")
    nodes = machine.devices
    no_bridge = nodes is not None and not any(node.path == "/dev/dxg" for node in nodes)
    silent = machine.driver.library_found is False or machine.driver.nvml_code
    blind = silent or no_bridge or _text_without_driver(context)
    # No order: a text's driver may be Windows' own, which nothing in WSL reached.
    unreached = machine.os.wsl and blind and not listed_gpus(context)
    if (said or unreached) and not context.other_host:
        here = shown(context, "os.wsl", f"WSL, kernel {machine.os.kernel or 'unknown'}")
        yield finding(context, "wsl-driver", (*said, *events(context, *NO_DRIVER_IN_WSL), here))


NO_DRIVER_IN_WSL = ("no-nvidia-driver", "driver-not-loaded", "smi-not-found", "cuda-unavailable")


def _text_without_driver(context: RuleContext) -> bool:
    """A text in which a CUDA build of torch finds nothing."""
    torch = is_cuda_build(context.torch) and cuda_was_refused(context)
    messages = events(context, *NO_DRIVER_IN_WSL[:3])
    return is_report(context) and bool(messages or torch)


def wsl_linux_driver(context: RuleContext) -> Findings:
    """A Linux driver library inside WSL stands before Windows' own."""
    path = context.driver.libcuda_path or ""
    if context.os.wsl and path.startswith("/") and WSL_LIBRARIES not in path:
        about = "driver.libcuda_path"
        yield seen(
            context,
            "wsl-linux-driver",
            about,
            path,
            weak=not (context.snapshot.cuda_api.init_code),
            path=path,
        )


NOTHING = ("", "-1", "none", "void", "NoDevFiles")


def container_no_gpu(context: RuleContext) -> Findings:
    """A container that was started without its host's GPU."""
    said = (*events(context, "container-no-gpu"), *_blind_beside_a_driver(context))
    if in_an_image_build(context):
        said += (*events(context, *BLIND, *IN_VAIN), *cuda_errors(context, 3, 100))
    if not context.other_host and (said or _given_none(context)):
        kind = shown(context, "container.kind", f"container: {context.snapshot.container.kind}")
        seen = said or (*events(context, *BLIND, *IN_VAIN), kind)
        yield finding(context, "container-no-gpu", seen)


IN_VAIN = ("cuda-unavailable", "driver-check-failed")
"""Events of a program that came to no GPU, whatever the driver."""


BLIND = ("no-nvidia-driver", "smi-not-found")
"""Events of a program that finds nothing of the driver."""


def _given_none(context: RuleContext) -> bool:
    """A container without a driver, whose host has a GPU or that was meant to have one."""
    machine = context.snapshot
    given = driver_answers(context) or machine.container.nvidia_requested
    # An engine brings nvidia-smi with the devices; into LXC it is installed by hand.
    by_hand = ("driver-not-loaded",) if machine.container.kind == "lxc" else ()
    blind = events(context, *BLIND, *by_hand)
    # The toolkit asked the host's driver: that is what is missing.
    at_the_host = any(event.values.get("place") == "host" for event in blind)
    if not in_container(context) or given or at_the_host:
        return False
    # No order: a text need not list the device nodes that a live container shows.
    in_vain = is_report(context) and (cuda_was_refused(context) or events(context, *IN_VAIN))
    bare = machine.container.nvidia_requested is False or is_cuda_build(machine.torch)
    named = machine.environment.get("NVIDIA_VISIBLE_DEVICES", "void")
    meant = named not in NOTHING and machine.pci_devices is None
    made_for_it = in_vain and (bare or events(context, "gpu-image"))
    return bool(nvidia_on_pci(context) or blind or meant or made_for_it)


def _blind_beside_a_driver(context: RuleContext) -> Events:
    """A program that finds no driver, in a text whose nvidia-smi shows that the host's works."""
    in_wsl = context.os.wsl and not in_container(context)
    # No order: TensorFlow says so of its own libraries as well, in a container or not.
    if in_wsl or not driver_answers(context) or events(context, *OTHERWISE):
        return ()
    blind = BLIND if context.snapshot.container.nvidia_requested is False else BLIND[:1]
    return events(context, *blind) if is_report(context) else ()


OTHERWISE = (
    "program-lib-missing",
    "driver-not-loaded",
    "nvml-mismatch",
    "container-driver-capability-missing",
)


def cuda_visible_devices_hidden(context: RuleContext) -> Findings:
    """CUDA_VISIBLE_DEVICES leaves no GPU to the process: it is set so, or a scheduler gave none."""
    said = events(context, "gpus-not-given") or job_without_gpu(context)
    value = context.snapshot.environment.get("CUDA_VISIBLE_DEVICES")
    if not said and value is not None and _none_is_left(context, value):
        text = f"CUDA_VISIBLE_DEVICES={value}"
        said = (shown(context, "environment", text, value=value),)
    if said and not context.other_host:
        yield finding(context, "cuda-visible-devices-hidden", said)


def _none_is_left(context: RuleContext, value: str) -> bool:
    """Whether the variable leaves no GPU: as the driver says, or by its first entry."""
    listed = gpus(context)
    # No order: the memory of a GPU that is hidden is not asked for.
    if listed and all(gpu.visible is False for gpu in listed):
        return not events(context, "out-of-memory")
    first = value.split(",")[0].strip()
    if first in NOTHING:
        return bool(listed or has_nvidia(context) or cuda_was_refused(context))
    # CUDA stops at the first entry that names no GPU; nvidia-smi lists all of them all the same.
    index = whole_number(first)
    known = [name for gpu in listed for name in (gpu.uuid or "", *gpu.mig_instances)]
    nameless = first[:4] in ("GPU-", "MIG-") and not any(name.startswith(first) for name in known)
    wrong = nameless if index is None else index >= len(listed)
    return bool(listed and wrong and cuda_was_refused(context))


def container_nvml_lost(context: RuleContext) -> Findings:
    """A running container whose GPU access was taken away (a systemd reload on the host)."""
    said = events(context, "container-nvml-lost")
    if in_container(context):
        driver, starts = context.driver, context.snapshot.cuda_api.init_code == 0
        if driver.nvml_code == NVML_UNKNOWN and not starts and not is_report(context):
            said += (shown(context, "driver.nvml_code", "999: Unknown Error"),)
    if said:
        yield finding(context, "container-nvml-lost", said)


def container_driver_capability_missing(context: RuleContext) -> Findings:
    """NVML works in the container, libcuda was not given to it."""
    machine, name = context.snapshot, "NVIDIA_DRIVER_CAPABILITIES"
    said = events(context, "container-driver-capability-missing")
    if in_container(context):
        said += events(context, "cuda-version-err")
        named = machine.environment.get(name, "all")
        lacks = not {"compute", "all"} & set(re.split(r"[, ]+", named))
        if lacks and not machine.driver.library_found and driver_answers(context):
            said += (shown(context, "environment", f"{name}={named}"),)
    if said:
        yield finding(context, "container-driver-capability-missing", said)


RULES = (
    wsl_driver,
    wsl_linux_driver,
    cuda_visible_devices_hidden,
    container_no_gpu,
    container_nvml_lost,
    container_driver_capability_missing,
)
