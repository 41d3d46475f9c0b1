"""The parts of a batch: how it is cut, what the loss of a part counts, and whether that is exact.

A batch is a tensor or array, or a tuple, list, mapping, named tuple or dataclass of batches. What
has a first dimension of the batch's size is cut along it, lists of that length too; everything
else goes into each part as it is.

A mean loss is a mean over what torch's loss functions divide by: `cross_entropy` leaves ignored
labels out and divides by class weights, other losses divide by their elements. While a part's step
runs, these calls are seen. Whether the parts then give the whole's gradient is tried on some
samples and their halves.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from gpusetup.errors import GpuSetupError, UsageError
from gpusetup.model.frozen import Frozen
from gpusetup.tune.oom import is_out_of_memory

# --- how a batch is cut -------------------------------------------------------------------------

CHANNELS = (1, 3, 4)


def batch_size(batch: Any) -> int:
    """The number of samples in a batch.

    >>> batch_size({"text": ["a", "b", "c"]}), batch_size(["a", "b"])
    (3, 2)
    """
    sizes = _sizes(batch)
    if len(sizes) == 1:
        return sizes.pop()
    told = f"parts of several sizes, {sorted(sizes)}" if sizes else "no tensor with a dimension"
    raise UsageError(
        f"The batch cannot be split: it has {told}", hint="give `size=` and `split=` yourself"
    )


def part_of(batch: Any, start: int, stop: int, size: int) -> Any:
    """The samples from `start` to `stop` of a batch of `size`.

    >>> part_of({"x": [1, 2, 3], "name": "train"}, 1, 3, 3)
    {'x': [2, 3], 'name': 'train'}
    """

    def cut(one: Any) -> Any:
        return part_of(one, start, stop, size)

    if _is_tensor(batch):
        return batch[start:stop] if len(batch.shape) and batch.shape[0] == size else batch
    if isinstance(batch, Mapping):
        same = {} if type(batch) is dict else copy.copy(batch)  # a tokenizer's batch stays one
        for key, one in batch.items():
            same[key] = cut(one)  # type: ignore[index]
        return same
    if isinstance(batch, tuple):
        parts = [cut(one) for one in batch]
        return type(batch)(*parts) if hasattr(batch, "_fields") else tuple(parts)
    if isinstance(batch, list):
        if _holds_samples(batch):
            return batch[start:stop] if len(batch) == size else batch
        return [cut(one) for one in batch]
    if dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        names = [field.name for field in dataclasses.fields(batch) if field.init]
        return dataclasses.replace(batch, **{name: cut(getattr(batch, name)) for name in names})
    return batch


def cuts(size: int, micro: int) -> list[tuple[int, int]]:
    """Where a batch of `size` is cut into parts of at most `micro`.

    >>> cuts(10, 4)
    [(0, 4), (4, 8), (8, 10)]
    """
    return [(start, min(size, start + micro)) for start in range(0, size, micro)]


def _is_tensor(one: Any) -> bool:
    return hasattr(one, "shape") and hasattr(one, "__getitem__")


def _sizes(batch: Any) -> set[int]:
    """What the parts of a batch say: nothing, its size, or several that contradict."""
    if _is_tensor(batch):
        return {int(batch.shape[0])} if len(batch.shape) else set()
    if isinstance(batch, list) and _holds_samples(batch):
        return {len(batch)}
    inner: Any = ()
    if isinstance(batch, Mapping):
        inner = batch.values()
    elif isinstance(batch, list | tuple):
        inner = batch
    elif dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        inner = [getattr(batch, field.name) for field in dataclasses.fields(batch)]
    return set[int]().union(*map(_sizes, inner))


def _holds_samples(batch: list[Any]) -> bool:
    """Whether a list holds a sample in each place, not a column: texts, targets of a detection
    batch, images and clouds of their own sizes. No column looks like a picture.

    >>> _holds_samples(["a", "b"]), _holds_samples([{"boxes": 1}]), _holds_samples([["a"], ["b"]])
    (True, True, False)
    """
    shapes = [tuple(one.shape) for one in batch if _is_tensor(one)]
    pictures = [shape for shape in shapes if len(shape) == 3 and shape[0] in CHANNELS]
    if len(batch) > 1 and len(pictures) == len(batch):
        return True
    if batch and all(isinstance(one, Mapping) for one in batch):
        return True
    return bool(batch) and len(set[int]().union(*map(_sizes, batch))) != 1


# --- what a loss is a mean over -----------------------------------------------------------------

LABELS = (functional.cross_entropy, functional.nll_loss)
WATCHED: frozenset[Callable[..., Any]] = frozenset((
    *LABELS, functional.mse_loss, functional.l1_loss, functional.smooth_l1_loss,
    functional.huber_loss, functional.binary_cross_entropy, functional.kl_div,
    functional.binary_cross_entropy_with_logits, functional.soft_margin_loss,
))  # fmt: skip


class Counted(Frozen):
    """One part of a batch: its samples, and what each loss of its step divided by."""

    samples: int
    divisors: tuple[float, ...]
    rough: bool
    """Whether autocast computed something in 16 bits."""

    @property
    def weight(self) -> float | None:
        """What the part's loss is a mean over, where its losses agree; None if none told."""
        return self.divisors[0] if len(set(self.divisors)) == 1 else None


