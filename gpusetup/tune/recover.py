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
from gpusetup.model.frozen import Frozen, replace
from gpusetup.tune.counts import Counted, Watching
from gpusetup.tune.exact import off_by
from gpusetup.tune.oom import is_out_of_memory
from gpusetup.tune.ranks import ranks_of
from gpusetup.tune.rungs import Shortage, next_rung
from gpusetup.tune.split import batch_size, cuts, part_of
from gpusetup.tune.undo import NORMS, Undo, named

LOG = logging.getLogger("gpusetup.tune")
Step = Callable[[Any], torch.Tensor]
REMEMBERED: weakref.WeakKeyDictionary[torch.nn.Module, Remembered] = weakref.WeakKeyDictionary()
"""Model -> the largest micro-batch that fitted after memory ran out."""
CHECKED: weakref.WeakKeyDictionary[torch.nn.Module, dict[Any, Checked]] = (
    weakref.WeakKeyDictionary()
)
"""Model -> code of the step -> what comparisons of some samples with their halves found."""
MOST_CHECKED = 8
FIRST_WAIT, LAST_WAIT = 8, 1024
"""After how many batches in parts a larger part is tried again; doubled when that fails."""


class Recovered(Frozen):
    """What became of one batch."""

    loss: torch.Tensor
    """The whole batch's, detached."""
    batch_size: int
    micro_batch_size: int
    attempts: int
    """1 where nothing ran out."""
    differs: tuple[str, ...] = ()
    """In what the gradient of the parts is not the whole batch's; () where it is, to rounding."""

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
    ranks = ranks_of(model)
    with Undo(model) as undo, ranks.alone():
        try:
            count = size(batch)
            if count < 1:
                raise UsageError("The batch is empty", hint="leave it out")
            cutter = split or (lambda whole, start, stop: part_of(whole, start, stop, count))
            case = _Case(step, backward or _backward, reduction, weight, cutter, batch, count)
            loss, micro, attempts, differs = _until_it_fits(
                case, model, _start(model, count), undo, allow, smallest, say
            )
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
    return Recovered(
        loss=loss,
        batch_size=count,
        micro_batch_size=micro,
        attempts=attempts,
        differs=tuple(differs),
    )


class Checked(Frozen):
    """How often a step's batches were split, and what the comparisons found."""

    calls: int = 0
    found: str | None = None


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
        self.sums, self._weight = reduction == "sum", weight
        self.parts: list[Counted] = []
        self.rough = False

    def run(self, micro: int, undo: Undo) -> torch.Tensor:
        """Forward and backward of every part; the whole batch's loss."""
        self.parts = []
        if micro >= self.count:
            loss = self.loss(self.batch)
            if not undo.looked_outside():
                undo.outside(loss)
            with undo.steps_refused():
                self.backward(loss)
            return loss.detach()
        total, expected, losses = 0.0, 0.0, []
        for start, stop in cuts(self.count, micro):
            loss, weight = self.part(start, stop)
            if weight == 0:
                continue  # nothing in it counts, and its mean is no number
            expected = expected or weight * (self.divisor(start, stop))
            total += weight
            undo.outside(loss)
            counted = loss * (weight / expected)
            with undo.steps_refused():
                self.backward(counted)
            losses.append(counted.detach())
        if not losses:
            raise CannotRecover("Nothing in the batch counts", hint="leave the batch out")
        factor = 1.0 if self.sums else expected / total
        if abs(factor - 1) > 1e-12:
            undo.rescale(factor)
        return torch.stack(losses).sum() * factor

    def divisor(self, start: int, stop: int) -> float:
        """How many times as much as this part the whole batch counts, by its samples."""
        return 1.0 if self.sums else self.count / (stop - start)

    def part(self, start: int, stop: int) -> tuple[torch.Tensor, float]:
        """A part's loss, and how much it counts."""
        part = self.cutter(self.batch, start, stop)
        with Watching() as seen:
            loss = self.loss(part)
        self.parts.append(seen.counted(stop - start))
        self.rough |= seen.rough
        if self.sums:
            return loss, 1.0
        if self._weight is not None:
            return loss, float(self._weight(part))
        told = self.parts[-1].weight
        return loss, told if told is not None else float(stop - start)

    def loss(self, part: Any) -> torch.Tensor:
        loss = self.step(part)
        if not isinstance(loss, torch.Tensor) or loss.dim() != 0:
            raise UsageError(
                "`step` must return the loss, a tensor with one number",
                hint="take its mean over the samples, and leave the backward to us",
            )
        return loss

    def uneven(self) -> list[str]:
        """What the losses of the parts said that no weight of the parts can make up for."""
        if self.sums or self._weight is not None:
            return []
        weights = [one.weight is not None for one in self.parts]
        if all(weights) or not any(one.divisors for one in self.parts):
            return []
        if len({one.ratios for one in self.parts}) == 1:
            return []
        return ["several losses count differently: a mean over parts (give `weight=`)"]


def _backward(loss: torch.Tensor) -> None:
    loss.backward()


