"""The quick level, and what it rests on: settings of precision, kernels of a build, libraries."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from verify_faults.layers import Operator, coarse, kept_as

from gpusetup.verify.checks import mixed_precision, products
from gpusetup.verify.judging import precision
from gpusetup.verify.judging.precision import (
    IEEE,
    Precision,
    effective_cpu,
    effective_cuda,
)

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
