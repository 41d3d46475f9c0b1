"""Denoisers of video by diffusers' own `config.json`: parameters, tokens, what a layer keeps.

Counts are those of diffusers 0.42.1's classes on the meta device. What a layer keeps was read off
the same classes: the tensors that autograd saves of one and of three layers, of four and of eight
latent frames, with CUDA's choice of dtypes under autocast (22 November 2026).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gpusetup.errors import BadInput
from gpusetup.model.frozen import Frozen
from gpusetup.plan.model.shape import Sample, Shape

T5_XXL, UMT5_XXL = 4_762_310_656, 5_680_910_336
"""Encoders of text: T5 1.1 XXL's, and the one of UMT5 XXL that Wan looks at."""
LLAMA_AND_CLIP = 7_504_924_672 + 123_060_480
"""Llama 3 8B without its head, and CLIP-L's text part (HunyuanVideo)."""

Values = Mapping[str, Any]
Rates = tuple[float, float, float]
"""Bytes for each token and element of the width, in 32 bits, in 16, and under autocast."""


class Sizes(Frozen):
    """What a config says, in one vocabulary."""

    width: int
    head: int
    layers: int
    single: int = 0
    inner: int
    """The width of the MLP."""


class Class(Frozen):
    """What all models of a class of diffusers share."""

    kind: str
    defaults: Mapping[str, Any]
    """What a config leaves out."""
    pixels: int
    """Pixels that a side of a latent stands for: the VAE's."""
    temporal: int
    """Frames that a latent stands for, after the first."""
    patch: str = "patch_size"
    text: int = 0
    """Tokens of text in the same sequence."""
    usual: tuple[int, int, int]
    """Frames, height and width that it is published for."""
    encoder: int = T5_XXL
    vae: int
    trained: Rates
    """What a layer keeps where its own weights learn."""
    frozen: Rates
    """The same where LoRA beside attention alone learns."""
    attentions: int = 4
    """Linear layers of attention in a layer that LoRA is beside."""
    gated: bool = False


CLASSES: dict[str, Class] = {
    "CogVideoXTransformer3DModel": Class(
        kind="cogvideox",
        defaults={"num_attention_heads": 30, "attention_head_dim": 64, "num_layers": 30,
                  "in_channels": 16, "out_channels": 16, "time_embed_dim": 512,
                  "text_embed_dim": 4096, "max_text_seq_length": 226, "patch_size": 2},
        pixels=8, temporal=4, text=226, usual=(49, 480, 720), vae=215_583_907,
        trained=(92.3, 46.2, 62.3), frozen=(56.3, 28.2, 40.3),
    ),
    "WanTransformer3DModel": Class(
        kind="wan",
        defaults={"num_attention_heads": 40, "attention_head_dim": 128, "num_layers": 40,
                  "in_channels": 16, "out_channels": 16, "text_dim": 4096, "freq_dim": 256,
                  "ffn_dim": 13824},
        pixels=8, temporal=4, usual=(81, 480, 832), encoder=UMT5_XXL, vae=126_892_531,
        trained=(120.1, 84.1, 88.1), frozen=(71.9, 48.0, 52.0), attentions=8,
    ),
    "HunyuanVideoTransformer3DModel": Class(
        kind="hunyuan-video",
        defaults={"num_attention_heads": 24, "attention_head_dim": 128, "num_layers": 20,
                  "num_single_layers": 40, "num_refiner_layers": 2, "in_channels": 16,
                  "out_channels": 16, "text_embed_dim": 4096, "pooled_projection_dim": 768,
                  "patch_size": 2, "mlp_ratio": 4, "guidance_embeds": True},
        pixels=8, temporal=4, text=256, usual=(61, 544, 960), encoder=LLAMA_AND_CLIP,
        vae=246_478_803, trained=(96.1, 56.1, 68.1), frozen=(52.1, 34.1, 42.1),
    ),
    "LTXVideoTransformer3DModel": Class(
        kind="ltx-video",
        defaults={"num_attention_heads": 32, "attention_head_dim": 64, "num_layers": 28,
                  "in_channels": 128, "out_channels": 128, "caption_channels": 4096,
                  "patch_size": 1},
        pixels=32, temporal=8, usual=(121, 512, 704), vae=419_193_649,
        trained=(116.1, 78.1, 82.1), frozen=(67.9, 48.0, 52.0), attentions=8,
    ),
    "MochiTransformer3DModel": Class(
        kind="mochi",
        defaults={"num_attention_heads": 24, "attention_head_dim": 128, "num_layers": 48,
                  "in_channels": 12, "pooled_projection_dim": 1536, "text_embed_dim": 4096,
                  "time_embed_dim": 256, "patch_size": 2},
        pixels=8, temporal=6, text=256, usual=(163, 480, 848), vae=459_748_611,
        trained=(126.8, 95.4, 95.4), frozen=(95.6, 72.0, 72.0), gated=True,
    ),
}  # fmt: skip
WIDE_LATENTS = 48
"""Channels of the latents of Wan 2.2's second VAE, a side of which stands for 16 pixels."""
SINGLE_TRAINED: Rates = (88.1, 52.1, 60.1)
SINGLE_FROZEN: Rates = (48.1, 32.1, 38.1)
"""What a layer of HunyuanVideo's with one stream keeps."""
MEASURED_RATIO = 4
"""The MLP's width over the model's in what was read off (Wan's own is 5.8 or 2.7)."""


