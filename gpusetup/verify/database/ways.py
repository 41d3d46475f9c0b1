"""Different ways to make a call. They may use another kernel, or memory that another call has
used."""

from __future__ import annotations

import threading
from typing import Any, Callable, Dict, List, NamedTuple, Sequence, Tuple

from .calls import Answer, Call, overlaps, tensors_of_call


class Asking(NamedTuple):
    """A call with copies of its arguments, which a way may overwrite, and the function that
    computes its result."""

    run: Callable[..., Any]
    call: Call
    answer: Callable[[Callable[..., Any], Call], Answer]


Way = Callable[[Any, Asking], Answer]


class WayOfQuestion(NamedTuple):
    """A further way to make a question's call, in addition to the direct call."""

    label: str
    """The name of the way in a report; empty for a direct call in another layout."""
    way: Way
    layout: str
    learns: bool
    """Whether gradients are compared too."""


class NoWay(Exception):
    """Raised if a call cannot be made in this way."""


def directly(torch: Any, asking: Asking) -> Answer:
    """Make the call directly, as programs usually do."""
    return asking.answer(asking.run, asking.call)


def for_inference(torch: Any, asking: Asking) -> Answer:
    """Make the call in inference mode, in which torch does not prepare gradients."""
    with torch.inference_mode():
        return directly(torch, asking)


def on_a_thread(torch: Any, asking: Asking) -> Answer:
    """Make the call on another thread, which has separate library handles."""
    answers: List[Answer] = []
    problems: List[Exception] = []

    def run() -> None:
        try:
            answers.append(directly(torch, asking))
        except Exception as problem:  # the waiting thread raises the error again
            problems.append(problem)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if problems:
        raise problems[0]
    return answers[0]


def after_other_numbers(torch: Any, asking: Asking) -> Answer:
    """Make the call between two calls with other numbers in the same memory.

    This finds a kernel that caches something by the address of its argument, and a result that the
    next call overwrites.
    """
    arguments = tensors_of_call(torch, asking.call)
    numbers = [x for x in arguments if x.is_floating_point() and x.layout == torch.strided]
    # Tensors whose elements share memory cannot be multiplied in place.
    if any(overlaps(x) for x in numbers):
        raise NoWay
    # Keep the original numbers, to write them back into the same memory.
    originals = [x.clone() for x in numbers]

    def call_with_other_numbers() -> None:
        for x in numbers:
            x.mul_(0.75)
        asking.answer(asking.run, asking.call)
        for x, original in zip(numbers, originals):
            x.copy_(original)

    call_with_other_numbers()
    answer = directly(torch, asking)
    answer = answer._replace(written=[x.clone() for x in answer.written])
    output_addresses = {x.data_ptr() for x in answer.outputs}
    argument_addresses = {x.data_ptr() for x in arguments}
    # Skip the second call if an output is a view of an argument, because that call would rightly
    # change the output together with the argument.
    if not output_addresses & argument_addresses:
        call_with_other_numbers()
    return answer


def into_out(torch: Any, asking: Asking) -> Answer:
    """Make the call with `out=` tensors that contain other numbers."""
    # This way adds an `out`, which is impossible if the sample already has one.
    if "out" in asking.call.options:
        raise NoWay
    outputs = directly(torch, asking).outputs
    all_strided = all(x.layout == torch.strided for x in outputs)
    if not outputs or not all_strided:
        raise NoWay
    # Fill the tensors with threes, all of which the call must overwrite.
    outs = [torch.full_like(x, 3) for x in outputs]
    out = outs[0] if len(outs) == 1 else tuple(outs)

    def run(*args: Any, **options: Any) -> Any:
        asking.run(*args, **options, out=out)
        return outs

    answer = asking.answer(run, asking.call)
    return answer._replace(gradients=[])


def shapes_and_formats(tensors: Sequence[Any]) -> List[Tuple[Any, Any]]:
    """Returns the shape and dtype of each tensor."""
    return [(x.shape, x.dtype) for x in tensors]


def in_place(run: Callable[..., Any]) -> Way:
    """Returns a way that writes the result over the first argument. The way raises NoWay if the
    result does not fit into that argument."""

    def way(torch: Any, asking: Asking) -> Answer:
        first = asking.call.args[0]
        targets = first if isinstance(first, (list, tuple)) else [first]
        outputs = directly(torch, asking).outputs
        # A result with another shape or format does not fit into the argument's memory.
        if shapes_and_formats(outputs) != shapes_and_formats(targets):
            raise NoWay
        # torch refuses to write to tensors whose elements share memory.
        if any(overlaps(x) for x in targets):
            raise NoWay

        def run_over_copy(x: Any, *args: Any, **options: Any) -> Any:
            if isinstance(x, (list, tuple)):
                # Work on copies, because the arguments themselves are compared after the call.
                copies = [item.clone() for item in x]
                run(copies, *args, **options)
                return copies
            y = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device)
            y.copy_(x)
            return run(y, *args, **options)

        answer = asking.answer(run_over_copy, asking.call)
        return answer._replace(gradients=[])

    return way


WAYS: Dict[str, Way] = {
    "thread": on_a_thread,
    "again": after_other_numbers,
    "inference": for_inference,
}
"""The ways in which every call can be made, by the name in `draw.TURNS`."""
