"""What is known about compiled extensions that are missing, do not build, or refuse the GPU."""

from __future__ import annotations

from gpusetup.rules.fact import Fact

CPP_EXTENSION = "torch/utils/cpp_extension.py"

FACTS = (
    Fact(
        id="extension-not-built",
        title="the compiled part of an extension is not there",
        means="Its Python files import, its operators do not: the build failed or was left out, "
        "or torch's build cache holds half a build.",
        proven_by="The import names the compiled module (._C, ._ext), or a file of "
        "torch_extensions that is not there",
        not_when="extension-abi-mismatch: it is there and belongs to another torch; "
        "module-missing: the package as a whole",
        way_out="A wheel with operators, a build that sees nvcc and the GPU; an empty cache",
        source="mmcv, detectron2 and GroundingDINO documentation, installation; " + CPP_EXTENSION,
    ),
    Fact(
        id="build-without-gpu",
        title="an extension is built where torch sees no GPU",
        means="torch takes the architectures to build from the GPUs, and there is none.",
        proven_by="_get_cuda_arch_flags ends in IndexError",
        not_when="cuda-toolkit-missing; a build that failed in the compiler",
        way_out="TORCH_CUDA_ARCH_LIST",
        source=CPP_EXTENSION + ", _get_cuda_arch_flags",
    ),
    Fact(
        id="cxx-standard-too-old",
        title="a build compiles torch's headers as too old a C++",
        means="torch's headers need C++14 from 1.5, C++17 from 2.1 on.",
        proven_by="torch's own #error, or a compiler that does not know the option",
        not_when="compiler-too-new: nvcc refuses the compiler",
        way_out="The extension's newer release; a newer compiler or toolkit",
        source="c10/util/C++17.h, ATen/ATen.h; release notes of torch 2.1",
    ),
    Fact(
        id="extension-too-old-for-torch",
        title="a package includes a header that torch no longer has",
        means="torch 1.11 removed THC; older extensions include it.",
        proven_by="The compiler does not find THC/...",
        not_when="cuda-toolkit-missing: a header of CUDA is missing",
        way_out="The package's newer release, or an older torch",
        source="release notes of torch 1.11, removed headers",
    ),
    Fact(
        id="ninja-missing",
        title="torch finds no ninja to build an extension",
        means="torch.utils.cpp_extension.load runs it.",
        proven_by="torch's message",
        not_when="A build that says it goes on without ninja: slower, not broken",
        way_out="pip install ninja",
        source=CPP_EXTENSION,
    ),
    Fact(
        id="kernel-image-invalid",
        title="the driver cannot load a compiled kernel",
        means="A newer toolkit's output, another GPU's, or a damaged cache.",
        proven_by="CUDA error 200",
        not_when="no-kernel-image (209): there is none for the GPU; ptx-unsupported-toolchain",
        way_out="Empty caches, Triton's own ptxas, a newer driver",
        source="CUDA Driver API reference, CUDA_ERROR_INVALID_IMAGE",
    ),
    Fact(
        id="gpu-too-old-for-flash-attention",
        title="FlashAttention does not serve this GPU",
        means="Version 2 needs Ampere (8.0), version 1 Turing (7.5).",
        proven_by="Its own message",
        not_when="extension-arch-mismatch: it would serve the GPU and was not built for it",
        way_out="torch's own attention",
        source="FlashAttention's README and csrc/flash_attn/flash_api.cpp",
    ),
)
