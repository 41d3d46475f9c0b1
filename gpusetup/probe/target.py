"""Chooses the target interpreter, and says why that one.

The order: `--python`, `VIRTUAL_ENV`, `CONDA_PREFIX`, `./.venv`, else the interpreter that
gpusetup runs in, unless that is a tool environment (pipx, `uv tool`).
"""

from __future__ import annotations

import ntpath
import posixpath
import re
from collections.abc import Mapping
from typing import Any

from gpusetup.errors import BadInput, Blocked
from gpusetup.model.frozen import Frozen
from gpusetup.readings.paths import base_name, join, parent, separator
from gpusetup.system.system import Family, System, exists, list_or_empty, read_or_none

ASK_SECONDS = 10.0

CHOICES = (
    "name one with `--python PATH`, activate an environment, "
    "or make one here: `uv venv` (or `python -m venv .venv`)"
)


class Target(Frozen):
    """The interpreter whose environment is read and changed."""

    python: str
    """The path of the interpreter."""
    prefix: str
    chosen_by: str
    """`--python`, `VIRTUAL_ENV`, `CONDA_PREFIX`, `.venv` or `self`."""
    manager: str
    """`venv`, `uv`, `virtualenv`, `conda`, `pipx`, `uv tool`, `system`."""
    version: str | None = None
    base_prefix: str | None = None
    bits: int | None = None
    free_threaded: bool | None = None
    stdlib: str | None = None
    site_packages: str | None = None
    """Where packages are installed to (`purelib`)."""
    path: tuple[str, ...] = ()
    """The folders it imports from, in their order, without the script's own."""
    machine: str | None = None
    """The architecture that the interpreter was built for."""
    problem: str | None = None
    """Why the interpreter itself could not be asked, where it could not."""
    own: bool = False
    """Whether it is the interpreter that gpusetup runs in."""


def choose_target(system: System, named: str | None = None) -> Target:
    """The target by the contract's order. `named` is `--python`'s value.

    Raises `BadInput` where the named one is none, `Blocked` where there is no target.
    """
    if named:
        is_folder = python_in(system, _absolute(system, named)) is not None
        return _of_python(system, _named(system, named), "--python", is_folder=is_folder)
    environ = system.environ()
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        prefix = environ.get(variable)
        if prefix and (python := python_in(system, prefix)):
            return _of_python(system, python, variable)
    cwd = system.facts().get("cwd")
    if cwd and (python := python_in(system, join(cwd, ".venv"))):
        return _of_python(system, python, ".venv")
    return _own(system)


def _own(system: System) -> Target:
    facts = system.facts()
    target = _from_facts(system, str(facts.get("executable") or ""), "self", facts, own=True)
    if not target.python:
        raise Blocked("There is no target environment.", hint=CHOICES)
    if target.manager in ("pipx", "uv tool"):
        raise Blocked(
            f"There is no target environment: gpusetup itself runs in a tool environment "
            f"({target.manager}, {target.prefix}), which nothing should be installed into.",
            hint=CHOICES,
        )
    return target


def _named(system: System, named: str) -> str:
    """The interpreter that `--python` means: a file, an environment's folder, or a command."""
    path = _absolute(system, named)
    if inside := python_in(system, path):
        return inside
    if _is_file(system, path):
        return path
    if not re.search(r"[/\\]", named) and (found := system.which(named)):
        return found
    usual = PLACES[system.family][0]
    what = "is no Python interpreter or environment" if exists(system, path) else "is not there"
    raise BadInput(
        f"`--python {named}` {what}.",
        hint=f"name an interpreter (`.venv{separator(usual)}{usual}`) or the folder of an "
        "environment",
    )


def _absolute(system: System, named: str) -> str:
    """A path below the working folder with that folder in front; any other as it is."""
    paths = ntpath if system.family == "windows" else posixpath
    return str(paths.join(system.facts().get("cwd") or "", named))


def python_in(system: System, prefix: str) -> str | None:
    """The interpreter of an environment's folder; None where there is none."""
    folder = prefix.replace("/", "\\") if system.family == "windows" else prefix
    for place in PLACES[system.family]:
        path = join(folder, place)
        if exists(system, path):
            return path
    return None


PLACES: dict[Family, tuple[str, ...]] = {
    "linux": ("bin/python", "bin/python3"),
    "macos": ("bin/python", "bin/python3"),
    "windows": ("Scripts\\python.exe", "python.exe"),
}
"""Where an environment keeps its interpreter."""


def _is_file(system: System, path: str) -> bool:
    """Whether there is a file; `Blocked` where one may not even look."""
    try:
        return not system.stat(path).mode.startswith("d")
    except PermissionError as problem:
        raise Blocked(f"{path} cannot be reached: permission denied") from problem
    except OSError:
        return False


def _of_python(system: System, python: str, chosen_by: str, *, is_folder: bool = True) -> Target:
    """Ask an interpreter; where it cannot run, read its folder."""
    facts = system.facts()
    if is_own(python, facts):
        return _from_facts(system, python, chosen_by, facts, own=True)
    target = _asked(system, python, chosen_by)
    _refuse_what_is_no_environment(system, target, is_folder=is_folder)
    return target


