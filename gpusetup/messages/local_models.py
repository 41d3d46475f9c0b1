"""Messages of what runs models on one machine: llama.cpp, ollama, onnxruntime, CTranslate2, Whisper.

Sources, as of November 2026: llama.cpp's src/llama-model*.cpp, common/arg.cpp, ggml/src and
CMakeLists.txt, llama-cpp-python's _ctypes_extensions.py, ollama's llm/server.go, discover and
server/sched.go, onnxruntime's framework and its bindings for .NET, llama.cpp's KV cache.
"""

from __future__ import annotations

from gpusetup.messages.row import NOT_SHOWN, failed, row, rows

NEWER = "Take its newest release: it knows architectures and formats that older ones do not"

LLAMA_CPP = (
    failed(
        "llama.cpp",
        "unknown model architecture",
        r"unknown model architecture: '[\w.-]{1,60}'",
        says="llama.cpp does not know the model's architecture",
        way=NEWER,
    ),
    failed(
        "llama.cpp",
        "error loading model",
        r"(?:llama_\w{3,30}|llama\.cpp error): '?error loading model: (?!unable to allocate|failed to allocate|[^\n]{0,60}?(?:CUDA|cudaMalloc|out of memory|vk::))[^\n]{3,160}",
        says="llama.cpp cannot read the model's file: it is incomplete, or of a release that does not fit",
        way="Fetch the file anew and compare its size, and take llama.cpp's newest release",
        unless=r"unknown model architecture|failed to allocate|unable to allocate|no backends|OutOfDeviceMemory",
    ),
    failed(
        "llama.cpp",
        "invalid magic",
        r"invalid magic(?: characters?)?:",
        says="llama.cpp was given a file that is no GGUF",
        way="Fetch the model's file itself (not the page of it, nor a pointer of Git LFS)",
    ),
    failed(
        "llama.cpp",
        "ggml_assert",
        r"GGML_ASSERT\((?!status == cudaSuccess|err == )[^\n]{2,160}?\) failed",
        says="llama.cpp broke an assertion of its own",
        way="Take its newest release; report the line where it persists",
        unless=r"cudaMalloc failed|out of memory",
    ),
    row(
        "program-without-gpu-support",
        "blas = 0",
        r"\b(?:GPU|[Cc][Uu]BLAS|CUDA)\b.{0,900}?\bBLAS = 0\b|\bBLAS = 0\b.{0,600}?\b(?:GPU|[Cc][Uu]BLAS|CUDA)\b",
        program="llama.cpp",
        unless=r"Metal|OpenBLAS only",
    ),
    *rows(
        "out-of-memory",
        {
            "failed to allocate": r"failed to allocate (?:CUDA|Vulkan|ROCm|SYCL|HIP)\d{1,2} buffer of size|failed to allocate compute (?:pp |tg )?buffers",
            "erroroutofdevicememory": "",
            "ggml_vulkan": r"ggml_vulkan: Device memory allocation of size \d{5,15} failed",
        },
    ),
    failed(
        "llama.cpp",
        "devicelost",
        r"vk::(?:Queue|Device|CommandBuffer)\S{0,40}: ErrorDeviceLost|vk::DeviceLostError",
        why=NOT_SHOWN,
        says="llama.cpp lost the GPU under Vulkan: a kernel ran too long, or the driver was reset",
        way="Try a smaller batch (-b, -ub), the newest driver, or the build for the maker's own "
        "runtime",
    ),
    *rows(
        "no-kernel-image",
        {
            "has no device code compatible with": r"CUDA kernel \S{1,80} has no device code compatible with CUDA arch",
            "ggml-cuda": r"ggml-cuda\S{0,40}\.cuh?:\d{1,6}: (?:CUDA error:? )?no kernel image is available",
            "compiled without support for the current gpu": r"ggml-cuda was compiled without support for the current GPU architecture",
        },
        module="ggml-cuda",
    ),
    row(
        "program-without-gpu-support",
        "not compiled with gpu offload support",
        program="llama.cpp",
    ),
    row(
        "program-sees-no-gpu",
        "offloaded 0/",
        r"offloaded 0/\d{1,4} layers to GPU",
        program="llama.cpp",
        seen="no layer was put on the GPU",
    ),
    row("cuda-toolkit-missing", "cuda toolkit not found"),
    failed(
        "llama.cpp",
        "llama_cublas is deprecated",
        r"LLAMA_CUBLAS is deprecated",
        says="llama.cpp no longer takes LLAMA_CUBLAS",
        way="Build with -DGGML_CUDA=ON",
    ),
    row(
        "program-requirement-missing",
        "find curl",
        r"Could NOT find CURL",
        program="llama.cpp",
        lacks="libcurl's headers (or -DLLAMA_CURL=OFF)",
        step="build",
    ),
    row(
        "program-requirement-missing",
        "find vulkan",
        r"Could NOT find Vulkan \(missing: [^)]{0,60}",
        lacks="the Vulkan SDK (headers, libvulkan and glslc)",
        step="build",
    ),
    row(
        "cuda-lib-missing",
        "failed to load shared library",
        r"Failed to load shared library '[^'\n]{1,200}?\.dll': Could not find module '[^'\n]{1,200}?(?P<library>(?:llama|ggml)[\w-]{0,20}\.dll)'",
        module="llama-cpp-python",
    ),
    failed(
        "llama.cpp",
        "illegal instruction",
        r"(?:llama|ggml|kobold|ollama).{0,600}?Illegal instruction(?: \(core dumped\))?|Illegal instruction.{0,300}?(?:llama-|llama_|llama\.cpp|ggml)",
        says="llama.cpp was built for a newer CPU than this one (an instruction like AVX2 that it lacks)",
        way="Build it on this machine (GGML_NATIVE=ON), or take the release without AVX",
    ),
)

