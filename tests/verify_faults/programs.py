"""Mutants of what programs are made of: networks, training, memory, compiler, loader, files."""

from __future__ import annotations

import itertools
import time
from typing import Any

import torch
from verify_faults.layers import (
    Function,
    Operator,
    dropout_of,
    kept_as,
    part,
    patched,
    scaled,
    shaped,
    turned_bit,
)
from verify_faults.mutant import Mutant, beyond, op

NETWORKS = (
    Mutant(
        "depthwise convolution is off",
        "convolution",
        op("convolution", scaled(1.001), shaped(2, 16, 13, 13)),
    ),
    Mutant(
        "a convolution's window is one off",
        "convolution",
        op("convolution", lambda f, _: f.roll(1, -1), shaped(4, 24, 19, 23)),
    ),
    Mutant(
        "a convolution's weight gradient is off",
        "convolution",
        op(
            "convolution_backward",
            part(1, scaled(1.001)),
            lambda f, _: f[1] is not None and tuple(f[1].shape) == (24, 16, 3, 3),
        ),
    ),
    Mutant(
        "only the vendor's convolution is off",
        "convolution",
        op(
            "convolution",
            scaled(1.001),
            lambda f, _: torch._C._get_mkldnn_enabled() and f.dim() == 3,
        ),
    ),
    Mutant(
        "flash attention is off",
        "attention",
        op(
            "_scaled_dot_product_flash_attention_for_cpu",
            part(0, scaled(1.001)),
            lambda f, _: f[0].dtype == torch.float32,
        ),
    ),
    Mutant(
        "flash attention's gradient is off",
        "attention",
        op(
            "_scaled_dot_product_flash_attention_for_cpu_backward",
            part(2, scaled(1.001)),
            lambda f, _: f[0].dtype == torch.float32,
        ),
    ),
    Mutant(
        "GELU's gradient is off", "autograd", op("gelu_backward", scaled(1.001), kept_as("float32"))
    ),
    Mutant(
        "a gradient passes into the wrong head",
        "autograd",
        op(
            "_softmax_backward_data",
            lambda f, _: f.roll(1, 1),
            lambda f, _: f.dtype == torch.float32 and f.dim() == 4 and f.shape[-1] == 24,
        ),
    ),
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
        "overflows go unseen",
        "grad-scaler",
        op("_amp_foreach_non_finite_check_and_unscale_", lambda f, args: args[1].zero_()),
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
        "the scale never backs off",
        "grad-scaler",
        op("_amp_update_scale_", lambda f, args: args[0].fill_(2.0**40)),
    ),
    Mutant(
        "autocast leaves linear layers alone",
        "amp-bfloat16",
        lambda: Function("linear", _without_autocast),
    ),
    Mutant(
        "weights' gradients lose a layer in bfloat16",
        "amp-bfloat16",
        op("gelu_backward", scaled(1.5), kept_as("bfloat16")),
    ),
    Mutant(
        "a gradient's last bit differs each time",
        "determinism",
        lambda: Operator("convolution_backward", part(1, _jitter()), lambda f, _: f[1] is not None),
    ),
    Mutant("dropout ignores the seed", "determinism", lambda: Function("dropout", _wild_dropout)),
)


def _without_autocast(func: Any, args: Any, kwargs: Any) -> Any:
    with torch.autocast("cpu", enabled=False):
        return func(*args, **kwargs)


def _jitter() -> Any:
    calls = itertools.count()
    return lambda found, _: found * (1 + 2.0**-23 * (next(calls) % 3))


def _wild_dropout(func: Any, args: Any, kwargs: Any) -> Any:
    """What is dropped follows the clock."""
    if not dropout_of(0.5)(args, kwargs):
        return func(*args, **kwargs)
    state = torch.get_rng_state()
    torch.seed()
    found = func(*args, **kwargs)
    torch.set_rng_state(state)
    return found


MACHINE = (
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
        "two lines of addresses are one",
        "memory",
        op("copy_", lambda f, _: _aliased(f), beyond(2**20)),
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
    Mutant(
        "copies crawl",
        "copy-within",
        op(
            "copy_",
            lambda f, _: _late(f, 0.4),
            lambda f, _: f.dtype == torch.int32 and f.numel() == 2**24,
        ),
    ),
    Mutant("the device is slow", "speed", op("mm", lambda f, _: _late(f, 1.0), shaped(768, 768))),
    Mutant("too much memory is promised", "out-of-memory", lambda: Function("empty", _promise)),
    Mutant(
        "nothing works after memory ran out",
        "out-of-memory",
        op("mm", scaled(float("nan")), lambda f, args: _small_square(f, args)),
    ),
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
        "a loader never mixes",
        "dataloader",
        lambda: patched(
            torch.utils.data.RandomSampler,
            "__iter__",
            lambda _: lambda self: iter(range(len(self))),
        ),
    ),
    Mutant(
        "bfloat16 is loaded as another number",
        "save-load",
        lambda: patched(torch, "load", _other_numbers),
    ),
    Mutant(
        "a part is loaded from its storage's begin",
        "save-load",
        lambda: patched(torch._utils, "_rebuild_tensor", _from_the_begin),
    ),
    Mutant("a file lacks a tensor", "save-load", lambda: patched(torch, "save", _lossy)),
)


def _from_the_begin(right: Any) -> Any:
    def rebuilt(storage: Any, offset: int, size: Any, stride: Any) -> Any:
        return right(storage, 0 if storage.dtype.is_floating_point else offset, size, stride)

    return rebuilt


def _stuck(block: Any) -> Any:
    if block.dtype == torch.int64:
        block.view(-1)[1_500_001] |= 1 << 17
    return block


def _aliased(block: Any) -> Any:
    """The second half answers with the first, as if an address line were cut."""
    if block.dtype == torch.int64:
        half = block.numel() // 2
        block[half:] = block[:half]
    return block


def _late(found: Any, seconds: float) -> Any:
    time.sleep(seconds)
    return found


def _small_square(found: Any, args: Any) -> bool:
    return all(tuple(each.shape) == (64, 64) for each in (found, *args[:2]))


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


def _other_numbers(load: Any) -> Any:
    def other(*args: Any, **kwargs: Any) -> Any:
        found = load(*args, **kwargs)
        found["state"]["bfloat16"] = found["state"]["bfloat16"].half().bfloat16() * 2
        return found

    return other


def _lossy(save: Any) -> Any:
    def loses(what: Any, file: Any) -> None:
        save({**what, "state": {k: v for k, v in what["state"].items() if k != "bool"}}, file)

    return loses
