"""Lost GPUs and PCIe links, in what nvidia-smi printed and in our own records."""

from __future__ import annotations

from each_row import each
from replayed import Judge, csv, dmon, report, verdict_and_step

USUAL = (
    "name, utilization.gpu [%], power.draw [W], power.limit [W], memory.used [MiB], "
    "memory.total [MiB]"
)
LINK = """\
    PCI
        GPU Link Info
            PCIe Generation
                Current                   : 3
            Link Width
                Current                   : 16x
        Tx Throughput                     : 4600000 KB/s
        Rx Throughput                     : {received} KB/s
"""


@each(
    "use, received, said",
    [
        (98, 84000, "good/ none"),
        (52, 11700000, "communication-bound/host stay-on-the-gpu"),
    ],
)
def test_reports_of_many_moments(use: int, received: int, said: str, judged: Judge) -> None:
    more = LINK.format(received=received)
    summary = judged("\n".join(report(use, minute=minute, more=more) for minute in range(20)))
    assert verdict_and_step(summary) == said, summary["evidence"]


WELL = ["NVIDIA A40, 97 %, 285 W, 300 W, 33110 MiB, 46068 MiB"] * 2
UNANSWERED = f"NVIDIA A40{', [Unknown Error]' * 5}"
POWERLESS = "NVIDIA A40, 97 %, [Unknown Error], 300 W, 33110 MiB, 46068 MiB"
HANDLE = "Unable to determine the device handle for GPU"
LOST = "faulty/lost see-why-it-was-lost"


@each(
    "last_line, lost",
    [
        (f"{HANDLE}1: 0000:A1:00.0: GPU is lost.  Reboot the system to recover", "GPU 1 was"),
        (f"{HANDLE}0000:A1:00.0: Unknown Error", "GPU 0, 1 were"),
        ("Failed to initialize NVML: Driver/library version mismatch", ""),
    ],
)
def test_a_last_line_about_a_gpu_that_cannot_be_read_is_a_lost_gpu(
    last_line: str, lost: str, judged: Judge
) -> None:
    logs = {
        "csv": csv(USUAL, [WELL] * 60),
        "dmon": dmon("pwr sm", [["285 97"] * 2] * 60),
    }
    for text in logs.values():
        summary = judged(f"{text}{last_line}\n")
        assert verdict_and_step(summary) == (LOST if lost else "good/ none"), summary["evidence"]
        assert ("lost at second 60 of 60" in summary["evidence"]) == bool(lost)
        assert lost in summary["evidence"]
        assert not summary["notes"]


def test_a_gpu_without_rows_after_such_a_line_was_lost_then(judged: Judge) -> None:
    whole = csv(USUAL, [WELL] * 60)
    lines = whole.splitlines()
    since = 1 + 2 * 40
    rest = [line for line in lines[since:] if ", 1, NVIDIA" not in line]
    text = "\n".join([*lines[:since], f"{HANDLE}1: 0000:A1:00.0: Unknown Error", *rest])
    summary = judged(text)
    assert verdict_and_step(summary) == LOST
    assert "GPU 1 was lost" in summary["evidence"]


@each(
    "rows, said",
    [
        ([[WELL[0], UNANSWERED]] * 40, LOST),
        # A driver that did not answer for a moment, and a card without a power meter.
        ([[WELL[0], UNANSWERED]] * 2 + [WELL] * 40, "good/ none"),
        ([[WELL[0], POWERLESS]] * 40, "good/ none"),
    ],
)
def test_a_card_that_answers_nothing_to_the_end_is_lost(
    rows: list[list[str]], said: str, judged: Judge
) -> None:
    summary = judged(csv(USUAL, [WELL] * 60 + rows))
    assert verdict_and_step(summary) == said, summary["evidence"]
    assert said != LOST or "GPU 1 was lost at second 60 of 99" in summary["evidence"]
