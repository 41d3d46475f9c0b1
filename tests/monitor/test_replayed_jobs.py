"""What nvidia-smi printed of memory and of several GPUs: who holds it, leaks, ranks that wait."""

from __future__ import annotations

from each_row import each
from replayed import Judge, csv, verdict_and_step

TABLE = """\
Mon Nov 16 20:15:{second:02d} 2026
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 560.35.03              Driver Version: 560.35.03      CUDA Version: 12.6     |
|   0  NVIDIA GeForce RTX 3090        Off |   00000000:0A:00.0 Off |                  N/A |
| 67%   70C    P2            296W /  350W | {used:>7}MiB /  24576MiB |   95%      Default |
+-----------------------------------------+------------------------+----------------------+
| Processes:                                                                              |
|    0   N/A  N/A      1411      G   /usr/lib/xorg/Xorg                             9MiB |
{processes}
+-----------------------------------------------------------------------------------------+
"""


def tables(*holders: tuple[int, str, int]) -> str:
    """Tables of a busy GPU whose memory these processes hold: pid, name, MiB."""
    rows = [
        f"|    0   N/A  N/A      {pid}      C   {name}    {mib}MiB |" for pid, name, mib in holders
    ]
    used = sum(mib for _, _, mib in holders) + 30
    filled = {"used": used, "processes": "\n".join(rows)}
    return "".join(TABLE.format(second=second, **filled) for second in range(0, 50, 2))


OLLAMA, TRAINING = (9921, "/usr/local/bin/ollama", 14880), (48770, "python", 9132)
TIGHT = "memory-tight/margin free-the-card"


@each(
    "holders, said, words",
    [
        ((OLLAMA, TRAINING), TIGHT, "stop or unload ollama (PID 9921, 14.5 GiB)"),
        (((1, "VLLM::EngineCore", 24000),), "good/ none", ""),
        (((1, "python", 24000),), "memory-tight/margin leave-a-margin", ""),
    ],
)
def test_who_holds_the_memory_of_a_full_gpu(
    holders: tuple[tuple[int, str, int], ...], said: str, words: str, judged: Judge
) -> None:
    summary = judged(tables(*holders))
    assert verdict_and_step(summary) == said, summary["evidence"]
    assert words in " ".join(summary["text"].split())


MEMORY = (
    "name, utilization.gpu [%], power.draw [W], power.limit [W], memory.used [MiB], "
    "memory.total [MiB]"
)


@each(
    "first, last, said, words",
    [
        (30000, 77000, "memory-tight/leak find-the-leak", "memory grew all the time"),
        # 79 to 99 % of the card, less than 20 points.
        (65000, 81000, "memory-tight/leak find-the-leak", "memory grew all the time"),
        (70000, 72000, "good/ none", ""),
    ],
)
def test_memory_that_grows_until_it_is_full(
    first: int, last: int, said: str, words: str, judged: Judge
) -> None:
    moments = []
    for number in range(181):
        used = first + (last - first) * number // 180
        moments.append([f"NVIDIA A100 80GB PCIe, 97 %, 270 W, 300 W, {used} MiB, 81920 MiB"])
    summary = judged(csv(MEMORY, moments, seconds=10))
    assert verdict_and_step(summary) == said, summary["evidence"]
    assert words in summary["text"]


CARD = "NVIDIA RTX A6000"
BUSY = f"{CARD}, 97 %, 288 W, 300 W, 39110 MiB, 49140 MiB"
UNUSED = f"{CARD}, 0 %, 22 W, 300 W, 17 MiB, 49140 MiB"
OTHER_JOB = f"{CARD}, 97 %, 280 W, 300 W, 9000 MiB, 49140 MiB"
SLOW_RANK = f"{CARD}, 98 %, 135 W, 300 W, 20000 MiB, 49140 MiB"


@each(
    "gpus, command, said",
    [
        ([BUSY, BUSY, BUSY, UNUSED], (), "good/ use-the-other-gpus"),
        # Two jobs of different size say nothing of the third card.
        ([BUSY, OTHER_JOB, UNUSED], (), "good/ none"),
        ([SLOW_RANK] * 4, (), "communication-bound/collectives fewer-bytes-between-gpus"),
    ],
)
def test_several_gpus_of_one_job_without_a_command(
    gpus: list[str], command: tuple[str, ...], said: str, judged: Judge
) -> None:
    summary = judged(csv(MEMORY, [gpus] * 60), *command)
    assert verdict_and_step(summary) == said, summary["evidence"]
