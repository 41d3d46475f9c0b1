"""The values that the guides recommend for a card: batch sizes, network sizes and recommender
tiers. Pure functions.

The code calls such a value a mark: a number to start from and to check by measuring. Marks are
never written into a config, because a larger batch may not fit, and another network is another
experiment.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from gpusetup.configs.settings import Setting, name_of, names_in, unquoted, whole_number, words_of
from gpusetup.configs.trainer import trainer_of
from gpusetup.model.units import GIB
from gpusetup.tune.case import ConfigCase, names_batch_norm, trainer_in
from gpusetup.tune.presets import Preset, preset_named

NOMINAL_SHARE = 0.92
"""A card counts as having its nominal memory if it reports at least this share of it.

ECC and the driver take a part of the memory: a T4 with 16 GB reports 14.7 GiB, and an A10G with 24
GB reports 22.5. A card with 11 GB has too little to count as 12 GB, so it counts as 8 GB.
"""


def has_memory(memory_bytes: int, nominal_gb: float) -> bool:
    """Whether a card is sold with at least this much memory. Card makers write GB but mean GiB.

    >>> has_memory(24564 << 20, 24), has_memory(15109 << 20, 16), has_memory(11264 << 20, 12)
    (True, True, False)
    """
    return memory_bytes >= nominal_gb * NOMINAL_SHARE * GIB


# --- the kind of training -------------------------------------------------------------------------

Training = Literal["recommender", "images", "sequences", "language", "unknown", "other"]
"""The kinds of training, which have different marks. `unknown` means that the config does not show
its model; `other` is a model for which the guides have no marks."""

SEQUENCE_MODEL = re.compile(r"(?i)lstm|gru|rnn|transformer")
"""Matches values that name a recurrent model or a custom transformer: `BiLSTM`, `tiny_gru`."""
NOT_SEQUENCE_MODEL = re.compile(r"(?i)/|vision|image|video|swin|vit|detr|diffusion|audio|speech")
"""Matches values that contain such a word but name another model (`vision transformer`), and ids of
published models, which contain `/`."""
LONGEST_KIND = 100
"""The number of characters to look at in a value that may name a kind of model; a longer value is a
text."""
MODEL_KIND_KEYS = frozenset((
    "model_type", "model", "type", "name", "model_name", "arch", "architecture", "network", "net",
    "rnn_type", "cell_type", "cell", "encoder",
))  # fmt: skip
"""Keys whose value may name a kind of model."""
MODEL_WORDS = frozenset((
    "model", "network", "net", "arch", "architecture", "backbone", "policy", "generator",
    "discriminator", "encoder", "decoder", "unet", "vae", "head",
))  # fmt: skip
"""Words in keys about a model. A config with such a key describes its model, so its kind is `other`
and not `unknown`."""
IMAGE_KEYS = frozenset((
    "imgsz", "img_size", "image_size", "image_width", "resolution", "crop_size", "crop_pct",
    "size_divisor", "num_classes",
))  # fmt: skip
"""Keys of models for image recognition, detection or generation, for which the guides have no batch
size."""
LARGEST_VIT_PATCH = 32
"""The largest patch of vision transformers, which have patches of 8 to 32 pixels. Larger patches
are cut out of images for training."""
LONGEST_SMALL_SEQUENCE = 256
"""The longest sequence, in tokens, that the guides' marks are for; longer ones belong to language
models."""
LARGEST_SMALL_WIDTH = 1023
LARGEST_SMALL_DEPTH = 11
"""The acceleration guide's networks have a width of up to 256 and up to 4 layers. A network with a
width of 1,024 or with 12 layers (like the smallest BERT and GPT-2) is a language or speech model,
for which the guide has no marks."""


def training_of(case: ConfigCase) -> Training:
    """The kind of model that the config trains, judged by its keys, as far as the guides have
    values for it."""
    settings = case.config.settings
    names = names_in(settings)
    is_of_language_trainer = trainer_of(case.config) is not None
    if case.with_role("users") and case.with_role("items"):
        return "recommender"
    kinds = [unquoted(one.text)[:LONGEST_KIND] for one in settings
             if name_of(one.path) in MODEL_KIND_KEYS]  # fmt: skip
    names_sequences = any(
        SEQUENCE_MODEL.search(kind) and not NOT_SEQUENCE_MODEL.search(kind) for kind in kinds
    )
    if names_sequences and not is_of_language_trainer:
        return "sequences"
    has_image_network = plain_values(case, "channels") or plain_values(case, "perceptual")
    if has_image_network or _largest(case, "patch") > LARGEST_VIT_PATCH:
        return "images"
    if "model_name_or_path" in names or _largest(case, "length") > LONGEST_SMALL_SEQUENCE:
        return "language"
    # Models with BatchNorm usually process images or audio.
    names_other_model = (
        is_of_language_trainer
        or case.with_role("rollout-batch")
        or trainer_in(case.config) is not None
        or not IMAGE_KEYS.isdisjoint(names)
        or any(map(names_batch_norm, settings))
    )
    if names_other_model:
        return "other"
    if case.with_role("hidden") and case.with_role("layers"):
        is_wide = _largest(case, "hidden") > LARGEST_SMALL_WIDTH
        is_deep = _largest(case, "layers") > LARGEST_SMALL_DEPTH
        return "other" if is_wide or is_deep else "sequences"
    describes_model = any(not MODEL_WORDS.isdisjoint(words_of(name)) for name in names)
    return "other" if describes_model else "unknown"


def _largest(case: ConfigCase, role: str) -> int:
    """The largest whole number that is set for a role; 0 if there is none."""
    return max((whole_number(setting) or 0 for setting in plain_values(case, role)), default=0)


def plain_values(case: ConfigCase, role: str) -> list[Setting]:
    """The settings of a role that hold a single value rather than a list."""
    return [
        setting
        for setting in case.with_role(role)
        if setting.kind == "scalar" and isinstance(setting.path[-1], str)
    ]


# --- marks for batch sizes ------------------------------------------------------------------------


class BatchMark(NamedTuple):
    """A batch size, or a range of them, that a guide recommends to start measuring from."""

    least: int
    """0 for small cards, for which the guide gives no lower end of the range."""
    most: int
    where: str
    """The kind of model and cards that the mark is for, as the beginning of a sentence."""
    source: str
    of_all_gpus: bool = False
    """Whether the batch is for all GPUs together."""

    @property
    def range_text(self) -> str:
        """The range of batch sizes in words: `16`, `8 to 16`, `up to 128`."""
        if self.least == self.most:
            return str(self.most)
        return f"{self.least} to {self.most}" if self.least else f"up to {self.most}"


SEQUENCE_ROWS = (
    (16, 1024, 2048, "cards from 16 GB on"),
    (12, 512, 1024, "cards from 12 GB on"),
    (8, 256, 512, "cards from 8 GB on"),
    # The guide has no row between less than 5 GB and 8 GB, so this row fills the gap.
    (5, 128, 256, "cards from 5 GB on"),
    (0, 0, 128, "cards with less than 5 GB"),
)
"""The acceleration guide's batch sizes by memory: from how many GB, least, most, which cards."""
SMALL_CARD_GB = 5
"""On smaller cards, the set-up guide's advice for a laptop with 4 GB applies."""
TIERS = (
    # After 8 GB, the next size in which cards are sold is 10 GB.
    (10, 2048, "GPUs with more than 8 GB"),
    (4, 1024, "GPUs with 4 to 8 GB"),
    (0, 512, "GPUs with less than 4 GB"),
)
"""The multi-GPU guide's batch sizes for recommenders, for all GPUs together."""
SMALLEST_IMAGE_CARD_GB = 8
"""The memory of a GTX 1080; the optimisation guide has no values for smaller cards."""
LARGER_THAN_IMAGE_CARDS_GB = 32
"""The next memory size above the 24 GB of an RTX 4090."""
IMAGE_CARDS = ((24, "rtx-4090"), (16, "rtx-4080"), (12, "rtx-4070"), (0, "gtx-1080"))
"""The minimum memory in GB with which a card belongs to the class of a preset's card."""


