"""The one line of a check: Slurm keeps 180 letters of it, node-problem-detector 300."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from checked_node import Node, sound, with_ecc_errors

from gpusetup.cli import main


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


def test_the_two_records_of_a_node_tell_a_fault_once(
    node: Node, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = sound()
    for gpu in record["gpus"]:
        gpu["fabric_state"] = "in_progress"
    record["cuda_api"] = {"init_code": 802, "init_name": "CUDA_ERROR_SYSTEM_NOT_READY"}
    node.check(record, "--json")
    folder = tmp_path / "records"
    folder.mkdir()
    (folder / "gpu07.check.json").write_text(last_line(capsys))
    (folder / "gpu07.json").write_text(json.dumps({**record, "taken_at": "2026-11-01T03:00:00Z"}))
    main(["fleet", "show", str(folder)])
    screen = capsys.readouterr().out
    assert screen.count("system-not-ready-fabric-manager") == 1
    main(["fleet", "show", str(folder), "--json"])
    findings = json.loads(capsys.readouterr().out)["nodes"][0]["findings"]
    ids = [finding["id"] for finding in findings]
    assert len(ids) == len(set(ids))
