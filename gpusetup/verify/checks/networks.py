"""Convolution and attention by each way that torch has for them, forward and backward."""

from __future__ import annotations

import contextlib
from math import sqrt
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Tuple

from ..judging.precision import UNIT_ROUNDOFF, matmul_limit, read_conv_precision, read_precision
from ..judging.refusals import has_bfloat16
from ..judging.tolerance import ROUNDOFF, Part, agree, judged, numbers, summed
from ..values import SKIPPED, Outcome
from .computing import capability_of


class Convolution(NamedTuple):
    name: str
    function: str
    inputs: Tuple[int, ...]
    weights: Tuple[int, ...]
    options: Dict[str, Any]


CONVOLUTIONS = (
    Convolution("3 x 3", "conv2d", (4, 16, 19, 23), (24, 16, 3, 3), {"padding": 1}),
    Convolution("1 x 1", "conv2d", (4, 32, 14, 14), (16, 32, 1, 1), {}),
    Convolution("stride 2", "conv2d", (2, 3, 33, 33), (16, 3, 7, 7), {"stride": 2, "padding": 3}),
    Convolution("dilated", "conv2d", (2, 8, 20, 20), (8, 8, 3, 3), {"dilation": 2}),
    Convolution("depthwise", "conv2d", (2, 16, 15, 15), (16, 1, 3, 3), {"groups": 16}),
    Convolution("line", "conv1d", (4, 12, 65), (20, 12, 5), {"padding": 2}),
    Convolution("volume", "conv3d", (1, 4, 9, 10, 11), (6, 4, 3, 3, 3), {}),
    Convolution("transposed", "conv_transpose2d", (2, 8, 9, 9), (8, 6, 4, 4), {"stride": 2}),
)
ALGORITHMS = 4.0
"""Winograd's transformations lose more than a plain sum; 4 covers those that libraries choose."""


def convolution(device: str) -> Outcome:
    """Convolutions with and without the vendor's library (cuDNN, on the CPU oneDNN)."""
    import torch

    parts: List[Part] = []
    ways = library_ways(torch, device)
    for way, switched in ways:
        with switched():
            for salt, row in enumerate(CONVOLUTIONS):
                parts += _convolved(torch, device, f"{row.name}, {way}", row, 30 + salt)
    return judged(parts, f"float64, {' and '.join(way for way, _ in ways)}")


def library_ways(torch: Any, device: str) -> List[Tuple[str, Callable[[], Any]]]:
    """The ways to convolve that this build has, each with what switches it on."""
    if device == "cpu":
        ways = [("without oneDNN", lambda: _onednn(torch, False))]
        if torch.backends.mkldnn.is_available():
            ways.insert(0, ("with oneDNN", lambda: _onednn(torch, True)))
        return ways
    cudnn = torch.backends.cudnn
    ways = [("without cuDNN", lambda: _cudnn(cudnn, False))]
    if cudnn.is_available():
        ways.insert(0, ("with cuDNN", lambda: _cudnn(cudnn, True)))
        if hasattr(cudnn, "allow_tf32"):
            ways.insert(1, ("with cuDNN, TF32 off", lambda: _cudnn_exact(cudnn)))
    return ways


@contextlib.contextmanager
def _cudnn_exact(cudnn: Any) -> Iterator[None]:
    """The finest that cuDNN has; where old and new settings were mixed, as it is."""
    try:
        before, cudnn.allow_tf32 = bool(cudnn.allow_tf32), False
    except RuntimeError:
        yield
        return
    try:
        yield
    finally:
        cudnn.allow_tf32 = before


@contextlib.contextmanager
def _cudnn(cudnn: Any, enabled: bool) -> Iterator[None]:
    """Only this one flag, so that the settings of precision stay as they are."""
    before = cudnn.enabled
    cudnn.enabled = enabled
    try:
        yield
    finally:
        cudnn.enabled = before


