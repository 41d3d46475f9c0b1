"""Known answers of the layers of models: convolution, normalisation, losses, attention, recurrent
nets and dropout, with their gradients.

Most known answers come from formulas, written out here, in float64 on the CPU.
"""

from __future__ import annotations

import contextlib
import copy
from functools import partial
from typing import Any, Callable, Dict, Iterator, Tuple

import torch

from ..judging.answers import (
    checked_against,
    closely,
    exact,
    exactly,
    format_of,
    formats,
    normal,
    whole_numbers,
)
from ..judging.refusals import refuses
from ..judging.tolerance import Comparison, agree, holds
from ..values import kind, run_options
from .chance import SIGMAS

functional = torch.nn.functional
Layer = Callable[..., Any]


def compare_with_formula(
    label: str, roundings: float, run: Layer, formula: Layer, *given: Any
) -> Iterator[Comparison]:
    """Compare a layer's result and gradients with those of a formula in float64 on the CPU.

    A number may be off by so many roundings of the largest. A format that the device's library does
    not offer is left out.
    """
    name = str(given[0].dtype).replace("torch.", "")
    leaves, known_leaves = [x.detach().requires_grad_() for x in given], exact(*given)
    known = formula(*known_leaves)
    # The same upstream gradient for both, rounded to the format.
    upstream = normal("cpu", *known.shape, salt=label, name=name)
    try:
        computed = run(*leaves)
        gradients = torch.autograd.grad(computed, leaves, upstream.to(computed))
    except RuntimeError as problem:
        if not refuses(problem):
            raise
        return
    known_gradients = torch.autograd.grad(known, known_leaves, upstream.double())
    yield closely(f"{label} of {name}", computed, known, roundings, name)
    for number, (found, right) in enumerate(zip(gradients, known_gradients)):
        yield closely(f"{label} of {name}, gradient {number}", found, right, roundings, name)


CONVOLUTIONS: Dict[str, Tuple[Tuple[int, ...], Tuple[int, ...], Dict[str, Any]]] = {
    "conv1d": ((13,), (6, 4, 5), {"padding": 2}),
    "conv2d": ((13, 11), (8, 4, 3, 3), {"padding": 1}),
    "conv2d with steps": ((13, 11), (6, 4, 5, 3), {"stride": 2, "dilation": (1, 2)}),
    "conv2d of single channels": ((13, 11), (8, 1, 3, 3), {"groups": 4}),
    "conv2d of single pixels": ((13, 11), (17, 4, 1, 1), {}),
    "conv3d": ((9, 8, 7), (6, 4, 3, 3, 3), {"padding": 1}),
}
"""Function -> the size of the images, the shape of the weight, and the options."""
CONVOLUTION_ROUNDINGS = 64
"""A sum of 100 terms rounds a dozen times; Winograd's transforms multiply that by about five."""


def convolutions(device: str) -> Iterator[Comparison]:
    """Convolutions of several shapes, with their gradients, in two layouts of memory."""
    for label, (size, shape, options) in CONVOLUTIONS.items():
        convolve = partial(getattr(functional, label.partition(" ")[0]), **options)
        for name in formats(device):
            x = normal(device, 3, 4, *size, salt=label, name=name)
            weight = normal(device, *shape, salt=f"weight of {label}", name=name)
            yield from compare_with_formula(
                label, CONVOLUTION_ROUNDINGS, convolve, convolve, x, weight
            )
            if len(size) == 2:
                x = x.contiguous(memory_format=torch.channels_last)
                in_channels = f"{label}, channels last"
                yield from compare_with_formula(
                    in_channels, CONVOLUTION_ROUNDINGS, convolve, convolve, x, weight
                )


def pools(device: str) -> Iterator[Comparison]:
    """The mean and the largest number of windows are exact, in two layouts of memory."""
    pixels = whole_numbers(2, 3, 9, 7, most=9, salt="pixels")
    windows = pixels.unfold(2, 2, 2).unfold(3, 2, 2)
    for name in formats(device):
        for layout in (torch.contiguous_format, torch.channels_last):
            x = pixels.to(device, format_of(name)).contiguous(memory_format=layout)
            x.requires_grad_()
            # Sums of four numbers up to 9, divided by four, are exact in every format.
            means, largest = functional.avg_pool2d(x, 2), functional.max_pool2d(x, 2)
            yield exactly(f"mean of windows of {name}", means, windows.mean((-1, -2)))
            yield exactly(f"largest of windows of {name}", largest, windows.amax((-1, -2)))
            largest.sum().backward()
            yield exactly(f"gradients of windows of {name}", x.grad.sum(), [largest.numel()])


