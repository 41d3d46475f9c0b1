"""The figures of a run that sentences about it name, such as `{work.cpu:.0f}`. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from string import Formatter
from typing import Any

from gpusetup.model.shell import own_word
from gpusetup.monitor.run import Run
from gpusetup.monitor.seen import Seen, useful_workers

UNKNOWN = "?"


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
    scripts = [word for word in words if word.endswith(".py")]
    watched = f"-- {' '.join(map(own_word, words))}" if words else None
    return {
        "run": run,
        "seen": seen,
        "gpu": seen and seen.gpu,
        "work": seen and seen.work,
        "limit": seen and seen.gpu.latest.power_limit_watts,
        "useful_workers": useful_workers(run),
        "its_cores": run.cores or run.host_cores or 0,
        "config": config_of(words),
        "script": own_word(scripts[0]) if scripts else None,
        "watch": watched or (f"--pid {pids[0]}" if pids else None),
        "gpus": sum(gpu.lost_at is None for gpu in run.gpus),
        "pid": pids[0] if pids else "PID",
    }


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
