"""Published runs: what the model promises of all together."""

from __future__ import annotations

import statistics
from typing import Any

import pytest
from scripts_loaded import script

from gpusetup.errors import GpuSetupError

PUBLISHED = script("published")
MET: list[Any] = PUBLISHED.met()
RUNS = [one for one in MET if one.needs is not None]


@pytest.mark.parametrize(
    ("measure", "most", "bias"),
    [("", 0.07, 0.03), ("allocated", 0.05, 0.025), ("reserved", 0.08, 0.035),
     ("total", 0.085, 0.05)],
)  # fmt: skip
def test_published_figures_are_met_in_the_median(measure: str, most: float, bias: float) -> None:
    mine = [one for one in MET if one.error is not None]
    assert len(mine) >= 835
    errors = [one.error for one in mine if measure in ("", one.row["measure"])]
    assert statistics.median(map(abs, errors)) <= most
    assert abs(statistics.median(errors)) <= bias


def test_published_runs_fit_or_not_as_they_did() -> None:
    assert len(RUNS) >= 932
    assert sum(one.right for one in RUNS) / len(RUNS) >= 0.93
    assert sum(one.missed for one in RUNS) <= 42


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
