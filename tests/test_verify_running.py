"""How a run is cut to what is wanted, goes on where it was ended, and ends when it is told to."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import pytest
from verifying import FOLDER, started, states

from gpusetup.verify import worker
from gpusetup.verify.options import read_options
from gpusetup.verify.program import Run, main
from gpusetup.verify.values import Blocked, Outcome, WrongQuestion


class Quick:
    """A child that answers at once."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.asked: list[str] = []
        self.seconds = seconds

    def ask(
        self, name: str, device: str, limit: float, environment: Any = (), whole: float = 0.0
    ) -> dict[str, Any]:
        self.asked.append(name)
        time.sleep(self.seconds)
        return {"outcome": Outcome("passed", "fine")._asdict(), "seconds": 0.0}

    def end(self) -> None:
        pass


def ran(*words: str, child: Quick | None = None) -> tuple[Quick, Run]:
    child = child or Quick()
    run = Run(read_options(["--device", "cpu", *words]), child)
    run.all()
    return child, run


def test_only_what_is_named_runs_and_what_it_needs() -> None:
    child, _ = ran("--level", "standard", "--only", "softmax", "census-sorting/x")
    assert child.asked == ["import", "properties", "softmax", "census-sorting"]


def test_what_is_to_be_skipped_does_not_run() -> None:
    child, _ = ran("--level", "standard", "--skip", "compile", "dataloader")
    assert "softmax" in child.asked
    assert not {"compile", "dataloader"} & set(child.asked)


def test_a_check_that_does_not_exist_is_a_wrong_question(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--only", "softmx"]) == 2
    assert "no check 'softmx'" in capsys.readouterr().err


def test_after_the_time_is_over_nothing_new_begins_and_the_answer_is_no() -> None:
    child, run = ran("--level", "standard", "--timeout", "0.2", child=Quick(0.15))
    assert len(child.asked) == 2
    last = run.report().results[-1]
    assert (last.name, last.outcome.status) == ("timeout", "failed")
    assert "checks were not begun" in last.outcome.detail


def test_a_census_goes_on_where_it_was_ended(tmp_path: Path) -> None:
    words = ("--level", "census", "--resume", str(tmp_path / "kept"))
    first, _ = ran(*words)
    again, run = ran(*words)
    assert "census-sorting" in first.asked
    assert not [name for name in again.asked if name.startswith("census")]
    assert "census-sorting" in {each.name for each in run.report().results}


def test_results_of_another_question_are_not_taken_over(tmp_path: Path) -> None:
    ran("--level", "census", "--resume", str(tmp_path / "kept"))
    with pytest.raises(WrongQuestion):
        ran("--level", "census", "--seed", "5", "--resume", str(tmp_path / "kept"))


@pytest.mark.parametrize("text", ["", "{}\n[1\n", '"x"\n', "\x00\n", '{"outcome": 3}\n'])
def test_a_file_that_somebody_else_wrote_teaches_nothing(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kept"
    ran("--level", "census", "--resume", str(path))
    path.write_text(path.read_text().splitlines()[0] + "\n" + text)
    child, _ = ran("--level", "census", "--resume", str(path))
    assert "census-sorting" in child.asked


def test_a_folder_is_no_file_to_resume_from(tmp_path: Path) -> None:
    with pytest.raises(Blocked):
        ran("--level", "census", "--resume", str(tmp_path))


def test_a_report_that_cannot_be_written_is_said_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("open(__file__ + '.ran', 'w')\n")
    report = str(tmp_path / "none" / "x.xml")
    told = {"PYTHONPATH": str(tmp_path)}
    done = started("--device", "cpu", "--junit", report, environment=told)
    assert done.returncode == 3
    assert "Cannot write" in done.stderr
    assert not (tmp_path / "torch.py.ran").exists()


def test_the_document_tells_the_seed() -> None:
    done = started("--device", "cpu", "--json", "--seed", "77", "--only", "import")
    assert json.loads(done.stdout)["seed"] == 77


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
@pytest.mark.one_in(2)
def test_a_signal_ends_the_run_with_what_is_known(name: str, tmp_path: Path) -> None:
    process = begun("--json", "--output", str(tmp_path / "report"))
    child = child_of(process.pid)
    process.send_signal(getattr(signal, name))
    assert process.wait(timeout=20) == 128 + getattr(signal, name)
    document = json.loads((tmp_path / "report").read_text())
    assert states(document)["run@host"] == "crashed"
    assert gone(child)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc of Linux")
def test_the_command_ended_by_a_signal_reports_as_the_module_does(tmp_path: Path) -> None:
    report, scratch = tmp_path / "report", tmp_path / "scratch"
    scratch.mkdir()
    words = ("--device", "cpu", "--level", "stress", "--json", "--output", str(report))
    process = subprocess.Popen(
        [sys.executable, "-m", "gpusetup", "verify", "--python", sys.executable, *words],
        env={**os.environ, "TMPDIR": str(scratch)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    until = time.monotonic() + 60
    while not list(scratch.glob("verify-*")) and time.monotonic() < until:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGTERM)  # as `timeout` does: the proof hears it twice
    assert process.wait(timeout=20) == 128 + signal.SIGTERM
    assert states(json.loads(report.read_text()))["run@host"] == "crashed"
    assert not list(scratch.glob("verify-*"))


SLOW_TO_IMPORT = {"computes": "while True: pass", "sleeps": "import time; time.sleep(60)"}


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="Linux ties a process to a core")
@pytest.mark.parametrize(
    ("torch", "others", "status", "said"),
    [
        ("computes", 8, "skipped", "the machine is busy: no answer, it had a core for "),
        ("sleeps", 8, "crashed", "no answer in "),
    ],
)
def test_on_a_busy_machine_what_waits_for_a_core_has_not_failed(
    torch: str, others: int, status: str, said: str, tmp_path: Path
) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(SLOW_TO_IMPORT[torch] + "\n")
    (tmp_path / "torch" / "version.py").write_text("")
    mine = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(mine)})
    spin = [sys.executable, "-c", "while True: pass"]
    busy = [subprocess.Popen(spin, start_new_session=True) for _ in range(others)]
    try:
        path = {"PYTHONPATH": str(tmp_path)}
        done = started("--device", "auto", "--json", "--timeout", "2", environment=path)
    finally:
        os.sched_setaffinity(0, mine)
        for one in busy:
            one.kill()
            one.wait()
    first = json.loads(done.stdout)["checks"][0]
    assert (first["status"], first["detail"][: len(said)]) == (status, said)
    assert "driver" not in first["hint"]
    assert done.returncode == 1


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's word of Linux")
def test_the_child_ends_with_a_parent_that_was_killed() -> None:
    process = begun()
    child = child_of(process.pid)
    process.kill()
    process.wait(timeout=20)
    assert gone(child)


