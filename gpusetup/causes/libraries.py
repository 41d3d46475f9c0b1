"""Libraries that are missing, do not fit, or are loaded wrongly: packages for another torch, other CUDA
libraries on the loader's path, a folder that is not on it, two copies of OpenMP.

Sources, where a record names no other: the wheels' metadata.
"""

from __future__ import annotations

import re

from gpusetup.catalog.builds import Name
from gpusetup.catalog.companion_table import companion_table, releases_for
from gpusetup.causes.record import Cause, CheckCommand, Message, Refutation
from gpusetup.evidence import checks, facts, proofs
from gpusetup.evidence.command_values import is_a_path
from gpusetup.evidence.context import RuleContext, cuda_needed, events, on
from gpusetup.evidence.facts import listed_files
from gpusetup.fixes import paste
from gpusetup.messages.fragments import (
    CUDA_LIBRARY,
    FFMPEG,
    IN_A_BUILD,
    LINKS_AN_EXTENSION,
    TORCH_LIBRARY,
)
from gpusetup.messages.makers import AMDS, ONEAPIS
from gpusetup.messages.row import MessageRow, says
from gpusetup.model.finding import Fix, Severity
from gpusetup.model.shell import Lines

# --- LD_LIBRARY_PATH -----------------------------------------------------------------------------

ANOTHER_CUDA = ("cuda", "cudnn", "nccl")
"""Words in the names of folders with libraries that torch's wheel already includes."""


def _without_other_cuda_folders(context: RuleContext) -> Lines:
    """The commands that remove folders with other CUDA libraries from the loader's path: exactly
    the folders that the events name, or else all that look like CUDA folders."""
    conflicts = events(context, "foreign-library", "ld-library-path-conflict")
    folders = [event.values["folder"] for event in conflicts if event.values.get("folder")]
    return paste.without_folders(context, *(folders or ANOTHER_CUDA))


def _folder_on_the_path(context: RuleContext, text: str) -> Fix:
    """Put the library's folder first in the loader's search path, with the command for it if a file
    listing shows the folder."""
    variable = "PATH" if context.os.family == "windows" else "LD_LIBRARY_PATH"
    for path in listed_files(context):
        # `/x/nvidia/cudnn/lib/libcudnn.so.9` is in `/x/nvidia/cudnn/lib`.
        folder = re.sub(r"[/\\][^/\\]+$", "", path)
        if is_a_path(folder):
            return Fix(text=text, commands=(paste.prepending(context, variable, folder),))
    return Fix(text=text)


OF_CUDAS_NUMBER = re.compile(r"lib(?:cudart|cublas|cublasLt|nvrtc|nvJitLink)\.so\.(\d+)")
"""Libraries whose version number is the CUDA version; cuDNN and others have their own numbers."""


def _cuda_of_missing_library(context: RuleContext) -> str:
    """The major CUDA version of the missing library (`12` for libcublas.so.12); "" if unknown."""
    for event in events(context, "cuda-lib-missing"):
        if library := OF_CUDAS_NUMBER.search(event.values.get("library", "")):
            return library[1]
    return ""


def _another_package_needs_it(context: RuleContext) -> bool:
    """Whether a program or package other than torch needs the library: torch works, another program
    fails, or the failing file or the library's CUDA is not torch's."""
    torch = context.torch
    if torch.cuda_available or (context.snapshot.failing.program or "torch") != "torch":
        return True
    # The package that the failing file belongs to is the one that needs the library.
    failing_files = events(context, "failing-file")
    owner = failing_files[0].values.get("package", "") if failing_files else ""
    if owner not in ("", "torch", "nvidia"):
        return True
    needed, cuda = _cuda_of_missing_library(context), cuda_needed(torch)
    return bool(needed and cuda and needed != cuda.partition(".")[0])


CUDNN_8 = r"libcudnn\w*\.so\.8[.\d]*$|cudnn\w*64_8\.dll"
"""`libcudnn_ops_infer.so.8`, `cudnn64_8.dll`."""


def _triton_windows(context: RuleContext) -> Lines:
    """The command that installs the newest Triton for Windows that was made for the installed
    torch; () if the torch is unknown, or the table of companions has no such release."""
    triton = companion_table().project("triton-windows")
    torch = context.torch.version
    newest_first = releases_for(triton, torch) if triton and torch else ()
    if not newest_first:
        return ()
    return (paste.pip(context, "install", f"triton-windows{newest_first[0]}"),)


