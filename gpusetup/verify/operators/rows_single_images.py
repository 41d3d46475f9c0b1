"""Resizing and norms with one option at a time off its usual value."""

from __future__ import annotations

from math import floor
from typing import Any, Dict

from .drawing import Draw
from .pairs import Axes
from .releases import by_channel
from .single_options import BY_ITSELF, HELD, Made, Menu, by_single_options

# --- resizing ------------------------------------------------------------------------------------

SIDES = {1: (7,), 2: (7, 9), 3: (3, 5, 7)}
"""Odd ones: nothing of `nearest-exact` then lies at the middle between two pixels."""
FACTORS = {
    "larger": (1.73, 1.37, 1.61),
    "smaller": (0.61, 0.73, 0.57),
    "either": (1.73, 0.73, 2.17),
}
"""By none of them a side becomes a whole number, and no two sides become alike in their parts."""
ANY_MODE: Axes = {
    "factor": tuple(FACTORS),
    "by": ("size", "factor", "factor anew"),
    "batch": (2, 0, 9),
    "channels": (3, 16),
    **HELD,
}
LINES: Axes = {**ANY_MODE, "corners": (False, True)}
SMOOTH: Axes = {**LINES, "smooth": (False, True)}
MODES: Menu = {
    **{f"nearest {n}": ANY_MODE for n in (1, 2, 3)},
    **{f"nearest-exact {n}": ANY_MODE for n in (1, 2, 3)},
    "linear 1": LINES,
    "bilinear 2": SMOOTH,
    "bicubic 2": SMOOTH,
    "trilinear 3": LINES,
    "smooth bilinear 2": LINES,
    "smooth bicubic 2": LINES,
}


def _sized(d: Draw, kind: str, **of: Any) -> Made:
    mode, dims = kind.rsplit(" ", 1)[0], int(kind[-1])
    factors = FACTORS[of["factor"]][:dims]
    given: Dict[str, Any] = {"mode": mode.replace("smooth ", "")}
    if of["by"] == "size":
        given["size"] = [floor(n * f) for n, f in zip(SIDES[dims], factors)]
    else:
        given["scale_factor"] = factors
        given["recompute_scale_factor"] = of["by"] == "factor anew"
    if "corners" in of:
        given["align_corners"] = of["corners"]
    if mode.startswith("smooth") or of.get("smooth"):
        given["antialias"] = True
    x = d.normal(of["batch"], of["channels"], *SIDES[dims])
    return Made([x], {"given": given})


def _resize(t: Any, x: Any, given: Dict[str, Any]) -> Any:
    return t.nn.functional.interpolate(x, **given)


SINGLE_RESIZING = by_single_options("sizes", MODES, _sized, _resize, slack=64, **BY_ITSELF)

# --- norms ---------------------------------------------------------------------------------------

PLACES = {0: (), 1: (7,), 2: (4, 5), 3: (2, 3, 4)}
CHANNELS = 6
OF_BATCHES: Axes = {
    "training": (True, False),
    "weight": (True, False),
    "bias": (True, False),
    "kept": (True, False),
    "momentum": (0.3, 0.0, 1.0, None),
    "eps": (1e-3, 0.25),
    "batch": (5, 33),
    "library": (True, False),
}
OF_INSTANCES: Axes = {
    **{name: OF_BATCHES[name] for name in ("training", "weight", "bias", "kept", "eps", "library")},
    "momentum": (0.3, 1.0),
    "batch": (3, 9),
}
OF_GROUPS: Axes = {
    "groups": (2, 1, 3, CHANNELS),
    "weight": (True, False),
    "bias": (True, False),
    "eps": (1e-3, 0.25),
    "batch": (3, 0, 1, 33),
    "library": (True, False),
}
OF_LAYERS: Axes = {name: OF_GROUPS[name] for name in OF_GROUPS if name != "groups"}
FEWER: Axes = {name: OF_BATCHES[name] for name in ("training", "bias", "kept", "momentum")}
NORMED: Menu = {
    "batch 0": OF_BATCHES,
    "batch 2": {**OF_BATCHES, **HELD},
    **{f"batch {n}": FEWER for n in (1, 3)},
    "instance 2": OF_INSTANCES,
    **{f"instance {n}": {name: FEWER[name] for name in ("training", "kept")} for n in (1, 3)},
    "group 2": {**OF_GROUPS, **HELD},
    "group 1": {"groups": OF_GROUPS["groups"]},
    "layer 2": {**OF_LAYERS, **HELD, "over": (1, 2, 3)},
    "response 2": {"size": (5, 2), "alpha": (0.5, 0.01), "beta": (0.75, 1.5), "k": (1.0, 2.0)},
    "weight 2": {"dim": (0, 1, -1, -3)},
}
"""`batch 0`: lines of channels, without places."""
KEPT = ("batch", "instance")
USUAL: Dict[str, Any] = {
    **{name: values[0] for name, values in OF_GROUPS.items()},
    **{name: values[0] for name, values in OF_BATCHES.items()},
}


