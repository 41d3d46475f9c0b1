"""One sample of torch's database: computed on the device, in float64 on the CPU, and compared.

How far an element may be off: the roundoff of the format times the size of the exact answer, and
what the exact answer moves when every argument is moved by about a roundoff, both times a factor.
Where whole numbers or flags of the exact answer change with that, they are not judged.
"""

from __future__ import annotations

import contextlib
import random
import warnings
from math import inf
from typing import Any, Iterator, List, NamedTuple, Tuple

from ..device.importing import first_line
from ..judging.tolerance import ROUNDOFF, Part, holds
from .calls import (
    WHOLE,
    Answer,
    Call,
    answered,
    exactly,
    fresh,
    in_float64,
    replaced,
    tensors_of,
)
from .rules import ROOM, SCALE_OF_ARGUMENTS, STEEP, WRITES_BACK, matches

OWN = {"float32": 32.0, "bfloat16": 16.0, "float16": 16.0, "complex64": 32.0}
MOVED, SHARE, ALONG = 16.0, 0.05, 0.25
"""Factors: of a roundoff of the answer; of what it moves; of that of its other elements; of what a
gradient is taken along, as a derivative is often computed from a rounded answer."""
SMALLEST = {"float16": 2.0**-24}
"""Below this nothing is told apart; of other formats the least normal number, as kernels may take
what is below it for zero."""
STEPS = (1.0, 1.3, 0.7)
"""Roundoffs by which arguments are moved, all of one call by one of them, each up or down."""
AGAIN = 8
"""So many further moved answers judge what misses the first limit by less than `FAR` times."""
FAR = 1e4


class Target(NamedTuple):
    """One tensor that is to be right."""

    label: str
    found: Any
    exact: Any
    moved: List[Any]


class Question:
    """One call in its working format, on its device."""

    def __init__(
        self, torch: Any, device: str, run: Any, call: Call, dtype: str, words: str
    ) -> None:
        self.torch, self.device, self.run, self.call, self.dtype = torch, device, run, call, dtype
        self.words = words
        self.chance = random.Random(words)
        self.made = torch.Generator().manual_seed(self.chance.getrandbits(62))
        self.u = ROUNDOFF.get(dtype, ROUNDOFF["float32"])
        self.room = 1.0
        self.at_least = 0.0
        """The size of the answer below which its roundoff does not fall."""
        self.height = 0.0
        """The greatest size of an answer. Derivatives are computed by way of its cube, which may
        be past the end of float16."""
        self.upstream: List[Any] = []
        self.along = 0.0
        self.wide = exactly(torch, call, dtype)
        self.unique = True
        self.back = 0.0
        """By how many roundoffs an argument may be other than before."""

    def as_before(self, x: Any, before: Any) -> bool:
        near = self.back and self.torch.allclose(x, before, rtol=self.back * self.u, atol=0.0)
        return bool(near or self.torch.equal(x, before))

    def exact(self) -> Answer:
        """In float64; draws along what the gradients are."""

        def drawn(learned: List[Any]) -> List[Any]:
            self.upstream = [self.weights(y) for y in learned]
            self.along = max(map(greatest, self.upstream), default=0.0)
            return self.upstream

        with in_float64(self.torch):
            return answered(self.torch, self.run, fresh(self.torch, self.wide), drawn, self.unique)

    def weights(self, y: Any) -> Any:
        torch = self.torch
        drawn = torch.randn(tuple(y.shape), generator=self.made, dtype=y.dtype)
        low = getattr(torch, self.dtype)
        if not (low.is_floating_point or low.is_complex):
            low = torch.float32
        if drawn.is_complex():
            return drawn.to(torch.complex64).to(y.dtype)
        return drawn.to(torch.float32 if low.is_complex else low).to(y.dtype)

    def moved(self, step: float) -> Answer:
        """The exact answer of arguments that are each up or down by about a roundoff."""
        torch = self.torch
        whole = getattr(torch, self.dtype) if self.dtype in WHOLE else None

        def shifted(x: Any) -> Any:
            if whole is not None and x.dtype == torch.int64:
                x = x.to(torch.float64)
            if not (x.is_floating_point() or x.is_complex()) or x.layout != torch.strided:
                return x
            signs = torch.randint(0, 2, tuple(x.shape), generator=self.made)
            signs = signs.to(torch.float64).mul_(2 * step * self.u).sub_(step * self.u)
            return (x.detach() * (1 + signs)).requires_grad_(x.requires_grad)

        with in_float64(torch):
            call = replaced(torch, fresh(torch, self.wide), shifted)
            upstream = [shifted(g) for g in self.upstream]
            return answered(torch, self.run, call, lambda _: upstream, self.unique)

    def all_moved(self, exact: Answer) -> List[Answer]:
        """Three moved answers. Whole arguments are moved where the answer is no whole number, and
        the operator takes others."""
        if self.dtype in WHOLE and all(kind_of(x) == "whole" for x in exact.outputs):
            return []
        found = []
        for step in STEPS:
            with contextlib.suppress(Exception):  # takes whole numbers alone, or 1 and no more
                found.append(self.moved(step))
        if self.dtype not in WHOLE:
            if not found:
                raise NotAsked("arguments that are moved have no answer")
            return found
        alike = [list(map(kind_of, each.outputs)) for each in (exact, *found)]
        return found if all(each == alike[0] for each in alike) else []

    def here(self, run: Any = None, layout: str = "", learns: bool = True) -> Answer:
        """In the working format on the device."""
        call = fresh(self.torch, self.call, layout, self.device)
        if not learns:
            call = replaced(self.torch, call, lambda x: x.detach())
        found = answered(
            self.torch, run or self.run, call, lambda _: self.low_upstream(), self.unique
        )
        return Answer(*[[None if x is None else x.cpu() for x in part] for part in found])

    def low_upstream(self) -> List[Any]:
        return [g.to(self.device) for g in self.upstream]


