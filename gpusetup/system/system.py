"""The door to the machine: everything that a reader learns, it learns through a `System`.

`LiveSystem` asks this machine; `tape.py` keeps what was asked and answered, and plays it again.
"""

from __future__ import annotations

import os
import shutil
import stat as stat_module
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, Protocol

from gpusetup.model.frozen import Frozen, replace
from gpusetup.system.processes import Output, how_it_ended, run

Family = Literal["linux", "windows", "macos"]
INSIDE = Path(__file__).resolve().parent.parent / "child_scripts"
HOLD_BACK = str(INSIDE / "hold_back.py")
ASK_THE_DRIVER = ("read_nvml", "read_cuda", "read_torch", "nvidia-smi", "nvidia-smi.exe")
"""Scripts and programs that load the driver's libraries, which could change the machine."""
READ_LIMIT_BYTES = 4 << 20


class Stat(Frozen):
    mode: str
    """As `ls -l` shows it: `crw-rw-rw-`."""
    size_bytes: int
    readable: bool
    writable: bool
    mtime: float | None = None


class Space(Frozen):
    total_bytes: int
    free_bytes: int


class System(Protocol):
    """What a reader may ask. Files raise OSError; children never do (see `Output.problem`)."""

    @property
    def family(self) -> Family: ...

    def facts(self) -> Mapping[str, Any]:
        """What Python itself knows: `machine`, `release`, `version`, `python`, `prefix`, …"""
        ...

    def read(self, path: str) -> str: ...

    def list(self, path: str) -> tuple[str, ...]: ...

    def stat(self, path: str) -> Stat: ...

    def link(self, path: str) -> str:
        """Where a symbolic link points (one step)."""
        ...

    def space(self, path: str) -> Space: ...

    def environ(self) -> Mapping[str, str]: ...

    def which(self, name: str) -> str | None: ...

    def run(self, argv: Sequence[str], timeout: float) -> Output: ...

    def ask(
        self,
        script: str,
        python: str | None = None,
        arguments: Sequence[str] = (),
        timeout: float = 10,
    ) -> Mapping[str, Any]:
        """Run a file of `child_scripts/` in a child and return its JSON answer.

        `python` None is our own interpreter. What goes wrong comes back as `{"problem": …}`.
        """
        ...


def exists(system: System, path: str) -> bool:
    """Whether a path is there (a broken link or a forbidden folder is not)."""
    try:
        system.stat(path)
    except OSError:
        return False
    return True


def read_or_none(system: System, path: str) -> str | None:
    """A file's text, or None where it cannot be read."""
    try:
        return system.read(path)
    except OSError:
        return None


def list_or_empty(system: System, path: str) -> tuple[str, ...]:
    """A folder's names, sorted; () where it cannot be listed."""
    try:
        return system.list(path)
    except OSError:
        return ()


def is_writable(system: System, path: str | None) -> bool | None:
    """Whether we may write there; None where it is not there."""
    try:
        return system.stat(path).writable if path else None
    except OSError:
        return None


def link_or_none(system: System, path: str) -> str | None:
    """Where a link points; None where it is none."""
    try:
        return system.link(path)
    except OSError:
        return None


def _at_once(path: str, flags: int) -> int:
    """Opens without waiting for whoever should write into a FIFO."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


class LiveSystem:
    """This machine; `environment` is what its children get in place of ours."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._facts: Mapping[str, Any] | None = None
        self._environment = environment

    @property
    def family(self) -> Family:
        return _family(sys.platform)

    def facts(self) -> Mapping[str, Any]:
        if self._facts is None:
            self._facts = _facts()
        return self._facts

    def read(self, path: str) -> str:
        with open(path, "rb", opener=_at_once) as file:
            return (file.read(READ_LIMIT_BYTES) or b"").decode("utf-8", "replace")

    def list(self, path: str) -> tuple[str, ...]:
        return tuple(sorted(os.listdir(path)))

    def stat(self, path: str) -> Stat:
        found = os.stat(path)
        return Stat(
            mode=stat_module.filemode(found.st_mode),
            size_bytes=found.st_size,
            readable=os.access(path, os.R_OK),
            writable=os.access(path, os.W_OK),
            mtime=found.st_mtime,
        )

    def link(self, path: str) -> str:
        return os.readlink(path)

    def space(self, path: str) -> Space:
        usage = shutil.disk_usage(path)
        return Space(total_bytes=usage.total, free_bytes=usage.free)

    def environ(self) -> Mapping[str, str]:
        return dict(os.environ if self._environment is None else self._environment)

    def which(self, name: str) -> str | None:
        return shutil.which(name)

    def run(self, argv: Sequence[str], timeout: float) -> Output:
        said = run(held_back(argv), timeout=timeout, environment=self._environment)
        return replace(said, argv=tuple(argv))

    def ask(
        self,
        script: str,
        python: str | None = None,
        arguments: Sequence[str] = (),
        timeout: float = 10,
    ) -> Mapping[str, Any]:
        isolated = () if python else ("-I", "-S") if script != "read_nvml" else ("-I",)
        before = (HOLD_BACK,) if script in ASK_THE_DRIVER else ()
        file = str(INSIDE / f"{script}.py")
        argv = (python or sys.executable, *isolated, *before, file, *arguments)
        return answer_of(run(argv, timeout=timeout, environment=self._environment))