def begun(*words: str) -> subprocess.Popen[bytes]:
    """A run under load for a minute, once its child computes."""
    command = [sys.executable, str(FOLDER), "--device", "cpu", "--level", "stress", *words]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(400):
        time.sleep(0.05)
        if children(process.pid):
            break
    time.sleep(1)
    return process


def children(pid: int) -> list[int]:
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(word) for word in path.read_text().split()] if path.exists() else []


def child_of(pid: int) -> int:
    return children(pid)[0]


def gone(pid: int) -> bool:
    """Within two seconds, and some for a busy machine."""
    for _ in range(100):
        if not Path(f"/proc/{pid}").exists() or _state(pid) == "Z":
            return True
        time.sleep(0.05)
    return False


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def _warns(device: str) -> Outcome:
    warnings.warn(f"a layer on {device} is called in a way that is seldom meant", stacklevel=1)
    return Outcome("passed", "fine")


@pytest.mark.parametrize(
    ("name", "verbose", "heard"),
    [("matmul", False, 0), ("matmul", True, 1), ("import", False, 1)],
)
def test_what_torch_says_of_odd_calls_is_for_those_who_ask(
    name: str, verbose: bool, heard: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The census calls every layer in every way; a census printed 600 warnings."""
    monkeypatch.setattr(worker, "function_of", lambda check: _warns)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert (
            worker.served({"name": name, "device": "cpu"}, verbose)["outcome"]["detail"] == "fine"
        )
    assert len(said) == heard
