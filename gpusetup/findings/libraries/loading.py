"""The libraries under torch: CUDA's own, the driver's stub, Windows' DLLs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpusetup.evidence.context import RuleContext, cuda_needed, events, is_report, on
from gpusetup.evidence.places import ON_WINDOWS
from gpusetup.evidence.plausible import exactly
from gpusetup.findings import alike
from gpusetup.findings.driver.presence import DRIVER_LIBRARIES
from gpusetup.findings.layers import NO_DRIVER, NO_INIT, Layer
from gpusetup.findings.libraries.distributions import distribution_of
from gpusetup.findings.message_rules import case_of, from_message, from_messages, seen
from gpusetup.findings.record import Alike, Cause, Message
from gpusetup.fixes import paste
from gpusetup.messages.programs import BY_NAME
from gpusetup.model.finding import Finding, Fix, Severity
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Package
from gpusetup.model.shell import Line, filled
from gpusetup.model.versions import parsed

# --- LD_LIBRARY_PATH -----------------------------------------------------------------------------

ANOTHER_CUDA = "cuda|cudnn|nccl"
"""How folders of libraries are named that torch brings itself."""


def _without_others(context: RuleContext) -> tuple[Line, ...]:
    said = events(context, "foreign-library", "ld-library-path-conflict")
    named = dict.fromkeys(e.values["folder"] for e in said if e.values.get("folder"))
    return paste.without_folders(context, paste.folder_pattern(*named) if named else ANOTHER_CUDA)


def _own_first(context: RuleContext, text: str) -> Fix:
    return Fix(text=text, commands=_without_others(context))


def _without_stubs(context: RuleContext, text: str) -> Fix:
    return Fix(text=text, commands=paste.without_folders(context, "/stubs"))


def _is_named(context: RuleContext) -> bool:
    """A text quotes what failed; on a live machine a folder on the path may do no harm yet."""
    said = events(context, LIBCUDA_STUB.id)
    on_path = all(e.values.get("folder") and not e.values.get("loaded") for e in said)
    return bool(said) and (on_path or not is_report(context))


CONDAS_FIRST = 'export LD_LIBRARY_PATH="$CONDA_PREFIX/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"'


def _condas_first(context: RuleContext, text: str) -> Fix:
    words = ("conda", "install", "-y", "-c", "conda-forge", "libstdcxx-ng")
    first = paste.posix(context, CONDAS_FIRST)
    return Fix(text=text, commands=(paste.command(context, *words), *first))


OLDER_FOR_XLA = Message(
    having={"by_program": "", "library": "^(?!cuDNN)"},
    title="The {library} that is found first is older than JAX or TensorFlow needs",
    text="Upgrade it, and take foreign folders out of LD_LIBRARY_PATH. Where torch is in the same "
    "environment and pins its own, make one environment for each",
    commands=("pip install --upgrade 'jax[cuda12]'",),
)
ONE_FOLDER = r"nvidia-(?:cudnn|nccl|cusparselt|nvshmem)-cu\d\d"
"""Their wheels for CUDA 12 and for CUDA 13 unpack into one folder: the last one installed wins."""


def _in_one_folder(context: RuleContext) -> list[Package]:
    listed = [p for p in context.snapshot.packages or () if re.fullmatch(ONE_FOLDER, p.name)]
    return [p for p in listed if sum(p.name[:-2] == other.name[:-2] for other in listed) > 1]


def _of_torch(context: RuleContext) -> tuple[str, ...]:
    major = (cuda_needed(context.snapshot.torch) or "?").partition(".")[0]
    both = _in_one_folder(context)
    return exactly((p.name, p.version) for p in both if p.name.endswith(f"-cu{major}"))


def _has_two(context: RuleContext) -> bool:
    return bool(_of_torch(context))


def _one_of_two(context: RuleContext, text: str) -> Fix:
    both = (p.name for p in _in_one_folder(context))
    return Fix(
        text=text,
        commands=(
            paste.pip(context, "uninstall", "-y", *both),
            paste.pip(context, "install", "--no-deps", *_of_torch(context)),
        ),
    )


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
    message=Message(
        title="The loader finds other CUDA libraries in front of those that torch brings",
        detail="torch's wheel needs exactly its own cuDNN, cuBLAS and nvJitLink; an older one "
        "in front fails to load or lacks symbols.",
        text="Take the folders of another CUDA out of LD_LIBRARY_PATH for torch. If it is not set, "
        "see which file was loaded: a copy of the system's packages, one of two installs of "
        "torch that lie over each other",
        way=_own_first,
        cases=(
            OLDER_FOR_XLA,
            replace(
                OLDER_FOR_XLA,
                having={"by_program": ""},
                title="The cuDNN that is found first is older than JAX or TensorFlow needs",
                commands=("pip install --upgrade nvidia-cudnn-cu12",),
            ),
            Message(
                having={"library": r"stdc\+\+"},
                text="Let the environment's own libstdc++ be found first (in conda install it; it "
                "is newer than the system's)",
                way=_condas_first,
            ),
            Message(
                where=(_has_two,),
                text="A library for CUDA 12 and the same one for CUDA 13 lie in one folder: remove "
                "both, and install the one of torch's CUDA anew",
                way=_one_of_two,
            ),
            Message(
                where=(ON_WINDOWS,),
                text="Take the folders of other CUDA and cuDNN versions out of PATH for torch, and "
                "remove their DLLs from Windows\\System32",
            ),
        ),
    ),
)


def foreign_libraries(context: RuleContext) -> Iterator[Finding]:
    """LD_LIBRARY_PATH puts other CUDA libraries in front of torch's own."""
    torch, cause = context.snapshot.torch, LD_LIBRARY_PATH_CONFLICT
    yield from from_messages(context, (cause,))
    messages = events(context, "foreign-library")
    if messages and cause.message and (torch.installed or torch.import_error):
        found = from_message(context, cause, *case_of(context, cause.message, messages))
        yield found if torch.import_error else replace(found, severity=Severity.WARNING)


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
        way=_without_stubs,
        cases=(Message(where=(_is_named,), way=_without_stubs, severity=Severity.WARNING),),
    ),
)


