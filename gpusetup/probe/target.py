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
from gpusetup.model.machine import Python, Reading, Snapshot
from gpusetup.readings.paths import base_name, join, parent, separator
from gpusetup.system.system import (
    Family,
    System,
    exists,
    is_writable,
    list_or_empty,
    read_or_none,
)

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
    bits: int | None = None
    free_threaded: bool | None = None
    externally_managed: bool | None = None
    """Whether the interpreter forbids installing into it (PEP 668); never so in an environment."""
    has_pip: bool | None = None
    site_packages: str | None = None
    """Where packages are installed to (`purelib`)."""
    path: tuple[str, ...] = ()
    """The folders it imports from, in their order, without the script's own."""
    problem: str | None = None
    """Why the interpreter itself did not answer; None if it did."""


def choose_target(system: System, named: str | None = None) -> Target:
    """The target by the contract's order. `named` is `--python`'s value.

    Raises `BadInput` if the named one is no interpreter, `Blocked` if there is no target.
    """
    environ, facts = system.environ(), system.facts()
    if named:
        path = _absolute(system, named)
        return _target_of_interpreter(
            system, _interpreter_named(system, named, path), "--python", path
        )
    places = {name: environ.get(name) for name in ("VIRTUAL_ENV", "CONDA_PREFIX")}
    places[".venv"] = join(facts["cwd"], ".venv") if facts.get("cwd") else None
    for by, prefix in places.items():
        if prefix and (python := python_in(system, prefix)):
            return _target_of_interpreter(system, python, by, prefix)
    target = _target_from_facts(system, str(facts.get("executable") or ""), "self", facts)
    if not target.python:
        raise Blocked("There is no Python environment to look at.", hint=CHOICES)
    if target.manager in ("pipx", "uv tool"):
        raise Blocked(
            f"There is no target environment: gpusetup itself runs in a tool environment "
            f"({target.manager}, {target.prefix}), which nothing should be installed into.",
            hint=CHOICES,
        )
    return target


def _interpreter_named(system: System, named: str, path: str) -> str:
    """The interpreter that `--python` means: a file, an environment's folder, or a command."""
    if inside := python_in(system, path):
        return inside
    try:
        mode = system.stat(path).mode
    except PermissionError as problem:
        raise Blocked(f"{path} cannot be reached: permission denied") from problem
    except OSError:
        mode = None
    if mode and not mode.startswith("d"):
        return path
    if not re.search(r"[/\\]", named) and (found := system.which(named)):
        return found
    usual = INTERPRETERS[system.family][0]
    what = "is no Python interpreter or environment" if mode else "is not there"
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
    """The interpreter of an environment's folder; None if there is none."""
    folder = prefix.replace("/", "\\") if system.family == "windows" else prefix
    paths = (join(folder, place) for place in INTERPRETERS[system.family])
    return next((path for path in paths if exists(system, path)), None)


INTERPRETERS: dict[Family, tuple[str, ...]] = {
    "linux": ("bin/python", "bin/python3"),
    "macos": ("bin/python", "bin/python3"),
    "windows": ("Scripts\\python.exe", "python.exe"),
}
"""Where an environment keeps its interpreter."""


def _target_of_interpreter(system: System, python: str, chosen_by: str, folder: str) -> Target:
    """Ask an interpreter; if it cannot run, read its folder."""
    facts = system.facts()
    own = str(facts.get("executable") or "")
    in_environment = own and facts.get("prefix") != facts.get("base_prefix")
    if python == own or (in_environment and parent(python) == parent(own)):
        return _target_from_facts(system, python, chosen_by, facts)
    answer = system.ask("read_python", python=python, timeout=ASK_SECONDS)
    if "problem" in answer:
        answer = {**facts_from_files(system, python), "problem": answer["problem"]}
    target = _target_from_facts(system, python, chosen_by, answer)
    _refuse_broken_environment(system, target, is_folder=python != folder)
    return target


