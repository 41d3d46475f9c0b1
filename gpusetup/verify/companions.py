"""Checks the packages named by `--with`, which use torch or its GPU. Importing each in a new
process shows a wheel that was built for another torch or CUDA."""

from __future__ import annotations

import contextlib
import importlib
import os
import re
from typing import NamedTuple, Optional, Sequence, Tuple

from .device.importing import first_line
from .values import FAILED, PASSED, SKIPPED, Check, Outcome, WrongQuestion

VARIABLE = "GPUSETUP_VERIFY_WITH"
"""The environment variable that tells a process which companion to import."""
ALL = "all"


class Companion(NamedTuple):
    """A package that needs torch, or uses the same GPU."""

    name: str
    module: str = ""
    """The module to import, if its name differs from the package's."""
    also: Tuple[str, ...] = ()
    """Other distributions that install the same module."""


TABLE = (
    Companion("torchvision"),
    Companion("torchaudio"),
    Companion("torchcodec"),
    Companion("torchao"),
    Companion("torch-geometric"),
    Companion("torch-scatter"),
    Companion("causal-conv1d"),
    Companion("triton"),
    Companion("jax"),
    Companion("tensorflow"),
    Companion("numba"),
    Companion("numba-cuda", "numba.cuda"),
    Companion("transformer-engine", "transformer_engine.pytorch"),
    Companion("cupy", also=("cupy-cuda13x", "cupy-cuda12x")),
    Companion("flash-attn"),
    Companion("flash-attn-3", "flash_attn_interface"),
    Companion("flash-attn-4", "flash_attn.cute"),
    Companion("xformers", "xformers.ops"),
    Companion("flashinfer-python", "flashinfer"),
    Companion("sageattention"),
    Companion("bitsandbytes"),
    Companion("onnxruntime", also=("onnxruntime-gpu",)),
    Companion("vllm", "vllm._C"),
    Companion("sglang-kernel", "sgl_kernel", ("sgl-kernel",)),
)
COMPANIONS = tuple(
    Check(
        row.name,
        "companions:tried",
        on=("host",),
        needs=("import",),
        limit_seconds=600.0,
        environment=((VARIABLE, row.name),),
        proves=f"programs can import {row.name}",
        means=f"programs that use {row.name} would stop",
        then=f"`gpusetup resolve {row.name}` names the version that goes with a torch",
    )
    for row in TABLE
)


def installed(row: Companion) -> Optional[str]:
    """The name and version of the first installed distribution of this package, or None."""
    from importlib.metadata import PackageNotFoundError, version

    for name in (row.name, *row.also):
        with contextlib.suppress(PackageNotFoundError):
            return f"{name} {version(name) or 'of no version'}"
    return None


def companions_named(names: Sequence[str]) -> Tuple[Check, ...]:
    """The checks of the packages with these names, or of all installed packages if the name is
    `all`. Raises WrongQuestion for an unknown name."""
    row_names = {name: row.name for row in TABLE for name in (row.name, *row.also)}
    chosen = set()
    for name in names:
        # `Flash_Attn` and `flash-attn` are the same package.
        normalised = re.sub(r"[-_.]+", "-", name.strip().lower())
        if normalised == ALL:
            chosen |= {row.name for row in TABLE if installed(row)}
        elif normalised in row_names:
            chosen.add(row_names[normalised])
        else:
            hint = "one of " + ", ".join([ALL, *sorted(row_names)])
            raise WrongQuestion(f"--with {name}: it is not known", hint)
    return tuple(check for check in COMPANIONS if check.name in chosen)


def tried(_: str) -> Outcome:
    """Import the package that VARIABLE names. The check fails if the import does."""
    import torch  # noqa: F401  (torch's libraries first, as most programs load them)

    row = next(row for row in TABLE if row.name == os.environ[VARIABLE])
    distribution = installed(row)
    if distribution is None:
        hint = f"`gpusetup install {row.name}`"
        return Outcome(SKIPPED, f"{row.name} is not installed", hint=hint)
    # Most modules have the same name as their package, with `_` for `-`.
    module = row.module or row.name.replace("-", "_")
    try:
        importlib.import_module(module)
    except (Exception, SystemExit) as problem:
        detail = f"{distribution}: import {module} failed: {first_line(problem)}"
        return Outcome(FAILED, detail, hint=cause(row.name, module, problem))
    return Outcome(PASSED, f"{distribution} imports")


CAUSES: Tuple[Tuple[str, str], ...] = (
    (
        r"undefined symbol|Symbol not found|procedure could not be found|different CUDA version",
        "it was built for another torch: `gpusetup resolve {0}` names versions that fit each other",
    ),
    (r"FFmpeg|libav(util|codec)", "FFmpeg is missing: `apt install ffmpeg`, or conda's `ffmpeg`"),
    (
        r"lib(cudart|cublas|cudnn|nvrtc|npp)\w*\.so|cu(dart|blas|dnn)64",
        "it was built for another CUDA: `gpusetup resolve {0}` names versions that fit each other",
    ),
    (r"libcuda\.so|nvcuda\.dll", "there is no NVIDIA driver here: `gpusetup doctor`"),
    (r"GLIBC\w*_[\d.]+' not found", "this system's C library is older than its wheel needs"),
    (r"", '`python -c "import {1}"` shows the whole error'),
)
"""A pattern in an import error -> meaning and fix (`{0}`: package, `{1}`: module). The first
counts."""


def cause(name: str, module: str, problem: BaseException) -> str:
    """What an import error means, and how to fix it."""
    # This type of error contains the missing module's name.
    if isinstance(problem, ModuleNotFoundError):
        package = (problem.name or "").partition(".")[0]
        return f"it needs {package}, which is not installed: `gpusetup install {package}`"
    # The last row of the table matches every message.
    meaning = next(meaning for words, meaning in CAUSES if re.search(words, str(problem)))
    return meaning.format(name, module)
