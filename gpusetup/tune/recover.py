"""A training step that survives running out of memory, with the same gradient.

    for batch in loader:
        optimizer.zero_grad()
        done = recover_from_oom(lambda part: loss_of(model, part), batch, model=model)
        optimizer.step()

The whole batch is tried first. Where memory runs out, everything that the attempt left behind is
taken back (gradients, random numbers, memory), and the batch is cut in halves until the parts
fit; each part's loss counts by its share of the samples, so that the sum of the gradients is the
whole batch's to rounding. The size that fits is kept for the next batches.
"""

from __future__ import annotations

import gc
import logging
import os
import platform
import sys
import traceback
import weakref
from collections.abc import Callable, Collection
from typing import Any, Literal

import torch

from gpusetup.errors import GpuSetupError, UsageError
from gpusetup.model.frozen import Frozen
from gpusetup.tune.oom import is_out_of_memory
from gpusetup.tune.ranks import ranks_of
from gpusetup.tune.rungs import Shortage, next_rung
from gpusetup.tune.split import batch_size, cuts, part_of

LOG = logging.getLogger("gpusetup.tune")
Step = Callable[[Any], torch.Tensor]
REMEMBERED: weakref.WeakKeyDictionary[torch.nn.Module, int] = weakref.WeakKeyDictionary()
"""Model -> the largest micro-batch that fitted after memory ran out."""


class Recovered(Frozen):
    """What became of one batch."""

    loss: torch.Tensor
    """The whole batch's, detached."""
    batch_size: int
    micro_batch_size: int
    attempts: int
    """1 where nothing ran out."""

    @property
    def split(self) -> bool:
        return self.micro_batch_size < self.batch_size


class CannotRecover(GpuSetupError):
    """Memory ran out and splitting is no way out; the cause is the original error."""

    exit_code = 1


def recover_from_oom(
    step: Step,
    batch: Any,
    *,
    model: torch.nn.Module,
    backward: Callable[[torch.Tensor], None] | None = None,
    reduction: Literal["mean", "sum"] = "mean",
    weight: Callable[[Any], float] | None = None,
    allow: Collection[str] = ("random",),
    smallest: int = 1,
    size: Callable[[Any], int] = batch_size,
    split: Callable[[Any, int, int], Any] | None = None,
    say: Callable[[str], None] = LOG.warning,
) -> Recovered:
    """Forward and backward of one batch; on out-of-memory again in micro-batches.

    `step(part)` returns the loss of a part, a mean over its samples (`reduction="sum"`: a sum;
    `weight(part)`: what it is a mean over, the tokens that count for example). A loss over pairs of
    samples (contrastive) must not be split. `backward(loss)` replaces `loss.backward()`, as for a
    GradScaler: `lambda loss: scaler.scale(loss).backward()`.

    What splitting would change is refused unless `allow` names it: `batchnorm` (statistics over a
    part differ from those over the batch), `random` (dropout draws other masks; allowed, and said).
    Under DistributedDataParallel every rank must call this for every batch: the backward runs
    without synchronisation, the ranks agree through the store that all have succeeded, and only
    then are the gradients averaged.

    Raises CannotRecover from the original error where `smallest` does not fit either or splitting
    is refused, and lets every other error through; gradients are then as they were before the call.
    """
    count = size(batch)
    if count < 1:
        raise UsageError("The batch is empty", hint="leave it out")
    cutter = split or (lambda whole, start, stop: part_of(whole, start, stop, count))
    case = _Case(step, backward or _backward, reduction, weight, cutter, batch, count)
    ranks = ranks_of(model)
    micro = min(count, REMEMBERED.get(model, count))
    with _Undo(model) as undo, ranks.alone():
        try:
            loss, micro, attempts = _until_it_fits(case, model, micro, undo, allow, smallest, say)
        except BaseException:
            undo.everything()
            ranks.failed()
            raise
        others = ranks.succeeded()
        if others:
            undo.everything()
            raise CannotRecover(f"{others} other rank{'s' if others > 1 else ''} could not recover")
        undo.nothing()
    ranks.average()
    return Recovered(loss=loss, batch_size=count, micro_batch_size=micro, attempts=attempts)


