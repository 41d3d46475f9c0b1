"""The census of operators: clean torch passes, a fault in any caller's kernel is seen."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from verify_faults.layers import Operator as Faulty
from verify_faults.layers import always, element, part, scaled

from gpusetup.verify.checks import census
from gpusetup.verify.operators import rounding
from gpusetup.verify.operators.comparing import Sample, compared
from gpusetup.verify.operators.drawing import LAYOUTS, given, laid_out
from gpusetup.verify.operators.releases import loses_weight
from gpusetup.verify.operators.sampling import FAMILIES, drawn, row_of
from gpusetup.verify.values import Asked, WrongQuestion, ask_for

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
    ask_for(Asked())


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.one_in(8)
def test_every_operator_agrees_with_its_definition(family: str) -> None:
    for row in FAMILIES[family]:
        for size in row.sizes[:2]:
            sample = Sample(row.name, row.dtypes[0], "strided", size)
            parts = compared(torch, "cpu", row, sample, 7)
            assert parts, sample.name
            assert [p for p in parts if not p.worst <= 1] == []


def test_names_of_operators_are_unique() -> None:
    rows = [row.name for family in FAMILIES.values() for row in family]
    assert len(set(rows)) == len(rows)


def test_a_draw_takes_each_operator_and_follows_the_seed() -> None:
    for family, count in census.SHARE.items():
        samples = drawn(family, count, 3)
        assert len([s for s in samples if s.size != "edges"]) == count
        assert {s.operator for s in samples} == {row.name for row in FAMILIES[family]}
        assert drawn(family, count, 3) == samples != drawn(family, count, 4)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_layout_keeps_the_values(layout: str) -> None:
    for shape in ((), (5,), (3, 4), (2, 3, 4, 5), (1, 2, 3, 4, 5)):
        values = torch.randn(shape)
        found = laid_out(torch, values, layout)
        assert torch.equal(found, values)


FAULTS = (
    ("reductions", "softmax", "_softmax", scaled(1.001), "long"),
    ("products", "mm", "mm", element(0.1), "tile"),
    ("pointwise", "gelu", "gelu", element(0.01), "long"),
    ("indexing", "index_add", "index_add", element(1.0), "block"),
    ("sorting", "sort", "sort", part(1, element(1, 0)), "warp"),
    ("convolutions", "conv2d", "convolution", element(0.1), "warp"),
    ("pools", "max_pool2d", "max_pool2d_with_indices", part(0, element(9.0)), "warp"),
    ("norms", "batch_norm in training", "native_batch_norm", part(0, scaled(1.01)), "warp"),
)


def of_floats(found: Any, _: Any) -> bool:
    first = found[0] if isinstance(found, tuple) else found
    return bool(first.is_floating_point())


@pytest.mark.parametrize(("family", "name", "kernel", "change", "size"), FAULTS)
@pytest.mark.one_in(4)
def test_a_fault_that_every_caller_gets_is_seen(
    family: str, name: str, kernel: str, change: Any, size: str
) -> None:
    sample = Sample(name, "float32", "contiguous", size)
    assert all(p.worst <= 1 for p in compared(torch, "cpu", row_of(family, name), sample, 5))
    with Faulty(kernel, change, when=of_floats, exact=True):
        parts = compared(torch, "cpu", row_of(family, name), sample, 5)
    assert [p for p in parts if not p.worst <= 1]


def on_thread(found: Any, _: Any) -> bool:
    return threading.current_thread() is not threading.main_thread()


def in_inference(found: Any, _: Any) -> bool:
    return bool(torch.is_inference_mode_enabled())


def by_columns(found: Any, args: Any) -> bool:
    return bool(args[0].dim() == 2 and args[0].stride(0) == 1 and args[0].shape[0] > 1)


def of_length(found: Any, args: Any) -> bool:
    return bool(129 in args[0].shape and found.is_floating_point())


def written_over(found: Any, _: Any) -> Any:
    """An operation in place answers with what it wrote over."""
    return found.fill_(7.0)


def whole_row(name: str, kernel: str, when: Any, overload: str = "") -> list[str]:
    """What is said of a row of the table, with the fault, by the samples that standard draws: of
    five runs the first that sees it, as a run draws not every length of every operator."""
    return next(filter(None, (_of_row(name, kernel, when, overload, n) for n in range(5, 10))), [])


def _of_row(name: str, kernel: str, when: Any, overload: str, seed: int) -> list[str]:
    family = next(f for f, rows in FAMILIES.items() if name in [row.name for row in rows])
    row, said = row_of(family, name), []
    for sample in drawn(family, census.SHARE[family], seed):
        if sample.operator == name:
            change = written_over if kernel.endswith("_") else element(0.5, 0)
            with OnEveryThread(kernel, change, when, overload):
                parts = compared(torch, "cpu", row, sample, seed)
            said += [part.label for part in parts if not part.worst <= 1]
    return said


class OnEveryThread(Faulty):
    """A fault that threads have too, in one overload or all."""

    def __init__(self, kernel: str, change: Any, when: Any, overload: str) -> None:
        super().__init__(kernel, change, when)
        self.kernel, self.overload = kernel, overload

    def __enter__(self) -> Any:
        self.before = threading.Thread.run
        fault, before = self, self.before

        def run(thread: threading.Thread) -> None:
            with Faulty(fault.kernel, fault.change, fault.when):
                before(thread)

        threading.Thread.run = run  # type: ignore[method-assign, assignment]
        return super().__enter__()

    def __exit__(self, *problem: Any) -> None:
        threading.Thread.run = self.before  # type: ignore[method-assign]
        super().__exit__(*problem)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.overload and func._overloadname != self.overload:
            return func(*args, **(kwargs or {}))
        return super().__torch_dispatch__(func, types, args, kwargs)


@pytest.mark.parametrize(
    ("name", "kernel", "when", "overload"),
    [
        ("gelu", "gelu", on_thread, ""),
        ("sigmoid", "sigmoid", in_inference, ""),
        ("mm", "mm", by_columns, ""),
        ("exp", "exp", always, "out"),
        ("tanh", "tanh_", always, ""),
        ("sum", "sum", of_length, ""),
    ],
)
@pytest.mark.one_in(6)
def test_a_fault_of_one_way_to_call_or_one_length_is_seen(
    name: str, kernel: str, when: Any, overload: str
) -> None:
    assert whole_row(name, kernel, when, overload)


def added_in_half(t: Any, x: Any, dim: int) -> Any:
    """As a kernel adds up that rounds after every sixteenth number."""
    total = 0 * x.narrow(dim, 0, 1).sum(dim)
    for some in x.split(16, dim):
        total = total + some.sum(dim)
    return total, total / x.shape[dim]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.one_in(2)
def test_a_sum_that_is_kept_in_half_precision_is_seen(dtype: str) -> None:
    row = row_of("reductions", "long sums in half")
    assert row.exact is not None
    exact, sample = row.exact, Sample(row.name, dtype, "contiguous", "long")
    row = row._replace(exact=lambda t, x, dim: exact(t, x, dim)[:2])
    kept = row._replace(run=added_in_half)
    sound = row._replace(run=lambda t, x, dim: (x.sum(dim), x.mean(dim)))
    assert [p for p in compared(torch, "cpu", kept, sample, 3) if not p.worst <= 1]
    assert max(p.worst for p in compared(torch, "cpu", sound, sample, 3)) < 0.5


def test_a_gradient_of_few_numbers_may_be_nothing_but_a_difference() -> None:
    """Of two numbers' softmax one is nearly 1, and its gradient 1 - 0.9999."""
    row = row_of("reductions", "softmax")
    sample = Sample(row.name, "float32", "contiguous", "tile", 2)
    told = compared(torch, "cpu", row, sample, 9627, anew=True)
    assert [p for p in told if not p.worst <= 1] == []


