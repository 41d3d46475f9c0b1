"""What people name as a file and is none: a pipe, a device, a folder, something endless."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpusetup.cli import main
from gpusetup.errors import BadInput
from gpusetup.named_file import read_text

pytestmark = pytest.mark.skipif(os.name != "posix", reason="pipes and devices have no such names")

MIB = 1 << 20


def pipe(place: Path) -> Path:
    os.mkfifo(place / "pipe")
    return place / "pipe"


def endless(place: Path) -> Path:
    with (place / "endless").open("wb") as file:
        file.truncate(1 << 40)
    return place / "endless"


def linked(place: Path) -> Path:
    (place / "link").symlink_to("/dev/zero")
    return place / "link"


KINDS: dict[str, Callable[[Path], Path]] = {
    "pipe": pipe,
    "device": lambda place: Path("/dev/zero"),
    "link to a device": linked,
    "terabyte": endless,
    "folder": lambda place: place,
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_file_is_refused_at_once(kind: str, tmp_path: Path) -> None:
    named = KINDS[kind](tmp_path)
    with pytest.raises(BadInput, match=str(named)):
        read_text(named, MIB)


SNAPSHOT = '{"schema": "gpusetup.snapshot/1", "taken_at": "Ü", "gpus": [{"name": "NVIDIA L4"}]}'
SAMPLE = '{"schema": "gpusetup.monitor/1", "kind": "sample", "at": "Ü", "seconds": 1}\r\n'
READ = (
    ("resolve --offline --from rtx3050-laptop -r r.json", "torchvision  # für torch\r\n"),
    ("resolve --offline --from rtx3050-laptop -r list.txt", "torchvision  # für torch\r\n"),
    ("snapshot diff r.json r.json", SNAPSHOT),
    ("doctor --from r.json --json", SNAPSHOT),
    ("fleet show .", SNAPSHOT),
    ("fleet run --print --hosts r.json", "# für alle\r\nnode1\r\n"),
    ("monitor --replay r.json", SAMPLE),
)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be", "cp1252"])
@pytest.mark.parametrize(("words", "text"), READ)
def test_a_text_says_the_same_however_windows_wrote_it(
    words: str, text: str, encoding: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    def answered(encoding: str) -> tuple[int, str]:
        monkeypatch.chdir(tmp_path)
        Path("list.txt").write_text("-r r.json\n", encoding)
        Path("r.json").write_bytes(text.encode(encoding))
        return main(words.split()), "".join(capsys.readouterr())

    right = answered("utf-8")
    assert right[0] in (0, 1), right
    assert (answered(encoding) == right) is (encoding != "cp1252" or "torch" in text)


COMMANDS = (
    "fleet check --profile",
    "snapshot diff {sound}",
    "doctor --from",
    "fleet run --print --hosts",
    "fleet show {folder} --profile",
    "fleet slurm health --profile",
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
@pytest.mark.parametrize("kind", ["pipe", "device", "terabyte"])
@pytest.mark.one_in(3)
def test_no_command_waits_for_what_is_no_file(
    words: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    from gpusetup.commands import fleet_slurm as slurm

    monkeypatch.setattr(slurm, "_scontrol", lambda *words: "State=IDLE\n")
    folder = tmp_path / "folder"
    folder.mkdir()
    sound = folder / "sound.json"
    assert main(["snapshot", "--from", "rtx3050-laptop", "--output", str(sound)]) == 0
    named = str(KINDS[kind](tmp_path))
    if words == "monitor --replay" and kind == "terabyte":
        pytest.skip("a recording is read line by line, however long it is")
    code = main([*words.format(sound=sound, folder=folder).split(), named])
    said = capsys.readouterr()
    assert code == 2, said.err
    assert named in said.err and "Traceback" not in said.err
