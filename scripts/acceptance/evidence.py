"""What is kept of a run: evidence.json and, of each part, what its commands printed; redacted."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec

from acceptance.claims import Known, of_part
from gpusetup.redaction import redact_document

FILE = "evidence.json"
HOLDS, FAILS, OPEN = "holds", "fails", "open"
NO_ANSWER = "no answer"
"""A command failed by itself, so that nothing was measured: a defect on any machine."""
STAND_IN = "stand-in"
"""What a verdict becomes without a card, if only a card decides it: the question was run, the
answer says nothing."""
ELSEWHERE = "elsewhere"
"""Another machine than this one decides it."""
SAME = ("device", "card", "driver", "torch", "commit")
SIGNS = str.maketrans({"&": "&amp;", "<": "&lt;", "|": "\\|", "[": "\\["})
"""Of a stranger's text in a table of Markdown."""
Answers = list[dict[str, Any]]


class Refused(Exception):
    """The folder holds what this run would spoil."""


class Claim(msgspec.Struct):
    """One sentence that a card can confirm or refute, and what was found."""

    id: str
    text: str
    verdict: str
    figure: str = ""


class Result(msgspec.Struct):
    """What became of a part."""

    name: str
    ok: bool
    status: str
    seconds: float
    claims: list[Claim] = []
    tables: dict[str, Answers] = {}


class Evidence(msgspec.Struct):
    """A run: the machine and its parts."""

    date: str
    device: str
    card: str | None
    driver: str | None
    torch: str | None
    cuda: str | None
    python: str
    gpusetup: str
    commit: str | None
    stand_in: bool
    schema: Literal["gpusetup.acceptance/1"] = "gpusetup.acceptance/1"
    parts: list[Result] = []

    def add(self, result: Result) -> None:
        """A part that ran takes the place of what an earlier call left of it."""
        self.parts = [part for part in self.parts if part.name != result.name] + [result]


def read(folder: Path) -> Evidence:
    return msgspec.json.decode((folder / FILE).read_bytes(), type=Evidence)


def begun(folder: Path, now: Evidence) -> Evidence:
    """What the folder holds and this run goes on with; OSError if it cannot be written."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / FILE).exists():
        write(folder, now)
    try:
        there = read(folder)
    except msgspec.MsgspecError as problem:
        raise Refused(f"{FILE} is damaged or not ours: {problem}") from problem
    for name in SAME:
        before, is_now = getattr(there, name), redact_document(getattr(now, name))
        if before != is_now:
            told = f"{name} {before} (now {is_now})"
            raise Refused(f"it holds the evidence of another machine or code: {told}")
    return there


def write(folder: Path, evidence: Evidence) -> None:
    """The whole file takes the place of the previous one."""
    plain = redact_document(msgspec.to_builtins(evidence))
    half = folder / f"{FILE}.half"
    half.write_bytes(msgspec.json.format(msgspec.json.encode(plain), indent=1) + b"\n")
    half.replace(folder / FILE)
    where = f"| {evidence.card} | {evidence.driver} | {evidence.torch} | {evidence.date} |"
    rows = [
        f"{where} {claim.text} | {claim.verdict} | {claim.figure.translate(SIGNS)} |\n"
        for part in evidence.parts
        for claim in part.claims
        if claim.verdict in (HOLDS, FAILS)
    ]
    (folder / "evidence.md").write_text(redact_document("".join(rows)))


def claims_of(part: str, answers: Answers, device: str) -> list[Claim]:
    """A line for each claim of a part, whether or not the run came to it."""
    return [
        claim(known, [answer for answer in answers if answer["claim"] == known.id], device)
        for known in of_part(part)
    ]


def claim(known: Known, answers: Answers, device: str) -> Claim:
    """What all tests of a claim found together."""
    verdict, figure = OPEN, "the run did not come to it"
    if known.needs:
        verdict, figure = ELSEWHERE, f"needs {known.needs}"
    elif answers:
        figure = "; ".join(dict.fromkeys(answer["figure"] for answer in answers))[:600]
        verdicts = {answer["verdict"] for answer in answers}
        is_whole = len(answers) == answers[0]["tests"] and OPEN not in verdicts
        if NO_ANSWER in verdicts or (FAILS in verdicts and (device != "cpu" or known.anywhere)):
            verdict = FAILS
        elif FAILS in verdicts or (is_whole and device == "cpu"):
            verdict = STAND_IN
        elif is_whole:
            verdict = HOLDS
    return Claim(known.id, known.text, verdict, figure)
