"""How programs, and people in a title, say that something failed: engines at their start, a crash as
Windows logs it, the status numbers of NVIDIA's kernel modules, a library in words.

Sources, as of November 2026: vLLM's platforms/__init__.py and executor/ray_utils.py, SGLang's
utils.py, importlib.metadata, ollama's discover/runner.go, CTranslate2's ops, Windows Error
Reporting, the open kernel modules' nvstatuscodes.h, torch's distributed/rendezvous.py, scontrol's
manual page, uv's cache.
"""

from __future__ import annotations

from gpusetup.messages.row import Row, row, rows

STATUSES = (
    ("0f", "gpu-fell-off-bus", "NV_ERR_GPU_IS_LOST"),
    ("62", "hardware-fault", "NV_ERR_RESET_REQUIRED"),
    ("65", "gsp-timeout", "NV_ERR_TIMEOUT"),
)
"""Last digits of a status with which a call to the GPU's firmware failed, its cause, its name."""


def _status(number: str, kind: str, name: str) -> Row:
    pattern = rf"NVRM: .{{0,40}}(?:rpcSendMessage|rpcRecvPoll|_issueRpc\w{{0,30}}|GspRm\w{{2,20}}|rpcRm\w{{2,30}}).{{0,160}}?\bstatus[ =]0x0{{0,6}}{number}\b"
    return row(kind, "nvrm: ", pattern, status=name, by="status")


KERNEL = tuple(_status(*one) for one in STATUSES)

NEW = r"(?:RTX 50[5-9]0|RTX PRO \d{4} Blackwell)"
INSTALLED = r"(?:install(?:ed|ing|er|ation)?|reboot|driver)\b"
NO_PICTURE = (
    row(
        "gpu-not-supported-by-driver",
        "black screen",
        rf"{NEW}\b.{{0,900}}?\b{INSTALLED}.{{0,300}}?black screen|black screen.{{0,300}}?\b{INSTALLED}.{{0,900}}?\b{NEW}\b",
        unless=r"open(?:-source)? (?:kernel )?modules?|nvidia-open|-open\b|Windows 1[01]",
        driver="closed",
        said="in words",
    ),
)


NO_USE = (
    r"(?:\bnot|n't|\bnever|\bwithout) (?:\w+ ){0,2}?us(?:e|ed|ing) (?:\w+ ){0,2}?(?:gpu|cuda)\b"
)
ARC = r"(?:Arc (?:Pro )?[AB]\d{2,3}[MV]?|(?<![\w-])B5[78]0)\b"

CUDAS = r"(?:cudart|cudnn|cublas|cufft|curand|cusolver|cusparse|nvrtc|nvjitlink|nccl)[\w.-]{0,40}"
CUDAS_FILE = rf"(?:lib{CUDAS}\.so(?:\.[\d.]{{1,12}})?|(?:lib)?{CUDAS}\.dll)"

