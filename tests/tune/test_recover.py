"""Recovery from out-of-memory: the gradient of the whole batch, and nothing left behind (003-17,
004-12)."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from gpusetup.errors import UsageError
from gpusetup.tune import recover_from_oom
from gpusetup.tune.recover import CannotRecover

SAID = "CUDA out of memory. Tried to allocate 2.00 GiB"
COUNT, FITS = 12, 4
Model = Any
Step = Callable[[Any], torch.Tensor]


@pytest.fixture(scope="module", autouse=True)
def what_other_tests_left_is_not_searched() -> Iterator[None]:
    """Recovery collects garbage after each attempt; here only what it made itself is looked at."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


# --- what an attempt leaves behind ----------------------------------------------------------------


def net(*more: torch.nn.Module) -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), *more, torch.nn.Linear(8, 1))


def batch_of(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    return torch.randn(count, 6), torch.randn(count, 1)


class Runs_out(torch.autograd.Function):
    """Memory runs out in the middle of the backward, where some gradients are there already."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, limit: int) -> torch.Tensor:
        ctx.limit = limit
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        if len(grad) > ctx.limit:
            raise torch.OutOfMemoryError(SAID)
        return grad, None


def step_of(model: Any, limit: int, where: str = "backward") -> Step:
    def step(part: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        x, y = part
        hidden = model[0](x)
        if where == "forward" and len(x) > limit:
            raise RuntimeError("CUDA error: out of memory")
        if where == "backward":
            hidden = Runs_out.apply(hidden, limit)
        return (model[1:](hidden) - y).square().mean()

    return step


def gradients(model: torch.nn.Module) -> list[torch.Tensor]:
    return [p.grad.clone() for p in model.parameters()]


@settings(max_examples=10)
@given(
    count=st.integers(1, 40),
    limit=st.integers(1, 40),
    before=st.booleans(),
    where=st.sampled_from(["forward", "backward"]),
)
def test_the_gradient_is_the_whole_batchs_and_adds_to_what_was_accumulated(
    count: int, limit: int, before: bool, where: str
) -> None:
    model, plain = net(), net()
    for one in (model, plain):
        if before:
            step_of(one, 10**9)(batch_of(3)).backward()
    held = model[0].weight.grad
    loss = step_of(plain, 10**9)(batch_of(count))
    loss.backward()
    done = recover_from_oom(
        step_of(model, limit, where), batch_of(count), model=model, say=[].append
    )
    assert done.micro_batch_size <= max(1, limit) and (done.micro_batch_size < count) == (
        count > limit
    )
    torch.testing.assert_close(done.loss, loss.detach())
    torch.testing.assert_close(gradients(model), gradients(plain))
    assert not before or model[0].weight.grad is held, "what was there is added to in place"


def test_where_it_cannot_recover_nothing_has_happened() -> None:
    model = net()
    step_of(model, 10**9)(batch_of(3)).backward()
    batch, held, state = batch_of(8), gradients(model), torch.get_rng_state()

    def labelled(part: Any) -> torch.Tensor:
        step_of(model, 99)(part).backward()
        raise ValueError("bad label")

    with pytest.raises(CannotRecover, match="Not even 1 of 8 samples fit") as told:
        recover_from_oom(step_of(model, 0), batch, model=model)
    assert isinstance(told.value.__cause__, torch.OutOfMemoryError)
    assert "torch.utils.checkpoint" in (told.value.hint or "")
    with pytest.raises(ValueError, match="bad label"):
        recover_from_oom(labelled, batch, model=model)
    torch.testing.assert_close(gradients(model), held, rtol=0, atol=0)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("wrapped", [False, True])
def test_no_tensor_of_a_failed_attempt_stays_in_memory(wrapped: bool) -> None:
    model, alive, refs = net(), [], []

    def failing(part: Any) -> None:
        activation = model[0](part[0])
        refs.append(weakref.ref(activation))
        raise torch.OutOfMemoryError(SAID)

    def step(part: Any) -> torch.Tensor:
        alive.append(sum(ref() is not None for ref in refs))
        try:
            if len(part[0]) > 4:
                failing(part)
        except torch.OutOfMemoryError as problem:
            if wrapped:
                raise RuntimeError("the step failed") from problem
            raise
        return model(part[0]).mean()

    recover_from_oom(step, batch_of(16), model=model, say=[].append)
    assert alive == [0] * 6 and len(refs) == 2


def test_batchnorm_is_refused_and_its_statistics_are_taken_back() -> None:
    model = net(torch.nn.BatchNorm1d(8))
    why = "BatchNorm computes its statistics over one part only"
    with pytest.raises(CannotRecover, match=rf"{why} \(2\)"):
        recover_from_oom(step_of(model, 4), batch_of(8), model=model)
    assert int(model[2].num_batches_tracked) == 0
    model.eval()
    assert recover_from_oom(step_of(model, 4), batch_of(8), model=model).micro_batch_size == 4


# --- the gradient of the parts -------------------------------------------------------------------


class Net(torch.nn.Module):
    """A classifier over tokens."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.head = torch.nn.Embedding(20, 8), torch.nn.Linear(8, 5)
        self.drop = torch.nn.Dropout().eval()

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.drop(self.head(torch.tanh(self.embed(ids))))


def tokens(without: slice = slice(0)) -> dict[str, torch.Tensor]:
    """Texts of several lengths, and some without a token that counts."""
    torch.manual_seed(1)
    ids, labels = torch.randint(0, 20, (COUNT, 7)), torch.randint(0, 5, (COUNT, 7))
    for row in range(COUNT):
        labels[row, 1 + row % 6 :] = -100
    labels[without] = -100
    return {"ids": ids, "labels": labels}


def ce(m: Model, b: Any) -> torch.Tensor:
    return F.cross_entropy(m(b["ids"]).reshape(-1, 5), b["labels"].reshape(-1))


def count_tokens(b: Any) -> float:
    return float((b["labels"] != -100).sum())


def halved(step: Step, fits: int = FITS) -> Step:
    def stepped(part: Any) -> torch.Tensor:
        loss = step(part)
        if len(part["ids"]) > fits:
            raise torch.OutOfMemoryError(SAID)
        return loss

    return stepped


@pytest.mark.parametrize("without", [slice(0), slice(3, 9)])
def test_weights_give_the_gradient_of_a_mean_over_tokens(without: slice) -> None:
    whole, model, batch = Net(), Net(), tokens(without)
    ce(whole, batch).backward()
    step = halved(lambda part: ce(model, part))
    done = recover_from_oom(step, batch, model=model, weight=count_tokens, say=[].append)
    assert done.micro_batch_size < done.batch_size
    torch.testing.assert_close(gradients(model), gradients(whole))


# --- what is refused ------------------------------------------------------------------------------


def test_what_could_not_be_undone_or_split_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch, uncounted = Net(), tokens(), tokens(without=slice(3, 9))
    outside = torch.nn.Parameter(torch.tensor(2.0))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def no_boxes(part: Any) -> torch.Tensor:
        if len(part["ids"]) < COUNT:
            raise ValueError("no boxes")
        return ce(model, part)

    def also_steps(loss: torch.Tensor) -> None:
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    def refused(
        kind: type[Exception], why: str, step: Step, batch: Any = batch, **how: Any
    ) -> None:
        with pytest.raises(kind, match=why):
            recover_from_oom(step, batch, model=model, **how)
        assert all(one.grad is None for one in model.parameters())

    step: Step = halved(lambda part: ce(model, part))
    refused(CannotRecover, "fails on a part of the batch: ValueError: no boxes", halved(no_boxes))
    refused(CannotRecover, "The loss of a part is NaN", step, uncounted)
    refused(UsageError, "not in the model", lambda part: ce(model, part) * outside)
    refused(UsageError, "The backward pass changes the parameters", step, backward=also_steps)
    whole: Step = halved(lambda part: ce(model, part), COUNT)
    refused(UsageError, "The backward pass changes the parameters", whole, backward=also_steps)
    refused(UsageError, "must return the loss", lambda part: model(part["ids"]))
    refused(
        UsageError, "The batch is empty", step, {name: column[:0] for name, column in batch.items()}
    )
    refused(UsageError, "cannot be split", step, {"a": torch.ones(3), "b": torch.ones(4)})
    refused(UsageError, "no tensor", step, {"scale": torch.tensor(1.0)})
    with monkeypatch.context() as ranks:
        ranks.setattr(torch.distributed, "is_initialized", lambda: True)
        ranks.setattr(torch.distributed, "get_world_size", lambda: 2)
        refused(UsageError, "the others would wait for it", step)
    hook = model.head.weight.register_post_accumulate_grad_hook(lambda one: optimizer.step())
    refused(UsageError, "The backward pass changes the parameters", step)
    hook.remove()