def video_shape(values: Values, what: str) -> Shape:
    """A denoiser of video; `--frames` and `--size` say its tokens.

    >>> shape = video_shape({"_class_name": "CogVideoXTransformer3DModel"}, "config.json")
    >>> shape.parameters, shape.tokens
    (1693783872, 17776)
    """
    row = CLASSES[str(values["_class_name"])]
    said = {**row.defaults, **{key: one for key, one in values.items() if one is not None}}
    sizes = _sizes(said, row, what)
    outside, block, alone = COUNTS[row.kind](said, sizes)
    total = outside + sizes.layers * block + sizes.single * alone
    sample = _sample(said, row, sizes)
    layers = sizes.layers + sizes.single
    return Shape(
        name=str(values.get("_name_or_path") or values.get("name") or row.kind),
        kind=row.kind,
        parameters=total,
        active=total,
        largest_unit=max(block, alone),
        layers=layers,
        hidden=sizes.width,
        heads=sizes.width // sizes.head,
        query=sizes.width,
        key_value=sizes.width,
        intermediate=sizes.inner,
        gated=row.gated,
        activation="silu" if row.gated else "gelu",
        rms_norm=False,
        tokens=sample.tokens(*row.usual),
        sample=sample,
    )


MAY_SAY = ("patch_size", "patch_size_t", "ofs_embed_dim", "image_dim", "ffn_dim")
"""Sizes that only some configs of a class have."""
NEVER_NONE = ("num_attention_heads", "attention_head_dim", "num_layers")
MOST = 10**7


def _checked(key: str, value: Any, what: str, *, sides: bool) -> None:
    """BadInput for what is no size; `sides`: whether a patch has one for time, height and width."""
    each = value if key == "patch_size" and sides and isinstance(value, list) else [value]
    least = 1 if key in NEVER_NONE or key.startswith("patch") else 0
    sound = all(isinstance(one, int) and least <= one < MOST for one in each) and each
    if value is not None and key != "mlp_ratio" and not sound:
        raise BadInput(f"{what}: `{key}` is no size of a denoiser: {value!r}"[:200])


def _sizes(said: Values, row: Class, what: str) -> Sizes:
    for key in (*row.defaults, *MAY_SAY):
        _checked(key, said.get(key), what, sides="patch_size" not in row.defaults)
    width = said["num_attention_heads"] * said["attention_head_dim"]
    inner = 4 * width * 2 // 3 if row.gated else 4 * width
    return Sizes(
        width=width,
        head=said["attention_head_dim"],
        layers=said["num_layers"],
        single=said.get("num_single_layers", 0),
        inner=said.get("ffn_dim", inner),
    )


def _sample(said: Values, row: Class, sizes: Sizes) -> Sample:
    patch = said.get("patch_size", 2)
    times, side = (patch[0], patch[-1]) if isinstance(patch, (list, tuple)) else (1, patch)
    times = said.get("patch_size_t") or times or 1
    ratio = sizes.inner / sizes.width - MEASURED_RATIO if "ffn_dim" in said else 0.0
    share = sizes.single / (sizes.layers + sizes.single)
    return Sample(
        pixels=row.pixels * (2 if said["in_channels"] == WIDE_LATENTS else 1) * side,
        temporal=row.temporal,
        patched=times,
        text=said.get("max_text_seq_length", row.text),
        usual=row.usual,
        encoder=row.encoder,
        vae=row.vae,
        trained=_mixed(row.trained, SINGLE_TRAINED, share, 2 * ratio),
        frozen=_mixed(row.frozen, SINGLE_FROZEN, share, ratio),
        adapted=_adapted(row, said, sizes),
    )


def _mixed(double: Rates, single: Rates, share: float, wider: float) -> Rates:
    """The mean of both kinds of layers; an MLP that is wider keeps more, 4, 2 and 2 bytes each."""
    a, b, c = (one * (1 - share) + two * share for one, two in zip(double, single, strict=True))
    return a + 4 * wider, b + 2 * wider, c + 2 * wider


def _adapted(row: Class, said: Values, sizes: Sizes) -> tuple[int, int]:
    """Inputs and outputs of the linear layers beside which LoRA is: attention's, and all.

    A layer of one stream has no output of attention of its own; HunyuanVideo's refiner of text
    has layers like any other.
    """
    pair = 2 * sizes.width
    mlp = (2 + row.gated) * (sizes.width + sizes.inner)
    refiner = said.get("num_refiner_layers", 0)
    attention = pair * (row.attentions * (sizes.layers + refiner) + 3 * sizes.single)
    return attention, attention + mlp * (sizes.layers + refiner + sizes.single)


