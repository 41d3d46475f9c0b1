"""`resolve --torch nightly`: the newest build of that channel's index, from a real index."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from index_server import Fault
from installing import Said, World, enter, new_world

from gpusetup.cli import main

A100 = ("--gpu", "A100 80GB", "--driver", "580.95.05", "--os", "linux", "--machine", "x86_64")
THERE = (*A100, "--python", "3.12", "--glibc", "2.35")
Ask = Callable[..., Said]


@pytest.fixture
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with new_world(tmp_path_factory.mktemp("channel")) as found:
        for version in ("2.16.0.dev20261101", "2.16.0.dev20261119", "2.9.0.dev20250701"):
            found.index.add("whl/nightly/cu130", found.wheel("torch", f"{version}+cu130"))
        yield found


@pytest.fixture
def ask(world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ask:
    enter(world, monkeypatch)

    def asked(*words: str) -> Said:
        capsys.readouterr()
        code = main(["resolve", *THERE, "--index-root", world.index.index_root, *words])
        said = capsys.readouterr()
        return Said(exit=code, out=said.out, err=said.err)

    return asked


def test_the_newest_of_the_day_is_named_and_called_unproven(ask: Ask) -> None:
    said = ask("--torch", "nightly", "--json")
    assert said.exit == 0, said.err
    assert said.answer["torch"] == "2.16.0.dev20261119+cu130"
    assert said.answer["index_url"].endswith("/whl/nightly/cu130")
    assert "unproven" in said.answer["notes"][0]
    for argv in (said.answer["commands"][name][0] for name in ("uv", "pip")):
        assert "torch==2.16.0.dev20261119+cu130" in argv and argv[-1] == said.answer["index_url"]
    assert "asked: " in said.err
    assert "torch==2.16.0.dev20261119+cu130" in ask("--torch", "nightly").out


def test_offline_nobody_is_asked_and_no_version_is_named(ask: Ask, world: World) -> None:
    before = len(world.index.asked)
    said = ask("--torch", "nightly", "--offline", "--json")
    assert (said.exit, said.answer["torch"]) == (0, "nightly")
    assert len(world.index.asked) == before


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--torch", "test"), 3),
        (("--torch", "nightly", "vllm"), 2),
        (("--torch", "nightly", "--format", "requirements"), 2),
        (("--torch", "nightly", "--installer", "conda"), 2),
        (("--torch", "nightly", "--driver", "390.10"), 1),
    ],
)
def test_what_has_no_such_build_is_a_no_in_a_sentence(
    ask: Ask, words: tuple[str, ...], code: int
) -> None:
    said = ask(*words, "--json")
    assert said.exit == code, (said.out, said.err)
    assert json.loads(said.out)["message"]


@pytest.mark.parametrize("body", [b"<html>log in</html>", b'{"files": 3}', b"", b"\xff\0"])
def test_a_page_that_is_none_blocks(ask: Ask, world: World, body: bytes) -> None:
    world.index.faults["/whl/nightly/cu130/torch/"] = Fault(status=200, body=body)
    assert ask("--torch", "nightly").exit == 3
