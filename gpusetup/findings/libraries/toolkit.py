"""The CUDA toolkit that builds an extension: missing, of another CUDA, too old for the GPU."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.catalog.companion_table import companion_table
from gpusetup.evidence.context import (
    RuleContext,
    cuda_needed,
    event_evidence,
    events,
    gpus,
    is_report,
    on,
    says_nothing_else,
)
from gpusetup.evidence.plausible import is_a_path, is_a_version
from gpusetup.findings.layers import Layer
from gpusetup.findings.libraries.extensions import torch_cuda_line
from gpusetup.findings.record import Cause
from gpusetup.findings.sources import CPP_EXTENSION
from gpusetup.fixes import drivers, packages, paste
from gpusetup.fixes.driver_packages import cuda_repository
from gpusetup.model.finding import Alternative, Finding, Fix
from gpusetup.model.machine import Event
from gpusetup.model.shell import Line, lines
from gpusetup.model.versions import parsed

CUDA_TOOLKIT_MISMATCH_EXTENSION_BUILD = Cause(
    id="cuda-toolkit-mismatch-extension-build",
    place=(Layer.INSTALL, 160),
    title="nvcc is of another CUDA than torch",
    means="An extension must be compiled with torch's CUDA (its major at least).",
    proven_by="The build names both versions, or nvcc an architecture that it does not know",
    not_when="cuda-toolkit-missing",
    way_out="CUDA_HOME with torch's CUDA, or torch with nvcc's",
    source=CPP_EXTENSION + "; CUDA release notes",
)


def toolkit_mismatch(context: RuleContext) -> Iterator[Finding]:
    """An extension build meets an nvcc of another CUDA than torch's."""
    messages = events(context, "cuda-toolkit-mismatch-extension-build")
    if not messages:
        return
    nvcc = messages[0].values.get("nvcc") or context.snapshot.toolkit.nvcc
    torch = messages[0].values.get("torch") or cuda_needed(context.snapshot.torch)
    yield CUDA_TOOLKIT_MISMATCH_EXTENSION_BUILD.found(
        f"nvcc is {f'CUDA {nvcc}' if nvcc else 'of another CUDA'}, torch was built with "
        f"{f'CUDA {torch}' if torch else 'another'}: an extension built here would not fit",
        evidence=event_evidence(messages),
        fix=_one_cuda(context, nvcc, torch),
    )


def _one_cuda(context: RuleContext, nvcc: str | None, torch: str | None) -> Fix:
    """Either nvcc of torch's CUDA, or torch of nvcc's."""
    build = context.resolution.build
    text = f"Build with nvcc {torch or 'of the same CUDA'}: let CUDA_HOME name that toolkit"
    same = bool(build and nvcc and build.cuda == ".".join(nvcc.split(".")[:2]))
    other = (
        Alternative(
            title=f"keep nvcc and install torch {build.torch} from {build.backend}",
            commands=paste.install_commands(context),
        )
        if build is not None and same
        else None
    )
    return Fix(
        text=text,
        commands=paste.toolkit_home(context, torch),
        alternatives=(other,) if other else (),
    )


def toolkit_lacks_architecture(context: RuleContext) -> Iterator[Finding]:
    """nvcc does not compile for an architecture that the build asks for."""
    messages = tuple(
        e for e in events(context, "jit-arch-rejected") if e.values.get("compiler", "") == "nvcc"
    )
    if not messages:
        return
    arch = messages[0].values.get("arch", "")
    nvcc, torch = context.snapshot.toolkit.nvcc, cuda_needed(context.snapshot.torch)
    row = context.catalog.compiler_for(arch)
    first, gone = (row.from_cuda, row.until_cuda) if row else (None, None)
    dropped = bool(gone and nvcc and parsed(nvcc) >= parsed(gone))
    yield CUDA_TOOLKIT_MISMATCH_EXTENSION_BUILD.found(
        f"nvcc{f' (CUDA {nvcc})' if nvcc else ''} does not compile for {arch or 'this GPU'}"
        + _known_to(first, gone),
        detail="An extension needs a toolkit of torch's CUDA major which knows the GPU.",
        evidence=event_evidence(messages),
        fix=Fix(
            text=_toolkit_for(torch, first, gone if dropped else None),
            commands=paste.toolkit_home(context, None if dropped else _best_toolkit(torch, first)),
            looks=paste.look(
                "see which CUDA torch and nvcc have",
                paste.ask_torch(context),
                *lines("nvcc --version"),
            ),
        ),
    )


def _known_to(first: str | None, gone: str | None) -> str:
    """Which toolkits know an architecture.

    >>> _known_to("11.1", None), _known_to("9.0", "13.0")
    (': toolkits from 11.1 on know it', ': toolkits from 9.0 on know it, until 13.0 dropped it')
    """
    since = f": toolkits from {first} on know it" if first else ""
    until = f", until {gone} dropped it" if first else f": {gone} dropped it"
    return since + (until if gone else "")


def _best_toolkit(torch: str | None, first: str | None) -> str | None:
    """torch's own CUDA where it knows the architecture, else the first one that does."""
    return max(torch, first, key=parsed) if torch and first else torch


