"""The guides' presets: ready-made configs in which every line has a source and a reason.

Three come from the acceleration guide (`top`, `balanced`, `saving`, for a small transformer or
LSTM), the others from the optimisation guide (for an image network on an RTX 4090, 4080, 4070 or
GTX 1080). The values come from the guides. Where a guide is wrong or out of date, the reason in
that line says so.

`advice.py` compares configs with the same rows, so presets and advice always agree.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import NamedTuple

from gpusetup.errors import UsageError

ACCELERATION = "acceleration guide"
OPTIMISATION = "optimisation guide"


class Preset(NamedTuple):
    """A ready-made config for one class of cards."""

    name: str
    card: str
    """The card that the preset is for, as part of a sentence: `an RTX 4090 (24 GB)`."""
    trains: str
    guide: str
    expected: str
    """The speed, memory or utilisation that the guide promises."""
    values: Mapping[str, str]
    """Key -> value, as YAML, in the order of the file."""
    other_reasons: Mapping[str, str] = {}
    """Key -> the reason for its value, where it is not the usual one."""


REASONS = {
    "model_type": "the guide's model for this much memory",
    "hidden_size": "for this much memory; 128 to 256 are usual",
    "num_layers": "2 to 4 are usual",
    "dropout": "0.1 to 0.3 are usual",
    "epochs": "watch the validation loss, stop earlier",
    # "above" refers to the head of the file, which explains how to measure the batch.
    "batch_size": "a starting point; see above",
    "gradient_accumulation_steps": "so many batches are one step of the optimizer",
    "amp": "use torch.amp, torch.cuda.amp is deprecated; saves 1 to 49 % of the memory",
    "base_channels": "the width; memory grows with it",
    "num_blocks": "the depth; memory grows with it",
    "patch_size": "twice the side takes four times the memory",
    "use_perceptual": "another loss, so another experiment",
    "use_mixed_precision": "tensor cores; saves 1 to 49 % of the memory, by model",
    "compile_model": "some models become slower: `--benchmark` measures it",
    "grad_clip": "1.0 keeps one bad batch from ruining the run",
    "num_workers": "one for each usable core is better: `gpusetup tune` sets it",
    "pin_memory": "copies run while the GPU computes",
    "persistent_workers": "workers do not start again in every epoch",
    "prefetch_factor": "each worker prepares 2 batches",
}
"""Key of a preset -> the reason for its value."""


SEQUENCE_KEYS = (
    "model_type", "hidden_size", "num_layers", "dropout", "epochs", "batch_size",
    "gradient_accumulation_steps", "amp", "num_workers", "pin_memory",
)  # fmt: skip
IMAGE_KEYS = (
    "batch_size", "base_channels", "num_blocks", "patch_size", "use_perceptual",
    "use_mixed_precision", "compile_model", "grad_clip", "num_workers", "pin_memory",
    "persistent_workers", "prefetch_factor",
)  # fmt: skip


def _sequences(name: str, card: str, trains: str, expected: str, values: str) -> Preset:
    settings = dict(zip(SEQUENCE_KEYS, values.split(), strict=True))
    return Preset(name, card, trains, ACCELERATION, expected, settings)


def _images(name: str, card: str, values: str, **other_reasons: str) -> Preset:
    settings = dict(zip(IMAGE_KEYS, values.split(), strict=True))
    expected = "75 to 85 % utilisation instead of 20 %"
    return Preset(name, card, "an image network", OPTIMISATION, expected, settings, other_reasons)


PRESETS: tuple[Preset, ...] = (
    _sequences(
        "top", "a card with 12 GB or more", "a small transformer",
        "2 to 3 times the speed, 6 to 8 GB, 1 to 1.5 hours",
        "transformer 256 2 0.2 100 512 1 true 4 true"),
    _sequences(
        "balanced", "a card with 8 to 12 GB", "an LSTM",
        "1.5 to 2 times the speed, 4 to 6 GB, 1.5 to 2 hours",
        "lstm 128 2 0.2 50 256 1 true 2 true"),
    # The guide gives no number of workers for this preset, so it has that of `balanced`.
    _sequences(
        "saving", "a card with 8 GB or less", "an LSTM", "2 to 4 GB",
        "lstm 64 2 0.2 50 128 2 true 2 true"),
    _images("rtx-4090", "an RTX 4090 (24 GB)", "64 128 12 256 true true true 1.0 12 true true 2"),
    # For this card the guide gives only batch and width; the other values are those of the next
    # smaller card.
    _images(
        "rtx-4080", "an RTX 4080 (16 GB)", "48 96 8 192 true true false 1.0 8 true true 2",
        **dict.fromkeys(
            ("num_blocks", "patch_size", "use_perceptual"),
            "the RTX 4070's, for the guide gives none")),
    _images("rtx-4070", "an RTX 4070 (12 GB)", "32 96 8 192 true true false 1.0 8 true true 2"),
    # Its compute capability is 6.1, but tensor cores need 7.0.
    _images(
        "gtx-1080", "a GTX 1080 (8 GB)", "16 64 6 128 false true false 1.0 6 true true 2",
        use_mixed_precision="saves memory; hardly faster, because a GTX 1080 has no tensor cores"),
)  # fmt: skip

PRESET_NAMES = tuple(preset.name for preset in PRESETS)


def spelled(text: str) -> str:
    """A preset name as the table spells it: lower case, with dashes.

    >>> spelled("RTX 4090"), spelled("gtx_1080"), spelled("Top")
    ('rtx-4090', 'gtx-1080', 'top')
    """
    return "-".join(re.sub(r"[_-]", " ", text.lower()).split())


def preset_named(name: str) -> Preset:
    """The preset with this name in any spelling; UsageError with the existing names if there is
    none."""
    for preset in PRESETS:
        if preset.name == spelled(name):
            return preset
    hint = f"one of {', '.join(PRESET_NAMES)}"
    raise UsageError(f"No preset is called {name!r}", hint=hint)


# --- the file -------------------------------------------------------------------------------------


def preset_text(preset: Preset, file: str) -> str:
    """The preset as a YAML file; the commands in its comments contain the file's name."""
    # A line break in a file name would end the comment.
    quoted_file = shlex.quote(file) if file.isprintable() else "CONFIG"
    head = (
        f"Preset `{preset.name}`: {preset.trains} on {preset.card}.",
        f"Source: {preset.guide}. A starting point: change it to suit your model and data.",
        "",
        f"The guide's figures: {preset.expected}.",
        "They depend on your model and data, so measure what each step gains:",
        f"  gpusetup tune {quoted_file} --benchmark --code MODULE:FUNCTION",
        "batch_size is a starting point too, and a different batch size needs a different learning",
        "rate. Measure which batch size fits:",
        f"  gpusetup tune {quoted_file} --batch-size --code MODULE:FUNCTION",
        "For several GPUs, start one process per GPU with torchrun, not with the deprecated",
        "torch.distributed.launch; then batch_size counts for each GPU.",
        "First, adapt the workers and the precision to your machine:",
        f"  gpusetup tune {quoted_file} --in-place",
    )
    widest = max(len(f"{key}: {value}") for key, value in preset.values.items())
    text = "".join(f"# {row}".rstrip() + "\n" for row in head) + "\n"
    for key, value in preset.values.items():
        reason = preset.other_reasons.get(key, REASONS[key])
        text += f"{f'{key}: {value}':{widest}}  # {reason} ({preset.guide})\n"
    return text
