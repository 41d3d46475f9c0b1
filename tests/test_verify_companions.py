"""`verify --with`: each companion is compared with a reference, and a wrong one is caught."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from each_row import each
from test_verify_running import results, run

from gpusetup.verify.companions import companion as trying
from gpusetup.verify.companions import rows
from gpusetup.verify.companions.rows import COMPANIONS, TABLE
from gpusetup.verify.values import Outcome, verdict
from gpusetup.verify.worker import served

ATTEND = """
from gpusetup.verify.companions.computations import exact_attention
import torch
def attend(q, k, v): return exact_attention(torch, q, k, v).to(q.dtype)
"""
STAND_INS = {
    "flash-attn": (
        "flash_attn",
        ATTEND + "def flash_attn_func(q, k, v, causal): return attend(q, k, v)",
        ("attend(q, k, v)\n", "attend(q, v, k)\n"),
    ),
    "flashinfer-python": (
        "flashinfer",
        ATTEND + "def single_prefill_with_kv_cache(q, k, v, causal):\n"
        "    return attend(q[None], k[None], v[None])[0]",
        ("attend(q[None], k[None], v[None])", "attend(q[None], v[None], k[None])"),
    ),
}
"""Companions of a few lines: the module, what computes rightly, and the change that does not."""


def write_package(folder: Path, name: str, module: str, source: str) -> None:
    head, _, tail = module.partition("/")
    (folder / head).mkdir(exist_ok=True)
    (folder / head / "__init__.py").write_text("" if tail else source)
    (folder / head / f"{tail or 'none'}.py").write_text(source)
    info = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")


class Tries:
    """Installs a companion of a few lines for this process and tries it; every device can."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.patch = folder, monkeypatch
        monkeypatch.syspath_prepend(str(folder))
        monkeypatch.setattr(rows, "cannot", lambda *_: "")
        monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def __call__(self, name: str, module: str, source: str, device: str = "cpu") -> Outcome:
        write_package(self.folder, name, module, source)
        self._forget(module)
        self.patch.setenv(trying.VARIABLE, name)
        found = served({"name": name, "device": device}, verbose=False)
        self._forget(module)
        return Outcome(**found["outcome"])

    def _forget(self, module: str) -> None:
        head = module.partition("/")[0]
        for name in [one for one in sys.modules if one.partition(".")[0] == head]:
            del sys.modules[name]


@pytest.fixture
def tries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tries:
    return Tries(tmp_path, monkeypatch)


@pytest.mark.parametrize("name", STAND_INS)
def test_one_that_is_right_passes_and_one_that_is_not_fails(name: str, tries: Tries) -> None:
    module, source, change = STAND_INS[name]
    right = tries(name, module, source + "\n")
    assert right.status == "passed", right.detail
    assert right.detail.startswith(f"{name} 1.0: ")
    assert change[0] in source + "\n"
    wrong = tries(name, module, (source + "\n").replace(*change))
    assert wrong.status == "failed", wrong.detail


@each(
    "source, cause",
    [
        ("raise OSError('undefined symbol: _ZN3c104cuda')", "built for another torch"),
        ("raise OSError('libcudart.so.12: cannot open')", "built for another CUDA"),
        ("raise OSError('FFmpeg is not properly installed')", "apt install ffmpeg"),
        ("raise OSError('libcuda.so.1: cannot open')", "no NVIDIA driver"),
        ("import not_here_at_all", "`gpusetup install not_here_at_all`"),
        ("raise OSError('odd')", '`python -c "import torch_scatter"`'),
    ],
)
def test_an_import_that_fails_is_a_failure_with_its_cause(
    source: str, cause: str, tries: Tries
) -> None:
    found = tries("torch-scatter", "torch_scatter", source)
    assert found.status == "failed"
    assert cause in (found.hint or "")


def test_what_is_not_there_is_skipped_and_an_image_build_only_imports(
    tries: Tries, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "def scatter(): raise RuntimeError('no GPU')"
    found = tries("torch-scatter", "torch_scatter", source, "none")
    told = "torch-scatter 1.0 imports; nothing was computed"
    assert (found.status, found.detail) == ("passed", told)
    monkeypatch.setenv(trying.VARIABLE, "sageattention")
    missing = served({"name": "sageattention", "device": "cpu"}, False)["outcome"]
    assert missing["status"] == "skipped"
    assert missing["hint"] == "`gpusetup install sageattention`"


def test_each_is_asked_on_each_device_in_a_process_of_its_own() -> None:
    report, answers = run(
        *("--with", "torchvision", "Flash_Attn"), **{"flash-attn__cuda:1": {"status": "crashed"}}
    )
    for name in ("torchvision", "flash-attn"):
        assert [f"{name}@cuda:0" in answers.asked, f"{name}@cuda:1" in answers.asked] == [True] * 2
    assert len({row.environment for row in COMPANIONS}) == len(COMPANIONS) == len(TABLE)
    assert verdict(report) == "failed"
    assert results(report)["flash-attn@cuda:0"] == "passed"
    report, _ = run("--with", "xformers", gpu={"status": "failed"})
    assert results(report)["xformers@cuda"] == "skipped"
