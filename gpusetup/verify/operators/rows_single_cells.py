"""Recurrent nets, attention, fused optimizers and observers with one option at a time off its usual
value."""

from __future__ import annotations

from math import sqrt
from typing import Any, Dict, List, Tuple

from . import definitions as by
from .drawing import Draw
from .pairs import Axes
from .rows_cells import weights
from .rows_convolutions import by_all
from .single_options import AS_IT_IS, BY_ITSELF, Made, Menu, by_single_options

# --- recurrent nets ------------------------------------------------------------------------------

NET: Axes = {
    "biases": (True, False),
    "layers": (1, 2),
    "train": (True, False),
    "both_ways": (False, True),
    "batch_first": (False, True),
    "state": ("given", "zero"),
    "packed": (False, True),
    "batch": (3, 1, 9),
    "steps": (3, 1),
}
CELL: Axes = {"biases": (True, False)}
GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
PLAIN: Axes = {name: NET[name] for name in ("biases", "train", "batch_first")}
FEWER = ("state", "batch", "steps", "layers", "both_ways")
NETS: Menu = {
    "lstm": {**NET, "projected": (False, True)},
    "gru": {name: NET[name] for name in NET if name not in FEWER},
    **{kind: PLAIN for kind in GATES if "rnn" in kind},
    **{f"{kind}_cell": CELL for kind in GATES},
}
USUAL: Dict[str, Any] = {**{name: NET[name][0] for name in NET}, "projected": False}
INPUTS, HIDDEN, PROJECTED = 3, 5, 4


def _net(d: Draw, kind: str, **of: Any) -> Made:
    of = {**USUAL, **of}
    gates, n = GATES[kind.replace("_cell", "")], of["batch"]
    if kind.endswith("cell"):
        states = [d.normal(n, HIDDEN) for _ in "hc"]
        layer = weights(d, gates, INPUTS, HIDDEN, of["biases"])
        return Made(
            [d.normal(n, INPUTS), *states, *_joined(d, layer)], {**_shapes(layer), "kind": kind}
        )
    if of["packed"] or of["batch_first"]:
        of["packed"] = of["packed"] and not of["batch_first"]
    of["train"] = of["train"] or of["packed"]
    ways, out = 1 + of["both_ways"], PROJECTED if of["projected"] else HIDDEN
    parts: List[Any] = []
    for layer_place in range(of["layers"]):
        wide = ways * out if layer_place else INPUTS
        for _ in range(ways):
            parts += weights(d, gates, wide, HIDDEN, of["biases"])
            if of["projected"]:
                parts[-3 if of["biases"] else -1] = d.normal(gates * HIDDEN, out) / sqrt(out)
                parts.append(d.normal(out, HIDDEN) / sqrt(HIDDEN))
    sizes = tuple(max(1, n - step) for step in range(of["steps"])) if of["packed"] else ()
    shape = (n, of["steps"]) if of["batch_first"] else (of["steps"], n)
    x = d.normal(sum(sizes), INPUTS) if sizes else d.normal(*shape, INPUTS)
    factor = 0.0 if of["state"] == "zero" else 1.0
    states = [factor * d.normal(of["layers"] * ways, n, width) for width in (out, HIDDEN)]
    names = ("biases", "layers", "train", "both_ways", "batch_first")
    options = {"kind": kind, "sizes": sizes, **{name: of[name] for name in names}}
    return Made([x, *states, *_joined(d, parts)], {**options, **_shapes(parts)})


def _joined(d: Draw, parts: List[Any]) -> List[Any]:
    """All weights as one line."""
    return [d.torch.cat([each.reshape(-1) for each in parts])]


def _shapes(parts: List[Any]) -> Dict[str, Any]:
    return {"shapes": [tuple(each.shape) for each in parts]}


def _cut(x: Any, shapes: List[Tuple[int, ...]]) -> List[Any]:
    counts = [by_all(list(shape)) for shape in shapes]
    return [part.reshape(shape) for part, shape in zip(x.split(counts), shapes)]


def _recur(t: Any, x: Any, h: Any, c: Any, w: Any, kind: str, shapes: Any, **of: Any) -> Any:
    call, weights = getattr(t, kind), _cut(w, shapes)
    if kind.endswith("cell"):
        return call(x, (h, c) if kind.startswith("lstm") else h, *weights)
    start = (h, c) if kind == "lstm" else h
    options = (of["biases"], of["layers"], 0.0, of["train"], of["both_ways"])
    if of["sizes"]:
        return call(x, t.tensor(of["sizes"]), start, list(weights), *options)
    return call(x, start, list(weights), *options, of["batch_first"])


