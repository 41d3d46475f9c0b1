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
from standin import A100, install, state
from verifying import ROOT, started, states

from gpusetup.verify.checks import stress
from gpusetup.verify.checks.stress import (
    Load,
    Yardstick,
    judged,
    least_kept,
    yardstick,
)
from gpusetup.verify.device.known_gpus import peaks
from gpusetup.verify.device.nvml import Sample
from gpusetup.verify.values import FAILED, PASSED

STEADY = tuple((float(second), 100.0) for second in range(1, 121))
WELL = Load(5000, 0, 120, 0, STEADY, {})


def load(**changes: Any) -> Load:
    return WELL._replace(**changes)


def test_a_steady_run_passes_with_what_it_did() -> None:
    outcome = judged(WELL, 0.9, None)
    assert (outcome.status, outcome.value, outcome.limit) == (PASSED, 1.0, 0.9)
    assert outcome.detail == "5000 products and 120 copies compared, 100 TFLOPS"


FADING = tuple((float(s), 100.0 if s < 60 else 80.0) for s in range(1, 121))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"wrong_products": 2}, "2 of 5000 products differ from the first one"),
        ({"wrong_bytes": 8}, "8 bytes of memory changed"),
        ({"rates": FADING}, "the rate fell to 80% of the first"),
        (
            {"rates": FADING, "watched": {"reasons": ("hw_thermal_slowdown",), "hottest": 93}},
            "(hw_thermal_slowdown); 5000 products and 120 copies compared, 80 TFLOPS, 93 C at most",
        ),
        ({"watched": {"lost": True}}, "the GPU fell off the bus"),
        ({"watched": {"xids": (79, 48)}}, "the driver reported Xid 79, 48"),
        ({"watched": {"ecc_new": 3}}, "3 new uncorrectable ECC errors"),
    ],
)
def test_each_fault_fails_the_run_and_is_said(changes: dict[str, Any], said: str) -> None:
    outcome = judged(load(**changes), 0.9, None)
    assert outcome.status == FAILED
    assert said in outcome.detail


def test_a_model_far_below_its_peak_fails() -> None:
    slow = judged(WELL, 0.9, Yardstick(312.0, 0.6))
    assert slow.status == FAILED
    assert "100.0 TFLOPS are 32% of this model's peak, 60% is the least" in slow.detail
    assert judged(WELL, 0.9, Yardstick(150.0, 0.6)).status == PASSED


def test_a_power_limit_that_costs_little_is_told_and_no_fault() -> None:
    outcome = judged(load(watched={"reasons": ("sw_power_cap",)}), 0.9, None)
    assert outcome.status == PASSED
    assert "clocks held by sw_power_cap" in outcome.detail


def test_a_short_run_is_judged_by_its_thirds() -> None:
    rates = ((1.0, 9.0), (2.0, 9.0), (3.0, 9.0), (4.0, 6.0), (5.0, 6.0), (6.0, 6.0))
    assert judged(load(rates=rates), 0.9, None).value == pytest.approx(2 / 3)


CAPPED = ("sw_power_cap",)
LAPTOP, A100_GPU = "NVIDIA GeForce RTX 3050 Laptop GPU", "NVIDIA A100-SXM4-80GB"


@pytest.mark.parametrize(
    ("name", "major", "mhz", "reasons", "tflops"),
    [
        ("a card of tomorrow", 8, 1000.0, (), None),
        ("NVIDIA GeForce GTX 1660", 7, 1785.0, (), None),  # no tensor cores
        (LAPTOP, 8, None, (), None),
        (LAPTOP, 8, peaks()[LAPTOP][1] / 2, (), 0.6 * peaks()[LAPTOP][0] / 2),  # its present clock
        (A100_GPU, 8, 210.0, (), 0.6 * 312),
        (A100_GPU, 8, 900.0, ("hw_thermal_slowdown", *CAPPED), 0.6 * 312),
        # a power limit lowers what is asked, to a quarter of the peak at least
        ("Tesla T4", 7, 900.0, CAPPED, 0.45 * 65 * 900 / 1590),
        (A100_GPU, 8, 200.0, CAPPED, 0.25 * 312),
        (A100_GPU, 8, None, (), 0.25 * 312),
    ],
)
def test_what_a_gpu_must_reach(
    name: str, major: int, mhz: float | None, reasons: tuple[str, ...], tflops: float | None
) -> None:
    found = yardstick(name, major, mhz, reasons)
    assert (found and found.floor * found.tflops) == (tflops and pytest.approx(tflops))


@pytest.mark.parametrize(
    ("name", "reasons", "share"),
    [
        (None, (), None),
        ("NVIDIA H200", (), 0.9),
        ("NVIDIA H200", ("hw_thermal_slowdown", *CAPPED), 0.9),
        ("NVIDIA H200", CAPPED, 0.7),
        (LAPTOP, ("sw_thermal_slowdown",), 0.7),
    ],
)
def test_how_much_of_its_rate_a_device_must_keep(
    name: str | None, reasons: tuple[str, ...], share: float | None
) -> None:
    assert least_kept(name, reasons) == share


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


def test_a_bit_that_flips_in_memory_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    real = torch.Tensor.clone

    def clone(tensor: Any, *arguments: Any, **named: Any) -> Any:
        copy = real(tensor, *arguments, **named)
        copy.view(-1)[17] ^= 1 << 40
        return copy

    monkeypatch.setattr(stress, "MOST_BYTES", {"cpu": 1 << 16})
    monkeypatch.setattr(torch.Tensor, "clone", clone)
    copied = stress._memory("cpu")
    assert copied(3) == 8


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
    file = install(monkeypatch, tmp_path, state(({**A100, "clock_sm": 1410},)))
    said = watched(file, state(({**A100, "clock_sm": 900, **sick},)), UUID)
    assert (said["ecc_new"], said["xids"], said["hottest"]) == (2, [94], 95)
    assert said["reasons"] == ["hw_thermal_slowdown"]
    assert said["lost"] is False
    assert said["mhz"] < 1410


def test_a_gpu_that_disappears_is_seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = install(monkeypatch, tmp_path, state((A100,)))
    gone = {**A100, "temperature": "!15", "throttle": "!15", "ecc_uncorrected": "!15"}
    assert watched(file, state((gone,)), f"GPU-{UUID}")["lost"] is True


def test_a_uuid_of_unknown_kind_is_looked_for_as_both(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = install(monkeypatch, tmp_path, state((A100,)))
    assert watched(file, None, f"MIG-{UUID}") is not None


def test_without_the_gpu_there_is_nothing_to_watch(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = install(monkeypatch, tmp_path, state((A100,)))
    assert watched(file, None, "GPU-of-another-host") is None
