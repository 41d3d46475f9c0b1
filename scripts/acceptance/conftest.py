"""The fixture `work` of the acceptance tests, and the file to which each test's result goes.

A result is written at once, so that it stays if the part is killed.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from acceptance.processes import Said, environment, run

OWN_FAULT = 5
"""gpusetup's exit code for a bug of its own."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("acceptance")
    group.addoption("--device", default="cuda", choices=("cuda", "cpu"))
    group.addoption("--seconds", type=float, default=600.0, help="for all tests together")
    group.addoption("--answers", type=Path, help="a file for the results, one a line")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[WORK] = Work(config)
    if not config.stash[WORK].on_card:
        os.environ["GPUSETUP_ACCEPTANCE_SIZE"] = "small"  # read by `trainings.py`


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.stash[WORK].on_card:
        items[:] = [item for item in items if not item.get_closest_marker("card")]


class NoAnswer(Exception):
    """A command ended without the answer that it was run for."""


class Work:
    """The device, the time and the commands of one part."""

    def __init__(self, config: pytest.Config) -> None:
        self.on_card = config.option.device == "cuda"
        self.device = "cuda:0" if self.on_card else "cpu"  # as verify names it
        self.ends: float = time.monotonic() + config.option.seconds
        self.answers: Path | None = config.option.answers
        self.figure = ""

    def left(self) -> float:
        """The seconds before the part is killed."""
        return max(0.0, self.ends - time.monotonic())

    def found(self, figure: object) -> None:
        """Keep a figure with the result of the running test."""
        self.figure = str(figure)[:600]

    def gpusetup(self, *words: str, limit: float = 120) -> Said:
        """What gpusetup answered. Raises NoAnswer if it refused or crashed; on a CPU a refusal
        skips the test, because most commands need a driver."""
        said = self.program((sys.executable, "-m", "gpusetup", *words), limit)
        code = said.exit or 0
        is_refused = str(said.document.get("schema")).startswith("gpusetup.error/")
        if is_refused and not self.on_card:
            pytest.skip(said.problem)
        if code == OWN_FAULT or code < 0 or is_refused or (code and not said.stdout):
            raise NoAnswer(f"gpusetup {words[0]}: {said.problem}")
        return said

    def program(self, argv: tuple[str, ...], limit: float = 120, told: str = "") -> Said:
        """What a program printed; skips the test if it did not end in time."""
        said = run(argv, limit, told, env=environment())
        print("$", *argv[:9], f"-> {said.exit} in {said.seconds:.1f} s")
        print(said.stdout, said.stderr, sep="\n", flush=True)
        if said.exit is None:
            pytest.skip(f"no answer within {limit:.0f} s")
        return said


WORK = pytest.StashKey[Work]()


@pytest.fixture(scope="session")
def work(request: pytest.FixtureRequest) -> Work:
    return request.config.stash[WORK]


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    outcome: Any = yield
    report, work = outcome.get_result(), item.config.stash[WORK]
    is_result = report.when == "call" or not report.passed
    if work.answers is None or not is_result:
        return
    why = f" {call.excinfo.value}".partition("\n")[0] if call.excinfo else ""
    answer = {"test": item.name, "outcome": report.outcome, "figure": work.figure + why[:300]}
    with work.answers.open("a", encoding="utf-8") as answers:
        answers.write(json.dumps(answer) + "\n")
    work.figure = ""
