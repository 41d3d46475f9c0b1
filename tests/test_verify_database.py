"""torch's own database of operators: loaded without a trace, asked sample by sample."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from verify_faults.layers import Operator as Faulty
from verify_faults.layers import element

from gpusetup.verify.checks.database import database, known_to
from gpusetup.verify.database import loading
from gpusetup.verify.database.comparing import NotAsked, compared
from gpusetup.verify.database.entries import Entry, entries
from gpusetup.verify.database.rules import LEFT_OUT, left_out, matches
from gpusetup.verify.database.sampling import calls, named
from gpusetup.verify.values import FAILED, PASSED, SKIPPED, Asked, WrongQuestion, ask_for

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
    ask_for(Asked())


@pytest.fixture(scope="module")
def known() -> dict[str, Entry]:
    return entries(loading.load(torch))


def state() -> tuple[Any, ...]:
    flags = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    generators = random.getstate(), torch.get_rng_state().tolist()
    return (list(sys.argv), dict(os.environ), torch.get_default_dtype(), flags, generators)


def wrong(known: dict[str, Entry], name: str, dtype: str, seed: int = 3) -> list[str]:
    """What is said of the first samples of an entry."""
    said = []
    for sample, call in list(calls(torch, "cpu", known[name], dtype, seed))[:12]:
        try:
            parts = compared(torch, "cpu", known[name], call, dtype, f"{seed}:{sample.name}")
        except NotAsked:
            continue
        said += [f"{sample.name}{part.label}" for part in parts if not part.worst <= 1]
    return said


def test_loading_and_asking_leave_the_process_as_it_was(known: dict[str, Entry]) -> None:
    before = state()
    sys.modules.pop(loading.HOME + "common_methods_invocations", None)
    loading.load(torch)
    ask_for(Asked(3, level="standard", only=("census-database/addmm/float32/1",)))
    assert database("cpu").status == PASSED
    assert state() == before
    torch.backends.cudnn.benchmark = torch.backends.cudnn.benchmark  # may still be set
    assert "expecttest" not in sys.modules or hasattr(sys.modules["expecttest"], "__file__")


def test_a_database_that_cannot_be_loaded_is_a_skip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, loading.HOME + "common_methods_invocations", None)
    known_to.cache_clear()
    found = database("cpu")
    assert found.status == SKIPPED and "cannot be loaded" in found.detail


def test_a_sample_has_the_same_numbers_by_its_name_and_others_by_seed(
    known: dict[str, Entry],
) -> None:
    for sample, call in list(calls(torch, "cpu", known["addmm"], "float32", 5))[:3]:
        again = named(torch, "cpu", known, sample.name, 5)[1]
        other = named(torch, "cpu", known, sample.name, 6)[1]
        assert torch.equal(call.given[1].detach(), again.given[1].detach())
        assert not torch.equal(call.given[1].detach(), other.given[1].detach())
    for text in ("addmm", "addmm/float32/9999", "nothing/float32/0", "addmm/int4/0"):
        with pytest.raises(WrongQuestion):
            named(torch, "cpu", known, text, 5)


def test_most_entries_are_asked_and_each_that_is_not_has_a_reason(known: dict[str, Entry]) -> None:
    database_of_torch = loading.load(torch)
    all_names = {
        ".".join(filter(None, (info.name, info.variant_test_name)))
        for info in (*database_of_torch.operators, *database_of_torch.lists)
    }
    assert len(known) > 0.85 * len(all_names)
    assert all(left_out(name) for name in all_names - set(known))
    assert all(rule.reason and rule.names for rule in LEFT_OUT)
    asked_of_all = [rule.names for rule in LEFT_OUT if not rule.formats]
    assert not [name for name in known if any(matches(name, names) for names in asked_of_all)]


FAULTS = (
    ("addmm", "addmm", element(0.1, 0), "float32"),
    ("gather", "gather", element(1.0, 0), "float32"),
    ("nn.functional.gelu", "gelu", element(0.1, 0), "float32"),
    ("nn.functional.gelu", "gelu_backward", element(0.1, 0), "float32"),
    ("argmax", "argmax", lambda found, _: found + 1, "float32"),
    ("cumsum", "cumsum", element(1, 0), "int32"),
)


@pytest.mark.parametrize(("name", "kernel", "change", "dtype"), FAULTS)
def test_a_fault_in_the_working_format_is_seen(
    known: dict[str, Entry], name: str, kernel: str, change: Any, dtype: str
) -> None:
    working = {getattr(torch, dtype)}

    def low(found: Any, args: Any) -> bool:
        return args[0].dtype in working and found.numel() > 0

    assert not wrong(known, name, dtype)
    with Faulty(kernel, change, when=low, exact=True):
        assert wrong(known, name, dtype)


def test_an_option_that_is_ignored_is_seen(known: dict[str, Entry]) -> None:
    right = torch.linalg.eigh
    row = known["linalg.eigh"]

    def deaf(a: Any, UPLO: str = "L") -> Any:
        return right(a, UPLO=UPLO if a.dtype == torch.float64 else "L")

    faulty = {"linalg.eigh": row._replace(run=deaf)}
    assert not wrong(known, "linalg.eigh", "float32")
    assert any(wrong(faulty, "linalg.eigh", "float32", seed) for seed in range(3))


def test_a_failure_says_how_to_repeat_it(known: dict[str, Entry]) -> None:
    def low(found: Any, args: Any) -> bool:
        return bool(args[0].dtype == torch.float32) and found.numel() > 0

    name = "census-database/addmm/float32/1"
    ask_for(Asked(3, level="census", only=(name,)))
    with Faulty("addmm", element(0.5, 0), when=low, exact=True):
        found = database("cpu")
    assert found.status == FAILED
    assert f"--seed 3 --only {name}`" in str(found.hint)
