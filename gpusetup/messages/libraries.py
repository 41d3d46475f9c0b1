"""Messages of the dynamic loader and of libraries that do not fit each other.

Sources: glibc's ld.so, Windows' loader (its numbers hold in every language), cuDNN, MKL, NumPy's
check of the C API, bitsandbytes' own search.
"""

from __future__ import annotations

from gpusetup.messages.row import row, rows

CUDA_LIBRARY = (
    r"lib(?:cudart|cublas|cublasLt|cudnn\w*|cufft\w?|curand|cusparse|cusparseLt|cusolver\w*|nvrtc[\w-]*|nvJitLink"
    r"|nccl|nvToolsExt|cupti|cufile|nvshmem\w*|cudss|nvpl_\w+|caffe2_nvrtc|npp\w+|nvjpeg|cuda_runtime)"
    r"(?:-[0-9a-f]{8})?"
)
"""A wheel that bundles its libraries marks them with a hash: libcudnn-a2b758a6.so.7."""
TORCH_LIBRARY = r"lib(?:torch\w*|c10\w*|caffe2\w*)"


FFMPEG = r"lib(?:av(?:util|codec|format|device|filter)|sw(?:scale|resample))\b"

WHISPER = r"(?:whisper|ctranslate2)"
CUDNN_8 = r"Could not load library (?P<library>libcudnn_\w+\.so\.8|cudnn_\w+64_8\.dll)"

OF_LINUX = r"bin [A-Z]:\\\S{1,200}\.so\b|[A-Z]:\\\S{1,200}\\libbitsandbytes_\w+\.so\b"
"""Linux' library of bitsandbytes in a folder of Windows."""

CPU_PART = r"libbitsandbytes_cpu\.(?:so|dylib): (?:cannot open shared object|no such file)"
"""Every wheel of bitsandbytes has this library: where it is not, none was built."""

