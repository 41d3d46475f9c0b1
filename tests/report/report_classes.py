"""Classes of texts: what each variant means, and what its neighbours must not be taken for.

Composed in our own frame around the lines that the programs print; versions, paths and names are
made up. A class is learned when its variants are right and its neighbours are something else.
"""

from __future__ import annotations

from typing import NamedTuple


class Class(NamedTuple):
    """Texts of one cause, and texts near them that mean something else."""

    causes: str
    """Any one of them is right for every variant."""
    variants: tuple[str, ...]
    neighbours: tuple[str, ...] = ()
    """Texts that must not be given the first of `causes`."""


NO_GPUS = "RuntimeError: No CUDA GPUs are available"
NO_DRIVER = "RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU and installed a driver"
NO_IMAGE = "RuntimeError: CUDA error: no kernel image is available for execution on the device"
SMI_ONE = """\
| NVIDIA-SMI 570.86.15              Driver Version: 570.86.15      CUDA Version: 12.8     |
|   0  NVIDIA GeForce RTX 4090        Off |   00000000:01:00.0 Off |                  N/A |
| 30%   36C    P8             20W /  450W |     413MiB /  24564MiB |      0%      Default |
"""
SMI_591 = """\
| NVIDIA-SMI 591.44                 Driver Version: 591.44         CUDA Version: 13.1     |
|   0  NVIDIA GeForce RTX 4060      WDDM  |   00000000:01:00.0 Off |                  N/A |
| N/A   41C    P8              2W /   35W |      98MiB /   8188MiB |      0%      Default |
"""
X86_BUILD = "creating build\\lib.win32-cpython-311\nerror: subprocess-exited-with-error"

