"""Programs beside torch, and by which of their words a text shows which one failed, and at what.

Sources: the messages and log prefixes of the programs' own sources and issue trackers, 2023 to 2026.
A new program is a row here; what its message means for the GPU is a row in its subject's file.
"""

from __future__ import annotations

import enum

from gpusetup.model.failing import Stage
from gpusetup.model.frozen import Frozen


class Weight(enum.IntEnum):
    """How much a mark says: the higher wins, of equal ones the later in the text."""

    UNDER_ALL = enum.auto()
    """torch: it stands below every other program of a text."""
    NOTICE = enum.auto()
    """A line that it logs beside another program's work as well."""
    RAISED = enum.auto()
    """torch's own exception."""
    NAMED = enum.auto()
    """Its command, or a line of its log."""
    TRACED = enum.auto()
    """A file of it in a traceback."""
    TOLD = enum.auto()
    """Its own word that it failed."""
    BUILT = enum.auto()
    """Its build: whatever else that prints is a part of it."""


class Mark(Frozen):
    """Letters (lower case) by which a program is known, and near them a pattern where they do not suffice."""

    needle: str
    pattern: str = ""
    stage: Stage | None = None
    weight: Weight = Weight.TOLD


def told(stage: Stage | None, needle: str, pattern: str = "") -> Mark:
    return Mark(needle=needle, pattern=pattern, stage=stage)


def notice(stage: Stage | None, needle: str, pattern: str = "") -> Mark:
    return Mark(needle=needle, pattern=pattern, stage=stage, weight=Weight.NOTICE)


def raised(stage: Stage | None, needle: str) -> Mark:
    return Mark(needle=needle, stage=stage, weight=Weight.RAISED)


def named(needle: str, pattern: str = "", stage: Stage | None = None) -> Mark:
    return Mark(needle=needle, pattern=pattern, stage=stage, weight=Weight.NAMED)


class Program(Frozen):
    """One program: what it is called, its packages, what it needs for the GPU, its words."""

    name: str
    packages: tuple[str, ...] = ()
    """Import names and distributions, lower case, `_` for `-`."""
    on_torch: bool = True
    """Whether torch is under it: then torch's way out is its own."""
    way: str = ""
    """How it comes to the GPU, where that is not by torch."""
    marks: tuple[Mark, ...] = ()


