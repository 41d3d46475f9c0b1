"""Losses, distances and lookups with one option at a time off its usual value."""

from __future__ import annotations

import functools
from typing import Any, Dict, Tuple

from .drawing import Draw
from .pairs import Axes
from .single_options import BY_ITSELF, HELD, Made, Menu, by_single_options

# --- losses of numbers ---------------------------------------------------------------------------

WAYS = ("mean", "sum", "none")
ANY: Axes = {"reduction": WAYS, "batch": (5, 0, 33)}
FULL: Axes = {**ANY, "batch": (5, 33)}
"""Of no sample, torch 2.13 on the CPU gives some losses by what the memory had."""
WEIGHTS: Axes = {**ANY, "weight": (False, True)}
OF_NUMBERS: Menu = {
    "l1_loss": {**ANY, **HELD},
    "mse_loss": {**ANY, **HELD},
    "smooth_l1_loss": {**ANY, "beta": (1.0, 0.25, 2.0)},
    "huber_loss": {**ANY, "delta": (1.0, 0.25, 2.0)},
    "binary_cross_entropy": WEIGHTS,
    "binary_cross_entropy_with_logits": {**WEIGHTS, "pos_weight": (False, True)},
    "kl_div": {**ANY, "reduction": (*WAYS, "batchmean"), "log_target": (False, True)},
    "poisson_nll_loss": {**ANY, "log_input": (True, False), "full": (False, True)},
    "gaussian_nll_loss": {**FULL, "full": (False, True), "eps": (1e-6, 0.9)},
    "soft_margin_loss": ANY,
    "hinge_embedding_loss": {**ANY, "margin": (1.0, 0.3)},
    "margin_ranking_loss": {**ANY, "margin": (0.0, 0.7, -0.2)},
    "cosine_embedding_loss": {**ANY, "margin": (0.0, 0.4, -0.3)},
    "triplet_margin_loss": {
        **ANY,
        "margin": (1.0, 0.2, 5.0),
        "p": (2.0, 1.0, 3.0),
        "eps": (1e-6, 0.1),
        "swap": (False, True),
    },
    "multi_margin_loss": {**FULL, "weight": (False, True), "p": (1, 2), "margin": (1.0, 0.3, 2.5)},
    "multilabel_margin_loss": FULL,
    "multilabel_soft_margin_loss": WEIGHTS,
}
WIDTH = 6
THREE = (
    *("gaussian_nll_loss", "triplet_margin_loss"),
    *("margin_ranking_loss", "cosine_embedding_loss"),
)
SIGNS = ("soft_margin_loss", "hinge_embedding_loss")


def _compared(d: Draw, kind: str, **of: Any) -> Made:
    """What is compared, with what, and weights; never as near to a margin as a roundoff."""
    n = of["batch"]
    x, y, z = (d.normal(n, WIDTH) for _ in "xyz")
    if kind == "kl_div":
        x = x - 1
        y = d.uniform(-3, -0.1, n, WIDTH) if of["log_target"] else d.uniform(0.1, 0.9, n, WIDTH)
    elif kind.startswith("binary"):
        x = x if "logits" in kind else d.uniform(0.1, 0.9, n, WIDTH)
        y = d.uniform(0.1, 0.9, n, WIDTH)
    elif kind.startswith("poisson"):
        x, y = d.uniform(0.2, 2, n, WIDTH), d.uniform(0.5, 4, n, WIDTH)
    elif kind in (*SIGNS, "multilabel_soft_margin_loss"):
        y = d.flags(n, WIDTH).double()
        y = 2 * y - 1 if kind in SIGNS else y
    elif kind.startswith("gaussian"):
        y, z = d.normal(n, WIDTH), d.uniform(1, 2, n, WIDTH)
    elif kind == "multi_margin_loss":
        y = d.whole(0, WIDTH, n)
    elif kind == "multilabel_margin_loss":
        y = d.torch.stack([d.order(WIDTH) for _ in range(max(n, 1))])[:n]
        y[:, 3:] = -1
    signs = 2 * d.flags(n).double() - 1
    if kind == "margin_ranking_loss":
        signs = signs.unsqueeze(1)
    names = [name for name in of if name not in ("batch", "weight", "pos_weight")]
    options = {name: of[name] for name in names}
    heavy = [name for name in ("weight", "pos_weight") if of.get(name)]
    options.update(kind=kind, heavy=heavy)
    tensors = [x, y]
    if kind in THREE:
        tensors.append(z if kind in ("gaussian_nll_loss", "triplet_margin_loss") else signs)
    return Made([*tensors, *([d.uniform(0.5, 1.5, WIDTH)] if heavy else [])], options)


