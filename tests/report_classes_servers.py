"""Classes of texts of small servers, of links, and of GPUs of other makers that are named in a sentence."""

from __future__ import annotations

from report_classes import Class

NOT_CUDA = "AssertionError: Torch not compiled with CUDA enabled"
HEALTHY = (
    "PyTorch version: 2.4.0+cu121\nCUDA used to build PyTorch: 12.1\nIs CUDA available: True\n"
    "GPU models and configuration: GPU 0: Tesla V100-PCIE-16GB\nNvidia driver version: 550.54.14"
)

SERVERS: dict[str, Class] = {
    "a program of Windows that ends for want of a DLL": Class(
        "windows-dll-missing",
        (
            "llama-server <chat> exited with status code -1073741515, args: x",
            "train.exe - Application Error (0xc0000135)",
            "Process finished with exit code -1073741515 (0xC0000135)",
        ),
        (
            "exited with status code -1073741819, args: x",
            "FileNotFoundError: Could not find module 'C:\\cuda\\bin\\cudnn64_8.dll' (or one of its dependencies).",
        ),
    ),
    "an assertion about the device's number, without a word of MIG": Class(
        "torch-internal-error",
        (
            "RuntimeError: device >= 0 && device < num_gpus INTERNAL ASSERT FAILED at Context.cpp:50, device=1, num_gpus=1",
            "vllm: CUDA call failed lazily at initialization with error: device >= 0 && device < num_gpus INTERNAL ASSERT FAILED",
            '  File "serve.py", line 3\nRuntimeError: device >= 0 && device < num_gpus INTERNAL ASSERT FAILED',
        ),
    ),
    "an Intel card beside torch's CUDA": Class(
        "intel-gpu",
        (
            f"The server has an Intel Arc A380.\n{NOT_CUDA}",
            f"{NOT_CUDA}\nGPU: Arc B570, Windows 11",
            f"can this node run on Intel XPU?\n{NOT_CUDA}",
        ),
        (f"RTX 4070 computes, an Arc A380 drives the screens\n{NOT_CUDA}", NOT_CUDA),
    ),
    "an AMD card by its name or its installer": Class(
        "amd-gpu",
        (
            f"RX 7700 XT, Windows 10\n{NOT_CUDA}",
            f"{NOT_CUDA}\nI bought a Radeon last week",
            "Failed to build `flash-attn==2.7.0`\ntorch.__version__  = 2.6.0+rocm6.2\nUserWarning: flash_attn was requested, but nvcc was not found.",
        ),
        (NOT_CUDA, f"GTX 1660 instead of the old RX 580\n{NOT_CUDA}"),
    ),
    "errors of the GPU's link": Class(
        "pcie-degraded",
        (
            "nvidia 0000:01:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
            "[ 42.1] nvidia 0000:0a:00.0: AER: PCIe Bus Error: severity=Corrected, type=Data Link Layer",
            "kernel: nvidia 0000:65:00.0: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer",
        ),
        (
            "nvme 0000:04:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer",
            "nvidia 0000:01:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer\nNVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.",
        ),
    ),
    "NVML that answers 999, without a container": Class(
        "nvml-init-failed",
        (
            'level=INFO msg="Unable to load CUDA management library /usr/lib/libnvidia-ml.so: nvml vram init failure: 999"',
            "nvml init failure: 999",
            "gpu.go:249: libnvidia-ml.so.535.54.03: nvml vram init failure: 999\nno GPU detected",
        ),
        ("nvml vram init failure: 9", "docker exec x nvidia-smi\nNVML: Unknown Error"),
    ),
    "Unsloth that finds a GPU too old": Class(
        "gpu-too-old-for-triton",
        (
            "Unsloth: Your GPU is too old!\n   NVIDIA GeForce GTX 1080. Num GPUs = 1",
            "RuntimeError: Unsloth: Your GPU is too old!",
            "==((====))== Unsloth 2025.1\nTesla P100-PCIE-16GB\nUnsloth: Your GPU is too old!",
        ),
        ("Unsloth: Your torch is too old!", "Unsloth runs, though the GPU is old"),
    ),
    "a program that finds no GPU where torch sees one": Class(
        "torch-sees-no-gpu cuda-visible-devices-hidden",
        (
            f"Torch is not able to use GPU\n{HEALTHY}",
            f"RuntimeError: Torch is not able to use GPU; add --skip-torch-cuda-test to the arguments\n{HEALTHY}",
            f"[Bug]: Torch is not able to use GPU\n\n### Console logs\n{HEALTHY}",
        ),
        (f"the picture is grey\n{HEALTHY}",),
    ),
    "a pod that waits for a GPU, in a sentence": Class(
        "k8s-gpu-not-allocatable",
        (
            "I asked for nvidia.com/gpu: 1, and since then the pod stays in the pending state",
            "A GPU was asked for, but my pod is stuck in Pending; nvidia-smi works on the node",
            "resources:\n  limits:\n    nvidia.com/gpu: 4\nthe job remains pending",
        ),
        ("the pod of the web server is stuck in Pending", "nvidia.com/gpu: 1\nthe pod runs"),
    ),
    "a torch that only the build does not see": Class(
        "build-isolation-no-torch torch-missing",
        (
            "File \"<string>\", line 20, in <module>\nModuleNotFoundError: No module named 'torch'\n[end of output]",
            "  File \"<string>\", line 5, in build\n    ModuleNotFoundError: No module named 'torch'\n    [end of output]\n$ pip list\ntorch 2.6.0+cu126",
            "error: subprocess-exited-with-error\nFile \"<string>\", line 9, in <module>\nModuleNotFoundError: No module named 'torch'\n[end of output]",
        ),
        (
            "File \"setup.py\", line 3\nModuleNotFoundError: No module named 'yaml'\n[end of output]",
        ),
    ),
    "a board with NVSwitch that is not ready, in a sentence": Class(
        "system-not-ready-fabric-manager",
        (
            "CUDA initialization fails with 802 system error on our H200 nodes",
            "CUDA Error 802 on every multi-GPU job\nClient: Platform: macOS-26.1-arm64-arm-64bit",
            "CUDA error 802: the job never starts",
        ),
        ("the page was answered with error 802", "CUDA Error 35 on every job"),
    ),
    "a DLL that a loader names, without WinError": Class(
        "windows-dll-missing",
        (
            "Failed to load onnxruntime_providers_cuda.dll, error code: 1114",
            'Error loading "D:\\env\\Lib\\site-packages\\torch\\lib\\fbgemm.dll" or one of its dependencies.',
            "failed to load engine_gpu.dll with error 126",
        ),
        ("failed to load the settings, error code: 7",),
    ),
    "a start of ComfyUI whose other backends are listed": Class(
        "unknown ok",
        tuple(
            "H:\\x>py main.py\n[INFO] Found comfy_kitchen backend triton: {'available': False, "
            f"'disabled': {disabled}, 'unavailable_reason': \"ImportError: No module named 'triton'\", "
            "'capabilities': []}\n[INFO] Python version: 3.12.10"
            for disabled in ("True", "False", "None")
        ),
        ("H:\\x>py main.py\nModuleNotFoundError: No module named 'triton'",),
    ),
    "a driver that does not answer nvidia-smi, in a sentence": Class(
        "driver-not-loaded",
        (
            "The key is enrolled, and nvidia-smi still tells me it could not connect to the Nvidia driver",
            "after the update nvidia-smi is unable to talk to the NVIDIA driver",
            "nvidia-smi says it can't connect to the NVIDIA driver, lsmod shows no nvidia",
        ),
        ("nvidia-smi works, but I could not connect to the server with the NVIDIA driver page",),
    ),
    "an environment of conda that was written down with its builds": Class(
        "package-not-found",
        (
            "Solving environment: failed\n\nResolvePackageNotFound:\n  - pytorch==1.4.0=py3.7_cuda10.1.243_cudnn7.6.3_0",
            "Platform: win-64\nPackagesNotFoundError: The following packages are not available from current channels:\n\n  - mkl==2023.1.0=h213fc3f_46344",
            "ResolvePackageNotFound:\n  - cudatoolkit=11.3.1=h2bc3f7f_2",
        ),
        (
            "PackagesNotFoundError: The following packages are not available from current channels:\n\n  - pytorch-cuda=12.9",
            "ResolvePackageNotFound:\n  - pytorch=9.9",
        ),
    ),
    "a framework that looks for CUDA beside another maker's card": Class(
        "intel-gpu amd-gpu",
        (
            "Windows 11, WSL2, card: Intel Arc A770\ncudart_stub.cc:28] Could not find cuda drivers on your machine, GPU will not be used.",
            "Intel Arc B580, Ubuntu\ncudart_stub.cc:31] Could not find cuda drivers on your machine, GPU will not be used.",
            "AMD RX 7800 XT in WSL2\ncudart_stub.cc:31] Could not find cuda drivers on your machine, GPU will not be used.",
        ),
        (
            f"{HEALTHY}\nIntel Arc A380 for the screen\ncudart_stub.cc:31] Could not find cuda drivers on your machine, GPU will not be used.",
            "Ubuntu on WSL2\ncudart_stub.cc:31] Could not find cuda drivers on your machine, GPU will not be used.",
        ),
    ),
    "a package whose list of DLLs has holes": Class(
        "cuda-lib-missing",
        (
            "Failed to import CuPy.\nDLL dependencies:\nKERNEL32.dll -> C:\\Windows\\System32\\KERNEL32.DLL\ncublas64_11.dll -> not found",
            "CuPy is not correctly installed.\ncudart64_12.dll -> not found\ncufft64_11.dll -> not found",
            "CUDA Path: None\nDLL dependencies:\nnvrtc64_112_0.dll -> not found",
        ),
        ("Failed to import CuPy.\nDLL dependencies:\ncuTENSOR.dll -> not found",),
    ),
    "nouveau holds the card, as lists of hardware show it": Class(
        "driver-not-loaded",
        (
            "product: TU117M\nvendor: NVIDIA Corporation\nclock: 33MHz\nconfiguration: depth=32 driver=nouveau latency=0\ncupy sees no GPU",
            "*-display\nproduct: GP107 [GeForce GTX 1050]\nvendor: NVIDIA Corporation\nphysical id: 0\nconfiguration: driver=nouveau latency=0",
            "Graphics: Device-1: NVIDIA GA107M vendor: ASUSTeK driver: nouveau v: kernel",
        ),
        (
            "product: TU117M\nvendor: NVIDIA Corporation\nconfiguration: depth=32 driver=nvidia latency=0",
            "product: Navi 23\nvendor: AMD\nconfiguration: driver=amdgpu latency=0",
        ),
    ),
    "an exception that only passes on another": Class(
        "program-failed",
        (
            "AttributeError: Qwen2Tokenizer has no attribute all_special_tokens\nray.exceptions.ActorDiedError: The actor died because of an error raised in its creation task",
            "# KeyError: 'rope_scaling'\n\nray.exceptions.RayTaskError: ray::train()",
            "ValueError: unknown tokenizer class\ntorch.distributed.elastic.multiprocessing.errors.ChildFailedError: train.py FAILED",
        ),
        (
            "RuntimeError: CUDA error: no kernel image is available for execution on the device\nray.exceptions.ActorDiedError: The actor died",
            "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: train.py FAILED",
        ),
    ),
    "a torch without CUDA, known by its version alone": Class(
        "torch-cpu-build",
        (
            "My card is an RTX 3070 and ComfyUI runs on the CPU, the window says 2.6.0+cpu",
            "generation is slow, the log shows 2.8.0+cpu and the GPU is idle",
            "the GPU stays idle and it still says 2.7.1+cpu after the second try",
        ),
        (
            "I want 2.6.0+cpu on the server without a GPU",
            "which file is 2.6.0+cpu?",
        ),
    ),
    "a Radeon card as people write it": Class(
        "amd-gpu",
        (
            "the window opens but my rx580 stays idle, everything runs on the cpu",
            "rx 6700xt not detected by the program",
            "My 9060XT is not used, only the processor",
        ),
        (
            "eth0: RX packets 580, TX packets 600",
            "RTX 4060 is not detected",
        ),
    ),
    "an Arc card without its number": Class(
        "intel-gpu",
        (
            "Intel Arc GPU (XPU) is not detected after the update",
            "the program does not see my Intel Arc Graphics",
            "laptop with Intel Arc 140V: it falls back to the CPU",
        ),
        (
            "it runs on NVIDIA, AMD and Intel Arc GPU, mine is an RTX 3060",
            "support for Intel Arc GPU is planned",
        ),
    ),
    "a Mac by its chip": Class(
        "apple-silicon",
        (
            "RuntimeError: Torch not compiled with CUDA enabled\nMac M4",
            "Found no NVIDIA driver on your system\nmacOS M2, 16 GB",
            "AssertionError: Torch not compiled with CUDA enabled, on an M3 MacBook",
        ),
        ("The M2 slot holds the disk, RTX 3060\nTorch not compiled with CUDA enabled",),
    ),
    "WSL whose GPUs have no handle": Class(
        "wsl-driver",
        tuple(
            f"nvidia-smi inside WSL2 says:\nUnable to determine the device handle for {gpu}: {bus}: Unknown Error\nNo devices were found"
            for gpu, bus in (
                ("GPU0", "0000:C1:00.0"),
                ("GPU1", "0000:E1:00.0"),
                ("GPU0", "0000:01:00.0"),
            )
        ),
        (
            "Unable to determine the device handle for GPU0: 0000:C1:00.0: Unknown Error\nUbuntu 22.04",
        ),
    ),
    "a missing kernel of a card that is called by its number": Class(
        "arch-too-new-for-wheel",
        (
            "works fine for 4090 but on a 5090: RuntimeError: CUDA error: no kernel image is available for execution on the device",
            "CUDA error: no kernel image is available for execution on the device\nrtx 5080 16gb",
            "my rtx5070 ti says CUDA error: no kernel image is available for execution on the device",
        ),
        (
            "CUDA error: no kernel image is available for execution on the device, at step 5090 of 6000.",
            "CUDA error: no kernel image is available for execution on the device: a 5090 or a 1080, who knows\nrtx 5090, gtx 1080",
        ),
    ),
}
