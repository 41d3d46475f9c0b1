"""Logs of nvidia-smi replayed, written from composed runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from each_row import each
from hypothesis import given
from hypothesis import strategies as st
from monitor_composer import Run
from monitor_kinds import composed

from gpusetup import cli
from gpusetup.monitor.documents import GpuSample, Sample, Summary
from gpusetup.monitor.run import RunTally
from gpusetup.monitor.smi_logs import log_that_begins
from gpusetup.monitor.summary import summarise


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


FULL = "a steady training, nobody watched its processes"
BURSTS = "bursts that nobody watched the cause of"
STEADY = "a steady training beside its workers"


def judged(lines: Iterator[str]) -> Summary:
    log = log_that_begins(next(lines), ())
    assert log is not None
    return summarise(RunTally(log.samples(lines, 1.0)))


@each("kind, verdict", [(FULL, "good"), (BURSTS, "bursty")])
def test_a_log_is_judged_as_its_run(kind: str, verdict: str) -> None:
    told = judged(smi_csv(composed(kind, 1)))
    assert told.verdict == verdict, told.evidence
    assert told.samples == len(composed(kind, 1).samples)


def test_a_log_without_times_says_what_is_assumed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "gpu.csv"
    lines = (line.partition(", ")[2] for line in smi_csv(composed(FULL, 1)))
    file.write_bytes("\r\n".join(lines).encode("utf-16"))
    assert cli.main(["monitor", "--replay", str(file), "--interval", "5"]) == 0
    told = capsys.readouterr()
    assert "5 s between its samples are assumed" in told.err
    assert "by nvidia-smi csv" in told.out


@given(
    st.lists(
        st.one_of(
            st.sampled_from([*list(smi_csv(composed(STEADY, 0)))[:9], "index\n", '0, "'],),
            st.text(max_size=60),
        ),
        min_size=1, max_size=12,
    )
)  # fmt: skip
def test_any_text_is_read_without_a_traceback(lines: list[str]) -> None:
    judged(iter((COLUMNS, *lines)))


COLUMNS = (
    "timestamp, index, name, utilization.gpu [%], utilization.memory [%], memory.used [MiB], "
    "memory.total [MiB], temperature.gpu, power.draw [W], power.limit [W], clocks.sm [MHz]"
)
COOL = "99, 60, 60000, 81920, 60, 320, 400, 1410"
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
    gpus: list[str], verdict: str
) -> None:
    lines = (
        f"2025/11/18 10:12:{n:02d}.000, {index}, NVIDIA A100-SXM4-80GB, {later if n > 1 else COOL}"
        for n in range(60)
        for index, later in enumerate(gpus)
    )
    summary = judged(iter((COLUMNS, *lines)))
    assert f"{summary.verdict}/{summary.cause}" == verdict
    assert ("a rank waits in a collective" in summary.evidence) == (len(gpus) > 1)


@pytest.mark.parametrize(("rows_a_time", "gpus"), [(1, 1), (2, 2)])
def test_a_log_that_tells_no_gpus_apart_counts_the_rows_of_one_time(
    rows_a_time: int, gpus: int
) -> None:
    log = log_that_begins("timestamp, utilization.gpu [%], memory.used [MiB]", ())
    assert log is not None
    lines = [
        f"2026/11/20 10:00:0{second}.000, {20 + second} %, 6144 MiB"
        for second in range(5)
        for _ in range(rows_a_time)
    ]
    moments = list(log.samples(lines, interval=1.0))
    assert [moment.seconds for moment in moments] == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert all(len(moment.gpus) == gpus for moment in moments)