IN_WORDS = (
    *(
        row(
            "cuda-lib-missing",
            f"{verb} lib",
            rf"\b(?:unable to|not able to|fail(?:s|ed)? to|cannot|can not|can't|could not|couldn't|does not|doesn't) {verb} (?P<library>{CUDAS_FILE})",
            unless=r"\b(?:if|when|in case) (?:\S{1,20} ){0,4}(?:unable|cannot|can't|fails?)|could not load dynamic|/ld: ",
        )
        for verb in ("find", "open", "locate")
    ),
    row(
        "cuda-lib-missing",
        "to load",
        rf"\b(?:unable|fail(?:s|ed|ing)?|not able) to load (?:the )?[`'\"]?(?P<library>{CUDAS_FILE})",
        unless=r"\b(?:if|when|in case) (?:\S{1,20} ){0,4}(?:unable|cannot|fails?)",
    ),
    *(
        row(
            "program-lib-missing",
            needle,
            rf"(?=[mlwc])(?:\b(?:missing|lack(?:s|ing)|without) (?:the )?(?:required )?(?:CUDA|cuDNN)(?:/cuDNN| or cuDNN| and cuDNN)? {needle}\b|\b(?:CUDA|cuDNN) {needle} (?:are|were|is|was) missing\b)",
            library="a library of CUDA or cuDNN",
            unless=r"\bif (?:\S{1,20} ){0,4}(?:missing|lacks)",
        )
        for needle in ("dlls", "libraries")
    ),
    row(
        "program-lib-missing",
        "libdevice",
        r"libdevice not found at|Can't find libdevice(?: directory)?",
        library="libdevice.10.bc, of CUDA's compiler,",
        unless="libdevice not found at (?:the )?first",
    ),
    row(
            "cuda-lib-missing",
            ("be found", "be loaded", "be located", "not found"),
            r"\b(?P<library>cu(?:SPARSE|SOLVER|BLAS|FFT|DNN|PTI|RAND)|nvJitLink|NVRTC) (?:shared )?librar(?:y|ies) (?:can ?not|could not|can't|couldn't|was not|is not|isn't) (?:be )?(?:found|located|loaded)",
        ),
    row(
            "no-xpu",
            ("arc a", "arc b", "arc pro", "b580", "b570"),
            rf"(?:(?:does ?n['o]?t|is not|isn't|don't|cannot|can't|not|neither|unable to|fails? to|failed to)\b[^.\n]{{0,60}}?\b(?:find|us(?:e|ing)|see|detect|recogni[sz]e)(?:s|ing)?) (?:\w+ ){{0,4}}?{ARC}|{ARC} (?:GPU |card )?(?:is )?(?:not|n't) (?:being )?(?:found|detected|recogni[sz]ed|used)",
            why="driver",
            unless=r"(?:llama\w*|it|now) (?:does|can) (?:detect|find|see)\w* (?:the |my )?(?:Intel )?(?:Arc )?[AB]\d{3} fine",
        ),
    row(
        "program-sees-no-gpu",
        "n_gpu_layers",
        rf"n_gpu_layers.{{0,1100}}?{NO_USE}|{NO_USE}.{{0,500}}?n_gpu_layers",
        program="llama.cpp",
        unless=r"BLAS ?= ?1|offloaded [1-9]\d*/\d+ layers",
    ),
)  # fmt: skip

NOT_PLAIN = (
    r"\w*(?:torch|cuda|cudnn|triton|flash|attn|attention|raster|kernel|_ops|_ext|_C\b|cu1|tensorrt|nvidia|nvml|rocm|hip|xpu|quant|gptq|awq)"
    r"|(?:ops|apex|xformers|bitsandbytes|tensorflow|keras|jax\w*|flax|numba|onnxruntime\w*|numpy|vllm|sgl\w*|sglang|mmcv\w*|detectron2|spconv\w*|gsplat|simple_knn|diff_\w+|nvdiffrast|tinycudann|kaolin"
    r"|mamba_ssm|causal_conv1d|natten|deepspeed|ninja|packaging|setuptools|wheel|pkg_resources|distutils|imp|skbuild\w*|Cython|cython|pybind11|llama_cpp|exllama\w*|dgl\w*|horovod|warp|isaac\w*|omni\w*|pxr|tkinter|readline|_\w+)['\"]"
)
"""Modules that are compiled for a GPU or belong to its stack, or to a build, or to Python itself."""

ENGINES = (
    row("cuda-unavailable", "unspecifiedplatform", r"vLLM is running on UnspecifiedPlatform"),
    row(
        "container-no-gpu",
        "file too short",
        r"(?P<library>libcuda\.so[.\d]*): file too short",
    ),
    row(
        "program-sees-no-gpu",
        "no gpu device",
        r"(?:\b(?:error|fatal)\b:?|^|\W) {0,3}No GPU devices? (?:were |was |are |is )?(?:found|detected|available)\b",
    ),
    row("program-sees-no-gpu", "current node has no gpu available", program="vLLM"),
    row("program-sees-no-gpu", "failed to finish discovery before timeout", program="ollama"),
    row(
        "program-requirement-missing",
        "modulenotfounderror: no module named",
        rf"\bModuleNotFoundError: No module named ['\"](?P<lacks>(?!{NOT_PLAIN})[a-zA-Z]\w{{2,40}})['\"]",
        unless=r"\b(?:setup\.py|build_meta|egg_info|get_requires_for_build|pyproject|subprocess-exited|build isolation|pip3? install|uv sync|Preparing metadata)",
    ),
    *rows(
        "program-requirement-missing",
        {
            "packagenotfounderror": r"(?<!conda\.exceptions\.)\bPackageNotFoundError:? (?:No package metadata was found for )?['\"]?(?P<lacks>(?!(?:torch|No|The|This|That|An?|It|In|For|See|Please|Could|Package)\b)[A-Za-z][\w.-]{1,40}\w)",
            "distribution was not found": r"\bThe ['\"](?P<lacks>(?!torch\b)[A-Za-z][\w.-]{1,40}?)(?:\[[\w,]{1,40}\])?(?:[<>=!~]=?[\w.,<>=!~ ]{1,30})?['\"] distribution was not found",
            "minimum required version": r"(?P<lacks>[A-Za-z][\w-]{1,40}) with minimum required version \S{1,20} is not installed",
        },
    ),
    row(
        "requirement-broken",
        "numba needs numpy",
        r"Numba needs (?P<needs>NumPy \d\.\d{1,2} or (?:less|greater))",
        package="numba",
    ),
)

