"""Messages of engines that serve models on many GPUs: vLLM, SGLang, TensorRT-LLM, TGI, LMDeploy, Triton.

Sources, as of November 2026: vLLM's v1/worker, v1/executor, csrc/custom_all_reduce.cuh and
model_executor/layers/quantization, SGLang's srt/model_executor and srt/entrypoints, TensorRT-LLM's
common/assert.h and its issue tracker, TensorRT's error recorder, text-generation-inference's
launcher, LMDeploy's src/turbomind, Triton's model_lifecycle.cc, vLLM's model registry.
"""

from __future__ import annotations

from gpusetup.messages.own import NOT_SHOWN, own
from gpusetup.messages.row import row

ROOT_ABOVE = "its own traceback stands above this line, in the part of the log that is missing here"
REBUILD = "Build the engine anew, with the release and on the kind of GPU that runs it"

VLLM = (
    own(
        "vLLM",
        "quantization scheme is not supported for",
        says="has no kernels for this quantisation on a GPU of this generation",
        way="Take the model in a quantisation that this GPU's capability allows, or in float16",
    ),
    row(
        "out-of-memory",
        "desired gpu memory utilization",
        r"Free memory on device.{0,20}?(?:\((?P<left>[\d.]{1,7})/(?P<of>[\d.]{1,7}) GiB\).{0,30}?)?is less than desired GPU memory utilization(?: \((?P<share>[01]?\.\d{1,4}))?",
        engine="vLLM at its start",
    ),
    own(
        "vLLM",
        "error in memory profiling",
        r"Error in memory profiling\. Initial free memory",
        says="stopped: another process gave memory of the GPU back while it measured",
        way="Start it when no other process begins or ends on the GPU",
    ),
    own(
        "vLLM",
        "is not supported for the current gpu",
        r"quantization method \S{1,40} is not supported for the current GPU\. Minimum capability: \d{2,3}\. Current capability: \d{2,3}",
        says="has no kernels for this quantisation on a GPU of this generation",
        way="Take the model in a quantisation that this GPU's capability allows, or in float16",
    ),
    own(
        "vLLM",
        "custom_all_reduce.cuh",
        r"custom_all_reduce\.cuh:\d{1,5} '(?:invalid argument|invalid resource handle|peer access is already enabled)'",
        why=NOT_SHOWN,
        says="failed in its own all-reduce",
        way="Start it with --disable-custom-all-reduce",
    ),
    row(
        "extension-not-built",
        "_opnamespace",
        r"'_OpNamespace' '_(?:C|moe_C|vllm_fa\d_C|C_cache_ops)' object has no attribute '\w{2,60}'",
        module="vllm._C",
    ),
    own(
        "vLLM",
        "died unexpectedly",
        r"Worker proc [\w -]{1,40} died unexpectedly",
        why=NOT_SHOWN,
        says=f"lost a worker process; {ROOT_ABOVE}",
    ),
    own(
        "vLLM",
        "enginedeaderror",
        r"EngineDeadError: EngineCore encountered an issue",
        why=NOT_SHOWN,
        says=f"lost its engine; {ROOT_ABOVE}",
    ),
    own(
        "vLLM",
        "asyncenginedeaderror",
        r"AsyncEngineDeadError: (?:Background loop|Task finished)",
        why=NOT_SHOWN,
        says=f"lost its engine; {ROOT_ABOVE}",
    ),
    own(
        "vLLM",
        "no valid attention backend found",
        r"No valid attention backend found",
        says="has no attention backend for this model on this GPU",
        way="Name another backend (VLLM_ATTENTION_BACKEND), or take vLLM's newest release",
    ),
    own(
        "vLLM",
        "rpc call to",
        r"TimeoutError: RPC call to \w{3,40} timed out",
        why=NOT_SHOWN,
        says="waited too long for a worker",
    ),
)

