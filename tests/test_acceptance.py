"""The acceptance on a card, without a card: its limits, its words, its evidence, a rehearsal."""

from __future__ import annotations

import ast
import contextlib
import doctest
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "scripts"))

from acceptance import (  # noqa: E402
    card,
    clean,
    command,
    evidence,
    page,
    readings,
    recorded,
    running,
    verify,
)
from acceptance.claims import ALL, DOUBTS, claims_of  # noqa: E402
from acceptance.running import answers_in  # noqa: E402
from acceptance.values import (  # noqa: E402
    CRASHED,
    DONE,
    FAILED,
    KILLED,
    PARTS,
    Part,
    Result,
)
from acceptance.work import (  # noqa: E402
    EARLIER,
    Said,
    Unanswered,
    Work,
    attempt,
)

SCRIPT = ROOT / "scripts" / "gpu_acceptance.py"
ENTRY = (sys.executable, str(SCRIPT), "--device", "cpu")
WITH_TORCH = ("trainings", "loads")
"""Modules that import torch."""
FACTS = {
    "schema": evidence.SCHEMA,
    "date": "2026-11-20",
    "device": "cuda",
    "stand_in": False,
    "card": "NVIDIA H200",
    "driver": "580.159.04",
    "torch": "2.11.0+cu130",
}


def modules() -> list[str]:
    files = (ROOT / "scripts" / "acceptance").glob("*.py")
    return sorted(file.stem for file in files if file.stem not in (*WITH_TORCH, "__init__"))


@pytest.mark.parametrize("name", modules())
def test_the_examples_in_the_parts_hold(name: str) -> None:
    assert doctest.testmod(importlib.import_module(f"acceptance.{name}")).failed == 0


def test_each_doubt_and_each_part_has_its_line() -> None:
    assert [known.id for known in DOUBTS] == [f"doubt-{number}" for number in range(1, 45)]
    assert len({known.id for known in ALL}) == len(ALL)
    names = {part.name for part in PARTS}
    assert {known.part for known in ALL} <= names
    for known in ALL:
        if known.source.endswith(".md"):
            assert (ROOT / known.source).is_file(), known.source


def test_what_the_parts_ask_verify_for_is_there() -> None:
    from acceptance.suspicions import EXACT, GREEDY, RATES

    from gpusetup.verify.checks.table import named

    asked = {name for known in ALL for name in known.checks} | {*EXACT, *GREEDY, *RATES}
    for name in asked:
        assert "cuda" in named(name).on, name


@pytest.mark.slow
def test_every_part_is_killed_at_its_limit_and_the_next_one_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(card, "machine", lambda *_: FACTS | {"device": "cpu"})
    monkeypatch.setattr(command, "PARTS", [part._replace(least=0.0) for part in PARTS])
    names = [part.name for part in PARTS if part.name != "node-check"]
    out = tmp_path / "out"
    words = ["--out", str(out), "--device", "cpu", "--parts", ",".join(names), "--minutes", "0.21"]
    began = time.monotonic()
    assert command.main("about", words) == 1
    assert time.monotonic() - began < 60
    parts = json.loads((out / "evidence.json").read_text())["parts"]
    assert [part["name"] for part in parts] == names
    assert {part["status"] for part in parts} == {KILLED}
    assert not any(part["ok"] for part in parts)
    said = [claim["id"] for part in parts for claim in part["claims"]]
    assert set(said) == {known.id for known in ALL if known.part != "node-check"}
    assert sorted(file.name for file in out.iterdir()) == [
        "evidence.json",
        "index.html",
        "runs.tar.gz",
    ]