OUTDATED = (
    row(
        "program-lib-missing",
        "jax was built against version",
        r"Found (?P<library>cu\w{3,10}) version \d{4,6}, but JAX was built against version \d{4,6}, which is newer",
        program="JAX",
    ),
    row(
        "program-release-too-old",
        "libbitsandbytes_",
        r"bin [A-Z]:\\\S{1,200}\\libbitsandbytes_\w+\.so\b",
        program="bitsandbytes",
        beside="system: it brings Linux' libraries to Windows (releases from 0.43 on have both)",
    ),
    row("no-xpu", "ur error", r"RuntimeError: UR error\b", why="driver"),
    row(
        "nvml-unknown-error",
        "init failure: 999",
        r"\bnvml\b[\w ]{0,12} init failure: 999\b",
    ),
    row(
        "download-network-error",
        "remote end closed connection",
        r"\berror: Remote end closed connection without response",
    ),
)

CRASHES = (
    row(
        "program-failed",
        "faulting module name",
        r"Faulting application name: (?P<program>[^,]{2,60}),.{0,200}?Faulting module name: (?P<module>(?:c10|torch|cu|nv|ggml)[\w.-]{2,40}\.dll).{0,160}?Exception code: (?P<code>0x[0-9a-f]{8})",
    ),
    row(
        "program-failed",
        "libuv",
        r"use_libuv was requested but PyTorch was buil[dt] without libuv",
        says="This torch was built without libuv, which its rendezvous asks for",
        way="Set USE_LIBUV=0 before the start: torch's wheels for Windows have no libuv (and no "
        "NCCL: the backend there is gloo)",
    ),
    row(
        "program-failed",
        "gres=(null)",
        r"(?:gres\.conf|gpu|[abhv]\d{2,3}\b).{0,1100}?\bGres=\(null\)",
        says="Slurm lists no GPU of this node (Gres=(null))",
        way="Name the GPUs in gres.conf, `GresTypes=gpu` in slurm.conf and `Gres=gpu:COUNT` in the "
        "node's own line (a dynamic node's in `slurmd --conf`), then restart slurmctld and slurmd; "
        "`slurmd -G` prints what the node finds",
    ),
    row(
        "program-failed",
        "(gres) specification",
        r"Invalid generic resource \(gres\) specification",
        says="Slurm knows no GPU of the name or count that the job asks for (Invalid gres)",
        way="See which GPUs the partitions have (`sinfo -o '%P %G'`), and ask for one of them: "
        "`--gres=gpu:1`, or with its type `--gres=gpu:a100:1`",
    ),
    row(
        "host-out-of-memory",
        "requires more system memory",
        r"model requires more system memory \([\d.]{1,8} GiB\) than is available",
        who="ollama",
    ),
    row(
        "program-failed",
        "(os error 5)",
        r"(?:rename|persist|remove|uv).{0,200}?Access is denied\.? \(os error 5\)",
        says="uv may not rename a file of its cache: another program, mostly the antivirus, holds it",
        way="Run it again, except uv's cache folder (`uv cache dir`) from the scan, or set "
        "UV_LINK_MODE=copy",
    ),
)

IF_ONLY = r"\b(?:if|when|in case|whether|make sure|until|unless)\b"


