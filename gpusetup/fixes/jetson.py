"""Which torch wheel a Jetson needs for its JetPack."""

from __future__ import annotations

from gpusetup.catalog.jetpack import UNIFIED, board_of, jetpack_of, runs_ordinary_wheels
from gpusetup.evidence.context import RuleContext, gpus
from gpusetup.fixes import paste
from gpusetup.fixes.extension_packages import undeclared_commands
from gpusetup.model.finding import Fix
from gpusetup.model.shell import lines
from gpusetup.model.versions import parsed


def jetson_fix(context: RuleContext) -> Fix:
    """Install torch's own wheel if it supports the board, otherwise NVIDIA's wheel for this
    JetPack."""
    jetpack = jetpack_of(board_of(context.snapshot))
    if jetpack is None:
        return Fix(
            text="Install the torch wheel that NVIDIA publishes for this board's JetPack. The "
            "first line of the command shows the release",
            commands=lines("cat /etc/nv_tegra_release"),
        )
    capabilities = (gpu.compute_capability for gpu in gpus(context))
    if runs_ordinary_wheels(jetpack, filter(None, capabilities)):
        return paste.install_torch(context, f"{jetpack.name} runs torch's own aarch64 wheels. ")
    if jetpack.wheels is None:
        return Fix(
            text=f"{jetpack.name} is for Thor. On Orin, torch's wheels need {UNIFIED.name} or "
            "newer: flash it with SDK Manager",
            needs_root=True,
            needs_reboot=True,
        )
    python = context.snapshot.python.version
    if python is None or parsed(python).release[:2] != parsed(jetpack.python).release:
        new = paste.command(context, "/usr/bin/python3", "-m", "venv", f".venv-{jetpack.python}")
        return Fix(
            text=f"NVIDIA's wheels for {jetpack.name} ({jetpack.wheels}) are for Python "
            f"{jetpack.python}, which is the system's own{f', not {python}' if python else ''}. "
            "Create an environment with it, and run `gpusetup doctor` there",
            commands=(new,),
        )
    from_nvidia = ("--force-reinstall", "--no-deps", "--no-index", "--find-links", jetpack.wheels)
    return Fix(
        text=f"Install NVIDIA's wheel for {jetpack.name}: first the libraries that it needs but "
        "does not declare, then the wheel, then its dependencies. NVIDIA does not publish "
        "torchvision and torchaudio there: build them from source if a program needs them",
        commands=(
            paste.pip(context, "uninstall", "-y", "torchvision", "torchaudio"),
            *undeclared_commands(context, jetpack.links or "", jetpack.cuda),
            paste.pip(context, "install", *from_nvidia, "torch"),
            paste.pip(context, "install", "torch"),
        ),
    )
