"""Snapshot files: the round trip, and what a bad file gets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpusetup.errors import BadInput
from gpusetup.model import builds, machine
from gpusetup.model.codec import from_plain, to_plain
from gpusetup.model.frozen import Frozen
from gpusetup.model.hidden_marks import map_texts, without_hidden_marks
from gpusetup.model.machine import Gpu, Snapshot
from gpusetup.model.versions import Capability
from gpusetup.probe.snapshot_files import (
    MOST_BYTES,
    dump_snapshot,
    load_snapshot,
    on_one_line,
    parse_snapshot,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
st.register_type_strategy(str, TEXT)
st.register_type_strategy(int, st.integers(-(2**63), 2**63 - 1))
st.register_type_strategy(float, st.floats(allow_nan=False, allow_infinity=False))
st.register_type_strategy(Capability, st.builds(Capability, st.integers(0, 99), st.integers(0, 9)))


def built(kind: type[Frozen]) -> st.SearchStrategy[Any]:
    """Any value of a kind; its fields are looked up when it is drawn."""

    def definition() -> st.SearchStrategy[Any]:
        hints = get_type_hints(kind).items()
        return st.builds(kind, **{name: st.from_type(hint) for name, hint in hints})

    return st.deferred(definition)


for kind in (*vars(machine).values(), *vars(builds).values()):
    if isinstance(kind, type) and issubclass(kind, Frozen) and kind is not Frozen:
        st.register_type_strategy(kind, built(kind))
SNAPSHOTS = st.from_type(Snapshot)


@settings(max_examples=20, suppress_health_check=list(HealthCheck))
@given(SNAPSHOTS)
def test_a_snapshot_survives_the_round_trip(snapshot: Snapshot) -> None:
    plain = map_texts(on_one_line(to_plain(snapshot)), without_hidden_marks)
    as_seen = from_plain(plain, Snapshot, what="it")
    assert parse_snapshot(dump_snapshot(snapshot).encode(), "it") == as_seen


def write(folder: Path, content: bytes | str, name: str = "machine.json") -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


GOOD = dump_snapshot(Snapshot(gpus=(Gpu(name="NVIDIA L4"),)))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (GOOD[: len(GOOD) // 2], f"is cut off after {len(GOOD) // 2} bytes"),
        ("driver: 580", "is a text file, not a snapshot"),
        ("{}", "`$.schema` is missing"),
        (GOOD.replace("snapshot/1", "snapshot/2"), "was written by a newer gpusetup"),
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


def test_a_file_of_100_mb_is_refused_without_reading_it_all(tmp_path: Path) -> None:
    path = tmp_path / "huge.json"
    with path.open("wb") as file:
        file.truncate(100 << 20)
    with pytest.raises(BadInput, match=f"larger than {MOST_BYTES >> 20} MiB"):
        load_snapshot(path)


def test_a_folder_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="is a folder"):
        load_snapshot(tmp_path)
    with pytest.raises(BadInput, match="cannot be read: No such file"):
        load_snapshot(tmp_path / "none.json")


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