images = checked_against("float64 on the CPU", convolutions, pools)


def standardised(x: Any, eps: float, axes: Tuple[int, ...]) -> Any:
    """The numbers minus their mean, divided by the root of the variance plus eps."""
    centred = x - x.mean(axes, keepdim=True)
    return centred / (centred.square().mean(axes, keepdim=True) + eps).sqrt()


NORM_ROUNDINGS = 32
"""A number is divided by the root of a sum, and the gradient subtracts two such sums."""


def normalisations(device: str) -> Iterator[Comparison]:
    """Layer, group, batch and RMS norms, with gradients, add eps to the variance."""

    def layer_norm(x: Any, w: Any, b: Any, eps: float) -> Any:
        return functional.layer_norm(x, x.shape[1:], w, b, eps)

    def layer_standardised(x: Any, w: Any, b: Any, eps: float) -> Any:
        return standardised(x, eps, (1,)) * w + b

    def group_standardised(x: Any, eps: float) -> Any:
        return standardised(x.reshape(4, 3, -1), eps, (2,)).reshape(x.shape)

    def rms_standardised(x: Any, eps: float) -> Any:
        return x / (x.square().mean(1, keepdim=True) + eps).sqrt()

    for name in formats(device):
        # The spread 0.001 gives a variance of a tenth of the usual eps, and the eps 0.75 is three
        # times the variance of the spread 0.5, so both show whether eps is added to the variance.
        for spread, eps in ((1.0, 1e-5), (0.001, 1e-5), (0.5, 0.75)):
            of = f"spread {spread:g}, eps {eps:g}"
            for width in (16, 130, 1026):
                x = normal(device, 6, width, salt=f"norm {width}", name=name) * spread
                w, b = (normal(device, width, salt=f"{n} {width}", name=name) for n in "wb")
                label = f"layer norm of {width}, {of}"
                run, formula = partial(layer_norm, eps=eps), partial(layer_standardised, eps=eps)
                yield from compare_with_formula(label, NORM_ROUNDINGS, run, formula, x, w, b)
            x = normal(device, 4, 6, 7, 5, salt="norm of images", name=name) * spread
            run = partial(functional.group_norm, num_groups=3, eps=eps)
            formula = partial(group_standardised, eps=eps)
            yield from compare_with_formula(f"group norm, {of}", NORM_ROUNDINGS, run, formula, x)
            statistics = {"running_mean": None, "running_var": None, "training": True}
            run = partial(functional.batch_norm, eps=eps, **statistics)
            formula = partial(standardised, eps=eps, axes=(0, 2, 3))
            yield from compare_with_formula(f"batch norm, {of}", NORM_ROUNDINGS, run, formula, x)
        # torch has RMS norm since 2.4.
        if not hasattr(functional, "rms_norm"):
            continue
        # Without eps, it takes float32's own; what it takes in 16 bits depends on the kernel.
        for given in (1e-4, None) if name == "float32" else (1e-4,):
            x = normal(device, 6, 130, salt="rms norm", name=name) * 0.001
            run = partial(functional.rms_norm, normalized_shape=(130,), eps=given)
            eps = torch.finfo(torch.float32).eps if given is None else given
            formula = partial(rms_standardised, eps=eps)
            label = f"RMS norm, eps {given}"
            yield from compare_with_formula(label, NORM_ROUNDINGS, run, formula, x)


norms = checked_against("formulas in float64 on the CPU", normalisations)


SOFTMAX_ROUNDINGS = 32
"""A share is the exponential of a rounded difference, divided by a sum of such."""


def logarithms_of_shares(x: Any) -> Any:
    """The formula of log-softmax."""
    shifted = x - x.amax(-1, keepdim=True)
    return shifted - shifted.exp().sum(-1, keepdim=True).log()


