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
    environments: dict[str, OtherEnvironment] = {}
    for prefix in islice(_prefixes(system), MOST_ENVIRONMENTS):
        if prefix in environments or prefix == examined:
            continue
        for name in list_or_empty(system, site_packages(system, prefix) or ""):
            # The name of its metadata folder has torch's version.
            version = re.fullmatch(r"torch-(\d[^-]{0,60})\.dist-info", name)
            if version:
                environments[prefix] = OtherEnvironment(prefix=prefix, torch=version[1])
                break
    return tuple(environments.values())


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
    for below_home in OF_HOME:
        folder = join(home, *below_home.split("/"))
        for name in list_or_empty(system, folder):
            yield join(folder, name)
    for command in ("python3", "python"):
        python = system.which(command)
        if python:
            yield prefix_of(python)