# --- attention -----------------------------------------------------------------------------------

HEADS: Menu = {
    "attention": {
        "mask": ("none", "causal", "flags", "numbers", "flags of keys"),
        "scale": (None, 0.05, 1.0),
        "grouped": (False, True),
        "batch": (2, 0, 1),
        "keys": (33, 7, 65),
        "width": (16, 8, 40),
        "spread": (AS_IT_IS, "the others along the first"),
        "axes": (4, 3),
    },
    "heads": {
        "mask": ("none", "flags", "numbers", "of heads"),
        "hidden": (False, True),
        "bias": (True, False),
        "more_keys": (False, True),
        "zero": (False, True),
        "need": (True, False),
        "mean": (True, False),
        "apart": (False, True),
    },
}


def _attended(d: Draw, kind: str, **of: Any) -> Made:
    if kind == "heads":
        return _many(d, **of)
    n, heads, queries, keys, width = of["batch"], 2, 33, of["keys"], of["width"]
    grouped = of["grouped"] and of["axes"] == 4
    q = d.normal(n, heads * (1 + grouped), queries, width)
    tensors = [q, *(d.normal(n, heads, keys, width) for _ in "kv")]
    if "flags" in of["mask"]:
        flags = d.flags(*((1, keys) if of["mask"] == "flags of keys" else (queries, keys)))
        flags[..., :2] = True
        tensors.append(flags)
    elif of["mask"] == "numbers":
        tensors.append(d.normal(queries, keys))
    flat = of["axes"] == 3
    options = {"kind": kind, "causal": of["mask"] == "causal", "scale": of["scale"], "flat": flat}
    return Made(tensors, {**options, "grouped": grouped})


def _attend(t: Any, q: Any, k: Any, v: Any, *mask: Any, kind: str, **of: Any) -> Any:
    if kind == "heads":
        return _call_many(t, q, k, v, *mask, **of)
    if of["grouped"]:
        k, v = (x.repeat_interleave(2, 1) for x in (k, v))
    if of["flat"]:
        q, k, v = (x.flatten(0, 1) for x in (q, k, v))
    options = {"scale": of["scale"]} if of["scale"] else {}
    given = mask[0].detach() if mask else None
    sdpa = t.nn.functional.scaled_dot_product_attention
    return sdpa(q, k, v, attn_mask=given, is_causal=of["causal"], **options)


QUERIES, KEYS, BATCH, WIDTH, SPLIT = 5, 7, 2, 8, 2


def _many(d: Draw, **of: Any) -> Made:
    shapes = {
        "flags": (QUERIES, KEYS),
        "numbers": (QUERIES, KEYS),
        "of heads": (BATCH * SPLIT, QUERIES, KEYS),
    }
    scale = 1 / sqrt(WIDTH)
    tensors = [d.normal(QUERIES, BATCH, WIDTH), d.normal(KEYS, BATCH, WIDTH)]
    tensors += [d.normal(3 * WIDTH, WIDTH) * scale, d.normal(3 * WIDTH) * scale]
    tensors += [d.normal(WIDTH, WIDTH) * scale, d.normal(WIDTH) * scale]
    tensors += [d.normal(1, 1, WIDTH) for _ in "kv"]
    hidden = d.flags(BATCH, KEYS)
    mask = d.flags(*shapes.get(of["mask"], (1,)))
    hidden[:, :2], mask[..., :2] = False, False
    hidden[:, 2:] = hidden[:, 2:] & of["hidden"]
    more = d.normal(*mask.shape) if of["mask"] in ("numbers", "of heads") else mask
    return Made([*tensors, hidden, more], {"kind": "heads", **of})


def _call_many(
    t: Any, x: Any, y: Any, wi: Any, bi: Any, wo: Any, bo: Any, *rest: Any, **of: Any
) -> Any:
    *more, hidden, mask = rest
    options: Dict[str, Any] = {
        "attn_mask": mask.detach() if of["mask"] != "none" else None,
        "key_padding_mask": hidden if of["hidden"] else None,
        "need_weights": of["need"],
        "average_attn_weights": of["mean"],
        "training": True,
    }
    if of["apart"]:
        options["use_separate_proj_weight"] = True
        names = ("q_proj_weight", "k_proj_weight", "v_proj_weight")
        options.update(zip(names, wi.chunk(3)))
    if of["hidden"] and of["mask"] in ("numbers", "of heads"):
        wide = t.zeros(hidden.shape, device=x.device, dtype=mask.dtype)
        options["key_padding_mask"] = wide.masked_fill(hidden, float("-inf"))
    more = more if of["more_keys"] and of["bias"] else [None, None]
    call = t.nn.functional.multi_head_attention_forward
    bi, bo = (bi, bo) if of["bias"] else (None, None)
    first = None if of["apart"] else wi
    found = call(x, y, y, WIDTH, SPLIT, first, bi, *more, of["zero"], 0.0, wo, bo, **options)
    return [each for each in found if each is not None]