class Remembered(Frozen):
    """The micro-batch that fitted, and when a larger one is tried again."""

    micro: int
    calls: int = 0
    wait: int = FIRST_WAIT


def _start(model: torch.nn.Module, count: int) -> int:
    """The micro-batch to begin with: what fitted, doubled after enough batches that did."""
    known = REMEMBERED.get(model)
    if known is None:
        return count
    return min(count, known.micro * 2 if known.calls >= known.wait else known.micro)


def _remember(model: torch.nn.Module, micro: int, count: int, failed: bool) -> None:
    known = REMEMBERED.get(model)
    if known is None:
        if failed:
            REMEMBERED[model] = Remembered(micro=micro)
    elif micro > known.micro:
        REMEMBERED[model] = Remembered(micro=micro, wait=known.wait)
    elif failed:  # either a try at more, or less fits now
        again = micro == known.micro
        wait = min(known.wait * 2, LAST_WAIT) if again else FIRST_WAIT
        REMEMBERED[model] = Remembered(micro=micro, wait=wait)
    elif count > known.micro:
        REMEMBERED[model] = replace(known, calls=known.calls + 1)


def _until_it_fits(
    case: _Case,
    model: torch.nn.Module,
    micro: int,
    undo: Undo,
    allow: Collection[str],
    smallest: int,
    say: Callable[[str], None],
) -> tuple[torch.Tensor, int, int, list[str]]:
    """The loss, the micro-batch that fitted, how many attempts it took, and what differs."""
    attempts, before = 0, REMEMBERED.get(model)
    if micro < case.count:
        _refuse(what_differs(model, allow), None)
    while True:
        attempts += 1
        loss, problem = _attempt(case, micro, undo)
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
    differs = _differs(case, model, undo) if micro < case.count else []
    _remember(model, micro, case.count, attempts > 1)
    if attempts > 1 and (before is None or micro < before.micro):
        say(_success(case.count, micro, differs))
    return loss, micro, attempts, differs


def _differs(case: _Case, model: torch.nn.Module, undo: Undo) -> list[str]:
    """Everything in which the parts do not train as the whole does, in words; [] where exact."""
    differs = [*what_differs(model), *case.uneven()]
    hooked = [name for name, one in model.named_parameters() if one._backward_hooks]
    if hooked:
        differs.append(f"a hook works on the gradient of each part ({named(hooked)})")
    if undo.random_moved and not any("dropout" in reason for reason in differs):
        differs.append("random numbers are drawn for each part")
    changed = undo.changed_buffers()
    if changed:
        differs.append(f"buffers are updated once for each part ({named(changed)})")
    if not case.uneven() and (found := _checked(case, model, undo)):
        differs.append(found)
    return differs


def _checked(case: _Case, model: torch.nn.Module, undo: Undo) -> str | None:
    """Whether loss and gradient of some samples are those of their halves: tried at the first
    batch that is split, the second, the fourth and so on, each time on other samples."""
    known = CHECKED.setdefault(model, {})
    code = getattr(case.step, "__code__", None)
    before = known.get(code, Checked())
    micro = max(2, min(case.parts[0].samples, MOST_CHECKED))
    calls, found = before.calls + 1, before.found
    if calls & (calls - 1) == 0 and found is None and micro <= case.count:
        start = calls.bit_length() * micro % (case.count - micro + 1)
        with undo.as_now():
            found = off_by(case, start, micro, model)
    known[code] = Checked(calls=calls, found=found)
    return found


def _random_refused(undo: Undo, allow: Collection[str]) -> list[str]:
    if undo.random_moved and "random" not in allow:
        return ["the step draws random numbers (dropout?)"]
    return []


def _attempt(case: _Case, micro: int, undo: Undo) -> tuple[Any, BaseException | None]:
    """The loss, or the out-of-memory error without the frames that hold the tensors."""
    try:
        return case.run(micro, undo), None
    except Exception as problem:
        if not is_out_of_memory(problem):
            if micro >= case.count or isinstance(problem, GpuSetupError):
                raise
            raise CannotRecover(
                f"The step fails on a part of the batch: {type(problem).__name__}: {problem}",
                hint="it must take any number of samples; `smallest=` keeps the parts larger",
            ) from problem
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
    norms = [n for n, m in model.named_modules() if isinstance(m, NORMS) and m.training]
    if norms and "batchnorm" not in allow:
        reasons.append(f"BatchNorm takes its statistics over a part ({named(norms)})")
    drops = [n for n, m in model.named_modules() if m.training and _drops(m)]
    if drops and "random" not in allow:
        reasons.append(f"dropout draws other masks ({named(drops)})")
    return reasons


def _drops(module: torch.nn.Module) -> bool:
    if isinstance(module, torch.nn.modules.dropout._DropoutNd):
        return bool(module.p > 0)
    if isinstance(module, torch.nn.RNNBase | torch.nn.MultiheadAttention):
        return bool(module.dropout > 0)
    return False


def _success(count: int, micro: int, differs: list[str]) -> str:
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
