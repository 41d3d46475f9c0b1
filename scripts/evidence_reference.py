"""docs/explanation/evidence.md: what was ever run on a card, from tests/recorded_runs/."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from acceptance.claims import ALL, Known
from acceptance.evidence import ELSEWHERE, OPEN, Claim, Evidence, read

ROOT = Path(__file__).resolve().parent.parent
RUNS = ROOT / "tests" / "recorded_runs"


def page(folder: Path = RUNS) -> str:
    runs = sorted(map(read, folder.glob("*")), key=lambda run: run.date)
    for run in runs:
        if run.stand_in or not run.card:
            raise ValueError(f"the run of {run.date} was made without a card: it is no evidence")
    rows = "".join(map(figures, runs)) or "| none | | | | | | |\n"
    last = {claim.id: claim.verdict for run in runs for claim in decided(run)}
    text = (ROOT / "scripts" / "evidence.md").read_text(encoding="utf-8")
    return text.format(figures=rows, claims="".join(line(known, last) for known in ALL))


def decided(run: Evidence) -> Iterator[Claim]:
    every = (claim for part in run.parts for claim in part.claims)
    return (claim for claim in every if claim.verdict not in (OPEN, ELSEWHERE))


def figures(run: Evidence) -> str:
    where = (run.card, run.driver, run.torch, run.date)
    told = ((*where, claim.text, claim.verdict, claim.figure) for claim in decided(run))
    return "".join(f"| {' | '.join(map(cell, row))} |\n" for row in told)


def line(known: Known, last: dict[str, str]) -> str:
    without = f"elsewhere: {known.needs}" if known.needs else "not yet"
    source = known.source
    if source.endswith(".md"):
        source = f"[{Path(source).name}]({os.path.relpath(source, 'docs/explanation')})"
    return f"| {cell(known.text)} | {source} | {known.part} | {last.get(known.id, without)} |\n"


def cell(text: str | None) -> str:
    """A stranger's text in a table of Markdown."""
    found = " ".join((text or "").split())
    for sign, instead in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("|", "\\|"), ("[", "\\[")):
        found = found.replace(sign, instead)
    return found
