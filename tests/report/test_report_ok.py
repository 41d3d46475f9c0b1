"""`ok` is not said beside a complaint: the table of a healthy GPU stands in most texts of trouble."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
from each_row import each
from message_samples import samples

from gpusetup.catalog.file import load_catalog
from gpusetup.cli import main
from gpusetup.commands.doctor import exit_code
from gpusetup.diagnosis.diagnose import diagnose
from gpusetup.model.documents import DoctorAnswer
from gpusetup.report.read import read_report

SMI_ONE = """\
| NVIDIA-SMI 570.86.15              Driver Version: 570.86.15      CUDA Version: 12.8     |
|   0  NVIDIA GeForce RTX 4090        Off |   00000000:01:00.0 Off |                  N/A |
| 30%   36C    P8             20W /  450W |     413MiB /  24564MiB |      0%      Default |
"""
WORKS = "Python 3.11\ntorch 2.5.1+cu124\n>>> torch.cuda.is_available()\nTrue\n"


class Said(NamedTuple):
    words: str
    causes: str


COMPLAINTS = (
    "My program does not use the GPU",
    'Traceback (most recent call last):\n  File "run.py", line 3, in <module>',
    "training hangs after the first step",
    "训练报错",
    "не работает на видеокарте",
    "error: something went wrong",
)
CONTENT = (
    "",
    "It runs without any errors.",
    "| N/A   29C    P0   ERR! / 250W |    593MiB / 16160MiB |      0%      Default |",
    "    ECC Errors\n        Volatile\n            SRAM Correctable : 0",
    "Is debug build: False\nVulnerability Retbleed: Not affected; no microcode bug",
)


FALSE = (
    "print(torch.cuda.is_available())  # True\n$ srun python check.py\n# False",
    "torch.cuda.is_available()  # True on my laptop\ntorch.cuda.is_available()  # => False in the job",
    f"{SMI_ONE}\n>>> torch.cuda.is_available()\nTrue\n$ docker run x python gpu.py\nCUDA available: False",
)
FAILED = (
    Said(f"{WORKS}\nLoss.cu:250: block: [0,0,0] Assertion `t < n_classes` failed.\n"
         "RuntimeError: CUDA error: device-side assert triggered", "cuda-program-error"),
    Said(f"{SMI_ONE}\nNVRM: Xid (PCI:0000:01:00): 31, pid=77, name=python3", "cuda-program-error"),
)  # fmt: skip
SHOWS_A_FAILURE = re.compile(
    r"(?i)Traceback|(?<!Bus )(?:Error|Exception): (?!0|N/A)|exited with code [1-9]"
    r"|is_available\(\)\W*False|(?:CUDA|GPU) available\W+False"
)


@cache
def read(text: str) -> DoctorAnswer:
    return diagnose(read_report(text), load_catalog())


def cause_of(text: str) -> str:
    return read(text).cause


@each("words", COMPLAINTS)
def test_a_healthy_table_beside_a_complaint_is_not_ok(words: str) -> None:
    assert cause_of(f"{words}\n{SMI_ONE}") != "ok"
    assert cause_of(f"{WORKS}\n{words}") != "ok"


@each("words", CONTENT)
def test_what_complains_of_nothing_stays_ok(words: str) -> None:
    assert cause_of(f"{words}\n{SMI_ONE}") == "ok"
    assert cause_of(f"{WORKS}\n{words}") == "ok"


def shown(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Exit code and first line of `doctor --report`."""
    file = tmp_path / "report.txt"
    file.write_text(text, encoding="utf-8")
    return main(("doctor", "--report", str(file))), capsys.readouterr().out.partition("\n")[0]


@each("text", FALSE)
def test_a_false_of_torch_is_never_ok_whatever_it_says_elsewhere(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, first = shown(text, tmp_path, capsys)
    assert code == 1 and first.startswith("? unknown: ")


@each("said", FAILED)
def test_a_program_that_failed_on_a_sound_stack_is_the_cause(
    said: Said, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, first = shown(said.words, tmp_path, capsys)
    assert code == 1 and first.startswith(f"✗ {said.causes}: ") and "sound" not in first


def test_no_ok_and_no_exit_0_stands_over_a_failure() -> None:
    for text in dict.fromkeys(sample.text for sample in samples()):
        if SHOWS_A_FAILURE.search(text) and "vgpu-unlicensed" not in cause_of(text):
            assert cause_of(text) != "ok" and exit_code(read(text), strict=False) == 1, text


H100 = Path(__file__).resolve().parents[1] / "machines" / "linux-h100-580.159.04"
FITS = "torch 2.15.0 from cu130 works with this driver and NVIDIA H100 80GB HBM3"
PROOF_OF = {
    "nvidia-smi-q.txt": FITS,
    "collect_env.txt": "torch 2.11.0+cu130 has kernels for NVIDIA H100 80GB HBM3 (sm_90)",
}


@each("name", PROOF_OF)
def test_what_a_sound_h100_really_prints_is_ok(name: str) -> None:
    """Recorded on the card; the names of limits (`Slowdown T.Limit Temp`) and Python's own warning
    (`<frozen runpy>`) in it are no complaint."""
    answer = diagnose(read_report((H100 / name).read_text()), load_catalog())
    assert answer.cause == "ok" and PROOF_OF[name] in str(answer.proof)
