"""Compiled extensions that were not built, do not build, or do not serve this GPU."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.catalog.facts import extension
from gpusetup.evidence.context import (
    RuleContext,
    cuda_errors,
    cuda_needed,
    event_evidence,
    events,
    gpus,
    on,
)
from gpusetup.evidence.plausible import is_a_build_cache, is_a_source
from gpusetup.findings.installing.environment import MODULE_SHADOWED
from gpusetup.findings.layers import Layer
from gpusetup.findings.libraries.distributions import distribution_of
from gpusetup.findings.message_rules import from_messages
from gpusetup.findings.record import Cause, Message
from gpusetup.findings.sources import CPP_EXTENSION
from gpusetup.fixes import paste
from gpusetup.model.finding import Alternative, Finding, Fix
from gpusetup.model.machine import Event
from gpusetup.model.shell import Line, lines
from gpusetup.model.versions import Capability, parsed

WHERE = 'python -c "import torch; print(torch.__version__, torch.version.cuda)"'
WHICH_CUDA = "see which CUDA torch and nvcc have"

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
    ),
    MODULE_SHADOWED,
)


def compiled_messages(context: RuleContext) -> Iterator[Finding]:
    yield from from_messages(context, MESSAGES)


NAMES = {
    "mmcv": "mmcv",
    "groundingdino": "GroundingDINO",
    "MultiScaleDeformableAttention": "Deformable DETR's operator",
    "MinkowskiEngineBackend": "MinkowskiEngine",
    "tinycudann_bindings": "tiny-cuda-nn",
}
"""A module -> the name people know."""


EXTENSION_NOT_BUILT = Cause(
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
)


def extension_not_built(context: RuleContext) -> Iterator[Finding]:
    """Only the Python part of an extension is there, or torch's cache holds a failed build."""
    messages = events(context, "extension-not-built")
    if not messages:
        return
    values = max(messages, key=lambda event: len(event.values)).values
    module, cache = values.get("module", "An extension"), values.get("cache")
    name = NAMES.get(module, module)
    yield EXTENSION_NOT_BUILT.found(
        f"The compiled part of {name} is not there",
        detail="Its build failed or was left out (no compiler, no toolkit, no GPU seen while it "
        "was built), or a variant without compiled operators is installed.",
        evidence=event_evidence(messages),
        fix=_build_again(context, cache) if cache else _with_operators(context, module, name),
    )


def forget(context: RuleContext, cache: str) -> tuple[Line, ...]:
    """The command that deletes a folder of torch's build cache; none for any other folder."""
    if not is_a_build_cache(cache):
        return ()
    if on(context, "windows"):
        return (paste.command(context, "Remove-Item", "-Recurse", "-Force", cache),)
    return (paste.command(context, "rm", "-rf", cache),)


def _build_again(context: RuleContext, cache: str) -> Fix:
    return Fix(
        text="torch keeps half a build there: delete it and run again; the first error of the "
        "compiler that then shows is the reason",
        commands=forget(context, cache),
    )


def _with_operators(context: RuleContext, module: str, name: str) -> Fix:
    if module == "mmcv":
        uninstall = paste.pip(context, "uninstall", "-y", "mmcv", "mmcv-lite", "mmcv-full")
        mim = paste.pip(context, "install", "--upgrade", "openmim")
        own = paste.command(context, paste.python(context), "-m", "mim", "install", "mmcv")
        return Fix(
            text="Install the mmcv with operators, a wheel made for this torch and CUDA (mim finds "
            "it; mmcv-lite has none)",
            commands=(uninstall, mim, own),
        )
    if module == "spconv":
        return _spconv(context)
    if module.endswith("_plugin"):
        return _build_on_call(context)
    source = distribution_of(module)
    build = ("--no-build-isolation", "--no-cache-dir", paste.anew(context), "--no-deps")
    known = source is not None and module not in NAMES and is_a_source(source)
    return Fix(
        text=f"Build {name} anew where nvcc is of torch's CUDA and a GPU is seen (else name its "
        "architecture in TORCH_CUDA_ARCH_LIST), and read what the build says",
        commands=(paste.pip(context, "install", *build, source or ""),) if known else (),
        looks=_which_cuda(context),
    )


def _which_cuda(context: RuleContext) -> tuple[Alternative, ...]:
    return paste.look(WHICH_CUDA, paste.ask_torch(context), *lines("nvcc --version"))