def held_back(argv: Sequence[str]) -> tuple[str, ...]:
    """The same program, started by `child_scripts/hold_back.py` where it could change the machine.

    >>> held_back(("modinfo", "nvidia"))
    ('modinfo', 'nvidia')
    """
    words = tuple(argv)
    if sys.platform != "linux" or os.path.basename(words[0]) not in ASK_THE_DRIVER:
        return words
    return (sys.executable, "-I", "-S", HOLD_BACK, *words)


def answer_of(said: Output) -> dict[str, Any]:
    """The last line that a child script printed, or why it has none, and how far it came.

    The lines before it say each `step` before it is tried, and each `part` of the answer.

    >>> answer_of(Output(argv=(), exit=-11, stdout='{"step": "cuInit"}'))
    {'problem': 'crashed with SIGSEGV', 'step': {'step': 'cuInit'}}
    """
    import json

    lines: list[dict[str, Any]] = []
    for line in said.stdout.splitlines():  # a library may print between them
        with suppress(ValueError):
            if line.startswith("{"):
                lines.append(json.loads(line))
    if lines and not lines[-1].keys() & {"step", "part"}:
        return lines[-1]
    died = "ended without an answer"
    if said.exit:
        last = said.stderr.strip().rpartition("\n")[2][:200]
        died = how_it_ended(said.exit) + (f": {last}" if said.exit > 0 else "")
    more = {
        "stderr": said.stderr[-2000:],
        "step": next((line for line in reversed(lines) if "step" in line), None),
        "parts": [line["part"] for line in lines if isinstance(line.get("part"), dict)],
    }
    known = {key: value for key, value in more.items() if value}
    return {"problem": said.problem or died, **known}


AFFINITY = hasattr(os, "sched_getaffinity")


def _facts() -> dict[str, Any]:
    import platform
    import sysconfig

    return {
        "machine": platform.machine(),
        "release": platform.release(),
        "os_version": platform.version(),
        "mac_version": platform.mac_ver()[0] if sys.platform == "darwin" else "",
        "python": platform.python_version(),
        "executable": sys.executable,
        "prefix": sys.prefix,
        "base_prefix": sys.base_prefix,
        "bits": 64 if sys.maxsize > 2**32 else 32,
        "free_threaded": "t" in getattr(sys, "abiflags", "") or "free-threading" in sys.version,
        "site_packages": sysconfig.get_path("purelib"),
        "stdlib": sysconfig.get_path("stdlib"),
        "path": [entry for entry in sys.path if entry],
        "libc": _libc(),
        "cores": os.cpu_count(),
        "usable_cores": len(os.sched_getaffinity(0)) if AFFINITY else os.cpu_count(),
        "limits": _limits(),
        "memory_total": _memory_total(),
        "cwd": _cwd(),
        "home": os.path.expanduser("~"),
        "now": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _family(platform: str) -> Family:
    return {"win32": "windows", "darwin": "macos"}.get(platform, "linux")  # type: ignore[return-value]


def _limits() -> dict[str, int]:
    """The soft limits that matter to CUDA, in bytes; without those that are unlimited."""
    try:
        import resource
    except ImportError:
        return {}
    named = {"memlock": resource.RLIMIT_MEMLOCK, "address_space": resource.RLIMIT_AS}
    soft = {name: resource.getrlimit(which)[0] for name, which in named.items()}
    return {n: limit for n, limit in soft.items() if limit != resource.RLIM_INFINITY}


def _libc() -> str:
    """`glibc 2.36`; "" where the C library does not say (musl, Windows, macOS)."""
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (AttributeError, ValueError, OSError):
        return ""


def _cwd() -> str | None:
    """The working folder; None where it has been deleted."""
    try:
        return os.getcwd()
    except OSError:
        return None


def _memory_total() -> int | None:
    """The physical memory in bytes."""
    if os.name == "nt":
        import psutil

        return psutil.virtual_memory().total
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return None
