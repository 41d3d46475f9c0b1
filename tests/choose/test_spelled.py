"""Values as people write them: read as meant, or refused with what was probably meant."""

from __future__ import annotations

import json

import pytest
from each_row import each

from gpusetup.choose.wish import parse_words
from gpusetup.cli import main
from gpusetup.errors import UsageError

LAPTOP = ("--from", "rtx3050-laptop")

Said = pytest.CaptureFixture[str]


@pytest.mark.parametrize("text", ["12.4", "cuda-12.4"])
@pytest.mark.parametrize("option", [("resolve", "--driver"), ("doctor", "--driver")])
def test_a_cuda_version_is_no_driver(option: tuple[str, str], text: str, capsys: Said) -> None:
    command, name = option
    assert main([command, *LAPTOP, name, text]) == 2
    said = capsys.readouterr().err
    assert f"{text!r} is not an NVIDIA driver version" in said
    assert "as `Driver Version`" in said


@each(
    "words, meant",
    [
        (["torch", "cu124"], "gpusetup install --backend cu124"),
        (["numpy=2.1"], 'gpusetup install "numpy==2.1"'),
        (["cpuonly"], "gpusetup install --backend cpu"),
        (["torchvison"], "gpusetup install torchvision"),
        (
            ["./torch-2.5.1-cp311-cp311-linux_x86_64.whl"],
            "uv pip install ./torch-2.5.1-cp311-cp311-linux_x86_64.whl",
        ),
        (["requirements.txt"], "gpusetup install -r requirements.txt"),
    ],
)
def test_a_word_that_is_no_package_is_refused_with_what_was_meant(
    words: list[str], meant: str
) -> None:
    with pytest.raises(UsageError) as told:
        parse_words(words)
    assert f"`{meant}`" in (told.value.hint or "")


@pytest.mark.parametrize(
    ("words", "torch"),
    [
        (["torchvision==0.20.1"], "2.5.1"),
        (["torchvision==0.20.1+cu124", "torch>=2.5"], "2.5.1"),
        (["torchvision==0.20.*"], "2.5.1"),
    ],
)
def test_versions_that_go_together_are_installed_and_resolved(
    words: list[str], torch: str, capsys: Said
) -> None:
    assert main(["install", *LAPTOP, "--dry-run", "--json", *words]) == 0
    after = json.loads(capsys.readouterr().out)["after"]
    assert after["torch"].partition("+")[0] == torch
    assert after["torchvision"].startswith("0.20.1+")
    assert main(["resolve", *LAPTOP, "--offline", "--json", *words]) == 0
    assert json.loads(capsys.readouterr().out)["torch"] == torch
