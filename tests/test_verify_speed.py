"""Whether a device is as fast as its kind: pure judgements."""

from __future__ import annotations

import time

import pytest

from gpusetup.verify.checks import speed
from gpusetup.verify.device.known_gpus import figures, table
from gpusetup.verify.device.nvml import Sample
from gpusetup.verify.judging.speed import backwards, held, least
from gpusetup.verify.values import FAILED, PASSED

H100 = "NVIDIA H100 80GB HBM3"


def test_every_known_gpu_has_figures_and_a_sound_one_passes() -> None:
    for name in table()["gpus"]:
        known = figures(name)
        assert known is not None
        for check, figure in (("speed-half", known.half), ("copy-within", known.memory)):
            floor = least(check, known)
            if floor is not None and figure is not None:
                assert floor < 0.3 * figure, (name, check)
    assert figures("no such card") is None
    assert least("speed-half", None) is None


def test_a_card_twelve_times_too_slow_fails_and_one_as_usual_passes() -> None:
    known = figures(H100)
    assert known is not None
    assert known.memory is not None
    assert known.half is not None
    for check, usual in (("speed-half", 0.65 * known.half), ("copy-within", 0.42 * known.memory)):
        floor = least(check, known)
        assert floor is not None
        assert speed.rated("", (usual, 0.01), (floor, "x/s"), "cpu").status == PASSED
        assert speed.rated("", (usual / 12, 0.01), (floor, "x/s"), "cpu").status == FAILED


def test_a_slow_device_is_told_with_clock_and_reason() -> None:
    said = held(Sample(temperature_celsius=91, sm_mhz=405, reasons=("hw_thermal_slowdown",)))
    assert said == " (405 MHz, 91 C, held by hw_thermal_slowdown)"
    assert held(None) == ""
    assert held(Sample()) == ""


def test_a_clock_that_goes_back_or_stands_is_seen() -> None:
    assert backwards([1.0, 1.0, 1.1, 1.2]) is None
    assert backwards([]) is None
    assert "before the one before" in str(backwards([5.0, 5.1, 4.9]))
    assert "one and the same" in str(backwards([5.0] * 9))
    assert speed.clock("cpu").status == PASSED


def test_a_clock_at_fault_fails_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter([float(n) for n in range(500)] + [3.0] + [600.0] * 10_000)
    monkeypatch.setattr(time, "monotonic", lambda: next(readings))
    found = speed.clock("cpu")
    assert found.status == FAILED
    assert "reading 500" in found.detail
