"""A record and a verdict from inside a training: a plain loop, Lightning, or transformers.

A process of our own watches the training's process; it samples, writes the record, and ends with
the training however that ends. The training itself only starts it and reads its verdict: no thread
is started, and where nothing can be watched the training goes on all the same.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpusetup.monitor.values import Summary

START_SECONDS = 20.0
"""How long the end of the watching may take."""
RANK = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK")
RANKS = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE")


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
        if not is_first_rank(os.environ):
            told = "the first rank on this machine watches all of them"
            self.summary = Summary(verdict=None, evidence=told)
            return
        from gpusetup.system.processes import beside

        words = ("--json", "--output", str(self.record), "--interval", f"{self.interval:g}")
        argv = (
            sys.executable,
            "-m",
            "gpusetup",
            "monitor",
            *words,
            "--pid",
            str(watched_pid(os.environ)),
        )
        try:
            self.record.unlink(missing_ok=True)
            self._child = beside(argv)
        except OSError as problem:
            self._warn(f"{problem.strerror or problem}")

    def stop(self, *, failed: bool = False) -> Summary:
        """End the watching and read its verdict. `failed`: the training ended with an error, which
        may change the verdict (memory that was full is then what ended it)."""
        child, self._child = self._child, None
        if child is None:
            return self.summary
        from gpusetup.system.processes import interrupt

        early = child.poll() is None
        if early:
            interrupt(child)
        try:
            said, _ = child.communicate(timeout=START_SECONDS)
        except Exception:
            child.kill()
            said, _ = child.communicate()
        found = self._read(failed)
        if found is None:
            self._warn("the training ended before the first sample" if early else why(said))
        self.summary = found or self.summary
        return self.summary

    def _read(self, failed: bool) -> Summary | None:
        """The summary at the record's end, judged again where the training failed."""
        from gpusetup.errors import GpuSetupError
        from gpusetup.monitor.record import recorded
        from gpusetup.monitor.summary import replayed

        if not self.record.is_file():
            return None
        try:
            found = replayed(recorded(str(self.record)).documents, int(failed))
        except GpuSetupError:
            return None
        return found if found.samples else None

    def _warn(self, problem: str) -> None:
        self.problem = problem
        self.summary = Summary(verdict=None, evidence=problem)
        warnings.warn(f"gpusetup does not watch this training: {problem}", stacklevel=3)


def is_first_rank(environment: Mapping[str, str]) -> bool:
    """Of those on this machine.

    >>> is_first_rank({"LOCAL_RANK": "1"}), is_first_rank({"LOCAL_RANK": "0"}), is_first_rank({})
    (False, True, True)
    """
    told = next((environment[name] for name in RANK if name in environment), "0")
    return told == "0"


def watched_pid(environment: Mapping[str, str]) -> int:
    """This process; where it is one of several ranks, the launcher above them."""
    several = any(environment.get(name, "1") != "1" for name in RANKS)
    return os.getppid() if several and os.getppid() > 1 else os.getpid()


def why(said: bytes) -> str:
    """What the watching process said last: an error as a document, or a line.

    >>> why(b'{"message": "No NVIDIA GPU can be watched"}')
    'No NVIDIA GPU can be watched'
    """
    lines = [line for line in said.decode("utf-8", "replace").splitlines() if line.strip()]
    with contextlib.suppress(ValueError, IndexError):
        return str(json.loads(lines[-1])["message"])
    return lines[-1] if lines else "the watching process said nothing"


# --- callbacks ------------------------------------------------------------------------------------


def lightning_callback(record: str | Path = "monitor.jsonl", *, interval: float = 1.0) -> Any:
    """A Lightning `Callback` that watches fit, validate, test and predict: its `summary` is the
    verdict afterwards.

        monitor = lightning_callback()
        Trainer(callbacks=[monitor]).fit(model)
        print(monitor.summary)
    """
    base = _class("Callback", "lightning.pytorch", "pytorch_lightning")
    watching = TrainingMonitor(record, interval=interval)

    def setup(self: Any, trainer: Any, module: Any, stage: str) -> None:
        watching.start()

    def teardown(self: Any, trainer: Any, module: Any, stage: str) -> None:
        self.summary = watching.stop()

    def failed(self: Any, trainer: Any, module: Any, exception: BaseException) -> None:
        self.summary = watching.stop(failed=True)

    hooks = {"setup": setup, "teardown": teardown, "on_exception": failed}
    return _made(base, "LightningMonitor", hooks, watching)


def transformers_callback(record: str | Path = "monitor.jsonl", *, interval: float = 1.0) -> Any:
    """A `TrainerCallback` of transformers: its `summary` is the verdict after the training. A
    training that raises leaves it without a verdict; the record is whole, and `gpusetup monitor
    --replay` judges it.

        monitor = transformers_callback()
        Trainer(model, args, callbacks=[monitor]).train()
    """
    base = _class("TrainerCallback", "transformers")
    watching = TrainingMonitor(record, interval=interval)

    def begin(self: Any, args: Any, state: Any, control: Any, **more: Any) -> None:
        watching.start()

    def end(self: Any, args: Any, state: Any, control: Any, **more: Any) -> None:
        self.summary = watching.stop()

    return _made(
        base, "TransformersMonitor", {"on_train_begin": begin, "on_train_end": end}, watching
    )


def _made(base: Any, name: str, hooks: dict[str, Any], watching: TrainingMonitor) -> Any:
    made = type(name, (base,), hooks)()
    made.monitor, made.summary = watching, watching.summary
    return made


def _class(name: str, *modules: str) -> Any:
    """From the library that is loaded already, else from the first that is there."""
    for module in sorted(modules, key=lambda one: one not in sys.modules):
        try:
            return getattr(importlib.import_module(module), name)
        except ImportError:
            continue
    raise ImportError(f"{' or '.join(modules)} is not installed here")
