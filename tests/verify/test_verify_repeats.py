"""The loop for faults that come seldom, on another thread, or only beside other work."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import pytest
import torch

from gpusetup.verify.checks import repeats
from gpusetup.verify.values import WRONG


def outcome(monkeypatch: pytest.MonkeyPatch, run: Any, seconds: float = 0.5) -> Any:
    monkeypatch.setattr(repeats, "SECONDS", seconds)
    if run:
        monkeypatch.setattr(repeats, "tasks", lambda _: {"product": run})
    return repeats.repeats("cpu")


def test_a_sound_machine_repeats_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    found = outcome(monkeypatch, None)
    assert found.status == "passed"
    assert "on 3 threads, each with the bits of its first answer" in found.detail


def test_one_bit_of_one_call_in_many_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = itertools.count()

    def seldom() -> Any:
        x = torch.ones(1000)
        if next(calls) == 200:
            x[7] = torch.nextafter(x[7], x[7] * 2)
        return x

    found = outcome(monkeypatch, seldom, 20.0)
    assert (found.status, found.problem) == ("failed", WRONG)
    assert "1 of 1000 elements are unlike the first answer" in found.detail
    assert "overclocking" in found.hint and "temperature" in found.hint


def test_a_fault_of_other_threads_is_seen_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def elsewhere() -> Any:
        return torch.ones(9) * (1 + (threading.current_thread() is not threading.main_thread()))

    found = outcome(monkeypatch, elsewhere, 20.0)
    assert found.status == "failed" and ", on thread " in found.detail


def test_an_error_on_a_thread_is_the_checks_own(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = itertools.count()

    def ends() -> Any:
        if next(calls) > 5:
            raise RuntimeError("CUDA error: launch failure")
        return torch.ones(3)

    with pytest.raises(RuntimeError, match="launch failure"):
        outcome(monkeypatch, ends, 20.0)
