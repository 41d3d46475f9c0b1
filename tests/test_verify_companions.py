"""`verify --with`: each companion is compared with a reference, and a wrong one is caught."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from test_verify_program import results, run
from verifying import started, states

from gpusetup.verify.checks.table import function_of
from gpusetup.verify.companions import companion as trying
from gpusetup.verify.companions.model_bytes import product_model
from gpusetup.verify.companions.rows import COMPANIONS, companions_named
from gpusetup.verify.options import read_options
from gpusetup.verify.values import Outcome, WrongQuestion, verdict
from gpusetup.verify.worker import served

ROWS = {row.name: row for row in COMPANIONS}
ATTEND = """
from gpusetup.verify.companions.companion import attention
import torch
def attend(q, k, v, causal):
    return attention(torch, q, k, v, causal).to(q.dtype)
"""
NORM = """
def norm(x, weight, eps):
    x = x.float()
    return (x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * weight.float()).half()
"""
NUMPY = """
import numpy
def product(a, b):
    return numpy.asarray(a) @ numpy.asarray(b)
"""


class Made(NamedTuple):
    """A companion of a few lines that computes rightly, and the change that makes it wrong."""

    module: str
    source: str
    right: str
    wrong: str


STAND_INS = {
    "flash-attn": Made(
        "flash_attn",
        ATTEND + "def flash_attn_func(q, k, v, causal): return attend(q, k, v, causal)",
        "attend(q, k, v, causal)",
        "attend(q, k, v, False)",
    ),
    "flashinfer-python": Made(
        "flashinfer",
        ATTEND
        + "def single_prefill_with_kv_cache(q, k, v, causal):\n"
        + "    return attend(q[None], k[None], v[None], causal)[0]",
        "attend(q[None], k[None], v[None], causal)[0]",
        "attend(q[None], v[None], k[None], causal)[0]",
    ),
    "jax": Made(
        "jax",
        NUMPY
        + "import contextlib, types\nnumpy = types.SimpleNamespace(\n"
        + "    matmul=lambda a, b, precision: product(a, b), asarray=numpy.asarray)\n"
        + "def devices(kind): return [kind]\n"
        + "def default_device(d): return contextlib.nullcontext()",
        "product(a, b), as",
        "product(a, b) * 1.001, as",
    ),
    "vllm": Made(
        "vllm/_custom_ops",
        NORM + "def rms_norm(out, x, weight, eps): out.copy_(norm(x, weight, eps))",
        "norm(x, weight, eps))",
        "norm(x, weight, 0.1))",
    ),
    "torch-scatter": Made(
        "torch_scatter",
        "import torch\n"
        "def scatter(x, places, dim, reduce):\n"
        "    return torch.zeros(7, 6).index_add(dim, places, x)",
        "places, x)",
        "places.roll(1), x)",
    ),
    "onnxruntime": Made(
        "onnxruntime",
        "class InferenceSession:\n"
        "    def __init__(self, model, providers): self.at = [providers[0][0]]\n"
        "    def get_providers(self): return self.at\n"
        "    def run(self, names, given): return [given['a'] @ given['b']]\n"
        "def get_available_providers(): return ['CPUExecutionProvider']",
        "self.at = [providers[0][0]]",
        "self.at = ['AzureExecutionProvider']",
    ),
}


Put = Callable[..., None]


@pytest.fixture
def put(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Put]:
    """Install a companion of a few lines for this process; every device can."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(trying, "cannot", lambda *_: None)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # one second later it is another source
    before = set(sys.modules)

    def put(name: str, module: str, source: str) -> None:
        write_package(tmp_path, name, module, source)

    yield put
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in str(
            sys.modules[name].__file__
        ):
            del sys.modules[name]


def write_package(folder: Path, name: str, module: str, source: str) -> None:
    head, _, tail = module.partition("/")
    (folder / head).mkdir(exist_ok=True)
    (folder / head / "__init__.py").write_text("" if tail else source)
    if tail:
        (folder / head / f"{tail}.py").write_text(source)
    info = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")


def tried(name: str, device: str = "cpu") -> Outcome:
    return Outcome(**served({"name": name, "device": device}, verbose=False)["outcome"])


