"""Each check of the quick level catches what it is there for; on the CPU, with faults put in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from gpusetup.verify.checks import computing
from gpusetup.verify.judging import precision
from gpusetup.verify.judging.precision import (
    IEEE,
    Precision,
    effective_cpu,
    effective_cuda,
    matmul_limit,
)

AMPERE, TURING = (8, 0), (7, 5)
ALLOWED = (Precision("tf32", "torch.backends.cuda.matmul.allow_tf32"),)


def cut_bits(found: torch.Tensor, bits: int) -> torch.Tensor:
    mask = ~((1 << bits) - 1)
    return (found.view(torch.int32) & mask).view(torch.float32)


@pytest.fixture(autouse=True)
def plain_settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("ONEDNN_DEFAULT_FPMATH_MODE", "DNNL_DEFAULT_FPMATH_MODE"):
        monkeypatch.delenv(name, raising=False)
    computing.product()
    before = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize(("bits", "name"), [(13, "tf32"), (16, "bf16")])
def test_coarse_arithmetic_fails_where_no_setting_permits_it_and_is_recognised(
    monkeypatch: pytest.MonkeyPatch, bits: int, name: str
) -> None:
    exact = computing.product()
    coarse = exact._replace(left=cut_bits(exact.left, bits), right=cut_bits(exact.right, bits))
    monkeypatch.setattr(computing, "product", lambda: coarse)
    silent = computing.matmul("cpu")
    assert (silent.status, f"as {name} arithmetic" in silent.detail) == ("failed", True)

    permitted = Precision(name, "a setting")
    monkeypatch.setattr(computing, "read_precision", lambda *_: permitted)
    said = computing.matmul("cpu")
    assert said.status == "passed"
    assert f"{name} by a setting" in said.detail


def test_the_limit_leaves_room_for_one_running_sum() -> None:
    exact = computing.product()
    total = torch.zeros(1000, 1000)
    for k in range(1000):
        total.addr_(exact.left[:, k], exact.right[k])
    worst = float(((total.double() - exact.exact).abs() / exact.scale).max())
    assert matmul_limit("ieee", 1000) / 3 < worst < matmul_limit("ieee", 1000) / 1.5


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
    ],
)
def test_the_effective_precision_of_a_gpu(
    settings: Any, environ: dict[str, str], capability: tuple[int, int], expected: str
) -> None:
    assert effective_cuda(settings, environ, capability).name == expected


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, "ieee"),
        ({"ONEDNN_DEFAULT_FPMATH_MODE": "bf16"}, "bf16"),
        ({"DNNL_DEFAULT_FPMATH_MODE": "TF32"}, "tf32"),
        ({"DNNL_DEFAULT_FPMATH_MODE": "STRICT"}, "ieee"),
    ],
)
def test_the_effective_precision_of_a_cpu(environ: dict[str, str], expected: str) -> None:
    assert effective_cpu((IEEE,), environ).name == expected


@pytest.mark.parametrize(
    ("setting", "cpu", "gpu"),
    [("highest", "ieee", "ieee"), ("high", "tf32", "tf32"), ("medium", "bf16", "tf32")],
)
@pytest.mark.one_in(4)
def test_the_settings_of_the_real_torch_are_read(setting: str, cpu: str, gpu: str) -> None:
    torch.set_float32_matmul_precision(setting)
    assert precision.read_precision(torch, "cpu", None).name == cpu
    assert precision.read_precision(torch, "cuda:0", AMPERE).name == gpu
    assert computing.matmul("cpu").status == "passed"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda found: found * 0, "did not move"),
        (lambda found: found * -0.02, "the loss does not fall"),
    ],
    ids=["lost gradients", "wrong sign"],
)
def test_a_wrong_backward_fails(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[Any], Any], words: str
) -> None:
    step = computing.Descent.step

    def changed(self: computing.Descent) -> None:
        for parameter in self.param_groups[0]["params"]:
            parameter.grad = change(parameter.grad)
        step(self)

    monkeypatch.setattr(computing.Descent, "step", changed)
    found = computing.amp("cpu")
    assert (found.status, words in found.detail) == ("failed", True), found


def test_an_autocast_that_does_nothing_fails() -> None:
    training = computing.Training((1.0, 0.1), True, True, True, "float32", "bfloat16")
    assert "autocast multiplied in float32" in computing.judged(training).detail


@pytest.mark.slow
def test_no_check_imports_the_compiler_or_an_optimizer_of_torch() -> None:
    import subprocess
    import sys

    script = (
        "import sys\n"
        "from gpusetup.verify.checks.table import QUICK, function_of\n"
        "states = [function_of(c)('cpu').status for c in QUICK if 'cpu' in c.on]\n"
        "print(states, 'torch._dynamo' in sys.modules)"
    )
    root = Path(__file__).resolve().parent.parent
    said = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True)
    assert said.stdout == "['passed', 'passed', 'passed'] False\n", said.stderr
