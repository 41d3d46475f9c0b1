"""Each generator in each format: the ends of its range, and one of one's own that goes on."""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterator, Tuple

from ..judging.refusals import refuses
from ..judging.tolerance import Part, holds
from ..values import asked, kind

FLOATS = ("float32", "float64", "bfloat16", "float16")
WHOLES = ("int64", "int32", "int16", "int8", "uint8")
Drawing = Callable[[Any], Any]


def forms(torch: Any, device: str) -> Iterator[Part]:
    made = torch.Generator(device=device)
    made.manual_seed((asked().seed + 43) % 2**63)
    for part in (_ends, _goes_on):
        yield from part(torch, device, made)


def _offered(draw: Drawing, x: Any) -> Any:
    """What is drawn; None where this torch lacks the generator in this format."""
    try:
        return draw(x)
    except RuntimeError as problem:
        if not refuses(problem):
            raise
        return None


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
