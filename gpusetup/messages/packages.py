"""Messages from imports, installers and frameworks about packages and libraries.

Sources: the extension loader of torchvision, Python's import system of 3.6 to 3.14.

Sources: musl's loader, pip 9 to 26, conda 4 to 25, TensorFlow's dso_loader.cc and its issue
tracker, onnxruntime_pybind_state.cc, CuPy's softlink.
"""

from __future__ import annotations

from gpusetup.messages.fragments import TORCH_SYMBOL
from gpusetup.messages.row import row

ROWS = (
    row("torchvision-image-mismatch", rf"Failed to load image Python extension: \W{{0,3}}\S{{0,200}}torchvision\S{{0,60}}: undefined symbol: (?P<symbol>{TORCH_SYMBOL})"),
    row("module-shadowed", r"module 'enum' has no attribute 'IntFlag'", path="The package enum34", module="enum"),
    row("module-shadowed", r"module 'typing' has no attribute '_ClassVar'", path="The package dataclasses", module="dataclasses"),
    row("musl-libc", r"Error loading shared library (?P<library>\S+): No such file"),
    row("musl-libc", r"Error relocating \S{1,160}: \S{1,60}: symbol not found"),
    row("musl-libc", r"You're on Linux \(`musllinux_"),
    row("wheel-not-supported", r"(?P<wheel>[\w.+%-]+\.whl) is not a supported wheel on this platform"),
    row("conda-not-found", r"PackagesNotFoundError: .{0,120}?channels: ?-? ?(?P<package>[\w.=*-]+)"),
    row("conda-not-found", r"ResolvePackageNotFound: ?-? ?(?P<package>[\w.=*-]+)"),
    row("program-lib-unfound", r"Couldn't open CUDA library (?P<library>lib(?!cupti|cuda\.)[\w-]{3,24}\.so[.\d]{0,8}?)\.? ", program="TensorFlow"),
    row("program-lib-unfound", r"Could not load dynamic library '(?P<library>(?!lib(?:nvinfer|cuda\.)|nvinfer|nvcuda)[\w.-]{3,60})'; dlerror", program="TensorFlow"),
    row("program-lib-missing", r"\b(?P<library>(?:cudart64|cublas64|cufft64|curand64|cusolver64|cusparse64|nvrtc64)_\w{2,8}\.dll) -> not found", program="CuPy", example="nvrtc64_112_0.dll -> not found"),
    row("program-lib-missing", r"CUDA_PATH is set but CUDA was ?n['o]?t able to be loaded", program="onnxruntime", library="CUDA or cuDNN, in the release that onnxruntime was built for,", example="CUDA_PATH is set but CUDA wasnt able to be loaded"),
    row("program-lib-missing", r"Could not find cuda drivers on your machine, GPU will not be used", program="TensorFlow", library="the CUDA libraries of TensorFlow", or_else="no driver"),
    row("program-lib-missing", "skipping registering gpu devices", program="TensorFlow", library="a CUDA library of TensorFlow"),
    row("program-lib-missing", r"Failed to create CUDAExecutionProvider\. ?Require cuDNN", program="onnxruntime", library="cuDNN or CUDA, in the release that onnxruntime names,"),
)  # fmt: skip
