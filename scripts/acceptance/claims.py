"""What only a card can decide: the sentences of the documentation, and 44 doubts about the code.

A test of the same part decides each (`claim`), but those that need another machine than one with
one data-centre card: these are named here with what they need.
"""

from __future__ import annotations

from typing import NamedTuple


class Part(NamedTuple):
    """One part of the acceptance: a file of tests."""

    name: str
    seconds: float
    """Its limit in a run of the usual length."""
    what: str
    extra: bool = False
    """Runs by its name only, or where the minutes leave room."""


PARTS = (
    Part("readings", 20, "doctor, snapshot, resolve and fleet check, beside nvidia-smi and torch"),
    Part("verify", 150, "verify: quick, standard, stress under load, and a shared card"),
    Part("clean", 80, "the numeric checks with other seeds: no failure, and how near"),
    Part("plan", 75, "plan beside what five trainings allocate"),
    Part("tune", 125, "tune --batch-size beside a tenth more; out of memory survived"),
    Part("monitor", 90, "monitor on six workloads of known kind"),
    Part("suspicions", 130, "what reading the code made doubtful, tried", extra=True),
)


class Known(NamedTuple):
    """One sentence, the part that decides it, and what it needs beside one data-centre card."""

    id: str
    text: str
    part: str
    needs: str = ""
    checks: tuple[str, ...] = ()
    """The checks of verify that decide it by themselves."""
    anywhere: bool = False
    """Whether a CPU can refute it too: a rehearsal in which it fails is no good rehearsal."""


def doubt(
    number: int, text: str, part: str, *checks: str, needs: str = "", anywhere: bool = False
) -> Known:
    # A check of verify passes on a sound CPU as on a sound card.
    return Known(f"doubt-{number}", text, part, needs, checks, anywhere or bool(checks))


DOUBTS = (
    doubt(1, "AMP is tried in the format that the card computes in", "tune",
          needs="a GPU before 8.0"),
    doubt(2, "two runs of verify on one card raise no alarm and take no memory from each other",
          "suspicions", anywhere=True),
    doubt(3, "nothing computes on the card 3 s after verify was ended by SIGTERM", "suspicions",
          anywhere=True),
    doubt(4, "copies between GPUs are measured by one rank alone", "verify",
          needs="several GPUs and torchrun"),
    doubt(5, "a batch step of Slurm is not taken for a rank", "verify", needs="Slurm"),
    doubt(6, "ranks that start late still meet over NCCL", "verify", needs="several GPUs"),
    doubt(7, "more memory than there is is refused by the driver, and computing goes on", "verify",
          "out-of-memory"),
    doubt(8, "convolutions are right in every format that training uses", "verify", "operators"),
    doubt(9, "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=1 leaves the judgement of float32 right",
          "suspicions", anywhere=True),
    doubt(10, "compiling leaves at most one worker process behind", "suspicions", anywhere=True),
    doubt(11, "Triton compiles for this card, or the advice is the right one", "verify", "compile"),
    doubt(12, "torch counts as many GPUs as CUDA computes on", "readings"),
    doubt(13, "after a CUDA error that spoils its process the next check has a new one", "verify"),
    doubt(14, "samples a second of tune are those of a plain loop", "suspicions"),
    doubt(15, "the resident memory with float16 and a scaler holds the optimizer's states",
          "tune"),
    doubt(16, "memory in use is what nvidia-smi shows, without the driver's reserve", "readings"),
    doubt(17, "recover_from_oom takes a DDP model of old torch", "tune",
          needs="torch 1.13 to 2.2"),
    doubt(18, "no check alarms where no temporary folder is writable", "verify",
          needs="a read-only system (decided without a card)"),
    doubt(19, "a check that hangs shows its stack", "verify",
          needs="a check that hangs (decided without a card)"),
    doubt(20, "standard ends within two minutes on a sound card", "verify"),
    doubt(21, "stress loads all GPUs at the same time", "verify", needs="several GPUs"),
    doubt(22, "the rate under stress is that of the speed check, less what the power limit takes",
          "verify"),
    doubt(23, "three runs in a row raise no alarm against a kept one", "suspicions"),
    doubt(24, "cuDNN in IEEE and without cuDNN are each judged by their own setting", "verify",
          "operators", "float32-modes"),
    doubt(25, "flash and memory-efficient attention are there and right", "verify", "operators"),
    doubt(26, "the memory check gives everything back", "verify", "memory"),
    doubt(27, "utilisation is that of the card in use under torch 1.13", "tune",
          needs="torch 1.13 and two GPUs"),
    doubt(28, "a new process trains on with the size that tune found, within the same limit",
          "tune"),
    doubt(29, "compiling takes less than the limit of a trial", "suspicions"),
    doubt(30, "ended loader workers keep no device node open", "suspicions", anywhere=True),
    doubt(31, "collectives over NCCL are exact", "verify", needs="several GPUs"),
    doubt(32, "little shared memory is named as the cause by its own words", "verify",
          needs="several GPUs and a small /dev/shm"),
    doubt(33, "the rate holds under load, and NVML says what held it", "verify", "load"),
    doubt(34, "running out of memory is survived on a nearly full card", "suspicions",
          anywhere=True),
    doubt(35, "spilling into host memory is noticed", "tune", needs="Windows or WSL"),
    doubt(36, "the memory limit of an old control group is read", "verify", needs="cgroup v1"),
    doubt(37, "a MIG instance is named by its own UUID", "readings", needs="MIG"),
    doubt(38, "ranks find each other when the next port is taken", "verify",
          needs="several nodes"),
    doubt(39, "an unwritable report is said before the first check", "verify",
          needs="nothing of a card (decided without one)"),
    doubt(40, "a closed stdout is no sign of a bad card", "verify",
          needs="nothing of a card (decided without one)"),
    doubt(41, "one odd byte of NVML costs one fact", "readings", needs="a card with a broken name"),
    doubt(42, "a card is seen by CUDA and by torch's count alike", "readings"),
    doubt(43, "8-bit products are judged right on AMD", "verify", needs="an AMD MI300"),
    doubt(44, "verify quick takes about as long as importing torch", "verify"),
)  # fmt: skip

