"""What several ranks found, as one report."""

from __future__ import annotations

from typing import Any, Dict

from ..values import CRASHED, FAILED, Outcome, Report, Result
from .gathering import Heard, who
from .launch import Rank


def as_message(report: Report) -> Dict[str, Any]:
    """A rank's report for rank 0."""
    rows = [(r.name, r.device, r.outcome._asdict(), r.seconds, r.means) for r in report.results]
    return {"facts": report.facts, "results": rows}


def merged(report: Report, others: Dict[int, Heard], rank: Rank) -> Report:
    """Rank 0's report with what the others found: their devices, and what went wrong there.

    What all ranks found together stands once; a rank without a report is a crash of its own.
    """
    place = f"{rank.world} ranks"
    devices = [{**row, "device": f"rank 0 {row['device']}"} for row in report.facts["devices"]]
    results = [r if r.device == place else _at(0, r) for r in report.results]
    for number, known in sorted(others.items()):
        if known.report is None:
            outcome = Outcome(CRASHED, who(number, known), hint="look at that rank's own output")
            results.append(Result("rank", f"rank {number}", outcome))
            continue
        rows = known.report["facts"]["devices"]
        devices += [{**row, "device": f"rank {number} {row['device']}"} for row in rows]
        for name, device, found, seconds, means in known.report["results"]:
            theirs = Result(name, device, Outcome(**found), seconds, means)
            if device != place or theirs.outcome.status in (FAILED, CRASHED):
                results.append(_at(number, theirs))
    return report._replace(facts={**report.facts, "devices": devices}, results=tuple(results))


def _at(number: int, result: Result) -> Result:
    return result._replace(device=f"rank {number} {result.device}")
