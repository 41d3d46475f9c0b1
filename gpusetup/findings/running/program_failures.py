"""Programs that fail for a reason of their own: GPU, driver and torch may be whole."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpusetup.evidence.context import (
    RuleContext,
    driver_answers,
    event_evidence,
    events,
    has_nvidia,
)
from gpusetup.evidence.places import started_without_a_gpu
from gpusetup.evidence.plausible import is_an_identifier
from gpusetup.findings.container.start import start_with_gpu
from gpusetup.findings.libraries.loading import CUDA_LIB_MISSING
from gpusetup.findings.programs import called, is_beside_torch
from gpusetup.findings.record import Cause, Likelier
from gpusetup.fixes import packages, paste
from gpusetup.messages.compilers import BUILT_BY_HAND
from gpusetup.model.finding import Finding, Fix, Severity
from gpusetup.model.machine import Event
from gpusetup.model.shell import lines

PROGRAM_WITHOUT_GPU_SUPPORT = Cause(
    id="program-without-gpu-support",
    severity=Severity.WARNING,
    title="a program is installed without its GPU part",
    means="The package that is installed computes on the CPU only; the GPU's stack may be whole.",
    proven_by="The program's own word",
    not_when="cuda-lib-missing: its GPU part is there and a library is not",
    way_out="The program's own build for CUDA",
    source="The programs' installation guides",
    failure=3,
)


def without_gpu_support(context: RuleContext) -> Iterator[Finding]:
    """A program says that it was built, or installed, for the CPU."""
    heard = _about_it(context, "program-without-gpu-support")
    if heard and not _has_its_plugin(context) and not events(context, *MORE_TELLING):
        yield _found(
            context,
            PROGRAM_WITHOUT_GPU_SUPPORT,
            "{program} is installed without GPU support, and runs on the CPU",
            heard,
        )


def _found(
    context: RuleContext, cause: Cause, title: str, heard: tuple[Event, ...], fix: Fix | None = None
) -> Finding:
    """What a program says of itself, with its own way out where there is no other."""
    name = _name(context, heard[0])
    values = {**heard[0].values, "program": name}
    own = fix or Fix(text=_way(context, name))
    return cause.found(title.format_map(values), evidence=event_evidence(heard), fix=own)


def _has_its_plugin(context: RuleContext) -> bool:
    """JAX's part for CUDA is installed, and does not start: then it is not lacking."""
    named = (one.name.lower() for one in context.snapshot.packages or ())
    return context.snapshot.failing.program == "JAX" and any(
        name.startswith("jax-cuda") for name in named
    )


MORE_TELLING = ("cuda-lib-missing", "extension-abi-mismatch", "driver-too-old", "cuda-error")
"""Why the GPU part did not load, where the text has that too."""


def _name(context: RuleContext, event: Event) -> str:
    return event.values.get("program") or context.snapshot.failing.program or "It"


def _way(context: RuleContext, name: str) -> str:
    program = called(context, name)
    newest = "Install its build for the CUDA of this torch, or its newest release"
    return (program and program.way) or newest


PROGRAM_REQUIREMENT_MISSING = Cause(
    id="program-requirement-missing",
    severity=Severity.WARNING,
    title="a program or its build lacks something that is not CUDA's",
    means="A build tool, Python's headers, FFmpeg: nothing of the GPU's stack.",
    proven_by="The message that names it",
    not_when="build-isolation-no-torch, cuda-toolkit-missing, ninja-missing, compiler-missing",
    way_out="Install what is named",
    source="pip documentation, build system interface; torchcodec's installation guide",
    failure=1,
)

