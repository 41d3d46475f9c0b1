"""The order of the checks and what follows from their answers, with a child made of answers."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gpusetup.verify.answer.render import as_text, plain
from gpusetup.verify.answer.screen import as_screen
from gpusetup.verify.checks.table import LEVELS
from gpusetup.verify.child import Child, Environment, how
from gpusetup.verify.options import LEVELS as OFFERED
from gpusetup.verify.options import read_options
from gpusetup.verify.program import verify
from gpusetup.verify.values import Outcome, Report, WrongQuestion, verdict

GPU = {"name": "A", "memory_total_bytes": 2**33, "compute_capability": "8.0"}
SEEN = {"gpu": {"facts": {"available": True, "gpus": 2, "seen": ["cuda:0", "cuda:1"]}}}


class Answers:
    """Passes everything, but what is given: `name` or `name@subject` -> fields of the outcome."""

    def __init__(self, given: Mapping[str, Mapping[str, Any]]) -> None:
        self.given = given
        self.asked: list[str] = []
        self.ended = 0

    def ask(
        self,
        name: str,
        device: str,
        limit_seconds: float,
        environment: Environment = (),
        whole_seconds: float = 0.0,
    ) -> dict[str, Any]:
        self.asked.append(f"{name}@{device}")
        fields: dict[str, Any] = {"status": "passed", "detail": "fine"}
        if name == "properties":
            fields["facts"] = {"device": {"device": device, "cuda_index": 0, **GPU}}
        fields.update(self.given.get(name, self.given.get(f"{name}@{device}", {})))
        return {"outcome": Outcome(**fields)._asdict(), "seconds": 0.5}

    def end(self) -> None:
        self.ended += 1


def run(*words: str, **given: Mapping[str, Any]) -> tuple[Report, Answers]:
    answers = Answers(
        {**SEEN, **{name.replace("__", "@"): fields for name, fields in given.items()}}
    )
    return verify(read_options(words), answers), answers


def results(report: Report) -> dict[str, str]:
    return {f"{each.name}@{each.device}": each.outcome.status for each in report.results}


def test_every_device_is_asked_everything_in_order() -> None:
    report, answers = run()
    each = ("properties", "arch", "matmul", "amp")
    assert answers.asked == [
        "import@auto",
        "gpu@auto",
        *(f"{name}@cuda:{n}" for n in (0, 1) for name in each),
    ]
    assert verdict(report) == "passed"
    assert answers.ended == 1


def test_what_needs_a_failed_check_is_skipped_and_says_which() -> None:
    report, answers = run(properties={"status": "failed", "detail": "no"})
    assert results(report)["amp@cuda:1"] == "skipped"
    assert not [asked for asked in answers.asked if asked.startswith(("arch", "matmul", "amp"))]
    assert report.results[-1].outcome.detail == "needs properties, which failed"
    assert verdict(report) == "failed"


def test_a_check_that_spent_its_process_gets_the_next_a_new_one() -> None:
    sick = {"matmul@cuda:0": {"status": "failed", "detail": "CUDA error", "spent": True}}
    answers = Answers({**SEEN, **sick})
    report = verify(read_options([]), answers)
    assert results(report)["amp@cuda:0"] == "passed"
    assert answers.ended == 2


@pytest.mark.parametrize(("words", "expected"), [((), "passed"), (("--strict",), "failed")])
def test_a_skip_counts_as_no_only_under_strict(words: tuple[str, ...], expected: str) -> None:
    report, _ = run("--device", "none", *words, libraries={"status": "skipped", "detail": "cpu"})
    assert verdict(report) == expected


def test_expectations_of_the_build_are_judged_where_no_gpu_is_found() -> None:
    facts: dict[str, Any] = {"facts": {"torch": "2.5.1+cpu", "cuda": None}}
    lost = {"status": "failed", "detail": "GPU not detected!", "facts": {"available": False}}
    words = ("--expect", "torch==2.5.*", "--expect", "gpus>=1")
    report, _ = run(*words, **{"import": facts, "gpu": lost})
    assert [each.outcome.status for each in report.results[-2:]] == ["passed", "skipped"]


def test_the_levels_that_are_offered_are_the_levels_that_exist() -> None:
    assert set(OFFERED) == set(LEVELS)


@pytest.mark.parametrize("level", LEVELS)
def test_each_check_needs_only_earlier_ones(level: str) -> None:
    names = [check.name for check in LEVELS[level]]
    for place, check in enumerate(LEVELS[level]):
        assert set(check.needs) <= set(names[:place]), check.name
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    "words",
    [
        ("--device", "tpu"),
        ("--device", "cuda:x"),
        ("--level", "endless"),
        ("--seconds",),
        ("--device", "none", "--expect", "gpus>=1"),
        ("--device", "cpu", "--expect", "capability>=8.0"),
        ("--exp", "gpus>=1"),
    ],
)
def test_a_wrong_question_is_refused_before_anything_runs(words: tuple[str, ...]) -> None:
    with pytest.raises(WrongQuestion) as refused:
        read_options(words)
    assert refused.value.hint


def test_a_check_that_hangs_is_ended_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The child here reads its job and never answers."""
    real = subprocess.Popen

    def silent(_: Any, **options: Any) -> Any:
        return real([sys.executable, "-c", "import sys\nfor line in sys.stdin: pass"], **options)

    monkeypatch.setattr(subprocess, "Popen", silent)
    child = Child(verbose=False)
    answer = child.ask("matmul", "cuda:0", 0.2)
    assert answer["outcome"]["status"] == "crashed"
    assert answer["outcome"]["detail"] == "no answer in 0.2 s; the process was ended"
    assert child.process is None


