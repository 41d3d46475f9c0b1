"""What nvidia-smi printed, replayed: one reading or many, as a table, CSV, `-q` or dmon."""

from __future__ import annotations

import pytest
from replayed import Judge, report

BANNER = """\
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 580.95.05              Driver Version: 580.95.05      CUDA Version: 13.0     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|=========================================+========================+======================|
"""


def table(use: int, used: int, *, program: str = "C   python", heat: int = 60) -> str:
    return (
        BANNER
        + f"""\
|   0  NVIDIA GeForce RTX 4090        Off |   00000000:01:00.0 Off |                  Off |
| 30%   {heat}C    P2        180W /  450W | {used:>5}MiB /  24564MiB |  {use:>3}%      Default |
+-----------------------------------------+------------------------+----------------------+
| Processes:                                                                              |
|    0   N/A  N/A      4711      {program}                                      {used:>5}MiB |
+-----------------------------------------------------------------------------------------+
"""
    )


def log(use: int, used: int, count: int) -> str:
    head = "index, name, utilization.gpu [%], memory.used [MiB], memory.total [MiB]\n"
    return head + f"0, NVIDIA GeForce RTX 4090, {use} %, {used} MiB, 24564 MiB\n" * count


def dmon(use: int, count: int) -> str:
    head = """\
# gpu    pwr  gtemp  mtemp     sm    mem    enc    dec    jpg    ofa   mclk   pclk
# Idx      W      C      C      %      %      %      %      %      %    MHz    MHz
"""
    cells = ("0", "410", "70", "-", str(use), "40", *("0",) * 4, "10501", "2520")
    return head + ("    " + "    ".join(cells) + "\n") * count


LOW = {
    "table": table(45, 6144),
    "table below a prompt": "$ nvidia-smi\nThu Nov 20 06:03:41 2025\n" + table(45, 6144),
    "CSV": log(45, 6144, 1),
    "two readings": log(45, 6144, 2),
    "CSV of a minute": log(45, 6144, 60),
    "long output": report(45, used=6144, total=24564),
}


@pytest.mark.parametrize("form", LOW)
def test_a_reading_at_45_percent_gets_the_guides_steps_in_order(form: str, judged: Judge) -> None:
    """001-14: 45 % and 6 of 24 GB: larger batch, more workers, mixed precision."""
    summary = judged(LOW[form])
    # A minute shows that it is steady, one reading does not.
    assert summary["verdict"] == ("input-starved" if form == "CSV of a minute" else None)
    batch, loader, precision = summary["advice"]
    assert "batch" in batch and "workers" in loader and "mixed precision" in precision
    assert "45 %" in summary["text"] and "doctor --report" not in summary["text"]


@pytest.mark.parametrize(
    "text",
    [table(98, 18432), log(98, 18432, 1), log(98, 18432, 60), report(98, used=18432, total=24564)],
)
def test_a_reading_at_98_percent_is_good(text: str, judged: Judge) -> None:
    """001-14: 98 % and 18 of 24 GB is the guide's good picture."""
    summary = judged(text)
    assert (summary["verdict"], summary["advice"], summary["next"]) == ("good", [], None)


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        (table(0, 300), "idle"),
        (table(20, 900, program="G   Xorg  "), "idle"),
        (table(20, 900), None),
        (table(70, 9000), None),
        (table(97, 24300), "memory-tight"),
    ],
)
def test_one_reading_is_judged_by_what_it_shows(
    text: str, verdict: str | None, judged: Judge
) -> None:
    assert judged(text)["verdict"] == verdict


def test_dmon_is_read_with_and_without_its_times(judged: Judge) -> None:
    assert judged(dmon(97, 30))["verdict"] == "good"
    dated = dmon(97, 3).replace("# gpu", "#Date       Time        gpu").replace(
        "    0    410", " 20251120   06:03:41      0    410"
    )  # fmt: skip
    summary = judged(dated)
    assert summary["gpus"][0]["power_watts"]["mean"] == 410


def test_tables_one_after_the_other_are_samples(judged: Judge) -> None:
    tables = "".join(f"Thu Nov 20 06:03:{n:02d} 2025\n{table(96, 18432)}" for n in range(0, 50, 5))
    summary = judged(tables)
    assert (summary["samples"], summary["seconds"]) == (10, 45)
