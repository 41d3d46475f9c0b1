"""No verdict contradicts a figure that is printed with it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from composed_runs import RUNS
from each_row import each
from recorded_monitor import FIRST_RUN, SECOND_RUN, WORKLOADS, recording
from replayed import Judge, report, verdict_and_step


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


@each("name", RUNS)
def test_composed_runs(name: str, judged: Judge) -> None:
    summary = judged(RUNS[name].text())
    assert contradictions(summary) == [], summary["evidence"]


@each("run", [FIRST_RUN, SECOND_RUN])
def test_recorded_runs(run: str, tmp_path: Path, judged: Judge) -> None:
    for workload in WORKLOADS:
        summary = judged(recording(workload, tmp_path, run).read_text(encoding="utf-8"))
        assert contradictions(summary) == [], summary["evidence"]


REASONS = """\
    Clocks Event Reasons
        SW Power Cap                      : Not Active
        HW Slowdown                       : {0}
            HW Thermal Slowdown           : {0}
        SW Thermal Slowdown               : Not Active
"""


@each(
    "slowdown, heat, clock, said",
    [
        ("Active", 91, 700, "throttled/heat cool"),
        ("Active", 78, 1380, "throttled/heat cool"),
        ("Not Active", 70, 1380, "good/ none"),
    ],
)
def test_one_report_of_a_busy_card(
    slowdown: str, heat: int, clock: int, said: str, judged: Judge
) -> None:
    summary = judged(report(98, heat=heat, clock=clock, more=REASONS.format(slowdown)))
    assert verdict_and_step(summary) == said, summary["text"]
