"""Failures of their own: servers and engines of language models.

Sources, as of November 2026: vLLM's v1/worker, v1/executor, csrc/custom_all_reduce.cuh, its model
registry and model_executor/layers/quantization, SGLang's srt/model_executor and srt/entrypoints,
TensorRT-LLM's common/assert.h, text-generation-inference's launcher, LMDeploy's src/turbomind.

Sources, as of November 2026: llama.cpp's src/llama-model*.cpp, common/arg.cpp, ggml/src and
CMakeLists.txt, llama-cpp-python's _ctypes_extensions.py, ollama's llm/server.go, discover and
server/sched.go, onnxruntime's framework and its bindings for .NET, llama.cpp's KV cache.
"""

from __future__ import annotations

from gpusetup.messages.row import FAILED, NOT_SHOWN, failed, row

VLLM = (
    failed(
        "vLLM",
        "quantization scheme is not supported for",
        says="vLLM has no kernels for this quantisation on a GPU of this generation",
        way="Take the model in a quantisation that this GPU's capability allows, or in float16",
    ),
    failed(
        "vLLM",
        "error in memory profiling",
        r"Error in memory profiling\. Initial free memory",
        says="vLLM stopped: another process gave memory of the GPU back while it measured",
        way="Start it when no other process begins or ends on the GPU",
    ),
    failed(
        "vLLM",
        "is not supported for the current gpu",
        r"quantization method \S{1,40} is not supported for the current GPU\. Minimum capability: \d{2,3}\. Current capability: \d{2,3}",
        says="vLLM has no kernels for this quantisation on a GPU of this generation",
        way="Take the model in a quantisation that this GPU's capability allows, or in float16",
    ),
    failed(
        "vLLM",
        "custom_all_reduce.cuh",
        r"custom_all_reduce\.cuh:\d{1,5} '(?:invalid argument|invalid resource handle|peer access is already enabled)'",
        why=NOT_SHOWN,
        says="vLLM failed in its own all-reduce",
        way="Start it with --disable-custom-all-reduce",
    ),
    failed(
        "vLLM",
        "no valid attention backend found",
        r"No valid attention backend found",
        says="vLLM has no attention backend for this model on this GPU",
        way="Name another backend (VLLM_ATTENTION_BACKEND), or take vLLM's newest release",
    ),
)


TGI = (
    row(
        "cuda-unavailable",
        "import flash attention enabled models",
        r"Could not import Flash Attention enabled models: CUDA is not available",
    ),
)


NEWER_MODELS = (
    failed(
        "vLLM",
        "are not supported for now",
        r"Model architectures \[[^\]\n]{1,200}\] are not supported for now",
        says="vLLM does not know this model's class: its release is older than the model, or never served it",
        way="Take the first vLLM whose list of supported models names it",
    ),
)


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
    failed(
        "llama.cpp",
        "devicelost",
        r"vk::(?:Queue|Device|CommandBuffer)\S{0,40}: ErrorDeviceLost|vk::DeviceLostError",
        why=NOT_SHOWN,
        says="llama.cpp lost the GPU under Vulkan: a kernel ran too long, or the driver was reset",
        way="Try a smaller batch (-b, -ub), the newest driver, or the build for the maker's own "
        "runtime",
    ),
    failed(
        "llama.cpp",
        "llama_cublas is deprecated",
        r"LLAMA_CUBLAS is deprecated",
        says="llama.cpp no longer takes LLAMA_CUBLAS",
        way="Build with -DGGML_CUDA=ON",
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
        "program-lib-missing",
        "appendexecutionprovider_cuda",
        r"AppendExecutionProvider_C(?:uda|UDA): Failed to load shared library",
        program="onnxruntime",
        library="CUDA or cuDNN, in the release that onnxruntime was built for,",
    ),
)


WHISPERS = ()


