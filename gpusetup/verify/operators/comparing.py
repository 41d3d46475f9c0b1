"""One sample of the census: computed on the device, by definition on the CPU, and compared.

How far an element may be off follows from two figures. One is the roundoff `u` of the format times
the size of the exact answer. The other is measured anew for each sample: how much the exact answer
moves when every input is moved by `u`, which is what any way to compute it may lose.
"""

from __future__ import annotations

import threading
import warnings
from math import inf, sqrt
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Tuple

from ..checks.computing import capability_of
from ..judging.precision import UNIT_ROUNDOFF, read_conv_precision, read_precision
from ..judging.tolerance import ROUNDOFF, Part, holds
from .drawing import Draw, laid_out
from .table import Operator, itself

PIECE = 2039
"""Elements of the pieces in which an exact answer is made, where each stands for itself."""
OWN, MOVED, FLOOR = 6.0, 4.0, 0.05
"""In front of the roundoff of the answer, of what moved inputs move, and the share of the root mean
square that is added to each element's size."""
BACK = 4.0
"""The same share for gradients: they are often differences of larger numbers (1 - y * y)."""
BOTH_ROUND = 32.0
"""For float64, where the exact answer is itself rounded, and rounds more often."""
HALVES = ("bfloat16", "float16")
SMALLEST = {"float16": 2.0**-23, "bfloat16": 2.0**-125, "float32": 2.0**-125, "float64": 0.0}


class Sample(NamedTuple):
    """A point of the census; its name and a seed give the same numbers everywhere."""

    operator: str
    dtype: str
    layout: str
    size: str
    turn: int = 0

    @property
    def name(self) -> str:
        words = (
            self.operator.replace(" ", "_"),
            self.dtype,
            self.layout,
            self.size,
            str(self.turn),
        )
        return "/".join(words)


class Answer(NamedTuple):
    outputs: List[Any]
    gradients: List[Any]


def compared(torch: Any, device: str, row: Operator, sample: Sample, seed: int) -> List[Part]:
    """All comparisons of a sample; an error on the device is one that does not hold."""
    draw = Draw(torch, f"{seed}:{sample.name}", sample.size)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return list(_Trial(torch, device, row, sample, draw).parts())


