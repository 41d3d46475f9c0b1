"""`verify --with`: each companion is imported, and why one is not is said."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from each_row import each

from gpusetup.verify import companions
from gpusetup.verify.values import Outcome
from gpusetup.verify.worker import served


@pytest.fixture
def tries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Outcome]:
    """Tries torch-scatter, which consists of the given lines in this process."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setenv(companions.VARIABLE, "torch-scatter")
    info = tmp_path / "torch_scatter-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch-scatter\nVersion: 1.0\n")
    (tmp_path / "torch_scatter").mkdir()

    def tried(source: str) -> Outcome:
        (tmp_path / "torch_scatter" / "__init__.py").write_text(source)
        sys.modules.pop("torch_scatter", None)
        found = served({"name": "torch-scatter", "device": "cpu"}, verbose=False)
        sys.modules.pop("torch_scatter", None)
        return Outcome(**found["outcome"])

    return tried


@each(
    "source, cause",
    [
        ("raise OSError('undefined symbol: _ZN3c104cuda')", "built for another torch"),
        ("raise OSError('libcudart.so.12: cannot open')", "built for another CUDA"),
        ("import not_here_at_all", "`gpusetup install not_here_at_all`"),
    ],
)
def test_an_import_that_fails_is_a_failure_with_its_cause(
    source: str, cause: str, tries: Callable[[str], Outcome]
) -> None:
    found = tries(source)
    assert found.status == "failed" and cause in (found.hint or "")


def test_what_imports_passes_and_what_is_not_there_is_skipped(
    tries: Callable[[str], Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = tries("def scatter(): raise RuntimeError('no GPU')")
    assert (found.status, found.detail) == ("passed", "torch-scatter 1.0 imports")
    monkeypatch.setenv(companions.VARIABLE, "sageattention")
    missing = served({"name": "sageattention", "device": "cpu"}, False)["outcome"]
    assert missing["status"] == "skipped"
    assert missing["hint"] == "`gpusetup install sageattention`"
