"""uv's name of the machine that a question is about."""

from __future__ import annotations

import re

from gpusetup.model.machine import Snapshot

GLIBCS = (40, 39, 38, 37, 36, 35, 34, 33, 32, 31, 28, 17)
"""The minors of glibc that uv has a platform for."""
USUAL_GLIBC, USUAL_MACOS, USUAL_PYTHON = "2.35", "15.0", "3.12"
"""What is taken if the machine's is not known."""


def platform_of(machine: Snapshot) -> tuple[str, dict[str, str]]:
    """uv's name of a platform, `x86_64-manylinux_2_35`, and what else tells it the system."""
    family, own = machine.os.family or "linux", machine.os.machine or "x86_64"
    if family == "windows":
        return f"{own}-pc-windows-msvc", {}
    if family == "macos":
        found = re.match(r"\d+(\.\d+)?", machine.os.version or "")
        target = found[0] if found else USUAL_MACOS
        return f"{own}-apple-darwin", {"MACOSX_DEPLOYMENT_TARGET": target}
    named = re.fullmatch(r"glibc (\d+\.\d+)", machine.os.libc or "")
    minor = int((named[1] if named else USUAL_GLIBC).partition(".")[2])
    return f"{own}-manylinux_2_{next((one for one in GLIBCS if one <= minor), GLIBCS[-1])}", {}
