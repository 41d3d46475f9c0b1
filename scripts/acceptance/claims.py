"""What only a card can decide: the sentences of the documentation, and doubts about the code.

Every one has a line in each evidence file, whether or not the run got to it. `checks` are the
checks of verify whose outcome decides a doubt by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from acceptance.values import FAILS, HOLDS, OPEN, STAND_IN, Claim


class Known(NamedTuple):
    """One sentence, and the part that decides it."""

    id: str
    text: str
    part: str
    source: str = ""
    checks: tuple[str, ...] = ()


def doubt(number: int, text: str, part: str, *checks: str) -> Known:
    return Known(f"doubt-{number}", text, part, f"doubt {number}", checks)


DOUBTS = (
    doubt(7, "more memory than there is is refused by the driver, and computing goes on", "verify",
          "out-of-memory"),
    doubt(8, "convolutions are right in every format that training uses", "verify", "convolution"),
    doubt(11, "Triton compiles for this card, or the advice is the right one", "verify", "compile"),
    doubt(12, "torch counts as many GPUs as CUDA computes on", "readings"),
    doubt(13, "after a CUDA error that spoils its process the next check has a new one", "mutants"),
    doubt(15, "the memory that stands under float16 with a scaler holds the optimizer's states",
          "tune"),
    doubt(16, "memory in use is what nvidia-smi shows, without the driver's reserve", "readings"),
    doubt(20, "standard ends within two minutes on a sound card", "verify"),
    doubt(22, "the rate under stress is that of the speed check", "verify"),
    doubt(24, "cuDNN in IEEE and without cuDNN are each judged by their own setting", "verify",
          "convolution", "float32-modes"),
    doubt(25, "flash and memory-efficient attention are there and right", "verify", "attention"),
    doubt(26, "the memory check gives everything back", "verify", "memory"),
    doubt(28, "reserved memory stays within the margin of what was allocated", "plan"),
    doubt(33, "the rate holds under load, and NVML says what held it", "verify", "load"),
    doubt(42, "a card is seen by CUDA and by torch's count alike", "readings"),
    doubt(44, "verify quick takes about as long as importing torch", "verify"),
)  # fmt: skip

DOCS = (
    Known("readings-match", "doctor and snapshot read what nvidia-smi and torch say", "readings",
          "docs/explanation/asking-the-driver.md"),
    Known("doctor-clean", "doctor calls a sound machine sound", "readings",
          "docs/explanation/asking-the-driver.md"),
    Known("node-check", "node-check passes a sound node", "node-check"),
    Known("verify-quick", "verify --level quick passes on a sound card", "verify",
          "docs/reference/verify-checks.md"),
    Known("verify-standard", "verify --level standard passes on a sound card", "verify",
          "docs/reference/verify-checks.md"),
    Known("verify-stress", "verify --level stress passes on a sound card", "verify",
          "docs/reference/verify-checks.md"),
    Known("clean-runs", "other random numbers raise no alarm", "clean",
          "docs/reference/verify-checks.md"),
    Known("clean-distance", "every value stays below half of its limit", "clean",
          "docs/reference/verify-checks.md"),
    Known("mutants-caught", "a card that computes wrongly is caught", "mutants",
          "docs/reference/verify-checks.md"),
    Known("shared-card", "a second process on the card makes nothing look wrong", "mutants",
          "docs/how-to/docker.md"),
    Known("plan-code-error", "plan --code is within 10 % of the allocator's peak", "plan",
          "docs/how-to/plan-your-own-code.md"),
    Known("plan-error", "plan is within 15 % of a GPT's step", "plan",
          "docs/explanation/memory-model.md"),
    Known("tune-batch", "tune --batch-size finds the size that bisection finds", "tune",
          "docs/how-to/tune.md"),
    Known("recover-exact", "recover_from_oom gives the whole batch's gradient", "tune",
          "docs/how-to/tune.md"),
    Known("oom-survived", "computing goes on after memory ran out", "tune", "docs/how-to/tune.md"),
    Known("monitor-verdicts", "monitor names the kind of each known workload", "monitor",
          "docs/how-to/monitor.md"),
    Known("monitor-figures", "monitor's figures are those of nvidia-smi dmon", "monitor",
          "docs/how-to/monitor.md"),
    Known("monitor-cost", "monitor takes less than 5 % of a core", "monitor",
          "docs/how-to/monitor.md"),
)  # fmt: skip

ALL = (*DOCS, *DOUBTS)


def claims_of(part: str, said: Iterable[Mapping[str, Any]], device: str) -> tuple[Claim, ...]:
    """A part's claims: what it said, and `open` where it did not come to one.

    >>> [c.verdict for c in claims_of("node-check", [], "cuda")]
    ['open']
    >>> [c.verdict for c in claims_of("node-check", [{"claim": "node-check",
    ...     "verdict": "holds", "figure": "0.3 s"}], "cpu")]
    ['stand-in']
    """
    answers = {line["claim"]: line for line in said}
    known = [_claim(each, answers.pop(each.id, None), device) for each in of_part(part)]
    others = [
        Claim(name, line.get("text") or name, _verdict(line["verdict"], device), line["figure"])
        for name, line in answers.items()
    ]
    return (*known, *others)


def of_part(part: str) -> tuple[Known, ...]:
    return tuple(each for each in ALL if each.part == part)


def _claim(known: Known, line: Mapping[str, Any] | None, device: str) -> Claim:
    if line is None:
        return Claim(known.id, known.text, OPEN, "the run did not come to it", known.source)
    verdict = _verdict(line["verdict"], device)
    return Claim(known.id, known.text, verdict, line["figure"], known.source)


def _verdict(verdict: str, device: str) -> str:
    decided = verdict in (HOLDS, FAILS)
    return STAND_IN if decided and not device.startswith("cuda") else verdict
