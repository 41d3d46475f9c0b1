"""The verdict and the next step of composed runs, as a person gets them."""

from __future__ import annotations

import pytest
from composed_runs import RUNS
from each_row import each
from replayed import Judge, verdict_and_step


@each("name", RUNS)
def test_verdict_and_next_step_are_right(name: str, judged: Judge) -> None:
    run = RUNS[name]
    summary = judged(run.text())
    assert verdict_and_step(summary) == run.said, summary["evidence"]
    assert "?" not in summary["evidence"] + summary["next"]["text"] if summary["next"] else True
    assert ("no GPU was watched" in summary["evidence"]) == (not run.gpus)
    if len(run.gpus) < 2:
        assert "NCCL" not in summary["text"]
    if run.exit:
        assert summary["evidence"].startswith(f"the command ended with exit {run.exit}; ")


@pytest.mark.parametrize(
    ("words", "absent"),
    [("--bf16", "mixed precision"), ("trainer.precision=bf16-mixed", "mixed precision")],
)
def test_advice_does_not_repeat_what_the_command_says(
    words: str, absent: str, judged: Judge
) -> None:
    run = RUNS["a small model without input"]
    assert absent in " ".join(judged(run.text())["advice"])
    summary = judged(run._replace(command=f"python train.py {words}").text())
    assert summary["advice"] and absent not in " ".join(summary["advice"])
