"""An operator call with its arguments, in the tested format or in float64, and its result."""

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
    """The arguments of an operator. Tensors may be nested anywhere in `args` and `options`."""

    args: Tuple[Any, ...]
    options: Dict[str, Any]
    learning: Callable[[Any], Any]
    """Selects the part of the returned value that can be differentiated and compared."""


class Answer(NamedTuple):
    """The outputs of a call, its arguments after the call, and the gradients."""

    outputs: List[Any]
    """The returned tensors; returned numbers are turned into tensors."""
    written: List[Any]
    """The tensors among the arguments, as they are after the call, which may write to them."""
    gradients: List[Any]
    """One gradient for each argument that requires one; None if the outputs do not depend on that
    argument."""


def tensors_of(torch: Any, arguments: Any) -> List[Any]:
    """Returns all tensors in nested arguments, in the order in which `mapped` visits them."""
    tensors: List[Any] = []

    def remember(x: Any) -> Any:
        tensors.append(x)
        return x

    mapped(torch, arguments, remember)
    return tensors


def tensors_of_call(torch: Any, call: Call) -> List[Any]:
    """Returns all tensors in the arguments of a call."""
    arguments = (call.args, call.options)
    return tensors_of(torch, arguments)


def mapped(torch: Any, arguments: Any, change: Callable[[Any], Any]) -> Any:
    """Returns the nested arguments with `change` applied to every tensor."""
    if isinstance(arguments, torch.Tensor):
        return change(arguments)
    kind = type(arguments)
    # A subclass of tuple, such as torch.Size, is a single option, not a list of arguments.
    if kind in (list, tuple):
        items = [mapped(torch, item, change) for item in arguments]
        return kind(items)
    if isinstance(arguments, dict):
        changed = {}
        for name, value in arguments.items():
            changed[name] = mapped(torch, value, change)
        return changed
    return arguments


def in_exact_formats(torch: Any, call: Call, dtype: str) -> Call:
    """Returns the call with its arguments in float64, complex128 or int64, depending on the kind of
    `dtype`."""
    wide_formats = {}
    # Complex numbers get two float64 parts (complex128).
    for narrow_name, wide_name in WIDE.items():
        wide_formats[getattr(torch, narrow_name)] = getattr(torch, wide_name)
    if dtype in WHOLE:
        wide_formats[getattr(torch, dtype)] = torch.int64

    def widen(x: Any) -> Any:
        # Formats that have no wider format, such as bool, stay the same.
        wide_format = wide_formats.get(x.dtype, x.dtype)
        widened = x.detach().to(wide_format)
        return copied(widened, x.requires_grad)

    def widen_argument(argument: Any) -> Any:
        argument = mapped(torch, argument, widen)
        # An option can be a format: `dtype=torch.float32` becomes `dtype=torch.float64`.
        if isinstance(argument, torch.dtype):
            return wide_formats.get(argument, argument)
        return argument

    args = tuple(widen_argument(argument) for argument in call.args)
    options = {}
    for name, option in call.options.items():
        options[name] = widen_argument(option)
    return Call(args, options, call.learning)


def copied(x: Any, learns: bool) -> Any:
    """Returns a tensor with the same numbers and strides. It requires a gradient if `learns` is
    True. Memory is copied only if the tensor is contiguous."""
    is_strided = repr(x.layout) == "torch.strided"
    y = x.detach()
    # Clone only contiguous tensors, because a clone would remove the gaps in a sample's memory.
    if is_strided and x.is_contiguous():
        y = y.clone()
    return y.requires_grad_() if learns else y


def placed(torch: Any, x: Any, device: str) -> Any:
    """Returns a copy of `x` on the device, with the same strides and storage offset.

    This also works if elements of `x` share memory or have gaps between them.
    """
    # These tensors have no plain memory that could be copied as a whole, or are only marked as
    # conjugated or negated.
    if x.layout != torch.strided or x.is_nested or x.is_conj() or x.is_neg():
        return x.to(device)
    kind = device.partition(":")[0]

    def copy(tensor: Any) -> Any:
        # `to` makes no copy on the same device.
        if x.device.type == kind:
            return tensor.clone()
        return tensor.to(device)

    if x.is_contiguous() and not x.storage_offset():
        return copy(x)
    element_count = x.untyped_storage().nbytes() // x.element_size()
    memory = x.as_strided((element_count,), (1,), 0)
    return copy(memory).as_strided(x.shape, x.stride(), x.storage_offset())


