"""Failures of their own: libraries of models, and what computes.

Sources, as of November 2026: transformers' quantizers and modeling_utils.py, accelerate,
DeepSpeed's op_builder, bitsandbytes' cextension.py and functional.py, Unsloth's device_type.py,
torch's CPU kernels, stable-diffusion-webui's devices.py, ComfyUI's execution.py, torch's
nn/modules/module.py, safetensors' and huggingface_hub's errors.

Sources, as of November 2026: Triton's runtime/errors.py and compiler.py, torch/_dynamo/exc.py,
jaxlib's solver_handle_pool.cc, CuPy's nvrtc binding, TensorFlow's loader, gloo's pair.cc, CUDA's
stream capture, the open kernel modules' nv-pmops, the splatting modules' tracebacks.
"""

from __future__ import annotations

from gpusetup.messages.row import FAILED, NOT_SHOWN, failed, row

LOADING = (
    failed(
        "torch",
        "to be on the same device",
        r"expected all tensor\w{0,2} to be on the same device",
        says="torch was given tensors of several devices",
        way="Put model and inputs on one device, or let accelerate spread the model (device_map)",
    ),
    row(
        "cuda-unavailable",
        "gpu is needed for quantization",
        r"No GPU found\. A GPU is needed for quantization",
    ),
    failed(
        "transformers",
        "is only supported on gpus with compute capability",
        r"FP8 quantized models is only supported on GPUs with compute capability >= 8\.9",
        says="transformers has FP8 kernels only for newer GPUs",
        way="Load the model without FP8 (dequantised, or in another quantisation)",
    ),
)


BITSANDBYTES = (
    failed(
        "transformers",
        "is not supported for",
        r"`\.?(?:to|cuda|half|float)(?:\(\))?` is not supported for `4-bit` or `8-bit`",
        says="transformers does not move a quantised model: it is on its device already",
        way="Leave out `.to(...)` for it, or update transformers and accelerate together",
    ),
)


TRITON = (
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
    *(
        row(
            FAILED,
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
        FAILED,
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
        FAILED,
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
        FAILED,
        "[nvidia_modeset]",
        r"\bnvkms_\w{3,40}\+0x[0-9a-f]{1,5}/0x[0-9a-f]{1,5} \[nvidia_modeset\].{0,300}?kernel BUG at|kernel BUG at.{0,300}?\[nvidia_modeset\]",
        stage="running",
        why=NOT_SHOWN,
        says="NVIDIA's module for displays crashed in the kernel",
        way="Take the newest driver for this kernel, or the kernel before the last update",
    ),
)


ROWS = (
    *LOADING,
    *BITSANDBYTES,
    *TRITON,
    *PICTURES,
    *HALVES,
    *FILES,
    *CAPTURE,
    *COMPILERS,
    *PEERS,
    *NUMBERS,
)