@contextlib.contextmanager
def _onednn(torch: Any, enabled: bool) -> Iterator[None]:
    """The switch alone: the public context also touches settings that warn on CPU builds."""
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(enabled)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before)


def _convolved(torch: Any, device: str, label: str, row: Convolution, salt: int) -> Iterator[Part]:
    x, w = numbers(torch, *row.inputs, salt=salt), numbers(torch, *row.weights, salt=salt + 10)
    b = numbers(torch, _outputs(row), salt=salt + 20)
    run = getattr(torch.nn.functional, row.function)
    shape = run(x, w, b, **row.options).shape
    g = numbers(torch, *shape, salt=salt + 30)
    read = read_precision if label.endswith("without cuDNN") else read_conv_precision
    name = read(torch, device, capability_of(torch, device)).name
    exact = _gradients(run, row, *(each.double() for each in (x, w, b, g)))
    squares = _gradients(run, row, *(each.double().square() for each in (x, w, b, g)))
    found = _gradients(run, row, *(each.to(device) for each in (x, w, b, g)))
    counts = _inner(row, shape)
    whats = ("", " backward input", " backward weight", " backward bias")
    for what, here, wanted, square, inner in zip(whats, found, exact, squares, counts):
        size = (square * inner).sqrt()
        allowed = ALGORITHMS * matmul_limit(name, inner) * size
        yield agree(label + what, here, wanted, allowed)


def _outputs(row: Convolution) -> int:
    return row.weights[1] if row.function.startswith("conv_transpose") else row.weights[0]


def _inner(row: Convolution, shape: Any) -> Tuple[int, int, int, int]:
    """How many products each element of the output and of the three gradients adds up."""
    window = 1
    for length in row.weights[2:]:
        window *= length
    out = shape[0]
    for length in shape[2:]:
        out *= length
    return (row.weights[1] * window, row.weights[0] * window, out, out)


def _gradients(run: Callable[..., Any], row: Convolution, *given: Any) -> Tuple[Any, ...]:
    """The output and the gradients. Of squared inputs they are the squared sizes of the sums."""
    x, w, b, g = given
    leaves = [each.detach().requires_grad_() for each in (x, w, b)]
    out = run(*leaves, **row.options)
    out.backward(g)
    return (out.detach(), *(leaf.grad for leaf in leaves))


class Heads(NamedTuple):
    name: str
    queries: int
    keys: int
    causal: bool = False
    masked: bool = False


HEADS = (
    Heads("plain", 65, 65),
    Heads("causal", 64, 64, causal=True),
    Heads("across", 33, 80),
    Heads("masked", 48, 48, masked=True),
)
DEPTH = 32
BACKENDS = ("MATH", "FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION")
NOT_OFFERED = (
    "No available kernel",
    "No viable backend",
    "cuDNN Frontend error",
    "No execution plan",
)


def attention(device: str) -> Outcome:
    """`scaled_dot_product_attention` by each backend that offers itself here."""
    import torch

    if not hasattr(torch.nn.functional, "scaled_dot_product_attention"):
        return Outcome(SKIPPED, f"torch {torch.__version__} has no scaled_dot_product_attention")
    parts: List[Part] = []
    offered: List[str] = []
    for backend in BACKENDS:
        found = _by_backend(torch, device, backend)
        parts += found
        offered += [backend.partition("_")[0].lower()] if found else []
    return judged(parts, f"float64 by {', '.join(offered)}")


def _by_backend(torch: Any, device: str, backend: str) -> List[Part]:
    """Every case and format that the backend takes; empty where it takes none."""
    parts: List[Part] = []
    bfloat16 = ("bfloat16",) if has_bfloat16(capability_of(torch, device)) else ()
    for name in ("float32", *bfloat16, "float16"):
        for row in HEADS:
            with contextlib.suppress(_Unoffered), _only(torch, backend):
                parts += list(_attended(torch, device, row, name, backend))
    return parts


class _Unoffered(Exception):
    """The backend does not take this case."""


