"""WSL: the driver of Windows, and one of Linux that stands before it."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.evidence.context import (
    RuleContext,
    answering,
    asked_for_cuda,
    driver_answers,
    event_evidence,
    events,
    is_cuda_build,
    is_report,
    problems,
    value_evidence,
)
from gpusetup.findings.driver.presence import says_only_no_smi
from gpusetup.findings.layers import NO_DRIVER, NO_INIT, Layer
from gpusetup.findings.record import Cause
from gpusetup.fixes import packages, paste
from gpusetup.fixes.drivers import DRIVER_SITE
from gpusetup.model.finding import Evidence, Finding, Fix
from gpusetup.model.shell import Line, lines

WSL_LIBRARIES = "/usr/lib/wsl/lib"


WSL_DRIVER = Cause(
    id="wsl-driver",
    place=(Layer.BOUNDARY, 80),
    title="WSL does not reach the Windows driver",
    means="No NVIDIA driver in Windows, WSL 1, or a GPU that is not shared.",
    proven_by="WSL, no GPU, and /dev/dxg or libcuda missing",
    way_out="Driver in Windows, wsl --update",
    source='NVIDIA, "CUDA on WSL User Guide"',
    explains=(*NO_DRIVER, "driver-missing", "driver-not-loaded", "gpu-init-failed"),
)


def wsl_driver(context: RuleContext) -> Iterator[Finding]:
    """WSL without a way to the Windows driver, or with a Linux driver in front of it."""
    machine = context.snapshot
    if context.other_host or not (machine.os.wsl or events(context, "wsl-driver")):
        return
    if _is_wsl_1(context):
        yield _wsl_1(context)
        return
    nodes = machine.devices
    no_bridge = nodes is not None and not any(node.path == "/dev/dxg" for node in nodes)
    silent = not answering(context) and (
        machine.driver.library_found is False or bool(machine.driver.nvml_code)
    )
    if (
        events(context, "wsl-driver")
        or (silent and not driver_answers(context))
        or (no_bridge and not answering(context))
        or _wsl_text_without_driver(context)
        or _only_windows_answers(context)
    ):
        yield WSL_DRIVER.found(
            "WSL does not reach the Windows driver",
            detail="/dev/dxg is missing: this is WSL 1, or the GPU is not shared with WSL."
            if no_bridge
            else "",
            evidence=(
                *event_evidence(events(context, "wsl-driver", *NO_DRIVER_IN_WSL)),
                *_wsl_facts(context, no_bridge),
                *problems(context, "driver", "driver.version", "driver.library_found"),
            ),
            fix=driver_of_windows(context, context.catalog.driver_floor("12", "windows")),
        )


def _is_wsl_1(context: RuleContext) -> bool:
    """WSL 1 names a kernel 4.4.0 with the build of Windows: no Linux of WSL 2 is so old."""
    kernel = context.snapshot.os.kernel or ""
    return kernel.startswith("4.4.0-") and kernel.lower().rstrip("+").endswith("-microsoft")


def _wsl_1(context: RuleContext) -> Finding:
    return WSL_DRIVER.found(
        "This is WSL 1, which has no GPU",
        evidence=(value_evidence(context, "os.kernel", f"kernel {context.snapshot.os.kernel}"),),
        fix=Fix(
            text="In PowerShell turn the distribution into WSL 2: `wsl --set-version` with its "
            "name and 2 (the command lists the names)",
            commands=lines("wsl.exe --list --verbose"),
        ),
    )


NO_DRIVER_IN_WSL = ("no-nvidia-driver", "driver-not-loaded", "smi-not-found", "cuda-unavailable")


def _only_windows_answers(context: RuleContext) -> bool:
    """A text in which nvidia-smi fails inside WSL beside the table that Windows prints."""
    failed = events(context, "driver-not-loaded") or [
        event for event in events(context, "gpu-fell-off-bus") if event.values.get("said")
    ]
    return is_report(context) and bool(context.snapshot.os.wsl and failed)


def _wsl_text_without_driver(context: RuleContext) -> bool:
    """A text from WSL in which a CUDA build of torch finds nothing, and no driver shows."""
    machine = context.snapshot
    blind = (
        bool(machine.os.wsl)
        and is_report(context)
        and not answering(context)
        and not driver_answers(context)
    )
    messages = events(context, *NO_DRIVER_IN_WSL[:2]) or says_only_no_smi(context)
    return blind and bool(messages or (is_cuda_build(machine.torch) and asked_for_cuda(context)))


def _wsl_facts(context: RuleContext, no_bridge: bool) -> tuple[Evidence, ...]:
    machine = context.snapshot
    if not machine.os.wsl:
        return ()
    lines = [value_evidence(context, "devices", "/dev/dxg is missing")] if no_bridge else []
    if machine.driver.library_found is False:
        lines.append(
            value_evidence(context, "driver.library_found", f"no libcuda.so.1 in {WSL_LIBRARIES}")
        )
    return (
        *lines,
        value_evidence(context, "os.wsl", f"WSL, kernel {machine.os.kernel or 'unknown'}"),
    )


WSL_LINUX_DRIVER = Cause(
    id="wsl-linux-driver",
    kind_of="wsl-driver",
    place=(Layer.PROCESS, 30),
    title="a Linux driver is installed inside WSL",
    means="It hides the library through which WSL talks to Windows.",
    proven_by="libcuda from elsewhere than /usr/lib/wsl/lib",
    way_out="Remove it",
    source='NVIDIA, "CUDA on WSL User Guide"',
    explains=(*NO_INIT, "wsl-driver", "driver-not-loaded"),
)


def wsl_linux_driver(context: RuleContext) -> Iterator[Finding]:
    """A Linux driver library inside WSL stands before Windows' own."""
    path = context.snapshot.driver.libcuda_path
    if context.snapshot.os.wsl and path and path.startswith("/") and WSL_LIBRARIES not in path:
        make = (
            WSL_LINUX_DRIVER.found
            if context.snapshot.cuda_api.init_code
            else WSL_LINUX_DRIVER.as_warning
        )
        yield make(
            f"A Linux driver library is installed inside WSL: {path}",
            detail=f"WSL's own is in {WSL_LIBRARIES}; another one cannot talk to Windows.",
            evidence=(value_evidence(context, "driver.libcuda_path", path),),
            fix=Fix(
                text="Remove the Linux driver's packages from WSL, then start WSL again",
                commands=(*_removal(context), *lines("wsl.exe --shutdown")),
                needs_root=True,
            ),
        )