class _Trial:
    """What belongs to one sample while it is computed."""

    def __init__(self, torch: Any, device: str, row: Operator, sample: Sample, draw: Draw) -> None:
        self.torch, self.device, self.row, self.sample, self.draw = torch, device, row, sample, draw
        dtype = getattr(torch, sample.dtype)
        made = row.make(draw)
        self.options = made.options
        self.low = [_cast(torch, each, dtype) for each in made.tensors]
        self.learns = row.learns and dtype.is_floating_point
        self.u = roundoff(torch, device, row.arithmetic, sample.dtype)

    def parts(self) -> Iterator[Part]:
        name = self.sample.name
        here = [laid_out(self.torch, x.to(self.device), self.sample.layout) for x in self.low]
        first = self.computed(here, self.learns)
        upstream = [self.upstream(each) for each in first.outputs]
        here_up = [None if g is None else g.to(self.device) for g in upstream]
        found = self.with_gradients(self.row.run, here, here_up)
        exact, allowed = self.exactly(upstream)
        yield from self.judged(name, found, exact, allowed)
        again = self.computed(here, self.learns)
        if self.row.steady:
            yield _alike(f"{name} called again", again.outputs, found.outputs)
        yield from self.judged(f"{name} on a thread", self.on_a_thread(here), exact, allowed)
        kept = all(map(self.torch.equal, (x.cpu() for x in here), self.low)) or _has_nan(self.low)
        yield holds(f"{name} leaves its inputs", kept, "an input was changed")

    def computed(self, tensors: List[Any], learns: bool) -> Answer:
        leaves = [_leaf(x, learns) for x in tensors]
        return Answer(_listed(self.row.run(self.torch, *leaves, **self.options)), [])

    def on_a_thread(self, here: List[Any]) -> Answer:
        """Without gradients, where other kernels may be chosen."""
        found: List[Answer] = []

        def work() -> None:
            with self.torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found.append(self.computed(here, False))

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        return found[0] if found else Answer([], [])

    def upstream(self, output: Any) -> Any:
        """What is handed back through an output; None where it has no gradient."""
        if not (self.learns and output.requires_grad):
            return None
        return self.draw.normal(*output.shape).to(output.dtype)

    def with_gradients(
        self, run: Callable[..., Any], tensors: List[Any], upstream: List[Any]
    ) -> Answer:
        if not any(g is not None for g in upstream):
            with self.torch.no_grad():
                return Answer(_listed(run(self.torch, *tensors, **self.options)), [])
        leaves = [_leaf(x, True) for x in tensors]
        outputs = _listed(run(self.torch, *leaves, **self.options))
        chosen = [(o, g) for o, g in zip(outputs, upstream) if g is not None and o.requires_grad]
        wanted = [x for x in leaves if x.requires_grad]
        found = self.torch.autograd.grad(
            [o for o, _ in chosen], wanted, [g.to(o.dtype) for o, g in chosen], allow_unused=True
        )
        return Answer(
            [o.detach() for o in outputs],
            [self.torch.zeros_like(x) if g is None else g for g, x in zip(found, wanted)],
        )

    def exactly(self, upstream: List[Any]) -> Tuple[Answer, Answer]:
        """The exact answer, and how far each element of it may be off."""
        run = itself(self.row)
        if self.row.split:
            run = in_pieces(run)
        inputs = [_wide(self.torch, x) for x in self.low]
        back = [None if g is None else g.double() for g in upstream]
        exact = self.with_gradients(run, inputs, back)
        moved = []
        if self.moves():
            moved = [self.moved(run, inputs, back, exact, each) for each in (False, True)]
        return exact, Answer(
            [
                self.limit(y, [m.outputs[i] for m in moved], FLOOR)
                for i, y in enumerate(exact.outputs)
            ],
            [
                self.limit(y, [m.gradients[i] for m in moved], BACK)
                for i, y in enumerate(exact.gradients)
            ],
        )

    def moves(self) -> bool:
        """Whether there is rounding at all."""
        floating = any(x.is_floating_point() for x in self.low)
        return floating and (self.learns or not self.row.kept)

    def moved(
        self, run: Any, inputs: List[Any], back: List[Any], exact: Answer, divided: bool
    ) -> Answer:
        """How much the answer changes where each input is off by a roundoff."""
        inputs = [self.shaken(x, divided) for x in inputs]
        back = [None if g is None else self.shaken(g, divided) for g in back]
        other = self.with_gradients(run, inputs, back)
        return Answer(
            [(a.double() - b.double()).abs() for a, b in zip(other.outputs, exact.outputs)],
            [(a.double() - b.double()).abs() for a, b in zip(other.gradients, exact.gradients)],
        )

    def shaken(self, x: Any, divided: bool) -> Any:
        """Each element off by a roundoff, up or down. The factors come from a table, and one of the
        two ways divides: an operator at fault must not spoil both."""
        if not x.is_floating_point():
            return x
        ends = self.torch.tensor([1 - self.u, 1 + self.u], dtype=self.torch.float64)
        factors = ends[self.torch.randint(0, 2, x.shape, generator=self.draw.made)]
        return x / factors if divided else x * factors

    def limit(self, y: Any, moved: List[Any], floor: float) -> Any:
        size = _finite(y.double()).abs()
        change = _usual(self.torch, *map(_finite, moved)) if moved else 0 * size
        halves = self.sample.dtype in HALVES
        long = 1.0 if halves else 1 + sqrt(_terms(self.low, y, self.row.arithmetic)) / 4
        both = BOTH_ROUND if self.sample.dtype == "float64" else 1.0
        own = both * self.row.slack * OWN * self.u
        # Two moved answers are alike by chance where signs cancel: what is typical counts in part.
        other = both * self.row.slack * MOVED * long
        least = own * floor * _typical(size) + other * 0.2 * _typical(change)
        least += SMALLEST.get(self.sample.dtype, 0.0)
        allowed = own * size + other * change + least
        # An operator that is at fault may have made the limit too: single numbers bound it.
        return allowed.clamp(max=2 * (own * _most(size) + other * _most(change) + least))

    def judged(self, name: str, found: Answer, exact: Answer, allowed: Answer) -> Iterator[Part]:
        if len(found.outputs) != len(exact.outputs):
            yield holds(name, False, f"{len(found.outputs)} outputs, not {len(exact.outputs)}")
            return
        for i, (here, wanted, limit) in enumerate(
            zip(found.outputs, exact.outputs, allowed.outputs)
        ):
            kept = self.row.kept or not here.is_floating_point()
            yield self.near(
                f"{name} output {i}" if i else name, here, wanted, 0.0 * limit if kept else limit
            )
        for i, (here, wanted, limit) in enumerate(
            zip(found.gradients, exact.gradients, allowed.gradients)
        ):
            yield self.near(f"{name} gradient {i}", here, wanted, limit)

    def near(self, label: str, found: Any, exact: Any, allowed: Any) -> Part:
        torch = self.torch
        if found.shape != exact.shape:
            return holds(label, False, f"shape {list(found.shape)}, not {list(exact.shape)}")
        rounded = exact.to(found.dtype).double() if found.is_floating_point() else exact.double()
        found = found.detach().cpu().double()
        errors = (found - exact.double()).abs()
        alike = (found == rounded) | (found.isnan() & rounded.isnan())
        good = alike | (errors <= allowed)
        if bool(good.all()):
            parts = torch.where(alike, torch.zeros_like(errors), errors / allowed.clamp(min=1e-300))
            worst = float(parts.max()) if parts.numel() else 0.0
            return Part(label, worst, float(allowed.max()) if parts.numel() else 0.0)
        place = [int(each) for each in torch.nonzero(~good)[0]] if good.dim() else []
        at = tuple(place)
        told = f"first at {place}: {found[at].item():.6g}, not {exact[at].item():.6g}"
        share = errors / allowed.clamp(min=1e-300)
        worst = float(share[~good].max())
        limit = float(allowed[at])
        return Part(
            label, worst if worst == worst else inf, limit, int((~good).sum()), good.numel(), told
        )