PROGRAMS: tuple[Program, ...] = (
    Program(
        name="onnxruntime",
        packages=("onnxruntime", "onnxruntime_gpu"),
        on_torch=False,
        way="Keep only one of its packages, `onnxruntime-gpu` (`onnxruntime` beside it hides the CUDA "
        "provider), in the release for this CUDA and cuDNN; "
        '`pip install "onnxruntime-gpu[cuda,cudnn]"` brings the libraries too',
        marks=(
            notice("start", "cudaexecutionprovider' is not in available provider"),
            told("start", "failed to create cudaexecutionprovider"),
            told("start", "[onnxruntimeerror]"),
            told("start", "trygetproviderinfo_cuda"),
            named("[e:onnxruntime"),
            named("[w:onnxruntime"),
            named("cpuexecutionprovider", stage="start"),
        ),
    ),
    Program(
        name="torchcodec",
        packages=("torchcodec",),
        marks=(told("import", "could not load libtorchcodec"),),
    ),
    Program(
        name="torchao",
        packages=("torchao",),
        marks=(notice("import", "for torchao version"),),
    ),
    Program(
        name="sgl-kernel",
        packages=("sgl_kernel", "sglang_kernel"),
        marks=(told("import", "[sgl_kernel] critical"),),
    ),
    Program(
        name="SGLang",
        packages=("sglang",),
        marks=(
            named("sglang.launch_server", stage="start"),
            named("python -m sglang", stage="start"),
            named("sglang/srt/"),
            told("start", "scheduler hit an exception"),
        ),
    ),
    Program(name="flashinfer", packages=("flashinfer",), marks=(told("build", "flashinfer/jit"),)),
    Program(
        name="vLLM",
        packages=("vllm",),
        marks=(
            named("vllm serve", stage="start"),
            named("vllm.entrypoints"),
            named("(enginecore"),
            named("enginecore_0"),
            named("vllm_config.py"),
            told("start", "no available memory for the cache blocks"),
            told("start", "failed to infer device type"),
            told("start", "engine core initialization failed"),
            told("start", "engine process failed to start"),
            told("import", "failed to import from vllm._c"),
        ),
    ),
    Program(
        name="SageAttention",
        packages=("sageattention", "sageattn3"),
        marks=(told("first-kernel", "kernel is not available. make sure you gpu"),),
    ),
    Program(
        name="xformers",
        packages=("xformers",),
        marks=(
            notice("import", "xformers can't load c++/cuda extensions"),
            notice("import", "xformers was built for"),
            told("first-kernel", "no operator found for `memory_efficient_attention"),
            told("first-kernel", "xformers wasn't build with cuda support"),
        ),
    ),
    Program(
        name="flash-attn",
        packages=("flash_attn", "flash_attn_2_cuda", "flash_attn_3"),
        marks=(
            told("first-kernel", "flashattention only supports"),
            told("build", "/flash_attn-"),
        ),
    ),
    Program(
        name="bitsandbytes",
        packages=("bitsandbytes",),
        marks=(
            notice("import", "bitsandbytes was compiled without gpu support"),
            told("import", "libbitsandbytes_"),
            told("import", "cuda setup failed despite"),
            told("import", "could not find the bitsandbytes cuda binary"),
        ),
    ),
    Program(
        name="tiny-cuda-nn",
        packages=("tinycudann", "tiny_cuda_nn"),
        marks=(
            told("import", "tinycudann extension for compute capability"),
            told("import", "unknown compute capability. ensure pytorch"),
        ),
    ),
    Program(name="torchvision", packages=("torchvision",)),
    Program(name="torchaudio", packages=("torchaudio",)),
    Program(name="DeepSpeed", packages=("deepspeed",), marks=(named("[deepspeed]"),)),
    Program(name="Triton", packages=("triton",)),
    Program(name="apex", packages=("apex",)),
    Program(name="mmcv", packages=("mmcv", "mmcv_full")),
    Program(name="PyTorch3D", packages=("pytorch3d",)),
    Program(name="detectron2", packages=("detectron2",)),
    Program(
        name="Warp",
        packages=("warp", "warp_lang"),
        on_torch=False,
        way="Install the newest `warp-lang`: its release must know the driver's CUDA",
        marks=(
            told("start", "warp cuda error"),
            told("start", "warp userwarning"),
            told("start", "this build of warp does not support"),
            told("start", "warp cuda warning"),
        ),
    ),
    Program(
        name="CuPy",
        packages=("cupy", "cupy_backends", "cupyx"),
        on_torch=False,
        way="Keep one CuPy package only, the one for the CUDA that this driver serves "
        "(`cupy-cuda12x`, `cupy-cuda13x`), with the toolkit's libraries: "
        '`pip install "cupy-cuda12x[ctk]"`',
        marks=(
            told("import", "failed to import cupy"),
            told("first-kernel", "cupy failed to load"),
            told("first-kernel", "cupy.cuda.compiler"),
            told("first-kernel", "cupy_backends.cuda"),
            told("import", "multiple cupy packages are installed"),
        ),
    ),
    Program(
        name="numba",
        packages=("numba", "numba_cuda"),
        on_torch=False,
        way="Install `numba-cuda[cu12]` (or `[cu13]`), which brings NVVM and the headers, for the "
        "CUDA that this driver serves",
        marks=(
            told("first-kernel", "cudasupporterror"),
            told("first-kernel", "nvvmsupporterror"),
            told("first-kernel", "numba.cuda.cudadrv"),
            told("first-kernel", "numba_cuda_driver"),
        ),
    ),
    Program(
        name="TensorFlow",
        packages=("tensorflow", "tensorflow_core", "keras"),
        on_torch=False,
        way='Install it with its CUDA libraries, `pip install "tensorflow[and-cuda]"`; on Windows '
        "its wheels have no GPU after 2.10: use WSL",
        marks=(
            notice("start", "skipping registering gpu devices"),
            notice("start", "could not find cuda drivers on your machine, gpu will not be used"),
            notice("start", "failed call to cuinit"),
            notice("start", "cannot dlopen some gpu libraries"),
            notice("start", "tensorflow/"),
            notice("start", "external/local_xla"),
            notice("start", "external/local_tsl"),
        ),
    ),
    Program(
        name="JAX",
        packages=("jax", "jaxlib", "jax_plugins"),
        on_torch=False,
        way='Install it with its CUDA plugin of the same release, `pip install -U "jax[cuda12]"` or '
        "`[cuda13]` as the driver allows, and keep LD_LIBRARY_PATH empty",
        marks=(
            told("start", "jaxlib is not installed. falling back to cpu"),
            told("start", "no gpu/tpu found, falling back to cpu"),
            told("start", "unable to initialize backend 'cuda'"),
            told("start", "cuda backend failed to initialize"),
            told("start", "jax plugin configuration error"),
            told("start", "jax was built against version"),
            named("jax._src"),
        ),
    ),
    Program(
        name="ollama",
        on_torch=False,
        way="Install the newest ollama, which brings its CUDA libraries, and restart its service; "
        "`OLLAMA_DEBUG=1 ollama serve` says which GPUs it finds",
        marks=(
            told("start", "no compatible gpus were discovered"),
            told("start", "cuinit err:"),
            told("start", "cudasetdevice err:"),
            told("start", "unable to load nvcuda"),
            told("start", "gpu vram usage didn't recover"),
            told("start", "/ollama/cuda_v"),
            named("ollama serve"),
            named("ollama run"),
            named("llama runner process"),
            named("ollama_"),
        ),
    ),
    Program(
        name="llama.cpp",
        packages=("llama_cpp", "llama_cpp_python"),
        on_torch=False,
        way="Take its release for this CUDA, or build it with the CUDA toolkit: "
        "`cmake -B build -DGGML_CUDA=ON` (llama-cpp-python: `CMAKE_ARGS=-DGGML_CUDA=on pip install "
        "--force-reinstall --no-cache-dir llama-cpp-python`)",
        marks=(
            told("start", "ggml_cuda_init: failed to initialize"),
            told("start", "no cuda devices found, cuda will be disabled"),
            told("start", "llama.cpp was compiled without gpu support"),
            told("start", "no usable gpu found"),
            told("running", "ggml_backend_cuda_buffer_type_alloc_buffer"),
            told("running", "unable to allocate cuda0 buffer"),
            told("first-kernel", "ggml_cuda_compute_forward"),
            told("build", "ggml-cuda/cmakelists.txt"),
            named("ggml_cuda"),
            named("ggml-cuda"),
            named("llama-server"),
            named("llama-cli"),
            named("llama_model_load"),
        ),
    ),
    Program(
        name="CTranslate2",
        packages=("ctranslate2", "faster_whisper", "whisperx"),
        on_torch=False,
        way="Update `ctranslate2`, and let it find cuBLAS and cuDNN 9 "
        "(`pip install nvidia-cublas-cu12 nvidia-cudnn-cu12`, their folders on LD_LIBRARY_PATH)",
        marks=(named("ctranslate2"), named("faster_whisper"), named("faster-whisper")),
    ),
    Program(
        name="Isaac Sim",
        packages=("isaacsim", "isaaclab", "omni"),
        marks=(
            named("[carb", stage="start"),
            named("[omni."),
            named("isaac-sim"),
            named("isaacsim"),
        ),
    ),
    Program(
        name="ComfyUI",
        packages=("comfy", "comfyui"),
        marks=(named("comfyui"), named("comfy\\model_management"), named("comfy/model_management")),
    ),
    Program(
        name="stable-diffusion-webui",
        marks=(named("stable-diffusion-webui"), named("webui-user")),
    ),
    Program(
        name="Kubernetes",
        on_torch=False,
        marks=(
            told("start", "failedscheduling"),
            told("start", "insufficient nvidia.com/gpu"),
            told("start", "unexpectedadmissionerror"),
        ),
    ),
    Program(
        name="docker",
        on_torch=False,
        marks=(
            told("start", "docker: error response from daemon"),
            told("start", "error response from daemon"),
            told("start", "nvidia-container-cli:"),
            told("start", "unresolvable cdi devices"),
        ),
    ),
    Program(
        name="podman",
        on_torch=False,
        marks=(told("start", "error: setting up cdi devices"),),
    ),
    Program(
        name="Slurm",
        on_torch=False,
        way="Ask the scheduler for a GPU of a partition that has one (`sinfo -o '%P %G %t'` lists "
        "them): `--gres=gpu:1`",
        marks=(
            told("start", "sbatch: error"),
            told("start", "srun: error"),
            told("start", "salloc: error"),
            told("running", "slurmstepd: error"),
        ),
    ),
    Program(
        name="Colab",
        on_torch=True,
        marks=(
            told("start", "connect to a gpu due to usage limits in colab"),
            told("start", "cannot connect to gpu backend"),
            named("/content/drive/"),
            named("google.colab"),
            named("/content/", r"(?<![\w/])/content/\w"),
        ),
    ),
    Program(name="Kaggle", marks=(named("/kaggle/working"), named("/kaggle/input"))),
    Program(
        name="nccl-tests",
        on_torch=False,
        marks=(
            told("distributed", "test nccl failure"),
            told("distributed", ": test failure common.cu"),
        ),
    ),
    Program(
        name="gpu-burn",
        on_torch=False,
        marks=(told("running", "proc'd: "), named("gpu_burn"), named("gpu-burn")),
    ),
    Program(
        name="DCGM",
        on_torch=False,
        marks=(
            told("running", "unable to connect to host engine"),
            told("running", "host engine connection invalid"),
            named("dcgmi diag", stage="running"),
        ),
    ),
    Program(
        name="uv",
        marks=(
            told("install", "no solution found when resolving dependencies"),
            told("install", "error: distribution `"),
            told("install", "hint: you're on "),
            told("install", "hint: you require cpython"),
            told("install", "error: failed to fetch: `"),
        ),
    ),
    Program(
        name="pixi",
        marks=(
            told("install", "failed to solve requirements of environment"),
            told("install", "failed to solve the environment"),
            told("install", "cannot solve the request because of"),
        ),
    ),
    Program(
        name="conda",
        marks=(
            told("install", "packagesnotfounderror"),
            told("install", "unsatisfiableerror"),
            told("install", "resolvepackagenotfound"),
            told("install", "libmambaunsatisfiableerror"),
            told("install", "could not solve for environment specs"),
        ),
    ),
    Program(
        name="poetry",
        marks=(
            told("install", "unable to find installation candidates for"),
            told("install", "version solving failed"),
        ),
    ),
    Program(
        name="pip",
        marks=(
            told("install", "no matching distribution found for"),
            told("install", "could not find a version that satisfies"),
            told("install", "is not a supported wheel on this platform"),
            told("install", "could not install packages due to"),
            told("install", "resolutionimpossible"),
            told("install", "these packages do not match the hashes"),
        ),
    ),
    Program(
        name="torch",
        packages=("torch",),
        marks=(
            raised("first-kernel", "hip error: invalid device function"),
            raised("first-kernel", "rocblas error"),
            raised("first-kernel", "native api failed"),
            raised("running", "mps backend out of memory"),
            raised("running", "for the mps device"),
            raised("first-kernel", "no kernel image is available"),
            raised(None, "runtimeerror: cuda error"),
            raised(None, "torch.acceleratorerror"),
            raised(None, "outofmemoryerror"),
            raised(None, "no cuda gpus are available"),
            raised(None, "torch not compiled with cuda"),
            *(
                Mark(needle=needle, weight=Weight.UNDER_ALL)
                for needle in (
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
                )
            ),
        ),
    ),
)

BY_NAME: dict[str, Program] = {program.name: program for program in PROGRAMS}
BY_PACKAGE: dict[str, Program] = {
    package: program for program in PROGRAMS for package in program.packages
}
LIBRARIES = ("torch", "torchvision", "torchaudio", "Triton")
"""Of a traceback the innermost program counts, but these only where no other one is in it."""


def of_package(name: str) -> Program | None:
    """The program of a distribution or a module.

    >>> of_package("llama-cpp-python").name, of_package("nothing-known")
    ('llama.cpp', None)
    """
    return BY_PACKAGE.get(name.lower().replace("-", "_").replace(".", "_"))
