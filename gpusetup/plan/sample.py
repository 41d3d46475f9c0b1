"""A denoiser's sample as people say it: frames, height and width. Pure."""

from __future__ import annotations

import re

from gpusetup.errors import UsageError
from gpusetup.model.frozen import replace
from gpusetup.plan.job import Job
from gpusetup.plan.shape import Shape


def parsed(text: str) -> tuple[int, ...]:
    """Frames (of a video), height and width; UsageError for anything else.

    >>> parsed("480x720"), parsed("49x480x720"), parsed("1024")
    ((480, 720), (49, 480, 720), (1024, 1024))
    """
    numbers = tuple(map(int, re.findall(r"\d+", text)))
    if not re.fullmatch(r"\d{1,5}(x\d{1,5}){,2}", text.lower()) or not all(numbers):
        raise UsageError(
            f"`--size {text}` is no size in pixels", hint="`480x720`; a video: `49x480x720`"
        )
    return numbers * 2 if len(numbers) == 1 else numbers


def of_size(shape: Shape, size: str | None) -> Shape:
    """The shape with the tokens of a sample of a size; what is not said is as it is published for.

    >>> from gpusetup.plan.models import model_named
    >>> of_size(model_named("cogvideox-2b"), "49x480x720").tokens
    17776
    """
    if size is None:
        return shape
    if shape.sample is None:
        hint = "a model of text takes `--context`; a ViT has the tokens of its own image"
        raise UsageError(f"`--size` is for a denoiser, which {shape.name} is not", hint=hint)
    *frames, height, width = parsed(size)
    if min(height, width) < shape.sample.pixels:
        hint = f"a token stands for {shape.sample.pixels} pixels of a side"
        raise UsageError(f"`--size {size}` is less than one token of {shape.name}", hint=hint)
    usual = shape.sample.usual
    if frames and usual[0] == 1:
        raise UsageError(f"{shape.name} makes images, without frames", hint="`--size 1024x1024`")
    return replace(shape, tokens=shape.sample.tokens((*frames, usual[0])[0], height, width))


def said_of_sample(job: Job, size: str | None) -> list[str]:
    """What was taken for a sample, and what is on the GPU with the denoiser, as sentences."""
    sample = job.shape.sample
    if sample is None:
        return []
    usual = "x".join(map(str, sample.usual)).removeprefix("1x")
    others = f"{2 * (sample.encoder + sample.vae) / 2**30:.1f} GiB"
    where = {
        "none": "are not counted: latents and embeddings are made before",
        "loaded": "are there until the first step",
        "resident": "are there in each step; what the VAE takes while it encodes is not counted",
    }
    taken = [f"`--size {size or usual}` is {job.context:,} tokens"]
    return [
        *taken * (job.context == job.shape.tokens),
        f"encoders of text and the VAE ({others}) {where[job.encoders]}",
    ]
