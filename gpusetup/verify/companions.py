"""Checks the packages named by `--with`, which use torch or its GPU. Importing each in a new
process shows a wheel that was built for another torch or CUDA."""

from __future__ import annotations

import contextlib
import importlib
import os
import re
from typing import Dict, Optional, Sequence, Tuple

from .device.importing import first_line
from .values import FAILED, PASSED, SKIPPED, Check, Outcome, WrongQuestion

VARIABLE = "GPUSETUP_VERIFY_WITH"
"""The environment variable that tells a process which companion to import."""
ALL = "all"


TABLE: Dict[str, Tuple[str, Tuple[str, ...]]] = {
    **dict.fromkeys(("torchvision", "torchaudio", "torchcodec", "torchao"), ("", ())),
    **dict.fromkeys(("torch-geometric", "torch-scatter", "causal-conv1d", "triton"), ("", ())),
    **dict.fromkeys(("jax", "tensorflow", "numba", "flash-attn"), ("", ())),
    **dict.fromkeys(("sageattention", "bitsandbytes"), ("", ())),
    "numba-cuda": ("numba.cuda", ()),
    "transformer-engine": ("transformer_engine.pytorch", ()),
    "cupy": ("", ("cupy-cuda13x", "cupy-cuda12x")),
    "flash-attn-3": ("flash_attn_interface", ()),
    "flash-attn-4": ("flash_attn.cute", ()),
    "xformers": ("xformers.ops", ()),
    "flashinfer-python": ("flashinfer", ()),
    "onnxruntime": ("", ("onnxruntime-gpu",)),
    "vllm": ("vllm._C", ()),
    "sglang-kernel": ("sgl_kernel", ("sgl-kernel",)),
}
"""Package that needs torch, or uses the same GPU -> the module to import, if its name differs, and
the other distributions that install the same module."""
COMPANIONS = tuple(
    Check(
        name,
        "companions:tried",
        on=("host",),
        needs=("import",),
        limit_seconds=600.0,
        environment=((VARIABLE, name),),
        proves=f"programs can import {name}",
        means=f"programs that use {name} would stop",
        then=f"`gpusetup resolve {name}` names the version that goes with a torch",
    )
    for name in TABLE
)


def installed(package: str) -> Optional[str]:
    """The name and version of the first installed distribution of this package, or None."""
    from importlib.metadata import PackageNotFoundError, version

    for name in (package, *TABLE[package][1]):
        with contextlib.suppress(PackageNotFoundError):
            return f"{name} {version(name) or 'of no version'}"
    return None


def companions_named(names: Sequence[str]) -> Tuple[Check, ...]:
    """The checks of the packages with these names, or of all installed packages if the name is
    `all`. Raises WrongQuestion for an unknown name."""
    row_names = {name: package for package in TABLE for name in (package, *TABLE[package][1])}
    chosen = set()
    for name in names:
        # `Flash_Attn` and `flash-attn` are the same package.
        normalised = re.sub(r"[-_.]+", "-", name.strip().lower())
        if normalised == ALL:
            chosen |= set(filter(installed, TABLE))
        elif normalised in row_names:
            chosen.add(row_names[normalised])
        else:
            hint = "use one of " + ", ".join([ALL, *sorted(row_names)])
            raise WrongQuestion(f"--with {name}: verify does not know this package", hint)
    return tuple(check for check in COMPANIONS if check.name in chosen)


def tried(_: str) -> Outcome:
    """Import the package that VARIABLE names. The check fails if the import does."""
    import torch  # noqa: F401  (torch's libraries first, as most programs load them)

    name = os.environ[VARIABLE]
    distribution = installed(name)
    if distribution is None:
        hint = f"`gpusetup install {name}`"
        return Outcome(SKIPPED, f"{name} is not installed", hint=hint)
    # Most modules have the same name as their package, with `_` for `-`.
    module = TABLE[name][0] or name.replace("-", "_")
    try:
        importlib.import_module(module)
    except (Exception, SystemExit) as problem:
        detail = f"{distribution}: import {module} failed: {first_line(problem)}"
        return Outcome(FAILED, detail, hint=cause(name, module, problem))
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
