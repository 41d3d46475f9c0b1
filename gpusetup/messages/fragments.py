"""Parts of patterns that are used for several messages."""

from __future__ import annotations

# `0000:01:00.0`.
BUS = r"(?P<bus_id>[0-9a-f]{2,8}:[0-9a-f:.]{1,13}[0-9a-f])"
"""A GPU's PCI bus address, as the kernel and NVML write it."""

# `8.9`, a compute capability.
CAPABILITY = r"(?P<capability>\d{1,2}\.\d)"

# `download.example.org`.
HOST = r"(?P<host>[\w.-]+\.[a-z]{2,10})"

DRIVER_VERSION = r"\d{3}\.\d{1,3}(?:\.\d{1,3})?"
"""The version of an NVIDIA driver: 550.54.14."""

RELEASE = r"\d{1,2}\.\d{1,2}\.\d{1,2}"
"""A version with three numbers: 2.5.1."""

_LABELLED = r"(?:[abrc.]{1,4}\w{1,16})?(?:\+\w(?:[\w.]{0,38}\w)?)?"
"""The part that may follow a version's numbers: a pre-release and a local label."""

TORCH_VERSION = rf"[0-2]\.\d{{1,2}}(?:\.\d{{1,3}})?{_LABELLED}"
"""A version of torch, with or without the third number: 2.5, 2.6.0a0+git1234."""

# `_ZN3c106detail23torchInternalAssertFailE`: a mangled C++ symbol of torch, but not of TensorFlow or libcuda.
TORCH_SYMBOL = r"(?!_ZNK?\d{1,2}tensorflow|cuTensorMap)(?:_ZN?K?\w{0,8}(?:c10|2at|3c10|5torch|caffe2|torch|at)\w*|\w*(?:c10|torch|Tensor)\w*)"

IN_A_BUILD = r"(?:Failed building wheel|Building wheels? for|bdist_wheel|build_ext\b|subprocess-exited-with-error|Building from source|metadata-generation-failed)"
"""Words that pip and setuptools print while they compile a package."""

CUDA_LIBRARY = (
    r"lib(?:cudart|cublas|cublasLt|cudnn\w*|cufft\w?|curand|cusparse|cusparseLt|cusolver\w*|nvrtc[\w-]*|nvJitLink"
    r"|nccl|nvToolsExt|cupti|cufile|nvshmem\w*|cudss|nvpl_\w+|caffe2_nvrtc|npp\w+|nvjpeg|cuda_runtime)"
    r"(?:-[0-9a-f]{8})?"
)
"""The name of a CUDA library. A wheel that bundles its libraries adds a hash to their names:
libcudnn-a2b758a6.so.7."""

CPU_PART = r"libbitsandbytes_cpu\.(?:so|dylib): (?:cannot open shared object|no such file)"
"""The message that bitsandbytes lacks its CPU library. Every wheel contains this library, so the
package comes from a checkout in which nothing was built."""

# `libtorch_cuda`, `libc10`.
TORCH_LIBRARY = r"lib(?:torch\w*|c10\w*|caffe2\w*)"

# `libavutil`, `libswscale`.
FFMPEG = r"lib(?:av(?:util|codec|format|device|filter)|sw(?:scale|resample))\b"

LINKS_AN_EXTENSION = r"ninja: build stopped|error: command '\S{1,200}' failed|make(?:\[\d\])?: \*\*\*|Failed building wheel|Failed to build\b"
"""Lines that follow a linker's error in a build of many files. Triton's helper consists of a single
file, so its build does not print them."""

COMPILED_MODULE = (
    r"(?:MultiScaleDeformableAttention|MinkowskiEngineBackend|tinycudann_bindings|pointnet2_cuda|iou3d_nms_cuda"
    r"|flash_attn_(?:2_|3_)?cuda|selective_scan_cuda|causal_conv1d_cuda|fused_layer_norm_cuda|amp_C"
    r"|\w{2,40}(?:rast|act|dn2d|lrelu)_plugin|exllama_kernels|exllamav2_kernels|exllamav2_ext|quant_cuda|awq_ext|_gridencoder|_raymarching)"
)
"""The names of packages' compiled modules, as a failed import shows them. Source: the setup files
of these packages."""
