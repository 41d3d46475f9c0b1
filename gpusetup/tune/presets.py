"""What serves where nothing was measured: the marks of the guides, as rows.

A mark is a range for the batch on one GPU. It never changes the effective batch by itself:
accumulation takes up the difference. The first row that fits counts.
"""

from __future__ import annotations

from gpusetup.model.frozen import Frozen

LANGUAGE = frozenset((
    "max_seq_length", "max_length", "seq_length", "seq_len", "sequence_length", "block_size",
    "cutoff_len", "sequence_len", "max_seq_len", "model_max_length", "encoder_seq_length",
    "model_name_or_path", "base_model", "model_path", "max_tokens", "vocab_size",
))  # fmt: skip
RECURRENT = frozenset(("lstm", "gru", "rnn", "lookback", "window_size", "bidirectional"))
"""Names, or values of `type`, `model` and the like."""
CONV = frozenset(("base_channels", "use_perceptual"))
SMALL = frozenset(("hidden_size", "hidden_dim", "d_model", "n_embd"))
SMALL_MOST = 512
"""The widest model that the marks for small ones are said of: the guide's are 64 to 256 wide."""
EMBEDDINGS = frozenset(("num_users", "num_items", "n_users", "n_items", "user_num", "item_num"))
NOMINAL_SLACK_GIB = 0.7
"""A card of 24 GB answers with 23.99, 23.7 or, with ECC on, 22.5 GiB."""


class Preset(Frozen):
    """One row; `from_gib` <= the GPU's memory < `below_gib`."""

    from_gib: float
    below_gib: float
    keys: frozenset[str]
    """One of these in the config shows the kind of model that the row was written for."""
    batch: tuple[int, int]
    source: str
    advice: str | None = None
    """What would change the experiment, in words."""

    def fits(self, gib: float, names: frozenset[str]) -> bool:
        return self.from_gib <= gib < self.below_gib and bool(names & self.keys)


def _conv(least: float, below: float, batch: int, channels: int) -> Preset:
    advice = f"A card of {least or 8:g} GB carries base_channels {channels}; it changes the model"
    source = "optimisation guide, presets by card"
    return Preset(from_gib=least or 5, below_gib=below, keys=CONV, batch=(batch, batch),
                  source=source, advice=advice)  # fmt: skip


G1 = "set-up guide, advice for 4 GB"
G3 = "acceleration guide, marks for small recurrent and transformer models"
G5 = "multi-GPU guide, tiers of a model with user and item embeddings"

PRESETS: tuple[Preset, ...] = (
    Preset(from_gib=0, below_gib=4.2, keys=EMBEDDINGS, batch=(128, 512), source=G5),
    Preset(from_gib=4.2, below_gib=9.2, keys=EMBEDDINGS, batch=(128, 1024), source=G5),
    Preset(from_gib=0, below_gib=5.7, keys=RECURRENT, batch=(64, 128), source=G3),
    Preset(from_gib=0, below_gib=5.7, keys=LANGUAGE, batch=(8, 16), source=G1,
           advice="On 4 GB a sequence length of 128 to 256 leaves room; it changes the experiment"),
    Preset(from_gib=0, below_gib=5.7, keys=CONV, batch=(8, 16), source=G1),
    Preset(from_gib=0, below_gib=5.7, keys=SMALL, batch=(64, 128), source=G3),
    _conv(24, 32, 64, 128), _conv(16, 24, 48, 96), _conv(12, 16, 32, 96), _conv(0, 12, 16, 64),
    Preset(from_gib=16, below_gib=32, keys=SMALL, batch=(1024, 2048), source=G3),
    Preset(from_gib=12, below_gib=16, keys=SMALL, batch=(512, 1024), source=G3),
    Preset(from_gib=5, below_gib=12, keys=SMALL, batch=(256, 512), source=G3),
)  # fmt: skip


def preset_for(memory_bytes: int | None, names: frozenset[str]) -> Preset | None:
    """The row for a GPU of this memory and a config with these keys.

    >>> preset_for(24 << 30, frozenset({"base_channels"})).batch
    (64, 64)
    >>> preset_for(24 << 30, frozenset({"output_dir"})) is None
    True
    """
    gib = (memory_bytes or 0) / (1 << 30) + NOMINAL_SLACK_GIB
    return next((row for row in PRESETS if memory_bytes and row.fits(gib, names)), None)
