"""Asks `plan` whether a batch of this config fits on this card. Pure functions."""

from __future__ import annotations

from gpusetup.configs.config import Config
from gpusetup.configs.settings import names_in
from gpusetup.errors import GpuSetupError
from gpusetup.plan.batch_verdict import BatchVerdict, batch_verdict, ways_to_fit
from gpusetup.plan.config import question_of
from gpusetup.plan.place import Place
from gpusetup.tune.case import ConfigCase
from gpusetup.tune.refusals import sharded_elsewhere

BY_PLAN = "`gpusetup plan --from-config`"

PREFERENCE = frozenset((
    "beta", "pref_beta", "loss_type", "precompute_ref_log_probs", "ref_model", "reference_free",
    "rpo_alpha", "desirable_weight", "max_prompt_length", "num_generations", "reward_funcs",
    "num_generations_per_prompt",
))  # fmt: skip
"""Keys of preference or reinforcement training, whose method plan may not know."""


class CannotJudge(str):
    """The reason why `plan` cannot judge a config, as the end of a sentence."""


def plan_verdict(
    case: ConfigCase, size: int, steps: int | None = None
) -> BatchVerdict | CannotJudge:
    """plan's verdict on this batch size with this number of accumulation steps (None keeps the
    config's), or the reason why plan cannot judge it."""
    card = case.facts.card
    config = case.config if steps is None else case.tuned or case.config
    if card is None:
        return CannotJudge("the memory of the GPU is not known")
    elsewhere = sharded_elsewhere(case)
    if elsewhere:
        return CannotJudge(elsewhere)
    try:
        from_config = question_of(config)
        question = from_config.question
        preference_names = sorted(names_in(config.settings) & PREFERENCE)
        # If plan recognises the method, it counts the additional models.
        if preference_names and question.rl is None:
            return CannotJudge(
                f"`{preference_names[0]}` belongs to preference or reinforcement training, whose "
                "pairs, reference model and generations plan does not count"
            )
        if question.model is None and question.params is None:
            return CannotJudge("it names no model that plan knows")
        if from_config.notes:
            return CannotJudge("; ".join(from_config.notes))
        if steps is None and from_config.per_gpu is None:
            return CannotJudge("its batch may be that of all GPUs together")
        if steps is None and from_config.per_gpu != size:
            return CannotJudge("it holds several batches")
        return batch_verdict(config, size, card, accumulate=steps)
    except GpuSetupError as problem:
        return CannotJudge(problem.message)


def cannot_fit(case: ConfigCase) -> str | None:
    """A sentence that explains why not even one sample fits on this card; None if one may fit.

    The answer shows this sentence first.
    """
    card, config = case.facts.card, case.tuned or case.config
    if card is None or sharded_elsewhere(case) or case.measured.batch_size:
        return None
    try:
        verdict = batch_verdict(config, 1, card, any_length=True)
        if verdict.verdict != "too much" or verdict.may_fit_because:
            return None
        need = f"a single sample needs {verdict.total_gib:.1f} GiB"
        # No way to train needs less than the weights, whatever else a key saves.
        if verdict.weights_gib > verdict.capacity_gib:
            need = f"its weights alone take {verdict.weights_gib:.1f} GiB"
        return (
            f"With these settings, the model does not fit on this card: {need}, and the card has "
            f"{verdict.capacity_gib:.1f} GiB. {how_to_fit(config, card)}"
        )
    except GpuSetupError:
        return None


MOST_WAYS = 3


def how_to_fit(config: Config, card: Place, steps: int | None = None) -> str:
    """A sentence with up to three ways to make one sample fit, according to plan."""
    ways = ways_to_fit(config, card, steps)
    if not ways:
        return f"{BY_PLAN} says what saves most"
    # The ways that save the most come first.
    first_ways = "; ".join(ways[:MOST_WAYS])
    return f"The model fits with one of these: {first_ways}"
