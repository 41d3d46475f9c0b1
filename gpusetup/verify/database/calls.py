"""One call of the database: its arguments in the working format and in float64, and its answers."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Tuple

WIDE = {
    "float32": "float64",
    "float16": "float64",
    "bfloat16": "float64",
    "complex64": "complex128",
}
WHOLE = ("int8", "int16", "int32", "int64", "uint8")


class Call(NamedTuple):
    """What an operator is called with: tensors stand anywhere in `given` and `options`."""

    given: Tuple[Any, ...]
    options: Dict[str, Any]
    learning: Callable[[Any], Any]
    """Of what it answers, what gradients are taken of."""


class Answer(NamedTuple):
    outputs: List[Any]
    """Tensors, and numbers as tensors."""
    written: List[Any]
    """The arguments after the call."""
    gradients: List[Any]
    """One for each argument that learns; None where it has no part in the answer."""


def tensors_of(torch: Any, given: Any) -> List[Any]:
    """All tensors, in the order in which `mapped` meets them."""
    found: List[Any] = []

    def kept(x: Any) -> Any:
        found.append(x)
        return x

    mapped(torch, given, kept)
    return found


def mapped(torch: Any, given: Any, change: Callable[[Any], Any]) -> Any:
    """The same lists, tuples and mappings with every tensor changed."""
    if isinstance(given, torch.Tensor):
        return change(given)
    if isinstance(given, (list, tuple)) and type(given) in (list, tuple):
        return type(given)([mapped(torch, each, change) for each in given])
    if isinstance(given, dict):
        return {name: mapped(torch, each, change) for name, each in given.items()}
    return given


def exactly(torch: Any, call: Call, dtype: str) -> Call:
    """The call in float64, or, of whole numbers of few bits, in int64."""
    wide = {getattr(torch, low): getattr(torch, high) for low, high in WIDE.items()}
    if dtype in WHOLE:
        wide[getattr(torch, dtype)] = torch.int64

    def widened(x: Any) -> Any:
        to = wide.get(x.dtype)
        return _again(x if to is None else x.detach().to(to), x.requires_grad)

    def named(option: Any) -> Any:
        return wide.get(option, option) if isinstance(option, torch.dtype) else option

    given = tuple(named(mapped(torch, each, widened)) for each in call.given)
    options = {name: named(mapped(torch, each, widened)) for name, each in call.options.items()}
    return Call(given, options, call.learning)


def _again(x: Any, learns: bool) -> Any:
    """Of its own, with the strides that it has; only what has no gaps is copied."""
    plain = x.layout.__repr__() == "torch.strided" and x.is_contiguous()
    made = x.detach().clone() if plain else x.detach()
    return made.requires_grad_() if learns else made


def placed(torch: Any, x: Any, device: str) -> Any:
    """A copy on a device with the strides and the offset that `x` has, also where its elements
    share their places or leave gaps."""
    if x.layout != torch.strided or x.is_nested or x.is_conj() or x.is_neg():
        return x.to(device)
    here = x.device.type == device.partition(":")[0]
    if x.is_contiguous() and not x.storage_offset():
        return x.clone() if here else x.to(device)
    held = x.untyped_storage().nbytes() // x.element_size()
    memory = x.as_strided((held,), (1,), 0)
    copied = memory.clone() if here else memory.to(device)
    return copied.as_strided(x.shape, x.stride(), x.storage_offset())


def fresh(torch: Any, call: Call, layout: str = "", device: str = "cpu") -> Call:
    """The same call with tensors of their own, so that what it writes is seen there alone."""

    def made(x: Any) -> Any:
        y = placed(torch, x.detach(), device)
        # Kernels believe places, and read past them where their strides are no plain ones.
        if layout and y.layout == torch.strided and not overlaps(y) and y.dtype != torch.int64:
            y = laid_out(torch, y, layout)
        return y.requires_grad_() if x.requires_grad else y

    return replaced(torch, call, made)


def replaced(torch: Any, call: Call, change: Callable[[Any], Any]) -> Call:
    """The call with each tensor changed."""
    return call._replace(
        given=mapped(torch, call.given, change), options=mapped(torch, call.options, change)
    )


ALIGNED_BYTES = 16
"""Torch's allocator places every tensor at a multiple of this, and its fused kernels load so many
bytes at once. An H100 ended its process with "misaligned address" for attention over tensors that
began 4 bytes later, which no program has."""
ODD_GAP = 3
"""Elements between two rows that no vector's width divides."""


