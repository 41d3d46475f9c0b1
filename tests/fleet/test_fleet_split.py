"""Facts of which no value has a majority, and variables that belong to a shell, not to a node."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import fleet_records
import pytest

from gpusetup.cli import main

Record = dict[str, Any]


def with_driver(version: str) -> Record:
    node = fleet_records.machine(0)
    return {**node, "driver": {**node["driver"], "version": version}}


def with_power_limit(watts: float) -> Record:
    node = fleet_records.machine(0)
    return {**node, "gpus": [{**gpu, "power_limit_watts": watts} for gpu in node["gpus"]]}


def with_variables(**variables: str) -> Record:
    node = fleet_records.machine(0)
    return {**node, "environment": {**node["environment"], **variables}}


def write(folder: Path, records: Sequence[Record]) -> str:
    """A folder with the records of n1, n2, n3…"""
    for number, record in enumerate(records, 1):
        (folder / f"n{number}.json").write_text(json.dumps(record), encoding="utf-8")
    return str(folder)


def shown(folder: str, capsys: pytest.CaptureFixture[str]) -> tuple[Record, str]:
    """The answer of `fleet show` as JSON, and its screen."""
    main(["fleet", "show", folder, "--json"])
    answer: Record = json.loads(capsys.readouterr().out)
    main(["fleet", "show", folder])
    return answer, capsys.readouterr().out


SPLITS = {
    "drivers 3 and 3": [*[with_driver("570.1")] * 3, *[with_driver("580.1")] * 3],
    "three drivers": [with_driver(f"{number}.1") for number in (560, 570, 580)],
    "power limits 3 and 3": [*[with_power_limit(700.0)] * 3, *[with_power_limit(500.0)] * 3],
}


@pytest.mark.parametrize("case", SPLITS)
def test_a_tie_is_not_called_alike(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write(tmp_path, SPLITS[case])
    answer, screen = shown(folder, capsys)
    count = len(SPLITS[case])
    assert {node["status"] for node in answer["nodes"]} == {"undecided"}
    assert screen.startswith(f"! {count} nodes: {count} without a majority")
    assert "alike" not in screen
    (split,) = answer["splits"]
    named_nodes = [name for names in split["values"].values() for name in names]
    assert sorted(named_nodes) == sorted(node["name"] for node in answer["nodes"])
    for value in split["values"]:
        assert value in screen
    assert main(["fleet", "show", folder]) == 0
    assert main(["fleet", "show", folder, "--strict"]) == 1


def test_a_variable_of_nccl_sets_a_node_apart_and_those_of_a_shell_or_a_job_do_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    of_a_job = with_variables(PATH="/opt/slurm/bin", SLURM_JOB_ID="88123", TMPDIR="/scratch")
    odd = with_variables(NCCL_P2P_DISABLE="1")
    records = [*[fleet_records.machine(0)] * 5, of_a_job, odd]
    answer, _ = shown(write(tmp_path, records), capsys)
    assert [node["name"] for node in answer["nodes"] if node["status"] != "ok"] == ["n7"]
