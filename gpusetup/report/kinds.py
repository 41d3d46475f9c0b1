"""Every kind of event: what a program said, the values it carries, and who prints it.

A reader makes an event only from what was printed; which cause follows from it is judged in
`rules/`. What the snapshot has a field for is no event: `cuda_api.init_code` holds the error with
which CUDA failed to start (2, 34, 36, 46, 100, 101, 214, 304, 801 to 809, 999; 30 is written 999,
10 is 101, 35 is the event `driver-too-old`, 38 is 100, 71 is 801), `driver.nvml_code` what NVML
answered, `torch.import_error` the last line of an import of torch that failed. Messages that have
both a field and a kind here give both.

Any event of a text may carry `place`, `container` or `host`, where the prompt or the command above
it tells which, and a text that shows both: nvidia-smi answers on the host and not in the container.
"""

from __future__ import annotations

from gpusetup.value import Value


class Kind(Value):
    """One row of the table."""

    name: str
    values: tuple[str, ...]
    """The names of the values it may carry; each may be absent."""
    said: str
    """What is printed, or by whom."""


def _kinds(*rows: tuple[str, str, str]) -> tuple[Kind, ...]:
    return tuple(Kind(name=name, values=tuple(v.split()), said=said) for name, v, said in rows)


DRIVER = _kinds(
    ("xid", "bus_id number", "NVRM: Xid (PCI:...): N"),
    ("sxid", "bus_id number", "nvidia-nvswitch: SXid (PCI:...): N, fatal"),
    (
        "nvrm-api-mismatch",
        "client kernel",
        "NVRM: API mismatch: the client has version A, this kernel module B",
    ),
    ("nvml-mismatch", "kernel library", "Driver/library version mismatch"),
    ("gpu-init-failed", "bus_id code lacks", "NVRM: RmInitAdapter failed"),
    (
        "gpu-fell-off-bus",
        "bus_id",
        "GPU has fallen off the bus; GPU is lost; pciehp: Card not present",
    ),
    (
        "gpu-not-supported-by-driver",
        "bus_id driver name",
        "NVRM: not supported by the open module; legacy driver needed",
    ),
    ("gsp-timeout", "", "NVRM: Timeout waiting for RPC from GSP; _kgspBootGspRm failed"),
    (
        "module-key-rejected",
        "module",
        "modprobe: Key was rejected by service; Loading of unsigned module is rejected",
    ),
    ("module-not-found", "module", "modprobe: FATAL: Module nvidia not found in directory"),
    ("module-not-inserted", "module why", "modprobe: could not insert 'nvidia': No such device"),
    (
        "module-build-failed",
        "kernel driver branch why",
        "dkms: Bad return status for module build; NVIDIA's installer: Unable to build",
    ),
    ("nouveau-in-the-way", "", "NVRM: nouveau holds the GPU; lspci: Kernel driver in use: nouveau"),
    (
        "no-nvidia-driver",
        "library",
        "Found no NVIDIA driver on your system; torch, nvidia-smi not found",
    ),
    ("smi-not-found", "", "nvidia-smi: command not found, is not recognized"),
    (
        "driver-not-loaded",
        "",
        "NVIDIA-SMI has failed because it couldn't communicate with the driver",
    ),
    ("no-devices-found", "", "nvidia-smi: No devices were found"),
    (
        "driver-too-old",
        "found cuda driver_cuda",
        "torch: driver too old (found version 11040); insufficient for CUDA runtime version (35)",
    ),
    (
        "image-needs-newer-driver",
        "cuda driver_cuda needs_driver driver",
        "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.4",
    ),
    (
        "hybrid-gpu-off",
        "tool mode",
        "supergfxctl, prime-select, envycontrol: integrated; blacklisted modules",
    ),
    ("driver-does-not-answer", "how", "nvidia-smi hangs; Timeout"),
    ("hardware-error", "what", "NVLink, PCIe AER or machine check lines beside the GPU"),
    ("ecc-error", "count", "uncorrectable ECC error encountered"),
    ("gpu-requires-reset", "", "GPU requires reset"),
    (
        "vgpu-unlicensed",
        "state",
        "Unlicensed (Unrestricted), vGPU restricted; gridd: failed to acquire licence",
    ),
    (
        "vgpu-no-compute",
        "profile code",
        "a profile without compute; operation not supported on a vGPU (801)",
    ),
    (
        "smi-banner-misread",
        "program",
        "a tool could not find `CUDA Version` in the newer banner and took CPU or its oldest build",
    ),
    ("new-smi-banner", "", "nvidia-smi from 610 on: KMD Version, CUDA UMD Version"),
    (
        "cuda-version-err",
        "why",
        "nvidia-smi: CUDA Version: ERR! (under WSL the kind is wsl-driver)",
    ),
    ("throttled", "reason", "clocks are held down: SW Power Cap, HW Slowdown, thermal"),
    (
        "pcie-limited",
        "width width_max",
        "kernel: available PCIe bandwidth, limited by an x4 link; lspci: LnkSta ... (downgraded)",
    ),
    ("uvm-missing", "", "modprobe: nvidia-uvm not found; /dev/nvidia-uvm: no such file"),
    (
        "fabric-manager-failed",
        "version driver",
        "nv-fabricmanager: failed to start; version mismatch with the driver",
    ),
    ("no-nvswitch", "", "nv-fabricmanager: NV_WARN_NOTHING_TO_DO, there is no NVSwitch"),
    ("mps-server", "code", "MPS daemon messages, errors 805 to 809"),
    ("mig-assert", "", "torch: device >= 0 && device < num_gpus INTERNAL ASSERT with MIG on"),
    ("device-permission", "path", "Insufficient Permissions; permission denied: /dev/nvidia*"),
)
"""The kernel, the driver, NVML, nvidia-smi."""

