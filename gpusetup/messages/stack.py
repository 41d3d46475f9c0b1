"""Causes of the GPU stack in the words of programs beside torch: a library that is missing, memory, a
kernel, a driver.

Sources: jax/_src/xla_bridge.py, CuPy, numba-cuda, TensorFlow, vLLM, onnxruntime, bitsandbytes,
SageAttention, xformers, tiny-cuda-nn, oneAPI, ollama's server/sched.go, llama.cpp's
src/llama-model.cpp.
"""

from __future__ import annotations

from gpusetup.messages.libraries import OF_LINUX
from gpusetup.messages.row import row, rows

ROWS = (
    row(
        "cuda-lib-missing",
        "is it installed?",
        r"Unable to load (?P<library>cu(?:SPARSE|SOLVER|BLAS|FFT|DNN|PTI|RAND)|CUDA|NCCL)\. Is it installed\?",
        module="jax",
    ),
    row(
        "cuda-lib-missing",
        "failed to load",
        r"CuPy failed to load (?P<library>[\w.-]{4,60}\.(?:dll|so[.\d]*))",
        module="cupy",
    ),
    *rows(
        "cuda-lib-missing",
        {
            "libnvvm": r"libNVVM cannot be found|(?P<library>libnvvm\.so[.\d]*): cannot open",
            "failed to open nvvm": "",
        },
        library="libnvvm",
        module="numba-cuda",
    ),
    row(
        "cuda-lib-missing",
        "nvrtc",
        r"NvrtcSupportError|NVRTC cannot be loaded",
        library="libnvrtc",
        module="numba-cuda",
    ),
    *rows(
        "no-nvidia-driver",
        {
            "cuda driver library cannot be found": "",
            "could not open libcuda": "",
        },
        library="libcuda.so",
    ),
    *rows(
        "driver-too-old",
        {
            "minimum required cuda driver version": r"minimum required CUDA driver version is (?P<cuda>\d+\.\d+), but the installed CUDA driver version is (?P<driver_cuda>[1-9]\d*\.\d+)",
            "your nvidia driver is too old": r"your nvidia driver is too old or missing",
        },
    ),
    row("ninja-missing", "ninja'", r"No such file or directory: '(?:\S{1,160}/)?ninja'"),
    *rows(
        "out-of-memory",
        {
            "no available memory for the cache blocks": "",
            "kv cache": r"larger than the (?:available KV cache memory|maximum number of tokens that can be stored in (?:the )?KV cache)",
        },
        engine="vLLM",
    ),
    *rows(
        "out-of-memory",
        {
            "resource_exhausted": r"RESOURCE_EXHAUSTED: (?:Out of memory|Failed to allocate)",
            "oom when allocating": r"OOM when allocating tensor.{0,200}?device:GPU",
            "out of memory allocating": r"Out of memory allocating [\d,]{1,20} bytes",
            "bytes free,": r"Memory usage: \d{1,8} bytes free, \d{10,13} bytes total",
            "unable to allocate cuda": r"unable to allocate CUDA\d{1,2} buffer",
        },
    ),
    *rows(
        "cuda-unavailable",
        {
            "no visible gpu devices": r"FAILED_PRECONDITION: No visible GPU devices",
            "unknown compute capability": r"Unknown compute capability\. (?:Ensure|Specify|Make)",
            "failed to infer device type": "",
            "cuda_error_no_device": r"failed call to cuInit.{0,80}CUDA_ERROR_NO_DEVICE",
        },
    ),
    row(
        "cuda-lib-missing",
        "which is missing",
        r'providers_cuda\.dll"? which depends on "(?P<library>[\w.-]{4,60}\.dll)" which is missing',
        module="onnxruntime",
    ),
    row(
        "cuda-lib-missing",
        "cuda setup failed despite gpu being available",
        unless=OF_LINUX,
        module="bitsandbytes",
    ),
    row(
        "cuda-lib-missing",
        "configured cuda binary not found",
        r"Configured CUDA binary not found at \S{0,200}?(?P<library>libbitsandbytes_\w+\.(?:so|dll))",
        module="bitsandbytes",
    ),
    row(
        "out-of-memory",
        "cudamalloc failed",
        r"cudaMalloc failed: out of memory",
        engine="llama.cpp",
    ),
    row(
        "no-kernel-image",
        "kernel is not available",
        r"SM\d{2,3} kernel is not available\. make sure you GPU",
        module="sageattention",
    ),
    row(
        "no-kernel-image",
        "(too new)",
        r"requires device with capability .{2,40}? but your GPU has capability \(\d{1,2}, \d\) \(too new\)",
        module="xformers",
    ),
    row(
        "no-kernel-image",
        "tinycudann extension",
        r"Could not find compatible tinycudann extension for compute capability",
        module="tinycudann",
    ),
    *rows(
        "no-xpu",
        {
            "native api": r"Native API (?:failed|returns)|UR_RESULT_ERROR_\w+",
            "no device of requested type": r"No device of requested type ['\"]?(?:info::device_type::)?gpu",
        },
        why="driver",
    ),
    row(
        "mig-misconfigured",
        "cuda_visible_devices=mig",
        r"""(?x)
        invalid\ device\ ordinal.{0,900}?CUDA_VISIBLE_DEVICES=(?P<first>MIG[-\w]+)\b
        .{0,300}?CUDA_VISIBLE_DEVICES=(?!(?P=first)\b)(?P<second>MIG[-\w]+)
        """,
    ),
    row(
        "torchaudio-mismatch",
        "torchaudio",
        r"lib(?:torch|c10)\w*\.so: cannot open shared object file.{0,900}?packages/torchaudio/|packages/torchaudio/.{0,900}?lib(?:torch|c10)\w*\.so: cannot open shared",
    ),
    row(
        "torchvision-mismatch",
        "torchvision",
        r"lib(?:torch|c10)\w*\.so: cannot open shared object file.{0,900}?packages/torchvision/|packages/torchvision/.{0,900}?lib(?:torch|c10)\w*\.so: cannot open shared",
    ),
    row(
        "vram-not-released",
        "gpu vram usage",
        r"gpu VRAM usage didn't recover within timeout\\?\"? seconds=(?P<seconds>\d{1,4}(?:\.\d{1,9})?)",
        program="ollama",
    ),
)
