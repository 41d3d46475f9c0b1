"""The guides' presets: ready-made configs in which every line has a source and a reason.

Three come from the acceleration guide (`top`, `balanced`, `saving`, for a small transformer or
LSTM), the others from the optimisation guide (for an image network on an RTX 4090, 4080, 4070 or
GTX 1080). The values come from the guides. Where a guide is wrong or out of date, the reason in
that line says so.

`marks.py` compares configs with the same rows, so presets and advice always agree.
"""

from __future__ import annotations

import re
import shlex
from typing import NamedTuple

from gpusetup.errors import UsageError

ACCELERATION = "acceleration guide"
OPTIMISATION = "optimisation guide"


class Line(NamedTuple):
    """One setting of a preset, with the reason and source that are written next to it."""

    key: str
    value: str
    reason: str
    source: str


class Preset(NamedTuple):
    """A ready-made config for one class of cards."""

    name: str
    card: str
    """The card that the preset is for, as part of a sentence: `an RTX 4090 (24 GB)`."""
    trains: str
    guide: str
    expected: str
    """The speed, memory or utilisation that the guide promises."""
    lines: tuple[Line, ...]

    def value(self, key: str) -> str | None:
        """The value that the preset sets for a key; None if it does not set the key."""
        return next((line.value for line in self.lines if line.key == key), None)


# --- the acceleration guide -----------------------------------------------------------------------


def _sequence_lines(
    model: str, epochs: int, batch: tuple[int, int], hidden: int, workers: Line
) -> tuple[Line, ...]:
    """The lines of one of the acceleration guide's presets.

    `batch` is the batch size and the number of accumulation steps.
    """
    batch_size, accumulation = batch
    steps_reason = "the batch is one step of the optimizer"
    if accumulation > 1:
        steps_reason = f"{accumulation} x {batch_size} samples are one step of the optimizer"
    return (
        Line("model_type", model, "the guide's model for this much memory", ACCELERATION),
        Line("hidden_size", str(hidden), "for this much memory; 128 to 256 are usual",
             ACCELERATION),
        Line("num_layers", "2", "2 to 4 are usual", f"{ACCELERATION}, its table"),
        Line("dropout", "0.2", "0.1 to 0.3 are usual", f"{ACCELERATION}, its table"),
        Line("epochs", str(epochs), "watch the validation loss, stop earlier", ACCELERATION),
        # "above" refers to the head of the file, which explains how to measure the batch.
        Line("batch_size", str(batch_size), "a starting point; see above", ACCELERATION),
        Line("gradient_accumulation_steps", str(accumulation), steps_reason, ACCELERATION),
        Line("amp", "true", "use torch.amp, torch.cuda.amp is deprecated; saves 1 to 49 % of "
             "the memory", ACCELERATION),
        workers,
        Line("pin_memory", "true", "copies run while the GPU computes", ACCELERATION),
    )  # fmt: skip


def _workers(count: int, source: str = ACCELERATION) -> Line:
    """The line with the guide's number of workers, which `tune` replaces with a number that suits
    the machine's cores."""
    reason = "one for each usable core is better: `gpusetup tune` sets it"
    return Line("num_workers", str(count), reason, source)


# --- the optimisation guide -----------------------------------------------------------------------

# A GTX 1080 has compute capability 6.1, but tensor cores need 7.0.
NO_TENSOR_CORES = "saves memory; hardly faster, because a GTX 1080 has no tensor cores"
TENSOR_CORES = "tensor cores; saves 1 to 49 % of the memory, by model"
COMPILE = "some models become slower: `--benchmark` measures it"


class ImageFigures(NamedTuple):
    """The optimisation guide's values for one card."""

    batch: int
    base_channels: int
    num_blocks: int
    patch_size: int
    workers: int
    perceptual: bool = True
    compiles: bool = False
    precision_reason: str = TENSOR_CORES
    depth_source: str = OPTIMISATION
    """The source of the number of blocks, the patch size and the workers."""


