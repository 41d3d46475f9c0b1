"""The plain values of the acceptance: what a part says, and what is written about it."""

from __future__ import annotations

from typing import Any, NamedTuple

HOLDS, FAILS, OPEN = "holds", "fails", "open"
STAND_IN = "stand-in"
"""What a verdict becomes without a card: the question was run, the answer says nothing."""
ELSEWHERE = "elsewhere"
"""Another machine than this one decides it."""
LATE = 75
"""The exit code of a part that saw its time end."""
DONE, KILLED, CRASHED = "done", "killed at its limit", "crashed"
FAILED, STOPPED, NOT_BEGUN = "commands failed", "interrupted", "not begun"


class Part(NamedTuple):
    """One part of the acceptance; `module` has `run(work)`."""

    name: str
    seconds: float
    """Its limit in a run of the usual length."""
    least: float
    """With less time it is not begun: it would say nothing."""
    what: str
    extra: bool = False
    """Runs by its name only, or where the minutes leave room."""

    @property
    def module(self) -> str:
        return f"acceptance.{self.name.replace('-', '_')}"


PARTS = (
    Part("readings", 25, 15, "probe, doctor, snapshot and resolve, beside nvidia-smi and torch"),
    Part("node-check", 10, 6, "the health of the node"),
    Part("verify", 125, 25, "verify: quick, standard, and stress under load"),
    Part("clean", 90, 15, "standard's numeric checks with other seeds: no failure, and how near"),
    Part("mutants", 30, 12, "a card that computes wrongly, or is shared: caught or not"),
    Part("plan", 45, 20, "plan beside what eight trainings allocate"),
    Part("tune", 55, 20, "tune --batch-size beside bisection; out of memory survived"),
    Part("monitor", 85, 25, "monitor on eight workloads of known kind"),
    Part("suspicions", 150, 60, "what reading the code made doubtful, tried", extra=True),
)


class Claim(NamedTuple):
    """One sentence that a card can confirm or refute, and what was found."""

    id: str
    text: str
    verdict: str
    figure: str = ""
    source: str = ""
    """The page that says it, or the number of the doubt."""


class Result(NamedTuple):
    """What became of a part."""

    name: str
    ok: bool
    status: str
    seconds: float
    limit_seconds: float
    claims: tuple[Claim, ...] = ()
    tables: dict[str, list[dict[str, Any]]] = {}
    problem: str = ""

    @property
    def ran(self) -> bool:
        """Whether it says more than an earlier call's result."""
        return self.status not in (STOPPED, NOT_BEGUN)

    def plain(self) -> dict[str, Any]:
        return {**self._asdict(), "claims": [claim._asdict() for claim in self.claims]}
