"""The guides' marks for a card: batches, sizes of a network, lengths, tiers. Pure.

A mark is a figure to start from and to measure. None is written into a config: a larger batch may
not fit, and another network is another experiment.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from gpusetup.configs.settings import (
    Setting,
    name_of,
    names_in,
    unquoted,
    whole_number,
    words_of,
)
from gpusetup.configs.trainer import trainer_of
from gpusetup.model.units import GIB
from gpusetup.tune.case import Case, trainer_in
from gpusetup.tune.presets import Preset, preset_named
from gpusetup.tune.refusals import has_batch_norm

# --- the memory of a card -------------------------------------------------------------------------

NOMINAL_SHARE = 0.92
"""What a card must show of the memory that it is sold with.

ECC and the driver take a part: a T4 of 16 GB shows 14.7 GiB, an A10G of 24 GB 22.5. A card of 11 GB
shows 11.0 of 12 GiB and is below this share, so it counts as one of 8 GB.
"""


def has_memory(memory_bytes: int, nominal_gb: float) -> bool:
    """Whether a card is sold with at least so many gigabytes.

    >>> has_memory(24564 << 20, 24), has_memory(15109 << 20, 16), has_memory(11264 << 20, 12)
    (True, True, False)
    """
    return memory_bytes >= nominal_gb * NOMINAL_SHARE * GIB


# --- what is trained ------------------------------------------------------------------------------

Training = Literal["recommender", "images", "sequences", "language", "unknown", "other"]
"""Whose marks count. `unknown` shows nothing of its model; `other` is a model without marks."""

SEQUENCE_MODEL = re.compile(r"(?i)lstm|gru|rnn|transformer")
"""In values that name a recurrent model or a transformer built by hand: `BiLSTM`, `tiny_gru`."""
NOT_SEQUENCE_MODEL = re.compile(r"(?i)/|vision|image|video|swin|vit|detr|diffusion|audio|speech")
"""In names of models that only share the word, and (`/`) in names of published ones."""
MODEL_KIND_KEYS = frozenset((
    "model_type", "model", "type", "name", "model_name", "arch", "architecture", "network", "net",
    "rnn_type", "cell_type", "cell", "encoder",
))  # fmt: skip
"""Keys whose value may name the kind of a model."""
MODEL_WORDS = frozenset((
    "model", "network", "net", "arch", "architecture", "backbone", "policy", "generator",
    "discriminator", "encoder", "decoder", "unet", "vae", "head",
))  # fmt: skip
"""Words of keys that speak of a model: a config with one of them shows what it trains."""
IMAGE_KEYS = frozenset((
    "imgsz", "img_size", "image_size", "image_width", "resolution", "crop_size", "crop_pct",
    "size_divisor", "num_classes",
))  # fmt: skip
"""Keys of models that see, detect or draw, for which the guides have no batch."""
LARGEST_VIT_PATCH = 32
"""Vision transformers call 8 to 32 pixels a patch; a patch to train on is larger."""
LONGEST_SMALL_SEQUENCE = 256
"""Tokens. The guides' marks are for short sequences; longer ones are a language model's."""


def training_of(case: Case) -> Training:
    """What the config trains, by its keys, as far as the guides have marks for it."""
    is_of_language_trainer = trainer_of(case.config) is not None
    if case.with_role("users") and case.with_role("items"):
        return "recommender"
    if _names_sequence_model(case) and not is_of_language_trainer:
        return "sequences"
    if _trains_on_image_patches(case):
        return "images"
    if _reads_text(case):
        return "language"
    if is_of_language_trainer or _names_other_model(case):
        return "other"
    if case.with_role("hidden") and case.with_role("layers"):
        return "other" if _is_larger_than_the_guides(case) else "sequences"
    return "other" if _speaks_of_model(case) else "unknown"


def _names_sequence_model(case: Case) -> bool:
    for setting in case.config.settings:
        text = unquoted(setting.text)[:100]
        is_sequence_model = SEQUENCE_MODEL.search(text) and not NOT_SEQUENCE_MODEL.search(text)
        if name_of(setting.path) in MODEL_KIND_KEYS and is_sequence_model:
            return True
    return False


def _names_other_model(case: Case) -> bool:
    """Whether a trainer or a model is named for which the guides have no batch."""
    has_rollouts = bool(case.with_role("rollout-batch"))
    is_about_images = not IMAGE_KEYS.isdisjoint(names_in(case.config.settings))
    has_trainer = trainer_in(case.config) is not None
    return has_trainer or has_rollouts or is_about_images or has_batch_norm(case)


def _speaks_of_model(case: Case) -> bool:
    return any(
        not MODEL_WORDS.isdisjoint(words_of(name)) for name in names_in(case.config.settings)
    )


LARGEST_SMALL_WIDTH = 1023
LARGEST_SMALL_DEPTH = 11
"""The acceleration guide's networks have up to 256 numbers and 4 layers. One of 1,024 numbers or 12
layers (BERT's and GPT-2's smallest) is a language or speech model, for which it has no marks."""


def _is_larger_than_the_guides(case: Case) -> bool:
    widths = [whole_number(setting) or 0 for setting in plain_values(case, "hidden")]
    depths = [whole_number(setting) or 0 for setting in plain_values(case, "layers")]
    return (
        max(widths, default=0) > LARGEST_SMALL_WIDTH or max(depths, default=0) > LARGEST_SMALL_DEPTH
    )


def _trains_on_image_patches(case: Case) -> bool:
    """Whether the config is one of the optimisation guide's image networks, or much like them."""
    if plain_values(case, "channels") or plain_values(case, "perceptual"):
        return True
    patches = [whole_number(setting) or 0 for setting in plain_values(case, "patch")]
    return any(size > LARGEST_VIT_PATCH for size in patches)


