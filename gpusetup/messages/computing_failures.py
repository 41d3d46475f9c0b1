"""Failures of compilers and libraries while a program computes, in their own words.

Sources, as of November 2026: Triton's runtime/errors.py and compiler.py, torch/_dynamo/exc.py,
jaxlib's solver_handle_pool.cc, CuPy's nvrtc binding, TensorFlow's loader, gloo's pair.cc, CUDA's
stream capture, the open kernel modules' nv-pmops, the splatting modules' tracebacks.
"""

from __future__ import annotations

from gpusetup.messages.row import NOT_SHOWN, failed, row, rows

COMPILE = (
    "Run it once without torch.compile (`TORCHDYNAMO_DISABLE=1`); with the newest torch, whose Triton "
    "belongs to it, where it stays, it is a fault to report there"
)
COMPILERS = (
    failed(
        "Triton",
        "passmanager::run failed",
        why=NOT_SHOWN,
        says="Triton's compiler failed on a kernel",
        way=COMPILE,
        stage="first-kernel",
    ),
    failed(
        "Triton",
        "out of resource: ",
        r"out of resources?: (?:shared memory|threads|tensor memory|registers)",
        says="A Triton kernel needs more of the GPU's shared memory (or threads) than it has",
        way="Lower the kernel's block sizes or `num_stages`; take the package's newest release, or its "
        "configuration for this GPU",
        stage="first-kernel",
    ),
    failed(
        "torch",
        "torch._inductor.exc.",
        r"torch\._inductor\.exc\.(?:LoweringException|InductorError|CppCompileError|SubprocException)",
        why=NOT_SHOWN,
        says="torch.compile's inductor failed on the model",
        way=COMPILE,
        stage="first-kernel",
    ),
    failed(
        "torch",
        "torch._dynamo.exc.",
        r"torch\._dynamo\.exc\.(?:BackendCompilerFailed|Unsupported|InternalTorchDynamoError|TorchRuntimeError|FailOnRecompileLimitHit|UserError)",
        why=NOT_SHOWN,
        says="torch.compile failed on the model",
        way=COMPILE,
        stage="first-kernel",
    ),
)

PEERS = (
    failed(
        "torch",
        "gloo/transport/tcp/pair",
        r"gloo/transport/tcp/pair\.cc:\d{1,5}\] (?:Connection closed by peer|(?:Read|Write) error)",
        why=NOT_SHOWN,
        says="Another rank of the job ended, and its connection with it",
        way="Read the log of the rank that ended first: its error is the reason",
        stage="distributed",
    ),
)

OF_JAX = (
    'Install it anew with its own CUDA, `pip install -U "jax[cuda12]"` (or `[cuda13]`), and '
    "take the folders of another CUDA out of LD_LIBRARY_PATH; where it stays, leave memory free: "
    "XLA_PYTHON_CLIENT_PREALLOCATE=false"
)
NUMBERS = (
    failed(
        "JAX",
        "cusolver internal error",
        why=NOT_SHOWN,
        says="JAX cannot start cuSOLVER: its CUDA libraries do not fit each other, or the GPU's memory is taken",
        way=OF_JAX,
        stage="first-kernel",
    ),
    failed(
        "JAX",
        "dnn library initialization failed",
        why=NOT_SHOWN,
        says="JAX cannot start cuDNN: another cuDNN is loaded, or the GPU's memory is taken",
        way=OF_JAX,
        stage="first-kernel",
    ),
    failed(
        "JAX",
        "suitable version of ptxas",
        r"Couldn't (?:find|get) a suitable version of ptxas|Couldn't invoke ptxas",
        says="JAX finds no ptxas that it can use",
        way='Install it: `pip install -U "nvidia-cuda-nvcc-cu12"` (it comes with `jax[cuda12]`)',
        stage="first-kernel",
    ),
    failed(
        "TensorFlow",
        "undefined symbol: _zn10tensorflow",
        says="A library in TensorFlow's folder is of another release of it",
        way="Uninstall every TensorFlow (tensorflow, tensorflow-gpu, tf-nightly, plugins such as "
        "tensorflow-text), delete what is left of its folder, and install one",
        stage="import",
    ),
)

