"""Trials in children: real steps on the CPU, and what the end of a child means."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import warm

from gpusetup.cli import main
from gpusetup.errors import BadInput
from gpusetup.model.frozen import replace
from gpusetup.system.processes import Output, run
from gpusetup.tune import measure
from gpusetup.tune.measure import (
    Device,
    Job,
    agreed,
    device_of,
    find_batch,
    judged,
    loader_rate,
    losses_of,
    trial,
)
from gpusetup.tune.search import answer
from gpusetup.tune.trial import Goal, Trial

pytestmark = pytest.mark.usefixtures("warm_torch")

CODE = """
import torch
from torch import nn

WIDE = 1 << 18

class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 1 << 20
    def __getitem__(self, index):
        return torch.ones(4), torch.tensor(index % 3)

def small(batch):
    print("the user's own print goes elsewhere")
    data = {"dataset": Numbers()}
    return {"model": nn.Linear(4, 3), "batch": (torch.ones(batch, 4), torch.zeros(batch).long()),
            **data}

class Wide(nn.Module):
    "Four tensors of 1 MiB for each sample stand until backward."
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
    def forward(self, batch):
        return (batch * self.weight).sin().sin().sin().mean()

def wide(batch):
    return Wide(), torch.ones(batch, WIDE)

class Few(Numbers):
    def __len__(self):
        return 20

class Slow(Numbers):
    def __getitem__(self, index):
        import time
        time.sleep(0.01)
        return super().__getitem__(index)

def slow(batch):
    return {**small(batch), "dataset": Slow()}

def few(batch):
    return {**small(batch), "dataset": Few()}

def drawn(batch):
    return nn.Linear(8, 3), (torch.randn(batch, 8), torch.randint(0, 3, (batch,)))

def example():
    return nn.Linear(8, 3), (torch.randn(4, 8), torch.randint(0, 3, (4,)))

def leaks(batch):
    model, kept = nn.Linear(4, 3), []
    model.register_forward_hook(lambda *_: kept.append(torch.ones(1 << 20)) and None)
    return model, (torch.ones(batch, 4), torch.zeros(batch).long())

def raises(batch):
    raise ValueError("no data here")

def killed(batch):
    import os, signal
    os.kill(os.getpid(), signal.SIGKILL)

def hangs(batch):
    import time
    time.sleep(600)

def frozen(batch):
    model = nn.Linear(4, 3).requires_grad_(False)
    return model, (torch.ones(batch, 4), torch.zeros(batch).long())