DRAWING = (
    *rows(
        "driver-too-old",
        {
            "nvenc api version": r"Driver does not support the required nvenc API version",
            "nvidia driver for nvenc": r"minimum required Nvidia driver for nvenc is (?P<needed>\d{3}(?:\.\d{1,3})?)",
        },
    ),
    *rows(
        "out-of-memory",
        {
            "out of memory in cu": r"Out of memory in cu(?:Mem|Ctx|Module|Launch|Graph|Array|Tex|Stream)\w{0,40}",
            "would exceed allowed memory": r"Allocation on device \d? ?would exceed allowed memory",
        },
    ),
    row(
        "out-of-memory",
        "for requested buffer of size",
        r"Failed to allocate memory for requested buffer of size \d{3,15}",
        unless=r"\['CPUExecutionProvider'\]|ortvalue.{0,20}cpu",
    ),
    row(
        "port-in-use",
        "address already in use",
        r"OSError: \[Errno (?:98|48)\] (?:error while attempting to bind on address \(.{1,40}?(?P<port>\d{2,5})\): )?Address already in use",
    ),
    row(
        "k8s-gpu-not-allocatable",
        "nvidia.com/gpu",
        r"\b(?:does not|doesn't|do not|not|no longer|never) (?:advertis|list|expos|report|regist|show)\w{0,5} (?:any |the )?(?:resource )?`?nvidia\.com/gpu\b",
        unless=r"\b(?:if|when|whether|until)\b",
    ),
    *rows(
        "container-no-gpu",
        {
            "--gpu": r"\b(?:forgot|forgotten|omitted|missing|left out)(?: to \w+)?(?: the)? `?--gpus?\b",
            "nvidia-smi": r"nvidia-smi\b[^.\n]{0,20} (?:works?|runs?|is)\b[^.\n]{0,20}?\bon the host\b.{0,50}?\b(?:in(?:side)?|within) (?:the |a |my )?(?:docker )?container\b.{0,60}?(?:not found|no such file)",
        },
        unless=IF_ONLY,
    ),
    row(
        "container-toolkit-missing",
        "could not select device driver",
        r"could not select device driver(?=$|[.,;)]|(?: \W{1,3}(?!cdi)\w{0,20}\W{0,3})?$)",
        runtime="nvidia",
    ),
    row(
        "driver-too-old",
        "driver is too old ",
        r"\b(?:my|your|the|NVIDIA|graphics|GPU) (?:\w+ )?driver is too old (?:for|to)\b",
        unless=IF_ONLY,
    ),
    row(
        "cuda-lib-missing",
        "could not load library",
        r"Could not load library (?P<library>libcudnn_\w{2,12}_(?:infer|train)\.so\.8)(?!\. Error)",
    ),
    row(
        "program-without-gpu-support",
        "blas = 0",
        r"llama.{0,80}?\b(?:shows?|says?|still|see|get|prints?|with) `?BLAS = 0\b",
        program="llama.cpp",
        unless=r"Metal|OpenBLAS only",
    ),
    row(
        "program-without-gpu-support",
        " cpu",
        r"(?:llama[-_]cpp[-_]python|onnxruntime|tensorflow|jaxlib|jax|ctranslate2|lightgbm|xgboost)\b[^.\n]{0,40}?\b(?:installs?|installed|gives?|gave|get|got|brings?|brought) (?:me )?(?:only |just )?(?:the |a )?CPU(?:[- ]only)? (?:version|build|wheel)\b",
        unless=rf"{IF_ONLY}|\b(?:want|need|no) ",
    ),
    row(
        "program-without-gpu-support",
        "is_built_with_cuda",
        r"is_built_with_cuda\(\)(?: is| ==| returns|:)? False\b",
        program="TensorFlow",
    ),
    row(
        "hybrid-gpu-off",
        "supergfxctl",
        r"supergfxctl\b[^.\n]{0,12} (?:is|was|says?|shows?|set) (?:in |to )?(?P<mode>Integrated)\b",
        tool="supergfxctl",
        unless=IF_ONLY,
    ),
)

ROWS = (*DRAWING, *KERNEL, *NO_PICTURE, *IN_WORDS, *ENGINES, *OUTDATED, *CRASHES)
