"""A CUDA library that torch or a program needs is missing."""

from __future__ import annotations

import re

from gpusetup.catalog.jetpack import UNIFIED, board_of, jetpack_of, undeclared
from gpusetup.causes import alike
from gpusetup.causes.record import Cause, CheckCommand, Message, Refutation
from gpusetup.evidence import facts
from gpusetup.evidence.context import RuleContext, cuda_needed, events
from gpusetup.evidence.facts import failing_package
from gpusetup.fixes import paste
from gpusetup.fixes.extension_packages import folders_first, undeclared_commands
from gpusetup.fixes.owners import lender_of
from gpusetup.messages.fragments import CPU_PART, CUDA_LIBRARY, LINKS_AN_EXTENSION
from gpusetup.messages.row import says
from gpusetup.model.finding import Fix
from gpusetup.model.shell import Lines
from gpusetup.model.versions import parsed

LACKING = "cuda-lib-missing"

RUNTIME_FILE = r"^libcudart.*\.so\.(\d+(?:\.[1-9])?)"
"""The file name of the CUDA runtime, with its version. A zero after the dot is not matched, because
`11.0` is the file's version for every CUDA 11."""


def _named(context: RuleContext) -> str:
    """The names of the missing libraries, separated by spaces."""
    return " ".join([event.values.get("library", "") for event in events(context, LACKING)])


def _is_anothers(context: RuleContext) -> bool:
    """Whether a program or package other than torch needs the library.

    This is the case if torch works, if another program fails, if the failing file belongs to
    another package, or if the library is from another CUDA version.
    """
    torch = context.torch
    if torch.cuda_available or (context.snapshot.failing.program or "torch") != "torch":
        return True
    if failing_package(context) not in ("", "torch", "nvidia"):
        return True
    runtime = re.search(RUNTIME_FILE, _named(context))
    cuda = cuda_needed(torch)
    return bool(cuda and runtime and not cuda.startswith(runtime[1]))


OF_CUDAS_NUMBER = r"lib(?:cudart|cublas|cublasLt|nvrtc|nvJitLink)\.so\.(\d+)"
"""Libraries whose version number is the CUDA version. cuDNN, cuFFT and cuSPARSE have their own
numbers."""


def _torch_brings_it(context: RuleContext) -> bool:
    """Whether the missing library belongs to the CUDA version that torch was built for."""
    library = re.search(OF_CUDAS_NUMBER, _named(context))
    major, _, _ = (cuda_needed(context.torch) or "").partition(".")
    return library is not None and library[1] == major


def with_torchs_libraries(context: RuleContext, text: str) -> Fix:
    """Install torch with the libraries that its wheel requires; in a new environment if torch
    itself lacks these libraries.

    Installing the same release again would change nothing: the libraries are separate packages
    (`nvidia-…`) that are in a different folder from torch or were not installed with torch.
    """
    if not events(context, "torch-loads-libraries") or failing_package(context) not in (
        "",
        "torch",
    ):
        return paste.install_torch(context, text)
    why = (
        "torch itself cannot be imported: its wheel's libraries are separate packages "
        "(`nvidia-…`), which are missing or in a different folder from torch (a system's Python "
        "keeps `lib` and `lib64` apart)"
    )
    if paste.in_a_project(context):
        again = paste.command(context, "uv", "sync", "--reinstall")
        return Fix(text=f"{why}. Install the project's packages again", commands=(again,))
    return Fix(
        text=f"{why}. Install torch into a new virtual environment, with everything that it "
        "requires",
        commands=(paste.into_new_environment(context),),
    )


def _undeclared(context: RuleContext) -> str:
    """The missing library, if a Jetson's torch needs it without declaring it; "" otherwise."""
    libraries = _named(context).split()
    library = libraries[0] if libraries else ""
    # NVPL is NVIDIA's library for Arm, so a text that names it is about a Jetson.
    if board_of(context.snapshot) is None and not library.startswith("libnvpl_"):
        return ""
    return library if undeclared(library) else ""


