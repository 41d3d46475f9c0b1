"""A training step that recovers from running out of memory, with the same gradient as the whole
batch.

    for batch in loader:
        optimizer.zero_grad()
        done = recover_from_oom(lambda part: loss_of(model, part), batch, model=model)
        optimizer.step()

It first tries the whole batch. If memory runs out, it undoes all effects of the attempt (gradients,
random numbers, memory) and halves the parts until they fit. Each part's loss is weighted by its
share of the samples, so that the summed gradient equals that of the whole batch, apart from
rounding. Later batches start with the size that fitted.

If the loss is a mean over something else than samples, such as the tokens that count, the parts
need other weights, which `weight` returns.
"""

from __future__ import annotations

import copy
import gc
import logging
import random
import sys
import traceback
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from gpusetup.errors import GpuSetupError, UsageError
from gpusetup.model.frozen import Frozen
from gpusetup.tune.bench import is_out_of_memory

BATCH_NORM = torch.nn.modules.batchnorm._BatchNorm
LOG = logging.getLogger("gpusetup.tune")


class Recovered(Frozen):
    """How a batch was trained: its loss, and whether it had to be split."""

    loss: torch.Tensor
    """The loss of the whole batch, detached from the graph."""
    batch_size: int
    micro_batch_size: int


class CannotRecover(GpuSetupError):
    """Memory ran out, and splitting the batch does not help. `__cause__` is the original error, if
    there was one."""

    exit_code = 1


Step = Callable[[Any], torch.Tensor]
Backward = Callable[[torch.Tensor], None]
Weight = Callable[[Any], float]


def recover_from_oom(
    step: Step,
    batch: Any,
    *,
    model: torch.nn.Module,
    backward: Backward = torch.Tensor.backward,
    weight: Weight | None = None,
    say: Callable[[str], None] = LOG.warning,
) -> Recovered:
    """Run forward and backward for one batch; if memory runs out, repeat it in smaller
    micro-batches.

    `step(part)` must return the loss of a part as a mean over its samples. If the mean is over
    something else, such as the tokens that count, `weight(part)` returns their number; a part with
    a weight of 0 is left out. A loss over pairs of samples (contrastive) must not be split.
    `backward(loss)` replaces `loss.backward()`, for example with a GradScaler:
    `lambda loss: scaler.scale(loss).backward()`.

    Splitting is refused for a model with BatchNorm, whose statistics over a part differ from those
    over the batch. Training with several ranks is refused, because the others would wait for a rank
    that splits its batch.

    Raises CannotRecover from the original error if not even one sample fits or if splitting is
    refused; all other errors pass through. After an error, gradients are as they were before the
    call.
    """
    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        raise UsageError(
            "Several ranks train: while one rank splits its batch, the others would wait for it",
            hint="use a smaller batch and gradient accumulation; `gpusetup plan` says which fits",
        )
    undo = Undo(model)
    try:
        count = batch_size(batch)
        if not count:
            raise UsageError("The batch is empty", hint="leave it out")
        attempts = _Attempts(step, batch, count, model, undo, backward, weight)
        recovered = attempts.until_it_fits(say)
    except BaseException:
        undo.restore()
        raise
    undo.commit()
    return recovered


SIZES_THAT_FIT: weakref.WeakKeyDictionary[torch.nn.Module, int] = weakref.WeakKeyDictionary()
"""Model -> the micro-batch size that fitted after memory ran out; an entry is deleted together with
its model."""


