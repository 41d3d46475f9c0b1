"""The monitor as a program: real binding and child, a stand-in driver, real commands beside it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import standin
from composed_runs import RUNS
from conftest import Same
from standin import A100, RTX_3050

from gpusetup import cli

HERE = Path(__file__).resolve().parents[1]
Machine = Callable[..., Path]
ENOUGH_SECONDS = 600.0
"""Only a program that hangs takes so long, however busy the machine is."""
OURS = (sys.executable, "-m", "gpusetup", "monitor")
BUSY = {**A100, "utilization": 97, "memory_used": 30 << 30, "throttle": 0, "power_mw": 320000,
        "utilization_memory": 40, "clock_sm": 1400, "clock_sm_max": 1410,
        "processes": "4711:32212254720"}  # fmt: skip


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Machine:
    """Point us at a stand-in with these GPUs; the path of its state file comes back."""

    def at(*gpus: dict[str, object], **more: object) -> Path:
        monkeypatch.setenv("PYTHONPATH", str(HERE.parent))
        return standin.install(monkeypatch, tmp_path, standin.state(gpus or (BUSY,), **more))

    return at


def run(*words: str, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        (*OURS, *words), capture_output=True, text=True, timeout=ENOUGH_SECONDS, **more
    )


def documents(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


class Watching:
    """A monitor that runs beside us."""

    def __init__(self, *words: str) -> None:
        # Without a buffer: `readline` takes nothing that `communicate` is to give.
        pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "bufsize": 0}
        self.child = subprocess.Popen((*OURS, *words), start_new_session=True, **pipes)

    def line(self) -> Any:
        assert self.child.stdout is not None
        return json.loads(self.child.stdout.readline())

    def end(self, number: int = signal.SIGINT) -> tuple[int, str, str]:
        self.child.send_signal(number)
        out, err = self.child.communicate(timeout=ENOUGH_SECONDS)
        return self.child.returncode, out.decode(), err.decode()


def change(state: Path, *gpus: dict[str, Any]) -> None:
    """What the driver tells from now on."""
    state.with_suffix(".half").write_text(standin.state(gpus), encoding="utf-8")
    state.with_suffix(".half").replace(state)


# --- samples --------------------------------------------------------------------------------------


def test_once_prints_one_sample_that_the_schema_accepts(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    machine(BUSY, RTX_3050, **{"process.4711": "/usr/bin/python3"})
    assert cli.main(["monitor", "--once", "--json"]) == 0
    (document,) = documents(capsys.readouterr().out)
    with pytest.raises(SystemExit):
        cli.main(["monitor", "--schema"])
    jsonschema.validate(document, json.loads(capsys.readouterr().out))
    assert list(document)[:2] == ["schema", "kind"]
    document.pop("at")
    assert 0 <= document.pop("seconds") < 1, "a busy machine takes some milliseconds"
    first, laptop = document.pop("gpus")
    assert document == {
        "schema": "gpusetup.monitor/1",
        "kind": "sample",
        "tree": None,
        "host": None,
    }
    assert {field: value for field, value in first.items() if value is not None} == {
        "index": 0, "name": "NVIDIA A100-SXM4-40GB",
        "uuid": standin.uuid(0), "utilization_percent": 97, "memory_busy_percent": 40,
        "memory_used_bytes": 30 << 30, "memory_total_bytes": 40 << 30,
        "temperature_celsius": 33,
        "power_watts": 320, "power_limit_watts": 400, "clock_sm_mhz": 1400,
        "clock_sm_max_mhz": 1410, "throttle_reasons": [],
        "processes": [{"pid": 4711, "name": "python3", "memory_bytes": 32212254720,
                       "kind": "compute", "sm_percent": None}],
        "lost": False}  # fmt: skip
    assert laptop["power_watts"] is None, "what a GPU does not tell is null"
    assert laptop["throttle_reasons"] == ["sw_power_cap"]


def test_rates_of_links_and_the_use_of_each_process_are_told(machine: Machine) -> None:
    gpu = {**BUSY, "pcie_rx_bytes": 10**9, "process_use": "4711:96"}
    state = machine(gpu)
    watching = Watching("--json", "--interval", "0.2")
    first = watching.line()["gpus"][0]
    change(state, {**gpu, "pcie_rx_bytes": 4 * 10**9})
    rates = [watching.line()["gpus"][0]["pcie_rx_bytes_per_second"] for _ in range(5)]
    watching.end()
    assert first["pcie_rx_bytes_per_second"] is None, "a rate needs two readings"
    assert first["processes"][0]["sm_percent"] == 96
    assert max(rates) > 5e9 and min(rates) == 0


# --- which GPUs -----------------------------------------------------------------------------------


def test_gpus_are_chosen_by_index_or_uuid(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    machine(BUSY, BUSY, BUSY)
    words = ["monitor", "--once", "--json", "--gpu", "2", "--gpu", standin.uuid(0).lower()]
    assert cli.main(words) == 0
    assert [g["index"] for g in documents(capsys.readouterr().out)[0]["gpus"]] == [2, 0]


@pytest.mark.parametrize(
    ("variable", "watched", "said"),
    [
        ("1", [1], "CUDA_VISIBLE_DEVICES=1: watching GPU 1"),
        ("", [0, 1], "matches no GPU here"),
    ],
)
def test_the_variable_that_hides_gpus_counts(
    machine: Machine,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    watched: Any,
    said: str,
) -> None:
    machine(BUSY, BUSY)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    assert cli.main(["monitor", "--once", "--json"]) == 0
    told = capsys.readouterr()
    assert [g["index"] for g in documents(told.out)[0]["gpus"]] == watched
    assert said in told.err


# --- what goes wrong ------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_ends_the_watching_leaves_its_verdict(machine: Machine, number: int) -> None:
    machine()
    watching = Watching("--json", "--interval", "0.1")
    for _ in range(4):
        watching.line()
    code, out, _ = watching.end(number)
    assert code == 0
    assert documents(out)[-1]["verdict"] == "good"


def test_a_gpu_that_is_lost_does_not_end_the_watching(machine: Machine) -> None:
    state = machine(BUSY, BUSY)
    watching = Watching("--json", "--interval", "0.1")
    watching.line()
    change(state, BUSY, dict.fromkeys(BUSY, "!15"))
    while not watching.line()["gpus"][1]["lost"]:
        pass
    watching.line()
    code, out, _ = watching.end()
    assert code == 0, "a Ctrl-C is how one ends it"
    first, second = documents(out)[-1]["gpus"]
    assert second["lost_at"] and first["lost_at"] is None


def test_a_driver_that_hangs_does_not_hang_us(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    machine(**{"nvml.hang": 1})
    monkeypatch.setenv("PATH", "/nowhere")
    words = ["monitor", "--once", "--json", "--timeout", "0.5"]
    assert cli.main([*words, "--gpu", "0"]) == 3
    (error,) = documents(capsys.readouterr().out)
    reasons = "NVML: no answer in 0.5 s; nvidia-smi: not found"
    assert error["message"] == f"No NVIDIA GPU can be watched ({reasons})"
    assert cli.main(words) == 0, "the machine is watched all the same"
    assert reasons in capsys.readouterr().err


NO_GPU = [
    ({"nvml.init": 9}, 1, "NVML: Driver Not Loaded"),
    ({"nvml.init": 4}, 3, "NVML: Insufficient Permissions"),
    ({"nvml.crash": 1}, 1, "NVML: crashed with SIGSEGV"),
    ({"devices": 0}, 1, "NVML: lists no GPU"),
]


@pytest.mark.parametrize(("state", "code", "said"), NO_GPU)
def test_a_gpu_that_was_asked_for_and_is_not_there_is_a_no(
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    state: dict[str, object],
    code: int,
    said: str,
) -> None:
    machine(**state)
    monkeypatch.setenv("PATH", "/nowhere")
    assert cli.main(["monitor", "--json", "--gpu", "0"]) == code
    (document,) = documents(capsys.readouterr().out)
    assert said in document["message"] and document["exit"] == code
    assert "gpusetup doctor" in document["hint"]


def test_without_a_gpu_the_machine_is_watched(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(**{"nvml.init": 9})
    monkeypatch.setenv("PATH", "/nowhere")
    done = run("0.5", "--interval", "0.1")
    assert "NVML: Driver Not Loaded" in done.stderr.splitlines()[0]
    assert "MB/s received" in done.stdout and "Verdict: none" in done.stdout


def test_a_file_that_cannot_be_written_is_said_before_the_command_runs(
    machine: Machine, tmp_path: Path
) -> None:
    machine()
    mark = tmp_path / "ran"
    done = run("--json", "--output", "/nowhere/x", "--", "touch", str(mark))
    assert done.returncode == 3 and "/nowhere/x" in done.stdout
    assert not mark.exists()


# --- beside a command -----------------------------------------------------------------------------


def test_the_exit_code_of_the_command_is_ours(machine: Machine, tmp_path: Path) -> None:
    machine()
    assert run("--", "sh", "-c", "kill -9 $$").returncode == 137
    plain = tmp_path / "plain.txt"
    plain.write_text("", encoding="utf-8")
    missing, forbidden = run("--", "no-such-command"), run("--", str(plain))
    assert (missing.returncode, forbidden.returncode) == (127, 126)
    assert missing.stderr.splitlines()[0] == "error: no-such-command: command not found"


def test_under_json_stdout_is_ours_alone(machine: Machine, tmp_path: Path) -> None:
    machine()
    done = run("--json", "--interval", "0.1", "--", "sh", "-c", "echo from the command; sleep 0.5")
    end = documents(done.stdout)[-1]
    assert "from the command" in done.stderr
    assert end["command"] == ["sh", "-c", "echo from the command; sleep 0.5"] and end["exit"] == 0
    file = tmp_path / "run.jsonl"
    done = run("--json", "--output", str(file), "--", "echo", "hello")
    assert done.stdout == "hello\n"
    assert documents(file.read_text(encoding="utf-8"))[-1]["kind"] == "summary"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGUSR1])
def test_signals_are_passed_on(machine: Machine, number: int) -> None:
    machine()
    script = (
        "import signal, sys, time\n"
        f"signal.signal({int(number)}, lambda *_: sys.exit(40))\n"
        "print('\"ready\"', flush=True)\ntime.sleep(60)"
    )
    watching = Watching("--", sys.executable, "-c", script)
    assert watching.line() == "ready"
    code, _, said = watching.end(number)
    assert code == 40 and "Verdict" in said


# --- recordings -----------------------------------------------------------------------------------


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    file = tmp_path / "a.jsonl"
    file.write_text(RUNS["busy workers"].text(), encoding="utf-8")
    return file


def test_a_live_run_and_its_replay_agree(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    state = machine(BUSY, RTX_3050)
    live = run("--json", "--interval", "0.1", "--", "sh", "-c", "sleep 0.7; exit 5")
    file = state.with_name("live.jsonl")
    file.write_text(live.stdout, encoding="utf-8")
    assert cli.main(["monitor", "--replay", str(file), "--json"]) == 0
    assert documents(capsys.readouterr().out)[0] == documents(live.stdout)[-1]


def test_a_recording_that_was_cut_is_judged_by_what_it_holds(
    recording: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = recording.read_text(encoding="utf-8")
    recording.write_text(text[: len(text) // 2], encoding="utf-8")
    assert cli.main(["monitor", "--replay", str(recording), "--json"]) == 0
    (document,) = documents(capsys.readouterr().out)
    assert document["verdict"] == "input-starved" and 20 < document["samples"] < 60


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "contains no samples"),
        ("RuntimeError: CUDA error\n", "`gpusetup doctor --report FILE`"),
        (f"{'[' * 100_000}\n", "line 1 cannot be read"),
        ('{"schema": "gpusetup.monitor/2"}\n', "this version reads gpusetup.monitor/1"),
    ],
)
def test_what_is_no_recording_is_a_wrong_question(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    file = tmp_path / "x.jsonl"
    file.write_text(text, encoding="utf-8")
    assert cli.main(["monitor", "--replay", str(file)]) == 2
    assert said in capsys.readouterr().err
    assert cli.main(["monitor", "--replay", str(tmp_path / "none")]) == 2


def test_the_summary_is_shown_whole(
    recording: Path, capsys: pytest.CaptureFixture[str], same_as_file: Same
) -> None:
    cli.main(["monitor", "--replay", str(recording)])
    same_as_file(capsys.readouterr().out, HERE / "rendered" / "monitor-summary.txt")


def test_the_last_error_of_a_command_is_in_the_verdict(machine: Machine) -> None:
    machine(BUSY, RTX_3050)
    script = "import time; time.sleep(0.5); raise RuntimeError('no batch')"
    done = run("--json", "--interval", "0.1", "--", sys.executable, "-c", script)
    summary = documents(done.stdout)[-1]
    assert summary["evidence"].startswith("the command ended with exit 1: RuntimeError: no batch;")
    assert summary["next"]["id"] == "read-how-it-ended"
