"""Advice on settings that would change the experiment, such as the size of the network. The advice
is printed and never written into the config. Pure functions.

Network size, sequence length, loss, gradient clipping and learning rate affect what a model learns.
So gpusetup only shows what the guides advise for this card, and the user decides.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.configs.settings import (
    EMPTY,
    Setting,
    name_of,
    switch_value,
    unquoted,
    whole_number,
)
from gpusetup.model.units import MIB
from gpusetup.plan.batch_verdict import BatchVerdict
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
from gpusetup.tune.verdict import plan_verdict

# --- the size of the network ----------------------------------------------------------------------

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
NEVER_WRITTEN = "Each of these is another experiment, so gpusetup never writes them"


def network_size(case: ConfigCase) -> Iterator[Suggestion]:
    """Compare the config's network sizes with those that the guide advises for this card."""
    memory_bytes = case.facts.memory_bytes
    if not memory_bytes:
        return
    training = training_of(case)
    if training == "images":
        preset, keys = image_preset(memory_bytes), IMAGE_KEYS
        cards = card_of(case, preset)
    elif training == "sequences":
        preset, keys = sequence_preset(memory_bytes), SEQUENCE_KEYS
        cards = preset.card
    else:
        return
    comparisons = []
    for role, guide_key in keys:
        for setting in plain_values(case, role):
            name, value = name_of(setting.path), preset.value(guide_key)
            current = unquoted(setting.text)[:40]
            # A reference to another setting (`!ref <width>`, `${width}`) cannot be compared.
            if current.startswith(("!", "$", "<", "&", "*")):
                continue
            comparisons.append(f"{name} {value} (yours: {current}, line {setting.line})")
    if comparisons:
        yield (
            f"On {cards}, the {preset.guide} starts with {', '.join(comparisons)}. "
            f"{NEVER_WRITTEN}. `gpusetup tune --preset {preset.name}` shows the whole config"
        )


# --- the length of a sequence ---------------------------------------------------------------------

SHORT_LENGTHS = (128, 256)
"""The range of sequence lengths, in tokens, that the set-up guide advises for a laptop with 4
GB."""


def sequence_length(case: ConfigCase) -> Iterator[Suggestion]:
    """Advise shorter sequences on a card with less than 5 GB."""
    memory_bytes = case.facts.memory_bytes
    if not memory_bytes or has_memory(memory_bytes, SMALL_CARD_GB):
        return
    least, most = SHORT_LENGTHS
    next_step = ""
    if isinstance(plan_verdict(case, 1, steps=1), BatchVerdict):
        command = f"gpusetup plan --from-config {config_word(case)} --context {most}"
        next_step = f"; `{command}` says what it saves"
    for setting in plain_values(case, "length"):
        length = whole_number(setting)
        if length is not None and length > most:
            yield (
                f"{label(setting)} is {length}: on a card with 4 GB the set-up guide advises "
                f"sequences of {least} to {most} tokens. A shorter length cuts texts, which is "
                f"another experiment, so gpusetup never writes it{next_step}"
            )


# --- gradient clipping ----------------------------------------------------------------------------

CLIP_AT = "1.0"
"""The optimisation guide's limit for the norm of the gradients."""


def unclipped_gradients(case: ConfigCase) -> Iterator[Suggestion]:
    """Advise gradient clipping where a setting switches it off."""
    for setting in plain_values(case, "clip"):
        if not _is_off(setting):
            continue
        yield (
            f"{label(setting)} is {setting.text.strip() or 'empty'}, so it does not clip gradients."
            f" The optimisation guide clips at {CLIP_AT}, which keeps one bad batch from making "
            "the loss explode or NaN. Not written, because clipping changes the updates"
        )


def _is_off(setting: Setting) -> bool:
    """Whether a setting is 0, switched off or empty."""
    text = unquoted(setting.text)
    if text in EMPTY or switch_value(setting) is False:
        return True
    try:
        return float(text) == 0
    except ValueError:
        return False


# --- a recommender's cache ------------------------------------------------------------------------

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
    count, width = _plain(case, "users"), _plain(case, "embedding-dim")
    takes = "its users and numbers are not plain, so gpusetup does not know what it takes"
    if count and width:
        size_bytes = count * width * BYTES_PER_NUMBER
        takes = (
            f"{count:,} users of {width} numbers take {size_bytes / MIB:.1f} MiB, "
            f"{100 * size_bytes / memory_bytes:.1g} % of this GPU's memory"
        )
    is_small = not has_memory(memory_bytes, CACHE_OFF_BELOW_GB)
    switch, cards = ("off", "below 4 GB") if is_small else ("on", "with 4 GB or more")
    yield (
        f"{label(caches[0])}: {takes}. The cached mode (on) keeps the users' embeddings on each "
        "GPU, the dynamic mode (off) computes them for each batch. The multi-GPU guide switches "
        f"it {switch} for GPUs {cards}"
    )


def _plain(case: ConfigCase, role: str) -> int | None:
    """The first positive whole number that is set for a role; None if there is none."""
    for setting in plain_values(case, role):
        value = whole_number(setting)
        if value is not None and value > 0:
            return value
    return None
