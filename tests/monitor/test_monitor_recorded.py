"""The verdicts on real runs: six short workloads on an H100, whose kind is known."""

from __future__ import annotations

from each_row import each
from recorded_monitor import FIRST_RUN, SECOND_RUN, WORKLOADS, recorded
from replayed import Judge


@each("run", [FIRST_RUN, SECOND_RUN])
def test_a_real_run_is_judged_by_what_happened_in_it(run: str, judged: Judge) -> None:
    for workload in WORKLOADS:
        summary = judged(recorded(workload, run))
        assert summary["verdict"] == workload, summary["evidence"]
        if run == FIRST_RUN and workload != "idle":
            assert any("without work, are not counted" in one for one in summary["notes"])
            lowest = summary["gpus"][0]["utilization_percent"]["mean"]
            assert lowest > 30, "the figures begin with the first work"
