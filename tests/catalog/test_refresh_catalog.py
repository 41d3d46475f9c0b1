"""`scripts/refresh_catalog.py`: the catalog's text, and what the live index adds to it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import refresh_catalog
from index_server import build_wheel, index_server

from gpusetup.catalog.file import read_catalog
from gpusetup.named_file import SHIPPED

ROOT = Path(__file__).resolve().parents[2]
DATA, FACTS = Path(SHIPPED, "catalog.json"), Path(SHIPPED, "facts.json")
SCRIPT = ROOT / "scripts" / "refresh_catalog.py"


def refresh(*words: str, home: Path) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, str(SCRIPT), *words]
    env = {"PATH": "/usr/bin:/bin", "HOME": str(home), "XDG_CACHE_HOME": str(home / "cache")}
    return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("file", (DATA, FACTS), ids=lambda file: file.stem)
def test_the_data_is_written_as_the_script_writes_it(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert refresh_catalog.written(json.loads(text)) == text


def test_a_build_seen_on_the_index_is_shown_as_a_diff(tmp_path: Path) -> None:
    tag = "cp311-cp311-manylinux_2_28_x86_64"
    with index_server(tmp_path / "index") as index:
        for version in ("2.15.0+cu130", "2.99.0+cu130"):
            index.add("whl", build_wheel(tmp_path / "w", "torch", version, tag=tag))
        done = refresh("--index", index.index_root, home=tmp_path)
    assert done.returncode == 0, done.stderr
    release, build = [line for line in done.stdout.splitlines() if line.startswith("+ ")][-2:]
    assert '{"torch": "2.99.0", "released"' in release
    build_on = '{"torch": "2.99.0", "on": "linux-x86_64", "pythons": "3.11", "glibc": "2.28"'
    assert build_on in build
    last = [b for b in read_catalog(DATA.read_bytes()).builds if b.backend == "cu130"]
    newest = [b for b in last if (b.os, b.machine, b.channel) == ("linux", "x86_64", "pytorch")][-1]
    kernels = f'"arch": "{" ".join(refresh_catalog.arch_list(newest.kernels, newest.ptx))}"'
    assert f'"backend": "cu130", {kernels}, "status": "inferred"' in build