def _of_a_jetson(context: RuleContext) -> Lines:
    """The commands that install a library that a Jetson's torch needs without declaring it."""
    cuda = cuda_needed(context.torch) or (jetpack_of(board_of(context.snapshot)) or UNIFIED).cuda
    return undeclared_commands(context, _undeclared(context), cuda)


def _torch_needs_cudnn_9(context: RuleContext) -> bool:
    """Whether the installed torch includes cuDNN 9, so a missing cuDNN 8 must be needed by another
    program.

    An unknown version of torch counts as new enough.
    """
    torch = context.torch.version
    if not torch:
        return True
    release, _, _ = torch.partition("+")
    return parsed(release) >= parsed(context.catalog.milestone("torch with cudnn 9"))


CUDNN_8 = r"libcudnn\w*\.so\.8[.\d]*$|cudnn\w*64_8\.dll"


WHISPER = r"(?:whisper|ctranslate2)"

LOADS_CUDNN_8 = r"Could not load library (?P<library>libcudnn_\w+\.so\.8|cudnn_\w+64_8\.dll)"

CAUSES = (
    Cause(
        "cuda-lib-missing",
        check=CheckCommand("python -m pip list | grep -i nvidia  # on Windows: findstr nvidia", "nvidia-cudnn-cu12        8.9.2.26"),
        refuted_by=(Refutation(facts.missing_library_is_listed, "library-not-on-path"),),
        title="{library} is missing or incomplete: programs that need it cannot load",
        means="PyTorch's wheels include their own CUDA libraries, so usually another package "
        "needs a version that is not installed. The number in the names of cudart, cublas and "
        "nvrtc is the CUDA version that the program needs (libcudart.so.12 is CUDA 12). Other "
        "libraries have their own numbers: for example, torch 2.4 and newer includes cuDNN 9, "
        "and older releases included cuDNN 8.",
        text="If an extension needs the library (the traceback names the extension's file), "
        "install the extension's build for torch's CUDA. If no extension needs the library, "
        "install torch with its libraries. ",
        but={"library": r"^(?:libcuda\.so|nvcuda\.dll|libnvidia-ml\.so|nvml\.dll)"},
        way=with_torchs_libraries,
        cases=(
            Message(
                where=(lambda context: bool(_undeclared(context)),),
                text="torch's wheel for Jetson needs this library but does not declare it. "
                "Install the library and add it to the loader's path. Add the second command to "
                "your start script too",
                commands=_of_a_jetson,
            ),
            Message(
                having={"module": "^ctranslate2$"},
                text="CTranslate2 (used by faster-whisper) does not include cuDNN. CTranslate2 "
                "4.5 and newer needs cuDNN 9, like torch 2.4 and newer; older releases need "
                "cuDNN 8. Update CTranslate2, and add nvidia/cudnn/lib and nvidia/cublas/lib of "
                "site-packages to LD_LIBRARY_PATH",
                commands=(
                    "pip install --upgrade ctranslate2 nvidia-cublas-cu12 'nvidia-cudnn-cu12==9.*'",
                ),
            ),
            Message(
                having={"library": CUDNN_8},
                where=(_torch_needs_cudnn_9,),
                text="A program that was built for cuDNN 8 needs this library (CTranslate2 "
                "before 4.5, onnxruntime-gpu before 1.19, torch before 2.4). torch 2.4 and newer "
                "includes cuDNN 9, so update that program. If torch itself is older than 2.4, "
                "reinstall torch",
                look=("pip list",),
            ),
            Message(
                having={"module": ""},
                text="Install the current release of bitsandbytes, which finds the CUDA "
                "libraries that come with torch. torch itself must be a CUDA build",
                commands=("pip install --upgrade {module}",),
                look=(alike.TORCHS_CUDA,),
            ),
            Message(
                where=(_is_anothers, _torch_brings_it),
                means="torch's wheel brings this library for the same CUDA. It lies in "
                "site-packages/nvidia, where torch looks for it and other packages do not.",
                text="Let the package find torch's own library: import torch before it, or put "
                "the folders of torch's libraries first",
                # A notebook's cell cannot set a variable for the kernel that is already running.
                commands=lambda context: (
                    () if lender_of(context) else folders_first(context, "nvidia/*/lib")
                ),
            ),
            Message(
                where=(_is_anothers,),
                text="Another package, not torch, needs this library, because that package was "
                "built for another CUDA version (the traceback names its file). Install the "
                "package's build for torch's CUDA version, or rebuild the package here",
                look=(alike.TORCHS_CUDA,),
            ),
        ),
        alike={"python -m bitsandbytes": ("extension-not-built",)},
        says=(
            says(rf"cannot find (?P<library>-lcuda)\b(?!rt).{{0,160}}?(?:{LINKS_AN_EXTENSION})", by_the="linker", example="/usr/bin/ld: cannot find -lcuda: No such file or directory\ncollect2: error: ld returned 1 exit status\nninja: build stopped: subcommand failed."),
            says(r"\b(?P<library>cu(?:SPARSE|SOLVER|BLAS|FFT|DNN|PTI|RAND)|nvJitLink|NVRTC) (?:shared )?librar(?:y|ies) (?:can ?not|could not|can't|couldn't|was not|is not|isn't) (?:be )?(?:found|located|loaded)", example="cuSPARSE library cannot be found"),
            says(r"Could not load library (?P<library>libcudnn_\w{2,12}_(?:infer|train)\.so\.8)(?!\. Error)", example="Could not load library libcudnn_ops_infer.so.8\nAborted: python3 whisper.py"),
            says(r"failed to open (?P<library>(?:lib)?nvrtc-builtins[\w.-]{0,30}?(?:\.dll|\.so[.\d]*))", example="nvrtc: error: failed to open nvrtc-builtins64_131.dll. Make sure that it is installed correctly."),
            says(r"Could not (?:load|find)(?: module)? \W{1,2}(?P<library>nvrtc64_\w{2,12}\.dll)", example='Could not load "nvrtc64_70.dll"'),
            says(r"third-party dynamic library \((?P<library>[\w.;-]{3,60}?)\) that Paddle depends on is not configured", example="PreconditionNotMetError: The third-party dynamic library (cudnn64_7.dll) that Paddle depends on is not configured correctly. (error code is 126)"),
            says(r"Please make sure (?P<library>libcudnn\w*\.so[.\d]*|cu\w{3,30}\.dll) is in your library path", example="Please make sure libcudnn_ops_infer.so.8 is in your library path!"),
            says(r"Could not locate (?P<library>(?:cu\w+|zlibwapi)\.dll)", example="Could not locate cudnn_ops64_9.dll. Please make sure it is in your library path!"),
            says(r"Unable to load any of \W(?P<library>lib\w+\.so[.\d]*)", example="Unable to load any of {libcudnn_ops.so.9.1.0, libcudnn_ops.so.9}"),
            r"Failed to load library libonnxruntime_providers_\w+\.so with error: (?P<library>lib[\w]+\.so[.\d]*)",
            says("cannot load cudnn shared library", library="cuDNN"),
            says(rf"(?<!dlerror: )(?<![\w/])(?P<library>{CUDA_LIBRARY}\.so[.\d]*): (?!undefined|version|symbol|cannot allocate|failed to map|file too short|set\(|\{{)\S", ".so", unless="dlerror|Ignore above", example="faster_whisper/transcribe.py\nCould not load library libcudnn_ops_infer.so.8. Error: libcudnn_ops_infer.so.8: cannot open shared object file"),
            says(rf"(?<!; )\bdlerror: (?P<library>{CUDA_LIBRARY}\.so[.\d]*): cannot open", unless="Ignore above|could not load dynamic", example="Dlerror: libcudnn.so.7: cannot open shared object file: No such file or directory;"),
            says(r"Required library version not found: (?P<library>libbitsandbytes_\w+\.(?:so|dll))", module="bitsandbytes", example="RuntimeError: Required library version not found: libbitsandbytes_cuda130.so. Maybe you need to compile it from source?"),
            says(r"Configured CUDA binary not found at \S{0,200}?(?P<library>libbitsandbytes_\w+\.(?:so|dll))", module="bitsandbytes", example="Configured CUDA binary not found at /x/site-packages/bitsandbytes/libbitsandbytes_cuda130.so"),
            says(r"Could not find the bitsandbytes CUDA binary.{0,200}?(?P<library>libbitsandbytes_\w+\.(?:so|dll))", module="bitsandbytes", unless=CPU_PART, example="Could not find the bitsandbytes CUDA binary at PosixPath('/x/libbitsandbytes_cuda128.so')"),
            says(r"CUDA_SETUP: WARNING! (?P<library>libcudart\.so) not found", module="bitsandbytes", example="CUDA_SETUP: WARNING! libcudart.so not found in any environmental path. Searching in backup paths..."),
            says("cuda setup failed despite gpu being available", module="bitsandbytes"),
            says(r"Could not load library (?P<library>cu\w+\.dll)", example="Could not load library cudnn_ops_infer64_8.dll. Error code 126"),
            says(rf"{WHISPER}.{{0,900}}?{LOADS_CUDNN_8}", module="ctranslate2"),
            says(rf"{LOADS_CUDNN_8}.{{0,900}}?{WHISPER}", module="ctranslate2"),
            says(rf"(?<![\w/])(?P<library>{CUDA_LIBRARY}\.so[.\d]*)[`'\"*]{{0,3}} ?(?:is |was |are |were |could |can)?(?:not (?:be )?found|n['o]t be found|is missing|missing\b|找不到|未找到|не найден)", ".so", unless="dlerror|Ignore above|CUDA_SETUP|did not contain", example="RuntimeError: Library libcublas.so.12 is not found or cannot be loaded"),
            says(r"LoadLibrary failed with error 126.{0,120}(?P<library>onnxruntime_providers_cuda\.dll)", lacks="a DLL", example='[E:onnxruntime] LoadLibrary failed with error 126 "" when trying to load "C:\\x\\onnxruntime_providers_cuda.dll"'),
            says(r"TryGetProviderInfo_CUDA\b.{0,300}?LoadLibrary failed with error 126", lacks="a DLL", library="onnxruntime_providers_cuda.dll", example='onnxruntime::TryGetProviderInfo_CUDA] onnxruntime::ProviderLibrary::Get FAIL : LoadLibrary failed with error 126 "" when trying to load'),
            says(r"Failed to load shared library '[^'\n]{1,200}?\.dll': Could not find module '[^'\n]{1,200}?(?P<library>(?:llama|ggml)[\w-]{0,20}\.dll)'", module="llama-cpp-python", example="RuntimeError: Failed to load shared library 'C:\\v\\llama_cpp\\lib\\llama.dll': Could not find module 'C:\\v\\llama_cpp\\lib\\llama.dll' (or one of its dependencies)"),
            says(r"Unable to load (?P<library>cu(?:SPARSE|SOLVER|BLAS|FFT|DNN|PTI|RAND)|CUDA|NCCL)\. Is it installed\?", module="jax", example="RuntimeError: Unable to load cuSPARSE. Is it installed?"),
            says(r"CuPy failed to load (?P<library>[\w.-]{4,60}\.(?:dll|so[.\d]*))", module="cupy", example="RuntimeError: CuPy failed to load libnvrtc.so.12: OSError"),
            says(r"libNVVM cannot be found|(?P<library>libnvvm\.so[.\d]*): cannot open", library="libnvvm", module="numba-cuda", example="NvvmSupportError: libNVVM cannot be found. Do `conda install cudatoolkit`"),
            says("failed to open nvvm", library="libnvvm", module="numba-cuda"),
            says(r"NvrtcSupportError|NVRTC cannot be loaded", library="libnvrtc", module="numba-cuda", example="(cuda) <class 'numba.cuda.cudadrv.error.NvrtcSupportError'>: no reason given"),
            says(r'providers_cuda\.dll"? which depends on "(?P<library>[\w.-]{4,60}\.dll)" which is missing', module="onnxruntime", example='Error loading "C:\\x\\onnxruntime_providers_cuda.dll" which depends on "cublasLt64_12.dll" which is missing.'),
        ),
        not_examples=(
            "if it cannot find libcudnn.so.7, install it",
            "if it can't open libcudnn.so.7, install it",
            "when it fails to locate libcudart.so.11.0, set the path",
            "a cuSPARSE library can be found",
        ),
    ),
)  # fmt: skip
