"""Checks the results of kernels against float64 on the CPU, with a selection of questions that
changes with each seed.

An entry is an operator or optimizer with sample inputs, and a question is one call of it. The
selection is called the ration: `standard` asks each entry a few questions, which differ with each
seed, until the check's time is up. `census` asks all questions.
"""

from __future__ import annotations

import functools
import random
import time
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Set

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

MOST_WRONG_ANSWERS = 12
"""A check ends after this many wrong answers, because more would add no information."""
SHARES = {0: 1, 1: 5, 2: 10, 3: 20, 4: 20}
"""An entry's rarity -> the number of shares that entries of this rarity are divided into. Each seed
begins with another share, so that in 20 consecutive seeds each entry is among the first ones.

A CPU has time for all shares. A GPU has time for about the first share of each rarity, because the
first use of a kernel takes long: an H100 asked 900 questions in 34 s.
"""
RARE = 3
"""The rarity of entries that do not state one."""


class EntrySource(NamedTuple):
    """Where the entries of a check come from, and how many questions each level asks."""

    load: Callable[[Any], Dict[str, Any]]
    turns: int
    """How many questions each entry gets in `standard`."""
    seconds: Dict[str, float]
    """Kind of device -> the most seconds that the check takes in `standard`."""
    census: int
    """How many questions each entry gets in `census`, enough to combine each length with each kind
    of numbers."""


def load_operators(torch: Any) -> Dict[str, Any]:
    """The entries written for gpusetup, and the entries in torch's operator database."""
    database = loading.load(torch)
    return {**own(torch), **entries.entries(database)}


def load_optimizers(torch: Any) -> Dict[str, Any]:
    """The entries of torch's optimizer database."""
    infos = loading.optimizers(torch)
    return dict(of_optimizers.entries(infos))


SOURCES = {
    "operators": EntrySource(
        load=load_operators,
        turns=8,
        seconds={"cpu": 56.0, "cuda": 30.0},
        census=len(LENGTHS) * len(NUMBERS),
    ),
    "optimizers": EntrySource(
        load=load_optimizers,
        turns=12,
        seconds={"cpu": 8.0, "cuda": 5.0},
        census=24,
    ),
}
"""With these seconds `standard` takes about a minute and a half in total. The checks before it take
20 to 30 s on a CPU. They took 55 s on an H100 with 16 cores (12 s of it for processes that are no
longer started), so a GPU gets fewer seconds here. Each seed begins with other entries (`SHARES`).
"""


@functools.lru_cache(maxsize=None)
def known_to(torch: Any, name: str) -> Dict[str, Any]:
    """The entries that this torch has, loaded once per process. Raises NoDatabase."""
    return SOURCES[name].load(torch)


class EntryTurn(NamedTuple):
    """One question of a check: an entry, and the number of the call to it."""

    entry: Any
    turn: int

    @property
    def name(self) -> str:
        """The name of the question for `--only`, e.g. `addmm/7`."""
        return f"{self.entry.name}/{self.turn}"


def ration(name: str, device: str) -> Outcome:
    """Check that the answer to each question agrees with float64 on the CPU.

    It catches kernels that are wrong for some length, layout, format or option.
    """
    import torch

    # In older releases some samples of torch's database are wrong, which would make a healthy
    # machine fail.
    if release(torch) < SINCE:
        return Outcome(SKIPPED, "some samples of this torch's database are wrong themselves")
    try:
        all_entries = known_to(torch, name)
    except loading.NoDatabase as problem:
        return Outcome(SKIPPED, f"torch's own database of {name} cannot be loaded: {problem}")
    answers = Answers(name, SOURCES[name].seconds[kind(device)], len(all_entries))
    with exact_products(torch):
        # The check may run out of time, or find enough faults, before the last question.
        for question in chosen(name, all_entries):
            if answers.is_over():
                break
            try:
                answers.ask(torch, device, question)
            except Exception as problem:
                if not sticky(problem):
                    raise
                return answers.ended(device, question.name, problem)
    return answers.outcome(device)


