"""`gpusetup doctor --report` as it is called."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from gpusetup.cli import main
from gpusetup.commands.report import READ_BYTES, beginning_and_end

TEXT = """\
Collecting environment information...
PyTorch version: 2.9.1+cpu
Is debug build: False
CUDA used to build PyTorch: None
OS: Ubuntu 24.04.3 LTS (x86_64)
Python version: 3.12.3 (64-bit runtime)
Is CUDA available: False
GPU models and configuration: GPU 0: NVIDIA GeForce RTX 3050 Laptop GPU
Nvidia driver version: 580.95.05
"""


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["doctor", *words])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_a_file_is_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "thread.txt"
    file.write_text(TEXT, encoding="utf-8")
    code, out, _ = run(capsys, "--report", str(file), "--json")
    answer = json.loads(out)
    assert (code, answer["cause"]) == (1, "torch-cpu-build")
    assert answer["snapshot"]["origin"] == "report"


def test_standard_input_is_judged() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gpusetup", "doctor", "--report", "-", "--json"],
        input=TEXT.encode("utf-16"),
        capture_output=True,
        timeout=60,
    )
    assert json.loads(done.stdout)["cause"] == "torch-cpu-build"


@pytest.mark.parametrize("raw", [b"", b"\x89PNG\r\n\x1a\n" + bytes(range(32)) * 40])
def test_what_says_nothing_is_unknown_and_no(
    raw: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "x"
    file.write_bytes(raw)
    code, out, _ = run(capsys, "--report", str(file), "--json")
    assert (code, json.loads(out)["cause"]) == (1, "unknown")


def test_no_build_is_said_to_fit_a_machine_of_which_nothing_was_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "report.txt"
    text.write_text("it does not work")
    assert main(["doctor", "--report", str(text)]) == 1
    assert "recommended" not in capsys.readouterr().out


# --- long texts -----------------------------------------------------------------------------------


def test_a_long_text_says_what_was_read_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raw = b"RuntimeError: CUDA error: out of memory %d\n" * (READ_BYTES // 30)
    kept, size = beginning_and_end(io.BytesIO(raw))
    assert size == len(raw) and len(kept) <= READ_BYTES
    (tmp_path / "long.txt").write_bytes(b"no word\n" * (READ_BYTES // 6))
    said = run(capsys, "--report", str(tmp_path / "long.txt"))[1]
    assert "report-cut" in said and "The text is 1.3 MiB long" in said


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="the devices are Linux's")
def test_a_device_that_never_ends_is_no_report(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(("doctor", "--report", "/dev/zero")) != 0
    assert "the text is empty" in capsys.readouterr().out
