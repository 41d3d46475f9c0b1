"""Faults of parts alone: an end, a sample, a direction, an axis, a scale, a length."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
from verify_faults.layers import Operator as Faulty
from verify_faults.layers import patched

from gpusetup.verify.operators.comparing import Sample, compared
from gpusetup.verify.operators.sampling import FAMILIES, row_of

Context = Callable[[], AbstractContextManager[Any]]


def instead(owner: Any, name: str, change: Callable[..., Any]) -> Context:
    """`change(right, first, rest, options)` answers for `owner.name`, float64 aside."""

    def make(right: Any) -> Any:
        def call(x: Any, *rest: Any, **options: Any) -> Any:
            if x.dtype == torch.float64:
                return right(x, *rest, **options)
            return change(right, x, rest, options)

        return call

    return lambda: patched(owner, name, make)


def op(name: str, change: Callable[..., Any]) -> Context:
    return lambda: Faulty(name, change)


def _without(name: str) -> Callable[..., Any]:
    def change(right: Any, x: Any, rest: Any, options: Any) -> Any:
        return right(x, *rest, **{key: each for key, each in options.items() if key != name})

    return change


def _from_the_other_corner(right: Any, q: Any, rest: Any, options: Any) -> Any:
    queries, keys = q.shape[-2], rest[0].shape[-2]
    if not options.pop("is_causal", False):
        return right(q, *rest, **options)
    seen = torch.ones(queries, keys, dtype=torch.bool).tril(max(0, keys - queries))
    return right(q, *rest, attn_mask=seen, **options)


def _as_the_first(right: Any, x: Any, rest: Any, options: Any) -> Any:
    mask = rest[0]
    if mask.dim() == x.dim() and mask.shape[0] > 1:
        mask = mask[:1].expand(mask.shape)
    return right(x, mask, *rest[1:], **options)


def _back_from_nothing(right: Any, x: Any, rest: Any, options: Any) -> Any:
    keep = torch.ones(len(rest[0]), 1, 1, dtype=x.dtype)
    keep[1::2] = 0
    return right(x, rest[0] * keep, *rest[1:], **options)


def _all_as_long(right: Any, x: Any, rest: Any, options: Any) -> Any:
    full = [len(x)] * len(rest[1])
    lengths = torch.tensor(full) if isinstance(rest[1], torch.Tensor) else full
    return right(x, rest[0], lengths, *rest[2:], **options)


def _last_column_empty(found: Any, args: Any) -> Any:
    found[..., -1] = args[2].reshape(-1, *[1] * (found.dim() - 3))
    return found


def _block_border(found: Any, args: Any) -> Any:
    found[..., 1024::1024] *= 0.9
    return found


def _at_most_30(found: Any, args: Any) -> Any:
    up, words = args[0].reshape(args[1].numel(), -1), args[1].reshape(-1)
    for word in set(words.tolist()):
        found[word] = up[words == word][:30].sum(0)
    return found


def _not_the_end(found: Any, args: Any) -> Any:
    x, dim = args[0], args[1] if len(args) > 1 else None
    whole = x.reshape(-1) if dim is None else x
    count = whole.shape[dim or 0]
    return whole.narrow(dim or 0, 0, count - count % 16).argmax(dim or 0).reshape(found.shape)


def _squared_in_half(right: Any, x: Any, rest: Any, options: Any) -> Any:
    return x * (x.square().mean(-1, keepdim=True) + rest[2]).rsqrt() * rest[1]


CALLS = torch.nn.functional
FAULTS: dict[str, tuple[str, str, str, Context]] = {
    "a causal mask from the other corner": (
        *("sequences", "attention of unlike lengths", "float32"),
        instead(CALLS, "scaled_dot_product_attention", _from_the_other_corner),
    ),
    "a scale that is not used": (
        *("sequences", "attention of unlike lengths", "float32"),
        instead(CALLS, "scaled_dot_product_attention", _without("scale")),
    ),
    **{
        f"{kind} backwards from nothing": (
            *("sequences", f"{kind} both ways from states", "float32"),
            instead(torch, kind, _back_from_nothing),
        )
        for kind in ("gru", "rnn_tanh")
    },
    **{
        f"an output padding that holds the bias alone in {dims} dimensions": (
            *("convolutions", f"conv_transpose{dims}d of unlike axes", "float32"),
            op("convolution", _last_column_empty),
        )
        for dims in (1, 2, 3)
    },
    "a border of blocks in a long line": (
        *("convolutions", "conv1d of long lines", "float32"),
        op("convolution", _block_border),
    ),
    "squares in half precision": (
        *("norms", "rms_norm of far halves", "float16"),
        instead(CALLS, "rms_norm", _squared_in_half),
    ),
    "sounds that are all as long": (
        *("losses", "ctc_loss of unlike lengths", "float32"),
        instead(CALLS, "ctc_loss", _all_as_long),
    ),
    "labels that are all smoothed alike": (
        *("losses", "cross_entropy smoothed in part", "float32"),
        instead(CALLS, "cross_entropy", _without("label_smoothing")),
    ),
    "a word that counts thirty times at most": (
        *("indexing", "embedding of frequent words", "float32"),
        op("embedding_dense_backward", _at_most_30),
    ),
    "masks of the first sample": (
        *("indexing", "masks of each sample", "float16"),
        instead(torch.Tensor, "masked_fill", _as_the_first),
    ),
    "a greatest that is not looked for at the end": (
        *("reductions", "extremes at the end", "bfloat16"),
        op("argmax", _not_the_end),
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_a_part_is_seen_in_each_draw(fault: str) -> None:
    family, name, dtype, context = FAULTS[fault]
    row = row_of(family, name)
    for turn in range(2):
        sample = Sample(name, dtype, "contiguous", row.sizes[turn], turn)
        assert all(part.worst <= 0.9 for part in compared(torch, "cpu", row, sample, 4))
        with context():
            wrong = [part for part in compared(torch, "cpu", row, sample, 4) if not part.worst <= 1]
        # A fault that is not there in some draw is one that the row's draws are to blame for.
        assert wrong, sample.name


@pytest.mark.parametrize("name", ["conv2d of unlike axes", "conv3d of unlike axes"])
@pytest.mark.one_in(2)
def test_axes_that_are_exchanged_are_seen(name: str) -> None:
    row = row_of("convolutions", name)

    def turned(t: Any, *tensors: Any, **options: Any) -> Any:
        options["stride"] = options["stride"][::-1]
        return row.run(t, *tensors, **options)

    samples = [Sample(name, "float32", "contiguous", "tiny", turn) for turn in range(8)]
    seen = []
    for sample in samples:
        assert all(part.worst <= 0.9 for part in compared(torch, "cpu", row, sample, 6))
        wrong = row._replace(run=turned, learns=False)
        seen += [part for part in compared(torch, "cpu", wrong, sample, 6) if not part.worst <= 1]
    assert seen


def test_norms_of_far_halves_are_finite() -> None:
    rows = [row for row in FAMILIES["norms"] if row.name.endswith("far halves")]
    assert len(rows) == 5
    for row in rows:
        for turn in range(4):
            sample = Sample(row.name, "float16", "contiguous", "tiny", turn)
            parts = compared(torch, "cpu", row, sample, 8)
            assert parts
            assert all(part.worst <= 0.9 for part in parts), sample.name
