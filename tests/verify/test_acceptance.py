"""The acceptance on a card, without a card: its limits, its words, its evidence, a rehearsal."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "scripts"))

from acceptance import evidence  # noqa: E402
from acceptance.claims import ALL  # noqa: E402

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


def test_a_torch_that_is_not_usable_ends_the_run_at_once(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise RuntimeError('CUDA error: no kernel\\nwith DSA')")
    done = run("--out", str(tmp_path / "out"), PYTHONPATH=str(tmp_path))
    assert done.returncode == 2, done.stderr
    assert re.match("nothing was measured: torch is not usable: .*no kernel", done.stderr)
    assert "Traceback" not in done.stderr and not (tmp_path / "out").exists()


def test_evidence_of_another_machine_or_code_is_neither_mixed_nor_lost(tmp_path: Path) -> None:
    evidence.begun(tmp_path, evidence.Evidence(**FACTS))
    before = (tmp_path / evidence.FILE).read_bytes()
    for other in ({"card": "NVIDIA A100"}, {"driver": "570.1"}, {"torch": "2.12.0"}):
        with pytest.raises(evidence.Refused, match="another machine or code"):
            evidence.begun(tmp_path, evidence.Evidence(**FACTS | other))
    assert (tmp_path / evidence.FILE).read_bytes() == before
    (tmp_path / evidence.FILE).write_text("[1]")
    with pytest.raises(evidence.Refused, match="damaged or not ours"):
        evidence.begun(tmp_path, evidence.Evidence(**FACTS))


def verdict_of(claim: str, device: str, *verdicts: str, tests: int = 2) -> str:
    """What becomes of a claim whose tests found these verdicts."""
    part = next(known.part for known in ALL if known.id == claim)
    answers = [
        {"claim": claim, "verdict": verdict, "figure": verdict, "tests": tests}
        for verdict in verdicts
    ]
    claims = evidence.claims_of(part, answers, device)
    return next(each.verdict for each in claims if each.id == claim)


def test_a_rehearsal_decides_nothing_that_only_a_card_can_decide() -> None:
    assert verdict_of("monitor-verdicts", "cpu", "holds", "holds") == "stand-in"
    assert verdict_of("monitor-verdicts", "cpu", "holds", "fails") == "stand-in"
    assert verdict_of("clean-runs", "cpu", "holds", "holds") == "stand-in"


def test_a_command_that_refuses_or_breaks_is_no_answer(tmp_path: Path) -> None:
    """With a test of its own, run as the acceptance runs its parts."""
    (tmp_path / "test_mine.py").write_text(
        "import pytest\n"
        "@pytest.mark.claim('plan-error')\n"
        "def test_refused(work):\n"
        "    work.gpusetup('plan', '--no-such-option', '--json')\n"
        "@pytest.mark.claim('plan-error')\n"
        "def test_false(work):\n"
        "    assert work.on_card\n"
    )
    answers = tmp_path / "answers.jsonl"
    paths = os.pathsep.join((str(ROOT), str(ROOT / "scripts")))
    argv = [sys.executable, "-m", "pytest", "-p", "acceptance.conftest", "test_mine.py"]
    argv += ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(tmp_path), "-m", ""]
    argv += ["--device", "cpu", "--answers", str(answers), "-p", "no:cacheprovider"]
    env = {**os.environ, "PYTHONPATH": paths}
    subprocess.run(argv, env=env, capture_output=True, timeout=120, cwd=tmp_path)
    lines = [json.loads(line) for line in answers.read_text().splitlines()]
    assert [line["verdict"] for line in lines] == ["no answer", "fails"]
    assert "--no-such-option" in lines[0]["figure"]


def test_who_and_where_and_secrets_reach_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = {"USER": "zebulon", "HOME": "/srv/people/zebulon", "HOSTNAME": "crunchbox17"}
    for name, value in planted.items():
        monkeypatch.setenv(name, value)
    talk = "zebulon@crunchbox17:/srv/people/zebulon/x hf_PlantedTokenPlantedToken1234 "
    talk += "GPU-12345678-1234-1234-1234-123456789012 https://me:pw@mirror.corp/whl"
    whole = evidence.Evidence(**FACTS)
    whole.add(evidence.Result("plan", True, talk, 1.0, [], {"t": [{"d": talk}]}))
    evidence.write(tmp_path, whole)
    text = (tmp_path / evidence.FILE).read_text()
    for word in ("zebulon", "crunchbox17", "hf_Planted", "12345678-1234", "pw@"):
        assert word not in text, word


def rehearsed(out: Path, *words: str) -> dict[str, Any]:
    run("--device", "cpu", "--short", "--out", str(out), *words)
    parts = json.loads((out / "evidence.json").read_text())["parts"]
    return {part["name"]: part for part in parts}


def test_a_part_is_killed_at_its_limit_and_the_next_one_runs(tmp_path: Path) -> None:
    parts = rehearsed(tmp_path, "--parts", "suspicions", "verify", "--minutes", "0.05")
    assert set(parts) == {"verify", "suspicions"}
    for part in parts.values():
        assert not part["ok"] and part["status"] in ("killed at its limit", "not begun")
        assert {claim["verdict"] for claim in part["claims"]} <= {"open", "stand-in", "elsewhere"}
