"""40 records with 20 planted faults, a fault of another kind on each node: all found, none falsely.

Besides the faults of `fleet_records`, a node may be the only one with its GPU, and a record may be
older than the others.
"""

from __future__ import annotations

import json
import random
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import fleet_records
import pytest

from gpusetup.cli import main

RECORDS, PLANTED = 40, 20
LONE, OLD = "the only node of its kind", "an old record"
FAULTS = (*fleet_records.FAULTS, LONE, OLD)
MORNING = datetime(2026, 11, 19, 3, tzinfo=timezone.utc)


def time_text(time: datetime) -> str:
    return f"{time:%Y-%m-%dT%H:%M:%SZ}"


def write(folder: Path, seed: int) -> dict[str, str]:
    """A folder of records taken within two hours; the nodes with a fault, and its kind."""
    rng = random.Random(seed)
    kinds = rng.sample(FAULTS, PLANTED)
    planted = dict(zip(rng.sample(range(RECORDS), PLANTED), kinds, strict=True))
    for number in range(RECORDS):
        node, verified = fleet_records.machine(number), fleet_records.report(rng)
        fleet_records.natural(node, rng)
        node["taken_at"] = time_text(MORNING + timedelta(minutes=rng.randrange(120)))
        kind = planted.get(number)
        if kind == LONE:
            for gpu in node["gpus"]:
                gpu["name"] = "NVIDIA H200"
            for device in verified["devices"]:
                device["name"] = "NVIDIA H200"
        elif kind == OLD:
            age = timedelta(days=rng.choice((1, 2, 9, 40)), hours=rng.randrange(20))
            node["taken_at"] = time_text(MORNING - age)
        elif kind:
            fleet_records.plant(kind, node, verified, rng)
        name = f"gpu{number:03d}"
        (folder / f"{name}.json").write_text(json.dumps(node), encoding="utf-8")
        (folder / f"{name}.verify.json").write_text(json.dumps(verified), encoding="utf-8")
    return {f"gpu{number:03d}": kind for number, kind in planted.items()}


def odd_nodes(folder: Path, capsys: pytest.CaptureFixture[str]) -> set[str]:
    main(["fleet", "show", str(folder), "--json"])
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return {node["name"] for node in answer["nodes"] if node["status"] != "ok"}


@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 50))]
)
def test_twenty_faults_among_forty_records_are_all_found_and_none_falsely(
    seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    planted = write(tmp_path, seed)
    odd = odd_nodes(tmp_path, capsys)
    missed = {name: kind for name, kind in planted.items() if name not in odd}
    assert (missed, odd - set(planted)) == ({}, set())