"""


@pytest.fixture
def folder(tmp_path: Path) -> str:
    (tmp_path / "mine.py").write_text(CODE)
    return str(tmp_path)


def job(folder: str, name: str, **more: object) -> Job:
    return Job(code=f"mine:{name}", folder=folder, device="cpu", steps=2, warm=1, **more)  # type: ignore[arg-type]


# --- what an end means --------------------------------------------------------------------------


def ended(
    exit: int | None, stdout: str = "", stderr: str = "", problem: str | None = None
) -> Output:
    return Output(argv=("x",), exit=exit, stdout=stdout, stderr=stderr, problem=problem)


def raised(kinds: list[str], detail: str) -> Output:
    said = {"status": "error", "kind": kinds[0], "kinds": kinds, "detail": detail}
    return ended(0, json.dumps(said))


SHORT = (
    raised(["OutOfMemoryError", "RuntimeError"], "CUDA out of memory. Tried to allocate 20 MiB"),
    raised(["AcceleratorError", "RuntimeError"], "CUDA error: out of memory"),
    raised(["RuntimeError"], "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"),
    raised(["RuntimeError"], "cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
    raised(
        ["DistBackendError"], "NCCL error: unhandled cuda error, Cuda failure 2 'out of memory'"
    ),
    raised(["RuntimeError"], "HIP out of memory. Tried to allocate 2 GiB"),
    raised(["RuntimeError"], "MPS backend out of memory (MPS allocated: 9 GB)"),
    raised(["MemoryError"], ""),
    raised(["RuntimeError"], "[enforce fail] DefaultCPUAllocator: can't allocate memory"),
    ended(-9),
    ended(137),
    ended(-6, stderr="terminate called after throwing an instance of 'std::bad_alloc'"),
)


@pytest.mark.parametrize("said", SHORT)
def test_every_spelling_of_out_of_memory_is_a_trial_that_failed(said: Output) -> None:
    assert judged(64, said).status == "oom"


def test_what_may_be_memory_counts_only_where_a_smaller_size_ran() -> None:
    said = raised(["RuntimeError"], "cuDNN error: CUDNN_STATUS_NOT_SUPPORTED")
    assert judged(64, said).status == "error"
    assert judged(64, said, smaller_ran=True).status == "oom"


OTHER = (
    raised(["RuntimeError"], "mat1 and mat2 shapes cannot be multiplied"),
    raised(["AcceleratorError"], "CUDA error: an illegal memory access was encountered"),
    ended(-11, stderr="Segmentation fault"),
    ended(None, problem="no answer in 300 s"),
    ended(1, stdout="no json"),
)


@pytest.mark.parametrize("said", OTHER)
def test_anything_else_is_an_error(said: Output) -> None:
    assert judged(64, said, smaller_ran=True).status == "error"


# --- real children ------------------------------------------------------------------------------


def test_a_trial_counts_steps_memory_and_speed(folder: str) -> None:
    said = trial(job(folder, "small"), 16)
    assert (said.status, said.batch, said.readings) == ("ok", 16, 2)
    assert (said.peak_bytes or 0) > 50 << 20
    assert set(said.phases) == {"forward", "backward", "optimizer"}
    assert (said.samples_per_second or 0) > 0
    one = trial(replace(job(folder, "small"), steps=1, seconds=0.001), 16)
    assert (one.spread_percent or 0) > 0  # two are timed at least


def test_losses_start_from_the_same_weights_and_see_the_same_samples(folder: str) -> None:
    plain = losses_of(job(folder, "drawn"), 16)
    assert plain is not None and len(plain) == 2 and plain == losses_of(job(folder, "drawn"), 16)
    mixed = losses_of(job(folder, "drawn", amp="bf16"), 16)
    assert mixed is not None and mixed != plain
    assert mixed[0] == pytest.approx(plain[0], rel=0.05)


def test_an_example_batch_is_made_as_long_as_the_trial_wants(folder: str) -> None:
    assert trial(job(folder, "example"), 32).status == "ok"


def test_a_loader_alone_is_timed_and_code_without_a_data_set_is_not(folder: str) -> None:
    quick = job(folder, "small", seconds=0.2)
    assert (loader_rate(quick, 8, 0) or 0) > 0
    assert loader_rate(job(folder, "example", seconds=0.2), 8, 0) is None


def test_a_data_set_of_few_batches_is_gone_through_again(folder: str) -> None:
    few = job(folder, "few", seconds=0.5)
    assert (loader_rate(few, 8, 0) or 0) > 0
    assert trial(replace(few, workers=0, steps=6), 8).status == "ok"
    assert loader_rate(few, 64, 0) is None
    assert "fewer than 64 samples" in (trial(replace(few, workers=0), 64).detail or "")


@pytest.mark.slow
def test_steps_are_no_faster_than_the_loader_that_feeds_them(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither what was loaded ahead nor what several workers finish at once comes for free."""
    monkeypatch.setattr(subprocess, "Popen", warm.Popen.__mro__[1])  # a loader forks by itself
    told = trial(replace(job(folder, "slow"), workers=2, steps=4), 8)
    assert told.status == "ok", told.detail
    assert (told.samples_per_second or 0) <= 1.1 * 2 / 0.01


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's counters")
def test_what_is_in_use_in_the_heap_is_counted_as_it_may_leave_holes() -> None:
    from gpusetup.child_scripts import bench_memory

    before = bench_memory.in_heap()
    if not before:
        pytest.skip("another allocator than glibc's, or one before 2.33")
    kept = [bytes(100_000) for _ in range(40)]
    assert 3_900_000 <= bench_memory.in_heap() - before <= 4_500_000
    del kept


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("raises", "ValueError: no data here"),
        ("nothing", "has no attribute 'nothing'"),
        ("frozen", "no parameter that is trained"),
    ],
)
@pytest.mark.one_in(4)
def test_code_that_breaks_ends_the_search_with_what_it_said(
    folder: str, name: str, said: str
) -> None:
    trials = find_batch(job(folder, name), Goal(limit_bytes=1 << 40))
    assert [one.status for one in trials] == ["error"]
    assert said in str(trials[0].detail)
    with pytest.raises(BadInput) as caught:
        measure.refuse_errors(job(folder, name), trials)
    assert said in caught.value.message


