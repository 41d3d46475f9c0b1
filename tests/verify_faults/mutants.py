"""The mutants: what is wrong with torch, and the check that must name it.

Others may see it too.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import torch
from verify_faults.layers import (
    Function,
    Operator,
    coarse,
    dropout_of,
    element,
    kept_as,
    one_step,
    part,
    part_of,
    patched,
    scaled,
    shaped,
    turned_bit,
)

Context = AbstractContextManager[Any]


class Mutant(NamedTuple):
    name: str
    catcher: str
    make: Callable[[], Context]
    through_dispatcher: bool = True
    """False where compiled code is wrong too."""


def op(names: str, change: Any, when: Any = None, exact: bool = False) -> Callable[[], Context]:
    options = {"when": when} if when else {}
    return lambda: Operator(names, change, exact=exact, **options)


def beyond(size: int) -> Any:
    return lambda found, _: found.numel() >= size


def single(*shape: int) -> Any:
    return lambda found, _: found.dtype == torch.float32 and tuple(found.shape) == shape


def in_mode(name: str) -> Any:
    return lambda *_: torch.get_float32_matmul_precision() == name


def tall_random(found: Any, _: Any) -> bool:
    return found.dtype == torch.float64 and float(found.abs().max()) > 1e6


def _to_float8(found: Any, _: Any) -> bool:
    return str(found.dtype).startswith("torch.float8")


def _cut(found: Any, args: Any) -> Any:
    """A number that was rounded up becomes the one before."""
    up = found.to(torch.float32).abs() > args[0].to(torch.float32).abs()
    return (found.view(torch.uint8) - up.to(torch.uint8)).view(found.dtype)


def _lazy_dropout(func: Any, args: Any, kwargs: Any) -> Any:
    """0.47 where 0.5 was asked for, scaled as if it were."""
    if not dropout_of(0.5)(args, kwargs):
        return func(*args, **kwargs)
    return (torch.rand_like(args[0]) >= 0.47).to(args[0].dtype) * args[0] / 0.5


def _jitter() -> Any:
    calls = itertools.count()
    return lambda found, _: found * (1 + 2.0**-23 * (next(calls) % 3))


def _from_the_begin(right: Any) -> Any:
    def rebuilt(storage: Any, offset: int, size: Any, stride: Any) -> Any:
        return right(storage, 0 if storage.dtype.is_floating_point else offset, size, stride)

    return rebuilt


def _stuck(block: Any) -> Any:
    if block.dtype == torch.int64:
        block.view(-1)[1_500_001] |= 1 << 17
    return block


def _promise(func: Any, args: Any, kwargs: Any) -> Any:
    return func(16, **kwargs) if args and args[0] == 2**58 else func(*args, **kwargs)


def _wrong_compiler(compiler: Any) -> Any:
    def wrong(run: Any, **options: Any) -> Any:
        built = compiler(run, **options)
        return lambda *args: built(*args) * 1.001

    return wrong


def _fetcher() -> Any:
    from torch.utils.data._utils.fetch import _MapDatasetFetcher

    return _MapDatasetFetcher


def _twice(fetch: Any) -> Any:
    return lambda self, places: fetch(self, [places[0], *places[:-1]])


def _cut_product(found: Any, args: Any) -> Any:
    """A bfloat16 product whose last digits are cut off."""
    exact = (args[0].float() @ args[1].float()).contiguous()
    return (exact.view(torch.int32) & ~0xFFFF).view(torch.float32).bfloat16()


def _odd_inner(found: Any, args: Any) -> bool:
    return bool(found.dtype == torch.bfloat16 and args[0].shape[-1] % 2)


def _without_eps(found: Any, args: Any) -> Any:
    given, _, weight, bias = args[:4]
    height = given.var(-1, unbiased=False, keepdim=True).sqrt()
    right = (given - given.mean(-1, keepdim=True)) / height
    return (right * weight + bias, *found[1:])


def _own_default_eps(honest: Any) -> Any:
    def rms_norm(inputs: Any, shape: Any, weight: Any = None, eps: float | None = None) -> Any:
        return honest(inputs, shape, weight, 1e-3 if eps is None else eps)

    return rms_norm


def _closed_ranks(found: Any, args: Any) -> Any:
    """The elements stand beside each other that the slice took at some distance."""
    arriving, _, dim, start, _, _ = args[:6]
    wrong = torch.zeros_like(found)
    wrong.narrow(dim, start, arriving.shape[dim]).copy_(arriving)
    return wrong


def _lost_additions(found: Any, args: Any) -> Any:
    """Of several numbers that are added at one place, one counts."""
    table, dim, places, added = args
    return table.scatter(dim, places, table.gather(dim, places) + added)


def _counted_ignored(found: Any, args: Any) -> Any:
    """The mean is taken over all targets, the ignored ones too."""
    _, target, weight, reduction, ignored = args
    if reduction != 1 or weight is not None:
        return found
    return (found[0] * (target != ignored).sum() / target.numel(), found[1])


def _fills_dead_rows(right: Any) -> Any:
    def attention(
        query: Any, key: Any, value: Any, mask: Any = None, *more: Any, **named: Any
    ) -> Any:
        found = right(query, key, value, mask, *more, **named)
        if mask is None or mask.dtype != torch.bool:
            return found
        return torch.where(mask.any(-1, keepdim=True), found, value.mean(-2, keepdim=True))

    return attention


def _keeps_a_lane(func: Any, args: Any, kwargs: Any) -> Any:
    """Every 256th element is never dropped."""
    found = func(*args, **kwargs)
    if found.dim() != 1 or len(found) % 256:
        return found
    share = args[1] if len(args) > 1 else 0.5
    rows = found.clone().view(-1, 256)
    rows[:, 0] = args[0][::256] / (1 - share)
    return rows.view(-1)


MUTANTS = (
    Mutant(
        "a bfloat16 product of odd inner length is cut, not rounded",
        "rounding",
        op("mm", _cut_product, _odd_inner),
    ),
    Mutant(
        "the last matrices of a batch are not computed",
        "batches",
        op("bmm", lambda f, _: torch.cat([f[:16], f[16:] * 0]), exact=True),
    ),
    Mutant(
        "a mean of losses counts ignored targets",
        "softmax",
        op("nll_loss_forward", _counted_ignored, exact=True),
    ),
    Mutant("a layer norm has lost its eps", "norms", op("native_layer_norm", _without_eps)),
    Mutant(
        "an RMS norm adds a default of its own in place of the format's epsilon",
        "norms",
        lambda: patched(torch.nn.functional, "rms_norm", _own_default_eps),
    ),
    Mutant(
        "the gradient of a slice ignores the slice's step",
        "strides",
        op("slice_backward", _closed_ranks, lambda _, args: args[5] > 1, exact=True),
    ),
    Mutant(
        "a query that may see no key sees all of them",
        "masks",
        lambda: patched(torch.nn.functional, "scaled_dot_product_attention", _fills_dead_rows),
    ),
    Mutant(
        "of several additions at one place one counts",
        "indexing",
        op("scatter_add", _lost_additions, exact=True),
    ),
    Mutant(
        "a sum of 16-bit numbers stands still",
        "sums",
        op("sum", lambda f, _: f.clamp(max=256), kept_as("bfloat16")),
    ),
    Mutant(
        "a transposed copy loses its last element",
        "strides",
        op(
            "clone",
            part_of(lambda flat: flat[-1:].add_(1)),
            lambda f, args: not args[0].is_contiguous() and f.is_contiguous() and f.dim() == 2,
        ),
    ),
    Mutant(
        "log1p loses its digits near zero",
        "pointwise",
        op("log1p", lambda f, args: (args[0] + 1).log(), exact=True),
    ),
    Mutant("a pool is a little too small", "images", op("avg_pool2d", scaled(0.99), exact=True)),
    Mutant(
        "a place past 2**31 loses its upper bit",
        "large-tensor",
        op(
            "index_select",
            lambda f, args: args[0].index_select(0, args[2] & 0x7FFFFFFF),
            lambda f, args: args[0].numel() > 2**31,
        ),
    ),
    Mutant(
        "every 256th lane is never dropped",
        "dropout",
        lambda: Function("dropout", _keeps_a_lane),
    ),
    Mutant("one wrong element in a million", "matmul", op("mm", element(1.0), shaped(1000, 1000))),
    Mutant(
        "double precision loses its last bits",
        "float64",
        op("mm bmm", scaled(1 + 2.0**-45), tall_random, exact=True),
    ),
    Mutant(
        "a tall product is off in one element", "float32", op("mm", element(1.0), single(2048, 7))
    ),
    Mutant(
        "TF32 is silently on",
        "matmul",
        op("mm bmm addmm", coarse(13), kept_as("float32")),
    ),
    Mutant(
        "the coarsest setting is far too coarse",
        "float32-modes",
        op("mm", scaled(1.5), in_mode("medium")),
    ),
    Mutant(
        "half precision is off in its last bits", "float16", op("mm", one_step, kept_as("float16"))
    ),
    Mutant(
        "8-bit floats are cut, not rounded",
        "float8",
        lambda: Operator("_to_copy", _cut, _to_float8),
    ),
    Mutant(
        "an end of whole numbers never comes",
        "chance",
        op("randint", lambda f, _: f.clamp(max=2), lambda f, _: bool(f.max() == 3)),
    ),
    Mutant("dropout drops too little", "dropout", lambda: Function("dropout", _lazy_dropout)),
    Mutant(
        "a gradient is not a number",
        "amp",
        op("threshold_backward", scaled(float("nan")), kept_as("bfloat16")),
    ),
    Mutant(
        "momentum is forgotten",
        "language-model",
        op("_foreach_mul_", lambda f, args: [each.mul_(0.999) for each in args[0]]),
    ),
    Mutant(
        "one infinity at the end of a gradient goes unseen",
        "grad-scaler",
        op(
            "_amp_foreach_non_finite_check_and_unscale_",
            lambda f, args: args[1].zero_(),
            lambda f, args: all(bool(torch.isfinite(each[:-1]).all()) for each in args[0]),
        ),
    ),
    Mutant(
        "a gradient's last bit differs each time",
        "repeats",
        lambda: Operator("convolution_backward", part(1, _jitter()), lambda f, _: f[1] is not None),
    ),
    Mutant(
        "what is written to the device changes",
        "properties",
        op("clone", turned_bit(2, 77), lambda f, _: f.dtype == torch.int32 and f.numel() == 4096),
    ),
    Mutant(
        "one bit of the memory is stuck",
        "memory",
        op("copy_", lambda f, _: _stuck(f), beyond(2**20)),
    ),
    Mutant(
        "a bit turns on the way",
        "copy-within",
        op(
            "copy_",
            turned_bit(30, 1_000_003),
            lambda f, _: f.dtype == torch.int32 and f.numel() == 2**24,
        ),
    ),
    Mutant("too much memory is promised", "out-of-memory", lambda: Function("empty", _promise)),
    Mutant(
        "a compiler miscomputes",
        "compile",
        lambda: patched(torch, "compile", _wrong_compiler),
        through_dispatcher=False,
    ),
    Mutant(
        "a compiler does nothing",
        "compile",
        lambda: patched(torch, "compile", lambda _: lambda run, **options: run),
        through_dispatcher=False,
    ),
    Mutant(
        "a worker hands over an item twice",
        "dataloader",
        lambda: patched(_fetcher(), "fetch", _twice),
    ),
    Mutant(
        "a part is loaded from its storage's begin",
        "save-load",
        lambda: patched(torch._utils, "_rebuild_tensor", _from_the_begin),
    ),
)