CONTAINER = _kinds(
    (
        "container-no-gpu",
        "",
        "The NVIDIA Driver was not detected (NGC banner); no GPU in the container",
    ),
    ("hosted-notebook", "service", "paths of Google Colab, Kaggle, SageMaker in a traceback"),
    ("container-nvml-lost", "", "Failed to initialize NVML: Unknown Error, in a running container"),
    (
        "container-toolkit-missing",
        "runtime",
        'could not select device driver "" with capabilities: [[gpu]]; unknown runtime nvidia',
    ),
    ("container-cdi-unresolvable", "device", "unresolvable CDI devices nvidia.com/gpu=all"),
    ("container-hook-failed", "problem", "nvidia-container-cli: initialization error: ..."),
    (
        "container-capability-missing",
        "capability",
        "libcuda.so.1 not found where nvidia-smi works; NVIDIA_DRIVER_CAPABILITIES=utility",
    ),
    ("k8s-gpu-not-allocatable", "asked", "Insufficient nvidia.com/gpu; UnexpectedAdmissionError"),
    ("wsl-driver", "why", "GPU access blocked by the operating system; WSL without /dev/dxg"),
    (
        "libcuda-stub",
        "folder",
        "You should always run with libnvidia-ml.so installed with your NVIDIA Driver; stubs/ folder",
    ),
)
"""docker, podman, kubernetes, WSL."""