def fresh(torch: Any, call: Call, layout: str = "", device: str = "cpu") -> Call:
    """Returns the call with copies of all tensors, so that it cannot change the arguments of other
    calls. `layout` changes the strides of the copies."""

    def copy(x: Any) -> Any:
        y = placed(torch, x.detach(), device)
        can_be_laid_out = y.layout == torch.strided and not overlaps(y)
        # int64 tensors may be indices. Leave them contiguous, because with other strides some
        # kernels read wrong indices and then memory outside their tensors.
        names_places = y.dtype == torch.int64
        if layout and can_be_laid_out and not names_places:
            y = laid_out(torch, y, layout)
        return y.requires_grad_() if x.requires_grad else y

    return replaced(torch, call, copy)


def replaced(torch: Any, call: Call, change: Callable[[Any], Any]) -> Call:
    """Returns the call with `change` applied to every tensor."""
    args = mapped(torch, call.args, change)
    options = mapped(torch, call.options, change)
    return call._replace(args=args, options=options)


def detached(torch: Any, call: Call) -> Call:
    """Returns the call with tensors that do not require gradients."""
    return replaced(torch, call, lambda x: x.detach())


ALIGNED_BYTES = 16
"""Torch's allocator aligns every tensor to a multiple of this, and its fused kernels load this many
bytes at once. On an H100, attention over tensors that began 4 bytes later ended the process with
"misaligned address". Real programs do not have such tensors."""
ODD_GAP = 3
"""The number of elements between two rows. It is odd, so that no vector width divides it."""


