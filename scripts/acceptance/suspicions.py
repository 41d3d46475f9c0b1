"""What reading the code made doubtful and a run of its own decides, one doubt a function."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from acceptance.processes import descendants, end, runs, told
from acceptance.tune import bench
from acceptance.work import ROOT, Said, Unanswered, Work, attempt, child_environment

RATE_PART = 0.05
"""By which part tune's rate may be below a plain loop's."""


LEAST_SECONDS = 20.0
WHOLE_SECONDS = 400.0
"""With so much time a level is run as a whole, not only the checks that the doubt is about."""
EXACT = ("float32", "float32-modes", "matmul", "convolution", "attention", "linear-algebra")
RATES = ("speed", "speed-half", "copy-in", "copy-out", "copy-within")
GREEDY = ("memory", "out-of-memory", "matmul")


def run(work: Work) -> None:
    """No doubt takes more than twice its share of the time that is left, so that all are tried."""
    for place, (number, doubt) in enumerate(DOUBTS.items()):
        work.options["limit"] = max(LEAST_SECONDS, 2 * work.left() / (len(DOUBTS) - place))
        attempt(work, f"doubt-{number}", partial(doubt, work, number))


def _limit(work: Work) -> float:
    return float(work.options.get("limit", 120.0))


def _answered(work: Work, said: Said) -> Said:
    if said.exit is None:
        raise Unanswered(f"no answer within {_limit(work):.0f} s")
    return said


def _verify(work: Work, *words: str, name: str = "", **environment: str) -> Said:
    argv = ("verify", "--device", work.device, "--json", *words)
    return _answered(work, work.gpusetup(*argv, name=name, limit=_limit(work), **environment))


def _python(work: Work, code: str, *words: str) -> Said:
    return _answered(work, work.program((sys.executable, "-c", code, *words), _limit(work)))


def bad(said: Said) -> str:
    """The checks that complain, or why there is no answer."""
    rows = said.document.get("checks")
    if rows is None:
        return said.problem
    return ", ".join(row["name"] for row in rows if row["status"] in ("failed", "crashed"))


def scope(work: Work, names: tuple[str, ...]) -> tuple[str, ...]:
    """Which checks: those that the doubt is about, or the level where there is time for it."""
    if work.short:
        return ("--level", "quick")
    if work.on_card and work.seconds >= WHOLE_SECONDS:
        return ("--level", "standard")
    return ("--level", "standard", "--only", *names)


def two_at_once(work: Work, number: int) -> None:
    with ThreadPoolExecutor(2) as pool:
        names = [f"doubt-{number}-{place}" for place in "ab"]
        both = [pool.submit(_verify, work, *scope(work, GREEDY), name=name) for name in names]
    found = [bad(run.result()) for run in both]
    words = f"bad: {found[0] or 'none'}; {found[1] or 'none'}"
    work.claim(f"doubt-{number}", not any(found), words)


def ended(work: Work, number: int) -> None:
    """SIGTERM in stress; what computes three seconds later is counted."""
    argv = [sys.executable, "-m", "gpusetup", "verify", "--level", "stress", "--seconds", "40",
            "--only", "load"]  # fmt: skip
    below: list[int] = []
    env = child_environment()
    child = subprocess.Popen(
        [*argv, "--device", work.device], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env=env, start_new_session=True,
    )  # fmt: skip
    try:
        time.sleep(4 if work.short else 12)
        below = descendants(child.pid)
        child.send_signal(signal.SIGTERM)
        time.sleep(3)
        left = [pid for pid in below if runs(pid)]
    finally:
        end(child)
        for pid in below:
            told(pid, signal.SIGKILL)
    words = f"{len(below)} below, {len(left)} left"
    work.claim(f"doubt-{number}", not left if below else "open", words)


def tf32_override(work: Work, number: int) -> None:
    found = {}
    for name in ("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "CUDA_LAUNCH_BLOCKING"):
        kept = f"doubt-{number}-{name}"
        found[name] = bad(_verify(work, *scope(work, EXACT), name=kept, **{name: "1"}))
    words = "; ".join(f"{name}=1: {names or 'none'} bad" for name, names in found.items())
    work.claim(f"doubt-{number}", not any(found.values()), words)


COMPILE = """
import os, sys, time, torch, psutil
from gpusetup.verify.checks.table import function_of, named
for name in ("language-model", "compile"):
    print(name, function_of(named(name))(sys.argv[1]).status, flush=True)
print(len([c for c in psutil.Process().children(recursive=True)
           if "compile_worker" in " ".join(c.cmdline())]))
