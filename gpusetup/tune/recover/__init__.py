"""A training step that survives running out of memory, with the same gradient.

    for batch in loader:
        optimizer.zero_grad()
        done = recover_from_oom(lambda part: loss_of(model, part), batch, model=model)
        optimizer.step()

The whole batch is tried first. If memory runs out, everything that the attempt left behind is
taken back (gradients, random numbers, memory), and the batch is cut in halves until the parts
fit; each part's loss counts by its share of the samples, so that the sum of the gradients is the
whole batch's to rounding. The size that fits is kept for the next batches.
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
"""Samples whose gradient is compared with that of their halves, at most."""


class Recovered(Frozen):
    """How one batch was trained."""

    loss: torch.Tensor
    """The whole batch's, detached."""
    batch_size: int
    micro_batch_size: int
    attempts: int
    """1 if nothing ran out."""
    differs: tuple[str, ...] = ()
    """In what the gradient of the parts is not the whole batch's; () if it is, to rounding."""

    @property
    def split(self) -> bool:
        return self.micro_batch_size < self.batch_size


class CannotRecover(GpuSetupError):
    """Memory ran out and splitting is no way out; the cause is the original error."""

    exit_code = 1


class ModelHistory:
    """What earlier batches of a model showed."""

    def __init__(self) -> None:
        self.holds_all_parameters = False
        """Whether the model holds all that its loss trains."""
        self.micro: int | None = None
        """The largest micro-batch that fitted after memory ran out."""
        self.checks: dict[Any, tuple[int, str | None]] = {}
        """Code of the step -> its split batches, and what comparing samples with halves found."""


Backward = Callable[[torch.Tensor], None]
HISTORIES: weakref.WeakKeyDictionary[torch.nn.Module, ModelHistory] = weakref.WeakKeyDictionary()


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
    """Forward and backward of one batch; on out-of-memory again in micro-batches.

    `step(part)` returns the loss of a part, a mean over its samples (`reduction="sum"`: a sum;
    `weight(part)`: what it is a mean over, the tokens that count for example). A loss over pairs of
    samples (contrastive) must not be split. `backward(loss)` replaces `loss.backward()`, as for a
    GradScaler: `lambda loss: scaler.scale(loss).backward()`.

    What splitting would change is refused unless `allow` names it: `batchnorm` (statistics over a
    part differ from those over the batch), `random` (dropout draws other masks; allowed, and said).
    Several ranks are refused: one that splits its batch would leave the others waiting.

    Raises CannotRecover from the original error if one sample does not fit either or splitting
    is refused, and lets every other error through; gradients are then as they were before the call.
    """
    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        raise UsageError(
            "Several ranks train: while one rank splits its batch, the others would wait for it",
            hint="use a smaller batch and gradient accumulation; `gpusetup plan` says which fits",
        )
    undo = Undo(model)
    try:
        if not (count := batch_size(batch)):
            raise UsageError("The batch is empty", hint="leave it out")
        sums = reduction == "sum"
        case = BatchStep(step=step, batch=batch, count=count, sums=sums, weight=weight)
        recovered = _Attempts(case, model, undo, backward).until_it_fits(allow, say)
    except BaseException:
        undo.restore()
        raise
    undo.commit()
    return recovered


