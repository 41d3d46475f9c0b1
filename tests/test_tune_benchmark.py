"""The comparison table: what stays, what is left out, and what a Ctrl-C leaves."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from each_row import each

from gpusetup import cli
from gpusetup.model.frozen import replace
from gpusetup.model.units import GIB
from gpusetup.render.tune import tune_screen
from gpusetup.tune import bench_run, measure
from gpusetup.tune.answer import TuneAnswer, rows_of
from gpusetup.tune.benchmark import Row, Runner, Setup, best_setup, table
from gpusetup.tune.causes import cause, marks
from gpusetup.tune.measure import Device
from gpusetup.tune.trial import Trial

Same = Callable[[str, Path], None]
SCREENS = Path(__file__).resolve().parent / "rendered" / "tune"


def speed_of(setup: Setup) -> float:
    """A model that gains by mixed precision and by workers, and loses by compiling."""
    rate: float = 100.0 * (1.6 if setup.amp else 1.0) * (setup.batch / 32) ** 0.5
    return (min(rate, 180.0) if setup.workers == 0 else rate) * (0.9 if setup.compile else 1.0)


def trial_of(setup: Setup) -> Trial:
    if setup.batch > 128:
        return Trial(batch=setup.batch, status="oom")
    peak = GIB + setup.batch * (20 << 20) // (2 if setup.amp else 1)
    return Trial(
        batch=setup.batch, status="ok", peak_bytes=peak, samples_per_second=speed_of(setup),
        spread_percent=2.0,
    )  # fmt: skip


def runner(**changes: object) -> Runner:
    wish = {"run": trial_of, "batch": lambda _: 128, "workers": lambda _: 4, **changes}
    return Runner(**wish)  # type: ignore[arg-type]


def test_each_step_is_added_to_what_stayed_and_the_last_row_is_all_of_it(
    same_as_file: Same,
) -> None:
    rows = table(Setup(batch=32, workers=0), runner())
    assert [(row.name, row.kept) for row in rows] == [
        ("base", False), ("+AMP", True), ("+batch", True), ("+workers", True),
        ("+compile", False), ("all", False),
    ]  # fmt: skip
    assert rows[-1].setup == Setup(batch=128, amp="bf16", workers=4)
    assert rows_of(rows)[-1].speed_up == pytest.approx(3.2)
    answer = TuneAnswer(benchmark=rows_of(rows), device="NVIDIA L4")
    same_as_file(str(tune_screen(answer)), SCREENS / "benchmark.screen.txt")


@each(
    "speeds, spread, kept",
    [
        ((100.0, 140.0, 100.0), 2.0, True),
        ((100.0, 140.0, 135.0), 2.0, False),  # the base was disturbed when it ran first
        ((100.0, 140.0, 100.0), 40.0, False),  # 80 to 120 beside 112 to 168
        ((100.0, 140.0, 100.0), None, False),  # one step
        ((100.0, 102.0, 100.0), 0.0, False),
    ],
)
def test_a_step_stays_only_where_the_printed_ranges_lie_apart_and_the_base_ran_twice(
    speeds: tuple[float, ...], spread: float | None, kept: bool
) -> None:
    left = [*speeds]

    def run(setup: Setup) -> Trial:
        later = speeds[1] if setup.amp and not setup.compile else speeds[0]
        speed = left.pop(0) if left else later
        return replace(trial_of(setup), samples_per_second=speed, spread_percent=spread)

    rows = table(Setup(batch=32), runner(run=run, batch=lambda _: None, workers=lambda _: None))
    assert rows[1].kept is kept
    screen = str(tune_screen(TuneAnswer(benchmark=rows_of(rows[:2]))))
    printed = [
        (float(speed) * (1 - float(off or 0) / 100), float(speed) * (1 + float(off or 0) / 100))
        for speed, off in re.findall(r"GiB +([\d.]+)(?: ± (\d+) %)?", screen)
    ]
    assert ("±" in screen) is (spread is not None)
    assert kept is (spread is not None and printed[1][0] > 1.03 * printed[0][1]), screen


def test_what_mixed_precision_does_to_the_loss_is_shown_and_a_broken_loss_leaves_it_out() -> None:
    def losses(setup: Setup) -> tuple[float, ...]:
        return (2.3, 1.52) if setup.amp else (2.3, 1.5)

    row = table(Setup(batch=32, workers=0), runner(losses=losses))[1]
    assert (row.name, row.kept, row.loss, row.loss_fp32, row.loss_steps) == (
        "+AMP",
        True,
        1.52,
        1.5,
        2,
    )
    screen = str(tune_screen(TuneAnswer(benchmark=rows_of((row,)))))
    assert "bf16, kept, loss after 2 steps 1.52, in float32 1.5" in " ".join(screen.split())

    def broken(setup: Setup) -> tuple[float, ...]:
        return (2.3, math.nan) if setup.amp else (2.3, 1.5)

    rows = table(Setup(batch=32, workers=0), runner(losses=broken))
    assert (rows[1].kept, rows[1].detail, rows[1].loss) == (False, "the loss is nan in bf16", None)
    assert best_setup(rows).amp is None


def test_seconds_an_epoch_follow_from_the_length_of_the_data() -> None:
    def run(setup: Setup) -> Trial:
        return replace(trial_of(setup), samples=50_000)

    rows = table(Setup(batch=32, workers=0), runner(run=run))
    assert rows_of(rows)[0].seconds_per_epoch == 500
    screen = str(tune_screen(TuneAnswer(benchmark=rows_of(rows))))
    assert "s / epoch" in screen and "500" in screen


def base(**more: object) -> Row:
    known: dict[str, object] = {"name": "base", "setup": Setup(batch=64, workers=4), "status": "ok",
                                "samples_per_second": 1000.0, "peak_bytes": 8 * GIB}  # fmt: skip
    return Row(**known | more)  # type: ignore[arg-type]


CAUSES: tuple[tuple[Row, list[tuple[int, float]], bool, str], ...] = (
    (base(), [(0, 300.0), (4, 1050.0)], True, "the loader gives 1050 samples a second at most"),
    (base(spread_percent=60.0), [], True, "the steps differ by 60 %"),
    (base(samples_per_second=64_000.0), [], True, "a step takes 1.0 ms"),
    (base(utilization_percent=97.0), [(4, 9000.0)], True, "busy 97 % of the time already"),
    (base(utilization_percent=20.0), [(4, 9000.0)], True, "gpusetup monitor"),
    (base(), [], False, "this is a CPU"),
    (base(utilization_percent=75.0), [(4, 9000.0)], True, "limited by computing"),
)


@each("row, rates, gpu, said", CAUSES)
def test_where_nothing_got_faster_the_cause_is_said(
    row: Row, rates: list[tuple[int, float]], gpu: bool, said: str
) -> None:
    slower = Row(name="+compile", setup=row.setup, status="ok", samples_per_second=1.0)
    told = cause((row, slower), rates, gpu=gpu) or ""
    assert told.startswith("Nothing made it faster: ") and said in told
    assert cause((row, replace(slower, kept=True)), rates, gpu=gpu) is None


def test_memory_and_utilisation_stand_beside_the_marks_of_the_guide() -> None:
    row = base(utilization_percent=62.0)
    assert marks((row,), 16 * GIB, gpu=True) == (
        "memory 50 % (mark: 70 to 90 %), GPU busy 62 % (mark: near 100 %)"
    )
    assert marks((row,), 16 * GIB, gpu=False) is None


def test_a_step_that_fails_or_does_not_apply_is_shown_and_left_out(same_as_file: Same) -> None:
    def run(setup: Setup) -> Trial:
        if setup.compile:
            return Trial(batch=setup.batch, status="error", detail="no C++ compiler\nmore")
        return trial_of(setup)

    rows = table(
        Setup(batch=32, workers=0),
        runner(run=run, amp=None, batch=lambda _: 512, workers=lambda _: None),
    )
    assert [row.status for row in rows] == ["ok", "skipped", "oom", "skipped", "error"]
    assert best_setup(rows) == Setup(batch=32, workers=0)
    answer = TuneAnswer(benchmark=rows_of(rows), device="NVIDIA L4")
    same_as_file(str(tune_screen(answer)), SCREENS / "benchmark-none.screen.txt")


def test_a_last_row_that_is_slower_than_its_parts_says_that_the_machine_is_unsteady() -> None:
    seen: list[Setup] = []

    def run(setup: Setup) -> Trial:
        again = setup in seen
        seen.append(setup)
        trial = trial_of(setup)
        return replace(trial, samples_per_second=50.0) if again else trial

    rows = table(Setup(batch=32, workers=0), runner(run=run))
    assert (rows[-1].name, rows[-1].detail) == (
        "all",
        "slower than when it was added: other work disturbs this machine",
    )
    assert not any(row.kept for row in rows) and best_setup(rows).batch == 32
    screen = " ".join(str(tune_screen(TuneAnswer(benchmark=rows_of(rows)))).split())
    assert "bf16, not faster when all was run again: left out" in screen


def test_where_the_base_does_not_run_there_is_no_table() -> None:
    rows = table(Setup(batch=512), runner())
    assert [(row.name, row.status) for row in rows] == [("base", "oom")]


def test_what_was_measured_before_a_ctrl_c_is_kept() -> None:
    kept: list[Row] = []

    def run(setup: Setup) -> Trial:
        if setup.workers:
            raise KeyboardInterrupt
        return trial_of(setup)

    with pytest.raises(KeyboardInterrupt):
        table(Setup(batch=32, workers=0), runner(run=run), kept)
    assert [row.name for row in kept] == ["base", "+AMP", "+batch"]


# --- the command, with trials that are made up ----------------------------------------------------


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Setup]:
    """No child is started; every setup that would have run is kept."""
    done: list[Setup] = []

    def trial(job: measure.Job, batch: int, *, smaller_ran: bool = False) -> Trial:
        setup = Setup(batch=batch, amp=job.amp, workers=job.workers, compile=job.compile)
        done.append(setup)
        return trial_of(setup)

    device = Device(device="cuda", name="NVIDIA L4", limit_bytes=24 * GIB)
    for module in (measure, bench_run):
        monkeypatch.setattr(module, "trial", trial)
        monkeypatch.setattr(module, "device_of", lambda _: device)
    monkeypatch.setattr(bench_run, "losses_of", lambda job, batch: (2.3, 1.6 if job.amp else 1.5))
    monkeypatch.setattr(bench_run, "loader_rate", lambda job, batch, count: 100.0 * (count + 1))
    monkeypatch.setattr(bench_run, "usable_cores", lambda: 4)
    monkeypatch.setattr(bench_run, "_python", lambda _: None)
    monkeypatch.chdir(tmp_path)
    return done


CONFIG = b"""batch_size: 32   # one GPU
accumulation_steps: 4
num_workers: 0
use_mixed_precision: false
compile_model: false
"""


def test_the_benchmark_writes_what_gained_and_leaves_the_rest(
    measured: list[Setup], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "c.yaml").write_bytes(CONFIG)
    assert cli.main(["tune", "c.yaml", "--benchmark", "-o", "out.yaml", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (tmp_path / "out.yaml").read_bytes() == (
        CONFIG.replace(b"batch_size: 32", b"batch_size: 128")
        .replace(b"steps: 4", b"steps: 1")
        .replace(b"workers: 0", b"workers: 4")
        .replace(b"precision: false", b"precision: true")
    )
    assert (said["batch_size"], said["workers"]) == (128, 4)
    assert [row["name"] for row in said["benchmark"]][-1] == "all"
    assert measured[0] == Setup(batch=32, workers=0)


def test_a_ctrl_c_answers_with_the_best_so_far_and_exit_130(
    measured: list[Setup],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(*_: object) -> float:
        raise KeyboardInterrupt

    monkeypatch.setattr(bench_run, "loader_rate", interrupted)
    (tmp_path / "c.yaml").write_bytes(CONFIG)
    assert cli.main(["tune", "c.yaml", "--benchmark", "-o", "out.yaml"]) == 130
    out = capsys.readouterr().out
    assert "interrupted: this is the best so far" in out
    assert "+batch_size: 128   # one GPU" in out
    assert (tmp_path / "out.yaml").read_bytes() == (  # nothing of the workers, which did not run
        CONFIG.replace(b"batch_size: 32", b"batch_size: 128")
        .replace(b"steps: 4", b"steps: 1")
        .replace(b"precision: false", b"precision: true")
    )


COMPILED = "`model = torch.compile(model)` in the code"


@each(
    "config, written, said",
    [
        (CONFIG, b"compile_model: true", ()),
        (CONFIG.replace(b"compile_model: false\n", b""), b"", (COMPILED,)),
        (b"batch_size: 64\n", b"", (COMPILED, "num_workers=4)` in the code",
                                     "torch.bfloat16): loss")),
        (b"per_device_train_batch_size: 128\n", b"torch_compile: true\n", ()),
    ],
)  # fmt: skip
def test_a_gain_without_a_key_in_the_config_is_said_with_the_line_to_add(
    config: bytes,
    written: bytes,
    said: tuple[str, ...],
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> None:
    request.getfixturevalue("measured")
    patch, out = pytest.MonkeyPatch(), request.getfixturevalue("capsys")

    def trial(job: measure.Job, batch: int, *, smaller_ran: bool = False) -> Trial:
        found = trial_of(Setup(batch=batch, amp=job.amp, workers=job.workers))
        return replace(
            found, samples_per_second=(found.samples_per_second or 0) * (1 + job.compile)
        )

    with patch.context() as here:
        for module in (measure, bench_run):
            here.setattr(module, "trial", trial)
        folder = tmp_path_factory.mktemp("config")
        (folder / "c.yaml").write_bytes(config)
        cli.main(["tune", str(folder / "c.yaml"), "--benchmark", "-o", str(folder / "o"), "--json"])
    words = json.loads(out.readouterr().out)["recommendations"]
    assert written in (folder / "o").read_bytes() or not written
    assert all(any(line in word for word in words) for line in said)
    assert said or not any("no key for it" in word for word in words)


def test_the_search_alone_keeps_what_ran_before_a_ctrl_c(
    measured: list[Setup], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def trial(job: measure.Job, batch: int, *, smaller_ran: bool = False) -> Trial:
        if batch > 2:
            raise KeyboardInterrupt
        return trial_of(Setup(batch=batch))

    monkeypatch.setattr(measure, "trial", trial)
    assert cli.main(["tune", "--batch-size", "--code", "a:b", "--json"]) == 130
    said = json.loads(capsys.readouterr().out)
    assert (said["batch_size"], said["interrupted"]) == (2, True)