def test_a_determinant_may_be_negative() -> None:
    row = row_of("algebra", "det")
    sample = Sample(row.name, "float32", "offset", "warp", 4)
    told = compared(torch, "cpu", row, sample, 9612, anew=True)
    assert [p for p in told if not p.worst <= 1] == []
    wrong = row._replace(run=lambda t, x, y: t.ones(2))
    bad = [p for p in compared(torch, "cpu", wrong, sample, 9612, anew=True) if not p.worst <= 1]
    assert bad and {p.label.partition(" ")[0] for p in bad} == {sample.name}


@pytest.mark.parametrize("number", (-3.8, -4.5, -5.5))
def test_one_number_of_which_a_function_leaves_hardly_a_digit(number: float) -> None:
    """1 + erf(x / sqrt(2)) below -3: the other numbers would have told what a roundoff is of."""
    gelu, size = torch.nn.functional.gelu, abs(number) * 2.0**-24
    row = row_of("pointwise", "gelu")._replace(
        make=lambda d: given(torch.full((64,), number, dtype=torch.float64)),
        exact=lambda t, x: gelu(x),
        learns=False,
        slack=1,
    )
    sample = Sample(row.name, "float32", "contiguous", "warp")

    def wrong(by: float) -> bool:
        off = row._replace(run=lambda t, x: gelu(x) + by * size)
        return any(not p.worst <= 1 for p in compared(torch, "cpu", off, sample, 1))

    assert (wrong(0), wrong(2), wrong(100)) == (False, False, True)


def test_a_failure_names_the_sample_that_repeats_it() -> None:
    ask_for(Asked(seed=9, level="standard"))
    with Faulty("sort", part(1, element(1, 0))):
        found = census.sorting("cpu")
    assert found.status == "failed"
    assert found.hint is not None
    words = found.hint.split("`")[1].split()
    name = words[words.index("--only") + 1]
    ask_for(Asked(seed=9, level="standard", only=(name,)))
    assert census.sorting("cpu").status == "passed"
    with Faulty("sort", part(1, element(1, 0))):
        again = census.sorting("cpu")
    assert again.status == "failed"
    assert again.detail.startswith(found.detail.split(" elements")[0])