def limits(torch: Any, question: Question, target: Target) -> Tuple[Any, Any]:
    """The error allowed of each element, and which are not judged."""
    exact = target.exact
    u = max(question.u, float(torch.finfo(target.found.dtype).eps) / 2)
    size = exact.abs()
    size = torch.where(size.isfinite(), size, torch.zeros_like(size))
    change = torch.zeros_like(size)
    unsure = torch.zeros_like(size, dtype=torch.bool)
    for moved in target.moved:
        if moved is None or moved.shape != exact.shape:
            unsure = torch.ones_like(unsure)
            continue
        off = (moved - exact).abs()
        unsure |= ~off.isfinite() & exact.isfinite().logical_or(moved.isfinite())
        change = torch.maximum(change, torch.nan_to_num(off, 0.0, 0.0, 0.0))
    most = max(question.at_least, greatest(size))
    if "gradient" in target.label:
        steep = STEEP * question.at_least if question.at_least else 0.0
        most = max(most, ALONG * question.along, steep)
    spread = float(change.mean()) if change.numel() else 0.0
    least = SMALLEST.get(question.dtype, torch.finfo(target.found.dtype).tiny)
    own = OWN.get(question.dtype, OWN["float32"])
    allowed = question.room * own * (u * most + least) + MOVED * (change + SHARE * spread)
    top = torch.finfo(target.found.dtype).max
    unsure |= size + allowed >= top
    if "gradient" in target.label and question.height**3 * 4 >= top:
        unsure |= ~target.found.isfinite()
    return allowed, unsure


def greatest(x: Any) -> float:
    """The greatest finite size of an element."""
    if not x.numel():
        return 0.0
    most = float(x.abs().max())
    if most < inf:
        return most
    sizes = x.abs()
    sizes = sizes[sizes.isfinite()]
    return float(sizes.max()) if sizes.numel() else 0.0


def judged(torch: Any, question: Question, target: Target) -> Part:
    found, exact = target.found, target.exact
    if found.shape != exact.shape:
        told = f"shape {list(found.shape)}, not {list(exact.shape)}"
        return holds(target.label, False, told)
    if kind_of(found) != kind_of(exact):
        told = f"{found.dtype}, for {exact.dtype} of the exact".replace("torch.", "")
        return holds(target.label, False, told)
    if kind_of(found) == "whole":
        return _whole(torch, target)
    return _close(torch, question, target)


def kind_of(x: Any) -> str:
    """`whole` numbers and flags, `float` or `complex`."""
    if x.is_complex():
        return "complex"
    return "float" if x.is_floating_point() else "whole"


def _whole(torch: Any, target: Target) -> Part:
    found, exact = target.found.to(torch.int64), target.exact.to(torch.int64)
    bad = found != exact
    if not bool(bad.any()):
        return Part(target.label, 0.0, 0.0)
    if target.found.dtype != torch.bool:
        reach = torch.iinfo(target.found.dtype)
        bad &= (exact > reach.min) & (exact < reach.max)
    for moved in target.moved:
        if moved.shape != exact.shape:
            return Part(target.label, 0.0, 0.0)
        bad &= moved.to(torch.int64) == exact
    return _told(torch, target, bad, inf, 0.0)


def _close(torch: Any, question: Question, target: Target) -> Part:
    found = target.found.to(target.exact.dtype)
    exact = target.exact
    alike = (found == exact) | (found.isnan() & exact.isnan())
    if bool(alike.all()):
        return Part(target.label, 0.0, 0.0)
    allowed, unsure = limits(torch, question, target)
    off = (found - exact).abs()
    if exact.is_complex():
        alike |= ~found.isfinite() & ~exact.isfinite()
    parts = torch.where(alike | unsure, torch.zeros_like(off), off / allowed)
    parts = torch.nan_to_num(parts, inf, inf, inf)
    bad = ~(parts <= 1)
    worst = float(parts.max()) if parts.numel() else 0.0
    most = float(allowed.max()) if allowed.numel() else 0.0
    return _told(torch, target, bad, worst, most)


