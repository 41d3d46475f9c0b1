"""What a test of the acceptance is given, and where its answer goes.

A test decides the claim that it names: passed, it holds; failed by an `assert`, it is refuted;
skipped, it is open. A test that ends with another error has no answer, which no machine excuses.
Each answer is written at once, so that what was found stays when the part is killed.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from acceptance.evidence import NO_ANSWER
from acceptance.processes import Said, environment, run

OWN_FAULT = 5
"""gpusetup's exit code for a fault of its own."""
REFUSAL = "gpusetup.error/"
"""How the schema begins with which gpusetup says, in place of an answer, why there is none."""
VERDICTS = {"passed": "holds", "failed": "fails", "skipped": "open"}


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("acceptance")
    group.addoption("--device", default="cuda", choices=("cuda", "cpu"))
    group.addoption("--short", action="store_true", help="one case of each kind: a rehearsal")
    group.addoption("--seconds", type=float, default=600.0, help="of all the tests together")
    group.addoption("--answers", type=Path, help="a file for the answers, one a line")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[WORK] = Work(config)
    if not config.stash[WORK].on_card:
        os.environ["GPUSETUP_ACCEPTANCE_SIZE"] = "small"  # as `trainings.py` reads it


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    work = config.stash[WORK]
    out = {"card": not work.on_card, "whole": work.short}
    items[:] = [
        item for item in items if not any(out.get(mark.name) for mark in item.iter_markers())
    ]
    for item in items:
        item.add_marker("gpu")
    work.tests = Counter(mark.args[0] for item in items for mark in item.iter_markers("claim"))


class NoAnswer(Exception):
    """A command ended without the answer that it was run for."""


class Work:
    """The device, the time, the commands, and the answers of one part."""

    def __init__(self, config: pytest.Config) -> None:
        options = config.option
        self.on_card, self.short = options.device == "cuda", options.short
        self.device = "cuda:0" if self.on_card else "cpu"  # as verify names it
        self.ends, self.answers = time.monotonic() + options.seconds, options.answers
        self.figure, self.tests = "", Counter[str]()

    def left(self) -> float:
        """The seconds before the part is killed."""
        return float(max(0.0, self.ends - time.monotonic()))

    def found(self, figure: object) -> None:
        """The figure that is kept with the verdict."""
        self.figure = str(figure)[:600]

    def row(self, table: str, **values: Any) -> None:
        self.write({"table": table, "row": values})

    def write(self, line: dict[str, Any]) -> None:
        if self.answers:
            with self.answers.open("a", encoding="utf-8") as answers:
                answers.write(json.dumps(line, default=str) + "\n")

    def gpusetup(
        self, *words: str, limit: float = 120, needs_driver: bool = False, **more: str
    ) -> Said:
        """An answer of gpusetup's, whatever it is; NoAnswer if it gave none.

        In a rehearsal the claim stays open if a command that needs a driver refuses.
        """
        said = self.program((sys.executable, "-m", "gpusetup", *words), limit, **more)
        code = said.exit or 0
        is_refused = str(said.document.get("schema")).startswith(REFUSAL)
        if code == OWN_FAULT or code < 0 or is_refused or (code and not said.stdout):
            if needs_driver and is_refused and not self.on_card:
                pytest.skip(said.problem)
            raise NoAnswer(f"gpusetup {words[0]}: {said.problem}")
        return said

    def python(self, code: str, *words: str) -> Said:
        return self.program((sys.executable, "-c", code, *words))

    def program(
        self, argv: tuple[str, ...], limit: float = 120, told: str = "", **more: str
    ) -> Said:
        """What it said; without an answer in its time the claim stays open."""
        said = run(argv, limit, told, env=environment(**more))
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
    mark = item.get_closest_marker("claim")
    if mark is None or (report.when != "call" and report.passed):
        return
    told = work.figure
    if call.excinfo and (report.skipped or not told):
        told += f" {call.excinfo.value}".partition("\n")[0][:300]
    verdict = VERDICTS[report.outcome]
    if report.failed and call.excinfo and not call.excinfo.errisinstance(AssertionError):
        verdict, told = NO_ANSWER, f"no answer: {call.excinfo.value}".partition("\n")[0][:300]
    answer = {"claim": mark.args[0], "verdict": verdict, "figure": told.strip()}
    work.write({**answer, "tests": work.tests[mark.args[0]]})
    work.figure = ""
