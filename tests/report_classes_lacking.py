"""Classes of texts about what a build lacks, and about whose GPU or which architecture it is."""

from __future__ import annotations

from report_classes import NO_IMAGE, SMI_ONE, Class

WHEEL = "Building wheel for flash-attn (setup.py) ... error\ntorch.__version__  = 2.8.0+cu126\n"

LACKING: dict[str, Class] = {
    "a build that finds no C++ compiler": Class(
        "compiler-missing",
        (
            f"{WHEEL}  running bdist_wheel\n  W1106 cpp_extension.py:466] Error checking compiler version for cl: [WinError 2] The system cannot find the file specified\n  [1/73] nvcc --generate-dependencies-with-compile",
            f"{WHEEL}error: command 'gcc' failed: No such file or directory",
            f"{WHEEL}FileNotFoundError: [Errno 2] No such file or directory: 'g++'",
        ),
        (
            "UserWarning: Error checking compiler version for cl: [WinError 2] The system cannot find the file specified\nCUDA error: out of memory",
            "torch._inductor.exc.InductorError: FileNotFoundError: [Errno 2] No such file or directory: 'gcc'",
        ),
    ),
    "a small or an old card that is named, and no kernel for it": Class(
        "arch-too-old-for-wheel",
        (
            f"GT 710, 16 GB RAM\n{NO_IMAGE}",
            f"GPU: GeForce 940MX\n{NO_IMAGE}",
            f"Quadro K4000 here\n{NO_IMAGE}",
        ),
        (
            f"GeForce RTX 5070\n{NO_IMAGE}",
            f"xformers on an RTX 3060\n{NO_IMAGE}",
        ),
    ),
    "an old architecture that somebody names": Class(
        "arch-too-old-for-wheel",
        (
            "the default image's torch (cu128) has no sm_60 kernels, so every CUDA operation fails",
            "PyTorch 2.8.0+cu128 does not include sm_61 kernels and my training stops",
            "torch 2.9 dropped support for sm_70 in cu128: nothing runs on my card",
        ),
        (
            "flash-attn has no sm_70 kernels: it fails with torch 2.6",
            "torch 2.9 has no sm_120 kernels",
        ),
    ),
    "memory that is said to be exceeded, beside other memory that suffices": Class(
        "out-of-memory",
        (
            "I have 128 gig of system ram and 24 gig of vram, but usage shoots up to over 24 gig vram and I get an OOM error",
            "I train on a single A6000 48G but it still says that the GPU memory is exceeded",
            "RTX 3060, 64 GB system RAM. The run ends with a CUDA memory error",
        ),
        (
            "What happens if the GPU memory is exceeded? 24 GB VRAM",
            "RTX 3090. I get a CUDA memory error: an illegal memory access was encountered",
        ),
    ),
    "a card of Intel's that a program of Intel's does not use": Class(
        "intel-gpu",
        (
            "ipex-llm container doesn't detect Intel Arc B-series GPUs\n2x Intel Arc Pro B60",
            "Intel Arc Pro B70: IPEX-Ollama runner crashes, the CPU path works\nONEAPI_DEVICE_SELECTOR=level_zero:0",
            "sycl-ls shows nothing on my Meteor Lake iGPU",
        ),
        (
            f"{SMI_ONE}\nipex-llm has nothing to do with it",
            "supported: NVIDIA RTX 30 series, AMD RX 6000 series, Intel Arc A770. My RTX 3060 crashes with an error",
        ),
    ),
    "a card of AMD's, by a library or a frame of ROCm's": Class(
        "amd-gpu",
        (
            "Segmentation fault in libamdhip64.so.5.4.22804\nI use pytorch-opt-rocm",
            "SIGSEGV\n#0  0x00007fffa6ed9cd8 in  () at /opt/rocm/hip/lib/libamdhip64.so.5",
            "ROCm error: invalid device function\n  current device: 0, in function ggml_cuda_compute_forward",
        ),
        (
            "-- looked for HIP in /opt/rocm\nCUDA out of memory on my RTX 3090",
            "supported: NVIDIA RTX 30 series, AMD RX 6000 series. My RTX 3060 crashes with an error",
        ),
    ),
    "a container that loses its GPU while it runs, in words": Class(
        "container-nvml-lost",
        (
            "NVIDIA driver breaks inside the container\nI have noticed that the NVIDIA driver breaks inside the container at some point; the host works fine.",
            "My docker container loses access to the GPU after a few hours, a restart of it helps",
            "The GPU disappears in the running container after a while",
        ),
        (
            "The GPU is not visible in the container",
            "After the driver was updated the GPU disappears in the container at some point",
        ),
    ),
}