def _told(torch: Any, target: Target, bad: Any, worst: float, most: float) -> Part:
    if not bool(bad.any()):
        return Part(target.label, worst if most else 0.0, most)
    place = tuple(int(each) for each in torch.nonzero(bad)[0]) if bad.dim() else ()
    found, exact = _number(target.found[place]), _number(target.exact[place])
    said = f"first at {list(place)}: {found}, not {exact}"
    return Part(target.label, worst, most, int(bad.sum()), bad.numel(), said)


def _number(x: Any) -> str:
    value = x.item()
    return f"{value:.6g}" if not isinstance(value, bool) else str(value)


def targets(
    question: Question, label: str, found: Answer, exact: Answer, moved: List[Answer]
) -> Iterator[Any]:
    """Each tensor of an answer beside the exact one; a Part where they cannot be paired."""
    yield from _paired(label, [each.outputs for each in (found, exact, *moved)])
    yield from _paired(f"{label} gradient", [each.gradients for each in (found, exact, *moved)])
    yield from _written(question, label, found, exact, moved)


def _paired(label: str, answers: List[List[Any]]) -> Iterator[Any]:
    found, exact, *moved = answers
    if len(found) != len(exact):
        if found or "gradient" not in label:
            yield holds(label, False, f"{len(found)} of them, not {len(exact)}")
        return
    for place, (x, y) in enumerate(zip(found, exact)):
        if x is None or y is None:
            given = x if y is None else y
            if given is not None and bool(given.ne(0).any()):
                yield holds(label, False, "one has no value" if x is None else "one has a value")
            continue
        yield Target(label, x, y, [each[place] for each in moved if len(each) == len(exact)])


def _written(
    question: Question, label: str, found: Answer, exact: Answer, moved: List[Answer]
) -> Iterator[Any]:
    """What a call writes into its arguments; those that it only reads stay as they were."""
    torch = question.torch
    low = tensors_of(torch, (question.call.given, question.call.options))
    wide = tensors_of(torch, (question.wide.given, question.wide.options))
    for place, (x, y) in enumerate(zip(found.written, exact.written)):
        if x.layout != torch.strided:
            continue
        if not torch.equal(y, wide[place].detach()) and not _has_nan(y):
            near = [each.written[place] for each in moved]
            yield Target(f"{label} what it writes", x, y, near)
        elif not question.as_before(x, low[place].detach()) and not _has_nan(x):
            yield holds(f"{label} leaves its arguments", False, "one was changed")


def _has_nan(x: Any) -> bool:
    return bool((x != x).any())


def compared(torch: Any, device: str, entry: Any, call: Call, dtype: str, words: str) -> List[Part]:
    """All comparisons of a sample. Raises what the exact computation raises."""
    question = Question(torch, device, entry.run, call, dtype, words)
    question.unique = entry.unique
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            exact = question.exact()
        except Exception as problem:  # what has no answer in float64 either is not asked
            raise NotAsked(first_line(problem)) from problem
        moved = question.all_moved(exact)
        question.room = ROOM.get(entry.name, 1.0) * entry.room
        question.back = 2.0 if entry.name in WRITES_BACK else 0.0
        if matches(entry.name, SCALE_OF_ARGUMENTS):
            given = tensors_of(torch, (call.given, call.options)) + question.upstream
            question.at_least = 20 * max(map(greatest, given), default=1.0)
        question.height = max(
            (greatest(x) for x in exact.outputs if kind_of(x) != "whole"), default=0.0
        )
        found = question.here()
        parts = list(_all(question, "", found, exact, moved))
        for way, answer in entry.other_ways(question, found):
            parts += _all(question, way, answer, exact, moved)
    return parts


class NotAsked(Exception):
    """What a sample has no exact answer for."""


def _all(
    question: Question, label: str, found: Answer, exact: Answer, moved: List[Answer]
) -> Iterator[Part]:
    for target in targets(question, label, found, exact, moved):
        if isinstance(target, Part):
            yield target
            continue
        part = judged(question.torch, question, target)
        if part.worst > 1 and (part.worst < FAR or kind_of(target.found) == "whole"):
            for step in (STEPS * 3)[:AGAIN] if 0 < len(moved) <= len(STEPS) else ():
                with contextlib.suppress(Exception):
                    moved.append(question.moved(step))
            again = list(targets(question, label, found, exact, moved))
            same = next(
                each for each in again if isinstance(each, Target) and each.found is target.found
            )
            part = judged(question.torch, question, same)
        yield part