"""


def compile_workers(work: Work, number: int) -> None:
    said = _python(work, COMPILE, work.device)
    count = said.stdout.strip().rpartition("\n")[2]
    fine = count.isdigit() and int(count) <= 1
    words = f"{count} worker processes" if count.isdigit() else said.problem
    work.claim(f"doubt-{number}", fine, words)
    work.claim("doubt-29", said.exit == 0 and said.seconds < 280, f"{said.seconds:.0f} s")


PLAIN = """
import sys, time, torch
sys.path.insert(0, sys.argv[1])
import bench_models, trace_step
device, batch = sys.argv[2], int(sys.argv[3])
job = bench_models.reference("transformer", {})(batch)
model = job["model"].to(device).train()
data = tuple(one.to(device) for one in job["batch"])
optimizer = torch.optim.AdamW(model.parameters())
def steps(count):
    for _ in range(count):
        trace_step.loss_of(model, data, None)[1].backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    torch.cuda.synchronize() if device.startswith("cuda") else None
steps(5)
began = time.perf_counter()
steps(30)
print(30 * batch / (time.perf_counter() - began))
"""


def plain_loop(work: Work, number: int) -> None:
    """A launch-bound model, as tune times it and as a training runs it."""
    batch, child = 32, str(ROOT / "gpusetup" / "child_scripts")
    said = _python(work, PLAIN, child, work.device, str(batch))
    if said.exit != 0:
        raise RuntimeError(said.problem)
    request = {"mode": "steps", "reference": "transformer", "device": work.device, "steps": 30,
               "batch": batch, "seconds": 20, "warm": 5}  # fmt: skip
    ours = float(bench(work, request, _limit(work))["samples_per_second"])
    plain = float(said.stdout.strip().rpartition("\n")[2])
    words = f"tune {ours:.0f} samples/s, a plain loop {plain:.0f}"
    work.claim(f"doubt-{number}", ours >= (1 - RATE_PART) * plain, words)


def three_runs(work: Work, number: int) -> None:
    """A kept run, and two more against it."""
    kept = str(work.folder / "baseline.json")
    which = scope(work, RATES)
    _verify(work, *which, "--save-baseline", kept)
    again = [_verify(work, *which, "--baseline", kept, name=f"doubt-{number}-{place}")
             for place in range(1 if work.short else 2)]  # fmt: skip
    words = "; ".join(bad(said) or "none" for said in again)
    work.claim(f"doubt-{number}", not any(map(bad, again)), f"bad: {words}")


LOADER = """
import sys, torch
from torch.utils.data import DataLoader
torch.ones(1, device=sys.argv[1])
rows = iter(DataLoader(torch.arange(10 ** 7), batch_size=8, num_workers=2))
next(rows)
print("ready", flush=True)
while True:
    next(rows)
"""


def loader_workers(work: Work, number: int) -> None:
    """A process with loader workers is killed as verify kills one; who lives a second later."""
    child = subprocess.Popen(
        (sys.executable, "-c", LOADER, work.device), stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    assert child.stdout is not None
    watchdog = threading.Timer(_limit(work), end, (child,))
    watchdog.start()
    ready = child.stdout.readline() == b"ready\n"
    watchdog.cancel()
    below = descendants(child.pid)
    with contextlib.suppress(OSError):
        os.killpg(child.pid, signal.SIGKILL)
    child.communicate()
    time.sleep(1)
    left = [pid for pid in below if runs(pid)]
    words = f"{len(below)} workers, {len(left)} left"
    work.claim(f"doubt-{number}", not left if ready and below else "open", words)


NEARLY_FULL = """
import sys, torch
from gpusetup.verify.checks.table import function_of, named
if sys.argv[1].startswith("cuda"):
    free = torch.cuda.mem_get_info()[0]
    held = [torch.empty(1 << 28, dtype=torch.uint8, device="cuda")
            for _ in range(max(0, free - (1 << 30)) >> 28)]
found = function_of(named("out-of-memory"))(sys.argv[1])
print(found.status, found.detail)
"""


def nearly_full(work: Work, number: int) -> None:
    said = _python(work, NEARLY_FULL, work.device)
    words = said.stdout.strip().rpartition("\n")[2] or said.problem
    work.claim(f"doubt-{number}", words.startswith("passed"), words)


DOUBTS: dict[int, Callable[[Work, int], None]] = {
    34: nearly_full,
    30: loader_workers,
    14: plain_loop,
    2: two_at_once,
    3: ended,
    9: tf32_override,
    23: three_runs,
    10: compile_workers,
}
"""The quickest first."""
