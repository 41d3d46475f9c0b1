"""The order of the checks and what follows from their answers; how a check ends that does not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from each_row import each
from verifying import FOLDER, states

from gpusetup.verify.answer.render import as_json, as_text
from gpusetup.verify.child import ChildTask
from gpusetup.verify.options import read_options
from gpusetup.verify.program import Run
from gpusetup.verify.values import Outcome, Report, verdict

GPU = {"name": "A", "memory_total_bytes": 2**33, "compute_capability": "8.0"}
SEEN = {"gpu": {"facts": {"available": True, "gpus": 2, "seen": ["cuda:0", "cuda:1"]}}}


class Answers:
    """A child that passes everything, but what is given: `name` or `name@subject` -> the fields of
    its answer, or those of each answer in turn."""

    def __init__(self, given: Mapping[str, Any], seconds: float = 0.0) -> None:
        self.given = given
        self.seconds = seconds
        self.asked: list[str] = []
        self.in_float64: list[bool] = []
        self.ended = 0

    def run(self, task: ChildTask) -> dict[str, Any]:
        time.sleep(self.seconds)
        name, device = task.check.name, task.subject
        self.asked.append(f"{name}@{device}")
        self.in_float64.append(task.in_float64)
        fields: dict[str, Any] = {"status": "passed", "detail": "fine"}
        if name == "properties":
            fields["facts"] = {"device": {"device": device, "cuda_index": 0, **GPU}}
        given = self.given.get(name, self.given.get(f"{name}@{device}", {}))
        fields.update(given if not isinstance(given, list) else given.pop(0) if given else {})
        return {"outcome": Outcome(**fields)._asdict(), "seconds": 0.5}

    def end(self) -> None:
        self.ended += 1


WRONG_ANSWER = {"status": "failed", "detail": "3 of 9 are wrong", "problem": "wrong results"}
SILENT = {"status": "crashed", "detail": "no answer in 300 s"}
RIGHT: dict[str, Any] = {}


def run(*words: str, seconds: Any = 0.0, **given: Any) -> tuple[Report, Answers]:
    fields = {**SEEN, **{name.replace("__", "@"): each for name, each in given.items()}}
    answers = Answers(fields, seconds)
    whole = Run(read_options(words), answers)
    whole.all()
    return whole.report(), answers


CPU = ("--device", "cpu")


def test_what_fails_once_is_not_repeatable_and_the_verdict_is_no() -> None:
    report, child = run(*CPU, matmul=[WRONG_ANSWER, RIGHT])
    assert child.asked.count("matmul@cpu") == 2 and child.ended == 1, "the second in a new process"
    row = next(each for each in report.results if each.name == "matmul")
    assert row.outcome.status == "failed" and row.outcome.problem == "not repeatable"
    assert row.outcome.detail == "failed once, and passed in a new process: 3 of 9 are wrong"
    assert all(word in str(row.outcome.hint) for word in ("ECC", "temperature", "overclocking"))
    document = json.loads(as_json(report))
    assert (document["verdict"], document["problem"]) == ("failed", "not repeatable")
    assert as_text(report).startswith("verdict: failed (not repeatable: matmul on cpu)")


@each(
    "third, words",
    [
        (RIGHT, "it is right in float64: the kernels of its other formats are wrong"),
        (WRONG_ANSWER, "it fails in float64 too: the device computes wrong numbers"),
    ],
)
def test_what_fails_again_is_asked_once_in_float64(third: Mapping[str, Any], words: str) -> None:
    answers = [WRONG_ANSWER, WRONG_ANSWER, third]
    report, child = run(*CPU, "--level", "standard", "--only", "norms", norms=answers)
    assert child.asked.count("norms@cpu") == 3 and child.in_float64[-3:] == [False, False, True]
    assert report.results[-1].outcome.detail == f"3 of 9 are wrong ({words})"
    assert json.loads(as_json(report))["problem"] == "wrong results"


def results(report: Report) -> dict[str, str]:
    return {f"{each.name}@{each.device}": each.outcome.status for each in report.results}


def test_what_needs_a_failed_check_is_skipped_and_says_which() -> None:
    report, answers = run(properties={"status": "failed", "detail": "no"})
    assert results(report)["amp@cuda:1"] == "skipped"
    assert not [asked for asked in answers.asked if asked.startswith(("arch", "matmul", "amp"))]
    assert report.results[-1].outcome.detail == "needs properties, which failed"
    assert verdict(report) == "failed"


def test_a_device_that_hangs_twice_is_left_alone_and_the_other_is_not() -> None:
    given = {"float64__cuda:0": SILENT, "float32__cuda:0": SILENT}
    report, answers = run("--level", "standard", **given)
    later = next(r for r in report.results if (r.name, r.device) == ("float8", "cuda:0"))
    assert (later.outcome.status, "the device hangs" in later.outcome.detail) == ("skipped", True)
    assert "float8@cuda:1" in answers.asked
    assert "float8@cuda:0" not in answers.asked


def test_after_the_time_is_over_nothing_new_begins_and_the_answer_is_no() -> None:
    report, answers = run(*CPU, "--level", "stress", "--timeout", "0.9", seconds=0.5)
    last = report.results[-1]
    assert len(answers.asked) == 2
    assert (last.name, last.outcome.status) == ("timeout", "failed")
    assert "not every check was finished" in last.outcome.detail


# --- a run that is ended ------------------------------------------------------------------------


def begun(folder: Path, *words: str, sign: str, command: Any = ()) -> subprocess.Popen[bytes]:
    """A run that computes on the CPU, begun once a file `sign` of it lies in `folder`, which is its
    temporary folder."""
    argv = [sys.executable, *(command or (str(FOLDER),)), "--device", "cpu", *words]
    variables = {**os.environ, "TMPDIR": str(folder)}
    # A torch that an earlier test loaded may have set it.
    variables.pop("TORCHINDUCTOR_CACHE_DIR", None)
    none = subprocess.DEVNULL
    process = subprocess.Popen(
        argv, env=variables, start_new_session=True, stdout=none, stderr=none
    )
    until = time.monotonic() + 90
    while not list(folder.rglob(sign)) and time.monotonic() < until:
        time.sleep(0.02)
    return process


@pytest.mark.skipif(sys.platform != "linux", reason="signals of POSIX, processes of Linux")
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGINT"])
@pytest.mark.parametrize("command", [(), ("-m", "gpusetup", "verify", "--python", sys.executable)])
@pytest.mark.one_in(3)
def test_a_signal_ends_the_run_with_what_is_known(
    command: tuple[str, ...], name: str, tmp_path: Path
) -> None:
    report, scratch, number = tmp_path / "report", tmp_path / "scratch", getattr(signal, name)
    scratch.mkdir()
    words = ("--level", "stress", "--json", "--output", str(report))
    before = signal.signal(number, signal.SIG_DFL)  # under nohup it would be ignored, rightly
    process = begun(scratch, *words, sign="verify-*", command=command)
    signal.signal(number, before)
    time.sleep(1)
    os.killpg(process.pid, number)  # as `timeout` and a terminal do: the proof hears it twice
    assert process.wait(timeout=20) == 128 + number
    assert states(json.loads(report.read_text()))["run@host"] == "crashed"
    assert not list(scratch.glob("verify-*"))


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's word of Linux")
def test_a_parent_that_is_killed_leaves_no_process_and_no_folder(tmp_path: Path) -> None:
    process = begun(tmp_path, "--level", "stress", sign="verify-*")
    time.sleep(1)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    process.kill()
    process.wait(timeout=20)
    until = time.monotonic() + 10
    while time.monotonic() < until and (
        list(tmp_path.glob("verify-*")) or any(Path(f"/proc/{each}").exists() for each in children)
    ):
        time.sleep(0.05)
    assert children
    assert not list(tmp_path.glob("verify-*"))
