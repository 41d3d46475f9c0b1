"""The ways to set this project up that are written down: the README's commands, environment.yml."""

from __future__ import annotations

import re
import shlex
import sys
import textwrap
from pathlib import Path

import pytest

from gpusetup.cli import main

if sys.version_info >= (3, 11):
    pass
else:
    pass

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_python_of_the_readme_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = re.findall(r"  ```python\n(.*?)  ```", README, re.DOTALL)
    exec(textwrap.dedent(block).replace("diagnose()", "diagnose('rtx3050-laptop')"), {})
    assert capsys.readouterr().out == "torch-cpu-build torch-cpu-build\n"


def test_the_training_lines_of_the_readme_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its function is what MODULE:FUNCTION means, and what it says of the answers holds."""
    found = re.search(r"```sh\n(gpusetup plan .*?)```\n\n```python\n(.*?)```", README, re.DOTALL)
    assert found is not None
    (tmp_path / "train.py").write_text(found[2], encoding="utf-8")
    (tmp_path / "config.yaml").write_text("batch_size: 32\nnum_workers: 0\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    lines = [shlex.split(line, comments=True) for line in found[1].splitlines()]
    *commands, torchrun = lines
    for words in commands:
        assert words[0] == "gpusetup"
        assert main([*words[1:], "--device", "cpu"] if "--code" in words else words[1:]) == 0
    said = capsys.readouterr().out
    assert "✓ fits: Env + SP=2" in said and "Batch size: 4096" in said
    assert torchrun[1] == "torchrun" and torchrun[-2:] == ["-m", "gpusetup.verify"]
