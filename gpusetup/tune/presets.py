"""The guides' presets: ready-made configs to start from.

Three come from the acceleration guide (`top`, `balanced`, `saving`, for a small transformer or
LSTM), the others from the optimisation guide (for an image network on an RTX 4090, 4080, 4070 or
GTX 1080). The values come from the guides.

`advice.py` compares configs with the same rows, so presets and advice always agree.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import NamedTuple


class Preset(NamedTuple):
    """A ready-made config for one class of cards."""

    name: str
    card: str
    """The card that the preset is for, as part of a sentence: `an RTX 4090 (24 GB)`."""
    trains: str
    guide: str
    values: Mapping[str, str]
    """Key -> value, as YAML, in the order of the file."""


SEQUENCE_KEYS = (
    "model_type", "hidden_size", "num_layers", "dropout", "epochs", "batch_size",
    "gradient_accumulation_steps", "amp", "num_workers", "pin_memory",
)  # fmt: skip
IMAGE_KEYS = (
    "batch_size", "base_channels", "num_blocks", "patch_size", "use_perceptual",
    "use_mixed_precision", "compile_model", "grad_clip", "num_workers", "pin_memory",
    "persistent_workers", "prefetch_factor",
)  # fmt: skip


def _sequences(name: str, card: str, trains: str, values: str) -> Preset:
    settings = dict(zip(SEQUENCE_KEYS, values.split(), strict=True))
    return Preset(name, card, trains, "acceleration guide", settings)


def _images(name: str, card: str, values: str) -> Preset:
    settings = dict(zip(IMAGE_KEYS, values.split(), strict=True))
    return Preset(name, card, "an image network", "optimisation guide", settings)


_PRESETS = (
    _sequences("top", "a card with 12 GB or more", "a small transformer",
               "transformer 256 2 0.2 100 512 1 true 4 true"),
    _sequences("balanced", "a card with 8 to 12 GB", "an LSTM",
               "lstm 128 2 0.2 50 256 1 true 2 true"),
    # The guide gives no number of workers for this preset, so it has that of `balanced`.
    _sequences("saving", "a card with 8 GB or less", "an LSTM",
               "lstm 64 2 0.2 50 128 2 true 2 true"),
    _images("rtx-4090", "an RTX 4090 (24 GB)", "64 128 12 256 true true true 1.0 12 true true 2"),
    # For this card the guide gives only batch and width; the other values are those of the next
    # smaller card.
    _images("rtx-4080", "an RTX 4080 (16 GB)", "48 96 8 192 true true false 1.0 8 true true 2"),
    _images("rtx-4070", "an RTX 4070 (12 GB)", "32 96 8 192 true true false 1.0 8 true true 2"),
    # Mixed precision saves memory here, but hardly any time: its compute capability is 6.1, and
    # tensor cores need 7.0.
    _images("gtx-1080", "a GTX 1080 (8 GB)", "16 64 6 128 false true false 1.0 6 true true 2"),
)  # fmt: skip

PRESETS = {preset.name: preset for preset in _PRESETS}


def spelled(text: str) -> str:
    """A preset name as the table spells it: lower case, with dashes.

    >>> spelled("RTX 4090"), spelled("gtx_1080"), spelled("Top")
    ('rtx-4090', 'gtx-1080', 'top')
    """
    return "-".join(re.sub(r"[_-]", " ", text.lower()).split())


# --- the file -------------------------------------------------------------------------------------


def preset_text(preset: Preset, file: str) -> str:
    """The preset as a YAML file; the commands in its comments contain the file's name."""
    # A line break in a file name would end the comment.
    quoted_file = shlex.quote(file) if file.isprintable() else "CONFIG"
    head = (
        f"Preset `{preset.name}`: {preset.trains} on {preset.card}.",
        f"Source: {preset.guide}. A starting point: change it to suit your model and data.",
        "Use torch.amp for mixed precision, because torch.cuda.amp is deprecated.",
        "With several GPUs, torchrun starts a process for each, and batch_size counts for each.",
        "",
        "Adapt the workers and the precision to your machine:",
        f"  gpusetup tune {quoted_file} --in-place",
        "Then measure what mixed precision, batch size, workers and compiling gain:",
        f"  gpusetup tune {quoted_file} --benchmark --code MODULE:FUNCTION",
    )
    comments = "".join(f"# {row}".rstrip() + "\n" for row in head)
    return comments + "\n" + "".join(f"{key}: {value}\n" for key, value in preset.values.items())
