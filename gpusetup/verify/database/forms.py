"""Other forms of a sample: the same operator with other numbers, lengths, strides or options.

torch's samples are short, without gaps and of ordinary numbers. A form changes one in one to three
parts, each legal where float64 on the CPU takes it too; the changed call is judged as every other.
The words of a form are its name: `whole+long-4097+layout`, drawn again from the seed and that name.
"""

from __future__ import annotations

import contextlib
import random
import threading
import warnings
from typing import Any, Callable, Dict, List, NamedTuple, Tuple

from ..values import WrongQuestion
from .calls import WHOLE, Call, exactly, fresh, mapped, plain, replaced, tensors_of
from .comparing import NotAsked
from .form_rules import PLACES, without
from .lengths import lengthened, one_line
from .numbers import KINDS, POSITIONS, NoPart, changed_numbers, changed_positions, is_index
from .rules import matches
from .strides import expanded, laid_out_anew, writes_nothing

LENGTHS = (0, 1, 2, 15, 17, 31, 32, 33, 65, 127, 128, 129, 257, 1023, 1024, 1025)
LONG = (4097, 5003, 8193, 9000)
WIDE = 36000
"""With so many elements an operator takes several threads, where there are some."""
WAYS = ("no-grad", "inference", "one-grad", "thread", "twice")
MOST_PARTS = 3
DRAWS = 20


WIDER = {"float32": 4.0, "complex64": 4.0, "float16": 2.0, "bfloat16": 2.0}
"""The limits of a form beside those of a sample: torch's tests do not stand behind its numbers."""
ALIKE = ("equal", "expanded", "sorted", "same-index")
ALIKE_ROOM = 8.0
"""A sum of many numbers that are alike loses roundoffs that all have one sign."""


def room(dtype: str, name: str) -> float:
    """How many times wider the limits of a form are.

    >>> room("float32", "whole"), room("float32", "long-4097+expanded")
    (4.0, 32.0)
    """
    parts = name.split("+")
    long = any(part.startswith(("long", "runs", "wide")) for part in parts)
    alike = any(part in ALIKE or part.startswith("runs") for part in parts)
    return WIDER.get(dtype, 4.0) * (ALIKE_ROOM if long and alike else 1.0)


class Form(NamedTuple):
    """What is called, and with what."""

    run: Callable[..., Any]
    call: Call


class Making:
    """One form while it is made: what it is drawn from, and whether a call is legal."""

    def __init__(self, torch: Any, entry: str, dtype: str, form: Form, words: str) -> None:
        self.torch, self.entry, self.dtype, self.form = torch, entry, dtype, form
        self.chance = random.Random(words)
        self.made = torch.Generator().manual_seed(self.chance.getrandbits(62))
        self.keeps_places = matches(entry, PLACES)

    @property
    def call(self) -> Call:
        return self.form.call

    def take(self, call: Call) -> bool:
        """Goes on with this call where it is legal."""
        if not legal(self.torch, self.form.run, call, self.dtype):
            return False
        self.form = self.form._replace(call=call)
        return True


def legal(torch: Any, run: Any, call: Call, dtype: str) -> bool:
    """Whether float64 has an answer: some number in it, none of it by chance."""
    before = torch.get_rng_state()
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            wide = replaced(torch, exactly(torch, call, dtype), lambda x: x.detach())
            answers = plain(torch, run(*fresh(torch, wide).given, **wide.options))
    except Exception:  # whatever an operator says to what it does not take
        return False
    if not torch.equal(before, torch.get_rng_state()):
        torch.set_rng_state(before)
        return False
    counted = [x for x in answers if x.numel()]
    return not counted or any(bool((x == x).any()) for x in counted)


