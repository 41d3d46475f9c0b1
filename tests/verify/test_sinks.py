"""What somebody else wrote is shown, never obeyed: by no terminal and by no CI runner."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpusetup.cli import main
from gpusetup.model.hidden_marks import without_hidden_marks
from gpusetup.model.machine import Event, Reading, Snapshot
from gpusetup.probe.snapshot_files import dump_snapshot

EVIL = "\x1b]0;owned\x07\x9b2J\u202e\n::error::owned\n  ::set-output name=x::y\n##[command]owned"


def evil_machine(tmp_path: Path) -> str:
    """A snapshot with control codes and CI commands wherever text may stand."""
    machine = Snapshot(
        origin="composed",
        environment={"CUDA_VISIBLE_DEVICES": EVIL, "LD_LIBRARY_PATH": EVIL},
        events=(Event(kind="xid", values={"code": "79", "pci": EVIL}, source=EVIL, text=EVIL),),
        readings=(Reading(subject="driver", source=EVIL, problem=EVIL),),
    )
    path = tmp_path / "evil.json"
    path.write_text(dump_snapshot(machine), encoding="utf-8")
    return str(path)


def is_harmless(text: str) -> bool:
    lines = text.splitlines()
    obeyed = any(line.lstrip().startswith("::") or "##[" in line for line in lines)
    codes = any(ord(c) < 32 and c not in "\n\t" for c in text) or "\x9b" in text
    return not obeyed and not codes and "\u202e" not in text


@pytest.mark.parametrize(
    "words",
    [
        ["doctor"],
        ["resolve"],
        ["install", "--dry-run"],
        ["snapshot", "--keep-private"],
        ["plan", "--model", "qwen3-8b", "--context", "8192"],
    ],
)
def test_no_command_passes_on_what_is_obeyed(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main([*words, "--from", evil_machine(tmp_path)])
    said = capsys.readouterr()
    assert said.out or said.err
    assert is_harmless(said.out) and is_harmless(said.err)


def test_a_json_document_keeps_its_values_but_for_hidden_marks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["doctor", "--json", "--from", evil_machine(tmp_path)])
    printed = capsys.readouterr().out
    assert is_harmless(printed)
    # A value has no line breaks either: one would begin a line of an answer.
    on_one_line = " ".join(EVIL.splitlines())
    shown = json.loads(printed)["snapshot"]["environment"]["LD_LIBRARY_PATH"]
    assert shown == without_hidden_marks(on_one_line)
