"""Renders the report as text and JSON. The functions return text and print nothing."""

from __future__ import annotations

import json
from math import isfinite
from typing import Dict, List

from ..device.devices import GIB, NOT_DETECTED
from ..values import (
    CRASHED,
    FAILED,
    HOST,
    NOT_ASKED,
    NOT_REPEATABLE,
    PASSED,
    SKIPPED,
    SLOW,
    UNABLE,
    UNEXPECTED,
    WRONG,
    Report,
    Result,
    Row,
    Stop,
    figure,
    problem_of,
    verdict,
)

BEFORE_COMPUTING = ("properties", "arch")
"""The checks that only look at the device, and do not prove that it can compute."""
DEVICE_KEYS = ("device", "name", "cuda_index", "uuid", "compute_capability", "memory_total_bytes")
CHECK_KEYS = (
    *("name", "device", "status", "detail", "value", "limit", "unit", "seconds"),
    *("hint", "means", "problem"),
)
ORDER = (WRONG, UNABLE, UNEXPECTED, SLOW, NOT_REPEATABLE, NOT_ASKED)
"""The problems in the order in which the verdict names them, the worst first."""


def as_json(report: Report) -> str:
    """The report as a JSON document; unknown fields are None."""
    facts = report.facts
    document = {
        "schema": "gpusetup.verify/1",
        "verdict": verdict(report),
        "problem": next(iter(problems_of(report)), None),
        **{key: facts.get(key) for key in ("torch", "cuda", "python", "seed")},
        "devices": [{key: row.get(key) for key in DEVICE_KEYS} for row in facts["devices"]],
        "checks": [check_object(result) for result in report.results],
    }
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def check_object(result: Result) -> Row:
    """The fields of a result and its outcome in the JSON document."""
    fields = {**result.outcome._asdict(), **result._asdict(), "problem": problem_of(result.outcome)}
    # JSON cannot express infinity and NaN; the result's `detail` shows them.
    for key, value in fields.items():
        if isinstance(value, float) and not isfinite(value):
            fields[key] = None
    return {key: fields[key] for key in CHECK_KEYS}


def as_error(stop: Stop) -> str:
    """The error that ended the program, as a JSON document."""
    document = {
        "schema": "gpusetup.error/1",
        "message": stop.message,
        "hint": stop.hint,
        "exit": stop.exit_code,
    }
    return json.dumps(document) + "\n"


def as_text(report: Report, verbose: bool = False) -> str:
    """The report as text: the verdict, the failures with their next steps, the summary lines, and a
    line per check, with its seconds if `verbose`."""
    blame = []
    for problem, results in problems_of(report).items():
        # Several `--expect` may have failed: each name once.
        names = dict.fromkeys(f"{result.name} on {result.device}" for result in results)
        blame.append(f"{problem}: {', '.join(names)}")
    in_words = f" ({'; '.join(blame)})" if blame else ""
    lines = [f"verdict: {verdict(report)}{in_words}", ""]
    lines += [*step_lines(report), *summary_lines(report), ""]
    name_width = max((len(result.name) for result in report.results), default=0)
    device_width = max((len(result.device) for result in report.results), default=0)
    for result in report.results:
        # The longest statuses (`skipped`, `crashed`) have seven letters.
        columns = (
            f"{result.outcome.status:<7}",
            f"{result.name:<{name_width}}",
            f"{result.device:<{device_width}}",
            measured(result),
        )
        lines.append("  ".join(columns) + (f"  {result.seconds:.2f} s" if verbose else ""))
    return "".join(f"{harmless(line)}\n" for line in lines)


def problems_of(report: Report) -> Dict[str, List[Result]]:
    """The results because of which a report is not `passed`, by what they show, the worst first.

    Skipped checks count only if none failed, under `--strict` or because nothing could be checked.
    """
    if verdict(report) == PASSED:
        return {}
    found: Dict[str, List[Result]] = {problem: [] for problem in ORDER}
    bad = [r for r in report.results if r.outcome.status in (FAILED, CRASHED)]
    for result in bad or [r for r in report.results if r.outcome.status == SKIPPED]:
        # A result that did not pass always has a problem; `or` is for the type checker.
        found[problem_of(result.outcome) or UNABLE].append(result)
    return {problem: results for problem, results in found.items() if results}


