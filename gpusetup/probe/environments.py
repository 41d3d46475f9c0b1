"""Finds other environments on this machine that have torch, if the examined one has none.

A person's torch fails in one environment, and gpusetup is often started in another: a new one, or
the system's. Nothing is run: the names of folders show which environment has torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from gpusetup.model.documents import OtherEnvironment
from gpusetup.probe.target import prefix_of, site_packages
from gpusetup.readings.paths import join
from gpusetup.system.system import System, list_or_empty, read_or_none

MOST_ENVIRONMENTS = 200
"""A limit on the environments that are looked at, on a machine with thousands of folders."""
OF_HOME = (
    *(".virtualenvs", ".pyenv/versions", ".local/share/uv/tools", ".local/share/pipx/venvs"),
    *(".local/share/mamba/envs", "AppData/Roaming/uv/tools", "AppData/Local/Programs/Python"),
)
"""Folders of environments below the home folder: virtualenvwrapper's, pyenv's, uv's, pipx's and
mamba's usual ones."""


def environments_with_torch(system: System, examined: str | None) -> tuple[OtherEnvironment, ...]:
    """The environments with torch on this machine, without the examined one, likeliest first."""
    found: dict[str, OtherEnvironment] = {}
    for prefix in islice(_prefixes(system), MOST_ENVIRONMENTS):
        if prefix in found or prefix == examined:
            continue
        names = list_or_empty(system, site_packages(system, prefix) or "")
        # The name of its metadata folder has torch's version.
        versions = (re.fullmatch(r"torch-(\d[^-]{0,60})\.dist-info", name) for name in names)
        if version := next(filter(None, versions), None):
            found[prefix] = OtherEnvironment(prefix=prefix, torch=version[1])
    return tuple(found.values())


def _prefixes(system: System) -> Iterator[str]:
    """Yields the folders of environments: the active ones, those in this folder, conda's, those
    that other tools keep in the home folder, and those of the Pythons on PATH."""
    environ = system.environ()
    home = environ.get("HOME") or environ.get("USERPROFILE") or ""
    here = str(system.facts().get("cwd") or ".")
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if environ.get(variable):
            yield environ[variable]
    for name in (".venv", "venv", "env"):
        yield join(here, name)
    # conda lists its environments in this file, wherever they are.
    listed = read_or_none(system, join(home, ".conda", "environments.txt")) or ""
    yield from filter(None, map(str.strip, listed.splitlines()))
    for folder in (join(home, *name.split("/")) for name in OF_HOME):
        for name in list_or_empty(system, folder):
            yield join(folder, name)
    for name in ("python3", "python"):
        python = system.which(name)
        if python:
            yield prefix_of(python)
