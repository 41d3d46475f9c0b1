"""Messages of what loads, quantises and tunes models, and of what draws pictures with them.

Sources, as of November 2026: transformers' quantizers and modeling_utils.py, accelerate,
DeepSpeed's op_builder, bitsandbytes' cextension.py and functional.py, Unsloth's device_type.py,
torch's CPU kernels, stable-diffusion-webui's devices.py, ComfyUI's execution.py, torch's
nn/modules/module.py, safetensors' and huggingface_hub's errors.
"""

from __future__ import annotations

from gpusetup.messages.row import NOT_SHOWN, failed, row, rows

LOADING = (
    failed(
        "torch",
        "to be on the same device",
        r"expected all tensor\w{0,2} to be on the same device",
        says="torch was given tensors of several devices",
        way="Put model and inputs on one device, or let accelerate spread the model (device_map)",
    ),
    row(
        "program-requirement-missing",
        "requires the latest version of bitsandbytes",
        r"Using `bitsandbytes` (?:\S{1,12} quantization|\S{1,12}-bit quantization) requires the latest version of bitsandbytes",
        lacks="a bitsandbytes that loads",
    ),
    row(
        "program-requirement-missing",
        "requires accelerate",
        r"(?:Using|Loading|Quantiz)[^\n]{1,100}? requires [Aa]ccelerate",
        lacks="accelerate",
    ),
    row(
        "program-requirement-missing",
        "flash_attn seems to be not installed",
        r"the package flash_attn seems to be not installed",
        lacks="flash-attn",
    ),
    row(
        "cuda-unavailable",
        "gpu is needed for quantization",
        r"No GPU found\. A GPU is needed for quantization",
    ),
    row(
        "out-of-memory",
        "dispatched on the cpu or the disk",
        r"Some modules are dispatched on the CPU or the disk",
    ),
    failed(
        "transformers",
        "is only supported on gpus with compute capability",
        r"FP8 quantized models is only supported on GPUs with compute capability >= 8\.9",
        says="transformers has FP8 kernels only for newer GPUs",
        way="Load the model without FP8 (dequantised, or in another quantisation)",
    ),
    row(
        "extension-not-built",
        "ds_opt_adam",
        r"object has no attribute 'ds_opt_(?:adam|adagrad|lion)'",
        module="deepspeed",
    ),
)

BITSANDBYTES = (
    *rows(
        "program-requirement-missing",
        {
            "requires bitsandbytes": r"quantization requires bitsandbytes ?>= ?\d",
            "not compatible with": r"have a version of `bitsandbytes` that is not compatible with (?:4|8)-?bit",
        },
        lacks="a newer bitsandbytes",
    ),
    failed(
        "transformers",
        "is not supported for",
        r"`\.?(?:to|cuda|half|float)(?:\(\))?` is not supported for `4-bit` or `8-bit`",
        says="transformers does not move a quantised model: it is on its device already",
        way="Leave out `.to(...)` for it, or update transformers and accelerate together",
    ),
    *rows(
        "program-without-gpu-support",
        {
            "has no attribute 'c": r"'NoneType' object has no attribute '(?:cget_managed_ptr|cquantize\w{3,50}|cdequantize\w{3,50}|cadam\w{3,40}|cgemm\w{3,40}|cigemm\w{0,40}|cdequant\w{3,40})'",
            "libbitsandbytes_cpu": r"libbitsandbytes_cpu\.(?:so|dll|dylib): undefined symbol: \w{3,60}|function 'c\w{3,50}' not found.{0,200}?libbitsandbytes_cpu",
        },
        program="bitsandbytes",
    ),
    row(
        "cuda-library-error",
        "cublaslt ran into an error",
        library="CUBLAS",
        status="CUBLAS_STATUS_NOT_SUPPORTED",
    ),
)

