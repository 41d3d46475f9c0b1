"""Programs beside torch, and by which of their words a text shows which one failed, and at what.

Sources: the messages and log prefixes of the programs' own sources and issue trackers, 2023 to 2026.
A new program is a row here, in `programs_serving.py` where it serves or tunes models, in
`programs_frameworks.py` where it computes without torch, or in `programs_launchers.py` where it
installs or starts others; what its message means for the GPU is a row in its subject's file.
"""

from __future__ import annotations

from gpusetup.messages.program import (
    Program,
    mentioned,
    named,
    notice,
    raised,
    told,
    under_all,
)
from gpusetup.messages.programs_frameworks import FRAMEWORKS
from gpusetup.messages.programs_launchers import LAUNCHERS
from gpusetup.messages.programs_serving import OLLAMAS_WAY, SERVING

OLLAMAS = (
    (
        "amd-gpu",
        "ollama uses the AMD GPUs that its documentation lists by ROCm (on Linux with its -rocm "
        "package beside it, on Windows by itself); for others set OLLAMA_VULKAN=1 for its server",
    ),
    ("intel-gpu", "Set OLLAMA_VULKAN=1 for ollama's server, with Intel's newest driver"),
    ("apple-silicon", "ollama's app for macOS uses Metal by itself; in a container there is none"),
)
LLAMA_CPPS = (
    (
        "amd-gpu",
        "Take its release for Vulkan or HIP, or build it so: `cmake -B build -DGGML_VULKAN=ON` (or "
        "-DGGML_HIP=ON with ROCm)",
    ),
    (
        "intel-gpu",
        "Take its release for Vulkan or SYCL, or build it so: `cmake -B build -DGGML_VULKAN=ON`",
    ),
    ("apple-silicon", "Its release for macOS uses Metal by itself: raise `-ngl`"),
)
ONNXRUNTIMES = (
    (
        "amd-gpu",
        "On Windows install `onnxruntime-directml` in its place; on Linux AMD's build of "
        "onnxruntime (MIGraphX), if ROCm supports the GPU",
    ),
    (
        "intel-gpu",
        "Install `onnxruntime-openvino` in its place, or on Windows `onnxruntime-directml`",
    ),
    ("apple-silicon", "The ordinary `onnxruntime` has the CoreMLExecutionProvider: ask for that"),
)
ON_TORCH = ("torchvision", "torchaudio", "Triton", "apex", "PyTorch3D", "detectron2")
COMPUTING: tuple[Program, ...] = (
    Program(
        name="onnxruntime",
        elsewhere=ONNXRUNTIMES,
        packages=("onnxruntime", "onnxruntime_gpu"),
        on_torch=False,
        way="Keep only one of its packages, `onnxruntime-gpu` (`onnxruntime` beside it hides the CUDA "
        "provider), in the release for this CUDA and cuDNN; "
        '`pip install "onnxruntime-gpu[cuda,cudnn]"` brings the libraries too, and '
        "`onnxruntime.preload_dlls()` before the first session loads them (from 1.21 on). On "
        "Windows it also needs the current Visual C++ runtime. For C++ take the GPU archive of its "
        "releases for the CUDA and cuDNN that are installed here, for .NET NuGet's "
        "`Microsoft.ML.OnnxRuntime.Gpu` alone",
        reading='python -c "import onnxruntime as o; print(o.__version__, o.get_device(), '
        'o.get_available_providers())"',
        marks=notice("start", "cudaexecutionprovider' is not in available provider")
        + told(
            "start",
            "failed to create cudaexecutionprovider",
            "[onnxruntimeerror]",
            "trygetproviderinfo_cuda",
        )
        + named(
            "[e:onnxruntime",
            "[w:onnxruntime",
            "bfcarena",
            "appendexecutionprovider",
            "microsoft.ml.onnxruntime",
            "onnxruntimeerror",
            "onnxruntime_cxx_api",
            "onnxruntime_c_api",
            "find_package(onnxruntime",
            "ort::session",
            "ort::exception",
            "ort::env",
        )
        + named("cpuexecutionprovider", stage="start")
        + mentioned("onnxruntime", "onnx runtime", "onnxruntime-gpu"),
    ),
    Program(
        name="torchcodec", packages=("torchcodec",), marks=told("import", "load libtorchcodec")
    ),
    Program(name="torchao", packages=("torchao",), marks=notice("import", "for torchao version")),
    Program(
        name="sgl-kernel",
        packages=("sgl_kernel", "sglang_kernel"),
        marks=told("import", "[sgl_kernel] critical"),
    ),
    Program(
        name="SGLang",
        packages=("sglang",),
        marks=named("sglang.launch_server", "python -m sglang", stage="start")
        + named(
            "sglang/srt/",
            "lmsysorg/sglang",
            "--mem-fraction-static",
            "the memory capacity is unbalanced",
            "scheduler died during init",
        )
        + told("start", "scheduler hit an exception", "capture cuda graph failed")
        + mentioned("sglang"),
    ),
    Program(name="flashinfer", packages=("flashinfer",), marks=told("build", "flashinfer/jit")),
    Program(
        name="vLLM",
        packages=("vllm",),
        marks=named("vllm serve", stage="start")
        + named(
            "vllm.entrypoints",
            "(enginecore",
            "enginecore_0",
            "vllm_config.py",
            "vllm/vllm-openai",
            "custom_all_reduce.cuh",
            "desired gpu memory utilization",
            "in memory profiling. initial free",
            "(apiserver pid=",
            "llm_engine.py:",
        )
        + told(
            "start",
            "no available memory for the cache blocks",
            "failed to infer device type",
            "vllm is running on unspecifiedplatform",
            "current node has no gpu available",
            "engine core initialization failed",
            "engine process failed to start",
        )
        + told("import", "failed to import from vllm._c")
        + told("running", "enginedeaderror", "asyncenginedeaderror", "worker proc vllm")
        + mentioned("vllm"),
    ),
    Program(
        name="SageAttention",
        packages=("sageattention", "sageattn3"),
        marks=told("first-kernel", "kernel is not available. make sure you gpu"),
    ),
    Program(
        name="xformers",
        packages=("xformers",),
        marks=notice("import", "xformers can't load c++/cuda extensions", "xformers was built for")
        + told(
            "first-kernel",
            "no operator found for `memory_efficient_attention",
            "xformers wasn't build with cuda support",
            "triton is needed for forward pass",
        ),
    ),
    Program(
        name="flash-attn",
        packages=("flash_attn", "flash_attn_2_cuda", "flash_attn_3"),
        marks=told("first-kernel", "flashattention only supports") + told("build", "/flash_attn-"),
    ),
    Program(
        name="bitsandbytes",
        packages=("bitsandbytes",),
        marks=notice("import", "bitsandbytes was compiled without gpu support")
        + told(
            "import",
            "libbitsandbytes_",
            "cuda setup failed despite",
            "could not find the bitsandbytes cuda binary",
        ),
    ),
    Program(
        name="tiny-cuda-nn",
        packages=("tinycudann", "tiny_cuda_nn"),
        marks=told(
            "import",
            "tinycudann extension for compute capability",
            "unknown compute capability. ensure pytorch",
        ),
    ),
    Program(name="DeepSpeed", packages=("deepspeed",), marks=named("[deepspeed]")),
    Program(name="mmcv", packages=("mmcv", "mmcv_full")),
    *(Program(name=name, packages=(name.lower(),)) for name in ON_TORCH),
    *FRAMEWORKS,
    Program(
        name="ollama",
        elsewhere=OLLAMAS,
        on_torch=False,
        way=OLLAMAS_WAY,
        reading="OLLAMA_DEBUG=1 ollama serve",
        marks=told(
            "start",
            "no compatible gpus were discovered",
            "cuinit err:",
            "cudasetdevice err:",
            "unable to load nvcuda",
            "gpu vram usage didn't recover",
            "/ollama/cuda_v",
            "failure during gpu discovery",
        )
        + named(
            "ollama serve",
            "ollama run",
            "llama runner process",
            "ollama_",
            "gpulayers:[",
            'msg="inference compute"',
            "source=routes.go",
            "source=sched.go",
            "source=gpu.go",
            "source=server.go",
            "source=runner.go",
            "registry.ollama.ai",
            "ollama ps",
        )
        + mentioned("ollama"),
    ),
    Program(
        name="llama.cpp",
        elsewhere=LLAMA_CPPS,
        packages=("llama_cpp", "llama_cpp_python"),
        on_torch=False,
        way="Take its release for this CUDA, or build it with the CUDA toolkit: "
        "`cmake -B build -DGGML_CUDA=ON` (llama-cpp-python: `CMAKE_ARGS=-DGGML_CUDA=on pip install "
        "--force-reinstall --no-cache-dir llama-cpp-python`)",
        reading="llama-cli --list-devices",
        marks=told(
            "start",
            "ggml_cuda_init: failed to initialize",
            "no cuda devices found, cuda will be disabled",
            "llama.cpp was compiled without gpu support",
            "no usable gpu found",
        )
        + told(
            "running",
            "ggml_backend_cuda_buffer_type_alloc_buffer",
            "unable to allocate cuda0 buffer",
        )
        + told("first-kernel", "ggml_cuda_compute_forward")
        + told("build", "ggml-cuda/cmakelists.txt")
        + named(
            "llama_cpp",
            "llama-cpp-python",
            "ggml_cuda",
            "ggml-cuda",
            "llama-server",
            "llama-cli",
            "llama_model_load",
            "ggml_vulkan",
            "ggml_assert",
            "ggml_metal",
            "llm_load_",
            "llama_init_from",
            "load_tensors:",
        )
        + mentioned("llama.cpp", "llamacpp", "llama-cpp"),
    ),
    Program(
        name="CTranslate2",
        packages=("ctranslate2", "faster_whisper", "whisperx"),
        on_torch=False,
        way="Update `ctranslate2`, and let it find cuBLAS and cuDNN 9 "
        "(`pip install nvidia-cublas-cu12 nvidia-cudnn-cu12`, their folders on LD_LIBRARY_PATH)",
        marks=named(
            "ctranslate2", "faster_whisper", "faster-whisper", "compute type, but the target"
        )
        + mentioned("whisperx"),
    ),
    Program(
        name="Isaac Sim",
        packages=("isaacsim", "isaaclab", "omni"),
        marks=named("[carb", stage="start") + named("[omni.", "isaac-sim", "isaacsim"),
    ),
    Program(
        name="ComfyUI",
        packages=("comfy", "comfyui"),
        marks=named(
            "comfyui",
            "comfy\\model_management",
            "comfy/model_management",
            "!!! exception during processing !!!",
        ),
    ),
    Program(
        name="stable-diffusion-webui",
        marks=named(
            "stable-diffusion-webui",
            "webui-user",
            "nansexception",
            "sd-webui",
            "sd.next",
            "--skip-torch-cuda-test",
            "automatic1111",
        ),
    ),
    Program(
        name="nccl-tests",
        on_torch=False,
        marks=told("distributed", "test nccl failure", ": test failure common.cu"),
    ),
    Program(
        name="gpu-burn",
        on_torch=False,
        marks=told("running", "proc'd: ") + named("gpu_burn", "gpu-burn"),
    ),
    Program(
        name="DCGM",
        on_torch=False,
        marks=told("running", "unable to connect to host engine", "host engine connection invalid")
        + named("dcgmi diag", stage="running"),
    ),
    Program(
        name="torch",
        packages=("torch",),
        marks=raised(
            "first-kernel",
            "hip error: invalid device function",
            "rocblas error",
            "native api failed",
            "no kernel image is available",
        )
        + raised("running", "mps backend out of memory", "for the mps device")
        + raised(
            None,
            "runtimeerror: cuda error",
            "torch.acceleratorerror",
            "outofmemoryerror",
            "no cuda gpus are available",
            "no cuda runtime is found",
            "torch not compiled with cuda",
        )
        + under_all(
            None,
            "torch.",
            "pytorch",
            "found no nvidia driver",
            "cuda kernel errors might be asynchronously",
            "hip error",
            "no hip gpus",
            "no xpu devices",
            "mps backend",
            "mps device",
            ".to('xpu')",
            "torch/",
            "torch\\",
        ),
    ),
)

PROGRAMS = (*COMPUTING, *SERVING, *LAUNCHERS)
BY_NAME: dict[str, Program] = {program.name: program for program in PROGRAMS}
BY_PACKAGE: dict[str, Program] = {
    package: program for program in PROGRAMS for package in program.packages
}
LIBRARIES = (
    "torch",
    "torchvision",
    "torchaudio",
    "Triton",
    "transformers",
    "diffusers",
    "accelerate",
)
"""Of a traceback the innermost program counts, but these only where no other one is in it."""


def of_package(name: str) -> Program | None:
    """The program of a distribution or a module.

    >>> of_package("llama-cpp-python").name, of_package("nothing-known")
    ('llama.cpp', None)
    """
    return BY_PACKAGE.get(name.lower().replace("-", "_").replace(".", "_"))
