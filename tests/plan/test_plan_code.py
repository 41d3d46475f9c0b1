"""`plan --code`: what the child counts, what is made of it, and what goes wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpusetup import cli
from gpusetup.commands.plan_code import trace
from gpusetup.errors import GpuSetupError, Unsatisfiable, UsageError
from gpusetup.model.units import GIB
from gpusetup.plan.code import (
    CodeQuestion,
    code_plan,
    largest_batch,
)
from gpusetup.plan.code_trace import CodeFailed, Trace, TracedStep, TraceRequest
from gpusetup.plan.place import place_of
from gpusetup.render.plan import plan_text

pytestmark = pytest.mark.usefixtures("warm_torch")

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests" / "plan"
RENDERED = Path(__file__).parents[1] / "rendered"

Same = Callable[[str, Path], None]


# --- against real steps ------------------------------------------------------------------------


SLOW = [
    pytest.param("transformer", 16, ("checkpointing",), 0.01, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("name", "batch", "how", "most"), [("mlp", 2048, (), 0.01), *SLOW])
def test_traced_peaks_are_those_of_real_steps(
    name: str, batch: int, how: tuple[str, ...], most: float
) -> None:
    """By the events of torch's allocator."""
    script = [sys.executable, str(TESTS / "real_steps.py"), name, str(batch), *how]
    real = json.loads(subprocess.run(script, capture_output=True, text=True, check=True).stdout)
    asked = TraceRequest(
        code=f"real_steps:{name}", batch=batch, checkpointing="checkpointing" in how, line=False,
    )  # fmt: skip
    traced = trace(asked, folder=str(TESTS)).asked.phases
    highest = max(real[phase] for phase in traced)
    assert max(traced.values()) == pytest.approx(highest, rel=most)


# --- the child ---------------------------------------------------------------------------------

USER_CODE = """
import os, time, urllib.request
import torch
from torch import nn

def linear(batch):
    print("talk of the user's own code")
    return nn.Linear(8, 8), (torch.randn(batch, 8), torch.randn(batch, 8))

def raises(batch):
    raise ValueError("bad luck")

def catches_everything(batch):
    try:
        return linear(batch)[0], torch.zeros(batch, 8, device="cuda")
    except Exception:
        return linear(batch)

def downloads(batch):
    urllib.request.urlopen("http://example.com")

def hangs(batch):
    time.sleep(600)

def dies(batch):
    os._exit(7)

def picky(batch):
    assert batch == 4, "only four"
    return linear(batch)
"""


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("user")
    (folder / "mine.py").write_text(USER_CODE, encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("function", "kind", "words"),
    [
        ("raises", CodeFailed, "ValueError: bad luck (mine.py:11 in raises)"),
        ("catches_everything", CodeFailed, "it asks for the device `cuda` (mine.py:"),
        ("downloads", CodeFailed, "a trace makes no connection ('example.com')"),
        ("dies", CodeFailed, "`mine:dies` ended the trace (exit 7)"),
        ("linaer", UsageError, "`mine` has no function `linaer`"),
    ],
)
@pytest.mark.one_in(6)
def test_code_that_cannot_be_traced_says_why(
    user: Path, function: str, kind: type[GpuSetupError], words: str
) -> None:
    with pytest.raises(kind) as caught:
        trace(TraceRequest(code=f"mine:{function}", batch=4), folder=str(user))
    assert words in caught.value.message
    assert caught.value.exit_code == 2


def test_code_that_hangs_is_ended(user: Path) -> None:
    with pytest.raises(Unsatisfiable, match="was ended: no answer in 1 s") as caught:
        trace(TraceRequest(code="mine:hangs", batch=4), folder=str(user), seconds=1)
    assert caught.value.exit_code == 1


def test_a_batch_that_the_code_refuses_costs_only_the_largest_one(user: Path) -> None:
    found = trace(TraceRequest(code="mine.py:picky", batch=4), folder=str(user))
    assert [one.batch for one in found.traces] == [4]
    assert found.refused == "AssertionError: only four"


def test_the_command_answers_with_one_document(
    user: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(user)
    monkeypatch.setattr("gpusetup.commands.plan_code.target", lambda: sys.executable)
    words = ["plan", "--code", "mine:linear", "--batch", "4", "--gpu-mem", "8GiB", "--json"]
    assert cli.main(words) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["schema"] == "gpusetup.plan/1"
    assert (answer["fits"], answer["recipe"], answer["parameters"]) == (True, "vanilla", 72)
    assert set(answer["code"]["phases_gib"]) == {"forward", "backward", "optimizer"}


# --- what is made of a trace -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ([], "give either `--batch` or `--max-batch`"),
        (["--batch", "4", "--context", "9"], "`--context` has no effect with `--code`"),
        (["--batch", "4", "--gpus-needed"], "has no effect with `--code`"),
        (["--batch", "4", "--gpus", "2"], "`--gpus` has no effect with `--code`"),
        (["--batch", "4", "--optimizer", "lion"], "cannot be traced from code"),
    ],
)
def test_flags_that_contradict_code_are_refused(
    flags: list[str],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("gpusetup.commands.plan_code.target", lambda: sys.executable)
    assert cli.main(["plan", "--code", "a:b", "--gpu-mem", "8GiB", *flags]) == 2
    assert words in capsys.readouterr().err


# --- the answer --------------------------------------------------------------------------------


def one(batch: int, passing: int) -> TracedStep:
    phases = {"forward": 5 * GIB + passing, "backward": 6 * GIB + passing, "optimizer": 8 * GIB}
    return TracedStep(
        batch=batch,
        phases=phases,
        transient={"forward": passing, "backward": passing, "optimizer": GIB},
        activations=passing // 2,
        states=4 * GIB,
        gradients=GIB,
        parameters=268_435_456,
        values_read=2,
    )


def found_trace() -> Trace:
    return Trace(torch="2.13.0", traces=(one(8, 8 * GIB), one(16, 16 * GIB)))


def asked(size: float) -> CodeQuestion:
    request = TraceRequest(code="train:build", batch=8, amp="bf16")
    return CodeQuestion(request=request, hardware=place_of(None, round(size * GIB)))


@pytest.mark.parametrize("size", [24, 14.5, 8])
def test_the_screen_of_a_trace(size: float, same_as_file: Same) -> None:
    question = asked(size)
    best = largest_batch(found_trace(), question)
    text = plan_text(code_plan(found_trace(), question, best))
    same_as_file(text, RENDERED / f"plan-code-{size}.txt")
