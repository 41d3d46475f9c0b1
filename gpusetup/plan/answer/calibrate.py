"""Fitting the constants to cells: a small convex problem, in plain Python.

A cell says of a recipe that it fits, and of those before it that they do not. Each is a
half-space for the constants, because memory is linear in them; the fit is a logistic regression
on these, drawn towards the constants it starts from, inside bounds that physics sets.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from operator import mul

from gpusetup.model.frozen import Frozen, replace
from gpusetup.plan.answer.choose import Limits, candidates, choose
from gpusetup.plan.memory import activations, loss, parts, states
from gpusetup.plan.memory.constants import FITTED, Constants
from gpusetup.plan.model.workload import Recipe, Workload

BOUNDS: dict[str, tuple[float, float]] = {
    "alone": (0.0, 2.0),
    "unit": (4.0, 24.0),
    "unit_offloaded": (4.0, 24.0),
    "checkpoint": (1.5, 2.0),
    "logit": (4.0, 16.0),
    "exchange": (4.0, 32.0),
    "fragmentation": (0.0, 4.0),
}
"""What is physically possible: a gathered unit takes 16-bit weights and gradients (4 bytes) at
least, twice its states at most; a checkpoint 2 bytes, or 1.5 where a budget is three quarters
full; a logit 4 bytes at least; an exchange four 16-bit tensors sent or received, at least two."""

SHARPNESS = (0.05, 0.02, 0.01, 0.005)
"""Widths of the logistic as a share of the capacity; each fit starts from the one before."""

PULL = 3.0
"""How strongly the start holds: as much as three constraints that are violated by one width."""

LAST = 4.0
"""The weight of a column's last recipe: it decides whether anything fits."""


class Cell(Frozen):
    """One measured fact: the first recipe that fits (None: none does)."""

    workload: Workload
    limits: Limits
    recipe: Recipe | None
    group: str = ""
    """What is left out together in cross-validation."""


class Trial(Frozen):
    """One run of somebody's own: a recipe that fitted, or did not."""

    workload: Workload
    limits: Limits
    recipe: Recipe
    fits: bool
    group: str = ""


class Constraint(Frozen):
    """One half-space: amounts times constants is below `bound` (or above, if `fits` is False)."""

    amounts: tuple[float, ...]
    bound: float
    sign: float
    weight: float


class Score(Frozen):
    """How often the model says what was measured; shares of all cells."""

    cells: int
    exact: float
    unsafe: float
    """The share where the model names a recipe earlier in the order than the measured one."""
    fits_or_not: float


# --- from cells to constraints ------------------------------------------------------------------


def constraints(facts: Iterable[Cell | Trial], start: Constants) -> list[Constraint]:
    """The half-spaces of all facts."""
    found: list[Constraint] = []
    for fact in facts:
        found += _of_cell(fact, start) if isinstance(fact, Cell) else _of_trial(fact, start)
    return found


def _of_cell(cell: Cell, start: Constants) -> Iterable[Constraint]:
    order = candidates(cell.workload, cell.limits)
    for recipe in order:
        fits = cell.recipe is not None and recipe.rank >= cell.recipe.rank
        weight = LAST if recipe == order[-1] else 1.0
        yield _constraint(cell.workload, recipe, cell.limits, start, fits, weight)
        if fits:
            return


def _of_trial(trial: Trial, start: Constants) -> Iterable[Constraint]:
    yield _constraint(trial.workload, trial.recipe, trial.limits, start, trial.fits, 1.0)


def _constraint(
    w: Workload, r: Recipe, limits: Limits, start: Constants, fits: bool, weight: float
) -> Constraint:
    fixed, amounts = linear(w, r, start)
    cap = limits.capacity
    return Constraint(
        amounts=tuple(amount / cap for amount in amounts),
        bound=1 - fixed / cap,
        sign=1.0 if fits else -1.0,
        weight=weight,
    )


