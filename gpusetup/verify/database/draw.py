"""What an entry of ours is, and what its calls are drawn with."""

from __future__ import annotations

import random
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

from .calls import Call, replaced, tensors_of
from .forms import LENGTHS, Question, form
from .ways import WAYS, Way, directly

FLOATS = ("float32", "bfloat16", "float32", "float16")
SMALL = (1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 33)
MOST = 2**17
"""The most numbers of one tensor."""


class Draw:
    """What an entry draws its call with."""

    def __init__(self, torch: Any, words: str, lengths: Tuple[int, ...]) -> None:
        self.torch, self.lengths = torch, lengths
        self.chance = random.Random(words)
        self.choice = self.chance.choice
        self.made = torch.Generator().manual_seed(self.chance.getrandbits(62))

    def length(self, most: int = MOST) -> int:
        """A length of the question's class, if it is not too long."""
        return int(
            self.choice(
                [n for n in self.lengths if n <= most]
                or [n for n in LENGTHS[1] + SMALL if n <= most]
            )
        )

    def shape(self, count: int, most: int = MOST) -> List[int]:
        """One length of the class, others small, in any order."""
        found = [self.length(most)]
        while len(found) < count:
            most //= found[-1]
            found.append(self.choice([n for n in (*SMALL, 64, 65, 130) if n <= most] or [1]))
        self.chance.shuffle(found)
        return found

    def normal(self, *shape: int) -> Any:
        return self.torch.randn(shape, generator=self.made)

    def whole(self, low: int, high: int, *shape: int) -> Any:
        return self.torch.randint(low, high, shape, generator=self.made)

    def flag(self) -> bool:
        return self.chance.random() < 0.5


class Own(NamedTuple):
    """An entry; the shape of what `compared` takes."""

    name: str
    draw: Callable[[Draw], Tuple[Tuple[Any, ...], Dict[str, Any]]]
    """What it is called with, in float32."""
    run: Callable[..., Any]
    dtypes: Tuple[str, ...] = FLOATS
    once: bool = False
    """Whether half precision is rounded once, all else being done in float32."""
    by_threads: bool = False
    """Whether each thread of a CPU rounds its share, so that several round more than once."""
    learns: bool = True
    room: float = 1.0
    unique: bool = True

    def question(self, torch: Any, device: str, seed: int, turn: int) -> Optional[Question]:
        words = f"{seed}:{self.name}:{turn}"
        dtype = self.dtypes[(turn + turn // 4) % len(self.dtypes)]
        wanted = form(turn)
        draw = Draw(torch, words, wanted.lengths)
        given, options = self.draw(draw)
        low = getattr(torch, dtype)

        def lowered(x: Any) -> Any:
            return x.to(low) if x.dtype == torch.float32 and low.is_floating_point else x

        call = replaced(torch, Call(given, options, lambda x: x), lowered)
        if turn % 2 and any(x.dim() == 4 for x in given if hasattr(x, "dim")):
            wanted = wanted._replace(layout="channels-last")
        kind = wanted.numbers if dtype != "float16" else ""
        call = numbered(draw, call, kind)
        learns = self.learns and not kind and low.is_floating_point
        if wanted.layout == "channels-last" and dtype != "float32":
            learns = False  # convolutions leave parts of such a gradient unwritten (2.13.0, CPU)

        def learning(x: Any) -> Any:
            return x.requires_grad_(learns and x.is_floating_point())

        return Question(self, dtype, turn, replaced(torch, call, learning), words, wanted)

    def other_ways(self, asked: Question) -> Iterator[Tuple[str, Way, str, bool]]:
        form = asked.form
        way = WAYS.get(form.way, directly)
        if way is not directly or form.layout:
            label = form.way if way is not directly else ""
            yield label, way, form.layout, form.way in ("gradient", "out")


def numbered(draw: Draw, call: Call, kind: str) -> Call:
    """Other numbers of that kind, of all tensors of fractions or of one."""
    torch, chance = draw.torch, draw.chance
    given = tensors_of(torch, (call.given, call.options))
    given = [x for x in given if x.is_floating_point() and x.numel()]
    if not given or not kind:
        return call
    one = id(chance.choice(given)) if chance.random() < 0.4 else None

    def changed(x: Any) -> Any:
        chosen = x.is_floating_point() and x.numel() and one in (None, id(x))
        return _numbers(draw, x, kind) if chosen else x

    return replaced(torch, call, changed)


def _numbers(draw: Draw, x: Any, kind: str) -> Any:
    torch = draw.torch
    if kind == "ties":
        return (x * 2).round() / 2
    if kind == "equal":
        return torch.full_like(x, float(x.reshape(-1)[0]))
    count = torch.arange(x.numel(), dtype=torch.float64) % draw.choice((3, 17, 127))
    return (count.reshape(x.shape) - 1).to(x.dtype)
