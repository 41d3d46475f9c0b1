"""A check that waits for a compiler runs beside the others, and changes no answer."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpusetup.verify import alongside
from gpusetup.verify.alongside import Alongside
from gpusetup.verify.checks.table import named, on_device
from gpusetup.verify.child import Child
from gpusetup.verify.ending import Ended, listen_for_the_end
from gpusetup.verify.options import read_options
from gpusetup.verify.program import Run
from gpusetup.verify.values import Asked, Outcome

FOLDER = Path(alongside.__file__).parent
AGES = 100.0


class Answers:
    """A child that answers at once, and says who asked it what."""

    log: list[tuple[str, str]] = []
    process = SimpleNamespace(pid=2**30)  # none that there is

    def __init__(self, who: str = "second", status: str = "passed") -> None:
        self.who = who
        self.status = status

    def start(self, environment: Any = ()) -> None:
        self.log.append((self.who, "start"))

    def ask(self, name: str, device: str, *_: Any) -> dict[str, Any]:
        self.log.append((self.who, name))
        status = self.status if name == "properties" else "passed"
        return {"outcome": Outcome(status, self.who)._asdict(), "seconds": 1.0}

    def end(self) -> None:
        pass


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    monkeypatch.setattr(Answers, "log", [])
    monkeypatch.setattr(alongside, "Child", lambda verbose, asked: Answers())
    monkeypatch.setattr(alongside, "has_a_core_to_spare", lambda: True)
    return Answers.log


def ran(*words: str, status: str = "passed") -> dict[str, Outcome]:
    options = read_options(["--device", "cpu", "--level", "standard", *words])
    run = Run(options, Answers("first", status), alongside=Alongside(False, options.asked))
    run.all()
    return {each.name: each.outcome for each in run.results}


def test_what_compiles_is_asked_of_a_process_of_its_own(log: list[tuple[str, str]]) -> None:
    found = ran()
    assert found["compile"].detail == "second"
    assert {each.detail for name, each in found.items() if name != "compile"} == {"first"}
    assert log.index(("first", "properties")) < log.index(("second", "start"))
    assert log.index(("second", "start")) < log.index(("first", "matmul"))


def test_the_answers_stand_in_their_order_all_the_same(log: list[tuple[str, str]]) -> None:
    assert list(ran())[1:] == [check.name for check in on_device("standard", "cpu")]


def test_nothing_begins_before_what_it_needs_has_passed(log: list[tuple[str, str]]) -> None:
    found = ran(status="failed")
    assert found["compile"].status == "skipped"
    assert not [what for who, what in log if who == "second"]


@pytest.mark.parametrize("words", [("--only", "compile"), ("--skip", "compile")])
def test_alone_or_left_out_it_has_no_process_of_its_own(
    log: list[tuple[str, str]], words: tuple[str, ...]
) -> None:
    ran(*words)
    assert not [what for who, what in log if who == "second"]


def test_one_core_does_one_thing_at_a_time(
    log: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alongside, "has_a_core_to_spare", lambda: False)
    assert ran()["compile"].detail == "first"


def begun(name: str, level: str) -> Alongside:
    second = Alongside(False, Asked(level=level))
    second.begin((named(name),), AGES)
    return second


def test_its_process_computes_and_goes_as_soon_as_it_has_answered() -> None:
    second = begun("matmul", "standard")
    answer = second.answer("matmul", "cpu")
    assert answer is not None
    assert answer["outcome"]["status"] == "passed"
    for each in threading.enumerate():
        if each.name.endswith("(ask)"):
            each.join(timeout=10)
    assert second.child.process is None


def test_one_that_is_ended_before_its_answer_is_no_good_answer() -> None:
    second = begun("load", "stress")
    time.sleep(0.3)
    second.end()
    answer = second.answer("load", "cpu")
    assert answer is not None and answer["outcome"]["status"] == "crashed"


def test_its_own_limit_is_what_is_left_of_the_time() -> None:
    second = Alongside(False, Asked(level="stress"))
    second.begin((named("load"),), 0.0)
    answer = second.answer("load", "cpu")
    assert answer is not None and "no answer" in answer["outcome"]["detail"]
    assert 0.9 < answer["seconds"] < 1.1


@pytest.mark.skipif(sys.platform != "linux", reason="/proc of Linux")
@pytest.mark.skipif(not alongside.has_a_core_to_spare(), reason="one core")
def test_a_signal_ends_both_processes() -> None:
    command = [sys.executable, str(FOLDER), "--device", "cpu", "--level", "standard"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    both: set[int] = set()
    until = time.monotonic() + 60
    while len(both) < 2 and time.monotonic() < until:
        time.sleep(0.05)
        both |= children(process.pid)
    assert len(both) == 2
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=20) == 128 + signal.SIGTERM
    until = time.monotonic() + 2
    while any(map(_runs, both)) and time.monotonic() < until:
        time.sleep(0.05)
    assert not [pid for pid in both if _runs(pid)]


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="signals of POSIX")
def test_a_signal_while_a_process_starts_loses_neither_it_nor_its_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGHUP)}
    popen = subprocess.Popen

    def slow(*given: Any, **more: Any) -> Any:
        process = popen(*given, **more)
        signal.raise_signal(signal.SIGTERM)
        return process

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    listen_for_the_end()
    child = Child(False)
    try:
        with monkeypatch.context() as patch, pytest.raises(Ended) as ended:
            patch.setattr(subprocess, "Popen", slow)
            child.start()
        assert ended.value.number == signal.SIGTERM
        process = child.process
        assert process is not None and list(tmp_path.iterdir())
        child.end()
        assert process.poll() == -signal.SIGKILL and not list(tmp_path.iterdir())
        with pytest.raises(Ended):  # once it is known, nothing waits any more
            signal.raise_signal(signal.SIGHUP)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def children(pid: int) -> set[int]:
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return {int(word) for word in path.read_text().split()} if path.exists() else set()


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
