"""`gpusetup tune CONFIG` on a machine with a card, asked from outside, for the guides' tests."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from machines_named import machine_named

from gpusetup.cli import main
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Gpu
from gpusetup.model.versions import Capability
from gpusetup.probe.snapshot_files import dump_snapshot

GIB = 1 << 30


class Tuned:
    """What `tune CONFIG --json` answered."""

    def __init__(self, answer: dict[str, Any]) -> None:
        self.answer = answer
        self.changes = {one["key"]: (one["from"], one["to"]) for one in answer["changes"]}
        self.sentences: list[str] = [
            *answer["recommendations"],
            *(f"{one['key']}: {one['reason']} ({one['source']})" for one in answer["changes"]),
        ]

    def sentence_with(self, *patterns: str) -> str | None:
        """The first sentence in which all patterns are found."""
        for sentence in self.sentences:
            if all(re.search(pattern, sentence, re.IGNORECASE) for pattern in patterns):
                return sentence
        return None


class Tuner:
    """Configs in a folder of their own, tuned for cards."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.capsys = folder, capsys

    def card(self, name: str, gib: float, capability: tuple[int, int], count: int = 1) -> str:
        """The snapshot of a Linux machine with 16 cores and so many of a card."""
        gpus = tuple(
            Gpu(
                name=f"NVIDIA {name}",
                memory_total_bytes=int(gib * GIB),
                compute_capability=Capability(*capability),
                nvml_index=index,
                cuda_index=index,
                uuid=f"GPU-{index:04d}",
            )
            for index in range(count)
        )
        file = self.folder / f"{name.replace(' ', '-')}-{gib}-{count}.json"
        machine = replace(machine_named("healthy"), gpus=gpus)
        file.write_text(dump_snapshot(machine), encoding="utf-8")
        return str(file)

    def tune(self, text: str, machine: str, *words: str, name: str = "train.yaml") -> Tuned:
        config = self.folder / name
        config.write_text(text, encoding="utf-8")
        main(["tune", str(config), "--from", machine, "--json", *words])
        return Tuned(json.loads(self.capsys.readouterr().out))

    def printed(self, *words: str) -> str:
        """What `tune` prints."""
        main(["tune", *words])
        return self.capsys.readouterr().out