def plain_values(case: Case, role: str) -> list[Setting]:
    """The settings of a role with one value; a list of sizes is another kind of network's."""
    return [
        setting
        for setting in case.with_role(role)
        if setting.kind == "scalar" and isinstance(setting.path[-1], str)
    ]


def _reads_text(case: Case) -> bool:
    """Whether a model is named that reads tokens, or sequences are longer than the guides' own."""
    if any(case.with_name("model_name_or_path")):
        return True
    lengths = [whole_number(setting) or 0 for setting in case.with_role("length")]
    return any(length > LONGEST_SMALL_SEQUENCE for length in lengths)


# --- marks of batch -------------------------------------------------------------------------------


class BatchMark(NamedTuple):
    """A batch to start from."""

    least: int
    most: int
    where: str
    """For what and on which cards, as the beginning of a sentence."""
    source: str
    of_all_gpus: bool = False
    """Whether it is the batch of all GPUs together."""

    @property
    def range_text(self) -> str:
        if self.least == self.most:
            return str(self.most)
        return f"{self.least} to {self.most}" if self.least else f"up to {self.most}"


class SequenceRow(NamedTuple):
    """A row of the acceleration guide's table of batches."""

    from_gb: float
    least: int
    most: int
    cards: str


SEQUENCE_ROWS = (
    SequenceRow(16, 1024, 2048, "cards from 16 GB on"),
    SequenceRow(12, 512, 1024, "cards from 12 GB on"),
    SequenceRow(8, 256, 512, "cards from 8 GB on"),
    # The guide has no row between its marks below 5 GB and of 8 GB: this one lies between them.
    SequenceRow(5, 128, 256, "cards from 5 GB on"),
    SequenceRow(0, 0, 128, "cards with less than 5 GB"),
)

SMALL_CARD_GB = 5
"""Below this the set-up guide's advice for its laptop with 4 GB counts."""
LANGUAGE_MARK = BatchMark(8, 16, "For language models on cards with 4 GB,", "set-up guide")

TIERS = (
    (2048, "GPUs with more than 8 GB"),
    (1024, "GPUs with 4 to 8 GB"),
    (512, "GPUs with less than 4 GB"),
)
"""The multi-GPU guide's batch of a recommender, of all GPUs together."""


