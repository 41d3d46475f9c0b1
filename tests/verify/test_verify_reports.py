"""What a run is told as: text, JSON and JUnit XML."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from each_row import each
from hypothesis import given
from hypothesis import strategies as st
from verifying import ROOT, started

from gpusetup.model.codec import from_json
from gpusetup.model.documents import VerifyAnswer
from gpusetup.verify.answer.junit import as_junit
from gpusetup.verify.answer.render import as_json, as_text
from gpusetup.verify.program import main
from gpusetup.verify.values import Outcome, Report, Result

A100 = {
    "device": "cuda:0",
    "name": "NVIDIA A100-SXM4-80GB",
    "cuda_index": 0,
    "uuid": "GPU-1",
    "compute_capability": "8.0",
    "memory_total_bytes": 85_031_714_816,
}


def report(*results: Result, strict: bool = False, name: str = str(A100["name"])) -> Report:
    facts = {
        "torch": "2.9.0+cu128",
        "cuda": "12.8",
        "python": "3.11.9",
        "available": True,
        "devices": [{**A100, "name": name}],
    }
    return Report("auto", strict, facts, results)


SPEED = Result("speed", "cuda:0", Outcome("passed", "4096 x 4096", 19.1, 0.05, "TFLOP/s"), 0.25)
IMPORT = Result("import", "host", Outcome("passed", "torch 2.9.0+cu128 from /venv"), 0.9)
WRONG = Result(
    "float16",
    "cuda:0",
    Outcome("failed", "tall: 3 <of> 9 & 50 %\nlost, at: 7", 12.5, 1.0, "of it", "run it again"),
    1.5,
    "half precision would be wrong",
)
DIED = Result("fft", "cuda:0", Outcome("crashed", "died of SIGSEGV\x1b[2J", hint="`-v`"), 2.0, "x")
LEFT = Result("compile", "cuda:0", Outcome("skipped", "no C compiler", hint="`apt install g++`"))
EVERY = report(IMPORT, WRONG, DIED, LEFT, SPEED)


def test_the_junit_report_whole(same_as_file: Any) -> None:
    same_as_file(as_junit(EVERY), ROOT / "tests" / "rendered" / "verify-junit.xml")
    # Under --strict a skip is a failure.
    root = ElementTree.fromstring(as_junit(EVERY._replace(strict=True)))
    case = next(case for case in root.iter("testcase") if case.get("name") == "compile")
    assert [child.tag for child in case] == ["failure"]


TEXTS = st.text(st.characters(), max_size=40)


@given(TEXTS, TEXTS, TEXTS)
def test_no_text_spoils_a_report(detail: str, hint: str, means: str) -> None:
    bad = Result("memory", "cuda:0", Outcome("failed", detail, hint=hint), 0.1, means)
    found = report(bad, name=detail)
    ElementTree.fromstring(as_junit(found))
    lines = as_text(found).splitlines()
    assert all(line.isprintable() and not line.lstrip().startswith("::") for line in lines)
    assert json.loads(as_json(found))["checks"][0]["detail"] == detail


def test_the_speed_over_the_cpu_stands_in_its_row() -> None:
    compared = Outcome("passed", "products", 154.3, unit="times the CPU in float32")
    screen = as_text(report(IMPORT, Result("speed-over-cpu", "cuda:0", compared)))
    assert "products: 154 times the CPU in float32\n" in screen


def test_a_run_is_written_in_every_form(tmp_path: Path) -> None:
    done = started("--device", "cpu", "--json", "--junit", str(tmp_path / "report.xml"))
    answer = from_json(done.stdout, VerifyAnswer, what="the answer")
    assert (done.returncode, answer.checks[-1].name) == (0, "amp")
    root = ElementTree.fromstring((tmp_path / "report.xml").read_text(encoding="utf-8"))
    assert [case.get("name") for case in root.iter("testcase")][-1] == "amp"


@each(
    "words, said",
    [
        (("--level", "stress", "--seconds", "0"), "is not a valid time"),
        (("--device", "tpu"), "is not a device"),
        (("--only", "softmx"), "no check 'softmx'"),
        (("--expect", "gpus=>2"), "no operator '=>'"),
        (("--expect", "memory_gib>=4GB"), "'4GB' is not a value of memory_gib"),
    ],
)
def test_a_wrong_question_is_refused_before_anything_runs(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    told = "".join(capsys.readouterr())
    assert said in told
    assert "hint" in told
