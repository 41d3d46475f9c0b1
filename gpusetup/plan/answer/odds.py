"""How published runs went that were said to need about as much of their card."""

from __future__ import annotations

from gpusetup.model.frozen import Frozen
from gpusetup.plan.answer.measured import is_standard
from gpusetup.plan.memory.states import ZERO
from gpusetup.plan.model.workload import Recipe, Workload


class FirstSight(Frozen):
    """A set of published figures, predicted once, before anything was changed for it."""

    name: str
    figures: int
    error: float
    """The median error in percent."""


FIRST_SIGHTS = (
    FirstSight(name="first", figures=87, error=12.1),
    FirstSight(name="second", figures=61, error=13.3),
    FirstSight(name="third", figures=30, error=8.5),
    FirstSight(name="fourth", figures=49, error=9.1),
    FirstSight(name="fifth", figures=89, error=13.2),
    FirstSight(name="sixth", figures=51, error=12.0),
    FirstSight(name="seventh", figures=98, error=9.6),
    FirstSight(name="eighth", figures=80, error=13.3),
    FirstSight(name="ninth", figures=59, error=6.8),
    FirstSight(name="tenth", figures=50, error=13.1),
    FirstSight(name="eleventh", figures=26, error=25.0),
)
"""Each as it was found (docs/explanation/memory-model.md); what was mended since is not in it."""


def first_sight() -> float:
    """The median of the sets' median errors at first sight, in percent (the upper one of two)."""
    return sorted(one.error for one in FIRST_SIGHTS)[len(FIRST_SIGHTS) // 2]


class Band(Frozen):
    """Published runs of plain loops whose need was this share of their card."""

    least: float
    most: float
    fitted: int
    runs: int


BANDS = (
    Band(least=0.8, most=0.93, fitted=123, runs=136),
    Band(least=0.93, most=1.0, fitted=56, runs=65),
    Band(least=1.0, most=1.07, fitted=18, runs=48),
    Band(least=1.07, most=1.2, fitted=0, runs=28),
)
"""957 runs of eleven sets, with the formulas as they are (tests/test_plan_sets.py counts them)."""


def odds(needed: float) -> str | None:
    """A sentence for a need near the limit, as a share of the card's memory; None far from it.

    >>> odds(0.95)
    'of 65 published runs said to need 93 to 100 % of their card, 56 fitted'
    >>> odds(0.5) is None
    True
    """
    for band in BANDS:
        if band.least <= needed < band.most:
            low, high = round(100 * band.least), round(100 * band.most)
            many = f"of {band.runs} published runs said to need {low} to {high} % of their card"
            return f"{many}, {band.fitted} fitted"
    return None


class Kind(Frozen):
    """Published runs of one kind that were said to fit with a fifth of their card to spare."""

    name: str
    clear: int
    ran_out: int


KINDS = (
    Kind(name="with parts on the host", clear=45, ran_out=3),
    Kind(name="with a reference model", clear=4, ran_out=2),
    Kind(name="of adapters under ZeRO", clear=9, ran_out=1),
    Kind(name="", clear=506, ran_out=5),
)
"""The runs of `BANDS` below four fifths of their card (tests/test_plan_sets.py counts them); the
last row is of all others."""

SURE = 1 / 20
"""At most so many of a kind may have run out where an answer of that kind is clear."""


ROUGH = ("unet",)
"""Families whose sizes are no more than a picture: a U-Net's levels have widths of their own."""


def kind_of(w: Workload, r: Recipe) -> Kind:
    """The kind of a run, by how its memory is known."""
    host, reference, adapters, others = KINDS
    if r.offload or w.offload_optimizer or w.offload_checkpoints:
        return host
    if w.reference is not None:
        return reference
    return adapters if w.lora is not None and w.strategy in ZERO else others


def doubt(w: Workload, r: Recipe) -> str | None:
    """A sentence where runs of this kind ran out too often to be sure that one fits.

    Those of the trainer that was measured are known by its cells.
    """
    if w.shape.kind in ROUGH:
        return f"the layers of {w.shape.name} are a rough picture, held against no published figure"
    if w.shape.tower and w.lora is None and w.frozen < 1 and w.trained_layers is None:
        return "what the tower of images keeps is not counted: `--frozen` or a LoRA leaves it out"
    kind = kind_of(w, r)
    if is_standard(w) or kind.ran_out <= SURE * kind.clear:
        return None
    many = f"of {kind.clear} published runs {kind.name} said to fit with a fifth to spare"
    return f"{many}, {kind.ran_out} ran out of memory"
