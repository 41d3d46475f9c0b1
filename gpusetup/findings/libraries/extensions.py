"""Extensions and DLLs beside torch: of another torch, GPU or CUDA, not built, or not loaded."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.accelerators.makers import maker_of
from gpusetup.evidence.context import RuleContext, events
from gpusetup.findings import alike
from gpusetup.findings.layers import BROKEN_TORCH, COMPANIONS, Layer
from gpusetup.findings.libraries.distributions import anew
from gpusetup.findings.message_rules import from_messages
from gpusetup.findings.record import Alike, Cause, Message
from gpusetup.findings.sources import CPP_EXTENSION
from gpusetup.fixes import paste
from gpusetup.model.finding import Finding, Fix

WHERE = 'python -c "import torch; print(torch.__version__, torch.version.cuda)"'
WHICH_CUDA = (WHERE, "nvcc --version")
BUILD_CACHE = "rm -rf ~/.cache/torch_extensions"
BUILD_CACHE_ON_WINDOWS = r"Remove-Item -Recurse -Force $env:LOCALAPPDATA\torch_extensions"


def _architectures(context: RuleContext, text: str) -> Fix:
    return Fix(text=text, commands=paste.build_for(context))


COMPILED: tuple[Cause, ...] = (
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


def _is_not_told(context: RuleContext) -> bool:
    """Whether it is no part of an extension that belongs to another torch."""
    others = events(context, "extension-abi-mismatch", "torchaudio-mismatch")
    told = {value for event in others for value in event.values.values()}
    said = events(context, "windows-dll-missing")
    return any(told.isdisjoint(event.values.values()) for event in said)


DLLS = (
    Cause(
        id="windows-dll-missing",
        place=(Layer.WHEEL, 30),
        title="Windows cannot load torch's DLLs",
        means="The Visual C++ runtime or a DLL beside it is missing or old.",
        proven_by="WinError 126, 127, 182, 193, 1114",
        not_when="windows-pagefile-too-small (1455), extension-abi-mismatch",
        way_out="The current Visual C++ runtime",
        source="Microsoft, System Error Codes; torch/__init__.py",
        explains=("torch-import-failed", "cuda-lib-missing"),
        holds=(_is_not_told,),
        message=Message(
            title="Windows cannot load {dll}: a DLL that it needs is missing or of another version",
            plain="Windows cannot load torch's DLLs: one that they need is missing",
            detail="Mostly the runtime of Visual C++ (msvcp140, vcruntime140_1), for torch 2.4.0 "
            "also libomp140.x86_64.dll; error 1114 comes from an outdated runtime too.",
            text="Install the current Visual C++ runtime (x64), then torch anew (2.4.1 or newer)",
            windows=("winget install Microsoft.VCRedist.2015+.x64",),
            then=("gpusetup install",),
            needs_root=True,
        ),
        stage="import",
        alike=(
            Alike(
                causes=("cuda-lib-missing", "extension-abi-mismatch"),
                asks='python -c "import torch"',
                unless=alike.names_a_dll,
            ),
        ),
    ),
    Cause(
        id="windows-pagefile-too-small",
        place=(Layer.WHEEL, 20),
        title="the Windows page file is too small",
        means="Every process reserves room for the CUDA DLLs.",
        proven_by="WinError 1455",
        not_when="windows-dll-missing",
        way_out="A larger page file, fewer workers",
        source="Microsoft, System Error Codes",
        explains=(
            *BROKEN_TORCH,
            "windows-dll-missing",
            "dataloader-worker-killed",
        ),
        message=Message(
            title="The Windows page file is too small to load torch's DLLs (error 1455)",
            detail="Windows reserves room for the CUDA DLLs in every process; each DataLoader "
            "worker is a process.",
            text="Let Windows manage the page file, or enlarge it on a disk with room (System, "
            "Advanced, Performance, Virtual memory), and start again; use fewer workers",
            windows=("SystemPropertiesPerformance.exe",),
            needs_root=True,
        ),
        stage="import",
    ),
)


def _has_torch(context: RuleContext) -> bool:
    return bool(context.snapshot.torch.version)


def _is_for_intel(context: RuleContext) -> bool:
    return maker_of(context.snapshot.torch.backend) == "intel"


BESIDE = (
    "pip install setuptools wheel ninja",
    "pip install --no-build-isolation {package}",
)
BUILDS: tuple[Cause, ...] = (
    Cause(
        id="compiler-too-new",
        place=(Layer.INSTALL, 180),
        title="nvcc does not take the C++ compiler",
        means="Every toolkit supports compilers up to one version.",
        proven_by="nvcc's host check",
        way_out="An older compiler by -ccbin",
        source="NVIDIA, CUDA Installation Guide, host compiler support",
        message=Message(
            title="nvcc takes no gcc newer than {compiler}, and this one is",
            plain="nvcc does not take this C++ compiler: it is newer than the toolkit",
            text="Let nvcc use an older one that its release notes name, or use a newer toolkit of "
            "torch's CUDA major",
            commands=(
                "export NVCC_PREPEND_FLAGS='-ccbin g++-{compiler}'",
                "export CC=gcc-{compiler} CXX=g++-{compiler}",
            ),
            windows=(),
        ),
        stage="build",
    ),
    Cause(
        id="build-isolation-no-torch",
        place=(Layer.INSTALL, 150),
        title="a build runs in an environment without torch",
        means="pip and uv build in a fresh environment with the declared build requirements only.",
        proven_by="No module named torch inside a build environment",
        not_when="torch-missing: the program itself does not find it",
        way_out="Install torch, then --no-build-isolation",
        source="PEP 518; pip documentation, build system interface",
        explains=("torch-missing",),
        message=Message(
            title="{package} needs torch to build, and is built in an environment without it",
            plain="A package needs torch to build, and is built in an environment without it",
            detail="pip and uv build each package in a fresh environment that holds only what its "
            "build requirements name.",
            text="Install torch first, then build without isolation: `pip install "
            "--no-build-isolation PACKAGE`",
            commands=("gpusetup install --yes", *BESIDE),
            cases=(
                Message(
                    where=(_has_torch,),
                    text="torch is installed: build beside it, with `--no-build-isolation`",
                    commands=BESIDE,
                ),
            ),
        ),
        stage="build",
    ),
)


def _is_no_companions(context: RuleContext) -> bool:
    """Or torchvision or torchaudio may be what loads the one library that is named."""
    said = [event.values for event in events(context, EXTENSION_ABI_MISMATCH.id)]
    bare = all(set(v) == {"library"} and "c10_cuda" not in v["library"] for v in said)
    return not (bare and events(context, *COMPANIONS[:2]))


EXTENSION_ABI_MISMATCH = Cause(
    id="extension-abi-mismatch",
    place=(Layer.LIBRARIES, 30),
    title="an extension belongs to another torch or C++ ABI",
    means="It calls torch's C++ functions by names that changed.",
    proven_by="An undefined symbol of torch, or the extension's own check",
    not_when="torchvision-mismatch, torchaudio-mismatch, mixed-conda-pip (torch's own files)",
    way_out="Its release for this torch, or a new build",
    source="PyTorch documentation, C++ ABI; messages of xformers and others",
    explains=("torch-import-failed", "extension-arch-mismatch"),
    holds=(_is_no_companions,),
    message=Message(
        title="{module} was built for another torch than the installed one",
        plain="A compiled extension was built for another torch than the installed one",
        detail="An extension calls torch's C++ functions by their mangled names: it fits the "
        "release (and CUDA) that it was compiled with.",
        text="Install the release of it that is made for this torch (its own table says which), "
        "or build it anew against this torch",
        way=anew("extension-abi-mismatch"),
        cases=(
            Message(
                having={"library": "^libc10_cuda"},
                title="A CUDA extension finds no libc10_cuda.so: the installed torch is a CPU "
                "build, or is not imported before it",
                text="See which torch is there. `None` is a CPU build: then replace it",
                commands=("gpusetup install",),
                look=(WHERE,),
                see="see first which torch is there",
            ),
            Message(
                having={"cache": ""},
                text="torch built it on the first call and keeps it there: delete it, so that the "
                "next call builds it for the torch and the sources of today",
                commands=(BUILD_CACHE,),
                windows=(BUILD_CACHE_ON_WINDOWS,),
            ),
            Message(
                having={"module": ""},
                where=(_is_for_intel,),
                text="Remove it: its builds are for CUDA, and this torch is for Intel's GPUs, "
                "which computes without it",
                commands=("pip uninstall -y {module}",),
            ),
            Message(
                having={"copy": ""},
                text="It was built where its sources lie: build it anew there, against this torch",
                commands=("rm -rf build",),
                windows=("Remove-Item -Recurse -Force build",),
                then=("pip install --no-build-isolation --no-cache-dir -e .",),
            ),
        ),
    ),
)


def extension_messages(context: RuleContext) -> Iterator[Finding]:
    yield from from_messages(context, (*DLLS, *BUILDS, EXTENSION_ABI_MISMATCH, *COMPILED))


RULES = (extension_messages,)
