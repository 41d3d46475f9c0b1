"""The table of `--with`: a row for each companion, which is tried in a process of its own."""

from __future__ import annotations

import importlib
import os
import re
from typing import Dict, Sequence, Tuple

from ..device.importing import first_line
from ..judging.tolerance import agree, judged
from ..values import FAILED, PASSED, SKIPPED, Check, Outcome, WrongQuestion
from . import computations as of
from .companion import VARIABLE, Companion, cannot, cause, installed

ALL = "all"
EXACT = "its attention is the exact one"
FLASH = of.attends(lambda flash, *heads: flash.flash_attn_func(*heads, causal=True))
XFORMERS = of.attends(
    lambda ops, *heads: ops.memory_efficient_attention(*heads, ops.LowerTriangularMask())
)
FLASHINFER = of.attends(
    lambda infer, *heads: infer.single_prefill_with_kv_cache(*(h[0] for h in heads), causal=True)[
        None
    ]
)
# It multiplies q and k in int8: its answer is off by a part of the spread of v.
SAGE = of.attends(
    lambda sage, *heads: sage.sageattn(*heads, tensor_layout="NHD", is_causal=True), 0.15
)
IMPORTED = (
    "torchaudio",
    "torchcodec",
    "torchao",
    "torch-geometric",
    "torch-scatter",
    "causal-conv1d",
    "triton",
    "jax",
    "tensorflow",
    "numba",
)
TABLE = (
    *map(Companion, IMPORTED),
    Companion("numba-cuda", module="numba.cuda"),
    Companion("transformer-engine", module="transformer_engine.pytorch"),
    Companion("cupy", also=("cupy-cuda13x", "cupy-cuda12x")),
    Companion("torchvision", "its nms is right", of.torchvision),
    Companion("flash-attn", EXACT, FLASH, gpu=(8, 0)),
    Companion("flash-attn-3", EXACT, FLASH, "flash_attn_interface", (9, 0)),
    Companion("flash-attn-4", EXACT, FLASH, "flash_attn.cute", (9, 0)),
    Companion("xformers", EXACT, XFORMERS, "xformers.ops", (7, 0)),
    Companion("flashinfer-python", EXACT, FLASHINFER, "flashinfer", (7, 5)),
    Companion("sageattention", EXACT, SAGE, gpu=(8, 0)),
    Companion("bitsandbytes", "an 8-bit product is exact", of.bitsandbytes),
    Companion("onnxruntime", also=("onnxruntime-gpu",)),
    Companion("vllm", module="vllm._C"),
    Companion("sglang-kernel", module="sgl_kernel", also=("sgl-kernel",)),
)
COMPANIONS = tuple(
    Check(
        row.name,
        "companions.rows:tried",
        on=("cuda", "cpu", "host:none"),
        needs=("import", "gpu"),
        limit_seconds=600.0,
        environment=((VARIABLE, row.name),),
        proves=row.proves,
        means=f"programs that use {row.name} would stop, or compute wrong numbers",
        then=f"`gpusetup resolve {row.name}` names the version that goes with a torch",
    )
    for row in TABLE
)


def companions_named(names: Sequence[str]) -> Tuple[Check, ...]:
    """The rows that are asked for, as an index normalises a name; `all`: of what is installed.
    WrongQuestion for another name."""
    known: Dict[str, str] = {name: row.name for row in TABLE for name in (row.name, *row.also)}
    wanted = set()
    for name in names:
        plain = re.sub(r"[-_.]+", "-", name.strip().lower())
        if plain == ALL:
            wanted |= {row.name for row in TABLE if installed(row)}
        elif plain in known:
            wanted.add(known[plain])
        else:
            raise WrongQuestion(
                f"--with {name}: no computation of it is known",
                "one of " + ", ".join([ALL, *sorted(known)]),
            )
    return tuple(row for row in COMPANIONS if row.name in wanted)


def tried(device: str) -> Outcome:
    """Import the companion of this process and compute; what an import raises is its failure."""
    import torch

    row = next(each for each in TABLE if each.name == os.environ[VARIABLE])
    told = installed(row)
    if told is None:
        hint = f"`gpusetup install {row.name}`"
        return Outcome(SKIPPED, f"{row.name} is not installed", hint=hint)
    unable = cannot(device, row.gpu)
    if unable:
        return Outcome(SKIPPED, f"{told} {unable}")
    module = row.module or row.name.replace("-", "_")
    try:
        loaded = importlib.import_module(module)
    except (Exception, SystemExit) as problem:
        detail = f"{told}: import {module} failed: {first_line(problem)}"
        return Outcome(FAILED, detail, hint=cause(row.name, module, problem))
    if device == "none" or row.compute is None:
        return Outcome(PASSED, f"{told} imports; nothing was computed")
    found, exact, allowed = row.compute(torch, loaded, device)
    outcome = judged([agree(told, found, exact, allowed)], "float64")
    return outcome if outcome.status == FAILED else Outcome(PASSED, f"{told}: {row.proves}")
