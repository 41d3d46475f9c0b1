"""The other forms of a call: the answer written into `out`, or over the first tensor.

Every operator that the call is made of is computed in its other form too, where it has one; what
that form gave is gone on with.
"""

from __future__ import annotations

import functools
from typing import Any, List, Optional, Tuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .releases import reads_lines_apart

NO_SUCH_FORM = (TypeError, RuntimeError, NotImplementedError)
"""What an operator raises whose other form takes less than this one."""

ANOTHER_CALL = (
    "native_batch_norm",
    "cudnn_batch_norm",
    "miopen_batch_norm",
    "_batch_norm_with_update",
    "_compute_linear_combination",
    "_native_batch_norm_legit",
    "_fused_moving_avg_obs_fq_helper",
    "binary_cross_entropy",
    "masked_scatter",
    "baddbmm",
    "mean",
    "mse_loss",
    "smooth_l1_loss",
    "huber_loss",
)
"""Those that a second call is not free to: the first four and the seventh update running values
without saying so; the fifth adds to what is in `out`; the sixth leaves `out` as it was where the
input has strides (torch 2.13); the eighth wants room for all losses in `out`, also where it gives
their mean; of the others some release before 2.9 leaves `out` as it was, or reads it."""


WIDER = 3
"""How much longer the last axis of the memory is that a part of is written to."""
INTO_PARTS = frozenset(
    (
        *("mm", "addmm", "bmm", "baddbmm", "addbmm", "addmv", "addr", "dot", "mv"),
        *("add", "sub", "mul", "div", "addcmul", "addcdiv", "lerp", "where", "clamp", "pow"),
        *("exp", "log", "sqrt", "rsqrt", "tanh", "sigmoid", "neg", "abs", "reciprocal", "silu"),
        *("maximum", "minimum", "fmod", "remainder", "atan2", "sin", "cos", "erf", "round"),
        *("eq", "lt", "le", "ne", "bitwise_and", "logical_and", "bitwise_xor"),
        *("sum", "mean", "amax", "amin", "prod", "cumsum", "cumprod", "cat", "stack"),
        *("index_select", "gather", "index_add", "scatter", "scatter_add", "tril", "triu"),
    )
)
"""What people write into a part of wider memory. Many kernels of torch 2.13 take `out` for memory
without gaps and give it wrong: softmax, gelu, ctc_loss, unfold, narrow_copy, pools in three
dimensions, slow convolutions, cross_entropy; 1.13.1 that of a sparse matrix too."""


class IntoOut(TorchDispatchMode):  # type: ignore[misc, unused-ignore]
    """Each operator that has `out` writes its answer there.

    `part`: that memory is a part of wider one, as that of a column of blocks is.
    """

    def __init__(self, part: bool = False) -> None:
        super().__init__()
        self.part = part

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        options = dict(kwargs or {})
        found = func(*args, **options)
        run, names = into_out(func)
        made = [found] if len(names) == 1 else list(found) if isinstance(found, tuple) else []
        if run is None or len(made) != len(names) or not all(map(_plain, made)):
            return found
        part = self.part and _dense(args) and func.overloadpacket.__name__ in INTO_PARTS
        outs = [_empty(each, part) for each in made]
        try:
            run(*args, **options, **dict(zip(names, outs)))
        except NO_SUCH_FORM:
            return found
        outs = [each.contiguous() for each in outs] if part else outs
        return outs[0] if len(names) == 1 else tuple(outs)


class InPlace(TorchDispatchMode):  # type: ignore[misc, unused-ignore]
    """Each operator that has a form with `_` writes over a copy of its first tensor.

    `part`: that copy is a part of wider memory.
    """

    def __init__(self, part: bool = False) -> None:
        super().__init__()
        self.part = part

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        options = dict(kwargs or {})
        found = func(*args, **options)
        run, first = in_place(func), args[0] if args else None
        if run is None or not (_plain(found) and _plain(first) and _alike(found, first)):
            return found
        try:
            over = _copied(first, self.part and _dense(args))
            run(over, *args[1:], **options)
        except NO_SUCH_FORM:
            return found
        return _in_one_piece(over) if self.part else over


@functools.lru_cache(maxsize=None)
def into_out(func: Any) -> Tuple[Any, List[str]]:
    """The form of an operator that writes into `out`, and the names of its outs.

    >>> into_out(torch.ops.aten.exp.default)[1], into_out(torch.ops.aten.view.default)[1]
    (['out'], [])
    """
    name = func.overloadpacket.__name__
    if _gives_views(func) or name in ANOTHER_CALL:
        return None, []
    for overload in func.overloadpacket.overloads():
        other = getattr(func.overloadpacket, overload)
        outs = [each.name for each in other._schema.arguments if each.is_out]
        if outs and _taken(other) == _taken(func):
            return other, outs
    return None, []


@functools.lru_cache(maxsize=None)
def in_place(func: Any) -> Optional[Any]:
    """The form of an operator that writes over its first tensor.

    >>> in_place(torch.ops.aten.exp.default), in_place(torch.ops.aten.mm.default)
    (<OpOverload(op='aten.exp_', overload='default')>, None)
    """
    name = func._schema.name.rpartition("::")[2]
    packet = getattr(torch.ops.aten, f"{name}_", None) if not name.endswith("_") else None
    if packet is None or _gives_views(func) or name in ANOTHER_CALL:
        return None
    for overload in packet.overloads():
        other = getattr(packet, overload)
        if _taken(other) == _taken(func):
            return other
    return None


def _taken(func: Any) -> List[Tuple[str, str]]:
    return [(each.name, str(each.type)) for each in func._schema.arguments if not each.is_out]


def _gives_views(func: Any) -> bool:
    """Whether what it gives shares memory with what it takes, or it writes over it."""
    return any(each.alias_info is not None for each in func._schema.returns)


def _plain(found: Any) -> bool:
    if isinstance(found, list):
        return bool(found) and all(map(_plain, found))
    return type(found) is torch.Tensor and found.layout == torch.strided


def _dense(args: Tuple[Any, ...]) -> bool:
    """Whether all are strided, and of a format whose lines this release writes apart."""
    tensors = [each for each in args if isinstance(each, torch.Tensor)]
    halves = any(each.dtype == torch.bfloat16 for each in tensors)
    sound = not halves or reads_lines_apart(torch, "cpu", "bfloat16")
    return sound and all(map(_plain, tensors))


def _empty(found: Any, part: bool) -> Any:
    if isinstance(found, list):
        return [_empty(each, part) for each in found]
    if not (part and found.dim() and found.is_contiguous()):
        return torch.empty_like(found)
    *others, last = found.shape
    return found.new_empty((*others, last + WIDER)).narrow(-1, 0, last)


def _copied(first: Any, part: bool) -> Any:
    if isinstance(first, list):
        return [_copied(each, part) for each in first]
    return _empty(first, part).copy_(first) if part else first.clone()


def _in_one_piece(over: Any) -> Any:
    return [each.contiguous() for each in over] if isinstance(over, list) else over.contiguous()


def _alike(found: Any, first: Any) -> bool:
    """Whether the answer has room in the first tensor."""
    if isinstance(found, list) or isinstance(first, list):
        both = isinstance(found, list) and isinstance(first, list) and len(found) == len(first)
        return both and all(map(_alike, found, first))
    return bool(found.dtype == first.dtype and found.shape == first.shape)
