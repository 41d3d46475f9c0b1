"""A CUDA library that is not found: what brings it depends on who asks for it."""

from __future__ import annotations

import re

from gpusetup.evidence.context import RuleContext, cuda_needed, events, on
from gpusetup.evidence.plausible import is_a_name
from gpusetup.findings.libraries.distributions import distribution_of
from gpusetup.findings.torch.companions import public
from gpusetup.fixes import paste
from gpusetup.messages.programs import BY_NAME
from gpusetup.model.finding import Fix
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Event
from gpusetup.model.shell import Line, filled, lines
from gpusetup.model.versions import parsed


def for_whoever_asks(context: RuleContext, library: str, module: str | None) -> Fix:
    """Install torch again with its libraries; build an extension of another CUDA for torch's."""
    if library == LINKED:
        return for_the_linker(context)
    if module == "ctranslate2":
        return _for_ctranslate2(context)
    if re.fullmatch(CUDNN_8, library) and _not_for_cudnn_8(context):
        return _two_cudnn(context)
    if module:
        return Fix(
            text=f"Install the current {module}, which finds the CUDA libraries that torch brings; "
            "torch itself must be a CUDA build",
            commands=(paste.pip(context, "install", "--upgrade", module),)
            if is_a_name(module)
            else (),
            looks=paste.look("see which CUDA torch has", paste.ask_torch(context)),
        )
    needed = cuda_needed(context.snapshot.torch)
    if needed and (of := re.match(RUNTIME, library)) and of.group(1) != needed[: len(of.group(1))]:
        return _for_another_cuda(context, of.group(1), needed)
    if who := _extension_at_import(context):
        return Fix(
            text=f"{who} asks for it, as the traceback shows, and was built for another CUDA: "
            f"install its build for {f'CUDA {needed}' if needed else 'the CUDA of this torch'}, "
            "or build it anew here",
            looks=paste.look("see which CUDA torch has", paste.ask_torch(context)),
        )
    way = paste.install_torch(context, "Install torch with its libraries. ")
    text = "If an extension asks for it (the traceback names its file): install the extension's "
    text += f"build for {f'CUDA {needed}' if needed else 'the CUDA of the installed torch'}. Else: "
    return replace(way, text=text + way.text)


def _extension_at_import(context: RuleContext) -> str | None:
    """The compiled extension beside torch that a text's program is, where its import fails."""
    failing = context.snapshot.failing
    program = BY_NAME.get(failing.program or "")
    if program is None or failing.stage not in (None, "import") or not program.on_torch:
        return None
    return program.name if any(map(distribution_of, program.packages)) else None


RUNTIME = r"libcudart\.so\.(\d+(?:\.\d)?)"
"""The runtime's name holds the CUDA of whoever asks for it: `10.2`, `11.0` for all of 11, `12`."""
CUDNN_8 = r"libcudnn\w*\.so\.8[.\d]*|cudnn\w*64_8\.dll"


def _for_another_cuda(context: RuleContext, of: str, needed: str) -> Fix:
    return Fix(
        text=f"Not torch asks for it, which is built for CUDA {needed}, but something built for "
        f"CUDA {of} (the traceback names its file): install its build for CUDA {needed}",
        looks=paste.look("see which CUDA torch has", paste.ask_torch(context)),
    )


def _not_for_cudnn_8(context: RuleContext) -> bool:
    """Whether cuDNN 8 is asked for by something else than torch, as far as is known."""
    version = context.snapshot.torch.version
    first = context.catalog.milestone("torch with cudnn 9")
    return version is None or parsed(public(version)) >= parsed(first)


def _two_cudnn(context: RuleContext) -> Fix:
    ask = "import torch; print(torch.__version__, torch.backends.cudnn.version())"
    return Fix(
        text="A program built for cuDNN 8 asks for it (CTranslate2 before 4.5, onnxruntime-gpu "
        "before 1.19, torch before 2.4); torch from 2.4 on brings cuDNN 9. Update that program, or "
        "where torch itself is the older one, install it anew with its libraries",
        looks=paste.look(
            "see which versions there are",
            paste.command(context, paste.python(context), "-c", ask),
            paste.pip(context, "list"),
        ),
    )


def _for_ctranslate2(context: RuleContext) -> Fix:
    """CTranslate2 brings no cuDNN; from 4.5 on it takes version 9, as torch does from 2.4 on."""
    folders = (
        "import nvidia.cublas.lib as b, nvidia.cudnn.lib as d; "
        "print(':'.join(m.__path__[0] for m in (b, d)))"
    )
    libraries = ("nvidia-cublas-cu12", "nvidia-cudnn-cu12==9.*")
    text = "CTranslate2 (faster-whisper) brings no cuDNN: before 4.5 it asks for version 8, from "
    text += "4.5 on for version 9, the one of torch 2.4 and newer. Update it, and let it find the "
    text += "libraries of the wheels"
    find = _found_first(context, folders)
    if on(context, "windows"):
        text += r": put nvidia\cudnn\bin and nvidia\cublas\bin of site-packages first on PATH"
        find = ()
    return Fix(
        text=text,
        commands=(paste.pip(context, "install", "--upgrade", "ctranslate2", *libraries), *find),
    )


def _found_first(context: RuleContext, code: str) -> tuple[Line, ...]:
    """LD_LIBRARY_PATH with the folders in front that a line of Python prints."""
    pattern = (
        'export LD_LIBRARY_PATH="$({python} -c {code})${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"'
    )
    return (filled(pattern, python=paste.python(context), code=code),)


