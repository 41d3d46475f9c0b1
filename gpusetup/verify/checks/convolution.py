"""Convolution by each library that torch has for it, held to sums over the window."""

from __future__ import annotations

import contextlib
from functools import partial
from itertools import product
from math import prod
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Tuple

import torch

from ..judging.precision import read_conv_precision, read_precision
from ..judging.tolerance import Part, judged, numbers
from ..values import Outcome
from .trials import Trial, capability_of, compared, share_of_sums


class Convolution(NamedTuple):
    name: str
    inputs: Tuple[int, ...]
    """(batch, channels, length...)"""
    weights: Tuple[int, ...]
    """(channels out, channels in / groups, length...)"""
    options: Dict[str, int]


CONVOLUTIONS = (
    Convolution("3 x 3", (4, 16, 19, 23), (24, 16, 3, 3), {"padding": 1}),
    Convolution("wide steps", (2, 8, 20, 20), (8, 8, 3, 3), {"stride": 2, "dilation": 2}),
    Convolution("depthwise", (2, 16, 15, 15), (16, 1, 3, 3), {"groups": 16}),
    Convolution("line", (4, 12, 65), (20, 12, 5), {"padding": 2}),
    Convolution("volume", (1, 4, 9, 10, 11), (6, 4, 3, 3, 3), {}),
)


def convolution(device: str) -> Outcome:
    """Convolutions with and without the vendor's library (cuDNN, on the CPU oneDNN)."""
    parts: List[Part] = []
    ways = library_ways(device)
    for row in CONVOLUTIONS:
        tried = trial(device, row)
        for way, read, switched in ways:
            with switched():
                precision = read(torch, device, capability_of(device)).name
                tried.share = share_of_sums(precision, terms(row))
                parts += compared(tried, device, f", {way}")
    return judged(parts, f"the definition in float64, {' and '.join(way for way, _, _ in ways)}")


def trial(device: str, row: Convolution) -> Trial:
    shapes = (row.inputs, row.weights, row.weights[:1])
    given = [numbers(torch, *shape, salt=30 + place) for place, shape in enumerate(shapes)]
    run = getattr(torch.nn.functional, f"conv{len(row.inputs) - 2}d")
    return Trial(
        row.name,
        lambda x, w, b: run(x, w, b, **row.options),
        lambda x, w, b: by_definition((x, w, b), **row.options),
        given,
        0.0,
    )


def terms(row: Convolution) -> int:
    """How many products an element of the answer or of a gradient adds up, at most."""
    return max(prod(row.weights[1:]), row.inputs[0] * prod(row.inputs[2:]))


def by_definition(
    given: Any, padding: int = 0, stride: int = 1, dilation: int = 1, groups: int = 1
) -> Any:
    """For each place of the window: the inputs that it sees times its weights."""
    x, w, b = given
    window = w.shape[2:]
    x = torch.nn.functional.pad(x, (padding, padding) * len(window))
    lengths = [(n - dilation * (k - 1) - 1) // stride + 1 for n, k in zip(x.shape[2:], window)]
    x = x.unflatten(1, (groups, w.shape[1]))
    out = b.view(groups, -1, 1)
    for place in product(*map(range, window)):
        starts = [dilation * at for at in place]
        ends = [start + stride * (n - 1) + 1 for start, n in zip(starts, lengths)]
        seen = (..., *(slice(start, end, stride) for start, end in zip(starts, ends)))
        at = (..., *place)
        out = out + w[at].view(groups, -1, w.shape[1]) @ x[seen].flatten(3)
    return out.unflatten(-1, lengths).flatten(1, 2)


Way = Tuple[str, Callable[..., Any], Callable[[], Any]]


def library_ways(device: str) -> List[Way]:
    """The ways to convolve that this build has: name, what reads the precision, what switches."""
    mkldnn, cudnn = torch.backends.mkldnn, torch.backends.cudnn
    if device == "cpu":
        # The switch alone: the public context also touches settings that warn on CPU builds.
        get, change = torch._C._get_mkldnn_enabled, torch._C._set_mkldnn_enabled
        ways = {"with oneDNN": True, "without oneDNN": False}
        usable = [way for way, on in ways.items() if mkldnn.is_available() or not on]
        return [
            (way, read_conv_precision, partial(_switched, get, change, ways[way])) for way in usable
        ]

    def flag(name: str, on: bool) -> Callable[[], Any]:
        # One flag alone, so that the settings of precision stay as they are.
        return partial(_switched, partial(getattr, cudnn, name), partial(setattr, cudnn, name), on)

    ways_of_cudnn: List[Way] = [
        ("with cuDNN", read_conv_precision, flag("enabled", True)),
        ("with cuDNN, TF32 off", read_conv_precision, flag("allow_tf32", False)),
    ]
    without = ("without cuDNN", read_precision, flag("enabled", False))
    return [*(ways_of_cudnn if cudnn.is_available() else []), without]


@contextlib.contextmanager
def _switched(get: Callable[[], bool], change: Callable[[bool], Any], on: bool) -> Iterator[None]:
    """A switch stands so meanwhile; where old and new settings were mixed, it is left alone."""
    try:
        before = bool(get())
        change(on)
    except RuntimeError:
        yield
        return
    try:
        yield
    finally:
        change(before)
