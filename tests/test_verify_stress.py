"""verify's stress level: sick devices that a CPU can play, and NVML on the stand-in library."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from each_row import each
from standin import A100, install, state
from verifying import ROOT, started, states

from gpusetup.verify.checks import stress
from gpusetup.verify.checks.stress import Least, Load, judged, least_of
from gpusetup.verify.device.nvml import Sample
from gpusetup.verify.values import FAILED, PASSED

STEADY = tuple((float(second), 100.0) for second in range(1, 121))
FADING = tuple((float(s), 100.0 if s < 60 else 80.0) for s in range(1, 121))
WELL = Load(5000, 0, 120, 0, STEADY, {})


@each(
    "changes, least, status, said",
    [
        ({}, Least(0.9), PASSED, "5000 products and 120 copies compared, 100 TFLOPS"),
        ({"watched": {"reasons": ("sw_power_cap",)}}, Least(0.9), PASSED, "held by sw_power_cap"),
        ({"wrong_products": 2}, Least(0.9), FAILED, "2 of 5000 products differ from the first"),
        ({"wrong_bytes": 8}, Least(0.9), FAILED, "8 bytes of memory changed"),
        ({"rates": FADING}, Least(0.9), FAILED, "the rate fell to 80% of the first"),
        ({"rates": FADING}, Least(), PASSED, "80 TFLOPS"),
        ({"watched": {"lost": True}}, Least(0.9), FAILED, "the GPU fell off the bus"),
        ({"watched": {"xids": (79, 48)}}, Least(0.9), FAILED, "the driver reported Xid 79, 48"),
        ({"watched": {"ecc_new": 3}}, Least(0.9), FAILED, "3 new uncorrectable ECC errors"),
        ({}, Least(0.9, 187.2), FAILED, "100.0 TFLOPS, 187.2 are the least of this model"),
        ({}, Least(0.9, 90.0), PASSED, "100 TFLOPS"),
    ],
)
def test_each_fault_fails_the_run_and_is_said(
    changes: dict[str, Any], least: Least, status: str, said: str
) -> None:
    outcome = judged(WELL._replace(**changes), least)
    assert (outcome.status, said in outcome.detail) == (status, True), outcome


CAPPED = ("sw_power_cap",)


@each(
    "name, major, said, kept, tflops",
    [
        ("a card of tomorrow", 8, {"reasons": ()}, 0.9, 0.0),
        ("NVIDIA GeForce GTX 1660", 7, {"reasons": ()}, 0.9, 0.0),  # no tensor cores
        ("NVIDIA GeForce RTX 3050 Laptop GPU", 8, {"reasons": ()}, 0.7, 0.0),  # the laptop decides
        ("NVIDIA A100-SXM4-80GB", 8, {"reasons": ()}, 0.9, 0.6 * 312),
        ("NVIDIA A100-SXM4-80GB", 8, {"reasons": ("hw_slowdown", *CAPPED)}, 0.9, 0.6 * 312),
        ("NVIDIA A100-SXM4-80GB", 8, {"reasons": CAPPED}, 0.7, 0.25 * 312),
        ("NVIDIA A100-SXM4-80GB", 8, {}, 0.7, 0.25 * 312),
    ],
)
def test_what_a_gpu_must_reach(
    name: str, major: int, said: Any, kept: float, tflops: float
) -> None:
    found = least_of(types.SimpleNamespace(name=name, major=major), said)
    assert found.kept == kept
    assert found.tflops == pytest.approx(tflops)


def sick(monkeypatch: pytest.MonkeyPatch, **said: Any) -> None:
    """A load that ends in an error, beside an NVML that says this."""

    def ends(*_: Any) -> Any:
        raise RuntimeError("CUDA error: unspecified launch failure\nCompile with TORCH_USE")

    class Watching:
        samples = ((0.0, Sample(lost=said.get("lost", False))),)
        xids = said.get("xids", ())

        def __init__(self, _: Any) -> None: ...
        def __enter__(self) -> Any:
            return self

        def __exit__(self, *_: object) -> None: ...

    for name, value in {
        "loaded": ends,
        "Watch": Watching,
        "watch": lambda _: "a GPU",
        "SETTLE_SECONDS": 0.0,
    }.items():
        monkeypatch.setattr(stress, name, value)
    row = types.SimpleNamespace(name="NVIDIA H200", major=9)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: row)
    monkeypatch.setattr(stress, "gpu_uuid", lambda *_: "GPU-1")


def test_a_load_that_a_lost_gpu_ends_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    sick(monkeypatch, lost=True, xids=(79,))
    found = stress.load("cuda:0")
    assert (found.status, found.spent) == (FAILED, True)
    assert found.detail == (
        "the GPU fell off the bus; the driver reported Xid 79; "
        "RuntimeError: CUDA error: unspecified launch failure"
    )


def test_a_load_that_ends_without_a_word_of_nvml_is_its_own_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sick(monkeypatch)
    with pytest.raises(RuntimeError, match="unspecified launch failure"):
        stress.load("cuda:0")


# --- the work ---


class Clock:
    """A clock that each question moves on."""

    def __init__(self, step: float = 0.25) -> None:
        self.now, self.step = 0.0, step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def test_a_product_that_is_wrong_once_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = iter([0.0] * 5 + [1e-7] + [0.0] * 1000)
    monkeypatch.setattr(
        stress, "_product", lambda *_: (lambda: torch.full((4,), 1.0) + next(turns), 1e12)
    )
    done = stress.loaded("cpu", 3.0, Clock())
    assert done.wrong_products == 1
    assert done.products > 5


def test_stress_on_the_cpu_of_this_machine_passes() -> None:
    done = started("--device", "cpu", "--level", "stress", "--seconds", "1", "--json")
    document = json.loads(done.stdout)
    assert done.returncode == 0, done.stdout
    assert states(document)["load@cpu"] == "passed"


# --- NVML ---

WATCHING = """
import json, sys, time
sys.path.insert(0, sys.argv[1])
from gpusetup.verify.device.nvml import Watch, summed, watch
gpu = watch(sys.argv[2])
if gpu is None:
    print("null")
    sys.exit()
