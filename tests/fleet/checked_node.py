"""A node that is checked every day, with what its driver and its kernel tell that day."""

from __future__ import annotations

from typing import Any

import fleet_records
import pytest

from gpusetup.cli import main
from gpusetup.model.codec import from_plain
from gpusetup.model.machine import Snapshot
from gpusetup.probe import node as probe_node
from gpusetup.probe.node import NodeRecord

Record = dict[str, Any]
LOG_WAS_READ = {"subject": "events", "source": "dmesg", "value": "0 lines about the GPU"}


def sound() -> Record:
    return {**fleet_records.machine(0), "readings": [LOG_WAS_READ]}


def with_ecc_errors(*numbers: int) -> Record:
    """A node whose GPUs of these numbers count memory errors."""
    record = sound()
    for number in numbers:
        record["gpus"][number]["ecc_uncorrected"] = 3
    return record


class Node:
    """A node that is checked every day, with what it has that day."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.day = 0
        self.record: Record = {}
        monkeypatch.setattr(probe_node, "read_node", self.read)
        monkeypatch.setattr(probe_node, "name_of_node", lambda: "gpu07")

    def read(self, *_: Any) -> NodeRecord:
        dated = {**self.record, "taken_at": f"2026-11-{self.day:02d}T03:00:00Z"}
        return NodeRecord(snapshot=from_plain(dated, Snapshot, what="a node"))

    def check(self, record: Record, *words: str) -> None:
        self.day += 1
        self.record = record
        main(["fleet", "check", *words])
