"""One sample of the census: computed on the device, by definition on the CPU, and compared.

How far an element may be off follows from two figures. One is the roundoff `u` of the format times
the size of the exact answer. The other is measured anew for each sample: how much the exact answer
moves when every input is moved by `u`, which is what any way to compute it may lose.
"""

from __future__ import annotations

import random
import threading
import warnings
from typing import Any, Callable, Iterator, List, NamedTuple, Tuple

from ..judging.tolerance import Part, holds
from .anew import written_anew
from .drawing import LAYOUTS, Draw, laid_out
from .elements import alike, near
from .forms import InPlace, IntoOut
from .limits import FEW, Kind, few, least, least_back, limit
from .releases import hands_back_held, loses_weight, reads_lines_apart
from .rounding import lessened, roundoff
from .table import Operator, itself

PIECE = 2039
"""Elements of the pieces in which an exact answer is made, where each stands for itself."""
AGAIN, NEAR, FAR = 8, 0.8, 250.0
"""How many further limits judge what comes so near to the first, or misses it by less than so many
times, or is made of few numbers: three moved answers may be close to each other by chance."""
STEPS = (0.6, 0.9, 1.1, 1.4)
"""Roundoffs by which an input is moved; unlike each other, as what scales its input down would not
feel all of them moved alike."""
WAYS = ("on a thread", "for inference", "learning", "into out", "in place")
"""How a layout is computed, in turn; each way may choose another kernel."""
HELD, HELD_MOST = 0.25, 64
"""How often what is handed back is one number for all of the last axis, with stride 0, as that of a
sum is; and of how long an axis: sums of more like numbers lose more."""
WEIGHT = 1
"""The place of a convolution's weight among its inputs."""


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
    """None for one that this torch is known to leave unset."""


def compared(
    torch: Any,
    device: str,
    row: Operator,
    sample: Sample,
    seed: int,
    layouts: Tuple[str, ...] = LAYOUTS[:-1],
    anew: bool = False,
) -> List[Part]:
    """All comparisons of a sample; an error on the device is one that does not hold. `anew`: a
    small one too, after other numbers were written into the same tensors."""
    words = f"{seed}:{sample.name}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trial = Trial(torch, device, row, sample, Draw(torch, words, sample.size))
        trial.held = hands_back_held(torch) and random.Random(f"{words}:held").random() < HELD
        trial.part = bool(random.Random(f"{words}:part").getrandbits(1))
        found = list(trial.parts(layouts))
        if anew:
            found += written_anew(trial, seed)
        return found