def batch_mark(case: ConfigCase) -> BatchMark | None:
    """The batch that the guides recommend for this training on this card; None if they recommend
    none."""
    memory_bytes = case.facts.memory_bytes
    if not memory_bytes:
        return None
    training = training_of(case)
    if training == "recommender":
        _, batch, gpus = next(row for row in TIERS if has_memory(memory_bytes, row[0]))
        where = f"For recommenders on {gpus},"
        return BatchMark(batch, batch, where, "multi-GPU guide", of_all_gpus=True)
    if training == "images":
        preset = image_preset(memory_bytes)
        most = int(preset.values.get("batch_size") or 0)
        # On cards smaller than the guide's smallest one, its batch size is only an upper limit.
        least = most if has_memory(memory_bytes, SMALLEST_IMAGE_CARD_GB) else 0
        where = f"For image networks on {card_of(case, preset)},"
        return BatchMark(least, most, where, preset.guide)
    if training == "language" and not has_memory(memory_bytes, SMALL_CARD_GB):
        return BatchMark(8, 16, "For language models on cards with 4 GB,", "set-up guide")
    if training in ("sequences", "unknown"):
        _, least, most, cards = next(
            row for row in SEQUENCE_ROWS if has_memory(memory_bytes, row[0])
        )
        doubt = "" if training == "sequences" else " (if yours is one)"
        where = f"For small recurrent models and transformers{doubt} on {cards},"
        return BatchMark(least, most, where, "acceleration guide")
    return None


def image_preset(memory_bytes: int) -> Preset:
    """The optimisation guide's preset for a card with this much memory."""
    return preset_named(next(name for gb, name in IMAGE_CARDS if has_memory(memory_bytes, gb)))


def sequence_preset(memory_bytes: int) -> Preset:
    """The acceleration guide's preset for a card with this much memory."""
    if has_memory(memory_bytes, 12):
        return preset_named("top")
    # The guide's "8 to 12 GB" and "8 GB or less" both include 8 GB, so the smaller preset counts.
    return preset_named("balanced" if has_memory(memory_bytes, 10) else "saving")


def card_of(case: ConfigCase, preset: Preset) -> str:
    """The preset's card in words and, if this machine has another card, how the two compare.

    A card that the guide does not name belongs to the class of the named card with the same memory.
    """
    memory_bytes = case.facts.memory_bytes or 0
    if preset.name.replace("-", " ") in (case.facts.gpu or "").lower():
        return preset.card
    size = round(memory_bytes / GIB)
    if not has_memory(memory_bytes, SMALLEST_IMAGE_CARD_GB):
        return f"{preset.card}, its smallest card (yours has {size} GB, so stay below)"
    if has_memory(memory_bytes, LARGER_THAN_IMAGE_CARDS_GB):
        return f"{preset.card}, the guide's largest card (yours has {size} GB)"
    return f"{preset.card}, the class of your {size} GB card"
