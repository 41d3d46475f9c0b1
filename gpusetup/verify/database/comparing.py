"""Make one call on the device and in float64 on the CPU, and compare the two results.

The error allowed in an element has two parts: the format's roundoff times the exact result, and the
change in the exact result if all arguments are changed by about a roundoff (here: "moved"). Both
parts have a factor. Whole numbers and flags that change if the arguments are moved are not judged.
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
    detached,
    fresh,
    in_exact_formats,
    in_float64,
    laid_out,
    nearby,
    replaced,
    tensors_of_call,
)
from .judge import STEPS, greatest, judged, kind_of, targets
from .rules import HALVES, ROOM, SCALE_OF_ARGUMENTS, matches
from .ways import Asking, NoWay, Way, WayOfQuestion, directly

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
"""Parts of torch's error messages for an operator that cannot be called in this way, or not with
such strides."""
THREADED_ROOM = 4.0
"""The factor for the allowed error if each thread rounds its part of a sum."""


class NotAsked(Exception):
    """Raised if a sample cannot be judged because its exact result cannot be computed."""


class Comparison:
    """A call in the tested format on the tested device, with its exact result."""

    def __init__(self, torch: Any, device: str, question: Any, call: Call) -> None:
        entry = question.entry
        self.torch, self.device, self.call = torch, device, call
        self.dtype: str = question.dtype
        self.run, self.unique = entry.run, getattr(entry, "unique", True)
        # All random numbers of a comparison depend only on its question, so that it can be
        # repeated.
        chance = random.Random(question.words)
        self.generator = torch.Generator().manual_seed(chance.getrandbits(62))
        self.roundoff = ROUNDOFF.get(self.dtype, ROUNDOFF["float32"])
        """The unit roundoff of the tested format."""
        arguments = tensors_of_call(torch, call)
        self._set_roundings(entry, arguments)
        self.argument_size = max(map(greatest, arguments), default=0.0)
        """The largest absolute value in the arguments. Its exponential may overflow the format."""
        self.upstream: List[Any] = []
        """The upstream gradients."""
        self.upstream_size = 0.0
        """The largest absolute value in the upstream gradients."""
        is_pointwise = getattr(entry, "of_single_numbers", False)
        takes_fractions = self.dtype not in ("complex64", *WHOLE)
        self.may_jump = is_pointwise and len(arguments) == 1 and takes_fractions
        """Whether the result may jump from one whole number to the next, as for `floor`."""
        options = (*call.args, *call.options.values())
        has_fraction = any(type(option) is float for option in options)
        self.float64_decides = self.dtype in WHOLE and is_pointwise and not has_fraction
        """Whether the exact result for whole numbers may be computed in float64 instead of int64.
        """
        self.wide = in_exact_formats(torch, call, self.dtype)
        self.answers_to_moves: Optional[List[Answer]] = None
        """Exact results for moved arguments; None until they are needed."""
        # If the call also fails in float64, there is no exact result to compare with.
        try:
            self.exact = self._exact_answer()
        except Exception as problem:
            raise NotAsked(first_line(problem)) from problem
        self.least_size = 0.0
        """The rounding error allowed in a result is computed as if the result were at least this
        large."""
        if matches(entry.name, SCALE_OF_ARGUMENTS):
            self.least_size = 20 * max(map(greatest, arguments + self.upstream), default=1.0)
        fractions = [x for x in self.exact.outputs if kind_of(x) != "whole"]
        self.output_size = max(map(greatest, fractions), default=0.0)
        """The largest absolute value in the outputs. Some gradients are computed from its cube,
        which may overflow float16."""

    def _set_roundings(self, entry: Any, arguments: List[Any]) -> None:
        """Set the factors that depend on how often, and in which format, the operator may round."""
        rounds_once = getattr(entry, "once", False) and self.dtype in HALVES
        may_use_threads = getattr(entry, "by_threads", False) and self.device == "cpu"
        uses_threads = may_use_threads and rounds_once and self.torch.get_num_threads() > 1
        self.rounds_once = rounds_once and not uses_threads
        """Whether the operator computes 16-bit numbers in float32 and rounds only at the end."""
        self.move_distance = ROUNDOFF["float32"] if self.rounds_once else self.roundoff
        """The relative change by which an argument is moved."""
        room_for_threads = THREADED_ROOM if uses_threads else 1.0
        self.error_factor = ROOM.get(entry.name, 1.0) * room_for_threads
        """The factor for the error allowed in this entry, compared with others."""
        count = self._most_summed(entry, arguments)
        self.roundings_of_sums = 2.0 * (1 + sqrt(count) / 8) if count else 1.0
        """The factor for the error that sums add to a result. The error of a sum of n numbers grows
        with the square root of n."""

    def _most_summed(self, entry: Any, arguments: List[Any]) -> int:
        """The largest number of terms in a sum that is rounded after each addition; 0 if there is
        no such sum."""
        # An entry with `sums=False` computes each element separately.
        if not getattr(entry, "sums", True):
            return 1
        if self.dtype in HALVES:
            # Sums of 16-bit numbers are kept in float32. Only additions at an index (`index_add`)
            # round each time, so the longest such sum belongs to the most frequent index.
            index_tensors = [x for x in arguments if x.dtype == self.torch.int64]
            return max(map(most_alike, index_tensors), default=0)
        lengths = [length for x in arguments for length in x.shape]
        return max(lengths, default=1)

    def as_before(self, x: Any, original: Any) -> bool:
        """Whether an argument is unchanged after the call, up to rounding.

        Instance norm overwrites its running statistics with the mean of many equal numbers, so
        their last bit may change.
        """
        # Almost always nothing has changed, and `equal` takes a tenth of the time of `allclose`.
        if self.torch.equal(x, original):
            return True
        if not x.is_floating_point():
            return False
        tolerance = 2 * self.roundoff
        is_close = self.torch.allclose(x, original, rtol=tolerance, atol=0.0)
        return bool(is_close)

    def _exact_answer(self) -> Answer:
        """Compute the result in float64, and draw the upstream gradients."""

        def draw_upstream(learning_outputs: List[Any]) -> List[Any]:
            self.upstream = [self.random_like(y) for y in learning_outputs]
            self.upstream_size = max(map(greatest, self.upstream), default=0.0)
            return self.upstream

        with in_float64(self.torch):
            # Copy the arguments, because the call may write to them.
            wide = fresh(self.torch, self.wide)
            answer = answered(self.torch, self.run, wide, draw_upstream, self.unique)
            return self._widened(answer)

    def _widened(self, answer: Answer) -> Answer:
        """Returns the exact result. It takes whole numbers from a float64 call if int64 would round
        intermediate results."""
        if not self.float64_decides:
            return answer
        fractional_outputs = self._outputs_of_fractions()
        # For floating-point arguments the operator may return a different number of outputs.
        if len(fractional_outputs) != len(answer.outputs):
            return answer
        outputs = []
        for whole, fractional in zip(answer.outputs, fractional_outputs):
            outputs.append(self._more_exact(whole, fractional))
        return answer._replace(outputs=outputs)

    def _outputs_of_fractions(self) -> List[Any]:
        """The outputs if whole numbers are passed as float64; empty if the operator does not accept
        float64."""
        torch = self.torch

        def as_fraction(x: Any) -> Any:
            is_whole = x.dtype == torch.int64
            return x.double() if is_whole else x

        call = replaced(torch, self.wide, as_fraction)
        with contextlib.suppress(Exception):
            return answered(torch, self.run, call, lambda _: [], True).outputs
        return []

    def _more_exact(self, whole: Any, fractional: Any) -> Any:
        """The float64 output where it is a whole number that the format can hold, otherwise the
        int64 output."""
        torch = self.torch
        format = torch.iinfo(getattr(torch, self.dtype))
        # Flags are results of comparisons, which are exact in float64.
        if fractional.dtype == torch.bool:
            return fractional
        is_rounded = kind_of(whole) == "whole" and kind_of(fractional) != "whole"
        if not is_rounded or whole.shape != fractional.shape:
            return whole
        # Above 2**53, float64 does not hold every whole number.
        is_sure = (fractional == fractional.round()) & (fractional.abs() < 2.0**53)
        is_sure &= (fractional >= format.min) & (fractional <= format.max)
        return torch.where(is_sure, fractional.to(whole.dtype), whole)

    def random_like(self, y: Any) -> Any:
        """Random numbers in the shape of an output, rounded to the tested format."""
        torch = self.torch
        numbers = torch.randn(tuple(y.shape), generator=self.generator, dtype=y.dtype)
        working_format = getattr(torch, self.dtype)
        # The two parts of a complex number are computed in float32.
        if numbers.is_complex():
            working_format = torch.complex64
        # A real output for complex or whole arguments is computed in float32.
        elif not working_format.is_floating_point:
            working_format = torch.float32
        rounded = numbers.to(working_format)
        return rounded.to(y.dtype)

    def moved(self, step: float, alike: bool = False, apart: bool = False) -> Answer:
        """The exact result if every number in the arguments is moved up or down by about a
        roundoff.

        If `alike` is True, equal numbers stay equal. If `apart` is True, all numbers in one
        argument move up, and all numbers in the next argument move down.
        """
        torch, turns = self.torch, itertools.count()
        distance = step * self.move_distance

        def move_option(option: Any) -> Any:
            # Flags and counts must not change.
            is_fraction = type(option) is float
            if is_fraction and not alike:
                return option * (1 + distance)
            return option

        def directions(x: Any) -> Any:
            """Returns for each number 1 if it is moved up, or 0 if it is moved down."""
            shape = tuple(x.shape)
            if alike:
                # Compute the direction from the number itself, so that equal numbers move alike.
                scaled = x.detach().abs() * 12345.678
                return scaled.remainder(1.0) > 0.5
            if apart:
                return torch.full(shape, next(turns) % 2)
            return torch.randint(0, 2, shape, generator=self.generator)

        def move(x: Any) -> Any:
            # Whole numbers are int64 here. Convert them, because moved numbers are fractions.
            if self.dtype in WHOLE and x.dtype == torch.int64:
                x = x.to(torch.float64)
            has_fractions = x.is_floating_point() or x.is_complex()
            if not has_fractions or x.layout != torch.strided:
                return x
            # Turn the directions 0 and 1 into the changes -distance and +distance.
            change = directions(x).to(torch.float64)
            change.mul_(2 * distance).sub_(distance)
            moved_numbers = x.detach() * (1 + change)
            return moved_numbers.requires_grad_(x.requires_grad)

        with in_float64(torch):
            call = replaced(torch, fresh(torch, self.wide), move)
            options = {name: move_option(option) for name, option in call.options.items()}
            call = call._replace(options=options)
            upstream = [move(g) for g in self.upstream]
            return answered(torch, self.run, call, lambda _: upstream, self.unique)

    def moved_answers(self) -> List[Answer]:
        """The exact results for moved arguments, computed when they are first needed."""
        if self.answers_to_moves is None:
            self.answers_to_moves = self._all_moved()
        return self.answers_to_moves

    def _all_moved(self) -> List[Answer]:
        """Compute up to three exact results for moved arguments. Returns an empty list if the
        result consists of whole numbers that do not change with the rounding of arguments."""
        all_whole = all(kind_of(x) == "whole" for x in self.exact.outputs)
        # Whole results of whole arguments do not depend on rounding.
        if self.dtype in WHOLE and all_whole:
            return []
        answers = []
        for step in STEPS:
            # The operator may reject moved arguments, for example fractions, or numbers above 1.
            with contextlib.suppress(Exception):
                answers.append(self.moved(step))
        if self.dtype not in WHOLE:
            if not answers:
                raise NotAsked("arguments that are moved have no answer")
            return answers
        exact_kinds = [kind_of(x) for x in self.exact.outputs]
        for answer in answers:
            # For fractions the operator returns another kind of result, which cannot be used.
            if [kind_of(x) for x in answer.outputs] != exact_kinds:
                return []
        return answers

    def here(self, way: Way = directly, layout: str = "", learns: bool = True) -> Answer:
        """The result in the tested format on the device, copied to the CPU."""
        has_gradient = learns and bool(self.upstream)
        answer = self.by(way, self.call, layout, has_gradient, self.device)
        return Answer(
            outputs=[x.cpu() for x in answer.outputs],
            written=[x.cpu() for x in answer.written],
            gradients=[None if x is None else x.cpu() for x in answer.gradients],
        )

    def is_right(self, way_of_question: WayOfQuestion) -> bool:
        """Whether this way and layout give the same exact result as a direct call, in float64 on
        the CPU.

        Otherwise the result on the device cannot be judged, because the call draws random numbers,
        reads uninitialized memory, or computes something different in this layout.
        """
        _, way, layout, learns = way_of_question
        has_gradient = learns and bool(self.upstream)
        try:
            with in_float64(self.torch):
                answer = self.by(way, self.wide, layout, has_gradient)
                answer = self._widened(answer)
        except Exception:
            return False
        # A call made in another way draws different random numbers from the same seed.
        if self.draws_numbers():
            return False
        pairs = [*zip(answer.outputs, self.exact.outputs)]
        pairs += zip(answer.gradients, self.exact.gradients)
        return all(self._is_same(x, y) for x, y in pairs)

    def _is_same(self, x: Any, y: Any) -> bool:
        """Whether two float64 tensors agree up to rounding, or both are missing."""
        if x is y:
            return True
        # Only one of the two exists, or their shapes differ.
        if x is None or y is None or x.shape != y.shape:
            return False
        # Two ways may add up in a different order. NaN equals NaN here.
        x = x.to(y.dtype)
        return bool(self.torch.allclose(x, y, rtol=1e-6, atol=1e-9, equal_nan=True))

    def draws_numbers(self) -> bool:
        """Whether the call draws random numbers (for example in attention's dropout), according to
        torch's tags. If it does, the same seed gives different numbers on another kind of device.
        """
        from torch.utils._python_dispatch import TorchDispatchMode

        mark = getattr(self.torch.Tag, "nondeterministic_seeded", None)
        drawing_steps: List[Any] = []

        class Watch(TorchDispatchMode):  # type: ignore[misc]
            def __torch_dispatch__(
                self, step: Any, types: Any, args: Any = (), kwargs: Any = None
            ) -> Any:
                if mark in step.tags:
                    drawing_steps.append(step)
                return step(*args, **(kwargs or {}))

        # Call the operator directly, because the dispatch mode sees only its own thread. If one way
        # of calling draws random numbers, all do.
        with contextlib.suppress(Exception), in_float64(self.torch), Watch():
            self.by(directly, self.wide, "", learns=bool(self.upstream))
        return bool(drawing_steps)

    def by(self, way: Way, call: Call, layout: str, learns: bool, device: str = "cpu") -> Answer:
        """Make the call in this way, with copies of its arguments, and return the result."""
        torch = self.torch
        # Copy the arguments, because the call may write to them.
        copy = fresh(torch, call, layout, device)
        if not learns:
            copy = detached(torch, copy)
        upstream = self.upstream
        if layout:
            upstream = [laid_out(torch, g, layout) for g in upstream]
        upstream = [g.to(device) for g in upstream]

        # A way may call another function or change the arguments, so it passes both to `answer`.
        def answer(run: Callable[..., Any], call: Call) -> Answer:
            return answered(torch, run, call, lambda _: upstream, self.unique)

        return way(torch, Asking(self.run, copy, answer))


def most_alike(places: Any) -> int:
    """Returns how often the most frequent number occurs in a tensor; 0 if the tensor is empty."""
    if not places.numel():
        return 0
    _, counts = places.unique(return_counts=True)
    return int(counts.max())


def is_wrong(parts: List[Part]) -> bool:
    """Whether one of the comparisons exceeds its limit."""
    return not all(part.is_right for part in parts)


def compared(torch: Any, device: str, question: Any) -> List[Part]:
    """Make all comparisons of a question. Raises NotAsked if there is no exact result, and passes
    on the errors of kernels.

    A wrong result is confirmed before it counts:
    1. If two calls with slightly different numbers are wrong too, it counts.
    2. If only the call with exactly these numbers is wrong, each time, the cause is rounding, so it
       does not count.
    3. If the same call is right when it is repeated, the device is unstable, so it counts.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        parts = list(compared_once(torch, device, question, question.call))
        if not is_wrong(parts):
            return parts
        wrong_parts = [part for part in parts if not part.is_right]
        # Some comparisons allow no error, for example comparisons of whole numbers.
        exact_is_wrong = any(not part.allowed for part in wrong_parts)
        # Repeat numbers far from zero unchanged, because their small differences matter and would
        # change.
        is_far = question.form.numbers == "far"
        nearby_are_wrong = []
        for turn in (1, 2):
            call = question.call
            if not is_far:
                call = nearby(torch, call, turn, exact_is_wrong)
            nearby_parts = list(compared_once(torch, device, question, call))
            nearby_are_wrong.append(is_wrong(nearby_parts))
        if all(nearby_are_wrong):
            return parts
        # If the result is wrong only for these numbers, and wrong again, the cause is rounding.
        parts_again = list(compared_once(torch, device, question, question.call))
        if is_wrong(parts_again):
            return [part for part in parts if part.is_right]
    return parts


def compared_once(torch: Any, device: str, question: Any, call: Call) -> Iterator[Part]:
    """Yields the comparisons of one call, which is made directly and in the other ways of its
    question.

    A wrong result counts only if, in float64, that way gives the same result as a direct call.
    """
    comparison = Comparison(torch, device, question, call)
    direct = WayOfQuestion("", directly, "", True)
    for way_of_question in (direct, *question.entry.other_ways(question)):
        label, way, layout, learns = way_of_question
        words = ", ".join(filter(None, (layout, label)))
        parts = []
        try:
            answer = comparison.here(way, layout, learns)
            for target in targets(comparison, words, answer, comparison.exact):
                # `targets` has already judged outputs that cannot be paired.
                if isinstance(target, Part):
                    parts.append(target)
                else:
                    parts.append(judged(comparison, target))
        except NoWay:
            continue
        except Exception as problem:
            if lacks_way(device, question, problem):
                continue
            if ends_question(problem):
                raise
            parts = [holds(words, False, first_line(problem))]
        if not is_wrong(parts) or comparison.is_right(way_of_question):
            yield from parts


def ends_question(problem: Exception) -> bool:
    """Whether the error ends all ways to make the call: the device is lost, or torch does not have
    the operator."""
    lacks_operator = isinstance(problem, (AttributeError, NotImplementedError))
    return lacks_operator or sticky(problem)


def lacks_way(device: str, question: Any, problem: Exception) -> bool:
    """Whether the error only says that the operator cannot be called in this way on this device."""
    # torch rejects such a call on every device.
    if any(words in str(problem) for words in NO_WAY) or refuses(problem):
        return True
    if ends_question(problem):
        return False
    # Samples in torch's database are made for the CPU, and a GPU may not support their options.
    is_sample = hasattr(question.entry, "info")
    return device != "cpu" and is_sample and not is_fault(problem)
