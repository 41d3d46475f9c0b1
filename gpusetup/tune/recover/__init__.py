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
"""

from __future__ import annotations

import logging
import traceback
import weakref
from collections.abc import Callable, Collection
from typing import Any, Literal

import torch
import torch.distributed as dist

from gpusetup.errors import GpuSetupError, UsageError
from gpusetup.model.frozen import Frozen
from gpusetup.tune.oom import is_out_of_memory
from gpusetup.tune.recover.parts import (
    BATCH_NORM,
    BatchStep,
    PartLosses,
    batch_size,
    cuts,
    gradient_difference,
)
from gpusetup.tune.recover.undo import Undo, listed

LOG = logging.getLogger("gpusetup.tune")
RECOMPUTE_HINT = "recompute activations (torch.utils.checkpoint), or use a smaller model or input"
LARGEST_CHECK = 8
"""The maximum number of samples for the check that compares the gradient of some samples with the
gradient of their two halves."""


class Recovered(Frozen):
    """How a batch was trained: its loss, and whether it had to be split."""

    loss: torch.Tensor
    """The loss of the whole batch, detached from the graph."""
    batch_size: int
    micro_batch_size: int
    attempts: int
    """How often the batch was tried; 1 if memory did not run out."""
    differs: tuple[str, ...] = ()
    """The reasons why the gradient differs from the whole batch's gradient; () if the two are equal
    apart from rounding."""

    @property
    def split(self) -> bool:
        """Whether the batch was trained in several parts."""
        return self.micro_batch_size < self.batch_size


class CannotRecover(GpuSetupError):
    """Memory ran out, and splitting the batch does not help. `__cause__` is the original error, if
    there was one."""

    exit_code = 1


class ModelHistory:
    """What earlier batches have shown about a model, such as the micro-batch that fits."""

    def __init__(self) -> None:
        self.holds_all_parameters = False
        """Whether the check found that the loss trains only parameters of the model."""
        self.micro: int | None = None
        """The micro-batch size that fitted after memory ran out; None if it never ran out."""
        self.checks: dict[Any, str | None] = {}
        """The step function's code -> the difference that `compare_halves` found, in words."""


Backward = Callable[[torch.Tensor], None]
HISTORIES: weakref.WeakKeyDictionary[torch.nn.Module, ModelHistory] = weakref.WeakKeyDictionary()


SEVERAL_RANKS = "Several ranks train: while one rank splits its batch, the others would wait for it"


def recover_from_oom(
    step: Callable[[Any], torch.Tensor],
    batch: Any,
    *,
    model: torch.nn.Module,
    backward: Backward = torch.Tensor.backward,
    reduction: Literal["mean", "sum"] = "mean",
    weight: Callable[[Any], float] | None = None,
    allow: Collection[str] = ("random",),
    say: Callable[[str], None] = LOG.warning,
) -> Recovered:
    """Run forward and backward for one batch; if memory runs out, repeat it in smaller
    micro-batches.

    `step(part)` must return the loss of a part as a mean over its samples, or as a sum with
    `reduction="sum"`. If the mean is over something else, such as the tokens that count,
    `weight(part)` returns their number. A loss over pairs of samples (contrastive) must not be
    split. `backward(loss)` replaces `loss.backward()`, for example with a GradScaler: `lambda loss:
    scaler.scale(loss).backward()`.

    If splitting would change the training, it is refused unless `allow` contains the reason:
    `batchnorm` (statistics of a part differ from those of the batch) or `random` (dropout draws
    other masks; allowed by default, with a message). Training with several ranks is refused,
    because the others would wait for a rank that splits its batch.

    Raises CannotRecover from the original error if not even one sample fits or if splitting is
    refused; all other errors pass through. After an error, gradients are as they were before the
    call.
    """
    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        hint = "use a smaller batch and gradient accumulation; `gpusetup plan` says which fits"
        raise UsageError(SEVERAL_RANKS, hint=hint)
    undo = Undo(model)
    try:
        count = batch_size(batch)
        if not count:
            raise UsageError("The batch is empty", hint="leave it out")
        sums = reduction == "sum"
        case = BatchStep(step=step, batch=batch, count=count, sums=sums, weight=weight)
        attempts = _Attempts(case, model, undo, backward)
        recovered = attempts.until_it_fits(allow, say)
    except BaseException:
        undo.restore()
        raise
    undo.commit()
    return recovered


