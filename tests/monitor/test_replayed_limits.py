"""What changes during a run: a power limit that falls, and the machine's memory that fills."""

from __future__ import annotations

from pathlib import Path

import pytest
from each_row import each
from replayed import csv, judge_in, verdict_and_step

Said = pytest.CaptureFixture[str]
POWER = (
    "name, utilization.gpu [%], power.limit [W], power.draw [W], clocks.sm [MHz], "
    "clocks.max.sm [MHz], clocks_event_reasons.active"
)
LAPTOP = "NVIDIA GeForce RTX 4070 Laptop GPU"
SERVER = "NVIDIA A100-SXM4-80GB"
FALLEN = "throttled/fallen limit restore-the-power"


@each(
    "name, before, after, said, command",
    [
        (LAPTOP, "115, 112, 2310, 3105, 0x4", "45, 44, 1050, 3105, 0x4",
         FALLEN, "nvidia-smi -q -d POWER,PERFORMANCE"),
        (LAPTOP, "115, 112, [N/A], [N/A], 0x4", "45, 44, [N/A], [N/A], 0x4",
         FALLEN, "nvidia-smi -q -d POWER,PERFORMANCE"),
        (SERVER, "400, 390, 1400, 1410, 0x4", "200, 199, 900, 1410, 0x4",
         FALLEN, "sudo nvidia-smi -i 0 -pl 400"),
        # A limit that costs no speed, and a laptop that shifts some watts to its CPU.
        (SERVER, "400, 260, 1400, 1410, 0x0", "300, 260, 1400, 1410, 0x0", "good/ none", ""),
        (LAPTOP, "115, 112, 2310, 2400, 0x4", "112, 110, 2290, 2400, 0x4", "good/ none", ""),
    ],
)  # fmt: skip
def test_a_power_limit_that_falls_is_seen_without_a_rated_one(
    name: str, before: str, after: str, said: str, command: str, tmp_path: Path, capsys: Said
) -> None:
    well, slow = f"{name}, 98, {before}", f"{name}, 98, {after}"
    summary = judge_in(tmp_path, capsys)(csv(POWER, [[well]] * 90 + [[slow]] * 40))
    assert verdict_and_step(summary) == said, summary["evidence"]
    if said == FALLEN:
        assert "at second 90" in summary["evidence"]
        assert summary["next"]["command"] == command
        assert ("charger" in summary["next"]["text"]) == (name == LAPTOP)


def test_a_power_limit_that_falls_on_some_gpus_is_restored_on_them(
    tmp_path: Path, capsys: Said
) -> None:
    well = f"{SERVER}, 98, 400, 390, 1400, 1410, 0x0"
    slow = f"{SERVER}, 98, 200, 199, 900, 1410, 0x4"
    moments = [[well] * 3] * 60 + [[well, slow, slow]] * 60
    summary = judge_in(tmp_path, capsys)(csv(POWER, moments))
    assert summary["evidence"].startswith("GPU 1, 2: the power limit fell from 400 W to 200 W")
    assert summary["next"]["command"] == "sudo nvidia-smi -i 1,2 -pl 400"
    assert "limit of GPU 1, 2 at second 60" in summary["next"]["text"]


def test_a_power_limit_that_comes_back_is_no_verdict(tmp_path: Path, capsys: Said) -> None:
    well = f"{SERVER}, 98, 400, 390, 1400, 1410, 0x0"
    slow = f"{SERVER}, 98, 200, 199, 900, 1410, 0x4"
    moments = [[well]] * 60 + [[slow]] * 8 + [[well]] * 60
    assert verdict_and_step(judge_in(tmp_path, capsys)(csv(POWER, moments))) == "good/ none"


HOST = (
    "name, utilization.gpu [%], memory.used [MiB], memory.total [MiB], command.cpu [%], "
    "command.busiest_cpu [%], command.memory [MiB], machine.cpu [%], machine.memory [MiB], "
    "machine.memory_total [MiB]"
)
GIB_IN_MIB = 1024


def with_host_memory(sizes: list[float]) -> str:
    """A log of our own of a busy GPU; the command holds these GiB second by second, the rest of the
    machine 8 GiB of 128."""
    moments = []
    for size in sizes:
        command, machine = round(size * GIB_IN_MIB), round((size + 8) * GIB_IN_MIB)
        row = f"NVIDIA RTX A6000, 96, 38000, 49140, 250, 60, {command}, 300, {machine}"
        moments.append([f"{row}, {128 * GIB_IN_MIB}"])
    return csv(HOST, moments)


@each(
    "first, last, said",
    [
        (20, 110, "good/ find-the-host-leak"),
        (90, 110, "good/ find-the-host-leak"),
        (20, 75, "good/ find-the-host-leak"),
        # A cache that fills a little more, far from full.
        (20, 40, "good/ none"),
        (110, 110, "good/ none"),
    ],
)
def test_the_machines_memory_that_fills_is_named_with_the_time_to_full(
    first: int, last: int, said: str, tmp_path: Path, capsys: Said
) -> None:
    sizes = [first + (last - first) * number / 199 for number in range(200)]
    summary = judge_in(tmp_path, capsys)(with_host_memory(sizes))
    assert verdict_and_step(summary) == said, summary["evidence"]
    is_leak = said != "good/ none"
    assert ("the machine's memory grew all the time" in summary["evidence"]) == is_leak
    assert ("at this rate it is full in" in summary["evidence"]) == is_leak
    # The notes do not say it again.
    assert not any("grew all the time" in note for note in summary["notes"])


def test_data_that_are_loaded_once_are_no_leak(tmp_path: Path, capsys: Said) -> None:
    sizes = [20 + 90 * min(1.0, number / 60) for number in range(200)]
    summary = judge_in(tmp_path, capsys)(with_host_memory(sizes))
    assert verdict_and_step(summary) == "good/ none", summary["evidence"]
