"""What reading the code made doubtful and a run decides; the quickest first."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psutil
import pytest

from acceptance.conftest import NoAnswer, Work
from acceptance.processes import Said, below, end, running, started
from acceptance.test_tune import CHILDREN, bench, training
from acceptance.test_verify import bad

RATE_PART = 0.05
"""By which part tune's rate may be below a plain loop's."""
EXACT = ("float32", "float32-modes", "matmul", "float64")
RATES = ("speed", "speed-half", "copy-in", "copy-out", "copy-within")
GREEDY = ("memory", "out-of-memory", "matmul")


def verify(work: Work, names: tuple[str, ...], *words: str, **more: Any) -> Said:
    argv = ("verify", "--device", work.device, "--json", *words)
    which = () if work.short else ("--level", "standard", "--only", *names)
    return work.gpusetup(*argv, *which, **more)


NEARLY_FULL = """
import sys, torch
free = torch.cuda.mem_get_info()[0] if sys.argv[1] != "cpu" else 0
held = [torch.empty(1 << 28, dtype=torch.uint8, device=sys.argv[1])
        for _ in range(max(0, free - (3 << 30)) >> 28)]
print("ready", flush=True)
input()
"""


@pytest.mark.claim("doubt-34")
def test_running_out_of_memory_is_survived_on_a_nearly_full_card(work: Work) -> None:
    child = ready(work, NEARLY_FULL)
    try:
        found = verify(work, ("out-of-memory",))
    finally:
        end(child)
    work.found(f"bad: {', '.join(bad(found)) or 'none'}")
    assert not bad(found)


def ready(work: Work, code: str) -> subprocess.Popen[bytes]:
    """A program that said that it is ready."""
    pipe = subprocess.PIPE
    child = started((sys.executable, "-c", code, work.device), stdin=pipe, stdout=pipe)
    if child.stdout.readline() != b"ready\n":
        end(child)
        pytest.skip("the other program did not come up")
    return child


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


@pytest.mark.claim("doubt-30")
def test_loader_workers_of_a_killed_process_end(work: Work) -> None:
    child = ready(work, LOADER)
    workers = below(child.pid)
    end(child)
    time.sleep(1)
    left = running(workers)
    work.found(f"{len(workers)} workers, {len(left)} left")
    assert workers and not left


PLAIN = """
import sys, time, torch
sys.path.insert(0, sys.argv[2])
import trace_step
device, batch = sys.argv[1], int(sys.argv[3])
job = trace_step.job_for(trace_step.function_named(sys.argv[4]), batch)
model = job.model.to(device).train()
data = tuple(one.to(device) for one in job.batch)
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


@pytest.mark.claim("doubt-14")
def test_tune_measures_the_rate_of_a_plain_loop(work: Work) -> None:
    batch = 32
    said = work.python(PLAIN, work.device, CHILDREN, str(batch), training("transformer"))
    if said.exit != 0:
        raise NoAnswer(said.problem)
    plain = float(said.stdout.split()[-1])
    ours = float(bench(work, steps=30, batch=batch, seconds=20, warm=5)["samples_per_second"])
    work.found(f"tune {ours:.0f} samples/s, a plain loop {plain:.0f}")
    assert ours >= (1 - RATE_PART) * plain


@pytest.mark.claim("doubt-2")
def test_two_runs_at_once_raise_no_alarm(work: Work) -> None:
    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(verify, work, GREEDY) for _ in range(2)]
    found = [bad(run.result()) for run in both]
    work.found(f"bad: {found}")
    assert not any(found)


@pytest.mark.claim("doubt-3")
def test_nothing_computes_after_verify_was_ended(work: Work) -> None:
    words = ("verify", "--level", "stress", "--seconds", "40", "--only", "load")
    argv = (sys.executable, "-m", "gpusetup", *words, "--device", work.device)
    child = started(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(4 if work.short else 12)
    children = below(child.pid)
    child.send_signal(signal.SIGTERM)
    time.sleep(3)
    left = running(children)
    for each in left:
        each.kill()
    end(child)
    work.found(f"{len(children)} below, {len(left)} left")
    assert children and not left


@pytest.mark.claim("doubt-9")
@pytest.mark.parametrize("name", ["TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "CUDA_LAUNCH_BLOCKING"])
def test_a_variable_of_the_library_leaves_the_judgement_right(work: Work, name: str) -> None:
    found = bad(verify(work, EXACT, **{name: "1"}))
    work.found(f"{name}=1: {', '.join(found) or 'none'} bad")
    assert not found


@pytest.mark.claim("doubt-23")
def test_three_runs_in_a_row_raise_no_alarm(work: Work) -> None:
    found = [bad(verify(work, RATES)) for _ in range(1 if work.short else 3)]
    work.found(f"bad: {found}")
    assert not any(found)


@pytest.fixture(scope="module")
def compiled(work: Work) -> Any:
    said = work.gpusetup(
        *("verify", "--device", work.device, "--level", "standard", "--only", "compile", "--json")
    )
    alive = [each for each in psutil.process_iter(["cmdline"]) if is_compile_worker(each)]
    return said, alive


def is_compile_worker(process: psutil.Process) -> bool:
    return "compile_worker" in " ".join(process.info["cmdline"] or ())


@pytest.mark.claim("doubt-10")
def test_compiling_leaves_no_worker_behind(work: Work, compiled: Any) -> None:
    work.found(f"{len(compiled[1])} worker processes")
    assert len(compiled[1]) <= 1


@pytest.mark.claim("doubt-29")
def test_compiling_takes_less_than_a_trial_may(work: Work, compiled: Any) -> None:
    work.found(f"{compiled[0].seconds:.0f} s")
    assert compiled[0].exit == 0 and compiled[0].seconds < 280