def _image_lines(figures: ImageFigures) -> tuple[Line, ...]:
    """The settings of one of the optimisation guide's presets."""
    depth_source = figures.depth_source
    perceptual_reason = "another loss, so another experiment"
    return (
        Line("batch_size", str(figures.batch), "a starting point; see above", OPTIMISATION),
        Line("base_channels", str(figures.base_channels), "the width; memory grows with it",
             OPTIMISATION),
        Line("num_blocks", str(figures.num_blocks), "the depth; memory grows with it",
             depth_source),
        Line("patch_size", str(figures.patch_size), "twice the side takes four times the memory",
             depth_source),
        Line("use_perceptual", _switch(figures.perceptual), perceptual_reason, depth_source),
        Line("use_mixed_precision", "true", figures.precision_reason, OPTIMISATION),
        Line("compile_model", _switch(figures.compiles), COMPILE, OPTIMISATION),
        Line("grad_clip", "1.0", "keeps one bad batch from ruining the run", OPTIMISATION),
        _workers(figures.workers, depth_source),
        Line("pin_memory", "true", "copies run while the GPU computes", OPTIMISATION),
        Line("persistent_workers", "true", "workers do not start again in every epoch",
             OPTIMISATION),
        Line("prefetch_factor", "2", "each worker prepares 2 batches", OPTIMISATION),
    )  # fmt: skip


def _switch(is_on: bool) -> str:
    return "true" if is_on else "false"


# --- the rows -------------------------------------------------------------------------------------

IMAGES = "an image network"
UTILISATION = "75 to 85 % utilisation instead of 20 %"

PRESETS: tuple[Preset, ...] = (
    Preset("top", "a card with 12 GB or more", "a small transformer", ACCELERATION,
           "2 to 3 times the speed, 6 to 8 GB, 1 to 1.5 hours",
           _sequence_lines("transformer", 100, (512, 1), 256, _workers(4))),
    Preset("balanced", "a card with 8 to 12 GB", "an LSTM", ACCELERATION,
           "1.5 to 2 times the speed, 4 to 6 GB, 1.5 to 2 hours",
           _sequence_lines("lstm", 50, (256, 1), 128, _workers(2))),
    # The guide gives no number of workers for this preset, so it has that of `balanced`.
    Preset("saving", "a card with 8 GB or less", "an LSTM", ACCELERATION, "2 to 4 GB",
           _sequence_lines("lstm", 50, (128, 2), 64, _workers(2))),
    Preset("rtx-4090", "an RTX 4090 (24 GB)", IMAGES, OPTIMISATION, UTILISATION,
           _image_lines(ImageFigures(64, 128, 12, 256, workers=12, compiles=True))),
    # For this card the guide gives only batch and width; the other values are those of the next
    # smaller card.
    Preset("rtx-4080", "an RTX 4080 (16 GB)", IMAGES, OPTIMISATION, UTILISATION,
           _image_lines(ImageFigures(48, 96, 8, 192, workers=8,
                                     depth_source=f"{OPTIMISATION}, RTX 4070"))),
    Preset("rtx-4070", "an RTX 4070 (12 GB)", IMAGES, OPTIMISATION, UTILISATION,
           _image_lines(ImageFigures(32, 96, 8, 192, workers=8))),
    Preset("gtx-1080", "a GTX 1080 (8 GB)", IMAGES, OPTIMISATION, UTILISATION,
           _image_lines(ImageFigures(16, 64, 6, 128, workers=6, perceptual=False,
                                     precision_reason=NO_TENSOR_CORES))),
)  # fmt: skip

LIST = "list"
"""The value of `--preset` that lists the presets."""


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
    names = ", ".join(preset.name for preset in PRESETS)
    raise UsageError(f"No preset is called {name!r}", hint=f"one of {names}; or `{LIST}`")


# --- the file -------------------------------------------------------------------------------------

WIDTH = 100
"""The maximum line width of the file. The reasons are aligned in one column if they fit."""


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
    settings = [f"{line.key}: {line.value}" for line in preset.lines]
    widest = max(map(len, settings))
    text = "".join(f"# {row}".rstrip() + "\n" for row in head) + "\n"
    for setting, line in zip(settings, preset.lines, strict=True):
        text += f"{setting:{widest}}  # {line.reason} ({line.source})\n"
    return text