def linear(w: Workload, r: Recipe, start: Constants) -> tuple[float, tuple[float, ...]]:
    """The memory as bytes that no constant moves, and the amount of each fitted constant.

    For trainers that fill a budget of tokens. Which is the larger of logits and layer is taken
    from `start`; there the sum is exact.
    """
    zero = replace(start, **dict.fromkeys(FITTED, 0.0))
    layer, logits = activations.layer_bytes(w, r), loss.logit_amount(w, r)
    by_logits = logits * loss.logit_bytes(w, start) >= layer
    fitted_logit = by_logits and loss.LOSSES[w.loss] is None
    unit, checkpoint = states.unit_amount(w), activations.checkpoint_amount(w, r)
    passing = logits * loss.logit_bytes(w, start) if by_logits else layer
    amounts = {
        "alone": states.alone_amount(w, r),
        "unit": 0.0 if r.offload else unit,
        "unit_offloaded": unit if r.offload else 0.0,
        "checkpoint": checkpoint,
        "logit": logits if fitted_logit else 0.0,
        "exchange": activations.exchange_amount(w, r),
        "fragmentation": 0.0 if r.env else passing / start.logit,
    }
    fixed = states.standing_bytes(w, r) + states.gradient_state_bytes(w, r)
    fixed += activations.kept_bytes(w, r) + zero.context_bytes
    fixed += zero.nccl_bytes if w.gpus > 1 and w.strategy != "dp" else 0.0
    fixed += 0.0 if fitted_logit else passing
    if fitted_logit:
        fixed += logits * (loss.logit_bytes(w, start) - start.logit)
    return fixed, tuple(amounts[name] for name in FITTED)


# --- the fit ------------------------------------------------------------------------------------


def fit(facts: Sequence[Cell | Trial], start: Constants) -> Constants:
    """The constants that fit the facts best, near `start`, inside the bounds."""
    rows = constraints(facts, start)
    prior = [getattr(start, name) for name in FITTED]
    values = [min(max(p, BOUNDS[n][0]), BOUNDS[n][1]) for n, p in zip(FITTED, prior, strict=True)]
    for width in SHARPNESS:
        values = _descend(rows, values, prior, width)
    return replace(start, **{n: round(v, 3) for n, v in zip(FITTED, values, strict=True)})


def _descend(
    rows: Sequence[Constraint], values: list[float], prior: Sequence[float], width: float
) -> list[float]:
    """Newton's method with the bounds as an active set; each step is halved until it helps."""
    for _ in range(50):
        cost, gradient, curvature = _local(rows, values, prior, width)
        free = _free(values, gradient)
        step = _solve(curvature, gradient, free)
        moved = _line_search(lambda v: _cost(rows, v, prior, width), cost, values, step)
        if moved is None:
            return values
        values = moved
    return values


def _cost(
    rows: Sequence[Constraint], values: Sequence[float], prior: Sequence[float], width: float
) -> float:
    total = _pull(values, prior)
    for row in rows:
        z = row.sign * (sum(map(mul, row.amounts, values)) - row.bound) / width
        if z > -30:
            total += row.weight * (
                z + math.log1p(math.exp(-z)) if z > 0 else math.log1p(math.exp(z))
            )
    return total


def _pull(values: Sequence[float], prior: Sequence[float]) -> float:
    scaled = ((v - p) / max(p, 1.0) for v, p in zip(values, prior, strict=True))
    return 0.5 * PULL * sum(s * s for s in scaled)


def _local(
    rows: Sequence[Constraint], values: Sequence[float], prior: Sequence[float], width: float
) -> tuple[float, list[float], list[list[float]]]:
    """Cost, gradient and curvature at a point."""
    n = len(values)
    scale = [PULL / max(p, 1.0) ** 2 for p in prior]
    gradient = [s * (v - p) for s, v, p in zip(scale, values, prior, strict=True)]
    curvature = [[scale[i] if i == j else 0.0 for j in range(n)] for i in range(n)]
    for row in rows:
        z = row.sign * (sum(map(mul, row.amounts, values)) - row.bound) / width
        if z <= -30:
            continue
        chance = 1 / (1 + math.exp(-min(z, 30.0)))
        slope = row.weight * chance * row.sign / width
        bend = row.weight * chance * (1 - chance) / width**2
        _add(gradient, curvature, row.amounts, slope, bend)
    return _cost(rows, values, prior, width), gradient, curvature


