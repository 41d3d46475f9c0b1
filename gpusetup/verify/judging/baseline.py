"""Compares a run with a kept one: what passed then must pass now, and rates hold. Reading is edge.

A rate is a value whose unit ends in `/s`. How much may be lost follows from the noise that both
runs measured of themselves.
"""

from __future__ import annotations

import json
from typing import Iterator

from ..values import FAILED, HOST, PASSED, SKIPPED, Outcome, Report, Result, Row, WrongQuestion

SCHEMA = "gpusetup.verify/1"
LEAST_LOSS = 0.05
"""A loss below this says nothing: the same GPU differs by so much with its temperature."""
LEAST_OF_COPIES = 0.1
"""The same of copies, which the NUMA node of the host's memory and the neighbours change too."""
SPREADS = 3.0
"""So many times the greater of the two spreads is noise."""
MAKE_ONE = "`--save-baseline FILE` writes one"
WORSE = "this machine does less than it did when the baseline was kept"
LOOK = "undo what changed since (driver, torch, power limit, cooling), or keep a new baseline"


def read_baseline(path: str) -> Row:
    """The kept run; WrongQuestion where the file is none."""
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
        if isinstance(found, dict) and found.get("schema") == SCHEMA:
            return found
    except OSError as problem:
        raise WrongQuestion(f"Cannot read {path}: {problem.strerror}", MAKE_ONE) from problem
    except ValueError:
        pass
    raise WrongQuestion(f"{path} is no {SCHEMA} document", MAKE_ONE)


def compared(report: Report, kept: Row) -> Report:
    """The report with one more result for every device: how it compares with the kept run."""
    here = {row["device"]: row["name"] for row in report.facts["devices"]} or {HOST: None}
    there = {row["device"]: row.get("name") for row in kept["devices"]}
    added = []
    for device, name in here.items():
        then = {row["name"]: row for row in kept["checks"] if row.get("device") == device}
        pairs = [(r, then[r.name]) for r in report.results if r.device == device and r.name in then]
        lost = [said for result, before in pairs for said in _lost(result, before)]
        status, detail = PASSED, f"{len(pairs)} checks are as good as in the run that was kept"
        hint, means = None, None
        if (name and there.get(device) != name) or not pairs:
            status, hint, detail = SKIPPED, MAKE_ONE, "no check in common"
            if there.get(device) != name:
                detail = f"the kept run had {there.get(device)} as {device}, here it is {name}"
        elif lost:
            status, detail, hint, means = FAILED, "; ".join(lost), LOOK, WORSE
        added.append(Result("baseline", device, Outcome(status, detail, hint=hint), means=means))
    return report._replace(results=(*report.results, *added))


def _lost(result: Result, before: Row) -> Iterator[str]:
    found, down = result.outcome, fall(result.outcome, before)
    if before["status"] == PASSED and found.status != PASSED:
        yield f"{result.name} passed, now it is {found.status}"
    least = LEAST_OF_COPIES if result.name.startswith("copy") else LEAST_LOSS
    if down > max(least, SPREADS * max(found.spread or 0.0, before.get("spread") or 0.0)):
        less = f"{found.value:.3g} instead of {before['value']:.3g} {found.unit}"
        yield f"{result.name} gives {less} ({down:.0%} less)"


def fall(found: Outcome, before: Row) -> float:
    """The part of a rate that was lost; 0 where the check has no rate."""
    is_rate = (found.unit or "").endswith("/s") and found.unit == before.get("unit")
    if not (is_rate and found.value and before.get("value")):
        return 0.0
    return float(1 - found.value / before["value"])
