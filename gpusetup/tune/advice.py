"""What the tuning guides advise for a card: batch sizes, network sizes, lengths, clipping and the
cache of a recommender. Pure functions.

All of it is only printed and never written into a config: a larger batch may not fit, and another
network, length or clipping is another experiment, which the user decides on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from gpusetup.configs.keys import trainer_of
from gpusetup.configs.settings import EMPTY, Setting, names_in, switch_value, unquoted, whole_number
from gpusetup.model.units import GIB, MIB
from gpusetup.tune.case import LONGEST_SHOWN, LONGEST_VALUE, ConfigCase, Suggestion, label

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

Training = Literal["recommender", "images", "sequences", "language"]
"""The kinds of training for which the guides have advice."""

SEQUENCE_MODEL = re.compile(r"(?i)lstm|gru|rnn|transformer")
"""Matches values that name a recurrent model or a custom transformer: `BiLSTM`, `tiny_gru`."""
NOT_SEQUENCE_MODEL = re.compile(r"(?i)/|vision|image|video|swin|vit|detr|diffusion|audio|speech")
"""Matches values that contain such a word but name another model (`vision transformer`), and ids of
published models, which contain `/`."""
MODEL_KIND_KEYS = frozenset((
    "model_type", "model", "type", "name", "model_name", "arch", "architecture", "network", "net",
    "rnn_type", "cell_type", "cell", "encoder",
))  # fmt: skip
"""Keys whose value may name a kind of model."""
LONGEST_SMALL_SEQUENCE = 256
"""The longest sequence, in tokens, of the guides' small models; longer ones belong to language
models."""


def training_of(case: ConfigCase) -> Training | None:
    """The kind of model that the config trains, judged by its keys; None if the keys do not show
    it, or if the guides have no advice for it."""
    if case.with_role("users") and case.with_role("items"):
        return "recommender"
    values = [unquoted(one.text)[:LONGEST_VALUE] for one in case.with_name(*MODEL_KIND_KEYS)]
    names_sequence_model = any(
        SEQUENCE_MODEL.search(value) and not NOT_SEQUENCE_MODEL.search(value) for value in values
    )
    # The trainers that gpusetup knows train published models, not one's own LSTM.
    if names_sequence_model and trainer_of(case.config) is None:
        return "sequences"
    # Of the guides' models, only those for image restoration have such keys (`base_channels`,
    # `use_perceptual_loss`).
    if plain_values(case, "channels") or plain_values(case, "perceptual"):
        return "images"
    lengths = [whole_number(setting) or 0 for setting in plain_values(case, "length")]
    has_long_sequences = max(lengths, default=0) > LONGEST_SMALL_SEQUENCE
    # transformers' key for a published model.
    names_model = "model_name_or_path" in names_in(case.config.settings)
    return "language" if names_model or has_long_sequences else None


def plain_values(case: ConfigCase, role: str) -> list[Setting]:
    """The settings of a role that hold a single value; neither lists nor their items."""
    return [
        setting
        for setting in case.with_role(role)
        if setting.kind == "scalar" and isinstance(setting.path[-1], str)
    ]


def first_number(case: ConfigCase, role: str) -> int:
    """The first whole number other than 0 that is set for a role; 0 if there is none."""
    numbers = (whole_number(setting) for setting in plain_values(case, role))
    return next(filter(None, numbers), 0)


# --- batch sizes ----------------------------------------------------------------------------------


class GuideBatch(NamedTuple):
    """A batch size, or a range of them, that a guide recommends to start measuring from."""

    least: int
    """0 for small cards, for which the guide gives no lower end of the range."""
    most: int
    text: str
    """What the guide recommends, as the beginning of a sentence."""
    of_all_gpus: bool
    """Whether the batch is for all GPUs together."""


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
RECOMMENDER_ROWS = (
    # After 8 GB, the next size in which cards are sold is 10 GB.
    (10, 2048, "GPUs with more than 8 GB"),
    (4, 1024, "GPUs with 4 to 8 GB"),
    (0, 512, "GPUs with less than 4 GB"),
)
"""The multi-GPU guide's batch sizes for recommenders, for all GPUs together."""


class ImageNetwork(NamedTuple):
    """The optimisation guide's network for image restoration on one card."""

    least_gb: int
    """The memory from which cards belong to the class of this card."""
    card: str
    batch: int
    base_channels: str
    num_blocks: str
    patch_size: str
    use_perceptual: str


IMAGE_NETWORKS = (
    ImageNetwork(24, "RTX 4090 (24 GB)", 64, "128", "12", "256", "true"),
    # For this card the guide gives only batch and width; the other values are those of the next
    # smaller card.
    ImageNetwork(16, "RTX 4080 (16 GB)", 48, "96", "8", "192", "true"),
    ImageNetwork(12, "RTX 4070 (12 GB)", 32, "96", "8", "192", "true"),
    ImageNetwork(0, "GTX 1080 (8 GB)", 16, "64", "6", "128", "false"),
)
SIZE_ROLES = {
    "base_channels": "channels", "num_blocks": "blocks", "patch_size": "patch",
    "use_perceptual": "perceptual",
}  # fmt: skip
"""The guide's name for a size of an image network -> the role of its keys in configs."""


