"""What nvidia-smi printed of memory and of several GPUs: who holds it, leaks, ranks that wait."""

from __future__ import annotations

import json
from random import Random

from each_row import each
from monitor_composer import RTX4090, TRAIN, Gpu, Tree, compose
from replayed import Judge, csv, verdict_and_step

from gpusetup.model.frozen import replace
from gpusetup.monitor.documents import ProcessUse
from gpusetup.monitor.run import RunTally
from gpusetup.monitor.summary import UNJUDGED, summarise

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
        ((OLLAMA, TRAINING), TIGHT, "Stop or unload ollama (PID 9921, 14.5 GiB)"),
        (
            (OLLAMA, (1, "python", 5000)),
            "good/ see-whose-they-are",
            "not the job's: ollama (PID 9921, 14.5 GiB)",
        ),
        (((1, "python3", 14880), TRAINING), TIGHT, "python (PID 48770, 8.9 GiB) share GPU 0"),
        (((1, "/opt/game/Game.x86", 15000), (2, "blender", 9000)), TIGHT, "unload blender (PID 2"),
        (((1, "VLLM::EngineCore", 24000),), "good/ none", ""),
        (((1, "VLLM::EngineCore", 23500), (2, "python", 500)), "good/ none", ""),
        (((1, "python", 24000),), "memory-tight/margin leave-a-margin", ""),
        (
            ((31, "python3", 9000), (48, "python", 8000)),
            "good/ see-whose-they-are",
            "python3 (PID 31, 8.8 GiB) and python (PID 48, 7.8 GiB) share GPU 0",
        ),
    ],
)
def test_who_holds_the_memory_of_a_full_gpu(
    holders: tuple[tuple[int, str, int], ...], said: str, words: str, judged: Judge
) -> None:
    summary = judged(tables(*holders))
    assert verdict_and_step(summary) == said, summary["evidence"]
    assert words in summary["text"]


@each(
    "command, said",
    [
        (TRAIN, "memory-tight/margin free-the-card"),
        ("ollama serve", "good/ none"),
    ],
)
def test_a_server_beside_a_command_that_is_watched(command: str, said: str) -> None:
    """In a record of our own, with the processes that NVML tells."""
    holders = (
        ProcessUse(pid=4000, name="python", kind="compute", memory_bytes=9 << 30),
        ProcessUse(pid=9921, name="ollama", kind="compute", memory_bytes=14 << 30),
    )
    run = compose(Random(1), [Gpu(use=97, memory=98)], Tree(), card=RTX4090, command=command)
    samples = []
    for sample in run.samples:
        gpu = replace(sample.gpus[0], processes=holders)
        samples.append(replace(sample, gpus=(gpu,)))
    summary = summarise(RunTally(samples), replace(UNJUDGED, command=run.command))
    step = summary.next.id if summary.next else "none"
    assert f"{summary.verdict}/{summary.cause} {step}" == said, summary.evidence
    if summary.next:
        assert summary.next.text.startswith("Stop or unload ollama (PID 9921, 14.0 GiB)")


MEMORY = (
    "name, utilization.gpu [%], power.draw [W], power.limit [W], memory.used [MiB], "
    "memory.total [MiB]"
)


