"""What all tests share: `--accept`, the comparison of whole screens with files, Ctrl-C, the
share of a large table that runs by default, and a catalog that stands still.

Tests of what is decided judge by `tests/catalog.json`, a copy of the catalog of one day, so that a
new release of torch is no new answer to them. The catalog of the package has tests of its own
(`test_catalog.py`): invariants, and the answers in `golden.json`.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import each_row
import hypothesis
import pytest
import warm
from _pytest.doctest import DoctestModule
from installing import Install, World, enter, installer, new_world
from replayed import Judge, judge_in

from gpusetup.catalog import file as catalog_file
from gpusetup.cli import main

catalog_file.DATA = Path(__file__).resolve().parent / "catalog.json"

collect_ignore = [
    "fake_cuda",
    *("verify_faults", "kernel_faults", "rank_faults", "tune_shapes"),
]
"""What is no test and loads torch or Ray where it is imported."""

Same = Callable[[str, Path], None]
SEED = 2026
"""Draws the variants that run by default; another number draws others."""
DRAWN = 30
"""How many examples hypothesis draws for a test that says no number; others in every run."""
WAITING = ("test_verify_ranks.py",)
"""Files whose tests wait longer than they compute."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--accept", action="store_true", help="rewrite what is expected")
    parser.addoption("--row", default="", help="of tables in one test, only rows with this text")


def pytest_configure(config: pytest.Config) -> None:
    """A runner in the background ignores SIGINT, and what the tests start would inherit that.

    Compiled modules are kept whatever the environment says: the tests start hundreds of Pythons,
    which buffer what they print as a person's do.
    Where a few tests take long, workers that are done take over what others have before them.
    """
    if config.getoption("dist", "no") == "load":
        config.option.dist = "worksteal"
    config.pluginmanager.register(OnlyWhereThereAreExamples())
    each_row.only = config.getoption("--row")
    for name in ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED"):
        os.environ.pop(name, None)
    sys.dont_write_bytecode = False
    signal.signal(signal.SIGINT, signal.default_int_handler)
    hypothesis.settings.register_profile(
        "busy machine",
        max_examples=DRAWN,
        deadline=None,
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
    )
    hypothesis.settings.load_profile("busy machine")
    draw_without_constants_of_the_source()
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # the workers have a core each


def draw_without_constants_of_the_source() -> None:
    """Hypothesis reads all our modules for constants: seconds in each worker, and what it draws
    would depend on the tests that ran before."""
    from hypothesis.internal.conjecture import providers

    constants = getattr(providers, "_local_constants", None)
    if constants is not None and hasattr(providers, "_get_local_constants"):
        providers._get_local_constants = lambda: constants


class OnlyWhereThereAreExamples:
    """A module without an example has no doctests: it is not imported to look for them.

    As a plugin, since what a conftest says of files holds in its own folder only.
    """

    @pytest.hookimpl(wrapper=True)
    def pytest_collect_file(
        self, file_path: Path
    ) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
        found = yield
        if file_path.suffix == ".py" and ">>> " not in file_path.read_text(encoding="utf-8"):
            return [each for each in found if not isinstance(each, DoctestModule)]
        return found


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of a test marked `one_in(N)`, N neighbours in its table give one; the others are `slow`.

    Neighbours are of one kind, so that each kind is proven by default, and all rows by `-m slow`.
    What mostly waits begins first, while others compute.
    """
    for name, variants in groupby(items, lambda item: item.nodeid.partition("[")[0]):
        for item in others(name, list(variants)):
            item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: item.path.name not in WAITING)


def others(name: str, variants: Sequence[pytest.Item]) -> Iterator[pytest.Item]:
    """The variants that the default run leaves out."""
    mark = variants[0].get_closest_marker("one_in")
    size = mark.args[0] if mark else 1
    for start in range(0, len(variants), size):
        block = variants[start : start + size]
        chosen = random.Random(f"{SEED} {name} {start}").choice(block)
        yield from (item for item in block if item is not chosen)


@pytest.fixture
def judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Judge:
    """The monitor's summary of a text that is replayed; under `text` is what a person reads."""
    return judge_in(tmp_path, capsys)


@pytest.fixture
def planned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., dict[str, Any]]:
    """plan's JSON for options, or for the text of a config with options after it."""

    def answer(*words: str) -> dict[str, Any]:
        if "\n" in words[0]:
            file = tmp_path / "train.yaml"
            file.write_text(words[0], encoding="utf-8")
            words = ("--from-config", str(file), *(words[1:] or ("--gpu-mem", "80GiB")))
        main(["plan", *words, "--json"])
        return dict(json.loads(capsys.readouterr().out))

    return answer


@pytest.fixture
def same_as_file(request: pytest.FixtureRequest) -> Same:
    """Compare a whole text with a file; `--accept` rewrites the file, and the diff is reviewed."""

    def compare(text: str, file: Path) -> None:
        if request.config.getoption("--accept"):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        assert file.exists(), f"{file} is missing: `pytest --accept` writes it"
        assert text == file.read_text(encoding="utf-8")

    return compare


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Two indexes on loopback, with what torch requires; this process sees no other."""
    with new_world(tmp_path / "world") as world:
        enter(world, monkeypatch)
        world.add_default("filelock", "3.20.0")
        world.add_default("typing-extensions", "4.15.0")
        yield world


@pytest.fixture
def install(world: World, capsys: pytest.CaptureFixture[str]) -> Install:
    """`gpusetup install` in that world."""
    return installer(world, capsys)


@pytest.fixture
def warm_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our scripts that compute with torch begin with torch imported (`warm.py`)."""
    monkeypatch.setattr(subprocess, "Popen", warm.Popen)
