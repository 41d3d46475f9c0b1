"""`gpusetup.api`: a program gets what the command line answers, and nothing else happens."""

from __future__ import annotations

import doctest
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from each_row import each

from gpusetup import api
from gpusetup.cli import main
from gpusetup.probe.snapshot_files import example_machines

ROOT = Path(__file__).resolve().parents[2]

TEXT = "RuntimeError: CUDA error: CUDA driver version is insufficient for CUDA runtime version"

Asked = tuple[Callable[[], object], str]


def same_questions() -> dict[str, Asked]:
    """What is asked in Python, and in a shell."""
    machines: dict[str, Asked] = {
        f"doctor {name}": (partial(api.diagnose, name), f"doctor --from {name}")
        for name in example_machines()
    }
    return machines | {
        "doctor of this machine": (lambda: api.diagnose(), "doctor"),
        "doctor for another host": (
            lambda: api.diagnose("healthy", gpu=["sm_90", "RTX 4090"], driver="550.54"),
            "doctor --from healthy --gpu sm_90 --gpu 'RTX 4090' --driver 550.54",
        ),
        "resolve": (
            lambda: api.resolve(machine="rtx3050-laptop", torch="2.5.1", explain=True),
            "resolve --from rtx3050-laptop --torch 2.5.1 --explain",
        ),
        "resolve, nothing fits": (
            lambda: api.resolve(machine="rtx3050-laptop", torch="9.9"),
            "resolve --from rtx3050-laptop --torch 9.9",
        ),
        "resolve for a described machine": (
            lambda: api.resolve(
                os="linux",
                driver="580.95.05",
                gpu=["GTX 1080 Ti"],
                python="3.11",
                glibc="2.35",
                architecture="x86_64",
                backend="12.6",
            ),
            "resolve --os linux --driver 580.95.05 --gpu 'GTX 1080 Ti' --python 3.11 --glibc 2.35 "
            "--machine x86_64 --backend 12.6",
        ),
        "plan": (
            lambda: api.plan(model="qwen3-8b", context=32768, gpu="A100 80GB", gpus=4),
            "plan --model qwen3-8b --context 32768 --gpu 'A100 80GB' --gpus 4",
        ),
    }


WHEN = ("taken_at", "readings", "seconds", "free_bytes", "available_bytes", "value")
"""What two readings of one machine need not have in common."""


def timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: timeless(inner) for key, inner in value.items() if key not in WHEN}
    return [timeless(inner) for inner in value] if isinstance(value, list) else value


@each("asked", list(same_questions()))
def test_an_answer_is_the_document_of_the_command_line(
    asked: str, capsys: pytest.CaptureFixture[str]
) -> None:
    in_python, words = same_questions()[asked]
    answer = in_python()
    assert capsys.readouterr() == ("", "")
    main([*shlex.split(words), "--json"])
    printed = json.loads(capsys.readouterr().out)
    assert timeless(json.loads(api.to_json(answer))) == timeless(printed)
    assert timeless(json.loads(json.dumps(api.to_plain(answer)))) == timeless(printed)


# --- errors -------------------------------------------------------------------------------------

WRONG: dict[str, tuple[Callable[[], object], type[api.GpuSetupError], str]] = {
    "a GPU": (lambda: api.resolve(gpu=["no such"]), api.UsageError, "No GPU is called"),
    "an empty word": (lambda: api.plan(model=""), api.UsageError, "the value is empty"),
    "an address": (lambda: api.diagnose("https://u:hunter2@x/y"), api.UsageError, "cannot be read"),
    "two places": (
        lambda: api.plan(model="qwen3-8b", gpu="A100", gpu_mem="8GiB"), api.UsageError, "allowed",
    ),
    "a device": (lambda: api.verify(device="tpu"), api.UsageError, "is not a device"),
    "no build at all": (
        lambda: api.resolve("vllm", machine="rtx3050-laptop", offline=True), api.Unsatisfiable,
        "vllm has no build",
    ),
}  # fmt: skip


@each("wrong", list(WRONG))
def test_what_the_command_line_refuses_is_raised_with_its_words(
    wrong: str, capfd: pytest.CaptureFixture[str]
) -> None:
    ask, kind, text = WRONG[wrong]
    with pytest.raises(kind, match=text) as told:
        ask()
    said = f"{told.value.message}\nhint: {told.value.hint}".removesuffix("\nhint: None")
    assert str(told.value) == said
    assert "hunter2" not in f"{told.value} {told.value.hint}"
    assert told.value.exit_code == kind.exit_code
    assert capfd.readouterr() == ("", "")


def test_a_fault_of_our_own_is_told_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> object:
        raise KeyError("inner")

    monkeypatch.setattr("gpusetup.commands.doctor.gather", broken)
    with pytest.raises(api.GpuSetupError, match="gpusetup itself failed: KeyError") as told:
        api.diagnose()
    assert told.value.exit_code == 5
    assert isinstance(told.value.__cause__, KeyError)


# --- what it needs ------------------------------------------------------------------------------

ABSENT = ("rich", "psutil", "uv", "torch", "numpy", "matplotlib", "ruamel", "shtab", "pynvml")
CHILD = f"""
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {ABSENT}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
from gpusetup.api import diagnose, plan, read_report, resolve, verify
import gpusetup.plan.decide
imported = [name for name in {ABSENT} if name in sys.modules]
print(imported, diagnose("rtx3050-laptop").cause, diagnose().catalog_as_of[:2],
      resolve(machine="rtx3050-laptop", torch="2.5.1").backend,
      plan(model="qwen3-8b", context=32768, gpu="A100 80GB", gpus=4).recipe,
      read_report({TEXT!r}).cause)
"""


def test_it_answers_without_rich_psutil_uv_and_torch() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CHILD], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    assert done.stdout.split() == [
        *("[]", "torch-cpu-build", "20", "cu124", "SP=4"),
        api.read_report(TEXT).cause,
    ]


# --- what stands in the page --------------------------------------------------------------------


def test_the_examples_of_the_page_answer_what_they_show() -> None:
    page = (ROOT / "docs" / "reference" / "api.md").read_text(encoding="utf-8")
    text = "\n".join(re.findall(r"(?ms)^```python\n(.*?)^```$", page))
    examples = doctest.DocTestParser().get_doctest(text, {}, "api.md", None, 0)
    assert len(examples.examples) >= 9
    assert doctest.DocTestRunner().run(examples).failed == 0