def _build_on_call(context: RuleContext) -> Fix:
    """A plugin that torch.utils.cpp_extension builds on the first call, into its cache."""
    clear = lines("rm -rf ~/.cache/torch_extensions")
    if on(context, "windows"):
        clear = lines(r"Remove-Item -Recurse -Force $env:LOCALAPPDATA\torch_extensions")
    return Fix(
        text="torch builds it on the first call: empty its cache, have one toolkit of torch's CUDA "
        "first on PATH, and run again; the compiler's first error is the reason",
        commands=clear,
        looks=_which_cuda(context),
    )


def _spconv(context: RuleContext) -> Fix:
    """Its package of that name holds no operators: a wheel for the CUDA of torch does."""
    needed = cuda_needed(context.snapshot.torch)
    major = (needed or "").partition(".")[0]
    fitting = [
        c
        for c in extension("spconv").cudas
        if c.partition(".")[0] == major and parsed(c) <= parsed(needed or "")
    ]
    name = f"spconv-cu{fitting[-1].replace('.', '')}" if fitting else None
    install = (paste.pip(context, "install", name),) if name else ()
    return Fix(
        text="Install the wheel made for torch's CUDA (spconv-cuXXX; any of its major serves)",
        commands=(paste.pip(context, "uninstall", "-y", "spconv", "cumm"), *install),
        looks=() if name else paste.look(WHICH_CUDA, paste.ask_torch(context)),
    )


BUILD_WITHOUT_GPU = Cause(
    id="build-without-gpu",
    place=(Layer.INSTALL, 210),
    title="an extension is built where torch sees no GPU",
    means="torch takes the architectures to build from the GPUs, and there is none.",
    proven_by="_get_cuda_arch_flags ends in IndexError",
    not_when="cuda-toolkit-missing; a build that failed in the compiler",
    way_out="TORCH_CUDA_ARCH_LIST",
    source=CPP_EXTENSION + ", _get_cuda_arch_flags",
)


def build_without_gpu(context: RuleContext) -> Iterator[Finding]:
    """torch asks the GPUs for the architectures to build, and there is none."""
    messages = events(context, "build-without-gpu")
    if not messages:
        return
    named = paste.build_for(context)
    code = "import torch; print(torch.cuda.get_device_capability())"
    ask = paste.command(context, paste.python(context), "-c", code)
    yield BUILD_WITHOUT_GPU.found(
        "An extension is built where torch sees no GPU: it cannot tell for which architecture",
        detail="As in `docker build`, on a login node, or under a driver that does not answer. "
        "Without TORCH_CUDA_ARCH_LIST torch builds for the GPUs that it sees.",
        evidence=event_evidence(messages),
        fix=Fix(
            text="Name the architectures of the GPUs that shall run it"
            + ("" if named else " in TORCH_CUDA_ARCH_LIST"),
            commands=named,
            looks=() if named else paste.look("have the host of the GPU print it", ask),
        ),
    )


CXX = {
    "build": (
        "The build compiles torch's headers as an older C++ than the C++{needs} that they need",
        "Take the extension's newer release (or write -std=c++{needs} for the older one in its "
        "setup.py); else install the torch that it was written for",
    ),
    "compiler": (
        "The C++ compiler does not know C++{needs}, which torch's headers need",
        "Install a newer compiler (gcc 9 or later) and let CC and CXX name it",
    ),
    "nvcc": (
        "nvcc does not know C++{needs}, which torch's headers need",
        "Build with the toolkit of torch's CUDA (C++17 from CUDA 11.0 on, C++20 from 12.0 on): "
        "CUDA_HOME names it",
    ),
}
"""Who falls behind -> the title, and what to do."""


CXX_STANDARD_TOO_OLD = Cause(
    id="cxx-standard-too-old",
    place=(Layer.INSTALL, 220),
    title="a build compiles torch's headers as too old a C++",
    means="torch's headers need C++14 from 1.5, C++17 from 2.1 on.",
    proven_by="torch's own #error, or a compiler that does not know the option",
    not_when="compiler-too-new: nvcc refuses the compiler",
    way_out="The extension's newer release; a newer compiler or toolkit",
    source="c10/util/C++17.h, ATen/ATen.h; release notes of torch 2.1",
)


def cxx_standard(context: RuleContext) -> Iterator[Finding]:
    """torch's headers ask for a later C++ than the build gives."""
    messages = events(context, "cxx-standard-too-old")
    if not messages:
        return
    who = messages[0].values.get("who") or "build"
    needs = messages[0].values.get("needs") or "17"
    title, text = (
        part.format(needs=needs.replace("1z", "17")) for part in CXX.get(who, CXX["build"])
    )
    ask = {"compiler": lines("g++ --version"), "nvcc": lines("nvcc --version")}
    yield CXX_STANDARD_TOO_OLD.found(
        title,
        detail="torch's headers need C++14 from 1.5 on and C++17 from 2.1 on.",
        evidence=event_evidence(messages),
        fix=Fix(
            text=text,
            commands=paste.toolkit_home(context, cuda_needed(context.snapshot.torch))
            if who == "nvcc"
            else (),
            looks=paste.look("see which one is used", *ask.get(who, (paste.ask_torch(context),))),
        ),
    )


