"""The screen of `fleet sweep`."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote

from rich.console import Group, RenderableType
from rich.text import Text

from gpusetup.fleet.sweep.answer import Finding, Level, SweepAnswer
from gpusetup.render.language import plain
from gpusetup.render.text import command_line, heading, indented

MOST_FINDINGS = 40
NAMES = {
    "computing": "computing",
    "within": "exchange within a host",
    "between": "exchange between hosts",
}


def sweep_screen(answer: SweepAnswer) -> RenderableType:
    """The verdict, who is named, and what was measured."""
    parts: list[RenderableType] = [_verdict(answer)]
    shown = sorted(answer.findings, key=lambda one: not one.blames)
    for finding in shown[:MOST_FINDINGS]:
        parts += _finding(finding)
    if len(shown) > MOST_FINDINGS:
        parts.append(Text(f"\nand {len(shown) - MOST_FINDINGS} more: `--json` lists all"))
    if answer.levels:
        parts.append(heading("Measured"))
        parts += [_level(level) for level in answer.levels]
    if answer.measure_next:
        parts.append(heading("To be measured next"))
        parts += [indented(f"{one} {other}") for one, other in answer.measure_next[:MOST_FINDINGS]]
    if answer.exclude.slurm:
        parts += [heading("To leave these nodes out of a Slurm job")]
        parts += [command_line(f"sbatch {quote(answer.exclude.slurm)} job.sh")]
    return Group(*parts)


def _verdict(answer: SweepAnswer) -> Text:
    nodes = f"{answer.nodes} node{'s' if answer.nodes != 1 else ''}"
    how = f"{len(answer.ranks)} ranks on {nodes}, {answer.backend}"
    took = f"{answer.rounds} rounds in {answer.seconds:.1f} s"
    if answer.files:
        how, took = nodes, f"{answer.files} outputs read, {len(answer.left_out)} files left out"
    blamed = sum(one.blames for one in answer.findings)
    if answer.ok:
        return Text.assemble(("✓ ok", "bold green"), f": {how}, {took}: all alike")
    return Text.assemble(("✗ ", "bold red"), f"{how}, {took}: {blamed} found")


def _finding(finding: Finding) -> Iterator[RenderableType]:
    mark, style = ("✗", "bold red") if finding.blames else ("·", "dim")
    yield Text.assemble(("\n", ""), (f"{mark} {finding.fault}", style), f": {plain(finding.title)}")
    if finding.detail:
        yield indented(finding.detail, 4, "dim")
    if finding.then:
        yield indented(f"→ {finding.then}", 4)


def _level(level: Level) -> RenderableType:
    unit = "runs/s" if level.of == "computing" else "GB/s"
    sees = "too few to compare"
    if level.sees_below:
        sees = f"slower than {level.sees_below:.0%} of it would be named"
    return indented(f"{NAMES[level.of]}: median {level.median:.3g} {unit}; {sees}")
