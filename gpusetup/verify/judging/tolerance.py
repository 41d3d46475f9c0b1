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
    """The largest error, divided by the error allowed in that element. Infinite if a value that
    must be exact is wrong."""
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
    """Returns normally distributed random numbers on the CPU. They depend on the seed of this run
    and on `salt`."""
    generator = source(torch, salt)
    return torch.randn(*shape, generator=generator)


def source(torch: Any, salt: int = 0) -> Any:
    """Returns a CPU generator, seeded with the seed of this run and `salt`."""
    # The factor is large, so that the numbers for one seed and its salts are not repeated by the
    # next seeds.
    seed = asked().seed + 7919 * salt
    generator = torch.Generator()
    # torch does not accept larger seeds.
    generator.manual_seed(seed % 2**63)
    return generator


def agree(label: str, computed: Any, exact: Any, allowed: Any) -> Part:
    """Compare each element within the allowed error, which is one number or one for each
    element."""
    import torch

    computed, exact = real_numbers(torch, computed), real_numbers(torch, exact)
    # Tensors with different shapes cannot be compared.
    if computed.shape != exact.shape:
        return holds(label, False, f"shape {list(computed.shape)}, not {list(exact.shape)}")
    allowed = torch.as_tensor(allowed, dtype=torch.float64).detach().expand_as(exact)
    most_allowed = float(allowed.max()) if allowed.numel() else 0.0
    errors = (computed - exact).abs()
    # Keep the divisor above 0 if no error is allowed.
    share_of_limit = errors / allowed.clamp(min=1e-300)
    is_wrong = ~(errors <= allowed)
    if bool(is_wrong.any()):
        worst = float(share_of_limit[is_wrong].max())
        # If a computed value is NaN, its error is NaN too.
        if isnan(worst):
            worst = inf
        return wrong_part(label, worst, most_allowed, Wrong(computed, exact, is_wrong))
    worst = float(share_of_limit.max()) if share_of_limit.numel() else 0.0
    return Part(label, worst, most_allowed)


def same(label: str, computed: Any, exact: Any) -> Part:
    """Check that each element equals the exact one, and that shape and dtype are equal."""

    computed, exact = computed.detach().to("cpu"), exact.detach().to("cpu")
    # A result with another shape or dtype is wrong.
    if computed.shape != exact.shape or computed.dtype != exact.dtype:
        computed_kind = f"{computed.dtype} {list(computed.shape)}"
        exact_kind = f"{exact.dtype} {list(exact.shape)}"
        problem = f"{computed_kind}, not {exact_kind}"
        return holds(label, False, problem.replace("torch.", ""))
    is_wrong = computed != exact
    if bool(is_wrong.any()):
        return wrong_part(label, inf, 0.0, Wrong(computed, exact, is_wrong))
    return Part(label, 0.0, 0.0)


def holds(label: str, is_true: bool, problem: str = "") -> Part:
    """Returns the result of a yes-or-no test: right if `is_true`, otherwise wrong, with `problem`
    as the explanation."""
    if is_true:
        return Part(label, 0.0, 0.0)
    return Part(label, inf, 0.0, wrong=1, elements=1, first=problem)


def real_numbers(torch: Any, tensor: Any) -> Any:
    """Returns the numbers of a tensor in float64 on the CPU. A complex number becomes two real
    numbers."""
    tensor = tensor.detach().to("cpu")
    if tensor.is_complex():
        # Compute the conjugate if torch has only marked the tensor as conjugated.
        tensor = tensor.resolve_conj()
        tensor = torch.view_as_real(tensor)
    return tensor.double()


class Wrong(NamedTuple):
    """Two tensors that differ, and where they differ."""

    computed: Any
    exact: Any
    is_wrong: Any
    """A tensor of flags, True for each wrong element."""


def wrong_part(label: str, worst: float, allowed: float, tensors: Wrong) -> Part:
    """Returns a comparison with wrong elements. It contains their number and describes the first
    one."""
    computed, exact, is_wrong = tensors
    # A tensor without axes has one element and an empty index.
    index: List[int] = []
    if is_wrong.dim():
        index = is_wrong.nonzero()[0].tolist()
    wrong_number = computed[tuple(index)].item()
    right_number = exact[tuple(index)].item()
    return Part(
        label,
        worst,
        allowed,
        wrong=int(is_wrong.sum()),
        elements=is_wrong.numel(),
        first=f"first at {index}: {wrong_number:.6g}, not {right_number:.6g}",
    )


def judged(parts: Sequence[Part], against: str, hint: Optional[str] = None) -> Outcome:
    """Returns the outcome of all comparisons. Its detail describes the wrong comparisons or, if
    there are none, the one closest to its limit."""
    wrong_parts = [part for part in parts if not part.is_right]
    # Comparisons that allow no error have no limit, so they have nothing to report here.
    numeric_parts = [part for part in parts if part.allowed]
    limit = 1.0 if numeric_parts else None
    unit = PART if numeric_parts else None
    if wrong_parts:
        worst = wrong_parts[0].worst
        value = worst if worst < inf else None
        return Outcome(FAILED, what_is_wrong(wrong_parts), value, limit, unit, hint, problem=WRONG)
    detail = f"{len(parts)} comparisons with {against}"
    if not numeric_parts:
        return Outcome(PASSED, detail)
    nearest = max(numeric_parts, key=lambda part: part.worst)
    detail = f"{detail}, worst {nearest.label}, allowed {nearest.allowed:.1e}"
    return Outcome(PASSED, detail, nearest.worst, limit, unit)


NAMED_LABELS = 4
"""The number of further wrong comparisons that are listed by name. The others are only counted."""


def what_is_wrong(wrong_parts: List[Part]) -> str:
    """Returns a description of the first wrong comparison, with the names of the others."""
    part = wrong_parts[0]
    # List each name only once, and keep the order.
    labels = list(dict.fromkeys(further.label for further in wrong_parts[1:]))
    further_labels = ""
    if labels:
        further_labels = f"; also wrong: {', '.join(labels[:NAMED_LABELS])}"
    if len(labels) > NAMED_LABELS:
        further_labels += f" and {len(labels) - NAMED_LABELS} more"
    is_statement = part.elements == 1 and part.first
    if is_statement or not part.elements:
        return f"{part.label}: {part.first}{further_labels}"
    count = f"{part.wrong} of {part.elements} elements are wrong"
    return f"{part.label}: {count}, {part.first}{further_labels}"
