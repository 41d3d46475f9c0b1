"""What reading the code made doubtful and a run of its own decides, one doubt a function."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from acceptance.processes import descendants, end
from acceptance.work import Said, Work, attempt, search_path

RATE_PART = 0.05
"""By which part tune's rate may be below a plain loop's."""


def run(work: Work) -> None:
    for number, doubt in DOUBTS.items():
        attempt(work, f"doubt-{number}", partial(doubt, work, number))


def _verify(work: Work, *words: str, name: str = "", **environment: str) -> Said:
    argv = ("verify", "--device", work.device, "--json", *words)
    return work.gpusetup(*argv, name=name, limit=120, **environment)


def bad(said: Said) -> str:
    """The checks that complain, or why there is no answer."""
    rows = said.document.get("checks")
    if rows is None:
        return said.problem
    return ", ".join(row["name"] for row in rows if row["status"] in ("failed", "crashed"))


def level(work: Work) -> tuple[str, str]:
    return ("--level", "quick" if work.short else "standard")


def two_at_once(work: Work, number: int) -> None:
    with ThreadPoolExecutor(2) as pool:
        names = [f"doubt-{number}-{place}" for place in "ab"]
        runs = [pool.submit(_verify, work, *level(work), name=name) for name in names]
    told = [bad(run.result()) for run in runs]
    work.claim(f"doubt-{number}", not any(told), f"bad: {told[0] or 'none'}; {told[1] or 'none'}")


def ended(work: Work, number: int) -> None:
    """SIGTERM in stress; what computes three seconds later is counted."""
    argv = [sys.executable, "-m", "gpusetup", "verify", "--level", "stress", "--seconds", "40"]
    env = {**os.environ, "PYTHONPATH": search_path()}
    child = subprocess.Popen(
        [*argv, "--device", work.device], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env=env, start_new_session=True,
    )  # fmt: skip
    try:
        time.sleep(4 if work.short else 15)
        below = descendants(child.pid)
        child.send_signal(signal.SIGTERM)
        time.sleep(3)
        left = [pid for pid in below if _runs(pid)]
    finally:
        end(child)
        for pid in below:
            if _runs(pid):
                os.kill(pid, signal.SIGKILL)
    work.claim(f"doubt-{number}", bool(below) and not left, f"{len(below)} below, {len(left)} left")


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def tf32_override(work: Work, number: int) -> None:
    found = {}
    for name in ("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "CUDA_LAUNCH_BLOCKING"):
        found[name] = bad(_verify(work, *level(work), name=f"doubt-{number}-{name}", **{name: "1"}))
    told = "; ".join(f"{name}=1: {bad or 'none'} bad" for name, bad in found.items())
    work.claim(f"doubt-{number}", not any(found.values()), told)


COMPILE = """
import os, sys, time, torch, psutil
from gpusetup.verify.checks.table import function_of, named
for name in ("optimizer", "compile"):
    print(name, function_of(named(name))(sys.argv[1]).status, flush=True)
print(len([c for c in psutil.Process().children(recursive=True)
           if "compile_worker" in " ".join(c.cmdline())]))
"""


def compile_workers(work: Work, number: int) -> None:
    said = work.program((sys.executable, "-c", COMPILE, work.device), limit=120)
    count = said.stdout.strip().rpartition("\n")[2]
    fine = count.isdigit() and int(count) <= 1
    told = f"{count} worker processes" if count.isdigit() else said.problem
    work.claim(f"doubt-{number}", fine, told)
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
    from acceptance.work import ROOT

    batch, child = 32, str(ROOT / "gpusetup" / "child_scripts")
    said = work.program((sys.executable, "-c", PLAIN, child, work.device, str(batch)), limit=60)
    request = {"mode": "steps", "reference": "transformer", "device": work.device, "steps": 30,
               "batch": batch, "seconds": 20, "warm": 5}  # fmt: skip
    ours = _bench(child, request)
    plain = float(said.stdout)
    told = f"tune {ours:.0f} samples/s, a plain loop {plain:.0f}"
    work.claim(f"doubt-{number}", ours >= (1 - RATE_PART) * plain, told)


def _bench(child: str, request: dict[str, Any]) -> float:
    found = subprocess.run(
        (sys.executable, f"{child}/bench.py"), input=json.dumps(request), capture_output=True,
        text=True, timeout=90,
    )  # fmt: skip
    answer = json.loads(found.stdout.strip().rpartition("\n")[2])
    return float(answer["samples_per_second"])


def three_runs(work: Work, number: int) -> None:
    """A kept run, and two more against it."""
    kept = str(work.folder / "baseline.json")
    _verify(work, *level(work), "--save-baseline", kept)
    again = [_verify(work, *level(work), "--baseline", kept, name=f"doubt-{number}-{place}")
             for place in range(1 if work.short else 2)]  # fmt: skip
    told = "; ".join(bad(said) or "none" for said in again)
    work.claim(f"doubt-{number}", not any(map(bad, again)), f"bad: {told}")


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
    child.stdout.readline()
    below = descendants(child.pid)
    os.killpg(child.pid, signal.SIGKILL)
    child.communicate()
    time.sleep(1)
    left = [pid for pid in below if _runs(pid)]
    work.claim(
        f"doubt-{number}", bool(below) and not left, f"{len(below)} workers, {len(left)} left"
    )


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
    said = work.program((sys.executable, "-c", NEARLY_FULL, work.device), limit=60)
    told = said.stdout.strip().rpartition("\n")[2] or said.problem
    work.claim(f"doubt-{number}", told.startswith("passed"), told)


DOUBTS: dict[int, Callable[[Work, int], None]] = {
    9: tf32_override,
    23: three_runs,
    10: compile_workers,
    2: two_at_once,
    3: ended,
    14: plain_loop,
    30: loader_workers,
    34: nearly_full,
}
"""In the order of what matters most."""
