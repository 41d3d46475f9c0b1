"""One sample of torch's database: computed on the device, in float64 on the CPU, and compared.

How far an element may be off: the roundoff of the format times the size of the exact answer, and
what the exact answer moves when every argument is moved by about a roundoff, both times a factor.
Where whole numbers or flags of the exact answer change with that, they are not judged.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import warnings
from math import sqrt
from typing import Any, Callable, Iterator, List, Optional

from ..device.importing import first_line
from ..judging.refusals import is_fault, refuses
from ..judging.tolerance import ROUNDOFF, Part, holds
from ..values import sticky
from .calls import (
    WHOLE,
    Answer,
    Call,
    answered,
    exactly,
    fresh,
    in_float64,
    laid_out,
    nearby,
    replaced,
    tensors_of,
)
from .judge import STEPS, greatest, judged, kind_of, targets
from .rules import HALVES, ROOM, SCALE_OF_ARGUMENTS, matches
from .ways import Asking, NoWay, Way, directly

NO_WAY = (
    "invalid combination of arguments",
    "unexpected keyword argument",
    "must be tuple of Tensors",
    "view size is not compatible",
    "Unsupported memory format",
    "must be contiguous",
    "unsupported operation",
    "cannot be converted to type",
    "to be true, but got false",
)
"""What torch says where an operator has no such form, or not for such strides."""


class NotAsked(Exception):
    """What a sample has no exact answer for."""


class Comparison:
    """One call in its working format, on its device, and its exact answer."""

    def __init__(self, torch: Any, device: str, asked: Any, call: Call) -> None:
        entry = asked.entry
        self.torch, self.device, self.call, self.dtype = torch, device, call, asked.dtype
        self.run, self.unique = entry.run, getattr(entry, "unique", True)
        chance = random.Random(asked.words)
        self.made = torch.Generator().manual_seed(chance.getrandbits(62))
        self.u = ROUNDOFF.get(self.dtype, ROUNDOFF["float32"])
        self.once = getattr(entry, "once", False) and self.dtype in HALVES
        shares = getattr(entry, "by_threads", False) and device == "cpu"
        shares = shares and self.once and torch.get_num_threads() > 1
        self.once = self.once and not shares
        self.moves_by = ROUNDOFF["float32"] if self.once else self.u
        """By how much arguments are moved: by less, if all is computed in float32."""
        self.room = ROOM.get(entry.name, 1.0) * (4.0 if shares else 1.0)
        given = tensors_of(torch, (call.given, call.options))
        self.height_given = max(map(greatest, given), default=0.0)
        """The greatest size of an argument. Its exponential may be past the end of the format."""
        longest = max((n for x in given for n in x.shape), default=1)
        if not getattr(entry, "sums", True):
            longest = 1
        elif self.dtype in HALVES:
            longest = max((most_alike(x) for x in given if x.dtype == torch.int64), default=0)
        self.many = 2.0 * (1 + sqrt(longest) / 8) if longest else 1.0
        """What is added up may be rounded so often; half precision, what meets at one place."""
        self.upstream: List[Any] = []
        self.along = 0.0
        rounds = any(type(x) is float for x in (*call.given, *call.options.values()))
        single = getattr(entry, "of_single_numbers", False)
        self.steps = single and len(given) == 1 and self.dtype not in ("complex64", *WHOLE)
        self.by_fractions = self.dtype in WHOLE and single and not rounds
        self.wide = exactly(torch, call, self.dtype)
        self.moves: Optional[List[Answer]] = None
        """Exact answers of moved arguments, once one was asked for."""
        try:
            self.exact = self._exact()
        except Exception as problem:  # what has no answer in float64 either is not asked
            raise NotAsked(first_line(problem)) from problem
        self.at_least = 0.0
        """The size of the answer below which its roundoff does not fall."""
        if matches(entry.name, SCALE_OF_ARGUMENTS):
            self.at_least = 20 * max(map(greatest, given + self.upstream), default=1.0)
        fractions = [x for x in self.exact.outputs if kind_of(x) != "whole"]
        self.height = max(map(greatest, fractions), default=0.0)
        """The greatest size of an answer. Derivatives are computed by way of its cube, which may
        be past the end of float16."""

    def as_before(self, x: Any, before: Any) -> bool:
        """Instance norm writes its running values back as the mean of so many like ones."""
        # Nearly always every bit is as it was, and `equal` costs a tenth of `allclose`.
        if self.torch.equal(x, before):
            return True
        if not x.is_floating_point():
            return False
        return bool(self.torch.allclose(x, before, rtol=2 * self.u, atol=0.0))

    def _exact(self) -> Answer:
        """In float64; draws along what the gradients are."""

        def drawn(learned: List[Any]) -> List[Any]:
            self.upstream = [self.weights(y) for y in learned]
            self.along = max(map(greatest, self.upstream), default=0.0)
            return self.upstream

        with in_float64(self.torch):
            wide = fresh(self.torch, self.wide)
            return self._widened(answered(self.torch, self.run, wide, drawn, self.unique))

    def _widened(self, found: Answer) -> Answer:
        """Of whole numbers, what float64 makes of them where it tells."""
        again = self._again() if self.by_fractions else []
        if len(again) != len(found.outputs):
            return found
        return found._replace(outputs=[self._widest(x, y) for x, y in zip(found.outputs, again)])

    def _again(self) -> List[Any]:
        """What float64 makes of whole numbers; nothing where they are taken as bits."""
        torch = self.torch
        call = replaced(torch, self.wide, lambda x: x.double() if x.dtype == torch.int64 else x)
        with contextlib.suppress(Exception):
            return answered(torch, self.run, call, lambda _: [], True).outputs
        return []

    def _widest(self, whole: Any, found: Any) -> Any:
        """The answer in float64 where that is a whole number which the format holds."""
        reach = self.torch.iinfo(getattr(self.torch, self.dtype))
        if found.dtype == self.torch.bool:
            return found
        if kind_of(whole) != "whole" or kind_of(found) == "whole" or whole.shape != found.shape:
            return whole
        sure = (found == found.round()) & (found.abs() < 2.0**53)
        sure &= (found >= reach.min) & (found <= reach.max)
        return self.torch.where(sure, found.to(whole.dtype), whole)

    def weights(self, y: Any) -> Any:
        torch = self.torch
        drawn = torch.randn(tuple(y.shape), generator=self.made, dtype=y.dtype)
        low = getattr(torch, self.dtype)
        if not (low.is_floating_point or low.is_complex):
            low = torch.float32
        if drawn.is_complex():
            return drawn.to(torch.complex64).to(y.dtype)
        return drawn.to(torch.float32 if low.is_complex else low).to(y.dtype)

    def moved(self, step: float, alike: bool = False, apart: bool = False) -> Answer:
        """The exact answer of arguments that are each up or down by about a roundoff; those that
        are `alike` stay so."""
        torch, turns = self.torch, itertools.count()
        whole = getattr(torch, self.dtype) if self.dtype in WHOLE else None

        def number(option: Any) -> Any:
            moves = type(option) is float and not alike
            return option * (1 + step * self.moves_by) if moves else option

        def shifted(x: Any) -> Any:
            if whole is not None and x.dtype == torch.int64:
                x = x.to(torch.float64)
            if not (x.is_floating_point() or x.is_complex()) or x.layout != torch.strided:
                return x
            if alike:
                signs = (x.detach().abs() * 12345.678).remainder(1.0) > 0.5
            elif apart:
                signs = torch.full(tuple(x.shape), next(turns) % 2)
            else:
                signs = torch.randint(0, 2, tuple(x.shape), generator=self.made)
            size = step * self.moves_by
            signs = signs.to(torch.float64).mul_(2 * size).sub_(size)
            return (x.detach() * (1 + signs)).requires_grad_(x.requires_grad)

        with in_float64(torch):
            call = replaced(torch, fresh(torch, self.wide), shifted)
            call = call._replace(options={n: number(v) for n, v in call.options.items()})
            upstream = [shifted(g) for g in self.upstream]
            return answered(torch, self.run, call, lambda _: upstream, self.unique)

    def moved_answers(self) -> List[Answer]:
        if self.moves is None:
            self.moves = self._all_moved()
        return self.moves

    def _all_moved(self) -> List[Answer]:
        """Three moved answers. Whole arguments are moved where the answer is no whole number, and
        the operator takes others."""
        if self.dtype in WHOLE and all(kind_of(x) == "whole" for x in self.exact.outputs):
            return []
        found = []
        for step in STEPS:
            with contextlib.suppress(Exception):  # takes whole numbers alone, or 1 and no more
                found.append(self.moved(step))
        if self.dtype not in WHOLE:
            if not found:
                raise NotAsked("arguments that are moved have no answer")
            return found
        alike = [list(map(kind_of, each.outputs)) for each in (self.exact, *found)]
        return found if all(each == alike[0] for each in alike) else []

    def here(self, way: Way = directly, layout: str = "", learns: bool = True) -> Answer:
        """In the working format on the device."""
        found = self.by(way, self.call, layout, learns and bool(self.upstream), self.device)
        return Answer(*[[None if x is None else x.cpu() for x in part] for part in found])

    def is_right(self, way: Way, layout: str, learns: bool) -> bool:
        """Whether torch's own float64 answers the same in this form, or, directly, once more: what
        reads memory that nothing was written to does not, nor what draws random numbers."""
        torch = self.torch
        try:
            with in_float64(torch):
                found = self.by(way, self.wide, layout, learns and bool(self.upstream))
                found = self._widened(found)
        except Exception:
            return False
        pairs = [*zip(found.outputs, self.exact.outputs)]
        pairs += zip(found.gradients, self.exact.gradients)
        if self.draws_numbers():
            return False
        return all(
            x is y
            or (
                x is not None
                and y is not None
                and x.shape == y.shape
                and bool(torch.allclose(x.to(y.dtype), y, 1e-6, 1e-9, True))
            )
            for x, y in pairs
        )

    def draws_numbers(self) -> bool:
        """Whether torch marks a step of the call as drawing random numbers, as attention's dropout
        is: the same seed gives other numbers on another kind of device."""
        from torch.utils._python_dispatch import TorchDispatchMode

        mark = getattr(self.torch.Tag, "nondeterministic_seeded", None)
        drawing: List[Any] = []

        class Watched(TorchDispatchMode):  # type: ignore[misc]
            def __torch_dispatch__(
                self, step: Any, types: Any, args: Any = (), kwargs: Any = None
            ) -> Any:
                if mark in step.tags:
                    drawing.append(step)
                return step(*args, **(kwargs or {}))

        # Asked directly: such a watch is of one thread, and the call draws in every way or in none.
        with contextlib.suppress(Exception), in_float64(self.torch), Watched():
            self.by(directly, self.wide, "", learns=bool(self.upstream))
        return bool(drawing)

    def by(self, way: Way, call: Call, layout: str, learns: bool, device: str = "cpu") -> Answer:
        """A call's answer in one of the ways, of copies of its arguments."""
        torch = self.torch
        made = fresh(torch, call, layout, device)
        if not learns:
            made = replaced(torch, made, lambda x: x.detach())

        def answer(run: Callable[..., Any], call: Call) -> Answer:
            return answered(torch, run, call, lambda _: along, self.unique)

        along = [laid_out(torch, g, layout) if layout else g for g in self.upstream]
        along = [g.to(device) for g in along]
        return way(torch, Asking(self.run, made, answer))


