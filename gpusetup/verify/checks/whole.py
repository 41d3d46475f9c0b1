"""Large products checked at every element, calls that repeat, and chance of every kind."""

from __future__ import annotations

import threading
from math import ceil, log2, pi, sqrt
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Tuple

from ..judging.refusals import has_bfloat16, refuses
from ..judging.tolerance import ROUNDOFF, Part, agree, holds, judged, numbers, same, source
from ..values import Outcome, asked
from .chance_forms import forms
from .computing import capability_of


class Large(NamedTuple):
    rows: int
    inner: int
    columns: int
    turned: Tuple[bool, bool] = (False, False)
    """Which factors are stored by columns."""
    dtypes: Tuple[str, ...] = ("float32", "bfloat16", "float16")


LARGE = (
    Large(4096, 4096, 4096, dtypes=("float32",)),
    Large(4097, 4095, 65, (True, False)),
    Large(63, 4097, 4095, (False, True)),
    Large(1025, 1023, 1025, (True, True), ("float32", "bfloat16")),
    Large(33, 131072, 31),
    Large(16, 65537, 17, (True, True)),
    Large(70001, 33, 9),
    Large(1, 4097, 8191, (False, True)),
    # A CPU takes thirty times as long for these as for others.
    Large(513, 511, 513, (True, True), ("float16",)),
)
ONES = 24
"""Numbers other than 0 in a column of the right factor: every sum is a whole number that half
precision holds, in whatever order it is added."""
ROWS_AT_ONCE = 256


def whole_products(device: str) -> Outcome:
    """Products up to 4096 x 4096 x 4096, each element checked by its row's sum with weights.

    A row of a product times weights is a row of the left factor times what the right one makes of
    the weights (Freivalds). All are whole numbers, so one wrong element of 16 millions is seen.
    """
    import torch

    parts: List[Part] = []
    left_out: List[str] = []
    for salt, row in enumerate(LARGE):
        for name in row.dtypes:
            if name == "bfloat16" and not has_bfloat16(capability_of(torch, device)):
                continue
            try:
                parts += _multiplied(torch, device, row, name, 300 + salt)
            except RuntimeError as problem:
                if not refuses(problem):
                    raise
                left_out.append(name)
    without = f"; no {', '.join(sorted(set(left_out)))} in this torch" if left_out else ""
    return judged(parts, f"whole numbers, every element{without}")


def _multiplied(torch: Any, device: str, row: Large, name: str, salt: int) -> Iterator[Part]:
    made, dtype = source(torch, salt), getattr(torch, name)
    left = torch.randint(-2, 3, (row.rows, row.inner), generator=made, dtype=torch.int8)
    right = torch.zeros(row.inner, row.columns, dtype=torch.int8)
    places = torch.randint(0, row.inner, (ONES, row.columns), generator=made)
    right.scatter_(0, places, torch.ones(1, 1, dtype=torch.int8).expand(places.shape))
    weights = torch.randint(1, 1000, (row.columns,), generator=made).double()
    wanted = _weighed(torch, left, _weighed(torch, right, weights))
    here = [_stored(x.to(device).to(dtype), turned) for x, turned in zip((left, right), row.turned)]
    label = f"{row.rows} x {row.inner} x {row.columns} {name}"
    for call in ("", " again"):
        found = _weighed(torch, (here[0] @ here[1]).cpu(), weights)
        yield same(label + call, found, wanted)


def _stored(x: Any, by_columns: bool) -> Any:
    return x.t().contiguous().t() if by_columns else x


def _weighed(torch: Any, x: Any, weights: Any) -> Any:
    """Each row times the weights, in float64 by single products and a sum."""
    parts = [(part.double() * weights).sum(1) for part in x.split(ROWS_AT_ONCE)]
    return torch.cat(parts)


REPEATS = 24
THREADS = 3


