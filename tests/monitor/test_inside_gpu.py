"""The children that ask NVML and libcuda: the real binding and scripts, stand-in libraries."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import standin
from standin import A100

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


def test_nvml_tells_of_links_repairs_and_what_the_driver_recommends(ask: Ask) -> None:
    ill = {
        "recovery_action": 4, "sram_exceeded": 1, "nvlinks": "1101",
        "retired_single": 3, "retired_double": 1,
        "clock_sm_max": 1410, "vbios": "92.00.45.00.03",
        "power_limit_default_mw": 500000,
        "processes": "4711:1073741824",
    }  # fmt: skip
    device = ask("read_nvml", ({**A100, **ill},), process__4711="/env/bin/python3")["devices"][0]
    told = {
        "retired_pages": 4, "sram_threshold_exceeded": True, "power_limit_default_watts": 500.0,
        "recovery_action": "drain_and_reset", "nvlinks_active": 3,
        "clock_sm_max_mhz": 1410, "vbios_version": "92.00.45.00.03",
        "compute_capability": "8.0", "memory_total_bytes": 40960 << 20, "persistence": True,
        "power_watts": 72.5, "throttle_reasons": ["gpu_idle"], "pcie_width": 16,
        "virtualization": "none",
        "processes": [{"pid": 4711, "kind": "C", "name": "python3", "memory_bytes": 1 << 30}],
    }  # fmt: skip
    assert {name: device[name] for name in told} == told
    # What this GPU does not tell is named with NVML's reason.
    assert device["problems"] == [{"field": "mig_instances", "code": 3, "text": "Not Supported"}]


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
