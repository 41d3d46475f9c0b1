"""What is generated is up to date, and what commands answer is what the schemas promise."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gpusetup.cli import main
from gpusetup.commands.parser import COMMANDS, command, parser_of

ROOT = Path(__file__).resolve().parents[2]
ANSWERING = (
    ("doctor", ["doctor", "--from", "rtx3050-laptop"]),
    ("doctor", ["doctor", "--from", "h100-no-fabric-manager"]),
    ("resolve", ["resolve", "--from", "conda-and-pip"]),
    ("resolve", ["resolve", "--from", "rtx3050-laptop", "--torch", "9.9"]),
    ("snapshot", ["snapshot", "--from", "wsl2"]),
    ("install", ["install", "--dry-run", "--from", "rtx3050-laptop"]),
    ("error", ["resolve", "--gpu", "no such card"]),
)


@pytest.mark.parametrize(("name", "words"), ANSWERING, ids=lambda value: str(value))
def test_an_answer_is_one_document(
    name: str, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    main([*words, "--json"])
    said = capsys.readouterr().out
    document = json.loads(said)
    assert said.count("\n") == 1
    assert next(iter(document)) == "schema"
    assert document["schema"] == f"gpusetup.{name}/1"


@pytest.mark.slow
def test_no_generated_file_is_stale() -> None:
    done = subprocess.run(
        [sys.executable, "scripts/write_reference.py", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}run `python scripts/write_reference.py`"


def test_help_of_every_command_shows_examples() -> None:
    for name in COMMANDS:
        if hasattr(command(name), "ACTIONS"):
            continue
        told = parser_of(name).format_help()
        assert len(re.findall(rf"\n  .*\bgpusetup {name}", told)) >= 2, name
        assert len(told.splitlines()) <= 100, name  # two screens, in groups
