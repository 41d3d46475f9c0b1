"""Children of Python in which torch is imported already.

A child that imports torch computes for seconds before it begins. Here one process (the fork
server of `multiprocessing`) imports it once, and each child is a fork of that: its streams,
folder, variables, arguments and module path are those that a new interpreter would have, and so
are its end and its exit code. `Popen` is one of `subprocess` and does so for our own scripts that
compute with torch, started by our own interpreter; every other program it starts as usual.

What is not new in such a child: the flags of the interpreter, and what torch reads of the
variables while it is imported. Where that is what a test is about, it starts a process of its own.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import os
import runpy
import signal
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from functools import cache
from multiprocessing import current_process, forkserver, get_context, resource_tracker
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

IN_ADVANCE = [
    "torch",
    "torch._subclasses.fake_tensor",
    "torch.optim",
    "torch.utils.data",
    "torch._dynamo",
]
COMPILES_ALONE = "TORCHINDUCTOR_COMPILE_THREADS"
"""The compiler reads it at its import: else it starts a process for each core."""
PACKAGE = Path(__file__).resolve().parent.parent / "gpusetup"
TESTS = Path(__file__).resolve().parent
SCRIPTS = (
    *(str(PACKAGE / name) for name in ("verify", "child_scripts/")),
    str(TESTS / "rank_faults" / "warm.py"),
)
FLAGS = ("-B", "-u")


def is_ours(argv: Any) -> bool:
    """A script of ours that computes with torch, under this interpreter."""
    if sys.platform != "linux" or isinstance(argv, str | bytes) or argv[0] != sys.executable:
        return False
    return str(next((word for word in argv[1:] if word not in FLAGS), "")).startswith(SCRIPTS)


def argv_of(words: Sequence[Any]) -> tuple[str, ...]:
    return tuple(os.fspath(word) for word in words)


class Popen(subprocess.Popen[Any]):
    """As `subprocess.Popen`; our own scripts begin with torch."""

    _warm: Any = None

    def _execute_child(self, args: Any, *more: Any) -> None:
        if not is_ours(args):
            super()._execute_child(args, *more)  # type: ignore[misc]
            return
        _import_in_advance()
        cwd, environment = more[4], more[5]
        pipes, new_session = more[9:15], more[20]
        ends = [
            Connection(os.dup(own if fd == -1 else fd))
            for own, fd in zip(range(3), (pipes[0], pipes[3], pipes[5]), strict=True)
        ]
        told = dict(os.environ if environment is None else environment)
        process = get_context("forkserver").Process(
            target=become,
            args=(
                argv_of(args),
                told,
                str(cwd or Path.cwd()),
                ends,
                new_session,
                bare_path(),
                SCRIPTS,
            ),
            daemon=True,
        )
        process.start()
        for end in ends:
            end.close()
        self._warm, self.pid = process, process.pid or 0
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]

    def _try_wait(self, flags: int) -> tuple[int, int]:
        if self._warm is None:
            return super()._try_wait(flags)  # type: ignore[misc, no-any-return]
        self._warm.join(0 if flags else None)
        code = self._warm.exitcode
        if code is None:
            return 0, 0
        return self.pid, -code if code < 0 else code << 8

    def _internal_poll(self, *more: Any, **words: Any) -> int | None:
        if self._warm is None:
            return super()._internal_poll(*more, **words)  # type: ignore[misc, no-any-return]
        if self.returncode is None:
            pid, status = self._try_wait(os.WNOHANG)
            if pid:
                self._handle_exitstatus(status)  # type: ignore[attr-defined]
        return self.returncode


class Forked(subprocess.Popen[Any]):
    """The same inside such a child, which has torch itself: a fork of it."""

    def _execute_child(self, args: Any, *more: Any) -> None:
        if not is_ours(args):
            super()._execute_child(args, *more)  # type: ignore[misc]
            return
        cwd, environment = more[4], more[5]
        pipes, new_session = more[9:15], more[20]
        told = dict(os.environ if environment is None else environment)
        fds = [own if fd == -1 else fd for own, fd in enumerate((pipes[0], pipes[3], pipes[5]))]
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if not self.pid:
            _begin(argv_of(args), told, str(cwd or Path.cwd()), fds, new_session, _bare)
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


@cache
def _import_in_advance() -> None:
    """Start the server, which imports torch, once, with the variables that the tests have now."""
    before = os.environ.get(COMPILES_ALONE)
    os.environ[COMPILES_ALONE] = "1"
    get_context("forkserver").set_forkserver_preload(IN_ADVANCE)
    forkserver.ensure_running()
    if before is None:
        del os.environ[COMPILES_ALONE]
    else:
        os.environ[COMPILES_ALONE] = before


@cache
def bare_path() -> tuple[str, ...]:
    """The module path of a new interpreter, without the script's folder and `PYTHONPATH`."""
    asked = (sys.executable, "-c", "import sys; print(*sys.path[1:], sep='\\n')")
    bare = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    said = subprocess.run(asked, env=bare, capture_output=True, text=True, check=True)
    return tuple(said.stdout.splitlines())