CAPTURE = (
    row(
        "program-failed",
        (
            "when stream is capturing",
            "stream_capture_",
            "depend on a capturing blocking stream",
        ),
        r"when stream is capturing|stream_capture_|depend on a capturing blocking stream",
        stage="first-kernel",
        says="A CUDA graph's capture failed: something in it may not be captured",
        way="Run the work once before the capture, so that kernels and modules are loaded and memory is "
        "there; Warp loads modules within a capture only with a driver of CUDA 12.3 or newer",
    ),
    row(
        "program-failed",
        "nv_pmops_",
        r"can't suspend \(nv_pmops_\w{4,24} \[nvidia\] returned -\d",
        stage="running",
        why=NOT_SHOWN,
        says="NVIDIA's driver could not put the GPU to sleep: after it the driver does not work until a reboot",
        way="Keep its memory over the sleep (`options nvidia NVreg_PreserveVideoMemoryAllocations=1`, "
        "`systemctl enable nvidia-suspend nvidia-resume nvidia-hibernate`), end what computes on the GPU "
        "before, and take the newest driver",
    ),
    row(
        "program-failed",
        "[nvidia_modeset]",
        r"\bnvkms_\w{3,40}\+0x[0-9a-f]{1,5}/0x[0-9a-f]{1,5} \[nvidia_modeset\].{0,300}?kernel BUG at|kernel BUG at.{0,300}?\[nvidia_modeset\]",
        stage="running",
        why=NOT_SHOWN,
        says="NVIDIA's module for displays crashed in the kernel",
        way="Take the newest driver for this kernel, or the kernel before the last update",
    ),
)

SPLATS = (
    row(
        "no-kernel-image",
        "no kernel image is available",
        r"\b(?P<module>gsplat|splatfacto|diff_gaussian_rasterization|simple_knn|nvdiffrast|tinycudann)\b.{0,700}?no kernel image is available",
    ),
)
"""Modules that are compiled beside torch, where they are what ran."""

OTHER_ARCH = (
    *rows(
        "no-kernel-image",
        {
            "but was built for sm": r"FATAL: this function is for sm\d{2,3}, but was built for sm\d{2,4}",
            "your device is too old. we require": r"Your device is too old\. We require compute capability >= \d{2}",
        },
        module="xformers",
    ),
    *rows(
        "no-kernel-image",
        {
            "but was built for sm": r"FATAL: kernel \W?\w{4,80}\W? is for sm\d{2,3}(?:-sm\d{2,3})?, but was built for sm\d{2,3}",
            "cuda error: no kernel i": r"CUDA error: no kernel i(?:m(?:ag?)?)?(?![a-z])",
        },
    ),
    *rows(
        "no-kernel-image",
        {
            "invalid argument": r"CUDA error \([^()]{0,160}?\bhopper[/\\][\w.]{3,60}:\d{1,5}\): ?invalid argument",
            "invalid device function": r"CUDA error \([^()]{0,160}?(?:\bflash_\w{2,40}|\bxformers\b)[^()]{0,80}:\d{1,5}\): ?invalid device function",
        },
        module="flash_attn",
    ),
    row(
        "out-of-memory",
        "driver_api.cpp",
        r"\bhandle_[01]\b.{0,24}?INTERNAL ASSERT FAILED at \W?[\w/\\.+-]{0,60}driver_api\.cpp",
        how="the report of it",
    ),
    row(
        "no-kernel-image",
        "query kernel attributes",
        r"RuntimeError: can't query kernel attributes",
        module="cuequivariance_ops",
    ),
)
"""Kernels of extensions for another GPU, in their own words (CUTLASS, xformers, FlashAttention,
cuEquivariance): a kernel of Hopper's folder that starts on another GPU, a list of kernels without it."""

ROWS = (*CAPTURE, *COMPILERS, *PEERS, *NUMBERS, *SPLATS, *OTHER_ARCH)
