"""WSL: the driver of Windows, and one of Linux that stands before it."""

from __future__ import annotations

from gpusetup.causes.layers import NO_INIT
from gpusetup.causes.record import Cause, Message
from gpusetup.evidence.context import RuleContext, is_report
from gpusetup.fixes import packages, paste
from gpusetup.fixes.drivers import DRIVER_SITE
from gpusetup.messages.row import says
from gpusetup.model.finding import Fix
from gpusetup.model.shell import Lines, lines

WSL_LIBRARIES = "/usr/lib/wsl/lib"

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


def _removal(context: RuleContext) -> Lines:
    """What removes a Linux driver; a WSL of which nothing is said is Ubuntu, its default."""
    return REMOVAL.get(packages.distribution(context) or "ubuntu", ())


CAUSES = (
    Cause(
        "wsl-driver",
        title="WSL does not reach the Windows driver",
        means="Windows has no NVIDIA driver, this is WSL 1, or the GPU is not shared with WSL.",
        text="Install the driver in Windows, update WSL (`wsl --update`), and start it again",
        proven_by="WSL shows no GPU, and /dev/dxg or libcuda is missing",
        source='NVIDIA, "CUDA on WSL User Guide"',
        by_check=True,
        way=lambda context, _: driver_of_windows(
            context, context.catalog.driver_floor("12", "windows")
        ),
        cases=(
            Message(
                # WSL 1 names a kernel 4.4.0 with the build of Windows: WSL 2 has no such old one.
                where=(lambda context: (context.os.kernel or "").startswith("4.4.0-"),),
                title="This is WSL 1, which has no GPU",
                text="In PowerShell convert the distribution to WSL 2: `wsl --set-version NAME 2` "
                "(the command lists the names)",
                commands=("wsl.exe --list --verbose",),
            ),
        ),
        says=(
            says("gpu access blocked", why="blocked"),
            says("wsl environment detected but no adapters", why="adapters"),
            says(
                "/usr/lib/wsl/lib/nvidia-smi",
                r"/usr/lib/wsl/lib/nvidia-smi.{0,40}?Segmentation fault|Segmentation fault.{0,40}?/usr/lib/wsl/lib/nvidia-smi",
                why="crash",
            ),
            says("driver version: 0", r"Driver Version: 0(?![\d.])", why="version-zero"),
        ),
        examples=(
            "Failed to initialize NVML: GPU access blocked by the operating system",
            "Driver Version: 0   CUDA Version: N/A",
            "nvidia-container-cli: initialization error: WSL environment detected but no adapters were found: unknown",
            "/usr/lib/wsl/lib/nvidia-smi\nSegmentation fault (core dumped)",
        ),
        not_examples=("alias nvidia-smi=/usr/lib/wsl/lib/nvidia-smi",),
    ),
    Cause(
        "wsl-linux-driver",
        title="A Linux driver library is installed inside WSL: {path}",
        plain="A Linux driver is installed inside WSL",
        means=f"WSL's own is in {WSL_LIBRARIES}; another one cannot talk to Windows.",
        text="Remove the Linux driver's packages from WSL, then start WSL again",
        proven_by="libcuda was loaded from outside /usr/lib/wsl/lib",
        source='NVIDIA, "CUDA on WSL User Guide"',
        kind_of="wsl-driver",
        explains=(*NO_INIT, "wsl-driver", "driver-not-loaded"),
        by_check=True,
        commands=lambda context: (*_removal(context), *lines("wsl.exe --shutdown")),
        needs_root=True,
    ),
)
