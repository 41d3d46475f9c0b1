"""Classes of texts about programs beside torch: engines, containers, servers, schedulers, drawing."""

from __future__ import annotations

from report_classes import Class

MMU_FAULT = "NVRM: Xid (PCI:0000:10:00): 31, pid=1958, name=python3, channel 0x9, intr 0. MMU Fault: ENGINE GRAPHICS"

BESIDE: dict[str, Class] = {
    "a kernel log's fault of a program that is named": Class(
        "cuda-program-error",
        (
            f"sglang server crashes randomly on B200\n{MMU_FAULT}",
            f"vllm serve ends after some hours\n{MMU_FAULT}",
            f"llama-server stops\n{MMU_FAULT}",
        ),
        ("vllm serve ends\nNVRM: Xid (PCI:0000:06:00): 79, pid=1, GPU has fallen off the bus.",),
    ),
    "a docker that does not know NVIDIA's runtime, in words": Class(
        "container-toolkit-missing",
        (
            "Docker not using Nvidia Runtime by Default\nmy Nvidia GPU was not used by it",
            "the container does not see the GPU; docker info shows no nvidia runtime",
            "GPU not found in the container: the NVIDIA runtime is not configured",
        ),
        (
            "if no nvidia runtime is listed, restart docker",
            "the container uses the nvidia runtime and ends with CUDA out of memory",
        ),
    ),
    "torch's exception of memory, its first words lost": Class(
        "out-of-memory",
        (
            "torch.cuda.OutOfMemoryError: . Tried to allocate 20.00 MiB (GPU 0; 6.00 GiB total capacity; 5.28 GiB already allocated)",
            "`torch.OutOfMemoryError: Tried to allocate 2.00 GiB`",
            "ends with torch.OutOfMemoryError: Versucht, 2 GiB zu belegen",
        ),
        ("except torch.cuda.OutOfMemoryError: clear()",),
    ),
    "an install that brought a torch without CUDA, in words": Class(
        "torch-cpu-build",
        (
            "the node downloaded a none cuda Torch and replaced the one installed. ComfyUI won't start, RTX 3060",
            "it broke my installation by forcing a non-CUDA version of Torch to be installed",
            "Forcing Downgrade to Non-CUDA Torch\nI had to install the right Torch again",
        ),
        (
            "you should install a CPU-only torch for the build of the documentation",
            "it installed the CPU-only version of llama.cpp",
        ),
    ),
    "graphics of Intel's that somebody names as the GPU": Class(
        "no-nvidia-gpu",
        (
            "transcribing takes 29 hours. GPU is Intel HD Graphics 630 (as per Task manager)",
            "it runs on the CPU, graphics card: Intel(R) Iris Xe",
            "the program is slow and does not use my GPU\nGPU: Intel UHD Graphics 620",
        ),
        ("GPU: Intel UHD 620 and a GeForce MX150; the program does not use it",),
    ),
    "photographs' machine learning that has no kernel for a GPU": Class(
        "no-kernel-image",
        (
            "Immich machine learning: cudaErrorNoKernelImageForDevice",
            "immich_machine_learning | CUDA failure 209: no kernel image is available for execution on the device",
            "container immich-machine-learning\ncudaErrorNoKernelImageForDevice:no kernel image is available",
        ),
        ("Immich machine learning runs on CUDA",),
    ),
    "CUDA's driver library that cannot be opened, in the words of who looked": Class(
        "driver-missing",
        (
            "frigate cannot find the cuda drivers: RuntimeError: Failed to dlopen libcuda.so",
            'File "cuda/bindings/driver.pyx"\nRuntimeError: Failed to dlopen libcuda.so.1',
            "could not dlopen library libcuda.so.1",
        ),
        ("Failed to dlopen libcufft.so.11",),
    ),
    "a card of AMD's by a name of its own": Class(
        "amd-gpu",
        (
            "I have a Vega 64 and ComfyUI says no CUDA GPU",
            "my card is an R9 390, ollama runs on the CPU",
            "Strix Halo, llama.cpp crashes with ROCm",
        ),
        ("no CUDA GPU, says ComfyUI", "Room R9 39 is closed"),
    ),
    "an encoder whose driver is too old": Class(
        "driver-too-old",
        (
            "[h264_nvenc @ 0x55d] Driver does not support the required nvenc API version. Required: 13.0 Found: 12.2",
            "[av1_nvenc @ 0x1] The minimum required Nvidia driver for nvenc is 570.0 or newer",
            "hevc_nvenc: Driver does not support the required nvenc API version",
        ),
        ("[h264_nvenc @ 0x55d] OpenEncodeSessionEx failed: out of memory (10)",),
    ),
    "memory that ends, as renderers and onnxruntime say it": Class(
        "out-of-memory",
        (
            "Blender with OptiX: Out of memory in cuMemAlloc(&device_pointer, size)",
            "[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : bfc_arena.cc:376 Failed to allocate memory for requested buffer of size 268435456",
            "Cycles: Out of memory in cuMemcpyHtoD_v2",
        ),
        ("Blender has all the memory that it needs",),
    ),
    "a program beside torch whose build has no GPU, in words": Class(
        "program-without-gpu-support",
        (
            "llama-cpp-python shows BLAS = 0 although I have an RTX 4090",
            "llama-cpp-python was reinstalled and I got the CPU version",
            "GPU not used; tf.test.is_built_with_cuda() is False",
        ),
        ("I want the CPU version of llama-cpp-python",),
    ),
}
