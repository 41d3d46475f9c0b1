"""The gradient of the parts against the whole batch's: exact to 2e-6, or said."""

from __future__ import annotations

import gc
import random
import re
from collections import UserDict, namedtuple
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from gpusetup.errors import UsageError
from gpusetup.tune import recover_from_oom
from gpusetup.tune.recover import CannotRecover, Recovered
from gpusetup.tune.recover.batches import batch_size, part_of


@pytest.fixture(scope="module", autouse=True)
def what_other_tests_left_is_not_searched() -> Iterator[None]:
    """Recovery collects garbage after each attempt; here only what it made itself is looked at."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


EXACT = 2e-6
COUNT, FITS = 12, 4
Model = Any


class Net(torch.nn.Module):
    """A classifier over tokens, or samples."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.head = torch.nn.Embedding(20, 8), torch.nn.Linear(8, 5)
        self.scale = torch.nn.Parameter(torch.ones(()))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.embed(ids))) * self.scale


def tokens(ragged: bool = True) -> dict[str, torch.Tensor]:
    torch.manual_seed(1)
    ids, labels = torch.randint(0, 20, (COUNT, 7)), torch.randint(0, 5, (COUNT, 7))
    if ragged:
        for row in range(COUNT):
            labels[row, 1 + row % 6 :] = -100
    return {"ids": ids, "labels": labels}


def some_without() -> dict[str, torch.Tensor]:
    batch = tokens()
    batch["labels"][3:9] = -100
    return batch


def flat(logits: torch.Tensor) -> torch.Tensor:
    return logits.reshape(-1, 5)


W = torch.tensor([1.0, 5.0, 0.2, 3.0, 0.7])


def ce(m: Model, b: Any, **how: Any) -> torch.Tensor:
    return F.cross_entropy(flat(m(b["ids"])), b["labels"].reshape(-1), **how)


def masked_mean(m: Model, b: Any) -> torch.Tensor:
    each = F.cross_entropy(flat(m(b["ids"])), b["labels"].reshape(-1), reduction="none")
    mask = (b["labels"] != -100).reshape(-1)
    return (each * mask).sum() / mask.sum()


def in_batch(m: Model, b: Any) -> torch.Tensor:
    one = F.normalize(m(b["ids"]).mean(1), dim=-1)
    two = F.normalize(m(b["labels"].clamp(0)).mean(1), dim=-1)
    return F.cross_entropy(one @ two.T * 5, torch.arange(len(one)))


def two_unlike(m: Model, b: Any) -> torch.Tensor:
    return ce(m, b) + 3 * F.mse_loss(m(b["ids"])[..., 0], b["labels"].float())


def bce(m: Model, b: Any) -> torch.Tensor:
    return F.binary_cross_entropy_with_logits(
        m(b["ids"]), (b["labels"][..., None] > 1).float().expand(-1, -1, 5), pos_weight=W
    )


TABLE: tuple[tuple[str, Callable[[Model, Any], torch.Tensor], Any, dict[str, Any], bool], ...] = (
    ("cross entropy", ce, tokens(False), {}, True),
    ("ignored tokens", ce, tokens(), {}, True),
    ("parts without tokens", ce, some_without(), {}, True),
    ("class weights", lambda m, b: ce(m, b, weight=W), tokens(), {}, True),
    ("binary", bce, tokens(), {}, True),
    ("a sum", lambda m, b: ce(m, b, reduction="sum"), tokens(), {"reduction": "sum"}, True),
    ("given weights", masked_mean, tokens(),
     {"weight": lambda b: float((b["labels"] != -100).sum())}, True),
    ("two losses unlike", two_unlike, tokens(), {}, False),
    ("masked by hand", masked_mean, tokens(), {}, False),
    ("a sum taken for a mean", lambda m, b: ce(m, b, reduction="sum"), tokens(), {}, False),
    ("in-batch negatives", in_batch, tokens(), {}, False),
)  # fmt: skip


def halved(step: Callable[[Any], torch.Tensor], fits: int, size: Any) -> Callable[[Any], Any]:
    def stepped(part: Any) -> torch.Tensor:
        loss = step(part)
        if size(part) > fits:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return loss

    return stepped


