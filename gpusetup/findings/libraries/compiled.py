"""Compiled extensions that were not built, do not build, or do not serve this GPU."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.evidence.context import RuleContext
from gpusetup.findings.layers import Layer
from gpusetup.findings.libraries.distributions import anew
from gpusetup.findings.message_rules import from_messages
from gpusetup.findings.record import Cause, Message
from gpusetup.findings.sources import CPP_EXTENSION
from gpusetup.fixes import paste
from gpusetup.model.finding import Finding, Fix

WHERE = 'python -c "import torch; print(torch.__version__, torch.version.cuda)"'
WHICH_CUDA = (WHERE, "nvcc --version")
BUILD_CACHE = "rm -rf ~/.cache/torch_extensions"
BUILD_CACHE_ON_WINDOWS = r"Remove-Item -Recurse -Force $env:LOCALAPPDATA\torch_extensions"


def _architectures(context: RuleContext, text: str) -> Fix:
    return Fix(text=text, commands=paste.build_for(context))


MESSAGES: tuple[Cause, ...] = (
    Cause(
        id="ninja-missing",
        place=(Layer.INSTALL, 200),
        title="torch finds no ninja to build an extension",
        means="torch.utils.cpp_extension.load runs it.",
        proven_by="torch's message",
        not_when="A build that says it goes on without ninja: slower, not broken",
        way_out="pip install ninja",
        source=CPP_EXTENSION,
        message=Message(
            title="torch builds extensions with ninja, and finds none",
            detail="torch.utils.cpp_extension.load looks for the program on PATH when it is "
            "called.",
            text="Install it into this environment, and start from a shell in which the "
            "environment is active",
            commands=("pip install ninja",),
        ),
        stage="build",
    ),
    Cause(
        id="extension-too-old-for-torch",
        place=(Layer.INSTALL, 230),
        title="a package includes a header that torch no longer has",
        means="torch 1.11 removed THC; older extensions include it.",
        proven_by="The compiler does not find THC/...",
        not_when="cuda-toolkit-missing: a header of CUDA is missing",
        way_out="The package's newer release, or an older torch",
        source="release notes of torch 1.11, removed headers",
        message=Message(
            title="The package's sources include {header}, which torch no longer has",
            plain="The package's sources include a header that torch no longer has",
            detail="torch 1.11 removed the headers of THC; ATen and c10 took their place.",
            text="Take the package's newer release or another fork of it; else build it in an "
            "environment with the torch that it was written for (1.10 or older)",
            look=(WHERE,),
            see="see which torch is there",
        ),
        stage="build",
    ),
    Cause(
        id="extension-not-built",
        place=(Layer.LIBRARIES, 90),
        title="the compiled part of an extension is not there",
        means="Its Python files import, its operators do not: the build failed or was left out, "
        "or torch's build cache holds half a build.",
        proven_by="The import names the compiled module (._C, ._ext), or a file of "
        "torch_extensions that is not there",
        not_when="extension-abi-mismatch: it is there and belongs to another torch; "
        "module-missing: the package as a whole",
        way_out="A wheel with operators, a build that sees nvcc and the GPU; an empty cache",
        source="mmcv, detectron2 and GroundingDINO documentation, installation; " + CPP_EXTENSION,
        message=Message(
            title="The compiled part of {module} is not there",
            plain="The compiled part of an extension is not there",
            detail="Its build failed or was left out (no compiler, no toolkit, no GPU seen while "
            "it was built), or a variant without compiled operators is installed.",
            text="Build it anew where nvcc is of torch's CUDA and a GPU is seen (else name its "
            "architecture in TORCH_CUDA_ARCH_LIST), and read what the build says",
            way=anew("extension-not-built"),
            cases=(
                Message(
                    having={"module": "^mmcv$"},
                    text="Install the mmcv with operators, a wheel made for this torch and CUDA "
                    "(mim finds it; mmcv-lite has none)",
                    commands=(
                        "pip uninstall -y mmcv mmcv-lite mmcv-full",
                        "pip install --upgrade openmim",
                        "python -m mim install mmcv",
                    ),
                ),
                Message(
                    having={"module": "^spconv$"},
                    text="Install the wheel made for torch's CUDA in its place: spconv-cu120, "
                    "spconv-cu118 (any of torch's major serves)",
                    commands=("pip uninstall -y spconv cumm",),
                    look=(WHERE,),
                    see="see which CUDA torch has",
                ),
                *(
                    Message(
                        having=having,
                        text="torch builds it on the first call: empty its cache, have one toolkit "
                        "of torch's CUDA first on PATH, and run again; the compiler's first error "
                        "is the reason",
                        commands=(BUILD_CACHE,),
                        windows=(BUILD_CACHE_ON_WINDOWS,),
                    )
                    for having in ({"cache": ""}, {"module": "_plugin$"})
                ),
            ),
        ),
    ),
    Cause(
        id="build-without-gpu",
        place=(Layer.INSTALL, 210),
        title="an extension is built where torch sees no GPU",
        means="torch takes the architectures to build from the GPUs, and there is none.",
        proven_by="_get_cuda_arch_flags ends in IndexError",
        not_when="cuda-toolkit-missing; a build that failed in the compiler",
        way_out="TORCH_CUDA_ARCH_LIST",
        source=CPP_EXTENSION + ", _get_cuda_arch_flags",
        message=Message(
            title="An extension is built where torch sees no GPU: it cannot tell for which "
            "architecture",
            detail="As in `docker build`, on a login node, or under a driver that does not answer. "
            "Without TORCH_CUDA_ARCH_LIST torch builds for the GPUs that it sees.",
            text="Name the architectures of the GPUs that shall run it in TORCH_CUDA_ARCH_LIST; "
            "torch.cuda.get_device_capability() says it there",
            way=_architectures,
        ),
        stage="build",
    ),
    Cause(
        id="cxx-standard-too-old",
        place=(Layer.INSTALL, 220),
        title="a build compiles torch's headers as too old a C++",
        means="torch's headers need C++14 from 1.5, C++17 from 2.1 on.",
        proven_by="torch's own #error, or a compiler that does not know the option",
        not_when="compiler-too-new: nvcc refuses the compiler",
        way_out="The extension's newer release; a newer compiler or toolkit",
        source="c10/util/C++17.h, ATen/ATen.h; release notes of torch 2.1",
        message=Message(
            title="The build, its compiler or nvcc knows an older C++ than torch's headers need",
            detail="torch's headers need C++14 from 1.5 on and C++17 from 2.1 on.",
            text="Take the extension's newer release (or write a later -std=c++ in setup.py), "
            "build with gcc 9 or later (CC and CXX name it) and with nvcc of torch's CUDA (C++17 "
            "from 11.0 on, C++20 from 12.0 on: CUDA_HOME names it); else install the torch that it "
            "was written for",
            look=(*WHICH_CUDA, "g++ --version"),
            see="see which versions there are",
        ),
        stage="build",
    ),
    Cause(
        id="gpu-too-old-for-flash-attention",
        place=(Layer.LIBRARIES, 120),
        title="FlashAttention does not serve this GPU",
        means="Version 2 needs Ampere (8.0), version 1 Turing (7.5).",
        proven_by="Its own message",
        not_when="extension-arch-mismatch: it would serve the GPU and was not built for it",
        way_out="torch's own attention",
        source="FlashAttention's README and csrc/flash_attn/flash_api.cpp",
        message=Message(
            title="FlashAttention serves {needs} GPUs and newer, and the GPU that ran it is older",
            plain="FlashAttention serves Ampere GPUs and newer, and the GPU that ran it is older",
            text='Let torch\'s own attention compute instead: attn_implementation="sdpa" in '
            "transformers, flash_attn: false or no --flash-attn in trainers; the package itself "
            "may go (its last series 1, `flash-attn<2`, serves Turing)",
            commands=("pip uninstall -y flash-attn",),
        ),
        stage="first-kernel",
    ),
)


def compiled_messages(context: RuleContext) -> Iterator[Finding]:
    yield from from_messages(context, MESSAGES)


RULES = (compiled_messages,)
