"""What a test of the acceptance is given, and where its answer goes.

A test decides the claim that it names: passed, it holds; failed, it is refuted; skipped, it is
open. Each answer is written at once, so that what was found stands when the part is killed.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from acceptance.processes import OVER, Said, environment, run

LEAST_SECONDS = 20.0
"""What one command may take, however little time is left for each of the tests to come."""
OWN_FAULT = 5
"""gpusetup's exit code where it failed itself."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("acceptance")
    group.addoption("--device", default="cuda", choices=("cuda", "cpu"))
    group.addoption("--short", action="store_true", help="one case of each kind: a rehearsal")
    group.addoption("--seconds", type=float, default=600.0, help="of all the tests together")
    group.addoption("--answers", type=Path, help="a folder for answers.jsonl")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[WORK] = Work(config)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    work = config.stash[WORK]
    out = {"card": not work.on_card, "whole": work.short}
    items[:] = [
        item for item in items if not any(out.get(mark.name) for mark in item.iter_markers())
    ]
    for item in items:
        item.add_marker("gpu")
    work.waiting = len(items)
    work.tests = Counter(mark.args[0] for item in items for mark in item.iter_markers("claim"))


class Work:
    """The device, the time, the commands, and the answers of one part."""

    def __init__(self, config: pytest.Config) -> None:
        options = config.option
        self.on_card, self.short = options.device == "cuda", options.short
        self.device = "cuda:0" if self.on_card else "cpu"  # as verify names it
        self.ends = time.monotonic() + options.seconds
        self.folder, self.waiting = options.answers, 0
        self.figure, self.tests = "", Counter[str]()

    def left(self, reserve: float = 2.0) -> float:
        """The seconds before the part is killed, less a reserve."""
        return float(max(0.0, self.ends - time.monotonic() - reserve))

    def share(self) -> float:
        """Twice what each test to come would have, so that all are tried."""
        return max(LEAST_SECONDS, 2 * self.left() / max(1, self.waiting))

    # --- answers ---

    def found(self, figure: object) -> None:
        """The figure that stands next to the verdict."""
        self.figure = str(figure)[:600]

    def row(self, table: str, **values: Any) -> None:
        self.write({"table": table, "row": values})

    def write(self, line: dict[str, Any]) -> None:
        if self.folder:
            with (self.folder / "answers.jsonl").open("a", encoding="utf-8") as answers:
                answers.write(json.dumps(line, default=str) + "\n")

    # --- commands ---

    def gpusetup(self, *words: str, limit: float | None = None, **more: str) -> Said:
        """An answer of gpusetup's, whatever it is; its own failure fails the test."""
        said = self.program((sys.executable, "-m", "gpusetup", *words), limit, **more)
        code = said.exit or 0
        broken = code == OWN_FAULT or code < 0 or (code and not said.stdout)
        assert not broken, f"gpusetup {words[0]}: {said.problem}"
        return said

    def python(self, code: str, *words: str, limit: float | None = None, told: str = "") -> Said:
        return self.program((sys.executable, "-c", code, *words), limit, told=told)

    def program(
        self, argv: tuple[str, ...], limit: float | None = None, told: str = "", **more: str
    ) -> Said:
        """What it said; without an answer in its time the claim stays open."""
        seconds = min(limit or self.share(), self.left())
        said = run(argv, seconds, environment(**more), told)
        print("$", *argv[:9], f"-> {said.exit} in {said.seconds:.1f} s")
        print(said.stdout, said.stderr, sep="\n", flush=True)
        if said.exit is None:
            unknown(OVER if self.left() < 1 else f"no answer within {seconds:.0f} s")
        return said


WORK = pytest.StashKey[Work]()


def unknown(why: str) -> NoReturn:
    """Nothing is decided."""
    pytest.skip(why)


@pytest.fixture(scope="session")
def work(request: pytest.FixtureRequest) -> Work:
    return request.config.stash[WORK]


@pytest.fixture(autouse=True)
def _in_time(work: Work) -> Iterator[None]:
    if work.left() < 1:
        unknown(OVER)
    yield
    work.waiting -= 1


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    outcome: Any = yield
    report, work, mark = (
        outcome.get_result(),
        item.config.stash[WORK],
        item.get_closest_marker("claim"),
    )
    if mark is None or (report.when != "call" and report.passed):
        return
    verdict = {"passed": "holds", "failed": "fails", "skipped": "open"}[report.outcome]
    told = [work.figure] * bool(work.figure)
    if call.excinfo and (verdict == "open" or not told):
        told.append(str(call.excinfo.value).partition("\n")[0][:300])
    answer = {"claim": mark.args[0], "verdict": verdict, "figure": "; ".join(told)}
    work.write({**answer, "tests": work.tests[mark.args[0]]})
    work.figure = ""
