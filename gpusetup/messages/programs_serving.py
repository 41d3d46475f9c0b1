"""What serves, quantises or tunes models, by its words: part of the table in `programs.py`.

Sources: the messages and log prefixes of the programs' own sources and issue trackers, 2023 to 2026.
"""

from __future__ import annotations

from gpusetup.messages.program import Program, mentioned, named, told

OLLAMAS_WAY = (
    "Make `nvidia-smi -L` list the GPU first: on the host, and in docker by `--gpus=all`. After "
    "a suspend load CUDA's module anew: `sudo rmmod nvidia_uvm && sudo modprobe nvidia_uvm`. Else "
    "install the newest ollama, which brings its CUDA libraries, and restart its service; "
    "`OLLAMA_DEBUG=1 ollama serve` says which GPUs it finds"
)

SERVING: tuple[Program, ...] = (
    Program(
        name="TensorRT-LLM",
        packages=("tensorrt_llm",),
        on_torch=False,
        way="Run it in NVIDIA's container of one release (nvcr.io/nvidia/tensorrt-llm/release) on a "
        "driver for the container's CUDA, and build the engine there, on the GPU that serves it",
        marks=named("[tensorrt-llm]", "[trt-llm]", "tensorrt_llm::", "trtllm-serve", "trtllm-build")
        + named("tensorrt_llm/")
        + mentioned("tensorrt-llm", "trt-llm"),
    ),
    Program(
        name="TensorRT",
        packages=("tensorrt", "tensorrt_bindings", "tensorrt_libs", "torch_tensorrt"),
        on_torch=False,
        way="Take the TensorRT release for this CUDA, and build the engine on the GPU that runs it",
        marks=named("[trt] [e]", "[trt] [w]", "&&&& failed tensorrt", "&&&& running tensorrt")
        + named("stdarchivereader", "trtexec"),
    ),
    Program(
        name="Triton server",
        packages=("tritonclient",),
        on_torch=False,
        way="Run the server's container on a driver for its CUDA, with `--gpus all`",
        marks=named(
            "tritonserver --model-repository",
            "== triton inference server ==",
            "model_lifecycle.cc",
            "model_repository_manager.cc",
        ),
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
        name="LMDeploy",
        packages=("lmdeploy",),
        marks=named("lmdeploy serve", "lmdeploy chat", "[tm][error]", "[tm][fatal]", "turbomind")
        + mentioned("lmdeploy"),
    ),
    Program(
        name="ExLlama",
        packages=("exllamav2", "exllama", "exllamav3", "exllamav2_ext", "exllama_ext"),
        marks=named("exllamav2_ext", "exllamav3_ext", "exllama_ext", "exllamav2\\ext.py")
        + named("from 'exllamav2'", "exllama module failed to import"),
    ),
    Program(
        name="text-generation-webui",
        marks=named(
            "text-generation-webui",
            "text_generation_webui",
            "text-gen-webui",
            "oobabooga",
            "modules/ui_model_menu.py",
            "modules\\ui_model_menu.py",
        ),
    ),
    Program(
        name="KoboldCpp",
        on_torch=False,
        way="Take its newest release: the file for CUDA 12, or for a GPU before Maxwell the one for "
        "old PCs; or choose Vulkan",
        marks=named("koboldcpp", "koboldai"),
    ),
    Program(
        name="LM Studio",
        on_torch=False,
        way="Choose the CUDA runtime under Settings, Runtime, and see under Settings, Hardware which "
        "GPUs it lists",
        marks=named("lm studio", "lmstudio", "lm-studio"),
    ),
    Program(
        name="GPT4All",
        on_torch=False,
        way="Choose the GPU under Settings, Application, Device, in its newest release",
        marks=named("gpt4all"),
    ),
    Program(
        name="LocalAI",
        on_torch=False,
        way="Take its image for CUDA (`localai/localai:latest-gpu-nvidia-cuda-12`), with `--gpus all`",
        marks=named("localai"),
    ),
    Program(
        name="whisper.cpp",
        packages=("pywhispercpp", "whisper_cpp_python"),
        on_torch=False,
        way="Build it with the CUDA toolkit: `cmake -B build -DGGML_CUDA=1` (pywhispercpp: "
        "`GGML_CUDA=1 pip install --no-binary :all: pywhispercpp`), or take its release for CUDA",
        marks=told("start", "whisper_backend_init_gpu: no gpu found")
        + named("whisper_init_", "whisper_model_load", "whisper_backend", "whisper_full_with_state")
        + named("whisper-cli", "whisper-server", "pywhispercpp", "i whisper.cpp build info")
        + mentioned("whisper.cpp"),
    ),
    Program(
        name="Tabby",
        on_torch=False,
        way="Take its release for the CUDA that this driver serves, with the toolkit's libraries "
        "beside it, or its container with `--gpus all`",
        marks=told("start", "llama_cpp_server::supervisor") + named("tabbyml", "tabby serve"),
    ),
    Program(name="TabbyAPI", packages=("tabbyapi",), marks=named("tabbyapi")),
    Program(
        name="SwarmUI",
        marks=named("swarmui") + named("self-start comfyui", stage="start"),
    ),
    Program(
        name="GPUStack",
        on_torch=False,
        way="Start the worker's container with `--runtime nvidia` (or `--gpus all`) and "
        "`--privileged`, in its newest release; `nvidia-smi -L` must list the GPU in it",
        marks=named("gpustack.worker", "gpustack.cmd", "gpustack.detectors", stage="start")
        + named("gpustack/gpustack", "gpustack start", "gpustack-worker")
        + mentioned("gpustack"),
    ),
    Program(
        name="Xinference",
        packages=("xinference",),
        marks=named("xinference.core", "xinference-local", "xinference launch", "xprobe/xinference")
        + named("xinference.model")
        + mentioned("xinference"),
    ),
    Program(name="Whisper", packages=("whisper",), marks=named("openai-whisper", "import whisper")),
    Program(
        name="InvokeAI",
        packages=("invokeai",),
        marks=named("invokeai-web", "[invokeai]::", "invokeai"),
    ),
    Program(name="Fooocus", marks=named("fooocus")),
    Program(name="Unsloth", packages=("unsloth", "unsloth_zoo"), marks=named("unsloth_zoo")),
    Program(name="axolotl", packages=("axolotl",), marks=named("axolotl.cli", "axolotl train")),
    Program(name="KTransformers", packages=("ktransformers",), marks=named("ktransformers")),
    Program(name="AutoGPTQ", packages=("auto_gptq", "gptqmodel", "awq", "autoawq")),
    Program(name="transformers", packages=("transformers",)),
    Program(name="diffusers", packages=("diffusers",)),
    Program(name="accelerate", packages=("accelerate",)),
)
