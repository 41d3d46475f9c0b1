"""The monitor's recordings of real runs: the six short workloads of both runs on an H100."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).parents[1] / "recorded_runs"
FIRST_RUN, SECOND_RUN = "h100-580.159-2.11.0", "h100-580.159-2.11.0-second"
"""In the second run the GPU's own counter told 0 % of a program that computed for a quarter of the
time."""
WORKLOADS = ("input-starved", "launch-bound", "memory-bound", "memory-tight", "good", "idle")


@cache
def recorded_runs(run: str = FIRST_RUN) -> dict[str, list[dict[str, Any]]]:
    """Workload -> its documents: the samples, and the summary at the end."""
    runs: dict[str, list[dict[str, Any]]] = {}
    documents: list[dict[str, Any]] = []
    text = (RECORDED / run / "monitor.txt").read_text(encoding="utf-8")
    for line in text.splitlines():
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


def recorded(workload: str, run: str = FIRST_RUN) -> str:
    """The recording of one workload as text."""
    return "".join(json.dumps(document) + "\n" for document in recorded_runs(run)[workload])
