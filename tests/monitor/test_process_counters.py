"""What the monitor counts of a command's processes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpusetup.monitor.documents import TreeSample
from gpusetup.monitor.host import ProcessTree


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
