"""Texts of programs beside torch, composed of how they word their failures: program, stage, causes that are right, text.

The wording of each program's message is its own; versions, paths and names are made up.
"""

from __future__ import annotations

from typing import NamedTuple


class Said(NamedTuple):
    """One text, and what is to be read of it."""

    program: str | None
    stage: str | None
    causes: str
    """Any one of them is right; the first is meant."""
    text: str


SMI = """\
| NVIDIA-SMI 570.86.15              Driver Version: 570.86.15      CUDA Version: 12.8     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
|=========================================+========================+======================|
|   0  NVIDIA GeForce RTX 4090        Off |   00000000:01:00.0 Off |                  N/A |
| 30%   36C    P8             20W /  450W |     413MiB /  24564MiB |      0%      Default |
+-----------------------------------------+------------------------+----------------------+
"""

SAID: tuple[Said, ...] = (
    # --- onnxruntime
    Said("onnxruntime", "start", "ok", "onnxruntime_inference_collection.py:118: UserWarning: Specified provider 'CUDAExecutionProvider' is not in available provider names.Available providers: 'AzureExecutionProvider, CPUExecutionProvider'\n  warnings.warn("),
    Said("onnxruntime", "start", "ok", SMI + ">>> import onnxruntime as ort\n>>> ort.get_available_providers()\n['AzureExecutionProvider', 'CPUExecutionProvider']"),
    Said("onnxruntime", "start", "cuda-lib-missing", "[E:onnxruntime:Default, provider_bridge_ort.cc:1548 TryGetProviderInfo_CUDA] onnxruntime::Provider& onnxruntime::ProviderLibrary::Get() [ONNXRuntimeError] : 1 : FAIL : Failed to load library libonnxruntime_providers_cuda.so with error: libcublasLt.so.11: cannot open shared object file: No such file or directory\n[W:onnxruntime:Default, onnxruntime_pybind_state.cc:861 CreateExecutionProviderInstance] Failed to create CUDAExecutionProvider."),
    Said("onnxruntime", "start", "cuda-lib-missing", '[E:onnxruntime:Default, provider_bridge_ort.cc:1972 TryGetProviderInfo_CUDA] [ONNXRuntimeError] : 1 : FAIL : LoadLibrary failed with error 126 "" when trying to load "C:\\Users\\a\\site-packages\\onnxruntime\\capi\\onnxruntime_providers_cuda.dll"'),
    Said("onnxruntime", "start", "cuda-lib-missing", "[W:onnxruntime:Default, onnxruntime_pybind_state.cc:965 CreateExecutionProviderInstance] Failed to create CUDAExecutionProvider. Require cuDNN 9.* and CUDA 12.*, and the latest MSVC runtime. Please install all dependencies as mentioned in the GPU requirements page"),
    # --- torchcodec, torchao
    Said("torchcodec", "import", "ok", "RuntimeError: Could not load libtorchcodec. Likely causes:\n          1. FFmpeg is not properly installed in your environment. We support\n             versions 4, 5, 6, and 7 on all platforms, and 8 on Mac and Linux.\n          2. The PyTorch version (2.9.1) is not compatible with\n             this version of TorchCodec. Refer to the version compatibility table\n          3. Another runtime dependency; see exceptions below.\n        The following exceptions were raised as we tried to load libtorchcodec:"),
    Said("torchcodec", "import", "library-missing ok", "File \"/x/site-packages/torchcodec/_core/ops.py\", line 75, in load_torchcodec_shared_libraries\nRuntimeError: Could not load libtorchcodec. Likely causes:\n  1. FFmpeg is not properly installed in your environment.\n[start of libtorchcodec loading traceback]\nFFmpeg version 7: libavutil.so.59: cannot open shared object file: No such file or directory\nFFmpeg version 6: libavutil.so.58: cannot open shared object file: No such file or directory"),
    Said("torchcodec", "import", "cuda-lib-missing", "RuntimeError: Could not load libtorchcodec. Likely causes:\n  1. FFmpeg is not properly installed in your environment.\n[start of libtorchcodec loading traceback]\nFFmpeg version 7: libnppicc.so.12: cannot open shared object file: No such file or directory\nFFmpeg version 6: libavutil.so.58: cannot open shared object file: No such file or directory"),
    Said("torchcodec", "import", "extension-abi-mismatch", "RuntimeError: Could not load libtorchcodec. Likely causes:\n  2. The PyTorch version (2.9.1) is not compatible with this version of TorchCodec.\nFFmpeg version 6: /x/site-packages/torchcodec/libtorchcodec_core6.so: undefined symbol: _ZN3c1013MessageLoggerC1EPKciib"),
    Said("torchao", "import", "extension-abi-mismatch ok", "Skipping import of cpp extensions due to incompatible torch version 2.9.1+cu128 for torchao version 0.15.0             Please see https://github.com/pytorch/ao/issues/2919 for more info"),
    # --- engines
    Said("sgl-kernel", "import", "extension-abi-mismatch", "ImportError:\n[sgl_kernel] CRITICAL: Could not load any common_ops library!\nGPU Info:\n- Compute capability: 86\nError details from previous import attempts:\n- ImportError: /usr/local/lib/python3.10/dist-packages/sgl_kernel/sm100/common_ops.abi3.so: undefined symbol: _ZNK3c106SymInt6sym_neERKS0_\n- ModuleNotFoundError: No module named 'common_ops'"),
    Said("sgl-kernel", "import", "library-missing ok", "ImportError: [sgl_kernel] CRITICAL: Could not load any common_ops library!\n- ImportError: libnuma.so.1: cannot open shared object file: No such file or directory"),
    Said("sgl-kernel", "import", "cuda-lib-missing", "ImportError: [sgl_kernel] CRITICAL: Could not load any common_ops library!\nError details:\n- ImportError: libnvrtc.so.12: cannot open shared object file: No such file or directory"),
    Said("SGLang", "start", "unknown ok", "[2026-02-03 10:00:01] Scheduler hit an exception: Traceback (most recent call last):\n  File \"/sgl-workspace/sglang/python/sglang/srt/managers/scheduler.py\", line 2680, in run_scheduler_process\nKeyError: 'model.layers.0.mlp.gate_up_proj.weight'"),
    Said("flashinfer", "build", "cuda-toolkit-missing", "  File \"/x/site-packages/flashinfer/jit/cpp_ext.py\", line 65, in get_cuda_path\nRuntimeError: Could not find nvcc and default cuda_home='/usr/local/cuda' doesn't exist"),
    Said("flashinfer", "build", "ninja-missing ok", "  File \"/x/site-packages/flashinfer/jit/cpp_ext.py\", line 190, in run_ninja\nFileNotFoundError: [Errno 2] No such file or directory: 'ninja'"),
    Said("vLLM", "start", "out-of-memory", "(EngineCore_0 pid=271) ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine."),
    Said("vLLM", "start", "torch-sees-no-gpu no-nvidia-gpu driver-missing unknown", "INFO 03-02 08:12:11 [importing.py:53] Triton module has been replaced with a placeholder.\n  File \"/x/site-packages/vllm/config/__init__.py\", line 1941, in __post_init__\nRuntimeError: Failed to infer device type, please set the environment variable `VLLM_LOGGING_LEVEL=DEBUG` to turn on verbose logging"),
    Said("vLLM", "import", "extension-abi-mismatch", "ImportError: /opt/venv/lib/python3.12/site-packages/vllm/_C.abi3.so: undefined symbol: _ZN3c104cuda29c10_cuda_check_implementationEiPKcS2_ib"),
    Said("vLLM", "import", "cuda-lib-missing", "WARNING [interface.py:172] Failed to import from vllm._C: ImportError('libcudart.so.12: cannot open shared object file: No such file or directory')"),
    Said("SageAttention", "build", "build-isolation-no-torch", "Collecting sageattention==2.2.0\n  Getting requirements to build wheel ... error\n  ModuleNotFoundError: No module named 'torch'"),
    Said("SageAttention", "first-kernel", "extension-arch-mismatch no-kernel-image", "  File \"/x/site-packages/sageattention/core.py\", line 157, in sageattn\nAssertionError: SM89 kernel is not available. make sure you GPUs with compute capability 8.9."),
    Said("xformers", "first-kernel", "torch-cpu-build extension-not-built extension-abi-mismatch ok unknown", "NotImplementedError: No operator found for `memory_efficient_attention_forward` with inputs:\n     query       : shape=(1, 4819, 16, 64) (torch.float32)\n`fa2F@0.0.0` is not supported because:\n    xFormers wasn't build with CUDA support\n`cutlassF-pt` is not supported because:\n    xFormers wasn't build with CUDA support"),
    Said("xformers", "import", "extension-abi-mismatch", "WARNING[XFORMERS]: xFormers can't load C++/CUDA extensions. xFormers was built for:\n    PyTorch 2.6.0+cu124 with CUDA 1204 (you have 2.7.0+cu128)\n    Python  3.12.8 (you have 3.12.9)"),
    Said("bitsandbytes", "import", "ok unknown", "UserWarning: The installed version of bitsandbytes was compiled without GPU support. 8-bit optimizers, 8-bit multiplication, and GPU quantization are unavailable.\n  warn(\"The installed version of bitsandbytes was compiled without GPU support. \""),
    Said("bitsandbytes", "import", "cuda-lib-missing", "RuntimeError: \n🚨 CUDA VERSION MISMATCH 🚨\nRequested CUDA version:          12.8\nDetected PyTorch CUDA version:   12.8\nAvailable pre-compiled versions:\n  - 12.1\nThis means:\nThe version you're trying to use is NOT distributed with this package\nlibbitsandbytes_cuda128.so: Required library version not found: libbitsandbytes_cuda128.so"),
    Said("tiny-cuda-nn", "build", "cuda-toolkit-mismatch-extension-build", "Building wheel for tinycudann (setup.py) ... error\nRuntimeError: The detected CUDA version (11.5) mismatches the version that was used to compile PyTorch (12.1). Please make sure to use the same CUDA versions."),
    Said("tiny-cuda-nn", "import", "extension-arch-mismatch", "  File \"/x/site-packages/tinycudann/modules.py\", line 51, in <module>\nOSError: Could not find compatible tinycudann extension for compute capability 75."),
    Said("tiny-cuda-nn", "import", "torch-sees-no-gpu", "  File \"/x/tinycudann/modules.py\", line 34, in <module>\nEnvironmentError: Unknown compute capability. Ensure PyTorch with CUDA support is installed."),
    # --- Warp, CuPy, numba
    Said("Warp", "start", "driver-missing libcuda-missing", "Warp CUDA error: Could not open libcuda.so.\nWarp 1.7.0 initialized:\n   CUDA Toolkit 12.8, Driver 0.0 (insufficient CUDA driver version!)"),
    Said("Warp", "start", "driver-too-old", "Warp UserWarning:\n   Insufficient CUDA driver version.\n   The minimum required CUDA driver version is 12.0, but the installed CUDA driver version is 11.4."),
    Said("Warp", "start", "ok", "Warp CUDA error: Failed to get driver entry point 'cuDeviceGetUuid' (CUDA error 1)\nWarp CUDA error 36: API call is not supported in the installed CUDA driver (in function cuda_init, /builds/omniverse/warp/warp/native/warp.cu:277)\nWarp 1.7.1 initialized:\n   CUDA Toolkit 12.8, Driver 13.0\n   Devices:\n     \"cpu\"      : \"x86_64\"\n     \"cuda:0\"   : \"NVIDIA GeForce RTX 4070 SUPER\" (12 GiB, sm_89, mempool enabled)"),
    Said("Warp", "start", "libcuda-stub", "Warp CUDA error: Failed to get driver entry point 'cuInit' (CUDA error 34)\nWarp CUDA error: Failed to get driver entry point 'cuDeviceGet' (CUDA error 34)"),
    Said("Warp", "start", "ok unknown", "RuntimeError: \"cuda\" device requested but this build of Warp does not support CUDA"),
    Said("CuPy", "first-kernel", "driver-too-old", "  File \"cupy_backends/cuda/api/runtime.pyx\", line 146, in cupy_backends.cuda.api.runtime.check_status\ncupy_backends.cuda.api.runtime.CUDARuntimeError: cudaErrorInsufficientDriver: CUDA driver version is insufficient for CUDA runtime version"),
    Said("CuPy", "first-kernel", "jit-arch-rejected arch-too-old-for-wheel", "CUDA Runtime Version : 13000\ncupy.cuda.compiler.CompileException: nvrtc: error: invalid value for --gpu-architecture (-arch)"),
    Said("CuPy", "import", "cuda-lib-missing", "ImportError:\n================================================================\nFailed to import CuPy.\n\nOriginal error:\n  ImportError: libnvrtc.so.11.2: cannot open shared object file: No such file or directory"),
    Said("CuPy", "first-kernel", "cuda-lib-missing cuda-toolkit-missing", "  File \"/x/site-packages/cupy/_environment.py\", line 100\nRuntimeError: CuPy failed to load nvrtc64_112_0.dll: FileNotFoundError: Could not find module 'nvrtc64_112_0.dll' (or one of its dependencies)."),
    Said("numba", "first-kernel", "libcuda-missing driver-missing", "numba.cuda.cudadrv.error.CudaSupportError: Error at driver init: \n\nCUDA driver library cannot be found.\nIf you are sure that a CUDA driver is installed,\ntry setting environment variable NUMBA_CUDA_DRIVER\nwith the file path of the CUDA driver shared library."),
    Said("numba", "first-kernel", "cuda-lib-missing cuda-toolkit-missing", "numba.cuda.cudadrv.nvvm.NvvmSupportError: libNVVM cannot be found. Do `conda install cudatoolkit`:\nlibnvvm.so: cannot open shared object file: No such file or directory"),
    Said("numba", "first-kernel", "ptx-unsupported-toolchain", "numba.cuda.cudadrv.driver.LinkerError: [222] Call to cuLinkAddData results in CUDA_ERROR_UNSUPPORTED_PTX_VERSION\nptxas application ptx input, line 9; fatal   : Unsupported .version 8.4; current version is '8.0'"),
    # --- TensorFlow, JAX
    Said("TensorFlow", "start", "driver-missing cuda-lib-missing unknown no-nvidia-gpu", "I tensorflow/tsl/cuda/cudart_stub.cc:28] Could not find cuda drivers on your machine, GPU will not be used.\nNum GPUs Available:  0"),
    Said("TensorFlow", "start", "cuda-lib-missing", SMI + "W tensorflow/core/common_runtime/gpu/gpu_device.cc:2348] Cannot dlopen some GPU libraries. Please make sure the missing libraries mentioned above are installed properly if you would like to use GPU.\nSkipping registering GPU devices..."),
    Said("TensorFlow", "start", "cuda-lib-missing", "W tensorflow/stream_executor/platform/default/dso_loader.cc:64] Could not load dynamic library 'libcusolver.so.11'; dlerror: libcusolver.so.11: cannot open shared object file: No such file or directory\nSkipping registering GPU devices..."),
    Said("TensorFlow", "start", "driver-too-old", "failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected\nE tensorflow/stream_executor/cuda/cuda_driver.cc: CUDA driver version is insufficient for CUDA runtime version"),
    Said("TensorFlow", "start", "cuda-sees-no-device no-nvidia-gpu container-no-gpu torch-sees-no-gpu driver-missing cuda-visible-devices-hidden unknown", "E external/local_xla/xla/stream_executor/cuda/cuda_driver.cc:152] failed call to cuInit: INTERNAL: CUDA error: Failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected"),
    Said("TensorFlow", "start", "cuda-unknown-error", "E external/local_xla/xla/stream_executor/cuda/cuda_driver.cc:152] failed call to cuInit: INTERNAL: CUDA error: Failed call to cuInit: UNKNOWN ERROR (303)"  if False else "E tensorflow/stream_executor/cuda/cuda_driver.cc:328] failed call to cuInit: CUDA_ERROR_UNKNOWN: unknown error"),
    Said("TensorFlow", "start", "driver-missing libcuda-missing", "E tensorflow/compiler/xla/stream_executor/cuda/cuda_driver.cc:268] failed call to cuInit: UNKNOWN ERROR (303)\nW tensorflow/compiler/xla/stream_executor/platform/default/dso_loader.cc:64] Could not load dynamic library 'libcuda.so.1'; dlerror: libcuda.so.1: cannot open shared object file: No such file or directory"),
    Said("JAX", "start", "ok unknown", "WARNING:jax._src.xla_bridge:794: An NVIDIA GPU may be present on this machine, but a CUDA-enabled jaxlib is not installed. Falling back to cpu."),
    Said("JAX", "start", "ok unknown", SMI + "WARNING:absl:No GPU/TPU found, falling back to CPU. (Set TF_CPP_MIN_LOG_LEVEL=0 and rerun for more info.)"),
    Said("JAX", "start", "ld-library-path-conflict", "RuntimeError: Unable to initialize backend 'cuda': Found cuDNN version 8600, but JAX was built against version 8907, which is newer. The copy of cuDNN that is installed must be at least as new as the version against which JAX was built."),
    Said("JAX", "start", "cuda-lib-missing", "Jax plugin configuration error: Exception when calling jax_plugins.xla_cuda12.initialize()\nRuntimeError: Unable to load cuSPARSE. Is it installed?"),
    # --- ollama, llama.cpp
    Said("ollama", "start", "cuda-unknown-error", 'time=2026-01-03T13:26:05.135+08:00 level=DEBUG source=gpu.go:517 msg="Unable to load nvcuda" library=/usr/lib/x86_64-linux-gnu/libcuda.so.535.183.01 error="nvcuda init failure: 999"\ncuInit err: 999'),
    Said("ollama", "start", "driver-too-old", 'time=2025-10-18T19:07:48.147+02:00 level=DEBUG source=gpu.go:537 msg="Unable to load cudart library" error="your nvidia driver is too old or missing. If you have a CUDA GPU please upgrade to run ollama"\ncudaSetDevice err: 35'),
    Said("ollama", "start", "ok", 'time=2026-01-29T10:00:00.000Z level=INFO source=gpu.go:386 msg="no compatible GPUs were discovered"\ntime=2026-01-29T10:00:00.000Z level=INFO source=types.go:130 msg="inference compute" id=0 library=cpu variant=avx2'),
    Said("ollama", "start", "ok", SMI + 'time=2026-01-29T10:00:00.000Z level=INFO source=gpu.go:386 msg="no compatible GPUs were discovered"'),
    Said("ollama", "start", "cuda-sees-no-device container-no-gpu no-nvidia-gpu cuda-visible-devices-hidden torch-sees-no-gpu", 'cuInit err: 100\ntime=2026-01-29T10:00:00.000Z level=DEBUG source=gpu.go:605 msg="Unable to load nvcuda" library=/usr/lib/x86_64-linux-gnu/libcuda.so.1 error="no nvidia devices detected by library /usr/lib/x86_64-linux-gnu/libcuda.so.1"'),
    Said("ollama", "start", "libcuda-missing driver-missing", "load_backend: failed to load /usr/lib/ollama/cuda_v13/libggml-cuda.so: libcuda.so.1: cannot open shared object file: No such file or directory"),
    Said("llama.cpp", "start", "ok unknown", "warning: no usable GPU found, --gpu-layers option will be ignored\nwarning: one possible reason is that llama.cpp was compiled without GPU support\nwarning: consult docs/build.md for compilation instructions"),
    Said("llama.cpp", "start", "cuda-sees-no-device container-no-gpu no-nvidia-gpu cuda-visible-devices-hidden torch-sees-no-gpu", "ggml_cuda_init: failed to initialize CUDA: no CUDA-capable device is detected\nllm_load_tensors: ggml ctx size =    0.14 MiB"),
    Said("llama.cpp", "start", "driver-too-old", "ggml_cuda_init: failed to initialize CUDA: CUDA driver version is insufficient for CUDA runtime version\nwarning: no usable GPU found, --gpu-layers option will be ignored"),
    Said("llama.cpp", "running", "out-of-memory", "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 25438.80 MiB on device 0: cudaMalloc failed: out of memory\nalloc_tensor_range: failed to allocate CUDA0 buffer of size 26674438144\nllama_model_load: error loading model: unable to allocate CUDA0 buffer"),
    Said("llama.cpp", "first-kernel", "no-kernel-image arch-too-old-for-wheel arch-too-new-for-wheel extension-arch-mismatch", "ggml_cuda_compute_forward: RMS_NORM failed\nCUDA error: no kernel image is available for execution on the device\n  current device: 0, in function ggml_cuda_compute_forward at ggml/src/ggml-cuda/ggml-cuda.cu:2373"),
    Said("llama.cpp", "build", "cuda-toolkit-missing", "CMake Error at ggml/src/ggml-cuda/CMakeLists.txt:151 (message):\n  CUDA Toolkit not found\n-- Could not find nvcc, please set CUDAToolkit_ROOT."),
    # --- notebooks, schedulers, hiding scripts
    Said("Colab", "start", "no-nvidia-gpu driver-missing", "/content/run.py\nRuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU and installed a driver\n# /content/drive/MyDrive/x.ipynb"),
    Said("Colab", "start", "no-nvidia-gpu unknown", "Cannot connect to GPU backend\nYou cannot currently connect to a GPU due to usage limits in Colab."),
    Said("Slurm", "start", "unknown ok no-nvidia-gpu", "sbatch: error: Batch job submission failed: Requested node configuration is not available\n#SBATCH --gres=gpu:a100:1"),
    Said("Slurm", "start", "ok unknown", "srun: error: Unable to allocate resources: Invalid generic resource (gres) specification"),
    Said("Kubernetes", "start", "k8s-gpu-not-allocatable", "Warning  FailedScheduling  12s  default-scheduler  0/3 nodes are available: 3 Insufficient nvidia.com/gpu. preemption: 0/3 nodes are available"),
    Said("docker", "start", "container-cdi-unresolvable", "docker: Error response from daemon: failed to create task for container: CDI device injection failed: unresolvable CDI devices nvidia.com/gpu=all"),
    Said("docker", "start", "container-hook-failed driver-not-loaded driver-missing", "docker: Error response from daemon: failed to create task for container: OCI runtime create failed: nvidia-container-cli: initialization error: driver rpc error: timed out: unknown"),
    Said("docker", "start", "container-hook-failed device-permission", "nvidia-container-cli: mount error: failed to add device rules: unable to find any existing device filters attached to the cgroup: bpf_prog_query(BPF_CGROUP_DEVICE) failed: operation not permitted: unknown"),
    # --- installing and building
    Said("uv", "install", "no-wheel-for-platform", "  × No solution found when resolving dependencies:\n  ╰─▶ Because torch==2.6.0 has no wheels with a matching platform tag (e.g., `macosx_15_0_x86_64`) and you require torch==2.6.0, we can conclude that your requirements are unsatisfiable.\n\n      hint: Wheels are available for `torch` (v2.6.0) on the following platforms: `manylinux_2_28_aarch64`, `manylinux1_x86_64`, `macosx_11_0_arm64`, `win_amd64`"),
    Said("uv", "install", "no-wheel-for-platform", "error: Distribution `torch==2.5.1 @ registry+https://download.pytorch.org/whl/cu124` can't be installed because it doesn't have a source distribution or wheel for the current platform\n\nhint: You're on Windows (`win_amd64`), but `torch` (v2.5.1) only has wheels for the following platform: `linux_aarch64`"),
    Said("uv", "install", "python-no-wheel", "  × No solution found when resolving dependencies:\n  ╰─▶ Because torch==2.5.1 has no wheels with a matching Python ABI tag (e.g., `cp314`) and you require torch==2.5.1, we can conclude that your requirements are unsatisfiable.\n\n  hint: You require CPython 3.14 (`cp314`), but we only found wheels for `torch` (v2.5.1) with the following Python ABI tags: `cp39`, `cp310`, `cp311`, `cp312`, `cp313`"),
    Said("uv", "install", "no-wheel-for-platform resolver-conflict wrong-index", "  x No solution found when resolving dependencies for split (platform_machine == 'AMD64' and sys_platform == 'win32'):\n  `-> Because torch{sys_platform == 'win32'}==2.7.1+cu128 has no `platform_machine == 'AMD64' and sys_platform ==\n      'win32'`-compatible wheels and only the following versions of torch are available:\n          torch<2.7.1\n      we can conclude that torch==2.7.1 cannot be used.\n      And because your project depends on torch==2.7.1, we can conclude that your project's\n      requirements are unsatisfiable."),
    Said("pixi", "install", "conda-cuda-virtual-missing", "Error:   × failed to solve requirements of environment 'default' for platform 'linux-64'\n  ╰─▶ Cannot solve the request because of: pytorch-gpu * cannot be installed because there are no viable options:\n      └─ pytorch-gpu 2.5.1 would require\n         └─ __cuda *, for which no candidates were found."),
    Said("flash-attn", "build", "build-isolation-no-torch", "  × Failed to build `flash-attn==2.8.2`\n  ├─▶ The build backend returned an error\n  ╰─▶ Call to `setuptools.build_meta:__legacy__.build_wheel` failed (exit status: 1)\n\n      ModuleNotFoundError: No module named 'torch'\n\n      hint: This error likely indicates that `flash-attn@2.8.2` depends on `torch`, but doesn't declare it as a build dependency."),
    Said("flash-attn", "build", "ok module-missing unknown", "Collecting flash-attn\n  Preparing metadata (setup.py) ... error\n  ModuleNotFoundError: No module named 'wheel'\n  note: This error originates from a subprocess"),
    Said("flash-attn", "build", "build-isolation-no-torch torch-missing", "pip install flash-attn --no-build-isolation\nCollecting flash-attn\n  Preparing metadata (setup.py) ... error\n      ModuleNotFoundError: No module named 'torch'"),
    Said("flash-attn", "build", "ok unknown", "pip install --no-build-isolation flash-attn\n  File \"/x/setup.py\", line 9, in <module>\n      from packaging.version import parse, Version\n  ModuleNotFoundError: No module named 'packaging'"),
    Said("flash-attn", "build", "ninja-missing ok unknown", "Building wheel for flash-attn (setup.py) ... error\nRuntimeError: Ninja is required to load C++ extensions"),
    Said("flash-attn", "build", "cuda-toolkit-missing", "Guessing wheel URL:  https://github.com/Dao-AILab/flash-attention/releases/download/v2.7.4/flash_attn-2.7.4+cu12torch2.6cxx11abiFALSE-cp312-cp312-linux_x86_64.whl\nPrecompiled wheel not found. Building from source...\nOSError: CUDA_HOME environment variable is not set. Please set it to your CUDA install root."),
    Said("llama.cpp", "build", "ok compiler-missing unknown", "CMake Error: CMAKE_CXX_COMPILER not set, after EnableLanguage\nERROR: Failed building wheel for llama-cpp-python"),
    Said(None, "build", "compiler-missing", "error: Microsoft Visual C++ 14.0 or greater is required. Get it with \"Microsoft C++ Build Tools\""),
    Said("xformers", "build", "ok triton-build-failed unknown", "      building 'xformers._C' extension\n      fatal error: Python.h: No such file or directory\n      error: command '/usr/bin/x86_64-linux-gnu-gcc' failed with exit code 1\n  ERROR: Failed building wheel for xformers"),
    # --- other makers
    Said("torch", "first-kernel", "amd-gpu", "RuntimeError: HIP error: invalid device function\nHIP kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.\nFor debugging consider passing AMD_SERIALIZE_KERNEL=3"),
    Said("torch", "first-kernel", "amd-gpu", "rocBLAS error: Cannot read /opt/rocm/lib/rocblas/library/TensileLibrary.dat: Illegal seek for GPU arch : gfx1103\n List of available TensileLibrary Files :"),
    Said("torch", "start", "amd-gpu", "torch.__version__ 2.9.0+rocm6.4\nRuntimeError: No HIP GPUs are available"),
    Said("torch", "start", "amd-gpu", "torch.AcceleratorError: HIP error: no ROCm-capable device is detected"),
    Said("torch", "start", "intel-gpu", "RuntimeError: No XPU devices are available."),
    Said("torch", "first-kernel", "intel-gpu", "RuntimeError: Native API failed. Native API returns: 2147483646 (UR_RESULT_ERROR_UNKNOWN)\n  File \"x\", line 1, in <module>\n    a = torch.randn(3).to('xpu')"),
    Said("torch", "running", "apple-silicon", "NotImplementedError: The operator 'aten::_fft_r2c' is not currently implemented for the MPS device. If you want this op to be considered for addition please comment. As a temporary fix, you can set the environment variable `PYTORCH_ENABLE_MPS_FALLBACK=1`"),
    Said("torch", "start", "apple-silicon", "MacBook Pro M3, macOS 15.2\n>>> torch.backends.mps.is_available()\nFalse\nMPS not available because the current PyTorch install was not built with MPS enabled."),
    Said("torch", "running", "out-of-memory", "RuntimeError: MPS backend out of memory (MPS allocated: 17.91 GB, other allocations: 416.00 KB, max allowed: 18.13 GB). Tried to allocate 240.00 MB on private pool."),
    # --- tools
    Said("gpu-burn", "running", "hardware-fault ok unknown", "100.0%  proc'd: 1234 (4567 Gflop/s)   errors: 18273  (WARNING!)  temps: 81 C\nTested 1 GPUs:\n        GPU 0: FAULTY"),
    Said("DCGM", "running", "ok unknown gpu-init-failed", "| Denylist                  | Pass                                           |\nError: Unable to connect to host engine. Host engine connection invalid/disconnected."),
    Said("nccl-tests", "distributed", "nccl-error nccl-p2p-failure unknown", "n1: Test NCCL failure common.cu:1005 'unhandled cuda error (run with NCCL_DEBUG=INFO for details) / '\n .. n1 pid 7012: Test failure common.cu:891"),
    # --- torch itself
    Said("torch", "first-kernel", "no-kernel-image arch-too-new-for-wheel arch-too-old-for-wheel", "torch.AcceleratorError: CUDA error: no kernel image is available for execution on the device"),
    Said("torch", "first-kernel", "arch-too-new-for-wheel", "RTX 5090: NVIDIA GeForce RTX 5090 with CUDA capability sm_120 is not compatible with the current PyTorch installation.\nThe current PyTorch install supports CUDA capabilities sm_50 sm_60 sm_70 sm_75 sm_80 sm_86 sm_90."),
    Said("ComfyUI", "start", "torch-cpu-build", "Total VRAM 12288 MB\n  File \"C:\\ComfyUI\\comfy\\model_management.py\", line 171, in get_torch_device\nAssertionError: Torch not compiled with CUDA enabled"),
    Said("Isaac Sim", "start", "ok unknown driver-too-old", "2026-03-01 [Error] [carb.graphics-vulkan.plugin] VkResult: ERROR_INCOMPATIBLE_DRIVER\n[omni.gpu_foundation_factory.plugin] Failed to create any GPU devices, including an attempt with compatibility mode."),
)  # fmt: skip
