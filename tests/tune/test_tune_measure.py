"""Trials in children: real steps on the CPU, and what the end of a child means."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from each_row import each

from gpusetup.cli import main
from gpusetup.errors import BadInput, UsageError
from gpusetup.tune import BatchSizeOptimizer, bench
from gpusetup.tune.bench import Bench, BenchJob, trial_of

pytestmark = pytest.mark.usefixtures("warm_torch")

CODE = """
import torch
from torch import nn

def small(batch):
    print("the user's own print goes elsewhere")
    return {"model": nn.Linear(4, 3), "batch": (torch.ones(batch, 4), torch.zeros(batch).long())}

def drawn(batch):
    return nn.Linear(8, 3), (torch.randn(batch, 8), torch.randint(0, 3, (batch,)))

def example():
    return nn.Linear(8, 3), (torch.randn(4, 8), torch.randint(0, 3, (4,)))

def raises(batch):
    raise ValueError("no data here")

def told(batch):
    import os
    with open("told", "a") as file:
        file.write(f"{os.getpid()}\\n")
    if batch == 9:
        os.kill(os.getpid(), 9)
    if batch == 10:
        raise ValueError("not ten")
    return small(batch)

def hangs(batch):
    import time
    time.sleep(600)

def frozen(batch):
    model = nn.Linear(4, 3).requires_grad_(False)
    return model, (torch.ones(batch, 4), torch.zeros(batch).long())
"""


@pytest.fixture
def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """The child of the user's code, on the CPU."""
    (tmp_path / "mine.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    with Bench(BenchJob(code="mine:small", device="cpu", steps=2)) as made:
        yield made


def mine(name: str, **more: Any) -> dict[str, Any]:
    return {"code": f"mine:{name}", **more}


@each(
    "exit_code, errors, status",
    [
        (-9, "", "oom"),
        (-6, "terminate called after throwing an instance of 'std::bad_alloc'", "oom"),
        (-11, "Segmentation fault", "error"),
    ],
)
def test_a_child_that_died_for_memory_is_told_from_any_other_end(
    exit_code: int, errors: str, status: str
) -> None:
    answer = {"status": "died", "exit": exit_code, "errors": errors}
    assert trial_of(64, answer).status == status


# --- real children ------------------------------------------------------------------------------


def test_each_trial_ends_alone_and_no_child_stays(child: Bench, tmp_path: Path) -> None:
    assert child.device().device == "cpu"
    said = [child.trial(batch, **mine("told")) for batch in (8, 9, 11, 10, 12)]
    assert [one.status for one in said] == ["ok", "oom", "ok", "error", "ok"]
    assert "not ten" in (said[3].detail or "")
    child.__exit__()
    processes = (tmp_path / "told").read_text().split()
    # 9 ended the first process, and 10 failed in the second.
    assert len(set(processes)) == 3
    assert not any(Path(f"/proc/{process}").exists() for process in processes)


def test_code_that_hangs_is_ended(child: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "STARTING_SECONDS", 3.0)
    said = child.trial(4, **mine("hangs", seconds=1.0))
    assert (said.status, said.detail) == ("error", "no answer in 4 s")
    assert child.trial(4, **mine("small", seconds=60.0)).status == "ok"


# --- the Python door ------------------------------------------------------------------------------


def test_a_model_that_no_child_can_load_and_ranks_of_torchrun_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import torch

    class Local(torch.nn.Linear):
        pass

    with pytest.raises(BadInput, match="cannot pass the model to a child"):
        BatchSizeOptimizer(Local(2, 2)).find_optimal_batch_size(torch.ones(1, 2))
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UsageError, match="each would find another batch size"):
        BatchSizeOptimizer(None)


# --- the command ----------------------------------------------------------------------------------


@each(
    "name, code, said",
    [
        ("small", 0, "Batch size: 24"),
        ("raises", 2, "mine:raises with batch 2 failed: ValueError: no data here"),
        ("nothing", 2, "module 'mine' has no attribute 'nothing'"),
        ("frozen", 2, "no parameter that is trained"),
    ],
)
def test_the_command_finds_the_largest_up_to_max_or_shows_what_the_code_said(
    name: str, code: int, said: str, request: pytest.FixtureRequest
) -> None:
    capsys = request.getfixturevalue("capsys")
    request.getfixturevalue("monkeypatch").chdir(request.getfixturevalue("tmp_path"))
    Path("mine.py").write_text(CODE)
    words = ("--code", f"mine:{name}", "--max", "24", "--device", "cpu")
    assert main(["tune", "--batch-size", *words]) == code
    captured = capsys.readouterr()
    assert said in captured.out + captured.err and "Traceback" not in captured.err