def _add(
    gradient: list[float],
    curvature: list[list[float]],
    amounts: Sequence[float],
    slope: float,
    bend: float,
) -> None:
    here = [(i, a) for i, a in enumerate(amounts) if a]
    for i, a in here:
        gradient[i] += slope * a
        for j, b in here:
            curvature[i][j] += bend * a * b


def _free(values: Sequence[float], gradient: Sequence[float]) -> list[int]:
    """The constants that are not held by a bound that the descent would cross."""
    found = []
    for i, name in enumerate(FITTED):
        least, most = BOUNDS[name]
        held = (values[i] <= least and gradient[i] > 0) or (values[i] >= most and gradient[i] < 0)
        if not held:
            found.append(i)
    return found


def _solve(
    curvature: Sequence[Sequence[float]], gradient: Sequence[float], free: Sequence[int]
) -> list[float]:
    """The Newton step: Gauss elimination on the free constants, 0 for the others."""
    n = len(free)
    a = [[curvature[i][j] for j in free] + [gradient[i]] for i in free]
    for k in range(n):
        for i in range(k + 1, n):
            factor = a[i][k] / a[k][k]
            a[i] = [x - factor * y for x, y in zip(a[i], a[k], strict=True)]
    step = [0.0] * len(gradient)
    for k in reversed(range(n)):
        rest = sum(a[k][m] * step[free[m]] for m in range(k + 1, n))
        step[free[k]] = (a[k][n] - rest) / a[k][k]
    return step


def _line_search(
    cost_at: Callable[[list[float]], float],
    cost: float,
    values: Sequence[float],
    step: Sequence[float],
) -> list[float] | None:
    """The point along the step that lowers the cost; None where none does by more than 1e-9."""
    length = 1.0
    while length > 1e-6:
        there = [
            min(max(v - length * s, BOUNDS[n][0]), BOUNDS[n][1])
            for v, s, n in zip(values, step, FITTED, strict=True)
        ]
        if cost_at(there) < cost - 1e-9:
            return there
        length /= 2
    return None


# --- judging ------------------------------------------------------------------------------------


def judge(cells: Sequence[Cell], c: Constants, *, safe: bool = False) -> Score:
    """How the model's recipes compare with the measured ones."""
    exact = unsafe = same = 0
    for cell in cells:
        found = choose(cell.workload, replace(cell.limits, safe=safe), c).chosen
        got = found.recipe if found else None
        exact += got == cell.recipe
        unsafe += got is not None and (cell.recipe is None or got.rank < cell.recipe.rank)
        same += (got is None) == (cell.recipe is None)
    n = max(len(cells), 1)
    return Score(cells=len(cells), exact=exact / n, unsafe=unsafe / n, fits_or_not=same / n)


def judge_trials(trials: Sequence[Trial], c: Constants) -> Score:
    """The same for runs: whether the model says fits or not as it was."""
    right = unsafe = 0
    for trial in trials:
        total = parts.parts(trial.workload, trial.recipe, c).total
        said = total <= trial.limits.capacity
        right += said == trial.fits
        unsafe += said and not trial.fits
    n = max(len(trials), 1)
    return Score(cells=len(trials), exact=right / n, unsafe=unsafe / n, fits_or_not=right / n)


def cross_validated(facts: Sequence[Cell | Trial], start: Constants) -> Score:
    """Each group judged by constants that were fitted to the other groups."""
    scores = []
    for group in dict.fromkeys(fact.group for fact in facts):
        rest = [fact for fact in facts if fact.group != group]
        held = [fact for fact in facts if fact.group == group]
        scores.append(judged(held, fit(rest, start)))
    return mean(scores)


def judged(facts: Sequence[Cell | Trial], c: Constants) -> Score:
    """Cells and runs together."""
    cells = [fact for fact in facts if isinstance(fact, Cell)]
    trials = [fact for fact in facts if isinstance(fact, Trial)]
    return mean([judge(cells, c), judge_trials(trials, c)])


def mean(scores: Sequence[Score]) -> Score:
    """Scores together, each by its number of cells."""
    n = sum(score.cells for score in scores) or 1

    def share(name: str) -> float:
        total: float = sum(getattr(score, name) * score.cells for score in scores)
        return total / n

    return Score(
        cells=n, exact=share("exact"), unsafe=share("unsafe"), fits_or_not=share("fits_or_not")
    )
