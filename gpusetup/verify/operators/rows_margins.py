"""Further losses: other reductions, labels left out, margins, alignments."""

from __future__ import annotations

from typing import Any, Callable, Tuple

from . import definitions as by
from .drawing import Draw, Given, given
from .rows_losses import _picked, classed
from .table import FULL, Operator


def _all(t: Any, x: Any) -> Any:
    return by.added(t, x.reshape(-1), 0)


def _mean(t: Any, x: Any) -> Any:
    return _all(t, x) / x.numel()


def _two(low: float = -3.0, high: float = 3.0) -> Callable[[Draw], Given]:
    def make(d: Draw) -> Given:
        shape = d.shape(2, 2)
        return given(d.uniform(low, high, *shape), d.uniform(low, high, *shape))

    return make


def _pair(name: str, each: Any, make: Any = None, **options: Any) -> Operator:
    """The mean, the sum and every element."""
    more = {"slack": 8.0, **options.pop("row", {})}
    call = options.pop("call", name)

    def run(t: Any, x: Any, y: Any) -> Any:
        loss = getattr(t.nn.functional, call)
        return tuple(loss(x, y, reduction=way, **options) for way in ("mean", "sum", "none"))

    def exact(t: Any, x: Any, y: Any) -> Any:
        found = each(t, x, y)
        return _mean(t, found), _all(t, found), found

    return Operator(f"{name} by each", make or _two(), run, exact, **more)


def _signed(d: Draw) -> Given:
    shape = d.shape(2, 2)
    return given(d.normal(*shape), 1 - 2 * d.flags(*shape).double())


def _shares(d: Draw) -> Given:
    shape = d.shape(2, 2)
    return given(*(d.uniform(0.05, 0.95, *shape) for _ in "ab"))


def _huber(t: Any, x: Any, y: Any) -> Any:
    away = (x - y).abs()
    return t.where(away < 0.5, away * away / 2, 0.5 * (away - 0.25))


def _smooth(t: Any, x: Any, y: Any) -> Any:
    away = (x - y).abs()
    return t.where(away < 0.5, away * away, away - 0.25)


def _bce(t: Any, x: Any, y: Any) -> Any:
    y = y.detach()
    return -(y * x.log() + (1 - y) * (1 - x).log())


EACH: Tuple[Operator, ...] = (
    _pair("mse_loss", lambda t, x, y: (x - y) * (x - y), row={"weight": 2.0}),
    _pair("l1_loss", lambda t, x, y: (x - y).abs()),
    _pair("huber_loss", _huber, delta=0.5),
    _pair("smooth_l1_loss", _smooth, beta=0.5),
    _pair(
        "soft_margin_loss",
        lambda t, x, y: t.log1p((-x * y).exp()),
        _signed,
        row={"learns": False, "slack": 32.0},
    ),
    _pair(
        "hinge_embedding_loss",
        lambda t, x, y: t.where(y > 0, x, (1 - x).clamp(min=0)),
        _signed,
        row={"learns": False},
    ),
    _pair("binary_cross_entropy", _bce, _shares, row={"dtypes": FULL, "learns": False}),
    _pair(
        "kl_div of logarithms",
        lambda t, x, y: y.exp() * (y - x),
        _two(-3, -0.1),
        call="kl_div",
        log_target=True,
        row={"slack": 16.0},
    ),
    _pair(
        "poisson_nll_loss",
        lambda t, x, y: x.exp() - y * x,
        _two(0.1, 2),
        row={"slack": 16.0, "learns": False},
    ),
    Operator(
        "gaussian_nll_loss",
        _two(0.3, 2),
        lambda t, x, y: t.nn.functional.gaussian_nll_loss(x, y, y),
        lambda t, x, y: _mean(t, (y.log() + (x - y) ** 2 / y) / 2),
        slack=32,
        learns=False,
        dtypes=FULL,
    ),
)


def _weighted_logits(d: Draw) -> Given:
    rows, classes = d.shape(2, 2)
    return given(
        d.normal(rows, classes), d.uniform(0, 1, rows, classes), d.uniform(0.5, 2, classes)
    )


def _labelled(d: Draw) -> Given:
    """Some labels are -100, which are left out."""
    made = classed(d)
    x, labels, w = made.tensors
    labels[1::3] = -100
    return given(x, labels, w)


def _taken(t: Any, labels: Any) -> Any:
    return (labels != -100).double()


def _images(d: Draw) -> Given:
    n, classes = d.choice((1, 2, 3)), d.choice((2, 3, 8, 17))
    rows, columns = d.length(65), d.choice((1, 5, 9))
    labels = d.whole(0, classes, n, rows, columns)
    labels[:, 1::5] = -100
    return given(d.normal(n, classes, rows, columns), labels, d.uniform(0.5, 1.5, classes))


