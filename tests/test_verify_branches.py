"""verify on GPUs that no test machine has: the device, its driver and its messages are played.

Rows are those of `scripts/acceptance/claims.py`.
"""

from __future__ import annotations

import ctypes
import shutil
import tempfile
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from each_row import each
from test_verify_running import SEEN, Answers

from gpusetup.verify import worker
from gpusetup.verify.checks import memory, products
from gpusetup.verify.device import identity, libraries, lock
from gpusetup.verify.options import read_options
from gpusetup.verify.program import Run
from gpusetup.verify.ranks.launch import Rank
from gpusetup.verify.values import Outcome

GIB = 2**30
NOT_SUPPORTED = "CUDA error: CUBLAS_STATUS_NOT_SUPPORTED when calling `cublasGemmEx( handle, opa`"
BROKEN = "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx( handle, opa`"


def says(text: str) -> Callable[..., Any]:
    def raises(*_: Any, **__: Any) -> Any:
        raise RuntimeError(text)

    return raises


def card(free: int, total: int = 80 * GIB, reserved: int = 0) -> Any:
    """torch.cuda of a card with so much memory."""
    return types.SimpleNamespace(
        mem_get_info=lambda _: (free, total),
        memory_reserved=lambda _: reserved,
        empty_cache=lambda: None,
        get_device_properties=lambda _: types.SimpleNamespace(name="NVIDIA A100-SXM4-80GB"),
    )


def test_row_2_a_second_verify_on_one_gpu_knows_of_the_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    one, two = "GPU-1", "GPU-2"
    with lock.alone_on(one) as first, lock.alone_on(one) as second, lock.alone_on(two) as other:
        assert (first, second, other) == (True, False, True)
    with lock.alone_on("GPU-1") as again:
        assert again


def test_row_2_memory_that_others_work_in_is_left_to_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "attributes", lambda _: {})
    monkeypatch.setattr(torch, "cuda", card(free=40 * GIB))
    wanted, why = memory.amount("cuda:0")
    assert wanted == 4 * GIB
    assert "others work on this GPU" in why
    monkeypatch.setattr(torch, "cuda", card(free=40 * GIB, reserved=40 * GIB))
    assert memory.amount("cuda:0")[0] == 36 * GIB


@pytest.mark.parametrize(("local", "asked"), [(0, True), (3, False)])
def test_row_4_one_rank_of_a_node_copies_between_its_gpus(local: int, asked: bool) -> None:
    rank = Rank(local, 8, local, "127.0.0.1", 29500, "node", "job")
    link: Any = types.SimpleNamespace(come_to=lambda _: ["late"], doing=lambda _: None)
    answers = Answers(SEEN)
    Run(read_options(["--level", "standard"]), answers, rank, link).all()
    assert any(name.startswith("peers@") for name in answers.asked) is asked


def test_row_7_the_driver_itself_is_asked_for_more_than_there_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(memory, "driver_refuses", lambda *_: True)
    monkeypatch.setattr(torch, "cuda", card(free=GIB, total=80 * GIB))

    def overdrawn(device: str, count: int) -> Outcome:
        asked.append(count)
        return Outcome("passed", device)

    monkeypatch.setattr(memory, "_overdrawn", overdrawn)
    assert memory.out_of_memory("cuda:0").status == "passed"
    assert asked == [80 * GIB]


@each(
    "said, spent, hint",
    [
        ("CUDA error: an illegal memory access was encountered\nmore", True, "doctor"),
        ("Triton Error [CUDA]: an illegal memory access was encountered", True, "doctor"),
        ("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR", True, "doctor"),
        ("CUDA error: unspecified launch failure", True, "doctor"),
        ("CUDA out of memory. Tried to allocate", False, "nvidia-smi"),
        ("shapes do not fit", False, "doctor"),
    ],
)
def test_row_13_a_sticky_error_ends_the_process(said: str, spent: bool, hint: str) -> None:
    found = worker.raised(RuntimeError(said))
    assert (found.status, found.spent, "\n" in found.detail) == ("failed", spent, False)
    assert hint in (found.hint or "")


def test_row_18_without_a_temporary_folder_what_needs_one_is_skipped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker, "has_scratch", lambda: False)
    for name in ("compile", "dataloader", "language-model", "determinism"):
        found = worker.served({"name": name, "device": "cpu"}, False)["outcome"]
        assert found["status"] == "skipped", name
        assert "TMPDIR" in found["hint"]