def in_pieces(run: Callable[..., Any]) -> Callable[..., Any]:
    """The operator on small contiguous pieces, put together."""

    def whole(torch: Any, *tensors: Any, **options: Any) -> Any:
        spread = torch.broadcast_tensors(*tensors)
        shape = spread[0].shape
        cuts = zip(*(x.reshape(-1).split(PIECE) for x in spread))
        pieces = [_listed(run(torch, *each, **options)) for each in cuts]
        return [torch.cat(column).reshape(shape) for column in zip(*pieces)]

    return whole


def roundoff(torch: Any, device: str, arithmetic: str, dtype: str) -> float:
    """Of the format, or of the coarser arithmetic that this operator may use for float32 here."""
    if dtype != "float32" or not arithmetic:
        return ROUNDOFF.get(dtype, 0.0)
    read = read_conv_precision if arithmetic == "convolution" else read_precision
    return UNIT_ROUNDOFF[read(torch, device, capability_of(torch, device)).name]


def _cast(torch: Any, x: Any, dtype: Any) -> Any:
    return x.to(dtype) if x.dtype == torch.float64 else x


def _wide(torch: Any, x: Any) -> Any:
    """In float64 where it was of the sample's format; places and flags as they are."""
    return x.double() if x.is_floating_point() or x.dtype not in (torch.int64, torch.bool) else x


def _leaf(x: Any, learns: bool) -> Any:
    return x.detach().requires_grad_() if learns and x.is_floating_point() else x


def _listed(found: Any) -> List[Any]:
    return list(found) if isinstance(found, (list, tuple)) else [found]


def _has_nan(tensors: List[Any]) -> bool:
    return any(bool(x.isnan().any()) for x in tensors if x.is_floating_point())


def _finite(x: Any) -> Any:
    return x.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)


def _usual(torch: Any, one: Any, other: Any) -> Any:
    """The greater of two changes; the lesser where they are worlds apart."""
    lesser, greater = torch.minimum(one, other), torch.maximum(one, other)
    apart = greater > 1000 * (lesser + _typical(lesser))
    return torch.where(apart, lesser, greater)


def _typical(x: Any) -> float:
    return float(x.square().mean().sqrt()) if x.numel() else 0.0


def _most(x: Any) -> float:
    return float(x.max()) if x.numel() else 0.0


def _terms(inputs: List[Any], output: Any, arithmetic: str) -> float:
    """How many numbers an element of the answer is made of, about."""
    counts, out = sorted(x.numel() for x in inputs), max(1, output.numel())
    terms = max(1.0, counts[-1] / out)
    return float(max(terms, sqrt(counts[-1] * counts[-2] / out)) if arithmetic else terms)


def _alike(label: str, found: List[Any], first: List[Any]) -> Part:
    for one, other in zip(found, first):
        one, other = one.detach().cpu(), other.detach().cpu()
        same = (one == other) | ((one != one) & (other != other))
        if one.shape != other.shape or not bool(same.all()):
            return holds(label, False, f"{int((~same).sum())} of {same.numel()} elements differ")
    return Part(label, 0.0, 0.0)


Rows = Dict[str, Tuple[Operator, ...]]