@pytest.mark.slow
def test_memory_that_grows_with_every_step_is_said(folder: str) -> None:
    told = trial(replace(job(folder, "leaks"), steps=8), 4)
    assert told.leak_bytes is not None and 3 << 20 <= told.leak_bytes <= 6 << 20, told
    assert trial(replace(job(folder, "small"), steps=8), 4).leak_bytes is None


def test_the_oom_killer_is_a_trial_that_failed(folder: str) -> None:
    assert trial(job(folder, "killed"), 4).status == "oom"


def test_code_that_hangs_is_ended(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "STARTING_SECONDS", 3.0)
    said = trial(job(folder, "hangs", seconds=1.0), 4)
    assert (said.status, said.detail) == ("error", "no answer in 4 s")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_AS and /proc/self/status are Linux'")
def test_under_a_real_limit_of_memory_the_search_reaches_95_percent_and_is_safe(
    folder: str,
) -> None:
    """Six tensors of 1 MiB a sample stand at once; the limit leaves room for some 130."""
    plain = job(folder, "wide")
    first = trial(replace_limit(plain, 8 << 30), 1)
    limit = (first.static_bytes or 0) + (640 << 20)
    limited = replace_limit(plain, limit)
    assert device_of(limited).limit_bytes == limit
    goal = Goal(limit_bytes=int(limit * 0.99))
    trials = find_batch(limited, goal)
    found = answer(trials, goal)
    assert found is not None
    assert found in [one.batch for one in trials if one.status == "ok"]
    assert trial(limited, found).status == "ok"
    failing = min((one.batch for one in trials if one.status == "oom"), default=None)
    beyond = round(found / 0.95) + 1
    assert (failing is not None and failing <= beyond) or trial(limited, beyond).status == "oom"


def replace_limit(one: Job, limit: int) -> Job:
    from gpusetup.model.frozen import replace

    return replace(one, memory_limit_bytes=limit)


# --- the Python door ------------------------------------------------------------------------------

SCRIPT = """
import torch
from torch import nn
from gpusetup.tune import BatchSizeOptimizer

class Mine(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 3)
    def forward(self, inputs):
        return self.layer(inputs)

if __name__ == "__main__":
    finder = BatchSizeOptimizer(Mine(), {"max_batch_size": 16, "steps": 2, "device": "cpu"})
    size, about = finder.find_optimal_batch_size(
        (torch.randn(4, 8), torch.randint(0, 3, (4,))), target_gpu_util=85.0
    )
    print(size, about["largest_batch_size"], [one["status"] for one in about["trials"]])
"""


