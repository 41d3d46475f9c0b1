"""The acceptance on a card, without a card: its limits, its words, its evidence, a rehearsal."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "scripts"))

from acceptance import evidence  # noqa: E402
from acceptance.claims import ALL, PARTS  # noqa: E402

ACCEPTANCE = ROOT / "scripts" / "acceptance"
SCRIPT = ROOT / "scripts" / "gpu_acceptance.py"
FACTS: dict[str, Any] = {
    "date": "2026-11-20",
    "device": "cuda",
    "stand_in": False,
    "card": "NVIDIA H200",
    "driver": "580.159.04",
    "torch": "2.11.0+cu130",
    "cuda": "13.0",
    "python": "3.12",
    "gpusetup": "0.1.0",
    "commit": "abc",
}


def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    argv = (sys.executable, str(SCRIPT), *words)
    env = {**os.environ, **environment}
    return subprocess.run(argv, capture_output=True, text=True, timeout=1500, env=env)


def test_each_doubt_is_a_test_or_names_what_it_needs() -> None:
    files = {part.name: (ACCEPTANCE / f"test_{part.name}.py").read_text() for part in PARTS}
    for known in ALL:
        is_tested = re.search(rf'claim\(f?"({known.id}"|verify-{{level}})', files[known.part])
        assert known.needs or known.checks or is_tested, known.id
        assert not known.source.endswith(".md") or (ROOT / known.source).is_file()
    assert [k.id for k in ALL if "doubt" in k.id] == [f"doubt-{n}" for n in range(1, 45)]


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("raise RuntimeError('CUDA error: no kernel\\nCompile with DSA')", "no kernel"),
        ("import os; os.abort()", "ended by signal 6"),
    ],
)
def test_a_torch_that_is_not_usable_ends_the_run_at_once(
    tmp_path: Path, code: str, why: str
) -> None:
    (tmp_path / "torch.py").write_text(code)
    done = run("--out", str(tmp_path / "out"), PYTHONPATH=str(tmp_path))
    assert done.returncode == 2, done.stderr
    assert "nothing was measured: torch is not usable: " in done.stderr and why in done.stderr
    assert "Traceback" not in done.stderr and not (tmp_path / "out").exists()


def kept(folder: Path, **facts: Any) -> evidence.Evidence:
    """A folder with one part, as a run on a card leaves it."""
    said = {"claim": "clean-runs", "verdict": "holds", "figure": "7 runs <b> | none", "tests": 1}
    whole = evidence.Evidence(**FACTS | facts)
    claims = evidence.claims_of("clean", [said], "cuda")
    whole.add(evidence.Result("clean", True, "done", 80.0, 90.0, claims))
    folder.mkdir(parents=True)
    evidence.write(folder, whole)
    return whole


def test_evidence_of_another_machine_or_code_is_neither_mixed_nor_lost(tmp_path: Path) -> None:
    kept(tmp_path / "a")
    before = (tmp_path / "a" / evidence.FILE).read_bytes()
    for other in ({"card": "NVIDIA A100"}, {"driver": "570.1"}, {"torch": "2.12.0"}):
        with pytest.raises(evidence.Refused, match="another machine or code"):
            evidence.begun(tmp_path / "a", evidence.Evidence(**FACTS | other))
    assert (tmp_path / "a" / evidence.FILE).read_bytes() == before
    (tmp_path / "a" / evidence.FILE).write_text("[1]")
    with pytest.raises(evidence.Refused, match="damaged or not ours"):
        evidence.begun(tmp_path / "a", evidence.Evidence(**FACTS))


def test_a_claim_is_open_until_all_its_tests_ran_and_nothing_is_decided_without_a_card() -> None:
    one = {"claim": "tune-batch", "verdict": "holds", "figure": "a", "tests": 2}
    asked = [([one], "cuda"), ([one, one], "cuda"), ([one, one], "cpu")]
    asked += [([one, one | {"verdict": "fails", "figure": "b"}], "cuda")]
    found = [evidence.claims_of("tune", answers, device)[0] for answers, device in asked]
    assert [claim.verdict for claim in found] == ["open", "holds", "stand-in", "fails"]
    assert found[3].figure == "a; b"


def test_who_and_where_and_secrets_reach_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = {"USER": "zebulon", "HOME": "/srv/people/zebulon", "HOSTNAME": "crunchbox17"}
    for name, value in planted.items():
        monkeypatch.setenv(name, value)
    talk = "zebulon@crunchbox17:/srv/people/zebulon/x hf_PlantedTokenPlantedToken1234 "
    talk += "GPU-12345678-1234-1234-1234-123456789012 https://me:pw@mirror.corp/whl"
    whole = evidence.Evidence(**FACTS)
    whole.add(evidence.Result("plan", True, "done", 1.0, 2.0, [], {"t": [{"d": talk}]}, talk))
    evidence.write(tmp_path, whole)
    text = (tmp_path / evidence.FILE).read_text()
    for word in ("zebulon", "crunchbox17", "hf_Planted", "12345678-1234", "pw@"):
        assert word not in text, word


def rehearsed(out: Path, *words: str, **environment: str) -> dict[str, Any]:
    run("--device", "cpu", "--short", "--out", str(out), *words, **environment)
    parts = json.loads((out / "evidence.json").read_text())["parts"]
    return {part["name"]: part for part in parts}


ORPHAN = """
import subprocess, sys
middle = "import subprocess; subprocess.Popen(['sleep', '61.5'], start_new_session=True)"
subprocess.run([sys.executable, "-c", middle])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Linux gives orphans to who asks for them")
def test_what_outlives_its_parents_is_found_and_ended() -> None:
    """In a process of its own, which adopts them."""
    code = (
        "import subprocess, sys, psutil; from acceptance import processes as p; p.adopt_orphans()\n"
        f"subprocess.run([sys.executable, '-c', {ORPHAN!r}])\n"
        "print(p.end_all(psutil.Process().children(recursive=True)))\n"
        "print(psutil.Process().children(recursive=True))"
    )
    argv = (sys.executable, "-c", code)
    done = subprocess.run(argv, capture_output=True, text=True, cwd=ROOT / "scripts", timeout=60)
    assert done.stdout.split() == ["1", "[]"], done.stderr


