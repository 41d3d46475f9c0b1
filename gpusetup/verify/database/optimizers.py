"""torch's own optimizer database (`optim_db`) as calls: they take parameters and gradients, and
return the parameters after each step.

What is right is the plain form, a loop over the parameters, in float64 on the CPU.
"""

from __future__ import annotations

import math
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

from ..judging.refusals import lacks_form, refuses
from .calls import Answer, Call
from .draw import Draw, OperatorQuestion
from .rules import HALVES, LEFT_OUT, reason, release
from .ways import Asking, NoWay, Way, WayOfQuestion

Shape = Tuple[int, ...]
FORMATS = ("float32", "bfloat16")
STEPS = 5
"""Steps of one training."""
MISSING = 3
"""The step, counted from 0, in which one parameter has no gradient."""
SHAPES = ((1,), (31,), (33,), (41, 25), (9000,), (129,), (7,))
"""Lengths around the widths of vectors, a long one, and a matrix, which is stored transposed."""
MANY = 75
"""A number of tensors, more than a kernel on lists takes in one call."""
RIGHT_FUSED_SGD = (2, 15)
"""The first torch whose fused SGD steps every parameter in half precision on a CPU."""
SIZE = 0.01
"""The standard deviation of the parameters: small, so that rounding them does not hide a step."""


class OptimizerEntry(NamedTuple):
    """An optimizer in torch's database."""

    name: str
    info: Any
    """torch's `OptimizerInfo`."""

    def question(self, torch: Any, device: str, seed: int, turn: int) -> Optional[OperatorQuestion]:
        """One combination of options, with a few parameters of several shapes or many short
        ones."""
        draw = Draw(torch, self.name, seed, turn)
        dtype = FORMATS[turn // 2 % len(FORMATS)]
        working_format = getattr(torch, dtype)
        shapes: Tuple[Shape, ...] = SHAPES
        # In every second turn the parameters are short, so that one kernel updates many of them.
        if turn % 2:
            shapes = tuple((1 + (7 * place) % 40,) for place in range(MANY))

        def draw_values(size: float) -> List[Any]:
            values = []
            for shape in shapes:
                numbers = size * draw.normal(math.prod(shape))
                values.append(numbers.to(working_format))
            return values

        settings = [row.kwargs for row in self.info.optim_inputs_func(device="cpu")]
        # Two settings together, which torch's database does not combine.
        first, second = draw.choice(settings), draw.choice(settings)
        options = {**first, **second}
        start = draw_values(SIZE)
        gradients = [draw_values(1.0) for _ in range(STEPS)]
        call = Call((start, gradients), options, lambda x: x)
        forms = self.forms(torch, device.partition(":")[0], dtype)
        # The forms also depend on the number format.
        case = OptimizerCase(self.name, self.info, shapes, forms)
        return draw.question(case, dtype, call)

    def forms(self, torch: Any, kind: str, dtype: str) -> Tuple[str, ...]:
        """The forms of this optimizer on this kind of device besides the plain one: `foreach`,
        `fused`, `capturable`."""
        supported = self.info.supported_impls
        has_fused = "fused" in supported and kind in self.info.supports_fused_on
        # On a CPU an older fused SGD writes no whole vector of halves: of 33 parameters only the
        # last one has a step.
        if (self.name, kind) == ("SGD", "cpu") and dtype in HALVES:
            has_fused = has_fused and release(torch) >= RIGHT_FUSED_SGD
        forms = []
        if "foreach" in supported:
            forms.append("foreach")
        if has_fused:
            forms.append("fused")
        # `capturable` keeps the step count on the GPU, for CUDA graphs.
        if self.info.has_capturable_arg and kind == "cuda":
            forms.append("capturable")
        return tuple(forms)


class OptimizerCase(NamedTuple):
    """An optimizer with its options, which `compared` treats like an entry."""

    name: str
    info: Any
    shapes: Tuple[Shape, ...]
    forms: Tuple[str, ...]
    """The forms that this optimizer has on the device, such as `fused`."""
    sums: bool = False
    """Whether results are sums over many elements. No: each number is trained by itself."""

    def run(self, *args: Any, **options: Any) -> List[Any]:
        """Train by the plain form, which updates one parameter after the other."""
        form = {}
        # Unless `foreach` is off, torch may choose that form by itself.
        if "foreach" in self.info.supported_impls:
            form["foreach"] = False
        start, gradients = args
        return self.trained(start, gradients, {**options, **form})

    def other_ways(self, question: OperatorQuestion) -> Iterator[WayOfQuestion]:
        """Every other form of the optimizer."""
        for form in self.forms:
            yield WayOfQuestion(form, self._way_of(form), "", False)

    def _way_of(self, form: str) -> Way:
        """Returns the function that trains by a form of the optimizer, such as `fused` or
        `foreach`.

        The function raises NoWay if torch refuses the form for these options.
        """

        # The argument `torch` is not used, but every Way has it.
        def way(torch: Any, asking: Asking) -> Answer:
            def run(*args: Any, **options: Any) -> List[Any]:
                start, gradients = args
                return self.trained(start, gradients, {**options, form: True})

            try:
                return asking.answer(run, asking.call)
            except Exception as problem:
                if lacks_form(problem) or refuses(problem):
                    raise NoWay from problem
                raise

        return way

    def trained(self, start: Any, gradients_of_steps: Any, options: Dict[str, Any]) -> List[Any]:
        """For each step, all parameters after it in one flat tensor.

        If the optimizer supports groups, half of the parameters have half the learning rate. The
        last parameter never has a gradient, and the one before lacks it in one step.
        """
        import torch

        parameters = []
        for x, shape in zip(start, self.shapes):
            parameters.append(copied_to_shape(x, shape).requires_grad_())
        optimizer = self._optimizer(parameters, options)
        parameters_after_steps: List[Any] = []
        for step, gradients in enumerate(gradients_of_steps):
            for parameter, gradient, shape in zip(parameters[:-1], gradients, self.shapes):
                is_missing = parameter is parameters[-2] and step == MISSING
                parameter.grad = None if is_missing else copied_to_shape(gradient, shape)
            optimizer.step()
            # Flat, so that one comparison covers a step.
            flat = [parameter.detach().reshape(-1) for parameter in parameters]
            parameters_after_steps.append(torch.cat(flat))
        return parameters_after_steps

    def _optimizer(self, parameters: List[Any], options: Dict[str, Any]) -> Any:
        """The optimizer; with two groups of parameters if it supports groups."""
        if not self.info.supports_param_groups:
            return self.info.optim_cls(parameters, **options)
        half = len(parameters) // 2
        groups = [{"params": parameters[:half]}, {"params": parameters[half:]}]
        optimizer = self.info.optim_cls(groups, **options)
        second_group = optimizer.param_groups[1]
        # Not in place: the rate may be a tensor that both groups share.
        second_group["lr"] = second_group["lr"] * 0.5
        return optimizer


def copied_to_shape(x: Any, shape: Shape) -> Any:
    """A copy of `x` in this shape; a matrix is stored column by column."""
    y = x.detach().clone()
    if len(shape) < 2:
        return y
    transposed_shape = shape[::-1]
    return y.reshape(transposed_shape).t()


def entries(infos: List[Any]) -> Dict[str, OptimizerEntry]:
    """Maps names to optimizers, without those in LEFT_OUT."""
    by_name = {}
    for info in infos:
        name = info.optim_cls.__name__
        if not reason(LEFT_OUT, name):
            by_name[name] = OptimizerEntry(name, info)
    return by_name
