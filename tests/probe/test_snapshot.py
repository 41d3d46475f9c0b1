"""Snapshot files: the round trip, and what a bad file gets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from each_row import each
from machines_named import example_machines, machine_named

from gpusetup.errors import BadInput
from gpusetup.model.machine import Gpu, Snapshot
from gpusetup.probe.snapshot_files import (
    dump_snapshot,
    load_snapshot,
    parse_snapshot,
)


@each("name", example_machines())
def test_a_snapshot_survives_the_round_trip(name: str) -> None:
    machine = machine_named(name)
    assert parse_snapshot(dump_snapshot(machine).encode(), "it") == machine


def write(folder: Path, content: bytes | str, name: str = "machine.json") -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


GOOD = dump_snapshot(Snapshot(gpus=(Gpu(name="NVIDIA L4"),)))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (GOOD[: len(GOOD) // 2], "truncated"),
        ("driver: 580", "is a text file, not a snapshot"),
        ("{}", "`$.schema` is missing"),
        (GOOD.replace("snapshot/1", "resolve/1"), "is not a snapshot"),
        (GOOD.replace('"NVIDIA L4"', "7"), "$.gpus[0].name"),
        (GOOD.replace('"compute_capability": null', '"compute_capability": "eight"'), "capability"),
        (b'{"schema": "gpusetup.snapshot/1", "origin": "\xff"}', "is not UTF-8 text: byte"),
        ('{"schema": "gpusetup.snapshot/1", "x": ' + "[" * 100_000, "nested too deeply"),
    ],
)
def test_a_bad_file_is_refused_with_its_place(
    tmp_path: Path, content: bytes | str, said: str
) -> None:
    with pytest.raises(BadInput) as problem:
        load_snapshot(write(tmp_path, content))
    assert said in problem.value.message
    assert "machine.json" in problem.value.message
    assert problem.value.exit_code == 2


@pytest.mark.parametrize(
    "content",
    [
        GOOD.encode("utf-16"),  # as PowerShell writes it
        GOOD.encode("utf-8-sig"),
        json.dumps({**json.loads(GOOD), "weather": "fine"}),  # a newer minor version
        json.dumps({"schema": "gpusetup.doctor/1", "cause": "ok", "snapshot": json.loads(GOOD)}),
    ],
)
def test_every_form_of_a_snapshot_is_read(tmp_path: Path, content: bytes | str) -> None:
    assert load_snapshot(write(tmp_path, content)).gpus == (Gpu(name="NVIDIA L4"),)
