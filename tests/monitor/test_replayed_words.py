"""What a person reads below a replayed log: no figure that nobody told, and steps that fit it."""

from __future__ import annotations

from each_row import each
from replayed import Judge, csv, dmon

CARD = "NVIDIA A100-SXM4-40GB"
USE = "name, utilization.gpu [%], power.draw [W], power.limit [W], temperature.gpu"


CLOCKS = f"{USE}, clocks.sm [MHz], clocks.max.sm [MHz], clocks_event_reasons.active"
LAPTOP = "NVIDIA GeForce RTX 4060 Laptop GPU, 98, 34, [N/A], 55, 840, 3105, 0x0000000000000004"


@each(
    "text",
    [
        csv(CLOCKS, [[LAPTOP]] * 40),
        dmon("pwr gtemp sm mem pclk", [["350 60 97 40 1410"]] * 40),
        csv("utilization.gpu [%]", [["97"]] * 40),
    ],
)
def test_no_figure_that_nobody_told(text: str, judged: Judge) -> None:
    summary = judged(text)
    assert "?" not in summary["text"], summary["text"]
    assert "its limit" not in summary["text"], "nobody told a limit"


ONLY_HEAT = csv("name, temperature.gpu, memory.used [MiB]", [[f"{CARD}, 56, 7421"]] * 40)
WITH_MIG = csv(f"{USE}", [[f"{CARD}, [N/A], 100, 400, 50"]] * 40)


@each("text", [ONLY_HEAT, dmon("pwr gtemp", [["200 60"]] * 40), WITH_MIG])
def test_a_log_without_a_utilisation_has_no_verdict(text: str, judged: Judge) -> None:
    summary = judged(text)
    assert summary["verdict"] is None and summary["next"]["id"] == "ask-the-driver"
    assert "utilization.gpu" in summary["next"]["text"] and "MIG" in summary["next"]["text"]


@each("moments", [1, 60])
def test_every_idle_gpu_is_named_and_no_pid_is_made_up(moments: int, judged: Judge) -> None:
    summary = judged(csv(f"{USE}, memory.used [MiB], memory.total [MiB]",
                         [[f"{CARD}, 0, 60, 400, 40, 30000, 81920"] * 4] * moments))  # fmt: skip
    assert summary["verdict"] == "idle" and "GPU 0, 1, 2, 3: " in summary["evidence"]
    assert "PID" not in summary["text"]
