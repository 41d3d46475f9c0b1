"""Messages of CUDA and torch while they run.

Sources: torch 0.4 to 2.13 (torch/cuda/__init__.py, c10/cuda, ATen), cuda.h and cudaGetErrorString,
Triton, NVRTC, ptxas, the accelerate, transformers and vLLM checks of precision.
"""

from __future__ import annotations

from gpusetup.messages.fragments import CAPABILITY
from gpusetup.messages.row import row, rows

BEFORE_VOLTA = (
    r"\b(?:GTX (?:10[5-8]0|9[5-8]0|7[5-8]0)(?: ?Ti)?|Tesla (?:P100|P40|P4|M40|K80)|Titan X[pP]?)\b"
)
"""GPUs below compute capability 7.0, by their names."""


ADVICE = r"if you (?:get|see|run|have|hit)|to (?:avoid|prevent)|in case of|may (?:run|cause|lead)|might (?:run|cause)"
"""Around a message that is spoken of, not had."""
INEXACT = r"(?:\bdiffer|\bmismatch|\binaccura|\bprecision|not (?:all)?close|not equal|\bmax(?:imum)? (?:abs(?:olute)? )?(?:diff|error))"
"""What is said of results that are not as exact as expected: the setting alone is no failure."""
IN_PROSE = r"cuda\.is_available(?:\(\))?\W{1,8}(?:(?:is|are|was|it|i|we|get|gets|got|returns?|returned|returning|always|still|just|only|gives?|gave|says?|said|prints?|shows?|outputs?|the|results?|in|me|now|also|evaluates?|to|be|comes?|back|as|equals|value)\W{1,6}){1,6}false\b"
"""What people say of `torch.cuda.is_available()` in a sentence."""