FROM_PIP = {
    "pkg_resources": "setuptools<81",
    "distutils": "setuptools",
    "skbuild": "scikit-build",
    "scikit_build_core": "scikit-build-core",
    "setuptools_scm": "setuptools-scm",
    "cython": "Cython",
    "CMake": "cmake",
    "yaml": "PyYAML",
    "cv2": "opencv-python",
    "PIL": "pillow",
    "sklearn": "scikit-learn",
    "skimage": "scikit-image",
    "bs4": "beautifulsoup4",
    "dotenv": "python-dotenv",
    "git": "GitPython",
    "Crypto": "pycryptodome",
    "attr": "attrs",
    "flashinfer": "flashinfer-python",
    "comfy_aimdo": "comfy-aimdo",
}
"""Module -> the distribution that brings it, where the names differ."""


def requirement_missing(context: RuleContext) -> Iterator[Finding]:
    """A build tool, a header or a media library that a program names."""
    heard = _about_it(context, "program-requirement-missing")
    if heard:
        lacks = heard[0].values.get("lacks", "something")
        what = "The build of {program}" if heard[0].values.get("step") == "build" else "{program}"
        fix = _brings(context, lacks)
        yield _found(context, PROGRAM_REQUIREMENT_MISSING, f"{what} lacks {lacks}", heard, fix)


def _brings(context: RuleContext, lacks: str) -> Fix:
    if lacks == "a C++ compiler":
        return Fix(
            text="Install a C++ compiler (gcc: build-essential, gcc-c++)",
            commands=packages.compiler(context),
            needs_root=True,
        )
    if lacks == "flash_attn":
        return Fix(
            text="flash-attn has to be built for the very torch that is here. gpusetup chooses the "
            "two together; `pip install flash-attn` compiles it where no wheel fits, which needs "
            "nvcc and an hour. Most programs run without it: transformers by "
            '`attn_implementation="sdpa"`',
            commands=(paste.gpusetup(context, "flash-attn"),),
        )
    if re.fullmatch(BUILT_BY_HAND, lacks):
        return Fix(
            text=f"Install {lacks.replace('_', '-')} as its own guide says: it is compiled against "
            "this torch (`--no-build-isolation`), with a CUDA toolkit of torch's major"
        )
    if not is_an_identifier(lacks) or "." in lacks:
        return Fix(
            text=f"Install {lacks}: a header comes with a package of the system (Python.h: "
            "python3-dev, python3-devel), of conda, or with a clone's submodules"
        )
    wanted = FROM_PIP.get(lacks, lacks)
    return Fix(
        text=f"Install {wanted} into this environment, then run it again",
        commands=(paste.pip(context, "install", wanted),),
    )


PROGRAM_RELEASE_TOO_OLD = Cause(
    id="program-release-too-old",
    severity=Severity.WARNING,
    title="a program's release does not fit what is beside it",
    means="It is older, or newer, than the driver or the torch that it calls.",
    proven_by="The program's own message",
    way_out="Its newest release",
    source="NVIDIA Warp, issues 940 and 982",
    failure=2,
)


def release_too_old(context: RuleContext) -> Iterator[Finding]:
    """A program of another time than the driver or the torch that it calls."""
    heard = _about_it(context, "program-release-too-old")
    if heard:
        torch = heard[0].values.get("torch")
        beside = f"installed torch {torch}" if torch else heard[0].values.get("beside", "driver")
        unnamed = _name(context, heard[0]) == "It"
        newest = OR_ITS_TORCH if unnamed and beside.startswith("installed torch") else None
        title = f"This release of {{program}} does not fit the {beside}"
        yield _found(context, PROGRAM_RELEASE_TOO_OLD, title, heard, newest)


OR_ITS_TORCH = Fix(
    text="Install the newest release of the program, or the torch (with its torchvision and "
    "torchaudio) that its own requirements name"
)


PROGRAM_SEES_NO_GPU = Cause(
    id="program-sees-no-gpu",
    symptom=True,
    likelier=(
        Likelier(
            cause="container-no-gpu",
            shown=started_without_a_gpu,
            because="it runs in a container that was started without a GPU",
            way=start_with_gpu,
        ),
    ),
    severity=Severity.WARNING,
    title="a program beside torch finds no GPU, and nothing shows that the driver lacks it",
    means="Its own build, its libraries or its settings keep it from the GPU.",
    proven_by="The program's own word, beside a driver that answers",
    not_when="The driver, the container or a variable is what hides the GPU: their own findings",
    way_out="The program's build for CUDA",
    source="The programs' installation guides",
    failure=4,
)


