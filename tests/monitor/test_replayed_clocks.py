"""Clocks that are held down, in what nvidia-smi printed: violations, heat, slower than the rest."""

from __future__ import annotations

from each_row import each
from replayed import Judge, dmon, verdict_and_step

POWER_AND_CLOCKS = "pwr gtemp sm mem pclk fb"
WITH_VIOLATIONS = f"{POWER_AND_CLOCKS} pviol tviol"
WELL = "350 60 97 40 1410 70000"
SLOW = "97 35 918 70000"


@each(
    "columns, fourth, said",
    [
        (POWER_AND_CLOCKS, f"213 87 {SLOW}", "throttled/heat cool"),
        (POWER_AND_CLOCKS, f"213 81 {SLOW}", "throttled/heat cool"),
        (WITH_VIOLATIONS, f"213 74 {SLOW} 0 1", "throttled/heat cool"),
        (POWER_AND_CLOCKS, f"213 62 {SLOW}", "throttled/low clocks unlock-the-clocks"),
        (POWER_AND_CLOCKS, WELL, "good/ none"),
        # A card at its rated power has power violations, and works as fast as the others.
        (WITH_VIOLATIONS, f"{WELL} 90 0", "good/ none"),
        # A little heat now and then costs nothing.
        (POWER_AND_CLOCKS, "345 86 97 40 1380 70000", "good/ none"),
    ],
)
def test_one_of_four_cards_in_a_log_of_dmon(
    columns: str, fourth: str, said: str, judged: Judge
) -> None:
    others = WELL if columns == POWER_AND_CLOCKS else f"{WELL} 0 0"
    summary = judged(dmon(columns, [[others] * 3 + [fourth]] * 40))
    assert verdict_and_step(summary) == said, summary["evidence"]
    if said != "good/ none":
        assert summary["evidence"].startswith("GPU 3: ")
    if columns == POWER_AND_CLOCKS and "throttled" in said:
        assert "SM clock at 65 % of the highest in this run" in summary["evidence"]
    assert "?" not in summary["evidence"]


@each(
    "memory_clock, said",
    [
        (1593, "throttled/heat cool"),
        # Another model: an L4, whose clock is higher.
        (6251, "good/ none"),
    ],
)
def test_dmon_tells_models_apart_by_their_memory_clock(
    memory_clock: int, said: str, judged: Judge
) -> None:
    fast = f"72 70 97 40 {memory_clock} 2040"
    warm = "390 86 97 45 1593 1410"
    summary = judged(dmon("pwr gtemp sm mem mclk pclk", [[fast, warm]] * 40))
    assert verdict_and_step(summary) == said, summary["evidence"]
