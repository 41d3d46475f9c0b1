"""A fix for clocks names the GPU that needs it, in what is said and in the command."""

from __future__ import annotations

from each_row import each
from replayed import Judge, csv, verdict_and_step

COLUMNS = (
    "name, utilization.gpu [%], power.draw [W], power.limit [W], power.default_limit [W], "
    "temperature.gpu, clocks.sm [MHz], clocks.max.sm [MHz], clocks_event_reasons.active"
)
WELL = "NVIDIA A100-SXM4-80GB, 98 %, 385, 400, 400, 62, 1400, 1410, 0x0"
BRAKES = "NVIDIA A100-SXM4-80GB, 98 %, 180, 400, 400, 52, 705, 1410, 0x80"
HOT = "NVIDIA A100-SXM4-80GB, 98 %, 250, 400, 400, 92, 900, 1410, 0x40"
LOWERED = "NVIDIA GeForce RTX 3090, 99 %, 199, 200, 350, 60, 1100, 2100, 0x4"
SET = "NVIDIA A30, 98 %, 90, 165, 165, 50, 600, 1440, 0x2"


@each(
    "gpus, said, evidence, command",
    [
        ([LOWERED], "throttled/lowered limit raise-the-power-limit",
         "at 199 W (its limit: 200 W, rated: 350 W)", "sudo nvidia-smi -i 0 -pl 350"),
        ([SET], "throttled/low clocks unlock-the-clocks",
         "clocks that somebody set", "sudo nvidia-smi -i 0 -rac; sudo nvidia-smi -i 0 -rgc"),
        ([WELL, WELL, BRAKES, WELL], "throttled/supply check-the-supply",
         "GPU 2: the power supply's brake", "nvidia-smi -i 2 -q -d POWER,PERFORMANCE"),
        ([WELL, HOT], "throttled/heat cool",
         "at 92 °C", "nvidia-smi -i 1 -q -d TEMPERATURE,PERFORMANCE"),
    ],
)  # fmt: skip
def test_a_fix_names_the_gpu_that_needs_it(
    gpus: list[str], said: str, evidence: str, command: str, judged: Judge
) -> None:
    summary = judged(csv(COLUMNS, [gpus] * 60))
    assert verdict_and_step(summary) == said, summary["evidence"]
    assert evidence in summary["evidence"]
    assert summary["next"]["command"] == command
