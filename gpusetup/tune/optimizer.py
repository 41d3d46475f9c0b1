"""The Python functions that the optimisation guide describes: `BatchSizeOptimizer` and
`auto_optimize_config`."""

from __future__ import annotations

import json
import os
import pickle
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from gpusetup.configs.config import read_config
from gpusetup.configs.keys import key_of
from gpusetup.errors import BadInput, Unsatisfiable, UsageError
from gpusetup.model.codec import to_plain
from gpusetup.model.frozen import replace
from gpusetup.model.units import GIB
from gpusetup.tune.answer import TuneAnswer
from gpusetup.tune.bench import Bench, BenchJob, Say, raise_if_code_fails
from gpusetup.tune.case import facts_of
from gpusetup.tune.config_file import read_bytes, with_proposal
from gpusetup.tune.rules import propose
from gpusetup.tune.search import Goal, Trial, fastest, largest_that_ran, stopped

TOTAL_SECONDS = 120.0
"""The default time limit of a search."""
TRIAL_SHARE = 0.1
"""The share of a search's time that one trial may spend on timed steps; the rest is for trials of
larger sizes."""
BUSY_PERCENT = 85.0
"""The default for `target_gpu_util`, in percent of the time. A GPU that is busy for less than this
waits for something."""
OPTIONS = (
    "loss", "optimizer", "amp", "compile", "device", "max_batch_size", "memory_limit_bytes",
    "total_seconds", "steps", "say",
)  # fmt: skip
"""The keys in the config dict that are options of the search."""


def search_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """The search options in a dict of them, or those that a training config's switches for mixed
    precision and compiling mean; other keys are ignored.

    >>> search_config({"batch_size": 16, "use_mixed_precision": True, "loss": "l1"})
    {'amp': True}
    """
    options: dict[str, Any] = {}
    for name, value in config.items():
        key = key_of((str(name),))
        role = key.role if key else None
        # A training config may use an option's name for something else (`loss: l1`).
        is_text = isinstance(value, str) and name in ("loss", "optimizer", "say")
        if name in OPTIONS and value is not None and value is not False and not is_text:
            options[name] = value
        elif role in ("amp", "bf16", "fp16") and value is True:
            # The search option `amp` takes precedence over the config's switches.
            options.setdefault("amp", True if role == "amp" else role)
        elif role == "compile" and value is True:
            options.setdefault("compile", True)
    return options