TRITON = (
    row(
        "program-release-too-old",
        "triton only supports cuda",
        r"Triton only supports CUDA 10\.0 or higher, but got CUDA version",
        beside="CUDA of this torch: Triton is older",
    ),
    failed(
        "Triton",
        "cannot be accessed from triton",
        r"Pointer argument \(at \d{1,3}\) cannot be accessed from Triton",
        says="Triton was given a tensor that is on the CPU",
        way="Keep model and inputs on one GPU (device_map, or CUDA_VISIBLE_DEVICES=0)",
    ),
    failed(
        "Triton",
        "passmanager::run failed",
        why=NOT_SHOWN,
        says="Triton could not compile a kernel for this GPU: mostly one with bfloat16 or FP8, which older "
        "GPUs lack",
        way="Load and train in float16, and take the newest release of what wrote the kernel",
    ),
    failed(
        "Triton",
        "triton ptx codegen error",
        why=NOT_SHOWN,
        says="Triton could not compile a kernel for this GPU: mostly one with bfloat16, which older GPUs lack",
        way="Load and train in float16 (dtype=torch.float16, bf16=False)",
        unless=r"ptxas (?:fatal|error) ?: ?(?:Value 'sm_|Unsupported)|PTX \.version",
    ),
)

PICTURES = (
    row(
        "cuda-unavailable",
        "current version of torch/cuda",
        r"Your device does not support the current version of Torch/CUDA",
        tried="yes",
    ),
    failed(
        "ComfyUI",
        "exception during processing",
        r"Exception during processing !!! (?!.{0,300}?(?:CUDA|HIP|MPS|memory|Allocation|device|dtype|kernel|Triton|triton|not compiled|No module named|cannot import|DLL|\.so\b))(?:[\w. ]{1,60}: )?[^\n]{3,160}",
        says="ComfyUI failed at a node of the workflow, by itself",
        way="Look at the node that the lines name: its inputs and its files",
    ),
)

ON_THE_CPU = 'Move the model to the GPU (`.to("cuda")`, --device cuda) or load it in float32; where no GPU is seen, `gpusetup doctor` on that machine says why'

HALVES = (
    failed(
        "torch",
        "not implemented for 'half'",
        r'"\w{3,60}" not implemented for \'Half\'',
        says="torch computes on the CPU, and has no kernel for half precision there",
        way=ON_THE_CPU,
    ),
)

FILES = (
    row(
        "program-release-too-old",
        "compiledkernel",
        r"type object \W{0,2}'CompiledKernel\W{0,2}' has no attribute",
        beside="installed Triton: each torch brings its own",
    ),
    *(
        row(
            "program-failed",
            needle,
            pattern,
            says=says,
            way=way,
        )
        for needle, pattern, says, way in (
            (
                "loading state_dict for",
                r"Error\(s\) in loading state_dict for \w{2,60}",
                "The weights do not fit the model's code (names or shapes differ)",
                "Take the release of the code with which the weights were made, or the weights of this model",
            ),
            (
                "deserializing header",
                r"[Ee]rror while deserializing header: \w{4,40}",
                "The file of weights is broken, or is no safetensors file",
                "Compare its size and hash with the source's, and fetch it again",
            ),
            (
                "gated repo",
                r"(?:Cannot access|access) (?:a )?gated repo\b",
                "The model is gated: this account or token may not fetch it",
                "Ask for access on the model's page, and give a token of that account (`hf auth login`, HF_TOKEN)",
            ),
            (
                "astype(\"uint8\")",
                r"RuntimeWarning: invalid value encountered in cast\W.{0,60}?\(images? \* 255\)",
                "The picture came out as NaN: the model overflows in this precision",
                "Run the model, or its VAE alone, in float32 or bfloat16",
            ),
        )
    ),
)  # fmt: skip

EXLLAMA = (
    row(
        "extension-not-built",
        "is not defined",
        r"NameError: name 'exllama(?:v[23])?_ext(?:_c)?' is not defined",
        module="exllamav2",
    ),
)

ROWS = (*EXLLAMA, *LOADING, *BITSANDBYTES, *TRITON, *PICTURES, *HALVES, *FILES)
