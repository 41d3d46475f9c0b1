"""What goes together with a torch, asked from outside: by resolve, install and doctor alike."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from installing import Said

from gpusetup.cli import main

LAPTOP = ("--from", "rtx3050-laptop")
NEW_ON_OLD_DRIVER = ("--gpu", "T4", "--driver", "535.183.01", "--os", "linux")
NEW_ON_NEW_DRIVER = ("--gpu", "RTX 4090", "--driver", "580.95.05", "--os", "linux")
REST = ("--machine", "x86_64", "--python", "3.12", "--glibc", "2.35")
Run = Callable[..., Said]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def ran(*words: str) -> Said:
        capsys.readouterr()
        code = main(list(words))
        printed = capsys.readouterr()
        return Said(exit=code, out=printed.out, err=printed.err)

    return ran


# --- numpy ----------------------------------------------------------------------------------------


def test_an_old_torch_gets_the_numpy_that_doctor_calls_right(run: Run) -> None:
    """torch before 2.3 was built against numpy 1: one table for install, resolve and doctor."""
    planned = run("install", "--dry-run", "--json", *LAPTOP, "--torch", "2.2.2", "torchvision")
    assert planned.exit == 0, planned.err
    last = planned.answer["steps"][-1]["argv"]
    assert "numpy<2" in last
    described = run("resolve", *NEW_ON_NEW_DRIVER, *REST, "--torch", "2.2.2", "--json")
    commands = described.answer["commands"]
    assert "numpy<2" in commands["uv"][-1] and "numpy<2" in commands["pip"][-1]
    newer = run("resolve", *NEW_ON_NEW_DRIVER, *REST, "--torch", "2.3.0", "--json")
    assert "numpy" not in json.dumps(newer.answer["commands"])


# --- without a wheel ------------------------------------------------------------------------------


def test_a_package_that_cannot_be_had_has_each_way_on_a_line_of_its_own(run: Run) -> None:
    answer = run("resolve", "flash-attn", "--offline", *NEW_ON_NEW_DRIVER, *REST)
    ways = [line.strip() for line in answer.err.partition("hint: ")[2].splitlines()]
    assert ways[0] == "nothing was changed"
    page = "https://github.com/Dao-AILab/flash-attention/releases"
    assert ways[1].startswith(f"wheels for some torch versions are at {page}: `uv pip install ")
    assert ways[2].startswith("alternative to flash-attn: ")
    assert not any(page in way for way in ways[2:])
    compiled = run("resolve", "apex", "--offline", *NEW_ON_NEW_DRIVER, *REST)
    assert "to compile apex for your torch, run `uv pip install " in compiled.err
    without_gpu = run("resolve", "onnxruntime-gpu", "--offline", "--from", "no-gpu")
    assert without_gpu.exit == 1
    assert "onnxruntime-gpu needs an NVIDIA GPU" in without_gpu.err
    assert "onnxruntime runs on the CPU" in without_gpu.err
    # FlashAttention 2 needs Ampere: an hour of building would end in the same no.
    for host in (NEW_ON_OLD_DRIVER, ("--backend", "cpu", "--os", "linux")):
        old = run("resolve", "flash-attn", "--offline", *host, *REST)
        assert old.exit == 1 and "scaled_dot_product_attention" in old.err
        assert "--no-build-isolation flash-attn" not in old.err


PIN = "xformers==0.0.29.post3"
BLACKWELL = ("--gpu", "RTX 5090", "--driver", "581.29", "--os", "windows", *("--machine", "x86_64"))


def test_a_pinned_companion_decides_torch_or_is_refused(run: Run) -> None:
    served = run("resolve", PIN, "--offline", *NEW_ON_OLD_DRIVER, *REST, "--json")
    assert served.answer["torch"] == "2.6.0"
    refused = run("resolve", PIN, "--offline", *BLACKWELL, "--python", "3.11")
    assert refused.exit == 1
    first, *_ = refused.err.splitlines()
    assert len(first) <= len("error: ") + 120
    assert "xformers==0.0.29.post3 needs torch 2.6.0" in first and "no kernel for" in first
    assert "xformers 0.0.30 works, with torch 2.7.0 from cu128" in refused.err


@pytest.mark.parametrize("word", ["torchaudio", "accelerate==1.11.0", "torchao"])
def test_a_projects_cpu_build_beside_a_gpu_is_replaced(
    word: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("requirements.txt").write_text(f"{word}\n")
    project = run("install", "-r", "requirements.txt", "--dry-run", "--json", *LAPTOP)
    assert "+cu" in project.answer["after"]["torch"], project.err
    typed = run("install", word, "--dry-run", "--json", *LAPTOP)
    assert "+cu" not in typed.answer["after"]["torch"], "words that are typed change no torch"


@pytest.mark.parametrize(
    ("package", "says"),
    [
        (("vllm", "0.32.0"), "vllm 0.32.0 is built for CUDA 13, but torch for CUDA 12.6"),
        (("bitsandbytes", "0.50.0"), None),
        (("torchcodec", "0.13.0"), None),
        (("vllm", "0.32.0+cu126"), None),
    ],
)
def test_doctor_judges_a_companion_as_resolve_does(
    package: tuple[str, str], says: str | None, run: Run, tmp_path: Path
) -> None:
    data = Path(__file__).parents[2] / "gpusetup" / "data" / "machines" / "healthy.json"
    machine = json.loads(data.read_text())
    machine["torch"] |= {"version": "2.13.0+cu126", "backend": "cu126", "cuda": "12.6"}
    name, version = package
    machine["packages"] = [{**machine["packages"][0], "name": name, "version": version}]
    path = tmp_path / "machine.json"
    path.write_text(json.dumps(machine))
    titles = [
        one["title"] for one in run("doctor", "--from", str(path), "--json").answer["findings"]
    ]
    assert (says in titles) if says else not any(name in title for title in titles)