@contextlib.contextmanager
def _only(torch: Any, backend: str) -> Iterator[None]:
    """Only this backend may answer; `_Unoffered` where it will not."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with _chosen(torch, backend):
                yield
        except RuntimeError as problem:
            if any(words in str(problem) for words in NOT_OFFERED):
                raise _Unoffered from problem
            raise


def _chosen(torch: Any, backend: str) -> Any:
    """The context of torch 2.3 on; before that the one of 2.0, which knows no cuDNN."""
    with contextlib.suppress(ImportError):
        from torch.nn.attention import SDPBackend, sdpa_kernel

        if not hasattr(SDPBackend, backend):
            raise _Unoffered
        return sdpa_kernel([getattr(SDPBackend, backend)])
    if backend == "CUDNN_ATTENTION":
        raise _Unoffered
    return torch.backends.cuda.sdp_kernel(
        enable_flash=backend == "FLASH_ATTENTION",
        enable_math=backend == "MATH",
        enable_mem_efficient=backend == "EFFICIENT_ATTENTION",
    )


def _attended(torch: Any, device: str, row: Heads, name: str, backend: str) -> Iterator[Part]:
    dtype = getattr(torch, name)
    shapes = (row.queries, row.keys, row.keys, row.queries)
    given = [
        numbers(torch, 2, 4, length, DEPTH, salt=60 + place).to(dtype)
        for place, length in enumerate(shapes)
    ]
    mask = _mask(torch, row)
    exact = _attention_gradients(torch, _by_definition, row, mask, [x.double() for x in given])
    here = None if mask is None else mask.to(device)
    sdpa = torch.nn.functional.scaled_dot_product_attention
    found = _attention_gradients(
        torch,
        lambda t, r, m, q, k, v: sdpa(q, k, v, attn_mask=m, is_causal=r.causal),
        row,
        here,
        [each.to(device) for each in given],
    )
    u = _roundoff(torch, device, name)
    short = backend.partition("_")[0].lower()
    for what, one, wanted in zip(("", " dq", " dk", " dv"), found, exact):
        allowed = 4 * (u * SCORES + summed(row.keys)) * _sizes(wanted)
        yield agree(f"{short} {row.name} {name}{what}", one, wanted, allowed)


SCORES = 8.0
"""A score is a sum of DEPTH products over sqrt(DEPTH), at most about 5: its rounding to the low
format moves a weight by 5 u; with room."""


def _roundoff(torch: Any, device: str, name: str) -> float:
    """Of the format, or of the coarser arithmetic that float32 products may use here."""
    if name != "float32":
        return ROUNDOFF[name]
    return UNIT_ROUNDOFF[read_precision(torch, device, capability_of(torch, device)).name]


def _sizes(wanted: Any) -> Any:
    """Elements that are sums of larger terms: at least the root mean square of their tensor."""
    return wanted.abs() + wanted.square().mean().sqrt()


def _mask(torch: Any, row: Heads) -> Any:
    """True where a query may look: never at each third key, always at itself."""
    if not row.masked:
        return None
    seen = torch.ones(row.queries, row.keys, dtype=torch.bool)
    seen[:, ::3] = False
    return seen | torch.eye(row.queries, row.keys, dtype=torch.bool)


def _by_definition(torch: Any, row: Heads, mask: Any, q: Any, k: Any, v: Any) -> Any:
    scores = q @ k.transpose(-1, -2) / sqrt(DEPTH)
    if row.causal:
        mask = torch.ones(row.queries, row.keys, dtype=torch.bool).tril()
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    return scores.softmax(-1) @ v


def _attention_gradients(
    torch: Any, run: Callable[..., Any], row: Heads, mask: Any, given: List[Any]
) -> Tuple[Any, ...]:
    leaves = [each.detach().requires_grad_() for each in given[:3]]
    out = run(torch, row, mask, *leaves)
    out.backward(given[3])
    return (out.detach(), *(leaf.grad for leaf in leaves))
