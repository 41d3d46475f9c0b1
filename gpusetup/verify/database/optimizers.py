"""torch's own database of optimizers (`optim_db`) as calls: parameters and gradients in, what each
step leaves of parameters and state out.

What is right is the plain form, a loop over the parameters, in float64 on the CPU.
"""

from __future__ import annotations

import io
import math
import random
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

from ..judging.refusals import lacks_form, refuses
from .calls import Answer, Call
from .forms import Question, form
from .rules import HALVES, LEFT_OUT, reason, release
from .ways import Asking, NoWay, Way

FORMATS = ("float32", "bfloat16")
STEPS, SAVED, MISSING = 5, 2, 3
"""Steps; after so many the state may be saved and read; the step at which a parameter has no
gradient."""
CASES = ("sizes", "many")
SHAPES = ((1,), (31,), (33,), (41, 25), (9000,), (129,), (7,))
"""Around the widths of vectors; the fourth is transposed, the last but one misses a gradient once,
the last has none."""
MANY = 75
"""More tensors than one call of a kernel on lists takes; in two groups with unlike rates."""
COUNTING = 4.0
"""Forms that count their steps in a tensor take 1 less a power of nearly 1 in float32."""
RIGHT_FUSED_SGD = (2, 15)
SIZE = 0.05
"""Of the parameters, so that a step is seen beside them."""
FORMS: Dict[str, Dict[str, bool]] = {
    "foreach": {"foreach": True},
    "fused": {"fused": True},
    "differentiable": {"differentiable": True},
    "capturable": {"capturable": True},
}


