"""Attention, losses, norms and lookups with every two of their options together."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

from . import definitions as by
from .drawing import Draw
from .pairs import in_pairs
from .releases import by_channel
from .table import FULL

Made = Tuple[List[Any], Dict[str, Any]]

# --- attention -----------------------------------------------------------------------------------

QUERIES = {"short": (5, 31), "tiles": (64, 96), "one more": (65, 97), "a rest": (79, 95, 127)}
"""On both sides of tiles of 32 and 64, and with a rest of one, of a half, of nearly all."""
MASKS = ("none", "causal", "flags", "flags of samples", "flags of keys", "numbers", "of heads")


def _attended(d: Draw, **of: Any) -> Made:
    few = 3 - of["groups"]
    n, heads, queries = of["batch"], few * of["groups"], d.choice(QUERIES[of["queries"]])
    keys = {"as many": queries, "more": queries + 31, "few": 7}[of["keys"]]
    q = d.normal(n, heads, queries, of["width"])
    k, v = (d.normal(n, few, keys, of["width"]) for _ in "kv")
    shapes = {
        "flags": (queries, keys),
        "flags of samples": (n, 1, queries, keys),
        "flags of keys": (n, 1, 1, keys),
        "numbers": (n, 1, queries, keys),
        "of heads": (1, heads, queries, keys),
    }
    tensors = [q, k, v]
    shape = shapes.get(of["mask"])
    if shape and of["mask"].startswith("flags"):
        flags = d.flags(*shape)
        flags[..., :2] = True  # of one key alone the slope is roundoff
        tensors.append(flags)
    elif shape:
        tensors.append(d.normal(*shape))
    return tensors, {"causal": of["mask"] == "causal", "scale": of["scale"], "groups": of["groups"]}


def _spread(x: Any, groups: int) -> Any:
    return x.repeat_interleave(groups, 1) if groups > 1 else x


def _heads(
    t: Any, q: Any, k: Any, v: Any, *masks: Any, causal: bool, scale: Any, groups: int
) -> Any:
    sdpa = t.nn.functional.scaled_dot_product_attention
    options: Dict[str, Any] = {"attn_mask": masks[0].detach() if masks else None}
    if causal:
        options["is_causal"] = True
    if scale:
        options["scale"] = scale
    return sdpa(q, _spread(k, groups), _spread(v, groups), **options)


def _heads_exact(
    t: Any, q: Any, k: Any, v: Any, *masks: Any, causal: bool, scale: Any, groups: int
) -> Any:
    flags = bias = None
    if causal:
        flags = t.arange(q.shape[2]).unsqueeze(1) >= t.arange(k.shape[2])
    elif masks and masks[0].dtype == t.bool:
        flags = masks[0]
    elif masks:
        bias = masks[0].detach()
    return by.attention(t, q, _spread(k, groups), _spread(v, groups), flags, bias, scale or 0.0)


ATTENDED = in_pairs(
    "attention",
    {
        "queries": tuple(QUERIES),
        "keys": ("as many", "as many", "more", "few"),
        "mask": MASKS,
        "scale": (None, 0.05),
        "groups": (1, 2),
        "width": (8, 40),
        "batch": (1, 2),
    },
    _attended,
    _heads,
    _heads_exact,
    arithmetic="product",
    slack=4,
    dtypes=("float32", "bfloat16", "float64"),
)

# --- losses by classes ---------------------------------------------------------------------------

CLASSES = 7


def _classed(d: Draw, **of: Any) -> Made:
    """Labels of which some are left out, if need be one of the classes itself."""
    shape = {0: (), 1: (5,), 2: (3, 4)}[of["places"]]
    x = d.normal(of["batch"], CLASSES, *shape) * 2
    labels = d.whole(0, CLASSES, of["batch"], *shape)
    labels.reshape(-1)[:2] = d.torch.tensor([2, 4])[: labels.numel()]
    if of["left_out"] < 0:
        labels = labels.masked_fill(labels == 4, of["left_out"])
    tensors = [x, labels, d.uniform(0.5, 1.5, CLASSES)]
    options = {key: of[key] for key in ("reduction", "left_out", "heavy", "smoothing")}
    return tensors, options


def _lost(
    t: Any, x: Any, i: Any, w: Any, reduction: str, left_out: int, heavy: bool, smoothing: float
) -> Any:
    call, weight = t.nn.functional, w.detach() if heavy else None
    options = {"weight": weight, "ignore_index": left_out, "reduction": reduction}
    # Backwards, nll_loss takes no other layout: "grad_input must be contiguous".
    return (
        call.cross_entropy(x, i, label_smoothing=smoothing, **options),
        call.nll_loss(x.contiguous(), i, **options),
    )


def _lost_exact(
    t: Any, x: Any, i: Any, w: Any, reduction: str, left_out: int, heavy: bool, smoothing: float
) -> Any:
    line = [1, CLASSES] + [1] * (x.dim() - 2)
    known = (i != left_out).double()
    chosen = (i.unsqueeze(1) == t.arange(CLASSES).reshape(line)).double()
    weights = (w.detach() if heavy else 1 + 0 * w.detach()).reshape(line)
    share = by.added(t, chosen * weights, 1) * known
    logs = by.log_softmax(t, x, 1)
    own = -by.added(t, logs * weights * chosen, 1) * known
    spread = -by.added(t, logs * weights, 1) * known / CLASSES
    each = (
        (1 - smoothing) * own + smoothing * spread,
        -by.added(t, x * weights * chosen, 1) * known,
    )
    if reduction == "none":
        return each
    sums = [by.added(t, one.reshape(-1), 0) for one in each]
    return (
        [one / by.added(t, share.reshape(-1), 0) for one in sums] if reduction == "mean" else sums
    )


LOST = in_pairs(
    "losses of classes",
    {
        "batch": (3, 33),
        "places": (0, 1, 2),
        "reduction": ("mean", "sum", "none"),
        "left_out": (-100, 2, 4, -1),
        "heavy": (False, True),
        "smoothing": (0.0, 0.0, 0.1),
    },
    _classed,
    _lost,
    _lost_exact,
    slack=8,
    dtypes=FULL,
)

# --- norms ---------------------------------------------------------------------------------------


def _normed(d: Draw, **of: Any) -> Made:
    shape = (of["batch"], 6, *{1: (9,), 2: (4, 5), 3: (2, 3, 4)}[of["dims"]])
    tensors = [d.normal(*shape) * 2 + 1, *(d.uniform(0.5, 1.5, 6) for _ in range(4))]
    options = {key: of[key] for key in ("kind", "scaled", "moved", "kept", "training", "groups")}
    return tensors, options


def _norm(t: Any, x: Any, w: Any, b: Any, mean: Any, var: Any, **of: Any) -> Any:
    call = t.nn.functional
    w, b = (w if of["scaled"] else None), (b if of["scaled"] and of["moved"] else None)
    mean, var = mean.detach().clone(), var.detach().clone()
    if of["kind"] == "group":
        return call.group_norm(x, of["groups"], w, b, 1e-3)
    if of["kind"] == "layer":
        return call.layer_norm(x.movedim(1, -1), (6,), w, b, 1e-3)
    kept = of["kept"] or not of["training"]
    running = (mean, var) if kept else (None, None)
    w = by_channel(w) if of["scaled"] else None
    name = "batch_norm" if of["kind"] == "batch" else "instance_norm"
    found = getattr(call, name)(x, *running, w, b, of["training"], 0.3, 1e-3)
    return (found, mean, var)


def _norm_exact(t: Any, x: Any, w: Any, b: Any, mean: Any, var: Any, **of: Any) -> Any:
    line = [1, 6] + [1] * (x.dim() - 2)
    w = w.reshape(line) if of["scaled"] else 1.0
    b = b.reshape(line) if of["scaled"] and of["moved"] else 0.0
    mean, var = mean.detach(), var.detach()
    if of["kind"] == "group":
        return by.standard(t, x.reshape(len(x) * of["groups"], -1)).reshape(x.shape) * w + b
    if of["kind"] == "layer":
        lines = x.movedim(1, -1)
        own = by.standard(t, lines.reshape(-1, 6)).reshape(lines.shape).movedim(-1, 1)
        return (own * w + b).movedim(1, -1)
    if not of["training"]:
        own = (x - mean.reshape(line)) / (var.reshape(line) + 1e-3).sqrt()
        return own * w + b, mean, var
    alone = of["kind"] == "instance"
    turned = (x if alone else x.transpose(0, 1)).detach()
    flat = turned.reshape(len(x) * 6 if alone else 6, -1)
    own = (x if alone else x.transpose(0, 1)).reshape(flat.shape)
    out = by.standard(t, own).reshape(turned.shape)
    means, spreads = by.mean(t, flat, 1), by.variance(t, flat, 1)
    if alone:
        means, spreads = (by.mean(t, one.reshape(len(x), 6), 0) for one in (means, spreads))
    if of["kept"]:
        mean, var = 0.7 * mean + 0.3 * means, 0.7 * var + 0.3 * spreads
    return (out if alone else out.transpose(0, 1)) * w + b, mean, var


NORMED_BY_PAIRS = in_pairs(
    "norms",
    {
        "kind": ("batch", "batch", "instance", "group", "layer"),
        "dims": (1, 2, 3),
        "scaled": (True, False),
        "moved": (True, False),
        "kept": (True, False),
        "training": (True, False),
        "groups": (1, 2, 3, 6),
        "batch": (2, 5),
    },
    _normed,
    _norm,
    _norm_exact,
    slack=16,
    serial=True,
    dtypes=FULL,
)

# --- lookups and writing at places ---------------------------------------------------------------


def _bags(d: Draw, **of: Any) -> Made:
    """Words of which one does not count; no bag has none that count."""
    words = d.whole(0, 9, 4, 5)
    words[:, 0], words[:, 1] = 3, 8
    tensors = [d.normal(9, of["width"]), words, d.uniform(0.5, 1.5, 4, 5)]
    mode = "sum" if of["heavy"] else of["mode"]
    return tensors, {"mode": mode, **{key: of[key] for key in ("heavy", "none", "flat")}}


def _bag(t: Any, x: Any, i: Any, w: Any, **of: Any) -> Any:
    options: Dict[str, Any] = {"mode": of["mode"], "padding_idx": 8 if of["none"] else None}
    if of["flat"]:
        starts = t.arange(0, 25 if of["flat"] > 1 else 20, 5, device=i.device)[: 3 + of["flat"]]
        starts[1:] -= 1
        if of["flat"] > 1:
            starts[-1] = 20
            options["include_last_offset"] = True
        w, i = w.reshape(-1), i.reshape(-1)
        return t.nn.functional.embedding_bag(
            i, x, starts, per_sample_weights=w if of["heavy"] else None, **options
        )
    return t.nn.functional.embedding_bag(
        i, x, per_sample_weights=w if of["heavy"] else None, **options
    )


def _bag_exact(t: Any, x: Any, i: Any, w: Any, **of: Any) -> Any:
    ends = [0, 4, 9, 14, 20] if of["flat"] else [0, 5, 10, 15, 20]
    words, weights, found = i.reshape(-1), w.reshape(-1), []
    lines = x[words]
    if of["heavy"]:
        lines = lines * weights.unsqueeze(1)
    for bag in range(4):
        first, last = ends[bag], ends[bag + 1]
        seen = [n for n in range(first, last) if not (of["none"] and int(words[n]) == 8)]
        some = lines[seen]
        total = by.greatest(t, some, 0) if of["mode"] == "max" else by.added(t, some, 0)
        found.append(total / len(seen) if of["mode"] == "mean" else total)
    return t.stack(found)


BAGGED = in_pairs(
    "embedding bags",
    {
        "mode": ("sum", "mean", "max"),
        "heavy": (False, True),
        "none": (False, True),
        "flat": (0, 1, 2),
        "width": (1, 7, 33),
    },
    _bags,
    _bag,
    _bag_exact,
    slack=8,
    dtypes=FULL,
    steady=False,
)


def _written(d: Draw, **of: Any) -> Made:
    """Places of which some come again; a value for all, for each line, or for each number."""
    count = 9
    places = d.whole(0, 5, count) if of["add"] else d.order(9)
    width = of["width"]
    shape = {"one": (), "a line": (width,), "for each": (count, 1), "all": (count, width)}
    x, value = d.whole(0, 9, 11, width).double(), d.whole(1, 9, *shape[of["value"]]).double()
    if of["value"] == "one":
        value = value.reshape(())
    return [x, places, value], {"add": of["add"], "way": of["way"]}


def _write(t: Any, x: Any, i: Any, v: Any, add: bool, way: str) -> Any:
    if way == "column":
        i, x = (t.arange(11, device=i.device)[:, None][:9], i[:, None] * 0), x[:, :1].contiguous()
        v = v.reshape(-1)[:1] if v.dim() < 2 or v.shape[1] > 1 else v
        return x.index_put(i, v, accumulate=add)
    if way == "over":
        return x.clone().index_put_((i,), v, accumulate=add)
    return x.index_put((i,), v, accumulate=add)


def _write_exact(t: Any, x: Any, i: Any, v: Any, add: bool, way: str) -> Any:
    if way == "column":
        x = x[:, :1]
        v = v.reshape(-1)[:1] if v.dim() < 2 or v.shape[1] > 1 else v
        i = t.arange(9)
    found = [1 * row for row in x]
    values = v + t.zeros(9, x.shape[1], dtype=x.dtype)
    for place, value in zip(i.tolist(), values):
        found[place] = found[place] + value if add else value
    return t.stack(found)


WRITTEN = in_pairs(
    "writing at places",
    {
        "add": (True, True, False),
        "value": ("one", "a line", "for each", "all"),
        "way": ("plain", "over", "column"),
        "width": (1, 4, 33),
    },
    _written,
    _write,
    _write_exact,
    learns=False,
    kept=True,
    dtypes=("float32", "int64", "bfloat16", "float16"),
)
