"""Resolutions as texts for tools, word for word; what they say of a machine is no line of them."""

from __future__ import annotations

from pathlib import Path

from described_machines import machine

from gpusetup.cli import main
from gpusetup.model.frozen import replace
from gpusetup.probe.saved import dump_snapshot

RENDERED = Path(__file__).parent / "rendered" / "formats"
LAPTOP = ("--from", "rtx3050-laptop", "--torch", "2.5.1")


def test_the_laptops_file_word_for_word(same_as_file, capsys) -> None:  # type: ignore[no-untyped-def]
    assert main(["resolve", *LAPTOP, "--format", "requirements"]) == 0
    same_as_file(capsys.readouterr().out, RENDERED / "laptop-2.5.1-requirements.txt")


def test_a_gpu_name_cannot_add_a_line(tmp_path: Path, capsys) -> None:  # type: ignore[no-untyped-def]
    snapshot = machine("T4")
    (gpu,) = snapshot.gpus or ()
    evil = tmp_path / "evil.json"
    named = replace(snapshot, gpus=(replace(gpu, name="x\nRUN rm -rf /\n"),))
    evil.write_text(dump_snapshot(named), encoding="utf-8")
    assert main(["resolve", "--from", str(evil), "--format", "requirements"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert not any(line.startswith("RUN rm") for line in lines)
