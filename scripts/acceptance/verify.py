"""verify at its three levels; each check's value becomes a row, and decides what it can."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from acceptance.claims import of_part
from acceptance.work import Said, Work

STRESS_SECONDS = 60
LEAST_STRESS = 20
"""What standard leaves of the part's time, where it would take all."""
LATE = "timeout"
"""The row of verify that says that checks were left out."""
NEAR = 0.15
"""By which part two measurements of one rate may differ."""
STANDARD_SECONDS = 120


def run(work: Work) -> None:
    _imports(work)
    found: dict[str, Mapping[str, Any]] = {}
    for level in ("quick",) if work.short else ("quick", "standard", "stress"):
        found |= _level(work, level)
        _decided(work, found)
        _rates(work, found)


def _imports(work: Work) -> None:
    """Importing torch, and one tensor on the card: what quick is measured by."""
    code = f"import torch; torch.ones(1, device={work.device!r}).sum().item()"
    said = work.program((sys.executable, "-c", code), limit=60)
    work.row("commands", command="import torch", exit=said.exit,
             first_seconds=round(said.seconds, 2))  # fmt: skip
    work.options["import_seconds"] = said.seconds


def words(work: Work, level: str) -> tuple[str, ...]:
    """What the level needs beside its load is what quick took, and as much again for a bad day."""
    start = 2 * float(work.options.get("quick_seconds", 0.0)) + 5
    lasting: tuple[str, ...] = ("--timeout", f"{max(1.0, work.left(5)):.0f}")
    if level == "standard" and work.left(start) > 2 * LEAST_STRESS:
        lasting = ("--timeout", f"{work.left(start + LEAST_STRESS):.0f}")
    if level == "stress":
        lasting += ("--seconds", str(max(5, min(STRESS_SECONDS, int(work.left(start))))))
    return ("verify", "--level", level, "--device", work.device, "--json", "-v", *lasting)


def _level(work: Work, level: str) -> dict[str, Mapping[str, Any]]:
    asked = words(work, level)
    said = work.gpusetup(*asked, name=f"verify-{level}")
    ends = float(asked[asked.index("--timeout") + 1])
    rows = said.document.get("checks", [])
    for row in rows:
        work.row("checks", level=level, **{key: row.get(key) for key in KEPT}, part=share(row))
    cut = [row["name"] for row in rows if said.seconds >= ends - 1 and unanswered(row)]
    bad = [row["name"] for row in rows if row["status"] in ("failed", "crashed")]
    told = f"{len(rows)} checks in {said.seconds:.1f} s, bad: {', '.join(bad) or 'none'}"
    unknown = said.exit is None or not rows or (bool(bad) and not {*bad} - {LATE, *cut})
    work.claim(
        f"verify-{level}", "open" if unknown else said.exit == 0, told if rows else said.problem
    )
    work.options[f"{level}_seconds"] = said.seconds
    if not unknown:
        _lasted(work, level, said)
    return {row["name"]: row for row in rows if row["name"] not in cut}


def unanswered(row: Mapping[str, Any]) -> bool:
    """A check that was ended; at the end of the whole run for lack of time, not for a hang.

    >>> unanswered({"status": "crashed", "detail": "no answer in 7.02 s; the process was ended"})
    True
    """
    return row["status"] == "crashed" and "no answer in" in row["detail"]


KEPT = ("name", "device", "status", "detail", "value", "limit", "unit", "seconds")


def share(row: Mapping[str, Any]) -> float | None:
    """How much of its limit a value takes; of a rate with a floor, the floor's part of it.

    >>> share({"value": 1.0, "limit": 4.0, "unit": "of the error allowed"})
    0.25
    >>> share({"value": 800.0, "limit": 400.0, "unit": "TFLOP/s"})
    0.5
    """
    value, limit = row.get("value"), row.get("limit")
    if value is None or not limit or not value:
        return None
    rate = str(row.get("unit") or "").endswith("/s")
    return round(float(limit / value if rate else value / limit), 4)


def _lasted(work: Work, level: str, said: Said) -> None:
    if level == "quick":
        alone = work.options["import_seconds"]
        told = f"{said.seconds:.1f} s, import and one tensor {alone:.1f} s"
        work.claim("doubt-44", said.seconds < 2 * alone + 3, told)
    elif level == "standard":
        work.claim("doubt-20", said.seconds < STANDARD_SECONDS, f"{said.seconds:.0f} s")


def _decided(work: Work, found: Mapping[str, Mapping[str, Any]]) -> None:
    """The doubts that the outcome of checks decides."""
    for known in of_part("verify"):
        rows = [found[name] for name in known.checks if name in found]
        if not rows:
            continue
        told = "; ".join(f"{row['name']} {row['status']}: {row['detail']}" for row in rows)
        skipped = any(row["status"] == "skipped" for row in rows)
        work.claim(known.id, "open" if skipped else all(map(passed, rows)), told)


def passed(row: Mapping[str, Any]) -> bool:
    return bool(row["status"] == "passed")


def _rates(work: Work, found: Mapping[str, Mapping[str, Any]]) -> None:
    load, speed = (found.get(name, {}).get("value") for name in ("load", "speed-half"))
    if load and speed:
        told = f"load {load:.4g} {found['load']['unit']}, speed-half {speed:.4g}"
        work.claim("doubt-22", abs(load / speed - 1) <= NEAR, told)
