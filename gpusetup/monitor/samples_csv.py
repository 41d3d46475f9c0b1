"""Writes samples as CSV for a spreadsheet, with one row per GPU and moment, and reads them back.

The GPU columns have nvidia-smi's names, so that programs which read nvidia-smi's logs can read
these files too (as `monitor --replay` does). If there is no GPU, each moment has one row with an
empty index.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from typing import TextIO

from gpusetup.model.units import MIB
from gpusetup.monitor.documents import GpuSample, HostSample, Sample, TreeSample
from gpusetup.readings.nvidia_smi import number

Cell = str | float | int | None


def mib(count: int | None) -> int | None:
    """A number of bytes in MiB, rounded; None stays None."""
    # An unknown value becomes an empty cell.
    if count is None:
        return None
    return round(count / MIB)


BYTES_OF_A_MEGABYTE = 1e6


def megabytes(rate: float | None) -> float | None:
    """A rate in bytes per second as MB/s; None stays None."""
    if rate is None:
        return None
    return round(rate / BYTES_OF_A_MEGABYTE, 3)


def yes_or_no(value: bool | None) -> str | None:
    """`Yes` or `No`, in nvidia-smi's notation; None stays None."""
    if value is None:
        return None
    return "Yes" if value else "No"


GPU_COLUMNS: Mapping[str, Callable[[GpuSample], Cell]] = {
    "index": lambda gpu: gpu.index,
    "name": lambda gpu: gpu.name,
    "uuid": lambda gpu: gpu.uuid,
    "utilization.gpu [%]": lambda gpu: gpu.utilization_percent,
    "utilization.memory [%]": lambda gpu: gpu.memory_busy_percent,
    "memory.used [MiB]": lambda gpu: mib(gpu.memory_used_bytes),
    "memory.total [MiB]": lambda gpu: mib(gpu.memory_total_bytes),
    "temperature.gpu": lambda gpu: gpu.temperature_celsius,
    "power.draw [W]": lambda gpu: gpu.power_watts,
    "power.limit [W]": lambda gpu: gpu.power_limit_watts,
    "power.default_limit [W]": lambda gpu: gpu.power_limit_default_watts,
    "power.max_limit [W]": lambda gpu: gpu.power_limit_max_watts,
    "clocks.sm [MHz]": lambda gpu: gpu.clock_sm_mhz,
    "clocks.max.sm [MHz]": lambda gpu: gpu.clock_sm_max_mhz,
    "throttle reasons": lambda gpu: " ".join(gpu.throttle_reasons or ()),
    "ecc.errors.uncorrected.volatile.total": lambda gpu: gpu.ecc_uncorrected,
    "remapped_rows.pending": lambda gpu: yes_or_no(gpu.retired_pending),
    "remapped_rows.failure": lambda gpu: yes_or_no(gpu.remap_failed),
    "pcie.link.gen.current": lambda gpu: gpu.pcie_generation,
    "pcie.link.gen.max": lambda gpu: gpu.pcie_generation_max,
    "pcie.link.width.current": lambda gpu: gpu.pcie_width,
    "pcie.link.width.max": lambda gpu: gpu.pcie_width_max,
    "pcie.rx [MB/s]": lambda gpu: megabytes(gpu.pcie_rx_bytes_per_second),
    "pcie.tx [MB/s]": lambda gpu: megabytes(gpu.pcie_tx_bytes_per_second),
}
TREE_COLUMNS: Mapping[str, Callable[[TreeSample], Cell]] = {
    "command.processes": lambda tree: tree.processes,
    "command.cpu [%]": lambda tree: tree.cpu_percent,
    "command.busiest_cpu [%]": lambda tree: tree.busiest_cpu_percent,
    "command.memory [MiB]": lambda tree: mib(tree.memory_bytes),
    "command.loader_workers": lambda tree: tree.loader_workers,
    "command.loader_cpu [%]": lambda tree: tree.loader_cpu_percent,
    "command.read [MB/s]": lambda tree: megabytes(tree.read_bytes_per_second),
    "command.input [MB/s]": lambda tree: megabytes(tree.input_bytes_per_second),
    "command.write [MB/s]": lambda tree: megabytes(tree.write_bytes_per_second),
    "command.blocked": lambda tree: tree.blocked_processes,
    "command.cpu_wait [%]": lambda tree: tree.cpu_wait_percent,
    "command.gpu_processes": lambda tree: tree.gpu_processes,
    "command.cores": lambda tree: tree.cores,
}
HOST_COLUMNS: Mapping[str, Callable[[HostSample], Cell]] = {
    "machine.cores": lambda host: host.cores,
    "machine.cpu [%]": lambda host: host.cpu_percent,
    "machine.memory [MiB]": lambda host: mib(host.memory_used_bytes),
    "machine.memory_total [MiB]": lambda host: mib(host.memory_total_bytes),
    "machine.disk_read [MB/s]": lambda host: megabytes(host.disk_read_bytes_per_second),
    "machine.disk_write [MB/s]": lambda host: megabytes(host.disk_write_bytes_per_second),
    "machine.network_receive [MB/s]": lambda host: megabytes(host.network_receive_bytes_per_second),
}
HEADING = ("timestamp", "seconds", *GPU_COLUMNS, *TREE_COLUMNS, *HOST_COLUMNS)


