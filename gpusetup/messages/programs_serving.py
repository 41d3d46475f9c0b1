"""What serves, tunes or uses models, by its words: part of the table in `programs.py`.

Sources: the messages and log prefixes of the programs' own sources and issue trackers, 2023 to 2026.
"""

from __future__ import annotations

from gpusetup.messages.program import Program, mentioned, named, spelled, told

OLLAMAS_WAY = (
    "Make `nvidia-smi -L` list the GPU first: on the host, and in docker by `--gpus=all`. After "
    "a suspend load CUDA's module anew: `sudo rmmod nvidia_uvm && sudo modprobe nvidia_uvm`. Else "
    "install the newest ollama, which brings its CUDA libraries, and restart its service; "
    "`OLLAMA_DEBUG=1 ollama serve` says which GPUs it finds"
)

ASIDE = {
    "TensorRT": "Take the TensorRT release for this CUDA, and build the engine on the GPU that runs it",
    "Tritonserver": "Run the server's container on a driver for its CUDA, with `--gpus all`",
    "KoboldCpp": "Take its newest release: the file for CUDA 12, or for a GPU before Maxwell the one "
    "for old PCs; or choose Vulkan",
    "LM Studio": "Choose the CUDA runtime under Settings, Runtime, and see under Settings, Hardware "
    "which GPUs it lists",
    "GPT4All": "Choose the GPU under Settings, Application, Device, in its newest release",
    "LocalAI": "Take its image for CUDA (`localai/localai:latest-gpu-nvidia-cuda-12`), with "
    "`--gpus all`",
    "Tabby": "Take its release for the CUDA that this driver serves, or its container with `--gpus all`",
    "GPUStack": "Start the worker's container with `--gpus all` and `--privileged`, in its newest "
    "release; `nvidia-smi -L` must list the GPU in it",
    "PaddlePaddle": "Keep only one of its packages, `paddlepaddle-gpu`, of the release for this "
    "driver's CUDA (its installation guide names the index of each)",
    "Frigate": "Take its image whose tag ends in -tensorrt, and give the container the GPU",
    "COLMAP": "Take its release for CUDA (Windows), or build it with -DCUDA_ENABLED=ON",
    "Blender": "Choose the GPU under Preferences, System, Cycles Render Devices, with the newest "
    "driver",
    "XGBoost": 'Ask for `device="cuda"`; the wheels for Linux and Windows have CUDA, those for macOS '
    "not",
    "LightGBM": "Build it with CUDA: `pip install --no-binary lightgbm "
    "--config-settings=cmake.define.USE_CUDA=ON lightgbm`",
    "GROMACS": "Build it with -DGMX_GPU=CUDA",
    "cuDF": "Install all packages of RAPIDS in one release, for this driver's CUDA; from 24.02 on it "
    "needs a GPU from compute capability 7.0 on",
}
"""Programs without torch that are known by their name -> how each comes to the GPU."""

ON_TORCH = (
    *(
        "TabbyAPI",
        "SwarmUI",
        "Xinference",
        "InvokeAI",
        "Fooocus",
        "Unsloth",
        "axolotl",
        "Nerfstudio",
    ),
    *("KTransformers", "LLaMA-Factory", "kohya_ss", "GPT-SoVITS", "Ultralytics", "LMDeploy"),
    *("ExLlamaV2", "text-generation-webui", "oobabooga"),
)
"""Programs on torch that are known by their name."""

SERVING: tuple[Program, ...] = (
    *(
        Program(name=name, packages=(name.lower(),), on_torch=False, way=way, marks=spelled(name))
        for name, way in ASIDE.items()
    ),
    *(Program(name=name, packages=(name.lower(),), marks=spelled(name)) for name in ON_TORCH),
    Program(
        name="TensorRT-LLM",
        packages=("tensorrt_llm",),
        on_torch=False,
        way="Run it in NVIDIA's container of one release (nvcr.io/nvidia/tensorrt-llm/release) on a "
        "driver for the container's CUDA, and build the engine there, on the GPU that serves it",
        marks=named("tensorrt-llm", "[trt-llm]", "tensorrt_llm", "trtllm-"),
    ),
    Program(
        name="text-generation-inference",
        packages=("text_generation_server",),
        marks=named(
            "text_generation_launcher",
            "text-generation-launcher",
            "text_generation_server",
            "huggingface/text-generation-inference:",
        ),
    ),
    Program(
        name="whisper.cpp",
        packages=("pywhispercpp", "whisper_cpp_python"),
        on_torch=False,
        way="Build it with the CUDA toolkit: `cmake -B build -DGGML_CUDA=1` (pywhispercpp: "
        "`GGML_CUDA=1 pip install --no-binary :all: pywhispercpp`), or take its release for CUDA",
        marks=told("start", "whisper_backend_init_gpu: no gpu found")
        + named(
            "whisper_init_",
            "whisper_model_load",
            "whisper_backend",
            "whisper-cli",
            "pywhispercpp",
            "whisper.cpp",
        ),
    ),
    Program(
        name="Immich",
        on_torch=False,
        way="Take its machine-learning image whose tag ends in -cuda, and let it extend the service "
        "`cuda` of hwaccel.ml.yml; it needs a GPU from compute capability 5.2 on and a driver from "
        "545 on",
        marks=named("immich-machine-learning", "immich_machine_learning") + mentioned("immich"),
    ),
    Program(
        name="ffmpeg",
        on_torch=False,
        way="Update the driver to what this ffmpeg's NVENC asks for, or take an older ffmpeg; a "
        "container needs the driver's capability `video`",
        reading="ffmpeg -v verbose -f lavfi -i nullsrc -frames 1 -c:v h264_nvenc -f null -",
        marks=named("h264_nvenc", "hevc_nvenc", "av1_nvenc"),
    ),
    Program(
        name="OpenCV",
        on_torch=False,
        way="The wheels of opencv-python have no CUDA: build OpenCV with -DWITH_CUDA=ON, and take the "
        "wheels out",
        marks=named("cv2.cuda.", "opencv_dnn_cuda"),
    ),
    Program(name="Whisper", packages=("whisper",), marks=named("openai-whisper", "import whisper")),
    Program(name="AutoGPTQ", packages=("auto_gptq", "gptqmodel", "awq", "autoawq")),
    *(Program(name=name, packages=(name,)) for name in ("transformers", "diffusers", "accelerate")),
)
