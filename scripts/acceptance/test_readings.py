"""doctor, snapshot, resolve and fleet check on this machine, next to nvidia-smi."""

from __future__ import annotations

from typing import Any

import pytest

from acceptance.conftest import Work

MIB = 1 << 20
FIELDS = {
    "name": ("name", 0),
    "uuid": ("uuid", 0),
    "memory_total_bytes": ("memory.total", MIB),
    "memory_used_bytes": ("memory.used", 64 * MIB),
    "compute_capability": ("compute_cap", 0),
    "power_limit_watts": ("power.limit", 0.6),
    "power_watts": ("power.draw", 60),
    "temperature_celsius": ("temperature.gpu", 8),
    "pcie_generation_max": ("pcie.link.gen.max", 0),
    "pcie_width_max": ("pcie.link.width.max", 0),
    "ecc_enabled": ("ecc.mode.current", 0),
    "mig_enabled": ("mig.mode.current", 0),
}
"""Our field -> nvidia-smi's, and how far a figure may move in between."""
WORDS = {"Enabled": True, "Disabled": False}


@pytest.fixture(scope="module")
def snapshot(work: Work) -> dict[str, Any]:
    found = work.gpusetup("snapshot", "--keep-private", "--json").document
    if not found["gpus"]:
        pytest.skip("no GPU was read")
    return found


def test_the_fields_are_those_of_nvidia_smi(work: Work, snapshot: dict[str, Any]) -> None:
    names = ",".join(smi for smi, _ in FIELDS.values())
    argv = ("nvidia-smi", f"--query-gpu={names}", "--format=csv,noheader,nounits", "--id=0")
    said = work.program(argv)
    if said.exit != 0:
        pytest.skip(said.problem)
    other = []
    for (field, (_, slack)), text in zip(FIELDS.items(), said.stdout.split(","), strict=True):
        ours, theirs = snapshot["gpus"][0].get(field), text.strip()
        unit = MIB if field.startswith("memory") else 1
        same = ours is WORDS[theirs] if theirs in WORDS else str(ours) == theirs
        if slack and ours is not None and not theirs.startswith("["):
            same = abs(ours - float(theirs) * unit) <= slack
        other += [] if same or theirs.startswith("[") else [field]
    work.found(f"{len(FIELDS)} fields, other: {', '.join(other) or 'none'}")
    assert not other


@pytest.mark.card
def test_doctor_finds_no_error_and_the_node_may_take_jobs(work: Work) -> None:
    answer = work.gpusetup("doctor", "--json").document
    assert not [row["id"] for row in answer["findings"] if row["severity"] == "error"]
    said = work.gpusetup("fleet", "check", "--json")
    work.found(f"exit {said.exit} in {said.seconds:.2f} s")
    assert said.exit == 0
