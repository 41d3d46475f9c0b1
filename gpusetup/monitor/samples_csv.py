"""Writes samples as CSV for a spreadsheet, with one row per GPU and moment.

The GPU columns have nvidia-smi's names, so that programs which read nvidia-smi's logs can read
these files too (as `monitor --replay` does, without the columns of the command and the machine). If
there is no GPU, each moment has one row with an empty index.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from typing import Any, TextIO

from gpusetup.model.units import MIB
from gpusetup.monitor.documents import Sample

UNITS = {"MiB": MIB, "MB/s": 1e6}
"""What one of a column's unit is in our fields' bytes; the other units are those of our fields."""
GPU_COLUMNS = {
    "index": "index",
    "name": "name",
    "uuid": "uuid",
    "utilization.gpu [%]": "utilization_percent",
    "utilization.memory [%]": "memory_busy_percent",
    "memory.used [MiB]": "memory_used_bytes",
    "memory.total [MiB]": "memory_total_bytes",
    "temperature.gpu": "temperature_celsius",
    "power.draw [W]": "power_watts",
    "power.limit [W]": "power_limit_watts",
    "power.default_limit [W]": "power_limit_default_watts",
    "clocks.sm [MHz]": "clock_sm_mhz",
    "clocks.max.sm [MHz]": "clock_sm_max_mhz",
    "throttle reasons": "throttle_reasons",
    "pcie.limit [MB/s]": "pcie_limit_bytes_per_second",
    "pcie.rx [MB/s]": "pcie_rx_bytes_per_second",
    "pcie.tx [MB/s]": "pcie_tx_bytes_per_second",
}
TREE_COLUMNS = {
    "command.processes": "processes",
    "command.cpu [%]": "cpu_percent",
    "command.busiest_cpu [%]": "busiest_cpu_percent",
    "command.memory [MiB]": "memory_bytes",
    "command.loader_workers": "loader_workers",
    "command.loader_cpu [%]": "loader_cpu_percent",
    "command.read [MB/s]": "read_bytes_per_second",
    "command.input [MB/s]": "input_bytes_per_second",
    "command.write [MB/s]": "write_bytes_per_second",
    "command.blocked": "blocked_processes",
    "command.gpu_processes": "gpu_processes",
    "command.cores": "cores",
}
HOST_COLUMNS = {
    "machine.cores": "cores",
    "machine.cpu [%]": "cpu_percent",
    "machine.memory [MiB]": "memory_used_bytes",
    "machine.memory_total [MiB]": "memory_total_bytes",
    "machine.disk_read [MB/s]": "disk_read_bytes_per_second",
    "machine.disk_write [MB/s]": "disk_write_bytes_per_second",
    "machine.network_receive [MB/s]": "network_receive_bytes_per_second",
}


class CsvWriter:
    """Writes samples to an open file as CSV; unknown values become empty cells."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._rows = csv.writer(file)
        # The heading comes first, even if the run has no sample.
        self._rows.writerow(("timestamp", "seconds", *GPU_COLUMNS, *TREE_COLUMNS, *HOST_COLUMNS))

    def write(self, sample: Sample) -> None:
        """Write one row for each GPU of the sample (or a single row if there is no GPU), each with
        the figures of the command and the machine."""
        others = (*cells(sample.tree, TREE_COLUMNS), *cells(sample.host, HOST_COLUMNS))
        for gpu in sample.gpus or (None,):
            row = (sample.at, sample.seconds, *cells(gpu, GPU_COLUMNS), *others)
            self._rows.writerow(row)
        # Flush, so that a reader never sees half a row.
        self._file.flush()


FORMULA_STARTS = ("=", "+", "-", "@", "\t")
"""The first characters of cells that a spreadsheet executes as formulas (OWASP, CSV injection).
Names come from the driver."""


def cells(figures: object, columns: Mapping[str, str]) -> list[Any]:
    """The cells of these columns, in the notation of nvidia-smi."""
    row: list[Any] = []
    for heading, field in columns.items():
        value = getattr(figures, field, None)
        unit = heading.partition("[")[2].rstrip("]")
        if isinstance(value, bool):
            value = "Yes" if value else "No"
        elif isinstance(value, tuple):
            value = " ".join(value)
        elif isinstance(value, str) and value.startswith(FORMULA_STARTS):
            value = f"'{value}"
        elif value is not None and unit in UNITS:
            value = round(value / UNITS[unit], None if unit == "MiB" else 3)
        row.append(value)
    return row