SGLANG = (
    row(
        "extension-not-built",
        "requires the cuda flash attention extensions",
        r"(?P<module>[\w.]{3,40}) requires the CUDA flash attention extensions",
    ),
    row(
        "extension-not-built",
        "import sgl_kernel",
        r"Can ?not import sgl_kernel\. Please check your installation",
        module="sgl_kernel",
    ),
    row(
        "out-of-memory",
        "--mem-fraction-static",
        r"Not enough memory\. Please try (?:to )?increas\w{1,3} --mem-fraction-static",
    ),
    own(
        "SGLang",
        "memory capacity is unbalanced",
        says="finds that other processes hold memory of some of the GPUs",
        way="End them (`nvidia-smi` lists them), or choose free GPUs with CUDA_VISIBLE_DEVICES",
    ),
    row(
        "no-kernel-image",
        "sglang only supports sm75",
        module="sglang",
    ),
    own(
        "SGLang",
        "died during initialization",
        r"Rank \d{1,3} scheduler (?:died|is dead)[^\n(]{0,40}(?!.{0,8}exit code: -9\))",
        why=NOT_SHOWN,
        says=f"lost a scheduler process; {ROOT_ABOVE}",
    ),
    row(
        "host-out-of-memory",
        "died during initialization",
        r"scheduler died during initialization \(exit code: -9\)",
        who="the system",
    ),
    own(
        "SGLang",
        "custom_all_reduce",
        r"custom_all_reduce\S{0,30}\.py.{0,300}?invalid argument|invalid argument.{0,160}?custom all-?reduce",
        why=NOT_SHOWN,
        says="failed in its own all-reduce",
        way="Start it with --disable-custom-all-reduce",
    ),
    own(
        "SGLang",
        "capture cuda graph failed",
        r"Capture cuda graph failed: \[\S{0,160}gloo\S{1,160}\] (?:Connection closed by peer|Timed out waiting)",
        why=NOT_SHOWN,
        says="lost a rank while it captured CUDA graphs: what ended the other rank stands in its own log",
    ),
)

TENSORRT = (
    own(
        "TensorRT-LLM",
        "assertion failed: d == a + length",
        says="reads an engine that another release built",
        way=REBUILD,
    ),
    own(
        "TensorRT-LLM",
        "assertion failed: mmodule != nullptr",
        says="has no kernel module for this GPU and these settings in this release",
        way="Take its newest release, or build the engine without the plugin that is named above",
    ),
    row(
        "no-kernel-image",
        "assertion failed: unsupported architecture",
        module="tensorrt_llm",
    ),
    own(
        "TensorRT-LLM",
        "error opening engine file",
        r"Assertion failed: Error opening engine file",
        says="does not find the engine's file",
        way="Give --engine_dir as it stands on this machine, built for as many ranks",
    ),
    own(
        "TensorRT-LLM",
        "failed to deserialize cuda engine",
        says="cannot read the engine",
        way=REBUILD,
    ),
    own(
        "TensorRT-LLM",
        "assertion failed: mpisize",
        says="was started with another number of ranks than the engine was built for",
        way="Start as many ranks (mpirun -n) as tensor times pipeline parallel size",
    ),
    own(
        "TensorRT",
        "stdversionread",
        r"stdVersionRead == (?:kSERIALIZATION_VERSION|serializationVersion)|Version tag does not match\. Note: Current Version",
        says="reads an engine that another release built",
        way=REBUILD,
    ),
    own(
        "TensorRT",
        "generated on an incompatible device",
        says="reads an engine that was built for another kind of GPU",
        way=REBUILD,
    ),
    own(
        "TensorRT-LLM",
        "failed to build engine",
        r"AssertionError: Failed to build engine for rank",
        why=NOT_SHOWN,
        says="could not build the engine; the lines above say which layer",
    ),
    own(
        "TensorRT-LLM",
        "[tensorrt-llm][error]",
        r"\[TensorRT-LLM\]\[ERROR\] (?:\S{1,60}: \[TensorRT-LLM\]\[ERROR\] )?Assertion failed: (?!Unsupported arch|[^\n]{0,80}?(?:CUDA|memory|driver))[^\n]{3,120}",
        says="broke an assertion of its own",
    ),
    row(
        "driver-too-old",
        "cuda initialization failure with error",
        r"CUDA initialization failure with (?P<refused>error:? 35)\b",
    ),
)

