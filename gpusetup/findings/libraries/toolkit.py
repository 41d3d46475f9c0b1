"""The CUDA toolkit that builds an extension: missing, of another CUDA, too old for the GPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gpusetup.evidence.context import (
    RuleContext,
    cuda_needed,
    events,
    on,
    says_nothing_else,
)
from gpusetup.evidence.plausible import is_a_version
from gpusetup.findings.layers import Layer
from gpusetup.findings.libraries.numeric import conda_install
from gpusetup.findings.message_rules import from_message, from_messages
from gpusetup.findings.record import Cause, Message
from gpusetup.findings.sources import CPP_EXTENSION
from gpusetup.fixes import drivers, packages, paste
from gpusetup.fixes.driver_packages import cuda_repository
from gpusetup.model.finding import Finding, Fix, Severity
from gpusetup.model.shell import Line, lines
from gpusetup.model.versions import parsed


def _one_cuda(context: RuleContext, text: str) -> Fix:
    """The toolkit of torch's CUDA where it knows the GPU, else the first one that does."""
    said = {**_last(context, "jit-arch-rejected"), **_last(context, TOOLKIT_MISMATCH.id)}
    torch = said.get("torch") or cuda_needed(context.snapshot.torch)
    row = context.catalog.compiler_for(said.get("arch", ""))
    first = row.from_cuda if row and not row.until_cuda else None
    best = max(torch, first, key=parsed) if torch and first else torch
    ask = (paste.ask_torch(context), *lines("nvcc --version"))
    looks = paste.look("see which CUDA torch and nvcc have", *ask)
    build, nvcc = paste.chosen(context), said.get("nvcc") or context.snapshot.toolkit.nvcc or "?"
    same = build and build.cuda and nvcc.startswith(build.cuda)
    of_nvccs = paste.install_commands(context) if same else ()
    other = paste.other("keep nvcc and install torch of its CUDA", *of_nvccs)
    home = paste.toolkit_home(context, best)
    return Fix(text=text, commands=home, alternatives=other, looks=looks)


def _last(context: RuleContext, kind: str) -> Mapping[str, str]:
    return {name: value for e in events(context, kind) for name, value in e.values.items()}


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


LACKS_ARCHITECTURE = Message(
    title="nvcc does not compile for {arch}",
    detail="A toolkit that is older than a GPU does not know it; for GPUs before Turing it must be "
    "older than 13.0. An extension needs a toolkit of torch's CUDA major which knows the GPU.",
    text="Build with a toolkit of torch's CUDA that knows the GPU: let CUDA_HOME name it and its "
    "nvcc be first on PATH; or build for the GPU that is there only (TORCH_CUDA_ARCH_LIST)",
    way=_one_cuda,
)


def _toolkit(context: RuleContext, text: str) -> Fix:
    cuda = cuda_needed(context.snapshot.torch) or ""
    commands = toolkit_commands(context, ".".join(cuda.split(".")[:2]))
    text = text.replace("NAME", _last(context, TOOLKIT_MISSING.id).get("package", "NAME"))
    looks = () if cuda else paste.look("see which CUDA torch has", paste.ask_torch(context))
    root = bool(commands) and not _by_conda(context)
    return Fix(text=text, commands=commands, looks=looks, needs_root=root)


def _is_idle(context: RuleContext) -> bool:
    """A torch that sees its GPU needs no nvcc."""
    # No order: a missing nvcc is a failure only beside the message of one.
    alone = says_nothing_else(context, TOOLKIT_MISSING.id)
    return bool(alone and context.snapshot.torch.cuda_available)


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
    holds=(lambda context: not (context.snapshot.torch.backend or "").startswith("rocm"),),
    message=Message(
        title="A build of CUDA code finds no toolkit",
        detail="torch's wheels bring CUDA's libraries, not its compiler.",
        text="Install the CUDA toolkit of torch's CUDA (Windows: "
        "https://developer.nvidia.com/cuda-toolkit-archive, which sets CUDA_PATH) and let "
        "CUDA_HOME name it; or ask `gpusetup resolve NAME` for a prebuilt wheel of the extension",
        way=_toolkit,
        cases=(
            Message(
                having={"who": "^shell$"}, where=(_is_idle,), way=_toolkit, severity=Severity.NOTE
            ),
        ),
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
        home = paste.posix(context, 'export CUDA_HOME="$CONDA_PREFIX"')
        return (conda_install(context, "-c", "nvidia", f"cuda-toolkit={minor}"), *home)
    package = f"cuda-toolkit-{minor.replace('.', '-')}"
    return (
        *cuda_repository(drivers.wanted_driver(context)),
        *(packages.system_package(context, package) if on(context, "linux") else ()),
        *paste.toolkit_home(context, minor),
        *lines("nvcc --version"),
    )


RULES = (toolkit,)
