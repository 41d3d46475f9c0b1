"""From inside a training: a record with a verdict, and what torch's allocator holds.

A process of our own watches the training's process; it samples, writes the record, and ends with
the training however that ends. The training itself only starts it and reads its verdict: no thread
is started, and where nothing can be watched the training goes on all the same.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any

from gpusetup.model.frozen import Frozen
from gpusetup.monitor.documents import Summary

STOP_SECONDS = 20.0
"""How long the watching process may take to end."""
RANK_VARIABLES = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK")
WORLD_VARIABLES = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE")


class TrainingMonitor:
    """Watches this training while the block runs.

        with TrainingMonitor("run.jsonl") as monitor:
            train()
        print(monitor.summary.verdict, monitor.summary.evidence)

    `record`: JSON lines, one sample a line, to be read by `gpusetup monitor --replay`. `interval`:
    seconds between samples. Of several ranks on a machine the first one watches them all; in the
    others nothing is started. Where nothing is watched, the summary's `verdict` is None and its
    `evidence` says why, as `problem` does of a failure.
    """

    def __init__(self, record: str | Path = "monitor.jsonl", *, interval: float = 1.0) -> None:
        self.record = Path(record)
        self.interval = interval
        self.summary = Summary(verdict=None, evidence="nothing was watched yet")
        self.problem: str | None = None
        self._child: Any = None

    def __enter__(self) -> TrainingMonitor:
        self.start()
        return self

    def __exit__(self, kind: Any, problem: Any, trace: Any) -> None:
        self.stop(failed=problem is not None)

    def start(self) -> None:
        """Begin to watch; nothing is raised."""
        if self._child is not None:
            return
        if next((os.environ[name] for name in RANK_VARIABLES if name in os.environ), "0") != "0":
            reason = "the first rank on this machine watches all of them"
            self.summary = Summary(verdict=None, evidence=reason)
            return
        from gpusetup.system.processes import start_background

        # One of several ranks: the launcher above them is watched, and with it all ranks.
        several = (
            any(os.environ.get(name, "1") != "1" for name in WORLD_VARIABLES) and os.getppid() > 1
        )
        pid = os.getppid() if several else os.getpid()
        words = ("--json", "--output", str(self.record), "--interval", f"{self.interval:g}")
        argv = (sys.executable, "-m", "gpusetup", "monitor", *words, "--pid", str(pid))
        try:
            self.record.unlink(missing_ok=True)
            self._child = start_background(argv)
        except OSError as problem:
            self._warn(f"{problem.strerror or problem}")

    def stop(self, *, failed: bool = False) -> Summary:
        """End the watching and read its verdict. `failed`: the training ended with an error, which
        may change the verdict (memory that was full is then what ended it)."""
        from gpusetup.errors import GpuSetupError
        from gpusetup.monitor.record import read_recording
        from gpusetup.monitor.summary import replayed
        from gpusetup.system.processes import interrupt

        child, self._child = self._child, None
        if child is None:
            return self.summary
        ended_early = child.poll() is None
        if ended_early:
            interrupt(child)
        try:
            output, _ = child.communicate(timeout=STOP_SECONDS)
        except Exception:
            child.kill()
            output, _ = child.communicate()
        try:
            documents = read_recording(str(self.record)).documents
            summary = replayed(documents, exit_code=int(failed))
        except GpuSetupError:  # no record
            summary = None
        if summary is None or not summary.samples:
            self._warn(
                "the training ended before the first sample"
                if ended_early
                else last_message(output)
            )
        else:
            self.summary = summary
        return self.summary

    def _warn(self, problem: str) -> None:
        self.problem = problem
        self.summary = Summary(verdict=None, evidence=problem)
        warnings.warn(f"gpusetup does not watch this training: {problem}", stacklevel=3)


def last_message(output: bytes) -> str:
    """What the watching process said last: an error as a document, or a line.

    >>> last_message(b'{"message": "No NVIDIA GPU can be watched"}')
    'No NVIDIA GPU can be watched'
    """
    lines = [line for line in output.decode("utf-8", "replace").splitlines() if line.strip()]
    with contextlib.suppress(ValueError, IndexError):
        return str(json.loads(lines[-1])["message"])
    return lines[-1] if lines else "the watching process gave no answer"


class DeviceMemory(Frozen):
    """One device. `allocated`: by tensors; `reserved`: kept by the allocator for them."""

    device: str
    name: str | None
    allocated_bytes: int
    reserved_bytes: int
    total_bytes: int
    peak_allocated_bytes: int

    def __str__(self) -> str:
        parts = (
            f"allocated {gib(self.allocated_bytes)} (peak {gib(self.peak_allocated_bytes)})",
            f"reserved {gib(self.reserved_bytes)}",
            f"total {gib(self.total_bytes)}",
        )
        return f"{self.device} {self.name or ''}".rstrip() + ": " + ", ".join(parts)


class MemoryReport(Frozen):
    devices: tuple[DeviceMemory, ...]

    def __str__(self) -> str:
        lines = "\n".join(map(str, self.devices))
        return lines or "No CUDA device is in use by this process."


def memory_report() -> MemoryReport:
    """Allocated, reserved and total memory of every CUDA device of this process.

    Reading it starts nothing: where torch was not imported, or CUDA not yet used, there is no
    device. Print it, or read its fields:

        print(memory_report())
        memory_report().devices[0].allocated_bytes
    """
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return MemoryReport(devices=())
    device_count = torch.cuda.device_count()
    devices = [_device(torch, index) for index in range(device_count)]
    return MemoryReport(devices=tuple(devices))


def gib(count: int) -> str:
    """
    >>> gib(3 << 29)
    '1.50 GiB'
    """
    return f"{count / (1 << 30):.2f} GiB"


def _device(torch: Any, index: int) -> DeviceMemory:
    properties = torch.cuda.get_device_properties(index)
    return DeviceMemory(
        device=f"cuda:{index}",
        name=properties.name,
        allocated_bytes=torch.cuda.memory_allocated(index),
        reserved_bytes=torch.cuda.memory_reserved(index),
        total_bytes=properties.total_memory,
        peak_allocated_bytes=torch.cuda.max_memory_allocated(index),
    )