# --- inside the child ---------------------------------------------------------------------------

_bare: tuple[str, ...] = ()


def become(
    argv: tuple[str, ...],
    environment: dict[str, str],
    cwd: str,
    ends: list[Connection],
    new_session: bool,
    bare: tuple[str, ...],
    scripts: tuple[str, ...],
) -> None:
    """Go on as `argv` would; never returns."""
    global _bare, SCRIPTS
    _bare, SCRIPTS = bare, scripts
    current_process()._config["daemon"] = False  # type: ignore[attr-defined]
    _begin(argv, environment, cwd, [end.fileno() for end in ends], new_session, bare)


def _begin(
    argv: tuple[str, ...],
    environment: Mapping[str, str],
    cwd: str,
    fds: Sequence[int],
    new_session: bool,
    bare: tuple[str, ...],
) -> None:
    code = 1
    gc.freeze()  # what the parent left behind must not close a file that has its number again
    try:
        _take(fds, new_session)
        os.chdir(cwd)
        os.environ.clear()
        os.environ.update(environment)
        _open_streams(environment)
        code = _run(argv, bare)
        sys.stdout.flush()
        sys.stderr.flush()
        atexit._run_exitfuncs()
    except BaseException:  # the process ends here, whatever happens
        traceback.print_exc()
    finally:
        os._exit(code)


def _take(fds: Sequence[int], new_session: bool) -> None:
    """The streams 0, 1, 2 and nothing else; the signals as a new process has them."""
    if new_session:
        os.setsid()
    kept = [os.dup(fd) for fd in fds]
    for own, fd in enumerate(kept):
        os.dup2(fd, own)
    os.closerange(3, 4096)
    # The fork server's tracker of semaphores is among what was closed: a loader's workers start
    # one of their own.
    resource_tracker._resource_tracker._fd = None  # type: ignore[attr-defined]
    resource_tracker._resource_tracker._pid = None  # type: ignore[attr-defined]
    for name in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD, signal.SIGPIPE):
        signal.signal(name, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _open_streams(environment: Mapping[str, str]) -> None:
    """As a new interpreter has them; what they replace must not close the files at its end."""
    encoding, _, errors = environment.get("PYTHONIOENCODING", "").partition(":")
    kind: dict[str, Any] = {"encoding": encoding or "utf-8", "closefd": False}
    streams = (
        open(0, errors=errors or None, **kind),  # noqa: SIM115
        open(1, "w", errors=errors or None, **kind),  # noqa: SIM115
        open(2, "w", errors="backslashreplace", buffering=1, **kind),  # noqa: SIM115
    )
    sys.stdin, sys.stdout, sys.stderr = streams
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = streams  # type: ignore[misc]


def _run(argv: tuple[str, ...], bare: tuple[str, ...]) -> int:
    """The script as `__main__`; its exit code."""
    script = next(index for index, word in enumerate(argv) if index and word not in FLAGS)
    sys.orig_argv, sys.argv = list(argv), list(argv[script:])
    on_path = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    beside = [] if Path(sys.argv[0]).is_dir() else [str(Path(sys.argv[0]).parent)]
    sys.path[:] = [*beside, *on_path, *bare]
    for name in [*sys.modules]:
        if name.partition(".")[0] in ("gpusetup", "gpusetup_verify", "sitecustomize"):
            del sys.modules[name]
    importlib.invalidate_caches()
    subprocess.Popen = Forked  # type: ignore[misc]
    try:
        if any((Path(part) / "sitecustomize.py").exists() for part in on_path):
            importlib.import_module("sitecustomize")
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0
