"""The sets of published runs that were written down before any of them was predicted.

Each is met as docs/explanation/memory-model.md says after what it taught, and so are all together.
"""

from __future__ import annotations

import statistics
from collections import Counter
from pathlib import Path

import pytest
from scripts_loaded import script

from gpusetup.model.frozen import Frozen
from gpusetup.plan.answer.choose import CLEAR_ELSEWHERE
from gpusetup.plan.answer.odds import BANDS, FIRST_SIGHTS, KINDS, SURE, kind_of
from gpusetup.plan.memory.constants import shipped_constants

C = shipped_constants()


SCRIPT = script("fit_published")


class Promise(Frozen):
    """What the page says of a set, with its own corrections: at least, and at most."""

    name: str
    rows: int
    projects: int
    error: float
    bias: float
    right: float
    missed: int
    """Runs that ran out of memory and are said to fit."""
    most: float = 0.25
    """The largest share of its rows that one project has."""
    asked: float | None = None
    """The share of its complete runs that plan can be asked for, where it has the others too."""


PROMISES = (
    Promise(name="all", rows=80, projects=9, error=0.07, bias=0.04, right=0.96, missed=2),
    Promise(name="second", rows=60, projects=12, error=0.09, bias=0.04, right=0.93, missed=0),
    Promise(name="third", rows=70, projects=12, error=0.08, bias=0.065, right=0.94, missed=2,
            asked=0.87),
    Promise(name="fourth", rows=90, projects=12, error=0.06, bias=0.04, right=0.96, missed=0,
            asked=0.95),
    Promise(name="fifth", rows=140, projects=20, error=0.08, bias=0.04, right=0.89, missed=7,
            asked=0.85),
    Promise(name="sixth", rows=75, projects=12, error=0.06, bias=0.03, right=0.92, missed=3,
            asked=0.85),
    Promise(name="seventh", rows=110, projects=15, error=0.07, bias=0.03, right=0.9, missed=5,
            asked=0.87),
    Promise(name="eighth", rows=144, projects=15, error=0.08, bias=0.05, right=0.92, missed=8,
            asked=0.85),
    Promise(name="ninth", rows=130, projects=25, error=0.045, bias=0.02, right=0.89, missed=5,
            asked=1.0),
    Promise(name="tenth", rows=133, projects=18, error=0.1, bias=0.05, right=0.85, missed=10,
            most=0.25, asked=0.67),
    Promise(name="eleventh", rows=95, projects=15, error=0.082, bias=0.02, right=0.96, missed=2,
            asked=0.72),
)  # fmt: skip
EACH = pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.name)


@EACH
def test_a_set_is_of_other_runs_from_many_places(promise: Promise) -> None:
    rows = SCRIPT.blind_rows(promise.name)
    projects = Counter(row["source"].split()[0] for row in rows)
    assert len(rows) >= promise.rows and len(projects) >= promise.projects
    assert max(projects.values()) <= len(rows) * promise.most
    earlier = [one.name for one in PROMISES[: PROMISES.index(promise)]]
    others = [SCRIPT.figures(), SCRIPT.later(), *map(SCRIPT.blind, earlier)] if earlier else []
    known = [figure.workload for some in others for figure in some]
    assert not [figure for figure in SCRIPT.blind(promise.name) if figure.workload in known]
    if promise.asked is not None:
        asked, complete = SCRIPT.coverage(SCRIPT.SETS[promise.name])
        assert asked == len(rows) and asked / complete >= promise.asked
        assert all(row["url"] for row in rows)


@EACH
def test_a_set_is_met_as_the_page_says(promise: Promise) -> None:
    found = SCRIPT.errors(SCRIPT.blind(promise.name), C)
    assert statistics.median(map(abs, found)) <= promise.error
    assert abs(statistics.median(found)) <= promise.bias
    runs = SCRIPT.outcomes(promise.name, C)
    assert sum(run.fits == run.said for run in runs) / len(runs) >= promise.right
    assert sum(run.said and not run.fits for run in runs) <= promise.missed


