"""The optimisation guide's functions for Python: `BatchSizeOptimizer`, `auto_optimize_config`."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpusetup.errors import BadInput, Unsatisfiable
from gpusetup.model.frozen import replace
from gpusetup.model.units import GIB
from gpusetup.tune.bench_child import shared
from gpusetup.tune.knee import fastest, next_for_speed
from gpusetup.tune.measure import (
    MARGIN,
    ROUNDS,
    Job,
    agreed,
    device_of,
    find_batch,
    limit_of,
    own_device,
    refuse_errors,
    saved,
    store_of_ranks,
)
from gpusetup.tune.propose import Option, Proposal, edits, facts_of, propose
from gpusetup.tune.search import answer, stopped
from gpusetup.tune.trial import Goal, Trial

TOTAL_SECONDS = 120.0
"""How long a search takes at most."""
BUSY = 85.0
"""Percent of the time; below it the GPU waits for something."""


class BatchSizeOptimizer:
    """Finds the batch size for a model on this machine by running it.

    `config` may name `loss` (a callable of output and target), `optimizer` (a name, or a callable
    of the parameters), `amp` (`bf16`, `fp16`), `compile`, `device`, `max_batch_size`,
    `memory_limit_bytes` (on a CPU a quarter of what is free), `total_seconds` (120), `margin`,
    `steps`, `seconds`, `multiple_of`, `power_of_two` and `say` (a callable that is told each size;
    without it they stand on standard error).
    """

    def __init__(self, model: Any, config: Mapping[str, Any] | None = None) -> None:
        if os.environ.get("GPUSETUP_PROBE"):
            raise BadInput(
                "This script was started by its own search for the batch size",
                hint='put what it runs under `if __name__ == "__main__":`',
            )
        self.model = model
        self.config = dict(config or {})

    def find_optimal_batch_size(
        self, sample_data: Any, target_gpu_util: float = BUSY
    ) -> tuple[int, dict[str, Any]]:
        """The smallest size that keeps the GPU `target_gpu_util` percent busy, where NVML tells,
        else the smallest one at the knee of samples a second; and the statistics.

        `sample_data` is one example batch, of any length: (inputs, target), a tensor, or keywords
        of the model. Several ranks (torchrun) agree on the
        smallest answer, each on its own GPU (`LOCAL_RANK`). Sizes grow as long as each is faster,
        for `total_seconds` at most. Raises
        `Unsatisfiable` where not even one sample fits, `BadInput` where the model does not train.
        """
        wish, began = self.config, time.monotonic()
        total = float(wish.get("total_seconds") or TOTAL_SECONDS)
        say = wish.get("say") or told
        optimizer = wish.get("optimizer")
        named = optimizer if isinstance(optimizer, str) else None
        made = None if named else optimizer
        loss = wish.get("loss")
        if loss is None and hasattr(sample_data, "shape"):
            loss = mean_of
        with saved(self.model, sample_data, loss, made) as path, shared():
            job = Job(
                pickle=path,
                amp=wish.get("amp"),
                compile=bool(wish.get("compile")),
                optimizer=(named or "adamw").lower(),
                device=str(wish.get("device") or own_device()),
                memory_limit_bytes=wish.get("memory_limit_bytes"),
                steps=int(wish.get("steps") or 12),
                seconds=float(wish.get("seconds") or 20.0),
            )
            device = device_of(job)
            capped = device.device == "cpu" and job.memory_limit_bytes is None
            limit = device.limit_bytes
            if capped:  # 1 GiB at least, of which torch alone takes a part
                limit = max(limit // 4, min(GIB, limit))
            device = replace(device, limit_bytes=limit)
            quarter = ", a quarter of what is free" if capped else ""
            say(
                f"Batch sizes on {device.name}: for {total:g} s at most (`total_seconds`), within"
                f" {limit / GIB:.1f} GiB{quarter} (`memory_limit_bytes`)"
            )
            goal = Goal(
                limit_bytes=limit_of(
                    device, float(wish.get("margin", MARGIN)), self._buckets_bytes()
                ),
                largest=wish.get("max_batch_size"),
                multiple=int(wish.get("multiple_of") or 1),
                power_of_two=bool(wish.get("power_of_two")),
                ends=began + total,
            )
            trials = find_batch(job, goal, objective="speed", say=say)
        size = fastest(trials, goal, busy=target_gpu_util)
        smallest = self._agreed(size or 0)  # before anything is raised: the other ranks wait for it
        refuse_errors(job, trials)
        if size is None:
            raise Unsatisfiable(
                f"Not even the smallest batch runs within {limit / GIB:.1f} GiB and {total:g} s",
                hint="`memory_limit_bytes` and `total_seconds` of the config allow more",
            )
        if not smallest:
            raise Unsatisfiable("Another rank found no batch that runs")
        return smallest, statistics(trials, goal, smallest, limit)

    def _buckets_bytes(self) -> int:
        """Among several ranks DDP holds every gradient a second time, in its buckets."""
        if int(os.environ.get("WORLD_SIZE", "1")) < 2:
            return 0
        trained = (one for one in self.model.parameters() if one.requires_grad)
        return sum(one.numel() * one.element_size() for one in trained)

    def _agreed(self, size: int) -> int:
        """The smallest size of all ranks, where torchrun started several; 0 where one has none."""
        world = int(os.environ.get("WORLD_SIZE", "1"))
        if world < 2 or "RANK" not in os.environ:
            return size
        store = self.config.get("store") or store_of_ranks()
        return agreed(size, store, int(os.environ["RANK"]), world, next(ROUNDS))


def told(line: str) -> None:
    """A line on standard error, of the first rank."""
    if os.environ.get("RANK", "0") == "0":
        print(f"gpusetup: {line}", file=sys.stderr, flush=True)


def mean_of(output: Any, _: Any) -> Any:
    """A loss for one bare tensor of inputs: the model's own, else the mean of what it gives."""
    own = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    if own is not None:
        return own
    first = output[0] if isinstance(output, tuple | list) else output
    return first.float().mean()


