"""The libraries under torch: CUDA's own, the driver's stub, Windows' DLLs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from gpusetup.catalog.jetpack import UNIFIED, board_of, jetpack_of, undeclared
from gpusetup.evidence.context import RuleContext, cuda_needed, events
from gpusetup.evidence.places import ON_WINDOWS
from gpusetup.evidence.plausible import exactly
from gpusetup.findings import alike
from gpusetup.findings.driver.presence import DRIVER_LIBRARIES
from gpusetup.findings.layers import NO_DRIVER, NO_INIT, Layer
from gpusetup.findings.libraries.distributions import found_below, undeclared_commands
from gpusetup.findings.message_rules import case_of, from_message, from_messages, seen
from gpusetup.findings.record import Alike, Cause, Message
from gpusetup.fixes import paste
from gpusetup.model.finding import Finding, Fix, Severity
from gpusetup.model.frozen import replace
from gpusetup.model.shell import Line
from gpusetup.model.versions import parsed

# --- LD_LIBRARY_PATH -----------------------------------------------------------------------------

ANOTHER_CUDA = "cuda|cudnn|nccl"
"""How folders of libraries are named that torch brings itself."""


def _without_others(context: RuleContext) -> tuple[Line, ...]:
    said = events(context, "foreign-library", "ld-library-path-conflict")
    named = dict.fromkeys(e.values["folder"] for e in said if e.values.get("folder"))
    return paste.without_folders(context, paste.folder_pattern(*named) if named else ANOTHER_CUDA)


def _without(folders: str | None) -> Callable[[RuleContext, str], Fix]:
    """LD_LIBRARY_PATH without these folders, or without those of another CUDA."""

    def way(context: RuleContext, text: str) -> Fix:
        if folders:
            return Fix(text=text, commands=paste.without_folders(context, folders))
        return Fix(text=text, commands=_without_others(context))

    return way


def _of_two_cudas(context: RuleContext) -> bool:
    """The wheels of a library for CUDA 12 and for CUDA 13 unpack into one folder."""
    names = {p.name for p in context.snapshot.packages or ()}
    return any(n.endswith("-cu12") and f"{n[:-1]}3" in names for n in names)


def _does_no_harm(context: RuleContext) -> bool:
    """No order: a folder on the path may be found first, or not at all."""
    return not (context.snapshot.torch.import_error or events(context, "ld-library-path-conflict"))


LD_LIBRARY_PATH_CONFLICT = Cause(
    id="ld-library-path-conflict",
    before_torch=(Severity.ERROR,),
    place=(Layer.LIBRARIES, 20),
    title="LD_LIBRARY_PATH puts foreign libraries first",
    means="torch's wheel needs exactly its own cuDNN, cuBLAS, nvJitLink.",
    proven_by="Such a folder, and a failed load (error) or none yet (warning)",
    not_when="cuda-lib-missing: no such library at all",
    way_out="Take that folder out of it",
    source="ld.so's manual page",
    explains=(
        "torch-import-failed",
        "gpu-check-failed",
        "library-missing",
        "cuda-library-error",
    ),
    events=("ld-library-path-conflict", "foreign-library"),
    holds=(
        lambda context: bool(
            events(context, "ld-library-path-conflict")
            or context.snapshot.torch.installed
            or context.snapshot.torch.import_error
        ),
    ),
    message=Message(
        title="The loader finds other CUDA libraries in front of those that torch brings",
        detail="torch's wheel needs exactly its own cuDNN, cuBLAS and nvJitLink; an older one "
        "in front fails to load or lacks symbols.",
        text="Take the folders of another CUDA out of LD_LIBRARY_PATH for torch. If it is not set, "
        "see which file was loaded: a copy of the system's packages, one of two installs of "
        "torch that lie over each other",
        way=_without(None),
        cases=(
            Message(where=(_does_no_harm,), way=_without(None), severity=Severity.WARNING),
            Message(
                having={"by_program": ""},
                title="The {library} that is found first is older than JAX or TensorFlow needs",
                text="Upgrade it (`pip install --upgrade 'jax[cuda12]'`), and take foreign folders "
                "out of LD_LIBRARY_PATH. Where torch is in the same environment and pins its own, "
                "make one environment for each",
            ),
            Message(
                having={"library": r"stdc\+\+"},
                text="Let the environment's own libstdc++ be found first (in conda install it; it "
                "is newer than the system's): `export "
                "LD_LIBRARY_PATH=$CONDA_PREFIX/lib:$LD_LIBRARY_PATH`",
                commands=("conda install -y -c conda-forge libstdcxx-ng",),
            ),
            Message(
                where=(_of_two_cudas,),
                text="A library for CUDA 12 and the same one for CUDA 13 lie in one folder: remove "
                "both, and install the one of torch's CUDA anew (`--no-deps`, in the same version)",
                look=("pip list",),
                see="see the packages nvidia-*-cu12 and nvidia-*-cu13",
            ),
            Message(
                where=(ON_WINDOWS,),
                text="Take the folders of other CUDA and cuDNN versions out of PATH for torch, and "
                "remove their DLLs from Windows\\System32",
            ),
        ),
    ),
)


LIBCUDA_STUB = Cause(
    id="libcuda-stub",
    place=(Layer.PROCESS, 20),
    title="the toolkit's stub libcuda is loaded",
    means="The stub serves to link programs where there is no driver; it cannot run them.",
    proven_by="Code 34, or a loaded libcuda in a folder `stubs`; as a warning, such a folder "
    "in LD_LIBRARY_PATH",
    way_out="Take the folder out of LD_LIBRARY_PATH",
    source="CUDA Driver API reference, CUresult (STUB_LIBRARY)",
    explains=(*NO_INIT, *NO_DRIVER, "driver-missing"),
    message=Message(
        title="The toolkit's stub libcuda is loaded, or on LD_LIBRARY_PATH, instead of the "
        "driver's",
        text="Take the stubs folder out of LD_LIBRARY_PATH",
        way=_without("/stubs"),
        cases=(Message(having={"folder": ""}, way=_without("/stubs"), severity=Severity.WARNING),),
    ),
)


def misled(context: RuleContext) -> Iterator[Finding]:
    """Another library than torch's own, or than the driver's, is what the loader finds first."""
    path, about = context.snapshot.driver.libcuda_path or "", "driver.libcuda_path"
    if "stub" in path:
        yield seen(context, LIBCUDA_STUB, about, path)
    yield from from_messages(context, (LD_LIBRARY_PATH_CONFLICT, LIBCUDA_STUB))


# --- libraries that are missing ------------------------------------------------------------------


def _beside_torch(context: RuleContext, text: str) -> Fix:
    return Fix(text=text, commands=found_below(context, "nvidia/*/lib"))


def _is_with_torch(context: RuleContext) -> bool:
    """Whether torch computes with this library's CUDA, so that its wheels brought it."""
    said = " ".join(e.values.get("library", "") for e in events(context, CUDA_LIB_MISSING.id))
    torch, major = context.snapshot.torch, (context.snapshot.torch.cuda or "?").partition(".")[0]
    return bool(torch.cuda_available and f".so.{major}" in said)


