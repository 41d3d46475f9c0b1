"""Extensions: built for another torch or CUDA, or not built at all."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.accelerators.makers import maker_of
from gpusetup.evidence.context import RuleContext, events
from gpusetup.findings.layers import COMPANIONS, Layer
from gpusetup.findings.libraries.compiled import BUILD_CACHE, BUILD_CACHE_ON_WINDOWS, WHERE
from gpusetup.findings.libraries.distributions import anew
from gpusetup.findings.message_rules import from_messages
from gpusetup.findings.record import Cause, Message
from gpusetup.model.finding import Finding


def _has_torch(context: RuleContext) -> bool:
    return bool(context.snapshot.torch.version)


def _is_for_intel(context: RuleContext) -> bool:
    return maker_of(context.snapshot.torch.backend) == "intel"


BESIDE = (
    "pip install setuptools wheel ninja",
    "pip install --no-build-isolation {package}",
)
MESSAGES: tuple[Cause, ...] = (
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


def extension_messages(context: RuleContext) -> Iterator[Finding]:
    yield from from_messages(context, MESSAGES)


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


def extension_abi_mismatch(context: RuleContext) -> Iterator[Finding]:
    """A compiled extension of another torch release or C++ ABI."""
    said = [event.values for event in events(context, EXTENSION_ABI_MISMATCH.id)]
    # Only torch's library is named, and torchvision or torchaudio is known to be what loads it.
    bare = all(set(v) == {"library"} and "c10_cuda" not in v["library"] for v in said)
    if not (bare and events(context, *COMPANIONS[:2])):
        yield from from_messages(context, (EXTENSION_ABI_MISMATCH,))


RULES = (extension_messages, extension_abi_mismatch)
