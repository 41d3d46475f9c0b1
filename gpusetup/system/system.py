"""The door to the machine: everything that a reader learns, it learns through a `System`.

`System` asks this machine; `tape.py` keeps what was asked and answered, and plays it again.
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
    mode: str
    """As `ls -l` shows it: `crw-rw-rw-`."""
    readable: bool
    writable: bool


class Space(Frozen):
    total_bytes: int
    free_bytes: int


class System:
    """This machine; `environment` is what its children get in place of ours.

    Files raise OSError; children never do (see `Output.problem`).
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        named = {"win32": "windows", "darwin": "macos"}
        self.family: Family = named.get(sys.platform, "linux")  # type: ignore[assignment]
        self._environment = environment
        self._facts = cache(_facts)

    def facts(self) -> Mapping[str, Any]:
        """What Python itself knows: `machine`, `release`, `python`, `prefix`, …"""
        return self._facts()

    def read(self, path: str) -> str:
        with open(path, "rb", opener=at_once) as file:
            return (file.read(READ_LIMIT_BYTES) or b"").decode("utf-8", "replace")

    def list(self, path: str) -> tuple[str, ...]:
        return tuple(sorted(os.listdir(path)))

    def stat(self, path: str) -> Stat:
        found = os.stat(path)
        return Stat(
            mode=stat_module.filemode(found.st_mode),
            readable=os.access(path, os.R_OK),
            writable=os.access(path, os.W_OK),
        )

    def link(self, path: str) -> str:
        """Where a symbolic link points (one step)."""
        return os.readlink(path)

    def space(self, path: str) -> Space:
        usage = shutil.disk_usage(path)
        return Space(total_bytes=usage.total, free_bytes=usage.free)

    def environ(self) -> Mapping[str, str]:
        return dict(os.environ if self._environment is None else self._environment)

    def which(self, name: str) -> str | None:
        return shutil.which(name)

    def run(self, argv: Sequence[str], timeout: float) -> Output:
        return run(argv, timeout=timeout, environment=self._environment)

    def ask(self, script: str, python: str | None = None, timeout: float = 10) -> Mapping[str, Any]:
        """Run a file of `child_scripts/` in a child and return its JSON answer.

        `python` None is our own interpreter. What goes wrong comes back as `{"problem": …}`.
        """
        isolated = () if python else ("-I", "-S") if script != "read_nvml" else ("-I",)
        before = (HOLD_BACK,) if script in DRIVER_SCRIPTS else ()
        file = str(CHILD_SCRIPTS / f"{script}.py")
        argv = (python or sys.executable, *isolated, *before, file)
        return answer_of(run(argv, timeout=timeout, environment=self._environment))


def unless_refused(question: Callable[[str], T], path: str) -> T | None:
    """What a question about a path is answered; None if the path cannot be reached."""
    try:
        return question(path)
    except OSError:
        return None


def exists(system: System, path: str) -> bool:
    """Whether a path is there (a broken link or a forbidden folder is not)."""
    return unless_refused(system.stat, path) is not None


def read_or_none(system: System, path: str) -> str | None:
    """A file's text, or None if it cannot be read."""
    return unless_refused(system.read, path)


def list_or_empty(system: System, path: str) -> tuple[str, ...]:
    """A folder's names, sorted; () if it cannot be listed."""
    return unless_refused(system.list, path) or ()


def is_writable(system: System, path: str | None) -> bool | None:
    """Whether we may write there; None if it is not there."""
    found = unless_refused(system.stat, path) if path else None
    return found.writable if found else None


def answer_of(output: Output) -> dict[str, Any]:
    """The last line that a child script printed, or why it has none, and how far it came.

    The lines before it say each `step` before it is tried, and each `part` of the answer.

    >>> answer_of(Output(argv=(), exit=-11, stdout='{"step": "cuInit"}'))
    {'problem': 'crashed with SIGSEGV', 'step': {'step': 'cuInit'}}
    """
    import json

    lines: list[dict[str, Any]] = []
    for line in output.stdout.splitlines():  # a library may print between them
        with suppress(ValueError):
            if line.startswith("{"):
                lines.append(json.loads(line))
    if lines and not lines[-1].keys() & {"step", "part"}:
        return lines[-1]
    ended = "ended without an answer"
    if output.exit:
        last = output.stderr.strip().rpartition("\n")[2][:200]
        ended = how_it_ended(output.exit) + (f": {last}" if output.exit > 0 else "")
    progress = {
        "problem": output.problem or ended,
        "step": next((line for line in reversed(lines) if "step" in line), None),
        "parts": [line["part"] for line in lines if isinstance(line.get("part"), dict)],
    }
    return {key: value for key, value in progress.items() if value}


def _facts() -> dict[str, Any]:
    """Facts of this interpreter (as `child_scripts/read_python.py` gives) and of its system;
    None if the system does not say."""
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
    try:
        return question()
    except (AttributeError, ImportError, ValueError, OSError):
        return None


def _memlock() -> int | None:
    """What a process may pin, in bytes; None if there is no limit."""
    import resource

    soft = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    return None if soft == resource.RLIM_INFINITY else soft


def _memory_total() -> int | None:
    """The physical memory in bytes, if no /proc/meminfo tells it."""
    if sys.platform == "linux":
        return None
    import psutil

    return psutil.virtual_memory().total
