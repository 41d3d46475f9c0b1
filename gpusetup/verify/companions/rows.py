"""The rows of `--with`: one for each companion, in a process of its own."""

from __future__ import annotations

import re
from typing import Dict, List, Sequence, Tuple

from ..values import Check, WrongQuestion

ALL = "all"
_ROWS: Tuple[Tuple[str, str, str], ...] = (
    ("torchvision", "media:torchvision", "nms and a PNG are right"),
    ("torchaudio", "media:torchaudio", "a resampled sine is that sine"),
    ("torchcodec", "media:torchcodec", "a sound file is decoded to the samples written"),
    ("flash-attn", "attentions:flash_attn", "its attention is the exact one"),
    ("flash-attn-3", "attentions:flash_attn_3", "its attention is the exact one"),
    ("flash-attn-4", "attentions:flash_attn_4", "its attention is the exact one"),
    ("xformers", "attentions:xformers", "its attention is the exact one"),
    ("flashinfer-python", "attentions:flashinfer", "its prefill attention is the exact one"),
    ("sageattention", "attentions:sageattention", "its attention is near the exact one"),
    ("bitsandbytes", "numbers_of:bitsandbytes", "an 8-bit product is exact"),
    ("torchao", "numbers_of:torchao", "a layer of 8-bit weights is as near as they are"),
    ("onnxruntime", "numbers_of:onnxruntime", "a session runs on the device, and rightly"),
    ("jax", "numbers_of:jax", "a product on the device is right"),
    ("cupy", "numbers_of:cupy", "a product on the GPU is right"),
    ("tensorflow", "numbers_of:tensorflow", "a product on the device is right"),
    ("numba", "numbers_of:numba", "a loop compiled for the CPU is right"),
    ("numba-cuda", "numbers_of:numba_cuda", "a kernel compiled for the GPU is right"),
    ("triton", "engines:triton", "a kernel compiled for the GPU is right"),
    ("vllm", "engines:vllm", "its compiled RMS norm is right"),
    ("sglang-kernel", "engines:sgl_kernel", "its compiled RMS norm is right"),
    ("transformer-engine", "engines:transformer_engine", "its linear layer is right"),
    ("causal-conv1d", "engines:causal_conv1d", "its convolution is right"),
    ("torch-geometric", "engines:torch_geometric", "a graph convolution is right"),
    ("torch-scatter", "engines:torch_scatter", "a sum by places is right"),
)
OTHER_NAMES: Dict[str, Tuple[str, ...]] = {
    "onnxruntime": ("onnxruntime-gpu",),
    "cupy": ("cupy-cuda13x", "cupy-cuda12x"),
    "triton": ("triton-windows",),
    "sglang-kernel": ("sgl-kernel",),
}
"""Under which names else a companion is installed."""


def _row(name: str, run: str, proves: str) -> Check:
    return Check(
        name,
        "companions." + run,
        on=("cuda", "cpu", "host:none"),
        needs=("import", "gpu"),
        limit_seconds=600.0,
        environment=(("GPUSETUP_VERIFY_WITH", name),),
        proves=proves,
        means=f"programs that use {name} would stop, or compute wrong numbers",
        then=f"`gpusetup resolve {name}` names the version that goes with a torch",
    )


COMPANIONS: Tuple[Check, ...] = tuple(_row(*each) for each in _ROWS)


def companions_named(names: Sequence[str]) -> Tuple[Check, ...]:
    """The rows that are asked for; `all`: of what is installed. WrongQuestion for another name."""
    wanted = [plain(name) for name in names]
    known = {each: row for row in COMPANIONS for each in (row.name, *OTHER_NAMES.get(row.name, ()))}
    for name in wanted:
        if name != ALL and name not in known:
            raise WrongQuestion(
                f"--with {name}: no computation of it is known",
                "one of " + ", ".join([ALL, *sorted(known)]),
            )
    rows = [known[name] for name in wanted if name != ALL]
    if ALL in wanted:
        rows += [row for row in COMPANIONS if is_installed(row)]
    return tuple(row for row in COMPANIONS if row in rows)


def is_installed(row: Check) -> bool:
    from .companion import installed

    return installed(names_of(row)) is not None


def names_of(row: Check) -> List[str]:
    return [row.name, *OTHER_NAMES.get(row.name, ())]


def plain(name: str) -> str:
    """A name as an index normalises it.

    >>> plain("Flash_Attn")
    'flash-attn'
    """
    return re.sub(r"[-_.]+", "-", name.strip().lower())
