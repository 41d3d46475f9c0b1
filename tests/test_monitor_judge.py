"""The verdicts, on a labelled set of runs; each is generated as a training loop would run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
from each_row import each
from hypothesis import given
from hypothesis import strategies as st
from monitoring import Gpu, between, loop, pausing, samples, tree

from gpusetup.monitor.judge import judge
from gpusetup.monitor.marks import Mark
from gpusetup.monitor.summary import summarise, tallied
from gpusetup.monitor.values import Sample, Summary


def summary(taken: list[Sample], **more: object) -> Summary:
    return summarise(tallied(taken), **more)  # type: ignore[arg-type]


def every(share: float, *names: str) -> Callable[[float], Sequence[str]]:
    """Throttle reasons in so many of ten samples."""
    return lambda at: names if at % 10 < share * 10 else ()


WAITING = tree(busiest=20)
FULL_CORE = tree(busiest=99)
RUNS: dict[str, tuple[str | None, list[Sample]]] = {
    # the loader is behind
    "two loader workers decode without rest, short steps": (
        "input-starved", samples([Gpu(loop(0.06, 0.14))], tree(busiest=35, workers=2, each=98))),
    "four loader workers decode without rest, long steps": (
        "input-starved", samples([Gpu(loop(3, 4))], tree(busiest=40, workers=4, each=95))),
    "sixty percent, all workers full": (
        "input-starved", samples([Gpu(loop(0.3, 0.2))], tree(busiest=60, workers=8, each=90))),
    "no workers, the main process decodes": (
        "input-starved", samples([Gpu(loop(0.1, 0.3))], tree(busiest=100, reads=4e7))),
    "no workers, the main process generates data between long steps": (
        "input-starved", samples([Gpu(loop(1.5, 2.5))], tree(busiest=100))),
    "a slow disk, the workers wait for it": (
        "input-starved",
        samples([Gpu(loop(0.1, 0.4))], tree(busiest=15, workers=4, each=8, disk=9e7))),
    "a network file system that answers slowly": (
        "input-starved", samples([Gpu(loop(0.2, 0.5))], tree(busiest=12, workers=4, each=3))),
    "waits for a remote service, no workers": (
        "input-starved", samples([Gpu(loop(0.1, 0.9))], tree(busiest=8))),
    "in bursts, no look at the CPU": ("bursty", samples([Gpu(loop(2, 3))])),
    "in bursts at ten samples a second, no look at the CPU": (
        "bursty",
        samples([Gpu(lambda at: 100.0 if at % 1 < 0.4 else 0.0)], seconds=30, interval=0.1)),
    "starved and a little warm": (
        "input-starved",
        samples([Gpu(loop(0.2, 0.6), reasons=every(0.2, "sw_thermal_slowdown"))],
                tree(busiest=30, workers=2, each=97))),
    "so starved that the GPU hardly ever works": (
        "input-starved",
        samples([Gpu(lambda at: 2 if at % 4 == 0 else 0)], tree(busiest=20, workers=1, each=99))),
    "starved on all four GPUs": (
        "input-starved", samples([Gpu(loop(0.1, 0.2))] * 4, tree(busiest=40, workers=8, each=93))),
    "evaluation on the CPU takes most of the time": (
        "bursty",
        samples([Gpu(pausing(97, 20, 40))], tree(busiest=100), seconds=300)),
    # the kernels are too small
    "tiny kernels, one core full": ("launch-bound", samples([Gpu(45, power=30)], FULL_CORE)),
    "a small recurrent net with resting workers": (
        "launch-bound", samples([Gpu(62, power=35)], tree(busiest=101, workers=4, each=6))),
    "kernels all the time that draw no power": (
        "launch-bound", samples([Gpu(97, power=24, memory_busy=8)])),
    "the same beside a full core": (
        "launch-bound", samples([Gpu(95, power=28, memory_busy=10)], FULL_CORE)),
    "evenly at fifty-five, no look at the CPU": ("launch-bound", samples([Gpu(55, power=30)])),
    "evenly at seventy, power not told": ("bursty", samples([Gpu(70, power=None)])),
    # held down
    "the hardware is too hot": (
        "throttled",
        samples([Gpu(98, heat=91, clock=62, reasons=every(0.4, "hw_thermal_slowdown"))])),
    "the driver slows a warm laptop": (
        "throttled",
        samples([Gpu(96, heat=87, clock=71, reasons=every(0.7, "sw_thermal_slowdown"))])),
    "clocks far down at a limit, and nobody told the card's own": (
        "good", samples([Gpu(99, clock=55, power=99, reasons=every(1, "sw_power_cap"))])),
    "the power supply brakes": (
        "throttled",
        samples([Gpu(97, clock=40, reasons=every(0.3, "hw_power_brake_slowdown", "hw_slowdown"))])),
    "somebody fixed low clocks": (
        "throttled", samples([Gpu(98, clock=50, reasons=["applications_clocks_setting"])])),
    "one of eight GPUs is too hot": (
        "throttled",
        samples(
            [*[Gpu(97)] * 5, Gpu(97, heat=92, reasons=["hw_thermal_slowdown"]), *[Gpu(97)] * 2])),
    # memory
    "memory at its limit": ("memory-tight", samples([Gpu(97, memory=97.5)])),
    "memory touches its limit now and then": (
        "memory-tight", samples([Gpu(97, memory=lambda at: 99 if at % 10 == 0 else 85)])),
    "a memory-bound step": ("memory-bound", samples([Gpu(98, memory_busy=88, power=60)])),
    "memory-bound beside a command": (
        "memory-bound", samples([Gpu(97, memory_busy=92)], tree(busiest=55, workers=4, each=20))),
    # several
    "one idle GPU of eight": ("uneven", samples([*[Gpu(96)] * 7, Gpu(0, processes=0, memory=1)])),
    "DataParallel: the first works, the others wait": (
        "uneven", samples([Gpu(95), Gpu(52), Gpu(51), Gpu(50)])),
    "two processes on one GPU, its twin idle but held": (
        "uneven", samples([Gpu(97, processes=2), Gpu(0, memory=2)])),
    # nothing runs
    "nothing at all": ("idle", samples([Gpu(0, processes=0, memory=0)])),
    "the training computes on the CPU": (
        "idle", samples([Gpu(0, processes=0, memory=1)], tree(busiest=800))),
    "a display draws": (
        "idle", samples([Gpu(lambda at: 4 if at % 3 == 0 else 1, processes=1, memory=5)])),
    "a process holds memory and computes nothing": ("idle", samples([Gpu(0, memory=60)], WAITING)),
    "eight idle GPUs": ("idle", samples([Gpu(0, processes=0, memory=0)] * 8)),
    # good
    "busy": ("good", samples([Gpu(98)], tree(busiest=60, workers=4, each=30))),
    "busy with noise": ("good", samples([Gpu(92, noise=6)])),
    "eight busy GPUs": ("good", samples([Gpu(97)] * 8)),
    "evaluation pauses": (
        "good", samples([Gpu(pausing(97, 50, 12))], tree(busiest=70), seconds=310)),
    "a long start, then work": ("good", samples([Gpu(between(45, 999, 98))], seconds=120)),
    "work, then the data is written": ("good", samples([Gpu(between(0, 80, 97))], seconds=120)),
    "at its power limit with high clocks": (
        "good", samples([Gpu(99, power=99, clock=91, reasons=["sw_power_cap"])])),
    "one GPU of eight is used": ("good", samples([Gpu(97), *[Gpu(0, processes=0, memory=0)] * 7])),
    "one GPU is lost, the others go on": (
        "uneven", samples([Gpu(97), Gpu(97, lost_after=20), Gpu(97)])),
    "ten samples a second": ("good", samples([Gpu(96)] * 8, seconds=20, interval=0.1)),
    "one sample in ten seconds": ("good", samples([Gpu(96)], seconds=600, interval=10)),
    # what cannot be judged
    "MIG tells no utilisation": (None, samples([Gpu(lambda at: None, mig=0, processes=1)])),
    "MIG at its memory's limit": (
        "memory-tight", samples([Gpu(lambda at: None, mig=0, memory=98)])),
    "two samples": (None, samples([Gpu(98)], seconds=2)),
    "no GPU": (None, samples([], tree(busiest=100))),
}  # fmt: skip
"""What happens -> the verdict, and the samples."""


@each("name", RUNS)
def test_the_labelled_run_is_judged_right(name: str) -> None:
    label, taken = RUNS[name]
    told = summary(taken)
    assert told.verdict == label, told.evidence
    assert told.evidence


@pytest.mark.parametrize("seed", range(5))
def test_the_labels_hold_for_other_dice(seed: int) -> None:
    shaken = {
        "busy": ("good", samples([Gpu(95, noise=5)], seed=seed)),
        "starved": (
            "input-starved",
            samples(
                [Gpu(loop(0.23, 0.37), noise=8)], tree(busiest=30, workers=2, each=94), seed=seed
            ),
        ),
        "tiny": ("launch-bound", samples([Gpu(58, power=30, noise=8)], FULL_CORE, seed=seed)),
    }
    assert {name: summary(taken).verdict for name, (_, taken) in shaken.items()} == {
        name: label for name, (label, _) in shaken.items()
    }


def test_every_verdict_but_good_has_a_next_step() -> None:
    for label, taken in RUNS.values():
        told = summary(taken)
        assert (told.next is None) == (label == "good" or "too few" in told.evidence)


def test_below_half_comes_the_ordered_advice_and_above_it_none() -> None:
    starved = RUNS["two loader workers decode without rest, short steps"][1]
    told = summary(starved, command=("python", "train.py", "--config", "a b.yaml"))
    assert [line.partition(":")[0].split()[0] for line in told.advice] == ["DataLoader"]
    assert told.next is not None and told.next.command == "gpusetup tune 'a b.yaml'"
    assert "num_workers=16" in told.advice[0]
    assert summary(RUNS["busy"][1]).advice == ()
    small = summary(RUNS["tiny kernels, one core full"][1])
    assert [line.split()[0] for line in small.advice] == ["larger", "mixed"]


def test_the_evidence_carries_what_was_measured() -> None:
    said = {name: summary(RUNS[name][1]).evidence for name in (
        "two loader workers decode without rest, short steps",
        "one of eight GPUs is too hot",
        "one idle GPU of eight",
        "memory at its limit",
    )}  # fmt: skip
    assert list(said.values()) == [
        "GPU 0 worked 30 % of the time while 2 loader workers computed at 98 % of a core each",
        "GPU 5: heat (hardware) held the clocks down in 100 % of the working samples, at 93 °C; "
        "SM clock at 97 % of its maximum (hw_thermal_slowdown)",
        "GPU 7 worked 0 % of the time, GPU 6 worked 96 % of the time",
        "memory in use: 98 % (p95), 98 % at its peak",
    ]


def test_pauses_losses_and_unused_gpus_are_noted() -> None:
    notes = {name: summary(RUNS[name][1]).notes for name in (
        "evaluation pauses", "one GPU is lost, the others go on", "one GPU of eight is used",
        "at its power limit with high clocks")}  # fmt: skip
    assert notes == {
        "evaluation pauses": (
            "GPU 0: paused 4 times, 16 % of its time, 12 s at most (evaluation, checkpoints?)",),
        "one GPU is lost, the others go on": (
            "GPU 1 is lost since 2026-11-20T06:00:21.000Z; `gpusetup doctor` says more",),
        "one GPU of eight is used": ("not used: GPU 1, 2, 3, 4, 5, 6, 7",),
        "at its power limit with high clocks": (
            "GPU 0: at its power limit in 100 % of the work, as a busy GPU may be; "
            "`nvidia-smi -q -d POWER` tells its default",),
    }  # fmt: skip


def test_every_mark_has_its_source() -> None:
    from gpusetup.monitor import marks

    table = [mark for mark in vars(marks).values() if isinstance(mark, Mark)]
    assert len(table) > 15
    assert all(mark.source and mark.means for mark in table)


def in_step(row: Sequence[int | None], step: float, at: float) -> float | None:
    """The row's value for this moment; the last one stays."""
    return row[min(round(at / step), len(row) - 1)] if row else None


@given(
    uses=st.lists(st.lists(st.one_of(st.none(), st.integers(0, 100)), max_size=30), max_size=4),
    memory=st.integers(0, 100),
    step=st.sampled_from((0.1, 1.0, 7.0)),
)
def test_any_run_has_exactly_one_verdict_with_evidence(uses: Any, memory: Any, step: Any) -> None:
    longest = max(map(len, uses), default=0)
    gpus = [
        Gpu(partial(in_step, row, step), memory=memory, processes=None)
        for row in uses
    ]  # fmt: skip
    taken = samples(gpus, seconds=longest * step, interval=step)
    tally = tallied(taken)
    judged = judge(tally.facts())
    assert judged.evidence
    assert judge(tallied(taken).facts()) == judged
