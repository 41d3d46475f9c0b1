"""What counts steps in a config, and what becomes of it when the micro-batch changes. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpusetup.configs.keys import not_training
from gpusetup.configs.settings import Setting, in_words, name_of, whole
from gpusetup.tune.case import Case, Part, written_over
from gpusetup.tune.trainers import Trainer, trainer_in

COUNTS = re.compile(
    r"(?ix) (?:max|min|num|total|train|warmup|decay|save|saving|eval|val|validation|checkpoint\w*"
    r"|ckpt|lr|limit|per|every|n|test|scheduler|cooldown|stable)s?_?(?:\w*_)?(?:steps?|iters?"
    r"|iterations?|batches|updates?)(?:_per_epoch|_ratio)?$"
    r"| ^(?:steps?|iters?|iterations?|steps_per_epoch|num_steps|T_max|step_size|milestones"
    r"|val_check_interval|val_interval|(?:eval|save|checkpoint)_(?:interval|every|freq)"
    r"|overfit_batches|by_epoch)$"
    r"| ^(?:eval|save)_every\w*$"
)
"""Names of what is counted in steps of some kind."""
NOT_COUNTED = re.compile(
    r"(?i)accum|micro|ratio|logging|log_|per_print|grad_|num_train_epochs|^limit_(?:val|test|predict)|sanity"
)


def counted(case: Case) -> Iterator[Setting]:
    """The settings whose number is a count of steps (0, -1, ratios and epochs are none)."""
    for one in case.config.settings:
        name = name_of(one.path)
        if not COUNTS.search(name) or NOT_COUNTED.search(name) or one.kind == "map":
            continue
        if any(isinstance(word, str) and not_training(word) for word in one.path[:-1]):
            continue
        number = whole(one)
        if one.kind == "list" or (number is not None and number > 0) or _per_step(name, one):
            yield one


def _per_step(name: str, one: Setting) -> bool:
    return name == "by_epoch" and one.text in ("False", "false")


def carried(
    case: Case, before: int, after: int, source: str, effective: tuple[int, int]
) -> tuple[list[Part], str | None]:
    """What counts micro-batches, changed with them; or why the change must not be made."""
    trainer = trainer_in(case.config) or Trainer(name="this trainer")
    parts: list[Part] = []
    for one in counted(case):
        name = name_of(one.path)
        if name in trainer.micro:
            refused = _scaled(case, one, before, after, trainer, source, parts)
            if refused:
                return [], refused
        elif trainer.steps == "unknown" and name not in trainer.updates:
            return [], (
                f"{in_words(one.path)} (line {one.line}) counts steps, and whether these are"
                " micro-batches or updates is not known here: change both by hand"
            )
        elif effective[0] != effective[1]:
            return [], (
                f"{in_words(one.path)} (line {one.line}) counts updates, and each would see"
                f" {effective[1]} samples instead of {effective[0]}"
            )
    return parts, None


def _scaled(
    case: Case, one: Setting, before: int, after: int, trainer: Trainer, source: str,
    parts: list[Part],
) -> str | None:  # fmt: skip
    """The same number of samples in other micro-batches; a sentence where that is no whole one."""
    samples = (whole(one) or 0) * before
    place = f"{in_words(one.path)} (line {one.line})"
    if not samples or samples % after:
        return f"{place} counts micro-batches, and {samples} samples are no whole number of {after}"
    why = f"it counts micro-batches: the same {samples} samples in pieces of {after}"
    found = list(written_over(case, one, str(samples // after), why, trainer.source or source))
    if any(isinstance(part, str) for part in found):
        return f"{place} counts micro-batches and cannot be changed in place"
    parts += found
    return None
