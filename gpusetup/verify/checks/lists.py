"""Reductions, sorting, indexing and lookups of whole numbers, held to Python's own lists."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from statistics import variance
from typing import Any, Callable, Dict, Iterator, List, Tuple

import torch

from ..judging.tolerance import Part, agree, judged, same, source, summed
from ..values import Outcome

LENGTHS = (2, 7, 257, 4097, 70_001)
Line = List[int]
REDUCTIONS: Dict[str, Callable[[Line], float]] = {
    "sum": sum,
    "amax": max,
    "argmin": lambda line: line.index(min(line)),
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
    order = shuffled(ITEMS, 22)
    count, keys, steps = list(range(ITEMS)), [x % 10 for x in order], list(range(0, ITEMS, 7))
    here, digits = (torch.tensor(each).to(device) for each in (order, keys))
    known: Dict[str, Tuple[Any, Line]] = {
        **{
            f"sort {name}": (here.to(getattr(torch, name)).sort()[0].long(), count)
            for name in ("int32", "int64", "float32", "float64")
        },
        "places": (here[here.sort()[1]], count),
        "stable": (torch.sort(digits, stable=True)[1], sorted(count, key=keys.__getitem__)),
        "topk": (here.float().topk(100)[0].long(), count[:-101:-1]),
        "median": (here.median().view(1), [(ITEMS - 1) // 2]),
        "unique": (torch.unique(digits), list(range(10))),
        "searchsorted": (
            torch.searchsorted(torch.tensor(steps).to(device), here),
            [bisect_left(steps, x) for x in order],
        ),
    }
    return _held(known)


def _held(known: Dict[str, Tuple[Any, Line]]) -> Outcome:
    parts = [same(name, found, torch.tensor(right)) for name, (found, right) in known.items()]
    return judged(parts, "Python's own lists")


def indexing(device: str) -> Outcome:
    """Gather, scatter, masks and adding at places."""
    order, plain = shuffled(ITEMS, 21), [3 * i + 1 for i in range(ITEMS)]
    places, line = torch.tensor(order).to(device), torch.tensor(plain).to(device)
    picked, back, sums = [plain[i] for i in order], [0] * ITEMS, [0] * 100
    for value, place in zip(plain, order):
        back[place] = value
        sums[place % 100] += value
    zeros, group, marked = torch.zeros_like(line), places % 100, line % 7 == 0
    known: Dict[str, Tuple[Any, Line]] = {
        "index": (line[places], picked),
        "gather": (line.gather(0, places), picked),
        "scatter": (zeros.scatter(0, places, line), back),
        "index_put": (zeros.index_put((places,), line), back),
        "index_add": (zeros[:100].index_add(0, group, line), sums),
        "mask": (line[marked], [x for x in plain if not x % 7]),
    }
    return _held(known)


WORDS, WIDTH = 40_009, 48
"""More words than 15 bits tell apart."""


def embedding(device: str) -> Outcome:
    """Rows of a table are looked up bit for bit; the gradient adds up every use of a word."""
    words = torch.randint(0, WORDS, (37, 53), generator=source(torch, 20))
    words[::2] %= 64
    table, columns = torch.arange(WORDS * 64.0).view(WORDS, 64)[:, :WIDTH], torch.arange(WIDTH)
    leaf, here = table.to(device).requires_grad_(), words.to(device)
    found = torch.nn.functional.embedding(here, leaf, padding_idx=7)
    found.sum().backward()
    uses = [0.0] * WORDS
    for word in words.flatten().tolist():
        uses[word] += word != 7
    parts = [
        same("looked up", found, (words.unsqueeze(-1) * 64 + columns).float()),
        same("uses", leaf.grad, torch.tensor(uses).unsqueeze(1).expand(-1, WIDTH)),
    ]
    return judged(parts, "how the table was made")
