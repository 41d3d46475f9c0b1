"""Which build fits which machine, and what always holds: `resolve` asked as a program asks it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from each_row import each
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpusetup.cli import main

Said = pytest.CaptureFixture[str]
LINUX = "--os linux --machine x86_64 --python 3.11 --driver 580.95.05"
OLD_T4 = "--gpu T4 --driver 470.256.02"
PASCAL = "--gpu 'GTX 1080 Ti'"


def asked(capsys: Said, *words: str) -> dict[str, Any]:
    capsys.readouterr()
    code = main(["resolve", *words, "--json"])
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert (code, answer.get("torch") is None) in ((0, False), (1, True)), answer
    return answer


def facts_of(answer: dict[str, Any]) -> str:
    """What a row may look for: everything but the commands, as text."""
    return json.dumps({**answer, "commands": None}, ensure_ascii=False)


# --- described by words --------------------------------------------------------------------------


@each(
    "words, build, said",
    [
        ("--gpu T4", "2.15.0 cu130", ""),
        (PASCAL, "2.14.1 cu126", "has no kernel for NVIDIA GeForce GTX 1080 Ti (6.1), only for"),
        (f"{PASCAL} --driver 590.48.01", "", "install branch 580 (its last)"),
        (OLD_T4, "2.7.1 cu118", '"to": "580.65.06", "gives": "torch 2.15.0 (cu130)"'),
        (f"{OLD_T4} --torch 2.9.0", "", '"to": "525.60.13", "gives": "torch 2.9.0 (cu129)"'),
        ("--gpu T4 --python 3.15 --torch 2.5.1", "", '"to": "3.13", "gives": "torch 2.5.1'),
        ("--gpu T4 --backend rocm6.4", "", "no build from rocm6.4 for NVIDIA GPUs"),
        ("--gpu 'RTX 5090' --driver 550.54.14", "", "needs NVIDIA driver 570 or newer, found 550"),
    ],
)  # fmt: skip
def test_a_described_machine(words: str, build: str, said: str, capsys: Said) -> None:
    answer = asked(capsys, *shlex.split(f"{LINUX} {words}"))
    assert f"{answer['torch'] or ''} {answer['backend'] or ''}".strip() == build
    assert said in facts_of(answer)


# --- as a snapshot has it ------------------------------------------------------------------------

T4 = {"name": "Tesla T4", "compute_capability": "7.5"}
OLD = {"name": "GTX 1080 Ti", "compute_capability": "6.1"}
NEW = {"name": "RTX 5090", "compute_capability": "12.0"}
BUS = {"vendor": "nvidia", "bus_id": "0000:01:00.0"}
DRIVER = {"driver": {"version": "580.95.05"}}
B200 = {"name": "NVIDIA B200", "compute_capability": "10.0"}


def linux(*gpus: dict[str, Any], **more: Any) -> dict[str, Any]:
    os = {"family": "linux", "machine": "x86_64", "libc": "glibc 2.35"}
    python = {"version": "3.11.9"}
    return {"os": os, "python": python, "gpus": gpus, **DRIVER, **more}


@each(
    "machine, words, build, said",
    [
        (linux({**OLD, "visible": False}, {**NEW, "visible": True}), "", "2.15.0 cu130", ""),
        (
            linux(
                driver={"version": "550.54.14"},
                pci_devices=[{**BUS, "name": "GB202 [GeForce RTX 5090]"}],
            ),
            "", "", "GeForce RTX 5090 needs",
        ),
        (linux(driver={}), "", "2.15.0 cpu", "no NVIDIA GPU was found, so this is the CPU build"),
        (linux(B200, driver={}), "--torch 2.9.1", "2.9.1 cu128", "570.133.20 or newer"),
        (
            linux(T4, os={"family": "linux", "machine": "x86_64", "libc": "musl 1.2.5"}),
            "", "", "there are no wheels for musl",
        ),
        (linux(T4, python={"version": "3.11.9", "bits": 32}), "", "", "\"to\": \"3.11\""),
    ],
)  # fmt: skip
def test_a_machine_that_was_read(
    machine: dict[str, Any], words: str, build: str, said: str, capsys: Said, tmp_path: Path
) -> None:
    file = tmp_path / "machine.json"
    file.write_text(json.dumps({"schema": "gpusetup.snapshot/1", **machine}))
    answer = asked(capsys, "--from", str(file), *shlex.split(words))
    assert f"{answer['torch'] or ''} {answer['backend'] or ''}".strip() == build
    assert said in facts_of(answer)


# --- what always holds ---------------------------------------------------------------------------

GPUS = ("K80", "V100", "T4", "GTX 1080 Ti", "RTX 3090", "RTX 4090", "H100", "RTX 5090", "B200")
DRIVERS = (
    *("390.10", "450.80.02", "470.256.02", "535.183.01", "550.54.14"),
    *("570.172.08", "580.95.05", "595.58.03", "700.10"),
)
HOSTS = st.fixed_dictionaries(
    {
        "--gpu": st.sampled_from(GPUS),
        "--driver": st.sampled_from(DRIVERS),
        "--python": st.sampled_from(("3.8", "3.11", "3.13t", "3.15")),
        "--torch": st.sampled_from((">=1.10", "2.5.1", ">=2.6,<2.9")),
        "--os": st.sampled_from(("linux", "windows")),
        "--backend": st.sampled_from(("auto", "auto", "cu118", "cu126")),
    }
)
Ask = Callable[[dict[str, str]], dict[str, Any]]
many = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def ask(capsys: Said) -> Ask:
    def answered(host: dict[str, str]) -> dict[str, Any]:
        words = [word for pair in host.items() for word in pair]
        return asked(capsys, "--machine", "x86_64", *words)

    return answered


def numbers(torch: str | None) -> list[int]:
    return [int(part) for part in torch.split(".")] if torch else []


@many
@given(host=HOSTS, drivers=st.tuples(st.sampled_from(DRIVERS), st.sampled_from(DRIVERS)))
def test_a_newer_driver_never_gives_an_older_torch(
    ask: Ask, host: dict[str, str], drivers: tuple[str, str]
) -> None:
    older, newer = sorted(drivers, key=numbers)
    before, after = ask({**host, "--driver": older}), ask({**host, "--driver": newer})
    left_behind = any("(its last)" in note for note in after["notes"])
    assert left_behind or numbers(before["torch"]) <= numbers(after["torch"])


@many
@given(host=HOSTS)
def test_advice_is_true(ask: Ask, host: dict[str, str]) -> None:
    """What the advice says one would get is what one gets."""
    answer = ask(host)
    advice = answer["advice"]
    if advice is None:
        return
    to = {"torch": f"=={advice['to']}", "backend": "auto"}.get(advice["change"], advice["to"])
    after = ask({**host, f"--{advice['change']}": to})
    assert advice["gives"] == f"torch {after['torch']} ({after['backend']})"
    assert numbers(after["torch"]) > numbers(answer["torch"])
