"""The ways to set this project up that are written down: the README's commands, environment.yml."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
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
BLOCKS = re.findall(r"```sh\n(python3 -c .*\n)```\n\n```powershell\n(.*\n)```", README)


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
    for words in lines[:3]:
        assert words[0] == "gpusetup"
        assert main([*words[1:], "--device", "cpu"] if "--code" in words else words[1:]) == 0
    said = capsys.readouterr().out
    assert "✓ fits: Env + SP=2" in said and "Batch size: 4096" in said
    assert lines[3][1] == "torchrun" and lines[3][-2:] == ["-m", "gpusetup.verify"]


BARE = {
    "python3": """#!/bin/sh
echo "python3 $*" >> log
[ "$1" = -c ] && { [ -e has-venv ]; exit; }
[ -e has-venv ] || exit 1
mkdir -p .venv/bin
for name in pip gpusetup pytest; do
    printf '#!/bin/sh\\necho "%s $*" >> log\\n[ ! -e fails-%s ]\\n' $name $name > .venv/bin/$name
    chmod +x .venv/bin/$name
done
""",
    "apt-get": '#!/bin/sh\necho "apt-get $*" >> log\n[ ! -e fails-apt ] && touch has-venv\n',
    "sudo": '#!/bin/sh\necho "sudo $*" >> log\nexec "$@"\n',
}
"""A machine whose Python may be without `venv`; what runs is written to a log."""


def run_on(folder: Path, command: str, *there: str, without: str = "") -> tuple[int, list[str]]:
    """The exit code and what ran, on a bare machine that has the files `there`."""
    programs = folder / "programs"
    programs.mkdir()
    for name, text in BARE.items():
        if name != without:
            (programs / name).write_text(text, encoding="utf-8")
            (programs / name).chmod(0o755)
    for tool in ("mkdir", "chmod", "touch"):
        found = next(p for d in ("/usr/bin", "/bin") if (p := Path(d, tool)).exists())
        (programs / tool).symlink_to(found)
    for name in there:
        (folder / name).touch()
    environment = {**os.environ, "PATH": str(programs)}
    done = subprocess.run(["/bin/sh", "-c", command], cwd=folder, env=environment, timeout=60)
    log = folder / "log"
    return done.returncode, log.read_text(encoding="utf-8").splitlines() if log.exists() else []


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("bare", [False, True])
@pytest.mark.parametrize("without", ["", "sudo"])
def test_a_command_ends_in_its_program_with_or_without_venv(
    which: int, bare: bool, without: str, tmp_path: Path
) -> None:
    last = ("gpusetup doctor", "pytest -n 3")[which]
    code, ran = run_on(tmp_path, BLOCKS[which][0], *([] if bare else ["has-venv"]), without=without)
    assert (code, ran[-1]) == (0, last)
    assert ran[-2] == f"pip install {('.', '.[test]')[which]}"
    assert ran[-3] == "python3 -m venv .venv"
    assert ("apt-get install -y python3-venv" in ran) == bare
    assert any(line.startswith("sudo ") for line in ran) == (bare and not without)