def gap_elements(x: Any, fewest: int) -> int:
    """The number of elements in a gap: `fewest` on a CPU, or enough to fill 16 bytes on a GPU.

    On a GPU, the elements after such a gap are still aligned.
    """
    if x.device.type == "cpu":
        return fewest
    element_bytes = int(x.element_size())
    return max(1, ALIGNED_BYTES // element_bytes)


def laid_out(torch: Any, x: Any, layout: str) -> Any:
    """Returns a copy of the tensor in this memory layout, or a contiguous tensor if it cannot have
    that layout."""
    axis_count = x.dim()
    if layout in ("transposed", "front") and axis_count >= 2:
        # In memory, swap the last axis with its neighbour or with the first axis.
        axis = -2 if layout == "transposed" else 0
        transposed = x.transpose(-1, axis).contiguous()
        return transposed.transpose(-1, axis)
    # torch has a channels-last layout for images and for volumes.
    if layout == "channels-last" and axis_count in (4, 5):
        kind = torch.channels_last if axis_count == 4 else torch.channels_last_3d
        return x.contiguous(memory_format=kind)
    if not axis_count:
        return x.contiguous()
    *outer_lengths, length = x.shape
    if layout == "strided":
        memory = x.new_zeros((*outer_lengths, 2 * length))
        every_second = memory[..., ::2]
        return every_second.copy_(x)
    if layout == "pitched":
        pitch = length + gap_elements(x, ODD_GAP)
        memory = x.new_zeros((*outer_lengths, pitch))
        row_starts = memory[..., :length]
        return row_starts.copy_(x)
    if layout == "offset":
        gap = gap_elements(x, 1)
        memory = x.new_zeros(x.numel() + gap)
        memory[gap:] = x.reshape(-1)
        return memory[gap:].view(x.shape)
    return x.contiguous()


def overlaps(x: Any) -> bool:
    """Whether elements of the tensor share memory, as in an expanded tensor."""
    lengths_without_step = [n for n, stride in zip(x.shape, x.stride()) if stride == 0]
    return any(length > 1 for length in lengths_without_step)


def nearby(torch: Any, call: Call, turn: int, alike: bool) -> Call:
    """Returns the call with every floating-point number reduced by up to a sixteenth.

    If `alike` is True, equal numbers stay equal.
    """
    generator = torch.Generator().manual_seed(turn)

    def near(x: Any) -> Any:
        # Leave whole numbers unchanged, because they may be indices, and expanded tensors, because
        # their elements would be changed several times.
        is_plain = x.layout == torch.strided and x.is_floating_point()
        if not is_plain or overlaps(x):
            return x
        if alike:
            # Compute the change from the number itself, so that equal numbers get equal changes.
            scaled = x.detach().double() * (1234.5678 / turn)
            share = scaled.remainder(1.0)
        else:
            share = torch.rand(tuple(x.shape), generator=generator, dtype=torch.float64)
        factor = 1 - share / 16
        y = placed(torch, x.detach(), "cpu")
        y.mul_(factor.to(x.dtype))
        return y.requires_grad_(x.requires_grad)

    return replaced(torch, call, near)


Upstream = Callable[[List[Any]], List[Any]]
"""Takes the outputs that require gradients, and returns their upstream gradients."""


def answered(torch: Any, run: Any, call: Call, upstream: Upstream, unique: bool = True) -> Answer:
    """Run a call, and return its outputs, its arguments after the call, and the gradients.
    `upstream` makes the upstream gradients.

    If the operator has several right results (`unique` is False), only the part that the call's
    `learning` selects is returned.
    """
    arguments = tensors_of_call(torch, call)
    leaves = [x for x in arguments if x.requires_grad]
    gradients: List[Any] = []
    # If no argument requires a gradient, torch does not need to record the operations.
    with torch.set_grad_enabled(bool(leaves)):
        returned = run(*call.args, **call.options)
        compared_part = returned if unique else call.learning(returned)
        outputs = plain(torch, compared_part)
        learning_outputs = outputs_that_learn(torch, call, returned) if leaves else []
        if learning_outputs:
            directions = []
            for direction, output in zip(upstream(learning_outputs), learning_outputs):
                # The upstream gradients were drawn in the format of the exact result.
                directions.append(direction.to(output.dtype))
            computed = torch.autograd.grad(learning_outputs, leaves, directions, allow_unused=True)
            gradients = [None if g is None else dense(torch, g) for g in computed]
    return Answer(
        outputs=[x.detach() for x in outputs],
        written=[x.detach() for x in arguments],
        gradients=gradients,
    )


def outputs_that_learn(torch: Any, call: Call, returned: Any) -> List[Any]:
    """Returns the outputs of a call that can be differentiated."""
    candidates = tensors_of(torch, call.learning(returned))
    return [x for x in candidates if x.requires_grad]


def dense(torch: Any, x: Any) -> Any:
    """Returns the tensor, made dense if it is sparse."""
    if x.layout == torch.strided:
        return x
    return x.to_dense()


def plain(torch: Any, returned: Any) -> List[Any]:
    """Returns all tensors in a returned value. Sparse tensors are made dense, and Python numbers
    become tensors."""
    if isinstance(returned, torch.Tensor):
        return [dense(torch, returned)]
    if isinstance(returned, (bool, int)):
        return [torch.tensor(returned)]
    # A Python float has 64 bits.
    if isinstance(returned, float):
        return [torch.tensor(returned, dtype=torch.float64)]
    tensors: List[Any] = []
    if isinstance(returned, (list, tuple)):
        for item in returned:
            tensors += plain(torch, item)
    return tensors


@contextlib.contextmanager
def in_float64(torch: Any) -> Iterator[None]:
    """Inside the `with` block, torch creates new floating-point tensors in float64 by default."""
    default_dtype = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(default_dtype)


@contextlib.contextmanager
def exact_products(torch: Any) -> Iterator[None]:
    """Inside the `with` block, torch does not use TF32 for float32 products, and does not keep sums
    of 16-bit numbers in 16 bits."""
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    switches = [(cudnn, "allow_tf32"), (matmul, "allow_tf32")]
    reductions = (
        "allow_fp16_reduced_precision_reduction",
        "allow_bf16_reduced_precision_reduction",
    )
    for name in reductions:
        # Older releases do not have both settings.
        with contextlib.suppress(AttributeError, AssertionError):
            getattr(matmul, name)
            switches.append((matmul, name))
    settings = [getattr(backend, name) for backend, name in switches]
    for backend, name in switches:
        setattr(backend, name, False)
    try:
        yield
    finally:
        for (backend, name), setting in zip(switches, settings):
            setattr(backend, name, setting)
