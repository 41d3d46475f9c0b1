"""The table that plain `nvidia-smi` prints, from 331 to 610.

Its first line names the driver and the CUDA version: `Driver Version` and `CUDA Version`, from
610 on `KMD Version` and `CUDA UMD Version`; before 410 there is no CUDA version. Each GPU has two
or three lines. Names are cut with `...`.
"""

from __future__ import annotations

import re
from typing import Any

from gpusetup.model.frozen import replace
from gpusetup.model.machine import Gpu
from gpusetup.model.patterns import lazy
from gpusetup.readings.nvidia_smi import values
from gpusetup.readings.nvidia_smi.values import Smi

SMI_VERSION = lazy(r"NVIDIA-SMI\s+(\d[\w.]*)")
DRIVER_VERSION = lazy(r"(?:Driver|KMD) Version:\s*([\w.!/]+)")
CUDA_VERSION = lazy(r"CUDA (?:UMD )?Version:\s*([\w.!/]+)")
FIRST = lazy(r"^\s*(\d+)\s+(\S.*?)\s+(On|Off|N/A|WDDM|TCC|MCDM|ERR!)\s*$")
CUT = lazy(r"^\s*(\d+)\s+((?:NVIDIA|Tesla|GeForce|Quadro)\s\S.*?)\s+(On|Off|WDDM|TCC)\s*$")
"""The same where a text ends after the first cell."""
BUS = lazy(r"([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])\s*(On|Off|N/A)?")
STATE = lazy(
    r"(?P<fan>\d+%|N/A|ERR!)\s+(?P<temp>\d+C?|N/A|ERR!)\s+(?P<perf>P\d+|N/A|Unknown)\s+"
    r"(?P<draw>[\d.]+W|N/A|ERR!)\s*/\s*(?P<limit>[\d.]+W|N/A|ERR!)?"
)
MEMORY = lazy(r"(\d+)\s*MiB\s*/\s*(\d+)\s*MiB")
LOAD = lazy(r"(\d+%|N/A|ERR!)\s+(\S.*\S)")


def parse_banner(text: str) -> Smi | None:
    """The versions in the first line of the table; None where there is no such line.

    >>> line = "| NVIDIA-SMI 610.43.02   KMD Version: 610.43.02   CUDA UMD Version: 13.3  |"
    >>> parse_banner(line).driver_version, parse_banner(line).cuda_version
    ('610.43.02', '13.3')
    """
    line = next((line for line in text.splitlines() if SMI_VERSION.search(line)), None)
    if line is None:
        return None
    found = (pattern.search(line) for pattern in (SMI_VERSION, DRIVER_VERSION, CUDA_VERSION))
    smi, driver, cuda = (hit and hit[1] for hit in found)
    failed = (("CUDA version", cuda), ("driver version", driver))
    return Smi(
        smi_version=smi,
        driver_version=values.dotted(driver),
        cuda_version=values.dotted(cuda),
        problems=tuple(f"{what}: {said}" for what, said in failed if said == "ERR!"),
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
    banner = parse_banner(text)
    smi = banner or Smi()
    rows = with_lists(text, gpu_rows(text))
    if not rows and (error := values.parse_error(text)):
        own, driver, cuda = smi.smi_version, smi.driver_version, smi.cuda_version
        return replace(error, smi_version=own, driver_version=driver, cuda_version=cuda)
    kept = [row.pop("persistence", None) for row in rows]
    return replace(
        smi,
        gpus=tuple(Gpu(**row) for row in rows) if rows else None,
        persistence=all(kept) if kept and None not in kept else None,
        nvml_code=0 if rows or banner else None,
        complete="Processes:" in text,
    )


def cells_of(line: str) -> list[str]:
    return line.strip(" \t*>").strip("|").split("|")


def row_of(line: str) -> re.Match[str] | None:
    """The first line of a GPU."""
    first, *more = cells_of(line)
    return (FIRST if more else CUT).match(first)


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


PROCESS = lazy(
    r"^[\s|>]{0,12}(?P<gpu>\d{1,3})\s+(?:(?:\d+|N/A)\s+(?:\d+|N/A)\s+)?(?P<pid>\d{1,10})\s+"
    r"(?P<kind>(?:M\+)?[CG](?:\+[CG])?)\s+(?P<name>\S.{0,300}?)\s{1,120}"
    r"(?P<used>\d{1,12}\s?MiB|N/A)\s{0,9}\|?\s{0,9}$"
)
"""With the ids of a MIG instance from 450 on, without them before."""
INSTANCE = lazy(r"^[\s|>]{0,12}(?P<gpu>\d{1,3})\s+\d{1,3}\s+\d{1,3}\s+\d{1,3}\s*\|\s*\d+\s?MiB\s*/")


def with_lists(text: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The GPUs with the MIG instances and the processes of the lists below them."""
    lines = text.splitlines()
    instances = [hit["gpu"] for line in lines if (hit := INSTANCE.match(line))]
    running = [hit for line in lines if (hit := PROCESS.match(line))]
    below = text.partition("MIG devices:")[2]
    whole = "No MIG devices found" in below or "Processes:" in below
    for row in rows:
        index = str(row["nvml_index"])
        if row.get("mig_enabled") and (whole or index in instances):
            row["mig_count"] = instances.count(index)
        held = tuple(
            values.process(hit["kind"], hit["pid"], hit["name"], hit["used"])
            for hit in running
            if hit["gpu"] == index
        )
        if held or "No running processes found" in text:
            row["processes"] = held
    return rows


def first_line(first: re.Match[str], cells: list[str]) -> dict[str, Any]:
    """`0  NVIDIA L40S  On | 00000000:17:00.0 Off | 0`; on Windows the driver model is the third."""
    _, middle, last, *_ = (*cells, "", "")
    bus, errors = BUS.search(middle), last.strip()
    return {
        "nvml_index": int(first[1]),
        "name": first[2].strip(),
        "driver_model": values.driver_model(first[3]),
        "persistence": values.flag(first[3]),
        "pci_bus_id": bus[1] if bus else None,
        "ecc_enabled": False if errors == "Off" else errors.isdecimal() or None,
        "ecc_uncorrected": int(errors) if errors.isdecimal() else None,
    }


def next_line(cells: list[str]) -> dict[str, Any]:
    """`N/A 33C P0 72W / 400W | 0MiB / 40960MiB | 97% Default`, or the line with the MIG mode."""
    state = STATE.search(cells[0])
    if state is None:
        mode = values.flag(cells[-1]) if len(cells) == 3 and not cells[0].strip() else None
        waits = {"mig_pending": not mode} if cells[-1].strip().endswith("*") else {}
        return {} if mode is None else {"mig_enabled": mode, **waits}
    _, middle, last, *_ = (*cells, "", "")
    memory, load = MEMORY.search(middle), LOAD.search(last)
    row = {
        "temperature_celsius": values.integer(state["temp"]),
        "power_watts": values.number(state["draw"]),
        "power_limit_watts": values.number(state["limit"]),
        "memory_used_bytes": int(memory[1]) << 20 if memory else None,
        "memory_total_bytes": int(memory[2]) << 20 if memory else None,
        "utilization_percent": values.integer(load[1]) if load else None,
        "compute_mode": values.compute_mode(load[2]) if load else None,
    }
    return {**row, "lost": True} if any(map(values.says_lost, cells)) else row