def _is_anothers(context: RuleContext) -> bool:
    """Whether something else than torch asks: torch works, another program fails, or a runtime of
    another CUDA is named (`11.0` is all of 11)."""
    torch, said = context.snapshot.torch, events(context, CUDA_LIB_MISSING.id)
    named = " ".join(e.values.get("library", "") for e in said)
    found = re.search(r"^libcudart.*\.so\.(\d+(?:\.[1-9])?)", named)
    needed, program = cuda_needed(torch), context.snapshot.failing.program or "torch"
    other = needed and found and not needed.startswith(found[1])
    return bool(torch.cuda_available or other or program != "torch")


def _not_torchs(context: RuleContext) -> bool:
    """Whether torch brings cuDNN 9, as far as is known."""
    version = (context.snapshot.torch.version or "99").partition("+")[0]
    return parsed(version) >= parsed(context.catalog.milestone("torch with cudnn 9"))


def _undeclared(context: RuleContext) -> str:
    """The library that is missing, if a Jetson's torch links it and does not declare it."""
    said = (e.values.get("library", "") for e in events(context, CUDA_LIB_MISSING.id))
    library = next(said, "")
    there = board_of(context.snapshot) or library.startswith("libnvpl_")
    return library if there and undeclared(library) else ""


def _of_a_jetson(context: RuleContext, text: str) -> Fix:
    jetpack = jetpack_of(board_of(context.snapshot)) or UNIFIED
    cuda = cuda_needed(context.snapshot.torch) or jetpack.cuda
    return Fix(text=text, commands=undeclared_commands(context, _undeclared(context), cuda))


