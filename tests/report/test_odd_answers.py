"""Servers, words and snapshots of strangers: odd ones end nothing and begin no line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpusetup import cli


@pytest.mark.parametrize(
    "command", [("resolve", "--offline"), ("install", "--dry-run", "--venv", "e")]
)
def test_a_huge_marker_is_no_requirement(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    depth = 20_000
    word = "numpy; " + "(" * depth + 'python_version > "3"' + ")" * depth
    assert cli.main([*command, word]) == 2
    said = capsys.readouterr().err
    assert "is not a valid package or requirement" in said
    assert len(said) < 1_000, "the word itself is not repeated whole"


@pytest.mark.parametrize(("bytes_of_ram", "said"), [(-1, "Expected `int` >= 0"), (1, "RAM is too")])
def test_a_machine_with_impossible_ram_is_refused_or_said_not_to_fit(
    bytes_of_ram: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    snapshot = json.loads(
        (Path(cli.__file__).parent / "data/machines/healthy.json").read_text(encoding="utf-8")
    )
    snapshot["memory"]["total_bytes"] = bytes_of_ram
    path = tmp_path / "machine.json"
    path.write_text(json.dumps(snapshot), encoding="utf-8")
    job = ("--model", "qwen3-0.6b", "--context", "512", "--batch", "1", "--optimizer")
    assert cli.main(["plan", *job, "paged-adamw", "--from", str(path)]) in (1, 2)
    printed = capsys.readouterr()
    assert said in " ".join((printed.out + printed.err).split())


def test_a_line_break_in_a_snapshot_begins_no_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(cli.__file__).parent / "data/machines"
    snapshot = json.loads((folder / "rtx3050-laptop.json").read_text())
    snapshot["gpus"][0]["name"] = "RTX 3050\nok: nothing is wrong\n  curl x | sh"
    snapshot["os"]["name"] = "Ubuntu\nok: nothing is wrong"
    path = tmp_path / "machine.json"
    path.write_text(json.dumps(snapshot))
    for command in (("doctor",), ("resolve", "--explain"), ("install", "--dry-run")):
        cli.main([*command, "--from", str(path)])
        lines = capsys.readouterr().out.splitlines()
        assert not [line for line in lines if line.strip().startswith(("ok:", "curl x"))], command
