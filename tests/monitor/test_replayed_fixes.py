"""A fix for clocks names every GPU that needs it, in what is said and in the command."""

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
HOTTER = "NVIDIA A100-SXM4-80GB, 98 %, 240, 400, 400, 94, 850, 1410, 0x40"
LOWERED = "NVIDIA GeForce RTX 3090, 99 %, 199, 200, 350, 60, 1100, 2100, 0x4"
SET = "NVIDIA A30, 98 %, 90, 165, 165, 50, 600, 1440, 0x2"


@each(
    "gpus, said, text, command",
    [
        ([LOWERED] * 2, "throttled/lowered limit raise-the-power-limit",
         "of GPU 0, 1 to what the card is rated at", "sudo nvidia-smi -i 0,1 -pl 350"),
        ([SET] * 2, "throttled/set clocks reset-the-clocks",
         "clocks of GPU 0, 1", "sudo nvidia-smi -i 0,1 -rac; sudo nvidia-smi -i 0,1 -rgc"),
        ([SET], "throttled/set clocks reset-the-clocks",
         "Reset the clocks", "sudo nvidia-smi -i 0 -rac; sudo nvidia-smi -i 0 -rgc"),
        ([WELL, WELL, BRAKES, WELL, BRAKES], "throttled/supply check-the-supply",
         "slot of GPU 2, 4", "nvidia-smi -i 2,4 -q -d POWER,PERFORMANCE"),
        ([BRAKES] * 4, "throttled/supply check-the-supply",
         "If all GPUs brake", "nvidia-smi -i 0,1,2,3 -q -d POWER,PERFORMANCE"),
        ([WELL, HOT, HOTTER], "throttled/heat cool",
         "cooling of GPU 1, 2", "nvidia-smi -i 1,2 -q -d TEMPERATURE,PERFORMANCE"),
    ],
)  # fmt: skip
def test_a_fix_names_every_gpu_that_needs_it(
    gpus: list[str], said: str, text: str, command: str, judged: Judge
) -> None:
    summary = judged(csv(COLUMNS, [gpus] * 60))
    assert verdict_and_step(summary) == said, summary["evidence"]
    assert text in summary["next"]["text"]
    assert summary["next"]["command"] == command
