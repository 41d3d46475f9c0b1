"""The record of a cause: all that is known of it, beside the rule that finds it.

A record is complete when its file is loaded: an id that appears twice, or an error without a place
in the order, fails there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from gpusetup.causes.layers import Layer
from gpusetup.evidence.wording import once, sentence
from gpusetup.messages.row import Row
from gpusetup.model.failing import Stage
from gpusetup.model.finding import Evidence, Finding, Fix, Severity
from gpusetup.model.frozen import Frozen, replace

RECORDS: dict[str, Cause] = {}
"""Every record of the files that are loaded, by its id."""

UNORDERED = max(Layer) + 1
"""The place of what is never a root: after every layer."""


Words = tuple[str, ...]
Question = Callable[[Any], bool]
"""A question about a machine: it is given the rules' context."""


class Message(Frozen):
    """What is found if a program said one of the record's events, and what to do then."""

    title: str = ""
    """May name values of the event (`{library} is not here`), and `torch`, `driver`, `gpus` of the
    machine."""
    plain: str = ""
    """The title if the event lacks such a value."""
    text: str = ""
    """What to do."""
    detail: str = ""
    commands: Words = ()
    """The way, in order. `pip`, `python`, `gpusetup install`, `export` and `unset` are written for
    the target and its shell; `{name}` is a value of the event."""
    windows: Words | None = None
    """The commands on Windows, where they differ."""
    then: Words = ()
    """What follows the commands on every system."""
    look: Words = ()
    """What shows more and changes nothing."""
    see: str = "see first what there is"
    """What `look` is for: it follows the word "or"."""
    other: Words = ()
    """Another way, and what it does: it follows the word "or"."""
    other_title: str = ""
    needs_root: bool = False
    needs_reboot: bool = False
    way: Callable[[Any, str], Fix] | None = None
    """Makes the fix of the text, if its commands depend on the machine as a whole."""
    severity: Severity | None = None
    """Of this finding, if it is not the record's."""
    where: tuple[Question, ...] = ()
    """A case is met if all these hold."""
    having: Mapping[str, str] = {}
    """A case is met if an event has these values: each pattern is found in its value."""
    cases: tuple[Message, ...] = ()
    """The first that is met is said instead; the texts that it lacks are those of the message."""


class Alike(Frozen):
    """What a message of a cause may mean as well, and the command whose answer decides."""

    causes: Words
    asks: str
    settled_by: tuple[
        Literal["gpus", "driver", "torch", "kernels", "python", "bus", "program"], ...
    ] = ()
    """What a text may show that tells them apart already; `program`: a program says it, and not a
    person alone."""


class Likelier(Frozen):
    """A cause that a text makes likelier behind a symptom."""

    cause: str
    shown: Question
    because: str
    """What makes it likely; it follows the symptom's own words."""
    text: str = ""
    """What to do, where the symptom's own way out is of another cause,"""
    way: Callable[[Any], Fix] | None = None
    """or what makes that for this machine."""


class Cause(Frozen):
    """One cause: where it stands in the order, and what `doctor --explain` says of it."""

    id: str
    severity: Severity = Severity.ERROR
    """The gravest that it is found with."""
    place: tuple[Layer, int] | None = None
    """Its layer, and its rank there: of two causes of a layer the one of the smaller rank is the
    root, of equal ones the first by id. None for what is never a root."""
    title: str
    means: str
    """Why it happens and what it does, in a sentence or two."""
    proven_by: str
    """The evidence in a snapshot that makes the finding."""
    not_when: str = ""
    """What looks alike and is another finding, or none."""
    way_out: str
    source: str
    """Where it is known from."""
    explains: Words = ()
    """The findings that are its consequences where both are there, beside those of its layer."""
    events: Words = ()
    """The kinds of event that `message` is found from; none: the one that has the cause's name."""
    codes: tuple[int, ...] = ()
    """CUDA's own codes that say the same."""
    but: Mapping[str, str] = {}
    """An event with such a value does not count: it is another cause's."""
    holds: tuple[Question, ...] = ()
    """What must hold for `message` to be a finding."""
    message: Message | None = None
    """For a cause that one message of a program decides."""
    by_check: bool = False
    """Whether a check decides it, with the message's words."""
    says: tuple[Row, ...] = ()
    """The messages of programs that say it; each becomes an event of the cause's name."""
    examples: Words = ()
    """Texts that show it and nothing else, one for each of its messages."""
    not_examples: Words = ()
    """Texts that come near its messages, and show nothing."""
    alike: tuple[Alike, ...] = ()
    """What looks alike in a text: the first that is open counts."""
    likelier: tuple[Likelier, ...] = ()
    """Of a symptom: the first that is shown is its cause."""
    stage: Stage | None = None
    """At what a program fails by it, if that is not its layer's stage."""
    failure: int = 0
    """Of what a program failed at: its rank among what is the answer where no error is found."""
    symptom: bool = False
    """It says what was seen, and not why: a text that shows no more has another cause, or none."""
    beside_torch: str = ""
    """The way out for a program that does not stand on torch, if its own is not enough."""
    lacks: Literal["", "gpu", "driver"] = ""
    """What a lent machine was not given, or is not changed in: a GPU, a newer driver."""
    before_torch: tuple[Severity, ...] = ()
    """As grave as this it is mended before torch is changed, whatever its layer."""
    impossible: tuple[Question, ...] = ()
    """Where it cannot be, whatever a message leaves open."""
    kind_of: str = ""
    """The shared cause of which this is a case: in a text the answer's `cause` is that one."""

    def __post_init__(self) -> None:
        if self.severity is Severity.ERROR and self.place is None:
            raise ValueError(f"the error {self.id} has no place in the order")
        if RECORDS.setdefault(self.id, self) != self:
            raise ValueError(f"two records have the id {self.id}")

    @property
    def kinds(self) -> Words:
        """The kinds of event that `message` is found from."""
        return self.events or (self.id,)

    @property
    def rows(self) -> tuple[Row, ...]:
        """Its messages, of its name."""
        return tuple(replace(one, kind=self.id) for one in self.says)

    @property
    def order(self) -> tuple[int, int, str]:
        """What findings are sorted by: layer, rank, id."""
        return (*(self.place or (UNORDERED, 0)), self.id)

    def found(
        self,
        title: str,
        *,
        detail: str = "",
        evidence: tuple[Evidence, ...] = (),
        fix: Fix | None = None,
    ) -> Finding:
        """The finding, as grave as its record says."""
        return Finding(
            id=self.id,
            severity=self.severity,
            title=sentence(title),
            detail=detail,
            evidence=once(evidence),
            fix=fix,
        )

    def as_note(self, title: str, **more: Any) -> Finding:
        """The finding where it is only worth knowing."""
        return replace(self.found(title, **more), severity=Severity.NOTE)