def test_a_part_is_killed_at_its_limit_and_the_next_one_runs(tmp_path: Path) -> None:
    parts = rehearsed(tmp_path, "--parts", "suspicions", "faults", "--minutes", "0.5")
    assert set(parts) == {"faults", "suspicions"}
    for part in parts.values():
        assert not part["ok"] and part["status"] in ("killed at its limit", "not begun")
        assert {claim["verdict"] for claim in part["claims"]} <= {"open", "stand-in", "elsewhere"}


@pytest.mark.slow
def test_a_rehearsal_on_the_cpu_gets_through_every_part(tmp_path: Path) -> None:
    parts = rehearsed(tmp_path, "--minutes", "60")
    assert {part["status"] for part in parts.values()} == {"done"} and len(parts) == len(PARTS)
    assert all(row["caught"] for row in parts["faults"]["tables"]["mutants"])
    assert parts["clean"]["tables"]["distances"]


@pytest.mark.slow
def test_every_line_that_asks_for_a_card_can_run(tmp_path: Path) -> None:
    """Under a torch that says that it has CUDA and computes on the CPU."""
    paths = (str(ROOT), str(ROOT / "scripts"), str(ROOT / "tests" / "fake_card"))
    more = {"FAKE_CARD": "1", "GPUSETUP_ACCEPTANCE_SIZE": "small"}
    env = {**os.environ, **more, "PYTHONPATH": os.pathsep.join(paths)}
    files = [str(ACCEPTANCE / f"test_{name}.py") for name in ("tune", "plan")]
    words = ["--device", "cuda", "--short", "--answers", str(tmp_path), "-W", "ignore", "-s"]
    argv = [sys.executable, "-m", "pytest", *files, *words, "-k", "gradient or memory or code"]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=900, cwd=ROOT)
    lines = [json.loads(line) for line in (tmp_path / "answers.jsonl").read_text().splitlines()]
    verdicts = {line["claim"]: line["verdict"] for line in lines if "claim" in line}
    assert verdicts["recover-exact"] == verdicts["oom-survived"] == "holds", done.stdout
    assert "Traceback" not in done.stdout


@pytest.mark.slow
def test_with_the_stand_in_driver_readings_agree_and_monitor_costs_little(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    standin = importlib.import_module("standin")
    standin.install(monkeypatch, tmp_path, standin.state())
    monkeypatch.setenv("PATH", str(ROOT / "tests" / "standin" / "programs"), prepend=":")
    parts = rehearsed(tmp_path / "out", "--parts", "readings", "monitor")
    claims = {claim["id"]: claim for part in parts.values() for claim in part["claims"]}
    assert claims["readings-match"]["figure"].endswith("other: none"), claims["readings-match"]
    workload = parts["monitor"]["tables"]["workloads"][0]
    assert workload["utilization_percent"] == workload["dmon_utilization_percent"] == 7
    assert parts["monitor"]["tables"]["cost"]
