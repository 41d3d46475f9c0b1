"""The access to the machine: all readers get their information through a `System`.

`System` reads this machine. In tests, a recording of another machine replaces it.
"""

from __future__ import annotations

import os
import shutil
import stat as stat_module
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar

from gpusetup.model.frozen import Frozen
from gpusetup.named_file import at_once
from gpusetup.system.processes import Output, how_it_ended, run

T = TypeVar("T")
Family = Literal["linux", "windows", "macos"]
CHILD_SCRIPTS = Path(__file__).resolve().parent.parent / "child_scripts"
HOLD_BACK = str(CHILD_SCRIPTS / "hold_back.py")
DRIVER_SCRIPTS = ("read_nvml", "read_cuda")
"""The scripts that load the driver's libraries. The libraries could change the machine, so these
scripts run through `hold_back.py`."""
READ_LIMIT_BYTES = 4 << 20


class Stat(Frozen):
    """The permissions of a file or folder."""

    mode: str
    """The mode as `ls -l` shows it: `crw-rw-rw-`."""
    readable: bool
    writable: bool


class Space(Frozen):
    """The size and the free space of a disk."""

    total_bytes: int
    free_bytes: int


class System:
    """This machine. Children get `environment` instead of our own variables.

    The methods for files raise OSError; children never make a method raise (see `Output.problem`).
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        families = {"win32": "windows", "darwin": "macos"}
        self.family: Family = families.get(sys.platform, "linux")  # type: ignore[assignment]
        self._environment = environment
        self._facts = cache(_facts)

    def facts(self) -> Mapping[str, Any]:
        """Facts that Python itself knows: `machine`, `release`, `python`, `prefix`, …"""
        return self._facts()

    def read(self, path: str) -> str:
        """The text of a file, or the beginning of a long one."""
        with open(path, "rb", opener=at_once) as file:
            # Reading a device without data returns None instead of bytes.
            raw = file.read(READ_LIMIT_BYTES) or b""
        return raw.decode("utf-8", "replace")

    def list(self, path: str) -> tuple[str, ...]:
        """The names in a folder, sorted."""
        return tuple(sorted(os.listdir(path)))

    def stat(self, path: str) -> Stat:
        status = os.stat(path)
        return Stat(
            mode=stat_module.filemode(status.st_mode),
            readable=os.access(path, os.R_OK),
            writable=os.access(path, os.W_OK),
        )

    def link(self, path: str) -> str:
        """The target of a symbolic link (one step)."""
        return os.readlink(path)

    def space(self, path: str) -> Space:
        usage = shutil.disk_usage(path)
        return Space(total_bytes=usage.total, free_bytes=usage.free)

    def environ(self) -> Mapping[str, str]:
        """The environment variables that children get."""
        if self._environment is None:
            return dict(os.environ)
        return dict(self._environment)

    def which(self, name: str) -> str | None:
        """The path of the program with this name; None if it is not on PATH."""
        return shutil.which(name)

    def run(self, argv: Sequence[str], timeout: float) -> Output:
        return run(argv, timeout=timeout, environment=self._environment)

    def ask(self, script: str, python: str | None = None, timeout: float = 10) -> Mapping[str, Any]:
        """Run a script from `child_scripts/` in a child process, and return its JSON answer.

        If `python` is None, our own interpreter runs it. If something goes wrong, the answer is
        `{"problem": …}`.
        """
        words = [python or sys.executable]
        # Start our own interpreter without the user's packages and variables.
        if python is None:
            words.append("-I")
            # Only NVML's binding needs our site-packages; the other scripts need no packages.
            if script != "read_nvml":
                words.append("-S")
        if script in DRIVER_SCRIPTS:
            words.append(HOLD_BACK)
        words.append(str(CHILD_SCRIPTS / f"{script}.py"))
        output = run(words, timeout=timeout, environment=self._environment)
        return answer_of(output)


def unless_refused(question: Callable[[str], T], path: str) -> T | None:
    """The result of `question` for a path; None if the path cannot be accessed."""
    try:
        return question(path)
    except (OSError, ValueError):  # a path that a program printed may hold a null character
        return None


def exists(system: System, path: str) -> bool:
    """Whether a path exists. A broken link and a path in a forbidden folder count as missing."""
    return unless_refused(system.stat, path) is not None


def read_or_none(system: System, path: str) -> str | None:
    """A file's text, or None if it cannot be read."""
    return unless_refused(system.read, path)


def list_or_empty(system: System, path: str) -> tuple[str, ...]:
    """A folder's names, sorted; () if it cannot be listed."""
    return unless_refused(system.list, path) or ()


LONGEST_PROBLEM = 200
"""The most characters of a script's last line on stderr that a problem quotes."""
LAST_LINES = 1000
"""A script prints a step before each thing that it tries, which are fewer, and its answer last."""


def answer_of(output: Output) -> dict[str, Any]:
    """A child script's answer (its last line) or, if there is none, the reason and the last `step`
    that the script announced before trying it.

    >>> answer_of(Output(argv=(), exit=-11, stdout='{"step": "cuInit"}'))
    {'problem': 'crashed with SIGSEGV', 'step': {'step': 'cuInit'}}
    """
    import json  # here, because it is slow to load and a described machine asks no child

    lines: list[dict[str, Any]] = []
    for line in output.stdout.splitlines()[-LAST_LINES:]:
        # A library may print other text between the script's lines, and a program that is only
        # called `python` may print anything.
        with suppress(ValueError, RecursionError):
            if line.startswith("{"):
                lines.append(json.loads(line))
    if lines and "step" not in lines[-1]:
        return lines[-1]

    problem = output.problem or "ended without an answer"
    if output.exit:
        problem = how_it_ended(output.exit)
        # If a signal killed the script, the last line of stderr does not explain why.
        if output.exit > 0:
            last_line = output.stderr.strip().rpartition("\n")[2]
            problem = f"{problem}: {last_line[:LONGEST_PROBLEM]}"
    return {"problem": problem, "step": lines[-1]} if lines else {"problem": problem}


def _facts() -> dict[str, Any]:
    """Facts about this interpreter (those of `child_scripts/read_python.py`) and its system.

    A fact is None or "" if the system does not report it.
    """
    import platform  # here, because a replayed machine needs neither of these modules

    from gpusetup.child_scripts import read_python

    return {
        **read_python.facts(),
        "release": platform.release(),
        "os_version": platform.version(),
        "mac_version": platform.mac_ver()[0] if sys.platform == "darwin" else "",
        "libc": _or_none(lambda: os.confstr("CS_GNU_LIBC_VERSION")) or "",
        "cores": os.cpu_count(),
        "usable_cores": _or_none(lambda: len(os.sched_getaffinity(0))) or os.cpu_count(),
        # On Linux, a reader of /proc/meminfo tells it.
        "memory_total": None if sys.platform == "linux" else _or_none(_memory_total),
        "cwd": _or_none(os.getcwd),
        "home": os.path.expanduser("~"),
        "now": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _or_none(question: Callable[[], T]) -> T | None:
    """The result of `question`; None if this system does not support the call."""
    try:
        return question()
    except (AttributeError, ImportError, ValueError, OSError):
        return None


def _memory_total() -> int:
    import psutil  # slow to load, and not needed on Linux

    return psutil.virtual_memory().total
