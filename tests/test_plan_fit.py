"""The measured table and the fit to it: what is promised of both, and that it can be reproduced."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from gpusetup.errors import BadInput
from gpusetup.model.frozen import replace
from gpusetup.model.units import GIB
from gpusetup.plan.answer.calibrate import (
    BOUNDS,
    Cell,
    Trial,
    fit,
    judge,
)
from gpusetup.plan.answer.choose import Limits, choose
from gpusetup.plan.answer.decide import Case, better, decide
from gpusetup.plan.answer.measured import CELLS, NONE, measured_recipe
from gpusetup.plan.answer.report import calibration
from gpusetup.plan.memory import parts, states
from gpusetup.plan.memory.capacity import capacity
from gpusetup.plan.memory.constants import FITTED, shipped_constants
from gpusetup.plan.model.named import model_named
from gpusetup.plan.model.workload import Recipe, Workload

ROOT = Path(__file__).resolve().parent.parent
C = shipped_constants()


def rows() -> list[dict[str, str]]:
    with CELLS.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def cell_of(row: dict[str, str]) -> Cell:
    gpus, context = int(row["num_gpus"]), int(row["max_model_len"])
    shape = model_named(row["model"])
    name = {"A100": "A100 80GB", "H20": "H20"}[row["gpu"]]
    return Cell(
        workload=Workload(shape=shape, gpus=gpus, context=context),
        limits=Limits(capacity=capacity(name, float(row["gpu_mem_gb"]) * GIB)),
        recipe=None if row["recipe"] == NONE else Recipe.parse(row["recipe"]),
        group=row["gpu"],
    )


ALL = [cell_of(row) for row in rows()]


def case_of(cell: Cell, *, predict: bool = False) -> Case:
    return Case(limits=cell.limits, constants=C, measured_gpu=None if predict else cell.group)


def test_all_560_cells_are_answered_as_measured() -> None:
    assert len(ALL) == 560
    for cell, row in zip(ALL, rows(), strict=True):
        decision = decide(cell.workload, case_of(cell))
        assert decision.measured
        assert (str(decision.recipe) if decision.recipe else "-") == row["recipe"]


def test_between_two_measured_lengths_the_longer_one_s_recipe_holds() -> None:
    w = Workload(shape=model_named("qwen3-8b"), gpus=4, context=28673)
    assert measured_recipe("A100", w) == measured_recipe("A100", replace(w, context=32768))
    assert measured_recipe("A100", w) != measured_recipe("A100", replace(w, context=28672))
    assert measured_recipe("A100", replace(w, context=10**6)) is None


@pytest.mark.parametrize(
    "change",
    [
        {"optimizer": "sgd"},
        {"tokens": 4096},
        {"checkpointing": False},
        {"batch": 8},
        {"lora": 8},
        {"strategy": "zero3"},
        {"gpus": 3},
    ],
)
def test_a_workload_that_was_not_measured_is_predicted(change: dict[str, object]) -> None:
    w = Workload(shape=model_named("qwen3-8b"), gpus=4, context=8192)
    assert measured_recipe("A100", w) is not None
    assert measured_recipe("A100", replace(w, **change)) is None


def test_the_predictions_keep_what_is_promised() -> None:
    score, safe = judge(ALL, C), judge(ALL, C, safe=True)
    assert score.exact >= 0.94 and score.unsafe <= 0.025 and score.fits_or_not >= 0.99
    assert safe.unsafe <= 0.01
    fits = [(choose(cell.workload, cell.limits, C), cell.recipe) for cell in ALL]
    clear = [(one.chosen.recipe if one.chosen else None) == it for one, it in fits if one.clear]
    assert len(clear) >= 0.80 * len(ALL) and sum(clear) >= 0.99 * len(clear)


def test_the_shipped_constants_are_what_the_fit_leaves() -> None:
    found = fit(ALL, C)
    for name in FITTED:
        assert getattr(found, name) == pytest.approx(getattr(C, name), rel=0.05), name


def test_every_constant_is_inside_what_physics_allows() -> None:
    for name, (least, most) in BOUNDS.items():
        assert least <= getattr(C, name) <= most, name
    assert set(BOUNDS) == set(FITTED)


def test_predicted_is_never_compared_with_measured_to_propose_fewer_gpus() -> None:
    cell = next(c for c in ALL if c.workload.gpus == 6 and c.recipe is None)
    found = better(decide(cell.workload, case_of(cell, predict=True)), case_of(cell))
    assert found is None or not found.measured


def test_a_measured_recipe_is_not_for_a_machine_with_too_little_memory_of_its_own() -> None:
    cell = next(c for c in ALL if c.recipe == Recipe(offload=True, env=True))
    case = case_of(cell)
    need = states.host_bytes(cell.workload, Recipe(offload=True))
    assert decide(cell.workload, replace(case, limits=replace(case.limits, host=need))).measured
    short = replace(case, limits=replace(case.limits, host=need - 1))
    assert not decide(cell.workload, short).measured


def test_where_only_fewer_gpus_were_measured_both_are_predicted_and_compared() -> None:
    w = Workload(shape=model_named("qwen3-0.6b"), gpus=6, context=92160)
    case = Case(limits=ALL[0].limits, constants=C, measured_gpu="A100")
    decision = decide(w, case)
    assert not decision.measured and decision.recipe is None
    found = better(decision, case)
    assert found and not found.measured and found.fit.workload.gpus == 4


# --- calibration --------------------------------------------------------------------------------


def trials(factor: float, n: int = 24) -> list[Trial]:
    """Runs on a GPU where every logit takes `factor` times what the shipped constants say."""
    truth = replace(C, logit=C.logit * factor)
    found = []
    for i in range(n):
        w = Workload(shape=model_named("qwen3-1.7b"), gpus=4, context=4096 + 1024 * i)
        recipe = Recipe(env=True)
        total = parts.parts(w, recipe, truth).total
        limits = Limits(capacity=60 * GIB)
        group = f"part {i % 5}"
        fits = total <= limits.capacity
        found.append(Trial(workload=w, limits=limits, recipe=recipe, fits=fits, group=group))
    return found


@pytest.mark.parametrize("factor", [0.7, 1.4])
def test_somebody_s_own_runs_move_the_constants_towards_the_truth(factor: float) -> None:
    facts = trials(factor)
    assert {trial.fits for trial in facts} == {True, False}
    found = calibration(facts, C)
    assert found.before.exact < found.after.exact == 1.0
    assert found.cross_validated.exact >= found.before.exact
    assert (found.constants["logit"] - C.logit) * (factor - 1) > 0


def test_runs_that_agree_leave_the_constants_nearly_where_they_are() -> None:
    found = fit(trials(1.0), C)
    for name in FITTED:
        assert getattr(found, name) == pytest.approx(getattr(C, name), rel=0.2), name


def test_a_handful_of_absurd_runs_cannot_leave_the_bounds() -> None:
    w = Workload(shape=model_named("qwen3-1.7b"), gpus=4, context=8192)
    for fits, gib in ((True, 0.5), (False, 4000)):
        limits = Limits(capacity=gib * GIB)
        trial = Trial(workload=w, limits=limits, recipe=Recipe(), fits=fits, group="x")
        found = fit([trial] * 50, C)
        for name, (least, most) in BOUNDS.items():
            assert least <= getattr(found, name) <= most


def test_too_few_cells_are_refused() -> None:
    with pytest.raises(BadInput, match="too few"):
        calibration(trials(1.0, n=3), C)
