"""The child that runs trials: shared, until something spoils it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpusetup.child_scripts import bench_serve
from gpusetup.tune.bench_child import KEPT, shared
from gpusetup.tune.measure import Device, Job, device_of, find_batch, limit_of, trial
from gpusetup.tune.trial import Goal

pytestmark = pytest.mark.usefixtures("warm_torch")

CODE = """
import os, threading, time
import torch
from torch import nn

def told(batch):
    with open("told", "a") as file:
        file.write(f"{os.getppid()} {os.getpid()}\\n")
    return nn.Linear(4, 3), (torch.ones(batch, 4), torch.zeros(batch).long())

def dies(batch):
    if batch == 9:
        os.kill(os.getpid(), 9)
    if batch == 10:
        raise ValueError("not ten")
    return told(batch)
"""
THREAD = "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"


@pytest.fixture
def folder(tmp_path: Path) -> str:
    (tmp_path / "mine.py").write_text(CODE)
    (tmp_path / "threaded.py").write_text(CODE + THREAD)
    return str(tmp_path)


def job(folder: str, name: str) -> Job:
    return Job(code=name, folder=folder, device="cpu", steps=2)


def processes(folder: str) -> list[tuple[str, str]]:
    rows = (Path(folder) / "told").read_text().splitlines()
    return [(row.split()[0], row.split()[1]) for row in rows]


def test_the_trials_of_a_search_share_one_child_and_each_has_memory_of_its_own(folder: str) -> None:
    with shared():
        assert device_of(job(folder, "mine:told")).device == "cpu"
        trials = find_batch(job(folder, "mine:told"), Goal(limit_bytes=1 << 50, largest=64))
    assert [one.status for one in trials] == ["ok", "ok"]
    parents, own = zip(*processes(folder), strict=True)
    assert len(set(parents)) == 1 and len(set(own)) == len(trials)
    assert not KEPT and not Path(f"/proc/{parents[0]}").exists()


def test_a_trial_that_dies_or_fails_ends_alone(folder: str) -> None:
    one = job(folder, "mine:dies")
    with shared():
        said = [trial(one, batch) for batch in (8, 9, 11, 10, 12)]
    assert [x.status for x in said] == ["ok", "oom", "ok", "error", "ok"]
    assert "not ten" in (said[3].detail or "")
    parents = [parent for parent, _ in processes(folder)]  # of 8, 11 and 12
    assert parents[0] == parents[1], "running out of memory starts no other child"
    assert parents[2] != parents[0], "another error may be the fork's own"


def test_code_that_starts_threads_when_it_is_imported_is_forked_without_them(folder: str) -> None:
    with shared():
        said = [trial(job(folder, "threaded:told"), batch) for batch in (8, 9)]
    assert [one.status for one in said] == ["ok", "ok"]


@pytest.mark.parametrize(
    ("answer", "left", "request_", "spent"),
    [
        ({"status": "ok"}, True, {}, False),
        ({"status": "error", "kinds": ["OutOfMemoryError"]}, True, {}, False),
        ({"status": "error", "kinds": ["AcceleratorError"]}, True, {}, True),
        ({"status": "ok"}, False, {}, True),
        ({"status": "ok"}, True, {"compile": True}, True),
        ({"status": "ok"}, True, {"workers": 2}, True),
    ],
)
def test_on_a_gpu_a_process_is_used_again_until_something_spoils_it(
    monkeypatch: pytest.MonkeyPatch,
    answer: dict[str, Any],
    left: bool,
    request_: dict[str, Any],
    spent: bool,
) -> None:
    monkeypatch.setattr(bench_serve, "on_cpu", lambda _: False)
    monkeypatch.setattr(bench_serve, "emptied", lambda: left)
    server = bench_serve.Server(lambda _: dict(answer), lambda _: None)
    assert server.answer(request_)["spent"] is spent


def died(ends: Callable[[], object]) -> int:
    answer = bench_serve.in_fork(lambda: {"status": str(ends())})
    assert answer["status"] == "died"
    return int(answer["exit"])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_fork_that_says_nothing_is_told_by_how_it_ended() -> None:
    assert died(lambda: os._exit(3)) == 3
    assert died(lambda: os.kill(os.getpid(), 9)) == -9
    assert bench_serve.in_fork(lambda: {"status": "x" * 300_000})["status"] == "x" * 300_000


def test_a_small_card_keeps_300_mib_free_and_a_host_its_percent() -> None:
    small = Device(device="cuda:0", name="", limit_bytes=4 << 30)
    large = Device(device="cuda", name="", limit_bytes=80 << 30)
    assert limit_of(small, 0.02) == (4 << 30) - (300 << 20)
    assert limit_of(large, 0.02, 1 << 30) == (80 * (1 << 30)) - int((80 << 30) * 0.02) - (1 << 30)
    assert limit_of(small, 0.0) == 4 << 30
    assert limit_of(Device(device="cpu", name="", limit_bytes=1000), 0.02) == 980
