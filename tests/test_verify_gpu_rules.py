"""verify on GPUs that no test machine has: what libraries refuse there, and what is asked of them.

The device is played: its capability, its driver and its libraries' messages are ours.
"""

from __future__ import annotations

import ctypes
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch

from gpusetup.verify import worker
from gpusetup.verify.checks import functions, memory, moving, networks, products, programs, training
from gpusetup.verify.device import identity
from gpusetup.verify.judging.tolerance import numbers
from gpusetup.verify.ranks import meeting
from gpusetup.verify.values import Outcome

NOT_COMPILED = "_int_mm_out_cuda not compiled for this platform."
NOT_SUPPORTED = "CUDA error: CUBLAS_STATUS_NOT_SUPPORTED when calling `cublasGemmEx( handle, opa`"
BROKEN = "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx( handle, opa`"
OLD_FLOAT8 = (
    "torch._scaled_mm is only supported on CUDA devices with compute capability >= 9.0 or 8.9"
)


def says(text: str) -> Callable[..., Any]:
    def raises(*_: Any, **__: Any) -> Any:
        raise RuntimeError(text)

    return raises


@pytest.mark.parametrize("text", [NOT_COMPILED, NOT_SUPPORTED])
def test_int8_that_a_library_lacks_is_a_skip(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(torch, "_int_mm", says(text))
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


def test_int8_that_breaks_is_no_skip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "_int_mm", says(BROKEN))
    with pytest.raises(RuntimeError, match="EXECUTION_FAILED"):
        products.int8("cpu")


def play(monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int]) -> None:
    """The CPU says that it is a GPU of this capability."""
    for module in (products, networks, training):
        monkeypatch.setattr(module, "capability_of", lambda *_: capability)


@pytest.mark.parametrize("text", [OLD_FLOAT8, "_scaled_mm_out_cuda is not compiled for this one."])
def test_float8_without_products_is_still_proved_as_a_format(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    play(monkeypatch, (8, 9))
    monkeypatch.setattr(torch, "_scaled_mm", says(text))
    found = products.float8("cpu")
    assert found.status == "passed"
    assert "no products for this device" in found.detail


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
    assert products.float8("cpu").status == "passed"
    monkeypatch.setattr(torch, "_scaled_mm", lambda *a, **o: multiply(*a, **o) * 1.01)
    assert products.float8("cpu").status == "failed"


@pytest.mark.parametrize(
    ("capability", "lacks"), [((5, 2), True), ((7, 5), True), ((8, 0), False), ((9, 0), False)]
)
def test_only_gpus_without_bfloat16_may_refuse_it(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], lacks: bool
) -> None:
    play(monkeypatch, capability)
    problem = RuntimeError(NOT_SUPPORTED)
    assert products._lacks(torch, "cuda:0", "bfloat16", problem) is lacks
    assert not products._lacks(torch, "cuda:0", "float16", problem)
    assert not products._lacks(torch, "cuda:0", "bfloat16", RuntimeError(BROKEN))


def test_attention_and_autocast_use_bfloat16_where_there_is_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def formats() -> set[str]:
        parts = networks._by_backend(torch, "cpu", "MATH")
        return {word for part in parts for word in part.label.split() if "float" in word}

    assert formats() == {"float32", "bfloat16", "float16"}
    play(monkeypatch, (7, 5))
    assert formats() == {"float32", "float16"}
    assert training.amp_bfloat16("cpu").status == "skipped"


