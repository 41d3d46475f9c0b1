"""One sample of the monitor as OpenMetrics text, for the textfile collector of node_exporter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gpusetup.monitor.values import GpuSample, Sample
from gpusetup.render.openmetrics import Metric, exposition

GAUGES = (
    ("utilization_percent", "gpu_utilization_ratio", "share of time with a kernel", 0.01),
    ("memory_busy_percent", "gpu_memory_busy_ratio", "share of time with memory traffic", 0.01),
    ("memory_used_bytes", "gpu_memory_used_bytes", "memory in use", 1),
    ("memory_total_bytes", "gpu_memory_total_bytes", "memory of the GPU", 1),
    ("temperature_celsius", "gpu_temperature_celsius", "temperature", 1),
    ("power_watts", "gpu_power_watts", "power drawn", 1),
    ("power_limit_watts", "gpu_power_limit_watts", "power limit", 1),
    ("clock_sm_mhz", "gpu_clock_sm_hertz", "clock of the multiprocessors", 1e6),
    ("clock_memory_mhz", "gpu_clock_memory_hertz", "clock of the memory", 1e6),
    ("pcie_rx_bytes_per_second", "gpu_pcie_receive_rate_bytes", "bytes a second by PCIe", 1),
    ("pcie_tx_bytes_per_second", "gpu_pcie_send_rate_bytes", "bytes a second by PCIe", 1),
    ("nvlink_rx_bytes_per_second", "gpu_nvlink_receive_rate_bytes", "bytes a second by NVLink", 1),
    ("nvlink_tx_bytes_per_second", "gpu_nvlink_send_rate_bytes", "bytes a second by NVLink", 1),
)
"""Field of a sample, name of the gauge behind `gpusetup_`, what it says, its base unit."""


def monitor_metrics(sample: Sample) -> str:
    """The whole text; a figure that nobody told has no line."""
    return exposition((*_gauges(sample), _lost(sample), _throttle(sample), *_host(sample)))


def _gauges(sample: Sample) -> Iterator[Metric]:
    for field, name, words, factor in GAUGES:
        told = [(gpu, getattr(gpu, field)) for gpu in sample.gpus]
        found = tuple((_who(gpu), value * factor) for gpu, value in told if value is not None)
        if found:
            yield Metric(name=f"gpusetup_{name}", help=words, samples=found)


def _who(gpu: GpuSample) -> Mapping[str, str]:
    return {"gpu": gpu.label, "uuid": gpu.uuid or "", "name": gpu.name or ""}


def _lost(sample: Sample) -> Metric:
    rows = tuple((_who(gpu), float(gpu.lost)) for gpu in sample.gpus)
    return Metric(name="gpusetup_gpu_lost", help="1 where a GPU is lost", samples=rows)


def _throttle(sample: Sample) -> Metric:
    rows = tuple(
        ({**_who(gpu), "reason": reason}, 1.0)
        for gpu in sample.gpus
        for reason in gpu.throttle_reasons or ()
    )
    words = "1 for each reason that is on"
    return Metric(name="gpusetup_gpu_throttle", help=words, samples=rows)


def _host(sample: Sample) -> Iterator[Metric]:
    for group, values in (("command", sample.tree), ("host", sample.host)):
        if values is not None and values.cpu_percent is not None:
            name = f"gpusetup_{group}_cpu_cores"
            yield _one(name, "cores in use", values.cpu_percent / 100)
    if sample.tree is not None:
        count = float(sample.tree.loader_workers)
        yield _one("gpusetup_command_loader_workers", "loader workers", count)


def _one(name: str, words: str, value: float) -> Metric:
    return Metric(name=name, help=words, samples=(({}, value),))
