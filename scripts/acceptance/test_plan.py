"""plan --code and plan, next to what a trial of the same steps allocates on the card."""

from __future__ import annotations

import pytest

from acceptance.conftest import Work
from acceptance.test_tune import bench, training

GIB = 1 << 30
CODE_ERROR, ARITHMETIC_ERROR = 10.0, 15.0
"""Percent of the peak."""
WHOLE = pytest.mark.whole
TRAININGS = [
    ("transformer", 64, None),
    ("gpt2", 8, None),
    pytest.param("gpt2", 16, "bf16", marks=WHOLE),
    pytest.param("conv", 64, None, marks=WHOLE),
    pytest.param("transformer", 32, "bf16", marks=WHOLE),
]
PLAN_GPT = (
    *("plan", "--model", "gpt2", "--context", "512", "--batch", "8", "--gpus", "1"),
    *("--strategy", "single", "--gpu-mem", "80GiB", "--dtype", "fp32", "--checkpointing", "none"),
)
peaks: dict[tuple[str, str | None], float] = {}


@pytest.mark.claim("plan-code-error")
@pytest.mark.parametrize(("name", "batch", "amp"), TRAININGS)
def test_the_plan_of_code_is_near_what_it_allocates(
    work: Work, name: str, batch: int, amp: str | None
) -> None:
    code = training(name)
    size = batch if work.on_card else 4
    words = ["plan", "--code", code, "--batch", str(size), "--gpu-mem", "80GiB"]
    said = work.gpusetup(*words, *(["--amp", amp] if amp else []), "--json")
    ours = max(said.document["code"]["phases_gib"].values())
    trial = {"code": code, "batch": size, "amp": amp, "steps": 4, "timed": False}
    real = bench(work, **trial)["peak_bytes"] / GIB
    work.row("trainings", training=name, amp=amp, traced_gib=ours, allocated_gib=real)
    peaks[name, amp] = real
    work.found(f"{name} {amp or ''} {100 * (ours / real - 1):+.1f} %")
    if not work.on_card:
        pytest.skip("the memory of a whole process is not that of torch's allocator")
    assert abs(ours / real - 1) <= CODE_ERROR / 100


@pytest.mark.claim("plan-error")
def test_the_plan_of_a_gpt_is_near_what_it_allocates(work: Work) -> None:
    plan = work.gpusetup(*PLAN_GPT, "--json").document["memory_gib"]["allocated"]
    if ("gpt2", None) not in peaks:
        pytest.skip("no GPT was measured")
    error = 100 * (plan / peaks["gpt2", None] - 1)
    work.found(f"{error:+.1f} %")
    if not work.on_card:
        pytest.skip("a small model of a CPU's rehearsal was measured")
    assert abs(error) <= ARITHMETIC_ERROR
