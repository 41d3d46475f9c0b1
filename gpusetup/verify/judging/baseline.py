"""Compares a run with a kept one: what passed then must pass now, and rates hold. Reading is edge.

A rate is a value whose unit ends in `/s`. How much may be lost follows from the noise that both
runs measured of themselves.
"""

from __future__ import annotations

import json
from typing import Any, Dict, Iterator, Optional

from ..values import FAILED, HOST, PASSED, SKIPPED, Outcome, Report, Result, WrongQuestion

SCHEMA = "gpusetup.verify/1"
LEAST_LOSS = 0.05
"""A loss below this says nothing: the same GPU differs by so much with its temperature."""
LEAST_OF_COPIES = 0.1
"""The same of copies, which the NUMA node of the host's memory and the neighbours change too."""
SPREADS = 3.0
"""So many times the greater of the two spreads is noise."""


def read_baseline(path: str) -> Dict[str, Any]:
    """The kept run; WrongQuestion where the file is none."""
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except OSError as problem:
        raise WrongQuestion(f"Cannot read {path}: {problem.strerror}", MAKE_ONE) from problem
    except ValueError as problem:
        raise WrongQuestion(f"{path} is no JSON document: {problem}", MAKE_ONE) from problem
    if not isinstance(found, dict) or found.get("schema") != SCHEMA or not _whole(found):
        raise WrongQuestion(f"{path} is no {SCHEMA} document", MAKE_ONE)
    return found


MAKE_ONE = "`--save-baseline FILE` writes one"


def _whole(found: Dict[str, Any]) -> bool:
    """Whether the document has what is compared, in the right kinds."""
    rows, devices = found.get("checks"), found.get("devices")
    if not isinstance(rows, list) or not isinstance(devices, list):
        return False
    figures = ("value", "spread")
    return all(isinstance(row, dict) and "device" in row for row in devices) and all(
        isinstance(row, dict)
        and isinstance(row.get("name"), str)
        and isinstance(row.get("status"), str)
        and all(isinstance(row.get(key), (int, float, type(None))) for key in figures)
        for row in rows
    )


def compared(report: Report, kept: Dict[str, Any]) -> Report:
    """The report with one more result for every device: how it compares with the kept run."""
    devices = [row["device"] for row in report.facts["devices"]] or [HOST]
    added = tuple(_judged(device, report, kept) for device in devices)
    return report._replace(results=report.results + added)


def _judged(device: str, report: Report, kept: Dict[str, Any]) -> Result:
    other = _another(device, report, kept)
    if other is not None:
        return Result("baseline", device, Outcome(SKIPPED, other, hint=MAKE_ONE))
    then = {row["name"]: row for row in kept["checks"] if row.get("device") == device}
    now = [each for each in report.results if each.device == device and each.name in then]
    if not now:
        return Result("baseline", device, Outcome(SKIPPED, "no check in common", hint=MAKE_ONE))
    lost = [complaint for each in now for complaint in _lost(each, then[each.name])]
    worst = max((fall(each, then[each.name]) or 0.0 for each in now), default=0.0)
    if not lost:
        detail = f"{len(now)} checks are as good as in the run that was kept"
        return Result("baseline", device, Outcome(PASSED, detail))
    outcome = Outcome(FAILED, "; ".join(lost), round(worst, 4) or None, unit="lost", hint=LOOK)
    return Result("baseline", device, outcome, means=WORSE)


WORSE = "this machine does less than it did when the baseline was kept"
LOOK = "undo what changed since (driver, torch, power limit, cooling), or keep a new baseline"


def _another(device: str, report: Report, kept: Dict[str, Any]) -> Optional[str]:
    """Why the kept run says nothing about this device; None where it does."""
    if device == HOST:
        return None
    here = next(row for row in report.facts["devices"] if row["device"] == device)
    there = next((row for row in kept["devices"] if row["device"] == device), None)
    if there is None:
        return f"the kept run had no {device}"
    if there.get("name") != here["name"]:
        return f"the kept run had {there.get('name')} as {device}, here it is {here['name']}"
    return None


def _lost(result: Result, then: Dict[str, Any]) -> Iterator[str]:
    found = result.outcome
    if then["status"] == PASSED and found.status != PASSED:
        yield f"{result.name} passed, now it is {found.status}"
    down = fall(result, then)
    if down is not None and down > max(
        noise(found.spread, then.get("spread")),
        LEAST_OF_COPIES if result.name.startswith("copy") else 0.0,
    ):
        now = f"{found.value:.3g} instead of {then['value']:.3g} {found.unit}"
        yield f"{result.name} gives {now} ({down:.0%} less)"


def fall(result: Result, then: Dict[str, Any]) -> Optional[float]:
    """The part of a rate that was lost; None where the check has no rate."""
    found = result.outcome
    if not (found.unit or "").endswith("/s") or found.unit != then.get("unit"):
        return None
    if not found.value or not then.get("value"):
        return None
    return float(1 - found.value / then["value"])


def noise(*spreads: Optional[float]) -> float:
    """How much may be lost without meaning anything.

    >>> noise(0.01, None), noise(0.01, 0.1)
    (0.05, 0.30000000000000004)
    """
    return max(LEAST_LOSS, SPREADS * max(spread or 0.0 for spread in spreads))