def batch_mark(case: Case) -> BatchMark | None:
    """The guides' batch for what the config trains on this card; None if they have none."""
    memory_bytes = case.facts.memory_bytes
    if not memory_bytes:
        return None
    training = training_of(case)
    if training == "recommender":
        return _tier(memory_bytes)
    if training == "images":
        return _image_mark(case, memory_bytes)
    if training == "language" and not has_memory(memory_bytes, SMALL_CARD_GB):
        return LANGUAGE_MARK
    if training in ("sequences", "unknown"):
        return _sequence_mark(memory_bytes, is_certain=training == "sequences")
    return None


def _sequence_mark(memory_bytes: int, *, is_certain: bool) -> BatchMark:
    row = next(row for row in SEQUENCE_ROWS if has_memory(memory_bytes, row.from_gb))
    what = "For small recurrent models and transformers"
    if not is_certain:
        what += " (if yours is one)"
    return BatchMark(row.least, row.most, f"{what} on {row.cards},", "acceleration guide")


def _tier(memory_bytes: int) -> BatchMark:
    """The tier of a recommender: more than 8 GB, 4 to 8 GB, less than 4 GB."""
    batch, gpus = TIERS[2]
    if has_memory(memory_bytes, 4):
        batch, gpus = TIERS[1]
    # The next size that cards are sold with is 10 GB.
    if has_memory(memory_bytes, 10):
        batch, gpus = TIERS[0]
    where = f"For recommenders on {gpus},"
    return BatchMark(batch, batch, where, "multi-GPU guide", of_all_gpus=True)


# --- the cards of the optimisation guide ----------------------------------------------------------

SMALLEST_IMAGE_CARD_GB = 8
"""A GTX 1080's; the guide has no figures for smaller cards."""
LARGER_THAN_IMAGE_CARDS_GB = 32
"""The next size above an RTX 4090's 24 GB."""
IMAGE_CARDS = ((24, "rtx-4090"), (16, "rtx-4080"), (12, "rtx-4070"), (0, "gtx-1080"))
"""GB from which a card counts as one of the class of a preset's card."""


def image_preset(memory_bytes: int) -> Preset:
    """The optimisation guide's preset for a card with so much memory."""
    name = next(name for gb, name in IMAGE_CARDS if has_memory(memory_bytes, gb))
    return preset_named(name)


def sequence_preset(memory_bytes: int) -> Preset:
    """The acceleration guide's preset for a card with so much memory."""
    if has_memory(memory_bytes, 12):
        return preset_named("top")
    # "8 to 12 GB" and "8 GB or less" both have 8 GB: the smaller one is the sure one.
    return preset_named("balanced" if has_memory(memory_bytes, 10) else "saving")


def card_of(case: Case, preset: Preset) -> str:
    """The card of a preset, and why its figures are for this one.

    A card that the guide does not name belongs to the class of the named one with as much memory.
    """
    gpu, memory_bytes = case.facts.gpu or "", case.facts.memory_bytes or 0
    named_card = preset.name.replace("-", " ")
    if named_card in gpu.lower():
        return preset.card
    size = round(memory_bytes / GIB)
    if not has_memory(memory_bytes, SMALLEST_IMAGE_CARD_GB):
        return f"{preset.card}, its smallest card (yours has {size} GB, so stay below)"
    if has_memory(memory_bytes, LARGER_THAN_IMAGE_CARDS_GB):
        return f"{preset.card}, the guide's largest card (yours has {size} GB)"
    return f"{preset.card}, the class of your {size} GB card"


def _image_mark(case: Case, memory_bytes: int) -> BatchMark:
    preset = image_preset(memory_bytes)
    most = int(preset.value("batch_size") or 0)
    least = most if has_memory(memory_bytes, SMALLEST_IMAGE_CARD_GB) else 0
    where = f"For image networks on {card_of(case, preset)},"
    return BatchMark(least, most, where, preset.guide)
