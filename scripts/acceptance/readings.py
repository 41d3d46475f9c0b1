"""doctor, snapshot and resolve on this machine, beside nvidia-smi and torch."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from acceptance.work import Work, attempt

TORCH = """
import json, torch
torch.cuda.init()
p = torch.cuda.get_device_properties(0)
print(json.dumps({"count": torch.cuda.device_count(), "name": p.name, "memory": p.total_memory,
    "capability": [p.major, p.minor], "uuid": str(getattr(p, "uuid", "") or ""),
    "torch": torch.__version__, "cuda": torch.version.cuda}))
"""
MIB = 1 << 20
Read = Callable[[Mapping[str, Any]], Any]


def memory(text: str) -> int:
    return round(float(text) * MIB)


def bus(text: str) -> str:
    """
    >>> bus("00000000:1B:00.0") == bus("0000:1b:00.0")
    True
    """
    return text.lower()[-12:]


def yes(text: str) -> bool:
    return text.lower() == "enabled"


FIELDS: tuple[tuple[str, str, Callable[[str], Any], float], ...] = (
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


PROBE = """
import json, time
from gpusetup.probe.machine import read_machine
from gpusetup.system.system import System
began = time.monotonic()
read_machine(System(), limit=20)
print(json.dumps({"seconds": time.monotonic() - began}))
"""


def run(work: Work) -> None:
    """What compares comes first; resolve, which may wait for a network, comes last."""
    snapshot, kept = _asked(work, "snapshot", "--keep-private")
    _probe(work)
    attempt(work, "readings-match", lambda: _beside_smi(work, snapshot, kept))
    attempt(work, "doubt-42", lambda: _beside_torch(work, snapshot))
    attempt(work, "doctor-clean", lambda: _doctor(work, _asked(work, "doctor")[0]))
    work.keep("snapshot.json", work.gpusetup("snapshot", "--json", limit=30).stdout)
    _asked(work, "resolve")


def _probe(work: Work) -> None:
    """The probe alone, without the start of Python and what a command makes of it."""
    said = work.program((sys.executable, "-c", PROBE), limit=30)
    seconds = said.document.get("seconds")
    work.row("commands", command="probe", exit=said.exit,
             first_seconds=None if seconds is None else round(seconds, 2))  # fmt: skip


def _asked(work: Work, name: str, *words: str) -> tuple[dict[str, Any], str]:
    """The command twice (the second time nothing is cold), and the problem if it has no answer."""
    first = work.gpusetup(name, *words, "--json", limit=30)
    if not words:
        work.keep(f"{name}.json", f"{first.stdout}\n{first.stderr}")
    again = first if work.short else work.gpusetup(name, *words, "--json", limit=30)
    work.row("commands", command=name, exit=again.exit, first_seconds=round(first.seconds, 2),
             again_seconds=round(again.seconds, 2))  # fmt: skip
    return again.document, again.problem


def _doctor(work: Work, answer: Mapping[str, Any]) -> None:
    if not answer:
        work.claim("doctor-clean", "open", "no answer")
        return
    errors = [f["id"] for f in answer.get("findings", ()) if f.get("severity") == "error"]
    told = f"cause {answer.get('cause')}, errors: {', '.join(errors) or 'none'}"
    work.claim("doctor-clean", not errors, told)


def _beside_smi(work: Work, snapshot: Mapping[str, Any], problem: str) -> None:
    fields = ("driver_version", *(smi for _, smi, _, _ in FIELDS))
    smi = work.smi(*fields)
    gpus = snapshot.get("gpus") or []
    if smi is None or not gpus:
        told = f"nvidia-smi: {smi}, GPUs read: {len(gpus)}" if snapshot else problem
        work.claim("readings-match", "open", told)
        return
    if not read_by_nvml(snapshot):
        work.claim("readings-match", "open", "NVML did not answer: both would be nvidia-smi's")
        return
    rows = [*compared(gpus[0], smi), _driver(snapshot, smi)]
    for row in rows:
        work.row("readings", **row)
    wrong = [row["field"] for row in rows if not row["same"]]
    work.claim("readings-match", not wrong, f"{len(rows)} fields, other: {', '.join(wrong) or '-'}")
    used = next((row for row in rows if row["field"] == "memory_used_bytes"), None)
    if used:
        work.claim("doubt-16", used["same"], f"ours {used['ours']}, nvidia-smi {used['theirs']}")


def read_by_nvml(snapshot: Mapping[str, Any]) -> bool:
    """Whether the GPUs of a snapshot are NVML's, and not what nvidia-smi said in its place.

    >>> read_by_nvml({"readings": [{"subject": "gpus", "source": "nvml", "value": "1 GPU"}]})
    True
    """
    return any(
        row.get("source") == "nvml" and row.get("value") and row["subject"].startswith("gpu")
        for row in snapshot.get("readings") or ()
    )


def compared(gpu: Mapping[str, Any], smi: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """A row for each field that nvidia-smi tells.

    >>> list(compared({"name": "A"}, {"name": "B"}))[0]["same"]
    False
    """
    for ours, theirs, read, slack in FIELDS:
        text = smi.get(theirs, "")
        if not text or text.startswith("[") or text == "N/A":
            continue
        own, other = gpu.get(ours), read(text)
        own = bus(own) if ours == "pci_bus_id" and own else own
        near = slack and own is not None and abs(own - other) <= slack
        yield {"field": ours, "ours": own, "theirs": other, "source": "nvidia-smi",
               "same": bool(near or own == other)}  # fmt: skip


def _driver(snapshot: Mapping[str, Any], smi: Mapping[str, str]) -> dict[str, Any]:
    own, other = (snapshot.get("driver") or {}).get("version"), smi["driver_version"]
    return {"field": "driver", "ours": own, "theirs": other, "source": "nvidia-smi",
            "same": own == other}  # fmt: skip


def _beside_torch(work: Work, snapshot: Mapping[str, Any]) -> None:
    said = work.program((sys.executable, "-c", TORCH), limit=30)
    gpus = snapshot.get("gpus") or []
    if said.exit != 0 or not gpus:
        work.claim("doubt-42", "open" if not gpus else "fails", said.problem)
        return
    told = json.loads(said.stdout)
    one = gpus[0]
    pairs = {
        "name": (one["name"], told["name"]),
        "compute_capability": (one["compute_capability"], "{}.{}".format(*told["capability"])),
        "uuid": ((one["uuid"] or "").removeprefix("GPU-"), told["uuid"].removeprefix("GPU-")),
        "count": (len(gpus), told["count"]),
    }
    for field, (ours, theirs) in pairs.items():
        work.row("readings", field=field, ours=ours, theirs=theirs, source="torch",
                 same=ours == theirs)  # fmt: skip
    api = (snapshot.get("cuda_api") or {}).get("device_count")
    work.claim("doubt-12", told["count"] == api, f"torch {told['count']}, CUDA {api}")
    work.claim("doubt-42", told["count"] >= 1, f"torch counts {told['count']}")
