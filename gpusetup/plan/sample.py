"""A denoiser's sample as people say it: frames, height and width. Pure."""

from __future__ import annotations

import re

from gpusetup.errors import UsageError
from gpusetup.model.frozen import replace
from gpusetup.plan.job import Job
from gpusetup.plan.shape import Shape

MOST_PIXELS = 10**5


def pixels(text: str) -> tuple[int, int]:
    """Height and width, in the order that they are said; UsageError for anything else.

    >>> pixels("480x720"), pixels("1024")
    ((480, 720), (1024, 1024))
    """
    hit = re.fullmatch(r"(\d{1,6})(?:\s*[x\u00d7*]\s*(\d{1,6}))?", text.strip().lower())
    found = (int(hit[1]), int(hit[2] or hit[1])) if hit else (0, 0)
    if not all(1 <= side <= MOST_PIXELS for side in found):
        raise UsageError(f"`--size {text}` is no size in pixels", hint="`--size 480x720`")
    return found


def of_size(shape: Shape, frames: int | None, size: str | None) -> Shape:
    """The shape with the tokens of a sample of so many frames and pixels.

    What is not said is as the model is published for. UsageError where a model has no such
    sample, or a side has no whole token.

    >>> from gpusetup.plan.models import model_named
    >>> of_size(model_named("cogvideox-2b"), 49, "480x720").tokens
    17776
    """
    if frames is None and size is None:
        return shape
    if shape.sample is None:
        flag = "--frames" if size is None else "--size"
        hint = "a model of text takes `--context`; a ViT has the tokens of its own image"
        raise UsageError(f"`{flag}` is for a denoiser, which {shape.name} is not", hint=hint)
    usual = shape.sample.usual
    height, width = pixels(size) if size else usual[1:]
    if frames not in (None, 1) and usual[0] == 1:
        raise UsageError(f"{shape.name} makes images", hint="leave `--frames` out")
    if min(height, width) < shape.sample.pixels:
        hint = f"a token stands for {shape.sample.pixels} pixels of a side"
        raise UsageError(f"`--size {size}` is less than one token of {shape.name}", hint=hint)
    return replace(shape, tokens=shape.sample.tokens(frames or usual[0], height, width))


def said_of_sample(job: Job, frames: int | None, size: str | None) -> list[str]:
    """What was taken for a sample, and what is on the GPU with the denoiser, as sentences."""
    sample = job.shape.sample
    if sample is None:
        return []
    of = f", {sample.text} of them text's" * bool(sample.text)
    height, width = pixels(size) if size else sample.usual[1:]
    image = sample.usual[0] == 1
    what = f"{height} x {width} pixels" if image else (
        f"{frames or sample.usual[0]} frames of {height} x {width}")  # fmt: skip
    flags = "`--size` says others" if image else "`--frames` and `--size` say others"
    beside = f"{2 * (sample.encoder + sample.vae) / 2**30:.1f} GiB"
    where = {
        "none": "are not counted: latents and embeddings are made before",
        "loaded": "are there until the first step",
        "resident": "are there in each step; what the VAE takes while it encodes is not counted",
    }
    taken = [f"{what} are {job.context:,} tokens{of}; {flags}"] * (job.context == job.shape.tokens)
    return [*taken, f"encoders of text and the VAE ({beside}) {where[job.encoders]}"]
