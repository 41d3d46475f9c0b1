"""Configs in the shape of real trainers on three machines: `tune` leaves the training as it was."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from gpusetup.cli import main

SHAPES = Path(__file__).resolve().parents[1] / "tune_shapes"
FILES = sorted(path for path in SHAPES.iterdir() if path.is_file())
MACHINES = ("rtx3050-laptop", "healthy", "h100-no-fabric-manager")
BATCH = ("batch_size", "accum")


def tuned(path: Path, machine: str, capsys: pytest.CaptureFixture[str], *more: str) -> Any:
    main(["tune", str(path), "--from", machine, "--json", *more])
    return json.loads(capsys.readouterr().out)


def size(changes: list[dict[str, Any]], side: str) -> int:
    """The product of batch and accumulated steps that a proposal changes, before or after."""
    return math.prod(
        one[side] or 1
        for one in changes
        if any(word in one["key"].replace("-", "_") for word in BATCH)
        and isinstance(one["to"], int)
    )


@pytest.mark.parametrize("path", FILES, ids=[one.name for one in FILES])
@pytest.mark.one_in(12)
def test_the_effective_batch_stays_and_a_second_run_changes_nothing(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for machine in MACHINES:
        new = tmp_path / machine / path.name
        new.parent.mkdir()
        changes = tuned(path, machine, capsys, "-o", str(new)).get("changes", ())
        if any("accum" in one["key"] for one in changes):
            assert size(changes, "from") == size(changes, "to"), machine
        assert not [one for one in changes if "compile" in one["key"] and one["to"]], machine
        assert not (changes and tuned(new, machine, capsys)["changes"]), machine
