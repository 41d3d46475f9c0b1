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
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

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
    differs: tuple[str, ...] = ()
    """The reasons why the gradient differs from the whole batch's gradient even if the parts are
    weighted correctly."""


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
    allow: Collection[str] = (),
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
    over the batch, unless `allow` contains `batchnorm`. Training with several ranks is refused,
    because the others would wait for a rank that splits its batch.

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
        losses = BatchLoss(step, batch, count, weight)
        recovered = _Attempts(losses, model, undo, backward).until_it_fits(allow, say)
    except BaseException:
        undo.restore()
        raise
    undo.commit()
    return recovered


# --- the loss of a part ---------------------------------------------------------------------------


class BatchLoss(NamedTuple):
    """A batch, and the user's functions that compute the loss of any part of it."""

    step: Step
    batch: Any
    size: int
    weight: Weight | None

    def of(self, part: Any) -> torch.Tensor:
        """The loss of a part; UsageError if the step does not return a single number."""
        loss = self.step(part)
        if not isinstance(loss, torch.Tensor) or loss.dim() != 0:
            raise UsageError(
                "`step` must return the loss, a tensor with one number",
                hint="return the mean over the samples, and do not call backward yourself",
            )
        return loss

    def weighted(self, start: int, stop: int) -> tuple[torch.Tensor, float] | None:
        """The loss of the samples from `start` to `stop`, and its weight in the batch's mean; None
        if nothing in them counts."""
        part = part_of(self.batch, start, stop, self.size)
        weight = float(stop - start) if self.weight is None else float(self.weight(part))
        if not weight:
            return None
        loss = self.of(part)
        # A mean over no tokens is NaN, and would make the gradient of the whole batch NaN.
        if self.weight is None and loss.isnan():
            raise CannotRecover(
                "The loss of a part is NaN; perhaps nothing in the part counts for it",
                hint="give `weight=`, which returns how much of a part counts",
            )
        return loss, weight


# --- the attempts ---------------------------------------------------------------------------------


class ModelHistory:
    """What earlier batches have shown about a model."""

    holds_all_parameters = False
    """Whether the check found that the loss trains only parameters of the model."""
    micro: int | None = None
    """The micro-batch size that fitted after memory ran out; None if it never ran out."""


# A history is deleted together with its model.
HISTORIES: weakref.WeakKeyDictionary[torch.nn.Module, ModelHistory] = weakref.WeakKeyDictionary()
DROPOUT = torch.nn.modules.dropout._DropoutNd


class _Attempts:
    """Tries to train one batch in smaller and smaller parts."""

    def __init__(
        self, losses: BatchLoss, model: torch.nn.Module, undo: Undo, backward: Backward
    ) -> None:
        self.losses, self.model, self.undo, self.step_back = losses, model, undo, backward
        self.history = HISTORIES.setdefault(model, ModelHistory())

    def until_it_fits(self, allow: Collection[str], say: Callable[[str], None]) -> Recovered:
        """Halve the parts until the batch fits; raises CannotRecover if splitting would change the
        training."""
        count = self.losses.size
        # Start with the size that fitted for an earlier batch.
        micro = min(count, self.history.micro or count)
        ran_out = False
        while True:
            if micro < count and "batchnorm" not in allow and (why := batch_norm(self.model)):
                raise CannotRecover(
                    f"Splitting the batch would change the training: {why}",
                    hint="use a smaller batch size, or give `allow=['batchnorm']`",
                )
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
        differs = self.differences() if micro < count else ()
        if ran_out:
            self.history.micro = micro
            of_mean = "" if self.losses.weight else ", if the loss is a mean over samples"
            gradient = f"with the same gradient{of_mean}"
            if differs:
                gradient = f"but {'; '.join(differs)}"
            say(
                f"out of memory with {count} samples: went on in micro-batches of {micro},"
                f" {gradient}. Next: set the batch size to {micro} and accumulate gradients over"
                " the rest"
            )
        return Recovered(loss=loss, batch_size=count, micro_batch_size=micro, differs=differs)

    def attempt(self, micro: int) -> tuple[Any, BaseException | None]:
        """Train the batch in parts of `micro` samples; returns the loss, or the out-of-memory
        error."""
        is_whole = micro >= self.losses.size
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
        loss = self.losses.of(self.losses.batch)
        # Walking the graph takes time, so this is checked once per model.
        if not self.history.holds_all_parameters:
            self.undo.check_leaves(loss)
            self.history.holds_all_parameters = True
        self.undo.backward(self.step_back, loss)
        return loss.detach()

    def in_parts(self, micro: int) -> torch.Tensor:
        """Run forward and backward for each part, and return the loss of the whole batch."""
        count = self.losses.size
        total = expected = 0.0
        losses = []
        for start in range(0, count, micro):
            stop = min(count, start + micro)
            weighted = self.losses.weighted(start, stop)
            if weighted is None:
                continue
            loss, weight = weighted
            # The weight of the whole batch is estimated from the first part's weight per sample.
            expected = expected or weight * count / (stop - start)
            total += weight
            self.undo.check_leaves(loss)
            counted = loss * (weight / expected)
            self.undo.backward(self.step_back, counted)
            losses.append(counted.detach())
        if not losses:
            message = "The batch has nothing that counts for the loss"
            raise CannotRecover(message, hint="leave the batch out")
        # Correct for the difference between the estimated and the actual weight.
        factor = expected / total
        self.undo.rescale(factor)
        return torch.stack(losses).sum() * factor

    def differences(self) -> tuple[str, ...]:
        """The reasons why training in parts differs from training the whole batch; () if there are
        none."""
        drops = any(isinstance(one, DROPOUT) and one.training for one in self.model.modules())
        dropout = "dropout draws another mask for each part" if drops else None
        return tuple(filter(None, (batch_norm(self.model), dropout)))


def without_frames(problem: BaseException) -> BaseException:
    """The exception after clearing the stack frames of it and its causes, because their variables
    keep tensors alive."""
    cause: BaseException | None = problem
    while cause is not None:
        traceback.clear_frames(cause.__traceback__)
        cause = cause.__cause__ or cause.__context__
    return problem.with_traceback(None)


MOST_NAMES = 3
"""The number of names to show: enough to find the kind of layer."""


def batch_norm(model: torch.nn.Module) -> str | None:
    """Why training in parts would differ because of BatchNorm; None if the model has none that is
    in training mode, in which alone BatchNorm computes statistics."""
    # `named_modules` gives the model itself an empty name.
    names = [
        name or "the model itself"
        for name, module in model.named_modules()
        if isinstance(module, BATCH_NORM) and module.training
    ]
    if not names:
        return None
    listed = ", ".join(names[:MOST_NAMES]) + (", ..." if len(names) > MOST_NAMES else "")
    return f"BatchNorm computes its statistics over one part only ({listed})"
