"""Jetson boards: by every name of theirs, live and in texts, with the command that helps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from judging import judged
from machines_named import machine_named

from gpusetup.cli import main
from gpusetup.model.finding import Finding
from gpusetup.model.machine import Snapshot


def root_of(snapshot: Snapshot) -> Finding:
    return next(finding for finding in judged(snapshot).findings if finding.root)


# --- the driver is numbered apart ---------------------------------------------------------------


def resolved(
    board: str, release: str, python: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> dict[str, Any]:
    os = {"family": "linux", "machine": "aarch64", "libc": "glibc 2.39", "jetson": release}
    machine = {"os": os, "python": {"version": python}, "gpus": [{"name": board}]}
    file = tmp_path / "machine.json"
    file.write_text(json.dumps({"schema": "gpusetup.snapshot/1", **machine}))
    main(["resolve", "--from", str(file), "--json"])
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


def test_orin_runs_the_ordinary_wheels_from_jetpack_7_2_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    newest = resolved("Jetson AGX Orin", "R39.2.0", "3.12", tmp_path, capsys)
    assert (newest["torch"], newest["backend"]) == ("2.15.0", "cu132")
    older = resolved("Jetson AGX Orin", "R36.4.0", "3.10", tmp_path, capsys)
    assert older["torch"] is None
    assert any("need JetPack 7.2 (CUDA 13.2) or newer on a Jetson" in n for n in older["notes"])
    said = {row["reason"] for row in older["rejections"] if row["backend"] == "cu132"}
    assert any("needs a JetPack for CUDA 13.2, found JetPack 6 (CUDA 12.6)" in one for one in said)


# --- what to do ---------------------------------------------------------------------------------


def test_jetpack_6_gets_nvidias_wheel_and_its_guide() -> None:
    root = root_of(machine_named("jetson-orin"))
    assert root.id == "jetson-wrong-wheel" and root.fix is not None
    gone, wheel, last = root.fix.commands
    assert gone.endswith("uninstall -y torchvision torchaudio")
    assert "--find-links https://developer.download.nvidia.com/compute/redist/jp/v61" in wheel
    assert "install-pytorch-jetson-platform" in root.fix.text
    assert last.endswith("pip install torch")