class _Attempts:
    """Tries to train one batch in smaller and smaller parts."""

    def __init__(
        self, case: BatchStep, model: torch.nn.Module, undo: Undo, backward: Backward
    ) -> None:
        self.case = case
        self.model = model
        self.undo = undo
        self.backward = backward
        self.count = case.count
        # The history is deleted together with the model.
        self.history = HISTORIES.setdefault(model, ModelHistory())
        self.part_losses: list[PartLosses] = []
        self.draws_random = False

    def until_it_fits(self, allow: Collection[str], say: Callable[[str], None]) -> Recovered:
        """Halve the parts until the batch fits; raises CannotRecover if splitting would change the
        training."""
        undo = self.undo
        # Start with the size that fitted for an earlier batch.
        micro = min(self.count, self.history.micro or self.count)
        if micro < self.count:
            _refuse(what_differs(self.model, allow), None)
        attempts = 0
        while True:
            attempts += 1
            loss, problem = self.attempt(micro)
            self.draws_random |= undo.state.random_was_drawn()
            is_split = micro < self.count or problem is not None
            if self.draws_random and "random" not in allow and is_split:
                _refuse(["the step draws random numbers (perhaps dropout)"], problem)
            if problem is None:
                break
            undo.reset()
            _refuse(what_differs(self.model, allow), problem)
            if micro == 1:
                message = f"Not even 1 of {self.count} samples fit"
                raise CannotRecover(message, hint=RECOMPUTE_HINT) from problem
            problem = None  # drop the failed attempt's tensors before the next attempt
            micro = -(-micro // 2)  # rounded up, so that two parts are enough
        differs = self.differences() if micro < self.count else []
        if attempts > 1:
            self.history.micro = micro
            say(recovered_in_words(self.count, micro, differs))
        return Recovered(
            loss=loss,
            batch_size=self.count,
            micro_batch_size=micro,
            attempts=attempts,
            differs=tuple(differs),
        )

    def attempt(self, micro: int) -> tuple[Any, BaseException | None]:
        """Train the batch in parts of `micro` samples; returns the loss, or the out-of-memory error
        without the frames that keep tensors alive."""
        self.part_losses = []
        is_whole = micro >= self.count
        try:
            loss = self.whole() if is_whole else self.in_parts(micro)
        except Exception as problem:
            if is_out_of_memory(problem):
                return None, without_frames(problem)
            if is_whole or isinstance(problem, GpuSetupError):
                raise
            raise CannotRecover(
                f"The step fails on a part of the batch: {type(problem).__name__}: {problem}",
                hint="`step` must accept any number of samples",
            ) from problem
        return loss, None

    def whole(self) -> torch.Tensor:
        """Run forward and backward for the whole batch; returns its loss."""
        loss = self.case.loss(self.case.batch)
        # Check this once per model, because walking the graph takes time.
        if not self.history.holds_all_parameters:
            self.undo.check_leaves(loss)
            self.history.holds_all_parameters = True
        self.undo.backward(self.backward, loss)
        return loss.detach()

    def in_parts(self, micro: int) -> torch.Tensor:
        """Run forward and backward for each part, and return the loss of the whole batch."""
        sums = self.case.sums
        total = 0.0
        expected = 0.0
        losses = []
        for start, stop in cuts(self.count, micro):
            loss, weight = self.case.part(start, stop, self.part_losses)
            if weight == 0:
                continue  # no sample counts, so the mean is NaN
            if not expected:
                # Estimate the weight of the whole batch from the first part's weight per sample.
                parts_like_this = 1.0 if sums else self.count / (stop - start)
                expected = weight * parts_like_this
            total += weight
            self.undo.check_leaves(loss)
            counted = loss * (weight / expected)
            self.undo.backward(self.backward, counted)
            losses.append(counted.detach())
        if not losses:
            message = "The batch has nothing that counts for the loss"
            raise CannotRecover(message, hint="leave the batch out")
        # Correct for the difference between the estimated and the actual weight.
        factor = 1.0 if sums else expected / total
        if abs(factor - 1) > ROUNDING:
            self.undo.rescale(factor)
        return torch.stack(losses).sum() * factor

    def differences(self) -> list[str]:
        """The reasons why training in parts differs from training the whole batch; [] if there are
        none."""
        uneven = self.case.uneven_losses(self.part_losses)
        differs = [*what_differs(self.model), *uneven]
        hooked = [name for name, one in self.model.named_parameters() if one._backward_hooks]
        if hooked:
            differs.append(f"a hook changes the gradient of each part ({listed(hooked)})")
        if self.draws_random:
            differs.append("the step draws random numbers for each part (perhaps dropout)")
        changed_buffers = self.undo.state.changed_buffers()
        if changed_buffers:
            differs.append(f"each part updates the buffers once ({listed(changed_buffers)})")
        # Uneven losses already make the gradients differ, so comparing them would find nothing new.
        difference = None if uneven else self.compare_halves()
        if difference:
            differs.append(difference)
        return differs

    def compare_halves(self) -> str | None:
        """How the gradient of some samples differs from the gradient of their two halves, in words;
        None if no difference was found.

        The comparison runs once for each step function, at its first split batch.
        """
        code = getattr(self.case.step, "__code__", None)
        if code not in self.history.checks:
            # Use at least two samples, so that there are two halves.
            micro = min(max(2, min(self.part_losses[0].samples, LARGEST_CHECK)), self.count)
            with self.undo.preserved_state():
                difference = gradient_difference(self.case, micro, self.model)
            self.history.checks[code] = difference
        return self.history.checks[code]


ROUNDING = 1e-12
"""If a factor differs from 1 by less than this, the difference is a rounding error, and the factor
need not be applied."""


def recovered_in_words(count: int, micro: int, differs: list[str]) -> str:
    """A message that a batch was split, and which batch size to set."""
    gradient = "with the same gradient"
    if differs:
        gradient = f"but {'; '.join(differs)}"
    return (
        f"out of memory with {count} samples: went on in micro-batches of {micro},"
        f" {gradient}. Next: set the batch size to {micro} and accumulate gradients over"
        " the rest"
    )


def without_frames(problem: BaseException) -> BaseException:
    """The exception after clearing the stack frames of it and its causes, because their variables
    keep tensors alive."""
    cause: BaseException | None = problem
    while cause is not None:
        traceback.clear_frames(cause.__traceback__)
        cause = cause.__cause__ or cause.__context__
    return problem.with_traceback(None)


def _refuse(reasons: list[str], problem: BaseException | None) -> None:
    """Raise CannotRecover if there is any reason against splitting the batch."""
    if not reasons:
        return
    raise CannotRecover(
        f"Splitting the batch would change the training: {'; '.join(reasons)}",
        hint="use a smaller batch size, or name in `allow=` what may differ",
    ) from problem


def what_differs(model: torch.nn.Module, allow: Collection[str] = ()) -> list[str]:
    """The reasons why training in parts would differ because of BatchNorm; [] if there are none or
    `allow` contains `batchnorm`."""
    if "batchnorm" in allow:
        return []
    # In evaluation mode, BatchNorm uses its running statistics.
    names = [
        name
        for name, module in model.named_modules()
        if isinstance(module, BATCH_NORM) and module.training
    ]
    said = f"BatchNorm computes its statistics over one part only ({listed(names)})"
    return [said] if names else []