@pytest.mark.parametrize("name", STAND_INS)
def test_one_that_is_right_passes_and_one_that_is_not_fails(name: str, put: Put) -> None:
    pytest.importorskip("numpy")
    made = STAND_INS[name]
    assert made.right in made.source
    put(name, made.module, made.source)
    right = tried(name)
    assert right.status == "passed", right.detail
    assert right.detail.startswith(f"{name} 1.0: ")
    for module in [m for m in sys.modules if m.partition(".")[0] == made.module.partition("/")[0]]:
        del sys.modules[module]
    put(name, made.module, made.source.replace(made.right, made.wrong))
    wrong = tried(name)
    assert wrong.status == "failed", wrong.detail


def test_what_is_not_there_is_skipped_with_the_command_that_brings_it(put: Put) -> None:
    found = tried("sageattention")
    assert (found.status, found.hint) == ("skipped", "`gpusetup install sageattention`")


CAUSES = {
    "undefined symbol: _ZN3c104cuda": "built for another torch",
    "libcudart.so.12: cannot open shared object file": "built for another CUDA",
    "Could not load libtorchcodec. FFmpeg is not properly installed": "apt install ffmpeg",
    "libcuda.so.1: cannot open shared object file": "no NVIDIA driver",
}


def test_an_import_that_fails_is_a_failure_with_its_cause(put: Put) -> None:
    for said, cause in CAUSES.items():
        put("torch-scatter", "torch_scatter", f"raise OSError({said!r})")
        found = tried("torch-scatter")
        assert found.status == "failed"
        assert said in found.detail
        assert cause in (found.hint or ""), said
    put("torch-scatter", "torch_scatter", "import not_here_at_all")
    assert tried("torch-scatter").hint == (
        "it needs not_here_at_all, which is not installed: `gpusetup install not_here_at_all`"
    )


def test_a_device_that_cannot_is_said(put: Put, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert trying.cannot("cpu", True, (8, 0)) == "computes on NVIDIA GPUs only"
    assert trying.cannot("cpu", False, (8, 0)) is None
    import torch

    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (7, 5))
    assert trying.cannot("cuda:0", True, (8, 0)) == (
        "needs compute capability 8.0; this GPU has 7.5"
    )


def test_an_image_build_only_imports(put: Put) -> None:
    put("torch-scatter", "torch_scatter", "def scatter(): raise RuntimeError('no GPU')")
    found = tried("torch-scatter", "none")
    assert (found.status, found.detail) == (
        "passed",
        "torch-scatter 1.0 imports; no device to compute on",
    )


def test_each_is_asked_on_each_device_in_a_process_of_its_own() -> None:
    _, answers = run("--with", "torchvision", "Flash_Attn")
    for name in ("torchvision", "flash-attn"):
        assert [f"{name}@cuda:0" in answers.asked, f"{name}@cuda:1" in answers.asked] == [True] * 2
    assert len({row.environment for row in COMPANIONS}) == len(COMPANIONS)
    failed, _ = run("--with", "xformers", **{"xformers__cuda:1": {"status": "crashed"}})
    assert verdict(failed) == "failed"
    assert results(failed)["xformers@cuda:0"] == "passed"


def test_without_a_gpu_nothing_of_it_is_begun() -> None:
    report, _ = run("--with", "xformers", gpu={"status": "failed"})
    assert results(report)["xformers@cuda"] == "skipped"


def test_what_is_not_known_is_a_wrong_question() -> None:
    with pytest.raises(WrongQuestion, match="no computation of it is known"):
        companions_named(("numpy",))
    assert read_options(["--with", "a", "b", "--with", "c"]).beside == ("a", "b", "c")


def test_every_row_can_be_run() -> None:
    assert [row.name for row in COMPANIONS if not callable(function_of(row))] == []


def test_the_model_is_one_that_onnx_reads() -> None:
    onnx = pytest.importorskip("onnx")
    model = onnx.load_model_from_string(product_model(2, 3, 4))
    onnx.checker.check_model(model)


@pytest.mark.slow
def test_one_that_dies_at_its_import_takes_no_other_with_it(tmp_path: Path) -> None:
    write_package(tmp_path, "xformers", "torch_geometric", "import os; os.abort()")
    write_package(tmp_path, "torch-geometric", "torch_geometric", "import os; os.abort()")
    made = STAND_INS["torch-scatter"]
    write_package(tmp_path, "torch-scatter", made.module, made.source)
    said = started(
        *("--device", "cpu", "--json", "--with", "all"),
        environment={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    found = states(json.loads(said.stdout))
    assert found["torch-geometric@cpu"] == "crashed"
    assert found["torch-scatter@cpu"] == "passed"
    assert said.returncode == 1
