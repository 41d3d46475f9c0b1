"""The optimisation guide's functions for Python: `BatchSizeOptimizer`, `auto_optimize_config`."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from typing import Any

from gpusetup.configs.config import edited, read_config
from gpusetup.errors import BadInput, Unsatisfiable, UsageError
from gpusetup.model.frozen import replace
from gpusetup.model.units import GIB
from gpusetup.tune.bench import Bench, BenchJob, raise_if_code_fails, saved_job
from gpusetup.tune.case import Proposal, facts_of
from gpusetup.tune.rules import propose
from gpusetup.tune.search import Goal, Trial, fastest, largest_that_ran, next_for_speed, stopped

TOTAL_SECONDS = 120.0
"""How long a search takes at most."""
BUSY_PERCENT = 85.0
"""Percent of the time; below it the GPU waits for something."""


class BatchSizeOptimizer:
    """Finds the batch size for a model on this machine by running it.

    `config` may name `loss` (a callable of output and target), `optimizer` (a name, or a callable
    of the parameters), `amp` (`bf16`, `fp16`), `compile`, `device`, `max_batch_size`,
    `memory_limit_bytes` (on a CPU a quarter of what is free), `total_seconds` (120), `steps`,
    `seconds` and `say` (a callable that is told each size; without it they stand on standard
    error).
    """

    def __init__(self, model: Any, config: Mapping[str, Any] | None = None) -> None:
        if os.environ.get("GPUSETUP_PROBE"):
            raise BadInput(
                "This script was started again by its own search for the batch size",
                hint='put the script\'s main code under `if __name__ == "__main__":`',
            )
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise UsageError(
                "Several ranks run this script, and each would find another batch size",
                hint="find the size once before `torchrun`, and give it to all ranks",
            )
        self.model = model
        self.config = dict(config or {})

    def find_optimal_batch_size(
        self, sample_data: Any, target_gpu_util: float = BUSY_PERCENT
    ) -> tuple[int, dict[str, Any]]:
        """The smallest size that keeps the GPU `target_gpu_util` percent busy, where NVML tells,
        else the smallest one at the knee of samples a second; and the statistics.

        `sample_data` is one example batch, of any length: (inputs, target), a tensor, or keywords
        of the model. Sizes grow as long as each is faster, for `total_seconds` at most. Raises
        `Unsatisfiable` if not even one sample fits, `BadInput` if the model does not train.
        """
        from gpusetup.model.codec import to_plain

        config, began = self.config, time.monotonic()
        total_seconds = float(config.get("total_seconds") or TOTAL_SECONDS)
        say = config.get("say") or print_progress
        optimizer, loss = config.get("optimizer"), config.get("loss")
        if loss is None and hasattr(sample_data, "shape"):
            loss = mean_loss
        optimizer_name = optimizer if isinstance(optimizer, str) else None
        job_parts = {
            "model": self.model,
            "batch": sample_data,
            "loss": loss,
            "optimizer": None if optimizer_name else optimizer,
        }
        option_names = ("amp", "memory_limit_bytes", "steps", "seconds", "compile")
        with saved_job(job_parts) as path:
            job = BenchJob(
                pickle=path,
                optimizer=(optimizer_name or "adamw").lower(),
                device=str(config.get("device") or "auto"),
                **{name: config[name] for name in option_names if config.get(name)},
            )
            with Bench(job) as bench:
                device = bench.device()
                limit, limit_note = device.limit_bytes, ""
                if not device.is_gpu and not job.memory_limit_bytes:
                    # 1 GiB at least, of which torch alone takes a part
                    limit = max(limit // 4, min(GIB, limit))
                    limit_note = ", a quarter of the free memory"
                say(
                    f"Batch sizes on {device.name}: for {total_seconds:g} s at most"
                    f" (`total_seconds`), within {limit / GIB:.1f} GiB{limit_note}"
                    " (`memory_limit_bytes`)"
                )
                goal = Goal(
                    limit_bytes=replace(device, limit_bytes=limit).room(),
                    largest=config.get("max_batch_size"),
                    ends=began + total_seconds,
                )
                trials: list[Trial] = []
                bench.find(goal, trials, say, speed=True)
        size = fastest(trials, goal, busy=target_gpu_util)
        raise_if_code_fails(job, trials)
        if size is None:
            raise Unsatisfiable(
                f"Not even the smallest batch runs within {limit / GIB:.1f} GiB and"
                f" {total_seconds:g} s",
                hint="`memory_limit_bytes` and `total_seconds` of the config allow more",
            )
        is_out_of_time = next_for_speed(trials, goal) is not None
        trial_rows = [to_plain(one) for one in trials]
        return size, {
            **next(one for one in trial_rows if one["batch"] == size and one["status"] == "ok"),
            "largest_batch_size": largest_that_ran(trials, goal),
            "limit_bytes": goal.limit_bytes,
            "stopped": "its time was over" if is_out_of_time else stopped(trials, goal),
            "trials": trial_rows,
        }


def print_progress(line: str) -> None:
    """A line on standard error."""
    print(f"gpusetup: {line}", file=sys.stderr, flush=True)


def mean_loss(output: Any, _: Any) -> Any:
    """A loss for one bare tensor of inputs: the model's own, else the mean of what it gives."""
    from gpusetup.child_scripts.trace_step import own_loss

    own = own_loss(output)
    if own is not None:
        return own
    first = output[0] if isinstance(output, tuple | list) else output
    return first.float().mean()


# --- a config -----------------------------------------------------------------------------------


def auto_optimize_config(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    machine: str | None = None,
) -> Proposal:
    """Write the config at `source`, made to fit this machine (or the one named), to `target`.

    Only what cannot change the experiment is changed: the answer's `changes` say what and why, its
    `words` the rest. `source` and `target` may be the same file. Raises `BadInput` for what is no
    config.
    """
    from gpusetup.tune.config_file import read_bytes, write_tuned

    source_bytes = read_bytes(str(source))
    config = read_config(source_bytes, str(source))
    proposal = propose(config, facts_of(_machine(machine)))
    tuned = edited(config, proposal.edits)
    write_tuned(str(source), str(target), source_bytes, tuned.raw)
    return proposal


def _machine(name: str | None) -> Any:
    if name is not None:
        from gpusetup.probe.snapshot_files import machine_named

        return machine_named(name)
    from gpusetup.probe.machine import read_machine
    from gpusetup.probe.nvidia_smi import with_gpus_of_nvidia_smi
    from gpusetup.system.system import System

    system = System()
    return with_gpus_of_nvidia_smi(read_machine(system), system)
