"""`verify --with`: each companion is imported, and why one is not is said."""

from __future__ import annotations

import json
from pathlib import Path

from verifying import started


def test_an_import_that_fails_has_its_cause_and_what_is_not_there_is_skipped(
    tmp_path: Path,
) -> None:
    info = tmp_path / "torch_scatter-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch-scatter\nVersion: 1.0\n")
    (tmp_path / "torch_scatter").mkdir()
    source = "raise OSError('undefined symbol: _ZN3c104cuda')\n"
    (tmp_path / "torch_scatter" / "__init__.py").write_text(source)
    words = ("--device", "cpu", "--json", "--only", "import")
    run = started(
        *words,
        *("--with", "torch-scatter", "sageattention"),
        environment={"PYTHONPATH": str(tmp_path)},
    )
    rows = {row["name"]: row for row in json.loads(run.stdout)["checks"]}
    broken, missing = rows["torch-scatter"], rows["sageattention"]
    assert (run.returncode, broken["status"], missing["status"]) == (1, "failed", "skipped")
    assert "built for another torch" in broken["hint"]
    assert missing["hint"] == "`gpusetup install sageattention`"
