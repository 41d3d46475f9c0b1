"""The grid as a picture: recipes over lengths and GPUs, by matplotlib (the extra `plot`)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpusetup.errors import Blocked
from gpusetup.model.shell import own_line
from gpusetup.plan.model.workload import Recipe
from gpusetup.system.refused import blocked_by_files

if TYPE_CHECKING:
    from gpusetup.plan.answer.grid import Grid

NONE_COLOR = "#d0d0d0"
LIGHT = 0.15
"""Where the palette begins: darker text stays readable on every colour."""


def write_png(found: Grid, file: Path) -> None:
    """Draw the grid; Blocked where matplotlib is missing or the file cannot be written."""
    figure = _figure(found)
    with blocked_by_files(f"Cannot write {file}", "name another file"):
        figure.savefig(file, dpi=120, format="png")


def _figure(found: Grid) -> Any:
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib.figure import Figure
    except ImportError as problem:
        typed = own_line(sys.executable, "-m", "pip", "install", "gpusetup[plot]")
        raise Blocked(
            "`--png` draws with matplotlib, which this Python does not have",
            hint=f"it is gpusetup's extra `plot`: `{typed}`",
        ) from problem
    width, height = 2.3 * len(found.counts) + 4.2, 0.42 * len(found.lengths) + 2.2
    figure = Figure(figsize=(width, height), layout="constrained")
    _draw(figure.add_subplot(), found)
    return figure


def _draw(ax: Any, found: Grid) -> None:
    first, levels = found.plans[0][0], levels_of(found)
    colors = _colors(levels)
    for y, row in enumerate(found.plans):
        for x, plan in enumerate(row):
            _cell(ax, x, y, plan, colors)
    counts = [str(n) for n in found.counts]
    ax.set_xticks(range(len(counts)), counts)
    ax.set_yticks(range(len(found.lengths)), [f"{n:,}" for n in found.lengths])
    ax.set_xlim(-0.5, len(counts) - 0.5)
    ax.set_ylim(len(found.lengths) - 0.5, -0.5)
    ax.set_xlabel("GPUs that train")
    ax.set_ylabel("tokens of the longest sequence")
    ax.set_title(f"{first.model} on {first.gpu}: the recipe that fits")
    _legend(ax, found, colors)


def _cell(ax: Any, x: int, y: int, plan: Any, colors: dict[str, Any]) -> None:
    """One plan: its recipe, the GiB that the model says, a dot where the recipe was measured."""
    from matplotlib.patches import Rectangle

    color = colors.get(plan.recipe, NONE_COLOR)
    ax.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=color, edgecolor="white"))
    sign = {"measured": "● ", "clear": "", "close": "~ "}[plan.confidence]
    text = f"{plan.recipe}, {plan.memory_gib.total:.0f} GiB" if plan.fits else "does not fit"
    ax.text(x, y, sign + text, ha="center", va="center", fontsize=7)


def _legend(ax: Any, found: Grid, colors: dict[str, Any]) -> None:
    """Each recipe's colour, and what the signs mean."""
    from matplotlib.patches import Patch

    handles: list[Any] = [Patch(facecolor=color, label=name) for name, color in colors.items()]
    plans = [plan for row in found.plans for plan in row]
    if not all(plan.fits for plan in plans):
        handles.append(Patch(facecolor=NONE_COLOR, label="does not fit"))
    if any(plan.confidence == "measured" for plan in plans):
        handles.append(_sign("o", "recipe was measured"))
    near = plans[0].near_percent
    handles.append(_sign(r"$\sim$", f"within {near} % of the limit"))
    ax.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False)


def _sign(marker: str, label: str) -> Any:
    from matplotlib.lines import Line2D

    return Line2D([0], [0], marker=marker, label=label, linestyle="none", color="black")


def _colors(levels: dict[str, int]) -> dict[str, Any]:
    """Recipe -> its colour: light where it costs no speed, dark where it costs most."""
    import matplotlib

    palette, most = matplotlib.colormaps["YlOrRd"], max(len(levels) - 1, 1)
    return {name: palette(LIGHT + 0.5 * place / most) for name, place in levels.items()}


def levels_of(found: Grid) -> dict[str, int]:
    """Each recipe of the grid -> its place in the order."""
    names = {plan.recipe for row in found.plans for plan in row if plan.fits}
    ordered = sorted(names, key=lambda name: Recipe.parse(name).rank)
    return {name: place for place, name in enumerate(ordered)}
