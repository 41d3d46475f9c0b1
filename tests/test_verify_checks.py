"""The quick level, and what it rests on: settings of precision, kernels of a build, libraries."""

from __future__ import annotations

import ctypes.util
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from verify_faults.layers import Operator, coarse, kept_as

from gpusetup.verify.checks import mixed_precision, products
from gpusetup.verify.device import devices, libraries
from gpusetup.verify.device.libraries import Tried
from gpusetup.verify.judging import precision
from gpusetup.verify.judging.precision import IEEE, Precision, effective_cpu, effective_cuda
from gpusetup.verify.worker import raised, served

AMPERE, TURING = (8, 0), (7, 5)
ALLOWED = (Precision("tf32", "torch.backends.cuda.matmul.allow_tf32"),)


@pytest.fixture(autouse=True)
def plain_settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("ONEDNN_DEFAULT_FPMATH_MODE", "DNNL_DEFAULT_FPMATH_MODE"):
        monkeypatch.delenv(name, raising=False)
    before = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(before)


def test_coarse_arithmetic_fails_where_no_setting_permits_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def in_tf32(found: Any, args: Any) -> Any:
        return (coarse(13)(args[0], ()) @ coarse(13)(args[1], ())).clone()

    with Operator("mm", in_tf32, kept_as("float32")):
        assert products.matmul("cpu").status == "failed"
        monkeypatch.setattr(products, "read_precision", lambda *_: Precision("tf32", "a setting"))
        said = products.matmul("cpu")
    assert (said.status, "tf32 by a setting" in said.detail) == ("passed", True)


@pytest.mark.parametrize(
    ("settings", "environ", "capability", "expected"),
    [
        ((IEEE,), {}, AMPERE, "ieee"),
        (ALLOWED, {}, AMPERE, "tf32"),
        (ALLOWED, {}, TURING, "ieee"),
        (ALLOWED, {"NVIDIA_TF32_OVERRIDE": "0"}, AMPERE, "ieee"),
        ((IEEE,), {"NVIDIA_TF32_OVERRIDE": "1"}, AMPERE, "tf32"),
        ((IEEE,), {"NVIDIA_TF32_OVERRIDE": "1"}, TURING, "ieee"),
        ((IEEE,), {"TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1"}, AMPERE, "ieee"),
        ((Precision("bf16", "medium"),), {}, AMPERE, "tf32"),
        ((), {}, AMPERE, "ieee"),
        ((IEEE,), {"ONEDNN_DEFAULT_FPMATH_MODE": "bf16"}, None, "bf16"),
        ((IEEE,), {"DNNL_DEFAULT_FPMATH_MODE": "TF32"}, None, "tf32"),
        ((IEEE,), {"DNNL_DEFAULT_FPMATH_MODE": "STRICT"}, None, "ieee"),
    ],
)
def test_the_effective_precision(
    settings: Any, environ: dict[str, str], capability: tuple[int, int] | None, expected: str
) -> None:
    if capability is None:
        assert effective_cpu(settings, environ).name == expected
    else:
        assert effective_cuda(settings, environ, capability).name == expected


@pytest.mark.parametrize(
    ("setting", "cpu", "gpu"),
    [("highest", "ieee", "ieee"), ("high", "tf32", "tf32"), ("medium", "bf16", "tf32")],
)
@pytest.mark.one_in(4)
def test_the_settings_of_the_real_torch_are_read(setting: str, cpu: str, gpu: str) -> None:
    torch.set_float32_matmul_precision(setting)
    assert precision.read_precision(torch, "cpu", None).name == cpu
    assert precision.read_precision(torch, "cuda:0", AMPERE).name == gpu
    assert products.matmul("cpu").status == "passed"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda found: found * 0, "did not move"),
        (lambda found: found * -0.02, "the loss: "),
    ],
    ids=["lost gradients", "wrong sign"],
)
def test_a_wrong_backward_fails(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[Any], Any], words: str
) -> None:
    step = mixed_precision.Descent.step

    def changed(self: mixed_precision.Descent) -> None:
        for parameter in self.param_groups[0]["params"]:
            parameter.grad = change(parameter.grad)
        step(self)

    monkeypatch.setattr(mixed_precision.Descent, "step", changed)
    found = mixed_precision.amp("cpu")
    assert (found.status, words in found.detail) == ("failed", True), found