def measuring(case: ConfigCase, option: str = "") -> str:
    """A clause with the shell command that measures the batch size of this config; the user
    replaces the placeholder with their own function. `option` is added to the command."""
    command = f"gpusetup tune {case.file} --batch-size --code MODULE:FUNCTION{option}"
    return f"`{command}` measures which batch size fits{case.facts.where}"


def guide_batch(case: ConfigCase) -> GuideBatch | None:
    """The batch that the guides recommend for this training on this card; None if they recommend
    none."""
    memory, gpus, training = case.facts.memory_bytes, case.facts.gpus, training_of(case)
    if not memory:
        return None
    if training == "recommender":
        _, most, cards = next(row for row in RECOMMENDER_ROWS if has_memory(memory, row[0]))
        least, guide, where = most, "multi-GPU guide", f"For recommenders on {cards},"
    elif training == "images":
        network = image_network(memory)
        least = most = network.batch
        guide, where = "optimisation guide", f"For image networks on {nearest_card(network)},"
    elif training == "language" and not has_memory(memory, SMALL_CARD_GB):
        least, most, guide = 8, 16, "set-up guide"
        where = "For language models on cards with 4 GB,"
    elif training == "sequences":
        _, least, most, cards = next(row for row in SEQUENCE_ROWS if has_memory(memory, row[0]))
        guide = "acceleration guide"
        where = f"For small recurrent models and transformers on {cards},"
    else:
        return None
    sizes = str(most)
    if least != most:
        sizes = f"{least} to {most}" if least else f"up to {most}"
    of_all_gpus = training == "recommender"
    text = f"{where} the {guide} starts with a batch of {sizes}"
    text += " in all" if of_all_gpus else " on a GPU"
    if of_all_gpus and gpus > 1:
        text += f", {max(most // gpus, 1)} on each of the {gpus} GPUs"
    return GuideBatch(least, most, text, of_all_gpus)


def image_network(memory_bytes: int) -> ImageNetwork:
    """The optimisation guide's network for a card with this much memory."""
    return next(one for one in IMAGE_NETWORKS if has_memory(memory_bytes, one.least_gb))


def nearest_card(network: ImageNetwork) -> str:
    return f"the {network.card}, the guide's nearest to your card"


# --- what would be another experiment -------------------------------------------------------------


def network_size(case: ConfigCase) -> Iterator[Suggestion]:
    """Compare the sizes of an image network with those that the guide advises for this card."""
    memory = case.facts.memory_bytes
    if not memory or training_of(case) != "images":
        return
    network = image_network(memory)
    comparisons = []
    for name, role in SIZE_ROLES.items():
        for setting in plain_values(case, role):
            current = unquoted(setting.text)[:LONGEST_SHOWN]
            guide = f"{name} {getattr(network, name)}"
            comparisons.append(f"{guide} (yours: {current}, line {setting.line})")
    if comparisons:
        yield (
            f"On {nearest_card(network)}, the optimisation guide starts with "
            f"{', '.join(comparisons)}. Each of these is another experiment, so gpusetup never "
            "writes them"
        )


LEAST_LENGTH, MOST_LENGTH = 128, 256
"""The sequence lengths, in tokens, that the set-up guide advises for a laptop with 4 GB."""


def sequence_length(case: ConfigCase) -> Iterator[Suggestion]:
    """Advise shorter sequences on a card with less than 5 GB."""
    memory = case.facts.memory_bytes
    if not memory or has_memory(memory, SMALL_CARD_GB):
        return
    for setting in plain_values(case, "length"):
        length = whole_number(setting)
        if length is not None and length > MOST_LENGTH:
            yield (
                f"{label(setting)} is {length}: on a card with 4 GB the set-up guide advises "
                f"sequences of {LEAST_LENGTH} to {MOST_LENGTH} tokens. A shorter length cuts "
                "texts, which is another experiment, so gpusetup never writes it"
            )


def unclipped_gradients(case: ConfigCase) -> Iterator[Suggestion]:
    """Advise gradient clipping for each setting that switches it off or leaves it empty."""
    for setting in plain_values(case, "clip"):
        text = unquoted(setting.text)
        if text in (*EMPTY, "0", "0.0") or switch_value(setting) is False:
            yield (
                f"{label(setting)} is {setting.text.strip() or 'empty'}, so it does not clip "
                "gradients. The optimisation guide clips at 1.0, which keeps one bad batch "
                "from making the loss explode or NaN. Not written, because clipping changes the "
                "updates"
            )


def embedding_cache(case: ConfigCase) -> Iterator[Suggestion]:
    """Say how much memory a recommender's cache of embeddings takes, and whether the multi-GPU
    guide switches it on for this card (from 4 GB)."""
    memory, caches = case.facts.memory_bytes, case.with_role("cache")
    if not memory or not caches or training_of(case) != "recommender":
        return
    users, width = first_number(case, "users"), first_number(case, "embedding-dim")
    cache_bytes = users * width * 4  # in float32
    takes = (
        f"{users:,} users of {width} numbers take {cache_bytes / MIB:.1f} MiB, "
        f"{100 * cache_bytes / memory:.1g} % of this GPU's memory"
    )
    switch, cards = ("on", "with 4 GB or more") if has_memory(memory, 4) else ("off", "below 4 GB")
    yield (
        f"{label(caches[0])}: {takes}. The cached mode (on) keeps the users' embeddings on each "
        "GPU, the dynamic mode (off) computes them for each batch. The multi-GPU guide switches "
        f"it {switch} for GPUs {cards}"
    )
