"""Statistics, counts, distances, segments and steps, with each of their options alone."""

from __future__ import annotations

from math import floor, inf
from typing import Any, Dict, List, Tuple

from .drawing import Draw
from .single_options import HELD, Made, by_single_options
from .table import FULL, Operator

# --- spreads -------------------------------------------------------------------------------------


def _observed(d: Draw, rows: int, count: int, **of: Any) -> Made:
    x = d.normal(rows, count) if rows else d.normal(count)
    return Made([x + 0.5, d.whole(1, 5, count), d.uniform(0.8, 1.2, count)], of)


def _covaried(
    t: Any, x: Any, times: Any, w: Any, correction: int, often: bool, heavy: bool, held: str
) -> List[Any]:
    x = x[:1].expand_as(x) if held == "expanded" and x.dim() > 1 else x
    weights = {"fweights": times if often else None, "aweights": w.detach() if heavy else None}
    return [t.cov(x, correction=correction, **weights), t.corrcoef(x)]


def _covaried_exact(
    t: Any, x: Any, times: Any, w: Any, correction: int, often: bool, heavy: bool, held: str
) -> List[Any]:
    x = x[:1].expand_as(x) if held == "expanded" and x.dim() > 1 else x
    lines = x if x.dim() > 1 else x.unsqueeze(0)
    one = 0 * w.detach() + 1
    each = (times if often else one) * (w.detach() if heavy else one)
    total = each.sum()
    away = lines - ((lines * each).sum(1) / total).unsqueeze(1)
    less = correction * ((each * w.detach()).sum() / total if heavy else 1)
    found = (away * each) @ away.t() / (total - less)
    plain = lines - lines.mean(1, keepdim=True)
    both = plain @ plain.t()
    scale = both.diagonal().sqrt()
    like = (both / scale / scale.unsqueeze(1)).clamp(-1, 1)
    return [found.squeeze(), like.squeeze()]


COVARIED = by_single_options(
    "spreads together",
    {
        "rows": (3, 1, 0, 17),
        "count": (9, 6, 65),
        "correction": (1, 0, 2),
        "often": (False, True),
        "heavy": (False, True),
        "held": ("own", "expanded"),
    },
    _observed,
    _covaried,
    _covaried_exact,
    slack=32,
    dtypes=FULL,
    learns=False,
)

# --- between two ranks ---------------------------------------------------------------------------

BETWEEN = ("linear", "lower", "higher", "midpoint", "nearest")
SHARES = {"some": 0.3, "several": (0.1, 0.5, 0.95), "least": 0.0, "greatest": 1.0, "middle": 0.5}


def _ranked(d: Draw, shape: Any, **of: Any) -> Made:
    return Made([d.apart(*shape)], of)


def _quantiles(t: Any, x: Any, share: str, dim: Any, keepdim: bool, between: str) -> List[Any]:
    q: Any = SHARES[share]
    q = t.tensor(q, dtype=x.dtype, device=x.device) if isinstance(q, tuple) else q
    other = t.where(x > 2, x * float("nan"), x)
    each = {"keepdim": keepdim, "interpolation": between}
    return [t.quantile(x, q, dim, **each), t.nanquantile(other, q, dim, **each)]


def _quantiles_exact(
    t: Any, x: Any, share: str, dim: Any, keepdim: bool, between: str
) -> List[Any]:
    q: Any = SHARES[share]
    found = []
    for some in (False, True):
        lines = (x.reshape(-1) if dim is None else x.movedim(dim, -1)).contiguous()
        flat = lines.reshape(-1, lines.shape[-1]).tolist()
        kept = [sorted(v for v in line if not (some and v > 2)) for line in flat]
        rows = [[_between(line, each, between) for line in kept] for each in _tuple(q)]
        out = t.tensor(rows, dtype=x.dtype).reshape(len(_tuple(q)), *lines.shape[:-1])
        if keepdim:
            out = (
                out.reshape(len(out), *[1] * x.dim())
                if dim is None
                else out.unsqueeze(dim % x.dim() + 1)
            )
        found.append(out if isinstance(q, tuple) else out[0])
    return found


def _tuple(q: Any) -> Tuple[float, ...]:
    return q if isinstance(q, tuple) else (q,)


def _between(line: List[float], share: float, between: str) -> float:
    """
    >>> _between([1.0, 3.0], 0.25, "linear"), _between([1.0, 3.0], 0.25, "midpoint")
    (1.5, 2.0)
    """
    if not line:
        return float("nan")
    at = share * (len(line) - 1)
    low = floor(at + 1e-9)
    part = max(0.0, at - low)
    high = min(low + (part > 1e-6), len(line) - 1)
    if between == "nearest":
        return line[round(at)]
    shares = {"linear": part, "lower": 0.0, "higher": 1.0, "midpoint": 0.5}
    return line[low] + shares[between] * (line[high] - line[low])


QUANTILES = by_single_options(
    "ranks between",
    {
        "share": tuple(SHARES),
        "dim": (0, None, -1, 1, -2),
        "keepdim": (False, True),
        "between": BETWEEN,
        "shape": ((8, 5), (7, 2, 4), (1, 3), (34, 6)),
        **HELD,
    },
    _ranked,
    _quantiles,
    _quantiles_exact,
    slack=64,
    dtypes=FULL,
    learns=False,
)

