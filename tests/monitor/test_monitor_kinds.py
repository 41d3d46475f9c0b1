"""Composed runs with noise: the verdict and the next step are right in at least 95 of 100."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache, lru_cache

import pytest
from monitor_composer import Run
from monitor_kinds import KINDS, SEEDS, composed

from gpusetup.model.frozen import replace
from gpusetup.monitor.documents import Summary
from gpusetup.monitor.run import RunTally
from gpusetup.monitor.steps import STEPS
from gpusetup.monitor.summary import UNJUDGED, summarise
from gpusetup.monitor.verdicts import CASES

PART = 0.95


@lru_cache(maxsize=1)
def composed_once(name: str, seed: int) -> Run:
    return composed(name, seed)


@cache
def counted(name: str, seed: int) -> RunTally:
    """A composed run, read once for the tests that judge it."""
    return RunTally(composed_once(name, seed).samples)


def summary(name: str, seed: int) -> Summary:
    run = composed_once(name, seed)
    return summarise(counted(name, seed), replace(UNJUDGED, command=run.command, exit=run.exit))


def wrong(name: str, seed: int) -> Iterator[str]:
    kind, told = KINDS[name], summary(name, seed)
    step = told.next.id if told.next else ""
    if (told.verdict or "none") not in kind.verdicts or step not in kind.steps:
        yield f"{name}, {seed}: {told.verdict}/{told.cause} {step}: {told.evidence}"


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.one_in(4)
def test_verdict_and_next_step_are_right_and_no_file_is_made_up(seed: int) -> None:
    """Two promises of the same runs, which take long to compose."""
    missed: list[str] = []
    for name in KINDS:
        missed += wrong(name, seed)
        no_file_is_made_up_where_no_command_is_known(name, seed)
    assert len(missed) <= (1 - PART) * len(KINDS), "\n".join(missed)


def no_file_is_made_up_where_no_command_is_known(name: str, seed: int) -> None:
    told = summarise(counted(name, seed), replace(UNJUDGED, exit=composed_once(name, seed).exit))
    said = " ".join((*told.advice, told.next.text if told.next else ""))
    command = (told.next and told.next.command) or ""
    assert not re.search(r"CONFIG|train\.py|conf/", f"{said} {command}"), (name, said, command)


def test_the_table_names_only_steps_that_there_are() -> None:
    assert {step for case in CASES for step in case.steps} - set(STEPS) == set()
    assert all(case.steps for case in CASES if case.verdict != "good")


@pytest.mark.parametrize(
    ("words", "absent"),
    [
        ("--torch-compile true", "compile"),
        ("--bf16", "mixed precision"),
        ("--use_amp", "mixed precision"),
        ("trainer.precision=bf16-mixed", "mixed precision"),
    ],
)
def test_advice_does_not_repeat_what_the_command_says(words: str, absent: str) -> None:
    run = composed("tiny kernels, one core is full, workers rest", 1)
    command = ("python", "train.py", *words.split())
    told = summarise(RunTally(run.samples), replace(UNJUDGED, command=command))
    said = " ".join((*told.advice, told.next.text if told.next else ""))
    assert not re.search(absent, said), said
