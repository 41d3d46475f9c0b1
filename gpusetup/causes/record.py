"""The record of a cause: everything that is known about it, and the texts that doctor prints when
it finds the cause.

Loading a file checks its records: an id that appears twice, or an error without a place in the
order, raises ValueError.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

from gpusetup.causes.layers import PLACES, Layer
from gpusetup.evidence.facts import Fact
from gpusetup.messages.row import MessageRow, row
from gpusetup.model.finding import Evidence, Finding, Fix, Severity, sentence, unique_evidence
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.shell import Lines

RECORDS: dict[str, Cause] = {}
"""The id of a cause -> its record, for all files that have been imported."""

UNORDERED = max(Layer) + 1
"""The place of causes that are never the root cause: after every layer."""

ADDED = re.compile(r" \([^(){}]*\{[^()]*\)|: [^:{}]*\{.*$| in \{\w+\}$")
"""The part of a title that only adds a value to it: ` (error {code})`, `: {problem}`, ` in
{python}`."""
VALUE = re.compile(r"\{(\w+)(?::[.\d]+)?\}")
"""A placeholder for an event's value in a title."""
STANDS_FOR = {
    **dict.fromkeys(("who", "gpu", "gpus", "node"), "the GPU"),
    **dict.fromkeys(("package", "name", "asked"), "a package"),
    "library": "a library", "module": "an extension", "program": "a program",
    "symbol": "a function", "tool": "a tool",
    "host": "the package index", "prefix": "this environment",
}  # fmt: skip
"""A placeholder -> the words that stand for its value if the event lacks it."""

Words = tuple[str, ...]
Question = Callable[[Any], bool]
"""A function that takes the rules' context and answers a yes-or-no question about the machine."""


class Message(Frozen):
    """The texts and the fix for a cause, or for a special case of the cause."""

    title: str = ""
    """The title. It may contain placeholders for values of the event (`{library} is missing`) and
    for the machine's `torch`, `driver` and `gpus`."""
    plain: str = ""
    """The title to use if the event lacks a value that the title needs; "" if the title without
    the values says the same."""
    means: str = ""
    """Why the problem happens and what it does, in a sentence or two."""
    text: str = ""
    """What to do."""
    commands: Words | Callable[[Any], Lines] = ()
    """The commands of the fix in order, or a function that returns them for a machine. `pip`,
    `python`, `gpusetup install`, `export` and `unset` are written for the target and its shell;
    `{name}` is replaced by the event's value."""
    look: Words = ()
    """Commands that show more and change nothing."""
    needs_root: bool = False
    needs_reboot: bool = False
    fix_for: Callable[[Any, str], Fix] | None = None
    """A function of the context and of `text` that returns the whole fix, for fixes whose text also
    depends on the machine."""
    only: Severity | None = None
    """The severity, if it differs from the severity of the cause's record."""
    where: tuple[Question, ...] = ()
    """Conditions that must all hold before the finding is made, or before the case applies."""
    having: Mapping[str, str] = {}
    """Names of values -> patterns. The case applies if an event's values match all of them."""
    cases: tuple[Message, ...] = ()
    """Special cases, of which the first one that applies replaces this message. What a case leaves
    empty (a title, a meaning, a text with its commands) comes from this message."""

    @property
    def name(self) -> str:
        """The title for a machine about which nothing is known: `The GPU has fallen off the PCI
        bus` for `{who} has fallen off the PCI bus`."""
        if self.plain:
            return self.plain
        title = ADDED.sub("", self.title)
        words = VALUE.sub(lambda value: STANDS_FOR.get(value[1], f"the {value[1]}"), title)
        # Names of programs and variables (`nvcc`, `torch`) keep their small letter.
        begins_with_article = words.startswith(("a ", "an ", "the "))
        return words[0].upper() + words[1:] if begins_with_article else words


class Refutation(Frozen, kw_only=False):
    """A fact that rules a cause out, and the cause that remains."""

    fact: Fact
    """A function that returns the fact in a sentence, or "" if the fact does not hold."""
    then: str = ""
    """The id of the cause that the message means instead; "" if the text does not show which one.
    """
    asks: str = ""
    """The command whose output helps to find the cause that remains."""