def _lose(t: Any, x: Any, y: Any, *more: Any, kind: str, heavy: Any, **of: Any) -> Any:
    """What is compared alone learns, and what two losses compare it with."""
    call = getattr(t.nn.functional, kind)
    # torch 1.13 reads the weights of multi_margin_loss as if they lay side by side.
    options = {**of, **{name: more[-1].detach().contiguous() for name in heavy}}
    if kind in ("margin_ranking_loss", "cosine_embedding_loss"):
        return call(x, y, more[0].detach(), **options)
    if kind in THREE:
        return call(x, y, more[0], **options)
    return call(x, y.detach() if y.is_floating_point() else y.contiguous(), **options)


# --- losses of classes ---------------------------------------------------------------------------

CLASSES = 7
BY_CLASS: Axes = {
    "reduction": WAYS,
    "weight": (False, True),
    "ignore_index": (-100, 2, -1),
    "places": (0, 1, 2),
    "batch": (5, 1, 33),
}
OF_CLASSES: Menu = {
    "cross_entropy": {**BY_CLASS, "label_smoothing": (0.0, 0.2, 1.0), "shares": (False, True)},
    "nll_loss": BY_CLASS,
    "ctc_loss": {"reduction": WAYS, "blank": (0, 3), "zero_infinity": (False, True)},
}
PLACES: Dict[int, Tuple[int, ...]] = {0: (), 1: (4,), 2: (2, 3)}


def _classed(d: Draw, kind: str, **of: Any) -> Made:
    options = {name: of[name] for name in of if name not in ("places", "batch", "shares", "weight")}
    options["kind"] = kind
    if kind == "ctc_loss":
        words = d.whole(1, CLASSES, 3, 4)
        words[words == of["blank"]] = 5
        return Made([d.normal(9, 3, CLASSES), words], options)
    shape = PLACES[of["places"]]
    labels = d.whole(0, CLASSES, of["batch"], *shape)
    labels.reshape(-1)[:1] = 4
    if of["ignore_index"] == -1:
        labels.reshape(-1)[1:][::3] = -1
    w = d.uniform(0.5, 1.5, CLASSES)
    x = d.normal(of["batch"], CLASSES, *shape) * 2
    options["heavy"] = of["weight"]
    if of.get("shares"):
        options["ignore_index"] = -100
        return Made([x, d.normal(of["batch"], CLASSES, *shape).softmax(1), w], options)
    return Made([x, labels, w], options)


def _classify(t: Any, x: Any, y: Any, *w: Any, kind: str, **of: Any) -> Any:
    call = getattr(t.nn.functional, kind)
    if kind == "ctc_loss":
        # Two steps are too few for three words: the loss is infinite.
        last = 2 if of["zero_infinity"] else 6
        lengths = [t.tensor(each) for each in ([9, 8, last], [4, 2, 3])]
        return call(x.log_softmax(-1), y, *lengths, **of)
    # Backwards, nll_loss takes no other layout: "grad_input must be contiguous".
    x = x.contiguous() if kind == "nll_loss" else x
    y = y.detach() if y.is_floating_point() else y
    return call(x, y, weight=w[0].detach() if of.pop("heavy") else None, **of)


# --- distances -----------------------------------------------------------------------------------

DISTANCES: Menu = {
    "cosine_similarity": {"dim": (1, 0, -1, 2), "eps": (1e-8, 2.5)},
    "pairwise_distance": {"p": (2.0, 1.0, 3.0), "eps": (1e-6, 0.1), "keepdim": (False, True)},
    "pdist": {"p": (2.0, 1.0, 3.0, float("inf"))},
    "bilinear": {"bias": (False, True), "batch": (3, 1, 33)},
}


def _near(d: Draw, kind: str, **of: Any) -> Made:
    if kind == "bilinear":
        n = of["batch"]
        tensors = [d.normal(n, 3), d.normal(n, 4), d.normal(5, 3, 4) / 3, d.normal(5)]
        return Made(tensors, {"kind": kind, "bias": of["bias"]})
    shape = (4, 3) if kind == "pdist" else (3, 4, 5)
    return Made([d.normal(*shape), d.normal(*shape)], {"kind": kind, **of})


