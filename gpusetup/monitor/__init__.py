"""Watching GPUs: samples, what they say together, and a verdict with its evidence.

`memory_report()` and `TrainingMonitor` are for the inside of a training;
everything else serves the command.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpusetup.monitor.memory import memory_report
    from gpusetup.monitor.training import TrainingMonitor

__all__ = ["TrainingMonitor", "memory_report"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    home = "memory" if name == "memory_report" else "training"
    found: object = getattr(import_module(f"gpusetup.monitor.{home}"), name)
    return found
