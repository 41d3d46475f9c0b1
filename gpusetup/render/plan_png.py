"""The grid as a picture: a heat map of recipes, by matplotlib (the extra `plot`)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gpusetup.errors import Blocked
from gpusetup.plan.model.workload import Recipe

if TYPE_CHECKING:
    from gpusetup.plan.answer.grid import Grid

NONE_COLOR = "#d0d0d0"


def write_png(found: Grid, file: Path) -> None:
    """Draw the grid; Blocked where matplotlib is missing or the file cannot be written."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib.figure import Figure
    except ImportError as problem:
        raise Blocked(
            "`--png` draws with matplotlib, which is not installed here",
            hint="`pip install matplotlib`",
        ) from problem
    figure = Figure(figsize=(2.2 * len(found.counts) + 2, 0.42 * len(found.lengths) + 1.4))
    axes = figure.add_subplot()
    _draw(axes, found)
    figure.tight_layout()
    try:
        figure.savefig(file, dpi=120, format="png")
    except OSError as problem:
        raise Blocked(f"Cannot write {file}: {problem.strerror}") from problem


def _draw(axes: object, found: Grid) -> None:
    first = found.plans[0][0]
    levels = levels_of(found)
    ax: object = axes
    most = max(levels.values(), default=1) or 1
    image = [[_level(plan.recipe, levels) for plan in row] for row in found.plans]
    colors = _colors()
    ax.imshow(image, aspect="auto", cmap=colors, vmin=0, vmax=1.6 * most)  # type: ignore[attr-defined]
    for y, row in enumerate(found.plans):
        for x, plan in enumerate(row):
            ax.text(x, y, plan.recipe, ha="center", va="center", fontsize=8)  # type: ignore[attr-defined]
    counts = [f"{n} GPU{'s' * (n > 1)}" for n in found.counts]
    ax.set_xticks(range(len(counts)), counts)  # type: ignore[attr-defined]
    ax.set_yticks(range(len(found.lengths)), [f"{n:,}" for n in found.lengths])  # type: ignore[attr-defined]
    ax.set_title(f"{first.model} on {first.gpu}")  # type: ignore[attr-defined]


def _colors() -> object:
    import matplotlib

    return matplotlib.colormaps["YlOrRd"].with_extremes(bad=NONE_COLOR)


def levels_of(found: Grid) -> dict[str, int]:
    """Each recipe of the grid -> its place in the order."""
    names = {plan.recipe for row in found.plans for plan in row if plan.fits}
    ordered = sorted(names, key=lambda name: Recipe.parse(name).rank)
    return {name: place for place, name in enumerate(ordered)}


def _level(recipe: str, levels: dict[str, int]) -> float:
    return float(levels[recipe]) if recipe in levels else float("nan")
