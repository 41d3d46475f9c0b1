"""The report as text and as JSON. Returns text, prints nothing; plain ASCII of its own."""

from __future__ import annotations

import json
from typing import Any, Dict, List, Optional, Tuple

from ..device.devices import GIB, NOT_DETECTED
from ..values import (
    CRASHED,
    FAILED,
    HOST,
    PASSED,
    SKIPPED,
    Report,
    Result,
    Stop,
    good,
    kind,
    verdict,
)

COMPUTING = ("properties", "arch", "matmul", "amp")
"""The checks that must have passed for the computation test to have."""
DEVICE_KEYS = ("device", "name", "cuda_index", "uuid", "compute_capability", "memory_total_bytes")


def as_json(report: Report) -> str:
    """The one JSON document."""
    document = {
        "schema": "gpusetup.verify/1",
        "verdict": verdict(report),
        "torch": report.facts.get("torch"),
        "cuda": report.facts.get("cuda"),
        "python": report.facts["python"],
        "seed": report.facts.get("seed"),
        "devices": [_device(row) for row in report.facts["devices"]],
        "checks": [_check(result) for result in report.results],
    }
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def as_error(stop: Stop) -> str:
    """The JSON document of a failure."""
    return (
        json.dumps(
            {
                "schema": "gpusetup.error/1",
                "message": stop.message,
                "hint": stop.hint,
                "exit": stop.exit_code,
            }
        )
        + "\n"
    )


def _device(row: Dict[str, Any]) -> Dict[str, Any]:
    return {key: row.get(key) for key in DEVICE_KEYS}


def _check(result: Result) -> Dict[str, Any]:
    found = result.outcome
    return {
        "name": result.name,
        "device": result.device,
        "status": found.status,
        "detail": found.detail,
        "value": _finite(found.value),
        "limit": found.limit,
        "unit": found.unit,
        "seconds": round(result.seconds, 4),
        "hint": found.hint,
        "means": result.means,
        "spread": _finite(found.spread),
    }


def _finite(value: Optional[float]) -> Optional[float]:
    """JSON has no infinity; the detail says it."""
    return value if value is not None and abs(value) < float("inf") else None


def as_text(report: Report, verbose: bool = False) -> str:
    """The lines people know, then a line per check, then the verdict and the next steps."""
    return "".join(f"{line}\n" for line, _ in as_lines(report, verbose))


def as_lines(report: Report, verbose: bool = False) -> List[Tuple[str, int]]:
    """Each line, and the column at which it goes on where it is too long for a terminal."""
    width = max(len(result.name) for result in report.results)
    place = max(len(result.device) for result in report.results)
    checks = [_line(result, width, place, verbose) for result in report.results]
    after = ["", f"verdict: {verdict(report)}{_blamed(report)}", *_advice(report)]
    hang = len("skipped") + width + place + 3 * len("  ")
    return [
        *((harmless(line), 2) for line in (*known_lines(report), "")),
        *((harmless(line), hang) for line in checks),
        *((harmless(line), 2) for line in after),
    ]


def known_lines(report: Report) -> List[str]:
    """The lines of the well-known test script."""
    facts = report.facts
    lines = [f"PyTorch version: {facts.get('torch') or 'none'}"]
    if facts.get("available") is not None:
        lines.append(f"CUDA available: {facts['available']}")
    if facts.get("cuda"):
        lines.append(f"CUDA version: {facts['cuda']}")
    for row in facts["devices"]:
        if kind(row["device"].rpartition(" ")[2]) == "cuda":
            lines.append(f"GPU Name: {row['name']}")
            lines.append(f"GPU Memory: {row['memory_total_bytes'] / GIB:.1f} GB")
    if _undetected(report):
        return [*lines, NOT_DETECTED]
    if report.wanted == "none":
        return lines
    what = "CPU" if report.wanted == "cpu" else "GPU"
    return [*lines, f"{what} computation test: {_computed(report)}"]


def _undetected(report: Report) -> bool:
    return any(r.name == "gpu" and r.outcome.status == FAILED for r in report.results)


def _computed(report: Report) -> str:
    """Every check of the sum passed, and no other that computes on a device went wrong."""
    first = [r.outcome.status for r in report.results if r.name in COMPUTING]
    others = [r.outcome.status for r in report.results if r.device != HOST]
    sound = bool(first) and set(first) == {PASSED} and not {FAILED, CRASHED} & set(others)
    return "PASSED" if sound else "FAILED"


def _line(result: Result, width: int, place: int, verbose: bool) -> str:
    found = result.outcome
    figures = "" if found.value is None else f": {found.value:.2g}"
    limit = "" if found.limit is None or not figures else f" (limit {found.limit:.2g} {found.unit})"
    seconds = f"  {result.seconds:.2f} s" if verbose else ""
    start = f"{found.status:<7}  {result.name:<{width}}  {result.device:<{place}}"
    return f"{start}  {found.detail}{figures}{limit}{seconds}"


def _blamed(report: Report) -> str:
    bad = [r for r in report.results if r.outcome.status in (FAILED, CRASHED)]
    if not bad and verdict(report) == FAILED:
        bad = [r for r in report.results if r.outcome.status == SKIPPED]
    names = ", ".join(f"{r.name} on {r.device} {r.outcome.status}" for r in bad)
    return f" ({names})" if names else ""


def _advice(report: Report) -> List[str]:
    """What each failure means, and each next step once, in the order of the checks."""
    steps: Dict[str, List[str]] = {}
    for result in report.results:
        meaning = steps.setdefault(result.outcome.hint or "", [])
        if result.means:
            meaning.append(f"{result.name} on {result.device}: {result.means}")
    lines = []
    for step, meanings in steps.items():
        said = [*meanings, *([f"hint: {step}"] if step else [])]
        lines += ["", *said] if said else []
    return lines


def as_github(report: Report) -> str:
    """Annotations of a GitHub Actions job, one a result that is not passed, then the text."""
    bad = [result for result in report.results if result.outcome.status != PASSED]
    return "".join(annotation(each, report.strict) + "\n" for each in bad) + as_text(report)


def annotation(result: Result, strict: bool) -> str:
    """One workflow command. A skip is a notice, unless it counts as no.

    >>> from ..values import Outcome
    >>> annotation(Result("a,b", "cuda:0", Outcome(FAILED, "50 %\\nlost")), False)
    '::error title=verify%3A a%2Cb on cuda%3A0 failed::50 %25\\\\nlost'
    """
    found = result.outcome
    kind = "notice" if good(result, strict) else "error"
    title = f"verify: {result.name} on {result.device} {found.status}"
    said = [found.detail, result.means, f"hint: {found.hint}" if found.hint else None]
    body = "%0A".join(_data(plain(line)) for line in said if line)
    return f"::{kind} title={_property(plain(title))}::{body}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def plain(text: str) -> str:
    """Foreign text without what a terminal would obey.

    >>> plain("GPU" + chr(27) + "[2J")
    'GPU\\\\x1b[2J'
    """
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def harmless(line: str) -> str:
    """One line that neither a terminal nor a CI runner obeys.

    >>> harmless(" ::error::x ##[y]")
    ' : :error::x ## [y]'
    """
    shown = plain(line).replace("##[", "## [")
    start = len(shown) - len(shown.lstrip())
    return shown[:start] + ": :" + shown[start + 2 :] if shown[start:].startswith("::") else shown
