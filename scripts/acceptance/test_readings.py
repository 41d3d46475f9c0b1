"""doctor, snapshot, resolve and fleet check on this machine, beside nvidia-smi and torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from acceptance.conftest import Work, unknown

TORCH = """
import json, torch
torch.cuda.init()
p = torch.cuda.get_device_properties(0)
print(json.dumps({"count": torch.cuda.device_count(), "name": p.name,
    "compute_capability": f"{p.major}.{p.minor}", "uuid": f"GPU-{p.uuid}"}))
"""
MIB = 1 << 20
Read = Callable[[str], Any]


def memory(text: str) -> int:
    return round(float(text) * MIB)


def bus(text: str) -> str:
    return text.lower()[-12:]


def yes(text: str) -> bool:
    return text.lower() == "enabled"


FIELDS: tuple[tuple[str, str, Read, float], ...] = (
    ("name", "name", str, 0),
    ("uuid", "uuid", str, 0),
    ("pci_bus_id", "pci.bus_id", bus, 0),
    ("memory_total_bytes", "memory.total", memory, MIB),
    ("memory_used_bytes", "memory.used", memory, 64 * MIB),
    ("compute_capability", "compute_cap", str, 0),
    ("power_limit_watts", "power.limit", float, 0.6),
    ("power_watts", "power.draw", float, 60),
    ("temperature_celsius", "temperature.gpu", float, 8),
    ("pcie_generation_max", "pcie.link.gen.max", int, 0),
    ("pcie_width_max", "pcie.link.width.max", int, 0),
    ("ecc_enabled", "ecc.mode.current", yes, 0),
    ("mig_enabled", "mig.mode.current", yes, 0),
)
"""Our field, nvidia-smi's, how its text is read, and how far a figure may move in between."""


@pytest.fixture(scope="module")
def snapshot(work: Work) -> dict[str, Any]:
    return asked(work, "snapshot", "--keep-private")


@pytest.fixture(scope="module")
def rows(work: Work, snapshot: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Each field that both tell, with both answers."""
    answered = {row.get("subject") for row in snapshot["readings"] if row.get("source") == "nvml"}
    if not any(str(subject).startswith("gpu") for subject in answered):
        unknown("NVML did not answer: both answers would be nvidia-smi's")
    names = ",".join(("driver_version", *(smi for _, smi, _, _ in FIELDS)))
    argv = ("nvidia-smi", f"--query-gpu={names}", "--format=csv,noheader,nounits", "--id=0")
    said = work.program(argv)
    if said.exit != 0:
        unknown(said.problem)
    driver, *texts = (text.strip() for text in said.stdout.splitlines()[0].split(","))
    ours = snapshot["driver"]["version"]
    found = {"driver": {"ours": ours, "theirs": driver, "same": ours == driver}}
    for (field, _, read, slack), text in zip(FIELDS, texts, strict=True):
        if text and not text.startswith("[") and text != "N/A":
            own, other = snapshot["gpus"][0].get(field), read(text)
            own = bus(own) if field == "pci_bus_id" and own else own
            near = bool(slack and own is not None and abs(own - other) <= slack)
            found[field] = {"ours": own, "theirs": other, "same": near or own == other}
    for field, row in found.items():
        work.row("readings", field=field, source="nvidia-smi", **row)
    return found


def asked(work: Work, *words: str) -> dict[str, Any]:
    said = work.gpusetup(*words, "--json", limit=30)
    work.row("commands", command=words[0], exit=said.exit, seconds=round(said.seconds, 2))
    return said.document


@pytest.mark.claim("readings-match")
def test_the_fields_are_those_of_nvidia_smi(work: Work, rows: dict[str, Any]) -> None:
    other = [field for field, row in rows.items() if not row["same"]]
    work.found(f"{len(rows)} fields, other: {', '.join(other) or 'none'}")
    assert not other


@pytest.mark.claim("doubt-16")
def test_memory_in_use_is_that_of_nvidia_smi(work: Work, rows: dict[str, Any]) -> None:
    row = rows["memory_used_bytes"]
    work.found(f"ours {row['ours']}, nvidia-smi {row['theirs']}")
    assert row["same"]


@pytest.fixture(scope="module")
def torch_says(work: Work, snapshot: dict[str, Any]) -> dict[str, Any]:
    if not snapshot["gpus"]:
        unknown("no GPU was read")
    return work.python(TORCH, limit=30).document


@pytest.mark.claim("doubt-42")
def test_torch_sees_the_same_card(
    work: Work, snapshot: dict[str, Any], torch_says: dict[str, Any]
) -> None:
    assert torch_says, "torch does not see the card"
    for field in ("name", "compute_capability", "uuid"):
        pair = {"ours": snapshot["gpus"][0][field], "theirs": torch_says[field]}
        work.row("readings", field=field, source="torch", **pair)
        assert pair["ours"] == pair["theirs"], field
    work.found(f"torch counts {torch_says['count']}")


@pytest.mark.claim("doubt-12")
def test_torch_counts_what_cuda_counts(
    work: Work, snapshot: dict[str, Any], torch_says: dict[str, Any]
) -> None:
    count = (snapshot["cuda_api"] or {}).get("device_count")
    work.found(f"torch {torch_says.get('count')}, CUDA {count}")
    assert torch_says.get("count") == count


@pytest.mark.claim("doctor-clean")
def test_doctor_finds_no_error(work: Work) -> None:
    answer = asked(work, "doctor")
    errors = [row["id"] for row in answer["findings"] if row["severity"] == "error"]
    work.found(f"cause {answer.get('cause')}, errors: {', '.join(errors) or 'none'}")
    assert not errors


@pytest.mark.claim("node-check")
def test_the_node_may_take_jobs(work: Work) -> None:
    said = work.gpusetup("fleet", "check", "--json")
    work.found(f"exit {said.exit} in {said.seconds:.2f} s")
    assert said.exit == 0


def test_resolve_answers(work: Work) -> None:
    assert asked(work, "resolve")