def statistics(trials: tuple[Trial, ...], goal: Goal, size: int, limit: int) -> dict[str, Any]:
    """What the optimisation guide returns beside the size, and every trial."""
    from gpusetup.model.codec import to_plain

    over = next_for_speed(trials, goal) is not None
    chosen = next((one for one in trials if one.batch == size and one.status == "ok"), None)
    return {
        "batch_size": size,
        "largest_batch_size": answer(trials, goal),
        "gpu_utilization_percent": chosen.utilization_percent if chosen else None,
        "samples_per_second": chosen.samples_per_second if chosen else None,
        "peak_bytes": chosen.peak_bytes if chosen else None,
        "memory_percent": 100 * (chosen.peak_bytes or 0) / limit if chosen else None,
        "limit_bytes": limit,
        "stopped": "its time was over" if over else stopped(trials, goal),
        "trials": [to_plain(one) for one in trials],
    }


class TunedConfig(dict[str, Any]):
    """The tuned config as the nested mapping that it is, with what was changed and why."""

    def __init__(self, tree: Mapping[str, Any], proposal: Proposal) -> None:
        super().__init__(tree)
        self.proposal = proposal
        self.changes, self.words = proposal.changes, proposal.words
        self.found, self.cannot_fit = proposal.found, proposal.cannot_fit


def auto_optimize_config(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    machine: str | None = None,
    grow_batch: bool = False,
) -> TunedConfig:
    """Write the config at `source`, made to fit this machine (or the one named), to `target`.

    Gives the tuned config back as a dict. Only what cannot change the experiment is changed: its
    `changes` say what and why, its `words` the rest. `source` and `target` may be the same file.
    Raises `BadInput` for what is no config.
    """
    from gpusetup.configs.config import read_config, written
    from gpusetup.configs.tree import tree_of
    from gpusetup.tune.beside import fixed_beside
    from gpusetup.tune.files import change_in_place, read_bytes, write_bytes

    config = read_config(read_bytes(str(source)), Path(source).name)
    option = Option(grow=grow_batch, fixed_beside=fixed_beside(str(source), config))
    proposal = propose(config, facts_of(_machine(machine)), option)
    raw, tuned = read_bytes(str(source)), written(config, edits(proposal.changes))
    if Path(target).exists() and Path(target).samefile(source):
        if tuned != raw:
            change_in_place(str(source), raw, tuned)
    else:
        write_bytes(str(target), tuned)
    return TunedConfig(tree_of(read_config(tuned, Path(source).name)), proposal)


def _machine(name: str | None) -> Any:
    if name is not None:
        from gpusetup.probe.saved import machine_named

        return machine_named(name)
    from gpusetup.probe.machine import read_machine
    from gpusetup.system.system import System

    return read_machine(System())