@dataclass
class _Attempts:
    """Tries to train one batch in smaller and smaller parts."""

    step: Step
    batch: Any
    count: int
    model: torch.nn.Module
    undo: Undo
    backward: Backward
    weight: Weight | None

    def until_it_fits(self, say: Callable[[str], None]) -> Recovered:
        """Halve the parts until the batch fits; raises CannotRecover if splitting would change the
        training."""
        count = self.count
        # Start with the size that fitted for an earlier batch.
        micro = min(count, SIZES_THAT_FIT.get(self.model, count))
        ran_out = False
        while True:
            # The whole batch needs no splitting, which BatchNorm forbids.
            if micro < count:
                refuse_batch_norm(self.model)
            loss, problem = self.attempt(micro)
            if problem is None:
                break
            ran_out = True
            self.undo.reset()
            if micro == 1:
                raise CannotRecover(
                    f"Not even 1 of {count} samples fit",
                    hint="recompute activations (torch.utils.checkpoint), or use a smaller model "
                    "or input",
                ) from problem
            problem = None  # drop the failed attempt's tensors before the next attempt
            micro = -(-micro // 2)  # rounded up, so that two parts are enough
        if ran_out:
            SIZES_THAT_FIT[self.model] = micro
            of_mean = "" if self.weight else ", if the loss is a mean over samples"
            say(
                f"out of memory with {count} samples: went on in micro-batches of {micro}, with the"
                f" same gradient{of_mean}. Next: set the batch size to {micro} and accumulate"
                " gradients over the rest"
            )
        return Recovered(loss=loss, batch_size=count, micro_batch_size=micro)

    def attempt(self, micro: int) -> tuple[Any, BaseException | None]:
        """Train the batch in parts of `micro` samples; returns the loss and None, or None and the
        out-of-memory error. Raises CannotRecover if only a part of the batch fails."""
        is_whole = micro >= self.count
        try:
            return (self.whole() if is_whole else self.in_parts(micro)), None
        except Exception as problem:
            if is_out_of_memory(problem):
                return None, without_frames(problem)
            # The error is the step's own, or says by itself what is wrong.
            if is_whole or isinstance(problem, GpuSetupError):
                raise
            raise CannotRecover(
                f"The step fails on a part of the batch: {type(problem).__name__}: {problem}",
                hint="`step` must accept any number of samples",
            ) from problem

    def whole(self) -> torch.Tensor:
        """Run forward and backward for the whole batch; returns its loss."""
        loss = self.loss_of(self.batch)
        self.undo.check_leaves(loss)
        self.undo.backward(self.backward, loss)
        return loss.detach()

    def in_parts(self, micro: int) -> torch.Tensor:
        """Run forward and backward for each part, and return the loss of the whole batch."""
        count = self.count
        weighted = []
        for start in range(0, count, micro):
            stop = min(count, start + micro)
            part = part_of(self.batch, start, stop, count)
            weighted.append((part, float(self.weight(part) if self.weight else stop - start)))
        total = sum(weight for _, weight in weighted)
        if not total:
            message = "The batch has nothing that counts for the loss"
            raise CannotRecover(message, hint="leave the batch out")
        losses = []
        for part, weight in weighted:
            if not weight:
                continue
            loss = self.loss_of(part)
            # A mean over no tokens is NaN, and would make the gradient of the whole batch NaN.
            if self.weight is None and loss.isnan():
                raise CannotRecover(
                    "The loss of a part is NaN; perhaps nothing in the part counts for it",
                    hint="give `weight=`, which returns how much of a part counts",
                )
            self.undo.check_leaves(loss)
            counted = loss * (weight / total)
            self.undo.backward(self.backward, counted)
            losses.append(counted.detach())
        return torch.stack(losses).sum()

    def loss_of(self, part: Any) -> torch.Tensor:
        """The loss of a part; UsageError if the step does not return a single number."""
        loss = self.step(part)
        if not isinstance(loss, torch.Tensor) or loss.dim() != 0:
            raise UsageError(
                "`step` must return the loss, a tensor with one number",
                hint="return the mean over the samples, and do not call backward yourself",
            )
        return loss


def without_frames(problem: BaseException) -> BaseException:
    """The exception after clearing the stack frames of it and its causes, because their variables
    keep tensors alive."""
    cause: BaseException | None = problem
    while cause is not None:
        traceback.clear_frames(cause.__traceback__)
        cause = cause.__cause__ or cause.__context__
    return problem.with_traceback(None)


def refuse_batch_norm(model: torch.nn.Module) -> None:
    """Raise CannotRecover if the model has BatchNorm in training mode, in which alone it computes
    statistics."""
    for name, module in model.named_modules():
        if isinstance(module, BATCH_NORM) and module.training:
            # `named_modules` gives the model itself an empty name.
            raise CannotRecover(
                "Splitting the batch would change the training: BatchNorm computes its statistics"
                f" over one part only ({name or 'the model itself'})",
                hint="use a smaller batch size and accumulate gradients",
            )


# --- undoing a failed attempt ---------------------------------------------------------------------


def random_generators() -> Iterator[tuple[Callable[[], Any], Callable[[Any], Any]]]:
    """Pairs of functions that read and set the state of each random number generator in use."""
    yield torch.get_rng_state, torch.set_rng_state
    yield random.getstate, random.setstate
    # A program that did not import numpy cannot have drawn random numbers with it.
    numpy = sys.modules.get("numpy")
    if numpy:
        yield numpy.random.get_state, numpy.random.set_state
    # Reading the state of CUDA's generators would initialise CUDA.
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        yield torch.cuda.get_rng_state_all, torch.cuda.set_rng_state_all


class Undo:
    """Saves gradients, random states and buffers before the attempts to train a batch, so that a
    failed one can be undone.

    Gradients from before are set aside, so that the gradients of a failed attempt can be dropped.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._random = [(put, get()) for get, put in random_generators()]
        # A registered buffer may be None.
        self._buffers = [
            (module, name, buffer, buffer.detach().clone())
            for module in model.modules()
            for name, buffer in module._buffers.items()
            if buffer is not None
        ]
        self._saved_gradients = [parameter.grad for parameter in self.parameters]
        for parameter in self.parameters:
            parameter.grad = None

    def check_leaves(self, loss: torch.Tensor) -> None:
        """Raise UsageError if the loss trains tensors that are not parameters of the model, whose
        gradients could not be undone."""
        held_ids = {id(parameter) for parameter in self.parameters}
        waiting, visited = [loss.grad_fn], set()
        while waiting:
            node = waiting.pop()
            # Inputs that need no gradient have no node.
            if node is None or node in visited:
                continue
            visited.add(node)
            waiting += [next_node for next_node, _ in node.next_functions]
            # Only nodes that accumulate the gradient of a leaf have a variable.
            leaf = getattr(node, "variable", None)
            if isinstance(leaf, torch.Tensor) and id(leaf) not in held_ids:
                raise UsageError(
                    "The loss trains parameters that are not in the model",
                    hint="pass all trained modules: `model=torch.nn.ModuleList([model, head])`",
                )

    def backward(self, backward: Callable[[torch.Tensor], None], loss: torch.Tensor) -> None:
        """Run a backward pass; UsageError if it or a hook changes parameters, because they would
        then be updated once per part instead of once per batch, and could not be undone."""
        before = [parameter._version for parameter in self.parameters]
        try:
            backward(loss)
        finally:
            if before != [parameter._version for parameter in self.parameters]:
                raise UsageError(
                    "The backward pass changes the parameters (perhaps by an optimizer step)",
                    hint="call `optimizer.step()` after `recover_from_oom`, once for the batch",
                )

    def reset(self) -> None:
        """Undo a failed attempt: drop its gradients, free its memory, and restore random states and
        buffers."""
        for parameter in self.parameters:
            parameter.grad = None
        for put, state in self._random:
            put(state)
        for module, name, buffer, copied in self._buffers:
            # Put the saved tensor back first, because the module may have replaced it.
            module._buffers[name] = buffer
            buffer.data.copy_(copied)
        # The cache keeps 16-bit copies of the weights.
        torch.clear_autocast_cache()
        gc.collect()
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            torch.cuda.empty_cache()

    def restore(self) -> None:
        """Undo everything, so that gradients, random states and buffers are as before the call."""
        self.reset()
        for parameter, gradient in zip(self.parameters, self._saved_gradients, strict=True):
            parameter.grad = gradient

    def commit(self) -> None:
        """Keep the new gradients and add them to those from before the call, as autograd would have
        done."""
        for parameter, previous in zip(self.parameters, self._saved_gradients, strict=True):
            if previous is None:
                continue
            # A parameter that this batch did not use has no new gradient.
            if parameter.grad is not None:
                previous.add_(parameter.grad)
            parameter.grad = previous


# --- the parts of a batch -------------------------------------------------------------------------
#
# A batch is a tensor or array, or a tuple, list, mapping or named tuple of batches. Tensors, arrays
# and lists whose first dimension is the batch size are cut along it; each part gets everything else
# unchanged.

CHANNELS = (1, 3, 4)
"""The first dimension of an image: grey, RGB or RGBA."""


def batch_size(batch: Any) -> int:
    """The number of samples in a batch; UsageError if the batch's tensors have different lengths or
    if there are none.

    >>> batch_size({"text": ["a", "b", "c"]}), batch_size(["a", "b"])
    (3, 2)
    """
    sizes = _lengths(batch)
    if len(sizes) == 1:
        return sizes.pop()
    problem = f"parts of several sizes, {sorted(sizes)}" if sizes else "no tensor with a dimension"
    raise UsageError(
        f"The batch cannot be split: it has {problem}",
        hint="pass a list of samples, and let `step` make a batch from them",
    )


def part_of(batch: Any, start: int, stop: int, size: int) -> Any:
    """The samples from `start` up to `stop` of a batch with `size` samples, in the same structure.

    >>> part_of({"x": [1, 2, 3], "name": "train"}, 1, 3, 3)
    {'x': [2, 3], 'name': 'train'}
    """
    # A column of another length belongs to the whole batch.
    return _map_columns(batch, lambda column: column[start:stop] if len(column) == size else column)


def _map_columns(batch: Any, column: Callable[[Any], Any]) -> Any:
    """A batch of the same structure, with the function `column` applied to each tensor, array and
    list of samples."""
    has_dimensions = len(getattr(batch, "shape", ())) > 0
    if has_dimensions or (isinstance(batch, list) and _holds_samples(batch)):
        return column(batch)
    if isinstance(batch, Mapping):
        copied: Any = copy.copy(batch)  # keeps the type of a tokenizer's batch
        for key, value in batch.items():
            copied[key] = _map_columns(value, column)
        return copied
    if isinstance(batch, list | tuple):
        parts = [_map_columns(value, column) for value in batch]
        # A named tuple takes its fields as separate arguments.
        return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)
    return batch


def _lengths(batch: Any) -> set[int]:
    """The lengths of all tensors, arrays and lists of samples in a batch."""
    lengths = set[int]()

    def note(column: Any) -> Any:
        lengths.add(len(column))
        return column

    _map_columns(batch, note)
    return lengths


def _holds_samples(batch: list[Any]) -> bool:
    """Whether each item of a list is a sample, such as a text, a detection target or an image;
    otherwise the items are columns of the batch.

    >>> _holds_samples(["a", "b"]), _holds_samples([{"boxes": 1}]), _holds_samples([["a"], ["b"]])
    (True, True, False)
    """
    if not batch:
        return False
    # A list of dicts holds one sample per item, such as the targets of a detection batch.
    if all(isinstance(sample, Mapping) for sample in batch):
        return True
    shapes = [tuple(getattr(sample, "shape", ())) for sample in batch]
    # A list of images, but a single tensor may as well be a column of the batch.
    if len(batch) > 1 and all(len(shape) == 3 and shape[0] in CHANNELS for shape in shapes):
        return True
    # Columns of a batch all have the same length, so items of different lengths are samples.
    return len(set().union(*map(_lengths, batch))) != 1