def _flat(x: Any) -> Any:
    return x.movedim(1, -1).reshape(-1, x.shape[1])


def _crossed(t: Any, x: Any, labels: Any, w: Any, weigh: bool) -> Any:
    x, labels = _flat(x), labels.reshape(-1)
    known = _taken(t, labels) * (_heavy(t, w, labels) if weigh else 1)
    each = -_picked(t, by.log_softmax(t, x, 1), labels) * known
    return each, _all(t, each) / _all(t, known)


def _heavy(t: Any, w: Any, labels: Any) -> Any:
    return _picked(t, w.detach() + t.zeros(len(labels), 1, dtype=w.dtype), labels)


def _soft(d: Draw) -> Given:
    rows, classes = d.shape(2, 2)
    y = d.uniform(0.1, 1, rows, classes)
    return given(d.normal(rows, classes), y / y.sum(1, keepdim=True))


CLASSES: Tuple[Operator, ...] = (
    Operator(
        "cross_entropy in part",
        _labelled,
        lambda t, x, labels, w: (
            t.nn.functional.cross_entropy(x, labels),
            t.nn.functional.cross_entropy(x, labels, reduction="none"),
        ),
        lambda t, x, labels, w: _crossed(t, x, labels, w, False)[::-1],
        slack=8,
        weight=4,
    ),
    Operator(
        "cross_entropy in part weighted",
        _labelled,
        lambda t, x, labels, w: t.nn.functional.cross_entropy(x, labels, w.detach()),
        lambda t, x, labels, w: _crossed(t, x, labels, w, True)[1],
        slack=8,
        weight=2,
    ),
    Operator(
        "cross_entropy of images",
        _images,
        lambda t, x, labels, w: (
            t.nn.functional.cross_entropy(x, labels),
            t.nn.functional.cross_entropy(x, labels, w.detach()),
        ),
        lambda t, x, labels, w: tuple(_crossed(t, x, labels, w, way)[1] for way in (False, True)),
        slack=8,
        weight=2,
    ),
    Operator(
        "cross_entropy of shares",
        _soft,
        lambda t, x, y: t.nn.functional.cross_entropy(x, y.detach()),
        lambda t, x, y: -_all(t, y.detach() * by.log_softmax(t, x, 1)) / len(x),
        slack=16,
        weight=2,
        dtypes=("float32", "bfloat16", "float64"),
    ),
    Operator(
        "nll_loss",
        _labelled,
        lambda t, x, labels, w: (
            t.nn.functional.nll_loss(x, labels),
            t.nn.functional.nll_loss(x, labels, w.detach(), reduction="sum"),
            t.nn.functional.nll_loss(x, labels, reduction="none"),
        ),
        lambda t, x, labels, w: (
            -_all(t, _picked(t, x, labels)) / _all(t, _taken(t, labels)),
            -_all(t, _picked(t, x, labels) * _heavy(t, w, labels)),
            -_picked(t, x, labels),
        ),
        slack=8,
        weight=2,
    ),
    Operator(
        "logits weighted",
        _weighted_logits,
        lambda t, x, y, w: t.nn.functional.binary_cross_entropy_with_logits(
            x, y.detach(), pos_weight=w.detach()
        ),
        lambda t, x, y, w: _mean(
            t,
            (1 - y.detach()) * x + (1 + (w.detach() - 1) * y.detach()) * by.softplus(t, -x),
        ),
        slack=16,
        weight=2,
    ),
)

# --- margins -------------------------------------------------------------------------------------


def _three(d: Draw) -> Given:
    rows, width = d.shape(2, 2)
    return given(*(d.normal(rows, width) for _ in "abc"))


def _triplet(t: Any, a: Any, p: Any, n: Any) -> Any:
    near, far = (by.added(t, (a - y + 1e-6) ** 2, 1).sqrt() for y in (p, n))
    return _mean(t, (1 + near - far).clamp(min=0))


def _signs(d: Draw) -> Given:
    rows, width = d.shape(2, 2)
    return given(d.normal(rows, width), d.normal(rows, width), 1 - 2 * d.flags(rows).double())


def _embedded(t: Any, x: Any, y: Any, s: Any) -> Any:
    sizes = (by.added(t, x * x, 1) + 1e-12) * (by.added(t, y * y, 1) + 1e-12)
    cos = by.added(t, x * y, 1) / sizes.sqrt()
    return _mean(t, t.where(s > 0, 1 - cos, (cos - 0.1).clamp(min=0)))


