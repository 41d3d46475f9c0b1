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
        (
            f"$ docker run -it --rm -v $PWD:/src trainer:latest python train.py\n{NO_GPUS}",
            f"sudo docker run --privileged -ti img bash\nroot@4728a09607c1:/w# python x.py\n{NO_DRIVER}",
        ),
        (f"docker run --gpus all -it img python train.py\n{NO_IMAGE}",),
    ),
    "a program that hides the GPU itself": Class(
        "cuda-visible-devices-hidden",
        (
            f'import os\nos.environ["CUDA_VISIBLE_DEVICES"] = "-1"\nimport torch\n>>> torch.cuda.init()\n{NO_GPUS}',
            f'$env:CUDA_VISIBLE_DEVICES = "-1"\n{NO_GPUS}',
        ),
        (f"CUDA_VISIBLE_DEVICES=0 python train.py\n{NO_IMAGE}",),
    ),
    "nvidia-smi alone, whatever the driver": Class(
        "ok",
        (
            "==============NVSMI LOG==============\n\nDriver Version                      : 390.157\nCUDA Version                        : 9.1\n\nAttached GPUs                       : 1\nGPU 00000000:84:00.0\n    Performance State               : P8\n    Clocks Throttle Reasons\n        Idle                        : Active",
            "==============NVSMI LOG==============\n\nDriver Version                      : 440.33.01\nCUDA Version                        : 10.2\n\nAttached GPUs                       : 1\nGPU 00000000:84:00.0\n    Temperature\n        GPU Current Temp            : 37 C",
        ),
        (
            SMI_ONE
            + "RuntimeError: The NVIDIA driver on your system is too old (found version 10010).",
        ),
    ),
    "a GPU whose name is followed by words": Class(
        "arch-too-old-for-wheel",
        (
            f"Tesla V100 gpu error issue\n{NO_IMAGE}\nTorch version: 2.11.0+cu128",
            f"GTX 1080 Ti card not working any more\n{NO_IMAGE}\n>>> torch.__version__\n'2.9.0+cu130'",
        ),
        (f"RTX 4090 card not working any more\n{NO_IMAGE}\n>>> torch.__version__\n'2.9.0+cu130'",),
    ),
    "a PCIe link that runs slower than it could": Class(
        "pcie-degraded",
        (
            "LnkCap: Port #0, Speed 16GT/s, Width x16, ASPM L1, Exit Latency L1 <16us\nLnkSta: Speed 2.5GT/s (downgraded), Width x16 (ok)",
            "LnkCap:\tPort #0, Speed 32GT/s, Width x16, ASPM L0s L1\n\t\tLnkSta:\tSpeed 8GT/s (downgraded), Width x16 (ok)",
        ),
        (
            f"LnkCap: Port #0, Speed 16GT/s, Width x16\nLnkSta: Speed 2.5GT/s (downgraded), Width x16 (ok)\n{NO_IMAGE}",
        ),
    ),
    "a stub of libcuda that was loaded": Class(
        "libcuda-stub",
        (
            "numba.cuda.cudadrv.driver.CudaAPIError: [34]\nFinding driver from candidates:\n        libcuda.so\nUsing loader <class 'ctypes.CDLL'>\n        Mapped libcuda.so paths:\n                /usr/local/cuda-12.2/targets/x86_64-linux/lib/stubs/libcuda.so",
            "Mapped libcuda.so paths:\n    /opt/cuda/lib64/stubs/libcuda.so\nCudaSupportError: Error at driver init: CUDA_ERROR_STUB_LIBRARY",
        ),
        (
            "Mapped libcuda.so paths:\n                /usr/lib/x86_64-linux-gnu/libcuda.so.550.54.14\nnumba.cuda.cudadrv.driver.CudaAPIError: [100]",
        ),
    ),
    "a companion whose torch library is not here": Class(
        "torchaudio-mismatch",
        (
            "OSError: libtorch_hip.so: cannot open shared object file: No such file or directory\nFile ~/venv/lib/python3.8/site-packages/torchaudio/__init__.py:1, in <module>",
            '  File "/x/lib/python3.11/site-packages/torchaudio/_extension/__init__.py", line 67\nOSError: libtorch_cuda_cpp.so: cannot open shared object file: No such file or directory',
        ),
        (
            '  File "/x/site-packages/mmcv/ops/__init__.py", line 2\nImportError: libtorch_cuda_cu.so: cannot open shared object file: No such file or directory',
        ),
    ),
    "a GPU that a laptop's switch has off, in words": Class(
        "hybrid-gpu-off",
        (
            "$ sudo envycontrol -s integrated\n$ lspci | grep VGA\n00:02.0 VGA compatible controller: Intel Corporation Raptor Lake-P [Iris Xe Graphics]",
            "$ supergfxctl -m Integrated\n$ nvidia-smi\nNVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA driver is installed and running.",
        ),
        (f"$ sudo envycontrol -s integrated\n$ sudo envycontrol -s hybrid\n{SMI_591}",),
    ),
    "JAX beside an older cuDNN": Class(
        "ld-library-path-conflict",
        (
            "RuntimeError: Backend 'cuda' failed to initialize: Unable to use CUDA because of the following issues with CUDA components:\nOutdated cuDNN installation found.\nVersion JAX was built against: 8907\nMinimum supported: 9100",
            "CUDA backend failed to initialize: Outdated cuDNN installation found. Installed version: 8902",
        ),
        ("Could not load library libcudnn_ops_infer.so.8",),
    ),
    "a build that ends in an ordinary exception": Class(
        "unknown build-isolation-no-torch build-requirement-missing program-requirement-missing",
        (
            'Failed to build `apex==0.1`\n  File "/x/builds-v0/.tmpA/setuptools/build_meta.py", line 512, in run_setup\n  File "<string>", line 22, in <module>\nModuleNotFoundError: No module na',
            "Getting requirements to build wheel ... error\n  File \"setup.py\", line 40, in <module>\nKeyError: 'MAX_JOBS_X'",
        ),
        (),
    ),
    "a driver that is too new in memory for a container": Class(
        "nvml-mismatch",
        (
            "nvidia-container-cli: initialization error: nvml error: driver/library version mismatch: unknown",
            "error running prestart hook #0: exit status 1, stderr: Auto-detected mode as 'legacy'\nnvidia-container-cli: initialization error: nvml error: driver/library version mismatch: unknown\n$ nvidia-smi\nFailed to initialize NVML: Driver/library version mismatch",
        ),
        (
            "nvidia-container-cli: initialization error: cgroup subsystem devices not found: unknown",
        ),
    ),
    "a package that replaced torch": Class(
        "torch-cpu-build",
        (
            "Installing collected packages: torch, optimum\n  Attempting uninstall: torch\n    Found existing installation: torch 2.6.0+cu124\n    Uninstalling torch-2.6.0+cu124:\n      Successfully uninstalled torch-2.6.0+cu124\nSuccessfully installed optimum-1.2 torch-2.8.0+cpu\nAssertionError: Torch not compiled with CUDA enabled",
            " - torch==2.6.0+cu126\n + torch==2.6.0\n - torchvision==0.21.0+cu126\n + torchvision==0.21.0\nPS C:\\w> uv run x.py\nAssertionError: Torch not compiled with CUDA enabled",
        ),
        (
            "  Attempting uninstall: torch\n    Found existing installation: torch 2.6.0+cpu\n    Uninstalling torch-2.6.0+cpu:\nSuccessfully installed torch-2.6.0+cu124",
        ),
    ),
    "a UVM that does not start with HMM": Class(
        "cuda-unknown-error uvm-missing cuda-init-failed",
        (
            "| NVIDIA-SMI 575.57.08              Driver Version: 575.57.08      CUDA Version: 12.8     |\n|   0  NVIDIA GeForce RTX 5090        Off |   00000000:01:00.0 Off |                  N/A |\n| 30%   36C    P8             20W /  450W |     413MiB /  24564MiB |      0%      Default |\nRuntimeError: CUDA unknown error - this may be due to an incorrectly set up environment, e.g. changing env variable CUDA_VISIBLE_DEVICES after program start. Setting the available devices to be zero.\n$ cat /etc/modprobe.d/uvm.conf\noptions nvidia_uvm uvm_disable_hmm=1",
            'time=2026-02-02T22:42:20.643Z level=INFO source=gpu.go:612 msg="Unable to load cudart library /usr/lib/x86_64-linux-gnu/libcuda.so.575.57.08: cuda driver library init failure: 3"',
        ),
        (
            "| NVIDIA-SMI 570.86.15              Driver Version: 570.86.15      CUDA Version: 12.8     |\n|   0  NVIDIA GeForce RTX 4090        Off |   00000000:01:00.0 Off |                  N/A |\n| 30%   36C    P8             20W /  450W |     413MiB /  24564MiB |      0%      Default |\ncudaGetDeviceCount returned 35\n-> CUDA driver version is insufficient for CUDA runtime version",
        ),
    ),
    "a Jetson with the default index's wheel": Class(
        "jetson-wrong-wheel",
        (
            "Linux ubuntu 5.15.148-tegra #1 SMP aarch64 GNU/Linux\n$ pip3 install torch torchvision\n>>> torch.cuda.is_available()\nFalse\n>>> torch.__version__\n'2.7.1'",
            "Jetson AGX Thor, JetPack 7.0, L4T 38.2\nPyTorch version: 2.8.0+cpu\nCUDA available: False",
        ),
        ("NVIDIA DGX Spark, aarch64\nPyTorch version: 2.9.0+cu130\nCUDA available: True",),
    ),
    "uv: no wheel for this platform": Class(
        "no-wheel-for-platform python-no-wheel",
        (
            "  × No solution found when resolving dependencies for split (python_full_version >= '3.12' and sys_platform == 'darwin'):\n  ╰─▶ Because torch==2.7.1+cu128 has no wheels with a matching platform tag (e.g., `macosx_14_0_arm64`) and your project depends on torch==2.7.1+cu128",
            "error: Distribution `torch==2.5.1+cu124 @ registry+https://download.pytorch.org/whl/cu124` can't be installed because it doesn't have a source distribution or wheel for the current platform\n\nhint: You're on macOS (`macosx_15_0_arm64`), but `torch` (v2.5.1+cu124) only has wheels for the following platforms: `linux_x86_64`, `win_amd64`",
        ),
    ),
    "uv, pixi: a conflict": Class(
        "resolver-conflict",
        (
            "  × No solution found when resolving dependencies:\n  ╰─▶ Because torchvision==0.20.1 depends on torch==2.5.1 and your project depends on torch==2.6.0, we can conclude that your project and torchvision==0.20.1 are incompatible.",
            "Error:   × failed to solve the pypi requirements of environment 'default' for platform 'linux-64'\n  ├─▶ Because vllm==0.9.0 depends on torch==2.7.0 and torch==2.6.0, we can conclude that vllm==0.9.0 cannot be used.",
        ),
    ),
    "pixi: no CUDA on this machine": Class(
        "conda-cuda-virtual-missing",
        (
            "Error:   × failed to solve requirements of environment 'gpu' for platform 'linux-64'\n  ╰─▶ Cannot solve the request because of: The following packages are incompatible\n      └─ pytorch-gpu * can be installed with any of the following options:\n         └─ pytorch-gpu 2.6.0 would require\n            └─ __cuda *, for which no candidates were found.",
            "  × The platform you are running on should at least have the virtual package __cuda on version 12.0, build_string: 0\n",
        ),
    ),
    "a hosted notebook without a GPU": Class(
        "no-nvidia-gpu container-no-gpu torch-sees-no-gpu driver-missing",
        (
            "/content/drive/MyDrive/x\nRuntimeError: Found no NVIDIA driver on your system.",
            '  File "/kaggle/working/train.py", line 12\nRuntimeError: No CUDA GPUs are available',
        ),
    ),
    "a scheduler that gave no GPU": Class(
        "torch-sees-no-gpu cuda-visible-devices-hidden program-failed no-nvidia-gpu driver-missing unknown",
        (
            "$ srun -p cpu --pty bash\n$ python -c 'import torch; print(torch.cuda.is_available())'\nFalse\nSLURM_JOB_GPUS is unset\nCUDA_VISIBLE_DEVICES=NoDevFiles",
            "#SBATCH --gres=gpu:1\nsbatch: error: Batch job submission failed: Requested node configuration is not available",
        ),
    ),
    "a toolkit's refusal: cgroup, filter, rpc": Class(
        "container-hook-failed",
        (
            "docker: Error response from daemon: failed to create task for container: OCI runtime create failed: error running hook #0: exit status 1, stderr: Auto-detected mode as 'legacy'\nnvidia-container-cli: mount error: failed to add device rules: unable to find any existing device filters attached to the cgroup: bpf_prog_query(BPF_CGROUP_DEVICE) failed: operation not permitted: unknown.",
            "nvidia-container-cli: mount error: failed to add device rules: unable to generate new device filter program from existing programs: unable to create new device filters program: load program: invalid argument: last insn is not an exit or jmp",
        ),
        (
            "nvidia-container-cli: initialization error: load library failed: libnvidia-ml.so.1: cannot open shared object file: no such file or directory: unknown",
        ),
    ),
    "CDI refused": Class(
        "container-cdi-unresolvable",
        (
            'docker: Error response from daemon: could not select device driver "cdi" with capabilities: [[gpu]]',
            "Error: setting up CDI devices: unresolvable CDI devices nvidia.com/gpu=all",
        ),
    ),
    "AMD: no access to the device nodes": Class(
        "amd-gpu maker-device-permission",
        (
            '$ rocminfo\nROCk module is loaded\nUnable to open /dev/kfd read-write: Permission denied\nuser is not member of "render" group, the default DRM access group.',
            "torch 2.9.1+rocm6.4\n>>> torch.cuda.is_available()\nFalse\nls -l /dev/kfd\ncrw-rw---- 1 root render 236, 0 /dev/kfd",
        ),
    ),
    "AMD: gfx not built for": Class(
        "amd-gpu",
        (
            "HSA_OVERRIDE_GFX_VERSION=10.3.0 python main.py\nRuntimeError: HIP error: the operation cannot be performed in the present state",
            "rocBLAS error: Cannot read /x/rocblas/library/TensileLibrary.dat: No such file or directory for GPU arch : gfx1036",
        ),
    ),
    "Intel: nothing of Level Zero": Class(
        "intel-gpu",
        (
            ">>> torch.xpu.is_available()\nFalse\n>>> torch.xpu.device_count()\n0\n>>> torch.__version__\n'2.9.0+xpu'",
            "RuntimeError: PyTorch is not linked with support for xpu devices",
        ),
    ),
    "another maker's memory that runs out": Class(
        "out-of-memory",
        (
            "RuntimeError: Native API failed. Native API returns: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)\nxpu",
            "PyTorch version: 2.4.0+rocm6.1\nAMD Radeon RX 7800 XT\ntorch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 15.98 GiB of which 1.20 GiB is free.",
        ),
    ),
    "another maker's backend in use: what failed is another thing": Class(
        "unknown program-failed cuda-program-error loss-diverges",
        (
            ">>> torch.xpu.is_available()\nTrue\nIntel(R) Arc(TM) A770 Graphics\nKeyError: 'labels'",
            "ggml_cuda_init: found 1 ROCm devices:\n  Device 0: AMD Radeon RX 7900 XTX, gfx1100\nmain: error: failed to open grammar file 'json.gbnf'",
        ),
        ("Mac mini M4\nUsing device: mps\nAssertionError: Torch not compiled with CUDA enabled",),
    ),
    "what failed after hours or steps of work": Class(
        "unknown",
        (
            "step 41200 loss 1.93\nRuntimeError: CUDA error: unknown error",
            "It crashes after 20 minutes of training: torch.AcceleratorError: CUDA error: unknown error",
        ),
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
        (
            "macOS 14.5, Apple M1 Pro\ntorch.backends.mps.is_available() -> False",
            "Placeholder storage has not been allocated on MPS device!",
        ),
        ("MPS client failed to connect to the MPS control daemon or the MPS server",),
    ),
    "a program that fails by itself": Class(
        "program-failed",
        (
            "ValueError: The checkpoint you are trying to load has model type `qwen3_moe` but Transformers does not recognize this architecture.",
            "File 'x.py', line 3\nhuggingface_hub.errors.GatedRepoError: 401 Client Error. (Request ID: Root=1)",
        ),
        ("RuntimeError: CUDA error: invalid argument",),
    ),
    "build-time dependencies": Class(
        "program-failed unknown",
        (
            "  × Failed to build `flash-attn==2.8.3`\n  ├─▶ The build backend returned an error\n      ModuleNotFoundError: No module named 'wheel'\n      hint: This error likely indicates that `flash-attn@2.8.3` depends on `wheel`, but doesn't declare it as a build dependency.",
            "Collecting insightface\n  Preparing metadata (pyproject.toml) ... error\n      ModuleNotFoundError: No module named 'numpy'\n  note: This error originates from a subprocess, and is likely not a problem with pip.",
        ),
    ),
    "a wheel fetch that fell back to a build": Class(
        "cuda-toolkit-missing build-isolation-no-torch cuda-toolkit-mismatch-extension-build",
        (
            "Guessing wheel URL:  https://github.com/Dao-AILab/flash-attention/releases/download/v2.7.4.post1/flash_attn-2.7.4.post1+cu12torch2.9cxx11abiTRUE-cp312-cp312-linux_x86_64.whl\nPrecompiled wheel not found. Building from source...\nOSError: CUDA_HOME environment variable is not set.",
            "urllib.error.HTTPError: HTTP Error 404: Not Found\nGuessing wheel URL: https://github.com/state-spaces/mamba/releases/download/v2.2.4/mamba_ssm-2.2.4+cu12torch2.9cxx11abiTRUE-cp312-cp312-linux_x86_64.whl error HTTP Error 404: Not Found\nPrecompiled wheel not found. Building from source...\nFileNotFoundError: [Errno 2] No such file or directory: '/usr/local/cuda/bin/nvcc'",
        ),
    ),
    "one-line no kernel image": Class(
        "no-kernel-image",
        (
            "CUDA error: no kernel image is available for execution on the device",
            "RuntimeError: CUDA error: no kernel image is available for execution on the device",
        ),
    ),
    "one-line no kernel image, new GPU": Class(
        "arch-too-new-for-wheel no-kernel-image",
        (
            "RTX 5090: CUDA error: no kernel image is available for execution on the device, torch 2.5.1+cu124",
            "CUDA error: no kernel image is available for execution on the device (RTX 5070 Ti)",
        ),
    ),
    "DCGM, gpu-burn, nccl-tests, sinfo results": Class(
        "hardware-fault ecc-error",
        (
            "$ gpu_burn 60\n10.0%  proc'd: 5122 (13012 Gflop/s)   errors: 382711  (WARNING!)  temps: 71 C\nTested 1 GPUs:\n\tGPU 0: FAULTY",
            "Tested 8 GPUs:\n\tGPU 0: OK\n\tGPU 1: OK\n\tGPU 2: FAULTY",
        ),
        ("Tested 2 GPUs:\n\tGPU 0: OK\n\tGPU 1: OK",),
    ),
    "healthy results": Class(
        "ok",
        (
            "Tested 2 GPUs:\n\tGPU 0: OK\n\tGPU 1: OK",
            "# nThread 1 nGpus 8 minBytes 8 maxBytes 134217728\n#  Rank  0 Group  0 Pid  1821 on node1 device  0 [0000:0f:00] NVIDIA H100 80GB HBM3\n# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 312.4",
        ),
    ),
    "a kernel that went to a wrong address": Class(
        "cuda-program-error",
        (
            "RuntimeError: CUDA error: misaligned address\nCompile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.",
            "E CUDA error: an illegal memory access was encountered\nE   current device: 1, in function ggml_backend_cuda_synchronize at ggml-cuda.cu:2900",
        ),
        ("RuntimeError: CUDA error: out of memory",),
    ),
    "memory that does not suffice, by other programs": Class(
        "out-of-memory",
        (
            "ValueError: To serve at least one request with the models's max seq len (40960), (5.62 GiB KV cache is needed, which is larger than the available KV cache memory (3.2 GiB).",
            "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 4294967296 bytes.",
        ),
        (
            "OOM when allocating tensor with shape[128,256] on /job:localhost/replica:0/task:0/device:CPU:0 by allocator cpu",
        ),
    ),
    "a library that a program loads by its own words": Class(
        "cuda-lib-missing",
        (
            'Error loading "C:\\x\\onnxruntime\\capi\\onnxruntime_providers_cuda.dll" which depends on "cublasLt64_12.dll" which is missing. (Error 126: "The specified module could not be found.")',
            "bitsandbytes library load error: Configured CUDA binary not found at /x/site-packages/bitsandbytes/libbitsandbytes_cuda130.so",
        ),
    ),
    "a notebook that is lent, of somebody who sits at a Mac": Class(
        "unknown",
        (
            "I run the notebook on Google Colab and import torch exits with code 1\nOperating system\nmacOS (Apple Silicon)",
            "SystemExit: FAILED: import torch (exit code 1) in Google Colab\nHTTP Error 500: Internal Server Error\n### Operating system\nmacOS (Apple Silicon)",
        ),
        (
            "On Google Colab it works; on my Mac: AssertionError: Torch not compiled with CUDA enabled\nOS: macOS 14.5 (arm64)",
        ),
    ),
    "an NVML in a container that gives no reason": Class(
        "unknown",
        (
            "$ docker exec outer podman run --rm --device nvidia.com/gpu=all ubuntu nvidia-smi -L\nFailed to initialize NVML: N/A",
            "root@4f2e1d0c9b8a:/workspace# nvidia-smi\nFailed to initialize NVML: N/A",
        ),
        ("root@4f2e1d0c9b8a:/workspace# nvidia-smi\nFailed to initialize NVML: Unknown Error",),
    ),
    "a build in the prompt of an x86 compiler, beside a torch that is there": Class(
        "unknown",
        (
            f"Requirement already satisfied: torch in c:\\python311\\lib\\site-packages (from flash-attn) (2.1.0+cu121)\n{X86_BUILD}",
            f"Guessing wheel URL:  https://host/flash_attn-2.5.9+cu122torch2.1cxx11abiFALSE-cp311-cp311-win_amd64.whl\nPrecompiled wheel not found. Building from source...\n{X86_BUILD}",
        ),
        (
            f"{X86_BUILD}\nERROR: Could not find a version that satisfies the requirement torch (from versions: none)",
        ),
    ),
    "a number of another program's error": Class(
        "unknown",
        (
            "It does not start: HTTP Error 500: Internal Server Error",
            "I get HTTP Error 304: Not Modified and it does not start",
        ),
        ("CUDA initialization failed: Error 802: system not yet initialized",),
    ),
    "memory that keeps running out": Class(
        "out-of-memory",
        (
            "Because the GPU memory is exhausted, the speed is very low",
            "my VRAM gets exhausted after a few frames",
        ),
        ("If the GPU memory is exhausted, layers go to the CPU",),
    ),
    "a torch that has no CUDA, as people say it": Class(
        "torch-cpu-build",
        (
            "Torch does not have CUDA\nI updated the program on Windows, there is an RTX 3090",
            "after the update my pytorch doesn't have CUDA support anymore",
        ),
        ("If torch does not have CUDA, the CPU is used",),
    ),
    "xformers' refusal, and a message that was cut": Class(
        "extension-arch-mismatch",
        (
            "RuntimeError: Your device is too old. We require compute capability >= 50",
            'File "site-packages/xformers/ops/fmha/cutlass.py", line 106\nRuntimeError: Your device is too old. We require compute capability >= 50',
        ),
        ("Your device is too old. We require Android 12",),
    ),
    "uv's log where no file fits the Python": Class(
        "python-no-wheel",
        (
            "$ uv pip install torch==2.3.0 --index-url https://download.pytorch.org/whl/cu121\nDEBUG Using Python 3.13.0 environment at .venv\nDEBUG No compatible version found for: torch\n  × No solution found when resolving dependencies:",
            "$ uv pip install torch==2.3.0\nDEBUG Found `cpython-3.13.0-windows-x86_64-none`\nDEBUG Using Python 3.13.0 environment at .venv\nDEBUG No compatible version found for: torch\n  × No s",
        ),
        (
            "DEBUG Using Python 3.12.0 environment at .venv\nDEBUG No compatible version found for: torch\nDEBUG Searching for a compatible version of torchvision",
        ),
    ),
    "a compiler that is newer than the driver, in words": Class(
        "ptx-unsupported-toolchain",
        (
            "the kernel does not launch; with CUDA error functions one sees a PTX mismatch",
            "nvcc add.cu: it ends with a PTX mismatch on the T4",
        ),
        ("compile for the GPU itself to avoid a PTX mismatch",),
    ),
    "torchvision's operator that torch does not have": Class(
        "torchvision-mismatch",
        (
            "ValueError: Could not find the operator torchvision::nms. Please make sure you have already registered the operator",
            "Could not find the operator torchvision::nms",
        ),
        ("Could not find the operator mylib::nms",),
    ),
    "a driver that is called too old, and serves the torch that is there": Class(
        "wrong-libcuda-loaded",
        (
            "Driver Version: 575.64.03   CUDA Version: 12.9\nPyTorch version: 2.6.0+cu124\nRuntimeError: CUDA error: CUDA driver version is insufficient for CUDA runtime version",
            "driver 550.163.01\ntorch 2.5.1+cu121\nUserWarning: CUDA initialization: The NVIDIA driver on your system is too old (found version 11040).",
        ),
        (
            "Driver Version: 470.256.02   CUDA Version: 11.4\nPyTorch version: 2.6.0+cu124\nRuntimeError: CUDA error: CUDA driver version is insufficient for CUDA runtime version",
        ),
    ),
    "a GPU that is older than every torch": Class(
        "arch-too-old-for-wheel",
        (
            "PyTorch version: 1.2.0\nCUDA used to build PyTorch: 10.0\nIs CUDA available: No\nGPU models and configuration: GPU 0: GeForce GTX 680\nNvidia driver version: 341.44",
            "GPU: GeForce GTX 680, driver 340.108, torch 1.10.0+cu113\ntorch.cuda.is_available() False",
        ),
        (
            "GeForce GTX 780\nDriver Version: 391.35\nAssertionError: The NVIDIA driver on your system is too old (found version 9010).",
        ),
    ),
    "a kernel's assertion, whatever fails after it and elsewhere": Class(
        "cuda-program-error",
        (
            "On a CPU-only machine it fails too\nLoss.cu:250: nll_loss: block: [0,0,0], thread: [5,0,0] **Assertion `t >= 0 && t < n_classes` failed.**\nCUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
            "Assertion `srcIndex < srcSelectDimSize` failed.\nRuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        ),
        (
            "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`\nI only have a CPU at home",
        ),
    ),
    "a machine that is AMD's by its owner's word": Class(
        "amd-gpu",
        (
            "RuntimeError: Found no NVIDIA driver on your system. (AMD Linux, was working before)",
            "[Bug] AMD: RuntimeError: Found no NVIDIA driver on your system",
        ),
        ("RuntimeError: Found no NVIDIA driver on your system.\nAMD Ryzen 7 5800X, Ubuntu 22.04",),
    ),
}
