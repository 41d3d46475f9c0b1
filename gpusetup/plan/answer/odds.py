"""How published runs went that were said to need about as much of their card."""

from __future__ import annotations

from gpusetup.model.frozen import Frozen


class Band(Frozen):
    """Published runs of plain loops whose need was this share of their card."""

    least: float
    most: float
    fitted: int
    runs: int


BANDS = (
    Band(least=0.8, most=0.93, fitted=90, runs=94),
    Band(least=0.93, most=1.0, fitted=43, runs=55),
    Band(least=1.0, most=1.07, fitted=6, runs=33),
    Band(least=1.07, most=1.2, fitted=3, runs=21),
)
"""755 runs of nine sets, with the formulas as they are (tests/test_plan_sets.py counts them)."""


def odds(needed: float) -> str | None:
    """A sentence for a need near the limit, as a share of the card's memory; None far from it.

    >>> odds(0.95)
    'of 55 published runs said to need 93 to 100 % of their card, 43 fitted'
    >>> odds(0.5) is None
    True
    """
    for band in BANDS:
        if band.least <= needed < band.most:
            low, high = round(100 * band.least), round(100 * band.most)
            many = f"of {band.runs} published runs said to need {low} to {high} % of their card"
            return f"{many}, {band.fitted} fitted"
    return None
