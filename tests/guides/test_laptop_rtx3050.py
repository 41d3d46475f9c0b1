"""Guide 002, a laptop with an RTX 3050: what its reader does, and what gpusetup must give back."""

from __future__ import annotations

import pytest

from gpusetup.cli import main
from gpusetup.verify.answer.render import as_text
from gpusetup.verify.checks.table import on_device
from gpusetup.verify.values import Outcome, Report, Result


LAPTOP = ("--from", "rtx3050-laptop")


def test_conda_makes_a_new_environment_with_a_name_and_a_python(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """002-9: create, activate, install and verify, with the name that was asked for."""
    assert main(["resolve", *LAPTOP, "--torch", "2.5.1", "--name", "qwen"]) == 0
    commands = capsys.readouterr().out.partition("With conda\n")[2].splitlines()
    create, activate, install, verify = (line.strip() for line in commands[:4])
    assert create.startswith("conda create --name qwen ")
    assert create.endswith(" python=3.11")
    assert activate == "conda activate qwen"
    assert install.startswith("conda install --yes --name qwen ")
    assert " --channel pytorch --channel nvidia " in install
    assert install.endswith(
        " pytorch::pytorch==2.5.1 pytorch::torchvision==0.20.1 pytorch::torchaudio==2.5.1 "
        "pytorch-cuda=12.4"
    )
    assert verify == "gpusetup verify"


@pytest.mark.parametrize(
    ("machine", "begins"),
    [("rtx3050-laptop", "conda create --name torch "), ("conda-and-pip", "conda install --yes ")],
)
def test_without_a_name_an_active_environment_is_used(
    machine: str, begins: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """002-9: a machine without an active conda environment gets a new one."""
    assert main(["resolve", "--from", machine, "--installer", "conda"]) == 0
    commands = capsys.readouterr().out.partition("With conda\n")[2]
    assert commands.strip().startswith(begins)


@pytest.mark.parametrize("name", ["base", "-rf", "a b", "x/y", "x;id", "$(id)"])
def test_a_name_that_conda_refuses_is_an_error(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """002-9: nothing that is no name of an environment goes into a command."""
    assert main(["resolve", *LAPTOP, f"--name={name}"]) == 2
    assert "conda" in capsys.readouterr().err


def test_the_gpu_is_measured_against_the_cpu_where_there_is_one() -> None:
    """002-17: standard measures how many times as fast as the CPU the GPU is."""
    on_gpu = [check.name for check in on_device("standard", "cuda:0")]
    on_cpu = [check.name for check in on_device("standard", "cpu")]
    assert "speed-over-cpu" in on_gpu
    assert "speed-over-cpu" not in on_cpu

    gpu = {"device": "cuda:0", "name": "RTX 3050", "memory_total_bytes": 4 << 30}
    facts = {"torch": "2.5.1+cu124", "cuda": "12.4", "available": True, "devices": [gpu]}
    compared = Outcome("passed", "products of 4096 x 4096", 54.2, unit="times the CPU in float32")
    report = Report("auto", False, facts, (Result("speed-over-cpu", "cuda:0", compared),))
    assert "GPU Speed: 54 times the CPU" in as_text(report)


def test_verify_of_the_cpu_says_nothing_of_a_gpu() -> None:
    """002-17: `--device cpu` has no line on a GPU's speed."""
    imported = Result("import", "host", Outcome("passed", ""))
    report = Report("cpu", False, {"devices": []}, (imported,))
    assert "times the CPU" not in as_text(report)
