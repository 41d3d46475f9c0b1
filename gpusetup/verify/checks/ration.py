"""The ration: kernels in forms that come round by turns, against float64 on the CPU.

`standard` asks each entry a few questions, other ones with each seed, until its seconds are over;
`census` asks all.
"""

from __future__ import annotations

import functools
import random
import time
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Set, Tuple

from ..database import entries, loading
from ..database import optimizers as of_optimizers
from ..database.calls import exact_products
from ..database.comparing import NotAsked, compared
from ..database.draw import LENGTHS, NUMBERS, OperatorQuestion
from ..database.own import own
from ..database.rules import SINCE, release
from ..device.importing import first_line
from ..judging.refusals import refuses
from ..judging.tolerance import Part, holds, judged
from ..values import (
    FAILED,
    SKIPPED,
    Outcome,
    WrongQuestion,
    asked,
    kind,
    seconds_left,
    sticky,
    working_on,
)

ENOUGH = 12
"""So many wrong answers are told; more say nothing new."""
SHARES = {0: 1, 1: 5, 2: 10, 3: 20, 4: 20}
"""How rare an entry is -> in how many shares such entries are asked. In 20 consecutive seeds each
entry is among the first. A CPU asks all of them. A GPU has time for about the first share of each:
an H100 asked 900 questions in 34 s, because the first use of a kernel takes it long."""
RARE = 3
"""Entries that do not say how rare they are."""


class EntrySource(NamedTuple):
    """Whose entries a check asks."""

    load: Callable[[Any], Dict[str, Any]]
    turns: int
    """Questions to an entry in `standard`."""
    seconds: Dict[str, float]
    """Kind of device -> the seconds of `standard`, at most."""
    census: int
    """Questions to an entry in `census`: each length with each kind of numbers."""


def _operators(torch: Any) -> Dict[str, Any]:
    return {**own(torch), **entries.entries(loading.load(torch))}


SOURCES = {
    "operators": EntrySource(
        _operators, 8, {"cpu": 56.0, "cuda": 30.0}, len(LENGTHS) * len(NUMBERS)
    ),
    "optimizers": EntrySource(
        lambda torch: of_optimizers.entries(loading.optimizers(torch)),
        12,
        {"cpu": 8.0, "cuda": 5.0},
        24,
    ),
}
"""The seconds make `standard` end after about a minute and a half. What comes before takes 20 to
30 s on a CPU. It took 55 s on an H100 with 16 cores, 12 of them for processes that are now spared;
so a GPU gets fewer. Each seed begins with other entries (`SHARES`)."""


@functools.lru_cache(maxsize=None)
def known_to(torch: Any, name: str) -> Dict[str, Any]:
    """The entries of this torch, read once a process. Raises NoDatabase."""
    return SOURCES[name].load(torch)


def ration(name: str, device: str) -> Outcome:
    """Each question's answer agrees with float64 on the CPU."""
    import torch

    if release(torch) < SINCE:
        return Outcome(SKIPPED, "some samples of this torch's database are wrong themselves")
    try:
        known = known_to(torch, name)
    except loading.NoDatabase as problem:
        return Outcome(SKIPPED, f"torch's own database of {name} cannot be loaded: {problem}")
    found = Found(name, SOURCES[name].seconds[kind(device)], len(known))
    with exact_products(torch):
        for entry, turn in chosen(name, known):
            if found.is_over():
                break
            try:
                found.ask(torch, device, entry, turn)
            except Exception as problem:
                if not sticky(problem):
                    raise
                return found.ended(device, f"{entry.name}/{turn}", problem)
    return found.told(device)


def chosen(name: str, known: Dict[str, Any]) -> Iterator[Tuple[Any, int]]:
    """The entries and turns that the level takes, or the one that was asked for."""
    only = dict(each.partition("/")[::2] for each in asked().only).get(name)
    if only:
        entry, _, turn = only.rpartition("/")
        if entry not in known or not turn.isdigit():
            hint = "as ENTRY/NUMBER, in the words of a failure's hint"
            raise WrongQuestion(f"{only!r} names no question of {name} with this torch", hint)
        return iter([(known[entry], int(turn))])
    return _turns(name, known)


def _turns(name: str, known: Dict[str, Any]) -> Iterator[Tuple[Any, int]]:
    """Each entry's questions. `standard` comes to an entry that programs use often several times,
    and first once to each."""
    source, seed = SOURCES[name], asked().seed
    entries_in_order = [known[each] for each in in_order(name, known, seed)]
    often = {entry.name: getattr(entry, "often", 1) for entry in entries_in_order}
    if asked().level == "census":
        for entry in entries_in_order:
            for turn in range(often[entry.name] * source.census):
                yield entry, turn
        return
    for visit in range(max(often.values(), default=0)):
        for entry in entries_in_order:
            if visit < often[entry.name]:
                first = (seed * often[entry.name] + visit) * source.turns
                for turn in range(first, first + source.turns):
                    yield entry, turn


