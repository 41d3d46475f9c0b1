"""The values that the guides recommend for a card: batch sizes, network sizes and recommender
tiers. Pure functions.

The code calls such a value a mark: a number to start from and to check by measuring. Marks are
never written into a config, because a larger batch may not fit, and another network is another
experiment.
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
from gpusetup.tune.case import ConfigCase, trainer_in
from gpusetup.tune.presets import Preset, preset_named
from gpusetup.tune.refusals import has_batch_norm

# --- the memory of a card -------------------------------------------------------------------------

NOMINAL_SHARE = 0.92
"""A card counts as having its nominal memory if it reports at least this share of it.

ECC and the driver take a part of the memory: a T4 with 16 GB reports 14.7 GiB, and an A10G with 24
GB reports 22.5. A card with 11 GB has too little to count as 12 GB, so it counts as 8 GB.
"""


def has_memory(memory_bytes: int, nominal_gb: float) -> bool:
    """Whether a card is sold with at least this much memory; cards show slightly less than their
    nominal size.

    >>> has_memory(24564 << 20, 24), has_memory(15109 << 20, 16), has_memory(11264 << 20, 12)
    (True, True, False)
    """
    least_gb = nominal_gb * NOMINAL_SHARE
    # Card makers write GB but mean GiB, so a card sold with 24 GB has about 24 GiB.
    least_bytes = least_gb * GIB
    return memory_bytes >= least_bytes


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


def training_of(case: ConfigCase) -> Training:
    """The kind of model that the config trains, judged by its keys, as far as the guides have
    values for it."""
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


def _names_sequence_model(case: ConfigCase) -> bool:
    """Whether a value in the config names a recurrent model or a small custom transformer."""
    for setting in case.config.settings:
        if name_of(setting.path) not in MODEL_KIND_KEYS:
            continue
        text = unquoted(setting.text)[:LONGEST_KIND]
        is_another_model = NOT_SEQUENCE_MODEL.search(text) is not None
        if SEQUENCE_MODEL.search(text) and not is_another_model:
            return True
    return False


def _names_other_model(case: ConfigCase) -> bool:
    """Whether the config names a trainer or a model for which the guides have no batch size."""
    if case.with_role("rollout-batch") or trainer_in(case.config) is not None:
        return True
    names = names_in(case.config.settings)
    is_about_images = not IMAGE_KEYS.isdisjoint(names)
    # BatchNorm counts too, because models with it usually process images or audio.
    return is_about_images or has_batch_norm(case)


def _speaks_of_model(case: ConfigCase) -> bool:
    """Whether any key of the config is about a model, such as `backbone`."""
    for name in names_in(case.config.settings):
        words = words_of(name)
        if not MODEL_WORDS.isdisjoint(words):
            return True
    return False


LARGEST_SMALL_WIDTH = 1023
LARGEST_SMALL_DEPTH = 11
"""The acceleration guide's networks have a width of up to 256 and up to 4 layers. A network with a
width of 1,024 or with 12 layers (like the smallest BERT and GPT-2) is a language or speech model,
for which the guide has no marks."""


def _is_larger_than_the_guides(case: ConfigCase) -> bool:
    """Whether the network is far wider or deeper than the networks in the acceleration guide."""
    width = _largest(case, "hidden")
    depth = _largest(case, "layers")
    # Either a larger width or a larger depth is enough.
    return width > LARGEST_SMALL_WIDTH or depth > LARGEST_SMALL_DEPTH


def _largest(case: ConfigCase, role: str) -> int:
    """The largest whole number that is set for a role; 0 if there is none."""
    largest = 0
    for setting in plain_values(case, role):
        # A reference to another setting does not count as a number.
        value = whole_number(setting) or 0
        largest = max(largest, value)
    return largest


def _trains_on_image_patches(case: ConfigCase) -> bool:
    """Whether the config trains an image network on patches, like those in the optimisation
    guide."""
    if plain_values(case, "channels") or plain_values(case, "perceptual"):
        return True
    # Only large patches count, because the patches inside a vision transformer are much smaller.
    largest_patch = _largest(case, "patch")
    return largest_patch > LARGEST_VIT_PATCH


def plain_values(case: ConfigCase, role: str) -> list[Setting]:
    """The settings of a role that hold a single value rather than a list."""
    plain = []
    for setting in case.with_role(role):
        is_list_item = not isinstance(setting.path[-1], str)
        if setting.kind == "scalar" and not is_list_item:
            plain.append(setting)
    return plain


def _reads_text(case: ConfigCase) -> bool:
    """Whether the config names a text model, or has sequences longer than those in the guides."""
    if any(case.with_name("model_name_or_path")):
        return True
    for setting in case.with_role("length"):
        # A value of `null` (as long as the model allows) counts as 0.
        length = whole_number(setting) or 0
        if length > LONGEST_SMALL_SEQUENCE:
            return True
    return False


# --- marks for batch sizes ------------------------------------------------------------------------


class BatchMark(NamedTuple):
    """A batch size, or a range of them, that a guide recommends to start measuring from."""

    least: int
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
        # For small cards the guide gives no lower end of the range.
        if not self.least:
            return f"up to {self.most}"
        return f"{self.least} to {self.most}"


class SequenceRow(NamedTuple):
    """A row of the acceleration guide's table of batch sizes by memory."""

    from_gb: float
    least: int
    most: int
    cards: str


