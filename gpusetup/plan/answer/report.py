"""The answer of `--calibrate`: constants fitted to somebody's cells, and how good they are."""

from __future__ import annotations

from collections.abc import Sequence

from gpusetup.errors import BadInput
from gpusetup.model.documents import FitScore, PlanCalibrationAnswer
from gpusetup.model.frozen import fields
from gpusetup.plan.answer.calibrate import Cell, Score, Trial, cross_validated, fit, judged
from gpusetup.plan.memory.constants import Constants

LEAST = 5
"""Cells below which a fit would say nothing about others."""


def calibration(facts: Sequence[Cell | Trial], start: Constants) -> PlanCalibrationAnswer:
    """Fit, and judge on cells that were left out; BadInput for too few cells."""
    if len(facts) < LEAST:
        raise BadInput(
            f"{len(facts)} cells are too few to calibrate with", hint=f"{LEAST} at least"
        )
    found = fit(facts, start)
    return PlanCalibrationAnswer(
        constants={field.name: getattr(found, field.name) for field in fields(found)},
        before=_score(judged(facts, start)),
        after=_score(judged(facts, found)),
        cross_validated=_score(cross_validated(facts, start)),
    )


def _score(score: Score) -> FitScore:
    return FitScore(
        cells=score.cells,
        exact=round(score.exact, 4),
        unsafe=round(score.unsafe, 4),
        fits_or_not=round(score.fits_or_not, 4),
    )
