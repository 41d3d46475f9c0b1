"""The Python functions that the optimisation guide describes: `BatchSizeOptimizer` and
`auto_optimize_config`."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from gpusetup.configs.config import edited, read_config
from gpusetup.configs.keys import key_of
from gpusetup.configs.settings import dotted, value_of
from gpusetup.errors import BadInput, Unsatisfiable, UsageError
from gpusetup.model.codec import to_plain
from gpusetup.model.frozen import replace
from gpusetup.model.units import GIB
from gpusetup.tune.answer import Plain, TuneAnswer
from gpusetup.tune.bench import Bench, BenchJob, Say, raise_if_code_fails, saved_job
from gpusetup.tune.case import facts_of
from gpusetup.tune.config_file import read_bytes, with_proposal
from gpusetup.tune.rules import propose
from gpusetup.tune.search import (
    FIRST,
    Goal,
    Trial,
    fastest,
    largest_that_ran,
    next_for_speed,
    stopped,
)

TOTAL_SECONDS = 120.0
"""The default time limit of a search."""
BUSY_PERCENT = 85.0
"""The default for `target_gpu_util`, in percent of the time. A GPU that is busy for less than this
waits for something."""
OPTIONS = (
    "loss", "optimizer", "amp", "compile", "device", "max_batch_size", "memory_limit_bytes",
    "total_seconds", "steps", "seconds", "say",
)  # fmt: skip
"""The keys in the config dict that are options of the search."""
MOST_NAMES = 8
"""The maximum number of ignored keys that a message lists."""


def search_config(config: Mapping[str, Any]) -> tuple[dict[str, Any], int | None, list[str]]:
    """Read a dict of search options, or the batch, mixed precision and compile settings of a
    training config. Returns the options, the batch size with which the search starts (None if there
    is none), and the keys that the search does not use.

    >>> search_config({"training": {"batch_size": 16, "use_mixed_precision": True}, "lr": 1})
    ({'amp': True}, 16, ['lr'])
    """
    options: dict[str, Any] = {}
    batch_size = None
    ignored = []
    for path, value in _leaves(config):
        key = key_of(path)
        role = key.role if key else None
        is_switch = type(value) is bool
        if len(path) == 1 and path[0] in OPTIONS and _is_option(path[0], value):
            options[path[0]] = value
        # Python's True is also an int, so the exact type counts.
        elif role == "batch" and type(value) is int and value > 0:
            batch_size = value
        elif role in ("amp", "bf16", "fp16") and is_switch:
            # The search option `amp` takes precedence over the config's switches.
            if value:
                options.setdefault("amp", True if role == "amp" else role)
        elif role == "compile" and is_switch:
            options.setdefault("compile", value)
        else:
            ignored.append(dotted(path))
    return options, batch_size, ignored


def _leaves(config: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[Any, Any]]:
    """The path and value of each setting in nested dicts."""
    for name, value in config.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, (*path, str(name)))
        else:
            yield (*path, str(name)), value


def _is_option(name: str, value: Any) -> bool:
    """Whether a value is valid for the search option of that name; a training config may use the
    name for something else (`loss: l1`)."""
    if name in ("loss", "say"):
        return value is None or callable(value)
    if name == "optimizer":
        return value is None or isinstance(value, str) or callable(value)
    # All other option names mean the same in a training config.
    return name != "amp" or value in (None, False, True, "bf16", "fp16")


class BatchSizeOptimizer:
    """Finds the batch size for a model on this machine by running it.

    `config` may contain `loss` (a function of output and target), `optimizer` (a name, or a
    function of the parameters), `amp` (`bf16`, `fp16`, or True for the type that suits the GPU),
    `compile`, `device`, `max_batch_size`, `memory_limit_bytes` (by default a quarter of the free
    memory on a CPU), `total_seconds` (by default 120), `steps`, `seconds` and `say` (a function
    that is called with a line about each size; by default these lines go to standard error). It may
    also be your training config: the search uses its batch size, mixed precision and compile
    settings, and lists the other keys as not used.
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
        options, start, ignored = search_config(self.config)
        total_seconds = float(options.get("total_seconds") or TOTAL_SECONDS)
        say: Say = options.get("say") or print_progress
        if ignored:
            hidden_count = len(ignored) - MOST_NAMES
            more = f" and {hidden_count} more" if hidden_count > 0 else ""
            names = f"{', '.join(ignored[:MOST_NAMES])}{more}"
            say(f"not used by the search: {names} (its own options: {', '.join(OPTIONS)})")
        trials: list[Trial] = []
        with self._saved_job(options, sample_data) as job, Bench(job) as bench:
            device, limit_note = bench.device(), ""
            # The 16-bit type of `amp: True` depends on the device.
            if options.get("amp") is True:
                bench.job = replace(job, amp=device.half)
            # On a CPU, other programs need the memory too. At least 1 GiB, because torch itself
            # needs a part of it.
            if not device.is_gpu and not options.get("memory_limit_bytes"):
                quarter = max(device.limit_bytes // 4, min(GIB, device.limit_bytes))
                device = replace(device, limit_bytes=quarter)
                limit_note = ", a quarter of the free memory"
            say(
                f"Batch sizes on {device.name}: for {total_seconds:g} s at most"
                f" (`total_seconds`), within {device.limit_bytes / GIB:.1f} GiB{limit_note}"
                " (`memory_limit_bytes`)"
            )
            goal = Goal(
                limit_bytes=device.room(),
                start=start or length_of(sample_data) or FIRST,
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
        return size, {**statistics(size, trials, goal), "ignored": ignored}

    @contextmanager
    def _saved_job(self, options: Mapping[str, Any], sample_data: Any) -> Iterator[BenchJob]:
        """The job for the child, which reads the model and the batch from a file."""
        optimizer, loss = options.get("optimizer"), options.get("loss")
        parts = {
            "model": self.model,
            "batch": sample_data,
            "loss": mean_loss if loss is None and hasattr(sample_data, "shape") else loss,
            # The optimizer's name is sent with the request; a callable goes into the file.
            "optimizer": None if isinstance(optimizer, str) else optimizer,
        }
        names = ("amp", "memory_limit_bytes", "steps", "seconds", "compile")
        given = {name: options[name] for name in names if options.get(name)}
        if given.get("amp") is True:
            del given["amp"]
        with saved_job(parts) as path:
            yield BenchJob(
                pickle=path,
                optimizer=optimizer.lower() if isinstance(optimizer, str) else "adamw",
                device=str(options.get("device") or "auto"),
                **given,
            )


def length_of(sample_data: Any) -> int | None:
    """The number of samples in the example batch; None if it contains no tensor with a
    dimension."""
    from gpusetup.child_scripts.trace_step import tensors

    for tensor in tensors(sample_data):
        # Skip tensors without dimensions, which are single numbers and not batches.
        if tensor.dim():
            return len(tensor) or None
    return None


def statistics(size: int, trials: list[Trial], goal: Goal) -> dict[str, Any]:
    """The results of the chosen batch size and of all sizes that were tried."""
    rows = [to_plain(trial) for trial in trials]
    is_late = any((trial.detail or "").startswith("no answer in") for trial in trials)
    is_unfinished = next_for_speed(trials, goal) is not None
    return {
        **next(row for row in rows if row["batch"] == size and row["status"] == "ok"),
        "largest_batch_size": largest_that_ran(trials, goal),
        "limit_bytes": goal.limit_bytes,
        "stopped": "its time was over" if is_unfinished or is_late else stopped(trials, goal),
        "trials": rows,
    }


def print_progress(line: str) -> None:
    """Print a line on standard error immediately."""
    # At once, because the next trial may take minutes.
    print(f"gpusetup: {line}", file=sys.stderr, flush=True)


def mean_loss(output: Any, _: Any) -> Any:
    """A loss for models called with a bare tensor: the model's own loss if the output has one,
    otherwise the mean of the output."""
    from gpusetup.child_scripts.trace_step import own_loss

    loss = own_loss(output)
    if loss is not None:
        return loss
    first = output[0] if isinstance(output, tuple | list) else output
    return first.float().mean()


# --- a config -----------------------------------------------------------------------------------


class OptimizedConfig(TuneAnswer):
    """The result of `auto_optimize_config`, readable through attributes or as a dict.

    `result["changes"]` has the same plain values as `gpusetup tune CONFIG --json`. Any other key is
    a setting of the new file: `result["num_workers"]`, `result["data.num_workers"]`.
    """

    settings: Mapping[str, Plain] = {}
    """Path of each setting in the new file -> its value."""

    def __iter__(self) -> Iterator[str]:
        # Without this, `key in result` would count from 0 through `__getitem__`.
        return iter(to_plain(self))

    def __getitem__(self, key: str) -> Any:
        endings = [path for path in self.settings if f".{path}".endswith(f".{key}")]
        # A name that several settings share names none of them.
        return self.settings[endings[0]] if len(endings) == 1 else to_plain(self)[key]


def auto_optimize_config(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    machine: str | None = None,
) -> OptimizedConfig:
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
    # Lists and maps have no plain value.
    settings = {
        dotted(setting.path): value_of(setting)
        for setting in edited(config, proposal.edits).settings
        if setting.kind == "scalar"
    }
    answer = OptimizedConfig(device=facts.gpu, settings=settings)
    return with_proposal(answer, config, proposal, source=str(source), target=str(target))
