"""Classes of texts about a port, a replaced torch, a kernel of another GPU and a driver's side."""

from __future__ import annotations

from report_classes import SMI_ONE, Class

NO_IMAGE = "CUDA error: no kernel image is available for execution on the device"

TOLD: dict[str, Class] = {
    "a CPU build, as conda's lists name it": Class(
        "torch-cpu-build",
        (
            "torch.cuda.is_available() False\n_pytorch_select           0.1                       cpu_0\ncudatoolkit               10.1.243             h6bb024c_0",
            "torch.cuda.is_available() False\n[conda] _pytorch_select           0.1                       cpu_0",
            "torch.cuda.is_available() False\n  pytorch            pkgs/main/linux-64::pytorch-1.3.1-cpu_py37h62f834f_0",
        ),
        (
            "torch.cuda.is_available() False\n_pytorch_select           0.1                       cpu_0\ntorch                     2.1.0              pypi_0    pypi",
            "torch.cuda.is_available() False\n  - pytorch=1.9.0=cuda112py38h3d13190_1",
        ),
    ),
    "a trainer that finds no backend": Class(
        "torch-sees-no-gpu",
        (
            "MisconfigurationException: No supported gpu backend found!\npytorch-lightning 2.2.0",
            "Windows 11, RTX 4060\nraise MisconfigurationException('No supported gpu backend found!')",
            "`CUDAAccelerator` can not run on your system since the accelerator is not available.",
        ),
        ("MisconfigurationException: No supported gpu backend found!\nMacBook Pro, Apple M2",),
    ),
    "Apple's chip is the machine": Class(
        "apple-silicon",
        (
            "my laptop with an M1 chip\nAssertionError: Torch not compiled with CUDA enabled",
            "Apple Silicon Mac\nAssertionError: Torch not compiled with CUDA enabled",
            "Apple M3\nMisconfigurationException: No supported gpu backend found!",
        ),
        (
            "It works on my Apple M1, not on the server\ntorch 2.3.0+cpu, RTX 3090\nAssertionError: Torch not compiled with CUDA enabled",
        ),
    ),
    "a port of the ranks, as the engine's log or title says it": Class(
        "port-in-use",
        (
            "VLLM Engine fails to start after a crash due to EADDRINUSE, message: address already in use",
            "code: -98, name: EADDRINUSE, message: address already in use\nRuntimeError: Engine core initialization failed.",
            "torch.distributed.DistNetworkError: name: EADDRINUSE, message: address already in use",
        ),
        (
            "Error: listen EADDRINUSE: address already in use :::3000",
            "Error: listen tcp 127.0.0.1:11434: bind: address already in use",
        ),
    ),
    "a server's own port, and a run without its launcher": Class(
        "program-failed",
        (
            "Error: listen tcp 127.0.0.1:11434: bind: address already in use",
            "ERROR: [Errno 98] error while attempting to bind on address ('0.0.0.0', 8000): address already in use",
            "OSError: Cannot find empty port in range: 7860-7860.",
        ),
        (
            "Default process group has not been initialized\nRuntimeError: Found no NVIDIA driver on your system.",
            "main.py: error: unrecognized arguments: --lr 3",
        ),
    ),
    "a kernel of an extension for another GPU": Class(
        "extension-arch-mismatch",
        (
            "FATAL: this function is for sm80, but was built for sm750",
            "CUDA error (C:/a/xformers/xformers/third_party/flash-attention/hopper\\flash_fwd_launch_template.h:188): invalid argument\nRTX 5070 Ti",
            "CUDA error (/x/flash_fwd_launch_template.h:94): invalid device function",
        ),
        (
            "CUDA error (/src/mine/kernel.cu:94): invalid argument",
            "this function is for images, but was built for text",
        ),
    ),
    "the one of two cards on which no kernel runs": Class(
        "arch-too-new-for-wheel",
        (
            f"现在还不支持5090吗？\n{NO_IMAGE}\n同一台电脑，以前用4070的时候能正常跑，换成5090就不行了",
            f"{NO_IMAGE}\nIt worked with my 4070, after switching to a 5090 it does not",
            f"Replaced my 3090 with a 5090. {NO_IMAGE}",
        ),
        (
            f"with 5090 steps: {NO_IMAGE}",
            f"it works on my 5090, but on the 1080 Ti: {NO_IMAGE}",
        ),
    ),
    "a card of Intel's by its number": Class(
        "intel-gpu",
        (
            "GPU:Inter A750\nwhen images are generated the graphics card does not work, everything relies on the CPU",
            "I have an Intel A770 and the webui runs on the CPU",
            "My GPU is an Arc A770. Stable diffusion only uses the CPU",
        ),
        (
            "It supports NVIDIA, AMD and Intel A770. My RTX 3060 is not used",
            "The backend is for Arc A770. My RTX 3060 is not used by it",
        ),
    ),
    "memory that ran out, in a title": Class(
        "out-of-memory",
        (
            "chat cude out of memory error\nI get a memory error when I use the model, im using an A10G GPU",
            "Out of memory error with SDXL\nRTX 3060 12GB",
            "Out-of-memory problem in training on one L40S",
        ),
        (
            "How to avoid an out of memory error on a 4090?",
            "CPU out of memory error in preprocessing, the GPU is idle",
        ),
    ),
    "a torch that another install put in the place of CUDA's": Class(
        "torch-cpu-build",
        (
            "torch 2.8.0+cu128 is installed, and while the requirements are installed it is now replaced by torch 2.8.0+cpu.",
            "torch keeps being replaced by the non CUDA version",
            "installing the requirements overwrote my torch with the CPU version",
        ),
        (
            "On the laptop I want to replace torch with the CPU version",
            "torch was not replaced by the CPU version, and still it is slow",
        ),
    ),
    "an extension that another torch left behind, as people say it": Class(
        "extension-abi-mismatch",
        (
            "The requirements uninstalled the Torch version that was there and put another in its place, so that Xformers fails to load.",
            "flash_attn can't import since I updated torch",
            "it upgraded torch and then xformers stopped working",
        ),
        (
            "If you upgrade torch, xformers may break",
            "xformers is incompatible with AMD",
        ),
    ),
    "the driver's library, which torch opens to report on memory": Class(
        "out-of-memory",
        (
            'RuntimeError: handle_0 INTERNAL ASSERT FAILED at "../c10/cuda/driver_api.cpp":15',
            'RuntimeError: handle_1 INTERNAL ASSERT FAILED at "/pytorch/c10/cuda/driver_api.cpp":27\nIs CUDA available: True',
            'handle_0 INTERNAL ASSERT FAILED at "../c10/cuda/driver_api.cpp":15\nPython platform: Linux-5.15.90.1-microsoft-standard-WSL2-x86_64-with-glibc2.17\nIs CUDA available: True',
        ),
        ('false INTERNAL ASSERT FAILED at "/torch/csrc/autograd/engine.cpp":50',),
    ),
    "an assertion of torch's own driver calls beside a healthy GPU": Class(
        "torch-internal-error",
        (
            f'RuntimeError: stream INTERNAL ASSERT FAILED at "../c10/cuda/CUDAStream.cpp":50\n{SMI_ONE}',
            'Is CUDA available: True\nRuntimeError: false INTERNAL ASSERT FAILED at "/x/aten/src/ATen/cuda/CUDAContext.cpp":50',
            f'guard INTERNAL ASSERT FAILED at "..\\\\c10\\\\cuda\\\\CUDAGuard.h":50\n{SMI_ONE}',
        ),
        (SMI_ONE,),
    ),
    "a machine that somebody sits at, or on which it works": Class(
        "torch-sees-no-gpu unknown driver-missing torch-cpu-build no-nvidia-gpu",
        (
            "I run this on Google Colab, my laptop is a MacBook. torch.cuda.is_available() returns False",
            "Works on my Jetson Orin, but on my desktop torch.cuda.is_available() returns False",
            "JetPack 6's guide was no help since this is a desktop PC with an RTX 3090. torch.cuda.is_available() is False",
            "Intel(R) Arc(TM) Graphics in my laptop plus an eGPU RTX 3080: torch.cuda.is_available() returns False",
        ),
    ),
    "a Mac that failed, whatever works elsewhere": Class(
        "apple-silicon",
        (
            "I have a MacBook Pro M3. AssertionError: Torch not compiled with CUDA enabled",
            "On Colab it works. On my Mac torch.cuda.is_available() returns False",
            "It runs fine on my PC with an RTX 3090, on my MacBook M2: AssertionError: Torch not compiled with CUDA enabled",
        ),
        ("unlike on my Mac, on the server torch.cuda.is_available() returns False",),
    ),
}
