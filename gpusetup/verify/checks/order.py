"""What moves numbers without changing them: embedding, indexing, sorting.

The expected answers come from how the data were made, not from the same operation elsewhere.
"""

from __future__ import annotations

from typing import Any, Iterator, List

from ..judging.tolerance import Part, agree, holds, judged, same, source, summed
from ..values import Outcome

WORDS, WIDTH = 5003, 48


def embedding(device: str) -> Outcome:
    """Rows of a table are looked up bit for bit; the gradient adds up every use of a word."""
    import torch

    return judged(list(_embedded(torch, device)), "how the table was made")


def _embedded(torch: Any, device: str) -> Iterator[Part]:
    """Row w, column c of the table is w * 64 + c."""
    functional = torch.nn.functional
    words = torch.randint(0, WORDS, (37, 53), generator=source(torch, 20))
    columns = torch.arange(WIDTH)
    table = (torch.arange(WORDS).unsqueeze(1) * 64 + columns).float()
    wanted = (words.unsqueeze(-1) * 64 + columns).float()
    leaf = table.to(device).requires_grad_()
    found = functional.embedding(words.to(device), leaf, padding_idx=7)
    yield same("looked up", found, wanted)
    found.sum().backward()
    counts = torch.tensor([words.flatten().tolist().count(word) for word in range(64)])
    counts[7] = 0
    yield same("uses", leaf.grad[:64, 0], counts.float())
    yield holds("sum of uses", float(leaf.grad.double().sum()) == WIDTH * _used(words), "wrong")
    bags = functional.embedding_bag(words.to(device), table.to(device), mode="mean")
    mean = (words.double().mean(1, keepdim=True)) * 64 + columns
    yield agree("mean of a bag", bags, mean, summed(1) * mean.abs())


def _used(words: Any) -> int:
    flat: List[int] = words.flatten().tolist()
    return len(flat) - flat.count(7)


ITEMS = 30_011


def indexing(device: str) -> Outcome:
    """Gather, scatter, masks, slices and adding at places, with known answers."""
    import torch

    return judged(list(_indexed(torch, device)), "whole numbers, every bit")


def _indexed(torch: Any, device: str) -> Iterator[Part]:
    """Element i of the line is 3 * i + 1."""
    order = torch.randperm(ITEMS, generator=source(torch, 21))
    places, count = order.to(device), torch.arange(ITEMS)
    line = (count * 3 + 1).to(device)
    wanted = order * 3 + 1
    yield same("index", line[places], wanted)
    yield same("gather", line.gather(0, places), wanted)
    yield same("index_select", line.index_select(0, places), wanted)
    back = torch.zeros(ITEMS, dtype=torch.int64, device=device)
    yield same("scatter", back.clone().scatter_(0, places, places * 3 + 1), count * 3 + 1)
    back[places] = places
    yield same("put", back, count)
    yield from _added(torch, device, places, count)
    kept = count[count % 7 == 0]
    yield same("mask", count.to(device)[(count % 7 == 0).to(device)], kept)
    yield same("nonzero", (count % 7 == 0).to(device).nonzero().flatten(), kept)
    chosen = torch.where((count % 2 == 0).to(device), line, -line)
    yield same("where", chosen, (count * 3 + 1) * (1 - 2 * (count % 2)))
    yield same("flip", line.flip(0), (ITEMS - 1 - count) * 3 + 1)
    yield same("roll", line.roll(5), (count - 5) % ITEMS * 3 + 1)
    grid = torch.arange(7 * 11 * 13).reshape(7, 11, 13)
    yield same("turned", grid.to(device).permute(2, 0, 1).contiguous().flatten(), _turned(torch))


def _turned(torch: Any) -> Any:
    return torch.tensor(
        [b * 143 + c * 13 + a for a in range(13) for b in range(7) for c in range(11)]
    )


def _added(torch: Any, device: str, places: Any, count: Any) -> Iterator[Part]:
    """Many additions meet at the same hundred places; whole numbers make them exact."""
    group = places % 100
    zero = torch.zeros(100, dtype=torch.int64, device=device)
    sums = [sum(range(start, ITEMS, 100)) for start in range(100)]
    yield same("index_add", zero.index_add(0, group, places), torch.tensor(sums))
    yield same("scatter_add", zero.scatter_add(0, group, places), torch.tensor(sums))
    floats = zero.float().index_add(0, group, torch.ones(ITEMS, device=device))
    yield same(
        "counted", floats, torch.tensor([float(len(range(g, ITEMS, 100))) for g in range(100)])
    )
    yield same("bincount", torch.bincount(group, minlength=100), floats.cpu().long())


def sorting(device: str) -> Outcome:
    """A shuffled range comes back in order, in several formats; equal keys keep their order."""
    import torch

    return judged(list(_sorted(torch, device)), "a shuffled range, every bit")


def _sorted(torch: Any, device: str) -> Iterator[Part]:
    order = torch.randperm(ITEMS, generator=source(torch, 22))
    count = torch.arange(ITEMS)
    for name in ("int32", "int64", "float32", "float64"):
        dtype = getattr(torch, name)
        values, places = (order - 15_000).to(dtype).to(device).sort()
        yield same(f"sort {name}", values, (count - 15_000).to(dtype))
        yield same(f"places {name}", order[places.cpu()], count)
    keys = order.to(device) % 10
    _, places = torch.sort(keys, stable=True)
    wanted = [i for _, i in sorted((key % 10, i) for i, key in enumerate(order.tolist()))]
    yield same("stable", places, torch.tensor(wanted))
    best, _ = order.to(device).float().topk(100)
    yield same("topk", best, torch.arange(ITEMS - 1, ITEMS - 101, -1).float())
    yield same("kthvalue", order.to(device).kthvalue(500)[0], torch.tensor(499))
    yield same("unique", torch.unique(keys), torch.arange(10))
    line = count.to(device) * 2
    yield same("searchsorted", torch.searchsorted(line, order.to(device) * 2 - 1), order)
    yield same("median", order.to(device).median(), torch.tensor((ITEMS - 1) // 2))
