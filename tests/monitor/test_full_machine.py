"""A full machine: whether the command misses the CPU, or waits for a disk or slow workers."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from each_row import each
from monitor_composer import TRAIN, Host, Run, Tree, compose

from gpusetup.model.frozen import replace
from gpusetup.monitor.documents import TreeSample
from gpusetup.monitor.host import ProcessTree
from gpusetup.monitor.run import RunTally
from gpusetup.monitor.summary import UNJUDGED, summarise

FULL = Host(cores=2, others=185)


@each(
    "tree, said",
    [
        (Tree(main=45, cores=2), "input-starved/cores free-the-cpu"),
        (Tree(main=16, workers=2, each=1, cores=2), "input-starved/each-step fetch-in-advance"),
        (Tree(main=27, reads=6e7, blocked=0.6, cores=2), "input-starved/storage faster-storage"),
    ],
)
def test_a_cpu_training_on_a_full_machine(tree: Tree, said: str) -> None:
    assert verdict_of(compose(random.Random(3), [], tree, FULL, command=TRAIN)) == said


@each("cores, said", [(64, "cpu-bound/computes more-cores"), (2, "cpu-bound/computes use-a-gpu")])
def test_all_cores_of_a_quota_are_not_all_of_the_machine(cores: int, said: str) -> None:
    host = Host(cores=cores, others=0)
    run = compose(random.Random(3), [], Tree(main=198, cores=2), host, command=TRAIN)
    assert verdict_of(run) == said


def verdict_of(run: Run) -> str:
    summary = summarise(RunTally(run.samples), replace(UNJUDGED, command=run.command))
    assert summary.next is not None
    words = f"{summary.next.text} {summary.evidence}"
    assert "rank" not in words and "NCCL" not in words and "?" not in words
    return f"{summary.verdict}/{summary.cause} {summary.next.id}"


def samples_of(program: str, seconds: float, *, every: float = 0.2) -> list[TreeSample]:
    """What the monitor samples of a Python program."""
    child = subprocess.Popen([sys.executable, "-c", program], start_new_session=True)
    try:
        tree = ProcessTree(child.pid)
        samples = []
        until = time.monotonic() + seconds
        while time.monotonic() < until and child.poll() is None:
            sample = tree.sample()
            if sample is not None:
                samples.append(sample)
            time.sleep(every)
        return samples
    finally:
        # With its children.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


READER = """
import os, time
for round in range(3):
    children = []
    for _ in range(2):
        pid = os.fork()
        if pid == 0:
            data = os.open({file!r}, os.O_RDONLY)
            for _ in range(8):
                os.pread(data, 1 << 22, 0)
                time.sleep(0.05)
            time.sleep(0.5)
            os._exit(0)
        children.append(pid)
    for pid in children:
        os.waitpid(pid, 0)
    time.sleep(0.6)
"""
READ_BYTES = 3 * 2 * 8 * (1 << 22)


@pytest.mark.skipif(sys.platform != "linux", reason="Linux's counters")
def test_what_ended_workers_have_read_is_counted_once(tmp_path: Path) -> None:
    file = tmp_path / "data"
    file.write_bytes(bytes(1 << 22))
    program = READER.format(file=str(file))
    began = time.monotonic()
    samples = samples_of(program, 20)
    mean_rate = sum(sample.input_bytes_per_second or 0 for sample in samples) / len(samples)
    read_bytes = mean_rate * (time.monotonic() - began)
    assert read_bytes < READ_BYTES * 1.4, f"{read_bytes / READ_BYTES:.1f} times of what was read"