def changed(torch: Any, entry: str, dtype: str, given: Form, name: str, words: str) -> Form:
    """The form of a name, drawn from `words`. Raises NotAsked where no part of it is legal, and
    WrongQuestion for a name that is none."""
    parts = name.split("+")
    making = Making(torch, entry, dtype, given, f"{words}:{name}")
    if not all(known(part) for part in parts):
        raise WrongQuestion(f"{name!r} names no form of a sample")
    taken = 0
    for part in parts:
        if not without(entry, dtype, part):
            with contextlib.suppress(NoPart):
                taken += _apply(making, part)
    if not taken:
        raise NotAsked("no part of this form is legal")
    return making.form


def known(part: str) -> bool:
    """
    >>> known("whole"), known("long-4097"), known("long-"), known("thread"), known("")
    (True, True, False, True, False)
    """
    kind, _, count = part.partition("-")
    if kind in ("long", "runs"):
        return count.isdigit() and int(count) <= WIDE
    return part in (*KINDS, *POSITIONS, *WAYS, *OTHERS)


def _apply(making: Making, part: str) -> bool:
    kind, _, count = part.partition("-")
    if part in KINDS:
        return making.take(changed_numbers(making, part))
    if part in POSITIONS:
        return making.take(changed_positions(making, part))
    if kind in ("long", "runs"):
        return lengthened(making, int(count), kind == "runs")
    if part in WAYS:
        return _another_way(making, part)
    return OTHERS[part](making)


def _layout(making: Making) -> bool:
    call = replaced(making.torch, making.call, lambda x: laid_out_anew(making, x))
    return _strided(making, call)


def _expanded(making: Making) -> bool:
    """One tensor has one line for all along an axis, without memory of their own."""
    return _strided(making, expanded(making, making.call))


def _strided(making: Making, call: Call) -> bool:
    if not writes_nothing(making.torch, making.form.run, call, making.dtype):
        return False
    making.form = making.form._replace(call=call)
    return True


def _broadcast(making: Making) -> bool:
    """One tensor has one line where the others have many, or lacks the first axis."""
    return any(making.take(one_line(making, making.call)) for _ in range(3))


def _wide(making: Making) -> bool:
    sizes = [x.numel() for x in tensors_of(making.torch, making.call.given) if x.numel()]
    return bool(sizes) and lengthened(making, 0, False, WIDE)


def _option(making: Making) -> bool:
    """One number or switch that is no tensor has another value."""
    call = making.call
    places: List[Any] = [i for i, value in enumerate(call.given) if _is_option(value)]
    places += [name for name, value in call.options.items() if _is_option(value)]
    making.chance.shuffle(places)
    dims = max((x.dim() for x in tensors_of(making.torch, call.given)), default=0)
    for place in places[:3]:
        other = _with_another(making, call, place, dims)
        if _same_axis(making, call, other, place) and making.take(other):
            return True
    return False


def _same_axis(making: Making, call: Call, other: Call, place: Any) -> bool:
    """Whether a whole number that changed named an axis: then the answer is the same."""
    value = call.options[place] if isinstance(place, str) else call.given[place]
    if type(value) is not int:
        return True
    answers = []
    for each in (call, other):
        wide = replaced(making.torch, exactly(making.torch, each, making.dtype), _alone)
        try:
            with making.torch.no_grad():
                raw = making.form.run(*fresh(making.torch, wide).given, **wide.options)
        except Exception:  # takes no such number
            return False
        answers.append(plain(making.torch, raw))
    return len(answers[0]) == len(answers[1]) and all(
        x.shape == y.shape and making.torch.equal(x.nan_to_num(), y.nan_to_num())
        for x, y in zip(*answers)
    )


def _alone(x: Any) -> Any:
    return x.detach()


def _is_option(value: Any) -> bool:
    return type(value) in (bool, int, float)


def _with_another(making: Making, call: Call, place: Any, dims: int) -> Call:
    if isinstance(place, str):
        other = _another(making, call.options[place], dims)
        return call._replace(options={**call.options, place: other})
    other = _another(making, call.given[place], dims)
    return call._replace(given=(*call.given[:place], other, *call.given[place + 1 :]))