OF_TORCHVISION = (
    r"(?:operator )?\btorchvision::\w+ does not exist|No such operator torchvision::\w+|Could not find the operator torchvision::nms\b|Could not run 'torchvision::nms' with arguments from the 'CUDA'",
    says(r"register a meta kernel directly to the operator \W?torchvision::", example="RuntimeError: We should not register a meta kernel directly to the operator 'torchvision::roi_align', because it has a CompositeImplicitAutograd kernel in core."),
)  # fmt: skip
OF_TORCHAUDIO = (
    says(r"_torch_sox\S{0,60}\.so(?:: undefined symbol|, \w{1,4}\): Symbol not found): (?P<symbol>\w+)", example="ImportError: /x/_torch_sox.cpython-37m-x86_64-linux-gnu.so: undefined symbol: _ZTIN3c1021AutogradMetaInterfaceE"),
    r"WinError 127\].{0,300}?(?P<dll>\w{0,4}torchaudio\w*\.(?:pyd|dll))",
)  # fmt: skip

COMPANION_PACKAGES: tuple[tuple[Name, str, tuple[str | MessageRow, ...]], ...] = (
    ("torchvision", "0.20.1", OF_TORCHVISION),
    ("torchaudio", "2.4.1", OF_TORCHAUDIO),
)
"""The companions of torch, each with an old release and the messages that only it prints."""

TORCHS = r"lib(?:torch_(?:hip|xpu|cpu)|c10_(?:hip|xpu)|caffe2_nvrtc)"
"""torch's own libraries, which call ROCm's or oneAPI's, or each other."""
OF_ITS_STACK = r"(?:hip|roc|rccl|nccl|miopen|hsa_|amd_comgr|_Z(?=\w*(?:c10|2at|5torch|6caffe2)))\w+"

