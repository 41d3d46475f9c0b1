"""The CUDA toolkit that builds an extension: missing, of another CUDA, too old for the GPU."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.evidence.context import (
    RuleContext,
    cuda_needed,
    events,
    gpus,
    is_report,
    on,
    says_nothing_else,
)
from gpusetup.evidence.plausible import is_a_path, is_a_version
from gpusetup.findings.layers import Layer
from gpusetup.findings.message_rules import from_message, from_messages
from gpusetup.findings.record import Cause, Message
from gpusetup.findings.sources import CPP_EXTENSION
from gpusetup.fixes import drivers, packages, paste
from gpusetup.fixes.driver_packages import cuda_repository
from gpusetup.model.finding import Finding, Fix, Severity
from gpusetup.model.shell import Line, lines
from gpusetup.model.versions import parsed


def _one_cuda(context: RuleContext, text: str) -> Fix:
    """Either nvcc of torch's CUDA, or torch of nvcc's."""
    said = events(context, TOOLKIT_MISMATCH.id)[0].values
    build, nvcc = context.resolution.build, said.get("nvcc") or context.snapshot.toolkit.nvcc or ""
    same = build and build.cuda == ".".join(nvcc.split(".")[:2])
    torch = said.get("torch") or cuda_needed(context.snapshot.torch)
    return Fix(
        text=text,
        commands=paste.toolkit_home(context, torch),
        alternatives=paste.other(
            "keep nvcc and install torch of its CUDA",
            *(paste.install_commands(context) if same else ()),
        ),
    )


TOOLKIT_MISMATCH = Cause(
    id="cuda-toolkit-mismatch-extension-build",
    place=(Layer.INSTALL, 160),
    title="nvcc is of another CUDA than torch",
    means="An extension must be compiled with torch's CUDA (its major at least).",
    proven_by="The build names both versions, or nvcc an architecture that it does not know",
    not_when="cuda-toolkit-missing",
    way_out="CUDA_HOME with torch's CUDA, or torch with nvcc's",
    source=CPP_EXTENSION + "; CUDA release notes",
    message=Message(
        title="nvcc is of another CUDA than torch: an extension built here would not fit",
        text="Build with nvcc of torch's CUDA: let CUDA_HOME name that toolkit",
        way=_one_cuda,
    ),
    stage="build",
)


def _that_knows_it(context: RuleContext, text: str) -> Fix:
    """The toolkit of torch's CUDA where it knows the architecture, else the first one that does."""
    said = (e.values["arch"] for e in events(context, "jit-arch-rejected") if "arch" in e.values)
    row, torch = context.catalog.compiler_for(next(said, "")), cuda_needed(context.snapshot.torch)
    first = row.from_cuda if row and not row.until_cuda else None
    best = max(torch, first, key=parsed) if torch and first else None
    looks = paste.look(
        "see which CUDA torch and nvcc have", paste.ask_torch(context), *lines("nvcc --version")
    )
    return Fix(text=text, commands=paste.toolkit_home(context, best), looks=looks)


LACKS_ARCHITECTURE = Message(
    title="nvcc does not compile for {arch}",
    detail="A toolkit that is older than a GPU does not know it; for GPUs before Turing it must be "
    "older than 13.0. An extension needs a toolkit of torch's CUDA major which knows the GPU.",
    text="Build with a toolkit of torch's CUDA that knows the GPU: let CUDA_HOME name it and its "
    "nvcc be first on PATH; or build for the GPU that is there only (TORCH_CUDA_ARCH_LIST)",
    way=_that_knows_it,
)


def _toolkit(context: RuleContext, text: str) -> Fix:
    cuda = cuda_needed(context.snapshot.torch) or ""
    commands = toolkit_commands(context, ".".join(cuda.split(".")[:2]))
    said = (e.values.get("package", "NAME") for e in events(context, TOOLKIT_MISSING.id))
    text = text.replace("NAME", max(said, key=lambda name: name != "NAME"))
    looks = () if cuda else paste.look("see which CUDA torch has", paste.ask_torch(context))
    root = bool(commands) and not _by_conda(context)
    return Fix(text=text, commands=commands, looks=looks, needs_root=root)


def _is_idle(context: RuleContext) -> bool:
    """A torch that sees its GPU needs no nvcc: that a shell has none is no failure then."""
    by_shell = all(e.values.get("who") == "shell" for e in events(context, TOOLKIT_MISSING.id))
    # No order: a missing nvcc is a failure only beside the message of one.
    alone = by_shell and says_nothing_else(context, TOOLKIT_MISSING.id)
    return bool(alone and context.snapshot.torch.cuda_available)


def _can_use_it(context: RuleContext) -> bool:
    # No order: beside a ROCm build the toolkit of CUDA is no help: `amd-gpu` has the way.
    rocm = (context.snapshot.torch.backend or "").startswith("rocm")
    return not (is_report(context) and rocm and not gpus(context))


TOOLKIT_MISSING = Cause(
    id="cuda-toolkit-missing",
    place=(Layer.INSTALL, 170),
    title="a build finds no CUDA toolkit",
    means="torch's wheels bring CUDA's libraries, not its compiler.",
    proven_by="CUDA_HOME not set, nvcc not found",
    not_when="A wheel of the extension would do",
    way_out="The toolkit of torch's CUDA, CUDA_HOME",
    source=CPP_EXTENSION,
    explains=("build-isolation-no-torch",),
    holds=(_can_use_it,),
    message=Message(
        title="A build of CUDA code finds no toolkit",
        detail="torch's wheels bring CUDA's libraries, not its compiler.",
        text="Install the CUDA toolkit of torch's CUDA (Windows: "
        "https://developer.nvidia.com/cuda-toolkit-archive, which sets CUDA_PATH) and let "
        "CUDA_HOME name it; or ask `gpusetup resolve NAME` for a prebuilt wheel of the extension",
        way=_toolkit,
        cases=(Message(where=(_is_idle,), way=_toolkit, severity=Severity.NOTE),),
    ),
    stage="build",
)


def toolkit(context: RuleContext) -> Iterator[Finding]:
    yield from from_messages(context, (TOOLKIT_MISMATCH, TOOLKIT_MISSING))
    said = events(context, "jit-arch-rejected")
    if unknown := tuple(event for event in said if event.values.get("compiler") == "nvcc"):
        yield from_message(context, TOOLKIT_MISMATCH, LACKS_ARCHITECTURE, unknown)


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
        words = ("conda", "install", "-y", *into, "-c", "nvidia", f"cuda-toolkit={minor}")
        known = (paste.setting(context, "CUDA_HOME", prefix),) if into else ()
        home = known or paste.posix(context, 'export CUDA_HOME="$CONDA_PREFIX"')
        return (paste.command(context, *words), *home)
    package = f"cuda-toolkit-{minor.replace('.', '-')}"
    return (
        *cuda_repository(drivers.wanted_driver(context)),
        *(packages.system_package(context, package) if on(context, "linux") else ()),
        *paste.toolkit_home(context, minor),
        *lines("nvcc --version"),
    )


RULES = (toolkit,)
