"""The Python functions that the optimisation guide describes: `BatchSizeOptimizer` and
`auto_optimize_config`."""

from __future__ import annotations

import json
import os
import pickle
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from gpusetup.configs.config import read_config
from gpusetup.configs.keys import is_switched_off, key_of
from gpusetup.errors import BadInput, Unsatisfiable, UsageError
from gpusetup.model.codec import to_plain
from gpusetup.model.frozen import replace
from gpusetup.model.units import GIB
from gpusetup.tune.answer import TuneAnswer
from gpusetup.tune.bench import Bench, BenchJob, Goal, Say, Trial, fastest, raise_if_code_fails
from gpusetup.tune.case import facts_of
from gpusetup.tune.config_file import read_bytes, with_proposal
from gpusetup.tune.rules import propose

TRIAL_SECONDS = 6.0
"""The maximum time in seconds that one trial spends on timed steps; a search has 14 trials at
most."""
BUSY_PERCENT = 85.0
"""The default for `target_gpu_util`, in percent of the time. A GPU that is busy for less than this
waits for something."""


def precision_in(config: Mapping[str, Any]) -> Any:
    """The search option `amp` of a dict, or what its switches for mixed precision mean: `bf16`,
    `fp16`, or True for the type that suits the GPU; None if it has none.

    >>> precision_in({"batch_size": 16, "use_mixed_precision": True}), precision_in({})
    (True, None)
    """
    for name, value in config.items():
        key = key_of((str(name),))
        role = key.role if key else None
        # A config may switch it off by a word, as Accelerate's `mixed_precision: "no"` does.
        if role == "amp" and not is_switched_off(str(value)):
            return value
        if role in ("bf16", "fp16") and value is True:
            return role
    return None


class BatchSizeOptimizer:
    """Finds the batch size for a model on this machine by running it.

    `config` may contain `loss` (a function of output and target), `optimizer` (a function of the
    parameters, by default AdamW), `amp` (`bf16`, `fp16`, or True for the type that suits the GPU),
    `max_batch_size`, `memory_limit_bytes` (by default a quarter of the free memory on a CPU) and
    `say` (a function that is called with a line about each size; by default these lines go to
    standard error). It may also be your training config: the search uses its mixed precision.
    """

    def __init__(self, model: Any, config: Mapping[str, Any] | None = None) -> None:
        # A trial's child has this variable, and imports the script to load the model.
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
        faster. Raises `Unsatisfiable` if not even one sample fits, and `BadInput` if the model does
        not train.
        """
        limit = self.config.get("memory_limit_bytes")
        say: Say = self.config.get("say") or partial(
            print, "gpusetup:", file=sys.stderr, flush=True
        )
        trials: list[Trial] = []
        with self._saved_job(sample_data) as job, Bench(job) as bench:
            device = bench.device()
            # The 16-bit type of `amp: True` depends on the device.
            amp = precision_in(self.config)
            bench.job = replace(job, amp=device.half if amp is True else amp)
            # On a CPU, other programs need the memory too, so use a quarter of what is free. Use at
            # least 1 GiB (if there is as much), because torch itself needs a part of it.
            if not device.is_gpu and not limit:
                quarter = max(device.limit_bytes // 4, min(GIB, device.limit_bytes))
                device = replace(device, limit_bytes=quarter)
            goal = Goal(
                limit_bytes=device.room(), largest=self.config.get("max_batch_size") or None
            )
            bench.find(goal, trials, say, speed=True)
        raise_if_code_fails(job, trials)
        size = fastest(trials, goal, busy=target_gpu_util)
        if size is None:
            raise Unsatisfiable(
                f"Not even the smallest batch runs within {device.limit_bytes / GIB:.1f} GiB",
                hint="`memory_limit_bytes` of the config allows more",
            )
        rows = [to_plain(trial) for trial in trials]
        return size, {
            **next(row for row in rows if row["batch"] == size and row["status"] == "ok"),
            "trials": rows,
        }

    @contextmanager
    def _saved_job(self, sample_data: Any) -> Iterator[BenchJob]:
        """The job for the child, which reads the model and the batch from a file, and from a second
        one where to import their classes; BadInput if they cannot be saved."""
        import torch  # takes seconds, and `auto_optimize_config` needs none

        # A training config may use these names for the name of a loss or an optimizer.
        functions = {
            name: function
            for name in ("loss", "optimizer")
            if callable(function := self.config.get(name))
        }
        parts = {"model": self.model, "batch": sample_data, **functions}
        # The names are those of `multiprocessing.spawn.prepare`.
        import_paths = {"sys_path": sys.path}
        main_file: Any = getattr(sys.modules.get("__main__"), "__file__", None)
        if main_file:
            import_paths["init_main_from_path"] = main_file
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
            yield BenchJob(
                pickle=str(path),
                seconds=TRIAL_SECONDS,
                memory_limit_bytes=self.config.get("memory_limit_bytes") or None,
            )


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
    # Not at the top, because `BatchSizeOptimizer` reads no machine.
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