def most_alike(places: Any) -> int:
    """How often the most frequent number is there."""
    return int(places.unique(return_counts=True)[1].max()) if places.numel() else 0


def compared(torch: Any, device: str, asked: Any) -> List[Part]:
    """All comparisons of a question. Raises NotAsked, and what the kernel raises.

    What is wrong is wrong of numbers nearby, too, or rounding did it. What is right if it is asked
    again was wrong.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        parts = list(_once(torch, device, asked, asked.call))
        if all(part.worst <= 1 for part in parts):
            return parts
        whole = any(part.worst > 1 and not part.allowed for part in parts)
        is_far = asked.form.numbers == "far"  # of numbers nearby the spread would be another
        calls = [asked.call if is_far else nearby(torch, asked.call, n, whole) for n in (1, 2)]
        others = [list(_once(torch, device, asked, call)) for call in calls]
        if all(any(part.worst > 1 for part in each) for each in others):
            return parts
        again = list(_once(torch, device, asked, asked.call))
        if any(part.worst > 1 for part in again):
            return [part for part in parts if part.worst <= 1]
    return parts


def _once(torch: Any, device: str, asked: Any, call: Call) -> Iterator[Part]:
    question = Comparison(torch, device, asked, call)
    for label, way, layout, learns in (("", directly, "", True), *asked.entry.other_ways(asked)):
        said = ", ".join(filter(None, (layout, label)))
        try:
            found = question.here(way, layout, learns)
            parts = [
                each if isinstance(each, Part) else judged(question, each)
                for each in targets(question, said, found, question.exact)
            ]
        except NoWay:
            continue
        except Exception as problem:
            if any(words in str(problem) for words in NO_WAY) or refuses(problem):
                continue
            if sticky(problem) or isinstance(problem, (AttributeError, NotImplementedError)):
                raise
            # Samples of torch's database are made for the CPU: a GPU may not take their options.
            is_sample = hasattr(asked.entry, "info")
            if device != "cpu" and is_sample and not is_fault(problem):
                continue
            parts = [holds(said, False, first_line(problem))]
        wrong = any(part.worst > 1 for part in parts)
        if not wrong or question.is_right(way, layout, learns):
            yield from parts
