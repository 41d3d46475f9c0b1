"""Watching GPUs: samples, what they say together, and a verdict with its evidence.

`memory_report()` is for the inside of a training process; everything else serves the command.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpusetup.monitor.memory import memory_report

__all__ = ["memory_report"]


def __getattr__(name: str) -> object:
    if name == "memory_report":
        from gpusetup.monitor.memory import memory_report

        return memory_report
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
