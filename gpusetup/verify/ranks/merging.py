"""What several ranks found, as one report."""

from __future__ import annotations

from typing import Any, Dict, List

from ..values import CRASHED, FAILED, Outcome, Report, Result
from .gathering import Heard, who
from .launch import Rank


def as_message(report: Report) -> Dict[str, Any]:
    """A rank's report for rank 0."""
    rows = [(*each[:2], each.outcome._asdict(), *each[3:]) for each in report.results]
    return {"facts": report.facts, "results": rows}


def merged(report: Report, others: Dict[int, Heard], rank: Rank) -> Report:
    """Rank 0's report with what the others found: their devices, and what went wrong there.

    What all ranks found together stands once; a rank without a report is a crash of its own.
    """
    devices: List[Dict[str, Any]] = []
    results: List[Result] = []
    for number in range(rank.world):
        said = others[number].report if number else as_message(report)
        if said is None:
            told = Outcome(CRASHED, who(number, others[number]), hint="look at its own output")
            results.append(Result("rank", f"rank {number}", told))
            continue
        rows = said["facts"]["devices"]
        devices += [{**row, "device": f"rank {number} {row['device']}"} for row in rows]
        for name, device, found, *rest in said["results"]:
            shared, outcome = device == f"{rank.world} ranks", Outcome(**found)
            if not shared or outcome.status in (FAILED, CRASHED) or not number:
                place = device if shared and not number else f"rank {number} {device}"
                results.append(Result(name, place, outcome, *rest))
    return report._replace(facts={**report.facts, "devices": devices}, results=tuple(results))