def off(model: Model, other: Model) -> float:
    pairs = list(zip(model.parameters(), other.parameters(), strict=True))
    norm = sum(float(b.grad.square().sum()) for _, b in pairs if b.grad is not None) ** 0.5
    diff = sum(float((a.grad - b.grad).square().sum()) for a, b in pairs if b.grad is not None)
    return float(diff**0.5 / max(norm, 1e-12))


def tried(
    make: Callable[[], Model], loss: Any, batch: Any, *, fits: int = FITS, **how: Any
) -> tuple[float, Recovered, list[str]]:
    """How far the gradient is off, and what was said."""
    whole, model, said = make(), make(), list[str]()
    loss(whole, batch).backward()
    step = halved(lambda part: loss(model, part), fits, lambda part: len(part["ids"]))
    done = recover_from_oom(step, batch, model=model, say=said.append, **how)
    return off(model, whole), done, said


@pytest.mark.parametrize(
    ("loss", "batch", "how", "exact"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE]
)
@pytest.mark.parametrize("fits", [FITS, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.one_in(2)
def test_exact_or_said(loss: Any, batch: Any, how: Any, exact: bool, fits: int) -> None:
    far, done, said = tried(Net, loss, batch, fits=fits, **how)
    assert done.split and len(said) == 1
    if exact:
        assert far < EXACT
        unchecked = ("gpusetup did not check whether the loss may be split (memory ran out)",)
        assert done.differs == (() if fits > 1 else unchecked), "two samples are none too many"
        assert ("with the same gradient" in said[0]) == (fits > 1)
    else:
        assert not far < EXACT
        assert done.differs and "with the same gradient" not in said[0]


class Routed(torch.nn.Module):
    """Experts whose router begins at nothing: the balance of a part is one, its slope is not."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net, self.router = Net(), torch.nn.Linear(8, 4, bias=False)
        torch.nn.init.zeros_(self.router.weight)

    def balance(self, ids: torch.Tensor) -> torch.Tensor:
        hidden = self.net.embed(ids).flatten(0, 1)
        chosen = F.one_hot(ids.flatten() % 4, 4).float().mean(0)
        return 4 * (chosen * self.router(hidden).softmax(-1).mean(0)).sum()

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.net(ids)


def clamped() -> Model:
    model = Net()
    model.head.weight.register_hook(lambda grad: grad.clamp(-1e-3, 1e-3))
    return model


def normed_inside() -> Model:
    model = Net()
    model.head.register_full_backward_hook(lambda *given: (given[1][0] / given[1][0].norm(),))
    return model


def balanced(model: Model, part: Any) -> torch.Tensor:
    return F.cross_entropy(flat(model(part["ids"])), part["labels"].flatten()) + model.balance(
        part["ids"]
    )


@pytest.mark.parametrize(
    ("make", "loss", "said_of_it"),
    [
        (clamped, lambda model, part: ce(model, part), "hook changes the gradient .*head.weight"),
        (normed_inside, lambda model, part: ce(model, part), "gradient of . samples is .* % off"),
        (Routed, balanced, "gradient of . samples is .* % off"),
    ],
)
def test_what_changes_the_gradient_of_a_part_is_said(
    make: Callable[[], Model], loss: Any, said_of_it: str
) -> None:
    far, done, said = tried(make, loss, tokens(ragged=False))
    assert far > EXACT and "with the same gradient" not in said[0]
    assert re.search(said_of_it, "; ".join(done.differs))


@pytest.mark.parametrize("fits", [FITS, COUNT])
def test_a_backward_that_also_steps_is_refused(fits: int) -> None:
    model, batch = Net(), tokens()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def backward(loss: torch.Tensor) -> None:
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    step = halved(lambda part: ce(model, part), fits, lambda part: len(part["ids"]))
    with pytest.raises(UsageError, match="`backward` changes the parameters"):
        recover_from_oom(step, batch, model=model, backward=backward, say=[].append)


def test_what_is_told_at_the_first_split_is_told_at_every_later_one() -> None:
    model, batch = Net(), tokens()
    step = halved(lambda part: in_batch(model, part), FITS, lambda part: len(part["ids"]))
    found = [recover_from_oom(step, batch, model=model, say=[].append).differs for _ in range(3)]
    assert found[0] and found[0] == found[1] == found[2]


# --- what stands outside of the model -------------------------------------------------------------


def test_a_loss_that_trains_what_the_model_does_not_hold_is_refused_with_the_way() -> None:
    outside = torch.nn.Parameter(torch.tensor(2.0))
    model, batch = Net(), tokens()
    outside.grad = torch.tensor(10.0)
    with pytest.raises(UsageError, match="not in the model"):
        recover_from_oom(lambda part: ce(model, part) * outside, batch, model=model)
    assert outside.grad == 10 and all(one.grad is None for one in model.parameters())


def test_a_buffer_that_is_assigned_anew_is_put_back_and_said() -> None:
    model, batch = Net(), tokens()
    model.register_buffer("calls", torch.zeros(()))

    def loss(part: Any) -> torch.Tensor:
        model.calls = model.calls + 1
        return ce(model, part)

    step = halved(loss, FITS, lambda part: len(part["ids"]))
    done = recover_from_oom(step, batch, model=model, say=[].append)
    assert done.differs == ("each part updates the buffers once (calls)",)
    assert int(model.calls) == 4, "once a part, and none for what failed or was compared"


@pytest.mark.parametrize("draw", ["torch", "python", "numpy"])
def test_random_numbers_go_back_and_are_said(draw: str) -> None:
    numpy = pytest.importorskip("numpy")
    model, batch, drawn = Net(), tokens(), []

    def loss(part: Any) -> torch.Tensor:
        drawn.append(
            float(torch.rand(())) if draw == "torch"
            else random.random() if draw == "python" else numpy.random.rand()
        )  # fmt: skip
        return ce(model, part)

    step = halved(loss, 6, lambda part: len(part["ids"]))
    done = recover_from_oom(step, batch, model=model, say=[].append)
    assert drawn[0] == drawn[1] != drawn[2]
    assert "the step draws random numbers for each part (perhaps dropout)" in done.differs


def test_a_part_that_the_step_cannot_take_is_no_crash() -> None:
    model, batch = Net(), some_without()

    def loss(part: Any) -> torch.Tensor:
        if int((part["labels"] != -100).sum()) == 0:
            raise ValueError("no boxes")
        return ce(model, part)

    step = halved(loss, FITS, lambda part: len(part["ids"]))
    with pytest.raises(CannotRecover, match="fails on a part of the batch: ValueError: no boxes"):
        recover_from_oom(step, batch, model=model)
    assert all(p.grad is None for p in model.parameters())


# --- batches that are no tensors ------------------------------------------------------------------

IMAGES = [torch.randn(3, 8 + n, 9) for n in range(4)]
SAME = [torch.randn(3, 8, 8) for _ in range(5)]
TARGETS = [{"boxes": torch.randn(n, 4), "labels": torch.ones(n)} for n in (4, 1, 4, 4)]


def one_list(batch: Any) -> list[Any]:
    return [batch]


def values(batch: dict[str, Any]) -> list[Any]:
    return list(batch.values())


Pair = namedtuple("Pair", "x y")


def nested(batch: Any) -> list[Any]:
    assert isinstance(batch, UserDict) and isinstance(batch["y"], Pair)
    return [batch["x"], *batch["y"]]


@pytest.mark.parametrize(
    ("batch", "count", "columns"),
    [
        (IMAGES, 4, one_list), (SAME, 5, one_list), ((IMAGES, TARGETS), 4, list),
        ({"images": IMAGES, "targets": TARGETS}, 4, values),
        ([torch.ones(6, 2), torch.ones(6)], 6, list), (["a", "b", "c"], 3, one_list),
        (UserDict(x=torch.ones(6), y=Pair(torch.ones(6), list("abcdef"))), 6, nested),
    ],
)  # fmt: skip
def test_lists_of_samples_are_cut_by_samples(batch: Any, count: int, columns: Any) -> None:
    assert batch_size(batch) == count
    first, rest = part_of(batch, 0, 1, count), part_of(batch, 1, count, count)
    assert {len(one) for one in columns(first)} == {1}
    assert {len(one) for one in columns(rest)} == {count - 1}


def test_what_cannot_be_cut_is_refused_before_it_is_needed() -> None:
    model = Net()
    with pytest.raises(UsageError, match="no tensor"):
        batch_size({"scale": torch.tensor(1.0)})
    with pytest.raises(UsageError, match="cannot be split"):
        recover_from_oom(
            lambda part: model.scale, {"a": torch.ones(3), "b": torch.ones(4)}, model=model
        )
