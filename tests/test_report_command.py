"""`gpusetup doctor --report` and `--reports` as they are called."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from machines_named import machine_named
from writers import collect_env, smi_table

from gpusetup.cli import main
from gpusetup.commands.reports import END, HEAD, KEPT, WHOLE, sifted

TEXT = collect_env(machine_named("rtx3050-laptop"))


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
    assert "fits here" not in capsys.readouterr().out


def test_a_missing_file_and_a_folder_are_wrong_questions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in (str(tmp_path / "absent"), str(tmp_path)):
        code, out, err = run(capsys, "--report", name)
        assert (code, out) == (2, "")
        assert err.startswith(f"error: {name}")


def test_a_report_and_a_machine_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "--report", "x", "--from", "healthy")
    assert code == 2
    assert "exclude each other" in err


def test_a_folder_gives_one_line_a_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "b.txt").write_text(TEXT)
    (tmp_path / "a.txt").write_text(smi_table(machine_named("healthy")))
    (tmp_path / ".hidden").write_text("x")
    (tmp_path / "folder").mkdir()
    code, out, _ = run(capsys, "--reports", str(tmp_path), "--json")
    lines = [json.loads(line) for line in out.splitlines()]
    assert code == 1
    assert [line["report"] for line in lines] == ["a.txt", "b.txt"]
    assert {line["schema"] for line in lines} == {"gpusetup.doctor/1"}


def test_a_folder_without_json_says_file_and_cause(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "b.txt").write_text(TEXT)
    _, out, _ = run(capsys, "--reports", str(tmp_path))
    assert out == f"{tmp_path}{os.sep}b.txt: torch-cpu-build\n"


def test_an_output_file_gets_the_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "b.txt").write_text(TEXT)
    where = tmp_path / "out.jsonl"
    _, out, _ = run(capsys, "--reports", str(tmp_path / "in"), "--json", "--output", str(where))
    assert out == ""
    assert json.loads(where.read_text())["cause"] == "torch-cpu-build"


def test_a_folder_that_is_none_is_a_wrong_question(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("x")
    for name in (str(tmp_path / "absent"), str(tmp_path / "file")):
        assert run(capsys, "--reports", name)[0] == 2


# --- long texts -----------------------------------------------------------------------------------


def test_of_a_long_text_the_telling_lines_are_kept() -> None:
    dull = b"epoch 1 step 2 loss 0.3\n" * (WHOLE // 12)
    raw = dull + b"RuntimeError: CUDA error: uncorrectable ECC error encountered\n" + dull
    kept = sifted(io.BytesIO(raw)).raw
    assert b"uncorrectable ECC error" in kept
    assert len(kept) < HEAD + KEPT + 2 * END


def test_a_long_text_says_what_was_read_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raw = b"RuntimeError: CUDA error: out of memory %d\n" * (WHOLE // 30)
    kept = sifted(io.BytesIO(raw))
    assert kept.size == len(raw) and not kept.is_whole and len(kept.raw) <= WHOLE
    (tmp_path / "long.txt").write_bytes(b"no word\n" * (WHOLE // 6))
    said = run(capsys, "--report", str(tmp_path / "long.txt"))[1]
    assert "report-cut" in said and "The text has 1.3 MiB" in said


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells the memory")
def test_fifty_megabytes_stay_within_300(tmp_path: Path) -> None:
    file = tmp_path / "long.log"
    line = b"2026-11-20T06:01:54Z worker: step %d loss 0.1 CUDA memory 1234 MiB on GPU 0\n"
    with file.open("wb") as stream:
        for number in range(650_000):
            stream.write(line % number)
        stream.write(b"NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.\n")
    # Not ru_maxrss: a child inherits its parent's.
    program = (
        "import re, sys; from gpusetup.cli import main; code = main(sys.argv[1:]);"
        "sys.stderr.write(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "doctor", "--report", str(file), "--json"],
        capture_output=True,
        timeout=120,
    )
    peak = int(done.stderr)
    assert json.loads(done.stdout)["cause"] == "gpu-fell-off-bus"
    assert peak < 300 * 1024


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="the devices are Linux's")
def test_a_device_that_never_ends_is_no_report(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(("doctor", "--report", "/dev/zero")) != 0
    assert "is a device" in capsys.readouterr().err


@pytest.mark.parametrize(
    "raw", [b"", b" \n\r\n", b"\xff\xfe", b"\xef\xbb\xbf\n", b"> ```\n", b"\x1b[0m"]
)
def test_an_empty_text_is_said_to_be_empty(
    raw: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty.txt").write_bytes(raw)
    code, said, _ = run(capsys, "--report", str(tmp_path / "empty.txt"))
    assert code == 1 and said.startswith("? unknown: the text is empty")
    assert "2>&1 | gpusetup doctor" in said
