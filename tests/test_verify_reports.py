"""What a run is told as: JUnit XML, GitHub annotations, and against a run that was kept."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from verifying import ROOT, started

from gpusetup.model.codec import from_json
from gpusetup.model.documents import VerifyAnswer
from gpusetup.verify.answer.junit import as_junit
from gpusetup.verify.answer.render import as_github, as_json, as_text
from gpusetup.verify.judging.baseline import compared, noise, read_baseline
from gpusetup.verify.options import read_options
from gpusetup.verify.values import Outcome, Report, Result, WrongQuestion, verdict

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
EVERY = report(IMPORT, WRONG, DIED, LEFT, speed(19.1))


# What junit-10.xsd of Jenkins' xUnit plugin asks for, as far as this report uses it:
# element -> (attributes that must be there, attributes that may be, elements inside).
FORM: dict[str, tuple[set[str], set[str], set[str]]] = {
    "testsuites": (set(), {"name", "time", "tests", "failures", "errors"}, {"testsuite"}),
    "testsuite": (
        {"name", "tests", "failures", "errors"},
        {
            "group",
            "time",
            "skipped",
            "timestamp",
            "hostname",
            "id",
            "package",
            "file",
            "log",
            "url",
        },
        {"testsuite", "properties", "testcase", "system-out", "system-err"},
    ),
    "properties": (set(), set(), {"property"}),
    "property": ({"name", "value"}, set(), set()),
    "testcase": (
        {"name"},
        {"time", "classname", "group"},
        {"skipped", "error", "failure", "system-out", "system-err"},
    ),
    **{kind: (set(), {"type", "message"}, set()) for kind in ("skipped", "error", "failure")},
    "system-out": (set(), set(), set()),
}
TIME = re.compile(r"(([0-9]{0,3},)*[0-9]{3}|[0-9]{0,3})*(\.[0-9]*)?")


def in_form(element: ElementTree.Element) -> None:
    needed, allowed, inside = FORM[element.tag]
    assert needed <= set(element.attrib) <= needed | allowed, element.attrib
    assert TIME.fullmatch(element.get("time", "0"))
    for child in element:
        assert child.tag in inside, (element.tag, child.tag)
        in_form(child)


def test_the_junit_report_whole(same_as_file: Any) -> None:
    in_form(ElementTree.fromstring(as_junit(EVERY)))
    same_as_file(as_junit(EVERY), ROOT / "tests" / "rendered" / "verify-junit.xml")


def test_junit_counts_what_it_holds() -> None:
    root = ElementTree.fromstring(as_junit(EVERY))
    for suite in (root, *root.iter("testsuite")):
        for kind, name in (("failure", "failures"), ("error", "errors"), ("testcase", "tests")):
            assert suite.get(name) == str(len([*suite.iter(kind)]))
    assert [suite.get("name") for suite in root] == ["host", "cuda:0"]


def test_a_skip_is_a_failure_in_junit_under_strict() -> None:
    root = ElementTree.fromstring(as_junit(EVERY._replace(strict=True)))
    case = next(case for case in root.iter("testcase") if case.get("name") == "compile")
    assert [child.tag for child in case] == ["failure"]


TEXTS = st.text(st.characters(), max_size=40)


@given(TEXTS, TEXTS, TEXTS)
def test_no_text_spoils_a_report(detail: str, hint: str, means: str) -> None:
    bad = Result("memory", "cuda:0", Outcome("failed", detail, hint=hint), 0.1, means)
    found = report(bad, name=detail)
    in_form(ElementTree.fromstring(as_junit(found).encode("utf-8")))
    lines = as_github(found).splitlines()
    assert [line for line in lines if line.startswith("::")] == lines[:1]
    assert all(line.isprintable() for line in lines)
    assert json.loads(as_json(found))["checks"][0]["detail"] == detail


def test_annotations_are_escaped_and_the_text_follows(same_as_file: Any) -> None:
    same_as_file(as_github(EVERY), ROOT / "tests" / "rendered" / "verify-github.txt")


def test_a_skip_is_a_notice_and_under_strict_an_error() -> None:
    assert as_github(report(LEFT)).startswith(
        "::notice title=verify%3A compile on cuda%3A0 skipped"
    )
    assert as_github(report(LEFT, strict=True)).startswith("::error title=")


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


def last(found: Report) -> Outcome:
    assert found.results[-1].name == "baseline"
    return found.results[-1].outcome


def test_a_driver_that_costs_eight_percent_is_seen() -> None:
    found = compared(report(speed(19.1 * 0.92)), kept(speed(19.1)))
    assert verdict(found) == "failed"
    assert last(found).detail == "speed gives 17.6 instead of 19.1 TFLOP/s (8% less)"
    assert (last(found).value, last(found).hint is not None) == (0.08, True)


@pytest.mark.parametrize(
    ("now", "then"),
    [
        (speed(18.4), speed(19.1)),
        (speed(25.0), speed(19.1)),
        (speed(15.0, spread=0.1), speed(19.1)),
        (speed(15.0), speed(19.1, spread=0.1)),
    ],
    ids=["little", "faster", "noise now", "noise then"],
)
def test_noise_and_gains_are_no_loss(now: Result, then: Result) -> None:
    found = compared(report(now), kept(then))
    assert last(found) == Outcome("passed", "1 checks are as good as in the run that was kept")


@given(st.floats(0.01, 100), st.floats(0, 0.3), st.floats(0, 0.3), st.floats(0.01, 1))
def test_a_loss_is_seen_exactly_where_it_is_beyond_the_noise(
    rate: float, now: float, then: float, part: float
) -> None:
    found = compared(report(speed(rate * part, now)), kept(speed(rate, then)))
    beyond = 1 - (rate * part) / rate > noise(now, then)
    assert (last(found).status == "failed") == beyond


def test_what_passed_and_is_skipped_now_is_a_loss() -> None:
    then = LEFT._replace(outcome=Outcome("passed", "fine"))
    found = compared(report(LEFT), kept(then))
    assert last(found).detail == "compile passed, now it is skipped"


def test_errors_are_no_rates() -> None:
    then = WRONG._replace(outcome=WRONG.outcome._replace(status="passed", value=20.0))
    now = then._replace(outcome=then.outcome._replace(value=0.1))
    assert last(compared(report(now), kept(then))).status == "passed"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"devices": []}, "had no cuda:0"),
        ({"devices": [{**A100, "name": "Tesla T4"}]}, "had Tesla T4 as cuda:0"),
        ({"checks": []}, "no check in common"),
    ],
)
def test_another_machine_is_skipped_and_not_compared(changes: Any, words: str) -> None:
    found = last(compared(report(speed(1.0)), kept(speed(19.1), **changes)))
    assert (found.status, words in found.detail) == ("skipped", True)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"schema": "gpusetup.verify/2", "checks": [], "devices": []}',
        '{"schema": "gpusetup.verify/1", "checks": [{"name": 1}], "devices": []}',
        '{"schema": "gpusetup.verify/1", "devices": [],'
        ' "checks": [{"name": "a", "status": "passed", "value": "x"}]}',
        '{"schema": "gpusetup.verify/1", "checks": {}, "devices": []}',
        "\x00\xff",
    ],
)
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
    root = ElementTree.fromstring(files["report.xml"].read_text(encoding="utf-8"))
    in_form(root)
    assert [case.get("name") for case in root.iter("testcase")][-1] == "baseline"


def test_files_that_cannot_be_read_or_written_are_said_in_one_line(tmp_path: Path) -> None:
    lost = started("--device", "none", "--baseline", str(tmp_path / "none.json"))
    assert (lost.returncode, lost.stdout) == (2, "")
    assert lost.stderr.startswith(f"error: Cannot read {tmp_path / 'none.json'}: ")
    shut = started("--device", "none", "--junit", str(tmp_path / "no" / "report.xml"))
    assert shut.returncode == 3
    assert shut.stderr.endswith("hint: name another --junit\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--seconds", "9"), "is for the stress level"),
        (("--level", "stress", "--seconds", "0"), "is no time"),
        (("--level", "stress", "--seconds", "nan"), "is no time"),
        (("--seed", "-1"), "is no seed"),
        (("--json", "--format", "github"), "contradict each other"),
        (("--format", "teamcity"), "invalid choice"),
    ],
)
def test_a_wrong_option_is_refused(words: tuple[str, ...], said: str) -> None:
    with pytest.raises(WrongQuestion) as refused:
        read_options(words)
    assert said in refused.value.message


def test_gpusetup_verify_passes_every_option_on() -> None:
    import argparse

    from gpusetup.commands import verify as command

    parser = argparse.ArgumentParser()
    command.configure(parser)
    said = ["--level", "stress", "--seconds", "9.5", "--seed", "3", "--junit", "a b.xml",
            "--baseline", "k.json", "--save-baseline", "s.json", "--format", "github"]  # fmt: skip
    options = parser.parse_args(said)
    options.json, options.output, options.verbose = False, None, False
    assert read_options(command.words(options)) == read_options(said)
