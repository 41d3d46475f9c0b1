"""The decision for one workload: the measured recipe where there is one, else the model's."""

from __future__ import annotations

from gpusetup.model.frozen import Frozen, replace
from gpusetup.plan.answer.choose import Fit, Limits, Option, choose, host_holds
from gpusetup.plan.answer.measured import NONE, measured_recipe
from gpusetup.plan.memory.constants import Constants
from gpusetup.plan.memory.parts import parts
from gpusetup.plan.model.workload import Recipe, Workload


class Decision(Frozen):
    """A recipe, or none, and the memory behind it."""

    fit: Fit
    recipe: Recipe | None
    measured: bool
    shown: Option
    """The recipe's memory; where none fits, that of the one that lacks least."""


class Case(Frozen):
    """What a decision is made with, beside the workload."""

    limits: Limits
    constants: Constants
    measured_gpu: str | None = None
    """The GPU's name in the measured table; None leaves the table aside."""


def decide(w: Workload, case: Case) -> Decision:
    """The measured recipe where the table reaches and the system allows it, else the model's."""
    fit = choose(w, case.limits, case.constants)
    said = _measured(w, case)
    if said is None:
        recipe = fit.chosen.recipe if fit.chosen else None
        return Decision(fit=fit, recipe=recipe, measured=False, shown=fit.nearest)
    if said == NONE:
        least = choose(w, replace(case.limits, capacity=0.0), case.constants).nearest
        return Decision(fit=fit, recipe=None, measured=True, shown=least)
    recipe = Recipe.parse(said)
    option = Option(recipe=recipe, parts=parts(w, recipe, case.constants))
    return Decision(fit=fit, recipe=recipe, measured=True, shown=option)


def _measured(w: Workload, case: Case) -> str | None:
    """What was measured, where it may be used here; None where it was not, or may not."""
    limits = case.limits
    if not case.measured_gpu or not limits.env or not limits.linux or limits.sp is not None:
        return None
    said = measured_recipe(case.measured_gpu, w)
    if said in (None, NONE) or host_holds(w, Recipe.parse(said or ""), limits):
        return said
    return None


def better(decision: Decision, case: Case) -> Decision | None:
    """Fewer of the GPUs that take an earlier recipe: a count with more divisors; None if none do.

    Measured is compared with measured only, and predicted with predicted.
    """
    w = decision.fit.workload
    if w.batch is not None or case.limits.sp is not None or w.strategy == "hsdp" or w.gpus > 256:
        return None
    case = case if decision.measured else replace(case, measured_gpu=None)
    unit = w.tensor_parallel * w.pipeline_parallel
    best = decision
    for gpus in range(w.gpus - unit, 0, -unit):
        other = decide(replace(w, gpus=gpus), case)
        if other.measured == decision.measured and _earlier(other.recipe, best.recipe):
            best = other
    return None if best is decision else best


def _earlier(one: Recipe | None, other: Recipe | None) -> bool:
    if one is None or other is None:
        return one is not None and other is None
    return one.rank < other.rank
