"""The table of what `verify` tries among ranks, from the code that tries it."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.verify.ranks.draws import BIG, COLLECTIVES, GROUPS, LAYOUTS, MODES, SIZES, drawn

AT_STANDARD = 2
"""Rounds of the calls."""


def table() -> str:
    """A line for each collective, then the axes that all of them have."""
    return "\n".join((HEAD, *map(_line, COLLECTIVES), "", *axes()))


HEAD = """\
| Collective | Ways to call it | Formats | Reductions | Calls at `standard` |
| --- | --- | --- | --- | --- |"""


def _line(name: str) -> str:
    calls = drawn(name, 2, AT_STANDARD)
    how = dict.fromkeys(draw.kind[1] for draw in calls if draw.kind[1] != "bits")
    cells = (
        f"`{name}`",
        ", ".join(COLLECTIVES[name].ways),
        str(len({draw.kind[0] for draw in calls})),
        ", ".join(sorted(how)) or "none: every bit stays",
        str(len(calls)),
    )
    return f"| {' | '.join(cells)} |"


def axes() -> Iterator[str]:
    """What the calls of every collective go through."""
    small = [n for sizes in SIZES for n in sizes]
    yield f"- Elements of a message: {len(small)} lengths from 0 to {max(small)}; then"
    yield f"  {', '.join(map(str, sorted(BIG)))}; then 8 or 16 MiB on all ranks."
    yield f"- Groups: {_said(GROUPS)} (`again` holds all ranks once more)."
    yield f"- Modes: {_said(MODES)}."
    yield f"- Tensors: {_said(LAYOUTS)} (the last where no message has parts). Roots take turns."


def _said(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in dict.fromkeys(names))