LOADER = (
    row(
        "cuda-library-error",
        "cublas runtime error",
        r"cublas runtime error : the GPU program failed to execute",
        library="CUBLAS",
        status="CUBLAS_STATUS_EXECUTION_FAILED",
    ),
    row(
        "cuda-lib-missing",
        ".so",
        rf"(?<!dlerror: )(?<![\w/])(?P<library>{CUDA_LIBRARY}\.so[.\d]*): (?!undefined|version|symbol|cannot allocate|failed to map|file too short|set\(|\{{)\S",
        unless="dlerror|Ignore above",
    ),
    row(
        "cuda-lib-missing",
        "dlerror: lib",
        rf"(?<!; )\bdlerror: (?P<library>{CUDA_LIBRARY}\.so[.\d]*): cannot open",
        unless="Ignore above|could not load dynamic",
    ),
    row(
        "library-not-mapped",
        "failed to map segment",
        r"(?P<library>lib[\w.+-]{1,80}|[\w.+-]{2,80}\.so[.\d]*): failed to map segment from shared object",
    ),
    row(
        "cuda-lib-missing",
        "required library version not found",
        r"Required library version not found: (?P<library>libbitsandbytes_\w+\.(?:so|dll))",
        module="bitsandbytes",
    ),
    row(
        "cuda-lib-missing",
        "bitsandbytes cuda binary",
        r"Could not find the bitsandbytes CUDA binary.{0,200}?(?P<library>libbitsandbytes_\w+\.(?:so|dll))",
        module="bitsandbytes",
        unless=CPU_PART,
    ),
    row(
        "extension-not-built",
        "libbitsandbytes_cpu",
        CPU_PART,
        module="bitsandbytes",
    ),
    row(
        "cuda-lib-missing",
        "cuda_setup: warning!",
        r"CUDA_SETUP: WARNING! (?P<library>libcudart\.so) not found",
        unless=OF_LINUX,
        module="bitsandbytes",
    ),
    *rows(
        "cuda-lib-missing",
        {
            "could not load library": r"Could not load library (?P<library>cu\w+\.dll)",
            "is in your library path": r"Please make sure (?P<library>libcudnn\w*\.so[.\d]*|cu\w{3,30}\.dll) is in your library path",
            "could not locate": r"Could not locate (?P<library>(?:cu\w+|zlibwapi)\.dll)",
            "unable to load any of": r"Unable to load any of \W(?P<library>lib\w+\.so[.\d]*)",
            "failed to load library libonnxruntime": r"Failed to load library libonnxruntime_providers_\w+\.so with error: (?P<library>lib[\w]+\.so[.\d]*)",
        },
    ),
    row(
        "cuda-lib-missing",
        "could not load library",
        rf"{WHISPER}.{{0,900}}?{CUDNN_8}",
        module="ctranslate2",
    ),
    row(
        "cuda-lib-missing",
        "could not load library",
        rf"{CUDNN_8}.{{0,900}}?{WHISPER}",
        module="ctranslate2",
    ),
    row(
        "cuda-lib-missing",
        ".so",
        rf"(?<![\w/])(?P<library>{CUDA_LIBRARY}\.so[.\d]*)[`'\"*]{{0,3}} ?(?:is |was |are |were |could |can)?(?:not (?:be )?found|n['o]t be found|is missing|missing\b|找不到|未找到|не найден)",
        unless="dlerror|Ignore above|CUDA_SETUP|did not contain",
    ),
    row(
        "cuda-lib-missing",
        "providers_cuda",
        r"LoadLibrary failed with error 126.{0,120}(?P<library>onnxruntime_providers_cuda\.dll)",
        lacks="a DLL",
    ),
    row(
        "cuda-lib-missing",
        "trygetproviderinfo_cuda",
        r"TryGetProviderInfo_CUDA\b.{0,300}?LoadLibrary failed with error 126",
        library="onnxruntime_providers_cuda.dll",
        lacks="a DLL",
    ),
    row(
        "library-missing",
        ".so",
        rf"(?:Error|: )\s?(?<!dlerror: )(?P<library>(?!{CUDA_LIBRARY}|{TORCH_LIBRARY}|libcuda\.|libnvidia-ml|libbitsandbytes_|{FFMPEG}|lib(?:amdhip64|hip[bfrs]|roc[bfrstm]|rccl|MIOpen|hsa-runtime64|ze_|sycl|ur_|pi_level_zero|intel-ext-pt|mkl_sycl))lib[\w+-]+\.so[.\d]*): cannot open shared",
        unless="dlerror",
    ),
    *rows(
        "ld-library-path-conflict",
        {
            "nvjitlink": r"undefined symbol: (?P<symbol>__nvJitLink\w+)(?:, version (?P<library>libnvJitLink\S+))?",
            "undefined symbol": rf"(?P<library>{CUDA_LIBRARY}\.so[.\d]*): undefined symbol: (?P<symbol>(?!_ZN|__nvJitLink)\w+)",
            "link time reference": rf"symbol (?P<symbol>\w+),? version (?P<library>{CUDA_LIBRARY}\S*) not defined",
            "could not load library": r"Could not load library (?P<library>lib\w+\.so[.\d]*)\. Error: .{0,160}undefined symbol: (?P<symbol>\w+)",
            "cudnn version": (
                r"""(?x)
        cuDNN\ version\ (?:incompatibility|mismatch):\ PyTorch\ was\ compiled\ +against\ \(?
        (?P<compiled>\d[\d, .]*\d)\)?\ but
        \ (?:linked\ against|found\ runtime\ version|runtime\ version\ is)\ \(?
        (?P<loaded>\d[\d, .]*\d)
        """
            ),
            "cudnn_status_version_mismatch": "",
        },
    ),
    row(
        "ld-library-path-conflict",
        "undefined symbol",
        r"""(?x)
        lib(?:torch_cuda\w*|torch_python|torch_cpu|torch|c10_cuda|caffe2\w*)\.so:\ undefined\ symbol:
        \ (?P<symbol>(?:nccl|cudnn|cublas|cusparse|cufft|cuda|cufile|cupti|curand|cusolver|nvrtc|nvml|nvshmem|nvtx|_nv|__cuda)\w*)
        (?:,\ version\ (?P<library>lib\S+))?
        """,
    ),
    *rows(
        "ld-library-path-conflict",
        {
            "glibcxx_": r"version [`'\"]?(?P<symbol>GLIBCXX_[\d.]+)\W{0,2} not found",
            "cxxabi_": r"version [`'\"]?(?P<symbol>CXXABI_[\w.]+)\W{0,2} not found",
        },
        library="libstdc++.so.6",
    ),
    row(
        "ld-library-path-conflict",
        "cudnn_status_sublibrary",
        library="libcudnn",
        symbol="CUDNN_STATUS_SUBLIBRARY",
    ),
    row(
        "ld-library-path-conflict",
        "cannot load symbol",
        r"Cannot load symbol (?P<symbol>cudnn\w+)",
        unless=r"Could not locate|Unable to load any of",
        library="libcudnn",
    ),
    row(
        "ld-library-path-conflict",
        "nccl",
        r"NCCL version mismatch|mismatched NCCL version",
        library="libnccl",
    ),
    *rows(
        "ld-library-path-conflict",
        {
            "loaded runtime cudnn library": r"Loaded runtime CuDNN library: (?P<loaded>[\d.]+\d) but source was compiled with: (?P<compiled>[\d.]+\d)",
            "found cudnn version": r"Found cuDNN version (?P<loaded>\d{4,6}), but \w+ was built against version (?P<compiled>\d{4,6})",
        },
        by_program="XLA",
    ),
    row(
        "ld-library-path-conflict",
        "found cuda version",
        r"Found CUDA version (?P<loaded>\d{4,6}), but \w+ was built against version (?P<compiled>\d{4,6})",
        by_program="XLA",
        library="CUDA",
    ),
    *rows(
        "mkl-version-mismatch",
        {
            "ijit_": r"undefined symbol: (?P<symbol>iJIT_\w+)",
            "mkl": r"(?:Intel )?MKL (?:FATAL )?ERROR: (?:Cannot load|The specified)",
            "mkl_threading_layer": r"MKL_THREADING_LAYER=INTEL is incompatible with",
        },
    ),
    row("mkl-version-mismatch", "mkl", r"undefined symbol: (?P<symbol>mkl_\w+)"),
    row(
        "glibc-too-old",
        "glibc_",
        r"(?:(?P<library>[\w.+-]+\.so[.\d]*): )?version [`'\"]?GLIBC_(?P<needed>2\.\d+)\W{0,2} not found",
    ),
    *rows(
        "musl-libc",
        {
            "error loading shared library": r"Error loading shared library (?P<library>\S+): No such file",
            "symbol not found": r"Error relocating \S{1,160}: \S{1,60}: symbol not found",
        },
    ),
    row("openmp-twice", "omp: error #15"),
    row(
        "static-tls-full",
        "static tls block",
        r"(?P<library>[\w.+-]+\.so[.\d]*)?:? ?cannot allocate memory in static TLS block",
    ),
    row(
        "windows-dll-missing",
        "winerror",
        r"\[WinError (?P<code>126|127|182|193|1114)\](?:.{0,300}?[\\/\"' ](?P<dll>[\w.+-]+\.(?:dll|pyd)))?",
        unless="libbitsandbytes_|amdhip64|rocm_sdk|intel-ext-pt",
    ),
    *rows(
        "windows-dll-missing",
        {
            "failed to load ": r"\b[Ff]ailed to load (?P<dll>(?!amdhip|rocm|nvcuda)[\w.+-]{3,60}\.dll)\W{1,3}(?:with )?error(?: code)?:? (?P<code>126|127|1114)\b",
            "os error": r"\(os error (?P<code>126|127|1114)\)",
        },
    ),
    row(
        "windows-dll-missing",
        "or one of its dependencies",
        r"\bErro\w? loading ['\"\u201c][^'\"\u201d\n]{0,200}?[\\/]torch[\\/]lib[\\/](?P<dll>(?!amdhip|rocm)[\w.+-]{3,60}\.dll)['\"\u201d] or one of its dependencies",
        unless=r"WinError|1455",
    ),
    row(
        "windows-dll-missing",
        "dll load failed",
        r"DLL load failed(?:(?: while importing (?P<module>[\w.]+))?:| while importing (?P<module2>[a-z]\w*_\w+)(?=[\s`'\"*.]|$))",
        unless=r"while importing \w{2,40}_plugin",
    ),
    row(
        "windows-dll-missing",
        "redistributable is not installed",
        r"Visual C\+\+ Redistributable is not installed",
        dll="vcruntime140_1.dll",
    ),
    *rows(
        "windows-pagefile-too-small",
        {
            "1455": r"\[?(?:WinError|os error) 1455\]?(?:.{0,200}?[\\/\"' ](?P<dll>[\w.+-]+\.dll))?",
            "paging file is too small": "",
        },
    ),
)

