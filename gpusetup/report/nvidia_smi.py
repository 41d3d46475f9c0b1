"""Finds the output of nvidia-smi in a text: tables, `-q` and errors.

This module only splits a text into outputs. The parsers are in `readings/`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from gpusetup.messages.search import Text
from gpusetup.model.machine import Event, Gpu
from gpusetup.readings import smi_csv, smi_topology
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
from gpusetup.report.facts import GUESS, HINT, SURE, USUAL, Claim, Facts, Gpus

MAX_LINES = 6000
"""The most lines that are read of one output. `nvidia-smi -q` prints 5,000 lines for 16 GPUs."""
MAX_MATRIX = 80
"""The most lines that are read of a topology matrix: enough for 64 GPUs, or for 16 GPUs with their
network cards."""
SHOWN_CHARACTERS = 200
"""At most this many characters of NVML's message are kept."""
QUERY_PARTS = (
    "clocks event reasons", "clocks throttle reas", "pcie generation",
    "ecc errors", "retired pages", "remapped rows", "gpu 0000",
)  # fmt: skip
"""Lower-case headings that show that a text contains a part of the output of `nvidia-smi -q`."""


def nvidia_smi(text: Text) -> Facts:
    """The facts from all outputs of nvidia-smi, and the NVML error in the text."""
    for output in outputs(text):
        yield from output_facts(output.smi, output.source)
    for index, smi in smi_csv.outputs_of(text.lines[:MAX_LINES]):
        source = f"nvidia-smi --query-gpu, line {index + 1}"
        yield from output_facts(smi, source, is_whole=True)
    yield from topology(text)
    error_messages = (*ERRORS, NO_DEVICES)
    if text.has_any(error_messages):
        yield from nvml_error(text)


class SmiOutput(NamedTuple):
    """One parsed output of nvidia-smi, with its source."""

    source: str
    smi: Smi


def outputs(text: Text) -> Iterator[SmiOutput]:
    """Every table and every `-q` output, each from its banner to the next. If there is no banner,
    the whole text counts as one output."""
    table_starts = _table_starts(text)
    yield from _parsed_outputs(text, "nvidia-smi", table_starts, parse_table)
    query_starts = _query_starts(text)
    yield from _parsed_outputs(text, "nvidia-smi -q", query_starts, parse_query)


def _table_starts(text: Text) -> list[int]:
    """The indexes (from 0) of the lines with which tables begin."""
    starts = [index for index, line in enumerate(text.lines) if SMI_VERSION.search(line)]
    if starts:
        return starts
    # A table that was pasted without its banner is recognized by its rows.
    has_row = any("|" in line and row_of(line) for line in text.lines)
    return [0] if has_row else []


def _query_starts(text: Text) -> list[int]:
    """The indexes (from 0) of the lines with which outputs of `-q` begin."""
    starts = [index for index, line in enumerate(text.lines) if "NVSMI LOG" in line]
    if starts:
        return starts
    has_part = text.has_any(QUERY_PARTS)
    return [0] if has_part else []


def _parsed_outputs(
    text: Text, name: str, starts: Sequence[int], parse: Callable[[str], Smi]
) -> Iterator[SmiOutput]:
    """The parsed outputs that begin at these lines, each up to the next start."""
    lines = text.lines
    for start, end in pairwise((*starts, len(lines))):
        output_lines = lines[start:end][:MAX_LINES]
        # Markdown's quote marks and code fences are not part of the output.
        bare_lines = [line.lstrip("*>`") for line in output_lines]
        smi = parse("\n".join(bare_lines))
        yield SmiOutput(f"{name}, line {start + 1}", smi)


def output_facts(smi: Smi, source: str, *, is_whole: bool = False) -> Facts:
    """The versions and GPUs in one output.

    `is_whole`: the output lists every GPU in order, even if it has no bus addresses.
    """
    if smi.driver_version is not None:
        yield Claim("driver.version", smi.driver_version, source, SURE)
    if smi.cuda_version is not None:
        yield Claim("driver.cuda", smi.cuda_version, source, SURE)
    if smi.persistence is not None:
        yield Claim("driver.persistence", smi.persistence, source, USUAL)
    if smi.gpus:
        yield _gpus_of(smi.gpus, source, is_whole=is_whole)
    driver_version = smi.driver_version or ""
    # In WSL, nvidia-smi has a Linux version (three numbers) and the driver a Windows version (two
    # numbers).
    has_another_version = smi.smi_version not in (None, driver_version)
    if has_another_version and driver_version.count(".") == 1:
        yield Claim("os.wsl", True, source, HINT)
    if smi.no_cuda:
        yield Event(
            kind="cuda-version-err",
            values={"why": "cuda-err"},
            source=source,
            text="CUDA Version: ERR!",
        )
    # Only Windows has driver models (WDDM, TCC, MCDM).
    if any(gpu.driver_model for gpu in smi.gpus or ()):
        yield Claim("os.family", "windows", source)


def _gpus_of(gpus: tuple[Gpu, ...], source: str, *, is_whole: bool) -> Gpus:
    """The GPUs in one output, each once."""
    # If a table was pasted twice without its banner, it lists each GPU twice.
    gpu_by_address: dict[str, Gpu] = {}
    for index, gpu in enumerate(gpus):
        address = gpu.pci_bus_id or f"GPU {index}"
        gpu_by_address[address] = gpu
    # If the first GPU has no address, the output is a part of `-q` about a GPU that another list
    # may describe better.
    begins_without_address = bool(gpus) and not gpus[0].pci_bus_id
    is_a_part = begins_without_address and not is_whole
    trust = BELOW_ALL_LISTS if is_a_part else SURE
    return Gpus(tuple(gpu_by_address.values()), source, trust)


BELOW_ALL_LISTS = GUESS - 1
"""The trust in lists of GPUs without names or addresses. Any other list is trusted more."""


def topology(text: Text) -> Facts:
    """The GPUs in the first matrix of `nvidia-smi topo -m`, with their NUMA nodes and links."""
    if "gpu0" not in text.low:
        return
    for index, line in enumerate(text.lines[:MAX_LINES]):
        if not smi_topology.is_heading(line):
            continue
        matrix = smi_topology.parse_topology(text.lines[index : index + MAX_MATRIX])
        if matrix.gpus:
            yield Gpus(matrix.gpus, f"nvidia-smi topo, line {index + 1}", BELOW_ALL_LISTS)
            yield from matrix.links
            return


def nvml_error(text: Text) -> Facts:
    """The first NVML error in the text; code 0 means that NVML works but finds no GPU."""
    for number, line in enumerate(text.lines, 1):
        has_no_device = NO_DEVICES in line.lower()
        code = 0 if has_no_device else parse_error(line)
        if code is None:
            continue
        source = f"nvidia-smi, line {number}"
        yield Claim("driver.nvml_code", code, source)
        yield Claim("driver.nvml_message", line.strip()[:SHOWN_CHARACTERS], source)
        if code == 0:
            yield Gpus((), source, HINT)
        return
