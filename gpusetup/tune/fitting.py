"""What `plan` says of this very config on this card: unmeasured, only it may raise a batch."""

from __future__ import annotations

from gpusetup.configs.settings import name_of, names_in
from gpusetup.errors import GpuSetupError
from gpusetup.plan.config import question_of
from gpusetup.plan.verdict import BatchVerdict, Card, batch_verdict, memory_table
from gpusetup.tune.case import Case

BY_PLAN = "`gpusetup plan --from-config`"


def fits_now(case: Case, size: int) -> BatchVerdict | None:
    """Of the batch that stands there; None where plan knows too little, or of another batch."""
    card = card_of(case)
    try:
        asked = question_of(case.config)
        if (
            card is None
            or asked.per_gpu != size
            or asked.notes
            or elsewhere(case)
            or more_than_counted(case)
        ):
            return None
        found = batch_verdict(case.config, size, card)
    except GpuSetupError:
        return None
    return None if found.verdict == "unknown" else found


def cannot_fit(case: Case) -> tuple[BatchVerdict, str] | None:
    """The verdict on one sample and where its memory goes, where not even that one fits, whatever
    the other changes save."""
    card = card_of(case)
    try:
        card = None if elsewhere(case) else card
        config = case.changed or case.config
        found = batch_verdict(config, 1, card, short=True) if card else None
        if card is None or found is None or found.verdict != "too much":
            return None
        return found, memory_table(config, 1, card)
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


OTHER_FILES = ("deepspeed", "deepspeed_config", "deepspeed_config_file", "fsdp_config", "_base_")


PREFERENCE = frozenset((
    "beta", "pref_beta", "loss_type", "precompute_ref_log_probs", "ref_model", "reference_free",
    "rpo_alpha", "desirable_weight", "max_prompt_length", "num_generations", "reward_funcs",
    "num_generations_per_prompt",
))  # fmt: skip
"""Names of preference training, whose pairs, references and generations the plan does not count."""


def more_than_counted(case: Case) -> bool:
    return bool(names_in(case.config.settings) & PREFERENCE)


def elsewhere(case: Case) -> bool:
    """Whether another file says how the model is sharded or offloaded, or what stands below."""
    return any(name_of(one.path) in OTHER_FILES and "." in one.text for one in case.config.settings)


def largest_clear(case: Case, effective: int) -> int | None:
    """The largest divisor of the effective batch that `plan` calls clear, for the config as the
    other changes leave it."""
    card = card_of(case)
    if card is None:
        return None
    sizes = [size for size in range(effective, 0, -1) if effective % size == 0]
    config = case.changed or case.config
    for size in sizes:
        steps = effective // size
        if batch_verdict(config, size, card, accumulate=steps).verdict == "clear":
            return size
    return None
