"""Logs of other monitors replayed: each form as its program writes it, from the same runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from each_row import each
from hypothesis import given
from hypothesis import strategies as st
from monitor_composer import Run
from monitor_kinds import composed

from gpusetup import cli
from gpusetup.monitor.logs import read, samples, source_of
from gpusetup.monitor.summary import summarise
from gpusetup.monitor.tally import Tally
from gpusetup.monitor.values import GpuSample, Sample, Summary

Writer = Callable[[Run], Iterator[str]]


def rows(run: Run) -> Iterator[tuple[int, Sample, GpuSample]]:
    for number, sample in enumerate(run.samples):
        for gpu in sample.gpus:
            yield number, sample, gpu


def mib(count: int | None) -> int:
    return (count or 0) >> 20


def smi_csv(run: Run) -> Iterator[str]:
    names = ("timestamp", "name", "index", "utilization.gpu [%]", "utilization.memory [%]",
             "memory.used [MiB]", "memory.total [MiB]", "temperature.gpu", "power.draw [W]",
             "power.limit [W]", "power.default_limit [W]", "clocks.current.sm [MHz]",
             "clocks.max.sm [MHz]", "clocks_event_reasons.sw_power_cap",
             "clocks_event_reasons.hw_thermal_slowdown")  # fmt: skip
    yield ", ".join(names)
    p, w, m, z = " %", " W", " MiB", " MHz"
    for number, sample, g in rows(run):
        stamp = f"2026/11/20 06:{int(sample.seconds) // 60:02d}:{int(sample.seconds) % 60:02d}.{number % 10}00"
        on = ("Active" if r in (g.throttle_reasons or ()) else "Not Active"
              for r in ("sw_power_cap", "hw_thermal_slowdown"))  # fmt: skip
        yield ", ".join((
            stamp, g.name or "", str(g.index), f"{g.utilization_percent:.0f}{p}",
            f"{g.memory_busy_percent:.0f}{p}", f"{mib(g.memory_used_bytes)}{m}",
            f"{mib(g.memory_total_bytes)}{m}", f"{g.temperature_celsius:.0f}",
            f"{g.power_watts:.2f}{w}", f"{g.power_limit_watts:.2f}{w}",
            f"{g.power_limit_default_watts:.2f}{w}", f"{g.clock_sm_mhz}{z}",
            f"{g.clock_sm_max_mhz}{z}", *on))  # fmt: skip


@each("busy, steps", [(45, ["larger", "DataLoader", "mixed"]), (62, []), (97, [])])
def test_a_log_at_45_percent_is_answered_with_the_guides_steps_in_their_order(
    busy: int,
    steps: list[str],
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> None:
    told, file = request.getfixturevalue("capsys"), tmp_path_factory.mktemp("log") / "gpu.csv"
    head = "timestamp, index, name, utilization.gpu [%], memory.used [MiB], memory.total [MiB]"
    lines = (
        f"2025/11/18 10:12:{i:02d}.000, 0, NVIDIA GeForce RTX 4090, {busy + i % 3} %, 8123, 24564"
        for i in range(40)
    )
    file.write_text("\n".join((head, *lines)), encoding="utf-8")
    assert cli.main(["monitor", "--replay", str(file), "--json"]) == 0
    advice = json.loads(told.readouterr().out)["advice"]
    assert [line.split()[0] for line in advice] == steps


def dmon(run: Run, *, dated: bool = False) -> Iterator[str]:
    head, unit = ("#Date       Time        gpu", "#YYYYMMDD   HH:MM:SS    Idx") if dated else (
        "# gpu", "# Idx")  # fmt: skip
    for number, _, g in rows(run):
        if number % 30 == 0 and g.index == 0:
            yield f"{head}    pwr  gtemp  mtemp     sm    mem    enc    dec   mclk   pclk   pviol  tviol     fb   bar1"
            yield f"{unit}      W      C      C      %      %      %      %    MHz    MHz       %   bool     MB     MB"
        when = f" 20261120   06:{number // 60:02d}:{number % 60:02d}  " if dated else ""
        hot = int("hw_thermal_slowdown" in (g.throttle_reasons or ()))
        yield (f"{when}    {g.index}    {g.power_watts:.0f}     {g.temperature_celsius:.0f}      -"
               f"     {g.utilization_percent:.0f}     {g.memory_busy_percent:.0f}      0      0"
               f"   1593   {g.clock_sm_mhz}       0      {hot}  {mib(g.memory_used_bytes)}      5")  # fmt: skip


def dcgm(run: Run) -> Iterator[str]:
    for number, _, g in rows(run):
        if number % 20 == 0 and g.index == 0:
            yield "#Entity   GPUTL  MCUTL  FBFRE   FBUSD   POWER    PMLMT   TMPTR  SMCLK  NVLTX  NVLRX"
            yield "ID                                  W        W       C"
        free = mib(g.memory_total_bytes) - mib(g.memory_used_bytes)
        yield (f"GPU {g.index}     {g.utilization_percent:.0f}    {g.memory_busy_percent:.0f}    {free}"
               f"   {mib(g.memory_used_bytes)}   {g.power_watts:.3f}   {g.power_limit_watts:.3f}"
               f"   {g.temperature_celsius:.0f}    {g.clock_sm_mhz}   N/A    N/A")  # fmt: skip


WRITERS: dict[str, tuple[str, Writer]] = {
    "smi csv": ("nvidia-smi csv", smi_csv),
    "dmon": ("nvidia-smi dmon", dmon),
    "dmon -o DT": ("nvidia-smi dmon", partial(dmon, dated=True)),
    "dcgmi dmon": ("dcgmi dmon", dcgm),
}
FULL = "a steady training, nobody watched its processes"
BURSTS = "bursts that nobody watched the cause of"
NOTHING = "nothing runs and nobody holds the card"
HOT = "one hot card of eight makes all ranks wait"


def judged(lines: Iterator[str]) -> Summary:
    told = list(lines)
    return summarise(Tally(samples(read(told), 1.0)), source=source_of(told[0]))


@each("name", WRITERS)
def test_a_log_is_known_and_judged_as_its_run(name: str) -> None:
    source, write = WRITERS[name]
    for kind, verdict in ((FULL, "good"), (BURSTS, "bursty"), (NOTHING, "idle")):
        told = judged(write(composed(kind, 1)))
        assert (told.source, told.verdict) == (source, verdict), f"{kind}: {told.evidence}"
        assert told.samples == len(composed(kind, 1).samples)


def test_a_log_without_times_says_what_is_assumed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "dmon.txt"
    file.write_bytes("\r\n".join(dmon(composed(FULL, 1))).encode("utf-16"))
    assert cli.main(["monitor", "--replay", str(file), "--interval", "5"]) == 0
    told = capsys.readouterr()
    assert "5 s between its samples are assumed" in told.err
    assert "by nvidia-smi dmon" in told.out


@given(
    st.lists(
        st.one_of(
            st.sampled_from([*dmon(composed(FULL, 1)), *list(smi_csv(composed(HOT, 0)))[:9],
                             "#Entity GPUTL\n", "GPU x 3"]),
            st.text(max_size=60),
        ),
        min_size=1, max_size=12,
    )
)  # fmt: skip
def test_any_text_is_read_without_a_traceback(lines: list[str]) -> None:
    summarise(Tally(samples(read(lines), 1.0)))


def test_the_multiprocessors_tell_small_kernels_without_a_limit() -> None:
    head = "#Entity   GPUTL  FBFRE   FBUSD   POWER   SMACT   DRAMA"
    for active, verdict in ((0.11, "launch-bound"), (0.83, "good")):
        row = f"GPU 0     99    65228   16331   170.5    {active}   0.06"
        assert judged(iter((head, "ID", *[row] * 60))).verdict == verdict
