"""What libraries refuse on some machines is a skip, what breaks there is a failure.

The device is played: its capability and its libraries' messages are ours.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from gpusetup.verify.checks import (
    attention,
    elementwise,
    memory,
    products,
    programs,
    speed,
    training,
)
from gpusetup.verify.values import Outcome

NOT_COMPILED = "_int_mm_out_cuda not compiled for this platform."
NOT_SUPPORTED = "CUDA error: CUBLAS_STATUS_NOT_SUPPORTED when calling `cublasGemmEx( handle, opa`"
BROKEN = "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx( handle, opa`"


def says(text: str) -> Callable[..., Any]:
    def raises(*_: Any, **__: Any) -> Any:
        raise RuntimeError(text)

    return raises


def play(monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int]) -> None:
    """The CPU says that it is a GPU of this capability."""
    for module in (products, attention, elementwise, training):
        monkeypatch.setattr(module, "capability_of", lambda *_: capability)


@pytest.mark.parametrize("text", [NOT_COMPILED, NOT_SUPPORTED, BROKEN])
def test_int8_that_a_library_lacks_is_a_skip(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(torch, "_int_mm", says(text))
    if text == BROKEN:
        with pytest.raises(RuntimeError, match="EXECUTION_FAILED"):
            products.int8("cpu")
    else:
        assert products.int8("cpu").status == "skipped"


def test_int8_is_multiplied_by_columns_where_rows_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = torch._int_mm

    def by_columns(left: Any, right: Any) -> Any:
        if right.is_contiguous():
            raise RuntimeError(NOT_SUPPORTED)
        return real(left, right.contiguous())

    monkeypatch.setattr(torch, "_int_mm", by_columns)
    assert products.int8("cpu").status == "passed"


def test_float8_products_are_asked_for_as_the_libraries_want_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def multiply(left: Any, right: Any, **options: Any) -> Any:
        assert left.is_contiguous()
        assert right.t().is_contiguous()
        assert not (left.shape[0] % 16 or left.shape[1] % 16 or right.shape[1] % 16)
        assert options["scale_a"].dtype == options["scale_b"].dtype == torch.float32
        return (left.float() @ right.float()).to(options["out_dtype"])

    play(monkeypatch, (9, 0))
    monkeypatch.setattr(torch, "_scaled_mm", multiply)
    assert elementwise.float8("cpu").status == "passed"
    monkeypatch.setattr(torch, "_scaled_mm", lambda *a, **o: multiply(*a, **o) * 1.01)
    assert elementwise.float8("cpu").status == "failed"
    monkeypatch.setattr(torch, "_scaled_mm", says("_scaled_mm is only supported on CUDA devices"))
    assert "no products for this device" in elementwise.float8("cpu").detail


@pytest.mark.parametrize(
    ("capability", "text", "status"),
    [
        ((7, 5), NOT_SUPPORTED, "skipped"),
        ((8, 0), NOT_SUPPORTED, "raises"),
        ((7, 5), BROKEN, "raises"),
    ],
)
def test_only_gpus_without_bfloat16_may_refuse_it(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], text: str, status: str
) -> None:
    play(monkeypatch, capability)
    monkeypatch.setattr(products, "multiplied", says(text))
    if status == "skipped":
        assert products.bfloat16("cpu").status == "skipped"
    else:
        with pytest.raises(RuntimeError):
            products.bfloat16("cpu")
    with pytest.raises(RuntimeError):
        products.float16("cpu")


def test_attention_and_autocast_use_bfloat16_where_there_is_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def formats() -> set[str]:
        parts = attention.by_backend("cpu", "MATH")
        return {word for part in parts for word in part.label.split() if "float" in word}

    assert formats() == {"float32", "bfloat16", "float16"}
    play(monkeypatch, (7, 5))
    assert formats() == {"float32", "float16"}
    assert training.amp_bfloat16("cpu").status == "skipped"


@pytest.mark.parametrize(
    "text",
    [
        "cuDNN Frontend error: [cudnn_frontend] Error: No execution plans support the graph.",
        "No available kernel. Aborting execution.",
        BROKEN,
    ],
)
def test_a_backend_that_takes_no_case_offers_nothing(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", says(text))
    if text == BROKEN:
        with pytest.raises(RuntimeError):
            attention.by_backend("cpu", "MATH")
    else:
        assert attention.by_backend("cpu", "CUDNN_ATTENTION") == []


@pytest.mark.parametrize("mib", [1, 24, 600, 1000])
def test_the_memory_test_leaves_room_for_its_own_patterns(
    monkeypatch: pytest.MonkeyPatch, mib: int
) -> None:
    """A GPU with little free memory: blocks, a pattern and its comparison fit into what is free."""
    wanted = mib * 2**20
    monkeypatch.setattr(torch, "empty", lambda count, **_: count)
    held = memory.blocks("cuda:0", wanted)
    block = 8 * held[0]
    assert wanted / 2 <= 8 * sum(held)
    assert 8 * sum(held) + block + block // 8 <= wanted


def test_more_work_is_measured_at_once_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[int] = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda _: None)
    monkeypatch.setattr("time.perf_counter", lambda: 0.001 * len(ran))
    rate, _ = speed.measured("cuda:0", lambda: ran.append(1), 5.0)
    assert rate == pytest.approx(5000.0)
    assert len(ran) == 1 + 3 + 7 * 21


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            "CppCompileError: C++ compile error\n\nCommand:\ng++ x.cpp\n\nOutput:\n"
            "In file included from x.h:1,\nx.cpp:3:10: fatal error: omp.h: No such file",
            "RuntimeError: CppCompileError: C++ compile error: "
            "x.cpp:3:10: fatal error: omp.h: No such file",
        ),
        ("it broke\nadvice: set X", "RuntimeError: it broke"),
    ],
)
def test_an_error_of_the_compiler_is_told_with_its_cause(said: str, told: str) -> None:
    assert programs.uncompiled(RuntimeError(said)).detail == told


@pytest.mark.parametrize("judge", [programs.uncompiled, programs.unloaded])
def test_a_sticky_error_ends_the_process(judge: Callable[[Exception], Outcome]) -> None:
    assert judge(RuntimeError("CUDA error: unspecified launch failure")).spent
    assert not judge(RuntimeError("shapes do not fit")).spent
