"""Runs the whole program on a real GPU, once, and keeps the evidence.

    pytest scripts/acceptance --out DIR                     everything, in 9 minutes
    pytest scripts/acceptance --out DIR --device cpu        a rehearsal with small models

It writes DIR/evidence.json (the machine, and the result and the figure of each test) and
DIR/commands.txt (what the commands printed); both are redacted, so that they can be kept in
tests/recorded_runs/. Each result is written at once, so that it stays if the run is killed.

Everything that uses the GPU runs in a process of its own, which is killed at its limit with all
that it started; then the next test runs. The settings of the GPU (clocks, power limit, MIG) are
never changed, and nothing is downloaded. If torch cannot use the GPU, or if DIR already contains
evidence, nothing is measured, and the exit code is 2.
"""

from __future__ import annotations

import json
import os
import platform
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from acceptance.processes import ROOT, Said, environment, run
from gpusetup import __version__
from gpusetup.redaction import redact_document

OWN_FAULT = 5
"""gpusetup's exit code for a bug of its own."""
ASK_TORCH = """
import json, sys, torch
told = {"torch": torch.__version__, "cuda": torch.version.cuda, "card": None}
if sys.argv[1] == "cuda":
    one = torch.ones(64, 64, device="cuda:0")
    assert (one @ one).sum().item() == 64 ** 3, "the card computes a wrong product"
    told["card"] = torch.cuda.get_device_name(0)
print(json.dumps(told))
"""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("acceptance")
    group.addoption("--out", type=Path, required=True, help="a folder for the evidence")
    group.addoption("--device", default="cuda", choices=("cuda", "cpu"))


def pytest_configure(config: pytest.Config) -> None:
    # Without this handler, SIGTERM would leave the running command behind.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    config.stash[WORK] = work = Work(config.option.out, config.option.device)
    if not work.on_card:
        os.environ["GPUSETUP_ACCEPTANCE_SIZE"] = "small"  # read by `trainings.py`


def pytest_sessionstart(session: pytest.Session) -> None:
    session.config.stash[WORK].begin()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.stash[WORK].on_card:
        items[:] = [item for item in items if not item.get_closest_marker("card")]


def machine(device: str) -> dict[str, Any]:
    smi = ("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "--id=0")
    return {
        "schema": "gpusetup.acceptance/3",
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "device": device,
        "driver": run(smi, 10).stdout.strip() or None,
        "python": platform.python_version(),
        "gpusetup": __version__,
        "commit": run(("git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"), 10).stdout.strip(),
    }


class NoAnswer(Exception):
    """A command ended without the answer that it was run for."""


class Work:
    """The device, the commands that run on it, and the evidence."""

    def __init__(self, out: Path, device: str) -> None:
        self.out = out
        self.on_card = device == "cuda"
        self.device = "cuda:0" if self.on_card else "cpu"  # as verify names it
        self.evidence: dict[str, Any] = {}
        self.figure = ""

    def begin(self) -> None:
        """Begin the evidence with the machine; ends pytest if nothing can be measured."""
        device = self.device.partition(":")[0]
        asked = run((sys.executable, "-c", ASK_TORCH, device), 120)
        if asked.exit != 0:
            pytest.exit(f"nothing was measured: torch is not usable: {asked.problem}", returncode=2)
        if (self.out / "evidence.json").exists():
            pytest.exit(f"nothing was measured: {self.out} is from an earlier run", returncode=2)
        self.out.mkdir(parents=True, exist_ok=True)
        self.evidence = {**machine(device), **asked.document, "tests": []}

    def keep(self, result: dict[str, Any]) -> None:
        """Add a test's result to the evidence."""
        self.evidence["tests"].append(result)
        text = json.dumps(redact_document(self.evidence), indent=1)
        (self.out / "evidence.json").write_text(f"{text}\n")

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
        head = f"$ {' '.join(argv[:9])} -> {said.exit} in {said.seconds:.1f} s"
        lines = f"{head}\n{said.stdout}{said.stderr}".replace(f"{ROOT}/", "").splitlines()
        with (self.out / "commands.txt").open("a", encoding="utf-8") as commands:
            commands.write("\n".join(redact_document(lines)) + "\n")
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
    # A test that is skipped or fails before its call has no report of the call.
    if report.when == "call" or not report.passed:
        why = f" {call.excinfo.value}".partition("\n")[0] if call.excinfo else ""
        figure, work.figure = work.figure + why[:300], ""
        work.keep({"test": item.name, "outcome": report.outcome, "figure": figure})