def repeats(device: str) -> Outcome:
    """The same call many times, cold and warm, on other threads and streams, in between others:
    the same bits each time."""
    import torch

    functional = torch.nn.functional
    x = numbers(torch, 257, 384, salt=320).to(device)
    w = numbers(torch, 384, 384, salt=321).to(device)
    image = numbers(torch, 2, 16, 33, 33, salt=322).to(device)
    kernel = numbers(torch, 8, 16, 3, 3, salt=323).to(device)
    heads = numbers(torch, 2, 4, 65, 64, salt=324).to(device)
    low = torch.bfloat16 if has_bfloat16(capability_of(torch, device)) else torch.float16
    calls: Dict[str, Callable[[], Any]] = {
        "product": lambda: x @ w,
        "half product": lambda: x.to(low) @ w.to(low),
        "sum": lambda: x.sum(1),
        "softmax": lambda: x.softmax(1),
        "layer norm": lambda: functional.layer_norm(x, (384,)),
        "gelu": lambda: functional.gelu(x),
        "convolution": lambda: functional.conv2d(image, kernel),
        "max-pool": lambda: functional.max_pool2d(image, 2),
        "attention": lambda: functional.scaled_dot_product_attention(heads, heads, heads),
        "sort": lambda: x.sort(1)[0],
        "running sum": lambda: x.cumsum(1),
        "copy": lambda: x.t().contiguous(),
        "embedding": lambda: functional.embedding(torch.arange(0, 257, 3, device=device), x),
    }
    if not hasattr(functional, "scaled_dot_product_attention"):
        del calls["attention"]
    first = {name: run().cpu() for name, run in calls.items()}
    parts = [_repeated(torch, name, run, first[name]) for name, run in calls.items()]
    parts += _at_once(torch, calls, first)
    if device.startswith("cuda"):
        parts += _on_a_stream(torch, device, calls, first)
    return judged(parts, f"the first of {REPEATS} calls, every bit")


def _repeated(torch: Any, name: str, run: Callable[[], Any], first: Any) -> Part:
    for call in range(1, REPEATS):
        part = same(f"{name}, call {call + 1}", run(), first)
        if not part.worst <= 1:
            return part
    return part


def _at_once(torch: Any, calls: Any, first: Any) -> List[Part]:
    """On several threads side by side."""
    found: List[Part] = []

    def work() -> None:
        for name, run in calls.items():
            with torch.no_grad():
                found.append(same(f"{name}, on a thread", run(), first[name]))

    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    whole = len(found) == THREADS * len(calls)
    return [*found, holds("threads", whole, "a thread ended with an error")]


def _on_a_stream(torch: Any, device: str, calls: Any, first: Any) -> List[Part]:
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        found = {name: run() for name, run in calls.items()}
    stream.synchronize()
    # Another stream may be given another workspace, and so another way to split a sum.
    shares = {name: 1e-2 * each.double().abs().max() for name, each in first.items()}
    return [agree(f"{name}, on a stream", found[name], first[name], shares[name]) for name in calls]


DRAWS = 2**18
LAGS = tuple(2**power for power in range(18))
"""A generator whose numbers come again does so after some power of two, mostly."""
ORDERED, STILL = (1023, 4296, 70001), 18
"""Lengths of permutations, and how many numbers may stay: 1 on average, more than 18 once in
10^17."""
SIGMAS = 6.5
"""A sound generator is farther off once in ten thousand million figures."""


def chance(device: str) -> Outcome:
    """Every kind of random number has its mean and its spread, follows the seed, and no part of it
    or of the next draw comes again."""
    import torch

    parts: List[Part] = []
    for name, run, mean, spread in _kinds(torch, device):
        parts += _drawn(torch, device, name, run, mean, spread)
    for dtype in ("float32", "bfloat16", "float16"):
        try:
            parts += _dropped(torch, device, dtype)
        except RuntimeError as problem:
            if not refuses(problem):
                raise
    parts += _dropped_whole(torch, device)
    parts += _orders(torch, device)
    parts += forms(torch, device)
    return judged(parts, "what chance gives")


