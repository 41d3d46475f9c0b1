#!/usr/bin/env python3
"""Writes a fleet of recorded nodes with planted faults, shows it, and counts what was found.

    scripts/simulate_fleet.py --nodes 1000 --planted 50
    scripts/simulate_fleet.py --nodes 10000 --planted 500 --seed 3

Each node has a snapshot and a report of verify; what differs by nature (UUIDs, temperatures, free
memory, rates with a spread of 1 %) differs. The faults are of the kinds in `FAULTS`, drawn by the
seed, each on a node of its own. The last line reads `found F of P, G false, S s of CPU, M MiB`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

Record = dict[str, Any]
Fault = Callable[[Record, Record, random.Random], None]


def machine(number: int) -> Record:
    """The record of a sound node with eight GPUs."""
    gpus = [
        {
            "name": "NVIDIA H100 80GB HBM3", "maker": "nvidia", "target": "sm_90",
            "uuid": "GPU-0", "memory_total_bytes": 85520809984, "memory_used_bytes": 0,
            "compute_capability": "9.0", "nvml_index": index, "cuda_index": index,
            "pci_bus_id": f"00000000:{0x1B + 0x10 * index:02X}:00.0", "visible": True,
            "mig_enabled": False, "compute_mode": "Default", "ecc_enabled": True,
            "ecc_uncorrected": 0, "retired_pending": False, "remap_failed": False,
            "remapped_rows": 0, "recovery_action": "none", "temperature_celsius": 34,
            "power_watts": 70.0, "power_limit_watts": 700.0, "power_limit_default_watts": 700.0,
            "clock_sm_max_mhz": 1980, "clock_memory_max_mhz": 2619,
            "clock_sm_application_mhz": 1980, "vbios_version": "96.00.89.00.01",
            "inforom_version": "G520.0200.00.05",
            "throttle_reasons": [], "utilization_percent": 0, "pcie_generation": 5,
            "pcie_generation_max": 5, "pcie_width": 16, "pcie_width_max": 16,
            "fabric_state": "completed", "fabric_status": "success", "fabric_faults": [],
            "nvlinks_active": 18, "nvlinks_inactive": [], "nvlink_errors": 0, "processes": [],
        }
        for index in range(8)
    ]  # fmt: skip
    return {
        "schema": "gpusetup.snapshot/1", "taken_at": "2026-11-19T03:00:00Z", "origin": "live",
        "os": {"family": "linux", "name": "Ubuntu 24.04.1 LTS", "id": "ubuntu",
               "version": "24.04", "kernel": "6.8.0-48-generic", "machine": "x86_64",
               "libc": "glibc 2.39"},
        "python": {"version": "3.12.7", "prefix": "/opt/env", "manager": "venv", "bits": 64},
        "driver": {"version": "580.95.05", "cuda": "13.0", "library_version": "580.95.05",
                   "open_module": True,
                   "module_loaded": True, "nvml_code": 0, "seconds": 0.1, "persistence": True},
        "cuda_api": {"init_code": 0, "device_count": 8, "version": "13.0"},
        "gpus": gpus,
        "torch": {"installed": True, "version": "2.11.0+cu130", "cuda": "13.0",
                  "backend": "cu130", "installer": "uv", "cudnn": "9.15.1"},
        "packages": [{"name": "torch", "version": "2.11.0+cu130"},
                     {"name": "nvidia-nccl-cu13", "version": "2.28.9"},
                     {"name": "triton", "version": "3.6.0"},
                     {"name": "numpy", "version": "2.3.5"}],
        "container": {"kind": "none"},
        "cpu": {"name": "Xeon 8480C", "logical_cores": 224, "usable_cores": 224},
        "memory": {"total_bytes": 2164663517184 + number % 7 * 4096,
                   "shm_total_bytes": 1082331758592, "memlock_bytes": 8589934592},
        "environment": {"NCCL_IB_HCA": "mlx5", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
    }  # fmt: skip


RATES = (("matmul-speed", 620.0, "TFLOP/s"), ("copy-speed", 52.0, "GB/s"))


def report(rng: random.Random) -> Record:
    """The verify report of a sound node."""
    devices = [{"device": f"cuda:{i}", "name": "NVIDIA H100 80GB HBM3"} for i in range(8)]
    checks = [
        {"name": name, "device": f"cuda:{i}", "status": "passed", "unit": unit,
         "value": rng.gauss(middle, middle * 0.01)}
        for name, middle, unit in RATES for i in range(8)
    ]  # fmt: skip
    return {
        "schema": "gpusetup.verify/1", "verdict": "passed", "torch": "2.11.0+cu130",
        "cuda": "13.0", "python": "3.12.7", "devices": devices, "checks": checks,
    }  # fmt: skip


def natural(node: Record, rng: random.Random) -> None:
    """What differs on sound nodes too."""
    node["driver"]["seconds"] = rng.uniform(0.02, 0.6)
    for gpu in node["gpus"]:
        gpu["uuid"] = f"GPU-{rng.getrandbits(32):08x}"
        gpu["temperature_celsius"] = rng.randint(26, 62)
        gpu["power_watts"] = rng.uniform(60, 110)
        gpu["memory_used_bytes"] = rng.randint(0, 3 << 30)


def _set(*path: str, value: object) -> Fault:
    def change(node: Record, verified: Record, rng: random.Random) -> None:
        place: Any = node
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value

    return change


def _gpu(field: str, value: object) -> Fault:
    def change(node: Record, verified: Record, rng: random.Random) -> None:
        rng.choice(node["gpus"])[field] = value

    return change


def _package(name: str, version: str | None) -> Fault:
    def change(node: Record, verified: Record, rng: random.Random) -> None:
        node["packages"] = [p for p in node["packages"] if p["name"] != name]
        if version:
            node["packages"].append({"name": name, "version": version})

    return change


def _slow(check: str, share: float) -> Fault:
    def change(node: Record, verified: Record, rng: random.Random) -> None:
        row = rng.choice([one for one in verified["checks"] if one["name"] == check])
        row["value"] *= share

    return change


def _fewer(node: Record, verified: Record, rng: random.Random) -> None:
    del node["gpus"][rng.randrange(8)]


def _failed(node: Record, verified: Record, rng: random.Random) -> None:
    rng.choice(verified["checks"])["status"] = "failed"


FAULTS: dict[str, Fault] = {
    "driver": _set("driver", "version", value="570.133.20"),
    "cuda": _set("driver", "cuda", value="12.8"),
    "kernel": _set("os", "kernel", value="6.8.0-31-generic"),
    "system": _set("os", "name", value="Ubuntu 22.04.5 LTS"),
    "python": _set("python", "version", value="3.11.9"),
    "torch": _set("torch", "version", value="2.10.0+cu130"),
    "cudnn": _set("torch", "cudnn", value="9.10.2"),
    "persistence": _set("driver", "persistence", value=False),
    "variable": _set("environment", "NCCL_IB_HCA", value="mlx5_0"),
    "another variable": _set("environment", "NCCL_P2P_DISABLE", value="1"),
    "no variable": _set("environment", value={"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}),
    "memory": _set("memory", "total_bytes", value=2130303778816),
    "shm": _set("memory", "shm_total_bytes", value=67108864),
    "nccl": _package("nvidia-nccl-cu13", "2.27.5"),
    "no triton": _package("triton", None),
    "one package more": _package("apex", "0.1"),
    "power": _gpu("power_limit_watts", 500.0),
    "lanes": _gpu("pcie_width", 8),
    "slot": _gpu("pcie_generation_max", 4),
    "ecc": _gpu("ecc_enabled", False),
    "ecc errors": _gpu("ecc_uncorrected", 4),
    "mig": _gpu("mig_enabled", True),
    "links": _gpu("nvlinks_active", 17),
    "mode": _gpu("compute_mode", "Exclusive_Process"),
    "reset wanted": _gpu("recovery_action", "gpu_reset"),
    "fewer GPUs": _fewer,
    "another GPU": _gpu("name", "NVIDIA H100 NVL"),
    "slower by 10 %": _slow("matmul-speed", 0.9),
    "half as fast": _slow("copy-speed", 0.5),
    "failed check": _failed,
    "VBIOS": _gpu("vbios_version", "96.00.74.00.01"),
    "InfoROM": _gpu("inforom_version", "G520.0200.00.03"),
    "SM clock": _gpu("clock_sm_max_mhz", 1755),
    "memory clock": _gpu("clock_memory_max_mhz", 1593),
    "application clock": _gpu("clock_sm_application_mhz", 1095),
    "driver library": _set("driver", "library_version", value="570.133.20"),
    "closed module": _set("driver", "open_module", value=False),
    "C library": _set("os", "libc", value="glibc 2.35"),
    "backend": _set("torch", "backend", value="cu126"),
    "toolkit": _set("toolkit", value={"nvcc": "12.4"}),
    "container": _set("container", "kind", value="docker"),
    "processor": _set("cpu", "name", value="Xeon 8462Y+"),
    "fewer cores": _set("cpu", "usable_cores", value=112),
    "locked memory": _set("memory", "memlock_bytes", value=65536),
    "less GPU memory": _gpu("memory_total_bytes", 68719476736),
    "lost GPU": _gpu("lost", True),
    "retired rows": _gpu("retired_pending", True),
    "remapping failed": _gpu("remap_failed", True),
    "slot width": _gpu("pcie_width_max", 8),
    "fabric": _gpu("fabric_state", "in_progress"),
}


def write(folder: Path, count: int, planted: int, seed: int) -> dict[str, str]:
    """The folder of records; the nodes with a fault and its kind."""
    rng = random.Random(seed)
    chosen = rng.sample(range(count), planted)
    kinds = list(FAULTS)
    faults = {number: kinds[place % len(kinds)] for place, number in enumerate(chosen)}
    for number in range(count):
        node, verified = machine(number), report(rng)
        natural(node, rng)
        if number in faults:
            FAULTS[faults[number]](node, verified, rng)
        name = f"gpu{number:05d}"
        (folder / f"{name}.json").write_text(json.dumps(node), encoding="utf-8")
        (folder / f"{name}.verify.json").write_text(json.dumps(verified), encoding="utf-8")
    return {f"gpu{number:05d}": kind for number, kind in faults.items()}


SHOW_AND_SAY_MEMORY = """
import sys, time
from gpusetup.cli import main
main(sys.argv[1:])
seconds = time.process_time()
with open("/proc/self/status") as file:
    most = next(line.split()[1] for line in file if line.startswith("VmHWM"))
