"""The acceptance on a card, without a card: its limits, its words, its evidence, a rehearsal."""

from __future__ import annotations

import contextlib
import doctest
import importlib
import json
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "scripts"))

from acceptance import command, evidence, page, processes, readings, recorded  # noqa: E402
from acceptance.claims import ALL, DOUBTS, claims_of  # noqa: E402
from acceptance.running import answers_in, run_part  # noqa: E402
from acceptance.values import DONE, KILLED, NOT_BUILT, PARTS, Part, Result  # noqa: E402

SCRIPT = ROOT / "scripts" / "gpu_acceptance.py"
ENTRY = (sys.executable, str(SCRIPT), "--device", "cpu")
WITH_TORCH = ("trainings", "loads", "lightning_beside")
"""Modules that import torch, and one that needs Lightning."""
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


def test_every_part_is_killed_at_its_limit_and_the_next_one_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evidence, "machine", lambda wanted: FACTS | {"device": "cpu"})
    names = [part.name for part in PARTS if part.command is None]
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


def test_a_part_whose_command_is_not_built_says_so(tmp_path: Path) -> None:
    part = Part("later", 5, "a command of tomorrow", command="no-such-command")
    result = run_part(part, None, "cpu", tmp_path, 5)
    assert (result.status, result.ok) == (NOT_BUILT, True)


SLEEPERS = """
import subprocess, sys, time
subprocess.Popen(["sleep", "60"], start_new_session=True)
print("ready", flush=True)
time.sleep(60)
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")
def test_what_made_itself_a_session_of_its_own_ends_too() -> None:
    argv = (sys.executable, "-c", SLEEPERS)
    child = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert child.stdout is not None
    child.stdout.readline()
    below = processes.descendants(child.pid)
    processes.end(child)
    child.stdout.close()
    assert len(below) == 1
    assert not alive(below[0])


def alive(pid: int) -> bool:
    for _ in range(50):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
                time.sleep(0.1)
                continue
        return False
    return True


def test_what_a_killed_part_had_said_stands(tmp_path: Path) -> None:
    told = {"claim": "clean-runs", "verdict": "holds", "figure": "2 runs", "text": ""}
    row = {"table": "distances", "row": {"check": "matmul", "part": 0.2}}
    text = f"{json.dumps(told)}\n{json.dumps(row)}\n{{'cut of"
    (tmp_path / "answers.jsonl").write_text(text)
    claims, tables = answers_in(tmp_path, "clean", "cuda")
    verdicts = {claim.id: claim.verdict for claim in claims}
    assert verdicts == {"clean-runs": "holds", "clean-distance": "open"}
    assert tables == {"distances": [{"check": "matmul", "part": 0.2}]}


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
    assert text.count("| never run on a GPU |") == sum(not known.needs for known in ALL)


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


# --- rehearsals ---


def rehearsed(out: Path, *words: str, **environment: str) -> dict[str, Any]:
    import os

    argv = (*ENTRY, "--short", "--minutes", "20", "--out", str(out), *words)
    subprocess.run(argv, env={**os.environ, **environment}, check=False, timeout=1500)
    parts = json.loads((out / "evidence.json").read_text())["parts"]
    return {part["name"]: part for part in parts}


@pytest.mark.slow
def test_a_rehearsal_on_the_cpu_gets_through_every_part(tmp_path: Path) -> None:
    parts = rehearsed(tmp_path)
    assert {name: part["status"] for name, part in parts.items() if part["status"] != DONE} in (
        {},
        {"node-check": NOT_BUILT},
    )
    caught = parts["mutants"]["tables"]["mutants"]
    assert all(row["caught"] for row in caught), caught
    assert parts["clean"]["tables"]["distances"]


ON_A_FAKE_CARD = """
import sys
from pathlib import Path
from acceptance import mutants, plan, trainings, tune
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
tune.states_under_scaler(work)
"""


@pytest.mark.slow
def test_every_line_that_asks_for_a_card_can_run(tmp_path: Path) -> None:
    import os

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
    monkeypatch.setenv("PATH", str(ROOT / "tests" / "standin" / "bin"), prepend=":")
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