def softmaxes(device: str) -> Iterator[Comparison]:
    """Softmax and log-softmax of rows of several widths, with their gradients."""

    def shares_by_logarithms(x: Any) -> Any:
        return logarithms_of_shares(x).exp()

    shares, logs = partial(torch.softmax, dim=-1), partial(torch.log_softmax, dim=-1)
    for name in formats(device):
        for width in (5, 129, 1027, 4099):
            x = normal(device, 3, width, salt=f"softmax {width}", name=name)
            for label, run, formula in (
                (f"softmax of {width}", shares, shares_by_logarithms),
                (f"log-softmax of {width}", logs, logarithms_of_shares),
            ):
                yield from compare_with_formula(label, SOFTMAX_ROUNDINGS, run, formula, x)


IGNORED = -100
"""The target that cross-entropy leaves out, unless a program names another one."""


def losses(device: str) -> Iterator[Comparison]:
    """Cross-entropy with targets that are left out, with its gradients."""

    def formula(x: Any, targets: Any, reduction: str) -> Any:
        is_kept = targets != IGNORED
        logs = logarithms_of_shares(x)[is_kept].gather(1, targets[is_kept, None])
        return -logs.mean() if reduction == "mean" else -logs.sum()

    for width in (5, 1027, 70_001):
        targets = torch.tensor([1, IGNORED, 3, 0, IGNORED, width - 1])
        x = normal(device, 6, width, salt=f"scores {width}") * 3
        for reduction in ("mean", "sum"):
            options = {"target": targets.to(device), "reduction": reduction}
            run = partial(functional.cross_entropy, **options)
            known = partial(formula, targets=targets, reduction=reduction)
            # The sum of so many shares rounds more than a few do, and enters each gradient.
            roundings = 64 + width**0.5
            label = f"{reduction} of losses of {width} classes"
            yield from compare_with_formula(label, roundings, run, known, x)


softmax = checked_against("formulas in float64 on the CPU", softmaxes, losses)


BACKENDS_ON_EVERY_DEVICE = ("MATH", "FLASH_ATTENTION")
BACKENDS_ON_CUDA = (*BACKENDS_ON_EVERY_DEVICE, "EFFICIENT_ATTENTION", "CUDNN_ATTENTION")
"""torch's kernels for attention. The last two exist for CUDA and ROCm alone."""
NOT_OFFERED = ("No available kernel", "No viable backend", "cuDNN Frontend error", "No execution")
"""Parts of torch's messages if a backend of attention does not support a call."""
ATTENTION_ROUNDINGS = 64
"""Scores up to about 4 are rounded before the exponential, and its result before the product."""


def attention_formula(q: Any, k: Any, v: Any, is_seen: Any) -> Any:
    """The formula of attention. A query that sees no key gets zeros, where -inf would give NaN."""
    scores = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).masked_fill(~is_seen, -1e30)
    weights = scores.softmax(-1) * is_seen
    return weights @ v


@contextlib.contextmanager
def by_backend(backend: str) -> Iterator[None]:
    """Inside the `with` block, attention uses this backend; torch's choice before 2.3."""
    attention_module = getattr(torch.nn, "attention", None)
    chosen = getattr(getattr(attention_module, "SDPBackend", None), backend, None)
    if chosen is None:
        yield
        return
    with attention_module.sdpa_kernel(chosen):  # type: ignore[union-attr]
        yield