@pytest.mark.slow
def test_a_model_of_the_users_own_script_is_measured_in_a_child(tmp_path: Path) -> None:
    from gpusetup.system.processes import run

    file = tmp_path / "script.py"
    file.write_text(SCRIPT)
    root = str(Path(measure.__file__).resolve().parents[2])
    said = run(
        (sys.executable, str(file)), timeout=300, environment={"PYTHONPATH": root, "PATH": ""}
    )
    assert said.exit == 0, said.stderr
    size, largest, *statuses = said.stdout.split()
    assert int(size) <= int(largest) == 16
    assert "oom" not in "".join(statuses)
    told = said.stderr.splitlines()
    assert re.search(r"for 120 s at most .*within \d\S* GiB, a quarter of what is free", told[0])
    assert re.fullmatch(r"gpusetup: batch 2, 1[01]\d s left", told[1])
    unguarded = SCRIPT.replace('if __name__ == "__main__":', "if True:")
    file.write_text(unguarded)
    said = run((sys.executable, str(file)), timeout=300, environment={"PYTHONPATH": root})
    assert said.stderr.splitlines()[-1] == (
        'hint: put what it runs under `if __name__ == "__main__":`'
    )


def test_a_search_ends_with_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step takes a second a sample; a step of 8 would end after the time."""
    torch = pytest.importorskip("torch")
    from gpusetup.tune import BatchSizeOptimizer, optimizer

    asked: list[tuple[int, float]] = []

    def trial(job: Job, batch: int, *, smaller_ran: bool = False) -> Trial:
        asked.append((batch, job.left or 0.0))
        return Trial(batch=batch, status="ok", peak_bytes=1, samples_per_second=batch**0.5)

    monkeypatch.setattr(measure, "trial", trial)
    device = Device(device="cpu", name="the CPU", limit_bytes=1 << 34)
    monkeypatch.setattr(optimizer, "device_of", lambda _: device)
    said: list[str] = []
    wish = {"total_seconds": 50, "say": said.append}
    found = BatchSizeOptimizer(torch.nn.Linear(2, 2), wish).find_optimal_batch_size(
        torch.ones(1, 2)
    )
    assert [batch for batch, _ in asked] == [2, 8, 32] and all(left <= 50 for _, left in asked)
    assert (found[0], found[1]["stopped"]) == (32, "its time was over")
    assert found[1]["limit_bytes"] == 1 << 32 and len(said) == 4


def test_a_model_that_no_child_can_load_is_refused() -> None:
    import torch

    from gpusetup.tune import BatchSizeOptimizer

    class Local(torch.nn.Linear):
        pass

    with pytest.raises(BadInput, match="cannot be given to a child"):
        BatchSizeOptimizer(Local(2, 2)).find_optimal_batch_size(torch.ones(1, 2))


def test_several_ranks_agree_on_the_smallest_through_the_store() -> None:
    from torch.distributed import HashStore

    store, sizes, found = HashStore(), (48, 32, 64), {}

    def rank(index: int) -> None:
        found[index] = agreed(sizes[index], store, index, len(sizes))

    threads = [threading.Thread(target=rank, args=(index,)) for index in range(len(sizes))]
    for one in threads:
        one.start()
    for one in threads:
        one.join(30)
    assert found == {0: 32, 1: 32, 2: 32}


RANK = """
import os, sys
sys.path.insert(0, os.environ["HERE"])
from gpusetup.tune.measure import ROUNDS, agreed, store_of_ranks
rank = int(os.environ["RANK"])
for sizes in ((48, 32), (16, 0)):
    print(agreed(sizes[rank], store_of_ranks(), rank, 2, next(ROUNDS)))
store_of_ranks().add("gone", 1)
import time
while rank == 0 and int(store_of_ranks().add("gone", 0)) < 2:
    time.sleep(0.05)
