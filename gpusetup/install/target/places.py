"""What stands in the way, or has to be said, before anybody is asked and anything is fetched."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from gpusetup.errors import Blocked
from gpusetup.install.target.layout import Layout
from gpusetup.model.shell import own_line

if TYPE_CHECKING:
    from gpusetup.install.target.find import Target


def check_places(target: Target) -> None:
    """`Blocked` where a folder that will be made cannot be: told before anybody is asked."""
    if target.venv is not None and (problem := unwritable(target.venv)):
        hint = "nothing was changed; name another folder: `--venv DIR`"
        raise Blocked(f"{target.venv} cannot be made or written: {problem}", hint=hint)


def unwritable(folder: str) -> str | None:
    """What keeps us from writing to a folder that may not be there yet; None where nothing does."""
    there = Path(folder)
    while not os.path.lexists(there):
        there = there.parent
    if not there.is_dir():
        return f"{there} is no folder"
    return None if os.access(there, os.W_OK | os.X_OK) else f"{there} is not writable for this user"


def check_importable(layout: Layout, family: Iterable[str]) -> None:
    """`Blocked` where what is installed would never be imported: another one comes first."""
    for folder in layout.ahead:
        found = [name for name in family if Path(folder, name, "__init__.py").is_file()]
        if found:
            python = own_line(layout.python, "-m", "pip", "uninstall", *found)
            raise Blocked(
                f"{folder} holds a {found[0]} that {layout.python} imports before any of "
                f"{layout.prefix}: Python would not find the new packages",
                hint=f"nothing was changed; remove that folder from PYTHONPATH, or if it is your "
                f"own site-packages: `{python}`, or set PYTHONNOUSERSITE=1, then run this again",
            )
