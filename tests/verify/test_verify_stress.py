"""verify's stress level: sick devices that a CPU can play."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
import torch
from each_row import each
from verifying import started, states

from gpusetup.verify.checks import stress
from gpusetup.verify.checks.stress import Load, outcome_of_load
from gpusetup.verify.device import watching
from gpusetup.verify.values import FAILED, PASSED

STEADY = tuple((float(second), 100.0) for second in range(1, 121))
FADING = tuple((float(s), 100.0 if s < 60 else 80.0) for s in range(1, 121))
WELL = Load(5000, 0, 120, 0, STEADY, {})


@each(
    "changes, least, status, said",
    [
        ({}, (0.9,), PASSED, "5000 products and 120 copies compared, 100 TFLOPS"),
        ({"wrong_products": 2}, (0.9,), FAILED, "2 of 5000 products differ from the first"),
        ({"wrong_bytes": 8}, (0.9,), FAILED, "8 bytes of memory changed"),
        ({"rates": FADING}, (0.9,), FAILED, "the rate fell to 80% of the rate at the start"),
        ({"watched": {"lost": True}}, (0.9,), FAILED, "the GPU fell off the bus"),
        ({}, (0.9, 187.2), FAILED, "100.0 TFLOPS, 187.2 is the minimum for this model"),
    ],
)
def test_each_fault_fails_the_run_and_is_said(
    changes: dict[str, Any], least: tuple[float, ...], status: str, said: str
) -> None:
    outcome = outcome_of_load(WELL._replace(**changes), *least)
    assert (outcome.status, said in outcome.detail) == (status, True), outcome


def test_new_ecc_errors_heat_and_throttling_are_seen() -> None:
    lines = ["40, 0, 0x0000000000000001", "N/A, [N/A], [N/A]", "95, 2, 0x0000000000000040"]
    assert watching.summary_of(lines) == {
        "hottest": 95,
        "ecc_new": 2,
        "reasons": ("hw_thermal_slowdown",),
        "lost": False,
    }


def test_a_product_that_is_wrong_once_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = iter([0.0] * 5 + [1e-7] + [0.0] * 1000)
    product = lambda: torch.full((4,), 1.0) + next(turns)  # noqa: E731
    monkeypatch.setattr(stress, "square_product", lambda _: (product, 1e12))
    done = stress.run_under_load("cpu", 3.0, itertools.count(0.25, 0.25).__next__)
    assert done.wrong_products == 1
    assert done.products > 5


def test_stress_on_the_cpu_of_this_machine_passes() -> None:
    done = started("--device", "cpu", "--level", "stress", "--seconds", "1", "--json")
    document = json.loads(done.stdout)
    assert done.returncode == 0, done.stdout
    assert states(document)["load@cpu"] == "passed"
