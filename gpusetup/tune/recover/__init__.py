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

import logging
import traceback
import weakref
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from gpusetup.errors import GpuSetupError, UsageError
from gpusetup.model.frozen import Frozen
from gpusetup.tune.oom import is_out_of_memory
from gpusetup.tune.recover.batches import batch_size, part_of
from gpusetup.tune.recover.undo import BATCH_NORM, Undo

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


# --- the attempts ---------------------------------------------------------------------------------


# Model -> the micro-batch size that fitted after memory ran out; an entry is deleted together with
# its model.
SIZES_THAT_FIT: weakref.WeakKeyDictionary[torch.nn.Module, int] = weakref.WeakKeyDictionary()


class _Attempts:
    """Tries to train one batch in smaller and smaller parts."""

    def __init__(
        self,
        step: Step,
        batch: Any,
        count: int,
        model: torch.nn.Module,
        undo: Undo,
        backward: Backward,
        weight: Weight | None,
    ) -> None:
        self.step, self.batch, self.count, self.weight = step, batch, count, weight
        self.model, self.undo, self.backward = model, undo, backward

    def until_it_fits(self, say: Callable[[str], None]) -> Recovered:
        """Halve the parts until the batch fits; raises CannotRecover if splitting would change the
        training."""
        count = self.count
        # Start with the size that fitted for an earlier batch.
        micro = min(count, SIZES_THAT_FIT.get(self.model, count))
        ran_out = False
        while True:
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
        """Train the batch in parts of `micro` samples; returns the loss, or the out-of-memory
        error."""
        is_whole = micro >= self.count
        try:
            return (self.whole() if is_whole else self.in_parts(micro)), None
        except Exception as problem:
            if is_out_of_memory(problem):
                return None, without_frames(problem)
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
