"""Messages of engines that serve models on many GPUs: vLLM's own failures, and what vLLM, SGLang,
TensorRT-LLM, TGI and LMDeploy say of the GPU's stack.

Sources, as of November 2026: vLLM's v1/worker, v1/executor, csrc/custom_all_reduce.cuh, its model
registry and model_executor/layers/quantization, SGLang's srt/model_executor and srt/entrypoints,
TensorRT-LLM's common/assert.h, text-generation-inference's launcher, LMDeploy's src/turbomind.
"""

from __future__ import annotations

from gpusetup.messages.row import NOT_SHOWN, failed, row, rows

VLLM = (
    failed(
        "vLLM",
        "quantization scheme is not supported for",
        says="vLLM has no kernels for this quantisation on a GPU of this generation",
        way="Take the model in a quantisation that this GPU's capability allows, or in float16",
    ),
    row(
        "out-of-memory",
        "desired gpu memory utilization",
        r"Free memory on device.{0,20}?(?:\((?P<left>[\d.]{1,7})/(?P<of>[\d.]{1,7}) GiB\).{0,30}?)?is less than desired GPU memory utilization(?: \((?P<share>[01]?\.\d{1,4}))?",
        engine="vLLM at its start",
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
    row(
        "extension-not-built",
        "_opnamespace",
        r"'_OpNamespace' '_(?:C|moe_C|vllm_fa\d_C|C_cache_ops)' object has no attribute '\w{2,60}'",
        module="vllm._C",
    ),
    failed(
        "vLLM",
        "no valid attention backend found",
        r"No valid attention backend found",
        says="vLLM has no attention backend for this model on this GPU",
        way="Name another backend (VLLM_ATTENTION_BACKEND), or take vLLM's newest release",
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
    row(
        "no-kernel-image",
        "sglang only supports sm75",
        module="sglang",
    ),
    row(
        "host-out-of-memory",
        "died during initialization",
        r"scheduler died during initialization \(exit code: -9\)",
        who="the system",
    ),
)

TENSORRT = (
    row(
        "no-kernel-image",
        "assertion failed: unsupported architecture",
        module="tensorrt_llm",
    ),
    row(
        "driver-too-old",
        "cuda initialization failure with error",
        r"CUDA initialization failure with (?P<refused>error:? 35)\b",
    ),
)

TGI = (
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
)

LMDEPLOY = rows(
    "extension-not-built",
    {
        "_turbomind": r"No module named ['\"]?_turbomind\b",
        "turbomind engine is not installed": r"Fallback to pytorch engine because turbomind engine is not installed correctly",
    },
    module="turbomind",
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

ROWS = (*LMDEPLOY, *VLLM, *SGLANG, *TENSORRT, *TGI, *NEWER_MODELS)