def attention(device: str) -> Iterator[Comparison]:
    """Attention by each backend of torch, with and without a mask, with its gradients."""
    attend = functional.scaled_dot_product_attention
    backends = BACKENDS_ON_CUDA if kind(device) == "cuda" else BACKENDS_ON_EVERY_DEVICE
    for name in formats(device):
        # Lengths around the edges of the kernels' blocks of 32, 64 and 128.
        for queries, keys, is_causal in ((65, 65, False), (65, 65, True), (33, 129, False)):
            is_seen = torch.ones(queries, keys, dtype=torch.bool)
            is_seen = is_seen.tril() if is_causal else is_seen
            q, k, v = (
                normal(device, 1, 3, length, 64, salt=f"{salt} {length}", name=name)
                for salt, length in zip("qkv", (queries, keys, keys))
            )
            run = partial(attend, is_causal=is_causal)
            formula = partial(attention_formula, is_seen=is_seen)
            for backend in backends:
                label = f"{backend.lower()}, {queries} x {keys}, causal {is_causal}"
                try:
                    with by_backend(backend):
                        yield from compare_with_formula(
                            label, ATTENTION_ROUNDINGS, run, formula, q, k, v
                        )
                except RuntimeError as problem:
                    if not any(words in str(problem) for words in NOT_OFFERED):
                        raise
        # One query may see no key: the formula gives 0 for it, and releases before 2.5 NaN.
        is_seen = torch.ones(65, 65, dtype=torch.bool).tril()
        is_seen[2] = False
        q, k, v = (normal(device, 1, 3, 65, 64, salt=f"{salt} 65", name=name) for salt in "qkv")
        found = attend(q, k, v, is_seen.to(device)).nan_to_num()
        known_q, known_k, known_v = exact(q, k, v)
        known = attention_formula(known_q, known_k, known_v, is_seen)
        yield closely(f"hidden keys of {name}", found, known, ATTENTION_ROUNDINGS, name)


masks = checked_against("weighted sums in float64 on the CPU", attention)


RECURRENT_ROUNDINGS = 256
"""Nine steps in sequence, each with a few roundings in sums of 40 terms."""


def recurrent_nets(device: str) -> Iterator[Comparison]:
    """LSTM and GRU in both directions, with their gradients and their last states."""

    def outputs_of(x: Any, net: Any) -> Any:
        return net(x)[0]

    for label in ("LSTM", "GRU"):
        torch.manual_seed(run_options().seed)
        net = getattr(torch.nn, label)(12, 20, num_layers=2, bidirectional=True)
        exact_net = copy.deepcopy(net).double()
        net.to(device, format_of("float32"))
        x = normal(device, 9, 5, 12, salt=label)
        run, formula = partial(outputs_of, net=net), partial(outputs_of, net=exact_net)
        yield from compare_with_formula(label, RECURRENT_ROUNDINGS, run, formula, x)
        outputs, state = net(x)
        last = state[0] if label == "LSTM" else state
        # The last two states are the last output forwards, and the first one backwards.
        known = torch.stack([outputs[-1, :, :20], outputs[0, :, 20:]])
        # They are the same numbers, which another kernel may round once or twice more.
        yield closely(f"last states of {label}", last[-2:], known, 4, "float32")


recurrent = checked_against("float64 on the CPU", recurrent_nets)


LANES, ROUNDS = 256, 1024
"""Dropout gets ROUNDS times LANES numbers. Each place among LANES must be dropped in about half of
the rounds, which shows a generator that repeats itself from block to block."""


def dropped_lanes(device: str) -> Iterator[Comparison]:
    """Dropout drops each place equally often, doubles the rest, and never draws the same twice."""
    torch.manual_seed(run_options().seed)
    for name in formats(device):
        ones = torch.ones(LANES * ROUNDS, device=device, dtype=getattr(torch, name))
        dropped, next_dropped = (functional.dropout(ones, 0.5) for _ in range(2))
        yield exactly(f"dropout of {name}, what is kept", dropped.unique(), [0, 2])
        kept = (dropped != 0).view(ROUNDS, LANES).sum(0)
        # How many of n places are kept has the standard deviation sqrt(n / 4).
        expected, allowed = torch.full((LANES,), ROUNDS / 2), SIGMAS * (ROUNDS / 4) ** 0.5
        yield agree(f"dropout of {name}, lanes", kept, expected, allowed)
        share = (dropped == 0).double().mean()
        allowed = SIGMAS * 0.5 / (LANES * ROUNDS) ** 0.5
        yield agree(f"dropout of {name}, share", share, torch.tensor(0.5), allowed)
        # Two independent draws agree in half of the places.
        repeated = float((dropped == next_dropped).double().mean())
        yield holds(f"dropout of {name}, the next", repeated < 0.9, f"{repeated:.0%} come again")


dropout = checked_against("how often each place must come", dropped_lanes)
