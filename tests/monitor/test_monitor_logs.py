"""Logs of nvidia-smi, replayed: any text, times that are assumed, and cards without reasons."""

from __future__ import annotations

from pathlib import Path

import pytest
from each_row import each
from replayed import Judge

from gpusetup import cli

GPUSTAT = "host  Thu Nov 20 2025\n[0] NVIDIA A100 | 34'C,   0 % |     3 / 81920 MB |\n"
COLUMNS = (
    "timestamp, index, name, utilization.gpu [%], utilization.memory [%], memory.used [MiB], "
    "memory.total [MiB], temperature.gpu, power.draw [W], power.limit [W], clocks.sm [MHz]"
)
COOL = "99, 60, 60000, 81920, 60, 320, 400, 1410"
ROWS = [f"2025/11/18 10:12:{n:02d}.000, 0, NVIDIA A100-SXM4-80GB, {COOL}\n" for n in range(9)]


def test_a_log_without_times_says_what_is_assumed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "gpu.csv"
    lines = (line.partition(", ")[2].strip() for line in (COLUMNS, *ROWS))
    file.write_bytes("\r\n".join(lines).encode("utf-16"))
    assert cli.main(["monitor", "--replay", str(file), "--interval", "5"]) == 0
    told = capsys.readouterr()
    assert "assuming 5 s between samples" in told.err
    assert "(nvidia-smi CSV)" in told.out


SPINS, RESTS = "100, 0, 60000, 81920, 38, 92, 400, 1410", "0, 0, 60000, 81920, 38, 62, 400, 1410"


@each(
    "gpus, verdict",
    [
        (["99, 60, 60000, 81920, 93, 180, 400, 700"], "throttled/heat"),
        (["99, 60, 60000, 81920, 60, 180, 400, 700"], "throttled/low clocks"),
        (["[N/A], [N/A], 60000, 81920, 60, [N/A], 400, 1410"], "None/"),
        ([SPINS, RESTS, SPINS], "communication-bound/hang"),
        ([SPINS, RESTS], "communication-bound/hang"),
    ],
)
def test_a_log_without_maximum_reasons_and_processes_is_not_called_good(
    gpus: list[str], verdict: str, judged: Judge
) -> None:
    lines = (
        f"2025/11/18 10:12:{n:02d}.000, {index}, NVIDIA A100-SXM4-80GB, {later if n > 1 else COOL}"
        for n in range(60)
        for index, later in enumerate(gpus)
    )
    summary = judged("\n".join((COLUMNS, *lines)) + "\n")
    assert f"{summary['verdict']}/{summary['cause']}" == verdict
    assert ("a rank waits in a collective" in summary["evidence"]) == (len(gpus) > 1)


def test_the_screen_of_another_tool_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "screen.txt"
    file.write_text(GPUSTAT, encoding="utf-8")
    assert cli.main(["monitor", "--replay", str(file)]) == 2
    assert "or of nvidia-smi" in capsys.readouterr().err
