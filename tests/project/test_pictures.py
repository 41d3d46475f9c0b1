"""The pictures of the documentation: each shows what its command prints now."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DRAWN = ROOT / "docs" / "pictures"


@pytest.mark.skipif(sys.platform == "win32", reason="drawn in a POSIX terminal")
@pytest.mark.slow
def test_no_picture_is_stale_large_or_fetches() -> None:
    argv = [sys.executable, str(ROOT / "scripts/pictures.py"), "--check"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout
