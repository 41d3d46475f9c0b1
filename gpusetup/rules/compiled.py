"""Compiled extensions that were not built, do not build, or do not serve this GPU."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.model import Alternative, Capability, Event, Finding, Fix, parsed
from gpusetup.rules import ways
from gpusetup.rules.case import Case, cuda_errors, cuda_needed, error, events, gpus, on, told
from gpusetup.rules.distributions import distribution_of
from gpusetup.rules.messages import Message, said
from gpusetup.rules.plausible import is_a_build_cache, is_a_source
from gpusetup.shell import Line, lines

WHERE = "python -c 'import torch; print(torch.__version__, torch.version.cuda)'"
WHICH_CUDA = "see which CUDA torch and nvcc have"

MESSAGES: tuple[Message, ...] = (
    Message(
        kind="ninja-missing",
        id="ninja-missing",
        title="torch builds extensions with ninja, and finds none",
        detail="torch.utils.cpp_extension.load looks for the program on PATH when it is called.",
        text="Install it into this environment, and start from a shell in which the environment is "
        "active",
        commands=("pip install ninja",),
    ),
    Message(
        kind="torch-header-gone",
        id="extension-too-old-for-torch",
        title="The package's sources include {header}, which torch no longer has",
        plain="The package's sources include a header that torch no longer has",
        detail="torch 1.11 removed the headers of THC; ATen and c10 took their place.",
        text="Take the package's newer release or another fork of it; else build it in an "
        "environment with the torch that it was written for (1.10 or older)",
        look=(WHERE,),
        see="see which torch is there",
    ),
    Message(
        kind="backport-in-the-way",
        id="module-shadowed",
        title="The package {package} hides Python's own module {module}",
        detail="It brought the module to Pythons that had none, and breaks those that do.",
        text="Remove it",
        commands=("pip uninstall -y {package}",),
    ),
)


def compiled_messages(case: Case) -> Iterator[Finding]:
    yield from said(case, MESSAGES)


NAMES = {
    "mmcv": "mmcv",
    "groundingdino": "GroundingDINO",
    "MultiScaleDeformableAttention": "Deformable DETR's operator",
    "MinkowskiEngineBackend": "MinkowskiEngine",
    "tinycudann_bindings": "tiny-cuda-nn",
}
"""A module -> the name people know."""


def extension_not_built(case: Case) -> Iterator[Finding]:
    """Only the Python part of an extension is there, or torch's cache holds a failed build."""
    heard = events(case, "extension-not-built")
    if not heard:
        return
    values = max(heard, key=lambda event: len(event.values)).values
    module, cache = values.get("module", "An extension"), values.get("cache")
    name = NAMES.get(module, module)
    yield error(
        "extension-not-built",
        f"The compiled part of {name} is not there",
        detail="Its build failed or was left out (no compiler, no toolkit, no GPU seen while it "
        "was built), or a variant without compiled operators is installed.",
        evidence=told(heard),
        fix=_build_again(case, cache) if cache else _with_operators(case, module, name),
    )


def forget(case: Case, cache: str) -> tuple[Line, ...]:
    """The command that deletes a folder of torch's build cache; none for any other folder."""
    if not is_a_build_cache(cache):
        return ()
    if on(case, "windows"):
        return (ways.command(case, "Remove-Item", "-Recurse", "-Force", cache),)
    return (ways.command(case, "rm", "-rf", cache),)


def _build_again(case: Case, cache: str) -> Fix:
    return Fix(
        text="torch keeps half a build there: delete it and run again; the first error of the "
        "compiler that then shows is the reason",
        commands=forget(case, cache),
    )


def _with_operators(case: Case, module: str, name: str) -> Fix:
    if module == "mmcv":
        uninstall = ways.pip(case, "uninstall", "-y", "mmcv", "mmcv-lite", "mmcv-full")
        mim = ways.pip(case, "install", "--upgrade", "openmim")
        own = ways.command(case, ways.python(case), "-m", "mim", "install", "mmcv")
        return Fix(
            text="Install the mmcv with operators, a wheel made for this torch and CUDA (mim finds "
            "it; mmcv-lite has none)",
            commands=(uninstall, mim, own),
        )
    if module == "spconv":
        return _spconv(case)
    if module.endswith("_plugin"):
        return _build_on_call(case)
    source = distribution_of(module)
    build = ("--no-build-isolation", "--no-cache-dir", ways.anew(case), "--no-deps")
    known = source is not None and module not in NAMES and is_a_source(source)
    return Fix(
        text=f"Build {name} anew where nvcc is of torch's CUDA and a GPU is seen (else name its "
        "architecture in TORCH_CUDA_ARCH_LIST), and read what the build says",
        commands=(ways.pip(case, "install", *build, source or ""),) if known else (),
        looks=_which_cuda(case),
    )


def _which_cuda(case: Case) -> tuple[Alternative, ...]:
    return ways.look(WHICH_CUDA, ways.ask_torch(case), *lines("nvcc --version"))


def _build_on_call(case: Case) -> Fix:
    """A plugin that torch.utils.cpp_extension builds on the first call, into its cache."""
    clear = lines("rm -rf ~/.cache/torch_extensions")
    if on(case, "windows"):
        clear = lines(r"Remove-Item -Recurse -Force $env:LOCALAPPDATA\torch_extensions")
    return Fix(
        text="torch builds it on the first call: empty its cache, have one toolkit of torch's CUDA "
        "first on PATH, and run again; the compiler's first error is the reason",
        commands=clear,
        looks=_which_cuda(case),
    )