class OptimizerEntry(NamedTuple):
    name: str
    info: Any
    """torch's `OptimizerInfo`."""

    def question(self, torch: Any, device: str, seed: int, turn: int) -> Optional[Question]:
        """One setting in one case."""
        words = f"{seed}:{self.name}:{turn}"
        chance = random.Random(words)
        dtype, case = FORMATS[turn // 2 % len(FORMATS)], CASES[turn % len(CASES)]
        made = torch.Generator().manual_seed(chance.getrandbits(62))
        shapes: Tuple[Tuple[int, ...], ...] = SHAPES
        if case == "many":
            shapes = tuple((1 + (7 * place) % 40,) for place in range(MANY))
        low = getattr(torch, dtype)

        def values(size: float) -> List[Any]:
            drawn = (torch.randn(math.prod(shape), generator=made) for shape in shapes)
            return [(size * x).to(low) for x in drawn]

        found = [each.kwargs for each in self.info.optim_inputs_func(device="cpu")]
        # Two together, as torch's database does not have them.
        options = {**chance.choice(found), **chance.choice(found)}
        call = Call((values(SIZE), [values(1.0) for _ in range(STEPS)]), options, lambda x: x)
        room = COUNTING if dtype == "float32" else 1.0
        kind = device.partition(":")[0]
        trial = Trial(self.name, self.info, case, dtype, shapes, room, kind)
        return Question(trial, dtype, turn, call, words, form(turn))


class Trial(NamedTuple):
    """One optimizer with its options; the shape of what `compared` takes for an entry."""

    name: str
    info: Any
    case: str
    dtype: str
    shapes: Tuple[Tuple[int, ...], ...]
    room: float
    kind: str
    """Of the device."""
    unique: bool = True

    def run(self, *given: Any, **options: Any) -> List[Any]:
        return self.trained({"foreach": False} if self._takes("foreach") else {}, given, options)

    def other_ways(self, asked: Question) -> Iterator[Tuple[str, Way, str, bool]]:
        """Every form that this optimizer has here, and one that is saved and read again."""
        import torch

        forms = self.forms(torch, self.kind)
        for each in forms:
            yield each, self._by(FORMS[each], False), "", False
        again = forms[asked.turn % len(forms)] if forms and asked.turn % 2 else ""
        plain = {"foreach": False} if self._takes("foreach") else {}
        yield f"{again} saved and read".strip(), self._by(FORMS.get(again, plain), True), "", False

    def _by(self, form: Dict[str, bool], saved: bool) -> Way:
        def way(torch: Any, asking: Asking) -> Answer:
            def run(*given: Any, **options: Any) -> List[Any]:
                return self.trained(form, given, options, saved)

            try:
                return asking.answer(run, asking.call)
            except Exception as problem:
                if lacks_form(problem) or refuses(problem):
                    raise NoWay from problem
                raise

        return way

    def _takes(self, form: str) -> bool:
        return form in self.info.supported_impls

    def forms(self, torch: Any, kind: str) -> List[str]:
        fused = self._takes("fused") and kind in self.info.supports_fused_on
        has = {
            "foreach": self._takes("foreach"),
            "fused": fused,
            "differentiable": self._takes("differentiable"),
            "capturable": self.info.has_capturable_arg and kind == "cuda",
        }
        if (self.name, kind) == ("SGD", "cpu") and self.dtype in HALVES:
            # It writes no whole vector: of 33 parameters only the last one has a step.
            has["fused"] = has["fused"] and release(torch) >= RIGHT_FUSED_SGD
        return [name for name, here in has.items() if here]

    def trained(
        self, form: Dict[str, bool], given: Any, options: Dict[str, Any], saved: bool = False
    ) -> List[Any]:
        """What each step leaves: all parameters in a row, and each of the state's values."""
        import torch

        start, steps = given
        learns = not form.get("differentiable")
        own = [_placed(x, shape).requires_grad_(learns) for x, shape in zip(start, self.shapes)]
        optimizer = self._made(own, {**options, **form})
        found: List[Any] = []
        for number, gradients in enumerate(steps):
            if saved and number == SAVED:
                optimizer = self._reread(torch, optimizer, own, {**options, **form})
            self._step(torch, optimizer, own, gradients, number)
            found.append(torch.cat([p.detach().reshape(-1) for p in own]))
            found += _state(torch, optimizer, own)
        return found

    def _made(self, own: List[Any], options: Dict[str, Any]) -> Any:
        if self.case != "many" or not self.info.supports_param_groups:
            return self.info.optim_cls(own, **options)
        half = len(own) // 2
        made = self.info.optim_cls([{"params": own[:half]}, {"params": own[half:]}], **options)
        made.param_groups[1]["lr"] = made.param_groups[1]["lr"] * 0.5
        return made

    def _reread(self, torch: Any, before: Any, own: List[Any], options: Dict[str, Any]) -> Any:
        file = io.BytesIO()
        torch.save(before.state_dict(), file)
        file.seek(0)
        made = self._made(own, options)
        made.load_state_dict(torch.load(file, weights_only=True))
        return made

    def _step(self, torch: Any, optimizer: Any, own: List[Any], given: Any, number: int) -> None:
        learning = own if self.case != "sizes" else own[:-1]
        slopes = [_placed(g, shape) for g, shape in zip(given, self.shapes)]
        for p in own:
            p.grad = None
        for place, p in enumerate(learning):
            if self.case == "sizes" and number == MISSING and place == len(own) - 2:
                continue
            p.grad = slopes[place]
        optimizer.step()


def _placed(x: Any, shape: Tuple[int, ...]) -> Any:
    """Numbers of their own in this shape; one of two axes is transposed in memory."""
    y = x.detach().clone()
    return y if len(shape) < 2 else y.reshape(shape[::-1]).t()


def _state(torch: Any, optimizer: Any, own: List[Any]) -> List[Any]:
    """Each value of the state by its name, that of all parameters in a row."""
    rows: Dict[str, List[Any]] = {}
    for p in own:
        for name, value in optimizer.state.get(p, {}).items():
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                value = torch.tensor(float(value), device=p.device)
            if isinstance(value, torch.Tensor):
                rows.setdefault(name, []).append(value.detach().reshape(-1).clone())
    return [torch.cat([x.to(rows[name][0].device) for x in rows[name]]) for name in sorted(rows)]


def entries(infos: List[Any]) -> Dict[str, OptimizerEntry]:
    """By name; without those that are left out."""
    named_rows = ((info.optim_cls.__name__, info) for info in infos)
    return {n: OptimizerEntry(n, info) for n, info in named_rows if not reason(LEFT_OUT, n)}