def _margins(t: Any, x: Any, labels: Any, w: Any) -> Any:
    right = _picked(t, x, labels).unsqueeze(1)
    other = labels.unsqueeze(1) != t.arange(x.shape[1])
    return _mean(t, by.added(t, (1 - right + x).clamp(min=0) * other, 1) / x.shape[1])


def _multi(t: Any, x: Any, y: Any) -> Any:
    y = (y.detach() > 0).to(x.dtype)
    each = y * by.softplus(t, -x) + (1 - y) * by.softplus(t, x)
    return _mean(t, by.added(t, each, 1) / x.shape[1])


def _multilabel(d: Draw) -> Given:
    """Each line's labels end at -1."""
    rows, classes = d.length(65), d.choice((3, 8, 17, 33))
    labels = d.torch.stack([d.order(classes) for _ in range(rows)])
    labels[:, classes // 2 :] = -1
    return given(d.normal(rows, classes), labels)


def _multilabel_exact(t: Any, x: Any, labels: Any) -> Any:
    own = (labels.unsqueeze(2) == t.arange(x.shape[1])).any(1)
    apart = (1 - x.unsqueeze(2) + x.unsqueeze(1)).clamp(min=0)
    counted = own.unsqueeze(2) & ~own.unsqueeze(1)
    return _all(t, apart * counted) / x.shape[1] / len(x)


MARGINS: Tuple[Operator, ...] = (
    Operator(
        "triplet_margin_loss",
        _three,
        lambda t, a, p, n: t.nn.functional.triplet_margin_loss(a, p, n),
        _triplet,
        slack=32,
        serial=True,
        dtypes=FULL,
        learns=False,
    ),
    Operator(
        "margin_ranking_loss",
        _three,
        lambda t, a, b, s: t.nn.functional.margin_ranking_loss(a, b, s.sign(), margin=0.5),
        lambda t, a, b, s: _mean(t, (0.5 - s.sign() * (a - b)).clamp(min=0)),
        slack=16,
        learns=False,
    ),
    Operator(
        "cosine_embedding_loss",
        _signs,
        lambda t, x, y, s: t.nn.functional.cosine_embedding_loss(x, y, s, margin=0.1),
        _embedded,
        slack=64,
        learns=False,
        dtypes=FULL,
    ),
    Operator(
        "multi_margin_loss",
        classed,
        lambda t, x, labels, w: t.nn.functional.multi_margin_loss(x, labels),
        _margins,
        slack=16,
        learns=False,
        serial=True,
        dtypes=FULL,
    ),
    Operator(
        "multilabel_soft_margin_loss",
        _signed,
        lambda t, x, y: t.nn.functional.multilabel_soft_margin_loss(x, (y > 0).to(x.dtype)),
        _multi,
        slack=32,
        learns=False,
        dtypes=FULL,
    ),
    Operator(
        "multilabel_margin_loss",
        _multilabel,
        lambda t, x, labels: t.nn.functional.multilabel_margin_loss(x, labels),
        _multilabel_exact,
        slack=32,
        learns=False,
        serial=True,
        dtypes=FULL,
    ),
)


def _alignable(d: Draw) -> Given:
    steps, n, classes = d.choice((7, 12, 33)), d.choice((1, 2, 3)), d.choice((3, 6, 17))
    return given(d.normal(steps, n, classes), d.whole(1, classes, n, 3))


def _ctc(t: Any, x: Any, labels: Any) -> Any:
    steps, n, _ = x.shape
    return t.nn.functional.ctc_loss(
        x.log_softmax(-1), labels, [steps] * n, [3] * n, reduction="none"
    )


def _ctc_exact(t: Any, x: Any, labels: Any) -> Any:
    """All ways to spell the labels, step by step: with a blank between, before and behind."""
    logs, found = by.log_softmax(t, x, -1), []
    for item, word in enumerate(labels.tolist()):
        signs = [0]
        for label in word:
            signs += [label, 0]
        skips = t.tensor([i > 1 and s != 0 and s != signs[i - 2] for i, s in enumerate(signs)])
        rows = logs[:, item][:, signs].exp()
        ways = t.where(t.arange(len(signs)) < 2, rows[0], 0 * rows[0])
        for row in rows[1:]:
            one = t.cat([0 * ways[:1], ways[:-1]])
            two = t.cat([0 * ways[:2], ways[:-2]]) * skips
            ways = (ways + one + two) * row
        found.append(-(ways[-1] + ways[-2]).log())
    return t.stack(found)


CTC = Operator("ctc_loss", _alignable, _ctc, _ctc_exact, dtypes=FULL, slack=64, weight=2)

FURTHER_LOSSES = (*EACH, *CLASSES, *MARGINS, CTC)