def chosen(name: str, all_entries: Dict[str, Any]) -> Iterator[EntryTurn]:
    """The questions to ask: the level's questions, or the one that the user named with `--only`.
    Raises WrongQuestion if there is no such question."""
    wanted_question = ""
    for text in asked().only:
        check, _, question_name = text.partition("/")
        # `--only` may also name a question of another check in the same run.
        if check == name:
            wanted_question = question_name
    if not wanted_question:
        return questions_of_level(name, all_entries)
    entry, _, turn = wanted_question.rpartition("/")
    # The database of another torch version has other entries.
    if entry not in all_entries or not turn.isdigit():
        hint = "as ENTRY/NUMBER, in the words of a failure's hint"
        problem = f"{wanted_question!r} names no question of {name} with this torch"
        raise WrongQuestion(problem, hint)
    return iter([EntryTurn(all_entries[entry], int(turn))])


def questions_of_level(name: str, all_entries: Dict[str, Any]) -> Iterator[EntryTurn]:
    """The questions of each entry. `standard` asks each entry once, then returns to the entries
    that programs use often."""
    source, seed = SOURCES[name], asked().seed
    entries_in_order = [all_entries[entry] for entry in in_order(name, all_entries, seed)]
    visits = {entry.name: getattr(entry, "often", 1) for entry in entries_in_order}
    if asked().level == "census":
        for entry in entries_in_order:
            for turn in range(visits[entry.name] * source.census):
                yield EntryTurn(entry, turn)
        return
    for visit in range(max(visits.values(), default=0)):
        for entry in entries_in_order:
            # Skip this entry in later rounds, because programs use it less often.
            if visit >= visits[entry.name]:
                continue
            # Each seed continues with the turn after the last one of the previous seed.
            visits_before = seed * visits[entry.name] + visit
            first_turn = visits_before * source.turns
            for turn in range(first_turn, first_turn + source.turns):
                yield EntryTurn(entry, turn)


def in_order(name: str, all_entries: Dict[str, Any], seed: int) -> List[str]:
    """The names of all entries in the order in which to test them: one share of each rarity in
    turn, common entries first."""
    # The database is ordered by subject. Shuffle it, so that a run that ends early has covered
    # every subject.
    names = sorted(all_entries)
    random.Random(name).shuffle(names)
    by_rarity: Dict[int, List[str]] = {rarity: [] for rarity in SHARES}
    for entry_name in names:
        rarity = getattr(all_entries[entry_name], "rarity", RARE)
        by_rarity[rarity].append(entry_name)
    order: List[str] = []
    for visit in range(max(SHARES.values())):
        for rarity, share_count in SHARES.items():
            # Every share of this rarity is already in the order.
            if visit >= share_count:
                continue
            share = (seed + visit) % share_count
            names_of_rarity = by_rarity[rarity]
            count = len(names_of_rarity)
            begin = share * count // share_count
            end = (share + 1) * count // share_count
            order += names_of_rarity[begin:end]
    return order