class _Case:
    """What is asked: the step, its batch, and how parts count."""

    def __init__(
        self,
        step: Step,
        backward: Callable[[torch.Tensor], None],
        reduction: str,
        weight: Callable[[Any], float] | None,
        cutter: Callable[[Any, int, int], Any],
        batch: Any,
        count: int,
    ) -> None:
        self.step, self.backward, self.cutter = step, backward, cutter
        self.batch, self.count = batch, count
        self._sum, self._weight = reduction == "sum", weight

    def run(self, micro: int) -> torch.Tensor:
        """Forward and backward of every part; the whole batch's loss."""
        if micro >= self.count:
            return self._part(self.batch, 1.0)
        places = cuts(self.count, micro)
        shares = self._shares(places)
        losses = [
            self._part(self.cutter(self.batch, *place), share)
            for place, share in zip(places, shares, strict=True)
        ]
        return torch.stack(losses).sum()

    def _part(self, part: Any, share: float) -> torch.Tensor:
        loss = self.step(part)
        if not isinstance(loss, torch.Tensor) or loss.dim() != 0:
            raise UsageError(
                "`step` must return the loss, a tensor with one number",
                hint="take its mean over the samples, and leave the backward to us",
            )
        counted = loss if share == 1.0 else loss * share
        self.backward(counted)
        return counted.detach()

    def _shares(self, places: tuple[tuple[int, int], ...]) -> list[float]:
        if self._sum:
            return [1.0] * len(places)
        if self._weight is None:
            return [(stop - start) / self.count for start, stop in places]
        weights = [float(self._weight(self.cutter(self.batch, *place))) for place in places]
        total = sum(weights)
        return [weight / total if total else 0.0 for weight in weights]


def _backward(loss: torch.Tensor) -> None:
    loss.backward()