ORPHAN = """
import subprocess, sys
middle = "import subprocess; subprocess.Popen(['sleep', '60'], start_new_session=True)"
subprocess.run([sys.executable, "-c", middle])
"""
WITH_AN_ORPHAN = f"""
import os, subprocess, sys
from acceptance import processes
with processes.adopting():
    before = set(processes.descendants(os.getpid()))
    subprocess.run([sys.executable, "-c", {ORPHAN!r}])
    pids = set(processes.descendants(os.getpid())) - before
    print(len(pids), processes.end_left(before), [pid for pid in pids if processes.runs(pid)])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Linux gives orphans to who asks for them")
def test_what_outlives_its_parents_is_found_and_ended() -> None:
    argv = (sys.executable, "-c", WITH_AN_ORPHAN)
    found = subprocess.run(
        argv, capture_output=True, text=True, cwd=ROOT / "scripts", timeout=60, check=True
    )
    assert found.stdout.split("\n")[0] == "1 1 []"


def test_what_a_killed_part_had_said_stands(tmp_path: Path) -> None:
    told = {"claim": "clean-runs", "verdict": "holds", "figure": "2 runs", "text": ""}
    row = {"table": "distances", "row": {"check": "matmul", "part": 0.2}}
    text = f"{json.dumps(told)}\n{json.dumps(row)}\n{{'cut of"
    (tmp_path / "answers.jsonl").write_text(text)
    claims, tables = answers_in(tmp_path, "clean", "cuda")
    verdicts = {claim.id: claim.verdict for claim in claims}
    assert verdicts == {"clean-runs": "holds", "clean-distance": "open"}
    assert tables == {"distances": [{"check": "matmul", "part": 0.2}]}


def test_time_that_was_not_enough_refutes_nothing(tmp_path: Path) -> None:
    work = Work("cuda", 100, tmp_path, seed=1)

    def late() -> None:
        raise Unanswered("no answer within 20 s")

    def absent() -> None:
        import no_such_package  # type: ignore[import-not-found] # noqa: F401

    attempt(work, "doubt-2", late)
    attempt(work, "doubt-3", absent)
    attempt(work, "doubt-9", lambda: 1 / 0)
    claims, _ = answers_in(tmp_path, "suspicions", "cuda")
    found = {claim.id: claim.verdict for claim in claims}
    assert [found[f"doubt-{number}"] for number in (2, 3, 9)] == ["open", "open", "fails"]


def test_checks_that_verify_left_out_for_its_time_leave_the_level_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = {"name": "timeout", "status": "failed", "detail": "2 checks were not begun"}
    cut = {"name": "convolution", "status": "crashed", "detail": "no answer in 7.02869 s; ended"}
    rows = [{"name": "matmul", "status": "passed", "detail": ""}, cut, late]
    said = Said(1, json.dumps({"checks": rows}), "", 95.0)
    work = Work("cuda", 100, tmp_path, seed=1)
    monkeypatch.setattr(work, "gpusetup", lambda *words, **more: said)
    assert set(verify._level(work, "standard")) == {"matmul", "timeout"}
    claims, _ = answers_in(tmp_path, "verify", "cuda")
    assert {c.verdict for c in claims if c.id in ("verify-standard", "doubt-20")} == {"open"}


def test_a_check_that_fails_without_the_fault_shows_nothing_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from acceptance import mutants

    statuses = iter(["passed", "failed", "failed", "failed", "passed", "passed"])
    monkeypatch.setattr(
        mutants, "ran", lambda *_: Namespace(status=next(statuses), detail="", value=None)
    )
    work = Work("cuda", 100, tmp_path, seed=1)
    fault = mutants.Fault("a fault", "matmul", contextlib.nullcontext)
    seen = [mutants._tried(work, fault) for _ in range(3)]
    assert [caught for _, caught in seen] == [True, None, False]
    verdicts = []
    for place, every in ((1, 1), (1, 2), (2, 2), (3, 3)):
        mutants._told(work, seen[:place], every)
        claims, _ = answers_in(tmp_path, "mutants", "cuda")
        verdicts.append(next(c.verdict for c in claims if c.id == "mutants-caught"))
    assert verdicts == ["holds", "open", "open", "fails"]


def test_nothing_is_decided_without_a_card() -> None:
    said = [{"claim": known.id, "verdict": "holds", "figure": ""} for known in ALL]
    for part in PARTS:
        for claim in claims_of(part.name, said, "cpu"):
            assert claim.verdict in ("stand-in", "elsewhere"), claim


def test_readings_name_the_field_that_differs() -> None:
    gpu = {"name": "A", "memory_total_bytes": 40960 << 20, "compute_capability": "8.0",
           "pci_bus_id": "00000000:07:00.0", "power_watts": 70.0, "ecc_enabled": True}  # fmt: skip
    smi = {"name": "A", "memory.total": "40960", "compute_cap": "9.0", "power.draw": "95.5",
           "ecc.mode.current": "Enabled", "pci.bus_id": "0000:07:00.0",
           "mig.mode.current": "[N/A]"}  # fmt: skip
    rows = {row["field"]: row["same"] for row in readings.compared(gpu, smi)}
    assert rows.pop("compute_capability") is False
    assert rows == dict.fromkeys(
        ("name", "pci_bus_id", "memory_total_bytes", "power_watts", "ecc_enabled"), True
    )


# --- evidence, page, table ---


def kept(folder: Path, **facts: Any) -> dict[str, Any]:
    """An evidence folder with one part, as a run on a card leaves it."""
    said = [{"claim": "clean-runs", "verdict": "holds", "figure": "7 runs <b> | none"}]
    result = Result("clean", True, DONE, 80.0, 90.0, claims_of("clean", said, "cuda"))
    (folder / "runs" / "clean").mkdir(parents=True)
    (folder / "runs" / "clean" / "stdout.txt").write_text("GPU-" + "1-".join("2222") + "\n")
    found: dict[str, Any] = evidence.written(
        folder / "kept" / "h200", FACTS | facts, [result], folder / "runs"
    )
    return found


def test_a_second_call_adds_to_the_first(tmp_path: Path) -> None:
    kept(tmp_path / "a")
    (tmp_path / "b" / "plan").mkdir(parents=True)
    (tmp_path / "b" / "plan" / "stdout.txt").write_text("two\n")
    result = Result("plan", True, DONE, 1.0, 2.0)
    out = tmp_path / "a" / "kept" / "h200"
    whole = evidence.written(out, dict(FACTS), [result], tmp_path / "b")
    assert [part["name"] for part in whole["parts"]] == ["clean", "plan"]
    assert not {"clean-runs", "plan-error"} & {claim["id"] for claim in whole["open"]}
    with tarfile.open(out / evidence.ARCHIVE) as packed:
        assert sorted(packed.getnames()) == ["clean/stdout.txt", "plan/stdout.txt"]


class Outcome:
    """What a check says, as far as clean runs ask."""

    def __init__(self, value: float, status: str = "passed", spent: bool = False) -> None:
        self.status, self.value, self.limit, self.unit = status, value, 1.0, "of the error allowed"
        self.detail, self.spent = "", spent


def clean_call(
    folder: Path, monkeypatch: pytest.MonkeyPatch, facts: dict[str, Any], outcome: Any
) -> list[int]:
    """One call of the part clean, as a process of its own would run it; the seeds that it took."""
    out, runs, took = folder / "out", folder / "runs", []

    def ran(names: Any, device: str, seed: int) -> Any:
        took.append(seed)
        return iter([("matmul", outcome(seed))])

    monkeypatch.setattr(clean, "runs", ran)
    monkeypatch.setattr(clean, "numeric", lambda device: ("matmul",))
    shutil.rmtree(runs, ignore_errors=True)
    (runs / "clean").mkdir(parents=True)
    (runs / "clean" / EARLIER).write_text(json.dumps(evidence.tables(out, facts, "clean")))
    clean.run(Work("cuda", 0.0, runs / "clean", seed=1))
    result = Result("clean", True, DONE, 1.0, 2.0, *answers_in(runs / "clean", "clean", "cuda"))
    evidence.written(out, facts, [result], runs)
    return took


def test_a_failed_seed_stays_and_a_spoilt_process_ends_the_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    took = clean_call(
        tmp_path, monkeypatch, FACTS, lambda seed: Outcome(2.0, "failed", spent=seed == 2)
    )
    assert took == [1, 2]
    took = clean_call(tmp_path, monkeypatch, FACTS, lambda seed: Outcome(0.1))
    assert took == [3]
    part = evidence.read(tmp_path / "out")["parts"][0]
    told = {claim["id"]: (claim["verdict"], claim["figure"]) for claim in part["claims"]}
    assert told["clean-runs"][0] == "fails" and "matmul with seed 1" in told["clean-runs"][1]
    assert [row["seed"] for row in part["tables"]["failures"]] == [1, 2]


PLANTED = {"USER": "zebulon", "LOGNAME": "zebulon", "HOSTNAME": "crunchbox17",
           "HOME": "/srv/people/zebulon", "HF_TOKEN": "hf_PlantedTokenPlantedToken1234",
           "MY_API_KEY": "plain-looking-words"}  # fmt: skip
TALKS = "zebulon@crunchbox17:/srv/people/zebulon/x $ {} {} GPU-12345678-1234-1234-1234-123456789012"


@pytest.mark.parametrize("whole", [True, False])
def test_who_and_where_and_secrets_reach_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    """Also where a dependency is missing that gpusetup's own redaction needs."""
    for name, value in PLANTED.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("socket.gethostname", lambda: "crunchbox17")
    if not whole:
        monkeypatch.setitem(sys.modules, "gpusetup.redaction", None)
    talk = TALKS.format(PLANTED["HF_TOKEN"], PLANTED["MY_API_KEY"])
    runs = tmp_path / "runs" / "clean"
    runs.mkdir(parents=True)
    (runs / "stdout.txt").write_text(f"before {talk}\n")
    said = [{"claim": "clean-runs", "verdict": "fails", "figure": talk}]
    tables = {"t": [{"detail": talk, talk: 1}]}
    claims = claims_of("clean", said, "cuda")
    result = Result("clean", False, "crashed", 1.0, 2.0, claims, tables, problem=talk)
    out = tmp_path / "out"
    found = evidence.written(out, FACTS | {"card": talk}, [result], tmp_path / "runs")
    shown = [page.page(found), (out / evidence.FILE).read_text()]
    with tarfile.open(out / evidence.ARCHIVE) as packed:
        texts = [packed.extractfile(entry) for entry in packed]
        shown += [text.read().decode() for text in texts if text]
    assert "before" in shown[2]
    assert len([*out.iterdir()]) <= 8 and all(file.is_file() for file in out.iterdir())
    for text in shown:
        for word in ("zebulon", "crunchbox17", "hf_Planted", "plain-looking", "12345678-1234"):
            assert word not in text, (word, text)