@each(
    "first, last, said, words",
    [
        (30000, 77000, "memory-tight/leak find-the-leak", "full in"),
        (30000, 57000, "memory-tight/leak find-the-leak", "at this rate it is full in 28 min"),
        (20000, 40000, "good/ find-the-leak", "at this rate it is full in 63 min; a leak?"),
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


SPIN = (
    "name, utilization.gpu [%], utilization.memory [%], power.draw [W], power.limit [W], "
    "temperature.gpu, clocks.sm [MHz]"
)
WORKS = "NVIDIA A100-SXM4-80GB, 97 %, 45 %, 385 W, 400 W, 60, 1410"


CARD = "NVIDIA RTX A6000"
BUSY = f"{CARD}, 97 %, 288 W, 300 W, 39110 MiB, 49140 MiB"
UNUSED = f"{CARD}, 0 %, 22 W, 300 W, 17 MiB, 49140 MiB"
OTHER_JOB = f"{CARD}, 97 %, 280 W, 300 W, 9000 MiB, 49140 MiB"
SLOW_RANK = f"{CARD}, 98 %, 135 W, 300 W, 20000 MiB, 49140 MiB"


@each(
    "gpus, command, said",
    [
        ([BUSY, BUSY, BUSY, UNUSED], (), "uneven/unused use-the-other-gpus"),
        ([BUSY, BUSY, BUSY, UNUSED], ("torchrun", "train.py"), "uneven/unused use-the-other-gpus"),
        # Half of the machine may be somebody else's: the step asks whose they are.
        ([BUSY, BUSY, UNUSED, UNUSED], (), "good/ use-the-other-gpus"),
        ([BUSY, UNUSED], (), "good/ use-the-other-gpus"),
        # Two jobs of different size say nothing of the third card.
        ([BUSY, OTHER_JOB, UNUSED], (), "good/ none"),
        ([BUSY, BUSY, BUSY, UNUSED.replace(CARD, "NVIDIA T400")], (), "good/ none"),
        ([SLOW_RANK] * 4, (), "communication-bound/collectives fewer-bytes-between-gpus"),
        ([SLOW_RANK], (), "launch-bound/kernels larger-work"),
    ],
)
def test_several_gpus_of_one_job_without_a_command(
    gpus: list[str], command: tuple[str, ...], said: str, judged: Judge
) -> None:
    summary = judged(csv(MEMORY, [gpus] * 60), *command)
    assert verdict_and_step(summary) == said, summary["evidence"]
    if "unused" in said:
        assert f"did nothing (GPU {len(gpus) - 1})" in summary["next"]["text"]


SHARED = ((2214, "/home/u/venv/bin/python", 9874), (1873, "VLLM::EngineCore", 10018))


def test_two_programs_on_one_gpu_share_it_and_their_owner_is_asked(judged: Judge) -> None:
    for text in (tables(*SHARED), tables(*SHARED).partition("\n\n")[0]):
        summary = judged(text)
        assert verdict_and_step(summary) == "good/ see-whose-they-are", summary["evidence"]
        assert "nothing slows it down" not in summary["evidence"]
        assert "2 processes share GPU 0" in summary["evidence"]
        # The notes do not list them again.
        assert not any("processes" in note for note in summary["notes"])
        for words in ("PID 2214", "PID 1873", "Are all of them yours?"):
            assert words in summary["next"]["text"]


@each(
    "share_of_the_server, said",
    [(None, "good/ see-whose-they-are"), (0, "good/ none"), (45, "throttled/others free-the-card")],
)
def test_a_server_that_is_known_to_rest_takes_no_part_of_the_gpu(
    share_of_the_server: int | None, said: str, judged: Judge
) -> None:
    processes = [
        {"pid": 1, "name": "python", "memory_bytes": 9 << 30, "sm_percent": 90},
        {"pid": 2, "name": "ollama", "memory_bytes": 9 << 30, "sm_percent": share_of_the_server},
    ]
    gpu = {
        "index": 0,
        "utilization_percent": 97,
        "memory_used_bytes": 18 << 30,
        "memory_total_bytes": 24 << 30,
        "processes": processes,
    }
    head = {"schema": "gpusetup.monitor/1", "kind": "sample", "at": ""}
    lines = [json.dumps({**head, "seconds": second, "gpus": [gpu]}) for second in range(40)]
    summary = judged("\n".join(lines) + "\n")
    assert verdict_and_step(summary) == said, summary["evidence"]


TURNS = "name, utilization.gpu [%], memory.used [MiB], memory.total [MiB]"


@each("gpus, place", [(1, ""), (2, "in each process"), (8, "in each process")])
def test_loader_workers_are_counted_for_each_process(gpus: int, place: str, judged: Judge) -> None:
    uses = [45, 41, 48, 52] * 30
    moments = [[f"NVIDIA H100 80GB HBM3, {use}, 60000, 81559"] * gpus for use in uses]
    summary = judged(csv(TURNS, moments))
    assert verdict_and_step(summary) == "input-starved/short-pieces help-the-host", summary[
        "evidence"
    ]
    # The log does not tell the machine's cores.
    assert "num_workers=4 " in summary["next"]["text"]
    assert place in summary["next"]["text"]
    assert place or "each process" not in summary["next"]["text"]


LOADING = (
    "utilization.gpu [%], command.cpu [%], command.busiest_cpu [%], command.loader_workers, "
    "command.input [MB/s], command.read [MB/s], command.cores"
)


@each("gpus, cores, workers", [(1, 64, 16), (8, 64, 8), (2, 64, 16), (8, 4, 1)])
def test_processes_share_the_cores_that_are_known(
    gpus: int, cores: int, workers: int, judged: Judge
) -> None:
    row = f"45, 200, 100, 0, 90, 90, {cores}"
    summary = judged(csv(LOADING, [[row] * gpus] * 60))
    assert summary["next"]["id"] == "load-with-workers", summary["evidence"]
    assert f"num_workers={workers}," in summary["next"]["text"]
