"""Further classes of texts: builds of images, Kubernetes, vGPUs, downloads, kernels, libraries, other makers.

As `report_classes`: composed in our own frame around the lines that the programs print.
"""

from __future__ import annotations

from report_classes import NO_DRIVER, NO_GPUS, NO_IMAGE, SMI_ONE, Class

INIT = "ggml_cuda_init: failed to initialize CUDA:"
UNSUPPORTED = "RuntimeError: CUDA error: operation not supported"
INVALID = "RuntimeError: Triton Error [CUDA]: device kernel image is invalid"
CODEC = "RuntimeError: Could not load libtorchcodec. Likely causes:\n  1. FFmpeg is not properly installed in your environment."

FURTHER: dict[str, Class] = {
    "llama.cpp cannot start CUDA: unknown error": Class(
        "cuda-unknown-error uvm-missing",
        (
            f"$ ./llama-server -m q.gguf -ngl 99\n{INIT} unknown error",
            f"{INIT} unknown error\nload_backend: loaded CPU backend from libggml-cpu-haswell.so",
            'RuntimeError: CUDA failed with error unknown error\n  File "/x/site-packages/faster_whisper/transcribe.py", line 600',
        ),
        (
            f"{INIT} CUDA driver version is insufficient for CUDA runtime version",
            f"{INIT} no CUDA-capable device is detected",
        ),
    ),
    "llama.cpp cannot start CUDA for want of memory": Class(
        "cuda-init-out-of-memory out-of-memory",
        (
            f"$ llama-cli -m q.gguf\n{INIT} out of memory",
            f"{INIT} out of memory\nwarning: no usable GPU found, --gpu-layers option will be ignored",
            "RuntimeError: CUDA failed with error out of memory",
        ),
        (f"{INIT} unknown error", "nginx: out of memory"),
    ),
    "a vGPU profile for desktops": Class(
        "vgpu-no-compute",
        (
            f"The guest has an NVIDIA A16-8A with driver 528.24\n{UNSUPPORTED}",
            f"NVIDIA GRID RTX6000-8A\nCUDA kernel errors might be asynchronously reported\n{UNSUPPORTED}",
            f"{UNSUPPORTED}\nvGPU: NVIDIA L40S-4B",
        ),
        (
            f"The guest has an NVIDIA A16-8Q with driver 528.24\n{UNSUPPORTED}",
            f"A100-80GB, board A16-8A1\n{UNSUPPORTED}",
        ),
    ),
    "a node of Kubernetes that offers no GPU": Class(
        "k8s-gpu-not-allocatable container-toolkit-missing",
        (
            "$ kubectl describe node gpu-a\nCapacity:\n  cpu:                16\n  nvidia.com/gpu:     0\nAllocatable:\n  nvidia.com/gpu:     0",
            "$ kubectl get pods -n gpu-operator\nnvidia-device-plugin-daemonset-x7k2p      0/1     CrashLoopBackOff   14 (3m ago)   52m",
            "NAME   READY STATUS RESTARTS AGE\nnvidia-operator-validator-abcde   0/1   Init:0/4   0   52m",
        ),
        (
            "$ kubectl describe node gpu-a\nAllocatable:\n  nvidia.com/gpu:     8",
            "$ kubectl get pods -n gpu-operator\nnvidia-device-plugin-daemonset-x7k2p      1/1     Running   0   52m",
        ),
    ),
    "a download that takes too long": Class(
        "download-network-error",
        (
            'ERROR: Exception:\n  File "/usr/lib/python3/dist-packages/pip/_vendor/urllib3/response.py", line 438, in _error_catcher\nTimeoutError: The read operation timed out',
            "WARNING: Retrying (Retry(total=4, connect=None, read=None)) after connection broken by 'ConnectTimeoutError(<pip._vendor.urllib3.connection.HTTPSConnection object at 0x7f11>, 'Connection to download.pytorch.org timed out. (connect timeout=15)')': /whl/cu126/torch/",
            '$ pip3 install torch torchvision\n  File "/x/ssl.py", line 1166, in read\nsocket.timeout: The read operation timed out',
        ),
        (
            "redis.exceptions.TimeoutError: The read operation timed out",
            "RuntimeError: Watchdog: work timed out",
        ),
    ),
    "a step of an image's build that asks for a GPU": Class(
        "container-no-gpu",
        (
            f'#12 31.9 {NO_GPUS}\n------\nERROR: failed to solve: process "/bin/sh -c python warm.py" did not complete successfully: exit code: 1',
            f"Step 9/12 : RUN python warm.py\n ---> Running in 3f2ab1c9d0e1\n{NO_DRIVER}\nThe command '/bin/sh -c python warm.py' returned a non-zero code: 1",
            'RUN python -c "import torch; assert torch.cuda.is_available()"\nTraceback (most recent call last):\nAssertionError\nfailed to solve: process "/bin/sh -c python -c x" did not complete successfully: exit code: 1',
        ),
        (
            'ERROR: failed to solve: process "/bin/sh -c make" did not complete successfully: exit code: 2',
            f"$ python warm.py\n{NO_GPUS}",
        ),
    ),
    "a library that may not be mapped": Class(
        "library-not-mapped",
        (
            "ImportError: libcusparseLt.so.0: failed to map segment from shared object",
            "OSError: /home/u/.local/lib/python3.10/site-packages/torch/lib/libtorch_cuda.so: failed to map segment from shared object: Operation not permitted",
            "ImportError: /tmp/_MEI4/numpy/_multiarray.cpython-311-x86_64-linux-gnu.so: failed to map segment from shared object",
        ),
        (
            "ImportError: libcusparseLt.so.0: cannot open shared object file: No such file or directory",
            "RuntimeError: failed to map segment 4 of the volume",
        ),
    ),
    "Triton's kernels on a driver of CUDA 11": Class(
        "driver-too-old",
        (
            f"PyTorch version: 2.2.0+cu118\nNvidia driver version: 470.182.03\n{INVALID}",
            f"{INVALID}\nPyTorch version: 2.4.1+cu118\nNvidia driver version: 515.105.01",
            f"torch 2.1.2+cu118\n| NVIDIA-SMI 510.47.03    Driver Version: 510.47.03    CUDA Version: 11.6     |\n{INVALID}",
        ),
        (
            f"PyTorch version: 2.2.0+cu118\nNvidia driver version: 535.183.01\n{INVALID}",
            f"PyTorch version: 2.0.1+cu118\nNvidia driver version: 470.182.03\n{INVALID}",
        ),
    ),
    "torchvision's image library lacks a symbol of torch": Class(
        "torchvision-mismatch",
        (
            "UserWarning: Failed to load image Python extension: '/x/site-packages/torchvision/image.so: undefined symbol: _ZN5torch3jit17parseSchemaOrNameERKSs'If you don't plan on using image functionality",
            "torch-2.1.0a0-linux_aarch64.whl, torchvision 0.16.2\nFailed to load image Python extension: /usr/lib/python3/dist-packages/torchvision/image.so: undefined symbol: _ZN3c106detail19maybe_wrap_dim_slowIlEET_S2_S2_b",
            "torchvision/io/image.py:13: UserWarning: Failed to load image Python extension: '/opt/x/torchvision/image.so: undefined symbol: _ZN3c1017RegisterOperatorsD1Ev'",
        ),
        (
            "UserWarning: Failed to load image Python extension: 'libjpeg.so.8: version not found'",
            "UserWarning: Failed to load image Python extension: '/x/torchvision/image.so: undefined symbol: _ZN3c105ErrorC2Ev'\ntorch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
        ),
    ),
    "an extension that was installed beside torch": Class(
        "extension-arch-mismatch",
        (
            f"$ pip install causal-conv1d && pip install mamba-ssm\n{NO_IMAGE}",
            f"!pip install flash-attn --no-build-isolation\n{NO_IMAGE}",
            f"pip3 install --no-cache-dir gsplat\n>>> rasterize()\n{NO_IMAGE}",
        ),
        (
            f"pip install numpy\n{NO_IMAGE}",
            f"NVIDIA GeForce GTX 680 with CUDA capability sm_30\npip install tqdm\n{NO_IMAGE}",
        ),
    ),
    "a compiler that the host's memory ends": Class(
        "host-out-of-memory",
        (
            "nvcc error   : 'cicc' died due to signal 9 (Kill signal)\nninja: build stopped: subcommand failed.",
            "c++: fatal error: Killed signal terminated program cc1plus\ncompilation terminated.",
            '  File "/x/pip/_vendor/cachecontrol/serialize.py", line 3, in dumps\nMemoryError',
        ),
        (
            "ninja: build stopped: subcommand failed.",
            "  Downloading torch-2.6.0-cp311-cp311-manylinux1_x86_64.whl (766.7 MB)\nSuccessfully installed torch. Then I killed it",
        ),
    ),
    "torchcodec without FFmpeg, and with the wrong torch": Class(
        "program-requirement-missing",
        (
            f"{CODEC}\nFFmpeg version 7: libavutil.so.59: cannot open shared object file: No such file or directory",
            CODEC,
            "OSError: libavcodec.so.58: cannot open shared object file: No such file or directory",
        ),
        (
            f"{CODEC}\nFFmpeg version 7: /x/site-packages/torchcodec/libtorchcodec_core7.so: undefined symbol: _ZNK3c106Device3strB5cxx11Ev",
            f"{CODEC}\nFFmpeg version 6: libnppicc.so.12: cannot open shared object file: No such file or directory",
        ),
    ),
    "a program that was built without CUDA": Class(
        "program-without-gpu-support",
        (
            "xgboost.core.XGBoostError: XGBoost version not compiled with GPU support.",
            "lightgbm.basic.LightGBMError: GPU Tree Learner was not enabled in this build.",
            "cv2.error: OpenCV(4.8.0) error: (-216:No CUDA support) The library is compiled without CUDA support in function 'throw_no_cuda'",
        ),
        (
            "cv2.error: OpenCV(4.8.0) error: (-215:Assertion failed) !_src.empty() in function 'cvtColor'",
            f"{INIT} unknown error\nwarning: one possible reason is that llama.cpp was compiled without GPU support",
        ),
    ),
    "a torch that lacks a name which a package imports": Class(
        "program-release-too-old",
        (
            "ImportError: cannot import name 'float8_e8m0fnu' from 'torch' (/opt/venv/lib/python3.11/site-packages/torch/__init__.py)",
            "ImportError: cannot import name 'DTensor' from 'torch.distributed.tensor' (/x/lib/python3.10/site-packages/torch/distributed/tensor/__init__.py)",
            "ImportError: cannot import name 'flex_attention' from 'torch.nn.attention' (C:\\w\\venv\\lib\\site-packages\\torch\\nn\\attention\\__init__.py)",
        ),
        (
            "ImportError: cannot import name 'Tensor' from 'torch' (/home/u/work/torch.py)",
            "ImportError: cannot import name 'x' from 'numpy' (/x/site-packages/numpy/__init__.py)",
        ),
    ),
    "WSL without an adapter": Class(
        "wsl-driver",
        (
            "docker: Error response from daemon: nvidia-container-cli: initialization error: WSL environment detected but no adapters were found: unknown.",
            "stderr: Auto-detected mode as 'legacy'\nnvidia-container-cli: initialization error: WSL environment detected but no adapters were found: unknown",
            "$ /usr/lib/wsl/lib/nvidia-smi\nSegmentation fault (core dumped)",
        ),
        (
            "nvidia-container-cli: ldcache error: open failed: /sbin/ldconfig.real: no such file or directory: unknown.",
        ),
    ),
    "Intel's GPU by the runtime's codes": Class(
        "intel-gpu",
        (
            "RuntimeError: UR error: UR_RESULT_ERROR_DEVICE_LOST",
            "RuntimeError: Can't add devices across platforms to a single context. -33 (PI_ERROR_INVALID_DEVICE)",
            'OSError: [WinError 126] The specified module could not be found. Error loading "C:\\x\\intel_extension_for_pytorch\\bin\\intel-ext-pt-gpu.dll" or one of its dependencies.',
        ),
        (
            'OSError: [WinError 126] The specified module could not be found. Error loading "C:\\x\\torch\\lib\\fbgemm.dll" or one of its dependencies.',
        ),
    ),
    "AMD's GPU that ROCm does not find": Class(
        "amd-gpu",
        (
            "rocBLAS error: Could not initialize Tensile host: No devices found",
            "$ rocminfo\nROCk module is NOT loaded, possibly no GPU devices",
            "ggml_cuda_init: failed to initialize ROCm: no ROCm-capable device is detected",
        ),
        (f"{INIT} no CUDA-capable device is detected",),
    ),
    "a build of CMake without a CUDA compiler": Class(
        "cuda-toolkit-missing",
        (
            "CMake Error at CMakeLists.txt:3 (project):\n  No CMAKE_CUDA_COMPILER could be found.",
            "-- The CUDA compiler identification is unknown\nCMAKE_CUDA_COMPILER-NOTFOUND",
            "CMake Error: CMAKE_CUDA_COMPILER is set to a NOTFOUND value\nCMAKE_CUDA_COMPILER-NOTFOUND",
        ),
        ("CMake Error: CMAKE_CXX_COMPILER not set, after EnableLanguage",),
    ),
    "a build's wheel that the network cut": Class(
        "download-network-error",
        (
            "Guessing wheel URL:  https://example.org/x.whl\nerror: <urlopen error [Errno 104] Connection reset by peer>",
            "urllib.error.URLError: <urlopen error [Errno 110] Connection timed out>",
            "error: <urlopen error [WinError 10060] A connection attempt failed>",
        ),
        ("urllib.error.URLError: <urlopen error [Errno 2] No such file or directory: 'x.whl'>",),
    ),
    "a title that names the CPU build": Class(
        "torch-cpu-build",
        (
            f"torch.cuda.is_available() returns False on GTX 1650 with torch==2.0.0+cpu\n{SMI_ONE}",
            f"CUDA not available with torch==2.6.0+cpu on Windows\n{SMI_ONE}",
            f"GPU not detected, python 3.11, torch==2.4.1+cpu\n{SMI_ONE}",
        ),
        (f"torch.cuda.is_available() returns False, torch==2.6.0+cu124\n{SMI_ONE}",),
    ),
}