def _another(making: Making, value: Any, dims: int) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):  # another may be a step of 0: torch divides by it
        return value - dims if 0 <= value < dims else value
    return value * making.chance.choice([0.5, 2.0, -1.0])


def _another_way(making: Making, part: str) -> bool:
    torch, call = making.torch, making.call
    learning = [x for x in tensors_of(torch, (call.given, call.options)) if x.requires_grad]
    if part == "one-grad":
        if len(learning) < 2:
            return False
        one = making.chance.choice(learning)
        call = replaced(torch, call, lambda x: x if x is one else x.detach())
    elif part in ("no-grad", "inference"):
        call = replaced(torch, call, lambda x: x.detach())
    making.form = Form(_way(torch, part, making.form.run), call)
    return True


def _way(torch: Any, part: str, run: Any) -> Any:
    def inference(*given: Any, **options: Any) -> Any:
        with torch.inference_mode():
            raw = run(*given, **options)
        return mapped(torch, raw, lambda x: x.clone())

    def twice(*given: Any, **options: Any) -> Any:
        own = fresh(torch, Call(given, options, lambda x: x))
        run(*own.given, **own.options)
        return run(*given, **options)

    def in_a_thread(*given: Any, **options: Any) -> Any:
        return _from_a_thread(torch, lambda: run(*given, **options))

    return {"inference": inference, "twice": twice, "thread": in_a_thread}.get(part, run)


def _from_a_thread(torch: Any, called: Callable[[], Any]) -> Any:
    answers: List[Any] = []
    problems: List[BaseException] = []
    grad, default = torch.is_grad_enabled(), torch.get_default_dtype()

    def work() -> None:
        try:
            with torch.set_grad_enabled(grad):
                torch.set_default_dtype(default)
                answers.append(called())
        except BaseException as problem:  # it is the caller's to judge
            problems.append(problem)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if problems:
        raise problems[0]
    return answers[0]


OTHERS: Dict[str, Callable[[Making], bool]] = {
    "layout": _layout,
    "expanded": _expanded,
    "broadcast": _broadcast,
    "wide": _wide,
    "option": _option,
}
OFTEN: Tuple[Tuple[float, str], ...] = (
    (0.15, "option"),
    (0.10, "broadcast"),
    (0.50, "numbers"),
    (0.65, "lengths"),
    (0.60, "positions"),
    (0.50, "strides"),
    (0.12, "way"),
)
"""How often a form has such a part, in the order in which parts are applied."""


def drawn(torch: Any, entry: str, dtype: str, call: Call, words: str) -> str:
    """The name of one form of a call."""
    chance = random.Random(words)
    tensors = tensors_of(torch, (call.given, call.options))
    has = {
        "positions": any(is_index(torch, x, dtype) for x in tensors),
        "numbers": bool(tensors),
        "lengths": bool(tensors),
        "strides": any(x.dim() for x in tensors),
    }
    for _ in range(DRAWS):
        kinds = [kind for often, kind in OFTEN if has.get(kind, True) and chance.random() < often]
        while len(kinds) > MOST_PARTS:
            kinds.remove(chance.choice(kinds))
        parts = [_part(chance, kind, dtype) for kind in kinds]
        found = [part for part in parts if not without(entry, dtype, part)]
        if found:
            return "+".join(found)
    return "twice"


def _part(chance: random.Random, kind: str, dtype: str) -> str:
    if kind == "numbers":
        return chance.choice([k for k in KINDS if dtype not in WHOLE or KINDS[k]])
    if kind == "positions":
        return chance.choice(POSITIONS)
    if kind == "strides":
        return chance.choice(("layout", "layout", "expanded"))
    if kind == "way":
        return chance.choice(WAYS)
    if kind != "lengths":
        return kind
    often = chance.random()
    if often < 0.15:
        return "wide"
    size = chance.choice(LONG if often < 0.55 else LENGTHS)
    return f"{chance.choice(('long', 'long', 'runs'))}-{size}"