def _apart(t: Any, x: Any, y: Any, *w: Any, kind: str, **of: Any) -> Any:
    call = getattr(t.nn.functional, kind)
    if kind == "bilinear":
        return call(x, y, w[0], w[1] if of["bias"] else None)
    return call(x, **of) if kind == "pdist" else call(x, y, **of)


SINGLE_LOSSES = (
    by_single_options("losses", OF_NUMBERS, _compared, _lose, slack=2, **BY_ITSELF),
    by_single_options("losses of classes", OF_CLASSES, _classed, _classify, slack=4, **BY_ITSELF),
    by_single_options("distances of rows", DISTANCES, _near, _apart, slack=2, **BY_ITSELF),
)

# --- lookups and bags ----------------------------------------------------------------------------

ROWS = 9
OF_SUMS = ("scale_grad_by_freq", "sparse")
LOOKUPS: Menu = {
    "embedding": {
        "padding_idx": (None, 0, ROWS - 1, -1, 4),
        "scale_grad_by_freq": (False, True),
        "sparse": (False, True),
        "max_norm": (None, 1.5),
        "norm_type": (2.0, 1.0),
        "shape": ((3, 5), (7,), (), (0,), (40,)),
        "words": ("int64", "int32"),
        "width": (4, 1, 33),
    },
    **{
        f"embedding_bag {mode}": {
            "padding_idx": (None, 0, ROWS - 1, -1, 4),
            **({} if mode == "max" else dict.fromkeys(OF_SUMS, (False, True))),
            **({"per_sample_weights": (False, True)} if mode == "sum" else {}),
            "max_norm": (None, 1.5),
            "bags": ("rows", "empty", "last"),
            "words": ("int64", "int32"),
            "width": (4, 1, 33),
        }
        for mode in ("sum", "mean", "max")
    },
}


def _words(d: Draw, kind: str, **of: Any) -> Made:
    """Words of which most come again, the row that does not count among them."""
    shape = of.get("shape", (4, 5))
    words = d.whole(0, ROWS, *shape)
    if words.numel() > 4:
        none = of["padding_idx"]
        words.reshape(-1)[1:5] = d.torch.tensor([none if none else 0, 0, 4, 4]) % ROWS
    options = {name: of[name] for name in of if name not in ("shape", "width", "bags")}
    options.update(kind=kind, bags=of.get("bags", ""))
    return Made([d.normal(ROWS, of["width"]), words, d.uniform(0.5, 1.5, *shape)], options)


@functools.lru_cache(maxsize=None)
def _dense(t: Any) -> Any:
    """A copy whose gradient has every row, also where it came as a sparse one."""

    class Dense(t.autograd.Function):  # type: ignore[misc, name-defined, unused-ignore]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g.to_dense() if g.is_sparse else g

    return Dense


def _look_up(t: Any, x: Any, i: Any, w: Any, kind: str, words: str, bags: str, **of: Any) -> Any:
    mode = kind.partition(" ")[2]
    x, i = _dense(t).apply(x), i.to(getattr(t, words))
    if of.get("sparse") and (of["scale_grad_by_freq"] or not i.dim()):
        # Both at once are refused; so are a row that does not count and one word without an axis.
        of["sparse"] = False
    if of["max_norm"]:
        x, w = x.detach(), w.detach()  # rows are made shorter in place, which has no gradient
    if not mode:
        return t.nn.functional.embedding(i, x, **of)
    if of.pop("per_sample_weights", False):
        of["per_sample_weights"] = w
    if bags != "rows":
        starts = [0, 4, 4, 11, *([20] if bags == "last" else [])]
        of["offsets"] = t.tensor(starts, device=i.device).to(i.dtype)
        of["include_last_offset"] = bags == "last"
        i = i.reshape(-1)
        if "per_sample_weights" in of:
            of["per_sample_weights"] = w.reshape(-1)
    return t.nn.functional.embedding_bag(i, x, mode=mode, **of)


SINGLE_LOOKUPS = by_single_options("lookups", LOOKUPS, _words, _look_up, slack=2, **BY_ITSELF)
