"""What a run is told as: JUnit XML, GitHub annotations, and against a run that was kept."""

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
from gpusetup.verify.answer.render import as_github, as_json, as_text
from gpusetup.verify.judging.baseline import compared, read_baseline
from gpusetup.verify.program import main
from gpusetup.verify.values import Outcome, Report, Result, WrongQuestion

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


def speed(rate: float, spread: float = 0.004) -> Result:
    outcome = Outcome("passed", "4096 x 4096", rate, 0.05, "TFLOP/s", spread=spread)
    return Result("speed", "cuda:0", outcome, 0.25)


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
FINE = LEFT._replace(outcome=Outcome("passed", "fine"))
EVERY = report(IMPORT, WRONG, DIED, LEFT, speed(19.1))


def in_form(text: str) -> ElementTree.Element:
    """Whether junit-10.xsd of Jenkins' xUnit plugin takes it, as far as this report uses it."""
    root = ElementTree.fromstring(text.encode("utf-8"))
    inside = {"testsuites": {"testsuite"}, "testsuite": {"properties", "testcase"}}
    inside["properties"] = {"property"}
    inside["testcase"] = {"skipped", "error", "failure", "system-out"}
    needed = {"testsuite": {"name", "tests", "failures", "errors", "skipped", "time"}}
    needed |= {"property": {"name", "value"}, "testcase": {"name", "classname", "time"}}
    needed |= {key: {"type", "message"} for key in ("skipped", "error", "failure")}
    for element in root.iter():
        assert {child.tag for child in element} <= inside.get(element.tag, set())
        if element.tag in needed:
            assert set(element.attrib) == needed[element.tag]
        for kind, name in (("failure", "failures"), ("error", "errors"), ("testcase", "tests")):
            assert element.get(name, str(len([*element.iter(kind)]))) == str(
                len([*element.iter(kind)])
            )
    return root


def test_the_junit_report_whole(same_as_file: Any) -> None:
    in_form(as_junit(EVERY))
    same_as_file(as_junit(EVERY), ROOT / "tests" / "rendered" / "verify-junit.xml")


def test_a_skip_is_a_failure_under_strict() -> None:
    root = in_form(as_junit(EVERY._replace(strict=True)))
    case = next(case for case in root.iter("testcase") if case.get("name") == "compile")
    assert [child.tag for child in case] == ["failure"]
    title = "title=verify%3A compile on cuda%3A0 skipped"
    assert as_github(report(LEFT)).startswith(f"::notice {title}")
    assert as_github(report(LEFT, strict=True)).startswith(f"::error {title}")


TEXTS = st.text(st.characters(), max_size=40)


@given(TEXTS, TEXTS, TEXTS)
def test_no_text_spoils_a_report(detail: str, hint: str, means: str) -> None:
    bad = Result("memory", "cuda:0", Outcome("failed", detail, hint=hint), 0.1, means)
    found = report(bad, name=detail)
    in_form(as_junit(found))
    lines = as_github(found).splitlines()
    assert [line for line in lines if line.startswith("::")] == lines[:1]
    assert all(line.isprintable() for line in lines)
    assert json.loads(as_json(found))["checks"][0]["detail"] == detail


def test_annotations_are_escaped_and_the_text_follows(same_as_file: Any) -> None:
    same_as_file(as_github(EVERY), ROOT / "tests" / "rendered" / "verify-github.txt")


def test_each_failure_says_what_it_means_and_the_next_step_once() -> None:
    screen = as_text(report(WRONG, WRONG._replace(name="bfloat16")))
    assert screen.endswith(
        "float16 on cuda:0: half precision would be wrong\n"
        "bfloat16 on cuda:0: half precision would be wrong\n"
        "hint: run it again\n"
    )


