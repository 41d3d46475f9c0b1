"""`ok` is not said beside a complaint: the table of a healthy GPU stands in most texts of trouble."""

from __future__ import annotations

from typing import NamedTuple

from each_row import each
from report_classes import SMI_ONE

from gpusetup.catalog.file import load_catalog
from gpusetup.diagnosis.diagnose import diagnose
from gpusetup.report.read import read_report

WORKS = "Python 3.11\ntorch 2.5.1+cu124\n>>> torch.cuda.is_available()\nTrue\n"


class Said(NamedTuple):
    words: str
    causes: str


COMPLAINTS = (
    "My program does not use the GPU",
    "It runs on the CPU although the GPU is there",
    "flaky crash of the engine at its start",
    'Traceback (most recent call last):\n  File "run.py", line 3, in <module>',
    "the first epoch takes an hour, which is very slow",
    "Why is the GPU idle?",
    "training hangs after the first step",
    "训练报错",
    "das Programm funktioniert nicht",
    "vLLM 启动失败",
    "не работает на видеокарте",
    "there is still an OOM on the second card",
    "error: something went wrong",
)
CONTENT = (
    "",
    "Here is what my machine shows:",
    "It runs without any errors.",
    "No problem so far, a 4090.",
    "| N/A   29C    P0   ERR! / 250W |    593MiB / 16160MiB |      0%      Default |",
    "    ECC Errors\n        Volatile\n            SRAM Correctable : 0",
    "Is debug build: False\nVulnerability Retbleed: Not affected; no microcode bug",
)
NAMED = (
    Said(
        "RuntimeError: CUDA error: device-side assert triggered\nit fails", "ok cuda-program-error"
    ),
    Said("KeyError: 'qwen3'", "ok"),
    Said("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", "out-of-memory"),
)
UNSHOWN = (
    "RuntimeError: Error compiling objects for extension",
    "error: command '/usr/bin/nvcc' failed with exit code 1",
    "RuntimeError: PassManager::run failed",
    "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause.",
    "Error: llama runner process has terminated: exit status 2",
)


def cause_of(text: str) -> str:
    return diagnose(read_report(text), load_catalog()).cause


@each("words", COMPLAINTS)
def test_a_healthy_table_beside_a_complaint_is_not_ok(words: str) -> None:
    assert cause_of(f"{words}\n{SMI_ONE}") != "ok"
    assert cause_of(f"{WORKS}\n{words}") != "ok"


@each("words", CONTENT)
def test_what_complains_of_nothing_stays_ok(words: str) -> None:
    assert cause_of(f"{words}\n{SMI_ONE}") == "ok"
    assert cause_of(f"{WORKS}\n{words}") == "ok"


@each("said", NAMED)
def test_a_failure_that_is_named_is_answered(said: Said) -> None:
    assert cause_of(f"{WORKS}\n{said.words}") in said.causes.split()


@each("words", UNSHOWN)
def test_a_failure_whose_reason_is_not_shown_is_not_ok(words: str) -> None:
    assert cause_of(words) == "unknown"
