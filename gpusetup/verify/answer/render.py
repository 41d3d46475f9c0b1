"""Renders the report as text and JSON. The functions return text and print nothing."""

from __future__ import annotations

import json
from math import isfinite
from typing import Any, Dict, List, Optional, Set, Tuple

from ..device.devices import GIB, NOT_DETECTED
from ..values import (
    CRASHED,
    FAILED,
    HOST,
    NOT_ASKED,
    PASSED,
    SKIPPED,
    SLOW,
    UNABLE,
    UNEXPECTED,
    UNSTEADY,
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
"""The checks that only look at the device. If only these passed, nothing proves that the device can
compute."""
SPEED_OVER_CPU = "speed-over-cpu"
DEVICE_KEYS = ("device", "name", "cuda_index", "uuid", "compute_capability", "memory_total_bytes")
CHECK_KEYS = ("name", "device", "status", "detail", "value", "limit", "unit", "seconds")
MORE_KEYS = ("hint", "means")
ORDER = (WRONG, UNABLE, UNEXPECTED, SLOW, UNSTEADY, NOT_ASKED)
"""The problems in the order in which the verdict names them, the worst first."""


def as_json(report: Report) -> str:
    """The report as a JSON document with the schema `gpusetup.verify/1`."""
    # People read the keys in this order; programs look them up by name.
    facts = report.facts
    document = {
        "schema": "gpusetup.verify/1",
        "verdict": verdict(report),
        "problem": worst_problem(report),
        "torch": facts.get("torch"),
        "cuda": facts.get("cuda"),
        "python": facts.get("python"),
        "seed": facts.get("seed"),
        "devices": [device_object(row) for row in facts["devices"]],
        "checks": [check_object(result) for result in report.results],
    }
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def device_object(row: Row) -> Row:
    """The fields of a device in the JSON document; unknown fields are None."""
    return {key: row.get(key) for key in DEVICE_KEYS}


def check_object(result: Result) -> Row:
    """The fields of a result and its outcome in the JSON document."""
    fields = result.outcome._asdict()
    fields.update(result._asdict())
    fields["problem"] = problem_of(result.outcome)
    keys = CHECK_KEYS + MORE_KEYS + ("problem",)
    return {key: finite(fields[key]) for key in keys}


def finite(value: Any) -> Any:
    """The value, or None for infinity and NaN, which JSON cannot express. The result's `detail`
    shows them."""
    if isinstance(value, float) and not isfinite(value):
        return None
    return value


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
    line per check."""
    lines = [verdict_line(report), ""]
    lines += step_lines(report)
    lines += known_lines(report)
    lines.append("")
    lines += check_lines(report, verbose)
    # End the last line with a newline too.
    return "".join(f"{harmless(line)}\n" for line in lines)


def problems_of(report: Report) -> Dict[str, List[Result]]:
    """The results because of which a report is not `passed`, by what they show, the worst first.

    Skipped checks count only under `--strict`, or if there is nothing else to blame.
    """
    found: Dict[str, List[Result]] = {problem: [] for problem in ORDER}
    if verdict(report) == PASSED:
        return {}
    bad = [r for r in report.results if r.outcome.status in (FAILED, CRASHED)]
    for result in bad or [r for r in report.results if r.outcome.status == SKIPPED]:
        found[problem_of(result.outcome) or UNABLE].append(result)
    return {problem: results for problem, results in found.items() if results}


def worst_problem(report: Report) -> Optional[str]:
    """What the verdict says is wrong, e.g. `wrong results`; None if the report is `passed`."""
    return next(iter(problems_of(report)), None)


def verdict_line(report: Report) -> str:
    """The verdict and, unless it is `passed`, what is wrong with which checks."""
    blame = []
    for problem, results in problems_of(report).items():
        names = ", ".join(f"{result.name} on {result.device}" for result in results)
        blame.append(f"{problem}: {names}")
    in_words = f" ({'; '.join(blame)})" if blame else ""
    return f"verdict: {verdict(report)}{in_words}"


def step_lines(report: Report) -> List[str]:
    """What each failure means, grouped by next step, with a blank line after each group."""
    meanings_by_step: Dict[str, List[str]] = {}
    for result in report.results:
        # Failures with the same next step share one hint.
        step = result.outcome.hint or ""
        meanings = meanings_by_step.setdefault(step, [])
        if result.means:
            meanings.append(f"{result.name} on {result.device}: {result.means}")
    lines: List[str] = []
    for step, meanings in meanings_by_step.items():
        # A result that passed has neither a meaning nor a next step.
        paragraph = [*meanings, f"hint: {step}"] if step else meanings
        if paragraph:
            lines += [*paragraph, ""]
    return lines


def check_lines(report: Report, verbose: bool) -> List[str]:
    """One line per check, in columns; with `verbose`, also how many seconds it took."""
    name_width = max((len(result.name) for result in report.results), default=0)
    device_width = max((len(result.device) for result in report.results), default=0)
    lines: List[str] = []
    for result in report.results:
        # The longest statuses (`skipped`, `crashed`) have seven letters.
        status = f"{result.outcome.status:<7}"
        name = f"{result.name:<{name_width}}"
        device = f"{result.device:<{device_width}}"
        line = f"{status}  {name}  {device}  {measured(result)}"
        if verbose:
            line += f"  {result.seconds:.2f} s"
        lines.append(line)
    return lines


def known_lines(report: Report) -> List[str]:
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
        if not row["device"].endswith("cpu"):
            lines.append(f"GPU Name: {row['name']}")
            # An older torch does not report the memory of Apple's GPUs.
            memory_bytes = row["memory_total_bytes"]
            if memory_bytes:
                lines.append(f"GPU Memory: {memory_bytes / GIB:.1f} GB")
            lines += lines_of_speed(report, row["device"])
    if FAILED in statuses_of(report, ("gpu",)):
        return [*lines, NOT_DETECTED]
    # Without a device, nothing was computed.
    if report.wanted == "none":
        return lines
    device = "CPU" if report.wanted == "cpu" else "GPU"
    return [*lines, f"{device} computation test: {computation(report)}"]


def statuses_of(report: Report, names: Tuple[str, ...]) -> Set[str]:
    """The statuses of the checks with these names, over all devices."""
    results = [result for result in report.results if result.name in names]
    return {result.outcome.status for result in results}


def computation(report: Report) -> str:
    """The result of the computation test: `PASSED`, `FAILED`, or `not run` if no check that
    computes was chosen or could run."""
    on_devices = [result for result in report.results if result.device != HOST]
    statuses = {result.outcome.status for result in on_devices}
    # If the report has no `import` check, there is no sign of a failed import.
    import_failed = not statuses_of(report, ("import",)) <= {PASSED}
    if import_failed or {FAILED, CRASHED} & statuses:
        return "FAILED"
    # Checks that only look at the device do not prove that the device can compute.
    computed = [result for result in on_devices if result.name not in BEFORE_COMPUTING]
    statuses_of_computing = {result.outcome.status for result in computed}
    return "PASSED" if PASSED in statuses_of_computing else "not run"


def lines_of_speed(report: Report, device: str) -> List[str]:
    """A line that says how many times faster the GPU is than the CPU; no line if that was not
    measured."""
    for result in report.results:
        if result.name != SPEED_OVER_CPU or result.device != device:
            continue
        times = result.outcome.value
        if result.outcome.status == PASSED and times is not None:
            return [f"GPU Speed: {figure(times)} times the CPU (float32 products)"]
    return []


def measured(result: Result) -> str:
    """The detail of a result, with its measured value and limit."""
    outcome = result.outcome
    if outcome.value is None:
        return outcome.detail
    unit = f" {outcome.unit}" if outcome.unit else ""
    # The value and its limit have the same unit.
    behind = unit
    if outcome.limit is not None:
        behind = f" (limit {figure(outcome.limit)}{unit})"
    return f"{outcome.detail}: {figure(outcome.value)}{behind}"


def meaning_lines(result: Result) -> List[str]:
    """Returns what a result means and a hint about the next step; empty if it has neither."""
    lines = []
    if result.means:
        lines.append(result.means)
    if result.outcome.hint:
        lines.append(f"hint: {result.outcome.hint}")
    return lines


def plain(text: str, allowed: str = "") -> str:
    """The text with control and unprintable characters escaped, so that it is safe for terminals
    and XML 1.0; characters in `allowed` stay.

    >>> plain("GPU" + chr(27) + "[2J" + chr(0xFFFE))
    'GPU\\\\x1b[2J\\\\ufffe'
    """
    characters = []
    for character in text:
        is_harmless = character.isprintable() or character in allowed
        # Escape as Python's `repr` does, but without the quotes.
        if not is_harmless:
            character = repr(character)[1:-1]
        characters.append(character)
    return "".join(characters)


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
