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
    Part("plan", 75, "plan beside what a training allocates"),
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
    doubt(2, "two simultaneous runs of verify on one card cause no false alarm and leave each "
          "other enough memory", "suspicions", anywhere=True),
    doubt(3, "nothing computes on the card 3 s after SIGTERM ended verify", "suspicions",
          anywhere=True),
    doubt(4, "copies between GPUs are measured by one rank alone", "verify",
          needs="several GPUs and torchrun"),
    doubt(5, "a batch step of Slurm is not taken for a rank", "verify", needs="Slurm"),
    doubt(6, "ranks that start late still meet over NCCL", "verify", needs="several GPUs"),
    doubt(7, "the driver refuses a request for more memory than the card has, and the card "
          "continues to compute", "verify", "out-of-memory"),
    doubt(8, "convolutions are correct in every number format that training uses", "verify",
          "images"),
    doubt(9, "verify judges float32 correctly with TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=1",
          "suspicions", anywhere=True),
    doubt(10, "compiling leaves at most one worker process running", "suspicions", anywhere=True),
    doubt(11, "Triton compiles for this card, or gpusetup gives the right advice", "verify",
          "compile"),
    doubt(12, "torch finds as many GPUs as CUDA can compute on", "readings"),
    doubt(13, "after a CUDA error that breaks a process, the next check gets a new process",
          "verify"),
    doubt(14, "tune measures the same samples per second as a plain loop", "suspicions"),
    doubt(15, "the resident memory with float16 and a scaler includes the optimizer's states",
          "tune"),
    doubt(16, "the memory in use is the same as in nvidia-smi, without the driver's reserve",
          "readings"),
    doubt(17, "recover_from_oom takes a DDP model of old torch", "tune",
          needs="torch 1.13 to 2.2"),
    doubt(18, "no check alarms where no temporary folder is writable", "verify",
          needs="a read-only system (decided without a card)"),
    doubt(19, "a check that hangs shows its stack", "verify",
          needs="a check that hangs (decided without a card)"),
    doubt(20, "standard ends within two minutes on a sound card", "verify"),
    doubt(21, "stress loads all GPUs at the same time", "verify", needs="several GPUs"),
    doubt(22, "the speed under stress equals that of the speed check, apart from the power limit",
          "verify"),
    doubt(23, "three runs in a row cause no alarm when verify compares them with a saved run",
          "suspicions"),
    doubt(24, "verify judges runs with and without cuDNN by their own precision settings", "verify",
          "images", "float32-modes"),
    doubt(25, "flash attention and memory-efficient attention are available and correct", "verify",
          "masks"),
    doubt(26, "the memory check frees all its memory", "verify", "memory"),
    doubt(27, "utilisation is that of the card in use under torch 1.13", "tune",
          needs="torch 1.13 and two GPUs"),
    doubt(28, "a new process trains on with the size that tune found, within the same limit",
          "tune"),
    doubt(29, "compiling takes less time than the limit of a trial", "suspicions"),
    doubt(30, "loader workers that have ended keep no device node open", "suspicions",
          anywhere=True),
    doubt(31, "collectives over NCCL are exact", "verify", needs="several GPUs"),
    doubt(32, "little shared memory is named as the cause by its own words", "verify",
          needs="several GPUs and a small /dev/shm"),
    doubt(33, "the speed is stable under load, and NVML reports what limits it", "verify", "load"),
    doubt(34, "a program on a nearly full card survives running out of memory", "suspicions",
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
    doubt(42, "CUDA and torch find the same cards", "readings"),
    doubt(43, "8-bit products are judged right on AMD", "verify", needs="an AMD MI300"),
    doubt(44, "verify --level quick takes about as long as importing torch", "verify"),
)  # fmt: skip

DOCS = (
    Known("readings-match", "doctor and snapshot read the same values as nvidia-smi and torch",
          "readings"),
    Known("doctor-clean", "doctor reports no fault on a healthy machine", "readings"),
    Known("node-check", "fleet check passes on a healthy node", "readings"),
    Known("verify-quick", "verify --level quick passes on a healthy card", "verify", anywhere=True),
    Known("verify-standard", "verify --level standard passes on a sound card", "verify",
          anywhere=True),
    Known("verify-stress", "verify --level stress passes on a healthy card", "verify",
          anywhere=True),
    Known("clean-runs", "other random numbers cause no false alarm", "clean", anywhere=True),
    Known("clean-distance",
          "the error of each known result is below half of its limit, and the worst of many "
          "errors is below the limit",
          "clean", anywhere=True),
    Known("shared-card", "a second process on the card causes no false alarm", "verify",
          anywhere=True),
    Known("plan-error", "plan predicts the memory of a GPT's training step within 15 %", "plan"),
    Known("tune-batch",
          "tune --batch-size finds a size that runs, and a size 10 % larger does not run",
          "tune", anywhere=True),
    Known("recover-exact", "recover_from_oom returns the gradient of the whole batch", "tune",
          anywhere=True),
    Known("oom-survived", "the GPU can compute again after memory ran out", "tune"),
    Known("monitor-verdicts", "monitor recognises the kind of each known workload", "monitor"),
    Known("monitor-figures", "monitor shows the same figures as nvidia-smi in the same seconds",
          "monitor"),
    Known("monitor-cost", "monitor uses less than 5 % of a core", "monitor"),
)  # fmt: skip

ALL = (*DOCS, *DOUBTS)


def of_part(part: str) -> tuple[Known, ...]:
    return tuple(each for each in ALL if each.part == part)
