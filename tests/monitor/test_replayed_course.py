"""The course of a run over time, as a log shows it: starts, ends, phases, turns; and what a good
run needs somebody to act on."""

from __future__ import annotations

from collections.abc import Iterable

from each_row import each
from replayed import Judge, csv, verdict_and_step

COLUMNS = (
    "name, utilization.gpu [%], power.draw [W], power.limit [W], memory.used [MiB], "
    "memory.total [MiB], temperature.gpu, clocks.sm [MHz], clocks.max.sm [MHz]"
)


def card(use: int, used: int = 30000) -> str:
    """A row of an L40S at this utilisation, with this much memory in use (MiB)."""
    return f"NVIDIA L40S, {use} %, {40 + 3 * use}, 350, {used} MiB, 46068 MiB, 61, 2400, 2520"


def log(uses: Iterable[int], *, used: int = 30000, seconds: int = 1) -> str:
    return csv(COLUMNS, [[card(use, used)] for use in uses], seconds=seconds)


WORK, REST = [97, 99, 96, 98], [0, 0, 0, 0]
EMPTY = card(0, 3)


# --- a process that ends --------------------------------------------------------------------------


@each("rest", [15, 60, 300])
def test_what_comes_after_the_process_ended_is_not_judged(rest: int, judged: Judge) -> None:
    moments = [[card(use)] for use in WORK * 40] + [[EMPTY]] * rest
    summary = judged(csv(COLUMNS, moments))
    assert verdict_and_step(summary) == "good/ see-how-it-ended"
    assert f"ended {rest - 1} s before the recording did" in summary["evidence"]
    # The table says the same as the verdict.
    assert summary["gpus"][0]["utilization_percent"]["mean"] > 95


# --- phases ---------------------------------------------------------------------------------------


@each("work, pause, said", [(58, 17, "bursty/pauses shorter-pauses"), (60, 7, "good/ none")])
def test_regular_pauses_are_told(work: int, pause: int, said: str, judged: Judge) -> None:
    summary = judged(log(([98] * work + [0] * pause) * 4))
    assert verdict_and_step(summary) == said, summary["evidence"]
    assert "paused 3 times" in summary["text"]
    assert "between its pauses" in summary["evidence"] or said.startswith("bursty")


# --- turns and steady use -------------------------------------------------------------------------


@each(
    "pattern, said",
    [
        # A log alone does not tell batches that are late from requests that come now and then.
        ([94, 97, 0, 0, 0], "bursty/unknown watch-the-command"),
        ([41, 38, 44, 47, 35], "input-starved/short-pieces watch-the-command"),
    ],
)
def test_turns_of_work_and_rest_and_steady_half_use(
    pattern: list[int], said: str, judged: Judge
) -> None:
    summary = judged(log(pattern * 20))
    assert verdict_and_step(summary) == said, summary["evidence"]


# --- what a log does not tell ---------------------------------------------------------------------


def test_a_good_verdict_says_what_was_not_reported(judged: Judge) -> None:
    head = "utilization.gpu [%], power.draw [W], clocks_event_reasons.sw_power_cap"
    rows = [["97 %, [Not Supported], [Not Supported]"]] * 60
    summary = judged(csv(head, rows))
    assert summary["evidence"].endswith("(throttling is not reported)")


def test_an_idle_gpu_with_a_loaded_model_may_be_a_server_without_requests(judged: Judge) -> None:
    summary = judged(log([0] * 120, used=38000))
    assert verdict_and_step(summary) == "idle/held see-where-it-waits"
    assert "37.1 GiB of GPU memory in use" in summary["evidence"]