def libcuda_stub(context: RuleContext) -> Iterator[Finding]:
    """A stub libcuda that serves only to link programs is what is loaded."""
    path, about = context.snapshot.driver.libcuda_path or "", "driver.libcuda_path"
    problems = (r.problem or "" for r in context.snapshot.readings if r.subject == about)
    if any("stub" in one for one in (path, *problems)):
        yield seen(context, LIBCUDA_STUB, about, path or "a stub")
    yield from from_messages(context, (LIBCUDA_STUB,))


# --- libraries that are missing ------------------------------------------------------------------


def _loaded_by(context: RuleContext, code: str) -> tuple[Line, ...]:
    """LD_LIBRARY_PATH with the folders in front that a line of Python prints."""
    pattern = (
        'export LD_LIBRARY_PATH="$({python} -c {code})${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"'
    )
    found = filled(pattern, python=paste.python(context), code=code)
    return () if on(context, "windows") else (found,)


IN_WHEELS = (
    "import glob, sysconfig; "
    "print(':'.join(glob.glob(sysconfig.get_path('purelib') + '/nvidia/*/lib')))"
)


def _for_ctranslate2(context: RuleContext, text: str) -> Fix:
    newest = ("ctranslate2", "nvidia-cublas-cu12", "nvidia-cudnn-cu12==9.*")
    again = paste.pip(context, "install", "--upgrade", *newest)
    return Fix(text=text, commands=(again, *_loaded_by(context, IN_WHEELS)))


