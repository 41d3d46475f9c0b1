"""Calls from torch's own optimizer database (`optim_db`). A call gets parameters and gradients, and
returns the parameters after each step.

The expected result comes from the plain implementation, a loop over the parameters, in float64 on
the CPU.
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
"""The number of steps in one call."""
MISSING = 3
"""The step (counted from 0) in which one parameter has no gradient."""
SHAPES = ((1,), (31,), (33,), (41, 25), (9000,), (129,), (7,))
"""Shapes of the parameters: lengths close to the widths of vectors, a long one, and a matrix, which
is stored transposed."""
MANY = 75
"""More parameters than one foreach kernel can process."""
RIGHT_FUSED_SGD = (2, 15)
"""The first torch release whose fused SGD updates every 16-bit parameter on a CPU."""
SIZE = 0.01
"""The standard deviation of the parameters. It is small, so that rounding them does not hide a
step."""


class OptimizerEntry(NamedTuple):
    """An optimizer in torch's database."""

    name: str
    info: Any
    """torch's `OptimizerInfo`."""

    def question(self, torch: Any, device: str, seed: int, turn: int) -> Optional[OperatorQuestion]:
        """Returns the question of this turn: a combination of options, with a few parameters of
        several shapes or many short ones."""
        draw = Draw(torch, self.name, seed, turn)
        dtype = FORMATS[turn // 2 % len(FORMATS)]
        working_format = getattr(torch, dtype)
        shapes: Tuple[Shape, ...] = SHAPES
        # In every second turn, use many short parameters, because one kernel updates many of them.
        if turn % 2:
            shapes = tuple((1 + (7 * place) % 40,) for place in range(MANY))

        def draw_values(size: float) -> List[Any]:
            values = []
            for shape in shapes:
                numbers = size * draw.normal(math.prod(shape))
                values.append(numbers.to(working_format))
            return values

        settings = [row.kwargs for row in self.info.optim_inputs_func(device="cpu")]
        # Combine two settings, because torch's database lists each setting separately.
        first, second = draw.choice(settings), draw.choice(settings)
        options = {**first, **second}
        start = draw_values(SIZE)
        gradients = [draw_values(1.0) for _ in range(STEPS)]
        call = Call((start, gradients), options, lambda x: x)
        forms = self.forms(torch, device.partition(":")[0], dtype)
        # The available implementations also depend on the format.
        case = OptimizerCase(self.name, self.info, shapes, forms)
        return draw.question(case, dtype, call)

    def forms(self, torch: Any, kind: str, dtype: str) -> Tuple[str, ...]:
        """The implementations of this optimizer on this kind of device, besides the plain one:
        `foreach`, `fused`, `capturable`."""
        supported = self.info.supported_impls
        has_fused = "fused" in supported and kind in self.info.supports_fused_on
        # Before RIGHT_FUSED_SGD, the fused SGD on a CPU skips whole vectors of 16-bit numbers: of
        # 33 numbers it only updates the last one.
        if (self.name, kind) == ("SGD", "cpu") and dtype in HALVES:
            has_fused = has_fused and release(torch) >= RIGHT_FUSED_SGD
        forms = []
        if "foreach" in supported:
            forms.append("foreach")
        if has_fused:
            forms.append("fused")
        # With `capturable`, the step count is on the GPU, which CUDA graphs need.
        if self.info.has_capturable_arg and kind == "cuda":
            forms.append("capturable")
        return tuple(forms)


class OptimizerCase(NamedTuple):
    """An optimizer with the shapes of its parameters. `compared` treats it like an entry."""

    name: str
    info: Any
    shapes: Tuple[Shape, ...]
    forms: Tuple[str, ...]
    """The implementations of this optimizer on the device, such as `fused`."""
    sums: bool = False
    """Whether results are sums over many elements. They are not, because each number is trained
    separately."""

    def run(self, *args: Any, **options: Any) -> List[Any]:
        """Train with the plain implementation, which updates one parameter after the other."""
        form = {}
        # Without `foreach=False`, torch may choose the foreach implementation.
        if "foreach" in self.info.supported_impls:
            form["foreach"] = False
        start, gradients = args
        return self.trained(start, gradients, {**options, **form})

    def other_ways(self, question: OperatorQuestion) -> Iterator[WayOfQuestion]:
        """Yields a way for every other implementation of the optimizer."""
        for form in self.forms:
            yield WayOfQuestion(form, self._way_of(form), "", False)

    def _way_of(self, form: str) -> Way:
        """Returns a function that trains with this implementation of the optimizer, such as `fused`
        or `foreach`.

        The function raises NoWay if torch does not support that implementation with these options.
        """

        # Every Way has the argument `torch`, although this one does not use it.
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
        """Train, and return one flat tensor for each step, with all parameters after that step.

        If the optimizer supports groups, half of the parameters have half the learning rate. The
        last parameter never gets a gradient, and the parameter before it gets none in one step.
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
            # Join all parameters into one flat tensor, so that one comparison covers a step.
            flat = [parameter.detach().reshape(-1) for parameter in parameters]
            parameters_after_steps.append(torch.cat(flat))
        return parameters_after_steps

    def _optimizer(self, parameters: List[Any], options: Dict[str, Any]) -> Any:
        """Create the optimizer, with two groups of parameters if it supports groups."""
        if not self.info.supports_param_groups:
            return self.info.optim_cls(parameters, **options)
        half = len(parameters) // 2
        groups = [{"params": parameters[:half]}, {"params": parameters[half:]}]
        optimizer = self.info.optim_cls(groups, **options)
        second_group = optimizer.param_groups[1]
        # Do not multiply in place, because the learning rate may be a tensor that both groups
        # share.
        second_group["lr"] = second_group["lr"] * 0.5
        return optimizer


def copied_to_shape(x: Any, shape: Shape) -> Any:
    """Returns a copy of `x` in this shape. A matrix is stored in column-major order."""
    y = x.detach().clone()
    if len(shape) < 2:
        return y
    transposed_shape = shape[::-1]
    return y.reshape(transposed_shape).t()


def entries(infos: List[Any]) -> Dict[str, OptimizerEntry]:
    """Returns the optimizers by name, without those in LEFT_OUT."""
    by_name = {}
    for info in infos:
        name = info.optim_cls.__name__
        if not reason(LEFT_OUT, name):
            by_name[name] = OptimizerEntry(name, info)
    return by_name