ROWS = (
    *rows(
        "cuda-unavailable",
        {
            "cuda.is_available()": r"torch\.cuda\.is_available\(\)(?:(?: is|:|\)| ==)? ?|.{0,200}?# ?(?:[-=]*> ?)?)False",
            "cuda.is_available": IN_PROSE,
        },
        asked="yes",
    ),
    *rows(
        "cuda-unavailable",
        {
            "torch is not able to use gpu": "",
            "but cuda is not available": r"device_type of 'cuda', but CUDA is not available",
            "no cuda gpus are available": "",
            "might not have a cuda gpu": "",
            "no cuda runtime is found": "",
            "cuda unavailable": r"CUDA unavailable, invalid device \S{1,12} requested",
            "select_device(": r"(?<!cuda\.)\bselect_device\([\w.]{1,30}(?!.{0,600}?Invalid CUDA '?(?:--)?device[ =](?:cuda|gpu)'?)",
            " detected": r"No (?:CUDA |compatible )?GPUs?(?: or other accelerators?)? (?:was |were )?detected",
            "no nvidia gpu found?": "",
            "cannot find any torch accelerator": "",
            "machine only has": r"requested gpus?: .{1,60}?But your machine only has: \[\]",
            "cuda is not available": r"CUDA is not available\.? {1,2}Disabling|ops, but CUDA is not available",
            "torch.cuda.is_available() is false": r"deserialize object on a CUDA device but torch\.cuda\.is_available\(\) is False",
        },
    ),
    *rows(
        "torch-not-compiled-with-cuda",
        {
            "with cuda": r"(?:built|compiled) with CUDA(?: support)?:\s?(?:False|No)\b",
            "not compiled with cuda": r"Torch not compiled with CUDA(?: enabled)?",
            "compiled without cuda support": r"PyTorch (?:was|is) compiled without CUDA support",
            "not linked with cuda": r"Torch not linked with CUDA",
            "not linked with support for cuda": r"PyTorch is not linked with support for cuda",
        },
    ),
    row("no-hip-gpus", "no hip gpus are available"),
    row(
        "no-xpu",
        "xpu",
        r"Torch not compiled with XPU|not linked with support for xpu",
        why="build",
    ),
    row("no-xpu", "failed to initialize xpu devices", why="driver"),
    row("no-xpu", "no xpu devices are available"),
    row(
        "cuda-unavailable",
        ("no supported ", "no compatible ", "no suitable "),
        r"\bno (?:supported|compatible|suitable) (?:nvidia |cuda )?gpus? (?:backend )?(?:was |were |is |are )?(?:found|detected|available)\b",
        unless=r"\b(?:if|when) no (?:supported|compatible|suitable)",
    ),
    *rows(
        "invalid-device-ordinal",
        {
            "machine only has": r"requested gpus?: \[(?P<asked>[\d, ]{1,40})\].{0,20}?But your machine only has: \[(?P<has>\d[\d, ]{0,40})\]",
            "invalid device ordinal": "",
            "invalid device id": r"AssertionError: Invalid device id",
            "torch.cuda.device_count() is": r"CUDA device (?P<index>\d+) but torch\.cuda\.device_count\(\) is (?P<count>[1-9]\d*)",
            "device id must be in the range": "",
        },
    ),
    *rows(
        "out-of-memory",
        {
            "out of memory": (
                r"(?:CUDA|HIP|XPU) out of memory\. Tried to allocate (?P<asked>[\d.]+ ?[KMG]i?B)"
                r"(?:.{0,12}GPU (?P<gpu>\d+))?(?:[ ;).a-z]{1,30}(?P<total>[\d.]+ ?[KMG]i?B) total capacity| has a total capaci?ty of (?P<total2>[\d.]+ ?[KMG]i?B))?"
                r"(?:.{0,90}?(?P<free>[\d.]+ ?(?:[KMG]i?B|bytes)) (?:is )?free)?"
            ),
            "mps backend out of memory": "",
            "hip error: out of memory": "",
            "ur_result_error_out_of_device_memory": "",
            "cuda_error_out_of_memory": "",
            "cuda_out_of_memory": r"\bcuda_out_of_memory\b",
            "resourceexhaustederror": r"ResourceExhaustedError\b.{0,300}?(?:failed to allocate memory|OOM when allocating)",
            "nvml_success ==": r"NVML_SUCCESS == .{1,220}?CUDACachingAllocator",
            "cublas_status_alloc_failed": "",
            "cudaerrormemoryallocation": "",
        },
    ),
    row(
        "out-of-memory",
        "outofmemoryerror",
        r"torch\.(?:cuda\.)?OutOfMemoryError",
        unless=r"memory\. tried to allocate|except torch",
    ),
    row("out-of-memory", "nvmapmem", r"\bNvMapMem\w{4,40}: \d{1,20} error 12\b", engine="Jetson"),
    *rows(
        "host-out-of-memory",
        {
            "can't allocate memory": r"can't allocate memory: you tried to allocate (?P<asked>\d+) bytes",
            "not enough memory": r"DefaultCPUAllocator: not enough memory",
        },
        who="torch",
    ),
    *rows(
        "host-out-of-memory",
        {
            "out of memory: kill": r"Out of memory: Kill(?:ed)? process \d+ \((?P<who>[^)]{1,40})\)",
            "oom-kill": r"oom-kill(?:er|:)?",
            "oomkilled": "",
            "unable to allocate": r"MemoryError: Unable to allocate [\d.]{1,8} [KMGT]iB",
            "[errno 12]": r"OSError: \[Errno 12\] Cannot allocate memory",
            "(sigkill)": r"Signal 9 \(SIGKILL\) received",
            "return code": r"return ?code ?= ?-9\b",
            "exitcode": r"exitcode\s{0,8}: ?-9\b",
            "std::bad_alloc": "",
            "kill": r"'(?P<who>cicc|ptxas|cudafe\+\+|nvlink)' died due to signal 9|Killed signal terminated program (?P<who2>cc1plus|cc1|ld|as)",
            "137": r"(?:exit(?:ed)?(?: with)?(?: code| status)?:?|code) 137\b",
        },
    ),
    *rows(
        "host-out-of-memory",
        {
            "oom_kill": r"Detected \d{1,6} oom_kill events?",
            "oom killed": r"have been OOM Killed",
            "out of memory": r"srun: error: \S{1,64}: tasks? [\d,-]{1,40}: Out Of Memory",
        },
        who="slurm",
    ),
    row(
        "host-out-of-memory",
        "running low on memory",
        r"killed due to the node running low on memory",
        who="ray",
    ),
    *rows(
        "no-kernel-image",
        {
            "invalid device function": r"(?:Cuda failure '|CUDA error: )invalid device function",
            "device kernel image is invalid": r"CUDA error: device kernel image is invalid",
        },
    ),
    row(
        "triton-image-invalid",
        "device kernel image is invalid",
        r"Triton Error \[CUDA\]: device kernel image is invalid",
    ),
    row(
        "host-out-of-memory",
        "memoryerror",
        r"pip[/\\]_vendor[/\\](?:msgpack|cachecontrol|requests|urllib3).{0,700}?(?<!\w)MemoryError\b",
        who="pip",
    ),
    row(
        "cuda-library-error",
        "_status_",
        r"\b(?P<status>(?P<library>CUBLAS|CUDNN|CUSPARSE|CUSOLVER|CUFFT|CURAND)_STATUS_(?!SUCCESS|ALLOC_FAILED|\w*VERSION_MISMATCH)[A-Z]\w{3,40})",
        unless=r"status [!=]= CU",
    ),
    row(
        "cuda-library-error",
        "cufft_",
        r"cuFFT error: (?P<status>CUFFT_(?!SUCCESS|ALLOC_FAILED)[A-Z]\w{3,40})",
        library="CUFFT",
    ),
    row(
        "cuda-error",
        "assertion",
        r"(?:block: \[[\d, ]{3,40}\],? thread: \[[\d, ]{3,40}\]\W{1,5}Assertion|\bAssertion\W{1,4}(?:srcIndex < |t >= 0 && t < |-sizes\[i\] <= index|idx_dim >= 0 &&|input_val >= )).{1,160}?failed",
        code="710",
        name="cudaErrorAssert",
    ),
    *rows(
        "cuda-fork-reinit",
        {
            "initialization error": r"(?:_worker_loop|DataLoader worker process|worker\.py|collate\.py).{0,1000}?(?:CUDA|cuda)[\w ()]{0,24} ?: initialization error",
            "forked": r"Cannot re-initialize CUDA|poison fork|CUDA .{0,40}before fork",
        },
    ),
    row(
        "gpu-too-old-for-flash-attention",
        "flashattention only supports",
        r"FlashAttention only supports (?P<needs>Turing|Ampere|Hopper) GPUs or newer",
    ),
    row("cuda-call-not-supported", "cuda error: operation not supported"),
    *rows(
        "ptx-unsupported-toolchain",
        {
            "unsupported toolchain": "",
            "unsupported_ptx_version": r"CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
            "cudaerrorunsupportedptxversion": "",
            "unsupported .version": r"Unsupported \.version \d+\.\d+; current version is",
        },
    ),
    *rows(
        "jit-arch-rejected",
        {
            "--gpu-architecture": r"(?P<compiler>nvrtc):? error: invalid value for --gpu-architecture",
            "gpu-name": r"(?P<compiler>ptxas)[\w-]{0,12} ?(?:fatal|error)? ?:? ?Value '(?P<arch>sm_\w+)' is not defined for option 'gpu-name'",
            "is not defined for option 'gpu-architecture'": r"(?P<compiler>nvcc) ?fatal ?: Value '(?P<arch>(?:compute|sm)_\d\w{1,4})' is not defined for option 'gpu-architecture'",
            "unsupported gpu architecture": r"(?P<compiler>nvcc) ?fatal ?: Unsupported gpu architecture '?(?P<arch>compute_\d\w{1,4})",
        },
    ),
    row(
        "jit-arch-rejected",
        "does not support .target",
        r"PTX \.version \d\.\d does not support \.target (?P<arch>sm_\w+)",
        compiler="ptxas",
    ),
    row(
        "jit-arch-rejected",
        "--gpu-name=sm_",
        r"ptxas\W.{0,200}?--gpu-name=(?P<arch>sm_\w+)\W.{0,300}?returned non-zero exit status",
        compiler="ptxas",
        unless="too much shared data|Permission denied",
    ),
    row(
        "gpu-not-in-wheel",
        "unknown cuda arch",
        r"Unknown CUDA arch \((?P<capability>(?:[89]|1\d)\.\d)[af]?\) or GPU not supported",
        side="new",
    ),
    row(
        "jit-arch-rejected",
        "is an unsupported option",
        r"-arch=(?P<arch>(?:compute|sm)_\d\w{1,4})'? is an unsupported option",
        compiler="NVVM",
    ),
    *rows(
        "jit-arch-rejected",
        {
            "not a recognized processor": r"'(?P<arch>sm_\w+)' is not a recognized processor",
            "unknown target cpu": r"Unknown target CPU '(?P<arch>sm_\w+)'",
        },
        compiler="llvm",
    ),
    *rows(
        "bf16-unsupported",
        {
            "bfloat16 is only supported": rf"Bfloat16 is only supported on GPUs with compute capability of at least 8\.0\. Your (?P<gpu>.{{3,60}}?) GPU has compute capability {CAPABILITY}",
            "bf16/gpu": r"setup doesn't support bf16/gpu",
            "bfloat16": r"(?:CUDA Device|GPU|device|setup|machine) (?:does not|doesn't|do not) support (?:torch\.)?bfloat16",
            "bf16 mixed precision requires": "",
            "cuda_r_16bf": r"CUBLAS_STATUS_(?:NOT_SUPPORTED|ARCH_MISMATCH).{0,200}?CUDA_R_16BF",
            "bf16": (
                r"""(?x)
        bf16\ requested,\ but\ AMP\ is\ not\ supported|Type\ bf16\ is\ not\ supported
        |bf16\ is\ not\ supported
        \ (?:on|by)\ (?:this|your)|Feature\ '[\w .]{0,20}\.?bf16\S{0,6}'\ requires\ \.target\ sm_80
        """
            ),
        },
    ),
    row(
        "tf32-precision",
        "allow_tf32",
        rf"{INEXACT}.{{0,900}}?allow_tf32 ?= ?True|allow_tf32 ?= ?True.{{0,900}}?{INEXACT}",
    ),
    row(
        "torch-internal-error",
        "internal assert failed",
        r"INTERNAL ASSERT FAILED(?: at \W?(?P<file>[\w/\\.+-]{1,120}))?",
    ),
    *rows(
        "gpu-too-old-for-triton",
        {
            "too old to be supported by the triton": rf"Found (?P<gpu>[^{{}}]{{3,60}}?) which is too old to be supported by the triton.{{0,200}}?device is of CUDA capability {CAPABILITY}",
            "gputoooldfortriton": "",
            "your gpu is too old": r"Unsloth: Your GPU is too old",
        },
    ),
    *(
        row(
            "gpu-too-old-for-triton",
            needle,
            rf"{BEFORE_VOLTA}.{{0,300}}?\b(?:fails?|failed|errors?|crash(?:es|ed)?|unsupported|not support(?:ed)?)\b.{{0,900}}?\b{needle}|\b{needle}\b[^.\n]{{0,60}}?\b(?:fails?|failed|errors?|crash(?:es|ed)?|does ?n[o']t work|not (?:work|supported))\b[^.\n]{{0,60}}?{BEFORE_VOLTA}",
            unless=r"\b(?:RTX|A100|H100|V100|T4)\b",
        )
        for needle in ("torch_compile", "torch.compile", "inductor")
    ),
    row(
        "compute-mode-exclusive",
        "busy or unavailable",
        r"CUDA-capable device(?:s|\(s\))? (?:is/)?are busy or unavailable",
    ),
    row(
        "mps-server",
        "mps",
        r"MPS (?:server is not ready|client failed to connect|server and the MPS client|server has been shut)",
    ),
    row("mps-server", "mps", r"cudaErrorMps\w+|CUDA_ERROR_MPS_\w+"),
    row("nccl-p2p-failure", "peer access is not supported"),
    row("hardware-fault", "uncorrectable nvlink", what="nvlink"),
    row(
        "smi-banner-misread",
        "cuda umd version",
        r"(?:parse|unexpected|unrecognized|unknown|no match).{0,60}CUDA UMD Version",
    ),
)