# --- parameters ----------------------------------------------------------------------------------


def _linear(inputs: int, outputs: int, *, bias: bool = True) -> int:
    return inputs * outputs + outputs * bias


def _by_time(width: int, inputs: int = 256) -> int:
    """Two linear layers over what a step's time is embedded in, or a text."""
    return _linear(inputs, width) + _linear(width, width)


Counted = tuple[int, int, int]
"""Parameters outside of the layers, of a layer, and of a layer of one stream."""


def _cogvideox(said: Values, sizes: Sizes) -> Counted:
    d, time, text = sizes.width, said["time_embed_dim"], said["text_embed_dim"]
    patch = said["patch_size"] ** 2 * (said.get("patch_size_t") or 1)
    has_bias = said.get("patch_size_t") is not None or bool(said.get("patch_bias", True))
    offset = said.get("ofs_embed_dim") or 0
    outside = _linear(said["in_channels"] * patch, d, bias=has_bias)
    outside += _linear(text, d) + _linear(d, time) + _linear(time, time)
    outside += 2 * _linear(offset, offset) if offset else 0
    outside += 2 * d + _linear(time, 2 * d) + 2 * d + _linear(d, patch * said["out_channels"])
    block = 2 * (_linear(time, 6 * d) + 2 * d) + 4 * _linear(d, d) + 4 * sizes.head
    return outside, block + _linear(d, 4 * d) + _linear(4 * d, d), 0


def _wan(said: Values, sizes: Sizes) -> Counted:
    d, inner = sizes.width, sizes.inner
    outside = _linear(said["in_channels"] * 4, d) + _by_time(d, said["freq_dim"])
    outside += _linear(d, 6 * d) + _by_time(d, said["text_dim"])
    outside += _linear(d, 4 * said["out_channels"]) + 2 * d
    block = 2 * (4 * _linear(d, d) + 2 * d) + 2 * d + 6 * d
    block += _linear(d, inner) + _linear(inner, d)
    if image := said.get("image_dim"):
        outside += 2 * image + _linear(image, image) + _linear(image, d) + 2 * d
        block += 2 * _linear(d, d) + d
    return outside, block, 0


def _hunyuan(said: Values, sizes: Sizes) -> Counted:
    d, text, inner = sizes.width, said["text_embed_dim"], sizes.inner
    mlp = _linear(d, inner) + _linear(inner, d)
    outside = _linear(said["in_channels"] * 4, d) + _linear(d, 2 * d)
    outside += _linear(d, 4 * said["out_channels"])
    outside += _by_time(d) * (1 + bool(said["guidance_embeds"]))
    outside += _by_time(d, said["pooled_projection_dim"])
    refined = 4 * d + 4 * _linear(d, d) + mlp + _linear(d, 2 * d)
    outside += _by_time(d) + _by_time(d, text) + _linear(text, d)
    outside += said["num_refiner_layers"] * refined
    block = 2 * _linear(d, 6 * d) + 8 * _linear(d, d) + 4 * sizes.head + 2 * mlp
    alone = _linear(d, 3 * d) + 3 * _linear(d, d) + 2 * sizes.head
    return outside, block, alone + _linear(d, inner) + _linear(d + inner, d)


def _ltx(said: Values, sizes: Sizes) -> Counted:
    d = sizes.width
    outside = _linear(said["in_channels"], d) + 2 * d + _by_time(d) + _linear(d, 6 * d)
    outside += _by_time(d, said["caption_channels"]) + _linear(d, said["out_channels"])
    block = 2 * (4 * _linear(d, d) + 2 * d) + 6 * d + _linear(d, 4 * d) + _linear(4 * d, d)
    return outside, block, 0


def _mochi(said: Values, sizes: Sizes) -> Counted:
    """The last layer gives no text: it has no MLP for it and no way out of its attention."""
    d, p, text = sizes.width, said["pooled_projection_dim"], said["text_embed_dim"]
    outside = _linear(said["in_channels"] * 4, d) + _by_time(d, said["time_embed_dim"])
    outside += _linear(text, 2 * text) + _linear(text, text) + _linear(text, d)
    outside += _linear(text, p) + _linear(d, 2 * d) + _linear(d, 4 * said["in_channels"])
    outside += 3 * d // 2
    inner = 4 * p * 2 // 3
    for_text = _linear(d, 4 * p) + _linear(d, p) + 3 * p * inner
    block = _linear(d, 4 * d) + 3 * d * d + 3 * p * d + 4 * sizes.head + _linear(d, d)
    block += 3 * d * sizes.inner + for_text
    return outside + _linear(d, p) - for_text, block, 0


COUNTS: dict[str, Callable[[Values, Sizes], Counted]] = {
    "cogvideox": _cogvideox,
    "wan": _wan,
    "hunyuan-video": _hunyuan,
    "ltx-video": _ltx,
    "mochi": _mochi,
}