CUDA = _kinds(
    (
        "cuda-error",
        "code api name",
        "any `CUDA error: ...`; the code where printed or known by its text",
    ),
    ("cuda-unavailable", "", "torch.cuda.is_available() False; No CUDA GPUs are available"),
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
    ("ptx-unsupported", "", "the provided PTX was compiled with an unsupported toolchain (222)"),
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

LIBRARIES = _kinds(
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
        "module symbol library built_torch built_cuda torch",
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

BUILDS = _kinds(
    (
        "cuda-toolkit-mismatch",
        "nvcc torch module needs",
        "The detected CUDA version (A) mismatches the version that was used to compile PyTorch (B)",
    ),
    ("cuda-toolkit-missing", "path", "CUDA_HOME environment variable is not set; nvcc not found"),
    (
        "build-isolation-no-torch",
        "package",
        "ModuleNotFoundError: torch inside pip-build-env or a uv build",
    ),
    (
        "extension-arch",
        "module arches",
        "the arch flags that an extension was built with (detectron2's table)",
    ),
    ("compiler-too-new", "compiler", "unsupported GNU version! gcc versions later than N"),
    ("compiler-missing", "compiler", "Microsoft Visual C++ 14.0 or greater is required"),
    (
        "triton-missing-windows",
        "",
        "Cannot find a working triton installation; No module named 'triton'",
    ),
    (
        "path-too-long",
        "",
        "Windows: a path of inductor's, ninja's or pip's is longer than 260 characters",
    ),
    ("triton-no-compiler", "compiler", "Failed to find C compiler"),
    ("triton-build-failed", "lacks", "cannot find -lcuda; cuda.h, Python.h: No such file"),
    (
        "gpu-too-old-for-triton",
        "gpu capability",
        "too old to be supported by the triton GPU compiler",
    ),
)
"""Extensions, Triton, compilers."""

INSTALLING = _kinds(
    (
        "python-no-wheel",
        "requirement python",
        "no matching distribution; no wheel with a matching Python ABI tag",
    ),
    (
        "no-matching-distribution",
        "requirement versions none_found index",
        "pip: Could not find a version that satisfies",
    ),
    ("requires-python", "needs", "Requires-Python of a distribution, where an installer names it"),
    ("wheel-not-supported", "wheel", "is not a supported wheel on this platform"),
    (
        "no-wheel-for-platform",
        "requirement platform what",
        "uv: no wheels with a matching platform tag",
    ),
    (
        "wrong-index",
        "index status requirement",
        "an index that is not there (403, 404), a local label that it lacks",
    ),
    (
        "resolver-conflict",
        "",
        "uv: No solution found; pip: ResolutionImpossible; conda: UnsatisfiableError",
    ),
    ("conda-cuda-virtual-missing", "needed", "nothing provides __cuda; feature __cuda missing"),
    ("conda-not-found", "package", "PackagesNotFoundError"),
    ("pip-cache-disk-full", "path", "[Errno 28] No space left on device; os error 28, 112"),
    ("download-hash-mismatch", "file", "THESE PACKAGES DO NOT MATCH THE HASHES; Hash mismatch"),
    (
        "download-network-error",
        "host how",
        "ReadTimeoutError, SSLError, ProxyError, NameResolutionError, CondaHTTPError",
    ),
    ("pip-missing", "", "No module named pip; pip: command not found"),
    ("externally-managed", "", "error: externally-managed-environment"),
    (
        "requires-other",
        "package version needs have",
        "pip check: A requires B==1, but you have B 2",
    ),
    ("download-forbidden", "path", "[Errno 13] Permission denied, while installing"),
    ("installed-by-two", "name", "pip could not uninstall what conda or distutils installed"),
)
"""pip, uv, conda."""

PARALLEL = _kinds(
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

HEALTH = _kinds(
    (
        "gpu-computes",
        "device",
        "a program computed on the GPU: losses, is_available() True, a device name",
    ),
    (
        "capability-warning",
        "gpu capability",
        "a capability warning that stops nothing (PTX or a later minor serves)",
    ),
    (
        "results-differ",
        "cpu cuda",
        "the same product printed from the CPU and from the GPU, about 1e-3 apart",
    ),
    ("foreign-gpu", "vendor name", "an AMD, Intel or Apple GPU that a text shows"),
    ("no-nvidia-gpu", "", "a program says that there is no NVIDIA GPU"),
)
"""What shows that it works, or that there is nothing to use."""

KINDS: dict[str, Kind] = {
    kind.name: kind
    for group in (DRIVER, CONTAINER, CUDA, LIBRARIES, BUILDS, INSTALLING, PARALLEL, HEALTH)
    for kind in group
}
"""Name -> its row."""