def _refuse_what_is_no_environment(system: System, target: Target, *, is_folder: bool) -> None:
    """`BadInput` where a folder was named, or packages lie beside an interpreter, that installs
    elsewhere: a `pyvenv.cfg` was lost, and what is asked would be done to its base."""
    folder = parent(target.python)
    folder = parent(folder) if base_name(folder) in BIN else folder
    site = _site_packages(system, folder)
    has_packages = bool(site and base_name(folder) and exists(system, site))
    if target.problem or not (is_folder or has_packages):
        return
    if {"pyvenv.cfg", "conda-meta"} & set(list_or_empty(system, folder)):
        return
    if same_path(system, target.prefix, folder) or any(
        same_path(system, site or folder, one) for one in (target.site_packages or "", *target.path)
    ):
        return
    raise BadInput(
        f"{folder} is no environment any more: it has no pyvenv.cfg, so its interpreter would "
        f"install into {target.prefix}",
        hint="make it anew with `uv venv --clear`, or name another by `--python`",
    )


def same_path(system: System, one: str, other: str) -> bool:
    """Whether two paths are written alike, or differ only in case on Windows."""
    return one == other or (system.family == "windows" and one.lower() == other.lower())


def _asked(system: System, python: str, chosen_by: str) -> Target:
    answer = system.ask("read_python", python=python, timeout=ASK_SECONDS)
    if "problem" in answer:
        read = from_folder(system, python)
        return _from_facts(system, python, chosen_by, {**read, "problem": answer["problem"]})
    return _from_facts(system, python, chosen_by, answer)


def is_own(python: str, facts: Mapping[str, Any]) -> bool:
    """Whether a path is the interpreter that we run in, or another name of it in its folder."""
    own = str(facts.get("executable") or "")
    if python == own:
        return True
    in_environment = facts.get("prefix") != facts.get("base_prefix")
    return bool(own) and in_environment and parent(python) == parent(own)


def _from_facts(
    system: System, python: str, chosen_by: str, facts: Mapping[str, Any], *, own: bool = False
) -> Target:
    prefix = str(facts.get("prefix") or parent(parent(python)))
    return Target(
        python=python,
        prefix=prefix,
        chosen_by=chosen_by,
        manager=manager_of(system, prefix),
        version=facts.get("python"),
        base_prefix=facts.get("base_prefix"),
        bits=facts.get("bits"),
        free_threaded=facts.get("free_threaded"),
        stdlib=facts.get("stdlib"),
        site_packages=facts.get("site_packages"),
        path=import_folders(facts),
        machine=facts.get("machine"),
        problem=facts.get("problem"),
        own=own,
    )


def import_folders(facts: Mapping[str, Any]) -> tuple[str, ...]:
    """The search path without the standard library, zips and our own script's folder."""
    stdlib = str(facts.get("stdlib") or "")
    site_packages = str(facts.get("site_packages") or "")
    skipped = {stdlib, join(stdlib, "lib-dynload"), facts.get("cwd"), parent(_executable(facts))}
    found = [
        entry
        for entry in facts.get("path") or ()
        if entry not in skipped and not entry.endswith(".zip")
    ]
    if site_packages and site_packages not in found:
        found.append(site_packages)
    return tuple(dict.fromkeys(found))


def _executable(facts: Mapping[str, Any]) -> str:
    return str(facts.get("executable") or "")


# --- an environment from its files ---------------------------------------------------------------


def from_folder(system: System, python: str) -> dict[str, Any]:
    """What an environment's files tell of its interpreter, without running it."""
    prefix = parent(parent(python)) if base_name(parent(python)) in BIN else parent(python)
    settings = parse_pyvenv(read_or_none(system, join(prefix, "pyvenv.cfg")) or "")
    version = settings.get("version_info") or settings.get("version") or _conda(system, prefix)
    site_packages = _site_packages(system, prefix)
    return {
        "prefix": prefix,
        "base_prefix": parent(settings["home"]) if "home" in settings else prefix,
        "python": _three(version) if version else None,
        "site_packages": site_packages,
        "path": [site_packages] if site_packages else [],
    }


BIN = ("bin", "Scripts")


def parse_pyvenv(text: str) -> dict[str, str]:
    """The settings of a `pyvenv.cfg`.

    >>> parse_pyvenv("home = /usr/bin\\nversion_info = 3.11.9\\nuv = 0.5.1\\n")["uv"]
    '0.5.1'
    """
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {key.strip().lower(): value.strip() for key, _, value in pairs}


def _three(version: str) -> str:
    """`3.11.9.final.0` (as virtualenv writes it) as `3.11.9`."""
    return ".".join(version.split(".")[:3])


def _conda(system: System, prefix: str) -> str | None:
    for name in list_or_empty(system, join(prefix, "conda-meta")):
        if match := re.fullmatch(r"python-(\d[^-]*)-[^-]+\.json", name):
            return match[1]
    return None


def _site_packages(system: System, prefix: str) -> str | None:
    if system.family == "windows":
        return join(prefix, "Lib", "site-packages")
    for name in list_or_empty(system, join(prefix, "lib")):
        if re.fullmatch(r"python3\.\d+t?", name):
            return join(prefix, "lib", name, "site-packages")
    return None


def manager_of(system: System, prefix: str) -> str:
    """Who made an environment, from its marker files."""
    names = set(list_or_empty(system, prefix))
    if "uv-receipt.toml" in names or re.search(r"[/\\]uv[/\\](cache[/\\])?archive-v\d", prefix):
        return "uv tool"
    if "pipx_metadata.json" in names:
        return "pipx"
    if "conda-meta" in names:
        return "conda"
    if "pyvenv.cfg" not in names:
        return "system"
    settings = parse_pyvenv(read_or_none(system, join(prefix, "pyvenv.cfg")) or "")
    return next((maker for maker in ("uv", "virtualenv") if maker in settings), "venv")