STARTED = subprocess.Popen
SAMPLES = """import json, sys, time
for line in sys.stdin:
    for number in range({count}):
        print(json.dumps({{"at": f"mm/{{number}}"}}), flush=True)
        time.sleep(0.1)
    {then}
"""


def a_child_that(monkeypatch: pytest.MonkeyPatch, program: str) -> Child:
    words = [sys.executable, "-c", program]
    monkeypatch.setattr(subprocess, "Popen", lambda _, **options: STARTED(words, **options))
    return Child(verbose=False)


def test_a_check_that_names_its_samples_may_last_longer_than_the_limit_of_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A busy host makes a census slow; only a sample that hangs ends it, by its name."""
    answered = 'print(json.dumps({"outcome": {"status": "passed"}, "seconds": 2}), flush=True)'
    child = a_child_that(monkeypatch, SAMPLES.format(count=20, then=answered))
    assert child.ask("census-products", "cpu", 1.5, whole_seconds=60)["seconds"] == 2
    child.end()
    child = a_child_that(monkeypatch, SAMPLES.format(count=3, then="time.sleep(60)"))
    hung = child.ask("census-products", "cpu", 1.5, whole_seconds=60)["outcome"]["detail"]
    assert hung == "no answer in 1.5 s at mm/2; the process was ended"
    child = a_child_that(monkeypatch, SAMPLES.format(count=600, then="pass"))
    late = child.ask("census-products", "cpu", 1.5, whole_seconds=2)["outcome"]["detail"]
    assert late.startswith("no answer in 2 s at mm/")


KERNELS = """import json, os, sys
path = os.environ["TORCHINDUCTOR_CACHE_DIR"]
open(os.path.join(path, "kernel"), "w").close()
for line in sys.stdin:
    print(json.dumps({"outcome": {"status": "passed", "detail": path}, "seconds": 0}), flush=True)
"""


def test_what_the_child_compiles_is_its_own_and_goes_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else torch takes kernels of an earlier run, and the compiler is not asked at all."""
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    child = a_child_that(monkeypatch, KERNELS)
    folder = Path(child.ask("compile", "cpu", 60)["outcome"]["detail"])
    assert (folder / "kernel").exists()
    child.end()
    assert not folder.exists()
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    child = a_child_that(monkeypatch, KERNELS)
    assert child.ask("compile", "cpu", 60)["outcome"]["detail"] == str(tmp_path)
    child.end()
    assert (tmp_path / "kernel").exists()


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (-9, "the process died of SIGKILL"),
        (1, "the process ended with exit code 1"),
        (0xC0000005, "the process ended with exit code 0xC0000005"),
    ],
)
def test_how_a_process_ended(code: int, words: str) -> None:
    assert how(code) == words


def test_a_terminal_gets_colours_and_rows_that_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    report, _ = run(matmul={"status": "failed", "detail": "no " * 60, "hint": "do this"})
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: True)
    for name in ("NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TERM", "xterm")
    shown = as_screen(report, False, stream)
    assert "\x1b[1;31mfailed\x1b[0m" in shown and "\x1b[1;36mhint\x1b[0m" in shown
    bare = re.sub(r"\x1b\[[\d;]*m", "", shown)
    assert max(map(len, bare.splitlines())) <= 60
    assert bare.split() == as_text(report).split()
    monkeypatch.setenv("NO_COLOR", "1")
    assert as_screen(report, False, stream) == bare


def test_a_hint_is_printed_once_and_nothing_drives_the_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    report, _ = run(matmul={"status": "failed", "detail": "\x1b[31mno\r\n", "hint": "do\x07 this"})
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    screen = as_text(report)
    assert as_screen(report, False, io.StringIO()) == screen
    assert screen.count("hint: ") == 1
    assert all(line.isprintable() for line in screen.splitlines())
    assert plain("\u202e") == "\\u202e"


@pytest.mark.parametrize("only", ["elementwise", "census-products/mm/float32/strided/tile/7"])
def test_a_check_that_the_level_lacks_is_refused_and_its_level_named(only: str) -> None:
    words = [sys.executable, "-m", "gpusetup.verify", "--device", "cpu", "--only", only]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"`{only.split('/')[0]}` is no check of level quick" in done.stderr
    assert "`--level standard`" in done.stderr


@pytest.mark.parametrize(
    ("level", "only"),
    [
        ("standard", "census-sorting/nonsense/float32/contiguous/tiny/0"),
        pytest.param("census", "census-database/nonsense", marks=pytest.mark.slow),
        pytest.param("census", "census-database/add/float32/3/bad", marks=pytest.mark.slow),
    ],
)
def test_a_sample_that_is_none_is_a_wrong_question_and_no_faulty_device(
    level: str, only: str
) -> None:
    words = [sys.executable, "-m", "gpusetup.verify", "--level", level, "--device", "cpu"]
    done = subprocess.run([*words, "--only", only], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"names no sample of {only.split('/')[0]}" in done.stderr
    assert not done.stdout
