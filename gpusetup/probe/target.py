"""Chooses the interpreter whose environment is examined, and records why.

The order is `--python`, `VIRTUAL_ENV`, `CONDA_PREFIX`, `./.venv`, and last the interpreter that
runs gpusetup, unless it is in a tool environment (pipx, `uv tool`).
"""

from __future__ import annotations

import ntpath
import posixpath
import re
from collections.abc import Mapping
from typing import Any

from gpusetup.errors import BadInput, Blocked
from gpusetup.model.frozen import Frozen
from gpusetup.model.machine import Python
from gpusetup.readings.paths import base_name, join, parent, separator
from gpusetup.system.system import (
    Family,
    System,
    exists,
    list_or_empty,
    read_or_none,
    unless_refused,
)

ASK_SECONDS = 10.0
"""The time limit in seconds. An interpreter answers within a tenth of a second, but may take longer
on a slow network disk."""
CHOICES = (
    "name one with `--python PATH`, activate an environment, "
    "or make one here: `uv venv` (or `python -m venv .venv`)"
)


class TargetPython(Frozen):
    """The interpreter whose environment is read and changed."""

    python: str
    """The path of the interpreter."""
    prefix: str
    record: Python
    """What a snapshot has about it."""
    import_path: tuple[str, ...] = ()
    """The folders from which the interpreter imports, in order, without the script's own folder."""
    problem: str | None = None
    """The reason why the interpreter itself did not answer; None if it did."""


def choose_target(system: System, named: str | None = None) -> TargetPython:
    """Choose the interpreter, in the order above. `named` is the value of `--python`.

    Raises `BadInput` if `named` is not an interpreter, and `Blocked` if there is no target.
    """
    environ, facts = system.environ(), system.facts()
    cwd = facts.get("cwd") or ""
    if named:
        # A relative path starts at the working folder.
        path = (ntpath if system.family == "windows" else posixpath).join(cwd, named)
        interpreter = _interpreter_named(system, named, path)
        return _target_of_interpreter(system, interpreter, "--python", path)
    environments = {name: environ.get(name) for name in ("VIRTUAL_ENV", "CONDA_PREFIX")}
    if cwd:
        environments[".venv"] = join(cwd, ".venv")
    for chosen_by, prefix in environments.items():
        if prefix and (inside := python_in(system, prefix)):
            return _target_of_interpreter(system, inside, chosen_by, prefix)
    our_python = str(facts.get("executable") or "")
    if not our_python:
        raise Blocked("There is no Python environment to look at.", hint=CHOICES)
    target = _target_from_facts(system, our_python, "self", facts)
    if target.record.manager in ("pipx", "uv tool"):
        raise Blocked(
            f"There is no target environment: gpusetup itself runs in a tool environment "
            f"({target.record.manager}, {target.prefix}), which nothing should be installed into.",
            hint=CHOICES,
        )
    return target


def _interpreter_named(system: System, named: str, path: str) -> str:
    """The interpreter that `--python` names: a file, the folder of an environment, or a command.

    `path` is the same text as an absolute path.
    """
    if inside := python_in(system, path):
        return inside
    try:
        mode = system.stat(path).mode
    except PermissionError as problem:
        raise Blocked(f"{path} cannot be reached: permission denied") from problem
    except OSError:
        mode = None
    # An existing file counts as an interpreter; running it shows whether it is one.
    if mode and not mode.startswith("d"):  # a folder's mode begins with `d`
        return path
    # A name without a path separator may be a command on PATH, such as `python3.12`.
    command = None if re.search(r"[/\\]", named) else system.which(named)
    if command:
        return command
    usual = INTERPRETERS[system.family][0]
    problem_text = "is not a Python interpreter or environment" if mode else "is not there"
    raise BadInput(
        f"`--python {named}` {problem_text}.",
        hint=f"name an interpreter (`.venv{separator(usual)}{usual}`) or the folder of an "
        "environment",
    )


def python_in(system: System, prefix: str) -> str | None:
    """The interpreter in an environment's folder; None if there is none."""
    folder = prefix.replace("/", "\\") if system.family == "windows" else prefix
    paths = (join(folder, file) for file in INTERPRETERS[system.family])
    return next((path for path in paths if exists(system, path)), None)


INTERPRETERS: dict[Family, tuple[str, ...]] = {
    "linux": ("bin/python", "bin/python3"),
    "macos": ("bin/python", "bin/python3"),
    "windows": ("Scripts\\python.exe", "python.exe"),
}
"""The interpreter's place in an environment; on Windows, the second one is conda's."""


def _target_of_interpreter(
    system: System, python: str, chosen_by: str, chosen_path: str
) -> TargetPython:
    """The target for an interpreter. `chosen_path` is what the user chose: the environment's
    folder, or the interpreter. Raises BadInput if the environment is broken."""
    # The facts of the interpreter that runs gpusetup are known already.
    if python == system.facts().get("executable"):
        return _target_from_facts(system, python, chosen_by, system.facts())
    facts = ask_python(system, python, timeout=ASK_SECONDS)
    if "problem" in facts:
        facts = {**_facts_from_files(system, python), "problem": facts["problem"]}
    target = _target_from_facts(system, python, chosen_by, facts)
    _refuse_broken_environment(system, target, is_folder=python != chosen_path)
    return target


def _facts_from_files(system: System, python: str) -> dict[str, Any]:
    """The facts about an interpreter that cannot run: its environment's files show them."""
    prefix = prefix_of(python)
    settings = parse_pyvenv(read_or_none(system, join(prefix, "pyvenv.cfg")) or "")
    # virtualenv and uv write `version_info` (virtualenv: `3.11.9.final.0`), venv `version`.
    version = settings.get("version_info") or settings.get("version") or ""
    return {
        "prefix": prefix,
        "python": ".".join(version.split(".")[:3]) or None,
        "site_packages": site_packages(system, prefix, base_name(python)),
    }