"""


@pytest.mark.slow
def test_ranks_that_torchrun_started_agree_by_themselves() -> None:
    import os
    import socket
    import subprocess

    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    told = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2",
            "HERE": str(Path(measure.__file__).parents[2])}  # fmt: skip
    ranks = [
        subprocess.Popen(
            (sys.executable, "-c", RANK), text=True, env={**os.environ, **told, "RANK": str(rank)},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for rank in range(2)
    ]  # fmt: skip
    said = [rank.communicate(timeout=120) for rank in ranks]
    assert [out.split() for out, _ in said] == [["32", "0"], ["32", "0"]], said


def test_without_torch_the_import_is_one_clear_sentence() -> None:
    script = (
        "import sys; sys.modules['torch'] = None\n"
        "try:\n    from gpusetup.tune import recover_from_oom\n"
        "except ImportError as problem:\n    print(problem)"
    )
    done = run((sys.executable, "-c", script), timeout=60)
    assert done.stdout == (
        "recover_from_oom needs torch, and this Python has none: `gpusetup install` installs it\n"
    ), done.stderr


def test_a_bare_tensor_is_enough_for_the_optimizer() -> None:
    import torch

    from gpusetup.tune.optimizer import mean_of

    assert float(mean_of(torch.ones(3), None)) == 1
    assert float(mean_of({"loss": torch.tensor(2.0)}, None)) == 2
    assert float(mean_of((torch.full((2,), 3.0),), None)) == 3


# --- the command ----------------------------------------------------------------------------------


def test_the_command_finds_the_largest_up_to_max(
    folder: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    words = ("--code", "mine:small", "--max", "24", "--device", "cpu", "--steps", "2", "--json")
    assert main(["tune", "--batch-size", *words]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["batch_size"] == 24
    assert {one["batch"] for one in said["trials"]} >= {2, 24}


def test_the_command_shows_what_the_code_said(
    folder: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    words = ("--code", "mine:raises", "--device", "cpu")
    assert main(["tune", "--batch-size", *words]) == 2
    err = capsys.readouterr().err
    assert "mine:raises with batch 2 failed: ValueError: no data here" in err
    assert "Traceback" not in err


# --- a GPU that the test plays ---


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What is asked of torch.cuda on a GPU of 4 GiB, 3 of them free."""
    torch = pytest.importorskip("torch")
    asked: dict[str, Any] = {}
    for name, value in {
        "is_available": lambda: True,
        "mem_get_info": lambda: (3 << 30, 4 << 30),
        "memory_reserved": lambda: 0,
        "set_device": lambda device: asked.update(device=device),
        "set_per_process_memory_fraction": lambda part: asked.update(part=part),
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    return asked


def test_a_trial_may_not_spill_into_the_memory_of_the_host(played: dict[str, Any]) -> None:
    from gpusetup.child_scripts import bench_memory as bench

    assert bench.Cuda(None).limit == 3 << 30
    assert played["part"] == 0.75
    assert bench.Cuda(1 << 30).limit == 1 << 30
    assert played["part"] == 0.25


def test_a_named_gpu_is_the_one_that_is_measured(played: dict[str, Any]) -> None:
    from gpusetup.child_scripts import bench

    assert bench.device_of({"device": "cuda:1"}) == "cuda:1"
    assert played["device"] == "cuda:1"


def test_the_scaler_of_a_torch_before_2_3() -> None:
    import types

    from gpusetup.child_scripts import bench

    old = types.SimpleNamespace(GradScaler=lambda **_: "old")
    new = types.SimpleNamespace(GradScaler=lambda kind, **_: f"new for {kind}")
    cuda = types.SimpleNamespace(amp=old)
    assert bench.scaler_of(types.SimpleNamespace(amp=types.SimpleNamespace(), cuda=cuda)) == "old"
    assert bench.scaler_of(types.SimpleNamespace(amp=new, cuda=cuda)) == "new for cuda"


@pytest.mark.parametrize(("free", "steps"), [(0.6, 2), (0.3, 5)])
def test_under_a_limit_of_addresses_fewer_steps_are_read_far_from_it(
    monkeypatch: pytest.MonkeyPatch, free: float, steps: int
) -> None:
    from gpusetup.child_scripts import bench_memory

    host = bench_memory.Host(None)
    assert host.least_rows == 2
    host.limit, host.stood = 1000, 0
    monkeypatch.setattr(bench_memory, "status", lambda name: round(1000 * (1 - free)))
    assert host.least_rows == steps