WHERE = 'python -c "import torch; print(torch.__version__, torch.version.cuda)"'
WHICH_CUDA = "see which CUDA torch has"
CUDNN_8 = r"libcudnn\w*\.so\.8[.\d]*$|cudnn\w*64_8\.dll"
CUDA_LIB_MISSING = Cause(
    id="cuda-lib-missing",
    place=(Layer.LIBRARIES, 60),
    title="a CUDA library is missing",
    means="torch's wheel takes its libraries from nvidia-* packages.",
    proven_by="A package of nvidia-* that is not whole",
    way_out="Install it anew",
    source="RECORD of the distribution",
    explains=("torch-import-failed", "gpu-check-failed"),
    message=Message(
        title="{library} is missing or incomplete: programs that need it cannot load",
        plain="A CUDA library is missing or incomplete: programs that need it cannot load",
        detail="The number in the names of cudart, cublas and nvrtc is the CUDA that the asker was "
        "built for; that of other libraries is their own, not CUDA's: torch brings cuDNN 9 from "
        "2.4 on, and brought cuDNN 8 before.",
        text="If an extension asks for it (the traceback names its file): install the extension's "
        "build for torch's CUDA. Else: install torch with its libraries. ",
        way=paste.install_torch,
        cases=(
            Message(
                where=(_is_with_torch,),
                text="torch works and brought this library: let the program that lacks it look "
                "there too",
                way=_beside_torch,
            ),
            Message(
                where=(lambda context: bool(_undeclared(context)),),
                text="torch's wheel for Jetson links this library and does not declare it: install "
                "it, and let the loader find it (put the second line into what starts your program "
                "too)",
                way=_of_a_jetson,
            ),
            Message(
                having={"library": "^-lcuda$"},
                title="The linker finds no libcuda.so, which the build links against",
                text="Let the linker find libcuda.so: in the toolkit's stubs folder, which serves "
                "where the program is built, or as a link to the driver's libcuda.so.1. Where it "
                "runs, the driver's own is loaded: "
                "`export LIBRARY_PATH=$CUDA_HOME/lib64/stubs:$CUDA_HOME/lib/stubs:$LIBRARY_PATH`",
                look=("ldconfig -p | grep libcuda.so",),
                see="see what there is",
            ),
            Message(
                having={"module": "^ctranslate2$"},
                text="CTranslate2 (faster-whisper) brings no cuDNN: before 4.5 it asks for version "
                "8, from 4.5 on for version 9, the one of torch 2.4 and newer. Update it, and let "
                "LD_LIBRARY_PATH name nvidia/cudnn/lib and nvidia/cublas/lib of site-packages",
                commands=(
                    "pip install --upgrade ctranslate2 nvidia-cublas-cu12 'nvidia-cudnn-cu12==9.*'",
                ),
            ),
            Message(
                having={"library": CUDNN_8},
                where=(_not_torchs,),
                text="A program built for cuDNN 8 asks for it (CTranslate2 before 4.5, "
                "onnxruntime-gpu before 1.19, torch before 2.4); torch from 2.4 on brings cuDNN 9. "
                "Update that program, or where torch itself is the older one, install it anew",
                look=("pip list",),
                see="see which versions there are",
            ),
            Message(
                having={"module": ""},
                text="Install its current release, which finds the CUDA libraries that torch "
                "brings; torch itself must be a CUDA build",
                commands=("pip install --upgrade {module}",),
                look=(WHERE,),
                see=WHICH_CUDA,
            ),
            Message(
                where=(_is_anothers,),
                text="Not torch asks for it, but something that was built for another CUDA (the "
                "traceback names its file): install its build for torch's CUDA, or build it anew "
                "here",
                look=(WHERE,),
                see=WHICH_CUDA,
            ),
        ),
    ),
    alike=(
        Alike(
            causes=("extension-not-built", "program-release-too-old"),
            asks="python -m bitsandbytes",
            unless=alike.is_cudas,
        ),
        Alike(
            causes=("driver-missing",),
            asks="nvidia-smi",
            settled_by=("gpus", "driver"),
            unless=alike.leaves_no_driver_open,
        ),
    ),
)


def cuda_lib_missing(context: RuleContext) -> Iterator[Finding]:
    """A CUDA library that torch links against is not installed, or only in part."""
    cut = [
        (p.name, p.version)
        for p in context.snapshot.packages or ()
        if p.name.startswith("nvidia-") and p.intact is False
    ]
    if cut:
        exact = ("install", "--force-reinstall", "--no-deps", *exactly(cut))
        names = ", ".join(name for name, _ in cut[:3])
        files = f"{names}: files are missing"
        again = Fix(text="Install these packages anew", commands=(paste.pip(context, *exact),))
        found = seen(context, CUDA_LIB_MISSING, "packages", files, library=names)
        yield replace(found, fix=again)
        return
    messages = tuple(
        e
        for e in events(context, CUDA_LIB_MISSING.id)
        if not e.values.get("library", "").startswith(DRIVER_LIBRARIES)
    )
    if messages and CUDA_LIB_MISSING.message:
        case = case_of(context, CUDA_LIB_MISSING.message, messages)
        yield from_message(context, CUDA_LIB_MISSING, *case)


RULES = (misled, cuda_lib_missing)
