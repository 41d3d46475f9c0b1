"""Watches GPUs: takes samples, summarises them, and gives a verdict on the run with its evidence.

`memory_report()` and `TrainingMonitor` are called from inside a training script; everything else
serves the command `gpusetup monitor`.
"""

from gpusetup.monitor.training import TrainingMonitor, memory_report

__all__ = ["TrainingMonitor", "memory_report"]