SEQUENCE_ROWS = (
    SequenceRow(16, 1024, 2048, "cards from 16 GB on"),
    SequenceRow(12, 512, 1024, "cards from 12 GB on"),
    SequenceRow(8, 256, 512, "cards from 8 GB on"),
    # The guide has no row between less than 5 GB and 8 GB, so this row fills the gap.
    SequenceRow(5, 128, 256, "cards from 5 GB on"),
    SequenceRow(0, 0, 128, "cards with less than 5 GB"),
)

SMALL_CARD_GB = 5
"""On smaller cards, the set-up guide's advice for a laptop with 4 GB applies."""
LANGUAGE_MARK = BatchMark(
    least=8, most=16, where="For language models on cards with 4 GB,", source="set-up guide"
)

TIERS = (
    (2048, "GPUs with more than 8 GB"),
    (1024, "GPUs with 4 to 8 GB"),
    (512, "GPUs with less than 4 GB"),
)
"""The multi-GPU guide's batch sizes for recommenders, for all GPUs together."""


def batch_mark(case: ConfigCase) -> BatchMark | None:
    """The batch that the guides recommend for this training on this card; None if they recommend
    none."""
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
    """The acceleration guide's batch for a card with this much memory; `is_certain` says whether
    the model is known to be of the guide's kind."""
    # Some row always matches, because the last row has no minimum.
    fitting_rows = [row for row in SEQUENCE_ROWS if has_memory(memory_bytes, row.from_gb)]
    row = fitting_rows[0]
    what = "For small recurrent models and transformers"
    if not is_certain:
        what += " (if yours is one)"
    where = f"{what} on {row.cards},"
    return BatchMark(least=row.least, most=row.most, where=where, source="acceleration guide")


def _tier(memory_bytes: int) -> BatchMark:
    """The multi-GPU guide's batch for a recommender on GPUs with this much memory."""
    large, middle, small = TIERS
    batch, gpus = small
    if has_memory(memory_bytes, 4):
        batch, gpus = middle
    # After 8 GB, the next size in which cards are sold is 10 GB.
    if has_memory(memory_bytes, 10):
        batch, gpus = large
    where = f"For recommenders on {gpus},"
    return BatchMark(
        least=batch, most=batch, where=where, source="multi-GPU guide", of_all_gpus=True
    )


# --- the cards of the optimisation guide ----------------------------------------------------------

SMALLEST_IMAGE_CARD_GB = 8
"""The memory of a GTX 1080; the guide has no values for smaller cards."""
LARGER_THAN_IMAGE_CARDS_GB = 32
"""The next memory size above the 24 GB of an RTX 4090."""
IMAGE_CARDS = ((24, "rtx-4090"), (16, "rtx-4080"), (12, "rtx-4070"), (0, "gtx-1080"))
"""The minimum memory in GB with which a card belongs to the class of a preset's card."""


def image_preset(memory_bytes: int) -> Preset:
    """The optimisation guide's preset for a card with this much memory."""
    for least_gb, name in IMAGE_CARDS:
        # Some row always matches, because the last row has no minimum.
        if has_memory(memory_bytes, least_gb):
            return preset_named(name)
    raise AssertionError("the last row has no least memory")


def sequence_preset(memory_bytes: int) -> Preset:
    """The acceleration guide's preset for a card with this much memory."""
    if has_memory(memory_bytes, 12):
        return preset_named("top")
    # The guide's "8 to 12 GB" and "8 GB or less" both include 8 GB, so use the smaller preset,
    # which is safer.
    return preset_named("balanced" if has_memory(memory_bytes, 10) else "saving")


def card_of(case: ConfigCase, preset: Preset) -> str:
    """The preset's card in words and, if this machine has another card, how the two compare.

    A card that the guide does not name belongs to the class of the named card with the same memory.
    """
    gpu = case.facts.gpu or ""
    memory_bytes = case.facts.memory_bytes or 0
    named_card = preset.name.replace("-", " ")
    if named_card in gpu.lower():
        return preset.card
    size = round(memory_bytes / GIB)
    is_smaller = not has_memory(memory_bytes, SMALLEST_IMAGE_CARD_GB)
    if is_smaller:
        return f"{preset.card}, its smallest card (yours has {size} GB, so stay below)"
    is_larger = has_memory(memory_bytes, LARGER_THAN_IMAGE_CARDS_GB)
    if is_larger:
        return f"{preset.card}, the guide's largest card (yours has {size} GB)"
    return f"{preset.card}, the class of your {size} GB card"


def _image_mark(case: ConfigCase, memory_bytes: int) -> BatchMark:
    """The optimisation guide's batch for an image network on a card with this much memory."""
    preset = image_preset(memory_bytes)
    most = preset.whole_number("batch_size")
    # On cards smaller than the guide's smallest one, its batch size is only an upper limit.
    is_in_guide = has_memory(memory_bytes, SMALLEST_IMAGE_CARD_GB)
    least = most if is_in_guide else 0
    where = f"For image networks on {card_of(case, preset)},"
    return BatchMark(least=least, most=most, where=where, source=preset.guide)