def ask_python(system: System, python: str, *, timeout: float) -> Mapping[str, Any]:
    """The facts that an interpreter reports about itself (`child_scripts/read_python.py`), or the
    `problem` if it does not.

    A wrapper called `python` may print anything.
    """
    answer = system.ask("read_python", python=python, timeout=timeout)
    folders = answer.get("path", [])
    is_from_python = (
        all(isinstance(answer.get(key), str) for key in ("python", "prefix"))
        and isinstance(folders, list)
        and all(isinstance(path, str) for path in folders)
        # No path of a system holds a null character.
        and not any("\0" in text for text in answer.values() if isinstance(text, str))
    )
    if "problem" in answer or is_from_python:
        return answer
    return {"problem": "its answer is not that of a Python"}


def _refuse_broken_environment(system: System, target: TargetPython, *, is_folder: bool) -> None:
    """Raise BadInput for an environment whose interpreter would install packages into another
    environment.

    That happens if its `pyvenv.cfg` is lost: an install would then change the base Python.
    """
    folder = prefix_of(target.python)
    marker_files = {"pyvenv.cfg", "conda-meta"} & set(list_or_empty(system, folder))
    # An interpreter that does not run cannot install anything either.
    if target.problem or marker_files:
        return
    site = site_packages(system, folder)
    # `/` has no name: /bin may be a link to /usr/bin, and is no environment.
    has_packages = bool(site and base_name(folder) and exists(system, site))
    # With `--python PATH`, an interpreter without a folder for packages is no environment's.
    if not (is_folder or has_packages):
        return
    # On Windows, upper and lower case in a path do not matter.
    comparable = str.lower if system.family == "windows" else str
    installs_into = (target.prefix, target.record.site_packages or "", *target.import_path)
    own_folders = {comparable(folder), comparable(site or folder)}
    if own_folders.isdisjoint(map(comparable, installs_into)):
        raise BadInput(
            f"{folder} is not an environment any more: it has no pyvenv.cfg, so its interpreter "
            f"would install into {target.prefix}",
            hint="recreate it with `uv venv --clear`, or name another environment with `--python`",
        )


def _target_from_facts(
    system: System, python: str, chosen_by: str, facts: Mapping[str, Any]
) -> TargetPython:
    """The target with the facts that its interpreter reported, or that its files show."""
    prefix = str(facts.get("prefix") or parent(parent(python)))
    import_path, site = facts.get("path"), facts.get("site_packages")
    site_status = unless_refused(system.stat, site) if site else None
    # If the interpreter does not run, its files show only where packages are installed, so use that
    # folder as the import path.
    if not import_path and site:
        import_path = [site]
    record = Python(
        executable=python,
        prefix=prefix,
        chosen_by=chosen_by,
        manager=manager_of(system, prefix),
        version=facts.get("python"),
        externally_managed=bool(facts.get("externally_managed")),
        site_packages=site,
        site_writable=site_status.writable if site_status else None,
        **{name: facts.get(name) for name in ("bits", "free_threaded", "has_pip")},
    )
    return TargetPython(
        python=python,
        prefix=prefix,
        record=record,
        import_path=tuple(import_path or ()),
        problem=facts.get("problem"),
    )


# --- an environment from its files ---------------------------------------------------------------


def prefix_of(python: str) -> str:
    """The folder of the environment that contains an interpreter."""
    folder = parent(python)
    # On Windows, conda's python.exe is directly in the environment's folder.
    is_below_prefix = base_name(folder).lower() in ("bin", "scripts")
    return parent(folder) if is_below_prefix else folder


PYVENV_SETTING = re.compile(r"(?m)^[ \t]*([\w-]+)[ \t]*=[ \t]*(.*?)[ \t]*$")


def parse_pyvenv(text: str) -> dict[str, str]:
    """The settings in a `pyvenv.cfg`, in lower case.

    >>> parse_pyvenv("home = /usr/bin\\nversion_info = 3.11.9\\nuv = 0.5.1\\n")["uv"]
    '0.5.1'
    """
    return dict(PYVENV_SETTING.findall(text.lower()))


def site_packages(system: System, prefix: str, python: str = "python") -> str | None:
    """The folder for packages in an environment; None if there is none, or several and it is not
    clear which. `python` is the interpreter's name: `python3.11` shows which folder is meant,
    `python3` does not."""
    if system.family == "windows":
        return join(prefix, "Lib", "site-packages")
    names = list_or_empty(system, join(prefix, "lib"))
    pythons = [name for name in names if re.fullmatch(r"python3\.\d+t?", name)]
    if python not in pythons and len(pythons) == 1:
        python = pythons[0]
    return join(prefix, "lib", python, "site-packages") if python in pythons else None


UV_CACHE = re.compile(r"[/\\]uv[/\\](cache[/\\])?archive-v\d")
"""The folder of an environment that `uvx` created in uv's cache."""


def manager_of(system: System, prefix: str) -> str:
    """The program that created an environment, judging by its marker files."""
    names = set(list_or_empty(system, prefix))
    if "uv-receipt.toml" in names or UV_CACHE.search(prefix):
        return "uv tool"
    for marker, manager in (("pipx_metadata.json", "pipx"), ("conda-meta", "conda")):
        if marker in names:
            return manager
    if "pyvenv.cfg" not in names:
        return "system"
    # uv and virtualenv write their name into the file, venv does not.
    settings = parse_pyvenv(read_or_none(system, join(prefix, "pyvenv.cfg")) or "")
    return next((maker for maker in ("uv", "virtualenv") if maker in settings), "venv")
