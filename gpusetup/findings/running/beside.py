"""Programs beside torch that fail for a reason of their own: GPU, driver and torch may be whole."""

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
from gpusetup.evidence.plausible import is_an_identifier
from gpusetup.findings.libraries.loading import CUDA_LIB_MISSING
from gpusetup.findings.programs import called, is_beside_torch
from gpusetup.findings.record import Cause
from gpusetup.fixes import packages, paste
from gpusetup.messages.compilers import BUILT_BY_HAND
from gpusetup.model.finding import Finding, Fix, Severity
from gpusetup.model.machine import Event
from gpusetup.model.shell import Line, lines

PROGRAM_WITHOUT_GPU_SUPPORT = Cause(
    id="program-without-gpu-support",
    severity=Severity.WARNING,
    title="a program is installed without its GPU part",
    means="The package that is installed computes on the CPU only; the GPU's stack may be whole.",
    proven_by="The program's own word",
    not_when="cuda-lib-missing: its GPU part is there and a library is not",
    way_out="The program's own build for CUDA",
    source="The programs' installation guides",
)


def without_gpu_support(context: RuleContext) -> Iterator[Finding]:
    """A program says that it was built, or installed, for the CPU."""
    heard = _about_it(context, "program-without-gpu-support")
    if heard and not _has_its_plugin(context) and not events(context, *MORE_TELLING):
        name = _name(context, heard[0])
        yield PROGRAM_WITHOUT_GPU_SUPPORT.found(
            f"{name} is installed without GPU support, and runs on the CPU",
            evidence=event_evidence(heard),
            fix=Fix(text=_way(context, name)),
        )


def _has_its_plugin(context: RuleContext) -> bool:
    """JAX's part for CUDA is installed, and does not start: then it is not lacking."""
    of_jax = context.snapshot.failing.program == "JAX"
    return of_jax and any(
        one.name.lower().replace("_", "-").startswith("jax-cuda")
        for one in context.snapshot.packages or ()
    )


MORE_TELLING = ("cuda-lib-missing", "extension-abi-mismatch", "driver-too-old", "cuda-error")
"""Why the GPU part did not load, where the text has that too."""


NO_NAME = "The program"


def _name(context: RuleContext, event: Event) -> str:
    told, shown = event.values.get("program"), context.snapshot.failing.program
    return shown if shown and told and shown.lower() == told.lower() else told or shown or NO_NAME


def _inside(name: str) -> str:
    """The name as it stands inside a sentence."""
    return "the program" if name == NO_NAME else name


def _way(context: RuleContext, name: str) -> str:
    program = called(context, name)
    if program and program.way:
        return program.way
    return f"Install the build of {_inside(name)} for the CUDA of this torch, or the newest release"


