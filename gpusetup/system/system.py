"""The access to the machine: readers learn everything through a `System`.

`System` asks this machine; in tests a tape of another machine answers in its place.
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
"""Scripts that load the driver's libraries, which could change the machine."""
READ_LIMIT_BYTES = 4 << 20


class Stat(Frozen):
    """The permissions of a file or folder."""

    mode: str
    """As `ls -l` shows it: `crw-rw-rw-`."""
    readable: bool
    writable: bool


class Space(Frozen):
    """The free space on a disk."""

    total_bytes: int
    free_bytes: int


class System:
    """This machine; `environment` replaces ours for the children that it starts.

    Files raise OSError; children never do (see `Output.problem`).
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        named = {"win32": "windows", "darwin": "macos"}
        self.family: Family = named.get(sys.platform, "linux")  # type: ignore[assignment]
        self._environment = environment
        self._facts = cache(_facts)

    def facts(self) -> Mapping[str, Any]:
        """Facts that Python itself knows: `machine`, `release`, `python`, `prefix`, …"""
        return self._facts()

    def read(self, path: str) -> str:
        """The text of a file; of a long one only the beginning."""
        with open(path, "rb", opener=at_once) as file:
            # A device that has nothing to give answers None.
            raw = file.read(READ_LIMIT_BYTES) or b""
        return raw.decode("utf-8", "replace")

    def list(self, path: str) -> tuple[str, ...]:
        """The names in a folder, sorted."""
        return tuple(sorted(os.listdir(path)))

    def stat(self, path: str) -> Stat:
        """The permissions of a file or folder."""
        status = os.stat(path)
        return Stat(
            mode=stat_module.filemode(status.st_mode),
            readable=os.access(path, os.R_OK),
            writable=os.access(path, os.W_OK),
        )

    def link(self, path: str) -> str:
        """Where a symbolic link points (one step)."""
        return os.readlink(path)

    def space(self, path: str) -> Space:
        """The free space on the disk of a folder."""
        usage = shutil.disk_usage(path)
        return Space(total_bytes=usage.total, free_bytes=usage.free)

    def environ(self) -> Mapping[str, str]:
        """The environment variables of the children."""
        if self._environment is None:
            return dict(os.environ)
        return dict(self._environment)

    def which(self, name: str) -> str | None:
        """The path of a program that is found by its name."""
        return shutil.which(name)

    def run(self, argv: Sequence[str], timeout: float) -> Output:
        """Run a program to its end, for at most `timeout` seconds."""
        return run(argv, timeout=timeout, environment=self._environment)

    def ask(self, script: str, python: str | None = None, timeout: float = 10) -> Mapping[str, Any]:
        """Run a file of `child_scripts/` in a child process and return its JSON answer.

        `python` None is our own interpreter. What goes wrong comes back as `{"problem": …}`.
        """
        words = [python or sys.executable]
        # Our own interpreter starts without the user's packages and variables.
        if python is None:
            words.append("-I")
            # NVML's binding is in our site-packages, the other scripts need none.
            if script != "read_nvml":
                words.append("-S")
        if script in DRIVER_SCRIPTS:
            words.append(HOLD_BACK)
        words.append(str(CHILD_SCRIPTS / f"{script}.py"))
        output = run(words, timeout=timeout, environment=self._environment)
        return answer_of(output)


def unless_refused(question: Callable[[str], T], path: str) -> T | None:
    """The answer to a question about a path; None if the path cannot be reached."""
    try:
        return question(path)
    except OSError:
        return None


def exists(system: System, path: str) -> bool:
    """Whether a path exists; a broken link, or a path in a forbidden folder, does not."""
    return unless_refused(system.stat, path) is not None


def read_or_none(system: System, path: str) -> str | None:
    """A file's text, or None if it cannot be read."""
    return unless_refused(system.read, path)


def list_or_empty(system: System, path: str) -> tuple[str, ...]:
    """A folder's names, sorted; () if it cannot be listed."""
    return unless_refused(system.list, path) or ()


def is_writable(system: System, path: str | None) -> bool | None:
    """Whether we may write into a file or folder; None if it does not exist."""
    status = unless_refused(system.stat, path) if path else None
    return None if status is None else status.writable


def answer_of(output: Output) -> dict[str, Any]:
    """The last line that a child script printed, or why there is none, and how far it got.

    The lines before it say each `step` before it is tried, and each `part` of the answer.

    >>> answer_of(Output(argv=(), exit=-11, stdout='{"step": "cuInit"}'))
    {'problem': 'crashed with SIGSEGV', 'step': {'step': 'cuInit'}}
    """
    import json

    lines: list[dict[str, Any]] = []
    for line in output.stdout.splitlines():
        # A library may print between the script's lines.
        with suppress(ValueError):
            if line.startswith("{"):
                lines.append(json.loads(line))
    has_answer = bool(lines) and not lines[-1].keys() & {"step", "part"}
    if has_answer:
        return lines[-1]

    answer: dict[str, Any] = {"problem": output.problem or _how_script_ended(output)}
    steps = [line for line in lines if "step" in line]
    if steps:
        answer["step"] = steps[-1]
    parts = [line["part"] for line in lines if isinstance(line.get("part"), dict)]
    if parts:
        answer["parts"] = parts
    return answer


def _how_script_ended(output: Output) -> str:
    """How a script ended that gave no answer, with the last line of its errors."""
    if not output.exit:
        return "ended without an answer"
    how = how_it_ended(output.exit)
    # A program that crashed did not write its last words itself.
    if output.exit < 0:
        return how
    last_line = output.stderr.strip().rpartition("\n")[2]
    return f"{how}: {last_line[:200]}"


def _facts() -> dict[str, Any]:
    """Facts of this interpreter (those of `child_scripts/read_python.py`) and of its system.

    A fact that the system does not tell is None.
    """
    import platform

    from gpusetup.child_scripts import read_python

    return {
        **read_python.facts(),
        "release": platform.release(),
        "os_version": platform.version(),
        "mac_version": platform.mac_ver()[0] if sys.platform == "darwin" else "",
        "libc": _or_none(lambda: os.confstr("CS_GNU_LIBC_VERSION")) or "",
        "cores": os.cpu_count(),
        "usable_cores": _or_none(lambda: len(os.sched_getaffinity(0))) or os.cpu_count(),
        "limits": {"memlock": _or_none(_memlock)},
        "memory_total": _or_none(_memory_total),
        "cwd": _or_none(os.getcwd),
        "home": os.path.expanduser("~"),
        "now": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _or_none(question: Callable[[], T]) -> T | None:
    """The answer to a question that not every system can answer."""
    try:
        return question()
    except (AttributeError, ImportError, ValueError, OSError):
        return None


def _memlock() -> int | None:
    """The memory that a process may pin, in bytes; None if there is no limit."""
    # Windows has no such module.
    import resource

    soft_limit, _hard_limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return None if soft_limit == resource.RLIM_INFINITY else soft_limit


def _memory_total() -> int | None:
    """The physical memory in bytes, if no /proc/meminfo tells it."""
    if sys.platform == "linux":
        return None
    import psutil

    return psutil.virtual_memory().total