CLASSES: dict[str, Class] = {
    "a container that was started without its GPU": Class(
        "container-no-gpu",
        (f"$ docker run -it --rm -v $PWD:/src trainer:latest python train.py\n{NO_GPUS}",),
        (f"docker run --gpus all -it img python train.py\n{NO_IMAGE}",),
    ),
    "a program that hides the GPU itself": Class(
        "cuda-visible-devices-hidden",
        (
            f'import os\nos.environ["CUDA_VISIBLE_DEVICES"] = "-1"\nimport torch\n>>> torch.cuda.init()\n{NO_GPUS}',
        ),
        (f"CUDA_VISIBLE_DEVICES=0 python train.py\n{NO_IMAGE}",),
    ),
    "nvidia-smi alone, whatever the driver": Class(
        "ok",
        (
            "==============NVSMI LOG==============\n\nDriver Version                      : 390.157\nCUDA Version                        : 9.1\n\nAttached GPUs                       : 1\nGPU 00000000:84:00.0\n    Performance State               : P8\n    Clocks Throttle Reasons\n        Idle                        : Active",
        ),
        (
            SMI_ONE
            + "RuntimeError: The NVIDIA driver on your system is too old (found version 10010).",
        ),
    ),
    "a GPU whose name is followed by words": Class(
        "arch-too-old-for-wheel",
        (f"Tesla V100 gpu error issue\n{NO_IMAGE}\nTorch version: 2.11.0+cu128",),
        (f"RTX 4090 card not working any more\n{NO_IMAGE}\n>>> torch.__version__\n'2.9.0+cu130'",),
    ),
    "a PCIe link that runs slower than it could": Class(
        "pcie-degraded",
        (
            "LnkCap: Port #0, Speed 16GT/s, Width x16, ASPM L1, Exit Latency L1 <16us\nLnkSta: Speed 2.5GT/s (downgraded), Width x16 (ok)",
        ),
        (
            f"LnkCap: Port #0, Speed 16GT/s, Width x16\nLnkSta: Speed 2.5GT/s (downgraded), Width x16 (ok)\n{NO_IMAGE}",
        ),
    ),
    "a stub of libcuda that was loaded": Class(
        "libcuda-stub",
        (
            "numba.cuda.cudadrv.driver.CudaAPIError: [34]\nFinding driver from candidates:\n        libcuda.so\nUsing loader <class 'ctypes.CDLL'>\n        Mapped libcuda.so paths:\n                /usr/local/cuda-12.2/targets/x86_64-linux/lib/stubs/libcuda.so",
        ),
        (
            "Mapped libcuda.so paths:\n                /usr/lib/x86_64-linux-gnu/libcuda.so.550.54.14\nnumba.cuda.cudadrv.driver.CudaAPIError: [100]",
        ),
    ),
    "a companion whose torch library is not here": Class(
        "torchaudio-mismatch",
        (
            "OSError: libtorch_hip.so: cannot open shared object file: No such file or directory\nFile ~/venv/lib/python3.8/site-packages/torchaudio/__init__.py:1, in <module>",
        ),
        (
            '  File "/x/site-packages/mmcv/ops/__init__.py", line 2\nImportError: libtorch_cuda_cu.so: cannot open shared object file: No such file or directory',
        ),
    ),
    "a GPU that a laptop's switch has off, in words": Class(
        "hybrid-gpu-off",
        (
            "$ sudo envycontrol -s integrated\n$ lspci | grep VGA\n00:02.0 VGA compatible controller: Intel Corporation Raptor Lake-P [Iris Xe Graphics]",
        ),
        (f"$ sudo envycontrol -s integrated\n$ sudo envycontrol -s hybrid\n{SMI_591}",),
    ),
    "JAX beside an older cuDNN": Class(
        "ld-library-path-conflict",
        (
            "RuntimeError: Backend 'cuda' failed to initialize: Unable to use CUDA because of the following issues with CUDA components:\nOutdated cuDNN installation found.\nVersion JAX was built against: 8907\nMinimum supported: 9100",
        ),
        ("Could not load library libcudnn_ops_infer.so.8",),
    ),
    "a build that ends in an ordinary exception": Class(
        "unknown build-isolation-no-torch build-requirement-missing program-requirement-missing",
        (
            'Failed to build `apex==0.1`\n  File "/x/builds-v0/.tmpA/setuptools/build_meta.py", line 512, in run_setup\n  File "<string>", line 22, in <module>\nModuleNotFoundError: No module na',
        ),
        (),
    ),
    "a driver that is too new in memory for a container": Class(
        "nvml-mismatch",
        (
            "nvidia-container-cli: initialization error: nvml error: driver/library version mismatch: unknown",
        ),
        (
            "nvidia-container-cli: initialization error: cgroup subsystem devices not found: unknown",
        ),
    ),
    "a package that replaced torch": Class(
        "torch-cpu-build",
        (
            "Installing collected packages: torch, optimum\n  Attempting uninstall: torch\n    Found existing installation: torch 2.6.0+cu124\n    Uninstalling torch-2.6.0+cu124:\n      Successfully uninstalled torch-2.6.0+cu124\nSuccessfully installed optimum-1.2 torch-2.8.0+cpu\nAssertionError: Torch not compiled with CUDA enabled",
        ),
        (
            "  Attempting uninstall: torch\n    Found existing installation: torch 2.6.0+cpu\n    Uninstalling torch-2.6.0+cpu:\nSuccessfully installed torch-2.6.0+cu124",
        ),
    ),
    "a UVM that does not start with HMM": Class(
        "cuda-unknown-error uvm-missing cuda-init-failed",
        (
            "| NVIDIA-SMI 575.57.08              Driver Version: 575.57.08      CUDA Version: 12.8     |\n|   0  NVIDIA GeForce RTX 5090        Off |   00000000:01:00.0 Off |                  N/A |\n| 30%   36C    P8             20W /  450W |     413MiB /  24564MiB |      0%      Default |\nRuntimeError: CUDA unknown error - this may be due to an incorrectly set up environment, e.g. changing env variable CUDA_VISIBLE_DEVICES after program start. Setting the available devices to be zero.\n$ cat /etc/modprobe.d/uvm.conf\noptions nvidia_uvm uvm_disable_hmm=1",
        ),
        (
            "| NVIDIA-SMI 570.86.15              Driver Version: 570.86.15      CUDA Version: 12.8     |\n|   0  NVIDIA GeForce RTX 4090        Off |   00000000:01:00.0 Off |                  N/A |\n| 30%   36C    P8             20W /  450W |     413MiB /  24564MiB |      0%      Default |\ncudaGetDeviceCount returned 35\n-> CUDA driver version is insufficient for CUDA runtime version",
        ),
    ),
    "a Jetson with the default index's wheel": Class(
        "jetson-wrong-wheel",
        (
            "Linux ubuntu 5.15.148-tegra #1 SMP aarch64 GNU/Linux\n$ pip3 install torch torchvision\n>>> torch.cuda.is_available()\nFalse\n>>> torch.__version__\n'2.7.1'",
        ),
        ("NVIDIA DGX Spark, aarch64\nPyTorch version: 2.9.0+cu130\nCUDA available: True",),
    ),
    "uv: no wheel for this platform": Class(
        "no-wheel-for-platform python-no-wheel",
        (
            "  × No solution found when resolving dependencies for split (python_full_version >= '3.12' and sys_platform == 'darwin'):\n  ╰─▶ Because torch==2.7.1+cu128 has no wheels with a matching platform tag (e.g., `macosx_14_0_arm64`) and your project depends on torch==2.7.1+cu128",
        ),
    ),
    "uv, pixi: a conflict": Class(
        "resolver-conflict",
        (
            "  × No solution found when resolving dependencies:\n  ╰─▶ Because torchvision==0.20.1 depends on torch==2.5.1 and your project depends on torch==2.6.0, we can conclude that your project and torchvision==0.20.1 are incompatible.",
        ),
    ),
    "pixi: no CUDA on this machine": Class(
        "conda-cuda-virtual-missing",
        (
            "Error:   × failed to solve requirements of environment 'gpu' for platform 'linux-64'\n  ╰─▶ Cannot solve the request because of: The following packages are incompatible\n      └─ pytorch-gpu * can be installed with any of the following options:\n         └─ pytorch-gpu 2.6.0 would require\n            └─ __cuda *, for which no candidates were found.",
        ),
    ),
    "a hosted notebook without a GPU": Class(
        "no-nvidia-gpu container-no-gpu torch-sees-no-gpu driver-missing",
        ("/content/drive/MyDrive/x\nRuntimeError: Found no NVIDIA driver on your system.",),
    ),
    "a scheduler that gave no GPU": Class(
        "torch-sees-no-gpu cuda-visible-devices-hidden program-failed no-nvidia-gpu driver-missing unknown",
        (
            "$ srun -p cpu --pty bash\n$ python -c 'import torch; print(torch.cuda.is_available())'\nFalse\nSLURM_JOB_GPUS is unset\nCUDA_VISIBLE_DEVICES=NoDevFiles",
        ),
    ),
    "a toolkit's refusal: cgroup, filter, rpc": Class(
        "container-hook-failed",
        (
            "docker: Error response from daemon: failed to create task for container: OCI runtime create failed: error running hook #0: exit status 1, stderr: Auto-detected mode as 'legacy'\nnvidia-container-cli: mount error: failed to add device rules: unable to find any existing device filters attached to the cgroup: bpf_prog_query(BPF_CGROUP_DEVICE) failed: operation not permitted: unknown.",
        ),
        (
            "nvidia-container-cli: initialization error: load library failed: libnvidia-ml.so.1: cannot open shared object file: no such file or directory: unknown",
        ),
    ),
    "CDI refused": Class(
        "container-cdi-unresolvable",
        (
            'docker: Error response from daemon: could not select device driver "cdi" with capabilities: [[gpu]]',
        ),
    ),
    "AMD: no access to the device nodes": Class(
        "amd-gpu maker-device-permission",
        (
            '$ rocminfo\nROCk module is loaded\nUnable to open /dev/kfd read-write: Permission denied\nuser is not member of "render" group, the default DRM access group.',
        ),
    ),
    "AMD: gfx not built for": Class(
        "amd-gpu",
        (
            "HSA_OVERRIDE_GFX_VERSION=10.3.0 python main.py\nRuntimeError: HIP error: the operation cannot be performed in the present state",
        ),
    ),
    "Intel: nothing of Level Zero": Class(
        "intel-gpu",
        (
            ">>> torch.xpu.is_available()\nFalse\n>>> torch.xpu.device_count()\n0\n>>> torch.__version__\n'2.9.0+xpu'",
        ),
    ),
    "another maker's memory that runs out": Class(
        "out-of-memory",
        (
            "RuntimeError: Native API failed. Native API returns: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)\nxpu",
        ),
    ),
    "another maker's backend in use: what failed is another thing": Class(
        "unknown program-failed cuda-program-error loss-diverges",
        (">>> torch.xpu.is_available()\nTrue\nIntel(R) Arc(TM) A770 Graphics\nKeyError: 'labels'",),
        ("Mac mini M4\nUsing device: mps\nAssertionError: Torch not compiled with CUDA enabled",),
    ),
    "what failed after hours or steps of work": Class(
        "unknown",
        ("step 41200 loss 1.93\nRuntimeError: CUDA error: unknown error",),
        ("After an update the first call fails: RuntimeError: CUDA error: unknown error",),
    ),
    "JAX or TensorFlow on the CPU beside a program that computes": Class(
        "unknown program-failed",
        (
            "Training on cuda:0\nWARNING:absl:No GPU/TPU found, falling back to CPU.\nIndexError: list index out of range",
        ),
    ),
    "Apple: what MPS lacks": Class(
        "apple-silicon",
        ("macOS 14.5, Apple M1 Pro\ntorch.backends.mps.is_available() -> False",),
        ("MPS client failed to connect to the MPS control daemon or the MPS server",),
    ),
    "a program that fails by itself": Class(
        "program-failed",
        (
            "ValueError: The checkpoint you are trying to load has model type `qwen3_moe` but Transformers does not recognize this architecture.",
        ),
        ("RuntimeError: CUDA error: invalid argument",),
    ),
    "build-time dependencies": Class(
        "program-failed unknown",
        (
            "  × Failed to build `flash-attn==2.8.3`\n  ├─▶ The build backend returned an error\n      ModuleNotFoundError: No module named 'wheel'\n      hint: This error likely indicates that `flash-attn@2.8.3` depends on `wheel`, but doesn't declare it as a build dependency.",
        ),
    ),
    "a wheel fetch that fell back to a build": Class(
        "cuda-toolkit-missing build-isolation-no-torch cuda-toolkit-mismatch-extension-build",
        (
            "Guessing wheel URL:  https://github.com/Dao-AILab/flash-attention/releases/download/v2.7.4.post1/flash_attn-2.7.4.post1+cu12torch2.9cxx11abiTRUE-cp312-cp312-linux_x86_64.whl\nPrecompiled wheel not found. Building from source...\nOSError: CUDA_HOME environment variable is not set.",
        ),
    ),
    "one-line no kernel image": Class(
        "no-kernel-image",
        ("CUDA error: no kernel image is available for execution on the device",),
    ),
    "one-line no kernel image, new GPU": Class(
        "arch-too-new-for-wheel no-kernel-image",
        (
            "RTX 5090: CUDA error: no kernel image is available for execution on the device, torch 2.5.1+cu124",
        ),
    ),
    "DCGM, gpu-burn, nccl-tests, sinfo results": Class(
        "hardware-fault ecc-error",
        (
            "$ gpu_burn 60\n10.0%  proc'd: 5122 (13012 Gflop/s)   errors: 382711  (WARNING!)  temps: 71 C\nTested 1 GPUs:\n\tGPU 0: FAULTY",
        ),
        ("Tested 2 GPUs:\n\tGPU 0: OK\n\tGPU 1: OK",),
    ),
    "healthy results": Class(
        "ok",
        ("Tested 2 GPUs:\n\tGPU 0: OK\n\tGPU 1: OK",),
    ),
    "a kernel that went to a wrong address": Class(
        "cuda-program-error",
        (
            "RuntimeError: CUDA error: misaligned address\nCompile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.",
        ),
        ("RuntimeError: CUDA error: out of memory",),
    ),
    "memory that does not suffice, by other programs": Class(
        "out-of-memory",
        (
            "ValueError: To serve at least one request with the models's max seq len (40960), (5.62 GiB KV cache is needed, which is larger than the available KV cache memory (3.2 GiB).",
        ),
        (
            "OOM when allocating tensor with shape[128,256] on /job:localhost/replica:0/task:0/device:CPU:0 by allocator cpu",
        ),
    ),
    "a library that a program loads by its own words": Class(
        "cuda-lib-missing",
        (
            'Error loading "C:\\x\\onnxruntime\\capi\\onnxruntime_providers_cuda.dll" which depends on "cublasLt64_12.dll" which is missing. (Error 126: "The specified module could not be found.")',
        ),
    ),
    "a notebook that is lent, of somebody who sits at a Mac": Class(
        "unknown",
        (
            "I run the notebook on Google Colab and import torch exits with code 1\nOperating system\nmacOS (Apple Silicon)",
        ),
        (
            "On Google Colab it works; on my Mac: AssertionError: Torch not compiled with CUDA enabled\nOS: macOS 14.5 (arm64)",
        ),
    ),
    "an NVML in a container that gives no reason": Class(
        "unknown",
        (
            "$ docker exec outer podman run --rm --device nvidia.com/gpu=all ubuntu nvidia-smi -L\nFailed to initialize NVML: N/A",
        ),
        ("root@4f2e1d0c9b8a:/workspace# nvidia-smi\nFailed to initialize NVML: Unknown Error",),
    ),
    "a build in the prompt of an x86 compiler, beside a torch that is there": Class(
        "unknown",
        (
            f"Requirement already satisfied: torch in c:\\python311\\lib\\site-packages (from flash-attn) (2.1.0+cu121)\n{X86_BUILD}",
        ),
        (
            f"{X86_BUILD}\nERROR: Could not find a version that satisfies the requirement torch (from versions: none)",
        ),
    ),
    "a number of another program's error": Class(
        "unknown",
        ("It does not start: HTTP Error 500: Internal Server Error",),
        ("CUDA initialization failed: Error 802: system not yet initialized",),
    ),
    "memory that keeps running out": Class(
        "out-of-memory",
        ("Because the GPU memory is exhausted, the speed is very low",),
        ("If the GPU memory is exhausted, layers go to the CPU",),
    ),
    "a torch that has no CUDA, as people say it": Class(
        "torch-cpu-build",
        ("Torch does not have CUDA\nI updated the program on Windows, there is an RTX 3090",),
        ("If torch does not have CUDA, the CPU is used",),
    ),
    "xformers' refusal, and a message that was cut": Class(
        "extension-arch-mismatch",
        ("RuntimeError: Your device is too old. We require compute capability >= 50",),
        ("Your device is too old. We require Android 12",),
    ),
    "uv's log where no file fits the Python": Class(
        "python-no-wheel",
        (
            "$ uv pip install torch==2.3.0 --index-url https://download.pytorch.org/whl/cu121\nDEBUG Using Python 3.13.0 environment at .venv\nDEBUG No compatible version found for: torch\n  × No solution found when resolving dependencies:",
        ),
        (
            "DEBUG Using Python 3.12.0 environment at .venv\nDEBUG No compatible version found for: torch\nDEBUG Searching for a compatible version of torchvision",
        ),
    ),
    "a compiler that is newer than the driver, in words": Class(
        "ptx-unsupported-toolchain",
        ("the kernel does not launch; with CUDA error functions one sees a PTX mismatch",),
        ("compile for the GPU itself to avoid a PTX mismatch",),
    ),
    "torchvision's operator that torch does not have": Class(
        "torchvision-mismatch",
        (
            "ValueError: Could not find the operator torchvision::nms. Please make sure you have already registered the operator",
        ),
        ("Could not find the operator mylib::nms",),
    ),
    "a driver that is called too old, and serves the torch that is there": Class(
        "wrong-libcuda-loaded",
        (
            "Driver Version: 575.64.03   CUDA Version: 12.9\nPyTorch version: 2.6.0+cu124\nRuntimeError: CUDA error: CUDA driver version is insufficient for CUDA runtime version",
        ),
        (
            "Driver Version: 470.256.02   CUDA Version: 11.4\nPyTorch version: 2.6.0+cu124\nRuntimeError: CUDA error: CUDA driver version is insufficient for CUDA runtime version",
        ),
    ),
    "a GPU that is older than every torch": Class(
        "arch-too-old-for-wheel",
        (
            "PyTorch version: 1.2.0\nCUDA used to build PyTorch: 10.0\nIs CUDA available: No\nGPU models and configuration: GPU 0: GeForce GTX 680\nNvidia driver version: 341.44",
        ),
        (
            "GeForce GTX 780\nDriver Version: 391.35\nAssertionError: The NVIDIA driver on your system is too old (found version 9010).",
        ),
    ),
    "a kernel's assertion, whatever fails after it and elsewhere": Class(
        "cuda-program-error",
        (
            "On a CPU-only machine it fails too\nLoss.cu:250: nll_loss: block: [0,0,0], thread: [5,0,0] **Assertion `t >= 0 && t < n_classes` failed.**\nCUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
        ),
        (
            "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`\nI only have a CPU at home",
        ),
    ),
    "a machine that is AMD's by its owner's word": Class(
        "amd-gpu",
        ("RuntimeError: Found no NVIDIA driver on your system. (AMD Linux, was working before)",),
        ("RuntimeError: Found no NVIDIA driver on your system.\nAMD Ryzen 7 5800X, Ubuntu 22.04",),
    ),
}
