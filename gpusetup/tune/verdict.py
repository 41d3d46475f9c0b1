"""What `plan` says about a config's batch on this card. Pure functions."""

from __future__ import annotations

from gpusetup.configs.config import Config
from gpusetup.configs.settings import EMPTY, Setting, name_of, names_in, switch_value, unquoted
from gpusetup.errors import GpuSetupError
from gpusetup.plan.batch_verdict import BatchVerdict, batch_verdict, ways_to_fit
from gpusetup.plan.config import question_of
from gpusetup.plan.place import Place
from gpusetup.tune.case import ConfigCase, label

BY_PLAN = "`gpusetup plan --from-config`"
MOST_WAYS = 3


def verdict_on(case: ConfigCase, size: int, steps: int | None = None) -> BatchVerdict | str:
    """plan's verdict on a batch of `size` samples on a GPU; a text is the reason why plan cannot
    judge it.

    `steps`: the accumulation steps of another split of the batch, judged with the other rules'
    changes, together with which it would be written. None: the config as its owner wrote it.
    """
    config = case.config if steps is None else case.tuned or case.config
    if case.facts.card is None:
        return "the memory of the GPU is not known"
    elsewhere = sharded_elsewhere(case)
    if elsewhere:
        return elsewhere
    try:
        from_config = question_of(config)
        question = from_config.question
        if question.model is None and question.params is None:
            return "it names no model that plan knows"
        if steps is None and from_config.per_gpu is None:
            return "its batch may be that of all GPUs together"
        if steps is None and from_config.per_gpu != size:
            return "it holds several batches"
        return batch_verdict(config, size, case.facts.card, accumulate=steps)
    except GpuSetupError as problem:
        return problem.message


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


def how_to_fit(config: Config, card: Place) -> str:
    """A sentence with up to three ways to make one sample fit, those that save most first."""
    ways = ways_to_fit(config, card)[:MOST_WAYS]
    if not ways:
        return f"{BY_PLAN} says what saves most"
    return f"The model fits with one of these: {'; '.join(ways)}"


# --- settings in other files ----------------------------------------------------------------------

DEEPSPEED_JSON = ("zero_optimization", "train_micro_batch_size_per_gpu")
"""Keys that occur only in DeepSpeed's JSON config."""
DEEPSPEED_KEYS = ("deepspeed", "deepspeed_config", "deepspeed_config_file")
"""Keys that refer to DeepSpeed's settings; the value is a file, the name of a preset, or `true`."""


def batch_fixed_by(config: Config) -> str | None:
    """Why the batch and precision of a config must not change; None if they may.

    For example, transformers refuses to start if a config and its DeepSpeed JSON differ.
    """
    is_deepspeed_json = not names_in(config.settings).isdisjoint(DEEPSPEED_JSON)
    for setting in config.settings:
        text = unquoted(setting.text)
        if is_deepspeed_json and text == "auto":
            return f"{label(setting)} is auto: the trainer's own config sets the value"
        if name_of(setting.path) in DEEPSPEED_KEYS and _names_settings(setting):
            return (
                f"DeepSpeed's own configuration, {label(setting)}, sets a batch and a precision "
                "too: change both by hand"
            )
    return None


def sharded_elsewhere(case: ConfigCase) -> str | None:
    """A sentence that names the other file that decides how the model is sharded; None if no
    setting refers to such a file."""
    for setting in case.with_name(*DEEPSPEED_KEYS, "fsdp_config"):
        if _names_settings(setting):
            return f"{label(setting)} leaves to another file how the model is sharded"
    return None


def _names_settings(setting: Setting) -> bool:
    """Whether a value refers to settings elsewhere, rather than containing them as a map."""
    is_plain = setting.kind in ("scalar", "alias")
    return is_plain and setting.text not in EMPTY and switch_value(setting) is not False