class Watching(TorchFunctionMode):  # type: ignore[misc]
    """Sees the loss functions while it is entered."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[torch.Tensor | float] = []
        self.rough = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if torch.compiler.is_compiling():
            return result
        if isinstance(result, torch.Tensor):
            self.rough |= result.dtype in (torch.float16, torch.bfloat16)
        if func in WATCHED and getattr(result, "requires_grad", False):
            divisor = _divisor(func, args, kwargs or {})
            self.seen += [] if divisor is None else [divisor]
        return result


def _divisor(func: Any, args: Any, kwargs: Any) -> torch.Tensor | float | None:
    """What a loss function divides its sum by; None if it takes no mean."""
    bound = inspect.signature(func).bind(*args, **kwargs)
    bound.apply_defaults()
    said = bound.arguments
    scores, target = said["input"], said["target"]
    if said.get("reduction") == "batchmean":
        return float(scores.shape[0])
    if said.get("reduction") != "mean":
        return None
    if func not in LABELS:
        return float(torch.broadcast_shapes(scores.shape, target.shape).numel())
    if target.is_floating_point():  # probabilities: the samples
        return float(target.numel() / scores.shape[1 if scores.dim() > 1 else 0])
    kept = target != said["ignore_index"]
    if said["weight"] is None:
        return kept.sum()
    return said["weight"].detach()[target[kept]].sum()


# --- a batch, asked in parts --------------------------------------------------------------------


class Case(Frozen):
    """What is asked of each part."""

    step: Callable[[Any], torch.Tensor]
    cut: Callable[[int, int], Any]
    """The part from one sample to another."""
    sums: bool
    weight: Callable[[Any], float] | None

    def loss(self, part: Any) -> torch.Tensor:
        loss = self.step(part)
        if not isinstance(loss, torch.Tensor) or loss.dim() != 0:
            raise UsageError(
                "`step` must return the loss, a tensor with one number",
                hint="take its mean over the samples, and leave the backward to us",
            )
        return loss

    def part(self, start: int, stop: int, told: list[Counted]) -> tuple[torch.Tensor, float]:
        """A part's loss, and how much it counts; `told` hears what it was a mean over."""
        part = self.cut(start, stop)
        with Watching() as seen:
            loss = self.loss(part)
        divisors = tuple(float(one) for one in seen.seen)
        told.append(Counted(samples=stop - start, divisors=divisors, rough=seen.rough))
        if self.sums:
            return loss, 1.0
        if self.weight is not None:
            return loss, float(self.weight(part))
        known = told[-1].weight
        return loss, float(stop - start) if known is None else known

    def uneven(self, parts: Sequence[Counted]) -> list[str]:
        """What the losses of the parts said that no weight of the parts can make up for."""
        told = any(one.divisors for one in parts) and any(one.weight is None for one in parts)
        ratios = {tuple(round(n / one.samples, 9) for n in one.divisors) for one in parts}
        if self.sums or self.weight is not None or not told or len(ratios) == 1:
            return []
        return ["several losses count differently: a mean over parts (give `weight=`)"]


