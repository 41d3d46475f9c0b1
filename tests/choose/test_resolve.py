"""`gpusetup resolve` as a person meets it: whole screens, exit codes, bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from machines_named import FOLDERS, file_of

import gpusetup
from gpusetup.cli import main

DATA = Path(gpusetup.__file__).parent / "data"
RENDERED = Path(__file__).parents[1] / "rendered" / "resolve"
LAPTOP = ("--from", "rtx3050-laptop")


def there(*words: str) -> tuple[str, ...]:
    """A described Linux machine that takes nothing from this one."""
    return ("--os", "linux", "--machine", "x86_64", "--python", "3.11", "--glibc", "2.35", *words)


SCREENS = {
    "laptop": LAPTOP,
    "laptop-conda": (*LAPTOP, "--installer", "conda"),
    "pascal-explain": there("--driver", "580.95.05", "--gpu", "GTX 1080 Ti", "--explain"),
    "mixed": there("--driver", "580.95.05", "--gpu", "GTX 1080 Ti", "--gpu", "RTX 5090"),
    "torch-9.9": (*LAPTOP, "--torch", "9.9"),
    "driver-unknown": (*LAPTOP, "--os", "linux"),
    "newer-than-the-catalog": there("--driver", "700.10", "--gpu", "sm_140", "--torch", "2.15"),
}


@pytest.mark.parametrize("name", sorted(SCREENS))
def test_a_whole_screen(name: str, capsys, same_as_file) -> None:  # type: ignore[no-untyped-def]
    code = main(["resolve", *SCREENS[name]])
    said = capsys.readouterr()
    assert said.err == ""
    words = " ".join(SCREENS[name])
    same_as_file(f"$ gpusetup resolve {words}\n{said.out}exit {code}\n", RENDERED / f"{name}.txt")


def test_the_first_answer_is_that_of_doctor_and_install_and_the_newest_stands_next_to_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Of every example machine with a torch; described by hand it has none, and gets the newest."""

    def asked(*words: str) -> tuple[int, dict[str, Any]]:
        code = main([*words, "--json"])
        return code, json.loads(capsys.readouterr().out)

    installs = 0
    for name in map(str, map(file_of, FOLDERS)):
        doctor, resolved = asked("doctor", "--from", name)[1], asked("resolve", "--from", name)[1]
        assert resolved["newest"] == doctor["newest"], name
        for key in ("torch", "backend", "index_url", "driver_floor"):
            assert resolved[key] == (doctor["resolution"] or {}).get(key), (name, key)
        code, install = asked("install", "--dry-run", "--from", name)
        there = f"{resolved['torch']}+{resolved['backend']}"
        if code == 0 and (coming := install["after"].get("torch")):
            assert coming in (there, resolved["torch"]), name  # a Mac's has no label
            installs += 1
    assert installs > 5
    described = asked("resolve", *LAPTOP, "--driver", "581.29")[1]
    assert (described["torch"], described["newest"]["torch"]) == ("2.15.0", "2.15.0")


@pytest.fixture
def torch_of_conda(tmp_path: Path) -> str:
    """A machine with an RTX 3090 on which conda installed torch's CPU build."""
    machine = json.loads((DATA / "machines" / "healthy.json").read_text())
    prefix = "/home/user/miniforge3/envs/ml"
    machine["python"] |= {"executable": f"{prefix}/bin/python", "prefix": prefix}
    machine["python"]["manager"] = machine["torch"]["installer"] = "conda"
    machine["torch"] |= {"version": "2.5.1", "cuda": None, "backend": "cpu"}
    file = tmp_path / "conda.json"
    file.write_text(json.dumps(machine))
    return str(file)


def test_a_torch_that_conda_installed_is_answered_from_its_channels(
    torch_of_conda: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in ("doctor", "resolve"):
        main([command, "--from", torch_of_conda])
        said = capsys.readouterr().out
        assert "newest       torch 2.13.0 from cu130" in said, command
        assert "conda install" in said and "pytorch-cuda=12.4" in said, command
    main(["resolve", "--from", torch_of_conda, "--installer", "uv"])
    assert "install --upgrade" not in capsys.readouterr().out
    main(["install", "--dry-run", "--upgrade", "--from", torch_of_conda])
    assert "resolve --installer conda`, with the same " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "first"),
    [
        ((), "! No NVIDIA GPU was found, so this is the CPU build. To choose for "),
        (("--backend", "cpu"), "✓ torch 2.15.0 from cpu"),
        (("--gpu", "T4", "--driver", "580.95.05"), "✓ torch 2.15.0 from cu130"),
    ],
)
def test_a_cpu_build_that_nobody_asked_for_is_said_first(
    words: tuple[str, ...], first: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["resolve", "--from", "no-gpu", *words]) == 0
    said = capsys.readouterr().out
    assert said.startswith(first) and said.count("so this is the CPU build") == (not words)


WRONG = [
    (("--gpu", "RTX 6000"), "'RTX 6000' names GPUs of different capability", "name one of them"),
    (("--backend", "cu131"), "has no torch for 'cu131'", "such as"),
    (("--torch", "2.5.1+cu124", "--backend", "cpu"), "asks for cu124", "give only one of them"),
]


@pytest.mark.parametrize(("words", "said", "hint"), WRONG, ids=[" ".join(w) for w, _, _ in WRONG])
def test_a_wrong_question_is_exit_2_with_a_hint(words, said, hint, capsys) -> None:  # type: ignore[no-untyped-def]
    named = () if "--gpu" in words else ("--gpu", "T4")
    assert main(["resolve", "--driver", "580.95.05", *named, *words]) == 2
    out, err = capsys.readouterr()
    told = out + err
    assert said in told and hint in told and "Traceback" not in told


MIRROR = "https://mirror.example/whl"


def test_a_mirror_stands_in_all_that_is_printed_and_its_password_nowhere(
    capsys: pytest.CaptureFixture[str],
) -> None:
    root = "https://me:secret@mirror.example/whl"
    assert main(["resolve", *LAPTOP, "--index", root, "--json"]) == 0
    said = capsys.readouterr().out
    answer = json.loads(said)
    assert "secret" not in said and answer["index_url"] == f"{MIRROR}/cu124"
    assert answer["newest"]["index_url"] == f"{MIRROR}/cu130"
    others = [choice["index_url"] for choice in answer["fallbacks"]]
    assert others == [f"{MIRROR}/cu121", f"{MIRROR}/cu118"]
    assert "download.pytorch.org" not in said