class _Attempts:
    """One batch, tried in smaller and smaller parts."""

    def __init__(
        self, case: BatchStep, model: torch.nn.Module, undo: Undo, backward: Backward
    ) -> None:
        self.case, self.model, self.undo, self.backward = case, model, undo, backward
        self.count, self.history = case.count, HISTORIES.setdefault(model, ModelHistory())
        self.part_losses: list[PartLosses] = []
        self.draws_random = False

    def until_it_fits(self, allow: Collection[str], say: Callable[[str], None]) -> Recovered:
        undo = self.undo
        micro, attempts = min(self.count, self.history.micro or self.count), 0
        if micro < self.count:
            _refuse(what_differs(self.model, allow), None)
        while True:
            attempts += 1
            loss, problem = self.attempt(micro)
            self.draws_random |= undo.state.random_was_drawn()
            if self.draws_random and "random" not in allow and (micro < self.count or problem):
                _refuse(["the step draws random numbers (perhaps dropout)"], problem)
            if problem is None:
                break
            undo.reset()
            _refuse(what_differs(self.model, allow), problem)
            if micro == 1:
                message = f"Not even 1 of {self.count} samples fit"
                raise CannotRecover(message, hint=RECOMPUTE_HINT) from problem
            problem = None  # nothing of the failed attempt is held while the next one runs
            micro = -(-micro // 2)
        differs = self.differences() if micro < self.count else []
        if attempts > 1:
            self.history.micro = micro
            gradient = f"but {'; '.join(differs)}" if differs else "with the same gradient"
            say(
                f"out of memory with {self.count} samples: went on in micro-batches of {micro},"
                f" {gradient}. Next: set the batch size to {micro} and accumulate gradients over"
                " the rest"
            )
        return Recovered(
            loss=loss,
            batch_size=self.count,
            micro_batch_size=micro,
            attempts=attempts,
            differs=tuple(differs),
        )

    def attempt(self, micro: int) -> tuple[Any, BaseException | None]:
        """The loss, or the out-of-memory error without the frames that hold the tensors."""
        self.part_losses = []
        try:
            return (self.whole() if micro >= self.count else self.in_parts(micro)), None
        except Exception as problem:
            if not is_out_of_memory(problem):
                if micro >= self.count or isinstance(problem, GpuSetupError):
                    raise
                raise CannotRecover(
                    f"The step fails on a part of the batch: {type(problem).__name__}: {problem}",
                    hint="`step` must accept any number of samples",
                ) from problem
            one: BaseException | None = problem
            while one is not None:
                traceback.clear_frames(one.__traceback__)
                one = one.__cause__ or one.__context__
            return None, problem.with_traceback(None)

    def whole(self) -> torch.Tensor:
        loss = self.case.loss(self.case.batch)
        if not self.history.holds_all_parameters:
            self.undo.check_leaves(loss)
            self.history.holds_all_parameters = True
        self.undo.backward(self.backward, loss)
        return loss.detach()

    def in_parts(self, micro: int) -> torch.Tensor:
        """Forward and backward of every part; the whole batch's loss."""
        total, expected, losses = 0.0, 0.0, []
        for start, stop in cuts(self.count, micro):
            loss, weight = self.case.part(start, stop, self.part_losses)
            if weight == 0:
                continue  # nothing in it counts, and its mean is no number
            # As much as the whole batch counts, if each part did as the first one, by its samples.
            expected = expected or weight * (1.0 if self.case.sums else self.count / (stop - start))
            total += weight
            self.undo.check_leaves(loss)
            counted = loss * (weight / expected)
            self.undo.backward(self.backward, counted)
            losses.append(counted.detach())
        if not losses:
            raise CannotRecover(
                "The batch has nothing that counts for the loss", hint="leave the batch out"
            )
        factor = 1.0 if self.case.sums else expected / total
        if abs(factor - 1) > 1e-12:
            self.undo.rescale(factor)
        return torch.stack(losses).sum() * factor

    def differences(self) -> list[str]:
        """Everything in which the parts do not train as the whole does, in words."""
        uneven = self.case.uneven_losses(self.part_losses)
        differs = [*what_differs(self.model), *uneven]
        hooked = [name for name, one in self.model.named_parameters() if one._backward_hooks]
        if hooked:
            differs.append(f"a hook changes the gradient of each part ({listed(hooked)})")
        if self.draws_random:
            differs.append("the step draws random numbers for each part (perhaps dropout)")
        if changed_buffers := self.undo.state.changed_buffers():
            differs.append(f"each part updates the buffers once ({listed(changed_buffers)})")
        if not uneven and (found := self.compare_halves()):
            differs.append(found)
        return differs

    def compare_halves(self) -> str | None:
        """How the gradient of some samples differs from that of their halves: tried at the first
        batch that is split, the second, the fourth and so on, each time on other samples."""
        code = getattr(self.case.step, "__code__", None)
        calls, difference = self.history.checks.get(code, (0, None))
        calls, micro = calls + 1, max(2, min(self.part_losses[0].samples, LARGEST_CHECK))
        if calls & (calls - 1) == 0 and difference is None and micro <= self.count:
            start = calls.bit_length() * micro % (self.count - micro + 1)
            with self.undo.preserved_state():
                difference = gradient_difference(self.case, start, micro, self.model)
        self.history.checks[code] = calls, difference
        return difference


def _refuse(reasons: list[str], problem: BaseException | None) -> None:
    if reasons:
        raise CannotRecover(
            f"Splitting the batch would change the training: {'; '.join(reasons)}",
            hint="use a smaller batch size, or name in `allow=` what may differ",
        ) from problem


def what_differs(model: torch.nn.Module, allow: Collection[str] = ()) -> list[str]:
    """Why the parts of a batch would not train as the whole does, in words; [] if they would."""
    norms = [
        name for name, one in model.named_modules() if isinstance(one, BATCH_NORM) and one.training
    ]
    refused = norms and "batchnorm" not in allow
    return (
        [f"BatchNorm computes its statistics over one part only ({listed(norms)})"]
        if refused
        else []
    )
