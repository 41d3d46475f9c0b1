"""The children that ask NVML and libcuda: the real binding and scripts, stand-in libraries."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import standin
from standin import A100, RTX_3050

from gpusetup.system.system import System

Ask = Callable[..., Any]


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Ask:
    """Ask a script on a machine of the given state; keywords as in `standin.state`."""

    def asked(script: str, gpus: tuple[Mapping[str, object], ...] = (A100,), **more: object) -> Any:
        limit = 20 if "limit" not in more else float(str(more.pop("limit")))
        standin.install(monkeypatch, tmp_path, standin.state(gpus, **more))
        return System().ask(script, timeout=limit)

    return asked


NOT_THERE = (
    "mig_instances", "retired_pages", "sram_threshold_exceeded", "power_limit_default_watts",
    "recovery_action", "nvlinks_active", "nvlinks_inactive",
    "clock_sm_max_mhz", "vbios_version",
)  # fmt: skip
"""What the stand-in's healthy GPU does not tell."""


def test_nvml_tells_of_links_repairs_and_what_the_driver_recommends(ask: Ask) -> None:
    ill = {
        "recovery_action": 4, "sram_exceeded": 1, "nvlinks": "1101",
        "retired_single": 3, "retired_double": 1,
        "clock_sm_max": 1410, "vbios": "92.00.45.00.03",
        "power_limit_default_mw": 500000,
        "processes": "4711:1073741824",
    }  # fmt: skip
    more = {"process__4711": "/opt/env/bin/python3"}
    device = ask("read_nvml", ({**A100, **ill},), **more)["devices"][0]
    assert {name: device[name] for name in NOT_THERE[1:]} == {
        "retired_pages": 4,
        "sram_threshold_exceeded": True,
        "power_limit_default_watts": 500.0,
        "recovery_action": "drain_and_reset",
        "nvlinks_active": 3,
        "nvlinks_inactive": [2],
        "clock_sm_max_mhz": 1410,
        "vbios_version": "92.00.45.00.03",
    }
    assert device["processes"] == [
        {"pid": 4711, "kind": "C", "name": "python3", "memory_bytes": 1 << 30}
    ]


def test_nvml_tells_everything_about_a_healthy_gpu(ask: Ask) -> None:
    answer = ask("read_nvml")
    device = answer.pop("devices")[0]
    assert answer == {
        "init": 0,
        "message": "Success",
        "nvml_version": "13.580.95.05",
        "driver_version": "580.95.05",
        "cuda_version": "13.0",
        "problems": [],
    }
    assert device == {
        "index": 0,
        "name": "NVIDIA A100-SXM4-40GB",
        "uuid": standin.uuid(0),
        "pci_bus_id": "00000000:07:00.0",
        "memory_total_bytes": 40960 << 20,
        "memory_used_bytes": 512 << 20,
        "compute_capability": "8.0",
        "persistence": True,
        "mig_enabled": False,
        "mig_instances": None,
        "compute_mode": "Default",
        "ecc_enabled": True,
        "ecc_uncorrected": 0,
        "retired_pending": False,
        "remap_failed": False,
        "temperature_celsius": 33,
        "power_watts": 72.5,
        "power_limit_watts": 400.0,
        "throttle_reasons": ["gpu_idle"],
        "utilization_percent": 7,
        "pcie_generation": 4,
        "pcie_generation_max": 4,
        "pcie_width": 16,
        "pcie_width_max": 16,
        "virtualization": "none",
        "fabric_state": "completed",
        "fabric_status": "success",
        "processes": [],
        "lost": False,
        **dict.fromkeys(NOT_THERE[1:]),
        "problems": [{"field": name, "code": 3, "text": "Not Supported"} for name in NOT_THERE],
    }


def test_a_lost_gpu_is_called_lost_and_its_neighbour_is_read(ask: Ask) -> None:
    gone = {**A100, "temperature": "!15", "memory": "!15", "power_mw": "!15"}
    told = ask("read_nvml", (gone, A100))["devices"]
    assert [(one["lost"], one["temperature_celsius"]) for one in told] == [
        (True, None),
        (False, 33),
    ]


ROWS: tuple[tuple[dict[str, object], dict[str, object]], ...] = (
    ({"memory_used": 643 << 20, "memory_reserved": 639 << 20}, {"memory_used_bytes": 4 << 20}),
    (
        {"mig_mode": 1, "mig_max": 7, "mig.0": "MIG-aaaa", "mig.3": "MIG-bbbb"},
        {"mig_enabled": True, "mig_instances": ["MIG-aaaa", "MIG-bbbb"]},
    ),
    (
        {"remap_pending": 1, "remap_failed": 1, "ecc_uncorrected": 3},
        {"retired_pending": True, "remap_failed": True, "ecc_uncorrected": 3},
    ),
)


@pytest.mark.parametrize(("state", "told"), ROWS)
def test_what_a_gpu_is_set_to_is_told(
    ask: Ask, state: dict[str, object], told: dict[str, object]
) -> None:
    device = ask("read_nvml", ({**A100, **state},))["devices"][0]
    assert {name: device[name] for name in told} == told


def test_cuda_tells_its_devices(ask: Ask) -> None:
    answer = ask("read_cuda", (A100, RTX_3050))
    assert answer["library"] == str(standin.libraries() / "libcuda.so.1")
    assert (answer["init"], answer["init_name"], answer["version"]) == (0, "CUDA_SUCCESS", "13.0")
    assert (answer["stub"], answer["compat"], answer["device_count"]) == (False, False, 2)
    assert answer["devices"][1] == {
        "index": 1,
        "name": "NVIDIA GeForce RTX 3050 Laptop GPU",
        "uuid": standin.uuid(1),
        "pci_bus_id": "00000000:0F:00.0",
        "compute_capability": "8.6",
        "memory_total_bytes": 4096 << 20,
        "problems": [],
    }


@pytest.mark.parametrize(("folder", "kind"), [("stubs", "stub"), ("compat", "compat")])
def test_a_library_that_is_not_the_drivers_own_is_recognised(
    ask: Ask, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, folder: str, kind: str
) -> None:
    standin.install(monkeypatch, tmp_path, standin.state())
    place = tmp_path / "cuda" / folder
    place.mkdir(parents=True)
    shutil.copy(standin.libraries() / "libcuda.so.1", place)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(place))
    answer = System().ask("read_cuda")
    assert answer["library"] == str(place / "libcuda.so.1")
    assert {key for key in ("stub", "compat") if answer[key]} == {kind}
