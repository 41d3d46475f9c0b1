"""The figures of a run that sentences about it name, such as `{work.cpu:.0f}`. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from string import Formatter
from typing import Any

from gpusetup.model.shell import own_word
from gpusetup.monitor.brakes import active_brake
from gpusetup.monitor.marks import CONTEXT
from gpusetup.monitor.run import Run
from gpusetup.monitor.seen import Seen, useful_workers
from gpusetup.monitor.signs import cores_used_up
from gpusetup.monitor.tally import Gpu

UNKNOWN = "?"
WHICH_RANK = (
    ", of several ranks each: the one that is elsewhere is the cause; NCCL_DEBUG=INFO and "
    "TORCH_NCCL_TRACE_BUFFER_SIZE=2000 name the collective"
)


class _Sentence(Formatter):
    """What is not known is a question mark; `MB/s` is a format of rates."""

    def format_field(self, value: Any, spec: str) -> Any:
        if value is None:
            return UNKNOWN
        return f"{value / 1e6:.0f} MB/s" if spec == "MB/s" else format(value, spec)


def sentence(text: str, run: Run, seen: Seen | None = None) -> str:
    """A text of a table, filled in for this run and the GPU that it is about."""
    return _Sentence().vformat(text, (), _words(run, seen))


def _words(run: Run, seen: Seen | None) -> Mapping[str, object]:
    pids = [pid for gpu in run.gpus for pid in sorted(gpu.holders)]
    words = run.command or ()
    rose = max((gpu.memory_rose for gpu in run.gpus), default=0)
    several = run.collective_threads or (run.ranks or len(run.at_work)) > 1
    scripts = [word for word in words if word.endswith(".py")]
    watched = f"-- {' '.join(map(own_word, words))}" if words else None
    return {
        "run": run,
        "seen": seen,
        "gpu": seen and seen.gpu,
        "work": seen and seen.work,
        "limit": seen and seen.gpu.latest.power_limit_watts,
        "cards": ",".join(_alike(seen.gpu, run)) if seen else "0",
        "useful_workers": useful_workers(run),
        "its_cores": run.cores or run.host_cores or 0,
        "config": config_of(words),
        "script": own_word(scripts[0]) if scripts else None,
        "rose": f", and its memory rose by {rose / 2**30:.1f} GiB" if rose >= CONTEXT else "",
        "watch": watched or (f"--pid {pids[0]}" if pids else None),
        "which_rank": WHICH_RANK if several else "",
        "gpus": sum(gpu.lost_at is None for gpu in run.gpus),
        "pid": pids[0] if pids else "PID",
        "more_of_them": "" if seen and cores_used_up(seen) else "more environments at once, ",
    }


def _alike(gpu: Gpu, run: Run) -> list[str]:
    """The GPUs that the same holds down: what is done for one is done for all."""
    limit = gpu.latest.power_limit_watts
    causes = {
        one.label: brake.cause
        for one in run.gpus
        if (work := one.parts.work) and one.latest.power_limit_watts == limit
        and (brake := active_brake(work, one))
    }  # fmt: skip
    return [one for one in causes if causes[one] == causes.get(gpu.label)] or [gpu.label]


def config_of(command: tuple[str, ...]) -> str | None:
    """The configuration that the command names.

    >>> config_of(("python", "train.py", "--config=conf/a.yaml"))
    'conf/a.yaml'
    >>> config_of(("deepspeed", "train.py", "--deepspeed_config", "zero3.json"))
    """
    for last, word in zip(("", *command), command, strict=False):
        deepspeed = "deepspeed" in f"{last} {word}".partition(".")[0]
        if word.endswith((".yaml", ".yml", ".json")) and not deepspeed:
            return own_word(word.rpartition("=")[2])
    return None
