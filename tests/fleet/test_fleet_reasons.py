"""The one line of a check: Slurm keeps 180 letters of it, node-problem-detector 300."""

from __future__ import annotations

from pathlib import Path

import pytest
from checked_node import Node, sound, with_ecc_errors


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(monkeypatch)


def last_line(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().out.splitlines()[-1]


def test_a_fault_of_all_gpus_fits_into_a_reason(
    node: Node, capsys: pytest.CaptureFixture[str]
) -> None:
    node.check(with_ecc_errors(*range(8)))
    line = last_line(capsys)
    assert line.startswith("failed: ecc-error: GPU 0, GPU 1, ") and len(line) < 180
    assert line.endswith("GPU 7: memory errors that ECC cannot correct")


def test_the_hardwares_faults_come_first_and_each_id_once(
    node: Node, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node.check(sound(), "--json")
    profile = tmp_path / "profile.json"
    profile.write_text(last_line(capsys))
    sick = with_ecc_errors(3)
    sick["gpus"][3]["fabric_state"] = "in_progress"
    sick["driver"]["version"] = "570.1"
    for gpu in sick["gpus"][2:]:
        gpu["power_limit_watts"] = 500.0
    node.check(sick, "--profile", str(profile))
    line = last_line(capsys).removeprefix("failed: ")
    assert line.startswith("ecc-error: GPU 3 ")
    assert line.count("unlike-profile: ") == 1
    assert "driver 570.1, expected 580.95.05" in line and "power limit" in line
