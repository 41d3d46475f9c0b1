"""Published runs: what the model promises of all together, and what answers count of them."""

from __future__ import annotations

import statistics
from typing import Any

import pytest
from scripts_loaded import script

from gpusetup.errors import GpuSetupError
from gpusetup.plan.answer.choose import CLEAR_ELSEWHERE
from gpusetup.plan.answer.odds import BANDS, KINDS, SURE, kind_of

PUBLISHED = script("published")
MET: list[Any] = PUBLISHED.met()
RUNS = [one for one in MET if one.needs is not None]


@pytest.mark.parametrize(
    ("measure", "most", "bias"),
    [("", 0.065, 0.02), ("allocated", 0.045, 0.02), ("reserved", 0.075, 0.025),
     ("total", 0.075, 0.04)],
)  # fmt: skip
def test_published_figures_are_met_in_the_median(measure: str, most: float, bias: float) -> None:
    mine = [one for one in MET if one.error is not None]
    assert len(mine) >= 865
    errors = [one.error for one in mine if measure in ("", one.row["measure"])]
    assert statistics.median(map(abs, errors)) <= most
    assert abs(statistics.median(errors)) <= bias


def test_published_runs_fit_or_not_as_they_did() -> None:
    assert len(RUNS) >= 957
    assert sum(one.right for one in RUNS) / len(RUNS) >= 0.935
    assert sum(one.missed for one in RUNS) <= 35


def test_how_runs_near_the_limit_and_clear_ones_went_is_counted_on_them() -> None:
    for band in BANDS:
        fits = [one.row["measure"] != "oom" for one in RUNS if band.least <= one.needs < band.most]
        assert (band.fitted, band.runs) == (sum(fits), len(fits))
    clear = [one.row for one in RUNS if one.needs <= 1 - CLEAR_ELSEWHERE]
    kinds = [kind_of(PUBLISHED.workload(row), PUBLISHED.recipe(row)) for row in clear]
    for kind in KINDS:
        ran = [
            row["measure"] == "oom" for row, its in zip(clear, kinds, strict=True) if its == kind
        ]
        assert (kind.clear, kind.ran_out) == (len(ran), sum(ran))
    assert KINDS[-1].ran_out <= SURE * KINDS[-1].clear


GOOD = {"trainer": "nanogpt", "model": "params=124M", "gpus": "1", "context": "1024", "batch": "8",
        "how": "compile=no loss=flash", "env": "no", "measure": "fits", "gib": "", "card": "15.8",
        "source": "p x"}  # fmt: skip


@pytest.mark.parametrize(
    "slip",
    [{"how": "complie=no"}, {"trainer": "nanogtp"}, {"gib": "x"}, {"measure": "total"}],
)  # fmt: skip
def test_a_row_that_means_nothing_is_refused(slip: dict[str, str]) -> None:
    assert PUBLISHED.judged(GOOD).right
    with pytest.raises((GpuSetupError, ValueError)):
        PUBLISHED.judged(GOOD | slip)