REMOVAL = {
    "ubuntu": lines("sudo apt purge -y '^(lib)?nvidia-.*-[0-9]{3}(-server)?(-open)?$'"),
    "debian": lines(
        "sudo apt purge -y '^(nvidia-(driver|kernel|smi|alternative|egl|vulkan|persistenced).*"
        "|libcuda1|libnvidia-(ml1|cfg1|glcore|eglcore|rtcore|ptxjitcompiler1))$'"
    ),
    "fedora": lines("sudo dnf remove -y 'akmod-nvidia*' 'kmod-nvidia*' 'xorg-x11-drv-nvidia*'"),
    "arch": lines("sudo pacman -Rs --noconfirm nvidia-utils"),
}
"""Distribution -> what removes the driver's packages, and neither CUDA nor the container tools."""


OF_A_LINUX_DRIVER = (
    "module-not-found",
    "driver-build-failed",
    "secure-boot-rejected",
    "nvml-mismatch",
)
"""What only a driver for Linux says: inside WSL somebody installed one."""


def driver_of_windows(context: RuleContext, floor: str | None, first: str = "") -> Fix:
    """What mends in WSL what a driver's modules, its nodes or a restart mend on Linux."""
    update = "install or update the NVIDIA driver in Windows"
    again = lines("wsl.exe --update", "wsl.exe --shutdown")
    removal = _removal(context)
    installed = bool(events(context, *OF_A_LINUX_DRIVER))
    text = f"{first}{update[0].upper()}{update[1:]} (from {DRIVER_SITE}), update WSL, and start it "
    text += "again (open programs in it end); install no Linux driver inside WSL"
    if installed:
        text = "Remove the Linux driver that was installed inside WSL: it hides the driver of "
        text += f"Windows, which is the one that counts. Then {update} (from {DRIVER_SITE}), and "
        text += "start WSL again (open programs in it end)"
    return Fix(
        text=text,
        commands=(*removal, *again) if installed else again,
        alternatives=()
        if installed or not removal
        else paste.other(
            "where a Linux driver was installed inside WSL, remove it: it hides the driver of "
            "Windows",
            *removal,
            *again[1:],
        ),
        needs_root=True,
        min_driver=floor,
    )


def _removal(context: RuleContext) -> tuple[Line, ...]:
    """What removes a Linux driver; a WSL of which nothing is said is Ubuntu, its default."""
    return REMOVAL.get(packages.distribution(context) or "ubuntu", ())


RULES = (
    wsl_driver,
    wsl_linux_driver,
)
