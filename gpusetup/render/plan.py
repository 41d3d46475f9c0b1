"""A plan as text: does it fit, with which recipe, where the memory goes, what to set."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gpusetup.model.documents import PlanCell, PlanMemory, Way
from gpusetup.render.language import (
    BUT,
    DIM,
    ERROR,
    HEADING,
    NO,
    OK,
    Row,
    Screen,
    command,
    facts,
    heading,
    labelled,
    remark,
    row,
    section,
    verdict,
)
from gpusetup.render.plan_config import config_lines

LABEL = 15


def plan_text(plan: PlanCell) -> Screen:
    """The whole screen."""
    helps = ["", *_helps(plan)] if plan.helps and not plan.ways else []
    ways = (_way(way, plan.memory_gib.capacity) for way in plan.ways)
    return Screen(
        (
            Row(_question(plan), hang=2),
            "",
            *_verdict(plan),
            *section("On this GPU alone, with checkpointing (!: less than a fifth free)", ways),
            "",
            *_memory(plan),
            *section("Set", _settings(plan) if plan.settings else ()),
            *helps,
            *(["", *config_lines(plan.config)] if plan.config else ()),
            *([""] if plan.advice else ()),
            *(remark("note", line) for line in plan.advice),
        )
    )


def code_text(plan: PlanCell) -> Screen:
    """The screen of `plan --code`: the plan, and what the trace saw."""
    code = plan.code
    assert code is not None
    most = "not found, see the note" if code.largest_batch is None else f"{code.largest_batch:,}"
    if code.largest_batch == 0:
        most = "not even one sample a GPU fits"
    phases = (labelled(name, f"{gib:8.3f}", LABEL) for name, gib in code.phases_gib.items())
    return Screen(
        (
            *plan_text(plan).lines,
            *section(f"Most at once in each phase, GiB (torch {code.torch})", phases),
            "",
            Row(("Largest batch on all GPUs together:", HEADING), f" {most}"),
        )
    )


def _way(way: Way, capacity: float) -> Row:
    """One way to train: does it fit, up to which batch or length, what one sequence takes."""
    mark = (OK if way.total_gib <= 0.8 * capacity else BUT) if way.fits else NO
    most = f"batch {way.batch:,}, or {way.context or 0:,} tokens" if way.fits else "does not fit"
    needs = f"one sequence needs {way.total_gib:.1f} GiB"
    return row("  ", mark, f" {way.name:18} {most:34} ", (needs, DIM))


def _question(plan: PlanCell) -> str:
    size = f"{_count(plan.parameters)} parameters"
    if plan.active_parameters != plan.parameters:
        size += f", {_count(plan.active_parameters)} active"
    batch = f", batch {plan.batch:,}" if plan.batch is not None else ""
    length = f", {plan.context:,} token{'s' * (plan.context > 1)}" if plan.context else ""
    return f"{plan.model} ({size}){length}{batch}, on {plan.gpus} x {plan.gpu}, {plan.strategy}"


def _count(parameters: int) -> str:
    """
    >>> _count(8190735360), _count(124439808)
    ('8.19B', '124M')
    """
    billions = parameters / 1e9
    return f"{billions:.3g}B" if billions >= 1 else f"{parameters / 1e6:.3g}M"


def _verdict(plan: PlanCell) -> Iterable[str]:
    solved = {
        "context": f"longest context: {plan.context:,} tokens",
        "batch": f"largest batch: {plan.batch:,}" if plan.batch else "",
        "gpus": f"GPUs needed: {plan.gpus}",
    }
    host = plan.memory_gib.host
    if plan.fits and plan.solved:
        yield heading(solved[plan.solved])
    if not plan.fits:
        yield verdict(NO, "does not fit")
    elif host:
        yield verdict(BUT, f"fits only with {host:.0f} GiB of RAM", f": {plan.recipe}")
    elif plan.confidence == "close":
        yield verdict(BUT, "may fit", f": {plan.recipe}; measure one step first")
    else:
        yield verdict(OK, "fits", f": {plan.recipe}")
    yield from facts({"confidence": _confidence(plan), "from": plan.source})


def _confidence(plan: PlanCell) -> str:
    near = f"{plan.near_percent} %"
    kind = " or of a kind that is known too little" if plan.near_percent > 3 and plan.fits else ""
    return {
        "measured": "measured",
        "clear": f"clear: nothing is within {near} of the limit",
        "close": f"close: within {near} of the limit{kind}",
    }[plan.confidence]


def _memory(plan: PlanCell) -> Iterable[str]:
    """The parts, a bar of them all, and what the card has."""
    memory = plan.memory_gib
    yield heading("Memory of a GPU, GiB")
    yield row("  ", (bar(memory), "cyan" if memory.total <= memory.capacity else "red"))
    for name, sign in SIGNS.items():
        value = getattr(memory, name)
        yield row("  ", (sign, "cyan"), (f" {name:{LABEL}}", DIM), f"{value:8.2f}")
    free = plan.margin_percent
    left = f"{free:.1f} % free" if free >= 0 else f"{-free:.1f} % too much"
    of = f"{memory.total:8.2f}  of {memory.capacity:.2f}, "
    yield row((f"    {'total':{LABEL}}", DIM), of, (left, "" if free >= 0 else ERROR))
    if memory.reserved:
        said = f"{memory.allocated:8.2f}  allocated, {memory.reserved:.2f} reserved"
        yield row((f"    {'torch says':{LABEL}}", DIM), said)


def _helps(plan: PlanCell) -> Iterable[str]:
    """What would help, those that are enough apart from those that are not."""
    width = max(len(one.step) for one in plan.helps)
    good = "If it runs out of memory anyway" if plan.fits else "What would help, each alone"
    for enough, head in ((True, good), (False, "Not enough alone")):
        rows = [one for one in plan.helps if (one.recipe is not None) == enough]
        if rows:
            yield heading(head)
        for one in rows:
            end = f"   then fits with {one.recipe}" if enough and not plan.fits else ""
            yield Row(f"  {one.step:{width}}  saves {one.saves_gib:6.1f} GiB{end}", hang=4)


def _settings(plan: PlanCell) -> Iterable[str]:
    for name, value in plan.env.items():
        yield command(f"export {name}={value}")
    for name, value in plan.settings.items():
        yield command(f"{name}: {_value(value)}")


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{k}: {_value(v)}" for k, v in value.items()) + "}"
    return str(value).lower() if isinstance(value, bool) else str(value)


# --- the bar ------------------------------------------------------------------------------------

SIGNS = {"states": "█", "checkpoints": "▓", "logits": "▒", "fragmentation": "░", "other": "▪"}
"""Part -> its sign; an encoding without them shows `#=+-o` (render/console.py)."""
WIDTH = 76
LIMIT = "│"


def bar(memory: PlanMemory) -> str:
    """The bar between its ends; where the parts pass the card, the limit stands inside of it.

    >>> bar(PlanMemory(states=30, checkpoints=8, logits=0, fragmentation=0, other=0, total=38,
    ...     capacity=19))
    '│█████████████████████████████████████│█████████████████████▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓'
    """
    scale = (WIDTH - 2) / max(memory.total, memory.capacity, 1e-9)
    signs, end = "", 0.0
    for name, sign in SIGNS.items():  # each from where the one before it ends: no sum of roundings
        end += getattr(memory, name)
        signs += sign * (round(end * scale) - len(signs))
    at = round(memory.capacity * scale)
    return LIMIT + signs[:at].ljust(at) + LIMIT + signs[at:]