def test_private_words_do_not_reach_the_evidence() -> None:
    text = "GPU-12345678-1234-1234-1234-123456789012 /home/jane/x https://me:pw@mirror.corp/whl"
    shown = evidence.redacted({"rows": [text, 3, None]})["rows"]
    assert shown[1:] == [3, None]
    assert not [word for word in ("12345678", "jane", "pw@") if word in shown[0]]


def test_the_page_escapes_what_strangers_wrote(tmp_path: Path) -> None:
    whole = kept(tmp_path)
    whole["card"] = "<script>alert(1)</script>"
    shown = page.page(whole)
    assert "<script" not in shown and "&lt;script&gt;" in shown
    assert "7 runs &lt;b&gt; | none" in shown


def test_the_table_of_evidence_says_none_without_a_run(tmp_path: Path) -> None:
    text = recorded.page("", tmp_path)
    assert "| none |" in text
    assert text.count("| not yet |") == sum(not known.needs for known in ALL)


def test_the_table_of_evidence_names_card_driver_torch_date_claim_and_figure(
    tmp_path: Path,
) -> None:
    kept(tmp_path)
    text = recorded.page("", tmp_path / "kept")
    row = "| NVIDIA H200 | 580.159.04 | 2.11.0+cu130 | 2026-11-20 | other random numbers raise no"
    assert f"{row} alarm | holds | 7 runs &lt;b&gt; \\| none |" in text
    assert "| none | | |" not in text


