"""tune --batch-size next to sizes that were run by hand, and plan next to what a step allocates."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest

from acceptance.conftest import NoAnswer, Work
from acceptance.processes import ROOT

CHILDREN = str(ROOT / "gpusetup" / "child_scripts")
NEAR = 0.1
"""By which part, and one, tune's size may be below the largest that runs, because tune keeps some
memory free."""
GIB = 1 << 30
ARITHMETIC_ERROR = 15.0
"""Percent of the peak."""
PLAN_GPT = (
    *("plan", "--model", "gpt2", "--context", "512", "--batch", "8", "--gpus", "1"),
    *("--strategy", "single", "--gpu-mem", "80GiB", "--dtype", "fp32", "--checkpointing", "none"),
)
MODELS = ["transformer", *(pytest.param(n, marks=pytest.mark.card) for n in ("gpt2",))]


TRAININGS = str(Path(__file__).with_name("trainings.py"))


def training(name: str) -> str:
    return f"{TRAININGS}:{name}"


def bench(work: Work, **request: Any) -> dict[str, Any]:
    """The answer of one trial of tune."""
    code = training("transformer")
    asked = {"mode": "steps", "code": code, "device": work.device, **request}
    said = work.program((sys.executable, f"{CHILDREN}/bench.py"), told=json.dumps(asked))
    if said.document.get("status") != "ok":
        raise NoAnswer(said.document.get("detail") or said.problem)
    return said.document


@pytest.mark.parametrize("model", MODELS)
def test_tune_finds_a_size_that_runs_and_a_tenth_more_does_not(work: Work, model: str) -> None:
    top = 1 << 16 if work.on_card else 8
    words = ("tune", "--batch-size", "--code", training(model), "--device", work.device)
    document = work.gpusetup(*words, "--max", str(top), "--json", limit=180).document
    found = document["batch_size"] or 0
    larger = math.ceil(found * (1 + NEAR)) + 1
    runs = found > 0 and fits(work, model, found)
    larger_runs = found < top and fits(work, model, larger)
    told = {True: "runs", False: "does not run"}
    beyond = f"{larger} {told[larger_runs]}" if found < top else "which is the most that was asked"
    work.found(f"{model}: {found} {told[runs]}, {beyond}")
    assert runs and not larger_runs


def fits(work: Work, name: str, batch: int) -> bool:
    """Whether steps of a size run."""
    said = work.program((sys.executable, TRAININGS, name, str(batch), work.device))
    if said.exit != 0 and "out of memory" not in said.stderr:
        raise NoAnswer(said.problem)
    return said.exit == 0


@pytest.mark.card
def test_the_plan_of_a_gpt_is_near_what_it_allocates(work: Work) -> None:
    plan = work.gpusetup(*PLAN_GPT, "--json").document["memory_gib"]["allocated"]
    trial = {"code": training("gpt2"), "batch": 8, "amp": None, "steps": 4, "timed": False}
    error = 100 * (plan * GIB / bench(work, **trial)["peak_bytes"] - 1)
    work.found(f"{error:+.1f} %")
    assert abs(error) <= ARITHMETIC_ERROR
