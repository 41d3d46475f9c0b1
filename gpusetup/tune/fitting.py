"""What `plan` says of this very config on this card: unmeasured, only it may raise a batch."""

from __future__ import annotations

from gpusetup.errors import GpuSetupError
from gpusetup.plan.config.clear import (
    BatchVerdict,
    Card,
    batch_verdict,
    least_verdict,
    memory_table,
)
from gpusetup.plan.config.question import question_of
from gpusetup.tune.case import Case

BY_PLAN = "`gpusetup plan --from-config`"


def fits_now(case: Case, size: int) -> BatchVerdict | None:
    """Of the batch that stands there; None where plan knows too little, or of another batch."""
    card = card_of(case)
    try:
        if card is None or question_of(case.config).per_gpu != size:
            return None
        found = batch_verdict(case.config, size, card)
    except GpuSetupError:
        return None
    return None if found.verdict == "unknown" else found


def cannot_fit(case: Case) -> tuple[BatchVerdict, str] | None:
    """The verdict on one sample and where its memory goes, where not even that one fits."""
    card = card_of(case)
    try:
        found = least_verdict(case.config, card) if card else None
        if card is None or found is None or found.verdict != "too much":
            return None
        return found, memory_table(case.config, 1, card)
    except GpuSetupError:
        return None


def card_of(case: Case) -> Card | None:
    facts = case.facts
    if not facts.memory_bytes:
        return None
    return Card(
        name=facts.gpu,
        memory_bytes=facts.memory_bytes,
        gpus=max(1, facts.gpus),
        linux=facts.family == "linux",
    )


def largest_clear(case: Case, effective: int) -> int | None:
    """The largest divisor of the effective batch that `plan` calls clear."""
    card = card_of(case)
    if card is None:
        return None
    sizes = [size for size in range(effective, 0, -1) if effective % size == 0]
    return next(
        (one for one in sizes if batch_verdict(case.config, one, card).verdict == "clear"), None
    )
