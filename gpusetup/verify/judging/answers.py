"""Compares computed numbers with known ones: from whole numbers, a formula in plain Python, or the
same formula in float64 on the CPU. The error that is allowed follows from the number format."""

from __future__ import annotations

import contextlib
import random
from typing import Any, Callable, Iterator, List, Sequence, Tuple

import torch

from ..values import SKIPPED, Outcome, run_options
from .precision import has_bfloat16
from .refusals import refuses
from .tolerance import ROUNDOFF, Comparison, agree, holds, outcome_of, real_numbers


def checked_against(
    against: str, *questions: Callable[[str], Iterator[Comparison]]
) -> Callable[[str], Outcome]:
    """A check of all questions, each of which takes a device and yields comparisons. The rest of a
    question that this device or torch does not support is left out; skipped if nothing is left."""

    def run(device: str) -> Outcome:
        comparisons: List[Comparison] = []
        refused = ""
        with exact_products():
            for question in questions:
                try:
                    comparisons += question(device)
                except (RuntimeError, TypeError, AttributeError) as problem:
                    # Apple's backend refuses a format with TypeError; an older torch lacks some
                    # functions, which is an AttributeError.
                    if not refuses(problem) and not isinstance(problem, AttributeError):
                        raise
                    refused = str(problem).split("\n")[0]
        if not comparisons:
            return Outcome(SKIPPED, f"not supported here: {refused}")
        return outcome_of(comparisons, against)

    return run


@contextlib.contextmanager
def exact_products() -> Iterator[None]:
    """Inside the `with` block, products are not rounded to TF32, and sums not kept in 16 bits."""
    matmul = torch.backends.cuda.matmul
    switches = [(torch.backends.cudnn, "allow_tf32"), (matmul, "allow_tf32")]
    for name in ("fp16", "bf16"):
        switches.append((matmul, f"allow_{name}_reduced_precision_reduction"))
    before = []
    for owner, name in switches:
        # Older releases lack some switches; newer ones refuse the old name after the new was used.
        with contextlib.suppress(AttributeError, AssertionError, RuntimeError):
            before.append((owner, name, getattr(owner, name)))
            setattr(owner, name, False)
    try:
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)


def formats(device: str, *more: str) -> Tuple[str, ...]:
    """float32, the device's 16-bit formats and `more`; only float64 in the last try after a
    failure."""
    if run_options().in_float64:
        return ("float64",)
    low = ("float16", "bfloat16") if has_bfloat16(torch, device) else ("float16",)
    return ("float32", *low, *more)


def format_of(name: str) -> Any:
    """The dtype of this name; float64 for every floating-point format in the last try."""
    dtype = getattr(torch, name)
    return torch.float64 if run_options().in_float64 and dtype.is_floating_point else dtype


def generator(salt: str) -> Any:
    """A generator of random numbers on the CPU, seeded with the seed of this run and `salt`."""
    # torch takes seeds of up to 63 bits, so one of 62 is always valid.
    seed = random.Random(f"{run_options().seed} {salt}").getrandbits(62)
    return torch.Generator().manual_seed(seed)


def normal(device: str, *shape: int, salt: str, name: str = "float32") -> Any:
    """Normally distributed numbers, rounded to the format `name`; the same on every device."""
    return torch.randn(shape, generator=generator(salt)).to(format_of(name)).to(device)


def whole_numbers(*shape: int, most: int, salt: str) -> Any:
    """Random whole numbers from -most to most, in float64 on the CPU."""
    return torch.randint(-most, most + 1, shape, generator=generator(salt)).double()


def tensor(values: Sequence[float], device: str, *shape: int, name: str = "float32") -> Any:
    """The numbers as a tensor of the format `name` on a device; flat without a shape."""
    flat = torch.tensor(values, dtype=torch.float64).to(format_of(name))
    return flat.reshape(shape or (-1,)).to(device)


def exact(*tensors: Any) -> List[Any]:
    """Copies of the tensors in float64 on the CPU that record gradients."""
    return [x.detach().cpu().double().requires_grad_() for x in tensors]


def exactly(label: str, computed: Any, known: Any) -> Comparison:
    """The comparison in which every number must be the known one."""
    return agree(label, computed, known, 0.0)


def relatively(label: str, computed: Any, known: Any, error: float) -> Comparison:
    """The comparison in which each number may be off by `error` times its own size."""
    # A kernel may flush numbers of about 1e-38 to zero; all results here are far larger.
    return agree(label, computed, known, error * real_numbers(known).abs() + 1e-38)


def closely(label: str, computed: Any, known: Any, roundings: float, name: str) -> Comparison:
    """The comparison in which each number may be off by so many roundings, in the format `name`, of
    a number as large as the largest result."""
    right = real_numbers(known)
    if not bool(right.isfinite().all()):
        return holds(label, False, "the expected result is not finite")
    size = float(right.abs().max()) if right.numel() else 0.0
    # If the answer is in float64, the known one has rounding errors of the same size: both add up,
    # and twice their sum leaves room, because no more exact answer is known.
    if name == "float64":
        roundings *= 4
    return agree(label, computed, right, roundings * ROUNDOFF[name] * size)