def test_a_run_without_a_card_is_no_evidence(tmp_path: Path) -> None:
    kept(tmp_path, stand_in=True, card=None)
    with pytest.raises(ValueError, match="without a card"):
        recorded.page("", tmp_path / "kept")


# --- what a stranger's machine does to a run ---


def call(*words: str, **more: Any) -> subprocess.CompletedProcess[str]:
    argv = (sys.executable, str(SCRIPT), *words)
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, **more)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--device", "tpu"), "invalid choice: 'tpu'"),
        (("--device", "cuda:0"), "invalid choice"),
        (("--minutes", "0"), "'0' is not a number of minutes"),
        (("--minutes", "nan"), "'nan' is not a number of minutes"),
        (("--minutes", "inf"), "'inf' is not a number of minutes"),
        (("--minutes=-1",), "'-1' is not a number of minutes"),
        (("--parts", ""), "no part is named"),
        (("--parts", ","), "no part is named"),
        (("--parts", "bogus"), "there is no part 'bogus'; the parts are readings"),
        (("--out", ""), "a folder has a name"),
    ],
)
def test_a_wrong_word_ends_the_run_before_it_begins(
    tmp_path: Path, words: tuple[str, ...], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main("about", ["--out", str(tmp_path / "out"), *words])
    assert ended.value.code == 2
    assert why in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def quick(
    monkeypatch: pytest.MonkeyPatch, out: Path, *words: str, **facts: Any
) -> tuple[int, list[str]]:
    """(exit code, the parts that ran) of a run whose parts say one word each."""
    ran: list[str] = []

    def run(part: Part, *_: Any) -> Result:
        ran.append(part.name)
        return Result(part.name, True, DONE, 1.0, 2.0, claims_of(part.name, (), "cuda"))

    monkeypatch.setattr(card, "machine", lambda *_: FACTS | {"commit": "abc"} | facts)
    monkeypatch.setattr(command, "run_part", run)
    return command.main("about", ["--out", str(out), *words]), ran


def test_a_folder_that_cannot_be_written_ends_the_run_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("mine")
    for out in (tmp_path / "file", tmp_path / "file" / "sub", Path("/proc/x")):
        assert quick(monkeypatch, out) == (2, []), out
        assert f"nothing was measured: --out {out}: " in capsys.readouterr().err
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize(
    "other",
    [
        {"device": "cpu", "stand_in": True, "card": None},
        {"card": "NVIDIA A100"},
        {"driver": "570.1"},
        {"torch": "2.12.0"},
        {"commit": "def"},
    ],
)
@pytest.mark.one_in(5)
def test_evidence_of_another_machine_or_code_is_neither_mixed_nor_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: dict[str, Any], capsys: Any
) -> None:
    assert quick(monkeypatch, tmp_path, "--parts", "clean") == (0, ["clean"])
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    assert quick(monkeypatch, tmp_path, "--parts", "readings", **other) == (2, [])
    assert "evidence of another machine or code" in capsys.readouterr().err
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
    assert quick(monkeypatch, tmp_path, "--parts", "readings") == (0, ["readings"])
    assert [part["name"] for part in evidence.read(tmp_path)["parts"]] == ["clean", "readings"]


