"""Extensions: built for another torch or CUDA, or not built at all."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.accelerators.makers import maker_of
from gpusetup.catalog.facts import extension, extension_modules
from gpusetup.evidence.context import (
    RuleContext,
    cuda_needed,
    event_evidence,
    events,
    on,
    value_evidence,
    with_cuda,
)
from gpusetup.evidence.plausible import is_a_name, is_a_source, is_a_version
from gpusetup.findings.layers import COMPANIONS, Layer
from gpusetup.findings.libraries.compiled import forget
from gpusetup.findings.libraries.distributions import distribution_of
from gpusetup.findings.message_rules import from_messages
from gpusetup.findings.record import Cause, Message
from gpusetup.fixes import paste
from gpusetup.model.finding import Evidence, Finding, Fix
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Event
from gpusetup.model.shell import Line, lines

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
    ),
)


BUILD_ISOLATION_NO_TORCH = Cause(
    id="build-isolation-no-torch",
    place=(Layer.INSTALL, 150),
    title="a build runs in an environment without torch",
    means="pip and uv build in a fresh environment with the declared build requirements only.",
    proven_by="No module named torch inside a build environment",
    not_when="torch-missing: the program itself does not find it",
    way_out="Install torch, then --no-build-isolation",
    source="PEP 518; pip documentation, build system interface",
    explains=("torch-missing",),
)


def build_isolation(context: RuleContext) -> Iterator[Finding]:
    """A package's build imports torch, and runs where there is none."""
    messages = events(context, "build-isolation-no-torch")
    if not messages:
        return
    package = next((e.values["package"] for e in messages if e.values.get("package")), None)
    there = context.snapshot.torch.version
    known = package is not None and is_a_name(package)
    build = (paste.pip(context, "install", "--no-build-isolation", package or ""),) if known else ()
    yield BUILD_ISOLATION_NO_TORCH.found(
        f"{package or 'A package'} needs torch to build, and is built in an environment without it",
        detail="pip and uv build each package in a fresh environment that holds only what its "
        "build requirements name.",
        evidence=event_evidence(messages),
        fix=Fix(
            text=f"torch {there} is installed: build beside it, without isolation"
            f"{'' if known else ', by the same installation with `--no-build-isolation`'}"
            if there
            else "Install torch first, then build without isolation: `pip install "
            f"--no-build-isolation {package if known else 'PACKAGE'}`",
            commands=(
                *(() if there else (paste.unasked(context, paste.gpusetup_install(context)),)),
                paste.pip(context, "install", "setuptools", "wheel", "ninja"),
                *build,
            ),
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
)


def extension_abi_mismatch(context: RuleContext) -> Iterator[Finding]:
    """A compiled extension of another torch release or C++ ABI."""
    messages = events(context, "extension-abi-mismatch")
    if not messages or _of_a_companion(context, messages):
        return
    values = _most_telling(messages).values
    if values.get("library", "").startswith("libc10_cuda"):
        yield _without_cuda(context, messages)
        return
    module = values.get("module") or "A compiled extension"
    known = (values.get("built_torch"), _release_of(values.get("built_cuda")))
    built = " and CUDA ".join(value for value in known if value)
    torch = context.snapshot.torch.version or values.get("torch")
    beside = f"torch {torch}" if torch else "the installed torch"
    yield EXTENSION_ABI_MISMATCH.found(
        f"{module} was built for {f'torch {built}' if built else 'another torch'}"
        f", and {beside} is another release",
        detail="An extension calls torch's C++ functions by their mangled names: it fits the "
        "release (and CUDA) that it was compiled with.",
        evidence=event_evidence(messages),
        fix=_removed(context, module)
        if maker_of(context.snapshot.torch.backend) == "intel" and values.get("module")
        else Fix(
            text=f"Install the release of it that is made for {beside} (its own table says which), "
            "or build it anew against this torch",
            commands=_in_the_copy(context)
            if values.get("copy") and values.get("module") not in extension_modules()
            else _extension_anew(context, values.get("module"), torch),
            looks=paste.look("see which torch is there", paste.ask_torch(context)),
        )
        if not values.get("cache")
        else _empty_cache(context, values["cache"]),
    )


def _removed(context: RuleContext, module: str) -> Fix:
    """What exists for CUDA alone has nothing to give to a torch for Intel's GPUs."""
    return Fix(
        text=f"Remove {module}: its builds are for CUDA, and this torch is for Intel's GPUs, which "
        "computes without it",
        commands=(paste.pip(context, "uninstall", "-y", module),),
    )


def _of_a_companion(context: RuleContext, messages: tuple[Event, ...]) -> bool:
    """Only torch's library is named, and torchvision or torchaudio is known to be what loads it."""
    named = any(e.values.keys() != {"library"} for e in messages)
    cuda = any(e.values.get("library", "").startswith("libc10_cuda") for e in messages)
    return not named and not cuda and bool(events(context, *COMPANIONS[:2]))


def _without_cuda(context: RuleContext, messages: tuple[Event, ...]) -> Finding:
    """Only torch's CUDA builds have libc10_cuda: an extension for CUDA found none."""
    way = paste.install_torch(context, "`None` is a CPU build: then replace it. ")
    return EXTENSION_ABI_MISMATCH.found(
        "A CUDA extension finds no libc10_cuda.so: the installed torch is a CPU build, or is not "
        "imported before it",
        detail="Every CUDA build of torch has that library, no CPU build does; an extension finds "
        "it only in a process that has imported torch.",
        evidence=event_evidence(messages),
        fix=replace(
            way,
            text="See which torch is there. " + way.text,
            looks=paste.look("see first which torch is there", paste.ask_torch(context)),
        ),
    )


def _in_the_copy(context: RuleContext) -> tuple[Line, ...]:
    """An extension that was built where its sources lie is no package of an index."""
    again = ("--no-build-isolation", "--no-cache-dir", "-e", ".")
    remove = "Remove-Item -Recurse -Force build" if on(context, "windows") else "rm -rf build"
    return (*lines(remove), paste.pip(context, "install", *again))


def _empty_cache(context: RuleContext, cache: str) -> Fix:
    """What torch built by itself on the first call lies there until somebody deletes it."""
    return Fix(
        text="torch built it on the first call and keeps it there: delete it, so that the next "
        "call builds it for the torch and the sources of today",
        commands=forget(context, cache),
    )


def _most_telling(messages: tuple[Event, ...]) -> Event:
    return max(messages, key=lambda event: len(event.values))


def _extension_anew(
    context: RuleContext, module: str | None, torch: str | None
) -> tuple[Line, ...]:
    source = distribution_of(module or "_")
    if source is None or not is_a_source(source):
        return ()
    torch = torch if torch and is_a_version(torch) else None
    name = source.rpartition("/")[2].removesuffix(".git")
    label = (torch or "").partition("+")[2]
    remove = paste.pip(context, "uninstall", "-y", name)
    if name == "xformers":
        # Each of its wheels requires one torch, and no index has one for every torch.
        return (paste.gpusetup(context, name),)
    known = extension(name)
    if known.page_of_wheels and torch and label:
        page = f"https://data.pyg.org/whl/torch-{torch}.html"
        return (remove, paste.pip(context, "install", "--no-cache-dir", name, "-f", page))
    if known.pins_torch:
        return (remove, paste.pip(context, "install", name))
    built = () if source.startswith("git+") else ("--no-binary", name)
    again = ("--no-build-isolation", "--no-cache-dir", *built, source)
    return (remove, paste.pip(context, "install", *again))


def _release_of(cuda: str | None) -> str | None:
    """A CUDA release as one says it: xformers prints the compiler's number.

    >>> _release_of("1201"), _release_of("12.1")
    ('12.1', '12.1')
    """
    if not cuda or not (cuda.isascii() and cuda.isdigit() and len(cuda) in (3, 4)):
        return cuda
    return f"{int(cuda) // 100}.{int(cuda) % 100}"


def torch_cuda_line(context: RuleContext) -> tuple[Evidence, ...]:
    torch = context.snapshot.torch
    if not torch.version:
        return ()
    return (
        value_evidence(
            context, "torch.version", with_cuda(f"torch {torch.version}", cuda_needed(torch))
        ),
    )


RULES = (
    build_isolation,
    extension_messages,
    extension_abi_mismatch,
)