def _not_for_cudnn_8(context: RuleContext) -> bool:
    """Whether cuDNN 8 is asked for by something else than torch, as far as is known."""
    version = (context.snapshot.torch.version or "99").partition("+")[0]
    return parsed(version) >= parsed(context.catalog.milestone("torch with cudnn 9"))


def _number(context: RuleContext) -> str:
    """The number in the name of the library that is missing."""
    said = events(context, CUDA_LIB_MISSING.id)
    found = re.search(r"\.so\.(\d+(?:\.\d)?)", said[0].values.get("library", "") if said else "")
    return found[1] if found else ""


def _is_with_torch(context: RuleContext) -> bool:
    """Whether torch computes with this library's CUDA, so that its wheels brought it."""
    torch, number = context.snapshot.torch, _number(context).partition(".")[0]
    major = (torch.cuda or "").partition(".")[0]
    return bool(torch.cuda_available and number and number == major)


def _beside_torch(context: RuleContext, text: str) -> Fix:
    return Fix(text=text, commands=_loaded_by(context, IN_WHEELS))


def _of_another_cuda(context: RuleContext) -> bool:
    """Whether a runtime of another CUDA is asked for: `10.2`, `11.0` (all of 11), `12`."""
    needed, number = cuda_needed(context.snapshot.torch), _number(context).removesuffix(".0")
    return bool(needed and number and not needed.startswith(number))


def _is_an_extension(context: RuleContext) -> bool:
    """Whether a text's program is a compiled extension beside torch whose import fails."""
    failing = context.snapshot.failing
    program = BY_NAME.get(failing.program or "")
    if program is None or failing.stage not in (None, "import") or not program.on_torch:
        return False
    return any(map(distribution_of, program.packages))


def _jetsons(context: RuleContext, text: str) -> Fix:
    from gpusetup.findings.jetson.jetpack import undeclared_fix

    said = (e.values.get("library", "") for e in events(context, CUDA_LIB_MISSING.id))
    return undeclared_fix(context, next(said, "")) or Fix(text=text)


def _is_undeclared(context: RuleContext) -> bool:
    return bool(_jetsons(context, "").text)


WHERE = 'python -c "import torch; print(torch.__version__, torch.version.cuda)"'
WHICH_CUDA = "see which CUDA torch has"
CUDNN_8 = r"libcudnn\w*\.so\.8[.\d]*$|cudnn\w*64_8\.dll"
ANOTHERS = "Not torch asks for it, but something that was built for another CUDA (the traceback "
ANOTHERS += "names its file): install its build for torch's CUDA, or build it anew here"
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
            Message(where=(_is_undeclared,), way=_jetsons),
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
                "it find the libraries of the wheels (nvidia/cudnn and nvidia/cublas of "
                "site-packages)",
                way=_for_ctranslate2,
            ),
            Message(
                having={"library": CUDNN_8},
                where=(_not_for_cudnn_8,),
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
            *(
                Message(having=having, where=(asks,), text=ANOTHERS, look=(WHERE,), see=WHICH_CUDA)
                for having, asks in (
                    ({"library": "^libcudart"}, _of_another_cuda),
                    ({}, _is_an_extension),
                )
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
    lacking = {e.values.get("module") for e in events(context, "extension-not-built")} - {None}
    messages = tuple(
        e
        for e in events(context, CUDA_LIB_MISSING.id)
        if not e.values.get("library", "").startswith(DRIVER_LIBRARIES)
        # Said by a package whose own compiled part is not there: no library of CUDA's is lacking.
        and not (
            e.values.get("module") in lacking
            and e.values.get("library", "libbitsandbytes_").startswith("libbitsandbytes_")
        )
    )
    if messages and CUDA_LIB_MISSING.message:
        case = case_of(context, CUDA_LIB_MISSING.message, messages)
        yield from_message(context, CUDA_LIB_MISSING, *case)


RULES = (foreign_libraries, libcuda_stub, cuda_lib_missing)
