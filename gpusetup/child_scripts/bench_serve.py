"""Answers one request after the other, so that torch is imported once: beside `bench.py`.

On a GPU the requests run in this process, as long as nothing spoils it: an error other than memory
running out, memory that stays, a compiled model or a loader's workers. Then the answer says
`"spent": true` and this process ends. On the CPU each request runs in a fork of its own: its memory
counts from zero, and running out of it ends nothing else. Python 3.8 syntax.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import sys
import traceback
from typing import IO, Any, Callable, Dict, Iterator, Optional, Tuple

Answer = Dict[str, Any]
LEFT_BYTES = 64 << 20
"""cuBLAS keeps workspaces of up to 32 MiB; what stays above is the user's."""
PR_SET_PDEATHSIG = 1
GLANCE_SECONDS = 0.05


def streams() -> Tuple[IO[bytes], IO[str]]:
    """Where requests come from and answers go; what other code reads or prints goes elsewhere."""
    asked, answers = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return os.fdopen(asked, "rb"), os.fdopen(answers, "w", encoding="utf-8")


def serve(run: Callable[[Answer], Answer], import_code: Callable[[Answer], Any]) -> int:
    asked, answers = streams()
    server = Server(run, import_code)
    for line in asked:
        answer = server.answer(json.loads(line))
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
        if answer.get("spent"):
            break
    return 0


def tried(run: Callable[[Answer], Answer], request: Answer) -> Answer:
    """The answer, or what was raised instead."""
    try:
        return run(request)
    except BaseException as problem:
        return {
            "status": "error",
            "kind": type(problem).__name__,
            "kinds": [one.__name__ for one in type(problem).__mro__],
            "detail": str(problem)[:2000],
            "trace": traceback.format_exc()[-6000:],
        }


class Server:
    def __init__(
        self, run: Callable[[Answer], Answer], import_code: Callable[[Answer], Any]
    ) -> None:
        self.run, self.import_code = run, import_code
        self.imported = self.warm = False
        self.forks: Optional[bool] = None

    def answer(self, request: Answer) -> Answer:
        if self.forks is None:
            self.forks = hasattr(os, "fork") and on_cpu(request)
        if not self.forks:
            return self.here(request)
        if request.get("mode") == "steps" and not self.warm:
            self.warm, before = True, threads()
            tried(import_optimizers, request)
            self.forks = threads() == before
        alone = not self.imported
        answer = in_fork(lambda: self.in_child(request))
        if answer["status"] in ("error", "died") and not alone:  # it may be the fork's own
            return {**answer, "again": True}  # whoever asks knows whether memory ran out
        if answer.get("forkable") and request.get("import_once", True):
            self.imported = True
            before = threads()
            tried(self.import_code, request)
            self.forks = threads() == before  # else the next one runs here, and is the last
        return answer

    def in_child(self, request: Answer) -> Answer:
        before = threads()
        steps = request.get("mode") == "steps"
        if steps:
            tried(self.import_code, request)  # what it raises is raised again below, and told
        safe = steps and threads() == before and not cuda_is_used()
        return {**tried(self.run, request), "forkable": safe}

    def here(self, request: Answer) -> Answer:
        answer = tried(self.run, request)
        if request.get("mode") == "devices" and answer["status"] == "ok":
            return answer
        kept = bool(request.get("compile")) or request.get("workers") is not None
        return {**answer, "spent": kept or on_cpu(request) or spoiled(answer) or not emptied()}


def import_optimizers(_: Answer) -> Answer:
    """Have what torch imports at an optimizer's first step, seconds of it, before the forks."""
    import torch

    with no_collecting():
        one = torch.zeros(1, requires_grad=True)
        one.grad = torch.zeros(1)
        torch.optim.AdamW([one]).step()
    return {}


@contextlib.contextmanager
def no_collecting() -> Iterator[None]:
    """A tenth of the time that torch's imports take is spent looking for garbage; few is there."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def on_cpu(request: Answer) -> bool:
    with no_collecting():
        import torch

    wished = str(request.get("device") or "auto")
    return wished == "cpu" or (wished == "auto" and not torch.cuda.is_available())


def cuda_is_used() -> bool:
    import torch

    return bool(torch.cuda.is_initialized())


def threads() -> int:
    """How many threads this process has; a fork would lose all but one."""
    with contextlib.suppress(OSError):
        return len(os.listdir("/proc/self/task"))
    import threading

    return threading.active_count()


def spoiled(answer: Answer) -> bool:
    """Whether an error other than the allocator's may have left CUDA in a bad state."""
    return answer["status"] != "ok" and "OutOfMemoryError" not in (answer.get("kinds") or ())


def emptied() -> bool:
    """Give back what the last request took; whether next to nothing is left of it."""
    import torch

    try:
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        return int(torch.cuda.memory_allocated()) <= LEFT_BYTES
    except Exception:  # whatever a driver in a bad state raises
        return False


def in_fork(run: Callable[[], Answer]) -> Answer:
    """The answer of a fork, or how it died (its exit code, negative for a signal)."""
    reading, writing = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if not pid:
        with contextlib.suppress(BaseException):
            os.close(reading)
            end_with(parent)
            with os.fdopen(writing, "w", encoding="utf-8") as pipe:
                pipe.write(json.dumps(run()) + "\n")
        os._exit(0)  # at once: nobody is asked to tidy up
    os.close(writing)
    with os.fdopen(reading, "rb", buffering=0) as pipe:
        said, code = heard(pipe, pid)
    if said.endswith(b"\n"):
        return json.loads(said)  # type: ignore[no-any-return]
    return {"status": "died", "exit": code}


def heard(pipe: IO[bytes], pid: int) -> Tuple[bytes, int]:
    """One line and the end of its writer, whose own children may keep the pipe open."""
    said = b""
    while True:
        if select.select([pipe], [], [], GLANCE_SECONDS)[0]:
            part = pipe.read(1 << 16)
            said += part
            if not part or said.endswith(b"\n"):
                return said, exit_of(os.waitpid(pid, 0)[1])
            continue
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            while not said.endswith(b"\n") and select.select([pipe], [], [], 0)[0]:
                part = pipe.read(1 << 16)
                if not part:
                    break
                said += part
            return said, exit_of(status)


def exit_of(status: int) -> int:
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def end_with(parent: int) -> None:
    """Linux: the kernel ends this process with its parent."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
