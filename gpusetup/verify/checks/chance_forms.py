"""Each generator in each of its forms, held to what every draw has, or lacks once in 10^9.

Batches, with and without replacement, a generator of one's own, `out`, in place, each format, the
ends of a range, tensors whose numbers lie apart.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterator, List, Tuple

from ..judging.refusals import refuses
from ..judging.tolerance import Part, holds
from ..values import asked, kind

FLOATS = ("float32", "float64", "bfloat16", "float16")
WHOLES = ("int64", "int32", "int16", "int8", "uint8")
COUNT = 4099
"""Of five outcomes that come equally often one is missing once in 10^397."""
Drawing = Callable[[Any], Any]


def forms(torch: Any, device: str) -> Iterator[Part]:
    made = torch.Generator(device=device)
    made.manual_seed((asked().seed + 43) % 2**63)
    for part in (_chosen, _ordered, _whole, _flags, _ranges, _ends, _apart, _goes_on):
        yield from part(torch, device, made)


def _chosen(torch: Any, device: str, made: Any) -> Iterator[Part]:
    """Multinomial, of a line and of a matrix of weights, also one whose numbers lie apart."""
    for rows in (0, 1, 7):
        for name in ("float32", "float64", "float16", "bfloat16"):
            weights = torch.arange(2, 22, device=device).remainder(5).to(getattr(torch, name))
            weights = weights.expand(rows, 20).contiguous() if rows else weights
            lined = weights.t().contiguous().t() if rows else weights
            for given in (weights, lined):
                yield from _picked(torch, f"multinomial {rows} {name}", given, made)


def _picked(torch: Any, label: str, weights: Any, made: Any) -> Iterator[Part]:
    def once(replace: bool, count: int, **options: Any) -> Any:
        """Without replacement no weight is zero: it is divided by a number that may round to it."""
        return torch.multinomial(weights if replace else weights + 1, count, replace, **options)

    all_of_them = _offered(lambda _: once(False, 16, generator=made), weights)
    if all_of_them is None:
        return
    out = torch.empty_like(all_of_them)
    others = (once(False, 16), once(False, 16, generator=made, out=out), out)
    for found in (all_of_them, *others):
        line = found.cpu().sort(-1)[0]
        good = bool((line[..., 1:] > line[..., :-1]).all()) and bool((line < 20).all())
        yield holds(f"{label}, each once", good, "one is drawn twice")
    many = once(True, COUNT, generator=made).reshape(-1, COUNT)
    for line in many.cpu():
        seen = torch.bincount(line, minlength=20)
        good = bool(((seen > 0) == (weights.reshape(-1, 20)[0] > 0).cpu()).all())
        yield holds(f"{label}, with replacement", good, "an outcome is missing, or has no weight")
    if len(many) > 1:
        yield holds(f"{label}, rows", not bool((many[0] == many[1]).all()), "two rows are alike")


def _ordered(torch: Any, device: str, made: Any) -> Iterator[Part]:
    for name in ("int64", "int32", "int16", "float32", "float64"):
        dtype = getattr(torch, name)
        for count in (0, 1, 2, 257, 2003):
            into = torch.empty(count, dtype=dtype, device=device)
            into = torch.randperm(count, generator=made, dtype=dtype, device=device, out=into)
            for found in (into, torch.randperm(count, dtype=dtype, device=device)):
                good = torch.equal(found.cpu().double().sort()[0], torch.arange(count).double())
                yield holds(f"randperm {name} {count}", good, "no permutation")


def _whole(torch: Any, device: str, made: Any) -> Iterator[Part]:
    """Both ends of a range come, and nothing beyond them."""
    for name in WHOLES:
        dtype = getattr(torch, name)
        limits = torch.iinfo(dtype)
        least = limits.min
        for low, high in ((0, 5), (max(-2, least), 3), (limits.max - 4, limits.max), (3, 4)):
            tensors = (
                torch.randint(low, high, (COUNT,), generator=made, dtype=dtype, device=device),
                torch.empty(COUNT, dtype=dtype, device=device).random_(low, high, generator=made),
            )
            for found in tensors:
                ends = (int(found.min()), int(found.max()))
                yield holds(f"randint {name} {low}", ends == (low, high - 1), f"{ends}")
        if name != "int64":
            whole = torch.randint(least, limits.max + 1, (2**14,), dtype=dtype, device=device)
            spread = whole.double().cpu().std() / (2.0**limits.bits)
            yield holds(f"randint {name}, all", 0.26 < float(spread) < 0.32, "not the whole range")


def _flags(torch: Any, device: str, made: Any) -> Iterator[Part]:
    """What is sure, and that the seed is followed in each form."""
    dropout = torch.nn.functional.dropout
    for name in FLOATS:
        dtype = getattr(torch, name)
        ones = torch.ones(COUNT, dtype=dtype, device=device)
        sure: Tuple[Tuple[str, Callable[[Any], Any], int], ...] = (
            ("bernoulli of 1", lambda x: torch.bernoulli(x, generator=made), 1),
            ("bernoulli of 0", lambda x: torch.bernoulli(0 * x), 0),
            ("bernoulli_ of 1", lambda x: x.clone().bernoulli_(1.0, generator=made), 1),
            ("bernoulli_ of 0", lambda x: x.clone().bernoulli_(0.0), 0),
            ("bernoulli_ of a tensor", lambda x: x.clone().bernoulli_(x, generator=made), 1),
            ("dropout of all", lambda x: dropout(x, 1.0), 0),
            ("dropout of none", lambda x: dropout(x, 0.0), 1),
            ("dropout in use", lambda x: dropout(x, 0.9, False), 1),
            ("uniform_ of one", lambda x: x.clone().uniform_(1, 1, generator=made), 1),
            ("normal_ of one", lambda x: x.clone().normal_(1, 0, generator=made), 1),
        )
        for label, run, wanted in sure:
            found = _offered(run, ones)
            if found is not None:
                yield holds(f"{label}, {name}", bool((found == wanted).all()), "some are not")


def _offered(draw: Drawing, x: Any) -> Any:
    """What is drawn; None where this torch lacks the generator in this format."""
    try:
        return draw(x)
    except RuntimeError as problem:
        if not refuses(problem):
            raise
        return None


def _ranges(torch: Any, device: str, made: Any) -> Iterator[Part]:
    """Where no draw may lie, in each format; how many are alike at most."""
    for name in FLOATS:
        dtype = getattr(torch, name)
        calls: Dict[str, Tuple[Drawing, float, float]] = {
            "rand": (lambda x: x.uniform_(generator=made), 0.0, 1.0),
            "uniform_": (lambda x: x.uniform_(-3, 5, generator=made), -3.0, 5.0),
            "exponential_": (lambda x: x.exponential_(2.0, generator=made), 0.0, 1e4),
            "log_normal_": (lambda x: x.log_normal_(0, 0.1, generator=made), 0.4, 2.5),
            "geometric_": (lambda x: x.geometric_(0.5, generator=made), 1.0, 200.0),
            "normal_": (lambda x: x.normal_(3, 0.5, generator=made), -4.0, 10.0),
        }
        for label, (draw, low, high) in calls.items():
            found = _offered(draw, torch.full((COUNT,), -77.0, dtype=dtype, device=device))
            if found is None:
                continue
            found = found.double().cpu()
            good = bool(((found >= low) & (found <= high)).all())
            alike = len(set(found.tolist())) < (3 if label == "geometric_" else 50)
            yield holds(f"{label} {name}", good and not alike, "out of its range, or all alike")


MANY = 2**16
"""Of the numbers of a half one in 2^12 at most is rounded to the end: it is missed once in 10^7."""


def _ends(torch: Any, device: str, made: Any) -> Iterator[Part]:
    """The upper end of a range never comes, where every number of the format below it does; the
    lower end is one of them."""
    for name in FLOATS:
        dtype = getattr(torch, name)
        empty = torch.empty(MANY, dtype=dtype, device=device)
        for label, (draw, low, high) in _with_ends(torch, made, empty).items():
            found = _offered(draw, empty)
            if found is not None:
                good = bool(((found >= low) & (found < high)).all())
                yield holds(f"{label} {name}, ends", good, f"not in [{low}, {high})")
        kept = _offered(lambda x: torch.nn.functional.dropout(x, 0.25), torch.ones_like(empty))
        if kept is not None:
            two = torch.tensor([0.0, 1 / 0.75], dtype=torch.float64).to(dtype).double()
            near = (kept.cpu().double().unsqueeze(1) - two).abs() <= 2 * torch.finfo(dtype).eps
            yield holds(
                f"dropout {name}, values", bool(near.any(1).all()), "neither 0 nor 1 / 0.75"
            )


def _with_ends(torch: Any, made: Any, empty: Any) -> Dict[str, Tuple[Drawing, float, float]]:
    options = {"generator": made, "dtype": empty.dtype, "device": empty.device}
    return {
        "rand": (lambda x: torch.rand(MANY, **options), 0.0, 1.0),
        "uniform_": (lambda x: x.uniform_(generator=made), 0.0, 1.0),
        "uniform_ of four": (lambda x: x.uniform_(-2, 2, generator=made), -2.0, 2.0),
        "randint": (lambda x: torch.randint(-3, 100, (MANY,), **options), -3.0, 100.0),
        "random_": (lambda x: x.random_(0, 128, generator=made), 0.0, 128.0),
        "bernoulli_": (lambda x: x.bernoulli_(0.5, generator=made), 0.0, 2.0),
    }


def _apart(torch: Any, device: str, made: Any) -> Iterator[Part]:
    """In place into numbers that lie apart: all of them are drawn, nothing between them is."""
    calls: Dict[str, Drawing] = {
        "uniform_": lambda x: x.uniform_(1, 2, generator=made),
        "normal_": lambda x: x.normal_(9, 1, generator=made),
        "bernoulli_": lambda x: x.bernoulli_(1.0, generator=made),
        "exponential_": lambda x: x.exponential_(1.0, generator=made).add_(1e-6),
        "random_": lambda x: x.random_(1, 5, generator=made),
        "log_normal_": lambda x: x.log_normal_(generator=made),
        "cauchy_": lambda x: x.cauchy_(generator=made).abs_().add_(1e-6),
        "geometric_": lambda x: x.geometric_(0.5, generator=made),
    }
    for label, draw in calls.items():
        for cut in _views(torch, device):
            whole, some, mask = cut
            draw(some)
            drawn, kept = whole[mask], whole[~mask]
            good = bool((drawn > 0).all()) and bool((kept == -77).all())
            yield holds(f"{label} apart", good, "a number is left out, or one between is written")


def _views(torch: Any, device: str) -> List[Tuple[Any, Any, Any]]:
    found = []
    cuts: Tuple[Drawing, ...] = (lambda x: x[:, ::2], lambda x: x.t()[3:], lambda x: x[1:, 5:40])
    for cut in cuts:
        whole = torch.full((33, 50), -77.0, device=device)
        mask = torch.zeros(33, 50, dtype=torch.bool, device=device)
        cut(mask).fill_(True)
        found.append((whole, cut(whole), mask))
    return found


DRAWN = 257
"""Two draws of so many numbers are alike once in 10^77."""


def _goes_on(torch: Any, device: str, made: Any) -> Iterator[Part]:
    """A generator that is handed over goes on with each call, and from a state that is put back
    it gives the same again; the one of the whole process stays where it is."""
    for label, draw in _each_with_a_generator(torch, device, made).items():
        own = _own_state(torch, device)
        state = made.get_state()
        first = _offered(draw, None)
        if first is None:
            continue
        second = draw(None)
        made.set_state(state)
        again = draw(None)
        stays = own is None or torch.equal(own, _own_state(torch, device))
        yield holds(f"{label} goes on", not torch.equal(first, second), "it is drawn twice")
        yield holds(f"{label} again", torch.equal(first, again), "the state is not followed")
        yield holds(f"{label} alone", stays, "another generator was used too")


def _each_with_a_generator(torch: Any, device: str, made: Any) -> Dict[str, Drawing]:
    found: Dict[str, Drawing] = {}
    for name in FLOATS:
        options = {"generator": made, "dtype": getattr(torch, name), "device": device}
        found.update(_of_floats(torch, name, options))
    for name in WHOLES:
        into = torch.empty(DRAWN, dtype=getattr(torch, name), device=device)
        whole = {"generator": made, "dtype": into.dtype, "device": device}
        found[f"random_ {name}"] = _again(into.random_, 0, 100, generator=made)
        found[f"randint {name}"] = _again(torch.randint, 0, 100, (DRAWN,), **whole)
    options = {"generator": made, "device": device}
    found["randperm"] = lambda _: torch.randperm(DRAWN, **options)
    return found


def _again(call: Callable[..., Any], *given: Any, **options: Any) -> Drawing:
    return lambda _: call(*given, **options).clone()


def _of_floats(torch: Any, name: str, options: Dict[str, Any]) -> Dict[str, Drawing]:
    made = options["generator"]
    like = {key: options[key] for key in ("dtype", "device")}
    empty, half = torch.empty(DRAWN, **like), torch.full((DRAWN,), 0.5, **like)
    calls: Dict[str, Drawing] = {
        "rand": lambda _: torch.rand(DRAWN, **options),
        "randn": lambda _: torch.randn(DRAWN, **options),
        "randn of few": lambda _: torch.cat([torch.randn(7, **options) for _ in range(9)]),
        "uniform_": lambda _: empty.clone().uniform_(generator=made),
        "normal_": lambda _: empty.clone().normal_(generator=made),
        "normal of means": lambda _: torch.normal(half, 1.0, generator=made),
        "normal of spreads": lambda _: torch.normal(half, half, generator=made),
        "bernoulli": lambda _: torch.bernoulli(half, generator=made),
        "bernoulli_": lambda _: empty.clone().bernoulli_(0.5, generator=made),
        "bernoulli_ of a tensor": lambda _: empty.clone().bernoulli_(half, generator=made),
        "exponential_": lambda _: empty.clone().exponential_(generator=made),
        "log_normal_": lambda _: empty.clone().log_normal_(generator=made),
        "cauchy_": lambda _: empty.clone().cauchy_(generator=made),
        "geometric_": lambda _: empty.clone().geometric_(0.3, generator=made),
        "poisson": lambda _: torch.poisson(9 * half, generator=made),
        "multinomial": lambda _: torch.multinomial(half, DRAWN, True, generator=made),
        "multinomial once": lambda _: torch.multinomial(half, DRAWN - 7, generator=made),
        "random_": lambda _: empty.clone().random_(0, 100, generator=made),
    }
    return {f"{label} {name}": draw for label, draw in calls.items()}


def _own_state(torch: Any, device: str) -> Any:
    """Of the device's generator for the whole process; None where it is not known how to ask."""
    if kind(device) == "cpu":
        return torch.get_rng_state()
    return torch.cuda.get_rng_state(device) if kind(device) == "cuda" else None