def gap_elements(x: Any, fewest: int) -> int:
    """The elements of a gap: as few as asked on a CPU; on a GPU, so many that what follows is still
    at a multiple of 16 bytes."""
    if x.device.type == "cpu":
        return fewest
    return max(1, ALIGNED_BYTES // int(x.element_size()))


def laid_out(torch: Any, x: Any, layout: str) -> Any:
    """The same numbers with other strides, by copies alone; contiguous if it has no such layout."""
    if layout in ("transposed", "front") and x.dim() >= 2:
        axis = -2 if layout == "transposed" else 0
        return x.transpose(-1, axis).contiguous().transpose(-1, axis)
    if layout == "channels-last" and x.dim() in (4, 5):
        kind = torch.channels_last if x.dim() == 4 else torch.channels_last_3d
        return x.contiguous(memory_format=kind)
    if layout in ("strided", "pitched") and x.dim():
        last = x.shape[-1]
        width = 2 * last if layout == "strided" else last + gap_elements(x, ODD_GAP)
        wide = x.new_zeros((*x.shape[:-1], width))
        part = wide[..., ::2] if layout == "strided" else wide[..., :last]
        return part.copy_(x)
    if layout == "offset" and x.dim():
        gap = gap_elements(x, 1)
        longer = x.new_zeros(x.numel() + gap)
        longer[gap:] = x.reshape(-1)
        return longer[gap:].view(x.shape)
    return x.contiguous()


def overlaps(x: Any) -> bool:
    """Whether elements share their place in memory, as those of an expanded tensor do."""
    return any(step == 0 and length > 1 for step, length in zip(x.stride(), x.shape))


def nearby(torch: Any, call: Call, turn: int, alike: bool) -> Call:
    """Numbers smaller by up to a sixteenth; what is alike stays so, if that is asked for."""
    made = torch.Generator().manual_seed(turn)

    def near(x: Any) -> Any:
        if x.layout != torch.strided or not x.is_floating_point() or overlaps(x):
            return x
        share = (x.detach().double() * (1234.5678 / turn)).remainder(1.0)
        if not alike:
            share = torch.rand(tuple(x.shape), generator=made, dtype=torch.float64)
        factor = 1 - share / 16
        y = placed(torch, x.detach(), "cpu").mul_(factor.to(x.dtype))
        return y.requires_grad_(x.requires_grad)

    return replaced(torch, call, near)


def answered(
    torch: Any,
    run: Any,
    call: Call,
    upstream: Callable[[List[Any]], List[Any]],
    unique: bool = True,
) -> Answer:
    """What the call answers, what its arguments are then, and its gradients along `upstream`, which
    is asked with the answers that learn."""
    args = tensors_of(torch, (call.given, call.options))
    leaves = [x for x in args if x.requires_grad]
    gradients: List[Any] = []
    with torch.set_grad_enabled(bool(leaves)):
        raw = run(*call.given, **call.options)
        outputs = plain(torch, raw if unique else call.learning(raw))
        learned = along(torch, call, raw) if leaves else []
        if learned:
            chosen = [g.to(y.dtype) for g, y in zip(upstream(learned), learned)]
            got = torch.autograd.grad(learned, leaves, chosen, allow_unused=True)
            gradients = [g if g is None else dense(torch, g) for g in got]
    return Answer([x.detach() for x in outputs], [x.detach() for x in args], gradients)


def along(torch: Any, call: Call, raw: Any) -> List[Any]:
    """The answers that a gradient is taken of."""
    return [x for x in tensors_of(torch, call.learning(raw)) if x.requires_grad]


def dense(torch: Any, x: Any) -> Any:
    return x if x.layout == torch.strided else x.to_dense()


def plain(torch: Any, raw: Any) -> List[Any]:
    """All tensors of an answer without gaps, and its numbers as tensors."""
    if isinstance(raw, torch.Tensor):
        return [dense(torch, raw)]
    if isinstance(raw, (bool, int)):
        return [torch.tensor(raw)]
    if isinstance(raw, float):
        return [torch.tensor(raw, dtype=torch.float64)]
    if isinstance(raw, (list, tuple)):
        return [x for each in raw for x in plain(torch, each)]
    return []


@contextlib.contextmanager
def in_float64(torch: Any) -> Iterator[None]:
    """What makes its format itself makes float64."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextlib.contextmanager
def exact_products(torch: Any) -> Iterator[None]:
    """No product of float32 is rounded to fewer bits, no sum of halves is kept in half."""
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    switches = [(cudnn, "allow_tf32"), (matmul, "allow_tf32")]
    for name in (
        "allow_fp16_reduced_precision_reduction",
        "allow_bf16_reduced_precision_reduction",
    ):
        with contextlib.suppress(AttributeError, AssertionError):  # older releases have not both
            getattr(matmul, name)
            switches.append((matmul, name))
    before = [getattr(home, name) for home, name in switches]
    for home, name in switches:
        setattr(home, name, False)
    try:
        yield
    finally:
        for (home, name), was in zip(switches, before):
            setattr(home, name, was)
