"""plan, next to what a trial of the same step allocates on the card."""

from __future__ import annotations

import pytest

from acceptance.conftest import Work
from acceptance.test_tune import bench, training

GIB = 1 << 30
ARITHMETIC_ERROR = 15.0
"""Percent of the peak."""
PLAN_GPT = (
    *("plan", "--model", "gpt2", "--context", "512", "--batch", "8", "--gpus", "1"),
    *("--strategy", "single", "--gpu-mem", "80GiB", "--dtype", "fp32", "--checkpointing", "none"),
)


@pytest.mark.card
def test_the_plan_of_a_gpt_is_near_what_it_allocates(work: Work) -> None:
    plan = work.gpusetup(*PLAN_GPT, "--json").document["memory_gib"]["allocated"]
    trial = {"code": training("gpt2"), "batch": 8, "amp": None, "steps": 4, "timed": False}
    error = 100 * (plan * GIB / bench(work, **trial)["peak_bytes"] - 1)
    work.found(f"{error:+.1f} %")
    assert abs(error) <= ARITHMETIC_ERROR
