"""The monitor's parts by themselves: process trees, memory from the inside."""

from __future__ import annotations

import subprocess
import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest

from gpusetup.monitor import memory_report
from gpusetup.monitor.tree import Process, Tree, loader_workers


def process(pid: int, parent: int = 0, **more: object) -> Process:
    known = {"name": "python", "command": ("python", "train.py"), "cpu_seconds": 0.0,
             "memory_bytes": 1 << 30, "started": 100.0 + pid}  # fmt: skip
    return Process(pid=pid, parent=parent, **{**known, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("tree_of", "workers"),
    [
        ([process(1), process(2, 1), process(3, 1)], {2, 3}),
        ([process(1, command=("torchrun",)), process(2, 1), process(3, 2)], {3}),
        ([process(1), process(2, 1, command=("python", "-c", "spawn_main"))], set()),
        ([process(1), process(2, 1, name="pt_data_worker"), process(3, 1)], {2}),
        (
            [process(1, name="sh", command=("sh",)), process(2, 1, name="sh", command=("sh",))],
            set(),
        ),
        ([process(1)], set()),
    ],
    ids=["forks", "under torchrun", "spawned ranks", "by name", "shells", "alone"],
)
def test_loader_workers_are_told_from_other_children(tree_of: Any, workers: set[int]) -> None:
    assert loader_workers(tree_of) == workers


def test_a_real_process_and_its_children_are_seen_until_they_end() -> None:
    script = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])"
    child = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE)
    watched = Tree(child.pid)
    until = time.monotonic() + 30
    while (told := watched.sample()) is None or told.processes < 2:
        assert time.monotonic() < until, "the grandchild was never seen"
        time.sleep(0.05)
    assert told.memory_bytes > 1 << 20 and told.cores
    child.communicate(b"\n")
    assert watched.sample() is None


def test_the_memory_report_starts_nothing_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import sys; from gpusetup.monitor import memory_report;"
         "print(memory_report()); print('torch' in sys.modules)"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "No CUDA device is in use by this process.\nFalse\n"


def test_the_memory_report_has_every_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """A torch of plain figures: device 0 works, device 1 was never used."""
    asked: list[int] = []

    def driver(index: int) -> tuple[int, int]:
        asked.append(index)
        return 5 << 30, 8 << 30

    cuda = SimpleNamespace(
        is_initialized=lambda: True,
        device_count=lambda: 2,
        get_device_properties=lambda index: SimpleNamespace(name="NVIDIA L4", total_memory=8 << 30),
        mem_get_info=driver,
        memory_allocated=lambda index: (2 << 30) * (index == 0),
        memory_reserved=lambda index: (3 << 30) * (index == 0),
        max_memory_allocated=lambda index: (5 << 29) * (index == 0),
        max_memory_reserved=lambda index: (3 << 30) * (index == 0),
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    report = memory_report()
    assert str(report).splitlines() == [
        "cuda:0 NVIDIA L4: allocated 2.00 GiB (peak 2.50 GiB), reserved 3.00 GiB (peak 3.00 GiB), "
        "total 8.00 GiB",
        "cuda:1 NVIDIA L4: allocated 0.00 GiB (peak 0.00 GiB), reserved 0.00 GiB (peak 0.00 GiB), "
        "total 8.00 GiB",
    ]
    assert report.devices[0].free_bytes == 5 << 30
    assert asked == [0], "asking the driver about an unused device would make a context there"
