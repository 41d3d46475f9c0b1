"""The screen of `fleet sweep`."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote

from gpusetup.fleet.sweep.answer import Finding, Level, SweepAnswer
from gpusetup.model.finding import Severity
from gpusetup.render.language import (
    DIM,
    ERROR,
    MARKS,
    OK,
    Row,
    Screen,
    command,
    labelled,
    marked,
    section,
)

MOST_FINDINGS = 40
NAMES = {
    "within": "exchange within a host",
    "between": "exchange between hosts",
}
COLUMN = max(map(len, NAMES.values())) + 2


def sweep_screen(answer: SweepAnswer) -> Screen:
    """The verdict, who is named, and what was measured."""
    lines: list[str] = [_verdict(answer)]
    for finding in answer.findings[:MOST_FINDINGS]:
        lines += _finding(finding)
    if len(answer.findings) > MOST_FINDINGS:
        lines += ["", f"and {len(answer.findings) - MOST_FINDINGS} more: `--json` lists all"]
    lines += section("Measured", map(_level, answer.levels))
    if answer.exclude.slurm:
        job = f"sbatch {quote(answer.exclude.slurm)} job.sh"
        lines += section("To leave these nodes out of a Slurm job", [command(job)])
    return Screen(lines)


def _verdict(answer: SweepAnswer) -> Row:
    nodes = f"{answer.nodes} node{'s' if answer.nodes != 1 else ''}"
    how = f"{len(answer.ranks)} ranks on {nodes}, {answer.backend}"
    took = f"{answer.rounds} rounds in {answer.seconds:.1f} s"
    if answer.ok:
        return marked(OK, "ok", f"{how}, {took}: all alike")
    return Row(("✗", ERROR), f" {how}, {took}: ", (f"{len(answer.findings)} found", ERROR), hang=2)


def _finding(finding: Finding) -> Iterator[str]:
    yield from ("", marked(MARKS[Severity.ERROR], finding.fault, finding.title))
    if finding.detail:
        yield Row("    ", (finding.detail, DIM), hang=4)
    if finding.then:
        yield Row(f"    → {finding.then}", hang=6)


def _level(level: Level) -> Row:
    sees = "too few to compare"
    if level.sees_below:
        sees = f"slower than {level.sees_below:.0%} of it would be named"
    return labelled(NAMES[level.of], f"median {level.median:.3g} GB/s; {sees}", COLUMN)