print(seconds, most, file=sys.stderr)
"""
"""What wait4 tells of a child counts its parent's memory too, from before the child's program."""


def shown(folder: Path) -> tuple[Record, float, float]:
    """The answer of `fleet show`, its CPU seconds, and the most memory it had (MiB)."""
    words = (sys.executable, "-c", SHOW_AND_SAY_MEMORY, "fleet", "show", str(folder), "--json")
    said = subprocess.run(words, capture_output=True, check=True)
    answer: Record = json.loads(said.stdout)
    seconds, kibibytes = said.stderr.split()[-2:]
    return answer, float(seconds), int(kibibytes) / 1024


def score(answer: Record, faults: dict[str, str]) -> tuple[int, list[str], list[str]]:
    """How many faults were found, the kinds that were missed, the nodes that have none."""
    odd = {node["name"] for node in answer["nodes"] if node["status"] != "ok"}
    missed = [f"{name}: {kind}" for name, kind in faults.items() if name not in odd]
    return len(faults) - len(missed), missed, sorted(odd - set(faults))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--planted", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
        faults = write(Path(folder), options.nodes, options.planted, options.seed)
        answer, seconds, most = shown(Path(folder))
    found, missed, false = score(answer, faults)
    for line in (*(f"missed {one}" for one in missed), *(f"false {one}" for one in false))[:20]:
        print(line)
    told = f"found {found} of {len(faults)}, {len(false)} false"
    print(f"{told}, {seconds:.1f} s of CPU, {most:.0f} MiB")
    return 1 if missed or false else 0


if __name__ == "__main__":
    sys.exit(main())