def test_the_sets_together_are_met_as_the_page_says() -> None:
    names = [promise.name for promise in PROMISES]
    rows = [figure for name in names for figure in SCRIPT.blind(name)]
    assert len(rows) >= 730
    for measure, most, bias in (
        (None, 0.065, 0.02),
        ("allocated", 0.045, 0.02),
        ("reserved", 0.075, 0.025),
        ("total", 0.075, 0.04),
    ):
        found = SCRIPT.errors([f for f in rows if measure in (None, f.measure)], C)
        assert statistics.median(map(abs, found)) <= most
        assert abs(statistics.median(found)) <= bias
    runs = [run for name in names for run in SCRIPT.outcomes(name, C)]
    assert sum(run.fits == run.said for run in runs) / len(runs) >= 0.935


def test_how_runs_near_the_limit_went_is_counted_on_the_sets() -> None:
    runs = [run for promise in PROMISES for run in SCRIPT.outcomes(promise.name, C)]
    for band in BANDS:
        mine = [run.fits for run in runs if band.least <= run.needs < band.most]
        assert (band.fitted, band.runs) == (sum(mine), len(mine))


def test_how_runs_said_to_fit_clearly_went_is_counted_by_kind() -> None:
    names = [promise.name for promise in PROMISES]
    runs = [run for name in names for run in SCRIPT.outcomes(name, C)]
    for kind in KINDS:
        mine = [
            run
            for run in runs
            if run.needs <= 1 - CLEAR_ELSEWHERE and kind_of(run.workload, run.recipe) == kind
        ]
        assert (kind.clear, kind.ran_out) == (len(mine), sum(not run.fits for run in mine))
    others = KINDS[-1]
    assert others.ran_out <= SURE * others.clear


def test_a_first_sight_is_kept_of_every_set() -> None:
    assert [one.name for one in FIRST_SIGHTS[1:]] == [one.name for one in PROMISES[1:]]


def test_the_pages_tables_are_those_of_the_script() -> None:
    assert SCRIPT.write_tables(C, check=True), "run scripts/fit_published.py --tables"


def test_a_file_of_rows_is_checked_before_it_is_compared(tmp_path: Path) -> None:
    check = script("compare_published")
    assert check.faults(SCRIPT.SIXTH) == []
    good = "p x,u,nanogpt,full,params=124M,1,1024,8,compile=no loss=flash,no,fits,,15.8,seventh,"
    slips = {
        good.replace("compile", "complie"): "complie",
        good.replace("flash", "flush"): "flush",
        good.replace("nanogpt", "nanogtp"): "nanogtp",
        good.replace("fits,", "fits,3.1"): "gib",
        good.replace("15.8", ""): "card",
        good.replace("1,1024", "3,1024").replace("loss=flash", "tensor_parallel=2"): "divide",
    }
    file = tmp_path / "rows.csv"
    file.write_text("\n".join((",".join(check.COLUMNS), good, *slips)), encoding="utf-8")
    found = check.faults(file)
    assert len(found) == len(slips)
    for number, (text, word) in enumerate(zip(found, slips.values(), strict=True), 3):
        assert text.startswith(f"line {number}: ") and word in text


def test_a_file_of_rows_is_compared_whatever_its_set_is_called(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    compare = script("compare_published")
    row = "p x,u,nanogpt,full,params=124M,1,1024,8,,no,total,7.4,15.8,mine,"
    file = tmp_path / "rows.csv"
    file.write_text("\n".join((",".join(compare.COLUMNS), row)), encoding="utf-8")
    monkeypatch.setattr("sys.argv", ["compare_published.py", str(file), "--rows"])
    assert compare.main() == 0
    said = capsys.readouterr().out
    assert "asked 1 of 1" in said and "1 figures" in said and "fits or not: 1 of 1" in said
