"""The programs that people mention most: their packages, the words that show them, and how they use
the GPU.

Sources: the messages and log prefixes of the programs' own sources and issue trackers, 2023 to 2026.
"""

from __future__ import annotations

from gpusetup.model.frozen import Frozen


class Program(Frozen):
    """One program: its name, its packages, how it uses the GPU, and the words that show it in a
    text."""

    name: str
    packages: tuple[str, ...] = ()
    """The names of its modules and distributions, in lower case and with `_` instead of `-`."""
    on_torch: bool = True
    """Whether the program uses torch. If so, the fix for torch also fixes the program."""
    gpu_setup: str = ""
    """How the program gets its GPU support, if not through torch."""
    reading: str = ""
    """The command with which the program itself shows which GPU it finds."""
    marks: tuple[str, ...] = ()
    """Lower-case strings that only this program prints, or that name it."""


PROGRAMS = (
    Program(
        name="onnxruntime",
        packages=("onnxruntime", "onnxruntime_gpu"),
        on_torch=False,
        gpu_setup="Keep only one of its packages, `onnxruntime-gpu` (`onnxruntime` hides the CUDA "
        "provider), in the release for this CUDA and cuDNN; "
        '`pip install "onnxruntime-gpu[cuda,cudnn]"` brings the libraries too, and '
        "`onnxruntime.preload_dlls()` before the first session loads them (from 1.21 on)",
        reading='python -c "import onnxruntime as o; print(o.__version__, o.get_available_providers())"',
        marks=("onnxruntime", "onnx runtime", "executionprovider"),
    ),
    Program(
        name="SGLang",
        packages=("sglang", "sgl_kernel", "sglang_kernel"),
        marks=("sglang", "sglang.launch_server", "sglang/srt/", "sgl_kernel",
            "--mem-fraction-static"),
    ),
    Program(
        name="vLLM",
        packages=("vllm",),
        marks=("vllm", "vllm serve", "vllm.entrypoints", "(enginecore", "enginedeaderror",
            "llm_engine.py:", "automatically detected platform"),
    ),
    Program(name="xformers", packages=("xformers",), marks=("xformers was built for",)),
    Program(name="mmcv", packages=("mmcv", "mmcv_full")),
    Program(name="flash-attn", packages=("flash_attn", "flash_attn_2_cuda", "flash_attn_3")),
    Program(
        name="bitsandbytes",
        packages=("bitsandbytes",),
        marks=("libbitsandbytes_", "bitsandbytes was compiled without gpu support"),
    ),
    Program(
        name="TensorFlow",
        packages=("tensorflow", "tensorflow_core", "keras"),
        on_torch=False,
        gpu_setup="On Windows, TensorFlow after 2.10 has no GPU support: install it in WSL. On Linux and "
        'in WSL install it with its CUDA libraries: `pip install "tensorflow[and-cuda]"`',
        reading="python -c \"import tensorflow as tf; print(tf.config.list_physical_devices('GPU'))\"",
        marks=("tensorflow", "could not find cuda drivers on your machine",
            "list_physical_devices", "skipping registering gpu devices"),
    ),
    Program(
        name="JAX",
        packages=("jax", "jaxlib", "flax"),
        on_torch=False,
        gpu_setup='Install it with its CUDA plugin of the same release, `pip install -U "jax[cuda12]"` or '
        "`[cuda13]` as the driver allows, and take the folders of another CUDA out of "
        "LD_LIBRARY_PATH",
        reading='python -c "import jax; print(jax.__version__, jax.devices())"',
        marks=("jaxlib", "jax._src", "jax.numpy", "gpu/tpu found", "for platform cuda"),
    ),
    Program(
        name="ollama",
        on_torch=False,
        gpu_setup="Make `nvidia-smi -L` list the GPU first: on the host, and in docker by `--gpus=all`. "
        "On Linux, load CUDA's module again after a suspend: `sudo rmmod nvidia_uvm && sudo modprobe "
        "nvidia_uvm`. Else install the newest ollama, which brings its CUDA libraries, and restart "
        "its service",
        reading="ollama serve  # with the variable OLLAMA_DEBUG=1",
        marks=("ollama", "no compatible gpus were discovered", "gpulayers:["),
    ),
    Program(
        name="llama.cpp",
        packages=("llama_cpp", "llama_cpp_python"),
        on_torch=False,
        gpu_setup="Take its release for this CUDA, or build it with the CUDA toolkit: "
        "`cmake -B build -DGGML_CUDA=ON` (llama-cpp-python: `CMAKE_ARGS=-DGGML_CUDA=on pip install "
        "--force-reinstall --no-cache-dir llama-cpp-python`)",
        reading="llama-cli --list-devices",
        marks=("llama.cpp", "llama_cpp", "llama-cpp", "llama-server", "ggml_cuda", "load_tensors:"),
    ),
    Program(
        name="CTranslate2",
        packages=("ctranslate2", "faster_whisper", "whisperx"),
        on_torch=False,
        gpu_setup="Update `ctranslate2`, and let it find cuBLAS and cuDNN 9 "
        "(`pip install nvidia-cublas-cu12 nvidia-cudnn-cu12`, their folders on LD_LIBRARY_PATH)",
        marks=("ctranslate2", "faster_whisper", "faster-whisper", "whisperx"),
    ),
    Program(
        name="CuPy",
        packages=("cupy", "cupy_cuda11x", "cupy_cuda12x", "cupy_cuda13x"),
        on_torch=False,
        gpu_setup="Keep only one of its wheels, the one for the driver's CUDA major version "
        "(`cupy-cuda12x`, `cupy-cuda13x`) and new enough for the GPU; RTX 50 cards need 13.4 or newer",
        reading="python -c 'import cupy; cupy.show_config()'",
        marks=("cupy",),
    ),
    Program(
        name="ComfyUI", packages=("comfy", "comfyui"), marks=("comfyui", "comfy/model_management")
    ),
    Program(
        name="stable-diffusion-webui",
        marks=("stable-diffusion-webui", "sd-webui", "--skip-torch-cuda-test", "automatic1111"),
    ),
    Program(
        name="uv",
        marks=("no solution found when resolving", "hint: you're on ", "`uv sync",
            "uv pip install"),
    ),
)  # fmt: skip
UNNAMED = Program(name="the program that failed", on_torch=False)
"""Stands for a program that uses the GPU without torch and that the text does not name."""
BY_NAME = {program.name: program for program in PROGRAMS}
BY_PACKAGE = {package: program for program in PROGRAMS for package in program.packages}


def of_package(name: str) -> Program | None:
    """The program that a distribution or module belongs to; None if it is not known.

    >>> of_package("llama-cpp-python").name, of_package("nothing-known")
    ('llama.cpp', None)
    """
    # Distributions are written with `-` or `.`, modules with `_`.
    return BY_PACKAGE.get(name.lower().replace("-", "_").replace(".", "_"))
