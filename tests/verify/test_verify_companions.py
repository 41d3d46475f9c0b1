"""`verify --with`: each companion is imported, and why one is not is said."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from each_row import each
from test_verify_running import results, run

from gpusetup.verify import companions
from gpusetup.verify.values import Outcome, verdict
from gpusetup.verify.worker import served


def write_package(folder: Path, name: str, module: str, source: str) -> None:
    head, _, tail = module.partition("/")
    (folder / head).mkdir(exist_ok=True)
    (folder / head / "__init__.py").write_text("" if tail else source)
    (folder / head / f"{tail or 'none'}.py").write_text(source)
    info = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")


class Tries:
    """Installs a companion of a few lines for this process and tries it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.patch = folder, monkeypatch
        monkeypatch.syspath_prepend(str(folder))
        monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def __call__(self, name: str, module: str, source: str, device: str = "cpu") -> Outcome:
        write_package(self.folder, name, module, source)
        self._forget(module)
        self.patch.setenv(companions.VARIABLE, name)
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


def test_what_imports_passes_and_what_is_not_there_is_skipped(
    tries: Tries, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = tries("torch-scatter", "torch_scatter", "def scatter(): raise RuntimeError('no GPU')")
    assert (found.status, found.detail) == ("passed", "torch-scatter 1.0 imports")
    monkeypatch.setenv(companions.VARIABLE, "sageattention")
    missing = served({"name": "sageattention", "device": "cpu"}, False)["outcome"]
    assert missing["status"] == "skipped"
    assert missing["hint"] == "`gpusetup install sageattention`"


def test_each_is_asked_once_in_a_process_of_its_own() -> None:
    report, answers = run(
        *("--with", "torchvision", "Flash_Attn"), **{"flash-attn__auto": {"status": "crashed"}}
    )
    assert {"torchvision@auto", "flash-attn@auto"} <= set(answers.asked)
    assert len({row.environment for row in companions.COMPANIONS}) == len(companions.TABLE)
    assert verdict(report) == "failed"
    assert results(report)["torchvision@host"] == "passed"
