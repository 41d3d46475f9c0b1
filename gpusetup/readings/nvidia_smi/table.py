"""The table that plain `nvidia-smi` prints, from 331 to 610.

Its first line names the driver and the CUDA version: `Driver Version` and `CUDA Version`, from
610 on `KMD Version` and `CUDA UMD Version`; before 410 there is no CUDA version. Each GPU has two
or three lines. Names are cut with `...`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from gpusetup.model.frozen import replace
from gpusetup.model.machine import Gpu
from gpusetup.model.patterns import lazy
from gpusetup.readings.nvidia_smi import values
from gpusetup.readings.nvidia_smi.values import Smi

SMI_VERSION = lazy(r"NVIDIA-SMI\s+(\d[\w.]*)")
DRIVER_VERSION = lazy(r"(?:Driver|KMD) Version:\s*([\w.!/]+)")
CUDA_VERSION = lazy(r"CUDA (?:UMD )?Version:\s*([\w.!/]+)")
FIRST = lazy(
    r"^\s*(?P<nvml_index>\d+)\s+(?P<name>\S.*?)\s+"
    r"(?P<driver_model>On|Off|N/A|WDDM|TCC|MCDM|ERR!)\s*$"
)
BUS = lazy(r"(?P<pci_bus_id>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])")
STATE = lazy(
    r"(?:\d+%|N/A|ERR!)\s+(?P<temperature_celsius>\d+C?|N/A|ERR!)\s+(?:P\d+|N/A|Unknown)\s+"
    r"(?P<power_watts>[\d.]+W|N/A|ERR!)\s*/\s*(?P<power_limit_watts>[\d.]+W|N/A|ERR!)?"
)
MEMORY = lazy(r"(?P<memory_used_bytes>\d+\s*MiB)\s*/\s*(?P<memory_total_bytes>\d+\s*MiB)")
LOAD = lazy(r"(?P<utilization_percent>\d+%|N/A|ERR!)\s+(?P<compute_mode>\S.*\S)")


def parse_banner(text: str) -> Smi:
    """The versions in the first line of the table, if it is there.

    >>> line = "| NVIDIA-SMI 610.43.02   KMD Version: 610.43.02   CUDA UMD Version: 13.3  |"
    >>> parse_banner(line).driver_version, parse_banner(line).cuda_version
    ('610.43.02', '13.3')
    """
    line = next((line for line in text.splitlines() if SMI_VERSION.search(line)), "")
    found = (pattern.search(line) for pattern in (SMI_VERSION, DRIVER_VERSION, CUDA_VERSION))
    smi, driver, cuda = (hit and hit[1] for hit in found)
    return Smi(
        smi_version=smi,
        driver_version=values.dotted(driver),
        cuda_version=values.dotted(cuda),
        no_cuda=cuda == "ERR!",
    )


def parse_table(text: str) -> Smi:
    """Versions and GPUs; cut tables give the GPUs that are there.

    >>> text = '''
    ... | NVIDIA-SMI 450.51.06    Driver Version: 450.51.06    CUDA Version: 11.0     |
    ... |   0  Tesla K20m          Off  | 00000000:03:00.0 Off |                    0 |
    ... | N/A   23C    P0    46W / 225W |      0MiB /  4743MiB |      0%      Default |'''
    >>> smi = parse_table(text)
    >>> smi.cuda_version, smi.gpus[0].name, smi.gpus[0].temperature_celsius
    ('11.0', 'Tesla K20m', 23)
    """
    rows = gpu_rows(text)
    kept = [row.pop("persistence", None) for row in rows]
    return replace(
        parse_banner(text),
        gpus=tuple(Gpu(**row) for row in rows) if rows else None,
        persistence=all(kept) if kept and None not in kept else None,
    )


def cells_of(line: str) -> list[str]:
    return line.strip(" \t*>").strip("|").split("|")


def row_of(line: str) -> re.Match[str] | None:
    """The first line of a GPU."""
    first, *more = cells_of(line)
    return FIRST.match(first) if more else None


def gpu_rows(text: str) -> list[dict[str, Any]]:
    """Each GPU's fields: a first line begins one, the lines after it belong to it."""
    rows: list[dict[str, Any]] = []
    for line in text.splitlines():
        if first := row_of(line):
            rows.append(first_line(first, cells_of(line)))
        elif rows and ("Processes:" in line or "MIG devices:" in line):
            break
        elif rows:
            rows[-1].update(next_line(cells_of(line)))
    return rows


READS: dict[str, Callable[[str | None], Any]] = {
    **dict.fromkeys(("nvml_index", "temperature_celsius", "utilization_percent"), values.integer),
    **dict.fromkeys(("name", "pci_bus_id"), values.cell),
    **dict.fromkeys(("power_watts", "power_limit_watts"), values.number),
    **dict.fromkeys(("memory_used_bytes", "memory_total_bytes"), values.memory),
    "driver_model": values.driver_model,
    "compute_mode": values.compute_mode,
}
"""How the text of a field is read."""


def fields_of(*hits: re.Match[str] | None) -> dict[str, Any]:
    """The groups of what was found, each a field and read as that."""
    found = (group for hit in hits if hit for group in hit.groupdict().items())
    return {name: READS[name](text) for name, text in found}


def first_line(first: re.Match[str], cells: list[str]) -> dict[str, Any]:
    """`0  NVIDIA L40S  On | 00000000:17:00.0 Off | 0`; on Windows the driver model is the third."""
    _, middle, last, *_ = (*cells, "", "")
    errors = last.strip()
    return {
        **fields_of(first, BUS.search(middle)),
        "name": first["name"],
        "persistence": values.flag(first["driver_model"]),
        "ecc_enabled": False if errors == "Off" else errors.isdecimal() or None,
        "ecc_uncorrected": int(errors) if errors.isdecimal() else None,
    }


def next_line(cells: list[str]) -> dict[str, Any]:
    """`N/A 33C P0 72W / 400W | 0MiB / 40960MiB | 97% Default`, or the line with the MIG mode."""
    found = [form.search(cell) for form, cell in zip((STATE, MEMORY, LOAD), cells, strict=False)]
    if found[0]:
        lost = {"lost": True} if any(map(values.says_lost, cells)) else {}
        return {**fields_of(*found), **lost}
    mode = values.flag(cells[-1]) if len(cells) == 3 and not cells[0].strip() else None
    waits = {"mig_pending": not mode} if cells[-1].strip().endswith("*") else {}
    return {} if mode is None else {"mig_enabled": mode, **waits}