class Trial:
    """What belongs to one sample while it is computed."""

    def __init__(self, torch: Any, device: str, row: Operator, sample: Sample, draw: Draw) -> None:
        if lessened(torch, device, row, sample.dtype):
            row = row._replace(roundings=0, roundings_back=0)
        self.torch, self.device, self.row, self.sample, self.draw = torch, device, row, sample, draw
        dtype = getattr(torch, sample.dtype)
        made = row.make(draw)
        self.options = made.options
        self.low = [_cast(torch, each, dtype) for each in made.tensors]
        self.brief, self.held, self.part = sample.size == "edges", False, False
        self.learns = row.learns and dtype.is_floating_point and not self.brief
        self.u = roundoff(torch, device, row.arithmetic, sample.dtype)

    def parts(self, layouts: Tuple[str, ...]) -> Iterator[Part]:
        name = self.sample.name
        here = [self.put(x, self.sample.layout) for x in self.low]
        first = self.computed(here, self.learns)
        upstream = [self.upstream(each) for each in first.outputs]
        here_up = [None if g is None else self.handed(g.to(self.device)) for g in upstream]
        found = self.with_gradients(self.row.run, here, here_up)
        exact, allowed = self.exactly(upstream)
        yield from self.told(name, found, exact, allowed, upstream)
        if self.row.steady:
            again = self.computed(here, self.learns)
            yield alike(f"{name} called again", again.outputs, found.outputs)
        if self.brief:
            return
        for way, answer in self.other_ways(layouts, here_up):
            yield from self.told(f"{name} {way}", answer, exact, allowed, upstream)
        kept = all(map(self.torch.equal, (x.cpu() for x in here), self.low)) or _has_nan(self.low)
        yield holds(f"{name} leaves its inputs", kept, "an input was changed")

    def computed(self, tensors: List[Any], learns: bool) -> Answer:
        leaves = [_leaf(x, learns) for x in tensors]
        with self.torch.set_grad_enabled(learns):
            return Answer(_listed(self.row.run(self.torch, *leaves, **self.options)), [])

    def other_ways(
        self, layouts: Tuple[str, ...], upstream: List[Any]
    ) -> Iterator[Tuple[str, Answer]]:
        """The same numbers in every other layout, each called in another way."""
        turned = self.draw.chance.sample(WAYS, len(WAYS))
        for place, (layout, here) in enumerate(self.laid_out(layouts)):
            way = turned[place % len(turned)]
            if way == "learning" and not any(g is not None for g in upstream):
                way = "into out"
            yield f"{layout}, {way}", self.called(way, here, upstream, layout)

    def put(self, x: Any, layout: str) -> Any:
        """On the device, with the strides of a layout that this torch is not known to misread."""
        line = self.row.arithmetic == "product" and 1 in x.shape[-2:]
        if line and not reads_lines_apart(self.torch, self.device, self.sample.dtype):
            layout = LAYOUTS[0]
        return laid_out(self.torch, x.to(self.device), layout)

    def laid_out(self, layouts: Tuple[str, ...]) -> Iterator[Tuple[str, List[Any]]]:
        """At least one for each way; those that have the strides of one before are left out. Where
        there are several tensors, each has a layout of its own at least once."""
        seen = set()
        first = self.draw.choice(range(len(layouts)))
        known = layouts[first:] + layouts[:first]
        most = 3 if self.sample.size == "long" else len(layouts) - (len(self.low) > 1)
        for layout in known[:most]:
            here = [self.put(x, layout) for x in self.low]
            strides = tuple((x.stride(), x.storage_offset() % 8) for x in here)
            if strides not in seen:
                seen.add(strides)
                yield layout, here
        for _ in range(max(0, len(WAYS) - len(seen))):
            yield "each its own", [self.put(x, self.draw.choice(known)) for x in self.low]

    def called(self, way: str, here: List[Any], upstream: List[Any], layout: str) -> Answer:
        torch = self.torch
        if way == "learning":
            up = [None if g is None else self.put(g, layout) for g in upstream]
            return self.with_gradients(self.row.run, here, up)
        if way == "without gradients":
            with torch.no_grad():
                return self.computed(here, False)
        if way == "on a thread":
            return self.on_a_thread(here)
        if way == "for inference":
            with torch.inference_mode():
                return self.computed(here, False)
        with torch.no_grad(), (IntoOut if way == "into out" else InPlace)(self.part):
            return self.computed(here, False)

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
        drawn = self.draw.normal(*output.shape)
        # Sums of many like numbers lose roundoffs of one sign; those of halves of whole ones none.
        drawn = (2 * drawn).round() / 2 if self.held else drawn
        return self.handed(drawn.to(output.dtype)).contiguous()

    def handed(self, g: Any) -> Any:
        """Where it is held, with a stride of 0."""
        held = self.held and g.dim() and 0 < g.shape[-1] <= HELD_MOST
        return g[..., :1].expand(g.shape) if held else g

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
        gradients = [self.torch.zeros_like(x) if g is None else g for g, x in zip(found, wanted)]
        if loses_weight(self.torch, self.row.arithmetic, tensors, self.options):
            gradients[WEIGHT] = None
        return Answer([o.detach() for o in outputs], gradients)

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
            moved = self.moved_often(run, inputs, back, exact)
        return exact, Answer(
            [self.limit(y, [m.outputs[i] for m in moved]) for i, y in enumerate(exact.outputs)],
            [
                self.limit(y, [m.gradients[i] for m in moved], back=True)
                for i, y in enumerate(exact.gradients)
            ],
        )

    def moves(self) -> bool:
        """Whether there is rounding at all."""
        floating = any(x.is_floating_point() for x in self.low)
        return floating and (self.learns or not self.row.kept)

    def moved_often(
        self, run: Any, inputs: List[Any], back: List[Any], exact: Answer
    ) -> List[Answer]:
        """How much the answer changes where each input is off by about a roundoff: up or down, the
        other way (what jumps at a number jumps in one of the two), and anew, by a division. Where
        numbers are only moved, or choose an order, they stay, and what is handed back moves."""
        movable = [*([None] * len(inputs) if self.row.kept else inputs), *back]
        places = [self.places(x) for x in movable]
        anew = self.moved(run, inputs, back, exact, [self.places(x) for x in movable], 0)
        if self.brief:
            return [anew]
        return [*(self.moved(run, inputs, back, exact, places, way) for way in (1, -1)), anew]

    def moved(
        self,
        run: Any,
        inputs: List[Any],
        back: List[Any],
        exact: Answer,
        places: List[Any],
        way: int,
    ) -> Answer:
        both = [self.shaken(x, at, way) for x, at in zip((*inputs, *back), places)]
        other = self.with_gradients(run, both[: len(inputs)], both[len(inputs) :])
        return Answer(
            [(a.double() - b.double()).abs() for a, b in zip(other.outputs, exact.outputs)],
            [(a.double() - b.double()).abs() for a, b in zip(other.gradients, exact.gradients)],
        )

    def places(self, x: Any) -> Any:
        """For each element its place in the table of factors."""
        if x is None or not x.is_floating_point():
            return None
        return self.torch.randint(0, 2 * len(STEPS), x.shape, generator=self.draw.made)

    def shaken(self, x: Any, places: Any, way: int) -> Any:
        """Each element times a factor of the table, or divided by it (way 0). The table is made
        without torch: an operator at fault must not spoil every way."""
        if places is None:
            return x
        table = [1 + (way or 1) * self.u * step for step in (*STEPS, *(-s for s in STEPS))]
        factors = self.torch.tensor(table, dtype=self.torch.float64)[places]
        return x * factors if way else x / factors

    def limit(self, y: Any, moved: List[Any], back: bool = False) -> Any:
        of = Kind(self.row, self.sample.dtype, self.u, self.brief, self.low)
        return limit(self.torch, of, y, moved, back)

    def told(
        self, name: str, found: Answer, exact: Answer, allowed: Answer, upstream: List[Any]
    ) -> List[Part]:
        """What nears its limit, or misses it by little, is judged by the greatest of several."""
        parts = list(self.judged(name, found, exact, allowed))
        handed = [g for g in upstream if g is not None]
        all_few = few(self.low) or bool(handed and few(handed))

        def by_chance(part: Part) -> bool:
            return part.worst > NEAR and (all_few or 0 < part.of <= FEW or part.worst < FAR)

        if not self.moves() or not any(map(by_chance, parts)):
            return parts
        several = [allowed, *(self.exactly(upstream)[1] for _ in range(AGAIN))]
        of = (self.row, self.sample.dtype, self.u, self.low)
        greatest = Answer(
            [
                self.torch.stack(each).amax(0).clamp(min=least(*of, y))
                for y, each in zip(exact.outputs, zip(*(one.outputs for one in several)))
            ],
            [
                self.torch.stack(each).amax(0).clamp(min=least_back(*of, upstream, y))
                for y, each in zip(exact.gradients, zip(*(one.gradients for one in several)))
            ],
        )
        return list(self.judged(name, found, exact, greatest))

    def judged(self, name: str, found: Answer, exact: Answer, allowed: Answer) -> Iterator[Part]:
        if len(found.outputs) != len(exact.outputs):
            yield holds(name, False, f"{len(found.outputs)} outputs, not {len(exact.outputs)}")
            return
        for i, (here, wanted, within) in enumerate(
            zip(found.outputs, exact.outputs, allowed.outputs)
        ):
            kept = self.row.kept or not here.is_floating_point()
            label = f"{name} output {i}" if i else name
            yield near(self.torch, label, here, wanted, 0.0 * within if kept else within)
        for i, (here, wanted, within) in enumerate(
            zip(found.gradients, exact.gradients, allowed.gradients)
        ):
            if here is not None:
                yield near(self.torch, f"{name} gradient {i}", here, wanted, within)


def in_pieces(run: Callable[..., Any]) -> Callable[..., Any]:
    """The operator on small contiguous pieces, put together."""

    def whole(torch: Any, *tensors: Any, **options: Any) -> Any:
        spread = torch.broadcast_tensors(*tensors)
        shape = spread[0].shape
        cuts = zip(*(x.reshape(-1).split(PIECE) for x in spread))
        pieces = [_listed(run(torch, *each, **options)) for each in cuts]
        return [torch.cat(column).reshape(shape) for column in zip(*pieces)]

    return whole


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