def _refuse_broken_environment(system: System, target: Target, *, is_folder: bool) -> None:
    """`BadInput` if a folder was named, or packages lie beside the interpreter, and it installs
    elsewhere: the `pyvenv.cfg` was lost, and an install would change the base Python."""
    folder = prefix_of(target.python)
    site = site_packages(system, folder)
    has_packages = bool(site and base_name(folder) and exists(system, site))
    marked = {"pyvenv.cfg", "conda-meta"} & set(list_or_empty(system, folder))
    if target.problem or marked or not (is_folder or has_packages):
        return
    plain = str.lower if system.family == "windows" else str
    install_folders = {
        plain(path) for path in (target.prefix, target.site_packages or "", *target.path)
    }
    if not install_folders & {plain(folder), plain(site or folder)}:
        raise BadInput(
            f"{folder} is no environment any more: it has no pyvenv.cfg, so its interpreter would "
            f"install into {target.prefix}",
            hint="recreate it with `uv venv --clear`, or name another by `--python`",
        )


def _target_from_facts(
    system: System, python: str, chosen_by: str, facts: Mapping[str, Any]
) -> Target:
    prefix = str(facts.get("prefix") or parent(parent(python)))
    return Target(
        python=python,
        prefix=prefix,
        chosen_by=chosen_by,
        manager=manager_of(system, prefix),
        version=facts.get("python"),
        externally_managed=bool(facts.get("externally_managed")),
        path=tuple(facts.get("path") or filter(None, [facts.get("site_packages")])),
        **{name: facts.get(name) for name in SHARED_FIELDS},
    )


SHARED_FIELDS = ("bits", "free_threaded", "has_pip", "site_packages", "problem")
"""Facts of an interpreter that are fields of a target."""


def read_python(system: System, target: Target | None) -> Snapshot:
    """The target interpreter's own facts."""
    if target is None:
        return Snapshot()
    python = Python(
        executable=target.python,
        site_writable=is_writable(system, target.site_packages),
        **{name: getattr(target, name) for name in PYTHON_FIELDS},
    )
    reading = Reading(
        subject="python", source=target.chosen_by, value=target.version, problem=target.problem
    )
    return Snapshot(python=python, readings=(reading,))


PYTHON_FIELDS = (
    *SHARED_FIELDS[:-1],
    "version",
    "prefix",
    "manager",
    "chosen_by",
    "externally_managed",
)


# --- an environment from its files ---------------------------------------------------------------


def facts_from_files(system: System, python: str) -> dict[str, Any]:
    """What an environment's files tell of its interpreter, without running it."""
    prefix = prefix_of(python)
    settings = parse_pyvenv(read_or_none(system, join(prefix, "pyvenv.cfg")) or "")
    names = "\n".join(list_or_empty(system, join(prefix, "conda-meta")))
    conda = re.search(r"^python-(\d[^-]*)-[^-]+\.json$", names, re.M)
    version = settings.get("version_info") or settings.get("version") or (conda and conda[1])
    return {
        "prefix": prefix,
        "python": ".".join(version.split(".")[:3]) if version else None,
        "site_packages": site_packages(system, prefix, base_name(python)),
    }


def prefix_of(python: str) -> str:
    """The folder of the environment that an interpreter lies in."""
    folder = parent(python)
    return parent(folder) if base_name(folder).lower() in ("bin", "scripts") else folder


def parse_pyvenv(text: str) -> dict[str, str]:
    """The settings of a `pyvenv.cfg`.

    >>> parse_pyvenv("home = /usr/bin\\nversion_info = 3.11.9\\nuv = 0.5.1\\n")["uv"]
    '0.5.1'
    """
    return dict(re.findall(r"(?m)^[ \t]*([\w-]+)[ \t]*=[ \t]*(.*?)[ \t]*$", text.lower()))


def site_packages(system: System, prefix: str, python: str = "python") -> str | None:
    """Where the Python of a folder keeps its packages; `python3` alone does not say which of
    several it is."""
    if system.family == "windows":
        return join(prefix, "Lib", "site-packages")
    names = list_or_empty(system, join(prefix, "lib"))
    found = [name for name in names if re.fullmatch(r"python3\.\d+t?", name)]
    sure = python if python in found else found[0] if len(found) == 1 else None
    return join(prefix, "lib", sure, "site-packages") if sure else None


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