class BatchSizeOptimizer:
    """Finds the batch size for a model on this machine by running it.

    `config` may contain `loss` (a function of output and target), `optimizer` (a function of the
    parameters, by default AdamW), `amp` (`bf16`, `fp16`, or True for the type that suits the GPU),
    `compile`, `device`, `max_batch_size`, `memory_limit_bytes` (by default a quarter of the free
    memory on a CPU), `total_seconds` (by default 120), `steps` and `say` (a function that is called
    with a line about each size; by default these lines go to standard error). It may also be your
    training config: the search uses its mixed precision and compile settings.
    """

    def __init__(self, model: Any, config: Mapping[str, Any] | None = None) -> None:
        if os.environ.get("GPUSETUP_PROBE"):
            raise BadInput(
                "This script was started again by its own search for the batch size",
                hint='put the script\'s main code under `if __name__ == "__main__":`',
            )
        if os.environ.get("WORLD_SIZE", "1") not in ("", "0", "1"):
            raise UsageError(
                "Several ranks run this script, and each would find another batch size",
                hint="find the size once before `torchrun`, and give it to all ranks",
            )
        self.model = model
        self.config = dict(config or {})

    def find_optimal_batch_size(
        self, sample_data: Any, target_gpu_util: float = BUSY_PERCENT
    ) -> tuple[int, dict[str, Any]]:
        """Returns the smallest batch size that keeps the GPU busy for `target_gpu_util` percent of
        the time, and statistics. Without NVML, it is the smallest batch size that reaches nearly
        the best speed.

        `sample_data` is an example batch of any length: a pair (inputs, target), a tensor, or a
        dict of keyword arguments for the model. The search tries larger sizes as long as they are
        faster, for at most `total_seconds`. Raises `Unsatisfiable` if not even one sample fits, and
        `BadInput` if the model does not train.
        """
        began = time.monotonic()
        options = search_config(self.config)
        total_seconds = float(options.get("total_seconds") or TOTAL_SECONDS)
        options["seconds"] = TRIAL_SHARE * total_seconds
        say: Say = options.get("say") or partial(print, "gpusetup:", file=sys.stderr, flush=True)
        trials: list[Trial] = []
        with self._saved_job(options, sample_data) as job, Bench(job) as bench:
            device = bench.device()
            # The 16-bit type of `amp: True` depends on the device.
            if options.get("amp") is True:
                bench.job = replace(job, amp=device.half)
            # On a CPU, other programs need the memory too. At least 1 GiB, because torch itself
            # needs a part of it.
            if not device.is_gpu and not options.get("memory_limit_bytes"):
                quarter = max(device.limit_bytes // 4, min(GIB, device.limit_bytes))
                device = replace(device, limit_bytes=quarter)
            say(
                f"Batch sizes on {device.name}: for {total_seconds:g} s at most"
                f" (`total_seconds`), within {device.limit_bytes / GIB:.1f} GiB"
                " (`memory_limit_bytes`)"
            )
            goal = Goal(
                limit_bytes=device.room(),
                largest=options.get("max_batch_size"),
                # Even if torch starts slowly, keep half of the time for trials.
                ends=max(began + total_seconds, time.monotonic() + total_seconds / 2),
            )
            bench.find(goal, trials, say, speed=True)
        raise_if_code_fails(job, trials)
        size = fastest(trials, goal, busy=target_gpu_util)
        if size is None:
            raise Unsatisfiable(
                f"Not even the smallest batch runs within {device.limit_bytes / GIB:.1f} GiB and "
                f"{total_seconds:g} s",
                hint="`memory_limit_bytes` and `total_seconds` of the config allow more",
            )
        rows = [to_plain(trial) for trial in trials]
        return size, {
            **next(row for row in rows if row["batch"] == size and row["status"] == "ok"),
            "largest_batch_size": largest_that_ran(trials, goal),
            "limit_bytes": goal.limit_bytes,
            "stopped": stopped(trials, goal),
            "trials": rows,
        }

    @contextmanager
    def _saved_job(self, options: Mapping[str, Any], sample_data: Any) -> Iterator[BenchJob]:
        """The job for the child, which reads the model and the batch from a file; BadInput if they
        cannot be saved."""
        import torch

        parts = {
            "model": self.model,
            "batch": sample_data,
            "loss": options.get("loss"),
            "optimizer": options.get("optimizer"),
        }
        names = ("amp", "memory_limit_bytes", "steps", "seconds", "compile")
        given = {name: options[name] for name in names if options.get(name)}
        if given.get("amp") is True:
            del given["amp"]
        import_paths = {"sys_path": sys.path}
        main_file: Any = getattr(sys.modules.get("__main__"), "__file__", None)
        if main_file:
            import_paths["init_main_from_path"] = main_file
        device = str(options.get("device") or "auto")
        with tempfile.TemporaryDirectory(prefix="gpusetup-") as folder:
            path = Path(folder, "job.pt")
            try:
                torch.save(parts, path)
            except (pickle.PicklingError, AttributeError, TypeError) as problem:
                raise BadInput(
                    f"gpusetup cannot pass the model to a child process: {problem}",
                    hint="define it at the top of a module, or use "
                    "`gpusetup tune --batch-size --code`",
                ) from problem
            Path(f"{path}.json").write_text(json.dumps(import_paths), encoding="utf-8")
            yield BenchJob(pickle=str(path), device=device, **given)


# --- a config -----------------------------------------------------------------------------------


def auto_optimize_config(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    machine: str | None = None,
) -> TuneAnswer:
    """Adapt the config at `source` to this machine (or to the machine named in `machine`), and
    write it to `target`.

    Only settings that cannot change the experiment are changed. The result's `changes` list them
    with reasons, and its `recommendations` contain all other advice. `source` and `target` may be
    the same file. Raises `BadInput` if `source` is not a valid config.
    """
    from gpusetup.probe.machine import read_machine
    from gpusetup.probe.nvidia_smi import with_gpus_of_nvidia_smi
    from gpusetup.probe.snapshot_files import machine_named
    from gpusetup.system.system import System

    config = read_config(read_bytes(str(source)), str(source))
    if machine is not None:
        snapshot = machine_named(machine)
    else:
        system = System()
        snapshot = with_gpus_of_nvidia_smi(read_machine(system), system)
    facts = facts_of(snapshot)
    proposal = propose(config, facts)
    answer = TuneAnswer(device=facts.gpu)
    return with_proposal(answer, config, proposal, source=str(source), target=str(target))
