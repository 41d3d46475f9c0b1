"""Compare results with exact ones, within an allowed error, and report the comparisons.

Let u be the unit roundoff. A sum of n products, in any order, differs from the exact sum by about
u * sqrt(n) times the size of its terms. The worst of a million such sums differs by about five
times as much. The allowed errors are about twice the largest error that was measured on CPUs.
"""

from __future__ import annotations

from math import inf, isnan
from typing import Any, List, NamedTuple, Optional, Sequence

from ..values import FAILED, PASSED, WRONG, Outcome, asked

ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
"""The unit roundoff of each format: half the distance from 1 to the next number."""
PART = "of the error allowed"


class Part(NamedTuple):
    """The result of one comparison of computed elements with exact ones."""

    label: str
    worst: float
    """The largest error divided by the error allowed there; infinite if no error is allowed."""
    allowed: float
    """The largest absolute error allowed; 0 if every bit must be right."""
    wrong: int = 0
    """The number of wrong elements."""
    elements: int = 0
    """The number of elements; set only if some are wrong."""
    first: str = ""
    """The index of the first wrong element, its value, and the right value, as text."""

    @property
    def is_right(self) -> bool:
        """Whether every element is within its limit. NaN is never within a limit."""
        return self.worst <= 1


def numbers(torch: Any, *shape: int, salt: int = 0) -> Any:
    """Normally distributed numbers on the CPU, by the seed of this run and `salt`."""
    return torch.randn(*shape, generator=source(torch, salt))


def source(torch: Any, salt: int = 0) -> Any:
    """A CPU generator, seeded with the seed of this run and `salt`."""
    # The factor is large, so that the numbers for one seed and its salts are not repeated by the
    # next seeds. torch does not accept larger seeds.
    return torch.Generator().manual_seed((asked().seed + 7919 * salt) % 2**63)


def agree(label: str, computed: Any, exact: Any, allowed: Any) -> Part:
    """Compare each element within the allowed error: one number, or one for each element."""
    import torch

    computed, exact = real_numbers(torch, computed), real_numbers(torch, exact)
    # Tensors with different shapes cannot be compared.
    if computed.shape != exact.shape:
        return holds(label, False, f"shape {list(computed.shape)}, not {list(exact.shape)}")
    allowed = torch.as_tensor(allowed, dtype=torch.float64).detach().expand_as(exact)
    most_allowed = float(allowed.max()) if allowed.numel() else 0.0
    errors = (computed - exact).abs()
    # Keep the divisor above 0 if no error is allowed.
    shares = errors / allowed.clamp(min=1e-300)
    is_wrong = ~(errors <= allowed)
    if bool(is_wrong.any()):
        worst = float(shares[is_wrong].max())
        # If a computed value is NaN, its error is NaN too.
        worst = inf if isnan(worst) else worst
        return wrong_part(label, worst, most_allowed, computed, exact, is_wrong)
    return Part(label, float(shares.max()) if shares.numel() else 0.0, most_allowed)


def same(label: str, computed: Any, exact: Any) -> Part:
    """Check that each element equals the exact one, and that shape and dtype are equal."""
    computed, exact = computed.detach().to("cpu"), exact.detach().to("cpu")
    if computed.shape != exact.shape or computed.dtype != exact.dtype:
        kinds = [f"{x.dtype} {list(x.shape)}".replace("torch.", "") for x in (computed, exact)]
        return holds(label, False, ", not ".join(kinds))
    is_wrong = computed != exact
    if bool(is_wrong.any()):
        return wrong_part(label, inf, 0.0, computed, exact, is_wrong)
    return Part(label, 0.0, 0.0)


def holds(label: str, is_true: bool, problem: str = "") -> Part:
    """The result of a yes-or-no test, with `problem` as the explanation of a no."""
    if is_true:
        return Part(label, 0.0, 0.0)
    return Part(label, inf, 0.0, wrong=1, elements=1, first=problem)


def real_numbers(torch: Any, tensor: Any) -> Any:
    """The numbers of a tensor in float64 on the CPU. A complex number becomes two real numbers."""
    tensor = tensor.detach().to("cpu")
    if tensor.is_complex():
        # Compute the conjugate if torch has only marked the tensor as conjugated.
        tensor = torch.view_as_real(tensor.resolve_conj())
    return tensor.double()


def wrong_part(
    label: str, worst: float, allowed: float, computed: Any, exact: Any, is_wrong: Any
) -> Part:
    """A comparison with wrong elements: their number, and the first one."""
    # A tensor without axes has one element and an empty index.
    index: List[int] = is_wrong.nonzero()[0].tolist() if is_wrong.dim() else []
    found, right = (float(x[tuple(index)]) for x in (computed, exact))
    return Part(
        label,
        worst,
        allowed,
        wrong=int(is_wrong.sum()),
        elements=is_wrong.numel(),
        first=f"first at {index}: {found:.6g}, not {right:.6g}",
    )


def judged(parts: Sequence[Part], against: str, hint: Optional[str] = None) -> Outcome:
    """The outcome of all comparisons, with the wrong ones or the one closest to its limit."""
    # Comparisons that allow no error have no limit, so they have nothing to report here.
    numeric = [part for part in parts if part.allowed]
    limit, unit = (1.0, PART) if numeric else (None, None)
    wrong = [part for part in parts if not part.is_right]
    if wrong:
        value = wrong[0].worst if wrong[0].worst < inf else None
        return Outcome(FAILED, what_is_wrong(wrong), value, limit, unit, hint, problem=WRONG)
    detail = f"{len(parts)} comparisons with {against}"
    if not numeric:
        return Outcome(PASSED, detail)
    nearest = max(numeric, key=lambda part: part.worst)
    detail = f"{detail}, worst {nearest.label}, allowed {nearest.allowed:.1e}"
    return Outcome(PASSED, detail, nearest.worst, limit, unit)


NAMED_LABELS = 4
"""The number of further wrong comparisons that are listed by name. The others are only counted."""


def what_is_wrong(wrong: List[Part]) -> str:
    """A description of the first wrong comparison, with the names of the others."""
    part = wrong[0]
    # List each name only once, and keep the order.
    labels = list(dict.fromkeys(further.label for further in wrong[1:]))
    others = f"; also wrong: {', '.join(labels[:NAMED_LABELS])}" if labels else ""
    if len(labels) > NAMED_LABELS:
        others += f" and {len(labels) - NAMED_LABELS} more"
    is_statement = part.elements == 1 and part.first
    if is_statement or not part.elements:
        return f"{part.label}: {part.first}{others}"
    return f"{part.label}: {part.wrong} of {part.elements} elements are wrong, {part.first}{others}"
