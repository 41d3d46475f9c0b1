"""WSL: the driver of Windows, and one of Linux that stands before it."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.evidence.context import (
    RuleContext,
    asked_for_cuda,
    driver_answers,
    events,
    is_cuda_build,
    is_report,
)
from gpusetup.findings.driver.presence import says_only_no_smi
from gpusetup.findings.layers import NO_DRIVER, NO_INIT, Layer
from gpusetup.findings.message_rules import finding, seen, shown
from gpusetup.findings.record import Cause, Message
from gpusetup.fixes import packages, paste
from gpusetup.fixes.drivers import DRIVER_SITE
from gpusetup.model.finding import Finding, Fix, Severity
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
    message=Message(
        way=lambda context, _: driver_of_windows(
            context, context.catalog.driver_floor("12", "windows")
        ),
        cases=(
            Message(
                # WSL 1 names a kernel 4.4.0 with the build of Windows: WSL 2 has no such old one.
                where=(lambda context: (context.snapshot.os.kernel or "").startswith("4.4.0-"),),
                title="This is WSL 1, which has no GPU",
                text="In PowerShell turn the distribution into WSL 2: `wsl --set-version` with its "
                "name and 2 (the command lists the names)",
                commands=("wsl.exe --list --verbose",),
            ),
        ),
    ),
)


def wsl_driver(context: RuleContext) -> Iterator[Finding]:
    """WSL without a way to the Windows driver."""
    machine = context.snapshot
    said = events(context, "wsl-driver")
    nodes = machine.devices
    no_bridge = nodes is not None and not any(node.path == "/dev/dxg" for node in nodes)
    silent = machine.driver.library_found is False or machine.driver.nvml_code
    blind = silent or no_bridge or _text_without_driver(context)
    unreached = machine.os.wsl and blind and not driver_answers(context)
    if (said or unreached) and not context.other_host:
        here = shown(context, "os.wsl", f"WSL, kernel {machine.os.kernel or 'unknown'}")
        yield finding(context, WSL_DRIVER, (*said, *events(context, *NO_DRIVER_IN_WSL), here))


NO_DRIVER_IN_WSL = ("no-nvidia-driver", "driver-not-loaded", "smi-not-found", "cuda-unavailable")


def _text_without_driver(context: RuleContext) -> bool:
    """A text in which a CUDA build of torch finds nothing."""
    torch = is_cuda_build(context.snapshot.torch) and asked_for_cuda(context)
    messages = events(context, *NO_DRIVER_IN_WSL[:2]) or says_only_no_smi(context)
    return is_report(context) and bool(messages or torch)


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
    message=Message(
        title="A Linux driver library is installed inside WSL: {path}",
        detail=f"WSL's own is in {WSL_LIBRARIES}; another one cannot talk to Windows.",
        text="Remove the Linux driver's packages from WSL, then start WSL again",
        way=lambda context, text: Fix(
            text=text,
            commands=(*_removal(context), *lines("wsl.exe --shutdown")),
            needs_root=True,
        ),
    ),
)


def wsl_linux_driver(context: RuleContext) -> Iterator[Finding]:
    """A Linux driver library inside WSL stands before Windows' own."""
    path = context.snapshot.driver.libcuda_path or ""
    if context.snapshot.os.wsl and path.startswith("/") and WSL_LIBRARIES not in path:
        works = None if context.snapshot.cuda_api.init_code else Severity.WARNING
        about = "driver.libcuda_path"
        yield seen(context, WSL_LINUX_DRIVER, about, path, severity=works, path=path)


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


def driver_of_windows(context: RuleContext, floor: str | None, first: str = "") -> Fix:
    """What mends in WSL what a driver's modules, its nodes or a restart mend on Linux."""
    return Fix(
        text=f"{first}Install or update the NVIDIA driver in Windows (from {DRIVER_SITE}), update "
        "WSL, and start it again (open programs in it end); install no Linux driver inside WSL",
        commands=lines("wsl.exe --update", "wsl.exe --shutdown"),
        # On this machine `wsl_linux_driver` sees such a driver; a text may not show it.
        alternatives=paste.other(
            "if a Linux driver is installed inside WSL, remove it: it hides the driver of Windows",
            *_removal(context),
        )
        if is_report(context)
        else (),
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