@pytest.mark.parametrize(
    "text", ["_int_mm_out_cuda not compiled for this platform.", NOT_SUPPORTED]
)
def test_int8_that_a_library_lacks_is_a_skip_and_that_breaks_is_none(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setattr(torch, "_int_mm", says(text))
    assert products.int8("cpu").status == "skipped"
    monkeypatch.setattr(torch, "_int_mm", says(BROKEN))
    with pytest.raises(RuntimeError, match="EXECUTION_FAILED"):
        products.int8("cpu")


def test_a_check_of_a_gpu_makes_it_the_current_one(monkeypatch: pytest.MonkeyPatch) -> None:
    current: list[str] = []
    monkeypatch.setattr(torch.cuda, "set_device", current.append)
    monkeypatch.setattr(worker, "function_of", lambda _: lambda device: Outcome("passed", device))
    for name, device in (("float8", "cuda:1"), ("gpu", "cuda:1"), ("float8", "cpu")):
        worker.served({"name": name, "device": device}, verbose=False)
    assert current == ["cuda:1"]


# --- which GPU it is ---

DASHED = "00010203-0405-0607-0809-0a0b0c0d0e0f"


def driver(init: int = 0) -> Any:
    def told(found: Any, _: Any) -> int:
        found._obj[:] = list(range(16))
        return 0

    return types.SimpleNamespace(
        cuInit=lambda _: init, cuDeviceGet=lambda *_: 0, cuDeviceGetUuid=told
    )


@each(
    "name, said_by_torch, init, uuid",
    [
        ("Tesla T4", None, 0, f"GPU-{DASHED}"),
        ("Tesla T4", None, 100, None),
        ("Tesla T4", "1234", 100, "GPU-1234"),
        ("NVIDIA A100 MIG 1g.5gb", "whole", 0, f"MIG-{DASHED}"),
        ("NVIDIA A100 MIG 1g.5gb", "whole", 100, "MIG-whole"),
    ],
)
def test_row_37_the_driver_names_a_gpu_before_torch_does(
    name: str,
    said_by_torch: str | None,
    init: int,
    uuid: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    row = types.SimpleNamespace(name=name, uuid=said_by_torch)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: row)
    monkeypatch.setattr(ctypes, "CDLL", lambda _: driver(init))
    assert identity.gpu_uuid(torch, "cuda:0") == uuid


# --- the libraries of an image ---

NO_DRIVER = "libcuda.so.1: cannot open shared object file: No such file or directory"
NO_CUBLAS = "libcublas.so.12: cannot open shared object file: No such file or directory"


@each(
    "problems, status, words",
    [
        (("", ""), "passed", "2 CUDA libraries load"),
        (("", NO_DRIVER), "passed", "1 CUDA libraries load, 1 wait for the driver"),
        (("", NO_CUBLAS), "failed", NO_CUBLAS),
        ((NO_CUBLAS, "libcuda_wrapper.so: invalid ELF header"), "failed", "invalid ELF header"),
        ((), "failed", "no CUDA library"),
    ],
)
def test_libraries_of_an_image(
    problems: tuple[str, ...], status: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(path: str) -> None:
        if problems[int(path[-1])]:
            raise OSError(problems[int(path[-1])])

    monkeypatch.setattr(torch.version, "cuda", "12.4")
    paths = [Path(f"libtorch_cuda.so.{place}") for place in range(len(problems))]
    monkeypatch.setattr(libraries, "libraries_of", lambda _: paths)
    monkeypatch.setattr(ctypes, "CDLL", load)
    found = libraries.libraries_load("none")
    assert (found.status, words in found.detail) == (status, True), found


def test_the_libraries_that_training_needs_are_found_and_the_others_left(tmp_path: Path) -> None:
    wanted = (
        "torch/lib/libtorch_cuda.so",
        "nvidia/cublas/lib/libcublas.so.12",
        "nvidia/cudnn/lib/libcudnn_engines_precompiled.so.9",
        "nvidia/cu13/lib/libcudart.so.13",
        "torch/lib/cudart64_12.dll",
    )
    others = ("torch/lib/libtorch_cpu.so", "nvidia/cudnn/include/cudnn.h")
    for name in (*wanted, *others, "nvidia/cufile/lib/libcufile_rdma.so.1"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "nvidia_cufft_cu12-11.dist-info").mkdir()
    deleted = "nvidia/cufft/lib/libcufft.so.11"
    record = f"{deleted},sha256=x,1\nnvidia/cufft/include/cufft.h,,\n"
    (tmp_path / "nvidia_cufft_cu12-11.dist-info" / "RECORD").write_text(record)
    found = libraries.libraries_of(tmp_path / "torch")
    assert {str(path.relative_to(tmp_path)) for path in found} == {*wanted, deleted}
    shutil.rmtree(tmp_path)
