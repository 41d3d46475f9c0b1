"""Advice on settings that would change the experiment, such as the size of the network. The advice
is printed and never written into the config. Pure functions.

Network size, sequence length, loss, gradient clipping and learning rate affect what a model learns.
So gpusetup only shows what the guides advise for this card, and the user decides.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.configs.settings import EMPTY, name_of, switch_value, unquoted, whole_number
from gpusetup.model.units import MIB
from gpusetup.plan.batch_verdict import BatchVerdict
from gpusetup.tune.batch import plan_verdict
from gpusetup.tune.case import ConfigCase, Suggestion, config_word, label
from gpusetup.tune.marks import (
    SMALL_CARD_GB,
    card_of,
    has_memory,
    image_preset,
    plain_values,
    sequence_preset,
    training_of,
)

IMAGE_KEYS: tuple[tuple[str, str], ...] = (
    ("channels", "base_channels"),
    ("blocks", "num_blocks"),
    ("patch", "patch_size"),
    ("perceptual", "use_perceptual"),
)
"""Role of a key -> the optimisation guide's name for it."""
SEQUENCE_KEYS: tuple[tuple[str, str], ...] = (
    ("hidden", "hidden_size"),
    ("layers", "num_layers"),
    ("dropout", "dropout"),
)
"""Role of a key -> the acceleration guide's name for it."""


def network_size(case: ConfigCase) -> Iterator[Suggestion]:
    """Compare the config's network sizes with those that the guide advises for this card."""
    memory_bytes, training = case.facts.memory_bytes, training_of(case)
    if not memory_bytes or training not in ("images", "sequences"):
        return
    preset, keys = sequence_preset(memory_bytes), SEQUENCE_KEYS
    cards = preset.card
    if training == "images":
        preset, keys = image_preset(memory_bytes), IMAGE_KEYS
        cards = card_of(case, preset)
    comparisons = []
    for role, guide_key in keys:
        for setting in plain_values(case, role):
            current = unquoted(setting.text)[:40]
            # A reference to another setting (`!ref <width>`, `${width}`) cannot be compared.
            if not current.startswith(("!", "$", "<", "&", "*")):
                comparisons.append(
                    f"{name_of(setting.path)} {preset.values.get(guide_key)} "
                    f"(yours: {current}, line {setting.line})"
                )
    if comparisons:
        yield (
            f"On {cards}, the {preset.guide} starts with {', '.join(comparisons)}. Each of these "
            "is another experiment, so gpusetup never writes them. `gpusetup tune --preset "
            f"{preset.name}` shows the whole config"
        )


LEAST_LENGTH, MOST_LENGTH = 128, 256
"""The sequence lengths, in tokens, that the set-up guide advises for a laptop with 4 GB."""


def sequence_length(case: ConfigCase) -> Iterator[Suggestion]:
    """Advise shorter sequences on a card with less than 5 GB."""
    memory_bytes = case.facts.memory_bytes
    if not memory_bytes or has_memory(memory_bytes, SMALL_CARD_GB):
        return
    next_step = ""
    if isinstance(plan_verdict(case, 1, steps=1), BatchVerdict):
        command = f"gpusetup plan --from-config {config_word(case)} --context {MOST_LENGTH}"
        next_step = f"; `{command}` says what it saves"
    for setting in plain_values(case, "length"):
        length = whole_number(setting)
        if length is not None and length > MOST_LENGTH:
            yield (
                f"{label(setting)} is {length}: on a card with 4 GB the set-up guide advises "
                f"sequences of {LEAST_LENGTH} to {MOST_LENGTH} tokens. A shorter length cuts "
                "texts, which is another experiment, so gpusetup never writes it"
                f"{next_step}"
            )


CLIP_AT = "1.0"
"""The optimisation guide's limit for the norm of the gradients."""


def unclipped_gradients(case: ConfigCase) -> Iterator[Suggestion]:
    """Advise gradient clipping where a setting switches it off."""
    for setting in plain_values(case, "clip"):
        text = unquoted(setting.text)
        try:
            is_off = text in EMPTY or switch_value(setting) is False or float(text) == 0
        except ValueError:
            is_off = False
        if is_off:
            yield (
                f"{label(setting)} is {setting.text.strip() or 'empty'}, so it does not clip "
                f"gradients. The optimisation guide clips at {CLIP_AT}, which keeps one bad batch "
                "from making the loss explode or NaN. Not written, because clipping changes the "
                "updates"
            )


BYTES_PER_NUMBER = 4
"""Bytes per number of an embedding in float32."""
CACHE_OFF_BELOW_GB = 4
"""On GPUs with less memory, the multi-GPU guide switches the cache off."""


def embedding_cache(case: ConfigCase) -> Iterator[Suggestion]:
    """Say how much memory a recommender's cache of embeddings takes, and whether the guide switches
    it on for this card."""
    memory_bytes, caches = case.facts.memory_bytes, case.with_role("cache")
    if not memory_bytes or not caches or training_of(case) != "recommender":
        return
    takes = "its users and numbers are not plain, so gpusetup does not know what it takes"
    users, widths = (
        [number for one in plain_values(case, role) if (number := whole_number(one) or 0) > 0]
        for role in ("users", "embedding-dim")
    )
    if users and widths:
        size_bytes = users[0] * widths[0] * BYTES_PER_NUMBER
        takes = (
            f"{users[0]:,} users of {widths[0]} numbers take {size_bytes / MIB:.1f} MiB, "
            f"{100 * size_bytes / memory_bytes:.1g} % of this GPU's memory"
        )
    is_small = not has_memory(memory_bytes, CACHE_OFF_BELOW_GB)
    switch, cards = ("off", "below 4 GB") if is_small else ("on", "with 4 GB or more")
    yield (
        f"{label(caches[0])}: {takes}. The cached mode (on) keeps the users' embeddings on each "
        "GPU, the dynamic mode (off) computes them for each batch. The multi-GPU guide switches "
        f"it {switch} for GPUs {cards}"
    )