class Answers:
    """The results of the questions so far."""

    def __init__(self, check: str, seconds: float, entry_count: int = 0) -> None:
        self.check, self.seconds = check, seconds
        self.entry_count = entry_count
        """The number of entries."""
        self.entries_asked: Set[str] = set()
        self.parts: List[Part] = []
        """All wrong comparisons, and the correct one that is nearest to its limit."""
        self.wrong_count = 0
        """The number of wrong comparisons."""
        self.tried = 0
        """The number of questions that were asked and answered."""
        self.not_asked = 0
        """The number of questions that this device cannot answer."""
        self.began = time.monotonic()
        self.computed_before = time.thread_time()

    def spent(self) -> float:
        """Seconds of CPU time used or, if greater, a third of the elapsed time."""
        passed = time.monotonic() - self.began
        computed = time.thread_time() - self.computed_before
        return max(computed, passed / 3)

    def is_over(self) -> bool:
        """Whether the time is up, or enough results are wrong."""
        has_limit = asked().level != "census"
        if has_limit and self.spent() >= self.seconds:
            return True
        return seconds_left() <= 0 or self.wrong_count >= MOST_WRONG_ANSWERS

    def ask(self, torch: Any, device: str, question: EntryTurn) -> None:
        """Compare the answer to one question with the exact one. Raises errors after which the GPU
        cannot be used."""
        # If the process dies, the parent names this question.
        working_on(question.name)
        operator_question: Optional[OperatorQuestion] = None
        parts: List[Part] = []
        # If a kernel raises an error, the error counts as its answer.
        try:
            operator_question = question.entry.question(torch, device, asked().seed, question.turn)
            # The entry has no sample for this device.
            if operator_question is None:
                return
            parts = compared(torch, device, operator_question)
        except Exception as problem:
            if sticky(problem):
                raise
            if operator_question is None or has_no_answer(problem):
                self.not_asked += 1
                return
            parts = [holds("", False, first_line(problem))]
        self.tried += 1
        self.entries_asked.add(question.entry.name)
        for part in parts:
            # The label begins with the name that `--only` needs to repeat the question.
            label = f"{question.name} ({operator_question.dtype}) {part.label}"
            self._keep(part._replace(label=label.strip()))

    def _keep(self, part: Part) -> None:
        """Keep the comparison if it is wrong, or if it is nearer to its limit than every other
        correct one."""
        all_parts = [*self.parts, part]
        wrong_parts = [part for part in all_parts if not part.is_right]
        right_parts = [part for part in all_parts if part.is_right]
        self.wrong_count = len(wrong_parts)
        self.parts = wrong_parts
        if right_parts:
            nearest = max(right_parts, key=lambda part: part.worst)
            self.parts = [*wrong_parts, nearest]

    def ended(self, device: str, name: str, problem: Exception) -> Outcome:
        """The failed outcome after an error that the process cannot survive. It names the question;
        the next check gets a new process."""
        detail = f"{name} ended the process on the GPU: {first_line(problem)}"
        # If the process failed at the first question, there is nothing to count.
        if self.tried:
            detail += f" (after {self.questions()})"
        return Outcome(FAILED, detail, hint=again(self.check, device, name), spent=True)

    def questions(self) -> str:
        """How many questions were asked, in words."""
        entry_count = ""
        if self.entry_count:
            entry_count = f"{len(self.entries_asked)} of {self.entry_count} "
        words = f"{self.tried} questions to {entry_count}{self.check} with seed {asked().seed}"
        # Nothing was compared for these questions, so they are counted separately.
        if self.not_asked:
            words += f", {self.not_asked} without an answer here"
        return words

    def outcome(self, device: str) -> Outcome:
        """The outcome of all questions that were asked. Questions that were left out for lack of
        time do not count."""
        if not self.tried:
            return Outcome(SKIPPED, "this torch's database has nothing that can be asked here")
        if not self.wrong_count:
            detail = f"{self.questions()}, against float64 on the CPU"
            return judged(self.parts, "")._replace(detail=detail)
        # Put wrong comparisons first; each label begins with the question's name.
        name, *_ = self.parts[0].label.split(" ")
        outcome = judged(self.parts, "", again(self.check, device, name))
        return outcome._replace(detail=f"{outcome.detail} ({self.questions()})")


def again(check: str, device: str, name: str) -> str:
    """The hint for repeating one question."""
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
"""Parts of torch's messages about a call that it does not know."""


def has_no_answer(problem: Exception) -> bool:
    """Whether the error only says that this torch or device does not support what the question asks
    for."""
    if isinstance(problem, NotAsked):
        return True
    return refuses(problem) or not_in_this_torch(problem)


def not_in_this_torch(problem: Exception) -> bool:
    """Whether the error says that this torch lacks an operator, or lacks one of its forms.

    >>> not_in_this_torch(AttributeError("module 'torch.special' has no attribute 'airy_ai'"))
    True
    """
    if isinstance(problem, (NotImplementedError, AttributeError)):
        return True
    # torch raises one of these two errors for arguments that it does not know.
    if not isinstance(problem, (TypeError, RuntimeError)):
        return False
    message = str(problem)
    return any(words in message for words in UNKNOWN_FORM)


operators = functools.partial(ration, "operators")
optimizers = functools.partial(ration, "optimizers")
