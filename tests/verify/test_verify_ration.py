"""The ration: clean torch passes, a fault of any kernel shows, and the process stays as it was."""

from __future__ import annotations

import copy
import itertools
import os
import random
import re
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch
from each_row import each
from verify_faults.layers import SHAPES, element
from verify_faults.layers import Operator as Faulty

from gpusetup.verify.checks import ration
from gpusetup.verify.checks.ration import SOURCES, EntryTurn, chosen, known_to
from gpusetup.verify.database import comparing, loading
from gpusetup.verify.database.calls import Answer, laid_out, tensors_of
from gpusetup.verify.database.comparing import NotAsked, compared
from gpusetup.verify.database.draw import LAYOUTS
from gpusetup.verify.database.rules import LEFT_OUT, reason
from gpusetup.verify.database.ways import directly
from gpusetup.verify.values import FAILED, PASSED, SKIPPED, Asked, Outcome, WrongQuestion, ask_for

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
    ask_for(Asked())


def asked_for(check: str, question: str, seed: int = 3) -> Outcome:
    ask_for(Asked(seed, level="standard", only=(f"{check}/{question}",)))
    return ration.ration(check, "cpu")


def wrong(entry: Any, turns: range) -> bool:
    """Whether any of an entry's questions has a wrong answer."""
    for turn in turns:
        question = entry.question(torch, "cpu", 3, turn)
        try:
            parts = compared(torch, "cpu", question) if question else []
        except NotAsked:
            continue
        if any(not part.worst <= 1 for part in parts):
            return True
    return False


def state() -> tuple[Any, ...]:
    flags = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    generators = random.getstate(), torch.get_rng_state().tolist()
    return (list(sys.argv), dict(os.environ), torch.get_default_dtype(), flags, generators)


def test_loading_and_asking_leave_the_process_as_it_was() -> None:
    before = state()
    sys.modules.pop(loading.HOME + "common_methods_invocations", None)
    loading.load(torch)
    for check, question in (
        ("operators", "addmm/1"),
        ("operators", "attention-in-use/4"),
        ("optimizers", "Adam/0"),
    ):
        found = asked_for(check, question)
        assert (found.status, found.value is not None) == (PASSED, True)
    assert state() == before
    assert "expecttest" not in sys.modules or hasattr(sys.modules["expecttest"], "__file__")


def test_a_database_that_cannot_be_loaded_is_a_skip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, f"{loading.HOME}common_optimizers", None)
    known_to.cache_clear()
    found = asked_for("optimizers", "nothing/0")
    known_to.cache_clear()
    assert found.status == SKIPPED and "cannot be loaded" in found.detail


