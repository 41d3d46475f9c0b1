"""The figures of a run that sentences about it name: `{cpu}`, `{worker_cpu}`, `{gpu}`. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from gpusetup.model.frozen import fields
from gpusetup.model.shell import own_word
from gpusetup.monitor.brakes import active_brake
from gpusetup.monitor.marks import CONTEXT
from gpusetup.monitor.run import Run
from gpusetup.monitor.seen import Seen, useful_workers
from gpusetup.monitor.signs import cores_used_up
from gpusetup.monitor.tally import GpuTally
from gpusetup.monitor.work import Work


def of_run(run: Run) -> dict[str, object]:
    """What is said of a run; empty where it is not known."""
    pids = [pid for gpu in run.gpus for pid in sorted(gpu.holders.pids)]
    words = run.command or ()
    rose = max((gpu.memory_rose for gpu in run.gpus), default=0)
    watch = f"-- {' '.join(map(own_word, words))}" if words else f"--pid {pids[0]}" if pids else ""
    several = run.collective_threads or (run.ranks or len(run.at_work)) > 1
    return {
        "useful_workers": useful_workers(run),
        "now": max((gpu.parts.whole.workers for gpu in run.gpus if gpu.parts.whole), default=0),
        "its_cores": run.cores or run.host_cores or 0,
        "host_cores": run.host_cores or "?",
        "host_memory": run.host_memory or 0,
        "config": as_word(config_of(words)),
        "script": as_word(next((word for word in words if word.endswith(".py")), "")),
        "seconds": run.seconds,
        "rose": f", and its memory rose by {rose / 2**30:.1f} GiB" if rose >= CONTEXT else "",
        "exit": run.exit,
        "watch": watch,
        "which_rank": WHICH_RANK if several else "",
        "gpus": sum(gpu.lost_at is None for gpu in run.gpus),
        "nodes": run.nodes,
        "pid": pids[0] if pids else "PID",
        "more_of_them": MORE_OF_THEM,
        "gpu": "0",
    }


WHICH_RANK = (
    ", of several ranks each: the one that is elsewhere is the cause; NCCL_DEBUG=INFO and "
    "TORCH_NCCL_TRACE_BUFFER_SIZE=2000 name the collective"
)
MORE_OF_THEM = "more environments at once, "


def as_word(text: str) -> str:
    return own_word(text) if text else ""


def of_work(work: Work) -> dict[str, object]:
    """Its means, 0 where nothing told; rates as MB/s too."""
    told = {part.name: getattr(work, part.name) or 0 for part in fields(Work)}
    return {**told, **{f"{name}_mb": told[name] / 1e6 for name in told if name.endswith("_rate")}}


def of_seen(seen: Seen) -> Mapping[str, object]:
    gpu, work, card, parts = seen.gpu, seen.work, seen.gpu.latest, seen.gpu.parts
    limit = card.power_limit_watts
    rated = gpu.power_default or card.power_limit_max_watts or 0
    if limit and rated <= limit:
        rated = card.power_limit_max_watts or rated
    return {
        **of_run(seen.run),
        **of_work(work),
        "worked": f"GPU {gpu.label} worked {work.utilization:.0f} % of the time",
        "label": gpu.label,
        "now": work.workers,
        "loaders": loaders_in_words(work.workers),
        "others": (work.host_cpu or 0) - (work.cpu or 0),
        "other_cores": ((work.host_cpu or 0) - (work.cpu or 0)) / 100,
        "together": seen.together,
        "memory_p95": gpu.memory.p95 or 0,
        "memory_peak": gpu.memory.peak,
        "heat": gpu.heat or 0,
        "pause_share": parts.pause_share,
        "longest_pause": parts.pauses.longest,
        "link": gpu.link_limit / 1e9,
        "limit": limit or 0,
        "default": gpu.power_default or 0,
        "rated": rated,
        "gpu": ",".join(_alike(gpu, seen.run)),
        "brake": seen.brake.words if seen.brake else "",
        "reason": seen.brake.reason if seen.brake else "",
        "more_of_them": "" if cores_used_up(seen) else MORE_OF_THEM,
    }


def _alike(gpu: GpuTally, run: Run) -> list[str]:
    """The GPUs that the same holds down: what is done for one is done for all."""
    limit = gpu.latest.power_limit_watts
    causes = {
        one.label: brake.cause
        for one in run.gpus
        if (work := one.parts.work) and one.latest.power_limit_watts == limit
        and (brake := active_brake(work, one))
    }  # fmt: skip
    return [one for one in causes if causes[one] == causes.get(gpu.label)] or [gpu.label]


def loaders_in_words(count: float) -> str:
    """
    >>> loaders_in_words(1.2), loaders_in_words(4)
    ('1 loader worker', '4 loader workers')
    """
    return f"{count:.0f} loader worker{'' if round(count) == 1 else 's'}"


def config_of(command: tuple[str, ...]) -> str:
    """The configuration that the command names.

    >>> config_of(("python", "train.py", "--config=conf/a.yaml"))
    'conf/a.yaml'
    >>> config_of(("deepspeed", "train.py", "--deepspeed_config", "zero3.json"))
    ''
    """
    for last, word in zip(("", *command), command, strict=False):
        deepspeed = "deepspeed" in f"{last} {word}".partition(".")[0]
        if word.endswith((".yaml", ".yml", ".json")) and not deepspeed:
            return word.rpartition("=")[2]
    return ""
