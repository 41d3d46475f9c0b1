"""The report as text and JSON. Returns text, prints nothing."""

from __future__ import annotations

import json
from math import isfinite
from typing import Any, Dict, List

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
    figure,
    verdict,
)

COMPUTING = ("properties", "arch", "matmul", "amp")
"""The checks that must have passed for the computation test to have."""
BEFORE_COMPUTING = ("properties", "arch")
"""Those of them that only look at the device: alone they prove no computation."""
SPEED_OVER_CPU = "speed-over-cpu"
DEVICE_KEYS = ("device", "name", "cuda_index", "uuid", "compute_capability", "memory_total_bytes")
CHECK_KEYS = ("name", "device", "status", "detail", "value", "limit", "unit", "seconds")
MORE_KEYS = ("hint", "means")


def as_json(report: Report) -> str:
    """The one JSON document."""
    checks = [{**r.outcome._asdict(), **r._asdict()} for r in report.results]
    document = {
        "schema": "gpusetup.verify/1",
        "verdict": verdict(report),
        **{key: report.facts.get(key) for key in ("torch", "cuda", "python", "seed")},
        "devices": [{key: row.get(key) for key in DEVICE_KEYS} for row in report.facts["devices"]],
        "checks": [{key: _shown(row[key]) for key in (*CHECK_KEYS, *MORE_KEYS)} for row in checks],
    }
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def _shown(value: Any) -> Any:
    """JSON has no infinity; the detail says it."""
    return None if isinstance(value, float) and not isfinite(value) else value


def as_error(stop: Stop) -> str:
    """The JSON document of a failure."""
    said = {"message": stop.message, "hint": stop.hint, "exit": stop.exit_code}
    return json.dumps({"schema": "gpusetup.error/1", **said}) + "\n"


def as_text(report: Report, verbose: bool = False) -> str:
    """The verdict, what failed with its next step, the lines people know, a line per check."""
    lines = [verdict_line(report), "", *step_lines(report), *known_lines(report), ""]
    lines += check_lines(report, verbose)
    return "".join(harmless(line) + "\n" for line in lines)


def verdict_line(report: Report) -> str:
    """The verdict, with the checks to blame for a bad one."""
    answer = verdict(report)
    if answer == PASSED:
        return f"verdict: {answer}"
    statuses = {result.outcome.status for result in report.results}
    # Skips are to blame only if nothing went wrong (under `--strict`, or if nothing passed).
    blamed_statuses = {FAILED, CRASHED} & statuses or {SKIPPED}
    blamed: List[str] = []
    for result in report.results:
        if result.outcome.status in blamed_statuses:
            blamed.append(f"{result.name} on {result.device} {result.outcome.status}")
    return f"verdict: {answer} ({', '.join(blamed)})" if blamed else f"verdict: {answer}"


def step_lines(report: Report) -> List[str]:
    """What each failure means, above the next step that it shares with others; a blank behind."""
    meanings_by_step: Dict[str, List[str]] = {}
    for result in report.results:
        meanings = meanings_by_step.setdefault(result.outcome.hint or "", [])
        if result.means:
            meanings.append(f"{result.name} on {result.device}: {result.means}")
    lines: List[str] = []
    for step, meanings in meanings_by_step.items():
        paragraph = [*meanings, f"hint: {step}"] if step else meanings
        if paragraph:
            lines += [*paragraph, ""]
    return lines


def check_lines(report: Report, verbose: bool) -> List[str]:
    """One line for each check, in columns."""
    name_width = max((len(result.name) for result in report.results), default=0)
    device_width = max((len(result.device) for result in report.results), default=0)
    lines: List[str] = []
    for result in report.results:
        status, device = result.outcome.status, result.device
        seconds = f"  {result.seconds:.2f} s" if verbose else ""
        columns = f"{status:<7}  {result.name:<{name_width}}  {device:<{device_width}}"
        lines.append(f"{columns}  {measured(result)}{seconds}")
    return lines


def known_lines(report: Report) -> List[str]:
    """The lines of the well-known test script."""
    facts, statuses = report.facts, {(r.name, r.outcome.status) for r in report.results}
    lines = [f"PyTorch version: {facts.get('torch') or 'none'}"]
    for told, key in (("CUDA available", "available"), ("CUDA version", "cuda")):
        lines += [f"{told}: {facts[key]}"] if facts.get(key) is not None else []
    for row in facts["devices"]:
        if "cuda" in row["device"]:
            memory = row["memory_total_bytes"] / GIB
            lines += [f"GPU Name: {row['name']}", f"GPU Memory: {memory:.1f} GB"]
            lines += lines_of_speed(report, row["device"])
    if ("gpu", FAILED) in statuses:
        return [*lines, NOT_DETECTED]
    if report.wanted == "none":
        return lines
    device = "CPU" if report.wanted == "cpu" else "GPU"
    return [*lines, f"{device} computation test: {computation(report)}"]


def computation(report: Report) -> str:
    """`PASSED` or `FAILED`; `not run` where the options left out every check that computes."""
    imported = all(r.outcome.status == PASSED for r in report.results if r.name == "import")
    on_devices = [result for result in report.results if result.device != HOST]
    if imported and all(result.name in BEFORE_COMPUTING for result in on_devices):
        return "not run"
    # Every check of the sum passed, and no other that computes on a device went wrong.
    needed = {r.outcome.status for r in report.results if r.name in COMPUTING}
    others = {result.outcome.status for result in on_devices}
    return "PASSED" if needed == {PASSED} and not {FAILED, CRASHED} & others else "FAILED"


def lines_of_speed(report: Report, device: str) -> List[str]:
    """How many times as fast as the CPU a GPU is, where that was measured."""
    for result in report.results:
        times = result.outcome.value
        is_of_device = (result.name, result.device) == (SPEED_OVER_CPU, device)
        if is_of_device and result.outcome.status == PASSED and times is not None:
            return [f"GPU Speed: {figure(times)} times the CPU (float32 products)"]
    return []


def measured(result: Result) -> str:
    """The detail with its figures."""
    found = result.outcome
    unit = f" {found.unit}" if found.unit else ""
    limit = unit if found.limit is None else f" (limit {figure(found.limit)}{unit})"
    return found.detail if found.value is None else f"{found.detail}: {figure(found.value)}{limit}"


def said_of(result: Result) -> List[str]:
    """What a result means and the next step."""
    hint = f"hint: {result.outcome.hint}" if result.outcome.hint else None
    return [line for line in (result.means, hint) if line]


def plain(text: str, kept: str = "") -> str:
    """Foreign text without what a terminal would obey, nor XML 1.0 can carry.

    >>> plain("GPU" + chr(27) + "[2J" + chr(0xFFFE))
    'GPU\\\\x1b[2J\\\\ufffe'
    """
    return "".join(c if c.isprintable() or c in kept else repr(c)[1:-1] for c in text)


def harmless(line: str) -> str:
    """One line that neither a terminal nor a CI runner obeys.

    >>> harmless(" ::error::x ##[y]")
    ' : :error::x ## [y]'
    """
    shown = plain(line).replace("##[", "## [")
    start = len(shown) - len(shown.lstrip())
    return shown[:start] + ": :" + shown[start + 2 :] if shown[start:].startswith("::") else shown
