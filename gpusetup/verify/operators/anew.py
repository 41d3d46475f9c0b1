"""The same call again after other numbers were written into the same tensors.

What keeps something by its address (packed weights, a plan, a mask) then answers for the old ones.
"""

from __future__ import annotations

from typing import Any, Iterator, List

from ..judging.tolerance import Part
from .drawing import Draw

WAYS = ("without gradients", "without gradients", "for inference", "learning", "into out")


def written_anew(of: Any, seed: int) -> Iterator[Part]:
    """A small sample of the trial's operator and format, computed with one draw of numbers, then in
    the same way with another that was written over it at the same addresses."""
    sample = of.sample._replace(size=of.row.sizes[0])
    words = f"{seed}:{of.sample.name}"
    trial, other = (
        type(of)(of.torch, of.device, of.row, sample, Draw(of.torch, words, sample.size, turn))
        for turn in (0, 1)
    )
    if not _alike(trial.low, other.low):
        return
    layout = trial.sample.layout
    way = trial.draw.choice(WAYS)
    here: List[Any] = [trial.put(x, layout) for x in trial.low]
    first = trial.computed(here, trial.learns)
    upstream = [trial.upstream(each) for each in first.outputs]
    if way == "learning" and not _handed_back(other, upstream):
        way = "without gradients"
    if way != "learning":
        other.brief, upstream = True, [None for _ in upstream]
    trial.called(way, here, upstream, layout)
    with trial.torch.no_grad():
        for x, number in zip(here, other.low):
            x.copy_(number)
    found = other.called(way, here, upstream, layout)
    upstream = upstream if way == "learning" else [None for _ in found.outputs]
    exact, allowed = other.exactly(upstream)
    name = f"{of.sample.name} {layout}, {way}, {sample.size}, other numbers at the same place"
    yield from other.told(name, found, exact, allowed, upstream)


def _handed_back(other: Any, upstream: List[Any]) -> bool:
    """Whether what is handed back through an answer fits that of the other numbers too."""
    shapes = [x.shape for x in other.computed(other.low, False).outputs]
    given = [g is None or g.shape == shape for g, shape in zip(upstream, shapes)]
    return len(upstream) == len(shapes) and all(given) and any(g is not None for g in upstream)


def _alike(one: List[Any], other: List[Any]) -> bool:
    return [(x.shape, x.dtype) for x in one] == [(x.shape, x.dtype) for x in other]
