"""Messages as programs print them, each with the cause that it shows by itself.

Sources: torch's, pip's, uv's, conda's, NCCL's, CUDA's, docker's, Kubernetes' and the kernel's own
message texts in their versions. A text with several lines is one message.
"""

from __future__ import annotations

DEVICE_COUNT = (
    "RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling "
    "NumCudaDevices() that might have already set an error? Error "
)
MESSAGES: tuple[tuple[str, str], ...] = (
    # --- the slot
    ("pcie-degraded", "pci 0000:01:00.0: 31.504 Gb/s available PCIe bandwidth, limited by 8.0 GT/s PCIe x4 link at 0000:00:1c.0 (capable of 252.048 Gb/s with 16.0 GT/s PCIe x16 link)"),
    ("conda-cuda-virtual-missing", "pytorch-gpu is not installable because it requires\n   __cuda =* *, which is missing on the system."),
    # --- a program, its processes and its compilers
    ("out-of-memory", "the run ends with a CUDA out of memory error after 3 epochs"),
    ("shm-too-small", "  exitcode  : -7 (pid: 77)\n  traceback : Signal 7 (SIGBUS) received by PID 77"),
    ("nccl-no-socket-interface", "ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.\nLast error:\nsocketStartConnect: Connect to 10.1.2.3<40001> failed : No route to host"),
    ("bf16-unsupported", "ValueError: bf16 requested, but AMP is not supported on this GPU. Requires Ampere series or above."),
    ("jit-arch-rejected", "ptxas /tmp/a, line 6; error   : PTX .version 7.4 does not support .target sm_89\nptxas fatal   : Ptx assembly aborted due to errors"),
    ("cuda-program-error", "../aten/src/ATen/native/cuda/Indexing.cu:1233: operator(): block: [5,0,0], thread: [64,0,0] Assertion `srcIndex < srcSelectDimSize` failed."),
    # --- other makers
    ("apple-silicon", "ValueError: fp16 mixed precision requires a GPU (not 'mps')."),
    ("jetson-wrong-wheel", "on my Jetson Orin Nano torch.cuda.is_available() always returns False"),
    # --- a notebook that was lent without a GPU
    ("driver-missing", '  File "/content/model/run.py", line 9, in main\nRuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU'),
    ("cuda-fork-reinit", 'RuntimeError: Caught RuntimeError in DataLoader worker process 2.\n  File "/x/torch/utils/data/_utils/worker.py", line 178, in _worker_loop\nRuntimeError: CUDA error: initialization error'),
    ("torch-sees-no-gpu", "UserWarning: User provided device_type of 'cuda', but CUDA is not available. Disabling"),
    ("triton-missing", 'File "/usr/lib/python3.11/site-packages/torch/_inductor/scheduler.py"\nRuntimeError: Cannot find a working triton installation.'),
    ("amd-gpu", "GPU :- AMD 6600xt\nAssertionError: Torch not compiled with CUDA enabled"),
    ("arch-too-old-for-wheel", "Found GPU0 Tesla V100-SXM2-32GB which is of compute capability (CC) 7.0.\nYour installed torch==2.10.0+cu130 does not include kernels for this GPU. Reinstall the same version against a CUDA build that does, e.g.:"),
    # --- CUDA does not start
    ("system-not-ready-fabric-manager", DEVICE_COUNT + "802: system not yet initialized"),
    ("libcuda-driver-mismatch", DEVICE_COUNT + "803: system has unsupported display driver / cuda driver combination"),
    ("forward-compat-unsupported", DEVICE_COUNT + "804: forward compatibility was attempted on non supported HW"),
    ("compute-mode-exclusive", "RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable"),
    ("invalid-device-ordinal", "RuntimeError: CUDA error: invalid device ordinal\nCUDA kernel errors might be asynchronously reported at some other API call"),
    ("libcuda-stub", "numba.cuda.cudadrv.driver.CudaAPIError: [34] Call to cuInit results in CUDA_ERROR_STUB_LIBRARY"),
    ("driver-too-old", "RuntimeError: The NVIDIA driver on your system is too old (found version 11040). Please update your GPU driver"),
    ("container-hook-failed", 'Error: failed to start container "cuda-add": Error response from daemon: Running hook #0:: error running hook: exit status 1, stdout: , stderr: nvidia-container-cli.real: initialization error: driver error: failed to process request: unknown'),
    ("ok", "PyTorch version: 2.7.0+cu126\nIs CUDA available: True\nGPU models and configuration: GPU 0: NVIDIA A40\nNvidia driver version: 560.35.03\nWARNING: Unable to detect NVIDIA/AMD GPU. Install lspci or lshw.\nfound NVIDIA or AMD GPU: no AMD GPU"),
    ("nvml-mismatch", "[   61.2] nvidia-nvswitch: Version mismatch, kernel version 535.183.01 user version 535.161.08"),
    ("mig-misconfigured", "CUDA_VISIBLE_DEVICES=MIG-1c5d2f2e-7a40-5a1c-9d1e-0f2f3c4d5e6f,MIG-2c5d2f2e-7a40-5a1c-9d1e-0f2f3c4d5e6f python train.py\nRuntimeError: CUDA error: invalid device ordinal"),
    ("nccl-error", "node7:411:902 [2] transport/nvls.cc:254 NCCL WARN Cuda failure 1 'invalid argument'\nnode7:411:902 [2] NCCL INFO transport/nvls.cc:409 -> 1"),
    ("gpu-init-failed", "[   44.1] NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:\n               NVRM: BAR1 is 0M @ 0x0 (PCI:0000:03:00.0)\n[   44.1] nvidia: probe of 0000:03:00.0 failed with error -1"),
    ("ptx-unsupported-toolchain", "RuntimeError: CUDA error: the provided PTX was compiled with an unsupported toolchain."),
    # --- the driver
    ("driver-not-loaded", "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA driver is installed and running.\n"),
    ("secure-boot-rejected", "modprobe: ERROR: could not insert 'nvidia': Key was rejected by service"),
    ("gpu-fell-off-bus", "NVRM: Xid (PCI:0000:01:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."),
    ("gsp-timeout", "NVRM: Xid (PCI:0000:c1:00): 119, pid=2211, name=python, Timeout after 6s of waiting for RPC response from GPU3 GSP! Expected function 76 (GSP_RM_CONTROL) (0x2080a7d7 0x4)."),
    ("ecc-error", "RuntimeError: CUDA error: uncorrectable ECC error encountered"),
    ("device-permission", "Failed to initialize NVML: Insufficient Permissions"),
    ("vgpu-unlicensed", "    vGPU Software Licensed Product\n        Product Name                      : NVIDIA RTX Virtual Workstation\n        License Status                    : Unlicensed (Unrestricted)"),
    # --- the kernel, dkms, containers: what pasted logs hold besides
    ("driver-build-failed", "Error! Bad return status for module build on kernel: 6.14.0-37-generic (x86_64)\nConsult /var/lib/dkms/nvidia/535.54.03/build/make.log for more information."),
    ("container-no-gpu", "I tensorflow/stream_executor/cuda/cuda_diagnostics.cc:156] kernel driver does not appear to be running on this host (0123456789ab): /proc/driver/nvidia/version does not exist"),
    ("gpu-not-supported-by-driver", "[  5.1] NVRM: The NVIDIA Quadro K4000 GPU installed in this system is\nNVRM:  supported through the NVIDIA 470.xx Legacy drivers. Please\nNVRM:  visit http://www.nvidia.com/object/unix.html for more\nNVRM:  information.  The 550.54.14 NVIDIA driver will ignore\nNVRM:  this GPU.  Continuing probe...\nNVRM: No NVIDIA GPU found."),
    ("container-toolkit-missing", "Loading NVML\nFailed to initialize NVML: could not load NVML library.\nIf this is a GPU node, did you set the docker default runtime to `nvidia`?"),
    ("container-cdi-unresolvable", "Error: setting up CDI devices: failed to inject devices: failed to stat CDI host device \"/dev/nvidia1\": no such file or directory"),
    ("cuda-sees-no-device", "level=INFO source=gpu.go:600 msg=\"no nvidia devices detected by library /usr/lib64/libcuda.so.570.86.15\""),
    ("cuda-init-failed", "UserWarning: CUDA initialization: CUDA driver initialization failed, you might not have a CUDA gpu. (Triggered internally at ../c10/cuda/CUDAFunctions.cpp:109.)"),
    ("driver-does-not-answer", "[  484.1] INFO: task nvidia-smi:4711 blocked for more than 120 seconds."),
    # --- containers
    ("container-nvml-lost", "root@4f2e1d0c9b8a:/workspace# nvidia-smi\nFailed to initialize NVML: Unknown Error"),
    ("k8s-gpu-not-allocatable", "Warning  FailedScheduling  3m  default-scheduler  0/4 nodes are available: 4 Insufficient nvidia.com/gpu. preemption: 0/4 nodes are available"),
    ("wsl-driver", "Failed to initialize NVML: GPU access blocked by the operating system\nFailed to properly shut down NVML: GPU access blocked by the operating system"),
    # --- kernels
    ("arch-too-new-for-wheel", "NVIDIA GeForce RTX 5080 with CUDA capability sm_120 is not compatible with the current PyTorch installation.\nThe current PyTorch install supports CUDA capabilities sm_50 sm_60 sm_61 sm_70 sm_75 sm_80 sm_86 sm_90.\nIf you want to use the NVIDIA GeForce RTX 5080 GPU with PyTorch, please check the instructions at https://pytorch.org/get-started/locally/"),
    # --- memory
    ("out-of-memory", "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 23.69 GiB total capacity; 20.11 GiB already allocated; 1.21 GiB free; 21.95 GiB reserved in total by PyTorch)"),
    ("dataloader-worker-killed", "RuntimeError: DataLoader worker (pid 1234) is killed by signal: Killed. "),
    # --- libraries
    ("cuda-lib-missing", "ImportError: libcudart.so.11.0: cannot open shared object file: No such file or directory"),
    ("ld-library-path-conflict", "ImportError: /home/user/env/lib/python3.11/site-packages/torch/lib/libtorch_cuda.so: undefined symbol: ncclCommRegister"),
    ("glibc-too-old", "ImportError: /lib/x86_64-linux-gnu/libm.so.6: version `GLIBC_2.29' not found (required by /home/user/lib/python3.8/site-packages/torch/lib/libtorch_cpu.so)"),
    ("numpy-abi-mismatch", "AttributeError: _ARRAY_API not found"),
    ("windows-dll-missing", 'OSError: [WinError 126] The specified module could not be found. Error loading "C:\\Users\\user\\venv\\lib\\site-packages\\torch\\lib\\fbgemm.dll" or one of its dependencies.'),
    ("windows-pagefile-too-small", 'OSError: [WinError 1455] The paging file is too small for this operation to complete. Error loading "C:\\env\\lib\\site-packages\\torch\\lib\\cudnn_cnn_infer64_8.dll" or one of its dependencies.'),
    ("torchvision-mismatch", "RuntimeError: operator torchvision::nms does not exist"),
    ("torchaudio-mismatch", "OSError: /opt/env/lib/python3.10/site-packages/torchaudio/lib/libtorchaudio.so: undefined symbol: _ZN3c104cuda14ExchangeDeviceEa"),
    ("extension-abi-mismatch", "ImportError: /opt/env/lib/python3.10/site-packages/flash_attn_2_cuda.cpython-310-x86_64-linux-gnu.so: undefined symbol: _ZN3c104cuda9SetDeviceEi"),
    ("module-shadowed", "AttributeError: partially initialized module 'torch' has no attribute 'Tensor' (most likely due to a circular import)"),
    ("torch-missing", "ModuleNotFoundError: No module named 'torch'"),
    # --- builds
    ("cuda-toolkit-mismatch-extension-build", "RuntimeError: \n      The detected CUDA version (12.4) mismatches the version that was used to compile\n      PyTorch (11.8). Please make sure to use the same CUDA versions."),
    ("cuda-toolkit-missing", "OSError: CUDA_HOME environment variable is not set. Please set it to your CUDA install root."),
    ("build-isolation-no-torch", "  \u00d7 Getting requirements to build wheel did not run successfully.\n  \u2502 exit code: 1\n  \u2570\u2500> [20 lines of output]\n        File \"/tmp/pip-build-env-abc/overlay/lib/python3.11/site-packages/setuptools/build_meta.py\", line 325, in get_requires_for_build_wheel\n      ModuleNotFoundError: No module named 'torch'\n      [end of output]"),
    ("triton-missing-windows", "C:\\proj> python run.py\nRuntimeError: Cannot find a working triton installation. Either the package is not installed or it is too old."),
    # --- installing
    ("python-no-wheel", "pip install torch==1.7.1\nERROR: Could not find a version that satisfies the requirement torch==1.7.1 (from versions: 2.2.0, 2.2.1, 2.2.2, 2.3.0, 2.3.1, 2.4.0)\nERROR: No matching distribution found for torch==1.7.1"),
    ("wrong-index", "pip install torch --index-url https://download.pytorch.org/whl/cu125\nLooking in indexes: https://download.pytorch.org/whl/cu125\nERROR: Could not find a version that satisfies the requirement torch (from versions: none)\nERROR: No matching distribution found for torch"),
    ("no-wheel-for-platform", "error: Distribution `torch==2.3.0 @ registry+https://download.pytorch.org/whl/cu121` can't be installed because it doesn't have a source distribution or wheel for the current platform\n\nhint: You're on macOS (`macosx_14_0_x86_64`), but `torch` (v2.3.0) only has wheels for the following platforms: `manylinux1_x86_64`, `macosx_11_0_arm64`"),
    ("resolver-conflict", "ERROR: ResolutionImpossible: for help visit https://pip.pypa.io/en/latest/topics/dependency-resolution/#dealing-with-dependency-conflicts"),
    ("pip-cache-disk-full", "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device"),
    ("download-network-error", "pip._vendor.urllib3.exceptions.ReadTimeoutError: HTTPSConnectionPool(host='download.pytorch.org', port=443): Read timed out."),
    # --- what older and newer programs write for the same
    ("compiler-too-new", "/opt/cuda/include/crt/host_config.h:129:2: error: #error -- unsupported GNU version! gcc versions later than 9 are not supported!"),
    # --- compiled parts: missing, not built, too old
    ("extension-not-built", "    ext = importlib.import_module('mmcv.' + name)\nModuleNotFoundError: No module named 'mmcv._ext'"),
    ("extension-not-built", '  File "/srv/torch/utils/cpp_extension.py", line 1951, in _get_cuda_arch_flags\n    arch_list[-1] += \'+PTX\'\nIndexError: list index out of range'),
    ("cxx-standard-too-old", "src/nms_cuda.cpp:3:10: fatal error: THC/THC.h: No such file or directory"),
    ("compiler-missing", "RuntimeError: Ninja is required to load C++ extensions"),
    ("cxx-standard-too-old", "/srv/torch/include/ATen/ATen.h:4:2: error: #error C++17 or later compatible compiler is required to use ATen."),
    ("gpu-too-old-for-flash-attention", "RuntimeError: FlashAttention only supports Ampere GPUs or newer."),
    ("no-kernel-image", "RuntimeError: Triton Error [CUDA]: device kernel image is invalid"),
    ("compiler-missing", "nvcc fatal   : Cannot find compiler 'cl.exe' in PATH"),
    ("ok", "Python: 3.10.4\nCUDA available: True\n/bin/sh: 1: /usr/local/cuda/bin/nvcc: not found\nNVCC: Not Available\nPyTorch: 2.5.1+cu124"),
    ("ok", "- `llamafactory` version: 0.9.2\n- PyTorch version: 2.5.1+cu124 (GPU)\n- GPU type: NVIDIA GeForce RTX 3090\n- GPU number: 2"),
    ("ok", "* CUDA:\n\t- GPU:\n\t\t- NVIDIA GeForce RTX 3090\n\t- available:         True\n\t- version:           12.4\n* Lightning:\n\t- torch:             2.5.1+cu124"),
    ("torch-half-installed", "  File \"/srv/env/lib/python3.9/site-packages/torch/__init__.py\", line 205, in <module>\n    for name in dir(_C):\nNameError: name '_C' is not defined"),
    ("torch-cpu-build", "torch.cuda.is_available() False\npytorch                   1.7.1               py3.8_cpu_0  [cpuonly]  pytorch"),
    ("python-32bit", "Python 3.10.11 (tags/v3.10.11:7d4cc5a, Apr  5 2023, 00:05:50) [MSC v.1929 32 bit (Intel)] on win32\nERROR: No matching distribution found for torch"),
    # --- several processes and GPUs
    ("nccl-unavailable-windows", "C:\\p> python t.py\nRuntimeError: Distributed package doesn't have NCCL built in"),
    ("nccl-duplicate-gpu", "ncclInvalidUsage: This usually reflects invalid usage of NCCL library.\nLast error:\nDuplicate GPU detected : rank 1 and rank 0 both on CUDA device 81000"),
    ("nccl-p2p-failure", "RuntimeError: CUDA error: peer access is not supported between these two devices"),
    # --- other makers, nothing to use
    ("windows-path-too-long", "ninja: error: Stat(C:/Users/me/AppData/Local/Temp/build/flash_api.obj): Filename longer than 260 characters"),
    ("uvm-missing", "modprobe: FATAL: Module nvidia-uvm not found in directory /lib/modules/5.15.0-113-generic"),
    ("hybrid-gpu-off", "$ envycontrol --query\nintegrated"),
    ("container-cdi-unresolvable", "Error: setting up CDI devices: unresolvable CDI devices [nvidia.com/gpu=0](http://nvidia.com/gpu=0)"),
    ("driver-does-not-answer", "[ +0.00] task:python3 state:D stack:    0 pid: 7 ppid: 6 flags:0x00000002\n[ +0.00]  mutex_lock+0x34/0x40\n[ +0.00]  uvm_gpu_retain+0x1e/0x40 [nvidia_uvm]"),
    ("driver-not-loaded", "$ modinfo nvidia\nmodinfo: ERROR: Module nvidia not found."),
    ("gpu-too-old-for-triton", "torch._inductor.exc.InductorError: RuntimeError: Found Tesla P100-PCIE-16GB which is too old to be supported by the triton GPU compiler, which is used as the backend. Triton only supports devices of CUDA Capability >= 7.0, but your device is of CUDA capability 6.0"),
    ("ld-library-path-conflict", "RuntimeError: cuDNN version incompatibility: PyTorch was compiled  against (8, 9, 2) but found runtime version (8, 5, 0). PyTorch already comes bundled with cuDNN. One option to resolving this error is to ensure PyTorch can find the bundled cuDNN. Looks like your LD_LIBRARY_PATH contains incompatible version of cudnn"),
    ("extension-abi-mismatch", "ImportError: /opt/env/lib/python3.12/site-packages/vllm/_C.abi3.so: undefined symbol: _ZN3c1013MessageLoggerC1EPKciib"),
    ("download-hash-mismatch", "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE. If you have updated the package versions, please update the hashes."),
    ("pip-missing", "/home/user/.venv/bin/python: No module named pip"),
    ("module-shadowed", "  File \"/srv/job/warnings.py\", line 2, in <module>\nAttributeError: partially initialized module 'warnings' has no attribute 'warn' (most likely due to a circular import)"),
    ("nccl-shm-error", "host:1:1 [0] misc/shmutils.cc:72 NCCL WARN Error: failed to extend /dev/shm/nccl-AbCdEf to 9637892 bytes\nhost:1:1 [0] misc/shmutils.cc:113 NCCL WARN Error while creating shared memory segment /dev/shm/nccl-AbCdEf (size 9637888)"),
)  # fmt: skip
"""Cause -> a text that shows it alone."""
