"""What is built here: Triton's kernels, extensions, and the toolkit they need."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.catalog.companion_table import companion_table, releases_for
from gpusetup.evidence.context import (
    RuleContext,
    has_nvidia,
    is_cuda_build,
    is_report,
    on,
    says_nothing_else,
    value_evidence,
)
from gpusetup.evidence.places import ON_LINUX, ON_MACOS, ON_WINDOWS, no
from gpusetup.findings import alike
from gpusetup.findings.layers import Layer
from gpusetup.findings.message_rules import from_messages, seen
from gpusetup.findings.record import Alike, Cause, Message
from gpusetup.fixes import paste
from gpusetup.model.finding import Finding, Fix, Severity


def _triton_windows(context: RuleContext, text: str) -> Fix:
    build, torch = companion_table().project("triton-windows"), context.snapshot.torch.version
    pinned = releases_for(build, torch)[:1] if build and torch else ()
    install = (paste.pip(context, "install", f"triton-windows{one}") for one in pinned)
    return Fix(text=text, commands=tuple(install))


TRITON_MISSING_WINDOWS = Cause(
    id="triton-missing-windows",
    place=(Layer.LIBRARIES, 190),
    title="no Triton on Windows",
    means="torch brings Triton on Linux only.",
    proven_by="Windows, a CUDA build, no triton",
    way_out="triton-windows, or no torch.compile",
    source="names of Triton's wheels",
    holds=(no(ON_LINUX), no(ON_MACOS)),
    message=Message(
        title="torch.compile needs Triton, which torch does not bring for Windows",
        text="Install the community's build, triton-windows, of the release that serves this torch "
        "(2.4 or newer), or do without torch.compile",
        way=_triton_windows,
    ),
    stage="first-kernel",
)
TRITON_MISSING = Cause(
    id="triton-missing",
    place=(Layer.LIBRARIES, 190),
    title="torch.compile finds no working Triton on Linux",
    means="Triton comes with torch's wheels; here it was removed or does not import.",
    proven_by="inductor's word",
    not_when="triton-missing-windows; triton-no-compiler",
    way_out="The Triton that torch requires",
    source="torch/_inductor/scheduler.py",
    events=("triton-missing-windows",),
    holds=(ON_LINUX,),
    message=Message(
        title="torch.compile finds no working Triton",
        detail="torch's wheels for Linux bring it as a dependency: it was removed or replaced, it "
        "does not import, or the driver that it asks for the GPU does not answer.",
        text='Install the version that torch requires; `python -c "import triton"` says why it '
        "does not import",
        look=("pip check",),
        see="see which version torch requires",
    ),
    stage="first-kernel",
)
TRITON_BUILD_FAILED = Cause(
    id="triton-build-failed",
    place=(Layer.LIBRARIES, 170),
    title="Triton's helper does not build",
    means="A C compiler runs; libcuda.so, cuda.h or Python.h is not found.",
    proven_by="The compiler's or linker's line",
    not_when="triton-no-compiler",
    way_out="The link libcuda.so, the headers of Python",
    source="Triton's sources (build.py, driver.py)",
    explains=("triton-no-compiler",),
    message=Message(
        title="Triton cannot build its helper: its C code does not compile",
        text="Read the compiler's first error above",
        cases=(
            Message(
                having={"lacks": "cuda$|libcuda"},
                title="Triton cannot build its helper: the linker finds no libcuda.so",
                text="Let TRITON_LIBCUDA_PATH and LIBRARY_PATH name the folder of the driver's "
                "libcuda.so.1, or make the link libcuda.so beside it",
                look=("ldconfig -p | grep libcuda",),
                see="see where it is",
            ),
            Message(
                having={"lacks": "^(?:cuda.h|ptxas)$"},
                title="Triton cannot build its helper: it finds no {lacks}",
                text="Install Triton anew, whose wheel brings it, or let CUDA_HOME name a toolkit",
                look=("pip check",),
            ),
            Message(
                having={"lacks": "python.h"},
                title="Triton cannot build its helper: the compiler finds no Python.h",
                text="Install the headers of this Python (python3-dev, python3-devel; an embedded "
                "one on Windows: copy the folders include and libs of a full Python of the same "
                "version beside python.exe)",
            ),
        ),
    ),
    stage="first-kernel",
)
TRITON_NO_COMPILER = Cause(
    id="triton-no-compiler",
    place=(Layer.LIBRARIES, 180),
    title="no C compiler for torch.compile",
    means="Triton builds a small helper with it.",
    proven_by="No cc, gcc, clang on PATH",
    way_out="Install one",
    source="Triton's own message",
    message=Message(
        title="torch.compile needs a C compiler and none is on PATH",
        text="Install one (gcc), or let CC name one that is there",
        commands=("package gcc",),
        needs_root=True,
        cases=(
            Message(
                where=(ON_WINDOWS,),
                text="Install the newest triton-windows, which brings a compiler (TinyCC); older "
                "releases of it take MSVC: the Build Tools for Visual Studio, with C++",
                commands=("pip install --upgrade triton-windows",),
            ),
        ),
    ),
    stage="first-kernel",
    alike=(Alike(causes=("compiler-missing",), asks="gcc --version", unless=alike.is_tritons),),
)


def triton(context: RuleContext) -> Iterator[Finding]:
    """torch.compile needs a Triton, and on Linux the system's C compiler."""
    known = (TRITON_MISSING_WINDOWS, TRITON_MISSING, TRITON_BUILD_FAILED, TRITON_NO_COMPILER)
    yield from from_messages(context, known)
    machine = context.snapshot
    lacks = machine.packages is not None and machine.toolkit.compiler is None
    looked = on(context, "linux") and not is_report(context)
    if looked and lacks and is_cuda_build(machine.torch) and has_nvidia(context):
        yield seen(context, TRITON_NO_COMPILER, "PATH", "no gcc", severity=Severity.WARNING)


CUDA_VERSIONS_DIFFER = Cause(
    id="cuda-versions-differ",
    severity=Severity.NOTE,
    title="nvidia-smi and nvcc name different CUDA versions",
    means="One is what the driver can run, the other the toolkit's; they need not agree.",
    proven_by="Both versions in a text that shows no failure",
    way_out="Nothing to do",
    source="NVIDIA, CUDA Compatibility",
)


def cuda_versions_told(context: RuleContext) -> Iterator[Finding]:
    """Somebody shows the driver's CUDA beside nvcc's, and nothing that fails."""
    own, nvcc = context.snapshot.driver.cuda, context.snapshot.toolkit.nvcc
    if is_report(context) and says_nothing_else(context) and own and nvcc and own != nvcc:
        yield CUDA_VERSIONS_DIFFER.found(
            f"The driver serves CUDA up to {own}, nvcc is {nvcc}: these need not agree",
            detail="nvidia-smi prints the newest CUDA that the driver can run, nvcc the toolkit's "
            "own version; torch's wheels bring theirs, which the driver must reach. nvcc matters "
            "only where CUDA code is compiled: then it needs torch's CUDA.",
            evidence=(value_evidence(context, "toolkit.nvcc", f"nvcc: release {nvcc}"),),
        )


RULES = (triton, cuda_versions_told)
