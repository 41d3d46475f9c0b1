"""The record of a cause: all that is known about it, and what is said when it is found.

A record is complete when its file is loaded: an id that appears twice, or an error without a place
in the order, fails there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

from gpusetup.causes.layers import PLACES, Layer
from gpusetup.evidence.facts import Fact
from gpusetup.messages.row import MessageRow, row
from gpusetup.model.finding import (
    Evidence,
    Finding,
    Fix,
    Severity,
    Stage,
    sentence,
    unique_evidence,
)
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.shell import Lines

RECORDS: dict[str, Cause] = {}
"""Every record of the files that are loaded, by its id."""

UNORDERED = max(Layer) + 1
"""The place of what is never a root: after every layer."""


Words = tuple[str, ...]
Question = Callable[[Any], bool]
"""A question about a machine: it is given the rules' context."""


class Message(Frozen):
    """The sentences about a cause, or about one case of it, and the fix."""

    title: str = ""
    """May name values of the event (`{library} is not here`), and `torch`, `driver`, `gpus` of the
    machine."""
    plain: str = ""
    """The title if the event lacks such a value."""
    means: str = ""
    """Why it happens and what it does, in a sentence or two."""
    text: str = ""
    """What to do."""
    commands: Words | Callable[[Any], Lines] = ()
    """The way, in order, or what makes it for a machine. `pip`, `python`, `gpusetup install`, `export` and `unset` are written for
    the target and its shell; `{name}` is a value of the event."""
    windows: Words | None = None
    """The commands on Windows, where they differ."""
    then: Words = ()
    """What follows the commands on every system."""
    look: Words = ()
    """What shows more and changes nothing."""
    needs_root: bool = False
    needs_reboot: bool = False
    way: Callable[[Any, str], Fix] | None = None
    """Makes the whole fix, if its text too depends on the machine."""
    only: Severity | None = None
    """How grave it is, if not as the record says."""
    where: tuple[Question, ...] = ()
    """What must hold for a finding; a case is met if all these hold."""
    having: Mapping[str, str] = {}
    """A case is met if an event has these values: each pattern is found in its value."""
    cases: tuple[Message, ...] = ()
    """The first that is met is said instead; the texts that it lacks are those of the message."""


class Likelier(Frozen):
    """A cause that the text makes more likely as the reason behind a symptom."""

    cause: str
    shown: Question
    because: str
    """What makes it likely; it follows the symptom's own words."""
    text: str = ""
    """What to do, where the symptom's own way out is of another cause,"""
    way: Callable[[Any], Fix] | None = None
    """or what makes that for this machine."""


class Refutation(Frozen, kw_only=False):
    """A fact that rules a cause out, and the cause that remains."""

    fact: Fact
    """What was read, in a sentence; "" where it does not hold."""
    then: str = ""
    """The id of the cause that the same message means then; "": the text does not say which."""
    asks: str = ""
    """The command whose output tells more then."""


class CheckCommand(Frozen, kw_only=False):
    """A command that shows a person whether a cause is theirs."""

    command: str
    """Pastes as it stands, changes nothing, and needs no gpusetup."""
    prints: str
    """What it prints if the cause is theirs, for an example machine."""


class Cause(Message, kw_only=False):
    """One cause: its place in the order, what is said of it, and what `doctor --explain` says."""

    id: str
    proven_by: str = ""
    """The evidence in a snapshot that makes the finding; "": a program's message says it."""
    severity: Severity = Severity.ERROR
    """The gravest that it is found with."""
    not_when: str = ""
    """What looks alike and is another finding, or none."""
    check: CheckCommand | None = None
    """How a person sees that it is theirs; None: `gpusetup doctor` shows it."""
    no_command: str = ""
    """Why no command fixes it, as the end of a sentence: its page says so."""
    explains: Words = ()
    """The findings that are its consequences where both are there, beside those of its layer."""
    events: Words = ()
    """The kinds of event that it is found from; none: the one that has the cause's name."""
    codes: tuple[int, ...] = ()
    """CUDA's own codes that say the same."""
    but: Mapping[str, str] = {}
    """An event with such a value does not count: it is another cause's."""
    by_check: bool = False
    """Whether a check decides it, and no message alone."""
    says: tuple[str | MessageRow, ...] = ()
    """The messages of programs that say it, as patterns; each becomes an event of the cause's name."""
    examples: Words = ()
    """Texts that show it and nothing else: one for each message that is more than letters."""
    not_examples: Words = ()
    """Texts that come near its messages, and show nothing."""
    alike: Mapping[str, Words] = {}
    """The command whose answer decides -> what a text may mean as well: the first that is open
    counts."""
    likelier: tuple[Likelier, ...] = ()
    """Of a symptom: the first that is shown is its cause."""
    certain_if: Question | None = None
    """How a text proves it by itself (`evidence.proofs`); None: in a text it is at most likely."""
    refuted_by: tuple[Refutation, ...] = ()
    """What rules it out: it is never given where one of these facts was read."""
    stage: Stage | None = None
    """At what a program fails by it, if that is not its layer's stage."""
    failure: int = 0
    """If no error is found, the failure of the program is the answer: the one with the lowest rank
    of those above 0."""
    symptom: bool = False
    """It says what was seen, and not why: a text that shows no more has another cause, or none."""
    beside_torch: str = ""
    """The fix for a program that does not use torch, if the program's usual fix does not help."""
    lacks: Literal["", "gpu", "driver"] = ""
    """What is missing: a GPU, or a newer driver. On a rented machine or in a cluster, its user
    cannot add it."""
    before_torch: tuple[Severity, ...] = ()
    """With one of these severities, it is fixed before torch is changed, whatever its layer."""
    impossible: tuple[Question, ...] = ()
    """Conditions under which it cannot be the cause, even if a message looks like it."""
    kind_of: str = ""
    """The more general cause that `cause` names for a text; this record is a case of it."""

    def __post_init__(self) -> None:
        if self.severity is Severity.ERROR and self.place is None:
            raise ValueError(f"the error {self.id} has no place in the order")
        if RECORDS.setdefault(self.id, self) != self:
            raise ValueError(f"two records have the id {self.id}")

    @property
    def name(self) -> str:
        """Its title when nothing is known about the machine."""
        return self.plain or self.title

    @property
    def place(self) -> tuple[Layer, int] | None:
        """Its layer and its rank in that layer; None for a cause that is never the root."""
        return PLACES.get(self.id)

    @property
    def kinds(self) -> Words:
        """The kinds of events from which it is found."""
        return self.events or (self.id,)

    @property
    def rows(self) -> Iterator[MessageRow]:
        """Its messages, each under the id of the cause."""
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
