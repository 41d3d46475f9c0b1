"""Finds the output of nvidia-smi in a text: tables, `-q` and errors.

This module only splits a text into outputs. The parsers are in `readings/`.
"""

from __future__ import annotations

from itertools import pairwise

from gpusetup.messages.search import Text
from gpusetup.model.machine import Event, Snapshot
from gpusetup.readings import smi_csv
from gpusetup.readings.nvidia_smi import (
    ERRORS,
    NO_DEVICES,
    SMI_VERSION,
    Smi,
    parse_error,
    parse_query,
    parse_table,
    row_of,
)
from gpusetup.readings.smi_topology import parse_topology
from gpusetup.report.facts import GUESS, HINT, SHOWN_CHARACTERS, SURE, USUAL, Claim, Facts, Gpus

MAX_LINES = 6000
"""The most lines that are read of one output. `nvidia-smi -q` prints 5,000 lines for 16 GPUs."""
QUERY_PARTS = (
    "clocks event reasons", "clocks throttle reas", "pcie generation",
    "ecc errors", "retired pages", "remapped rows", "gpu 0000",
)  # fmt: skip
"""Lower-case headings that show that a text contains a part of the output of `nvidia-smi -q`."""

BELOW_ALL_LISTS = GUESS - 1
"""The trust in lists of GPUs without names or addresses. Any other list is trusted more."""


def nvidia_smi(text: Text) -> Facts:
    """The facts from all outputs of nvidia-smi, and the NVML error in the text."""
    table_starts = [index for index, line in enumerate(text.lines) if SMI_VERSION.search(line)]
    # A table that was pasted without its banner is recognized by its rows.
    if not table_starts and any("|" in line and row_of(line) for line in text.lines):
        table_starts = [0]
    query_starts = [index for index, line in enumerate(text.lines) if "NVSMI LOG" in line]
    # A part of the output (`-d PERFORMANCE`, or a cut text) may have no heading.
    if not query_starts and text.has_any(QUERY_PARTS):
        query_starts = [0]
    for name, starts, parse in (
        ("nvidia-smi", table_starts, parse_table),
        ("nvidia-smi -q", query_starts, parse_query),
    ):
        for start, end in pairwise((*starts, len(text.lines))):
            # Markdown's bold type (`*`), quote marks and code fences are not part of the output.
            lines = [line.lstrip("*>`") for line in text.lines[start:end][:MAX_LINES]]
            yield from output_facts(parse("\n".join(lines)), f"{name}, line {start + 1}")
    for index, smi in smi_csv.outputs_of(text.lines[:MAX_LINES]):
        source = f"nvidia-smi --query-gpu, line {index + 1}"
        yield from output_facts(smi, source, is_whole=True)
    yield from topology(text)
    if text.has_any((*ERRORS, NO_DEVICES)):
        yield from nvml_error(text)


def output_facts(smi: Smi, source: str, *, is_whole: bool = False) -> Facts:
    """The versions and GPUs in one output.

    `is_whole`: the output lists every GPU in order, even if it has no bus addresses.
    """
    for subject, value, trust in (
        ("driver.version", smi.driver_version, SURE),
        ("driver.cuda", smi.cuda_version, SURE),
        ("driver.persistence", smi.persistence, USUAL),
    ):
        if value is not None:
            yield Claim(subject, value, source, trust)
    if smi.gpus:
        # If a table was pasted twice without its banner, it lists each GPU twice.
        gpus = {gpu.pci_bus_id or f"GPU {index}": gpu for index, gpu in enumerate(smi.gpus)}
        # If the first GPU has no address, the output is a part of `-q`. Another list may then
        # describe its GPU better.
        is_a_part = not smi.gpus[0].pci_bus_id and not is_whole
        yield Gpus(tuple(gpus.values()), source, BELOW_ALL_LISTS if is_a_part else SURE)
    driver_version = smi.driver_version or ""
    # In WSL, nvidia-smi has a Linux version (three numbers) and the driver a Windows version (two
    # numbers).
    if smi.smi_version not in (None, driver_version) and driver_version.count(".") == 1:
        yield Claim("os.wsl", True, source, HINT)
    if smi.no_cuda:
        shown = "CUDA Version: ERR!"
        yield Event(kind="cuda-version-err", values={"why": "cuda-err"}, source=source, text=shown)


def topology(text: Text) -> Facts:
    """The GPUs in the first matrix of `nvidia-smi topo -m`, with their NUMA nodes and links."""
    # The heading names the first GPU.
    matrix = parse_topology(text.lines[:MAX_LINES]) if "gpu0" in text.low else Snapshot()
    if matrix.gpus:
        yield Gpus(matrix.gpus, "nvidia-smi topo", BELOW_ALL_LISTS)
        yield from matrix.gpu_links or ()


def nvml_error(text: Text) -> Facts:
    """The first NVML error in the text; code 0 means that NVML works but finds no GPU."""
    for number, line in enumerate(text.lines, 1):
        code = 0 if NO_DEVICES in line.lower() else parse_error(line)
        if code is not None:
            source = f"nvidia-smi, line {number}"
            yield Claim("driver.nvml_code", code, source)
            yield Claim("driver.nvml_message", line.strip()[:SHOWN_CHARACTERS], source)
            if code == 0:
                yield Gpus((), source, HINT)
            return