def _toolkit_for(torch: str | None, first: str | None, gone: str | None) -> str:
    if gone:
        return (
            f"Build for the GPU that is there only (TORCH_CUDA_ARCH_LIST), or with a toolkit older "
            f"than {gone} and a torch of the same CUDA"
        )
    least = f", {first} or newer" if first else ""
    text = f"Build with a toolkit of torch's CUDA{f' ({torch})' if torch else ''}{least}"
    if torch and first and parsed(torch) < parsed(first):
        text += f"; torch itself must then be a build for CUDA {first} or newer"
    return f"{text}: let CUDA_HOME name it and its nvcc be first on PATH"


CUDA_TOOLKIT_MISSING = Cause(
    id="cuda-toolkit-missing",
    place=(Layer.INSTALL, 170),
    title="a build finds no CUDA toolkit",
    means="torch's wheels bring CUDA's libraries, not its compiler.",
    proven_by="CUDA_HOME not set, nvcc not found",
    not_when="A wheel of the extension would do",
    way_out="The toolkit of torch's CUDA, CUDA_HOME",
    source=CPP_EXTENSION,
    explains=("build-isolation-no-torch",),
)


WINDOWS_INSTALLER = (
    "(https://developer.nvidia.com/cuda-toolkit-archive), which sets CUDA_PATH; torch reads "
    "CUDA_HOME, then CUDA_PATH"
)


def toolkit_missing(context: RuleContext) -> Iterator[Finding]:
    """An extension build finds no toolkit."""
    messages = events(context, "cuda-toolkit-missing")
    # No order: beside a ROCm build the toolkit of CUDA is no help: `amd-gpu` has the way.
    if not messages or _is_amds(context):
        return
    # A torch that sees its GPU needs no nvcc: that a shell has none is no failure then.
    idle = all(e.values.get("who") == "shell" for e in messages)
    # No order: a missing nvcc is a failure only beside the message of one.
    idle = idle and says_nothing_else(context, "cuda-toolkit-missing")
    make = (
        CUDA_TOOLKIT_MISSING.as_note
        if idle and context.snapshot.torch.cuda_available
        else CUDA_TOOLKIT_MISSING.found
    )
    cuda = cuda_needed(context.snapshot.torch)
    minor = ".".join(cuda.split(".")[:2]) if cuda else None
    named = context.snapshot.toolkit.home
    why = (
        f"CUDA_HOME names {named}, where no nvcc is"
        if named
        else "CUDA_HOME is not set and nvcc is not on PATH"
    )
    yield make(
        f"A build of CUDA code finds no toolkit: {why}",
        detail="torch's wheels bring CUDA's libraries, not its compiler.",
        evidence=(*event_evidence(messages), *torch_cuda_line(context)),
        fix=Fix(
            text=f"Install the CUDA toolkit {minor or 'of the CUDA that torch was built with'} "
            f"{WINDOWS_INSTALLER if on(context, 'windows') else 'and let CUDA_HOME name it'}"
            + _without_a_build(context, messages),
            commands=toolkit_commands(context, minor) if minor else (),
            looks=() if minor else paste.look("see which CUDA torch has", paste.ask_torch(context)),
            needs_root=bool(minor) and not _by_conda(context),
        ),
    )


def _without_a_build(context: RuleContext, messages: tuple[Event, ...]) -> str:
    package = next((e.values["package"] for e in messages if "package" in e.values), "NAME")
    project = companion_table().project(package.replace("_", "-"))
    if project and on(context, "windows") and "windows" not in project.on:
        return f"; {package} has no wheel for Windows: {project.way_out()}"
    return f"; or ask `gpusetup resolve {package}` for a prebuilt wheel of the extension"


def _is_amds(context: RuleContext) -> bool:
    build = context.snapshot.torch.backend or ""
    return is_report(context) and build.startswith("rocm") and not gpus(context)


def _by_conda(context: RuleContext) -> bool:
    installers = (context.installer, context.snapshot.python.manager)
    return bool(context.snapshot.conda.prefix) or "conda" in installers


def toolkit_commands(context: RuleContext, minor: str) -> tuple[Line, ...]:
    """How the toolkit of one CUDA comes here, and the variable that names it to a build."""
    if not is_a_version(minor):
        return ()
    if _by_conda(context):
        prefix = context.snapshot.conda.prefix or ""
        into = ("--prefix", prefix) if is_a_path(prefix) else ()
        spec = f"cuda-toolkit={minor}"
        home: tuple[Line, ...] = (paste.setting(context, "CUDA_HOME", prefix),) if into else ()
        home = home or paste.posix(context, 'export CUDA_HOME="$CONDA_PREFIX"')
        return (
            paste.command(context, "conda", "install", "-y", *into, "-c", "nvidia", spec),
            *home,
        )
    package = f"cuda-toolkit-{minor.replace('.', '-')}"
    return (
        *cuda_repository(drivers.wanted_driver(context)),
        *(packages.system_package(context, package) if on(context, "linux") else ()),
        *paste.toolkit_home(context, minor),
        *lines("nvcc --version"),
    )


RULES = (
    toolkit_mismatch,
    toolkit_lacks_architecture,
    toolkit_missing,
)
