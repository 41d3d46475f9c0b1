"""Programs that fail for a reason of their own: GPU, driver and torch may be whole."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.evidence.context import RuleContext, driver_answers, events, has_nvidia
from gpusetup.evidence.places import started_without_a_gpu
from gpusetup.findings.container.start import start_with_gpu
from gpusetup.findings.libraries.loading import CUDA_LIB_MISSING
from gpusetup.findings.message_rules import case_of, from_message
from gpusetup.findings.programs import is_beside_torch
from gpusetup.findings.record import Cause, Likelier, Message
from gpusetup.fixes import paste
from gpusetup.messages.compilers import BUILT_BY_HAND
from gpusetup.messages.programs import BY_NAME
from gpusetup.model.finding import Finding, Fix, Severity
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Event
from gpusetup.model.shell import lines


def _own(context: RuleContext, text: str) -> Fix:
    """The program's own way to the GPU."""
    program = BY_NAME.get(context.snapshot.failing.program or "")
    newest = "Install its build for the CUDA of this torch, or its newest release"
    looks = paste.look("see first whether the driver lists the GPU", *lines("nvidia-smi -L"))
    return Fix(text=text + ((program and program.way) or newest), looks=looks)


def _told(context: RuleContext, text: str) -> Fix:
    ways = (e.values.get("way", "") for e in events(context, PROGRAM_FAILED.id))
    return Fix(text=next(filter(None, ways), text))


def _is_all(context: RuleContext) -> bool:
    """Whether the text does not say why the GPU part did not load."""
    return not events(
        context, "cuda-lib-missing", "extension-abi-mismatch", "driver-too-old", "cuda-error"
    )


def _has_a_gpu(context: RuleContext) -> bool:
    asked = events(context, "program-sees-no-gpu") or is_beside_torch(context)
    return bool(asked) and has_nvidia(context) is not False


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
    holds=(_is_all,),
    message=Message(
        title="{program} is installed without GPU support, and runs on the CPU", way=_own
    ),
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
    message=Message(
        title="{program} lacks {lacks}",
        text="Install it into this environment, then run it again",
        commands=("pip install {lacks}",),
        cases=(
            Message(
                having={"lacks": r"^a C\+\+ compiler$"},
                text="Install a C++ compiler (gcc: build-essential, gcc-c++)",
                commands=("package gcc",),
                needs_root=True,
            ),
            Message(
                having={"lacks": "^flash_attn$"},
                text="flash-attn has to be built for the very torch that is here. gpusetup chooses "
                "the two together; `pip install flash-attn` compiles it where no wheel fits, which "
                "needs nvcc and an hour. Most programs run without it: transformers by "
                '`attn_implementation="sdpa"`',
                commands=("gpusetup install flash-attn",),
            ),
            Message(
                having={"lacks": f"^(?:{BUILT_BY_HAND})$"},
                text="Install it as its own guide says: it is compiled against this torch "
                "(`--no-build-isolation`), with a CUDA toolkit of torch's major",
            ),
            Message(
                having={"lacks": r"[^\w-]|^FFmpeg$"},
                text="Install it: a header comes with a package of the system (Python.h: "
                "python3-dev, python3-devel), of conda, or with a clone's submodules",
            ),
            *(
                Message(having={"lacks": f"^{name}$"}, commands=(f"pip install '{brings}'",))
                for name, brings in FROM_PIP.items()
            ),
        ),
    ),
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
    message=Message(
        title="This release of {program} does not fit the {beside}",
        way=_own,
        cases=(
            Message(
                having={"program": "^The program$", "beside": "^installed torch"},
                text="Install the newest release of the program, or the torch (with its "
                "torchvision and torchaudio) that its own requirements name",
            ),
        ),
    ),
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
    events=("program-sees-no-gpu", "cuda-unavailable"),
    holds=(_has_a_gpu, _is_all),
    message=Message(
        title="{program} finds no GPU",
        way=_own,
        cases=(
            Message(
                having={"seen": ""},
                title="{program}: {seen}",
                text="Where its log says `found 1 CUDA devices`, ask for the layers: `-ngl 99` "
                "(llama-cpp-python: `n_gpu_layers=-1`); without that line its build has no CUDA. ",
                way=_own,
            ),
        ),
    ),
)


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
    message=Message(
        title="{program} failed by itself ({said}), not by the GPU's stack",
        text="Take its newest release; if that fails too, report it to its project, with its whole "
        "output, the command and its version",
        way=_told,
        cases=(
            Message(having={"says": ""}, title="{says}", way=_told),
            Message(
                having={"exception": "^(?:FileNotFound|NotADirectory|IsADirectory)"},
                text="Give it a path that is there: a relative one counts from the folder in which "
                "it was started",
            ),
            Message(
                having={"exception": "^ModuleNotFound"},
                text="Install the package that has this module into this environment (its name may "
                "be another one), or start the program from its own folder",
            ),
            Message(
                having={"exception": "HTTP|Repository|EntryNotFound|^(?:OS|Environment)Error"},
                text="Check the name, that this account may read it (`hf auth login`), and that "
                "the hub is reached from here",
            ),
            Message(
                having={"exception": ""},
                text="Change what its message names, where the last lines of the traceback point. "
                "If they are in a package, bring that and the program to releases that belong "
                "together; if it still fails, report it to that project, with the whole traceback, "
                "the command and `pip freeze`",
            ),
        ),
    ),
)


CAUSES = (
    PROGRAM_WITHOUT_GPU_SUPPORT,
    PROGRAM_REQUIREMENT_MISSING,
    PROGRAM_RELEASE_TOO_OLD,
    PROGRAM_SEES_NO_GPU,
    PROGRAM_FAILED,
)


def of_programs(context: RuleContext) -> Iterator[Finding]:
    """What a program says of itself."""
    for cause in CAUSES:
        heard = _about_it(context, *cause.kinds)
        if heard and cause.message and all(holds(context) for holds in cause.holds):
            yield from_message(context, cause, *case_of(context, cause.message, heard))


OF_A_PROGRAM = Message(title="{library} cannot be loaded: {program} runs on the CPU", way=_own)


def library_missing(context: RuleContext) -> Iterator[Finding]:
    """A program whose GPU part is there, and a CUDA library that it loads is not."""
    heard = _about_it(context, "program-lib-missing")
    if not events(context, "program-failed", "no-nvidia-driver", "gpu-computes"):
        heard = heard or _about_it(context, "program-lib-unfound")
    stops = events(context, "cuda-lib-missing", "driver-too-old")
    if not driver_answers(context):
        stops += events(context, "no-nvidia-driver")
    if heard and not stops:
        yield from_message(context, CUDA_LIB_MISSING, OF_A_PROGRAM, heard)


UNSAID = {"lacks": "something", "beside": "driver", "library": "A CUDA library"}


def _about_it(context: RuleContext, *kinds: str) -> tuple[Event, ...]:
    """The events of the program that the text is about, with its name: others only log beside it.

    torch stands under most programs: that its name is there does not say that it failed.
    """
    program = context.snapshot.failing.program
    # Others load these as well: they log their own fall back while it computes.
    if program in ("JAX", "TensorFlow") and events(context, "backend-runs"):
        return ()
    known = {**UNSAID, "program": program if program not in (None, "torch") else "The program"}
    return tuple(
        replace(e, values={**known, "said": (e.text or "an error")[:120], **e.values})
        for e in events(context, *kinds)
        if e.kind == PROGRAM_FAILED.id
        or (program or "").lower() in ("", e.values.get("program", program or "").lower())
    )


RULES = (of_programs, library_missing)
