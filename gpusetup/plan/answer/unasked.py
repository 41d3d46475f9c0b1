"""What an answer hangs on that nobody said: a run that fits is not clear then. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.units import GIB
from gpusetup.plan.answer.choose import near_limit
from gpusetup.plan.answer.decide import Case, Decision
from gpusetup.plan.answer.question import Question
from gpusetup.plan.memory.parts import parts
from gpusetup.plan.model.workload import Workload

PRECOMPUTES = ("finetrainers",)
"""Trainers that encode all samples before the denoiser is loaded."""


class Unasked(Frozen):
    """One condition that is not known, and how the run would be with it."""

    said: str
    """A sentence; `{gib}` is what is needed then."""
    change: Mapping[str, Any] | None = None
    """The fields of the workload that it changes; None where no number can be given."""


def unasked(question: Question, w: Workload) -> tuple[Unasked, ...]:
    """What a question leaves open that decides whether its run fits.

    Lengths of data are none of it: `--context` is the longest sample, which trainers cut to.
    """
    return (*_length(question, w), *_encoders(question, w))


def _length(question: Question, w: Workload) -> tuple[Unasked, ...]:
    rows = question.users or question.items
    if question.params is None or question.context is not None or w.context > 1 or rows:
        return ()
    said = "memory grows with a sample's tokens: give `--context` (1: a row), or measure one step"
    return (Unasked(said=said),)


def _encoders(question: Question, w: Workload) -> tuple[Unasked, ...]:
    sample = w.shape.sample
    known = question.encoders is not None or question.trainer in PRECOMPUTES
    if sample is None or not sample.encoder or known:
        return ()
    said = "with the encoders of text and the VAE beside it {gib} GiB are needed"
    return (Unasked(said=f"{said}: `--encoders none` where they are not", change=BESIDE),)


BESIDE = {"encoders": "resident"}


def left_open(decision: Decision, case: Case, conditions: tuple[Unasked, ...]) -> tuple[str, ...]:
    """Those conditions with which a run that is said to fit is no clear fit, as sentences."""
    if decision.recipe is None or decision.measured:
        return ()
    w, limit = decision.fit.workload, case.limits.usable
    found = []
    for one in conditions:
        with_it = replace(w, **(one.change or {}))
        total = parts(with_it, decision.recipe, case.constants).total
        if one.change is None or total > limit * (1 - near_limit(w)):
            found.append(one.said.format(gib=f"{total / GIB:.1f}"))
    return tuple(found)
