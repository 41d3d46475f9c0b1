"""Losses and their gradients."""

from __future__ import annotations

from typing import Any, Tuple

from . import definitions as by
from .drawing import Draw, Given, given
from .table import Operator


def classed(d: Draw) -> Given:
    rows, classes = d.shape(2, 2)
    labels = d.whole(0, classes, rows)
    return given(d.normal(rows, classes) * 2, labels, d.uniform(0.5, 1.5, classes))


def _smoothed(t: Any, x: Any, labels: Any, w: Any) -> Any:
    return t.nn.functional.cross_entropy(x, labels, label_smoothing=0.1)


def _picked(t: Any, x: Any, labels: Any) -> Any:
    return by.added(t, x * (labels.unsqueeze(1) == t.arange(x.shape[1])), 1)


def _cross(t: Any, x: Any, labels: Any, w: Any) -> Any:
    return -by.mean(t, _picked(t, by.log_softmax(t, x, 1), labels), 0)


def _cross_weighted(t: Any, x: Any, labels: Any, w: Any) -> Any:
    each = _picked(t, by.log_softmax(t, x, 1) * w.detach(), labels)
    heavy = _picked(t, w.detach() + 0 * x, labels)
    return -by.added(t, each, 0) / by.added(t, heavy, 0)


def _smoothed_exact(t: Any, x: Any, labels: Any, w: Any) -> Any:
    logs = by.log_softmax(t, x, 1)
    return -by.mean(t, 0.9 * _picked(t, logs, labels) + 0.1 * by.mean(t, logs, 1), 0)


def _ignored(t: Any, x: Any, labels: Any, w: Any) -> Any:
    labels = labels.clone()
    labels[1:] = t.where(labels[1:] % 3 == 0, -100 + 0 * labels[1:], labels[1:])
    return t.nn.functional.cross_entropy(x, labels, reduction="sum")


def _ignored_exact(t: Any, x: Any, labels: Any, w: Any) -> Any:
    each = _picked(t, by.log_softmax(t, x, 1), labels)
    heavy = t.where(labels % 3 == 0, 0.0 * labels, 1.0 + 0 * labels)
    heavy[0] = 1.0
    return -by.added(t, each * heavy, 0)


def _paired(d: Draw) -> Given:
    shape = d.shape(2)
    return given(d.normal(*shape), d.uniform(0.02, 0.98, *shape))


def _loss(name: str, exact: Any, slack: float = 4.0, weight: float = 1.0) -> Operator:
    return Operator(
        name,
        _paired,
        lambda t, x, y: getattr(t.nn.functional, name)(x, y),
        lambda t, x, y: by.mean(t, exact(t, x, y).reshape(-1), 0),
        slack=slack,
        weight=weight,
    )


def _with_logits(t: Any, x: Any, y: Any) -> Any:
    return by.softplus(t, x) - x * y


SUMMED = ("float32", "bfloat16", "float64")
"""Smoothing adds up the logarithms of all classes, which float16 cannot hold."""

LOSSES: Tuple[Operator, ...] = (
    Operator(
        "cross_entropy",
        classed,
        lambda t, x, labels, w: t.nn.functional.cross_entropy(x, labels),
        _cross,
        slack=8,
        weight=4,
    ),
    Operator(
        "cross_entropy weighted",
        classed,
        lambda t, x, labels, w: t.nn.functional.cross_entropy(x, labels, w.detach()),
        _cross_weighted,
        slack=8,
        weight=2,
    ),
    Operator(
        "cross_entropy smoothed",
        classed,
        _smoothed,
        _smoothed_exact,
        slack=8,
        weight=2,
        dtypes=SUMMED,
    ),
    Operator("cross_entropy ignoring", classed, _ignored, _ignored_exact, slack=8, weight=2),
    _loss("mse_loss", lambda t, x, y: (x - y) * (x - y), weight=3),
    _loss("binary_cross_entropy_with_logits", _with_logits, 8, 2),
)