SINGLE_NETS = by_single_options(
    "recurrent nets", NETS, _net, _recur, slack=2, arithmetic="product", **BY_ITSELF
)
SINGLE_HEADS = tuple(
    by_single_options(
        kind, {kind: axes}, _attended, _attend, slack=4, arithmetic="product", **BY_ITSELF
    )
    for kind, axes in HEADS.items()
)

# --- optimizers as one call ----------------------------------------------------------------------

STEPPED: Axes = {
    "lr": (0.1, 0.01),
    "lr_as": ("number", "tensor"),
    "weight_decay": (0.1, 0.0),
    "maximize": (False, True),
    "scaled": (False, True),
    "found_inf": (None, 0.0, 1.0),
    "sizes": ((5, 33), (0, 7), (1,), (70, 3, 9)),
}
ADAM: Axes = {**STEPPED, "amsgrad": (False, True), "eps": (1e-8, 0.1), "begun": (1, 0, 9)}
FUSED: Menu = {
    "adam": ADAM,
    "adamw": ADAM,
    "sgd": {
        **STEPPED,
        "momentum": (0.9, 0.0),
        "dampening": (0.0, 0.3),
        "nesterov": (False, True),
        "begun": (1, 0),
    },
    "adagrad": {**STEPPED, "lr_decay": (0.0, 0.5), "eps": (1e-10, 0.1), "begun": (1, 0)},
}


def _stepping(d: Draw, kind: str, **of: Any) -> Made:
    """Parameters, gradients, and three states of each, far enough from 0 to be divided by."""
    sizes = of.pop("sizes")
    if of.get("nesterov"):
        of.update(dampening=0.0, momentum=0.9)
    count = sum(sizes)
    p, g, m = (d.normal(count) for _ in "pgm")
    v, x = (d.uniform(0.5, 2.0, count) for _ in "vx")
    return Made([p, g + g.sign() / 2, m, v, x], {"kind": kind, "lengths": list(sizes), **of})


def _step(t: Any, *lines: Any, kind: str, lengths: List[int], **of: Any) -> Any:
    """Lists are written over in place, so they are copied before; a gradient as well, which is
    divided by its scale."""
    p, g, m, v, x = ([part.clone() for part in line.split(lengths)] for line in lines)
    here = p[0].device
    options: Dict[str, Any] = {"lr": of["lr"], "maximize": of["maximize"]}
    if of["lr_as"] == "tensor":
        options["lr"] = t.tensor(of["lr"], device=here)
    options["weight_decay"] = of["weight_decay"]
    if of["scaled"]:
        options["grad_scale"] = t.full((), 4.0, device=here)
    if of["found_inf"] is not None or of["scaled"]:
        options["found_inf"] = t.full((), of["found_inf"] or 0.0, device=here)
    steps = [t.full((), float(of["begun"]), device=here) for _ in p]
    if kind == "sgd":
        names = ("momentum", "dampening", "nesterov")
        options.update({name: of[name] for name in names}, is_first_step=not of["begun"])
        held = m if of["momentum"] else []
        t._fused_sgd_(p, g, held, **options)
        return [t.cat(p), *([t.cat(held)] if held else [])]
    if kind == "adagrad":
        t._fused_adagrad_(p, g, v, steps, lr_decay=of["lr_decay"], eps=of["eps"], **options)
        return [t.cat(p), t.cat(v), t.stack(steps)]
    most = x if of["amsgrad"] else []
    options.update(beta1=0.9, beta2=0.99, eps=of["eps"], amsgrad=of["amsgrad"])
    steps = [each + 1 for each in steps]
    getattr(t, f"_fused_{kind}_")(p, g, m, v, most, steps, **options)
    return [t.cat(each) for each in (p, m, v, most) if each]


SINGLE_STEPS = tuple(
    by_single_options(
        f"fused {kind}", {kind: axes}, _stepping, _step, slack=4, learns=False, **BY_ITSELF
    )
    for kind, axes in FUSED.items()
)

# --- observers, and what does nothing outside of training ----------------------------------------