# --- whether the parts are exact ----------------------------------------------------------------

CLOSE = {False: (2e-6, 1e-4), True: (2e-3, 5e-2)}
"""Shares of the loss, and of the gradient, whose terms may cancel, that rounding explains: of
float32, and (True) where products are computed in 16 bits."""
CLOSE_CUDA = 1e-5
"""Of the loss, where another number of samples is computed by another kernel."""
NORMS = torch.nn.modules.batchnorm._BatchNorm
DRAWN = (torch.nn.modules.dropout._DropoutNd, torch.nn.RNNBase, torch.nn.MultiheadAttention)


def off_by(case: Case, start: int, micro: int, model: torch.nn.Module) -> str | None:
    """In words by how much loss or gradient of `micro` samples from `start` on are not those of
    their two halves; None if they are."""
    told, middle = list[Counted](), start + micro // 2
    try:
        with _steady(model):
            before = torch.get_rng_state()
            whole, _ = case.part(start, start + micro, told)
            if not torch.equal(before, torch.get_rng_state()):
                return None  # random numbers are said on their own; nothing can be compared
            halves = [case.part(start, middle, told), case.part(middle, start + micro, told)]
            share = 1.0 if case.sums else sum(weight for _, weight in halves)
            if not share:
                return None
            halves = [(loss, weight / share) for loss, weight in halves if weight]
            slope = _slope_off(model, whole, halves)
    except GpuSetupError:
        raise
    except Exception as problem:
        why = "memory ran out" if is_out_of_memory(problem) else type(problem).__name__
        return f"whether the loss may be split was not checked ({why})"
    wanted = float(whole.detach())
    off = abs(sum(float(loss.detach()) * weight for loss, weight in halves) - wanted)
    off /= max(abs(wanted), 1e-12)
    rough = any(one.rough for one in told) or whole.dtype in (torch.float16, torch.bfloat16)
    close, close_slope = CLOSE[rough]
    if off > (CLOSE_CUDA if whole.is_cuda and not rough else close):
        return (
            f"a mean over parts: the loss of {micro} samples is {100 * off:.2g} % off that of its"
            " halves (`weight=` counts what it is a mean over; a loss over pairs must not be split)"
        )
    if slope is not None and slope > close_slope:
        return (
            f"the gradient of {micro} samples is {100 * slope:.2g} % off that of their halves"
            " (a loss over the whole batch, or a backward that is not linear?)"
        )
    return None


def _slope_off(
    model: torch.nn.Module, whole: torch.Tensor, halves: Sequence[tuple[torch.Tensor, float]]
) -> float | None:
    """By which share the gradient is not that of the halves; None if it cannot be asked for."""
    given = [one for one in model.parameters() if one.requires_grad]
    largest = 0.0
    try:
        left = torch.autograd.grad(whole, given, materialize_grads=True)
        for loss, weight in halves:
            found = torch.autograd.grad(loss * weight, given, materialize_grads=True)
            for one, part in zip(left, found, strict=True):
                one.sub_(part)
            largest = max(largest, _norm(found))
    except (RuntimeError, NotImplementedError):  # no memory, or a checkpoint of the old kind
        return None
    return _norm(left) / largest if largest else None


def _norm(tensors: Sequence[torch.Tensor]) -> float:
    return math.hypot(*(float(one.detach().double().norm()) for one in tensors))


@contextmanager
def _steady(model: torch.nn.Module) -> Iterator[None]:
    """Without dropout and TF32, and with BatchNorm's own statistics, which are said elsewhere."""
    moved = [m for m in model.modules() if isinstance(m, (*DRAWN, NORMS)) and m.training]
    exact = (torch.backends.cuda.matmul, torch.backends.cudnn)
    allowed = [one.allow_tf32 for one in exact]
    for module in moved:
        module.training = False
    for one in exact:
        one.allow_tf32 = False
    try:
        yield
    finally:
        for one, before in zip(exact, allowed, strict=True):
            one.allow_tf32 = before
        for module in moved:
            module.training = True