CAUSES = (
    Cause(
        "library-missing",
        title="{library} is missing from this system",
        means="This is a system library, not part of torch. For example, OpenCV needs libGL.",
        text="Install the system package that contains the library (libGL: libgl1, mesa-libGL; "
        "libgthread: libglib2.0-0, glib2; libgomp: libgomp1, libgomp; libnuma: libnuma1, "
        "numactl-libs)",
        # Source: manual page of ld.so.
        but={"library": r"^(?:libcuda\.so|nvcuda\.dll|libnvidia-)"},
        says=(
            says(rf"(?:Error|: )\s?(?<!dlerror: )(?P<library>(?!{CUDA_LIBRARY}|{TORCH_LIBRARY}|libcuda\.|libnvidia-ml|libbitsandbytes_|{FFMPEG}|lib(?:amdhip64|hip[bfrs]|roc[bfrstm]|rccl|MIOpen|hsa-runtime64|ze_|sycl|ur_|pi_level_zero|intel-ext-pt|mkl_sycl))lib[\w+-]+\.so[.\d]*): cannot open shared", unless="dlerror"),
            says(r"\b(?P<library>libpython[\w.]{0,8}\.so[.\d]*)\b[^\n]{0,80}?\b(?:not found|missing)\b", example="it is linked against `libpython3.10.so`. When this shared library is not found it crashes"),
            says(r"(?P<library>lib[\w.+-]{1,80}|[\w.+-]{2,80}\.so[.\d]*): failed to map segment from shared object", example="ImportError: libcusparseLt.so.0: failed to map segment from shared object", why="it cannot be mapped into memory"),
            says(r"(?P<library>lib[\w.+-]{1,80}|[\w.+-]{2,80}\.so[.\d]*): cannot enable executable stack", example="ImportError: libtorch_cpu.so: cannot enable executable stack as shared object requires: Invalid argument", why="it asks for an executable stack"),
            says(r"(?P<library>[\w.+-]+\.so[.\d]*)?:? ?cannot allocate memory in static TLS block", example="ImportError: /x/libgomp-d22c30c5.so.1: cannot allocate memory in static TLS block", why="no room in the static TLS block"),
        ),
        cases=(
            Message(
                having={"why": ""},
                title="The system cannot load {library}: {why}",
                means="Possible reasons are a file system mounted with noexec, too little memory "
                "or address space, other libraries that used up the static TLS block (mostly "
                "libgomp on aarch64), or a system that refuses executable stacks (glibc 2.41).",
                text="Move the environment and TMPDIR to a file system without noexec, and raise "
                "`ulimit -v`. If the message mentions the TLS block, import torch first in the "
                "program. If it mentions an executable stack, upgrade the package",
                # Source: glibc's sources, dl-load.c and dl-tls.c; glibc 2.41's release notes.
                look=("findmnt -O noexec", "ulimit -a"),
            ),
        ),
        explains=("torch-import-failed", "amd-gpu"),
        formerly=("library-not-mapped", "static-tls-full"),
    ),
    Cause(
        "ld-library-path-conflict",
        title="The loader finds other CUDA libraries before torch's own",
        means="torch needs its own cuDNN, cuBLAS and nvJitLink. If an older copy loads first, "
        "torch fails, often because a symbol is missing.",
        text="Remove the folders of other CUDA versions from LD_LIBRARY_PATH. If the variable is "
        "not set, check which file was loaded: it may come from a system package or a second torch",
        # Source: ld.so's manual page.
        before_torch=(Severity.ERROR,),
        explains=("torch-import-failed", "amd-gpu", "intel-gpu"),
        formerly=(
            "maker-libraries-mixed", "rocm-older-than-torch", "rocm-libraries-mixed",
            "torch-builds-mixed", "oneapi-libraries-mixed",
        ),
        events=("ld-library-path-conflict", "foreign-library"),
        # Without torch, a folder in the variable conflicts with nothing.
        where=(
            lambda context: bool(
                events(context, "ld-library-path-conflict")
                or context.torch.installed
                or context.torch.import_error
            ),
        ),
        commands=_without_other_cuda_folders,
        cases=(
            Message(
                having={"loaded": "", "compiled": ""},
                title="The program needs version {compiled} or newer of a library, but version "
                "{loaded} is loaded",
                plain="The loaded CUDA library is older than the one the program was compiled with",
                text="Upgrade the library in this environment (pip: `pip install --upgrade "
                "'jax[cuda12]'`; conda: update `cudnn`). If torch in the same environment requires "
                "a different version, use a separate environment for each program. Remove folders "
                "of another CUDA version from LD_LIBRARY_PATH",
            ),
            Message(
                having={"of": "its stack"},
                title="{library} does not match the other libraries of ROCm, oneAPI or torch",
                means="PyTorch's wheels include these libraries, which only work together if all "
                "are from the same release. After a partial update, or if LD_LIBRARY_PATH contains "
                "another ROCm, oneAPI or torch, one library lacks a function that another calls.",
                text="Remove the folders of ROCm, oneAPI (added by setvars.sh) and other torch "
                "installations from LD_LIBRARY_PATH and LD_PRELOAD. If that does not help, install "
                "torch in a new environment (`gpusetup install --venv .venv-torch`)",
                commands=("unset LD_LIBRARY_PATH", "unset LD_PRELOAD"),
                # Source: ld.so(8); PyTorch, "Getting Started on Intel GPU".
            ),
            Message(
                having={"library": r"stdc\+\+"},
                text="Put the environment's own libstdc++ first (conda's is newer than the "
                "system's; install it if it is missing): `export "
                "LD_LIBRARY_PATH=$CONDA_PREFIX/lib:$LD_LIBRARY_PATH`",
                commands=("conda install -y -c conda-forge libstdcxx-ng",),
            ),
        ),
        says=(
            says(r"undefined symbol: (?P<symbol>__nvJitLink\w+)(?:, version (?P<library>libnvJitLink\S+))?", example="libcusparse.so.12: undefined symbol: __nvJitLinkAddData_12_1, version libnvJitLink.so.12"),
            says(rf"(?P<library>{CUDA_LIBRARY}\.so[.\d]*): undefined symbol: (?P<symbol>(?!_ZN|__nvJitLink)\w+)", example="ImportError: /x/torch/lib/../../nvidia/cudnn/lib/libcudnn.so.9: undefined symbol: cudnnGetVersion_v2"),
            says(rf"symbol (?P<symbol>\w+),? version (?P<library>{CUDA_LIBRARY}\S*) not defined", example="symbol cublasLtGetStatusString, version libcublasLt.so.11 not defined in file libcublasLt.so.11 with link time reference"),
            says(r"Could not load library (?P<library>lib\w+\.so[.\d]*)\. Error: .{0,160}undefined symbol: (?P<symbol>\w+)", example="Could not load library libcudnn_cnn_train.so.8. Error: /x/libcudnn_cnn_train.so.8: undefined symbol: _ZN5cudnn3cnn34layer"),
            says(r"cuDNN version (?:incompatibility|mismatch): PyTorch was compiled +against \(?(?P<compiled>\d[\d, .]*\d)\)? but (?:linked against|found runtime version|runtime version is) \(?(?P<loaded>\d[\d, .]*\d)", "cudnn version"),
            "cudnn_status_version_mismatch",
            says(r"lib(?:torch_cuda\w*|torch_python|torch_cpu|torch|c10_cuda|caffe2\w*)\.so: undefined symbol: (?P<symbol>(?:nccl|cudnn|cublas|cusparse|cufft|cuda|cufile|cupti|curand|cusolver|nvrtc|nvml|nvshmem|nvtx|_nv|__cuda)\w*)(?:, version (?P<library>lib\S+))?", "undefined symbol"),
            says(r"version [`'\"]?(?P<symbol>GLIBCXX_[\d.]+)\W{0,2} not found", library="libstdc++.so.6", example="ImportError: /usr/lib/x86_64-linux-gnu/libstdc++.so.6: version `GLIBCXX_3.4.30' not found (required by /x/lib.so)"),
            says(r"version [`'\"]?(?P<symbol>CXXABI_[\w.]+)\W{0,2} not found", library="libstdc++.so.6", example="libstdc++.so.6: version `CXXABI_1.3.15' not found"),
            says("cudnn_status_sublibrary", library="libcudnn", symbol="CUDNN_STATUS_SUBLIBRARY"),
            says(rf"(?P<library>(?:{AMDS}|{ONEAPIS})\.so[.\d]*):? (?:undefined symbol|symbol lookup error)\b(?::? (?P<symbol>\w+))?", of="its stack", example="ImportError: librocblas.so.4: undefined symbol: _ZN7Tensile3hip15SolutionAdapterE"),
            says(r"/opt/rocm[^\s:'\"]{0,120}/(?P<library>[\w.+-]{2,60}\.so[.\d]*): undefined symbol: (?P<symbol>\w+)", "/opt/rocm", of="its stack", example="/opt/rocm/lib/libfoo.so.1: undefined symbol: foo_start"),
            says(rf"(?P<library>(?:{AMDS}|{ONEAPIS})\.so[.\d]*): version [`'\"]?(?P<symbol>(?!GLIBC|CXXABI)[\w.+-]+)\W{{0,2}} not found", ".so", of="its stack", example="libamdhip64.so.6: version `hip_6.3' not found (required by /opt/rocm/lib/librccl.so.1)"),
            says(rf"(?P<library>{TORCHS}\.so): undefined symbol: (?P<symbol>{OF_ITS_STACK})", of="its stack", example="ImportError: /x/torch/lib/libtorch_hip.so: undefined symbol: hipblasLtMatmulAlgoGetHeuristic"),
            says(r"NCCL version mismatch|mismatched NCCL version(?: detected ?: (?P<ranks>rank \d+ version \d+ rank \d+ version \d+))?", library="libnccl", example="RuntimeError: NCCL version mismatch between ranks"),
        ),
    ),
    Cause(
        "wrong-libcuda-loaded",
        check=CheckCommand("python -c \"import ctypes; ctypes.CDLL('libcuda.so.1'); print(set(line.split()[-1] for line in open('/proc/self/maps') if 'libcuda' in line))\"", "{'/usr/local/cuda/compat/libcuda.so.550.54.14'}"),
        title="The program does not load the driver's own libcuda: {fact}",
        means="A program learns from libcuda which CUDA version it can use. A toolkit's stub or a "
        "cuda-compat library reports a lower version than the driver's own libcuda.",
        text="Keep the driver and torch. Check which libcuda is loaded, and remove folders called "
        "`stubs` or `compat` from LD_LIBRARY_PATH (in a container: from the image), or from "
        "/etc/ld.so.conf.d (then run `sudo ldconfig`). If the machine has not been restarted since a driver update, restart it",
        # Source: CUDA Compatibility guide; ld.so(8).
    ),
    Cause(
        "library-not-on-path",
        title="The loader does not search the folder that contains {library}",
        means="CUDA wheels put their libraries in folders that only torch searches.",
        text="You do not need to install anything. Add the library's folder to LD_LIBRARY_PATH "
        "before you start the program. Or import torch first in the program, because torch then "
        "loads its CUDA libraries",
        # Source: ld.so(8); torch/__init__.py, _preload_cuda_deps.
        fix_for=_folder_on_the_path,
    ),
    Cause(
        "dll-load-order",
        title="Older DLLs are loaded before torch: {fact}",
        means="A process loads only one copy of each DLL. Qt, OpenCV and other packages include "
        "their own C++ runtime. If that runtime is older than torch's and loads first, torch's "
        "DLLs fail to load.",
        text="Keep the installed torch. Make `import torch` the first line of the program, before "
        "the package with the older DLLs, or update that package",
        # Source: Microsoft, Dynamic-link library search order; threads of PySide6 and torch 2.9.
    ),
    Cause(
        "extension-needs-libcuda",
        certain_if=proofs.message_states_it,
        title="{library} uses {symbol} from the driver's libcuda but is not linked to libcuda",
        means="The function is part of the driver's libcuda.so.1, which the package must link to.",
        text="Your driver and CUDA are fine. Report the missing link to the package's project. As "
        "a workaround, set LD_PRELOAD to the driver's libcuda.so.1 (NixOS: "
        "/run/opengl-driver/lib/libcuda.so.1)",
        # Source: cuda.h (the driver API); ld.so(8).
        look=("ldd {path}",),
        says=(says(r"(?P<path>(?:/[\w.+~@-]+)*/(?P<library>[\w.+-]+\.so[.\d]*)): undefined symbol: (?P<symbol>cu(?:Mem|Init|Device|Ctx|Module|Launch|Stream|Event|Func|Link|Graph|Array|Tensor|Tex|Get|Driver|Pointer|Occupancy|Multicast)\w{2,40})\b", unless=r"lib(?:torch|c10)\w*\.so: undefined|\btriton\b", example="OSError: /srv/x/libggml-cuda.so: undefined symbol: cuMemCreate"),),
    ),
    Cause(
        "cuda-lib-missing",
        check=CheckCommand("python -m pip list | grep -i nvidia  # Windows: python -m pip list | findstr nvidia", "nvidia-cudnn-cu12        8.9.2.26"),
        refuted_by=(Refutation(facts.missing_library_is_listed, "library-not-on-path"),),
        title="{library} is missing or incomplete, so programs that need it cannot start",
        means="PyTorch's wheels include their own CUDA libraries, so usually another package needs "
        "a version that is not installed. The number in the names of cudart, cublas and nvrtc is "
        "the CUDA version (libcudart.so.12 belongs to CUDA 12). Other libraries have their own "
        "version numbers (torch 2.4 and newer includes cuDNN 9).",
        text="If an extension needs the library (the traceback shows its file), install the "
        "extension's build for torch's CUDA version. Otherwise, install torch with its libraries. ",
        but={"library": r"^(?:libcuda\.so|nvcuda\.dll|libnvidia-ml\.so|nvml\.dll)"},
        fix_for=paste.install_torch,
        cases=(
            Message(
                having={"library": CUDNN_8},
                text="A program that was built for cuDNN 8 needs this library: for example "
                "CTranslate2 before 4.5, which faster-whisper uses, or onnxruntime-gpu before "
                "1.19. torch 2.4 and newer includes cuDNN 9. Keep torch, and update that program, "
                "or install its release for the cuDNN that you have (with torch before 2.4: "
                "`ctranslate2==4.4.0`). Add nvidia/cudnn/lib and nvidia/cublas/lib of "
                "site-packages to LD_LIBRARY_PATH",
            ),
            Message(
                having={"module": ""},
                text="Install the current release of bitsandbytes, which finds the CUDA "
                "libraries that come with torch. torch itself must be a CUDA build",
                commands=("pip install --upgrade {module}",),
                look=(checks.CUDA_OF_TORCH,),
            ),
            Message(
                where=(_another_package_needs_it,),
                text="Another package, not torch, needs this library (the traceback shows its "
                "file). If the package is built for torch's CUDA version, import torch before the "
                "package, or put the folders nvidia/*/lib of site-packages first in "
                "LD_LIBRARY_PATH. Otherwise install the package's build for torch's CUDA version, "
                "or rebuild it here",
                look=(checks.CUDA_OF_TORCH,),
            ),
        ),
        asks=("python -m bitsandbytes",),
        says=(
            says(rf"cannot find (?P<library>-lcuda)\b(?!rt).{{0,160}}?(?:{LINKS_AN_EXTENSION})", by_the="linker", example="/usr/bin/ld: cannot find -lcuda: No such file or directory\ncollect2: error: ld returned 1 exit status\nninja: build stopped: subcommand failed."),
            says(r"Could not load library (?P<library>libcudnn_\w{2,12}_(?:infer|train)\.so\.8)(?!\. Error)", example="Could not load library libcudnn_ops_infer.so.8\nAborted: python3 whisper.py"),
            says(r"failed to open (?P<library>(?:lib)?nvrtc-builtins[\w.-]{0,30}?(?:\.dll|\.so[.\d]*))", example="nvrtc: error: failed to open nvrtc-builtins64_131.dll. Make sure that it is installed correctly."),
            says(r"Could not locate (?P<library>(?:cu\w+|zlibwapi)\.dll)", example="Could not locate cudnn_ops64_9.dll. Please make sure it is in your library path!"),
            says(r"Unable to load any of \W(?P<library>lib\w+\.so[.\d]*)", example="Unable to load any of {libcudnn_ops.so.9.1.0, libcudnn_ops.so.9}"),
            r"Failed to load library libonnxruntime_providers_\w+\.so with error: (?P<library>lib[\w]+\.so[.\d]*)",
            says(rf"(?<!dlerror: )(?<![\w/])(?P<library>{CUDA_LIBRARY}\.so[.\d]*): (?!undefined|version|symbol|cannot allocate|failed to map|file too short|set\(|\{{)\S", ".so", unless="dlerror|Ignore above", example="faster_whisper/transcribe.py\nCould not load library libcudnn_ops_infer.so.8. Error: libcudnn_ops_infer.so.8: cannot open shared object file"),
            says(r"(?:Required library version not found: |Configured CUDA binary not found at \S{0,200}?)(?P<library>libbitsandbytes_\w+\.(?:so|dll))", example="Configured CUDA binary not found at /x/site-packages/bitsandbytes/libbitsandbytes_cuda130.so", module="bitsandbytes"),
            says(r"CUDA_SETUP: WARNING! (?P<library>libcudart\.so) not found|cuda setup failed despite gpu being available", example="CUDA_SETUP: WARNING! libcudart.so not found in any environmental path. Searching in backup paths...", module="bitsandbytes"),
            says(r"Could not load library (?P<library>cu\w+\.dll)", example="Could not load library cudnn_ops_infer64_8.dll. Error code 126"),
            says(rf"(?<![\w/])(?P<library>{CUDA_LIBRARY}\.so[.\d]*)[`'\"*]{{0,3}} ?(?:is |was |are |were |could |can)?(?:not (?:be )?found|n['o]t be found|is missing|missing\b|找不到|未找到|не найден)", ".so", unless="dlerror|Ignore above|CUDA_SETUP|did not contain", example="RuntimeError: Library libcublas.so.12 is not found or cannot be loaded"),
            says(r"LoadLibrary failed with error 126.{0,120}(?P<library>onnxruntime_providers_cuda\.dll)", lacks="a DLL", example='[E:onnxruntime] LoadLibrary failed with error 126 "" when trying to load "C:\\x\\onnxruntime_providers_cuda.dll"'),
            says(r"Failed to load shared library '[^'\n]{1,200}?\.dll': Could not find module '[^'\n]{1,200}?(?P<library>(?:llama|ggml)[\w-]{0,20}\.dll)'", module="llama-cpp-python", example="RuntimeError: Failed to load shared library 'C:\\v\\llama_cpp\\lib\\llama.dll': Could not find module 'C:\\v\\llama_cpp\\lib\\llama.dll' (or one of its dependencies)"),
            says(r"CuPy failed to load (?P<library>[\w.-]{4,60}\.(?:dll|so[.\d]*))", module="cupy", example="RuntimeError: CuPy failed to load libnvrtc.so.12: OSError"),
            says(r"libNVVM cannot be found|(?P<library>libnvvm\.so[.\d]*): cannot open|failed to open nvvm|NvrtcSupportError|NVRTC cannot be loaded", example="NvvmSupportError: libNVVM cannot be found. Do `conda install cudatoolkit`", library="libnvvm", module="numba-cuda"),
            says(r'providers_cuda\.dll"? which depends on "(?P<library>[\w.-]{4,60}\.dll)" which is missing', module="onnxruntime", example='Error loading "C:\\x\\onnxruntime_providers_cuda.dll" which depends on "cublasLt64_12.dll" which is missing.'),
        ),
    ),
    Cause(
        "triton-missing-windows",
        certain_if=proofs.message_states_it,
        refuted_by=(Refutation(facts.a_run_ended_well),),
        title="torch.compile needs Triton, and torch for Windows does not include it",
        means="Only torch for Linux comes with Triton.",
        text="Install the release of triton-windows (a community build) that matches your torch "
        "(2.4 or newer). Or do without torch.compile",
        where=(lambda context: context.os.family not in ("linux", "macos"),),
        commands=_triton_windows,
        says=(
            r"Cannot find a working triton installation|Windows not yet supported for torch\.compile|tritonmissing",
            says(r"No module named ['\"]?triton\b(?!\.(?:ops|common|compiler))", unless="matching Triton is not available|comfy_kitchen|unavailable_reason", example="ModuleNotFoundError: No module named 'triton'"),
            says(r"(?:no matching distribution found for|could not find a version that satisfies the requirement) triton\b", example="ERROR: No matching distribution found for triton==2.1.0"),
        ),
    ),
    Cause(
        "triton-missing",
        refuted_by=(Refutation(facts.a_run_ended_well),),
        title="torch.compile cannot find a working Triton for this torch",
        means="Each torch release for Linux needs a particular release of triton. That release is "
        "missing or broken, a different one is installed, or Triton cannot reach the driver.",
        text="Keep torch, and install the release of triton that it requires. "
        '`python -c "import triton"` shows why Triton cannot be imported',
        # Source: torch/_inductor/scheduler.py.
        events=("triton-missing", "triton-missing-windows"),
        where=(lambda context: context.os.family not in ("windows", "macos"),),
        look=("python -c \"import importlib.metadata as m; print([r for r in m.requires('torch') if 'triton' in r])\"",),
        formerly=("triton-mismatch",),
        says=(
            says(r"cannot import name ['\"]?(?P<name>\w{3,40})['\"]? from ['\"]?triton\.(?:compiler|runtime|backends)\b", "cannot import name", example="ImportError: cannot import name 'triton_key' from 'triton.compiler.compiler'"),
            says(r"module ['\"]?triton\.(?:compiler|runtime|backends)[\w.]*['\"]? has no attribute ['\"]?(?P<name>\w{3,40})", "has no attribute", example="AttributeError: module 'triton.compiler' has no attribute 'OutOfResources'"),
        ),
    ),
    Cause(
        "triton-build-failed",
        look=(checks.WHICH_LIBCUDA,),
        title="Triton cannot compile the C code of its helper program",
        means="The C compiler runs but cannot find libcuda.so, cuda.h or Python.h.",
        text="Read the compiler's first error above. If the compiler cannot find libcuda "
        "(`-lcuda`), create a link named libcuda.so to the driver's libcuda.so.1 in a new folder, "
        "and set TRITON_LIBCUDA_PATH to that folder",
        # Source: Triton's sources (build.py, driver.py).
        says=(
            says(r"cannot find (?P<lacks>-lcuda)\b(?!rt)", unless=LINKS_AN_EXTENSION, example="/usr/bin/ld: cannot find -lcuda: No such file or directory"),
            says(r"(?P<lacks>Python\.h): No such file", unless=r"building '[\w.]{1,60}' extension|Building wheel|setup\.py|Failed building", example="main.c:3:10: fatal error: Python.h: No such file or directory"),
            says(r"error: (?P<lacks>cuda\.h): No such file", example="driver.c:1:10: fatal error: cuda.h: No such file or directory"),
            says("cannot find ptxas", lacks="ptxas"),
            says(r"`?ptxas`? failed with error code (?!\d{0,9}:? ?.{0,300}?(?:is not defined for option|Unsupported \.version))-?\d{1,10}", lacks="a ptxas that runs", example="RuntimeError: `ptxas` failed with error code 4294967295:"),
            says(r"(?:/|\\)(?:main|driver|cuda_utils|__triton_\w+|stub)\.(?:c(?:pp)?|cp3\d{1,2}-\w{3,12}\.pyd|cpython-[\w-]{3,40}\.so)\b.{0,900}returned non-zero exit status", lacks="headers", example="subprocess.CalledProcessError: Command '['/usr/bin/gcc', '/tmp/x/cuda_utils.c', '-O3', '-shared']' returned non-zero exit status 1."),
        ),
    ),
    Cause(
        "triton-no-compiler",
        title="torch.compile needs a C compiler, but there is none on PATH",
        text="Install a C compiler (gcc), or set CC to an installed one",
        commands=("package gcc",),
        needs_root=True,
        cases=(
            Message(
                where=(lambda context: on(context, "windows"),),
                text="Install the newest triton-windows, which includes a compiler. Older "
                "releases of triton-windows need the Build Tools for Visual Studio with C++",
                commands=("pip install --upgrade triton-windows",),
            ),
        ),
        asks=("gcc --version",),
        says=(
            says(r"failed to find c compiler|No working C(?:\+\+)? compiler found|InvalidCxxCompiler|compiler: cl is not found", example="torch._inductor.exc.InvalidCxxCompiler: No working C++ compiler found in torch._inductor.config.cpp.cxx"),
            says(r"No such file or directory: '(?P<compiler>gcc|cc|clang|g\+\+|c\+\+|x86_64-linux-gnu-gcc)'", unless=IN_A_BUILD, example="FileNotFoundError: [Errno 2] No such file or directory: 'gcc'"),
        ),
    ),
    *(
        Cause(
            f"{name}-mismatch",
            by_check=True,
            certain_if=proofs.installed_pair_is_read(name),
            check=CheckCommand("python -m pip list | grep -i torch  # Windows: python -m pip list | findstr torch", f"torch                    2.14.1+cu130\n{name:<24} {release}"),
            title="{pair}",
            plain=f"{name} was built for another torch",
            means="Each release is compiled for one torch release and one CUDA version (torchaudio "
            "2.11 is the last).",
            text=f"Install the {name} version that matches your torch, from the same index",
            says=(
                *rows,
                says(rf"PyTorch and {name} were compiled with different CUDA(?: major)? versions", example=f"RuntimeError: Detected that PyTorch and {name} were compiled with different CUDA major versions. PyTorch has CUDA Version=12.1 and {name} has CUDA Version=11.8."),
                says(rf"{name}\S{{0,40}}\.so: undefined symbol: (?P<symbol>\w+)", unless="Failed to load image Python extension", example=f"ImportError: /x/{name}/lib/lib{name}.so: undefined symbol: _ZNK3c107SymBool10guard_boolEPKcl"),
                says(rf"dlopen\([^()]{{0,200}}{name}[^()]{{0,80}}\): Symbol not found: (?P<symbol>\w+)", unless="Failed to load image Python extension", example=f"dlopen(/x/site-packages/{name}/lib/lib{name}.so, 0x0006): Symbol not found: __ZN3c1017RegisterOperators"),
                says(rf"{name} (?P<{name}>\d[\w.+]*) (?:requires|has requirement) torch ?==? ?(?P<needs>[\w.+]+), but you(?:'ll)? have (?:torch )?(?P<torch>\d[\w.+]*\w)", example=f"{name} {release} requires torch==2.4.1, but you have torch 2.6.0 which is incompatible."),
                rf"lib(?:torch|c10)\w*\.so: cannot open shared object file.{{0,900}}?packages/{name}/|packages/{name}/.{{0,900}}?lib(?:torch|c10)\w*\.so: cannot open shared",
            ),
        )
        for name, release, rows in COMPANION_PACKAGES
    ),
    Cause(
        "companion-torch-mismatch",
        formerly=("guarded-set-changed", "requirement-broken"),
        severity=Severity.WARNING,
        title="{package} requires {needs}, but {have} is installed",
        plain="A package needs a different torch version than the one installed",
        means="pip and uv install such a package anyway, at most with a warning. The package then "
        "fails at import, or runs without its compiled kernels.",
        text="Install releases of torch and the package that work together",
        commands=("gpusetup install {package}",),
        # Source: each row in data/companions.json names its own.
        look=("pip check",),
        says=(
            says(r"(?<![\w.-])(?P<package>(?!torchvision|torchaudio)[\w.-]+) (?P<version>\d[\w.+!]*) (?:requires|has requirement) (?P<needs>[\w.\[\]-]+ ?[<>=!~][^ ]*?), but you(?:'ll)? have (?P<have>[\w.-]+ \d[\w.+]*\w)", "but you", example="xformers 0.0.28 requires torch==2.4.1, but you have torch 2.6.0 which is incompatible."),
        ),
        failure=7,
    ),
    Cause(
        "numpy-abi-mismatch",
        certain_if=proofs.message_states_it,
        title="torch or another module was built for NumPy 1, but NumPy 2 is installed",
        means="torch releases before 2.3 were compiled against NumPy 1 and cannot use NumPy 2.",
        text="Install NumPy 1, or torch 2.3 or newer",
        # Source: NumPy 2 migration guide.
        commands=("pip install 'numpy<2'",),
        cases=(
            Message(
                having={"wants": ""},
                title="A module was built for NumPy 2, but NumPy 1 is installed",
                means="A module that was compiled against NumPy 2 does not run with NumPy 1.",
                text="Update NumPy, or install an older release of the module",
                commands=("pip install --upgrade 'numpy>=2'",),
            ),
        ),
        says=(
            says(r"_array_api not found|numpy\.core\.multiarray failed to import|numpy\.(?:dtype|ufunc|ndarray) size changed|Could not infer dtype of numpy\.\w+|(?:Error: |processing !!! |error: )Numpy is not available", example="ValueError: numpy.dtype size changed, may indicate binary incompatibility. Expected 96 from C header, got 88 from PyObject"),
            says(r"compiled using NumPy (?P<compiled>1\.x) cannot be run in NumPy (?P<running>\d+\.[\d.]+\d)", example="A module that was compiled using NumPy 1.x cannot be run in NumPy 2.1.3 as it may crash."),
            says(r"compiled against NumPy C-API version 0x\w+ \(NumPy (?P<compiled>2)[\d.]*\) but the running NumPy has C-API version", wants="NumPy 2", example="RuntimeError: module was compiled against NumPy C-API version 0x12 (NumPy 2.0) but the running NumPy has C-API version 0x11"),
            says(r"compiled against (?:ABI|API) version (?P<compiled>0x\w+) but this version of numpy is (?P<running>0x\w+)", example="RuntimeError: module compiled against API version 0x10 but this version of numpy is 0xf"),
        ),
    ),
    Cause(
        "mkl-version-mismatch",
        certain_if=proofs.message_states_it,
        title="MKL lacks a symbol that this conda build of torch needs (iJIT_NotifyEvent)",
        means="MKL 2024.1 removed this symbol.",
        text="Install an older MKL in this environment, or install torch with pip",
        # Source: pytorch/pytorch#123097.
        commands=("conda install -y 'mkl<2024.1'",),
        says=(
            says(r"undefined symbol: (?P<symbol>(?:iJIT|mkl)_\w+)", example="libmkl_avx2.so: undefined symbol: mkl_sparse_optimize_bsr_trsm_i8"),
            says(r"(?:Intel )?MKL (?:FATAL )?ERROR: (?:Cannot load|The specified)|MKL_THREADING_LAYER=INTEL is incompatible with", "mkl", example="Intel MKL FATAL ERROR: Cannot load libmkl_avx512.so.2 or libmkl_def.so.2."),
        ),
    ),
)  # fmt: skip