def test_the_computation_test_fails_with_any_check_that_computes() -> None:
    sound = tuple(
        Result(name, "cuda:0", Outcome("passed", "")) for name in ("properties", "matmul", "amp")
    )
    assert "GPU computation test: PASSED" in as_text(report(*sound, LEFT))
    assert "GPU computation test: FAILED" in as_text(report(*sound, WRONG))
    assert "GPU computation test: FAILED" in as_text(report(LEFT))


def kept(*results: Result, **changes: Any) -> dict[str, Any]:
    return {**json.loads(as_json(report(*results))), **changes}


@each(
    "now, then, changes, status, said",
    [
        (speed(17.57), speed(19.1), {}, "failed", "17.6 instead of 19.1 TFLOP/s (8% less)"),
        (speed(18.4), speed(19.1), {}, "passed", "1 checks are as good"),
        (speed(25.0), speed(19.1), {}, "passed", "1 checks are as good"),
        (speed(15.0, spread=0.1), speed(19.1), {}, "passed", "1 checks are as good"),
        (speed(15.0), speed(19.1, spread=0.1), {}, "passed", "1 checks are as good"),
        (LEFT, FINE, {}, "failed", "compile passed, now it is skipped"),
        (FINE, FINE, {"devices": []}, "skipped", "had None as cuda:0"),
        (FINE, FINE, {"devices": [{**A100, "name": "T4"}]}, "skipped", "had T4 as cuda:0"),
        (FINE, FINE, {"checks": []}, "skipped", "no check in common"),
    ],
)
def test_a_run_is_compared_with_a_kept_one(
    now: Result, then: Result, changes: Any, status: str, said: str
) -> None:
    last = compared(report(now), kept(then, **changes)).results[-1]
    assert (last.name, last.outcome.status) == ("baseline", status)
    assert said in last.outcome.detail


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": "gpusetup.verify/2"}', "\x00\xff"])
def test_a_file_that_is_no_baseline_is_a_wrong_question(tmp_path: Path, text: str) -> None:
    (tmp_path / "kept.json").write_text(text, encoding="latin-1")
    with pytest.raises(WrongQuestion) as refused:
        read_baseline(str(tmp_path / "kept.json"))
    assert refused.value.hint == "`--save-baseline FILE` writes one"


def test_a_run_is_kept_compared_and_written_in_every_form(tmp_path: Path) -> None:
    files = {name: tmp_path / name for name in ("kept.json", "report.xml", "report.json")}
    words = ("--device", "cpu", "--junit", str(files["report.xml"]))
    first = started(*words, "--save-baseline", str(files["kept.json"]))
    assert first.returncode == 0, first.stderr
    again = started(*words, "--json", "--baseline", str(files["kept.json"]))
    answer = from_json(again.stdout, VerifyAnswer, what="the answer")
    assert (again.returncode, answer.checks[-1].name) == (0, "baseline")
    assert answer.checks[-1].detail == "3 checks are as good as in the run that was kept"
    root = in_form(files["report.xml"].read_text(encoding="utf-8"))
    assert [case.get("name") for case in root.iter("testcase")][-1] == "baseline"


@each(
    "words, said",
    [
        (("--seconds", "9"), "is for the stress level"),
        (("--level", "stress", "--seconds", "0"), "is no time"),
        (("--level", "stress", "--seconds", "nan"), "is no time"),
        (("--seed", "-1"), "is no seed"),
        (("--json", "--format", "github"), "contradict each other"),
        (("--format", "teamcity"), "invalid choice"),
        (("--device", "tpu"), "is no device"),
        (("--exp", "gpus>=1"), "unrecognized"),
        (("--with", "numpy"), "no computation of it is known"),
        (("--only", "softmx"), "no check 'softmx'"),
        (("--only", "float8"), "`float8` is no check of level quick"),
        (("--baseline", "/none"), "Cannot read /none"),
    ],
)
def test_a_wrong_question_is_refused_before_anything_runs(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    told = "".join(capsys.readouterr())
    assert said in told
    assert "hint" in told