TORCHES = {
    "raises": ("raise RuntimeError('libcudart.so.13: cannot open')", "libcudart.so.13"),
    "aborts": ("import os; os.abort()", "ended by signal 6"),
    "empty": ("__version__ = '9.9'", "no attribute"),
    "explains": ("raise RuntimeError('CUDA error: no kernel\\nCompile with DSA')", "no kernel"),
}


@pytest.mark.parametrize("name", TORCHES)
@pytest.mark.one_in(4)
def test_a_torch_that_is_not_usable_ends_the_run_at_once(tmp_path: Path, name: str) -> None:
    code, why = TORCHES[name]
    (tmp_path / "torch.py").write_text(code)
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = call("--out", str(tmp_path / "out"), "--parts", "node-check", env=env)
    assert done.returncode == 2, done.stderr
    assert "nothing was measured: torch is not usable: " in done.stderr and why in done.stderr
    assert "Traceback" not in done.stderr and "--device cpu" in done.stderr
    assert not (tmp_path / "out" / evidence.FILE).exists()


def test_a_command_that_failed_itself_makes_its_part_fail(tmp_path: Path) -> None:
    errors = tmp_path / "stderr.txt"
    errors.write_text("Traceback\nKeyError: 1\n")
    broken = ["gpusetup doctor: exit 1: No module named 'msgspec'"]
    assert running.became(0, broken, errors) == (FAILED, broken[0])
    assert running.became(0, [], errors) == (DONE, "")
    assert running.became(1, [], errors) == (CRASHED, "KeyError: 1")
    assert running.became(-signal.SIGKILL, [], errors) == (CRASHED, "ended by signal SIGKILL")
    assert running.became(None, [], errors)[0] == KILLED