def step_lines(report: Report) -> List[str]:
    """What each failure means, grouped by next step, with a blank line after each group."""
    meanings_by_step: Dict[str, List[str]] = {}
    for result in report.results:
        # Failures with the same next step share one hint.
        meanings = meanings_by_step.setdefault(result.outcome.hint or "", [])
        if result.means:
            meanings.append(f"{result.name} on {result.device}: {result.means}")
    lines: List[str] = []
    for step, meanings in meanings_by_step.items():
        # A result that passed has neither a meaning nor a next step.
        paragraph = [*meanings, f"hint: {step}"] if step else meanings
        lines += [*paragraph, ""] if paragraph else []
    return lines


def summary_lines(report: Report) -> List[str]:
    """The summary lines that the widely used PyTorch test script prints: version, CUDA, GPU, memory
    and computation test."""
    facts = report.facts
    lines = [f"PyTorch version: {facts.get('torch') or 'none'}"]
    for words, key in (("CUDA available", "available"), ("CUDA version", "cuda")):
        # If torch was not imported, nothing is known about CUDA.
        if facts.get(key) is not None:
            lines.append(f"{words}: {facts[key]}")
    for row in facts["devices"]:
        # In a run with several ranks, a device is called `rank 1 cuda:0`.
        if row["device"].endswith("cpu"):
            continue
        lines.append(f"GPU Name: {row['name']}")
        # An older torch does not report the memory of Apple's GPUs.
        if row["memory_total_bytes"]:
            lines.append(f"GPU Memory: {row['memory_total_bytes'] / GIB:.1f} GB")
    if ("gpu", FAILED) in [(result.name, result.outcome.status) for result in report.results]:
        return [*lines, NOT_DETECTED]
    # Without a device, nothing was computed.
    if report.wanted == "none":
        return lines
    device = "CPU" if report.wanted == "cpu" else "GPU"
    return [*lines, f"{device} computation test: {computation(report)}"]


def computation(report: Report) -> str:
    """`PASSED`, `FAILED`, or `not run` if no check that computes was chosen or could run."""
    on_devices = [result for result in report.results if result.device != HOST]
    imports = [result for result in report.results if result.name == "import"]
    if any(result.outcome.status in (FAILED, CRASHED) for result in (*on_devices, *imports)):
        return "FAILED"
    computed = [result for result in on_devices if result.name not in BEFORE_COMPUTING]
    return "PASSED" if any(result.outcome.status == PASSED for result in computed) else "not run"


def measured(result: Result) -> str:
    """The detail of a result, with its measured value and limit."""
    outcome = result.outcome
    if outcome.value is None:
        return outcome.detail
    # The value and its limit have the same unit.
    unit = f" {outcome.unit}" if outcome.unit else ""
    if outcome.limit is not None:
        unit = f" (limit {figure(outcome.limit)}{unit})"
    return f"{outcome.detail}: {figure(outcome.value)}{unit}"


def plain(text: str, allowed: str = "") -> str:
    """The text with control and unprintable characters escaped, so that it is safe for terminals
    and XML 1.0; characters in `allowed` stay.

    >>> plain("GPU" + chr(27) + "[2J" + chr(0xFFFE))
    'GPU\\\\x1b[2J\\\\ufffe'
    """
    # Escape as Python's `repr` does, but without the quotes.
    return "".join(c if c.isprintable() or c in allowed else repr(c)[1:-1] for c in text)


def harmless(line: str) -> str:
    """The line, changed so that neither a terminal nor a CI runner executes part of it as a
    command.

    >>> harmless(" ::error::x ##[y]")
    ' : :error::x ## [y]'
    """
    text = plain(line).replace("##[", "## [")
    content = text.lstrip()
    # GitHub's runner takes a line that starts with two colons as a command.
    if not content.startswith("::"):
        return text
    indent = text[: len(text) - len(content)]
    return f"{indent}: :{content[2:]}"
