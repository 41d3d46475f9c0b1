"""Lost GPUs and PCIe links, in what nvidia-smi printed and in our own records."""

from __future__ import annotations

from each_row import each
from replayed import Judge, csv, dmon, report, verdict_and_step

USUAL = (
    "name, utilization.gpu [%], power.draw [W], power.limit [W], memory.used [MiB], "
    "memory.total [MiB]"
)


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


# --- cards that fail ------------------------------------------------------------------------------

FAILING = """\
| NVIDIA-SMI 535.183.01   Driver Version: 535.183.01   CUDA Version: 12.2 |
|   0  NVIDIA RTX A5000    On   | 00000000:1A:00.0 Off |              Off |
| 43%   62C    P2   188W / 230W |  20120MiB / 24564MiB |  96%     Default |
|   1  NVIDIA RTX A5000    On   | 00000000:1B:00.0 Off |              Off |
|ERR!  {heat} ERR!   ERR! / 230W |  20100MiB / 24564MiB |  {use}     Default |
"""
BAD_MEMORY = """\
    ECC Errors
        Volatile
            DRAM Uncorrectable            : 3
    Remapped Rows
        Pending                           : Yes
"""
FAULTY = "faulty/memory-errors reset-the-gpu"


@each(
    "text, said, words",
    [
        (FAILING.format(heat="ERR!", use="ERR!"), LOST, "GPU 1 was lost"),
        (FAILING.format(heat="62C", use="96%"), LOST, "GPU 1 was lost"),
        (report(97, more=BAD_MEMORY), FAULTY, "ECC errors since the driver was loaded: 3"),
        (dmon("sm mem dbecc", [["97 40 2"]] * 60), FAULTY, "ECC errors"),
        (report(97, more=BAD_MEMORY.replace(" 3", " 0").replace("Yes", "No")), "good/ none", ""),
        (report(0), "idle/one-reading watch-the-command", ""),
    ],
)  # fmt: skip
def test_what_a_card_lacks_is_named(text: str, said: str, words: str, judged: Judge) -> None:
    summary = judged(text)
    assert verdict_and_step(summary) == said, summary["evidence"]
    assert words in summary["evidence"]


# --- what slows the clocks, and single readings of several GPUs -----------------------------------

CAPPED = (
    "name, utilization.gpu [%], power.draw [W], power.limit [W], clocks.sm [MHz], "
    "clocks.max.sm [MHz], clocks_throttle_reasons.active"
)
DESKTOP = """\
| NVIDIA-SMI 535.183.01   Driver Version: 535.183.01   CUDA Version: 12.2 |
|   0  NVIDIA GTX 1660     Off  | 00000000:01:00.0  On |              N/A |
| 32%   41C    P8     9W / 120W |    611MiB /  6144MiB |   4%     Default |
| Processes:                                                              |
|    0   N/A  N/A      1203      G   /usr/lib/xorg/Xorg            231MiB |
"""


@each(
    "text, said, words",
    [
        (csv(CAPPED, [["A40, 99 %, 219 W, 220 W, 1170 MHz, 2100 MHz, 0x4"]] * 60),
         "throttled/power limit compare-the-power-limit", "limit: 220 W); SM clock at 56 %"),
        (csv(CAPPED, [["A40, 99 %, 219 W, 220 W, 1700 MHz, 2100 MHz, 0x4"]] * 60),
         "good/ none", "costs little"),
        (csv(CAPPED, [["A40, 99 %, 588 W, 35 W, 210 MHz, 2100 MHz, 0x4"]] * 60),
         "throttled/power limit compare-the-power-limit", "(its limit: 35 W)"),
        (DESKTOP, "idle/one-reading see-whether-torch-can", ""),
    ],
)  # fmt: skip
def test_what_the_clock_the_heat_and_one_reading_show(
    text: str, said: str, words: str, judged: Judge
) -> None:
    summary = judged(text)
    assert verdict_and_step(summary) == said, summary["evidence"]
    assert words in summary["evidence"]
    assert "588" not in summary["text"]