@pytest.mark.parametrize(
    "text",
    [
        "cuDNN Frontend error: [cudnn_frontend] Error: No execution plans support the graph.",
        "cuDNN Frontend error: No valid engine configs for Matmul_MUL_Reduction_",
        "No available kernel. Aborting execution.",
    ],
)
def test_a_backend_that_takes_no_case_offers_nothing(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", says(text))
    assert networks._by_backend(torch, "cpu", "CUDNN_ATTENTION") == []


def test_a_backend_that_breaks_is_no_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", says(BROKEN))
    with pytest.raises(RuntimeError):
        networks._by_backend(torch, "cpu", "MATH")


@pytest.mark.parametrize("mib", [1, 24, 600, 1000])
def test_the_memory_test_leaves_room_for_its_own_patterns(
    monkeypatch: pytest.MonkeyPatch, mib: int
) -> None:
    """A GPU with little free memory: blocks, a pattern and its comparison fit into what is free."""
    wanted = mib * 2**20
    monkeypatch.setattr(torch, "empty", lambda count, **_: count)
    held = memory._hold(torch, "cuda:0", wanted)
    block = 8 * held[0]
    assert wanted / 2 <= 8 * sum(held)
    assert 8 * sum(held) + block + block // 8 <= wanted


def test_more_work_is_measured_at_once_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[int] = []

    def timed(_: Any, __: str, run: Callable[[], Any]) -> float:
        before = len(ran)
        run()
        return (len(ran) - before) * 0.001

    monkeypatch.setattr(moving, "_timed", timed)
    rate, _ = moving.measured(torch, "cuda:0", lambda: ran.append(1), 5.0)
    assert rate == pytest.approx(5000.0)
    assert len(ran) == 1 + 3 + 7 * 21
    ran.clear()
    moving.measured(torch, "cpu", lambda: ran.append(1), 5.0)
    assert len(ran) == 1 + 7


# --- which GPU it is ---

DIGITS = bytes(range(16))
DASHED = "00010203-0405-0607-0809-0a0b0c0d0e0f"


def driver(**more: Any) -> Any:
    def told(found: Any, _: Any) -> int:
        found._obj[:] = list(DIGITS)
        return 0

    usual = {"cuInit": lambda _: 0, "cuDeviceGet": lambda *_: 0, "cuDeviceGetUuid": told}
    return types.SimpleNamespace(**{**usual, **more})


def test_a_torch_that_says_no_uuid_is_helped_by_the_driver(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    row = types.SimpleNamespace(name="Tesla T4")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: row)
    monkeypatch.setattr(ctypes, "CDLL", lambda _: driver())
    assert identity.gpu_uuid(torch, "cuda:0") == f"GPU-{DASHED}"
    monkeypatch.setattr(ctypes, "CDLL", lambda _: driver(cuInit=lambda _: 100))
    assert identity.gpu_uuid(torch, "cuda:0") is None
    row.uuid = "1234"
    assert identity.gpu_uuid(torch, "cuda:0") == "GPU-1234"


def test_an_instance_is_named_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    row = types.SimpleNamespace(name="NVIDIA H200 MIG 1g.18gb", uuid="1234")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: row)
    assert identity.gpu_uuid(torch, "cuda:0") == "MIG-1234"


def test_a_check_of_a_gpu_makes_it_the_current_one(monkeypatch: pytest.MonkeyPatch) -> None:
    current: list[str] = []
    monkeypatch.setattr(torch.cuda, "set_device", current.append)
    monkeypatch.setattr(worker, "function_of", lambda _: lambda device: Outcome("passed", device))
    for name in ("float8", "gpu"):
        worker.served({"name": name, "device": "cuda:1"}, verbose=False)
    worker.served({"name": "float8", "device": "cpu"}, verbose=False)
    assert current == ["cuda:1"]


def test_ranks_on_gpus_need_nccl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", None)
    found = meeting.meet("cuda:0")
    assert found[:2] == (
        "skipped",
        "this torch is built without NCCL (a CPU build of torch)",
    )


# --- compile ---


def test_a_launcher_without_headers_is_a_skip(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = RuntimeError("Command '['/usr/bin/gcc', 'main.c']' returned non-zero exit status 1.")
    monkeypatch.setattr(programs, "has_headers", lambda: False)
    assert programs._uncompiled(problem).detail == "Python's headers are missing"
    monkeypatch.setattr(programs, "has_headers", lambda: True)
    assert programs._uncompiled(problem).status == "failed"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            "CppCompileError: C++ compile error\n\nCommand:\ng++ -o error: x.cpp\n\nOutput:\n"
            "In file included from x.h:1,\nx.cpp:3:10: fatal error: omp.h: No such file",
            "RuntimeError: CppCompileError: C++ compile error: "
            "x.cpp:3:10: fatal error: omp.h: No such file",
        ),
        (
            "backend='inductor' raised:\nLoweringException: AssertionError: \n  target: aten.x\n",
            "RuntimeError: backend='inductor' raised: LoweringException: AssertionError:",
        ),
        ("it broke\nadvice: set X", "RuntimeError: it broke"),
        ("", "RuntimeError"),
    ],
)
def test_an_error_of_the_compiler_is_told_with_its_cause(said: str, told: str) -> None:
    assert programs._uncompiled(RuntimeError(said)).detail == told


# --- numbers ---


def test_a_matrix_that_is_nearly_singular_fails_no_sound_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its determinant is as uncertain as its inverse is large."""

    def nearly(*arguments: Any, **options: Any) -> Any:
        made = numbers(*arguments, **options)
        if made.shape[-1] == made.shape[-2]:
            made[:, -1] = made[:, 0] + made[:, -1] * 1e-5
        return made

    monkeypatch.setattr(functions, "numbers", nearly)
    parts = {p.label: p for p in functions._solved(torch, "cpu", torch.float32)}
    assert parts["det float32"].worst <= 1
    without = 4 * functions.ORDER**2 * 2.0**-24
    assert parts["det float32"].worst * parts["det float32"].allowed > without
