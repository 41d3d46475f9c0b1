"""Forms of the samples of torch's database: named, drawn again, judged as every sample."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from verify_faults.layers import Operator as Faulty
from verify_faults.layers import element

from gpusetup.verify.checks.database import database, known_to
from gpusetup.verify.database.calls import tensors_of
from gpusetup.verify.database.entries import Entry
from gpusetup.verify.database.form_rules import LEFT_OUT
from gpusetup.verify.database.forms import Form, changed, drawn, known
from gpusetup.verify.database.sampling import calls, named, one
from gpusetup.verify.operators.forms import WIDER, InPlace, IntoOut
from gpusetup.verify.values import FAILED, PASSED, Asked, WrongQuestion, ask_for

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
    ask_for(Asked())


@pytest.fixture(scope="module")
def entries() -> dict[str, Entry]:
    return known_to(torch)


def tensors(entries: dict[str, Entry], name: str, seed: int = 5) -> list[Any]:
    """What the sample of a name is called with."""
    sample, call = named(torch, "cpu", entries, name, seed)
    form = Form(entries[sample.entry].run, call)
    made = changed(torch, sample.entry, sample.dtype, form, sample.form, f"{seed}:{name}")
    return tensors_of(torch, (made.call.given, made.call.options))


PARTS = (
    "whole+long-4097+layout",
    "fractions+runs-33+one-grad",
    "special+wide",
    "equal+expanded+thread",
    "broadcast+sorted+twice",
)


@pytest.mark.parametrize("form", PARTS)
def test_a_form_has_the_same_numbers_and_strides_by_its_name(
    entries: dict[str, Entry], form: str
) -> None:
    name = f"add/float32/3/{form}"
    first, again = tensors(entries, name), tensors(entries, name)
    assert [x.stride() for x in first] == [x.stride() for x in again]
    assert all(
        torch.equal(x.nan_to_num(9), y.nan_to_num(9)) for x, y in zip(first, again, strict=True)
    )
    plain = tensors_of(torch, named(torch, "cpu", entries, "add/float32/3", 5)[1].given)
    other = [(x.shape, x.stride(), x.tolist()) for x in plain]
    assert other != [(x.shape, x.stride(), x.tolist()) for x in first]


def test_what_is_drawn_has_names_that_are_asked_again(entries: dict[str, Entry]) -> None:
    for name in ("add", "gather", "sum", "nn.functional.conv2d"):
        drawn_here = [one(torch, "cpu", entries[name], 5, turn)[0][0] for turn in range(8)]
        assert len({sample.name for sample in drawn_here}) > 4
        for sample in drawn_here:
            assert named(torch, "cpu", entries, sample.name, 5)[0] == sample


def test_a_form_that_is_none_is_a_wrong_question(entries: dict[str, Entry]) -> None:
    for text in ("add/float32/3/", "add/float32/3/bad", "add/float32/3/long-", "add/float32/3/+"):
        with pytest.raises(WrongQuestion):
            named(torch, "cpu", entries, text, 5)


def test_every_part_that_is_drawn_is_known(entries: dict[str, Entry]) -> None:
    _, call = next(calls(torch, "cpu", entries["gather"], "float32", 5))
    found = {part for n in range(400) for part in form_of(call, n)}
    assert len(found) > 30
    assert all(known(part) for part in found)
    assert all(rule.reason and rule.names and rule.parts for rule in LEFT_OUT)


def form_of(call: Any, number: int) -> list[str]:
    return drawn(torch, "gather", "float32", call, str(number)).split("+")


def low(when: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def holds(found: Any, args: Any) -> bool:
        return found.dtype not in (torch.float64, torch.int64) and bool(when(found, args))

    return holds


FAULTS = {
    "gather/float32/1/long-4097": low(lambda y, _: y.numel() > 4096),
    "add/float32/3/wide": low(lambda y, _: y.numel() > 32768),
    "cumsum/float32/0/long-33": low(lambda y, _: 33 in y.shape),
    "mul/float32/3/layout+expanded": low(
        lambda y, args: any(
            s == 0 and n > 1
            for x in args
            if isinstance(x, torch.Tensor)
            for s, n in zip(x.stride(), x.shape, strict=True)
        )
    ),
    "maximum/float32/3/special": low(lambda y, _: not bool(y.isfinite().all())),
    "abs/float32/0/whole": low(lambda y, args: bool((args[0] == -3).any())),
    "index_select/float32/2/same-index": low(
        lambda y, args: args[2].numel() > 1 and bool((args[2] == args[2][0]).all())
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_one_form_alone_is_seen_there(name: str) -> None:
    plain_name, _, _ = name.rpartition("/")
    kernel = name.split("/")[0]

    def asked(which: str, seed: int) -> str:
        ask_for(Asked(seed, level="census", only=(f"census-database/{which}",)))
        with Faulty(kernel, element(1.0, 0), when=FAULTS[name], exact=True):
            return database("cpu").status

    seeds = range(4)
    assert FAILED in [asked(name, seed) for seed in seeds]
    assert FAILED not in [asked(plain_name, seed) for seed in seeds]


def test_a_form_without_a_fault_passes_and_says_how_many() -> None:
    ask_for(Asked(3, level="census", only=("census-database/add/float32/3/whole+long-33",)))
    found = database("cpu")
    assert found.status == PASSED
    assert found.detail.startswith("1 sample of 1 entry with seed 3")


@pytest.mark.parametrize("form", [IntoOut, InPlace])
def test_memory_that_is_written_to_is_a_part_of_wider_one(form: Any) -> None:
    x, seen = torch.randn(3, 5), []

    class Seen(TorchDispatchMode):  # type: ignore[misc, unused-ignore]
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            options = kwargs or {}
            over = options.get("out", args[0] if func._schema.name.endswith("_") else None)
            if over is not None and func._schema.name.startswith("aten::exp"):
                seen.append(over.stride())
            return func(*args, **options)

    with Seen(), form(part=True):
        found = x.exp()
    assert seen == [(5 + WIDER, 1)] and torch.equal(found, x.exp()) and found.is_contiguous()