class CsvWriter:
    """Writes samples to an open file as CSV; unknown values become empty cells."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        rows = csv.writer(file)
        # The heading comes first, even if the run has no sample.
        rows.writerow(HEADING)
        self._rows = rows

    def write(self, sample: Sample) -> None:
        """Write one row for each GPU of the sample (or a single row if there is no GPU), each with
        the figures of the command and the machine."""
        tree = sample.tree
        host = sample.host
        tree_cells = [read(tree) if tree else None for read in TREE_COLUMNS.values()]
        host_cells = [read(host) if host else None for read in HOST_COLUMNS.values()]
        # If there is no GPU, a single row contains the command's and the machine's figures.
        for gpu in sample.gpus or (None,):
            gpu_cells = [read(gpu) if gpu else None for read in GPU_COLUMNS.values()]
            # Names come from the driver, and a spreadsheet would execute a name that looks like a
            # formula.
            safe_cells = map(harmless, gpu_cells)
            row = (sample.at, sample.seconds, *safe_cells, *tree_cells, *host_cells)
            self._rows.writerow(row)
        # Flush, so that a reader never sees half a row.
        self._file.flush()


FORMULA_STARTS = ("=", "+", "-", "@", "\t")
"""The first characters of cells that a spreadsheet treats as formulas (OWASP, CSV injection)."""


def harmless(cell: Cell) -> Cell:
    """A cell that no spreadsheet executes as a formula: text that looks like one gets an apostrophe
    in front.

    >>> harmless("=1+1"), harmless("NVIDIA L4"), harmless(-3)
    ("'=1+1", 'NVIDIA L4', -3)
    """
    if not isinstance(cell, str):
        return cell
    if not cell.startswith(FORMULA_STARTS):
        return cell
    return f"'{cell}"


# --- reading back ---------------------------------------------------------------------------------

Row = Mapping[str, str]
"""Maps each heading, without its unit, to the cell."""


def count(row: Row, name: str, unit: int = 1) -> int | None:
    """The number in a column, multiplied by `unit` and rounded; None if the cell is empty."""
    text = row.get(name)
    value = number(text)
    # The cell is empty.
    if value is None:
        return None
    return round(value * unit)


def rate(row: Row, name: str) -> float | None:
    """The value of a column in MB/s, as bytes per second; None if the cell is empty."""
    text = row.get(name)
    value = number(text)
    # The cell is empty.
    if value is None:
        return None
    return value * BYTES_OF_A_MEGABYTE


def tree_of(row: Row) -> TreeSample | None:
    """The figures of the command's processes in a row; None if the row has none."""
    cpu_percent = number(row.get("command.cpu"))
    if cpu_percent is None:
        return None
    return TreeSample(
        processes=count(row, "command.processes") or 1,
        cpu_percent=cpu_percent,
        busiest_cpu_percent=number(row.get("command.busiest_cpu")) or 0.0,
        memory_bytes=count(row, "command.memory", MIB) or 0,
        loader_workers=count(row, "command.loader_workers") or 0,
        loader_cpu_percent=number(row.get("command.loader_cpu")) or 0.0,
        read_bytes_per_second=rate(row, "command.read"),
        input_bytes_per_second=rate(row, "command.input"),
        write_bytes_per_second=rate(row, "command.write"),
        blocked_processes=count(row, "command.blocked"),
        cpu_wait_percent=number(row.get("command.cpu_wait")),
        gpu_processes=count(row, "command.gpu_processes"),
        cores=number(row.get("command.cores")),
    )


def host_of(row: Row) -> HostSample | None:
    """The machine's figures in a row; None if the row has none."""
    memory_bytes = count(row, "machine.memory", MIB)
    if memory_bytes is None:
        return None
    return HostSample(
        cpu_percent=number(row.get("machine.cpu")),
        cores=count(row, "machine.cores"),
        memory_used_bytes=memory_bytes,
        memory_total_bytes=count(row, "machine.memory_total", MIB),
        disk_read_bytes_per_second=rate(row, "machine.disk_read"),
        disk_write_bytes_per_second=rate(row, "machine.disk_write"),
        network_receive_bytes_per_second=rate(row, "machine.network_receive"),
    )