def test_what_is_only_compared_with_is_named_where_it_is_not_installed(tmp_path: Path) -> None:
    whole = kept(tmp_path, absent=["accelerate", "bitsandbytes"])
    assert "Not installed, so not compared with: accelerate, bitsandbytes." in page.page(whole)


def test_the_start_of_the_script_is_read_by_old_pythons() -> None:
    start = SCRIPT.read_text().partition("\nfrom pathlib")[0]
    ast.parse(start, feature_version=(3, 4))
    assert "__future__" not in start and start.isascii()


# --- rehearsals ---


def rehearsed(out: Path, *words: str, **environment: str) -> dict[str, Any]:
    argv = (*ENTRY, "--short", "--minutes", "20", "--out", str(out), *words)
    subprocess.run(argv, env={**os.environ, **environment}, check=False, timeout=1500)
    parts = json.loads((out / "evidence.json").read_text())["parts"]
    return {part["name"]: part for part in parts}


@pytest.mark.slow
def test_a_rehearsal_on_the_cpu_gets_through_every_part(tmp_path: Path) -> None:
    parts = rehearsed(tmp_path)
    assert {part["status"] for part in parts.values()} == {DONE}
    caught = parts["mutants"]["tables"]["mutants"]
    assert all(row["caught"] for row in caught), caught
    assert parts["clean"]["tables"]["distances"]


ON_A_FAKE_CARD = """
import sys
from pathlib import Path
from acceptance import loads, mutants, plan, trainings, tune
from acceptance.clean import run as clean
from acceptance.work import Work

work = Work("cuda", 1000, Path(sys.argv[2]), short=True, seed=1)
clean(work)
for fault in mutants.faults():
    if not fault.card_only:
        mutants._tried(work, fault)
with mutants._unsynchronised():
    pass
for training in trainings.TRAININGS:
    if training.needs is None:
        print(training.name, plan.measured(work, training))
tune.limited(work)
assert tune.trial(work, "transformer")(2)
tune.recovery(work)
tune.survival(work)
for name, (make, _) in loads.LOADS.items():
    step = make(loads.Setting("cuda:0"))
    if name in ("launch-bound", "idle"):
        step()
"""


@pytest.mark.slow
def test_every_line_that_asks_for_a_card_can_run(tmp_path: Path) -> None:
    paths = (str(ROOT), str(ROOT / "scripts"), str(ROOT / "tests" / "fake_card"))
    more = {"FAKE_CARD": "1", "GPUSETUP_ACCEPTANCE_SIZE": "small"}
    env = {**os.environ, **more, "PYTHONPATH": os.pathsep.join(paths)}
    argv = [sys.executable, "-c", ON_A_FAKE_CARD, "--run-part", str(tmp_path)]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [json.loads(line) for line in (tmp_path / "answers.jsonl").read_text().splitlines()]
    verdicts = {line["claim"]: line["verdict"] for line in lines if "claim" in line}
    assert verdicts["recover-exact"] == verdicts["oom-survived"] == "holds", verdicts
    assert verdicts["clean-runs"] == "holds"
    caught = {line["row"]["fault"]: line["row"]["caught"] for line in lines if "row" in line
              and line["table"] == "mutants"}  # fmt: skip
    assert all(caught.values()), caught


@pytest.fixture
def standin_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    import standin

    standin.install(monkeypatch, tmp_path, standin.state())
    monkeypatch.setenv("PATH", str(ROOT / "tests" / "standin" / "programs"), prepend=":")
    yield


@pytest.mark.slow
@pytest.mark.usefixtures("standin_machine")
def test_with_the_stand_in_driver_readings_agree_and_monitor_costs_little(tmp_path: Path) -> None:
    parts = rehearsed(tmp_path / "out", "--parts", "readings,monitor")
    rows = [row for row in parts["readings"]["tables"]["readings"] if row["source"] != "torch"]
    assert rows and all(row["same"] for row in rows), rows
    workload = parts["monitor"]["tables"]["workloads"][0]
    assert workload["utilisation"] == workload["dmon_utilisation"] == 7
    assert parts["monitor"]["tables"]["cost"]