WATCHED: Menu = {
    "observed": {
        "per_row": (False, True),
        "symmetric": (False, True),
        "observer_on": (1, 0),
        "quantize_on": (1, 0),
        "begun": (True, False),
        "share": (0.25, 1.0),
    },
    "bytes": {"reduce_range": (False, True), "signed": (True, False)},
    "in use": {"layer": ("dropout", "alpha_dropout", "rrelu")},
    "padded": {"batch_first": (False, True), "padding_value": (0.0, -2.5)},
}
BEGUN, FIRST = (-48.0, 129.0), 1.5
"""The ends that were seen before, and the step."""


def _watching(d: Draw, kind: str, **of: Any) -> Made:
    """Whole numbers. The greatest of each line is odd, the least even and nearer to 0, and so are
    their means with `BEGUN`: then no number lies in the middle between two steps."""
    x = d.whole(-39, 121, 6, 9).double()
    lines = 8.0 * d.torch.arange(6).double()
    x[:, 0], x[:, 8] = -40 - lines, 121 + lines
    if "begun" in of:
        of["begun"] = of["begun"] or not of["observer_on"]
    return Made([x], {"kind": kind, **of})


def _watch(t: Any, x: Any, kind: str, **of: Any) -> Any:
    if kind == "in use":
        return getattr(t.nn.functional, of["layer"])(x, training=False)
    if kind == "padded":
        return t.nn.utils.rnn.pad_sequence([x[0, :4], x[1], x[2, :1]], **of)
    x = x.contiguous()
    if kind == "bytes":
        dtype = t.qint8 if of["signed"] else t.quint8
        return t.quantize_per_tensor_dynamic(x, dtype, of["reduce_range"]).dequantize()
    rows = (len(x),) if of["per_row"] else (1,)
    ends = BEGUN if of["begun"] else (float("inf"), float("-inf"))
    least, most = (t.full(rows, end, device=x.device) for end in ends)
    step = t.full(rows, FIRST, device=x.device)
    zero = t.zeros(rows, dtype=t.int32, device=x.device)
    on = [t.full((1,), of[name], device=x.device) for name in ("observer_on", "quantize_on")]
    how = (of["share"], -128, 127, 0 if of["per_row"] else -1, of["per_row"], of["symmetric"])
    found = t.fused_moving_avg_obs_fake_quant(x, *on, least, most, step, zero, *how)
    return [found, least, most, step, zero.clone()]


def _watch_exact(t: Any, x: Any, kind: str, **of: Any) -> Any:
    if kind == "in use":
        slope = (1 / 8 + 1 / 3) / 2
        return t.where(x < 0, slope * x, x) if of["layer"] == "rrelu" else 1 * x
    if kind == "padded":
        found = t.full((3, 9), of["padding_value"], dtype=x.dtype)
        found[0, :4], found[1], found[2, :1] = x[0, :4], x[1], x[2, :1]
        return found if of["batch_first"] else found.t()
    if kind == "bytes":
        low, high = (-128, 127) if of["signed"] else (0, 255)
        low, high = (low // 2, high // 2) if of["reduce_range"] else (low, high)
        step, zero = _steps(t, x.min(), x.max(), low, high, False)
        return ((x / step).round() + zero).clamp(low, high).sub(zero) * step
    lines = x if of["per_row"] else x.reshape(1, -1)
    least, most = by.least(t, lines, 1), by.greatest(t, lines, 1)
    begun = [t.full_like(least, end) for end in BEGUN]
    if not of["begun"]:
        begun = [least, most]
    share = of["share"]
    seen = [end + share * (new - end) for end, new in zip(begun, (least, most))]
    if not of["observer_on"]:
        seen = [t.full_like(least, end) for end in BEGUN]
    step, zero = _steps(t, seen[0], seen[1], -128, 127, of["symmetric"])
    if not of["quantize_on"]:
        step, zero = FIRST + 0 * least, 0 * least
    places = (lines / step.unsqueeze(1)).round() + zero.unsqueeze(1)
    found = (places.clamp(-128, 127) - zero.unsqueeze(1)) * step.unsqueeze(1)
    return [found.reshape(x.shape) if of["quantize_on"] else 1 * x, *seen, step, zero]


def _steps(t: Any, least: Any, most: Any, low: int, high: int, symmetric: bool) -> Tuple[Any, Any]:
    """The step between two ends, and where 0 lies."""
    if symmetric:
        step = t.maximum(least / low, most / high)
        return step, 0 * step
    step = (most - least) / (high - low)
    return step, (low - least / step).round()


SINGLE_OBSERVERS = by_single_options(
    "observers", WATCHED, _watching, _watch, _watch_exact, slack=2, learns=False, **BY_ITSELF
)
