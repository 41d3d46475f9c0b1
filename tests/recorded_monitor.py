"""The monitor's recordings of real runs: the six short workloads of the first run on an H100."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).parent / "recorded_runs" / "h100-580.159-2.11.0" / "monitor.txt"
WORKLOADS = ("input-starved", "launch-bound", "memory-bound", "memory-tight", "good", "idle")


@cache
def recorded_runs() -> dict[str, list[dict[str, Any]]]:
    """Workload -> its documents: the samples, and the summary at the end."""
    runs: dict[str, list[dict[str, Any]]] = {}
    documents: list[dict[str, Any]] = []
    for line in RECORDED.read_text(encoding="utf-8").splitlines():
        if not line.startswith("{"):
            continue
        document = json.loads(line)
        documents.append(document)
        if document["kind"] == "summary":
            command = document["command"]
            if command:
                workload = command[2]
                runs[workload] = documents
            documents = []
    return runs


def recording(workload: str, folder: Path) -> Path:
    """The recording of one workload as a file."""
    file = folder / f"{workload}.jsonl"
    lines = (json.dumps(document) for document in recorded_runs()[workload])
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file
