"""Compare results with exact ones, within an allowed error, and report the comparisons.

Let u be the unit roundoff. A sum of n products, in any order, differs from the exact sum by about
u * sqrt(n) times the size of its terms. The worst of a million such sums differs by about five
times as much. The allowed errors are about twice the largest error that was measured on CPUs.
"""

from __future__ import annotations

from math import inf
from typing import Any, NamedTuple, Sequence

import torch

from ..values import FAILED, PASSED, WRONG, Outcome

ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
"""The unit roundoff of each format: half the distance from 1 to the next number."""
PART = "of the error allowed"
"""The unit of an outcome's value: the largest error as a share of the error that is allowed."""


class Comparison(NamedTuple):
    """The result of one comparison of computed elements with exact ones."""

    label: str
    worst: float
    """The largest error divided by the error allowed there; infinite if no error is allowed."""
    allowed: float = 0.0
    """The largest absolute error allowed; 0 if every bit must be right."""
    problem: str = ""
    """What is wrong, in words; empty if all is right."""

    @property
    def is_right(self) -> bool:
        """Whether every element is within its limit. NaN is never within a limit."""
        return self.worst <= 1


def agree(label: str, computed: Any, exact: Any, allowed: Any) -> Comparison:
    """Compare numbers, as tensors or lists, within the allowed error: one number for all of them,
    or one for each. Only the count of the numbers must be equal, not their shape."""
    computed, exact = real_numbers(computed), real_numbers(exact)
    if len(computed) != len(exact):
        return holds(label, False, f"{len(computed)} numbers, not {len(exact)}")
    allowed = torch.as_tensor(allowed, dtype=torch.float64).detach().reshape(-1)
    most_allowed = float(allowed.max()) if len(allowed) else 0.0
    errors = (computed - exact).abs()
    is_wrong = ~(errors <= allowed)
    # Keep the divisor above 0 if no error is allowed.
    shares = errors / allowed.clamp(min=1e-300)
    # A wrong number has an infinite share if it is NaN, or if no error is allowed there.
    shares[is_wrong & (errors.isnan() | (allowed == 0))] = inf
    worst = float(shares.max()) if len(shares) else 0.0
    return Comparison(label, worst, most_allowed, wrong_in_words(computed, exact, is_wrong))


def same(label: str, computed: Any, exact: Any) -> Comparison:
    """Check that each element equals the exact one, and that shape and dtype are equal."""
    computed, exact = computed.detach().to("cpu"), exact.detach().to("cpu")
    if computed.shape != exact.shape or computed.dtype != exact.dtype:
        kinds = [f"{x.dtype} {list(x.shape)}".replace("torch.", "") for x in (computed, exact)]
        return holds(label, False, ", not ".join(kinds))
    computed, exact = computed.reshape(-1), exact.reshape(-1)
    problem = wrong_in_words(computed, exact, computed != exact)
    return holds(label, not problem, problem)


def holds(label: str, is_true: bool, problem: str = "") -> Comparison:
    """The result of a yes-or-no test, with `problem` as the explanation of a no."""
    return Comparison(label, 0.0) if is_true else Comparison(label, inf, problem=problem)


def real_numbers(numbers: Any) -> Any:
    """The numbers of a tensor or a list in one row, in float64 on the CPU."""
    if not isinstance(numbers, torch.Tensor):
        numbers = torch.tensor(numbers, dtype=torch.float64)
    return numbers.detach().to("cpu").double().reshape(-1)


def wrong_in_words(computed: Any, exact: Any, is_wrong: Any) -> str:
    """How many elements of a row are wrong, and the first of them; empty if none is."""
    if not bool(is_wrong.any()):
        return ""
    place = int(is_wrong.nonzero()[0])
    first = f"first at {place}: {float(computed[place]):.6g}, not {float(exact[place]):.6g}"
    return f"{int(is_wrong.sum())} of {is_wrong.numel()} elements are wrong, {first}"


def outcome_of(comparisons: Sequence[Comparison], against: str) -> Outcome:
    """The outcome of all comparisons, with the first wrong one or the one closest to its limit."""
    # Comparisons that allow no error have no limit, so they have nothing to report here.
    numeric = [comparison for comparison in comparisons if comparison.allowed]
    limit, unit = (1.0, PART) if numeric else (None, None)
    wrong = [comparison for comparison in comparisons if not comparison.is_right]
    if wrong:
        # An infinite share says only that no error was allowed.
        value = wrong[0].worst if wrong[0].worst < inf else None
        others = f"; {len(wrong) - 1} more comparisons are wrong" if len(wrong) > 1 else ""
        detail = f"{wrong[0].label}: {wrong[0].problem}{others}"
        return Outcome(FAILED, detail, value, limit, unit, problem=WRONG)
    detail = f"{len(comparisons)} comparisons with {against}"
    if not numeric:
        return Outcome(PASSED, detail)
    nearest = max(numeric, key=lambda comparison: comparison.worst)
    detail = f"{detail}, worst {nearest.label}, allowed {nearest.allowed:.1e}"
    return Outcome(PASSED, detail, nearest.worst, limit, unit)