PROGRAM_REQUIREMENT_MISSING = Cause(
    id="program-requirement-missing",
    severity=Severity.WARNING,
    title="a program or its build lacks something that is not CUDA's",
    means="A build tool, Python's headers, FFmpeg: nothing of the GPU's stack.",
    proven_by="The message that names it",
    not_when="build-isolation-no-torch, cuda-toolkit-missing, ninja-missing, compiler-missing",
    way_out="Install what is named",
    source="pip documentation, build system interface; torchcodec's installation guide",
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
NOT_PIPS = ("Python.h", "a C++ compiler")


def requirement_missing(context: RuleContext) -> Iterator[Finding]:
    """A build tool, a header or a media library that a program names."""
    heard = _about_it(context, "program-requirement-missing")
    if not heard:
        return
    event = heard[0]
    lacks = event.values.get("lacks", "something")
    name = _name(context, event)
    built = _inside(name)
    what = f"The build of {built}" if event.values.get("step") == "build" else name
    yield PROGRAM_REQUIREMENT_MISSING.found(
        f"{what} lacks {lacks}",
        evidence=event_evidence(heard),
        fix=_brings(context, lacks, built=event.values.get("step") == "build"),
    )


BUILD_TOOLS = ("wheel", "setuptools", "packaging", "cmake", "CMake", "ninja", "skbuild", "cython")


def _brings(context: RuleContext, lacks: str, *, built: bool) -> Fix:
    if lacks in NOT_PIPS:
        text = "Install the headers of this Python (python3-dev, python3-devel)"
        compiler = "Install a C++ compiler (gcc: build-essential, gcc-c++)"
        commands: tuple[Line, ...] = packages.compiler(context) if lacks != "Python.h" else ()
        return Fix(
            text=text if lacks == "Python.h" else compiler, commands=commands, needs_root=True
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
    if lacks.endswith((".h", ".hpp")) or lacks.startswith("Eigen/"):
        return Fix(
            text=f"Install the package of the system, or of conda, that has {lacks}; in a clone "
            "also its submodules (`git submodule update --init --recursive`)"
        )
    if not is_an_identifier(lacks) or "." in lacks:
        return Fix(text=f"Install {lacks}")
    wanted = FROM_PIP.get(lacks, lacks)
    again = "build again" if built or lacks in BUILD_TOOLS else "run the program again"
    return Fix(
        text=f"Install {wanted} into this environment, then {again}",
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
)


def release_too_old(context: RuleContext) -> Iterator[Finding]:
    """A program of another time than the driver or the torch that it calls."""
    heard = _about_it(context, "program-release-too-old")
    if heard:
        name = _name(context, heard[0])
        yield PROGRAM_RELEASE_TOO_OLD.found(
            f"This release of {_inside(name)} does not fit the {_beside(heard[0])}",
            evidence=event_evidence(heard),
            fix=Fix(text=_newest(context, heard[0], name)),
        )


def _newest(context: RuleContext, event: Event, name: str) -> str:
    """Where torch's own package is another one's: the program's newest release, else that torch."""
    beside = event.values.get("beside", "")
    if name != NO_NAME or not beside.startswith("installed torch"):
        return _way(context, name)
    return (
        "Install the newest release of the program, or the torch (with its torchvision and "
        "torchaudio) that its own requirements name"
    )


def _beside(event: Event) -> str:
    """What it does not fit: the torch or the library that it names, else the driver."""
    torch = event.values.get("torch")
    return f"installed torch {torch}" if torch else event.values.get("beside", "driver")


PROGRAM_SEES_NO_GPU = Cause(
    id="program-sees-no-gpu",
    symptom=True,
    severity=Severity.WARNING,
    title="a program beside torch finds no GPU, and nothing shows that the driver lacks it",
    means="Its own build, its libraries or its settings keep it from the GPU.",
    proven_by="The program's own word, beside a driver that answers",
    not_when="The driver, the container or a variable is what hides the GPU: their own findings",
    way_out="The program's build for CUDA",
    source="The programs' installation guides",
)


def sees_no_gpu(context: RuleContext) -> Iterator[Finding]:
    """A program that finds no GPU though the driver answers."""
    heard = (
        _about_it(context, "program-sees-no-gpu")
        or _said_by_it(context)
        or _said_in_a_sentence(context)
    )
    if not heard or events(context, *MORE_TELLING) or has_nvidia(context) is False:
        return
    name = _name(context, heard[0])
    beside = ", though the driver lists one" if driver_answers(context) else ""
    unasked = heard[0].values.get("seen")
    yield PROGRAM_SEES_NO_GPU.found(
        f"{name}: {unasked}{beside}" if unasked else f"{name} finds no GPU{beside}",
        evidence=event_evidence(heard),
        fix=Fix(
            text=f"{ASK_FOR_LAYERS}. {_way(context, name)}" if unasked else _way(context, name),
            looks=()
            if driver_answers(context)
            else paste.look("see first whether the driver lists the GPU", *lines("nvidia-smi -L")),
        ),
    )


ASK_FOR_LAYERS = (
    "Where its log says `found 1 CUDA devices`, ask for the layers: `-ngl 99` (llama-cpp-python: "
    "`n_gpu_layers=-1`); without that line its build has no CUDA"
)
"""What llama.cpp needs beside a GPU: before 2025-11 it puts no layer there by itself."""


def _said_by_it(context: RuleContext) -> tuple[Event, ...]:
    """That no GPU is found, in a text about a program that does not stand on torch."""
    if _has_its_plugin(context):
        return _about_it(context, "program-without-gpu-support")
    return events(context, "cuda-unavailable") if is_beside_torch(context) else ()


def _said_in_a_sentence(context: RuleContext) -> tuple[Event, ...]:
    """That one program finds no GPU, where the text only mentions another, which did not fail."""
    heard = events(context, "program-sees-no-gpu")
    named = {event.values.get("program") for event in heard}
    return heard if context.snapshot.failing.stage is None and len(named) == 1 else ()


PROGRAM_FAILED = Cause(
    id="program-failed",
    severity=Severity.NOTE,
    title="a program failed by itself",
    means="A key, a shape, a file, a name: nothing of the GPU's stack.",
    proven_by="The program's last exception, and no word of the text that complains of a GPU",
    not_when="Any error finding; an exception that may be the GPU's",
    way_out="The program's own documentation and issues",
    source="Python's built-in exceptions; huggingface_hub's errors",
)


def failed_by_itself(context: RuleContext) -> Iterator[Finding]:
    """The exception with which a program ended has nothing to do with a GPU."""
    heard = events(context, "program-failed")
    if heard:
        told = next((e for e in heard if e.values.keys() & {"says", "module"}), heard[-1])
        way = told.values.get("way")
        yield PROGRAM_FAILED.found(
            _how_it_failed(context, told),
            evidence=event_evidence(heard),
            fix=Fix(text=way) if way else None,
        )


def _how_it_failed(context: RuleContext, event: Event) -> str:
    """Program and failure: in a row's own words, as a crash, or by the exception that is shown."""
    values = event.values
    if says := values.get("says"):
        return says
    if module := values.get("module"):
        code = values.get("code", "not shown")
        return f"{values.get('program')} crashed in {module} (exception {code}); why is not shown"
    # torch stands under most programs: that its name is there does not say that it failed.
    program = context.snapshot.failing.program
    who = program if program and program != "torch" else "The program"
    said = event.text or values.get("exception", "an error")
    return f"{who} failed by itself ({said[:120]}), not by the GPU's stack"


def library_missing(context: RuleContext) -> Iterator[Finding]:
    """A program whose GPU part is there, and a CUDA library that it loads is not."""
    heard = _about_it(context, "program-lib-missing") or _not_found(context)
    without = () if driver_answers(context) else ("no-nvidia-driver",)
    stops = events(context, "cuda-lib-missing", "driver-too-old", *without)
    if heard and not stops and context.snapshot.cuda_api.init_code in (None, 0):
        name = _name(context, heard[0])
        yield _lacks_library(context, name, heard)


def _not_found(context: RuleContext) -> tuple[Event, ...]:
    """Libraries that a program only logs as not found, where nothing else ended it."""
    elsewhere = events(context, "program-failed", "no-nvidia-driver", "gpu-computes")
    return () if elsewhere else _about_it(context, "program-lib-unfound")


def _lacks_library(context: RuleContext, name: str, heard: tuple[Event, ...]) -> Finding:
    library = heard[0].values.get("library", "a CUDA library")
    return CUDA_LIB_MISSING.found(
        f"{library} cannot be loaded: {name} runs on the CPU",
        evidence=event_evidence(heard),
        fix=Fix(text=_way(context, name)),
    )


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
