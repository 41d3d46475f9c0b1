"""uv's name for the platform of a machine."""

from __future__ import annotations

import re

from gpusetup.model.machine import Snapshot

GLIBCS = (40, 39, 38, 37, 36, 35, 34, 33, 32, 31, 28, 17)
"""The minor versions of glibc for which uv has a platform name."""
USUAL_GLIBC, USUAL_MACOS, USUAL_PYTHON = "2.35", "15.0", "3.12"
"""The versions that are assumed if the machine's are unknown."""


def platform_of(machine: Snapshot) -> tuple[str, dict[str, str]]:
    """uv's name for the platform, such as `x86_64-manylinux_2_35`, and the environment variables
    that complete it."""
    processor = machine.os.machine or "x86_64"
    if machine.os.family == "windows":
        return f"{processor}-pc-windows-msvc", {}
    if machine.os.family == "macos":
        release = re.match(r"\d+(\.\d+)?", machine.os.version or "")
        target = release[0] if release else USUAL_MACOS
        # uv's platform name for macOS has no version, so the version is in the variable that
        # compilers use.
        return f"{processor}-apple-darwin", {"MACOSX_DEPLOYMENT_TARGET": target}
    library = re.fullmatch(r"glibc (\d{1,3}\.\d{1,3})", machine.os.libc or "")
    version = library[1] if library else USUAL_GLIBC
    minor = int(version.partition(".")[2])
    # The newest version that uv has a name for and that the machine's glibc still satisfies.
    satisfied = [known_minor for known_minor in GLIBCS if known_minor <= minor]
    nearest = satisfied[0] if satisfied else GLIBCS[-1]
    return f"{processor}-manylinux_2_{nearest}", {}
