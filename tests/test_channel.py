"""`resolve --torch nightly`: the command that takes the newest build of that channel."""

from __future__ import annotations

import json

import pytest

from gpusetup.cli import main

A100 = ("--gpu", "A100 80GB", "--driver", "580.95.05", "--os", "linux", "--machine", "x86_64")
THERE = ("resolve", *A100, "--python", "3.12", "--glibc", "2.35", "--torch")
Said = pytest.CaptureFixture[str]
MIRROR = ("--index", "https://me:secret@mirror.example/whl")


def test_the_command_is_printed_for_the_backend_that_fits_and_called_unproven(capsys: Said) -> None:
    assert main([*THERE, "nightly", *MIRROR, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    index = "https://mirror.example/whl/nightly/cu130"
    assert (answer["torch"], answer["index_url"]) == ("nightly", index)
    assert "not tested" in answer["notes"][0]
    (uv,), (pip,) = answer["commands"]["uv"], answer["commands"]["pip"]
    assert uv[3:5] == ["--prerelease", "allow"] and "--pre" in pip
    assert uv[-1] == pip[-1] == index
    assert main([*THERE, "nightly", "--installer", "pip"]) == 0
    assert "pip install --pre torch torchvision torchaudio" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("nightly", "vllm"), 2),
        (("nightly", "--format", "requirements"), 2),
        (("nightly", "--installer", "conda"), 2),
        (("nightly", "--driver", "390.10"), 1),
    ],
)
def test_what_has_no_such_build_is_a_no_in_a_sentence(
    words: tuple[str, ...], code: int, capsys: Said
) -> None:
    assert main([*THERE, *words, "--json"]) == code
    assert json.loads(capsys.readouterr().out)["message"]


def test_install_takes_none_and_names_the_command(capsys: Said) -> None:
    assert main(["install", "--torch", "nightly", "--dry-run", "--from", "rtx3050-laptop"]) == 2
    assert "`gpusetup resolve --torch nightly`" in capsys.readouterr().err
