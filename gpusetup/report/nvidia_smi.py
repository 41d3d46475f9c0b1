"""What nvidia-smi prints, found in a text: tables, `-q`, errors.

The parsers are in `readings/`; here a text is cut into their pieces.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from gpusetup.messages.search import Text
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Event
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
from gpusetup.readings.smi_processes import processes_of
from gpusetup.report.facts import GUESS, HINT, SURE, USUAL, Claim, Facts, Gpus

MAX_LINES = 6000
MAX_MATRIX = 80
"""Lines of a topology: 64 GPUs, or 16 with their network cards."""
QUERY_PARTS = (
    "clocks event reasons", "clocks throttle reas", "pcie generation",
    "ecc errors", "retired pages", "remapped rows", "gpu 0000",
)  # fmt: skip


def nvidia_smi(text: Text) -> Facts:
    """The facts of all its outputs, and the NVML error that the text speaks of."""
    for source, smi in outputs(text):
        yield from output_facts(smi, source)
    for line, smi in smi_csv.outputs_of(text.lines[:MAX_LINES]):
        yield from output_facts(smi, f"nvidia-smi --query-gpu, line {line + 1}", is_whole=True)
    yield from topology(text)
    if any(part in text.low for part in (*ERRORS, NO_DEVICES)):
        yield from nvml_error(text)


def outputs(text: Text) -> Iterator[tuple[str, Smi]]:
    """Each output from its banner on, with its place; parts of one without a banner are one too."""
    lines = text.lines
    tables = [n for n, line in enumerate(lines) if SMI_VERSION.search(line)]
    if not tables and any("|" in line and row_of(line) for line in lines):
        tables = [0]
    logs = [n for n, line in enumerate(lines) if "NVSMI LOG" in line]
    if not logs and any(part in text.low for part in QUERY_PARTS):
        logs = [0]
    forms = (("nvidia-smi", tables, table_with_processes), ("nvidia-smi -q", logs, parse_query))
    for name, starts, parse in forms:
        for start, end in pairwise((*starts, len(lines))):
            part = lines[start:end][:MAX_LINES]
            yield (
                f"{name}, line {start + 1}",
                parse("\n".join(line.lstrip("*>`") for line in part)),
            )


def table_with_processes(text: str) -> Smi:
    """The table, each GPU with its processes as far as they are listed."""
    smi, by_gpu = parse_table(text), processes_of(text)
    if by_gpu is None or smi.gpus is None:
        return smi
    listed = tuple(
        replace(gpu, processes=by_gpu.get(-1 if gpu.nvml_index is None else gpu.nvml_index, ()))
        for gpu in smi.gpus
    )
    return replace(smi, gpus=listed)


def output_facts(smi: Smi, source: str, *, is_whole: bool = False) -> Facts:
    """The versions and the GPUs of one output.

    `is_whole`: it lists every GPU by its place, although it need not name a bus address.
    """
    for subject, value, trust in (
        ("driver.version", smi.driver_version, SURE),
        ("driver.cuda", smi.cuda_version, SURE),
        ("driver.persistence", smi.persistence, USUAL),
    ):
        if value is not None:
            yield Claim(subject, value, source, trust)
    if smi.gpus:
        # A table without its banner that was pasted twice has each GPU twice.
        slots = {gpu.pci_bus_id or str(n): gpu for n, gpu in enumerate(smi.gpus)}
        # A part of a log that names no place tells of a GPU that another list has.
        is_a_part = "0" in slots and not is_whole
        yield Gpus(tuple(slots.values()), source, GUESS - 1 if is_a_part else SURE)
    driver = smi.driver_version or ""
    if smi.smi_version not in (None, driver) and driver.count(".") == 1:
        # A program of Linux on Windows' driver, whose versions have two numbers.
        yield Claim("os.wsl", True, source, HINT)
    if smi.no_cuda:
        text = "CUDA Version: ERR!"
        yield Event(kind="cuda-version-err", values={"why": "cuda-err"}, source=source, text=text)
    if any(gpu.driver_model for gpu in smi.gpus or ()):
        yield Claim("os.family", "windows", source)


def topology(text: Text) -> Facts:
    """The first matrix of `nvidia-smi topo -m`: the GPUs' NUMA nodes and links."""
    if "gpu0" not in text.low:
        return
    for number, line in enumerate(text.lines[:MAX_LINES]):
        if smi_topology.is_heading(line):
            seen = smi_topology.parse_topology(text.lines[number : number + MAX_MATRIX])
            # The matrix names no GPU: any other list knows more of them.
            if seen.gpus:
                yield Gpus(seen.gpus, f"nvidia-smi topo, line {number + 1}", GUESS - 1)
                yield from seen.links
                return


def nvml_error(text: Text) -> Facts:
    """The first NVML error."""
    for number, line in enumerate(text.lines, 1):
        code = 0 if NO_DEVICES in line.lower() else parse_error(line)
        if code is not None:
            source = f"nvidia-smi, line {number}"
            yield Claim("driver.nvml_code", code, source)
            yield Claim("driver.nvml_message", line.strip()[:200], source)
            if code == 0:
                yield Gpus((), source, HINT)
            return