with Watch(gpu, pause=0.02) as watching:
    print("ready", flush=True)
    sys.stdin.readline()
    time.sleep(0.2)
print(json.dumps(summed([s for _, s in watching.samples], watching.xids)))
"""


def watched(file: Path, later: str | None, uuid: str) -> Any:
    """What a watch says of a GPU whose state changes while it looks."""
    child = subprocess.Popen(
        [sys.executable, "-c", WATCHING, str(ROOT), uuid],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=dict(os.environ),
    )
    assert child.stdin is not None
    assert child.stdout is not None
    first = child.stdout.readline().strip()
    if first == "null":
        child.communicate()
        return None
    if later is not None:
        file.write_text(later, encoding="utf-8")
    out, _ = child.communicate("go\n", timeout=30)
    return json.loads(out)


UUID = "12345678-1234-1234-1234-000000000000"


def test_new_ecc_errors_xids_heat_and_throttling_are_seen(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sick = {"ecc_uncorrected": 2, "temperature": 95, "throttle": 0x40, "xid": 94}
    file = install(monkeypatch, tmp_path, state((A100,)))
    said = watched(file, state(({**A100, **sick},)), UUID)
    assert (said["ecc_new"], said["xids"], said["hottest"]) == (2, [94], 95)
    assert said["reasons"] == ["hw_thermal_slowdown"]
    assert said["lost"] is False


def test_a_gpu_that_disappears_is_seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = install(monkeypatch, tmp_path, state((A100,)))
    gone = {**A100, "temperature": "!15", "throttle": "!15", "ecc_uncorrected": "!15"}
    assert watched(file, state((gone,)), f"GPU-{UUID}")["lost"] is True
