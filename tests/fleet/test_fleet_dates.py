"""Several records of one node, taken at different times, and the GPU that most of a node's are."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import fleet_records
import pytest

from gpusetup.cli import main

Record = dict[str, Any]
NOW = datetime.now(timezone.utc)
KIND = "NVIDIA H100 80GB HBM3"


def text_of(time: datetime) -> str:
    return f"{time:%Y-%m-%dT%H:%M:%SZ}"


def hours_ago(hours: float) -> str:
    return text_of(NOW - timedelta(hours=hours))


def snapshot(taken_at: str, **of_gpu_4: Any) -> Record:
    compiler = {"nvcc": None, "compiler": "/usr/bin/cc"}
    record = {**fleet_records.machine(0), "taken_at": taken_at, "toolkit": compiler}
    record["gpus"][4].update(of_gpu_4)
    return record


def check(taken_at: str, *findings: Record, **more: Any) -> Record:
    """What `fleet check --json` writes."""
    facts = {"gpus.count": "8", "gpus.name": KIND, "driver.version": "580.95.05"}
    reasons = [f"{finding['id']}: {finding['title']}" for finding in findings]
    return {"schema": "gpusetup.node-check/1", "node": "n1", "ok": not findings,
            "reason": "; ".join(reasons), "taken_at": taken_at, "findings": [*findings],
            "facts": facts, **more}  # fmt: skip


def shown(
    folder: Path, capsys: pytest.CaptureFixture[str], **records: Record
) -> tuple[Record, str]:
    """The answer about n1 as JSON, and the screen of the folder."""
    for name, record in records.items():
        file = folder / f"{name.replace('_', '.')}.json"
        file.write_text(json.dumps(record), encoding="utf-8")
    main(["fleet", "show", str(folder), "--json"])
    answer = json.loads(capsys.readouterr().out)
    main(["fleet", "show", str(folder)])
    (node,) = (node for node in answer["nodes"] if node["name"] == "n1")
    return {**node, "answer": answer}, capsys.readouterr().out


# --- the newest record counts ---------------------------------------------------------------------


def test_a_newer_check_ends_what_an_older_snapshot_had(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sick = snapshot(hours_ago(9), ecc_uncorrected=3)
    node, screen = shown(tmp_path, capsys, n1=sick, n1_check=check(hours_ago(1)))
    assert (node["status"], node["findings"]) == ("ok", [])
    assert node["taken_at"] == hours_ago(1)
    assert "ecc-error" not in screen


# --- dates ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("date", ["2999-01-01T00:00:00Z", hours_ago(24 * 30)])
def test_a_record_of_another_day_is_named(
    date: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = {name: snapshot(hours_ago(1)) for name in ("n2", "n3", "n4")}
    node, screen = shown(tmp_path, capsys, n1=snapshot(date), **nodes)
    assert node["status"] == "differs"
    assert [drift["field"] for drift in node["drift"]] == ["record.taken_at"]
    assert f"misdated record: {date[:10]}" in screen
    # Records that a timer takes over a day are equally old.
    assert shown(tmp_path, capsys, n1=snapshot(hours_ago(20)))[0]["status"] == "ok"
