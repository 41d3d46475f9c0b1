"""Softmax, losses and norms, at tame numbers and far from zero, held to their definitions."""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterator, Tuple

import torch

from ..judging.tolerance import SINGLE, judged, numbers, source, summed
from ..values import Outcome
from .trials import Trial, compared

CLASSES, WORDS = 1000, 32767
"""Those of a classifier, and of a language model."""
FAR = 1000.0
"""The mean of numbers with deviation 1. A variance as the difference of two large sums is lost."""
OFF = 64 * SINGLE
"""The error allowed of a difference, relative to what it is the difference of."""
Pair = Tuple[Callable[..., Any], Callable[..., Any]]
"""What is tried, and its definition."""


def softmax_by_definition(x: Any) -> Any:
    raised = (x - x.amax(-1, keepdim=True)).exp()
    return raised / raised.sum(-1, keepdim=True)


def log_softmax_by_definition(x: Any) -> Any:
    below = x - x.amax(-1, keepdim=True)
    return below - below.exp().sum(-1, keepdim=True).log()


def softmax(device: str) -> Outcome:
    """Softmax and losses, forward and backward, also of large, far and masked numbers."""
    tried = [*_of_logits(), *_losses()]
    parts = [part for each in tried for part in compared(each, device)]
    return judged(parts, "the definition in float64")


def _of_logits() -> Iterator[Trial]:
    plain = numbers(torch, 64, CLASSES, salt=4)
    masked = torch.where(torch.arange(CLASSES) % 3 == 0, torch.tensor(float("-inf")), plain)
    vocabulary = numbers(torch, 7, WORDS, salt=5) * 2
    soft: Dict[str, Pair] = {
        "softmax": (torch.softmax, softmax_by_definition),
        "log_softmax": (torch.log_softmax, log_softmax_by_definition),
    }
    for name, (run, exact) in soft.items():
        logits = {"plain": plain * 2, "large": plain * 30, "far": plain + FAR}
        # the logarithm of what is masked is no number to compare
        logits.update({"masked": masked} if name == "softmax" else {}, vocabulary=vocabulary)
        for kind, x in logits.items():
            share = 4 * summed(x.shape[-1]) + (OFF * FAR if kind in ("large", "far") else 0.0)
            yield Trial(f"{name} {kind}", lambda x, f=run: f(x, -1), exact, [x], share)


def _losses() -> Iterator[Trial]:
    """Of large logits; cross entropy with labels that are to be left out."""
    functional = torch.nn.functional
    for rows, classes in ((512, CLASSES), (15, WORDS)):
        labels = torch.randint(0, classes, (rows,), generator=source(torch, 7))
        labels[::5] = -100
        given = [numbers(torch, rows, classes, salt=6) * 20, labels]
        label = f"cross entropy of {classes}"
        yield Trial(label, functional.cross_entropy, _entropy, given, summed(classes))
    guesses, targets = numbers(torch, 71, 1009, salt=16) * 60, numbers(torch, 71, 1009, salt=17)
    yield Trial(
        "binary cross entropy",
        functional.binary_cross_entropy_with_logits,
        lambda x, y: (x.clamp(min=0) - x * y + (1 + (-x.abs()).exp()).log()).mean(),
        [guesses, targets.sigmoid()],
        summed(256),
    )


def _entropy(x: Any, labels: Any) -> Any:
    rows = (labels >= 0).nonzero().flatten()
    return -log_softmax_by_definition(x[rows])[range(len(rows)), labels[rows]].mean()


WIDTH, GROUPS, EPSILON = 384, 8, 1e-5


def normalization(device: str) -> Outcome:
    """Layer, RMS, group and batch norm, forward and backward, near zero and far from it."""
    vectors = [1 + numbers(torch, WIDTH, salt=9) / 4, numbers(torch, WIDTH, salt=10)]
    tried = [
        Trial(
            f"{name} of about {mean:g}",
            run,
            exact,
            [numbers(torch, 96, WIDTH, salt=8) + mean, *vectors],
            summed(WIDTH) + OFF * mean,
        )
        for mean in (1.0, FAR)
        for name, (run, exact) in _norms().items()
    ]
    parts = [part for each in tried for part in compared(each, device)]
    return judged(parts, "the definition in float64")


def _norms() -> Dict[str, Pair]:
    functional = torch.nn.functional
    norms: Dict[str, Pair] = {
        "layer norm": (
            lambda x, w, b: functional.layer_norm(x, (WIDTH,), w, b),
            lambda x, w, b: _normed(x, -1) * w + b,
        ),
        "group norm": (
            lambda x, w, b: functional.group_norm(x, GROUPS, w, b),
            lambda x, w, b: _normed(x.view(-1, GROUPS, WIDTH // GROUPS), -1).view_as(x) * w + b,
        ),
        "batch norm": (
            lambda x, w, b: functional.batch_norm(x, None, None, w, b, training=True),
            lambda x, w, b: _normed(x, 0) * w + b,
        ),
    }
    if hasattr(functional, "rms_norm"):
        norms["rms norm"] = (
            lambda x, w, b: functional.rms_norm(x, (WIDTH,), w, EPSILON) + b,
            lambda x, w, b: x * ((x * x).mean(-1, keepdim=True) + EPSILON).rsqrt() * w + b,
        )
    return norms


def _normed(x: Any, along: int) -> Any:
    away = x - x.mean(along, keepdim=True)
    return away * ((away * away).mean(along, keepdim=True) + EPSILON).rsqrt()
