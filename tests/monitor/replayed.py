"""Judges a text that nvidia-smi printed, as a person does: `gpusetup monitor --replay FILE`. No
verdict on any of the tests' recordings contradicts a figure that is printed with it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from gpusetup import cli

Judge = Callable[..., dict[str, Any]]


def judge_in(folder: Path, capsys: pytest.CaptureFixture[str]) -> Judge:
    """A function from a text to its summary; under `text` is what a person reads."""

    def judge(text: str, *command: str) -> dict[str, Any]:
        file = folder / "recording.txt"
        file.write_text(text, encoding="utf-8")
        question = ["monitor", "--replay", str(file)]
        after = ["--", *command] if command else []
        capsys.readouterr()
        assert cli.main([*question, "--json", *after]) == 0
        summary: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert contradictions(summary) == [], summary["evidence"]
        assert cli.main([*question, *after]) == 0
        return {**summary, "text": capsys.readouterr().out}

    return judge


def contradictions(summary: Mapping[str, Any]) -> list[str]:
    """What a good verdict would contradict: a working GPU that is throttled, or that hardly
    works, and a command that failed."""
    if summary["verdict"] != "good":
        return []
    found = []
    for gpu in summary["gpus"]:
        for reason, share in gpu["throttled"].items():
            is_normal = reason in ("gpu_idle", "sw_power_cap", "power_violation")
            if share >= 0.1 and not is_normal:
                found.append(f"GPU {gpu['index']} is throttled by {reason}")
            if "nothing slows it down" in summary["evidence"] and reason != "gpu_idle" and share:
                found.append(f"{reason} is in the figures, and nothing slows it down")
    uses = [gpu["utilization_percent"] for gpu in summary["gpus"]]
    if all(use is None or use["mean"] < 50 for use in uses):
        found.append("no GPU works half of the time")
    if summary["exit"]:
        found.append("the command failed")
    return found


def verdict_and_step(summary: Mapping[str, Any]) -> str:
    """`throttled/heat cool`: the verdict, its cause and the id of the next step."""
    step = summary["next"]["id"] if summary["next"] else "none"
    return f"{summary['verdict']}/{summary['cause']} {step}"


def dmon(columns: str, moments: Iterable[Iterable[str]]) -> str:
    """The text of `nvidia-smi dmon`: its heading, then a row for each GPU of each moment."""
    lines = [f"# gpu {columns}", "# Idx"]
    for rows in moments:
        lines += [f"    {index} {row}" for index, row in enumerate(rows)]
    return "\n".join(lines) + "\n"


def csv(columns: str, moments: Iterable[Iterable[str]], *, seconds: int = 1) -> str:
    """A log of `nvidia-smi --query-gpu=timestamp,index,…`, `seconds` between its moments."""
    lines = [f"timestamp, index, {columns}"]
    for number, rows in enumerate(moments):
        minutes, second = divmod(number * seconds, 60)
        stamp = f"2026/11/20 {6 + minutes // 60:02d}:{minutes % 60:02d}:{second:02d}.000"
        lines += [f"{stamp}, {index}, {row}" for index, row in enumerate(rows)]
    return "\n".join(lines) + "\n"


REPORT = """\
==============NVSMI LOG==============

Timestamp                                 : Sat Nov 14 08:{minute:02d}:02 2026
Attached GPUs                             : 1
GPU 00000000:65:00.0
    Product Name                          : NVIDIA A100-PCIE-40GB
    FB Memory Usage
        Total                             : {total} MiB
        Used                              : {used} MiB
    Utilization
        Gpu                               : {use} %
        Memory                            : 42 %
    Temperature
        GPU Current Temp                  : {heat} C
    Clocks
        SM                                : {clock} MHz
    Max Clocks
        SM                                : 1410 MHz
"""


def report(
    use: int, *, used: int = 30050, total: int = 40960, heat: int = 60, clock: int = 1400,
    minute: int = 0, more: str = "",
) -> str:  # fmt: skip
    """The text of `nvidia-smi -q` about one GPU, with more lines at its end."""
    told = REPORT.format(use=use, used=used, total=total, heat=heat, clock=clock, minute=minute)
    return told + more
