"""Recorded nodes of a fleet, with planted faults.

Each node has a snapshot and a report of verify; what differs by nature (UUIDs, temperatures, free
memory, rates with a spread of 1 %) differs. A fault is on a node of its own, drawn by a seed.
"""

from __future__ import annotations

import random
from typing import Any

Record = dict[str, Any]


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
            "recovery_action": "none", "temperature_celsius": 34,
            "power_watts": 70.0, "power_limit_watts": 700.0, "power_limit_default_watts": 700.0,
            "clock_sm_max_mhz": 1980,
            "vbios_version": "96.00.89.00.01",
            "throttle_reasons": [], "utilization_percent": 0, "pcie_generation": 5,
            "pcie_generation_max": 5, "pcie_width": 16, "pcie_width_max": 16,
            "fabric_state": "completed", "fabric_status": "success",
            "nvlinks_active": 18, "nvlinks_inactive": [], "processes": [],
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
        "cpu": {"logical_cores": 224, "usable_cores": 224},
        "memory": {"total_bytes": 2164663517184 + number % 7 * 4096,
                   "shm_total_bytes": 1082331758592},
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


OF_A_NODE: Record = {
    "driver.version": "570.133.20", "driver.cuda": "12.8", "driver.persistence": False,
    "driver.library_version": "570.133.20", "driver.open_module": False,
    "os.kernel": "6.8.0-31-generic", "os.name": "Ubuntu 22.04.5 LTS", "os.libc": "glibc 2.35",
    "python.version": "3.11.9", "torch.version": "2.10.0+cu130", "torch.cudnn": "9.10.2",
    "torch.backend": "cu126", "environment.NCCL_IB_HCA": "mlx5_0",
    "environment.NCCL_P2P_DISABLE": "1", "environment": {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
    "memory.total_bytes": 2130303778816, "memory.shm_total_bytes": 67108864,
    "toolkit": {"nvcc": "12.4"}, "container.kind": "docker",
    "cpu.usable_cores": 112,
    "packages": [{"name": "torch", "version": "2.11.0+cu130"}],
    "taken_at": "2026-10-10T03:00:00Z",
}  # fmt: skip
OF_A_GPU: Record = {
    "power_limit_watts": 500.0, "pcie_width": 8, "pcie_generation_max": 4, "pcie_width_max": 8,
    "ecc_enabled": False, "ecc_uncorrected": 4, "mig_enabled": True, "nvlinks_active": 17,
    "compute_mode": "Exclusive_Process", "recovery_action": "gpu_reset", "name": "NVIDIA H100 NVL",
    "vbios_version": "96.00.74.00.01", "clock_sm_max_mhz": 1755,
    "memory_total_bytes": 68719476736, "lost": True, "retired_pending": True, "remap_failed": True,
    "fabric_state": "in_progress",
}  # fmt: skip
