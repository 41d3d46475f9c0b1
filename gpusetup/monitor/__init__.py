"""Watching GPUs: samples, what they say together, and a verdict with its evidence.

`memory_report()` and `TrainingMonitor` are for the inside of a training;
everything else serves the command.
"""

from gpusetup.monitor.memory import memory_report
from gpusetup.monitor.training import TrainingMonitor

__all__ = ["TrainingMonitor", "memory_report"]