def _kinds(torch: Any, device: str) -> Iterator[Tuple[str, Callable[[], Any], float, float]]:
    """Name, draw, mean, deviation."""
    weights = torch.tensor([0.1, 0.2, 0.3, 0.4], device=device)

    def empty() -> Any:
        return torch.empty(DRAWS, device=device)

    yield "rand", lambda: torch.rand(DRAWS, device=device), 0.5, sqrt(1 / 12)
    yield "randn", lambda: torch.randn(DRAWS, device=device), 0.0, 1.0
    yield "randn in half", lambda: torch.randn(DRAWS, device=device, dtype=torch.float16), 0.0, 1.0
    yield "rand in float64", lambda: torch.rand(DRAWS, device=device).double(), 0.5, sqrt(1 / 12)
    yield "randint", lambda: torch.randint(0, 100, (DRAWS,), device=device), 49.5, sqrt(9999 / 12)
    yield "uniform_", lambda: empty().uniform_(-1, 3), 1.0, sqrt(16 / 12)
    yield "normal_", lambda: empty().normal_(2, 3), 2.0, 3.0
    yield "exponential_", lambda: empty().exponential_(0.5), 2.0, 2.0
    yield "bernoulli_", lambda: empty().bernoulli_(0.3), 0.3, sqrt(0.21)
    yield "bernoulli", lambda: torch.bernoulli(torch.full((DRAWS,), 0.7, device=device)), 0.7, 0.46
    yield "geometric_", lambda: empty().geometric_(0.5), 2.0, sqrt(2.0)
    yield "multinomial", lambda: torch.multinomial(weights, DRAWS, True), 2.0, 1.0
    yield "rand_like", lambda: torch.rand_like(empty()), 0.5, sqrt(1 / 12)
    yield "poisson", lambda: torch.poisson(torch.full((DRAWS,), 4.0, device=device)), 4.0, 2.0
    yield from _of_laws(torch, empty)


def _of_laws(torch: Any, empty: Callable[[], Any]) -> Iterator[Tuple[str, Any, float, float]]:
    """As torch.distributions draws them. A Cauchy law has no mean: its angle has one."""
    yield "gamma", lambda: torch._standard_gamma(empty().fill_(4)), 4.0, 2.0
    yield "log_normal_", lambda: empty().log_normal_(1, 0.5).log(), 1.0, 0.5
    yield "cauchy_", lambda: empty().cauchy_(1, 2).sub(1).div(2).atan(), 0.0, pi / sqrt(12)
    half = empty().fill_(0.5)
    yield "binomial", lambda: torch.binomial(16 * half + 8, half), 8.0, 2.0
    three = half.unsqueeze(1).expand(DRAWS, 2) * 6
    yield "dirichlet", lambda: torch._sample_dirichlet(three)[:, 0], 0.5, sqrt(1 / 28)
    yield "native_dropout", lambda: torch.native_dropout(half, 0.5, True)[0], 0.5, 0.5
    yield "rrelu", lambda: torch.rrelu(-half, 0, 1, True), -0.25, sqrt(1 / 48)


def _drawn(
    torch: Any, device: str, name: str, run: Callable[[], Any], mean: float, spread: float
) -> Iterator[Part]:
    torch.manual_seed((asked().seed + 41) % 2**63)
    first, second = run().cpu(), run().cpu()
    torch.manual_seed((asked().seed + 41) % 2**63)
    yield same(f"{name}, the same seed", run(), first)
    yield holds(f"{name}, the next draw", not torch.equal(first, second), "repeats the one before")
    share = SIGMAS * spread / sqrt(DRAWS) + 1e-4 * (abs(mean) + spread)
    values = first.double()
    yield agree(f"{name}, mean", values.mean(), torch.tensor(mean).double(), share)
    yield agree(f"{name}, spread", values.std(), torch.tensor(spread).double(), 0.02 * spread)
    halves = values.reshape(2, -1).mean(1)
    apart = 2 * SIGMAS * spread / sqrt(DRAWS) + 1e-4 * spread
    yield agree(f"{name}, both halves", halves[0], halves[1], apart)
    away = (values - mean) / spread
    yield from _anew(torch, f"{name}, parts", first, second)
    for lag in LAGS:
        alike = (away[lag:] * away[:-lag]).mean()
        label = f"{name}, neighbours" if lag == 1 else f"{name}, {lag} apart"
        wide = SIGMAS / sqrt(DRAWS - lag) + 1e-3
        yield agree(label, alike, torch.zeros(()).double(), wide)


ONCE_IN = 100
"""Bits: so long is a part of a draw that another one like it comes by chance once in 2^100."""
MIXED = (-7046029254386353131, -4417276706812531889, 1609587929392839161)
"""Odd numbers without a pattern: each bit of what they multiply reaches higher ones."""