DOCS = (
    Known("readings-match", "doctor and snapshot read what nvidia-smi and torch say", "readings"),
    Known("doctor-clean", "doctor calls a sound machine sound", "readings"),
    Known("node-check", "fleet check passes a sound node", "readings"),
    Known("verify-quick", "verify --level quick passes on a sound card", "verify", anywhere=True),
    Known("verify-standard", "verify --level standard passes on a sound card", "verify",
          anywhere=True),
    Known("verify-stress", "verify --level stress passes on a sound card", "verify",
          anywhere=True),
    Known("clean-runs", "other random numbers raise no alarm", "clean", anywhere=True),
    Known("clean-distance",
          "each known answer stays below half of its limit, the worst of many figures below it",
          "clean", anywhere=True),
    Known("shared-card", "a second process on the card makes nothing look wrong", "verify",
          anywhere=True),
    Known("plan-code-error", "plan --code is within 10 % of the allocator's peak", "plan"),
    Known("plan-error", "plan is within 15 % of a GPT's step", "plan"),
    Known("tune-batch", "tune --batch-size finds a size that runs, and a tenth more does not",
          "tune", anywhere=True),
    Known("recover-exact", "recover_from_oom gives the whole batch's gradient", "tune",
          anywhere=True),
    Known("oom-survived", "computing goes on after memory ran out", "tune"),
    Known("monitor-verdicts", "monitor names the kind of each known workload", "monitor"),
    Known("monitor-figures", "monitor's figures are those of nvidia-smi in the same seconds",
          "monitor"),
    Known("monitor-cost", "monitor takes less than 5 % of a core", "monitor"),
)  # fmt: skip

ALL = (*DOCS, *DOUBTS)


def of_part(part: str) -> tuple[Known, ...]:
    return tuple(each for each in ALL if each.part == part)
