"""What people name as a file and is none: a pipe, a device, a folder, something endless."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpusetup.cli import main

pytestmark = pytest.mark.skipif(os.name != "posix", reason="pipes and devices have no such names")


def pipe(place: Path) -> Path:
    os.mkfifo(place / "pipe")
    return place / "pipe"


def endless(place: Path) -> Path:
    with (place / "endless").open("wb") as file:
        file.truncate(1 << 40)
    return place / "endless"


KINDS: dict[str, Callable[[Path], Path]] = {
    "pipe": pipe,
    "device": lambda place: Path("/dev/zero"),
    "terabyte": endless,
    "folder": lambda place: place,
}


COMMANDS = (
    "fleet check --profile",
    "doctor --from",
    "fleet run --print --hosts",
    "plan --from-config",
    "plan --cells",
    "plan --model",
    "resolve --from",
    "resolve -r",
    "tune",
    "monitor --replay",
)


@pytest.mark.skipif(sys.platform != "linux", reason="/dev/zero")
@pytest.mark.parametrize("words", COMMANDS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.one_in(3)
def test_no_command_waits_for_what_is_no_file(
    words: str, kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    named = str(KINDS[kind](tmp_path))
    if words == "monitor --replay" and kind == "terabyte":
        pytest.skip("a recording is read line by line, however long it is")
    code = main([*words.split(), named])
    said = capsys.readouterr()
    assert code == 2, said.err
    assert named in said.err and "Traceback" not in said.err
