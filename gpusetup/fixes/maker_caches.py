"""Fixes for the caches that a maker's libraries keep on the disk.

Source: MIOpen's documentation, "Using the find and performance databases" (MIOPEN_USER_DB_PATH) and
"Kernel cache" (MIOPEN_CUSTOM_CACHE_DIR).
"""

from __future__ import annotations

from gpusetup.evidence.context import RuleContext, in_container, on
from gpusetup.fixes import paste
from gpusetup.model.finding import Fix
from gpusetup.model.shell import lines

ON_LOCAL_DISK = lines(
    'export MIOPEN_USER_DB_PATH="/tmp/miopen-$(id -un)"',
    'export MIOPEN_CUSTOM_CACHE_DIR="$MIOPEN_USER_DB_PATH/cache"',
    'install -d -m 700 "$MIOPEN_USER_DB_PATH" "$MIOPEN_CUSTOM_CACHE_DIR"',
)
"""A folder for each user, because a node's /tmp is shared. `install` fails if somebody else owns
the folder, so that no stranger's compiled kernels are loaded."""
DATABASES = lines(
    "df -T ~/.config/miopen ~/.cache/miopen", "ls -ld ~/.config/miopen ~/.cache/miopen"
)


def miopen_on_local_disk(context: RuleContext, _text: str) -> Fix:
    """Let MIOpen keep its databases on a disk of the machine itself."""
    where = (
        "a disk of the container, not on a mounted folder"
        if in_container(context)
        else "a disk of this machine, such as a job's own /tmp"
    )
    return Fix(
        text="Set MIOPEN_USER_DB_PATH and MIOPEN_CUSTOM_CACHE_DIR to a folder that you may "
        f"write on {where}, in the shell or job script that starts the program. With "
        "several processes, use a folder for each. You do not need another torch or ROCm",
        commands=() if on(context, "windows") else ON_LOCAL_DISK,
        looks=()
        if on(context, "windows")
        else paste.look("see the disk and the owner of the old databases", *DATABASES),
    )