@pytest.mark.slow
def test_no_quick_check_imports_the_compiler_or_an_optimizer_of_torch() -> None:
    script = (
        "import sys\n"
        "from gpusetup.verify.checks.table import LEVELS, function_of\n"
        "states = [function_of(c)('cpu').status for c in LEVELS['quick'] if 'cpu' in c.on]\n"
        "print(states, 'torch._dynamo' in sys.modules)"
    )
    root = Path(__file__).resolve().parent.parent
    said = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True)
    assert said.stdout == "['passed', 'passed', 'passed'] False\n", said.stderr


@pytest.mark.parametrize(
    ("built", "capability", "by"),
    [
        ("sm_50 sm_80 sm_86", (8, 9), "sm_86"),
        ("sm_80 sm_90", (8, 6), "sm_80"),
        ("sm_86", (8, 0), None),
        ("sm_80", (8, 7), None),
        ("sm_87", (8, 7), "sm_87"),
        ("sm_87", (8, 9), None),
        ("sm_90a", (9, 0), "sm_90a"),
        ("sm_90 compute_90", (10, 0), "compute_90"),
        ("compute_90a", (10, 0), None),
        ("sm_120", (12, 1), "sm_120"),
        ("sm_100", (12, 0), None),
        ("", (8, 6), None),
    ],
)
def test_what_serves_a_gpu(built: str, capability: tuple[int, int], by: str | None) -> None:
    assert devices.serves(built.split(), capability) == by


NO_DRIVER = "libcuda.so.1: cannot open shared object file: No such file or directory"
NO_CUBLAS = "libcublas.so.12: cannot open shared object file: No such file or directory"


@pytest.mark.parametrize(
    ("problems", "status", "words"),
    [
        (("", ""), "passed", "2 CUDA libraries load"),
        (("", NO_DRIVER), "passed", "1 CUDA libraries load, 1 wait for the driver"),
        (("", NO_CUBLAS), "failed", NO_CUBLAS),
        ((NO_CUBLAS, "libcuda_wrapper.so: invalid ELF header"), "failed", "(and 1 more)"),
        ((), "failed", "no CUDA library"),
    ],
)
def test_libraries_of_an_image(problems: tuple[str, ...], status: str, words: str) -> None:
    found = libraries.judged(tuple(Tried("libtorch_cuda.so", text) for text in problems))
    assert (found.status, words in found.detail) == (status, True), found


def test_the_libraries_that_training_needs_are_found_and_the_others_left(tmp_path: Path) -> None:
    needed = (
        "nvidia/cu13/lib/libcudart.so.13",
        "nvidia/cublas/lib/libcublas.so.12",
        "nvidia/cudnn/lib/libcudnn_engines_precompiled.so.9",
        "torch/lib/libtorch_cuda.so",
    )
    for name in (
        *needed,
        "torch/lib/libtorch_cpu.so",
        "nvidia/cudnn/include/cudnn.h",
        "nvidia/cufile/lib/libcufile_rdma.so.1",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "nvidia_cufft_cu12-11.dist-info").mkdir()
    record = "nvidia/cufft/lib/libcufft.so.11,sha256=x,1\nnvidia/cufft/include/cufft.h,,\n"
    (tmp_path / "nvidia_cufft_cu12-11.dist-info" / "RECORD").write_text(record)
    found = {Path(path).name for path in libraries.libraries_of(str(tmp_path / "torch"))}
    assert found == {*(Path(name).name for name in needed), "libcufft.so.11"}


def test_a_library_is_really_loaded(tmp_path: Path) -> None:
    (tmp_path / "libcublas.so.12").write_bytes(b"cut off")
    assert libraries.load(str(tmp_path / "libcublas.so.12")).problem
    real = ctypes.util.find_library("c")
    assert real is not None and libraries.load(real).problem == ""


def test_an_exception_is_a_failed_check_and_a_sticky_one_spends_the_process() -> None:
    assert raised(RuntimeError("CUDA error: unspecified launch failure\nmore")).spent
    memory = raised(RuntimeError("CUDA out of memory. Tried to allocate"))
    assert (memory.spent, "nvidia-smi" in (memory.hint or "")) == (False, True)
    answer = served({"name": "matmul", "device": "cuda:0"}, verbose=False)
    assert answer["outcome"]["status"] == "failed"
    assert "\n" not in answer["outcome"]["detail"]