NUMPY = rows(
    "numpy-abi-mismatch",
    {
        "_array_api not found": "",
        "cannot be run in": r"compiled using NumPy (?P<compiled>1\.x) cannot be run in NumPy (?P<running>\d+\.[\d.]+\d)",
        "numpy.core.multiarray failed to import": "",
        "may indicate binary incompatibility": r"numpy\.(?:dtype|ufunc|ndarray) size changed",
        "but this version of numpy is": r"compiled against (?:ABI|API) version (?P<compiled>0x\w+) but this version of numpy is (?P<running>0x\w+)",
        "could not infer dtype of numpy": r"Could not infer dtype of numpy\.\w+",
        "numpy is not available": r"(?:Error: |processing !!! |error: )Numpy is not available",
    },
)

STARTED = r"(?:exit(?:ed)?(?: with)?(?: status)?(?: code)?|status code|return(?:ed)?(?: code)?|terminated:? exit status|ExitCode|Exit code|process finished with exit code)"
"""How a program is said to have ended."""

ENDINGS = (
    *rows(
        "windows-dll-missing",
        {
            "1073741515": rf"{STARTED}\W{{0,4}}-1073741515\b",
            "3221225781": rf"{STARTED}\W{{0,4}}3221225781\b",
            "(or one of its dependencies)": r"Could not find module '[^'\n]{1,200}?[\\/](?P<dll>(?!nvcuda|nvml|cud|cub|cuf|cur|cus|nvrtc|nvJit|nvvm|zlib|libbitsandbytes|libtorchcodec|llama\.|ggml-|amd|rocm|c10|torch|libtorch)[\w.+-]{2,60}\.(?:dll|pyd))' \(or one of its dependencies\)",
        },
    ),
    row(
        "windows-dll-missing",
        "0xc0000135",
        r"\b0xc0000135\b",
        unless=r"\b(?:codes? (?:like|such as)|e\.g\.)",
    ),
)

ROWS = (*ENDINGS, *LOADER, *NUMPY)