def is_with_torch(context: RuleContext, library: str) -> bool:
    """Whether torch computes with this library's CUDA, so that its wheels brought it."""
    torch, number = context.snapshot.torch, re.search(r"\.so\.(\d+)", library)
    major = (torch.cuda or "").partition(".")[0]
    return bool(torch.cuda_available and number and number[1] == major)


def beside_torch(context: RuleContext) -> Fix:
    """For a program that lacks a library which torch brought and loads."""
    folders = (
        "import glob, sysconfig; "
        "print(':'.join(glob.glob(sysconfig.get_path('purelib') + '/nvidia/*/lib')))"
    )
    return Fix(
        text="torch works and brought this library: let the program that lacks it look there too",
        commands=_found_first(context, folders),
    )


LINKED = "-lcuda"
"""How a linker calls the driver's library."""


def for_the_linker(context: RuleContext) -> Fix:
    """The link libcuda.so: the driver's package has libcuda.so.1 alone, the toolkit a stub."""
    stubs = "export LIBRARY_PATH=$CUDA_HOME/lib64/stubs:$CUDA_HOME/lib/stubs:$LIBRARY_PATH"
    return Fix(
        text="Let the linker find libcuda.so: in the toolkit's stubs folder, which serves where "
        "the program is built, or as a link to the driver's libcuda.so.1. Where it runs, the "
        "driver's own is loaded",
        commands=lines(stubs) if on(context, "linux") else (),
        looks=paste.look("see what there is", *lines("ldconfig -p | grep libcuda.so")),
    )


def own_first(context: RuleContext, again: tuple[Line, ...], *, is_set: bool) -> Fix:
    """torch's own libraries first: without another CUDA's folders, else torch anew."""
    named = " and ".join(foreign_folders(context)[:3])
    wrong = named or "the folders of another CUDA"
    return Fix(
        text=f"Take {wrong} out of LD_LIBRARY_PATH for torch"
        if is_set
        else f"If LD_LIBRARY_PATH is set, take {wrong} out of it for torch. If it is not, see "
        "which file was loaded: a copy of the system's packages, or one of two installs that lie "
        "over each other",
        commands=_without_another_cuda(context),
        alternatives=paste.other("install torch again, if two installs lie over each other", *again)
        if context.snapshot.torch.version  # else another build would come
        else (),
        looks=() if is_set else paste.look("see what it is", *lines("echo $LD_LIBRARY_PATH")),
    )


ANOTHER_CUDA = "cuda|cudnn|nccl"
"""How folders of libraries are named that torch brings itself."""


def foreign_folders(context: RuleContext) -> tuple[str, ...]:
    """The folders whose libraries come before those that torch brings."""
    said = events(context, "foreign-library", "ld-library-path-conflict")
    return tuple(dict.fromkeys(e.values["folder"] for e in said if e.values.get("folder")))


def _without_another_cuda(context: RuleContext) -> tuple[Line, ...]:
    named = foreign_folders(context)
    return paste.without_folders(context, paste.folder_pattern(*named) if named else ANOTHER_CUDA)


def _where_set(context: RuleContext) -> tuple[Line, ...]:
    """LD_LIBRARY_PATH without another CUDA, where it is known to be set."""
    known = context.snapshot.environment.get("LD_LIBRARY_PATH")
    return _without_another_cuda(context) if known else ()


def newer_for_xla(context: RuleContext, library: str) -> Fix:
    """For XLA (JAX, TensorFlow), which needs a library as new as the one it was built with."""
    if library != "cuDNN":
        return Fix(
            text="Take foreign folders out of LD_LIBRARY_PATH, and let JAX bring CUDA itself; or "
            "keep the machine's CUDA and install a jaxlib of its time",
            commands=(
                *_where_set(context),
                paste.pip(context, "install", "--upgrade", "jax[cuda12]"),
            ),
        )
    return Fix(
        text="Upgrade the environment's cuDNN (nvidia-cudnn-cu12; with CUDA 13: "
        "nvidia-cudnn-cu13), and take foreign folders out of LD_LIBRARY_PATH. Where torch is "
        "in the same environment and needs its own cuDNN, make one environment for each",
        commands=(
            *_where_set(context),
            paste.pip(context, "install", "--upgrade", "nvidia-cudnn-cu12"),
        ),
        looks=paste.look("see which cuDNN is installed", paste.pip(context, "list")),
    )


OF_CUDAS_MAJOR = r"(?:lib)?(?:cudart|cublas|cusparse(?!Lt)|nvJitLink|nvrtc|cupti|nvToolsExt|npp)"
"""Libraries that are named after the CUDA that they come with."""


def what_its_number_is(name: str) -> str:
    """
    >>> what_its_number_is("libnccl.so.2")
    "The number in its name is the library's own, not CUDA's."
    """
    if not re.search(r"\d", name):
        return ""
    if re.match(OF_CUDAS_MAJOR, name, re.IGNORECASE):
        return "The number in its name is the CUDA that torch, or the extension, was built for."
    own = "The number in its name is the library's own, not CUDA's"
    if "cudnn" not in name.lower():
        return f"{own}."
    return f"{own}: torch brings cuDNN 9 from 2.4 on, and brought cuDNN 8 before."


def what_cannot_load(name: str, messages: tuple[Event, ...]) -> str:
    """Windows says of a DLL that is there which one it tried, not which one it lacks."""
    if any(e.values.get("lacks") for e in messages):
        return f"{name} cannot load: a DLL that it depends on is missing"
    if name == LINKED:
        return "The linker finds no libcuda.so, which the build links against"
    return f"{name} is missing or incomplete: programs that need it cannot load"


def asked_by(messages: tuple[Event, ...]) -> str | None:
    """The package that looked for the library, where its message says so."""
    return next((e.values["module"] for e in messages if e.values.get("module")), None)