SPCONV = ("11.3", "11.4", "11.8", "12.0", "12.1", "12.4", "12.6")
"""The CUDA of its wheels, whose names say it (package index, 2026)."""


def _spconv(case: Case) -> Fix:
    """Its package of that name holds no operators: a wheel for the CUDA of torch does."""
    needed = cuda_needed(case.snapshot.torch)
    major = (needed or "").partition(".")[0]
    fitting = [
        c for c in SPCONV if c.partition(".")[0] == major and parsed(c) <= parsed(needed or "")
    ]
    name = f"spconv-cu{fitting[-1].replace('.', '')}" if fitting else None
    install = (ways.pip(case, "install", name),) if name else ()
    return Fix(
        text="Install the wheel made for torch's CUDA (spconv-cuXXX; any of its major serves)",
        commands=(ways.pip(case, "uninstall", "-y", "spconv", "cumm"), *install),
        looks=() if name else ways.look(WHICH_CUDA, ways.ask_torch(case)),
    )


def build_without_gpu(case: Case) -> Iterator[Finding]:
    """torch asks the GPUs for the architectures to build, and there is none."""
    heard = events(case, "no-gpu-at-build")
    if not heard:
        return
    named = ways.build_for(case)
    code = "import torch; print(torch.cuda.get_device_capability())"
    ask = ways.command(case, ways.python(case), "-c", code)
    yield error(
        "build-without-gpu",
        "An extension is built where torch sees no GPU: it cannot tell for which architecture",
        detail="As in `docker build`, on a login node, or under a driver that does not answer. "
        "Without TORCH_CUDA_ARCH_LIST torch builds for the GPUs that it sees.",
        evidence=told(heard),
        fix=Fix(
            text="Name the architectures of the GPUs that shall run it"
            + ("" if named else " in TORCH_CUDA_ARCH_LIST"),
            commands=named,
            looks=() if named else ways.look("have the host of the GPU print it", ask),
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


def cxx_standard(case: Case) -> Iterator[Finding]:
    """torch's headers ask for a later C++ than the build gives."""
    heard = events(case, "cxx-standard")
    if not heard:
        return
    who = heard[0].values.get("who") or "build"
    needs = heard[0].values.get("needs") or "17"
    title, text = (
        part.format(needs=needs.replace("1z", "17")) for part in CXX.get(who, CXX["build"])
    )
    ask = {"compiler": lines("g++ --version"), "nvcc": lines("nvcc --version")}
    yield error(
        "cxx-standard-too-old",
        title,
        detail="torch's headers need C++14 from 1.5 on and C++17 from 2.1 on.",
        evidence=told(heard),
        fix=Fix(
            text=text,
            looks=ways.look("see which one is used", *ask.get(who, (ways.ask_torch(case),))),
        ),
    )


def kernel_image_invalid(case: Case) -> Iterator[Finding]:
    """A kernel that was just compiled, or kept in a cache, does not load (error 200)."""
    heard = cuda_errors(case, 200)
    if not heard:
        return
    clear = lines("rm -rf ~/.triton/cache ~/.nv/ComputeCache")
    if on(case, "windows"):
        clear = lines(r"Remove-Item -Recurse -Force $env:USERPROFILE\.triton\cache")
    yield error(
        "kernel-image-invalid",
        "The driver cannot load a compiled kernel: its image is invalid (error 200)",
        detail="It was compiled by a newer toolkit than the driver serves (Triton takes the ptxas "
        "that TRITON_PTXAS_PATH names), for another GPU, or a cache holds half a file.",
        evidence=told(heard),
        fix=Fix(
            text="Empty the caches of compiled kernels and let Triton use its own ptxas (unset "
            "TRITON_PTXAS_PATH); if it stays, update the driver, or install the Triton that torch "
            "requires",
            commands=(*ways.unset(case, "TRITON_PTXAS_PATH"), *clear),
            looks=ways.look(
                "see whether Triton is the one that torch requires", ways.pip(case, "check")
            ),
        ),
    )


NEEDS = {
    "Turing": Capability(7, 5),
    "Ampere": Capability(8, 0),
    "Hopper": Capability(9, 0),
}


def flash_attention(case: Case) -> Iterator[Finding]:
    """FlashAttention refuses an older GPU; one that it serves, seen beside it, is another."""
    heard = events(case, "gpu-too-old-for-flash-attention")
    if not heard:
        return
    needs = heard[0].values.get("needs", "").capitalize()
    needs = needs if needs in NEEDS else "Ampere"
    old = [g for g in gpus(case) if g.compute_capability and g.compute_capability < NEEDS[needs]]
    shown_new = gpus(case) and all(g.compute_capability for g in gpus(case)) and not old
    others = "the GPU that ran it is none of those named here" if shown_new else "this GPU is older"
    of = f"{old[0].name} is older" if old else others
    turing = any(g.compute_capability == NEEDS["Turing"] for g in old)
    yield error(
        "gpu-too-old-for-flash-attention",
        f"FlashAttention serves {needs} GPUs ({NEEDS[needs]}) and newer, and {of}",
        evidence=told(heard),
        fix=_other_attention(case, heard, turing=turing),
    )


def _other_attention(case: Case, heard: tuple[Event, ...], *, turing: bool) -> Fix:
    text = (
        'Let torch\'s own attention compute instead: attn_implementation="sdpa" in transformers, '
        "flash_attn: false or no --flash-attn in trainers; the package itself may go"
    )
    older = ways.pip(case, "install", "--no-build-isolation", "flash-attn<2")
    return Fix(
        text=text,
        commands=(ways.pip(case, "uninstall", "-y", "flash-attn"),),
        alternatives=ways.other("take its last series 1, which serves Turing", older)
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