def in_order(name: str, known: Dict[str, Any], seed: int) -> List[str]:
    """The names of all entries: a share of each rarity after the other, common ones first."""
    names = sorted(known)
    random.Random(name).shuffle(names)
    by_rarity: Dict[int, List[str]] = {rarity: [] for rarity in SHARES}
    for each in names:
        by_rarity[getattr(known[each], "rarity", RARE)].append(each)
    order: List[str] = []
    for place in range(max(SHARES.values())):
        for rarity, count in SHARES.items():
            if place < count:
                share = (seed + place) % count
                alike = by_rarity[rarity]
                order += alike[share * len(alike) // count : (share + 1) * len(alike) // count]
    return order


class Found:
    """What the questions gave so far."""

    def __init__(self, check: str, seconds: float, entry_count: int = 0) -> None:
        self.check, self.seconds = check, seconds
        self.entry_count = entry_count
        """How many entries there are."""
        self.entries_asked: Set[str] = set()
        self.parts: List[Part] = []
        self.bad = self.tried = self.not_asked = 0
        self.began = time.monotonic(), time.thread_time()

    def spent(self) -> float:
        """Seconds of a core, or, if this machine gives hardly any, a third of those that passed."""
        passed, computed = time.monotonic() - self.began[0], time.thread_time() - self.began[1]
        return max(computed, passed / 3)

    def is_over(self) -> bool:
        late = asked().level != "census" and self.spent() >= self.seconds
        return late or seconds_left() <= 0 or self.bad >= ENOUGH

    def ask(self, torch: Any, device: str, entry: Any, turn: int) -> None:
        """Compares one answer."""
        name = f"{entry.name}/{turn}"
        working_on(name)
        question: Optional[OperatorQuestion] = None
        parts: List[Part] = []
        try:
            question = entry.question(torch, device, asked().seed, turn)
            if question is None:
                return
            parts = compared(torch, device, question)
        except Exception as problem:  # whatever a kernel raises is its answer
            if sticky(problem):
                raise
            lacks = isinstance(problem, NotAsked) or refuses(problem) or not_in_this_torch(problem)
            if lacks or question is None:
                self.not_asked += 1
                return
            parts = [holds("", False, first_line(problem))]
        self.tried += 1
        self.entries_asked.add(entry.name)
        words = f"{name} ({question.dtype})"
        self._keep([part._replace(label=f"{words} {part.label}".strip()) for part in parts])

    def _keep(self, parts: List[Part]) -> None:
        """What is wrong, and the nearest to its limit of what is right."""
        every = [*self.parts, *parts]
        wrong = [part for part in every if not part.worst <= 1]
        right = [part for part in every if part.worst <= 1]
        best = [max(right, key=lambda part: part.worst)] if right else []
        self.parts, self.bad = [*wrong, *best], len(wrong)

    def ended(self, device: str, name: str, problem: Exception) -> Outcome:
        """After an error that the process cannot go on from: which question it was, and the next
        check gets a process of its own."""
        detail = f"{name} ended the process on the GPU: {first_line(problem)}"
        if self.tried:
            detail += f" (after {self.questions()})"
        return Outcome(FAILED, detail, hint=again(self.check, device, name), spent=True)

    def questions(self) -> str:
        """What was asked, in words."""
        among = f"{len(self.entries_asked)} of {self.entry_count} " if self.entry_count else ""
        said = f"{self.tried} questions to {among}{self.check} with seed {asked().seed}"
        if self.not_asked:
            said += f", {self.not_asked} without an answer here"
        return said

    def told(self, device: str) -> Outcome:
        """The outcome of what was asked; it is no fault that time was over before the others."""
        if not self.tried:
            return Outcome(SKIPPED, "this torch's database has nothing that can be asked here")
        hint = None
        bad = [part for part in self.parts if not part.worst <= 1]
        if bad:
            hint = again(self.check, device, bad[0].label.split(" ")[0])
        said = self.questions()
        outcome = judged(self.parts, "", hint)
        detail = f"{outcome.detail} ({said})" if bad else f"{said}, against float64 on the CPU"
        return outcome._replace(detail=detail)


def again(check: str, device: str, name: str) -> str:
    """How to ask one question once more."""
    return (
        f"again: `--level {asked().level} --device {device} --seed {asked().seed}"
        f" --only {check}/{name}`; if it fails again, try another build or card"
    )


UNKNOWN_FORM = (
    "invalid combination of arguments",
    "unexpected keyword argument",
    "must be tuple of Tensors",
    "expected Tensor as element",
    "Expected a value of type 'Tensor' for argument",
)
"""What torch says of a call that it does not know."""


def not_in_this_torch(problem: Exception) -> bool:
    """Whether an operator, or a form of it, came with a later torch, or went.

    >>> not_in_this_torch(AttributeError("module 'torch.special' has no attribute 'airy_ai'"))
    True
    """
    if isinstance(problem, (NotImplementedError, AttributeError)):
        return True
    called = isinstance(problem, (TypeError, RuntimeError))
    return called and any(words in str(problem) for words in UNKNOWN_FORM)


operators = functools.partial(ration, "operators")
optimizers = functools.partial(ration, "optimizers")
