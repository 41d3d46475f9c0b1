"""Servers of models and what compiles for them, where they fail by themselves: what failed, and the program's own way out."""

from __future__ import annotations

from gpusetup.messages.row import NOT_SHOWN, failed, row

ROWS = (
    row(
        "program-requirement-missing",
        "no module named",
        "No module named ['\\\"]?(?P<lacks>isaacsim|isaaclab|omni\\.\\w{2,20}(?:\\.\\w{2,20})?)['\\\"]?(?!\\w)",
        program="Isaac Sim",
    ),
    row(
        "program-release-too-old",
        "engine plan file is not compatible",
        "engine plan file is not compatible with this version of TensorRT",
        program="TensorRT",
        beside="TensorRT that built the engine: build it anew with the one that runs it",
    ),
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
        "program-failed",
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
        "program-failed",
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
    row(
        "program-sees-no-gpu",
        "no gpu detectors available",
        "No GPU detectors available for (?:cuda|rocm|musa|npu)",
        program="GPUStack",
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