def sees_no_gpu(context: RuleContext) -> Iterator[Finding]:
    """A program that finds no GPU though the driver answers."""
    heard = _about_it(context, "program-sees-no-gpu")
    if is_beside_torch(context):
        heard = heard or events(context, "cuda-unavailable")
    if not heard or events(context, *MORE_TELLING) or has_nvidia(context) is False:
        return
    unasked = "seen" in heard[0].values
    way = _way(context, _name(context, heard[0]))
    looks = paste.look("see first whether the driver lists the GPU", *lines("nvidia-smi -L"))
    fix = Fix(text=f"{ASK_FOR_LAYERS}. {way}" if unasked else way, looks=looks)
    title = "{program}: {seen}" if unasked else "{program} finds no GPU"
    yield _found(context, PROGRAM_SEES_NO_GPU, title, heard, fix)


ASK_FOR_LAYERS = (
    "Where its log says `found 1 CUDA devices`, ask for the layers: `-ngl 99` (llama-cpp-python: "
    "`n_gpu_layers=-1`); without that line its build has no CUDA"
)
"""What llama.cpp needs beside a GPU: before 2025-11 it puts no layer there by itself."""


PROGRAM_FAILED = Cause(
    id="program-failed",
    severity=Severity.NOTE,
    title="a program failed by itself",
    means="A key, a shape, a file, a name: nothing of the GPU's stack.",
    proven_by="The program's last exception, and no word of the text that complains of a GPU",
    not_when="Any error finding; an exception that may be the GPU's",
    way_out="The program's own documentation and issues",
    source="Python's built-in exceptions; huggingface_hub's errors",
    failure=8,
)


def failed_by_itself(context: RuleContext) -> Iterator[Finding]:
    """The exception with which a program ended has nothing to do with a GPU."""
    heard = events(context, "program-failed")
    if heard:
        told = next((e for e in heard if "says" in e.values), heard[-1])
        way = told.values.get("way")
        yield PROGRAM_FAILED.found(
            _how_it_failed(context, told),
            evidence=event_evidence(heard),
            fix=Fix(text=way) if way else None,
        )


def _how_it_failed(context: RuleContext, event: Event) -> str:
    """Program and failure: in a row's own words, or by the exception that is shown."""
    if says := event.values.get("says"):
        return says
    # torch stands under most programs: that its name is there does not say that it failed.
    program = context.snapshot.failing.program
    who = program if program and program != "torch" else "The program"
    said = event.text or "an error"
    return f"{who} failed by itself ({said[:120]}), not by the GPU's stack"


def library_missing(context: RuleContext) -> Iterator[Finding]:
    """A program whose GPU part is there, and a CUDA library that it loads is not."""
    heard = _about_it(context, "program-lib-missing")
    if not events(context, "program-failed", "no-nvidia-driver", "gpu-computes"):
        heard = heard or _about_it(context, "program-lib-unfound")
    stops = events(context, "cuda-lib-missing", "driver-too-old")
    if not driver_answers(context):
        stops += events(context, "no-nvidia-driver")
    if heard and not stops:
        library = heard[0].values.get("library", "a CUDA library")
        title = f"{library} cannot be loaded: {{program}} runs on the CPU"
        yield _found(context, CUDA_LIB_MISSING, title, heard)


def _about_it(context: RuleContext, kind: str) -> tuple[Event, ...]:
    """The events of the program that the text is about: others only log beside it."""
    program = context.snapshot.failing.program
    heard = events(context, kind)
    if program is None:
        return heard
    return tuple(e for e in heard if e.values.get("program", program).lower() == program.lower())


RULES = (
    without_gpu_support,
    requirement_missing,
    release_too_old,
    sees_no_gpu,
    library_missing,
    failed_by_itself,
)
