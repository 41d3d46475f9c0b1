"""The kinds of event about programs that load and run: libraries, CUDA, several processes."""

from __future__ import annotations

from gpusetup.report.kind import kinds

LIBRARIES = kinds(
    (
        "cuda-lib-missing",
        "library module",
        "libcudart.so.11.0: cannot open shared object file; Could not load library",
    ),
    ("library-missing", "library", "any other shared object that the loader does not find"),
    ("foreign-library", "folder library", "a CUDA library found outside the environment"),
    (
        "library-conflict",
        "library symbol folder",
        "undefined symbol or version of cuDNN, cuBLAS, nvJitLink, NCCL, libstdc++",
    ),
    (
        "cudnn-version-mismatch",
        "compiled loaded",
        "cuDNN version incompatibility; compiled against A but linked against B",
    ),
    ("mkl-version-mismatch", "symbol", "undefined symbol: iJIT_NotifyEvent; INTEL MKL ERROR"),
    ("glibc-too-old", "needed library", "version `GLIBC_2.28' not found"),
    ("musl-libc", "library", "Error loading shared library; Error relocating: Alpine"),
    (
        "extension-not-built",
        "module cache",
        "No module named 'mmcv._ext': the compiled part of a package is not there",
    ),
    (
        "backport-in-the-way",
        "package module",
        "module 'enum' has no attribute 'IntFlag': the package enum34 hides Python's own",
    ),
    ("openmp-twice", "", "OMP: Error #15: libiomp5md.dll already initialized"),
    ("static-tls", "library", "cannot allocate memory in static TLS block"),
    (
        "numpy-abi-mismatch",
        "compiled running",
        "_ARRAY_API not found; compiled using NumPy 1.x cannot be run in NumPy 2",
    ),
    ("dll-missing", "code dll module", "[WinError 126], 127, 1114: Error loading ...dll"),
    ("pagefile-too-small", "dll", "[WinError 1455]"),
    (
        "extension-abi-mismatch",
        "module symbol library built_torch built_cuda torch cache copy",
        "undefined symbol with c10/at in it; xFormers was built for",
    ),
    (
        "torchvision-mismatch",
        "torch torchvision needs symbol",
        "operator torchvision::nms does not exist; Couldn't load custom C++ ops; pip: requires torch==",
    ),
    (
        "torchaudio-mismatch",
        "torch torchaudio needs symbol dll",
        "libtorchaudio: undefined symbol; pip: torchaudio requires torch==",
    ),
    (
        "module-shadowed",
        "module path",
        "partially initialized module 'torch'; a local torch.py in the traceback",
    ),
    ("torch-missing", "module", "No module named 'torch'"),
    ("module-missing", "module", "No module named ..."),
    (
        "torch-libraries-mixed",
        "library symbol",
        "torch's own library lacks a symbol of torch: two torch over each other",
    ),
    ("torch-half-installed", "", "torch/__init__.py in site-packages finds no torch.version"),
    ("mixed-conda-pip", "", "two torch of conda and pip"),
    (
        "jetson-wrong-wheel",
        "why",
        "a Jetson with a wheel, an image or a library that is not for its JetPack",
    ),
)
"""The loader, imports, versions beside each other."""


CUDA = kinds(
    (
        "cuda-error",
        "code api name",
        "any `CUDA error: ...`; the code where printed or known by its text",
    ),
    ("cuda-unavailable", "asked", "torch.cuda.is_available() False; No CUDA GPUs are available"),
    (
        "cuda-out-of-memory",
        "asked_bytes total_bytes free_bytes gpu",
        "CUDA out of memory. Tried to allocate",
    ),
    ("host-out-of-memory", "who asked", "DefaultCPUAllocator: can't allocate; Killed; oom-kill"),
    (
        "no-kernel-image",
        "module",
        "no kernel image is available for execution; `module`: the extension that raised it",
    ),
    (
        "gpu-not-in-wheel",
        "gpu capability kernels side",
        "torch: not compatible with the current PyTorch installation; `side`: the GPU is `old` or `new`",
    ),
    (
        "invalid-device-ordinal",
        "index count",
        "invalid device ordinal; device id must be in the range",
    ),
    (
        "cuda-library-error",
        "library status",
        "CUBLAS_STATUS_NOT_INITIALIZED, CUDNN_STATUS_EXECUTION_FAILED: a status without a reason",
    ),
    ("cuda-fork-reinit", "", "Cannot re-initialize CUDA in forked subprocess"),
    ("cuda-call-not-supported", "", "CUDA error: operation not supported, of a program that runs"),
    ("ptx-unsupported", "", "the provided PTX was compiled with an unsupported toolchain (222)"),
    (
        "gpu-too-old-for-flash-attention",
        "needs",
        "FlashAttention only supports Ampere GPUs or newer",
    ),
    (
        "jit-arch-rejected",
        "compiler arch",
        "nvrtc: invalid value for --gpu-architecture; ptxas: Value 'sm_121a' is not defined",
    ),
    (
        "torch-not-compiled-with-cuda",
        "",
        "Torch not compiled with CUDA enabled; requires CUDA (deserialize)",
    ),
    ("no-hip-gpus", "", "No HIP GPUs are available"),
    ("no-xpu", "why", "No XPU devices are available; Torch not compiled with XPU"),
    (
        "bf16-unsupported",
        "gpu capability",
        "Bfloat16 is only supported on GPUs with compute capability of at least 8.0",
    ),
    ("compute-mode-exclusive", "", "all CUDA-capable devices are busy or unavailable (46)"),
    ("tf32-enabled", "api", "products in TF32: the results differ about 1e-3"),
    ("internal-assert", "file", "INTERNAL ASSERT FAILED"),
    ("out-of-memory-at-init", "", "out of memory in cuInit, cudaGetDeviceCount, _cuda_init"),
)
"""torch and CUDA, while they run."""


PARALLEL = kinds(
    ("dataloader-worker-killed", "signal", "DataLoader worker (pid N) is killed by signal: Killed"),
    (
        "shm-too-small",
        "",
        "bus error; insufficient shared memory (shm); worker is killed by signal: Bus error",
    ),
    ("open-files", "", "Too many open files; received 0 items of ancdata"),
    ("port-in-use", "port", "The server socket has failed to listen: EADDRINUSE"),
    ("nccl-unavailable", "", "Distributed package doesn't have NCCL built in"),
    ("nccl-error", "name", "unhandled system error, unhandled cuda error"),
    (
        "nccl-duplicate-gpu",
        "rank other",
        "Duplicate GPU detected : rank 0 and rank 1 both on CUDA device",
    ),
    ("nccl-no-socket-interface", "interface", "Bootstrap : no socket interface found"),
    (
        "nccl-connect-failed",
        "peer how",
        "socketStartConnect: Connect to 10.0.0.2<4711> failed : No route to host",
    ),
    ("nccl-p2p-failure", "", "peer access is not supported between these two devices"),
    ("nccl-shm-error", "path", "Error while creating shared memory segment /dev/shm/nccl-..."),
    ("nccl-timeout", "", "Watchdog caught collective operation timeout"),
    ("rdma-memlock", "", "ibv_reg_mr failed, Cannot allocate memory"),
)
"""Workers and several GPUs."""
