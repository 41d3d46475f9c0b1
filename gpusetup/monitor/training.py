"""For use inside a training script: watches the training and gives a verdict, and reports the
memory of torch's allocator.

A separate process of ours watches the training process: it takes samples, writes them to a file,
and ends with the training, however that ends. The training itself only starts this process and
reads its verdict. It starts no thread, and if nothing can be watched, the training continues
anyway. What only the watching needs is imported when it begins or ends, so that a training that
only prints its memory starts quickly.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.units import GIB
from gpusetup.monitor.documents import Summary

STOP_SECONDS = 20.0
"""How many seconds the watching process may take to end."""
RANK_VARIABLES = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK")
"""Variables in which torchrun, Slurm and Open MPI set the number of a rank on its machine."""
WORLD_VARIABLES = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE")
"""Variables in which torchrun and Open MPI set how many ranks they started on this machine."""


class TrainingMonitor:
    """Watches this training while the `with` block runs.

        with TrainingMonitor("run.jsonl") as monitor:
            train()
        print(monitor.summary.verdict, monitor.summary.evidence)

    `record`: a file of JSON lines, with one sample per line, which `gpusetup monitor --replay` can
    read. `interval`: seconds between samples. If several ranks run on a machine, the first one
    watches them all, and the others start nothing. If nothing can be watched, the summary's
    `verdict` is None and its `evidence` gives the reason; `problem` also contains it after a
    failure.
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
        # If the training ended with an error, full memory counts as the cause.
        self.stop(failed=problem is not None)

    def start(self) -> None:
        """Start watching in a separate process; if that fails, only warn."""
        if self._child is not None:  # it is watching already
            return
        # In a Slurm job, torchrun's variable counts, which is the first of them.
        ranks = [os.environ[name] for name in RANK_VARIABLES if name in os.environ]
        if ranks and ranks[0] != "0":
            reason = "the first rank on this machine watches all of them"
            self.summary = Summary(verdict=None, evidence=reason)
            return
        from gpusetup.system.processes import start_background

        # If a launcher started this process as one of several ranks, watch the launcher, and
        # thereby all ranks. If the launcher has ended, the parent is init, whose pid is 1.
        has_several = any(os.environ.get(name, "1") != "1" for name in WORLD_VARIABLES)
        pid = os.getppid() if has_several and os.getppid() > 1 else os.getpid()
        program = (sys.executable, "-m", "gpusetup", "monitor", "--json", "--output")
        options = ("--interval", f"{self.interval:g}", "--pid", str(pid))
        try:
            self.record.unlink(missing_ok=True)
            self._child = start_background((*program, str(self.record), *options))
        except OSError as problem:
            self._warn(problem.strerror or str(problem))

    def stop(self, *, failed: bool = False) -> Summary:
        """Stop watching, and return the summary with the verdict. `failed` means that the training
        ended with an error, which can change the verdict."""
        from gpusetup.errors import GpuSetupError
        from gpusetup.monitor.record import read_recording
        from gpusetup.monitor.summary import recorded_samples, summarise
        from gpusetup.system.processes import interrupt

        child, self._child = self._child, None
        if child is None:
            return self.summary
        was_watching = child.poll() is None
        if was_watching:
            interrupt(child)
        try:
            output, _ = child.communicate(timeout=STOP_SECONDS)
        except Exception:
            # The watching process must not outlive the training, whatever delays it.
            child.kill()
            output, _ = child.communicate()
        try:
            recording = read_recording(str(self.record))
            tally, recorded = recorded_samples(recording.documents)
            summary = summarise(tally, replace(recorded, exit=int(failed)))
        except GpuSetupError:  # no record
            summary = None
        if summary is not None and summary.samples:
            self.summary = summary
        elif was_watching:
            self._warn("the training ended before the first sample")
        else:
            reason = "the watching process did not respond"
            # With `--json`, its error is a document in the last line.
            with suppress(ValueError, KeyError, TypeError, IndexError):
                reason = str(json.loads(output.splitlines()[-1])["message"])
            self._warn(reason)
        return self.summary

    def _warn(self, problem: str) -> None:
        """Warn that this training is not watched, and why; the training continues."""
        self.problem = problem
        self.summary = Summary(verdict=None, evidence=problem)
        # The warning points to the line that called `start` or `stop`.
        warnings.warn(f"gpusetup does not watch this training: {problem}", stacklevel=3)


class DeviceMemory(Frozen):
    """The memory of one CUDA device: `allocated` is used by tensors, and `reserved` is what torch's
    allocator has taken from the device, including its cache."""

    device: str
    name: str | None
    allocated_bytes: int
    reserved_bytes: int
    total_bytes: int
    peak_allocated_bytes: int

    def __str__(self) -> str:
        def gib(size: int) -> str:
            return f"{size / GIB:.2f} GiB"

        name = f"{self.device} {self.name or ''}".rstrip()
        # Most users look for the peak, because it decides whether a run fits.
        tensors = f"{gib(self.allocated_bytes)} (peak {gib(self.peak_allocated_bytes)})"
        others = f"reserved {gib(self.reserved_bytes)}, total {gib(self.total_bytes)}"
        return f"{name}: allocated {tensors}, {others}"


class MemoryReport(Frozen):
    devices: tuple[DeviceMemory, ...]

    def __str__(self) -> str:
        report = "\n".join(map(str, self.devices))
        return report or "No CUDA device is in use by this process."


def memory_report() -> MemoryReport:
    """The allocated, reserved and total memory of every CUDA device of this process.

    This does not initialise CUDA: if torch was not imported or CUDA has not been used yet, the
    report has no devices. Print it, or read its fields:

        print(memory_report())
        memory_report().devices[0].allocated_bytes
    """
    torch = sys.modules.get("torch")
    # A query would initialise CUDA, which itself takes memory.
    if torch is None or not torch.cuda.is_initialized():
        return MemoryReport(devices=())
    devices = []
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        device = DeviceMemory(
            device=f"cuda:{index}",
            name=properties.name,
            allocated_bytes=torch.cuda.memory_allocated(index),
            reserved_bytes=torch.cuda.memory_reserved(index),
            total_bytes=properties.total_memory,
            peak_allocated_bytes=torch.cuda.max_memory_allocated(index),
        )
        devices.append(device)
    return MemoryReport(devices=tuple(devices))