class CheckCommand(Frozen, kw_only=False):
    """A command with which people can check whether a cause is the one on their machine."""

    command: str
    """The command: it runs as it is, changes nothing, and does not need gpusetup."""
    prints: str
    """What the command prints on an example machine with this cause."""


class Cause(Message, kw_only=False):
    """One cause: how it is recognized, where it comes in the order of causes, and what doctor
    prints about it."""

    id: str
    formerly: Words = ()
    """Older ids, which `doctor --explain` still knows."""
    severity: Severity = Severity.ERROR
    """The highest severity that the finding can have."""
    by_check: bool = False
    """Whether the cause's messages alone do not show it: a function of `findings` decides. A record
    without messages needs no mark."""
    check: CheckCommand | None = None
    """How to check for the cause without gpusetup; None if only `gpusetup doctor` shows it."""
    explains: Words = ()
    """The findings that are consequences of this cause if both are found, in addition to those of
    its layer."""
    events: Words = ()
    """The kinds of events that show the cause; if empty, the kind with the same name as the cause.
    """
    codes: tuple[int, ...] = ()
    """CUDA's error codes for this cause."""
    but: Mapping[str, str] = {}
    """Names of values -> patterns. Events that match belong to another cause and do not count."""
    says: tuple[str | MessageRow, ...] = ()
    """The messages that show the cause: a row each, with its pattern and an example. A plain
    pattern is its own example. Each match becomes an event with the cause's name."""
    asks: Words = ()
    """Commands whose output tells this cause from others with the same message (see `evidence.checks`).
    doctor suggests the first one whose output is not in the text."""
    certain_if: Callable[[Any], object] | None = None
    """The condition under which a text alone proves the cause (see `evidence.proofs`); None if a
    text can only make it likely."""
    refuted_by: tuple[Refutation, ...] = ()
    """Facts that rule the cause out: if one of them holds, the finding is removed."""
    failure: int = 0
    """The rank among the failures of programs, which are the answer if no error is found: the
    lowest rank above 0 comes first. 0 means that this is not such a failure."""
    symptom: bool = False
    """Whether the finding only shows what happened and not why, so the real cause is a different
    one."""
    lacks: Literal["", "gpu", "driver"] = ""
    """What the machine lacks: a GPU, or a newer driver. The user of a rented machine or a cluster
    cannot add either."""
    before_torch: tuple[Severity, ...] = ()
    """Severities with which this finding must be fixed before torch is changed, whatever its layer
    is."""

    def __post_init__(self) -> None:
        if self.severity is Severity.ERROR and self.place is None:
            raise ValueError(f"the error {self.id} has no place in the order")
        if RECORDS.setdefault(self.id, self) != self:
            raise ValueError(f"two records have the id {self.id}")

    @property
    def place(self) -> tuple[Layer, int] | None:
        """The cause's layer and its rank in that layer; None for a cause that is never the root
        cause."""
        return PLACES.get(self.id)

    @property
    def layer(self) -> Layer | None:
        """The cause's layer; None for a cause that is never the root cause."""
        return self.place[0] if self.place else None

    @property
    def kinds(self) -> Words:
        """The kinds of events that show this cause."""
        return self.events or (self.id,)

    @property
    def rows(self) -> Iterator[MessageRow]:
        """The message rows of this cause, each with the cause's id as its kind."""
        for message in self.says:
            if isinstance(message, str):
                yield row(self.id, message)
            else:
                yield replace(message, kind=self.id)

    @property
    def order(self) -> tuple[int, int, str]:
        """The key by which findings are sorted: layer, rank, id."""
        layer, rank = self.place or (UNORDERED, 0)
        return (layer, rank, self.id)

    def found(
        self,
        title: str,
        *,
        detail: str = "",
        evidence: tuple[Evidence, ...] = (),
        fix: Fix | None = None,
    ) -> Finding:
        """The finding of this cause, with the severity of its record."""
        return Finding(
            id=self.id,
            severity=self.severity,
            title=sentence(title),
            detail=detail or self.means,
            evidence=unique_evidence(evidence),
            fix=fix,
        )
