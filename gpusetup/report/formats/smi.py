"""What nvidia-smi prints, found in a text: tables, `-q`, errors.

The parsers are the probe's; here a text is cut into their pieces.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from gpusetup.messages.search import Text
from gpusetup.model.machine import Event
from gpusetup.readings.nvidia_smi import (
    GPU_HEAD,
    NO_DEVICES,
    SMI_VERSION,
    Smi,
    parse_error,
    parse_query,
    parse_table,
    row_of,
)
from gpusetup.report.facts import HINT, SURE, USUAL, Claim, Facts, Gpus

LINES_OF_A_TABLE = 400
LINES_OF_A_LOG = 6000


def nvidia_smi(text: Text) -> Facts:
    """The facts of all its outputs, and its errors."""
    for reader in (tables, logs, errors):
        yield from reader(text)


def pieces(text: Text, starts: list[int], most: int) -> Iterator[tuple[int, Sequence[str]]]:
    for start, end in pairwise((*starts, len(text.lines))):
        yield start, text.lines[start : min(end, start + most)]


def tables(text: Text) -> Facts:
    """Each table from its banner on; rows without a banner are a table too."""
    starts = []
    if "nvidia-smi" in text.low:
        starts = [n for n, line in enumerate(text.lines) if _is_banner(line)]
    if not starts and "|" in text.flat and any("|" in line and row_of(line) for line in text.lines):
        starts = [0]
    for start, lines in pieces(text, starts, LINES_OF_A_TABLE):
        smi = parse_table("\n".join(line.lstrip(" *>`") for line in lines))
        source = f"nvidia-smi, line {start + 1}"
        yield from _facts(smi, source, SURE)
        if smi.driver_version not in (None, smi.smi_version) and smi.driver_version.count(".") == 1:
            # A program of Linux on Windows' driver, whose versions have two numbers.
            yield Claim("os.wsl", True, source, HINT)
        if smi.no_cuda:
            why = {"why": "cuda-err"}
            yield Event(kind="cuda-version-err", values=why, source=source, text=lines[0])
        if any(gpu.driver_model for gpu in smi.gpus or ()):
            yield Claim("os.family", "windows", source)


def _is_banner(line: str) -> bool:
    return "NVIDIA-SMI" in line and SMI_VERSION.search(line) is not None


LOG_WORDS = ("nvsmi log", "clocks event reasons", "clocks throttle reas")


def logs(text: Text) -> Facts:
    """`nvidia-smi -q`, whole or a part."""
    headed = "gpu 0000" in text.low and any(map(GPU_HEAD.match, text.lines))
    if headed or any(word in text.low for word in LOG_WORDS):
        starts = [n for n, line in enumerate(text.lines) if "NVSMI LOG" in line] or [0]
        for start, lines in pieces(text, starts, LINES_OF_A_LOG):
            yield from _facts(
                parse_query("\n".join(lines)), f"nvidia-smi -q, line {start + 1}", SURE
            )


ERROR_WORDS = ("nvml", "nvidia driver", "devices were found", "device handle", "gpu is lost")


def errors(text: Text) -> Facts:
    """The NVML error that the text speaks of."""
    if not any(word in text.low for word in ERROR_WORDS):
        return
    for number, line in enumerate(text.lines, 1):
        none, code = NO_DEVICES in line.lower(), parse_error(line)
        if none or code is not None:
            source = f"nvidia-smi, line {number}"
            yield Claim("driver.nvml_code", code or 0, source)
            yield Claim("driver.nvml_message", line.strip()[:200], source)
            if none:
                yield Gpus((), source, HINT)
            return


def _facts(smi: Smi, source: str, trust: int) -> Facts:
    for subject, value, sure in (
        ("driver.version", smi.driver_version, SURE),
        ("driver.cuda", smi.cuda_version, SURE),
        ("driver.persistence", smi.persistence, USUAL),
    ):
        if value is not None:
            yield Claim(subject, value, source, sure)
    if smi.gpus:
        # A table without its banner that was pasted twice has each GPU twice.
        slots = {gpu.pci_bus_id or str(n): gpu for n, gpu in enumerate(smi.gpus)}
        yield Gpus(tuple(slots.values()), source, trust)
