"""Recovery from out-of-memory: the same gradient, and nothing left behind."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusetup.errors import UsageError
from gpusetup.tune import recover_from_oom
from gpusetup.tune.recover import CannotRecover, what_differs

HERE = Path(__file__).resolve().parent
SAID = "CUDA out of memory. Tried to allocate 2.00 GiB"


@pytest.fixture(scope="module", autouse=True)
def what_other_tests_left_is_not_searched() -> Iterator[None]:
    """Recovery collects garbage after each attempt; here only what it made itself is looked at."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


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


def step_of(
    model: Any, limit: int, where: str = "forward", seen: list[int] | None = None
) -> Callable[[Any], torch.Tensor]:
    def step(part: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        x, y = part
        if seen is not None:
            seen.append(len(x))
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
    assert done.micro_batch_size <= max(1, limit) and done.split == (count > limit)
    torch.testing.assert_close(done.loss, loss.detach())
    torch.testing.assert_close(gradients(model), gradients(plain))
    assert not before or model[0].weight.grad is held, "what was there is added to in place"


def test_where_it_cannot_recover_nothing_has_happened() -> None:
    model = net()
    step_of(model, 10**9)(batch_of(3)).backward()
    batch, held, state = batch_of(8), gradients(model), torch.get_rng_state()
    with pytest.raises(CannotRecover, match="Not even 1 of 8 samples fit") as told:
        recover_from_oom(step_of(model, 0, "backward"), batch, model=model)
    assert isinstance(told.value.__cause__, torch.OutOfMemoryError)
    assert "torch.utils.checkpoint" in (told.value.hint or "")
    torch.testing.assert_close(gradients(model), held, rtol=0, atol=0)
    assert torch.equal(torch.get_rng_state(), state)


def test_another_error_passes_and_leaves_nothing_behind() -> None:
    model = net()

    def step(part: Any) -> torch.Tensor:
        step_of(model, 99)(part).backward()
        raise ValueError("bad label")

    with pytest.raises(ValueError, match="bad label"):
        recover_from_oom(step, batch_of(4), model=model)
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize("wrapped", [False, True])
def test_no_tensor_of_a_failed_attempt_stays_in_memory(wrapped: bool) -> None:
    import weakref

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
    assert alive == [0] * 9 and len(refs) == 2


def test_batchnorm_is_refused_unless_allowed_and_its_statistics_are_taken_back() -> None:
    model = net(torch.nn.BatchNorm1d(8))
    with pytest.raises(
        CannotRecover, match=r"BatchNorm computes its statistics over one part only \(2\)"
    ):
        recover_from_oom(step_of(model, 4, "backward"), batch_of(8), model=model)
    assert int(model[2].num_batches_tracked) == 0
    said: list[str] = []
    step = step_of(model, 4, "backward")
    recover_from_oom(step, batch_of(8), model=model, allow=("batchnorm",), say=said.append)
    assert int(model[2].num_batches_tracked) == 2, "once for each part, none for what failed"
    assert "but BatchNorm computes its statistics over one part only" in said[0]
    model.eval()
    assert what_differs(model) == []


def test_dropout_is_said_and_can_be_refused() -> None:
    model = net(torch.nn.Dropout(0.5))
    said: list[str] = []
    recover_from_oom(step_of(model, 4), batch_of(8), model=model, say=said.append)
    assert "but the step draws random numbers for each part (perhaps dropout)" in said[0]
    with pytest.raises(CannotRecover, match="draws random numbers"):
        recover_from_oom(step_of(model, 4), batch_of(8), model=model, allow=())


def test_an_optimizer_inside_the_backward_is_refused() -> None:
    model = net()
    model[0].weight.register_post_accumulate_grad_hook(lambda parameter: None)
    with pytest.raises(UsageError, match="A hook changes the gradients"):
        recover_from_oom(step_of(model, 99), batch_of(8), model=model)


def test_what_is_no_mean_loss_is_a_wrong_question() -> None:
    model, (x, _) = net(), batch_of(8)
    with pytest.raises(UsageError, match="must return the loss"):
        recover_from_oom(lambda part: model(part), x, model=model)
    with pytest.raises(UsageError, match="The batch is empty"):
        recover_from_oom(lambda part: model(part).mean(), x[:0], model=model)


@pytest.mark.usefixtures("warm_torch")
def test_real_memory_running_out_is_recovered_from() -> None:
    """A process that may only use so much address space; torch's own CPU allocator complains."""
    done = subprocess.run(
        [sys.executable, str(HERE / "oom_memory.py")],
        env={**os.environ, "PYTHONPATH": str(HERE.parents[1])},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout == "True True True\n", done.stderr[-2000:]


def test_several_ranks_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    with pytest.raises(UsageError, match="the others would wait for it"):
        recover_from_oom(step_of(net(), 99), batch_of(8), model=net())