KERNEL_IMAGE_INVALID = Cause(
    id="kernel-image-invalid",
    symptom=True,
    place=(Layer.LIBRARIES, 130),
    title="the driver cannot load a compiled kernel",
    means="A newer toolkit's output, another GPU's, or a damaged cache.",
    proven_by="CUDA error 200",
    not_when="no-kernel-image (209): there is none for the GPU; ptx-unsupported-toolchain",
    way_out="Empty caches, Triton's own ptxas, a newer driver",
    source="CUDA Driver API reference, CUDA_ERROR_INVALID_IMAGE",
)


def kernel_image_invalid(context: RuleContext) -> Iterator[Finding]:
    """A kernel that was just compiled, or kept in a cache, does not load (error 200)."""
    messages = cuda_errors(context, 200)
    if not messages:
        return
    clear = lines("rm -rf ~/.triton/cache ~/.nv/ComputeCache")
    if on(context, "windows"):
        clear = lines(r"Remove-Item -Recurse -Force $env:USERPROFILE\.triton\cache")
    yield KERNEL_IMAGE_INVALID.found(
        "The driver cannot load a compiled kernel: its image is invalid (error 200)",
        detail="It was compiled by a newer toolkit than the driver serves (Triton takes the ptxas "
        "that TRITON_PTXAS_PATH names), for another GPU, or a cache holds half a file.",
        evidence=event_evidence(messages),
        fix=Fix(
            text="Empty the caches of compiled kernels and let Triton use its own ptxas (unset "
            "TRITON_PTXAS_PATH); if it stays, update the driver, or install the Triton that torch "
            "requires",
            commands=(*paste.unset(context, "TRITON_PTXAS_PATH"), *clear),
            looks=paste.look(
                "see whether Triton is the one that torch requires", paste.pip(context, "check")
            ),
        ),
    )


NEEDS = {
    "Turing": Capability(7, 5),
    "Ampere": Capability(8, 0),
    "Hopper": Capability(9, 0),
}


GPU_TOO_OLD_FOR_FLASH_ATTENTION = Cause(
    id="gpu-too-old-for-flash-attention",
    place=(Layer.LIBRARIES, 120),
    title="FlashAttention does not serve this GPU",
    means="Version 2 needs Ampere (8.0), version 1 Turing (7.5).",
    proven_by="Its own message",
    not_when="extension-arch-mismatch: it would serve the GPU and was not built for it",
    way_out="torch's own attention",
    source="FlashAttention's README and csrc/flash_attn/flash_api.cpp",
)


def flash_attention(context: RuleContext) -> Iterator[Finding]:
    """FlashAttention refuses an older GPU; one that it serves, seen beside it, is another."""
    messages = events(context, "gpu-too-old-for-flash-attention")
    if not messages:
        return
    needs = messages[0].values.get("needs", "").capitalize()
    needs = needs if needs in NEEDS else "Ampere"
    old = [g for g in gpus(context) if g.compute_capability and g.compute_capability < NEEDS[needs]]
    shown_new = gpus(context) and all(g.compute_capability for g in gpus(context)) and not old
    others = "the GPU that ran it is none of those named here" if shown_new else "this GPU is older"
    of = f"{old[0].name} is older" if old else others
    turing = any(g.compute_capability == NEEDS["Turing"] for g in old)
    yield GPU_TOO_OLD_FOR_FLASH_ATTENTION.found(
        f"FlashAttention serves {needs} GPUs ({NEEDS[needs]}) and newer, and {of}",
        evidence=event_evidence(messages),
        fix=_other_attention(context, messages, turing=turing),
    )


def _other_attention(context: RuleContext, messages: tuple[Event, ...], *, turing: bool) -> Fix:
    text = (
        'Let torch\'s own attention compute instead: attn_implementation="sdpa" in transformers, '
        "flash_attn: false or no --flash-attn in trainers; the package itself may go"
    )
    older = paste.pip(context, "install", "--no-build-isolation", "flash-attn<2")
    return Fix(
        text=text,
        commands=(paste.pip(context, "uninstall", "-y", "flash-attn"),),
        alternatives=paste.other("take its last series 1, which serves Turing", older)
        if turing
        else (),
    )


RULES = (
    compiled_messages,
    extension_not_built,
    build_without_gpu,
    cxx_standard,
    kernel_image_invalid,
    flash_attention,
)
