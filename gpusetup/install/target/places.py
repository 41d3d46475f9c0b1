"""What stands in the way, or has to be said, before anybody is asked and anything is fetched."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from gpusetup.errors import Blocked
from gpusetup.install.fetching.wheel_cache import cache_problem
from gpusetup.install.settings.environment import uv_cache
from gpusetup.install.target.layout import Layout
from gpusetup.model.shell import own_line

if TYPE_CHECKING:
    from gpusetup.install.job import Job
    from gpusetup.install.target.find import Target


def check_places(job: Job, target: Target) -> None:
    """`Blocked` where a folder that will be written cannot be: told before anybody is asked."""
    cache = "nothing was changed; set XDG_CACHE_HOME to a folder that can be written"
    places = []
    if target.venv is not None:
        named = "--download" if target.venv == str(job.cache) else "--venv"
        places.append((target.venv, f"nothing was changed; name another folder: `{named} DIR`"))
    if job.owns_cache:
        places.append((str(job.cache), cache))
    places.append((uv_cache(job.environ), f"{cache}, or UV_CACHE_DIR"))
    for folder, hint in places:
        if problem := unwritable(folder):
            raise Blocked(f"{folder} cannot be made or written: {problem}", hint=hint)
    if job.owns_cache and (problem := cache_problem(job.cache)):
        hint = "nothing was changed; set GPUSETUP_CACHE to a folder of your own"
        raise Blocked(f"The cache cannot be used: {problem}", hint=hint)


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
                f"{layout.prefix}: what is installed there would not be seen",
                hint=f"nothing was changed; take that folder out of PYTHONPATH, or if it is your "
                f"own site-packages: `{python}`, or set PYTHONNOUSERSITE=1, then run this again",
            )
