"""A CUDA library that is not found: what brings it depends on who asks for it."""

from __future__ import annotations

import re

from gpusetup.model import Fix, parsed
from gpusetup.rules import ways
from gpusetup.rules.case import Case, cuda_needed, on
from gpusetup.rules.companions import public
from gpusetup.rules.plausible import is_a_name
from gpusetup.shell import Line, filled
from gpusetup.value import replace


def for_whoever_asks(case: Case, library: str, module: str | None) -> Fix:
    """torch anew with its libraries; an extension of another CUDA must be built for torch's."""
    if module == "ctranslate2":
        return _for_ctranslate2(case)
    if re.fullmatch(CUDNN_8, library) and _not_for_cudnn_8(case):
        return _two_cudnn(case)
    if module:
        return Fix(
            text=f"Install the current {module}, which finds the CUDA libraries that torch brings; "
            "torch itself must be a CUDA build",
            commands=(ways.pip(case, "install", "--upgrade", module),) if is_a_name(module) else (),
            looks=ways.look("see which CUDA torch has", ways.ask_torch(case)),
        )
    needed = cuda_needed(case.snapshot.torch)
    if needed and (of := re.match(RUNTIME, library)) and of.group(1) != needed[: len(of.group(1))]:
        return _for_another_cuda(case, of.group(1), needed)
    way = ways.install_torch(case, "Install torch with its libraries. ")
    text = "If an extension asks for it (the traceback names its file): install the extension's "
    text += f"build for {f'CUDA {needed}' if needed else 'the CUDA of the installed torch'}. Else: "
    return replace(way, text=text + way.text)


RUNTIME = r"libcudart\.so\.(\d+(?:\.\d)?)"
"""The runtime's name holds the CUDA of whoever asks for it: `10.2`, `11.0` for all of 11, `12`."""
CUDNN_8 = r"libcudnn\w*\.so\.8[.\d]*|cudnn\w*64_8\.dll"
CUDNN_9_FROM = "2.4.0"
"""The first torch whose wheels bring cuDNN 9 (their requirements)."""


def _for_another_cuda(case: Case, of: str, needed: str) -> Fix:
    return Fix(
        text=f"Not torch asks for it, which is built for CUDA {needed}, but something built for "
        f"CUDA {of} (the traceback names its file): install its build for CUDA {needed}",
        looks=ways.look("see which CUDA torch has", ways.ask_torch(case)),
    )


def _not_for_cudnn_8(case: Case) -> bool:
    """Whether it is not torch, as far as known, that asks for cuDNN 8."""
    version = case.snapshot.torch.version
    return version is None or parsed(public(version)) >= parsed(CUDNN_9_FROM)


def _two_cudnn(case: Case) -> Fix:
    ask = "import torch; print(torch.__version__, torch.backends.cudnn.version())"
    return Fix(
        text="A program built for cuDNN 8 asks for it (CTranslate2 before 4.5, onnxruntime-gpu "
        "before 1.19, torch before 2.4); torch from 2.4 on brings cuDNN 9. Update that program, or "
        "where torch itself is the older one, install it anew with its libraries",
        looks=ways.look(
            "see which versions there are",
            ways.command(case, ways.python(case), "-c", ask),
            ways.pip(case, "list"),
        ),
    )


def _for_ctranslate2(case: Case) -> Fix:
    """CTranslate2 brings no cuDNN; from 4.5 on it takes version 9, as torch does from 2.4 on."""
    folders = (
        "import nvidia.cublas.lib as b, nvidia.cudnn.lib as d; "
        "print(':'.join(m.__path__[0] for m in (b, d)))"
    )
    libraries = ("nvidia-cublas-cu12", "nvidia-cudnn-cu12==9.*")
    text = "CTranslate2 (faster-whisper) brings no cuDNN: before 4.5 it asks for version 8, from "
    text += "4.5 on for version 9, the one of torch 2.4 and newer. Update it, and let it find the "
    text += "libraries of the wheels"
    pattern = 'export LD_LIBRARY_PATH="$({python} -c {code})"'
    find: tuple[Line, ...] = (filled(pattern, python=ways.python(case), code=folders),)
    if on(case, "windows"):
        text += r": put nvidia\cudnn\bin and nvidia\cublas\bin of site-packages first on PATH"
        find = ()
    return Fix(
        text=text,
        commands=(ways.pip(case, "install", "--upgrade", "ctranslate2", *libraries), *find),
    )