# --- counts --------------------------------------------------------------------------------------


def _counted(d: Draw, count: int, **of: Any) -> Made:
    """Quarters that are on no edge, on both sides of 0 and beyond the reach, and two far ones."""
    x = d.whole(-9, 9, count).double() + 0.25
    if count > 2:
        x[0], x[-1] = -8.75, 8.25
    return Made([x, d.whole(1, 5, count).double()], of)


def _histograms(t: Any, x: Any, w: Any, bins: int, reach: Any, heavy: bool, density: bool) -> Any:
    low, high = reach or (0, 0)
    found = [t.histc(x, bins, low, high)]
    if x.device.type != "cpu":
        x, w = x.cpu(), w.cpu()
    of = {"weight": w if heavy else None, "density": density}
    if heavy and not density:
        of.pop("density")
    more = {"range": reach} if reach else {}
    if len(x):
        found += [*t.histogram(x, bins, **more, **of)]
    ends = t.tensor([-6.5, -2, 0, 0.5, 7], dtype=x.dtype)
    found += [*t.histogram(x, ends, **of)]
    return found


def _histograms_exact(
    t: Any, x: Any, w: Any, bins: int, reach: Any, heavy: bool, density: bool
) -> List[Any]:
    low, high = reach or ((x.min().item(), x.max().item()) if len(x) else (0.0, 1.0))
    if low == high:
        low, high = low - 0.5 * (not reach), high + 0.5 * (not reach)
    even = [low + (high - low) * i / bins for i in range(bins + 1)]
    ones = (0 * w + 1).tolist()
    times = w.tolist() if heavy else ones
    ends = [-6.5, -2, 0, 0.5, 7]
    wide = even
    if not reach and len(x) and x.min() == x.max():
        wide = [x.min().item() - 1 + 2 * i / bins for i in range(bins + 1)]
    found = [_table(x.tolist(), ones, wide, False)]
    if len(x):
        found += [_table(x.tolist(), times, even, density), even]
    found += [_table(x.tolist(), times, ends, density), ends]
    return [t.tensor(each, dtype=x.dtype) for each in found]


def _table(x: List[float], times: List[float], ends: List[float], density: bool) -> List[float]:
    """How much is in each of the ranges between two ends; the last end belongs to the last."""
    found = [0.0] * (len(ends) - 1)
    for number, time in zip(x, times):
        for i in range(len(found)):
            last = i == len(found) - 1 and number == ends[-1]
            if ends[i] <= number < ends[i + 1] or last:
                found[i] += time
    total = sum(found)
    if not density:
        return found
    if not total:
        return [float("nan")] * len(found)
    return [each / total / (b - a) for each, a, b in zip(found, ends, ends[1:])]


COUNTED = by_single_options(
    "histograms",
    {
        "count": (40, 3, 0, 257),
        "bins": (8, 1, 5, 16),
        "reach": ((-8.0, 8.0), None, (-3.0, 1.0), (0.0, 4.0)),
        "heavy": (False, True),
        "density": (False, True),
    },
    _counted,
    _histograms,
    _histograms_exact,
    slack=16,
    dtypes=FULL,
    learns=False,
)


def _cells(d: Draw, count: int, **of: Any) -> Made:
    x = d.whole(-9, 9, count, 2).double() + 0.25
    x[0], x[-1] = -8.75, 8.25
    return Made([x, d.whole(1, 5, count).double()], of)


def _planes(t: Any, x: Any, w: Any, bins: Any, reach: Any, heavy: bool, density: bool) -> List[Any]:
    x, w = x.cpu(), w.cpu()
    of: Dict[str, Any] = {"density": density, "weight": w if heavy else None}
    known = [t.tensor([-6.5, -2, 0, 7], dtype=x.dtype), t.tensor([-4.0, 0.0, 5], dtype=x.dtype)]
    one, edges = t.histogramdd(x, bins, range=reach, **of)
    return [one, *edges, t.histogramdd(x, known, **of)[0]]


def _planes_exact(
    t: Any, x: Any, w: Any, bins: Any, reach: Any, heavy: bool, density: bool
) -> List[Any]:
    counts = bins if isinstance(bins, list) else [bins] * 2
    pairs = list(zip(x.amin(0).tolist(), x.amax(0).tolist()))
    if reach:
        pairs = [(reach[0], reach[1]), (reach[2], reach[3])]
    even = [[a + (b - a) * i / n for i in range(n + 1)] for (a, b), n in zip(pairs, counts)]
    known = [[-6.5, -2, 0, 7], [-4.0, 0.0, 5]]
    times = (w if heavy else 0 * w + 1).tolist()
    found = [_plane(t, x, times, each, density) for each in (even, known)]
    return [found[0], *(t.tensor(each, dtype=t.float64) for each in even), found[1]]