def _until_it_fits(
    case: _Case,
    model: torch.nn.Module,
    micro: int,
    undo: _Undo,
    allow: Collection[str],
    smallest: int,
    say: Callable[[str], None],
) -> tuple[torch.Tensor, int, int]:
    """The loss, the micro-batch that fitted, and how many attempts it took."""
    attempts = 0
    if micro < case.count:
        _refuse(what_differs(model, allow), None)
    while True:
        attempts += 1
        loss, problem = _attempt(case, micro)
        undo.look_at_random()
        if micro < case.count or problem is not None:
            _refuse(_random_refused(undo, allow), problem)
        if problem is None:
            break
        shortage = _shortage(None)
        undo.attempt()
        _refuse([*what_differs(model, allow), *undo.what_cannot_be_undone()], problem)
        if micro <= smallest:
            said = f"Not even {micro} of {case.count} samples fit"
            raise CannotRecover(said, hint=next_rung(shortage)) from problem
        problem = None  # nothing of the failed attempt is held while the next one runs
        micro = max(smallest, -(-micro // 2))
    if attempts > 1:
        REMEMBERED[model] = micro
        say(_success(case.count, micro, model, undo))
    return loss, micro, attempts


def _random_refused(undo: _Undo, allow: Collection[str]) -> list[str]:
    if undo.random_moved and "random" not in allow:
        return ["the step draws random numbers (dropout?)"]
    return []


def _attempt(case: _Case, micro: int) -> tuple[Any, BaseException | None]:
    """The loss, or the out-of-memory error without the frames that hold the tensors."""
    try:
        return case.run(micro), None
    except Exception as problem:
        if not is_out_of_memory(problem):
            raise
        one: BaseException | None = problem
        while one is not None:
            traceback.clear_frames(one.__traceback__)
            one = one.__cause__ or one.__context__
        return None, problem.with_traceback(None)


def _refuse(reasons: list[str], problem: BaseException | None) -> None:
    if reasons:
        raise CannotRecover(
            f"Splitting the batch would change the training: {'; '.join(reasons)}",
            hint="a smaller batch size, or `allow=` what may differ",
        ) from problem


def what_differs(model: torch.nn.Module, allow: Collection[str] = ()) -> list[str]:
    """Why the parts of a batch would not train as the whole does, in words; [] where they would."""
    reasons: list[str] = []
    norms = [n for n, m in model.named_modules() if isinstance(m, _NORMS) and m.training]
    if norms and "batchnorm" not in allow:
        reasons.append(f"BatchNorm takes its statistics over a part ({_named(norms)})")
    drops = [n for n, m in model.named_modules() if m.training and _drops(m)]
    if drops and "random" not in allow:
        reasons.append(f"dropout draws other masks ({_named(drops)})")
    return reasons


_NORMS = torch.nn.modules.batchnorm._BatchNorm


def _drops(module: torch.nn.Module) -> bool:
    if isinstance(module, torch.nn.modules.dropout._DropoutNd):
        return bool(module.p > 0)
    if isinstance(module, torch.nn.RNNBase | torch.nn.MultiheadAttention):
        return bool(module.dropout > 0)
    return False


def _named(names: list[str]) -> str:
    shown = ", ".join(name or "the model itself" for name in names[:3])
    return f"{shown} and {len(names) - 3} more" if len(names) > 3 else shown


def _success(count: int, micro: int, model: torch.nn.Module, undo: _Undo) -> str:
    differs = what_differs(model)
    if undo.random_moved and not any("dropout" in reason for reason in differs):
        differs.append("random numbers are drawn for each part")
    same = f"but {'; '.join(differs)}" if differs else "with the same gradient"
    said = f"out of memory with {count} samples: went on in micro-batches of {micro}, {same}"
    return f"{said}. Next: {next_rung(_shortage(micro))}"


def _shortage(micro: int | None) -> Shortage:
    used = torch.cuda.is_available() and torch.cuda.is_initialized()
    return Shortage(
        environment=dict(os.environ),
        platform=sys.platform,
        release=platform.release(),
        device="cuda" if used and torch.version.hip is None else "other",
        micro=micro,
        allocated_bytes=torch.cuda.max_memory_allocated() if used else 0,
        reserved_bytes=torch.cuda.max_memory_reserved() if used else 0,
    )


class _Undo:
    """What one call may leave behind, and how it is taken back.

    Gradients that are there already are set aside, so that an attempt that fails half-way can be
    dropped; random numbers go back to where they were; of the buffers, those of BatchNorm are
    copied where there are any, and any other that an attempt changed makes it refuse to go on.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        for parameter in self._parameters:
            if getattr(parameter, "_post_accumulate_grad_hooks", None):
                raise UsageError(
                    "A hook works on the gradients during the backward (an optimizer in it?)",
                    hint="out of memory half-way through could not be taken back",
                )
        norms = [m for m in model.modules() if isinstance(m, _NORMS) and m.training]
        kept = {id(b): b for norm in norms for b in norm.buffers(recurse=False)}
        self._copies = [(buffer, buffer.detach().clone()) for buffer in kept.values()]
        self._others = [
            (name, buffer, buffer._version)
            for name, buffer in model.named_buffers()
            if id(buffer) not in kept
        ]
        self.random_moved = False

    def __enter__(self) -> _Undo:
        self._aside = [p.grad for p in self._parameters]
        for parameter in self._parameters:
            parameter.grad = None
        self._random = _random_state()
        return self

    def __exit__(self, *how: object) -> None:
        """Nothing: `everything` or `nothing` has been called."""

    def look_at_random(self) -> None:
        """Whether an attempt has drawn random numbers."""
        self.random_moved |= not _same(_random_state(), self._random)

    def attempt(self) -> None:
        """Take back a failed attempt: memory, gradients, random numbers, statistics."""
        for parameter in self._parameters:
            parameter.grad = None
        _set_random_state(self._random)
        with torch.no_grad():
            for buffer, copy in self._copies:
                buffer.copy_(copy)
        torch.clear_autocast_cache()
        gc.collect()
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            torch.cuda.empty_cache()

    def what_cannot_be_undone(self) -> list[str]:
        changed = [name for name, buffer, version in self._others if buffer._version != version]
        return (
            [f"buffers were changed that we have no copy of ({_named(changed)})"] if changed else []
        )

    def everything(self) -> None:
        """As it was before the call."""
        self.attempt()
        for parameter, grad in zip(self._parameters, self._aside, strict=True):
            parameter.grad = grad

    def nothing(self) -> None:
        """It worked: what was set aside is added, in place, as autograd would have done."""
        for parameter, grad in zip(self._parameters, self._aside, strict=True):
            if grad is None:
                continue
            if parameter.grad is not None:
                grad.add_(parameter.grad)
            parameter.grad = grad


def _random_state() -> tuple[torch.Tensor, ...]:
    """Of the CPU and, where it is in use, of each CUDA device."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        return (torch.get_rng_state(), *torch.cuda.get_rng_state_all())
    return (torch.get_rng_state(),)


def _same(one: tuple[torch.Tensor, ...], other: tuple[torch.Tensor, ...]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=False))


def _set_random_state(state: tuple[torch.Tensor, ...]) -> None:
    torch.set_rng_state(state[0])
    if len(state) > 1:
        torch.cuda.set_rng_state_all(list(state[1:]))