ROWS = (
    *VLLM,
    *TGI,
    *NEWER_MODELS,
    *LLAMA_CPP,
    *OLLAMA,
    *ONNXRUNTIME,
    *WHISPERS,
    failed(
        "LMDeploy",
        "[tm][error]",
        r"\[TM\]\[(?:ERROR|FATAL)\] {1,3}Assertion fail",
        says="LMDeploy broke an assertion of its own",
    ),
    failed(
        "LMDeploy",
        "have any device set",
        r"rank\[\d{1,3}\] failed with error: \S{1,80} doesn't have any device set",
        says="LMDeploy cannot spread this model's weights over the GPUs",
        way="Take LMDeploy's newest release, or the backend that lists this model",
    ),
    row(
        FAILED,
        (
            *("died unexpectedly", "enginedeaderror", "rpc call to", "died during initialization"),
            *(
                "shardcannotstart",
                "failed to start",
                "modelinstancestate",
                "failed to build engine",
            ),
        ),
        r"Worker proc VllmWorker\S{0,20}(?: rank \d{1,3})? died unexpectedly|(?<!except )\b(?:Async)?EngineDeadError\b|RPC call to \w{2,40} timed out|Rank \d{1,3} scheduler (?:died|is dead)[^\n(]{0,40}(?!.{0,8}exit code: -9\))|ShardCannotStart|text_generation_launcher: Shard \d{1,3} failed to start|unexpected error when creating modelInstanceState|AssertionError: Failed to build engine for rank",
        why=NOT_SHOWN,
        says="A process of the server ended; its own traceback stands above this line, in the part of the log that is missing here",
    ),
    failed(
        "SGLang",
        "memory capacity is unbalanced",
        says="SGLang finds that other processes hold memory of some of the GPUs",
        way="End them (`nvidia-smi` lists them), or choose free GPUs with CUDA_VISIBLE_DEVICES",
    ),
    failed(
        "SGLang",
        "custom_all_reduce",
        r"custom_all_reduce\S{0,30}\.py.{0,300}?invalid argument|invalid argument.{0,160}?custom all-?reduce",
        says="SGLang failed in its own all-reduce",
        way="Start it with --disable-custom-all-reduce",
        why=NOT_SHOWN,
    ),
    failed(
        "TensorRT-LLM",
        "assertion failed: mpisize",
        says="TensorRT-LLM was started with another number of ranks than the engine was built for",
        way="Start as many ranks (mpirun -n) as tensor times pipeline parallel size",
    ),
    failed(
        "TensorRT-LLM",
        "[tensorrt-llm][error]",
        r"\[TensorRT-LLM\]\[ERROR\] (?:\S{1,60}: \[TensorRT-LLM\]\[ERROR\] )?Assertion failed: (?!Unsupported arch|[^\n]{0,80}?(?:CUDA|memory|driver))[^\n]{3,120}",
        says="TensorRT-LLM broke an assertion of its own",
    ),
    row(
        FAILED,
        (
            *("assertion failed: d == a + length", "failed to deserialize cuda engine"),
            *("error opening engine file", "assertion failed: mmodule", "stdversionread"),
            *("version tag does not match", "generated on an incompatible device"),
        ),
        r"Assertion failed: (?:d == a \+ length|Error opening engine file|mModule != nullptr)|Failed to deserialize cuda engine|stdVersionRead == (?:kSERIALIZATION_VERSION|serializationVersion)|Version tag does not match\. Note: Current Version|generated on an incompatible device",
        says="TensorRT cannot read this engine: another release, or another kind of GPU, built it",
        way="Build the engine anew, with the release and on the kind of GPU that runs it",
    ),
    failed(
        "text-generation-inference",
        "signaled to shutdown with signal 4",
        says="text-generation-inference lost a shard to an instruction that this CPU lacks (signal 4, mostly AVX)",
        way="Give the virtual machine its host's CPU type, or take a machine with AVX2",
    ),
    failed(
        "text-generation-inference",
        "import flash attention enabled models",
        r"Could not import Flash Attention enabled models: GPU with CUDA capability \d \d is not supported",
        says="text-generation-inference has flash-attention models only for newer GPUs, and goes on without",
    ),
    failed(
        "text-generation-inference",
        "signaled to shutdown with signal 9",
        "Shard process was signaled to shutdown with signal 9",
        says="text-generation-inference lost a shard: the system ended it, mostly for want of memory of the host",
        way="Give the container more memory (and --shm-size 1g), or take a smaller model",
    ),
    failed(
        "Triton server",
        "failed to load all models",
        says="Triton server could load no model; its table of models above says why for each",
        way="Start it with --log-verbose=1 and read the lines that begin with E",
        why=NOT_SHOWN,
    ),
    failed(
        "Triton server",
        "failed to load '",
        r"failed to load '[\w.-]{1,80}' version \d{1,9}: (?:Invalid argument|Not found|Unsupported)",
        says="Triton server could not load a model: its configuration or its files do not fit",
    ),
    failed(
        "LM Studio",
        "(exit code: 18446744",
        r"\(Exit code: 18446744\d{12}\)",
        unless="out of memory|cudaMalloc",
        says="LM Studio lost its engine by an exception of Windows; why is not in this line",
        way="Take the newest runtime under Settings, Runtime; try fewer layers on the GPU",
        why=NOT_SHOWN,
    ),
    failed(
        "onnxruntime",
        "[onnxruntimeerror]",
        r"\[ONNXRuntimeError\] : \d{1,2} : (?:FAIL|NO_SUCHFILE|NO_MODEL|INVALID_PROTOBUF|INVALID_ARGUMENT|NOT_IMPLEMENTED|INVALID_GRAPH|MODEL_LOADED) : (?!.{0,300}?(?:CUDA|CUDNN|cudnn|CUBLAS|providers_|execution provider|ExecutionProvider|TensorRT|DirectML|memory|LoadLibrary|driver))[^\n]{3,160}",
        says="onnxruntime refuses the model or its input",
        way="Read what it names: a file, an opset or a shape; the newest onnxruntime reads newer models",
    ),
    failed(
        "CTranslate2",
        "compute type",
        r"Requested (?:b?float16|int8\w{0,9}) compute type, but the target device or backend do(?:es)? not support efficient",
        says="CTranslate2 has no kernels for this compute type on this device (on the CPU, or on an old GPU)",
        way='Take compute_type="int8" or "float32"; float16 needs a GPU from Volta on, and device="cuda"',
    ),
    failed(
        "CTranslate2",
        "unable to open file 'model.bin'",
        says="CTranslate2 does not find the model's file",
        way="Remove the model from the cache and fetch it anew",
    ),
    failed(
        "GPUStack",
        "detector fastfetch is not available",
        says="GPUStack cannot start fastfetch, by which it sees the machine",
        way="Start the file that the log names by hand to see why, then `gpustack download-tools`; its container brings all of it",
    ),
    failed(
        "Xinference",
        "no available slot found for the model",
        says="Xinference has no free GPU for another model",
        way="End a model that runs (`xinference terminate`), or name a GPU for several models (`--gpu-idx`, XINFERENCE_ALLOW_MULTI_REPLICA_PER_GPU=1)",
    ),
)