def _plane(t: Any, x: Any, times: List[float], ends: List[List[float]], density: bool) -> Any:
    table = t.zeros(*(len(each) - 1 for each in ends), dtype=t.float64)
    for row, time in zip(x.tolist(), times):
        ones = [_table([v], [1.0], each, False) for v, each in zip(row, ends)]
        table += time * t.tensor(ones[0]).unsqueeze(1) * t.tensor(ones[1])
    if density:
        wide = [t.tensor(each, dtype=t.float64).diff() for each in ends]
        table = table / table.sum() / wide[0].unsqueeze(1) / wide[1]
    return table


PLANES = by_single_options(
    "histograms of planes",
    {
        "count": (30, 5),
        "bins": ([4, 3], 2, [1, 5]),
        "reach": ((-8.0, 8.0, -4.0, 8.0), None, (-3.0, 1.0, 0.0, 5.0)),
        "heavy": (False, True),
        "density": (False, True),
    },
    _cells,
    _planes,
    _planes_exact,
    slack=16,
    dtypes=FULL,
    learns=False,
)

# --- distances -----------------------------------------------------------------------------------

POWERS = (2.0, 1.0, 0.0, inf, 3.0, 0.5, 1.5)


def _pointed(d: Draw, shape: Any, **of: Any) -> Made:
    batch, n, m, width = shape
    return Made([d.normal(*batch, n, width), d.normal(*batch, m, width) + 0.25], of)


def _away(t: Any, x: Any, y: Any, p: float, mode: str, held: str) -> List[Any]:
    if held == "expanded":
        x = x[..., :1, :].expand_as(x)
    one = x.reshape(-1, x.shape[-1])
    found = [t.cdist(x, y, p, mode)]
    if held != "expanded":
        found += [t.pdist(one, p)]
    return found


def _away_exact(t: Any, x: Any, y: Any, p: float, mode: str, held: str) -> List[Any]:
    if held == "expanded":
        x = x[..., :1, :].expand_as(x)
    one = x.reshape(-1, x.shape[-1])
    found = [_power(t, x.unsqueeze(-2) - y.unsqueeze(-3), p)]
    if held != "expanded":
        i, j = t.triu_indices(len(one), len(one), 1)
        found += [_power(t, one[i] - one[j], p)]
    return found


def _power(t: Any, away: Any, p: float) -> Any:
    size = away.abs()
    if not p:
        return (size != 0).to(size.dtype).sum(-1)
    if p == inf:
        return size.amax(-1)
    return (size**p).sum(-1) ** (1 / p)


AWAY = by_single_options(
    "distances",
    {
        "shape": (
            *(((), 5, 7, 3), ((2,), 4, 3, 5), ((), 1, 1, 1), ((2, 3), 2, 4, 2)),
            *(((), 0, 4, 3), ((), 30, 28, 9), ((2,), 3, 0, 2)),
        ),
        "p": POWERS,
        "mode": (
            "donot_use_mm_for_euclid_dist",
            "use_mm_for_euclid_dist_if_necessary",
            "use_mm_for_euclid_dist",
        ),
        "held": ("own", "expanded"),
    },
    _pointed,
    _away,
    _away_exact,
    slack=512,
    dtypes=FULL,
    learns=False,
)


def _paired(d: Draw, shape: Any, **of: Any) -> Made:
    x, y = d.normal(*shape), d.normal(*(shape if not of["one_row"] else (1, *shape[1:])))
    if of["tiny"]:
        x, y = x * 1e-3, y * 1e-3
    return Made([x, y], {key: of[key] for key in ("dim", "eps", "p", "keepdim")})


def _likeness(t: Any, x: Any, y: Any, dim: int, eps: float, p: float, keepdim: bool) -> List[Any]:
    call = t.nn.functional
    found = [call.cosine_similarity(x, y, dim, eps), call.pairwise_distance(x, y, p, eps, keepdim)]
    return [*found, t.dist(x, y, p)]


def _likeness_exact(
    t: Any, x: Any, y: Any, dim: int, eps: float, p: float, keepdim: bool
) -> List[Any]:
    x, y = t.broadcast_tensors(x, y)
    sizes = [(each * each).sum(dim).sqrt().clamp(min=eps) for each in (x, y)]
    found = [(x * y).sum(dim) / sizes[0] / sizes[1]]
    away = _power(t, x - y + eps, p)
    found += [away.unsqueeze(-1) if keepdim else away]
    return [*found, _power(t, (x - y).reshape(-1), p)]


LIKENESS = by_single_options(
    "likeness",
    {
        "shape": ((4, 5), (3, 2, 7), (5, 1), (2, 65)),
        "dim": (1, 0, -1, -2),
        "eps": (1e-8, 0.5, 1e-3),
        "p": (2.0, 1.0, inf, 3.0),
        "keepdim": (False, True),
        "one_row": (False, True),
        "tiny": (False, True),
    },
    _paired,
    _likeness,
    _likeness_exact,
    slack=64,
    dtypes=FULL,
    learns=False,
)

SINGLE_STATISTICS: Tuple[Operator, ...] = (*(COVARIED, QUANTILES, COUNTED, PLANES, AWAY, LIKENESS),)
