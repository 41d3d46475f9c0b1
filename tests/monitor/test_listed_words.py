"""Requirements that files list, as words; what a stranger wrote into them breaks nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from each_row import each

from gpusetup.cli import main

Said = pytest.CaptureFixture[str]


def listed(path: Path, capsys: Said, *more: str) -> tuple[int, str]:
    """What `resolve` makes of a file for a described machine, by our own table."""
    capsys.readouterr()
    code = main(["resolve", "--from", "healthy", "--offline", "-r", str(path), *more, "--json"])
    said = capsys.readouterr()
    return code, said.out + said.err


def test_a_list_says_what_is_not_taken_and_several_are_read(tmp_path: Path, capsys: Said) -> None:
    (tmp_path / "base.in").write_text("torchvision >=0.1  # that\n")
    path = tmp_path / "requirements.txt"
    path.write_text("--index-url https://me:secret@i.example\ntorch \\\n ==2.9.1\n")
    code, said = listed(path, capsys, "-r", str(tmp_path / "base.in"))
    assert code == 0 and '"2.9.1' in said and "torchvision" in said
    assert "is not taken" in said and "secret" not in said


def test_a_list_may_name_others_and_constraints_that_apply(
    tmp_path: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text("-r more/base.txt\n-c more/limits.txt\ntorch\n")
    (tmp_path / "more").mkdir()
    # It names the first again, as lists do that include one another.
    (tmp_path / "more/base.txt").write_text("torchvision\n-r ../requirements.txt\n")
    (tmp_path / "more/limits.txt").write_text("numpy<3\n")
    monkeypatch.setenv("UV_CONSTRAINT", str(tmp_path / "more/limits.txt"))
    code, said = listed(path, capsys)
    assert code == 0 and "torchvision" in said


@each(
    "name, text, told",
    [
        ("a.txt", "-e .\n", "is not taken"),
        ("a.txt", "--constraint=x\n", "UV_CONSTRAINT="),
        ("a.txt", "-r absent.txt\n", "cannot be read"),
        ("a.txt", "\x89PNG\r\n\x1a\n", ""),
        ("a.toml", "[project]\n", "uv pip compile"),
        ("absent/a.txt", None, "cannot be read"),
    ],
)
def test_what_cannot_be_asked_is_told(
    name: str, text: str | None, told: str, tmp_path: Path, capsys: Said
) -> None:
    path = tmp_path / name
    if text is not None:
        path.write_bytes(text.encode("latin-1"))
    code, said = listed(path, capsys)
    assert code == 2 and told in said, said


@pytest.mark.parametrize(
    "text", ["einops==0.8 --hash=sha256:00\n", "--require-hashes\neinops==0.8\n"]
)
def test_hashes_are_no_words_that_an_installation_drops(
    text: str, tmp_path: Path, capsys: Said
) -> None:
    file = tmp_path / "requirements.txt"
    file.write_text(text)
    assert main(["install", "-r", str(file), "--venv", str(tmp_path / "env"), "--yes"]) == 2
    assert "names hashes" in capsys.readouterr().err
    assert not (tmp_path / "env").exists()