OLLAMA = (
    *rows(
        "program-sees-no-gpu",
        {
            "driver lib": r"(?:cuda )?driver lib(?:rary)? init failure",
            "inference compute": r'msg="inference compute" id=\S{1,8} library=cpu\b',
            "100% cpu": r"PROCESSOR\b.{0,600}?\b100% CPU\b",
            "gpulayers:[]": "",
            "dynamic llm libraries": r'"Dynamic LLM libraries\\?" runners=\\?"?\[(?:cpu\w{0,8} ?)+\]',
            "ollama": r"(?i:ollama)\b.{0,300}?\b(?:only (?:loads?|runs?|uses?|loading|running|using) (?:\w+ ){0,4}?CPU\b|refuses to use (?:the |my )?GPU)",
        },
        program="ollama",
    ),
    row(
        "host-out-of-memory",
        "requires more system memory",
        r"model requires more system memory \(\s?[\d.]{1,8} \wiB\) than is available",
        who="ollama",
    ),
    row(
        "no-kernel-image",
        "cuda gpu is too old",
        r"CUDA GPU is too old\. Compute Capability detected: \d\.\d",
        module="ollama",
    ),
    failed(
        "ollama",
        "llama runner process has terminated",
        r"llama runner process has terminated: (?:exit status (?:0x)?\w{1,12}|signal: (?:aborted|segmentation fault|broken pipe)[^\n]{0,40}|%!w\(<nil>\))(?=$|\s|\"|')",
        why=NOT_SHOWN,
        says="ollama lost its runner; why stands in the server's log, not in this line",
        way="Read the server's log at that time (`journalctl -u ollama`, on Windows "
        "%LOCALAPPDATA%\\\\Ollama\\\\server.log)",
        unless=r"cudaMalloc|CUDA error|out of memory|rocBLAS|Tensile|ggml_cuda|unable to allocate",
    ),
    row(
        "host-out-of-memory",
        "llama runner process has terminated",
        r"llama runner process has terminated: signal: killed",
        who="the system",
    ),
    row(
        "download-network-error",
        "registry.ollama.ai",
        r"registry\.ollama\.ai.{0,160}?(?:no such host|i/o timeout|connection (?:refused|reset)|TLS handshake|context deadline|server misbehaving|network is unreachable)",
    ),
    failed(
        "ollama",
        "could not connect to",
        r"could not connect to (?:an? (?:running )?)?ollama",
        says="ollama is not running",
        way="Start it: `ollama serve`, or its service",
    ),
    failed(
        "ollama",
        "waiting for llama runner to start",
        r"timed out waiting for llama runner to start",
        why=NOT_SHOWN,
        says="ollama waited too long for a model to load",
        way="Set OLLAMA_LOAD_TIMEOUT=15m, and keep the model on a quicker disk",
        unless=r"CUDA error|cudaMalloc|out of memory",
    ),
)

CODES = "FAIL|NO_SUCHFILE|NO_MODEL|INVALID_PROTOBUF|INVALID_ARGUMENT|NOT_IMPLEMENTED|INVALID_GRAPH|MODEL_LOADED"

ONNXRUNTIME = (
    row(
        "out-of-memory",
        "bfcarena",
        r"BFCArena::\w{3,40}\([^)\n]{0,40}\) Failed to allocate memory for requested buffer|BFCArena::\w{3,40}\([^)\n]{0,40}\) Available memory of \d{1,15} is smaller",
    ),
    *rows(
        "program-without-gpu-support",
        {
            "ortsessionoptionsappendexecutionprovider": r"Unable to find an entry point named \W{0,2}OrtSessionOptionsAppendExecutionProvider_\w{3,12}",
            "enabled in this build": r"CUDA execution provider is (?:either |not ){1,2}enabled in this build",
        },
        program="onnxruntime",
    ),
    row(
        "program-lib-missing",
        "appendexecutionprovider_cuda",
        r"AppendExecutionProvider_C(?:uda|UDA): Failed to load shared library",
        program="onnxruntime",
        library="CUDA or cuDNN, in the release that onnxruntime was built for,",
    ),
)

WHISPERS = ()

CACHES = (
    row(
        "out-of-memory",
        "buffer for kv cache",
        r"failed to allocate (?:a )?buffer for (?:the )?kv cache",
        unless=r"CPU KV buffer|--no-kv-offload",
    ),
)

ROWS = (*LLAMA_CPP, *OLLAMA, *ONNXRUNTIME, *WHISPERS, *CACHES)
