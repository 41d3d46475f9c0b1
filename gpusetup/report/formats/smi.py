"""Everything that nvidia-smi prints, found in a text: tables, `-q`, XML, CSV, `-L`.

The parsers are the probe's; here a text is cut into their pieces.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice, pairwise

from gpusetup.model.machine import Event, Gpu
from gpusetup.model.patterns import lazy
from gpusetup.readings.nvidia_smi.csv import GPU_LINE, is_header, parse_csv, parse_list
from gpusetup.readings.nvidia_smi.log import GPU_HEAD, ROOT, parse_query, parse_xml
from gpusetup.readings.nvidia_smi.table import CUT, FIRST, SMI_VERSION, parse_table
from gpusetup.readings.nvidia_smi.values import Smi, parse_error
from gpusetup.readings.nvidia_smi.wsl import is_far_older, is_of_wsl
from gpusetup.report.facts import GUESS, HINT, SURE, USUAL, Claim, Fact, Gpus
from gpusetup.report.text import Text

LINES_OF_A_TABLE = 400
LINES_OF_A_LOG = 6000


WORDS = (
    "nvidia-smi",
    "nvml",
    "gpu",
    "geforce",
    "nvidia ",
    "tesla ",
    "mib",
    "product name",
    "version :",
    "driver version:",
)


def nvidia_smi(text: Text) -> Iterator[Fact]:
    """The facts of all its outputs, and its errors."""
    if not any(word in text.low for word in WORDS):
        return
    for reader in (tables, logs, xml, csv, lists, errors):
        yield from reader(text)


def tables(text: Text) -> Iterator[Fact]:
    """Each table from its banner on; rows without a banner are a table too."""
    starts: list[int] = []
    if "nvidia-smi" in text.low:
        starts = [n for n, line in enumerate(text.lines) if _is_banner(line)]
    row = _is_row if "mib" in text.low else _is_cut_row
    if not starts and "|" in text.flat and any("|" in x and row(x) for x in text.lines):
        starts = [0]
    for start, end in pairwise((*starts, len(text.lines))):
        lines = text.lines[start : min(end, start + LINES_OF_A_TABLE)]
        smi = parse_table("\n".join(_framed(line) for line in lines))
        yield from _facts(smi, _source("nvidia-smi", start), gpus_trust=SURE)
        yield from _table_events(smi, lines, start)


def _is_banner(line: str) -> bool:
    return "NVIDIA-SMI" in line and SMI_VERSION.search(line) is not None


def _is_row(line: str) -> bool:
    return FIRST.match(line.strip().strip("*>").strip().strip("|").split("|")[0]) is not None


def _is_cut_row(line: str) -> bool:
    return CUT.match(line.strip().strip("|")) is not None


def _framed(line: str) -> str:
    """Emphasis and quotes in front of a frame fall away."""
    return line.lstrip(" *>`")


def _table_events(smi: Smi, lines: Sequence[str], start: int) -> Iterator[Fact]:
    banner = next((line for line in lines if _is_banner(line)), "")
    source = _source("nvidia-smi", start)
    own, driver = smi.smi_version or "", smi.driver_version or ""
    if is_of_wsl(own, driver):
        yield Claim(subject="os.wsl", value=True, source=source, trust=HINT)
    if "CUDA UMD Version" in banner:
        yield Event(kind="new-smi-banner", source=source, text=banner.strip("| "))
    if any("CUDA version" in problem for problem in smi.problems):
        values = {"why": "cuda-err"}
        yield Event(kind="cuda-version-err", values=values, source=source, text=banner.strip("| "))
    if is_far_older(own, driver) and smi.cuda_version is None:
        values = {"library": own}
        yield Event(kind="nvml-mismatch", values=values, source=source, text=banner.strip("| "))
    if any(gpu.driver_model for gpu in smi.gpus or ()):
        yield Claim(subject="os.family", value="windows", source=source, trust=USUAL)
    elif any("Persistence-M" in line for line in lines):
        yield Claim(subject="os.family", value="linux", source=source, trust=HINT)


FRAGMENT = lazy(
    r"\s*(?:Product Name\s{1,60}: ?(?:NVIDIA|GeForce|Quadro|Tesla|TITAN|GRID|[AHLBVT]\d)"
    r"|(?:CUDA|CUDA UMD) Version\s{1,60}: ?\d{1,2}\.\d\s*$"
    r"|(?:Driver|KMD) Version\s{0,60}: ?\d{3}\.\d{2,3}(?:\.\d{2})?\s*$)"
)
"""Lines of `nvidia-smi -q` by which a piece of it is known without its heading."""
FRAGMENT_WORDS = ("product name :", "version :", "driver version:", "kmd version:")
LOG_WORDS = ("nvsmi log", "clocks event reasons", "clocks throttle reas")


def logs(text: Text) -> Iterator[Fact]:
    """`nvidia-smi -q`, whole or a part."""
    told = any(word in text.low for word in LOG_WORDS)
    headed = "gpu 0000" in text.low and any(map(GPU_HEAD.match, text.lines))
    if not told and not headed and not _holds_a_fragment(text):
        return
    starts = [n for n, line in enumerate(text.lines) if "NVSMI LOG" in line] or [0]
    for start, end in pairwise((*starts, len(text.lines))):
        lines = text.lines[start : min(end, start + LINES_OF_A_LOG)]
        yield from _facts(parse_query("\n".join(lines)), _source("nvidia-smi -q", start), SURE)


def _holds_a_fragment(text: Text) -> bool:
    there = any(word in text.low for word in FRAGMENT_WORDS)
    return there and any(map(FRAGMENT.match, text.lines[:LINES_OF_A_LOG]))


def xml(text: Text) -> Iterator[Fact]:
    if f"<{ROOT}" not in text.low:
        return
    start = next(n for n, line in enumerate(text.lines) if f"<{ROOT}" in line.lower())
    lines = text.lines[start : start + LINES_OF_A_LOG]
    yield from _facts(parse_xml("\n".join(lines)), _source("nvidia-smi -q -x", start), SURE)


CSV_WORDS = (
    "driver_version", "memory.", "uuid", "name,", "pci.", "index,", "power.", "temperature.",
    "remapped_rows.", "retired_pages.", "pid,", "query-gpu",
)  # fmt: skip
CSVS = 8
ASKED = lazy(r"--query-gpu=(?P<fields>[\w.,]{2,2000})\s.*\bnoheader\b")


def csv(text: Text) -> Iterator[Fact]:
    """From each header on, as long as the lines have as many fields."""
    if not any(word in text.low for word in CSV_WORDS):
        return
    for start, header in islice(_headers(text.lines), CSVS):
        rows = list(_rows(text.lines[start + 1 :], header.count(",")))
        smi = parse_csv("\n".join((header, *rows))) if rows else None
        if smi and smi.gpus != ():
            trust = SURE if any(gpu.name != "unknown" for gpu in smi.gpus or ()) else GUESS
            yield from _facts(smi, _source("nvidia-smi CSV", start), trust)


def _headers(lines: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    """Lines that head a CSV; of a command that asks for none, the fields that it names.

    >>> list(_headers(("$ nvidia-smi --query-gpu=name,uuid --format=csv,noheader", "NVIDIA L4, G")))
    [(0, 'name, uuid')]
    """
    for number, line in enumerate(lines):
        asked = ASKED.search(line) if "--query-gpu" in line else None
        if asked:
            yield number, ", ".join(asked["fields"].strip(",").split(","))
        elif ("," in line or "." in line or "_" in line) and is_header(line.strip()):
            yield number, line.strip()


def _rows(lines: tuple[str, ...], commas: int) -> Iterator[str]:
    for line in lines:
        odd = line.count(",") != commas or "=" in line or ": " in line or is_header(line.strip())
        if line.strip() and odd and "GPU is lost" not in line:
            return
        if not line.strip() and not commas:
            return
        if line.strip():
            yield line


LISTED = lazy(r"^\s*GPU \d+: .{3,80}\((?:UUID|\.\.\.)")


def lists(text: Text) -> Iterator[Fact]:
    """`nvidia-smi -L`: the first run of such lines."""
    if "gpu 0: " not in text.low and "(uuid: " not in text.low:
        return
    lines: list[str] = []
    start = None
    for number, line in enumerate(_with_uuids(text.lines)):
        if LISTED.match(line) or (lines and line.lstrip().startswith("MIG ")):
            start = number if start is None else start
            if lines and GPU_LINE.search(line) and line.lstrip()[:7] == lines[0].lstrip()[:7]:
                break
            lines.append(line.replace("(...)", ""))
    if start is not None:
        yield from _facts(parse_list("\n".join(lines)), _source("nvidia-smi -L", start), USUAL)


def _with_uuids(lines: tuple[str, ...]) -> Iterator[str]:
    """Lines that were broken before the UUID, whole again."""
    for line, after in pairwise((*lines, "")):
        yield f"{line} {after.strip()}" if line.endswith("(UUID:") else line


ERROR_WORDS = ("nvml", "nvidia driver", "devices were found", "device handle", "gpu is lost")


def errors(text: Text) -> Iterator[Fact]:
    """The NVML error that the text speaks of."""
    for number in sorted({text.line_at(at) for word in ERROR_WORDS for at in _all(text.low, word)}):
        line = text.lines[number]
        low = line.lower()
        if not any(word in low for word in ERROR_WORDS):
            continue
        error = parse_error(line)
        if error is not None:
            source = _source("nvidia-smi", number)
            if error.nvml_code is not None:
                yield Claim(subject="driver.nvml_code", value=error.nvml_code, source=source)
                yield Claim(subject="driver.nvml_message", value=line.strip()[:200], source=source)
            if error.gpus == ():
                yield Gpus(gpus=(), source=source, trust=HINT)
            return


def _all(low: str, word: str) -> Iterator[int]:
    at = low.find(word)
    while at >= 0:
        yield at
        at = low.find(word, at + 1)


def _facts(smi: Smi, source: str, gpus_trust: int) -> Iterator[Fact]:
    claims = (
        ("driver.version", smi.driver_version),
        ("driver.cuda", smi.cuda_version),
        ("driver.library_version", smi.library_version),
    )
    for subject, value in claims:
        if value:
            yield Claim(subject=subject, value=value, source=source, trust=SURE)
    if smi.persistence is not None:
        yield Claim(subject="driver.persistence", value=smi.persistence, source=source)
    if smi.gpus:
        yield Gpus(gpus=_each_once(smi.gpus), source=source, trust=gpus_trust)


def _each_once(gpus: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    """A table without its banner that was pasted twice has each GPU twice: its slot is its own."""
    slots: dict[str, Gpu] = {}
    for place, gpu in enumerate(gpus):
        slots.setdefault(gpu.pci_bus_id or f"#{place}", gpu)
    return tuple(slots.values())


def _source(what: str, line: int) -> str:
    return f"{what}, line {line + 1}"
