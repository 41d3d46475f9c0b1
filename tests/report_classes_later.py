"""More classes of texts: installers, containers, other makers, programs beside torch, results of tests.

As `report_classes`: composed in our own frame around the lines that the programs print.
"""

from __future__ import annotations

from report_classes import Class

SMI_591 = """\
| NVIDIA-SMI 591.44                 Driver Version: 591.44         CUDA Version: 13.1     |
|   0  NVIDIA GeForce RTX 4060      WDDM  |   00000000:01:00.0 Off |                  N/A |
| N/A   41C    P8              2W /   35W |      98MiB /   8188MiB |      0%      Default |
"""

LATER: dict[str, Class] = {
    "a GPU that a laptop's switch has off, in words": Class(
        "hybrid-gpu-off",
        (
            "$ sudo envycontrol -s integrated\n$ lspci | grep VGA\n00:02.0 VGA compatible controller: Intel Corporation Raptor Lake-P [Iris Xe Graphics]",
            "$ supergfxctl -m Integrated\n$ nvidia-smi\nNVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA driver is installed and running.",
            "$ sudo prime-select intel\n$ lspci | grep VGA\n00:02.0 VGA compatible controller: Intel Corporation Alder Lake-P GT1 [UHD Graphics]",
        ),
        (
            f"$ sudo envycontrol -s integrated\n$ sudo envycontrol -s hybrid\n{SMI_591}",
            f"$ sudo prime-select intel\n{SMI_591}",
        ),
    ),
    "JAX beside an older cuDNN": Class(
        "ld-library-path-conflict",
        (
            "RuntimeError: Backend 'cuda' failed to initialize: Unable to use CUDA because of the following issues with CUDA components:\nOutdated cuDNN installation found.\nVersion JAX was built against: 8907\nMinimum supported: 9100",
            "CUDA backend failed to initialize: Outdated cuDNN installation found. Installed version: 8902",
            "jax._src.xla_bridge: Outdated cuDNN installation found.\nThe local installation version must be no lower than 9100.",
        ),
        ("Could not load library libcudnn_ops_infer.so.8",),
    ),
    "a build that ends in an ordinary exception": Class(
        "unknown build-isolation-no-torch build-requirement-missing program-requirement-missing",
        (
            'Failed to build `apex==0.1`\n  File "/x/builds-v0/.tmpA/setuptools/build_meta.py", line 512, in run_setup\n  File "<string>", line 22, in <module>\nModuleNotFoundError: No module na',
            "Getting requirements to build wheel ... error\n  File \"setup.py\", line 40, in <module>\nKeyError: 'MAX_JOBS_X'",
            '  File "/x/site-packages/torch/utils/cpp_extension.py", line 3, in load\n  File "x.py", line 1\nValueError: not enough values to unpack',
        ),
        (),
    ),
    "a driver that is too new in memory for a container": Class(
        "nvml-mismatch",
        (
            "nvidia-container-cli: initialization error: nvml error: driver/library version mismatch: unknown",
            "error running prestart hook #0: exit status 1, stderr: Auto-detected mode as 'legacy'\nnvidia-container-cli: initialization error: nvml error: driver/library version mismatch: unknown\n$ nvidia-smi\nFailed to initialize NVML: Driver/library version mismatch",
            "docker: Error response from daemon: OCI runtime create failed: nvidia-container-cli: initialization error: nvml error: driver/library version mismatch: unknown.",
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
            "  pytorch  conda-forge::pytorch-2.3.1-cpu_generic_py311h1 --> pytorch::pytorch-2.3.1-py3.11_cuda12.1_cudnn8.9.2_0",
        ),
    ),
    "a UVM that does not start with HMM": Class(
        "cuda-unknown-error uvm-missing cuda-init-failed",
        (
            "| NVIDIA-SMI 575.57.08              Driver Version: 575.57.08      CUDA Version: 12.8     |\n|   0  NVIDIA GeForce RTX 5090        Off |   00000000:01:00.0 Off |                  N/A |\n| 30%   36C    P8             20W /  450W |     413MiB /  24564MiB |      0%      Default |\nRuntimeError: CUDA unknown error - this may be due to an incorrectly set up environment, e.g. changing env variable CUDA_VISIBLE_DEVICES after program start. Setting the available devices to be zero.\n$ cat /etc/modprobe.d/uvm.conf\noptions nvidia_uvm uvm_disable_hmm=1",
            'time=2026-02-02T22:42:20.643Z level=INFO source=gpu.go:612 msg="Unable to load cudart library /usr/lib/x86_64-linux-gnu/libcuda.so.575.57.08: cuda driver library init failure: 3"',
            "cuInit(0) failed: CUDA_ERROR_NOT_INITIALIZED: initialization error\n| NVIDIA-SMI 570.86.15              Driver Version: 570.86.15      CUDA Version: 12.8     |\n|   0  NVIDIA GeForce RTX 4090        Off |   00000000:01:00.0 Off |                  N/A |\n| 30%   36C    P8             20W /  450W |     413MiB /  24564MiB |      0%      Default |\n",
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
            "# R36 (release), REVISION: 4.3\nAssertionError: Torch not compiled with CUDA enabled",
            "Jetson AGX Orin 64GB JetPack 7.2\nPyTorch 2.9.0+cu130\nRuntimeError: CUDA error: no kernel image is available for execution on the device",
            "JetPack 6.1\nTorch version 2.9.1+cu129\nNVIDIA GeForce? no: Orin with CUDA capability sm_87 is not compatible with the current PyTorch installation.\nThe current PyTorch install supports CUDA capabilities sm_80 sm_90 sm_100 sm_120.",
        ),
        ("NVIDIA DGX Spark, aarch64\nPyTorch version: 2.9.0+cu130\nCUDA available: True",),
    ),
    "uv: no wheel for this platform": Class(
        "no-wheel-for-platform python-no-wheel",
        (
            "  × No solution found when resolving dependencies for split (python_full_version >= '3.12' and sys_platform == 'darwin'):\n  ╰─▶ Because torch==2.7.1+cu128 has no wheels with a matching platform tag (e.g., `macosx_14_0_arm64`) and your project depends on torch==2.7.1+cu128",
            "error: Distribution `torch==2.5.1+cu124 @ registry+https://download.pytorch.org/whl/cu124` can't be installed because it doesn't have a source distribution or wheel for the current platform\n\nhint: You're on macOS (`macosx_15_0_arm64`), but `torch` (v2.5.1+cu124) only has wheels for the following platforms: `linux_x86_64`, `win_amd64`",
            "error: Distribution `triton==3.2.0 @ registry+https://x/simple` can't be installed because it doesn't have a source distribution or wheel for the current platform\nhint: You're on Windows (`win_amd64`), but `triton` (v3.2.0) only has wheels for the following platform: `manylinux_2_17_x86_64`",
        ),
    ),
    "uv, pixi: a conflict": Class(
        "resolver-conflict",
        (
            "  × No solution found when resolving dependencies:\n  ╰─▶ Because torchvision==0.20.1 depends on torch==2.5.1 and your project depends on torch==2.6.0, we can conclude that your project and torchvision==0.20.1 are incompatible.",
            "Error:   × failed to solve the pypi requirements of environment 'default' for platform 'linux-64'\n  ├─▶ Because vllm==0.9.0 depends on torch==2.7.0 and torch==2.6.0, we can conclude that vllm==0.9.0 cannot be used.",
            "ERROR: Cannot install torch==2.6.0 and xformers==0.0.28 because these package versions have conflicting dependencies.\nThe conflict is caused by:\n    The user requested torch==2.6.0\n    xformers 0.0.28 depends on torch==2.4.1",
        ),
    ),
    "pixi: no CUDA on this machine": Class(
        "conda-cuda-virtual-missing",
        (
            "Error:   × failed to solve requirements of environment 'gpu' for platform 'linux-64'\n  ╰─▶ Cannot solve the request because of: The following packages are incompatible\n      └─ pytorch-gpu * can be installed with any of the following options:\n         └─ pytorch-gpu 2.6.0 would require\n            └─ __cuda *, for which no candidates were found.",
            "  × The platform you are running on should at least have the virtual package __cuda on version 12.0, build_string: 0\n",
            "Error:   × Cannot install environment: the machine does not meet the minimum requirements: virtual package '__cuda >=12.4' not available on this system",
        ),
    ),
    "a hosted notebook without a GPU": Class(
        "no-nvidia-gpu container-no-gpu torch-sees-no-gpu driver-missing",
        (
            "/content/drive/MyDrive/x\nRuntimeError: Found no NVIDIA driver on your system.",
            '  File "/kaggle/working/train.py", line 12\nRuntimeError: No CUDA GPUs are available',
            "/bin/bash: line 1: nvidia-smi: command not found\n/content/ComfyUI",
        ),
    ),
    "a scheduler that gave no GPU": Class(
        "torch-sees-no-gpu cuda-visible-devices-hidden program-failed no-nvidia-gpu driver-missing unknown",
        (
            "$ srun -p cpu --pty bash\n$ python -c 'import torch; print(torch.cuda.is_available())'\nFalse\nSLURM_JOB_GPUS is unset\nCUDA_VISIBLE_DEVICES=NoDevFiles",
            "#SBATCH --gres=gpu:1\nsbatch: error: Batch job submission failed: Requested node configuration is not available",
            "sbatch: error: Batch job submission failed: Invalid generic resource (gres) specification",
        ),
    ),
    "a toolkit's refusal: cgroup, filter, rpc": Class(
        "container-hook-failed",
        (
            "docker: Error response from daemon: failed to create task for container: OCI runtime create failed: error running hook #0: exit status 1, stderr: Auto-detected mode as 'legacy'\nnvidia-container-cli: mount error: failed to add device rules: unable to find any existing device filters attached to the cgroup: bpf_prog_query(BPF_CGROUP_DEVICE) failed: operation not permitted: unknown.",
            "nvidia-container-cli: mount error: failed to add device rules: unable to generate new device filter program from existing programs: unable to create new device filters program: load program: invalid argument: last insn is not an exit or jmp",
            "nvidia-container-cli: initialization error: nvml error: insufficient permissions",
        ),
        (
            "nvidia-container-cli: initialization error: load library failed: libnvidia-ml.so.1: cannot open shared object file: no such file or directory: unknown",
            "nvidia-container-cli: initialization error: nvml error: driver not loaded: unknown",
        ),
    ),
    "CDI refused": Class(
        "container-cdi-unresolvable",
        (
            'docker: Error response from daemon: could not select device driver "cdi" with capabilities: [[gpu]]',
            "Error: setting up CDI devices: unresolvable CDI devices nvidia.com/gpu=all",
            "failed to create container: CDI device injection failed: unresolvable CDI devices runtime.nvidia.com/gpu=all",
        ),
    ),
    "AMD: no access to the device nodes": Class(
        "amd-gpu",
        (
            '$ rocminfo\nROCk module is loaded\nUnable to open /dev/kfd read-write: Permission denied\nuser is not member of "render" group, the default DRM access group.',
            "torch 2.9.1+rocm6.4\n>>> torch.cuda.is_available()\nFalse\nls -l /dev/kfd\ncrw-rw---- 1 root render 236, 0 /dev/kfd",
            "hipErrorNoDevice: no ROCm-capable device is detected",
        ),
    ),
    "AMD: gfx not built for": Class(
        "amd-gpu",
        (
            "HSA_OVERRIDE_GFX_VERSION=10.3.0 python main.py\nRuntimeError: HIP error: the operation cannot be performed in the present state",
            "rocBLAS error: Cannot read /x/rocblas/library/TensileLibrary.dat: No such file or directory for GPU arch : gfx1036",
            'C:\\Users\\me> pip install torch --index-url https://repo.amd.com/rocm/whl/gfx1151/\nOSError: [WinError 126] Error loading "C:\\x\\torch\\lib\\amdhip64.dll" or one of its dependencies.\nRadeon 8060S, ROCm 7.1',
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
        "unknown program-failed cuda-program-error",
        (
            "MacBook Pro M2, macOS 14.4\nUsing device: mps\nEpoch 2: 100%|#####| 200/200 [01:10<00:00] loss=nan\nWhy is the loss nan?",
            ">>> torch.xpu.is_available()\nTrue\nIntel(R) Arc(TM) A770 Graphics\nKeyError: 'labels'",
            "ggml_cuda_init: found 1 ROCm devices:\n  Device 0: AMD Radeon RX 7900 XTX, gfx1100\nmain: error: failed to open grammar file 'json.gbnf'",
            "PyTorch version: 2.4.0+rocm6.1\nRuntimeError: HIP error: an illegal memory access was encountered",
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
            "BFloat16 is not supported on MPS\nmacOS 13",
        ),
        ("MPS client failed to connect to the MPS control daemon or the MPS server",),
    ),
    "a program that fails by itself": Class(
        "program-failed",
        (
            "ValueError: The checkpoint you are trying to load has model type `qwen3_moe` but Transformers does not recognize this architecture.",
            "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!",
            "File 'x.py', line 3\nhuggingface_hub.errors.GatedRepoError: 401 Client Error. (Request ID: Root=1)",
            "FileNotFoundError: [Errno 2] No such file or directory: 'data/train.json'",
            "AttributeError: Qwen2Tokenizer has no attribute all_special_tokens\nray.exceptions.ActorDiedError: The actor died because of an error raised in its creation task",
            "PyTorch version: 2.6.0+cu126 (GPU)\nGPU type: NVIDIA H20\nKeyError: 'qwen3_next'",
            "sbatch: error: Batch job submission failed: Requested node configuration is not available",
            "Error: listen tcp 127.0.0.1:11434: bind: address already in use",
            "Traceback (most recent call last):\nModuleNotFoundError: No module named 'wandb'",
            "aio.cpp:2:10: fatal error: libaio.h: No such file or directory\nerror: command 'gcc' failed with exit code 1",
            "ImportError: cannot import name 'DTensor' from 'torch.distributed.tensor' (/x/torch/distributed/tensor/__init__.py)",
        ),
        (
            "RuntimeError: CUDA error: invalid argument",
            "RuntimeError: Engine core initialization failed. See root cause above.",
            "ValueError: No valid attention backend found for cuda with head_size 64",
            "Getting requirements to build wheel ... error\n  File 'setup.py', line 40\nKeyError: 'MAX_JOBS_X'",
            "ERROR: Failed building wheel for diff_gaussian_rasterization",
            "the GPU driver is not found\nKeyError: 'lr'",
            "my.cu:3: error: identifier 'my_name' is undefined",
            "it ends with an error, and I do not know why",
        ),
    ),
    "build-time dependencies": Class(
        "program-failed unknown",
        (
            "  × Failed to build `flash-attn==2.8.3`\n  ├─▶ The build backend returned an error\n      ModuleNotFoundError: No module named 'wheel'\n      hint: This error likely indicates that `flash-attn@2.8.3` depends on `wheel`, but doesn't declare it as a build dependency.",
            "Collecting insightface\n  Preparing metadata (pyproject.toml) ... error\n      ModuleNotFoundError: No module named 'numpy'\n  note: This error originates from a subprocess, and is likely not a problem with pip.",
            "Building wheel for dlib (setup.py) ... error\n      ERROR: CMake must be installed to build dlib",
        ),
    ),
    "a wheel fetch that fell back to a build": Class(
        "cuda-toolkit-missing build-isolation-no-torch cuda-toolkit-mismatch-extension-build",
        (
            "Guessing wheel URL:  https://github.com/Dao-AILab/flash-attention/releases/download/v2.7.4.post1/flash_attn-2.7.4.post1+cu12torch2.9cxx11abiTRUE-cp312-cp312-linux_x86_64.whl\nPrecompiled wheel not found. Building from source...\nOSError: CUDA_HOME environment variable is not set.",
            "urllib.error.HTTPError: HTTP Error 404: Not Found\nGuessing wheel URL: https://github.com/state-spaces/mamba/releases/download/v2.2.4/mamba_ssm-2.2.4+cu12torch2.9cxx11abiTRUE-cp312-cp312-linux_x86_64.whl error HTTP Error 404: Not Found\nPrecompiled wheel not found. Building from source...\nFileNotFoundError: [Errno 2] No such file or directory: '/usr/local/cuda/bin/nvcc'",
            "mamba_ssm was requested, but nvcc was not found.  Are you sure your environment has nvcc available?\nNameError: name 'bare_metal_version' is not defined",
        ),
    ),
    "one-line no kernel image": Class(
        "no-kernel-image",
        (
            "CUDA error: no kernel image is available for execution on the device",
            "RuntimeError: CUDA error: no kernel image is available for execution on the device",
            "torch.AcceleratorError: CUDA error: no kernel image is available for execution on the device",
        ),
    ),
    "one-line no kernel image, new GPU": Class(
        "arch-too-new-for-wheel no-kernel-image",
        (
            "RTX 5090: CUDA error: no kernel image is available for execution on the device, torch 2.5.1+cu124",
            "CUDA error: no kernel image is available for execution on the device (RTX 5070 Ti)",
            "NVIDIA GeForce RTX 5080 with CUDA capability sm_120 is not compatible with the current PyTorch installation.",
        ),
    ),
    "DCGM, gpu-burn, nccl-tests, sinfo results": Class(
        "hardware-fault ecc-error",
        (
            "$ gpu_burn 60\n10.0%  proc'd: 5122 (13012 Gflop/s)   errors: 382711  (WARNING!)  temps: 71 C\nTested 1 GPUs:\n\tGPU 0: FAULTY",
            "Tested 8 GPUs:\n\tGPU 0: OK\n\tGPU 1: OK\n\tGPU 2: FAULTY",
            "| Memory            | Fail - GPU: 3                                  |\n| Warning           | GPU 3 had uncorrectable memory errors\n$ dcgmi diag -r 3",
        ),
        (
            "Tested 2 GPUs:\n\tGPU 0: OK\n\tGPU 1: OK",
            "$ dcgmi diag -r 1\n| Memory            | Pass - All |\n| PCIe | Pass - All |",
        ),
    ),
    "healthy results": Class(
        "ok",
        (
            "Tested 2 GPUs:\n\tGPU 0: OK\n\tGPU 1: OK",
            "# nThread 1 nGpus 8 minBytes 8 maxBytes 134217728\n#  Rank  0 Group  0 Pid  1821 on node1 device  0 [0000:0f:00] NVIDIA H100 80GB HBM3\n# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 312.4",
            "$ dcgmi diag -r 1\nSuccessfully ran diagnostic for group.\n| Deployment      |\n| Denylist | Pass |\n| Memory            | Pass - All |",
        ),
    ),
    "a kernel that went to a wrong address": Class(
        "cuda-program-error",
        (
            "RuntimeError: CUDA error: misaligned address\nCompile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.",
            "E CUDA error: an illegal memory access was encountered\nE   current device: 1, in function ggml_backend_cuda_synchronize at ggml-cuda.cu:2900",
            "[rank1]: Process group watchdog thread terminated with exception: CUDA error: an illegal memory access was encountered",
        ),
        (
            "RuntimeError: CUDA error: out of memory",
            "NVRM: Xid (PCI:0000:06:00): 79, pid=1, GPU has fallen off the bus.",
        ),
    ),
    "memory that does not suffice, by other programs": Class(
        "out-of-memory",
        (
            "ValueError: To serve at least one request with the models's max seq len (40960), (5.62 GiB KV cache is needed, which is larger than the available KV cache memory (3.2 GiB).",
            "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 4294967296 bytes.",
            "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 8,000,000,000 bytes",
        ),
        (
            "OOM when allocating tensor with shape[128,256] on /job:localhost/replica:0/task:0/device:CPU:0 by allocator cpu",
            "grpc: RESOURCE_EXHAUSTED: quota",
        ),
    ),
    "a library that a program loads by its own words": Class(
        "cuda-lib-missing",
        (
            'Error loading "C:\\x\\onnxruntime\\capi\\onnxruntime_providers_cuda.dll" which depends on "cublasLt64_12.dll" which is missing. (Error 126: "The specified module could not be found.")',
            "bitsandbytes library load error: Configured CUDA binary not found at /x/site-packages/bitsandbytes/libbitsandbytes_cuda130.so",
            "RuntimeError: Failed to load the native library: libbitsandbytes_cuda130.so: cannot open shared object file\nbitsandbytes library load error: Configured CUDA binary not found at /x/site-packages/bitsandbytes/libbitsandbytes_cuda130.so",
        ),
    ),
}
