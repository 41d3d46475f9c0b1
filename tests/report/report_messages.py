"""Messages as programs print them, each with the cause that it shows by itself.

Sources: torch's, pip's, uv's, conda's, NCCL's, CUDA's, docker's, Kubernetes' and the kernel's own
message texts in their versions. A text with several lines is one message.
"""

from __future__ import annotations

DEVICE_COUNT = (
    "RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling "
    "NumCudaDevices() that might have already set an error? Error "
)
WARNED = (
    "/usr/lib/python3.10/site-packages/torch/cuda/__init__.py:141: UserWarning: CUDA initialization: "
    "Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling NumCudaDevices() "
    "that might have already set an error? Error "
)
INTERNAL = "(Triggered internally at ../c10/cuda/CUDAFunctions.cpp:108.)"

MESSAGES: tuple[tuple[str, str], ...] = (
    # --- the slot
    ("pcie-degraded", "pci 0000:01:00.0: 31.504 Gb/s available PCIe bandwidth, limited by 8.0 GT/s PCIe x4 link at 0000:00:1c.0 (capable of 252.048 Gb/s with 16.0 GT/s PCIe x16 link)"),
    # --- a program, its processes and its compilers
    ("out-of-memory", "the run ends with a CUDA out of memory error after 3 epochs"),
    ("shm-too-small", "  exitcode  : -7 (pid: 77)\n  traceback : Signal 7 (SIGBUS) received by PID 77"),
    ("bf16-unsupported", "ValueError: bf16 requested, but AMP is not supported on this GPU. Requires Ampere series or above."),
    ("windows-path-too-long", "ninja: error: Stat(C:/Users/me/AppData/Local/Temp/build/flash_api.obj): Filename longer than 260 characters"),
    # --- other makers
    ("apple-silicon", "ValueError: fp16 mixed precision requires a GPU (not 'mps')."),
    ("jetson-wrong-wheel", "on my Jetson Orin Nano torch.cuda.is_available() always returns False"),
    # --- a notebook that was lent without a GPU
    ("cuda-fork-reinit", 'RuntimeError: Caught RuntimeError in DataLoader worker process 2.\n  File "/x/torch/utils/data/_utils/worker.py", line 178, in _worker_loop\nRuntimeError: CUDA error: initialization error'),
    ("triton-missing", 'File "/usr/lib/python3.11/site-packages/torch/_inductor/scheduler.py"\nRuntimeError: Cannot find a working triton installation.'),
    ("amd-gpu", "GPU :- AMD 6600xt\nAssertionError: Torch not compiled with CUDA enabled"),
    ("no-kernel-image", "enqueue.cc:231 NCCL WARN Cuda failure 'invalid device function'"),
    ("arch-too-old-for-wheel", "Found GPU0 Tesla V100-SXM2-32GB which is of compute capability (CC) 7.0.\nYour installed torch==2.10.0+cu130 does not include kernels for this GPU. Reinstall the same version against a CUDA build that does, e.g.:"),
    # --- CUDA does not start
    ("libcuda-driver-mismatch", DEVICE_COUNT + "803: system has unsupported display driver / cuda driver combination"),
    ("mps-server", DEVICE_COUNT + "805: MPS client failed to connect to the MPS control daemon or the MPS server"),
    ("compute-mode-exclusive", "RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable"),
    ("cuda-init-out-of-memory", DEVICE_COUNT + "2: out of memory"),
    ("driver-too-old", "RuntimeError: The NVIDIA driver on your system is too old (found version 11040). Please update your GPU driver"),
    ("ok", "PyTorch version: 2.7.0+cu126\nIs CUDA available: True\nGPU models and configuration: GPU 0: NVIDIA A40\nNvidia driver version: 560.35.03\nWARNING: Unable to detect NVIDIA/AMD GPU. Install lspci or lshw.\nfound NVIDIA or AMD GPU: no AMD GPU"),
    ("nvml-mismatch", "[   61.2] nvidia-nvswitch: Version mismatch, kernel version 535.183.01 user version 535.161.08"),
    ("nccl-error", "node7:411:902 [2] transport/nvls.cc:254 NCCL WARN Cuda failure 1 'invalid argument'\nnode7:411:902 [2] NCCL INFO transport/nvls.cc:409 -> 1"),
    ("ptx-unsupported-toolchain", "RuntimeError: CUDA error: the provided PTX was compiled with an unsupported toolchain."),
    # --- the driver
    ("secure-boot-rejected", "modprobe: ERROR: could not insert 'nvidia': Key was rejected by service"),
    ("gpu-fell-off-bus", "NVRM: Xid (PCI:0000:01:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."),
    ("ecc-error", "RuntimeError: CUDA error: uncorrectable ECC error encountered"),
    ("device-permission", "Failed to initialize NVML: Insufficient Permissions"),
    ("vgpu-unlicensed", "    vGPU Software Licensed Product\n        Product Name                      : NVIDIA RTX Virtual Workstation\n        License Status                    : Unlicensed (Unrestricted)"),
    # --- the kernel, dkms, containers: what pasted logs hold besides
    ("gpu-hang", "NVRM: Xid (PCI:0000:41:00): 109, pid=4711, name=python3, Ch 00000011, errorString CTX SWITCH TIMEOUT, Info 0x3c00c"),
    ("container-no-gpu", "I tensorflow/stream_executor/cuda/cuda_diagnostics.cc:156] kernel driver does not appear to be running on this host (0123456789ab): /proc/driver/nvidia/version does not exist"),
    ("container-toolkit-missing", "Loading NVML\nFailed to initialize NVML: could not load NVML library.\nIf this is a GPU node, did you set the docker default runtime to `nvidia`?"),
    ("container-cdi-unresolvable", "Error: setting up CDI devices: unresolvable CDI devices [nvidia.com/gpu=0](http://nvidia.com/gpu=0)"),
    ("cuda-init-failed", "UserWarning: CUDA initialization: CUDA driver initialization failed, you might not have a CUDA gpu. (Triggered internally at ../c10/cuda/CUDAFunctions.cpp:109.)"),
    ("driver-does-not-answer", "[ +0.00] task:python3 state:D stack:    0 pid: 7 ppid: 6 flags:0x00000002\n[ +0.00]  mutex_lock+0x34/0x40\n[ +0.00]  uvm_gpu_retain+0x1e/0x40 [nvidia_uvm]"),
    # --- containers
    ("container-nvml-lost", "root@4f2e1d0c9b8a:/workspace# nvidia-smi\nFailed to initialize NVML: Unknown Error"),
    ("wsl-driver", "Failed to initialize NVML: GPU access blocked by the operating system\nFailed to properly shut down NVML: GPU access blocked by the operating system"),
    # --- kernels
    ("gpu-too-old-for-triton", "torch._inductor.exc.InductorError: RuntimeError: Found Tesla P100-PCIE-16GB which is too old to be supported by the triton GPU compiler, which is used as the backend. Triton only supports devices of CUDA Capability >= 7.0, but your device is of CUDA capability 6.0"),
    # --- memory
    ("dataloader-worker-killed", "RuntimeError: DataLoader worker (pid 1234) is killed by signal: Killed. "),
    # --- libraries
    ("ld-library-path-conflict", "RuntimeError: cuDNN version incompatibility: PyTorch was compiled  against (8, 9, 2) but found runtime version (8, 5, 0). PyTorch already comes bundled with cuDNN. One option to resolving this error is to ensure PyTorch can find the bundled cuDNN. Looks like your LD_LIBRARY_PATH contains incompatible version of cudnn"),
    ("mkl-version-mismatch", "ImportError: /home/user/miniconda3/envs/x/lib/python3.9/site-packages/torch/lib/libtorch_cpu.so: undefined symbol: iJIT_IsProfilingActive"),
    ("numpy-abi-mismatch", "AttributeError: _ARRAY_API not found"),
    ("windows-pagefile-too-small", 'OSError: [WinError 1455] The paging file is too small for this operation to complete. Error loading "C:\\env\\lib\\site-packages\\torch\\lib\\cudnn_cnn_infer64_8.dll" or one of its dependencies.'),
    ("torchaudio-mismatch", "OSError: /opt/env/lib/python3.10/site-packages/torchaudio/lib/libtorchaudio.so: undefined symbol: _ZN3c104cuda14ExchangeDeviceEa"),
    ("extension-abi-mismatch", "ImportError: /opt/env/lib/python3.12/site-packages/vllm/_C.abi3.so: undefined symbol: _ZN3c1013MessageLoggerC1EPKciib"),
    ("torch-missing", "ModuleNotFoundError: No module named 'torch'"),
    # --- builds
    ("cuda-toolkit-missing", "OSError: CUDA_HOME environment variable is not set. Please set it to your CUDA install root."),
    ("triton-missing-windows", "C:\\proj> python run.py\nRuntimeError: Cannot find a working triton installation. Either the package is not installed or it is too old."),
    # --- installing
    ("python-no-wheel", "pip install torch==1.7.1\nERROR: Could not find a version that satisfies the requirement torch==1.7.1 (from versions: 2.2.0, 2.2.1, 2.2.2, 2.3.0, 2.3.1, 2.4.0)\nERROR: No matching distribution found for torch==1.7.1"),
    ("wrong-index", "pip install torch --index-url https://download.pytorch.org/whl/cu125\nLooking in indexes: https://download.pytorch.org/whl/cu125\nERROR: Could not find a version that satisfies the requirement torch (from versions: none)\nERROR: No matching distribution found for torch"),
    ("resolver-conflict", "ERROR: ResolutionImpossible: for help visit https://pip.pypa.io/en/latest/topics/dependency-resolution/#dealing-with-dependency-conflicts"),
    ("download-hash-mismatch", "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE. If you have updated the package versions, please update the hashes."),
    ("pip-missing", "/home/user/.venv/bin/python: No module named pip"),
    # --- what older and newer programs write for the same
    ("compiler-too-new", "/opt/cuda/include/crt/host_config.h:129:2: error: #error -- unsupported GNU version! gcc versions later than 9 are not supported!"),
    # --- compiled parts: missing, not built, too old
    ("build-without-gpu", '  File "/srv/torch/utils/cpp_extension.py", line 1951, in _get_cuda_arch_flags\n    arch_list[-1] += \'+PTX\'\nIndexError: list index out of range'),
    ("ninja-missing", "RuntimeError: Ninja is required to load C++ extensions"),
    ("gpu-too-old-for-flash-attention", "RuntimeError: FlashAttention only supports Ampere GPUs or newer."),
    ("compiler-missing", "nvcc fatal   : Cannot find compiler 'cl.exe' in PATH"),
    ("ok", "- `llamafactory` version: 0.9.2\n- PyTorch version: 2.5.1+cu124 (GPU)\n- GPU type: NVIDIA GeForce RTX 3090\n- GPU number: 2"),
    ("torch-half-installed", "  File \"/srv/env/lib/python3.9/site-packages/torch/__init__.py\", line 205, in <module>\n    for name in dir(_C):\nNameError: name '_C' is not defined"),
    ("python-32bit", "Python 3.10.11 (tags/v3.10.11:7d4cc5a, Apr  5 2023, 00:05:50) [MSC v.1929 32 bit (Intel)] on win32\nERROR: No matching distribution found for torch"),
    # --- several processes and GPUs
    ("nccl-duplicate-gpu", "ncclInvalidUsage: This usually reflects invalid usage of NCCL library.\nLast error:\nDuplicate GPU detected : rank 1 and rank 0 both on CUDA device 81000"),
    ("nccl-shm-error", "host:1:1 [0] misc/shmutils.cc:72 NCCL WARN Error: failed to extend /dev/shm/nccl-AbCdEf to 9637892 bytes\nhost:1:1 [0] misc/shmutils.cc:113 NCCL WARN Error while creating shared memory segment /dev/shm/nccl-AbCdEf (size 9637888)"),
    # --- other makers, nothing to use
    ("smi-banner-misread", "| NVIDIA-SMI 610.47                 KMD Version: 610.47        CUDA UMD Version: 13.3     |\ngpu            NVIDIA GPU detected\n               could not determine CUDA version from nvidia-smi, defaulting to cu126"),
)  # fmt: skip
"""Cause -> a text that shows it alone."""
