"""The verdict and the next step of composed runs, as a person gets them."""

from __future__ import annotations

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
