"""What all tests share: `--accept`, the comparison of whole screens with files, and Ctrl-C."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

Same = Callable[[str, Path], None]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--accept", action="store_true", help="rewrite what is expected")


def pytest_configure() -> None:
    """A runner in the background ignores SIGINT, and what the tests start would inherit that."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def same_as_file(request: pytest.FixtureRequest) -> Same:
    """Compare a whole text with a file; `--accept` rewrites the file, and the diff is reviewed."""

    def compare(text: str, file: Path) -> None:
        if request.config.getoption("--accept"):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        assert file.exists(), f"{file} is missing: `pytest --accept` writes it"
        assert text == file.read_text(encoding="utf-8")

    return compare
