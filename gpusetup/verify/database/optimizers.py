"""torch's own database of optimizers (`optim_db`) as calls: parameters and gradients in, what each
step leaves of the parameters out.

What is right is the plain form, a loop over the parameters, in float64 on the CPU.
"""

from __future__ import annotations

import math
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

from ..judging.refusals import lacks_form, refuses
from .calls import Answer, Call
from .draw import Draw, OperatorQuestion
from .rules import HALVES, LEFT_OUT, reason, release
from .ways import Asking, NoWay, Way

FORMATS = ("float32", "bfloat16")
STEPS, MISSING = 5, 3
"""Steps; the one at which a parameter has no gradient."""
SHAPES = ((1,), (31,), (33,), (41, 25), (9000,), (129,), (7,))
"""Around the widths of vectors; the fourth is transposed."""
MANY = 75
"""More tensors than one call of a kernel on lists takes."""
RIGHT_FUSED_SGD = (2, 15)
SIZE = 0.01
"""Of the parameters, so that a step is seen beside them."""


class OptimizerEntry(NamedTuple):
    name: str
    info: Any
    """torch's `OptimizerInfo`."""

    def question(self, torch: Any, device: str, seed: int, turn: int) -> Optional[OperatorQuestion]:
        """One setting in one case."""
        draw = Draw(torch, self.name, seed, turn)
        dtype = FORMATS[turn // 2 % len(FORMATS)]
        shapes: Tuple[Tuple[int, ...], ...] = SHAPES
        if turn % 2:
            shapes = tuple((1 + (7 * place) % 40,) for place in range(MANY))
        low = getattr(torch, dtype)

        def values(size: float) -> List[Any]:
            return [(size * draw.normal(math.prod(shape))).to(low) for shape in shapes]

        found = [each.kwargs for each in self.info.optim_inputs_func(device="cpu")]
        # Two together, as torch's database does not have them.
        options = {**draw.choice(found), **draw.choice(found)}
        call = Call((values(SIZE), [values(1.0) for _ in range(STEPS)]), options, lambda x: x)
        forms = self.forms(torch, device.partition(":")[0], dtype)
        trial = OptimizerCase(self.name, self.info, shapes, forms)
        return draw.question(trial, dtype, call)

    def forms(self, torch: Any, kind: str, dtype: str) -> Tuple[str, ...]:
        fused = "fused" in self.info.supported_impls and kind in self.info.supports_fused_on
        if (self.name, kind) == ("SGD", "cpu") and dtype in HALVES:
            # It writes no whole vector: of 33 parameters only the last one has a step.
            fused = fused and release(torch) >= RIGHT_FUSED_SGD
        has = {
            "foreach": "foreach" in self.info.supported_impls,
            "fused": fused,
            "capturable": self.info.has_capturable_arg and kind == "cuda",
        }
        return tuple(name for name, here in has.items() if here)


class OptimizerCase(NamedTuple):
    """One optimizer with its options; the shape of what `compared` takes for an entry."""

    name: str
    info: Any
    shapes: Tuple[Tuple[int, ...], ...]
    forms: Tuple[str, ...]
    """Those that this optimizer has here."""
    sums: bool = False
    """Each number is trained by itself, however long its tensor is."""

    def run(self, *given: Any, **options: Any) -> List[Any]:
        plain = {"foreach": False} if "foreach" in self.info.supported_impls else {}
        return self.trained(plain, given, options)

    def other_ways(self, asked: OperatorQuestion) -> Iterator[Tuple[str, Way, str, bool]]:
        for each in self.forms:
            yield each, self._by({each: True}), "", False

    def _by(self, form: Dict[str, bool]) -> Way:
        def way(torch: Any, asking: Asking) -> Answer:
            def run(*given: Any, **options: Any) -> List[Any]:
                return self.trained(form, given, options)

            try:
                return asking.answer(run, asking.call)
            except Exception as problem:
                if lacks_form(problem) or refuses(problem):
                    raise NoWay from problem
                raise

        return way

    def trained(self, form: Dict[str, bool], given: Any, options: Dict[str, Any]) -> List[Any]:
        """What each step leaves of all parameters in a row, those of one half with half the rate.
        The last but one misses a gradient once, the last has none."""
        import torch

        start, steps = given
        own = [_placed(x, shape).requires_grad_() for x, shape in zip(start, self.shapes)]
        half, options = len(own) // 2, {**options, **form}
        if self.info.supports_param_groups:
            made = self.info.optim_cls([{"params": own[:half]}, {"params": own[half:]}], **options)
            made.param_groups[1]["lr"] = made.param_groups[1]["lr"] * 0.5
        else:
            made = self.info.optim_cls(own, **options)
        found: List[Any] = []
        for number, gradients in enumerate(steps):
            for p, g, shape in zip(own[:-1], gradients, self.shapes):
                p.grad = None if p is own[-2] and number == MISSING else _placed(g, shape)
            made.step()
            found.append(torch.cat([p.detach().reshape(-1) for p in own]))
        return found


def _placed(x: Any, shape: Tuple[int, ...]) -> Any:
    """Numbers of their own in this shape; one of two axes is transposed in memory."""
    y = x.detach().clone()
    return y if len(shape) < 2 else y.reshape(shape[::-1]).t()


def entries(infos: List[Any]) -> Dict[str, OptimizerEntry]:
    """By name; without those that are left out."""
    named_rows = ((info.optim_cls.__name__, info) for info in infos)
    return {n: OptimizerEntry(n, info) for n, info in named_rows if not reason(LEFT_OUT, n)}
