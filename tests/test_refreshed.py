"""`resolve --refresh`: what the live index lists, and what keeps it from that."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from index_server import IndexServer, build_wheel, index_server

from gpusetup.cli import main

LINUX = "cp311-cp311-manylinux_2_28_x86_64"
THERE = ("--os", "linux", "--machine", "x86_64", "--python", "3.11", "--gpu", "T4")
NEW_DRIVER = ("--driver", "615.71.09")


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[IndexServer]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with index_server(tmp_path / "index") as server:
        monkeypatch.setenv("GPUSETUP_INDEX", server.index_root)
        yield server


def listed(index: IndexServer, folder: Path, *versions: str, tag: str = LINUX) -> None:
    """Wheels on the page of their backend and, as on torch's own index, on that of all."""
    for version in versions:
        backend = version.partition("+")[2]
        wheel = build_wheel(folder / "live", "torch", version, tag=tag)
        index.add(f"whl/{backend}", wheel)
        index.add("whl", wheel)


Ask = Callable[..., tuple[int, dict[str, Any], str]]


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Ask:
    def asked(*words: str) -> tuple[int, dict[str, Any], str]:
        capsys.readouterr()
        driver = () if "--driver" in words else NEW_DRIVER
        code = main(["resolve", *THERE, *driver, *words, "--json"])
        said = capsys.readouterr()
        return code, json.loads(said.out), said.out + said.err

    return asked


# --- what it says --------------------------------------------------------------------------------


def test_what_the_index_lists_is_taken_and_called_inferred_and_what_it_lacks_is_gone(
    index: IndexServer, tmp_path: Path, ask: Ask
) -> None:
    listed(index, tmp_path, "2.14.1+cu130", "2.16.0+cu130", "2.16.0+cu134")
    listed(index, tmp_path, "2.17.0.dev20261101+cu130", "2.17.0rc1+cu130")
    code, answer, said = ask("--refresh")
    assert (code, answer["torch"], answer["backend"]) == (0, "2.16.0", "cu134")
    assert answer["torchvision"] == "0.29.2" and "inferred from 2.15.0 cu132" in said
    assert [one["backend"] for one in answer["fallbacks"]] == ["cu130"]
    rows = {(one["torch"], one["backend"]) for one in answer["rejections"]}
    assert ("2.15.0", "cu130") not in rows
    assert {("2.15.0", "cu132"), ("2.14.1", "cu130")} <= rows


def test_pythons_systems_and_libraries_are_read_from_the_names(
    index: IndexServer, tmp_path: Path, ask: Ask
) -> None:
    listed(index, tmp_path, "2.16.0+cu130")
    listed(index, tmp_path, "2.16.0+cu130", tag="cp313-cp313t-manylinux_2_28_x86_64")
    listed(index, tmp_path, "2.16.0+cu130", tag="cp311-cp311-win_amd64")
    listed(index, tmp_path, "2.18.0+cu130", tag="cp311-cp311-musllinux_1_2_x86_64")
    for words in ((), ("--python", "3.13t"), ("--os", "windows")):
        assert ask("--refresh", *words)[1]["torch"] == "2.16.0", words
    assert ask("--refresh", "--python", "3.12")[1]["torch"] == "2.15.0"
    assert "needs glibc 2.28" in ask("--refresh", "--glibc", "2.17")[2]


def test_a_cuda_that_nobody_knows_is_asked_for_and_waits_for_a_driver_that_serves_it(
    index: IndexServer, tmp_path: Path, ask: Ask
) -> None:
    listed(index, tmp_path, "2.16.0+cu130", "2.16.0+cu136", "2.16.0+cu140")
    code, answer, said = ask("--refresh")
    assert (code, answer["torch"], answer["backend"]) == (0, "2.16.0", "cu130")
    assert ask("--refresh", "--backend", "cu136")[1]["backend"] == "cu136"
    assert "needs a driver for CUDA 14.0, which is newer than the catalog" in said


def test_a_label_that_is_asked_for_by_name_is_asked_of_the_live_index(
    index: IndexServer, tmp_path: Path, ask: Ask
) -> None:
    listed(index, tmp_path, "2.16.0+cu130", "2.16.0+cu140")
    code, _, said = ask("--backend", "cu140")
    assert code == 2 and "--backend cu140 --refresh` asks" in said
    code, _, said = ask("--backend", "cu140", "--refresh")
    assert code == 1 and "needs a driver for CUDA 14.0" in said and "never" not in said
    code, _, said = ask("--backend", "cu150", "--refresh")
    assert code == 1 and "lists no torch for 'cu150'" in said
