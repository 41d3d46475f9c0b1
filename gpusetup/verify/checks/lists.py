"""Reductions, sorting, indexing, lookups of whole numbers, held to ranges and Python lists."""

from __future__ import annotations

from itertools import accumulate
from statistics import variance
from typing import Any, Callable, Dict, Iterator, List

import torch

from ..judging.tolerance import Part, agree, judged, same, source, summed
from ..values import Outcome

LENGTHS = (2, 7, 257, 4097, 70_001)
Line = List[int]
REDUCTIONS: Dict[str, Callable[[Line], float]] = {
    "sum": sum,
    "amax": max,
    "argmin": lambda line: line.index(min(line)),
    "argmax": lambda line: line.index(max(line)),
    "mean": lambda line: sum(line) / len(line),
    "var": variance,
    "norm": lambda line: float(sum(x * x for x in line)) ** 0.5,
}
SCANS: Dict[str, Callable[[Line], Any]] = {
    "cumsum": accumulate,
    "cummax": lambda line: accumulate(line, max),
}


def shuffled(length: int, salt: int) -> Line:
    found: Line = torch.randperm(length, generator=source(torch, salt)).tolist()
    return found


def reductions(device: str) -> Outcome:
    """Sums, means, variances, norms, extremes and running sums, of lines laid across and down."""
    return judged(list(_reduced(device)), "Python's own lists")


def _reduced(device: str) -> Iterator[Part]:
    for length in LENGTHS:
        # small enough for every sum, also of squares, to stay below 2^24
        lines = [[x % 31 - 15 for x in shuffled(length, salt)] for salt in range(3)]
        for line in lines:
            line[length // 2] = -16  # the least one has one place
        across = torch.tensor(lines).float().to(device)
        for way, x, dim in (("across", across, 1), ("down", across.t().contiguous(), 0)):
            for name, reduced in REDUCTIONS.items():
                found = getattr(torch, name)(x, dim=dim).float()
                wanted = torch.tensor([float(reduced(line)) for line in lines]).double()
                inexact = name in ("mean", "var", "norm")
                allowed = summed(1) * (1 + wanted.abs()) * inexact
                yield agree(f"{name} of {length} {way}", found, wanted, allowed)
            for name, scan in SCANS.items():
                found = getattr(torch, name)(x, dim=dim)
                found = found if name == "cumsum" else found[0]
                exact = torch.tensor([list(scan(line)) for line in lines]).float()
                label = f"{name} of {length} {way}"
                yield same(label, found, exact if dim else exact.t())


ITEMS = 30_011


def sorting(device: str) -> Outcome:
    """A shuffled range comes back in order, in several formats; equal keys keep their order."""
    mixed = torch.randperm(ITEMS, generator=source(torch, 22)).to(device)
    count = torch.arange(ITEMS, device=device)
    stable = torch.sort(mixed % 10, stable=True)[1]
    apart = ((mixed % 10)[stable] * ITEMS + stable).diff()
    known = {
        **{f"sort {name}": mixed.to(getattr(torch, name)).sort()[0] for name in NAMES},
        "places": mixed[mixed.sort()[1]],
        "stable": stable.sort()[0] + (apart <= 0).sum(),
        "searchsorted": torch.searchsorted(count * 2, mixed * 2 - 1)[mixed.argsort()],
        "topk": torch.cat([count[:-100], mixed.topk(100)[0].flip(0)]),
        "median": count + (mixed.median() - (ITEMS - 1) // 2),
        "unique": count + (torch.unique(mixed % 10) - count[:10]).abs().sum(),
    }
    return _come_back(known)


NAMES = ("int32", "int64", "float32", "float64")


def _come_back(known: Dict[str, Any]) -> Outcome:
    """Each must be the numbers from 0 on."""
    count = torch.arange(ITEMS)
    return judged([same(name, found.long(), count) for name, found in known.items()], "a range")


def indexing(device: str) -> Outcome:
    """What is gathered at mixed places and scattered to them comes back; so do masked parts;
    additions that meet at the same place are all counted."""
    places = torch.randperm(ITEMS, generator=source(torch, 21)).to(device)
    count, zeros = torch.arange(ITEMS, device=device), torch.zeros_like(places)
    ones, even = zeros.float() + 1, count % 2 == 0
    sizes = torch.tensor([len(range(group, ITEMS, 100)) for group in range(100)], device=device)
    group, few = places % 100, zeros[:100]
    known = {
        "gather": zeros.scatter(0, places, count.gather(0, places)),
        "index": zeros.index_put((places,), count[places]),
        "index_select": zeros.index_copy(0, places, count.index_select(0, places)),
        "mask": torch.cat([count[even], count[~even]]).sort()[0],
        "where": torch.where(even, count, zeros) + torch.where(even, zeros, count),
        "index_add": count + (few.float().index_add(0, group, ones).long() - sizes)[group],
        "scatter_add": count + (few.scatter_add(0, group, zeros + 1) - sizes)[group],
        "bincount": count + (torch.bincount(group) - sizes)[group],
    }
    return _come_back(known)


WORDS, WIDTH = 40_009, 48
"""More words than 15 bits tell apart."""


def embedding(device: str) -> Outcome:
    """Rows of a table are looked up bit for bit; the gradient adds up every use of a word."""
    words = torch.randint(0, WORDS, (37, 53), generator=source(torch, 20))
    words[::2] %= 64
    table = torch.arange(WORDS * 64.0).view(WORDS, 64)[:, :WIDTH].to(device).requires_grad_()
    found = torch.nn.functional.embedding(words.to(device), table, padding_idx=7)
    found.sum().backward()
    uses = torch.bincount(words[words != 7], minlength=WORDS).float()
    parts = [
        same("looked up", found, (words.unsqueeze(-1) * 64 + torch.arange(WIDTH)).float()),
        same("uses", table.grad, uses.unsqueeze(1).expand(-1, WIDTH)),
    ]
    return judged(parts, "how the table was made")
