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
from monitor_composer import TRAIN, Gpu, Host, Run, Tree, compose

from gpusetup.model.frozen import replace
from gpusetup.monitor.documents import Summary, TreeSample
from gpusetup.monitor.host import ProcessTree
from gpusetup.monitor.run import RunTally
from gpusetup.monitor.summary import UNJUDGED, summarise
from gpusetup.render.monitor import summary_text

FULL = Host(cores=2, others=185)


def with_wait(run: Run, waited: float | None) -> Run:
    """The run, in which the command's threads waited so long for a core, in percent of one."""
    samples = []
    for sample in run.samples:
        tree = sample.tree and replace(sample.tree, cpu_wait_percent=waited)
        samples.append(replace(sample, tree=tree))
    return replace(run, samples=tuple(samples))


def judged(run: Run) -> Summary:
    return summarise(RunTally(run.samples), replace(UNJUDGED, command=run.command, exit=run.exit))


def on_a_full_machine(tree: Tree, waited: float | None, gpus: list[Gpu] | None = None) -> Summary:
    run = compose(random.Random(3), gpus or [], tree, FULL, command=TRAIN)
    return judged(with_wait(run, waited))


SLEEPING = Tree(main=16, workers=2, each=1, cores=2)
READING = Tree(main=27, workers=0, reads=6e7, blocked=0.6, cores=2)
IN_A_CONTAINER = Tree(main=198, workers=0, cores=2)
COMPUTING = Tree(main=45, workers=0, cores=2)
DECODING = Tree(main=5, workers=1, each=45, cores=2)


@each(
    "tree, waited, said",
    [
        (COMPUTING, 55, "input-starved/neighbours free-the-cpu"),
        (COMPUTING, None, "input-starved/neighbours free-the-cpu"),
        (DECODING, 55, "input-starved/neighbours free-the-cpu"),
        # The command got what it wanted, however full the machine is.
        (COMPUTING, 5, "bursty/waits see-where-it-waits"),
        (SLEEPING, 4, "input-starved/slow-items fetch-in-advance"),
        (SLEEPING, 30, "input-starved/slow-items fetch-in-advance"),
        (SLEEPING, None, "input-starved/slow-items fetch-in-advance"),
        (READING, 20, "input-starved/storage faster-storage"),
        (READING, None, "input-starved/storage faster-storage"),
        (READING, 90, "input-starved/neighbours free-the-cpu"),
    ],
)
def test_a_cpu_training_on_a_full_machine(tree: Tree, waited: float | None, said: str) -> None:
    summary = on_a_full_machine(tree, waited)
    assert summary.next is not None
    assert f"{summary.verdict}/{summary.cause} {summary.next.id}" == said, summary.evidence
    words = f"{summary.next.text} {summary.evidence}"
    if waited is not None:
        assert "threads waiting for a core" in summary_text(summary)
    assert "rank" not in words and "NCCL" not in words and "?" not in words


@each("cores, said", [(64, "cpu-bound/all-cores more-cores"), (2, "cpu-bound/all-cores use-a-gpu")])
def test_all_cores_of_a_quota_are_not_all_of_the_machine(cores: int, said: str) -> None:
    host = Host(cores=cores, others=0)
    run = compose(random.Random(3), [], IN_A_CONTAINER, host, command=TRAIN)
    summary = judged(with_wait(run, 300))
    assert summary.next is not None
    assert f"{summary.verdict}/{summary.cause} {summary.next.id}" == said, summary.evidence


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

only_linux = pytest.mark.skipif(sys.platform != "linux", reason="Linux's counters")


@only_linux
def test_what_ended_workers_have_read_is_counted_once(tmp_path: Path) -> None:
    file = tmp_path / "data"
    file.write_bytes(bytes(1 << 22))
    program = READER.format(file=str(file))
    began = time.monotonic()
    samples = samples_of(program, 20)
    mean_rate = sum(sample.input_bytes_per_second or 0 for sample in samples) / len(samples)
    read_bytes = mean_rate * (time.monotonic() - began)
    assert read_bytes < READ_BYTES * 1.4, f"{read_bytes / READ_BYTES:.1f} times of what was read"


@only_linux
def test_threads_that_get_no_core_are_counted_as_waiting() -> None:
    # Four processes on one core: each gets a part of it.
    on_one_core = "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})"
    program = f"import os\n{on_one_core}\nos.fork(); os.fork()\nwhile True: pass"
    samples = samples_of(program, 3)
    waits = [sample.cpu_wait_percent for sample in samples if sample.cpu_wait_percent is not None]
    if not waits:
        pytest.skip("this kernel does not count the waiting")
    assert max(waits) > 100, waits