@pytest.mark.parametrize("check", SOURCES)
def test_in_twenty_consecutive_seeds_each_entry_is_asked(check: str) -> None:
    """Even if only a tenth of the questions fits into the time."""
    known = known_to(torch, check)
    seen = set()
    for seed in range(77, 97):
        ask_for(Asked(seed, level="standard"))
        turns = list(chosen(check, known))
        seen |= {entry.name for entry, _ in turns[: len(turns) // 10]}
    assert seen == {entry.name for entry in known.values()}


def test_a_question_has_the_same_numbers_by_its_name_and_others_by_seed() -> None:
    entry = known_to(torch, "operators")["addmm"]
    first, again, other = (entry.question(torch, "cpu", seed, 7).call.args[1] for seed in (5, 5, 6))
    assert torch.equal(first, again)
    assert first.shape != other.shape or not torch.equal(first, other)
    for text in ("addmm", "nothing/0", "addmm/x"):
        with pytest.raises(WrongQuestion, match="no question of operators"):
            asked_for("operators", text)


def has_no_number(question: Any) -> bool:
    """Whether a NaN or an infinity is among the arguments."""
    given = tensors_of(torch, (question.call.args, question.call.options))
    fractions = [x for x in given if x.is_floating_point() and x.layout == torch.strided]
    return any(not bool(x.isfinite().all()) for x in fractions)


def asks_of_no_number(name: str) -> bool:
    """Whether any of a hundred turns asks an operator what it makes of NaN or infinity."""
    entry = known_to(torch, "operators")[name]
    questions = (entry.question(torch, "cpu", 3, turn) for turn in range(100))
    return any(has_no_number(question) for question in questions if question is not None)


@pytest.mark.parametrize("name", ["special.chebyshev_polynomial_t", "special.bessel_j0", "int"])
def test_what_torch_leaves_open_for_nan_is_not_asked(name: str) -> None:
    """Those have neither a reference in torch's tests nor a gradient. torch 2.11 gives for
    `chebyshev_polynomial_t(nan, n)` its answer to the element before: a sound CPU was called wrong.
    """
    assert not asks_of_no_number(name)


@pytest.mark.parametrize("name", ["maximum", "mul", "exp", "sum", "clamp_min"])
def test_what_programs_compute_with_nan_is_asked(name: str) -> None:
    assert asks_of_no_number(name)


def test_the_question_that_torch_2_11_was_wrongly_failed_for_passes() -> None:
    told = asked_for("operators", "special.chebyshev_polynomial_t/485774589", seed=20_240_607)
    assert told.status == PASSED, told


def test_most_entries_are_asked_and_each_that_is_not_has_a_reason() -> None:
    found = loading.load(torch)
    names = {
        ".".join(filter(None, (info.name, info.variant_test_name)))
        for info in (*found.operators, *found.lists)
    }
    known = set(known_to(torch, "operators"))
    assert len(known & names) > 0.85 * len(names)
    assert all(reason(LEFT_OUT, name) for name in names - known)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.one_in(4)
def test_a_fault_of_any_kernel_is_seen(shape: str) -> None:
    """Of a dozen entries that are drawn."""
    known = known_to(torch, "operators")
    missed = []
    for name in random.Random(shape).sample(sorted(set(known) - {"empty_like"}), 12):
        right, hit = known[name].run, list[bool]()

        def sick(*given: Any, _run: Any = right, _hit: list[bool] = hit, **options: Any) -> Any:
            found = _run(*given, **options)
            several = isinstance(found, (list, tuple))
            first = found[0] if several and found else found
            fits = isinstance(first, torch.Tensor) and first.dtype == torch.float32
            if not fits or not first.numel() or first.layout != torch.strided:
                return found
            changed = SHAPES[shape](first, given)
            if torch.allclose(changed, first, 1e-3, 1e-5, equal_nan=True):
                return found
            _hit.append(True)
            return type(found)([changed, *found[1:]]) if several else changed

        if not wrong(known[name]._replace(run=sick), range(8)) and hit:
            missed.append(name)
    assert len(missed) <= 1, missed


@each(
    "kernel, check, question",
    [
        ("gelu_backward", "operators", "nn.functional.gelu/0"),
        ("sqrt", "optimizers", "Adam/0"),
    ],
)
def test_a_failure_says_how_to_repeat_it(kernel: str, check: str, question: str) -> None:
    def low(found: Any, args: Any) -> bool:
        return bool(args[0].dtype == torch.float32 and found.numel() > 0)

    known_to(torch, check)
    with Faulty(kernel, element(0.1, 0), when=low, exact=True):
        found = asked_for(check, question)
    assert found.status == FAILED
    assert f"--seed 3 --only {check}/{question}" in str(found.hint)


def test_an_optimizer_that_skips_a_parameter_is_seen() -> None:
    entry = known_to(torch, "optimizers")["SGD"]

    class Lazy(torch.optim.SGD):  # type: ignore[misc, unused-ignore]
        def step(self, *rest: Any) -> Any:
            last = self.param_groups[0]["params"][-3]
            last.grad = None if last.dtype == torch.float32 else last.grad
            return super().step(*rest)

    assert not wrong(entry, range(2))
    info = copy.copy(entry.info)
    info.optim_cls = Lazy
    assert wrong(entry._replace(info=info), range(2))


def test_an_answer_that_the_next_one_is_written_over_is_seen() -> None:
    entry = known_to(torch, "operators")["softmax-in-use"]
    kept: dict[Any, Any] = {}

    def run(x: Any, dim: int) -> Any:
        found = torch.softmax(x, dim)
        mine = kept.setdefault((x.dtype, x.shape, x.requires_grad), found)
        return found if mine is found else mine.detach().copy_(found)

    assert wrong(entry._replace(run=run, learns=False), range(32))


def test_an_operator_whose_float64_answers_otherwise_once_more_is_not_judged() -> None:
    entry = known_to(torch, "operators")["linear-layer"]
    numbers = itertools.count()

    def run(*given: Any, steady: bool) -> Any:
        found = torch.nn.functional.linear(*given)
        if steady:
            return found if found.dtype == torch.float64 else found + 1
        return found + next(numbers)

    for steady in (True, False):
        asked = entry._replace(run=partial(run, steady=steady), learns=False)
        assert wrong(asked, range(3)) == steady


def test_an_answer_that_draws_random_numbers_is_not_judged() -> None:
    """The same seed gives other numbers on a GPU: attention's dropout called a sound H100 wrong."""
    entry = known_to(torch, "operators")["linear-layer"]

    def run(*given: Any, draws: bool) -> Any:
        found = torch.nn.functional.linear(*given)
        # One generator for each device, as the formats stand for here.
        seed = 1 if found.dtype == torch.float64 else 2
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            kept = torch.rand(found.shape) if draws else torch.full(found.shape, 1.0 / seed)
        return found * (kept > 0.6).to(found.dtype)

    for draws in (True, False):
        asked = entry._replace(run=partial(run, draws=draws), learns=False)
        assert wrong(asked, range(3)) != draws


@pytest.mark.parametrize("layout", sorted(set(LAYOUTS)))
@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
def test_on_a_gpu_every_layout_keeps_the_alignment_of_torchs_allocator(
    layout: str, dtype: str
) -> None:
    """A fused kernel loads 16 bytes at once: rows and beginnings lie at multiples of that.

    A tensor without numbers (`meta`) stands for the GPU's: it has strides and an offset.
    """
    plain = torch.empty(1, 2, 96, 64, dtype=getattr(torch, dtype), device="meta")
    placed = laid_out(torch, plain, layout)
    size = placed.element_size()
    assert placed.storage_offset() * size % 16 == 0
    steps = [step for step in placed.stride() if step * size >= 16]
    assert all(step * size % 16 == 0 for step in steps), placed.stride()
    assert laid_out(torch, torch.ones(5), "offset").storage_offset() == 1, "on a CPU as before"


def test_the_question_that_ended_a_sound_gpus_process_is_aligned_now() -> None:
    entry = known_to(torch, "operators")["attention-packed"]
    question = entry.question(torch, "cuda:0", 77, 3712)
    assert question.form.layout == "offset" and question.dtype == "float32"
    for given in question.call.args:
        placed = laid_out(torch, given.to("meta"), question.form.layout)
        assert placed.storage_offset() % 4 == 0


@pytest.mark.parametrize(
    "name", ["native_batch_norm", "nn.functional.scaled_dot_product_attention", "int", "unique"]
)
def test_what_torchs_own_tests_do_not_compare_with_the_cpu_is_not_compared(name: str) -> None:
    """A GPU's `native_batch_norm` keeps statistics where a CPU keeps nothing: `shape [2], not [0]`
    called a sound H100 wrong."""
    entry = known_to(torch, "operators")[name]
    assert entry.formats(torch, "cpu") and not entry.formats(torch, "cuda:0")
    assert entry.question(torch, "cuda:0", 20_240_607, 161924856) is None


def test_a_gpu_that_refuses_the_options_of_a_sample_computes_nothing_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Samples are made for the CPU: `linalg.lstsq` has there four drivers, and one on a GPU. The
    CPU stands for the GPU."""
    monkeypatch.setattr(comparing.Comparison, "here", here_on_the_cpu)
    entry = known_to(torch, "operators")["linalg.inv"]

    def refused(words: str) -> bool:
        def run(*given: Any, **options: Any) -> Any:
            if given[0].dtype in (torch.float64, torch.complex128):
                return torch.linalg.inv(*given, **options)
            raise RuntimeError(words)

        question = entry.question(torch, "cuda:0", 3, 0)._replace(entry=entry._replace(run=run))
        return all(part.worst <= 1 for part in compared(torch, "cuda:0", question))

    assert refused("parameter `driver` should be one of (gels)")
    assert not refused("cusolver error: CUSOLVER_STATUS_INVALID_VALUE")


def here_on_the_cpu(
    question: comparing.Comparison, way: Any = directly, layout: str = "", learns: bool = True
) -> Answer:
    """What a GPU would answer."""
    return question.by(way, question.call, layout, learns and bool(question.upstream))


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_of_like_numbers_a_gpu_may_name_another_place(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The CPU stands for the GPU, with its own choice among ties."""
    monkeypatch.setattr(comparing.Comparison, "here", here_on_the_cpu)
    entry = known_to(torch, "operators")["topk"]

    def last_of_ties(x: Any, k: int, largest: bool, shift: int) -> Any:
        values, places = torch.topk(x.flip(-1), k, largest=largest)
        places = x.shape[-1] - 1 - places
        return values, (places + shift) % x.shape[-1]

    def is_right(shift: int) -> bool:
        def run(x: Any, k: int) -> Any:
            if x.dtype == torch.int64:
                return torch.topk(x, k)
            return last_of_ties(x, k, True, shift)

        numbers = torch.tensor([[5, 5, 1, 5, 2], [7, 3, 7, 7, 0]], dtype=torch.int32)
        question = entry.question(torch, "cpu", 3, 0)
        call = question.call._replace(args=(numbers, 2), options={})
        asked = question._replace(call=call, dtype="int32", entry=entry._replace(run=run))
        return all(part.worst <= 1 for part in compared(torch, device, asked))

    assert is_right(0) == (device != "cpu")
    assert not is_right(2)


def test_of_an_internal_step_a_gpus_answer_alone_is_compared() -> None:
    entry = known_to(torch, "operators")["_batch_norm_with_update"]
    counts = []
    for device in ("cpu", "cuda:0"):
        question = entry.question(torch, device, 3, 0)
        returned = question.entry.run(*question.call.args, **question.call.options)
        counts.append(1 if isinstance(returned, torch.Tensor) else len(returned))
    assert counts == [4, 1]


def test_what_programs_use_is_asked_first_and_what_is_compiled_at_first_use_last() -> None:
    known = known_to(torch, "operators")
    order = ration.in_order("operators", known, 7)
    assert sorted(order) == sorted(known)
    assert {known[name].rarity for name in order[:28]} == {0}
    first_share = order[: next(n for n, name in enumerate(order) if name.startswith("special"))]
    assert len(first_share) > 90
    assert sum(name.startswith("nn.functional.") for name in first_share) > 10


def test_what_a_process_cannot_go_on_from_is_one_sentence_and_ends_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*given: Any, **options: Any) -> Any:
        if given[0].dtype == torch.float64:
            return torch.mm(*given)
        raise RuntimeError("CUDA error: misaligned address\nSearch for it in the manual")

    known = known_to(torch, "operators")
    entry = known["product"]._replace(run=broken)
    monkeypatch.setattr(ration, "known_to", lambda torch, check: {**known, "product": entry})
    found = asked_for("operators", "product/9")
    assert (found.status, found.spent) == (FAILED, True)
    assert found.detail.startswith("product/9 ended the process on the GPU: ")
    assert found.detail.endswith("CUDA error: misaligned address")
    assert found.hint and "--only operators/product/9" in found.hint


def test_a_budget_that_ends_is_no_fault_and_the_answer_says_what_was_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = SOURCES["operators"]._replace(seconds={"cpu": 0.5})
    monkeypatch.setitem(SOURCES, "operators", source)
    ask_for(Asked(3, level="standard"))
    found = ration.ration("operators", "cpu")
    assert found.status == PASSED
    assert re.search(r"^\d+ questions to \d+ of \d+ operators with seed 3", found.detail)


def test_larger_samples_are_those_of_the_same_operator_and_hold_no_places() -> None:
    known = known_to(torch, "operators")
    usual, larger = (
        max(max(call.args[0].shape, default=0) for call in calls)
        for calls in (
            known["addmm"].calls(torch, False, "float32", 3),
            known["addmm"].larger_calls(torch, False, "float32", 3),
        )
    )
    assert larger > 16 > usual
    assert not known["_segment_reduce.offsets"].larger_calls(torch, False, "float32", 3)


def test_a_sticky_error_ends_the_process_and_another_is_a_wrong_answer() -> None:
    entry = known_to(torch, "operators")["product"]

    def broken(said: str) -> Any:
        def run(*given: Any, **options: Any) -> Any:
            if given[0].dtype == torch.float64:
                return torch.mm(*given)
            raise RuntimeError(said)

        return entry._replace(run=run)

    found = ration.Answers("operators", 56.0)
    found.ask(torch, "cpu", EntryTurn(broken("kernel stopped"), 0))
    assert found.wrong_count == 1 and found.parts[0].first.endswith("kernel stopped")
    with pytest.raises(RuntimeError, match="illegal memory"):
        found.ask(torch, "cpu", EntryTurn(broken("CUDA error: an illegal memory access"), 0))
