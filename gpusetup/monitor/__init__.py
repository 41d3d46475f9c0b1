"""Watches GPUs: takes samples, summarises them, and gives a verdict on the run with its evidence.

`memory_report()` and `TrainingMonitor` are for the inside of a training;
everything else serves the command.
"""

from gpusetup.monitor.training import TrainingMonitor, memory_report

__all__ = ["TrainingMonitor", "memory_report"]