def _anew(torch: Any, label: str, first: Any, second: Any) -> Iterator[Part]:
    """No part of two draws comes twice, at whatever places of one or of both."""
    alike = float((first[1:] == first[:-1]).double().mean())
    bits = -log2(min(max(alike, 2.0**-17), 0.99))
    steps = ceil(log2(ONCE_IN / bits))
    marks = torch.cat([_marked(torch, each, steps) for each in (first, second)]).sort()[0]
    twice = int((marks[1:] == marks[:-1]).sum())
    told = f"{twice} parts of {2**steps} numbers come twice in two draws"
    yield holds(label, not twice, told)


def _marked(torch: Any, drawn: Any, steps: int) -> Any:
    """For each place a number of 64 bits that follows from the 2^steps drawn numbers from there on;
    what is multiplied wraps."""
    found = drawn.flatten().double().view(torch.int64)
    for factor in MIXED[:2]:
        found = found * factor
        found = found ^ (found >> 31)
    for step in range(steps):
        found = found[: -(2**step)] * (MIXED[2] + 2 * step) + found[2**step :]
        found = (found ^ (found >> 29)) * MIXED[step % 2]
    return found


def _orders(torch: Any, device: str) -> Iterator[Part]:
    """Permutations: each number once, hardly one where it was, in no part of them."""
    for count in ORDERED:
        torch.manual_seed((asked().seed + 47) % 2**63)
        found, other = (torch.randperm(count, device=device).cpu() for _ in range(2))
        places = torch.arange(count)
        yield same(f"randperm {count}, each once", found.sort()[0], places)
        still = int((found == places).sum())
        yield holds(f"randperm {count}", still <= STILL, f"{still} numbers stay where they were")
        alike = int((found == other).sum())
        yield holds(f"randperm {count}, the next", alike <= STILL, f"{alike} places are alike")


def _dropped(torch: Any, device: str, dtype: str) -> Iterator[Part]:
    """The mask of a dropout is new each time, the same backward as forward, and scaled."""
    functional = torch.nn.functional
    kind = "" if dtype == "float32" else f" in {dtype}"
    for share in (0.1, 0.5, 0.9):
        near = max(1e-5, 2 * ROUNDOFF[dtype] / (1 - share))
        x = torch.ones(513, 257, device=device, dtype=getattr(torch, dtype), requires_grad=True)
        torch.manual_seed((asked().seed + 43) % 2**63)
        first = functional.dropout(x, share)
        second = functional.dropout(x, share)
        differ = not torch.equal(first, second)
        if dtype == "float32":
            masks = ((each != 0).flatten().cpu() for each in (first, second))
            yield from _anew(torch, f"dropout {share}, parts", *masks)
        yield holds(f"dropout {share}{kind}, the next mask", differ, "repeats the one before")
        yield agree(
            f"dropout {share}{kind}, kept", first, (first != 0).double().cpu() / (1 - share), near
        )
        first.sum().backward()
        again = first.detach().cpu().double()
        yield agree(f"dropout {share}{kind} backward", x.grad, again, near)
        deviation = SIGMAS * sqrt(share * (1 - share) / x.numel())
        kept = (first != 0).double().mean().cpu()
        yield agree(
            f"dropout {share}{kind}, share", kept, torch.tensor(1 - share).double(), deviation
        )
        rows = (first != 0).double().mean(1).cpu()
        wide = 7 * sqrt(share * (1 - share) / 257)
        yield agree(
            f"dropout {share}{kind}, rows", rows, torch.full((513,), 1 - share).double(), wide
        )


def _dropped_whole(torch: Any, device: str) -> Iterator[Part]:
    functional = torch.nn.functional
    channels = functional.dropout2d(torch.ones(64, 32, 5, 5, device=device), 0.5).cpu().flatten(2)
    whole = bool(((channels == channels[..., :1]).all()) & (channels.mean() > 0.5))
    yield holds("dropout2d", whole, "a channel is neither dropped nor kept whole")
    still = functional.dropout(torch.ones(99, device=device), 0.5, training=False)
    yield same("dropout in use", still, torch.ones(99))
