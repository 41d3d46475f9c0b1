"""Messages of TensorFlow, JAX, onnxruntime and CuPy about CUDA libraries that they do not find.

Sources: TensorFlow's dso_loader.cc and its issue tracker, jax_plugins/xla_cuda12/__init__.py,
onnxruntime_pybind_state.cc, CuPy's compiler and softlink, NVRTC's own error, libgpuarray, Paddle's
gpu_resources.cc.
"""

from __future__ import annotations

from gpusetup.messages.row import row, rows

TENSORFLOWS = (
    *rows(
        "program-lib-unfound",
        {
            "open cuda library": r"Couldn't open CUDA library (?P<library>lib(?!cupti|cuda\.)[\w-]{3,24}\.so[.\d]{0,8}?)\.? ",
            "could not load dynamic library": r"Could not load dynamic library '(?P<library>(?!lib(?:nvinfer|cuda\.)|nvinfer|nvcuda)[\w.-]{3,60})'; dlerror",
        },
        program="TensorFlow",
    ),
    *rows(
        "program-sees-no-gpu",
        {
            "list_physical_devices": r"list_physical_devices\(['\"]GPU['\"]\)\)?['\"]? \[ ?\](?!\w)|list_physical_devices\(['\"]GPU['\"]\)\)?.{0,160}?(?:empty (?:list|array)|(?:returns?|returned|gives?|got|get|prints?|shows?|shown|->|=|:)\W{0,6}\[ ?\](?!\w))",
            "is_gpu_available": r"tf\.test\.is_gpu_available\([^()]{0,60}\)(?: is|:|\)| ==| ->)* ?False",
        },
        program="TensorFlow",
    ),
    row(
        "program-sees-no-gpu",
        "list_physical_devices",
        r"list_physical_devices\(['\"]GPU['\"]\).{0,200}?\bGPUs?:? \[ ?\](?!\w)",
        program="TensorFlow",
        unless=r"name='/physical_device:GPU",
    ),
    row(
        "gpu-not-in-wheel",
        "unsupported compute capability",
        r"\bTensorFlow\b.{0,900}?\bunsupported compute capability (?P<capability>1[0-2]\.\d)?",
        unless=r"\bnot (?:\w+ ){0,3}unsupported",
        side="new",
        said="in words",
    ),
    row(
        "program-lib-missing",
        "[and-cuda]",
        r"pip3? install \S{0,24}tensorflow\[and-cuda\].{0,400}?list_physical_devices\(['\"]GPU['\"]\).{0,120}?(?:empty (?:list|array)|\[ ?\](?!\w))",
        program="TensorFlow",
        library="a CUDA library of TensorFlow",
        or_else="driver-missing",
    ),
    row(
        "program-sees-no-gpu",
        "physical_device:cpu:0",
        r"\[ ?PhysicalDevice\(name='/physical_device:CPU:0', device_type='CPU'\) ?\]",
        program="TensorFlow",
        unless=r"name='/physical_device:GPU|list_physical_devices\(['\"]CPU['\"]\)|Metal|Adapter",
    ),
    *(
        row(
            "program-sees-no-gpu",
            f"unable to register {library} factory",
            rf"\b(?:can ?not|can't|does(?: not|n't)|is not|isn't|not|unable to) (?:us(?:e|ing)|detect\w*|recogni[sz]\w+|find\w*|see\w*) (?:the |my |any |a )?(?:GPUs?|it).{{0,1000}}?Unable to register {library} factory",
            program="TensorFlow",
            unless=r"name='/physical_device:GPU|Created device \S{1,80}GPU:\d",
        )
        for library in ("cufft", "cudnn")
    ),
)

JAXS = (
    row(
        "ld-library-path-conflict",
        "installation found",
        r"Outdated (?P<library>cu[A-Z]\w{2,10}|CUDA\w*) installation found",
        by_program="JAX",
    ),
)

CUPYS = (
    row(
        "program-lib-missing",
        ".dll -> not found",
        r"\b(?P<library>(?:cudart64|cublas64|cufft64|curand64|cusolver64|cusparse64|nvrtc64)_\w{2,8}\.dll) -> not found",
        program="CuPy",
    ),
)

ONNXRUNTIMES = (
    row(
        "program-lib-missing",
        "but cuda was",
        r"CUDA_PATH is set but CUDA was ?n['o]?t able to be loaded",
        program="onnxruntime",
        library="CUDA or cuDNN, in the release that onnxruntime was built for,",
    ),
)

NVRTCS = rows(
    "cuda-lib-missing",
    {
        "nvrtc-builtins": r"failed to open (?P<library>(?:lib)?nvrtc-builtins[\w.-]{0,30}?(?:\.dll|\.so[.\d]*))",
        "nvrtc64_": r"Could not (?:load|find)(?: module)? \W{1,2}(?P<library>nvrtc64_\w{2,12}\.dll)",
    },
)

PADDLES = (
    row(
        "cuda-lib-missing",
        "cannot load cudnn shared library",
        library="cuDNN",
    ),
    row(
        "cuda-lib-missing",
        "that paddle depends on is not configured",
        r"third-party dynamic library \((?P<library>[\w.;-]{3,60}?)\) that Paddle depends on is not configured",
    ),
)

PADDLES_GPUS = (
    *(
        row(
            "gpu-not-in-wheel",
            "not compatible with paddle installation",
            rf"GPU architecture in your current machine is (?:{names})\b[^\n]{{0,20}}? not compatible with Paddle installation",
            side=side,
        )
        for side, names in (
            ("old", "Kepler|Maxwell|Pascal|Volta"),
            ("new", "Ampere|Ada\\w*|Hopper|Blackwell"),
        )
    ),
    row(
        "driver-too-old",
        "no gpu found in runtime",
        r"no GPU found in runtime.{0,1100}?CUDA version: (?:11\.\d.{0,120}?driver version: (?:3\d\d|4[0-4]\d)\.|12\.\d.{0,120}?driver version: (?:[34]\d\d|5[01]\d)\.)",
    ),
)
"""The driver's branch that CUDA 11 and 12 need at least (CUDA compatibility): 450, 525."""

EMPTY_LISTS = (
    row(
        "program-sees-no-gpu",
        "list_physical_devices",
        r"list_physical_devices\(['\"]GPU['\"]\)\)? {0,8}# {0,4}\[ ?\](?!\w)",
        program="TensorFlow",
    ),
)

ROWS = (*PADDLES, *TENSORFLOWS, *JAXS, *CUPYS, *ONNXRUNTIMES, *NVRTCS, *PADDLES_GPUS, *EMPTY_LISTS)