def test_a_name_that_is_no_sample_is_a_wrong_question() -> None:
    with pytest.raises(WrongQuestion):
        census.named("products", "mm/float32")


def test_a_sticky_error_ends_the_process_and_another_is_a_wrong_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: object) -> list[object]:
        raise RuntimeError(said)

    monkeypatch.setattr(census, "compared", broken)
    said = "CUDA error: an illegal memory access was encountered"
    with pytest.raises(RuntimeError):
        census.sorting("cpu")
    said = "shapes do not fit"
    assert census.sorting("cpu").status == "failed"
    said = "\"sort\" not implemented for 'Half'"
    assert census.sorting("cpu").status == "skipped"


LOST = {"width": 40, "channels": 8, "groups": 2, "dilation": 2, "stride": 1}


@pytest.mark.parametrize(
    "other",
    [
        *({"width": 20}, {"channels": 32}, {"dilation": 1}, {"stride": 2}, {"dtype": torch.half}),
        *({"layout": torch.contiguous_format}, {"arithmetic": "product"}),
    ],
)
def test_the_weights_gradient_is_left_out_where_it_is_known_to_be_unset_alone(other: Any) -> None:
    def lost(**changed: Any) -> bool:
        of = {**LOST, **changed}
        shapes = (1, of["channels"], 9, of["width"]), (of["channels"], of["channels"] // 2, 3, 3)
        as_laid = {"memory_format": of.get("layout", torch.channels_last)}
        tensors = [torch.ones(shape).to(of.get("dtype", torch.bfloat16)) for shape in shapes]
        tensors = [x.contiguous(**as_laid) for x in tensors]
        return loses_weight(torch, of.get("arithmetic", "convolution"), tensors, of)

    assert lost()
    assert not lost(**other)
    assert lost(width=2, stride=3, layout=torch.contiguous_format)
    assert not lost(width=3, stride=3, layout=torch.contiguous_format)


CARELESS: dict[tuple[str, str], tuple[str, Any]] = {
    ("pointwise", "silu"): ("bfloat16", lambda t, x: x * x.float().sigmoid().to(x).detach()),
    ("reductions", "extremes with NaN"): (
        "float32",
        lambda t, x, dim: (*(x.nan_to_num(-9).amax(dim), x.amin(dim)), x.amax(dim), x.amin(dim)),
    ),
    ("convolutions", "depthwise conv2d"): (
        "float32",
        lambda t, x, w, b, **how: t.conv2d(x, w * (t.arange(w.shape[-1]) < 4), b, **how),
    ),
}


@pytest.mark.parametrize("named", CARELESS)
def test_a_formula_that_is_wrong_at_some_numbers_alone_is_seen(named: tuple[str, str]) -> None:
    dtype, wrong = CARELESS[named]
    row = row_of(*named)
    samples = [Sample(row.name, dtype, "contiguous", "warp", turn) for turn in range(4)]
    right, seen = (
        [part.worst <= 1 for sample in samples for part in compared(torch, "cpu", one, sample, 7)]
        for one in (row, row._replace(run=wrong))
    )
    assert all(right)
    assert not all(seen)


def _in_two_parts(t: Any, x: Any, y: Any) -> Any:
    """A product whose partial sums are rounded to half precision."""
    k = x.shape[-1] // 2
    return x[..., :k] @ y[..., :k, :] + x[..., k:] @ y[..., k:, :]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", ["mm", "bmm", "matmul"])
def test_a_half_product_whose_partial_sums_are_rounded_is_seen(name: str, dtype: str) -> None:
    row = row_of("products", name)
    wrong = row._replace(run=_in_two_parts, learns=False)
    samples = [Sample(name, dtype, "contiguous", "warp", turn) for turn in range(3)]
    right, seen = (
        [part.worst <= 1 for sample in samples for part in compared(torch, "cpu", one, sample, 7)]
        for one in (row, wrong)
    )
    assert all(right)
    assert not all(seen)


def test_a_half_product_is_not_held_to_one_rounding_where_the_settings_ask_for_none() -> None:
    """As cuBLAS may split a sum: with the setting that allows it the same product passes."""
    row = row_of("products", "mm")._replace(run=_in_two_parts, roundings=0, roundings_back=0)
    sample = Sample("mm", "bfloat16", "contiguous", "warp")
    assert all(part.worst <= 1 for part in compared(torch, "cpu", row, sample, 7))
    assert not rounding.lessened(torch, "cpu", row, "bfloat16")
    assert rounding.lessened(torch, "cuda:0", row, "bfloat16")
    assert not rounding.lessened(torch, "cuda:0", row, "float32")
