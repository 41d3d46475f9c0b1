"""What to change in a config on this machine, and what to say about the rest. Pure.

A proposal is a list of changes, each with its reason and its source, and of recommendations in
words. Nothing that changes the experiment is ever a change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gpusetup.configs import keys
from gpusetup.configs.config import Config, read_config, written
from gpusetup.configs.settings import NOTHING, in_words, name_of, truth, whole
from gpusetup.model.frozen import replace
from gpusetup.model.units import GIB
from gpusetup.plan.capacity import capacity
from gpusetup.tune import rules_batch, rules_machine
from gpusetup.tune.case import (
    MEASURED,
    Case,
    Facts,
    Option,
    Part,
    Proposal,
    Proposed,
    edits,
    facts_of,
)
from gpusetup.tune.fitting import card_of, fits_now
from gpusetup.tune.presets import G5, TIERS, cache_line, has_tables, tier
from gpusetup.tune.trainers import meant, trainer_in

__all__ = ["Facts", "Option", "Proposal", "edits", "facts_of", "propose"]

NOTHING_ASKED = Option()


def propose(config: Config, facts: Facts, option: Option = NOTHING_ASKED) -> Proposal:
    """Every rule's changes and words, in the file's order."""
    found = tuple(one for one in meant(config) if one[1].role not in keys.PLANS)
    case = Case(config=config, facts=facts, option=option, found=found)
    others = [
        part
        for rule in RULES
        for part in rule(case)
        if not (option.interrupted and isinstance(part, Proposed) and part.source != MEASURED)
    ]
    made = edits([part for part in others if isinstance(part, Proposed)])
    case = replace(case, changed=read_config(written(config, made), config.name))
    batch = () if option.interrupted and not option.measured else rules_batch.batch(case)
    parts = [*no_gpu(case), *batch, *others]
    stopped = rules_batch.cannot_fit(case)
    changes = [part for part in parts if isinstance(part, Proposed) and not stopped]
    return Proposal(
        changes=tuple(sorted(changes, key=lambda one: (one.edit.start, one.edit.text))),
        words=tuple(dict.fromkeys(part for part in parts if isinstance(part, str))),
        found=len(found),
        cannot_fit=stopped,
    )


# --- in words only ------------------------------------------------------------------------------


def experiment(case: Case) -> Iterator[Part]:
    """What would change the model, the loss or the data: never written."""
    preset = case.preset()
    if preset and preset.advice and case.option.measured is None:
        yield f"{preset.advice} ({preset.source})"
    named = [
        in_words(one.path)
        for one, _ in case.having(keys.MODEL, keys.LOSS, keys.LENGTH)
        if isinstance(one.path[-1], str)
    ]
    if named:
        yield f"Never written, because they change the experiment: {', '.join(named)}"


USERS = ("num_users", "n_users", "user_num")


def tables(case: Case) -> Iterator[Part]:
    """Whether a cache of user vectors stays on the GPU: `plan`'s arithmetic, else the tier's.

    A model that `plan` does not know is given half of the GPU.
    """
    card = card_of(case)
    if card is None or not has_tables(case.names()):
        return
    have = capacity(card.name, card.memory_bytes)
    numbers = {name_of(one.path): whole(one) or 0 for one in case.config.settings}
    users = next((numbers[name] for name in USERS if numbers.get(name)), 0)
    if cached := users * numbers.get("embedding_dim", 0):
        size = next((whole(one) for one, _ in case.having(keys.BATCH)), None)
        now = fits_now(case, size or 0)
        yield cache_line(cached, have, have - (now.total_gib or 0) * GIB if now else have / 2)
    else:
        kept = str(tier(have) != TIERS[-1][1]).lower()
        yield f"{tier(have)} a GPU: `use_cache: {kept}`; num_users counts the cache itself ({G5})"
    for one in case.config.settings:
        if name_of(one.path).startswith("freeze_") and truth(one):
            yield f"{in_words(one.path)}: what is frozen has neither gradients nor Adam's states"


CLIPS_ALONE = ("hf", "trl", "llama-factory", "axolotl", "unsloth", "trinity", "litgpt")
"""Trainers that clip at 1.0 where their config says nothing (transformers: `max_grad_norm`)."""


def unstable(case: Case) -> Iterator[Part]:
    """Clipping, warm-up and the rate, where the config clips nothing: never written."""
    rates = [in_words(one.path) for one, _ in case.having(keys.LEARNING_RATE)]
    clips = [one for one, _ in case.having(keys.CLIP) if one.text not in ("0", "0.0", *NOTHING)]
    inner = any("clip" in str(part) for one in case.config.settings for part in one.path)
    trainer = trainer_in(case.config)
    clipped = trainer is not None and trainer.name in CLIPS_ALONE
    if rates and not clips and not inner and not clipped:
        yield (
            "If the loss jumps or becomes NaN: clip gradients at 1.0, warm up over 3 to 10 % of the"
            f" updates, then lower {rates[0]}; each changes the experiment (acceleration guide)"
        )


def rollout(case: Case) -> Iterator[Part]:
    """Reinforcement learning: the batch is part of the algorithm, the tokens on a GPU are not."""
    if not any(True for _ in case.having(keys.ROLLOUT)):
        return
    micro = [one for one, key in case.having(keys.BATCH) if key.source == keys.TRINITY]
    dynamic = [one for one in case.config.settings if name_of(one.path) == "use_dynamic_bsz"]
    by = "max_token_len_per_gpu and sequence parallelism"
    if micro and any(truth(one) is False for one in dynamic):
        by = " and ".join(in_words(one.path) for one in micro[:2])
    yield (
        "The batch of a reinforcement-learning run is part of the algorithm: left as it is."
        f" Memory is set by {by}: `gpusetup plan`"
    )


def several_gpus(case: Case) -> Iterator[Part]:
    if case.facts.gpus > 1:
        yield (
            f"{case.facts.gpus} GPUs: start one process each (`torchrun --nproc-per-node"
            f" {case.facts.gpus} ...`); DataParallel divides the loader's batch and gathers on one"
        )


def no_gpu(case: Case) -> Iterator[Part]:
    if not case.facts.gpus:
        yield "No NVIDIA GPU is visible here: only what depends on the CPU was looked at"


RULES: tuple[Callable[[Case], Iterator[Part]], ...] = (
    rules_machine.workers,
    rules_machine.other_workers,
    rules_machine.pinning,
    rules_machine.loader_details,
    rules_machine.precision,
    rules_machine.compiling,
    rules_machine.without_key,
    rules_machine.allocator,
    rollout,
    unstable,
    experiment,
    tables,
    several_gpus,
)
"""All but the batch, which is judged by the config as these leave it."""