def _normed(d: Draw, kind: str, **of: Any) -> Made:
    """A mean away from 0 and a spread away from 1. A batch of lines alone is not spread: what is
    all alike has no deviation."""
    dims, of = int(kind[-1]), {**USUAL, **of}
    count = of.get("batch", 3)
    name = kind.split(" ")[0]
    x = d.normal(count, CHANNELS, *PLACES[dims]) * 2 + 1
    shape = [CHANNELS]
    if name == "layer":
        shape = list(x.shape[-of["over"] :])
    if name == "weight":
        shape = [1]
    lines = [d.uniform(0.5, 1.5, 2, *sides) for sides in (shape, [CHANNELS])]
    options = {**of, "kind": name}
    return Made([x, *(lines if name in KEPT else lines[:1])], options)


def _norm(t: Any, x: Any, lines: Any, *kept: Any, **of: Any) -> Any:
    w, b = lines
    kind = of["kind"]
    if kind in ("response", "weight"):
        return _other_norm(t, x, **of)
    w, b = (w if of["weight"] else None), (b if of["bias"] else None)
    if kind == "group":
        b = b if of["weight"] else None  # with a shift alone it has no gradient
        return t.group_norm(x, of["groups"], w, b, of["eps"], of["library"])
    if kind == "layer":
        return t.layer_norm(x, x.shape[-of["over"] :], w, b, of["eps"], of["library"])
    mean, var = (each.detach().clone() for each in kept[0])
    if of["momentum"] is None:
        return _since_the_start(t, x, **of)
    running = (mean, var) if of["kept"] or not of["training"] else (None, None)
    options = (of["training"], of["momentum"], of["eps"], of["library"])
    w = by_channel(w) if of["weight"] else None
    call = t.batch_norm if kind == "batch" else t.instance_norm
    return [call(x, w, b, *running, *options), t.cat([mean, var])]


def _since_the_start(t: Any, x: Any, eps: float, **_: Any) -> Any:
    """What a module keeps that weighs all batches alike, after two."""
    kinds = {2: "BatchNorm1d", 3: "BatchNorm1d", 4: "BatchNorm2d", 5: "BatchNorm3d"}
    module = getattr(t.nn, kinds[x.dim()])(x.shape[1], eps, momentum=None, affine=False)
    module = module.to(x.device, x.dtype)
    found = t.cat([module(x), module(2 * x + 1)])
    return [found, t.cat([module.running_mean, module.running_var]), module.eval()(x)]


def _other_norm(t: Any, x: Any, kind: str, **of: Any) -> Any:
    if kind == "weight":
        dim = of["dim"]
        sides = [n if i == dim % x.dim() else 1 for i, n in enumerate(x.shape)]
        scale = t.arange(1, max(sides) + 1, device=x.device).to(x.dtype).reshape(sides) / 4
        return t._weight_norm(x, scale, dim)
    names = ("size", "alpha", "beta", "k")
    return t.nn.functional.local_response_norm(x, **{name: of[name] for name in names})


SINGLE_NORMS = by_single_options(
    "norms", NORMED, _normed, _norm, slack=16, serial=True, **BY_ITSELF
)