TGI = (
    own(
        "text-generation-inference",
        "signaled to shutdown with signal 4",
        says="lost a shard to an instruction that this CPU lacks (signal 4, mostly AVX)",
        way="Give the virtual machine its host's CPU type, or take a machine with AVX2",
    ),
    own(
        "text-generation-inference",
        "shardcannotstart",
        why=NOT_SHOWN,
        says=f"could not start a shard; {ROOT_ABOVE}",
    ),
    row(
        "out-of-memory",
        "prefill tokens",
        r"Not enough memory to handle \d{1,9} (?:prefill|total) tokens",
    ),
    row(
        "cuda-unavailable",
        "import flash attention enabled models",
        r"Could not import Flash Attention enabled models: CUDA is not available",
    ),
    own(
        "text-generation-inference",
        "import flash attention enabled models",
        r"Could not import Flash Attention enabled models: GPU with CUDA capability \d \d is not supported",
        says="has flash-attention models only for newer GPUs, and goes on without",
    ),
    own(
        "text-generation-inference",
        "signaled to shutdown with signal 9",
        r"Shard process was signaled to shutdown with signal 9",
        says="lost a shard: the system ended it, mostly for want of memory of the host",
        way="Give the container more memory (and --shm-size 1g), or take a smaller model",
    ),
    own(
        "text-generation-inference",
        "failed to start",
        r"text_generation_launcher: Shard \d{1,3} failed to start",
        why=NOT_SHOWN,
        says=f"could not start a shard; {ROOT_ABOVE}",
    ),
)

TRITON_SERVER = (
    own(
        "Triton server",
        "failed to load all models",
        why=NOT_SHOWN,
        says="could load no model; its table of models above says why for each",
        way="Start it with --log-verbose=1 and read the lines that begin with E",
    ),
    own(
        "Triton server",
        "unavailable: ",
        r"\| UNAVAILABLE: (?:Internal|Invalid argument|Not found|Unsupported): (?!.{0,200}?(?:CUDA|driver|memory|kernel image))",
        why=NOT_SHOWN,
        says="could not load a model; its backend says why behind the same line",
    ),
    own(
        "Triton server",
        "modelinstancestate",
        r"unexpected error when creating modelInstanceState",
        why=NOT_SHOWN,
        says="could not load a model; its backend says why behind the same line",
    ),
    own(
        "Triton server",
        "failed to load '",
        r"failed to load '[\w.-]{1,80}' version \d{1,9}: (?:Invalid argument|Not found|Unsupported)",
        says="could not load a model: its configuration or its files do not fit",
    ),
)

LMDEPLOY = (
    row(
        "extension-not-built",
        "_turbomind",
        r"No module named ['\"]?_turbomind\b",
        module="turbomind",
    ),
    row(
        "extension-not-built",
        "turbomind engine is not installed",
        r"Fallback to pytorch engine because turbomind engine is not installed correctly",
        module="turbomind",
    ),
    own(
        "LMDeploy",
        "[tm][error]",
        r"\[TM\]\[(?:ERROR|FATAL)\] {1,3}Assertion fail",
        says="broke an assertion of its own",
    ),
    own(
        "LMDeploy",
        "have any device set",
        r"rank\[\d{1,3}\] failed with error: \S{1,80} doesn't have any device set",
        says="cannot spread this model's weights over the GPUs",
        way="Take LMDeploy's newest release, or the backend that lists this model",
    ),
)

NEWER_MODELS = (
    own(
        "vLLM",
        "are not supported for now",
        r"Model architectures \[[^\]\n]{1,200}\] are not supported for now",
        says="does not know this model's class: its release is older than the model, or never served it",
        way="Take the first vLLM whose list of supported models names it",
    ),
)

ROWS = (*LMDEPLOY, *VLLM, *SGLANG, *TENSORRT, *TGI, *TRITON_SERVER, *NEWER_MODELS)
