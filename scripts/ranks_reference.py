"""The table of what `verify` tries among ranks, from the code that tries it."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.verify.ranks.calls import (
    ALL_GATHER,
    ALL_REDUCE,
    BROADCAST,
    GATHER,
    REDUCE,
    REDUCE_SCATTER,
    SCATTER,
    Collective,
)
from gpusetup.verify.ranks.collectives import planned
from gpusetup.verify.ranks.drawing import BIG, GROUPS, LAYOUTS, MODES, SIZES
from gpusetup.verify.ranks.exchanges import ALL_TO_ALL, SEND_RECV
from gpusetup.verify.ranks.group import Group

COLLECTIVES = {
    "all_reduce": ALL_REDUCE,
    "reduce": REDUCE,
    "broadcast": BROADCAST,
    "all_gather": ALL_GATHER,
    "gather": GATHER,
    "scatter": SCATTER,
    "reduce_scatter": REDUCE_SCATTER,
    "all_to_all": ALL_TO_ALL,
    "send_recv": SEND_RECV,
}
TWO = Group(None, 0, 2, "cpu", "gloo", 1 << 28)
"""Two ranks with room for the largest messages."""


def table() -> str:
    """A line for each collective, then the axes that all of them have."""
    return "\n".join((HEAD, *map(_line, COLLECTIVES), "", *axes()))


HEAD = """\
| Collective | Ways to call it | Formats | Reductions | Calls at `standard` |
| --- | --- | --- | --- | --- |"""


def _line(name: str) -> str:
    collective = COLLECTIVES[name]
    formats = dict.fromkeys(dtype for dtype, _ in collective.kinds)
    how = dict.fromkeys(how for _, how in collective.kinds if how != "bits")
    cells = (
        f"`{name}`",
        ", ".join(collective.forms),
        str(len(formats)),
        ", ".join(how) or "none: every bit stays",
        str(len(_calls(name, collective))),
    )
    return f"| {' | '.join(cells)} |"


def _calls(name: str, collective: Collective) -> list[object]:
    return [*planned(name, collective, "standard", 0, TWO)]


def axes() -> Iterator[str]:
    """What the calls of every collective go through."""
    small = [n for sizes in SIZES.values() for n in sizes]
    yield f"- Elements of a message: {len(small)} lengths from 1 to {max(small)}; then"
    yield f"  {', '.join(map(str, sorted(BIG)))}; then 8, 64 and 256 MiB where memory allows."
    yield f"- Groups: {_said(GROUPS)} (`again` holds all ranks once more)."
    yield f"- Modes: {_said(MODES)}."
    yield f"- Tensors: {_said(LAYOUTS)} (the last where no message has parts). Roots take turns."


def _said(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in dict.fromkeys(names))
