"""The verdict and the next step of composed runs, as a person gets them."""

from __future__ import annotations

import re

import pytest
from composed_runs import RUNS, gpu, pausing, tree
from composed_runs import Run as Composed
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


@each("name", RUNS)
def test_no_file_is_made_up_where_no_command_is_known(name: str, judged: Judge) -> None:
    summary = judged(RUNS[name]._replace(command=None).text())
    said = " ".join((*summary["advice"], str(summary["next"])))
    assert not re.search(r"CONFIG|train\.py|conf/", said), said


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


@each(
    "part, seconds, said",
    [
        (gpu(pausing(96, 60, 12)), 300, "paused 4 times, 1"),
        (gpu(96), 90, ""),
    ],
)
def test_what_stands_beside_a_good_run_is_a_note(
    part: object, seconds: int, said: str, judged: Judge
) -> None:
    run = Composed("", (part,), tree(70, workers=4, each=20), seconds=seconds)  # type: ignore[arg-type]
    summary = judged(run.text())
    assert summary["verdict"] == "good", summary["evidence"]
    assert said in " ".join(summary["notes"]) and bool(said) == bool(summary["notes"])
