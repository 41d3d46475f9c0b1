"""What serves where nothing was measured: the presets of the guides, as rows.

A preset is a range for the batch on one GPU. It never changes the effective batch by itself:
accumulation takes up the difference. The first row that fits counts.
"""

from __future__ import annotations

from gpusetup.model.frozen import Frozen
from gpusetup.model.units import GIB

LANGUAGE = (
    "max_seq_length", "max_length", "seq_length", "seq_len", "sequence_length", "block_size",
    "cutoff_len", "sequence_len", "max_seq_len", "model_max_length", "encoder_seq_length",
    "model_name_or_path", "base_model", "model_path", "max_tokens", "vocab_size",
)  # fmt: skip
AUDIO = (
    "num_mel_bins", "n_mels", "n_fft", "hop_length", "sample_rate", "resample_rate",
    "sampling_rate", "fbank_conf", "audio_column_name",
)  # fmt: skip
"""Models of sound: no guide has a mark for them, and their lengths count frames or seconds."""
RECURRENT = ("lstm", "gru", "rnn", "lookback", "window_size", "bidirectional")
"""Names, or values of `type`, `model` and the like."""
CONV = ("base_channels", "use_perceptual")
SMALL = ("hidden_size", "hidden_dim", "d_model", "n_embd")
SMALL_MOST = 512
"""The widest model that the marks for small ones are said of: the guide's are 64 to 256 wide."""
EMBEDDINGS = ("num_users", "num_items", "n_users", "n_items", "user_num", "item_num")
NOMINAL_SLACK_GIB = 0.7
"""A card of 24 GB answers with 23.99, 23.7 or, with ECC on, 22.5 GiB."""


class Preset(Frozen):
    """One row; `from_gib` <= the GPU's memory < `below_gib`."""

    id: str
    from_gib: float
    below_gib: float
    keys: tuple[str, ...]
    """One of these in the config shows the kind of model that the row was written for."""
    batch: tuple[int, int]
    source: str
    advice: str | None = None
    """What would change the experiment, in words."""


G1 = "set-up guide, advice for 4 GB"
G3 = "acceleration guide, marks for small recurrent and transformer models"
G4 = "optimisation guide, presets by card"
G5 = "multi-GPU guide, tiers of a model with user and item embeddings"

PRESETS: tuple[Preset, ...] = (
    Preset(id="embeddings-below-4-gb", from_gib=0, below_gib=3.5, keys=EMBEDDINGS,
           batch=(128, 512), source=G5),
    Preset(id="embeddings-4-to-8-gb", from_gib=4.2, below_gib=9.2, keys=EMBEDDINGS,
           batch=(128, 1024), source=G5),
    Preset(id="recurrent-4-gb", from_gib=0, below_gib=5, keys=RECURRENT, batch=(64, 128),
           source=G3),
    Preset(id="4-gb", from_gib=0, below_gib=5, keys=LANGUAGE, batch=(8, 16), source=G1,
           advice="On 4 GB a sequence length of 128 to 256 leaves room; it changes the experiment"),
    Preset(id="conv-4-gb", from_gib=0, below_gib=5, keys=CONV, batch=(8, 16), source=G1),
    Preset(id="small-4-gb", from_gib=0, below_gib=5, keys=SMALL, batch=(64, 128), source=G3),
    Preset(id="conv-24-gb", from_gib=24, below_gib=32, keys=CONV, batch=(64, 64), source=G4,
           advice="A card of 24 GB carries base_channels 128; it changes the model"),
    Preset(id="conv-16-gb", from_gib=16, below_gib=24, keys=CONV, batch=(48, 48), source=G4,
           advice="A card of 16 GB carries base_channels 96; it changes the model"),
    Preset(id="conv-12-gb", from_gib=12, below_gib=16, keys=CONV, batch=(32, 32), source=G4,
           advice="A card of 12 GB carries base_channels 96; it changes the model"),
    Preset(id="conv-8-gb", from_gib=5, below_gib=12, keys=CONV, batch=(16, 16), source=G4,
           advice="A card of 8 GB carries base_channels 64; it changes the model"),
    Preset(id="small-16-gb", from_gib=16, below_gib=32, keys=SMALL, batch=(1024, 2048), source=G3),
    Preset(id="small-12-gb", from_gib=12, below_gib=16, keys=SMALL, batch=(512, 1024), source=G3),
    Preset(id="small-8-gb", from_gib=5, below_gib=12, keys=SMALL, batch=(256, 512), source=G3),
)  # fmt: skip

NOT_SMALL = ("model_name_or_path", "base_model", "model_path", "pretrained_model_name_or_path")
"""A config that names a pretrained model is none of the small models of the acceleration guide."""


def preset_for(memory_bytes: int | None, names: frozenset[str]) -> Preset | None:
    """The row for a GPU of this memory and a config with these keys.

    >>> preset_for(24 << 30, frozenset({"base_channels"})).id
    'conv-24-gb'
    >>> preset_for(24 << 30, frozenset({"output_dir"})) is None
    True
    """
    if memory_bytes is None:
        return None
    gib = memory_bytes / (1 << 30) + NOMINAL_SLACK_GIB
    return next((row for row in PRESETS if _fits(row, gib, names)), None)


def has_tables(names: frozenset[str]) -> bool:
    """Whether a config has tables of users or items, or two signs of the multi-GPU guide's model.

    >>> has_tables(frozenset({"use_cache", "freeze_gpt2"})), has_tables(frozenset({"use_cache"}))
    (True, False)
    """
    frozen = any(name.startswith("freeze_") for name in names)
    signs = frozen + len(names & {"use_cache", "embedding_dim"})
    return bool(names & set(EMBEDDINGS)) or (signs > 1 and not names & set(NOT_SMALL))


def _fits(row: Preset, gib: float, names: frozenset[str]) -> bool:
    if not row.from_gib <= gib < row.below_gib + (NOMINAL_SLACK_GIB if not row.from_gib else 0):
        return False
    if row.keys == EMBEDDINGS:
        return has_tables(names)
    if row.keys == SMALL and names & set(NOT_SMALL):
        return False
    if row.keys in (LANGUAGE, SMALL) and names & set(AUDIO):
        return False
    return bool(names & set(row.keys))


TIERS = ((9, "above 8 GB"), (4, "4 to 8 GB"), (0, "below 4 GB"))
"""Whole GB of a GPU from which on a tier begins (the multi-GPU memory guide); 8 are not above."""


def tier(capacity: float) -> str:
    return next(name for least, name in TIERS if round(capacity / GIB) >= least)


def cache_line(numbers: int, capacity: float, free: float) -> str:
    """What a cache of so many numbers takes, and whether it leaves the GPU as much again.

    >>> cache_line(50000 * 96, 6 * GIB, 2 * GIB).partition("GPU ")[2]
    '(4 to 8 GB): `use_cache: true` is safe'
    """
    cache = numbers * 4
    size = f"{cache / GIB:.2f} GiB" if cache >= GIB / 10 else f"{cache / 2**20:.1f} MiB"
    safe = "`use_cache: true` is safe"
    advice = safe if cache <= free / 2 else "compute them for each batch (`use_cache: false`)"
    return f"a cache of all user vectors takes {size} more on each GPU ({tier(capacity)}): {advice}"
