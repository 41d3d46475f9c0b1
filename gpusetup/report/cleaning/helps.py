"""A program's help inside a text: it names every error there is, and none of them happened.

`nvidia-smi -h`, `--help-query-gpu` and the help of its parts (`nvlink -h`, `mig -h`); the lines are
blanked, so that every other line keeps its number.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpusetup.model.patterns import lazy

BEGINS = lazy(
    r"^\s*(?:NVIDIA System Management Interface -- v\d"
    r"|List of valid properties to query for the switch"
    r"|Section about [\w.:/ -]{2,60} propert(?:y|ies)\s*$"
    r"|(?:nvlink|mig|topo|drain|clocks|encodersessions|fbcsessions|vgpu|dmon|pmon|boost-slider|power-hint"
    r"|conf-compute|c2c|gpm|pci|daemon|replay|stats|compute-policy|power-smoothing) -- [A-Z]"
    r"|Usage: nvidia-smi\b)"
)
PROPERTY = lazy(r'^\s*"[a-z][\w.]{1,80}"(?:\s+or\s+"[a-z][\w.]{1,80}"){0,4}\s*$')
"""A field by its names, alone on its line: its description follows."""
ENDS = lazy(
    r"^(?:[\w.@~:/\\() \[\]-]{0,80}[$#>] \S|\+[-=]{5}|={5}|Traceback|NVRM|\|\s|<\?xml|GPU \d+: |\[\s*\d+\.\d+\]"
    r"|[\w. ]{1,40}Error\b|Failed to |\$ )"
)
"""A prompt, or the first line of something else."""
LONGEST = 2500
"""Lines of the longest help."""
DESCRIPTION = 6
"""Lines of a field's description, where the heading above all of them is missing."""


def without_help(lines: Sequence[str]) -> list[str]:
    """The lines with those of a help blank.

    >>> help = ['"ecc.errors"', "Errors detected due to double bit ECC errors", "$ ls", "boom"]
    >>> without_help(help)
    ['', '', '$ ls', 'boom']
    """
    kept, inside = _without_a_first_try(lines), 0
    for number, line in enumerate(lines):
        inside = _inside(line, inside)
        if inside:
            kept[number] = ""
    return kept


REPORTS = "Collecting environment information"
LACKS = lazy(r"^\s*(?:ModuleNotFound|Import)Error: ")
"""A script that collects the machine lacks a module of its own."""


def _without_a_first_try(lines: Sequence[str]) -> list[str]:
    """Without the start of `collect_env` that found no module, where the report stands below it.

    >>> _without_a_first_try(["python collect_env.py", "ImportError: x", REPORTS])
    ['', '', 'Collecting environment information']
    """
    kept = list(lines)
    report = next((n for n, line in enumerate(lines) if REPORTS in line), 0)
    above = range(max(report - DESCRIPTION * 2, 0), report)
    tries = [n for n in above if "collect_env" in lines[n]]
    lacks = [n for n in above if tries and n > tries[0] and LACKS.match(lines[n])]
    if lacks:
        kept[tries[0] : lacks[-1] + 1] = [""] * (lacks[-1] + 1 - tries[0])
    return kept


def _inside(line: str, inside: int) -> int:
    """How many lines more may belong to a help, this one counted; 0 outside.

    A field's description is short; a whole help ends at a prompt or where another output begins.
    """
    if ENDS.match(line):
        return 0
    if BEGINS.match(line):
        return LONGEST
    if PROPERTY.match(line):
        return max(inside - 1, DESCRIPTION)
    return max(inside - 1, 0)
