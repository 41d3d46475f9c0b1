"""What is built here: Triton's kernels, extensions, and the toolkit they need."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.catalog.companion_table import companion_table, releases_for
from gpusetup.evidence.context import (
    RuleContext,
    cuda_needed,
    event_evidence,
    events,
    has_nvidia,
    is_cuda_build,
    is_report,
    on,
    package,
    says_nothing_else,
    value_evidence,
)
from gpusetup.evidence.plausible import is_a_path
from gpusetup.findings.layers import Layer
from gpusetup.findings.record import Cause
from gpusetup.fixes import packages, paste
from gpusetup.model.finding import Evidence, Finding, Fix, Severity
from gpusetup.model.shell import Line, filled, putting_first
from gpusetup.model.versions import parsed

TRITON_MISSING_WINDOWS = Cause(
    id="triton-missing-windows",
    place=(Layer.LIBRARIES, 190),
    title="no Triton on Windows",
    means="torch brings Triton on Linux only.",
    proven_by="Windows, a CUDA build, no triton",
    way_out="triton-windows, or no torch.compile",
    source="names of Triton's wheels",
)


def triton_missing_windows(context: RuleContext) -> Iterator[Finding]:
    """torch.compile on Windows needs a triton that torch does not bring."""
    messages = events(context, "triton-missing-windows")
    have = package(context, "triton") or package(context, "triton-windows")
    if messages and on(context, "linux"):
        yield _triton_missing(context)
    windows = on(context, "windows") or (messages and context.snapshot.os.family is None)
    if (
        not windows
        or (have and not messages)
        or not (messages or is_cuda_build(context.snapshot.torch))
    ):
        return
    build, torch = companion_table().project("triton-windows"), context.snapshot.torch.version
    pinned = releases_for(build, torch)[:1] if build and torch else ()
    fix = Fix(
        text="Install the community's build, triton-windows, of the release that serves this torch "
        "(2.4 or newer), or do without torch.compile",
        commands=tuple(paste.pip(context, "install", f"triton-windows{one}") for one in pinned),
    )
    title = "torch.compile needs Triton, which torch does not bring for Windows"
    if messages:
        yield TRITON_MISSING_WINDOWS.found(title, evidence=event_evidence(messages), fix=fix)
    elif context.snapshot.packages is not None and pinned:
        yield TRITON_MISSING_WINDOWS.as_note(title, fix=fix)


TRITON_MISSING = Cause(
    id="triton-missing",
    place=(Layer.LIBRARIES, 190),
    title="torch.compile finds no working Triton on Linux",
    means="Triton comes with torch's wheels; here it was removed or does not import.",
    proven_by="inductor's word",
    not_when="triton-missing-windows; triton-no-compiler",
    way_out="The Triton that torch requires",
    source="torch/_inductor/scheduler.py",
)


def _triton_missing(context: RuleContext) -> Finding:
    """torch's wheels for Linux require Triton: it was removed, or is of another torch."""
    return TRITON_MISSING.found(
        "torch.compile finds no working Triton",
        detail="torch's wheels for Linux bring it as a dependency: it was removed or replaced, it "
        "does not import, or the driver that it asks for the GPU does not answer.",
        evidence=event_evidence(events(context, "triton-missing-windows")),
        fix=Fix(
            text="Install the version that torch requires",
            commands=_the_required_triton(context),
            looks=paste.look(
                "see first why it does not import",
                paste.command(context, paste.python(context), "-c", "import triton"),
            ),
        ),
    )


REQUIRED = (
    "import importlib.metadata as m; "
    "print(next(r.split(';')[0].strip() for r in m.requires('torch') if 'triton' in r))"
)
"""Prints the requirement that the installed torch names: `triton==3.5.0`."""


def _the_required_triton(context: RuleContext) -> tuple[Line, ...]:
    """Triton as torch's own metadata asks for it, by this environment's installer."""
    by_pip = '{python} -m pip install --force-reinstall --no-deps "$({python} -c {code})"'
    by_uv = 'uv pip install --python {python} --reinstall --no-deps "$({python} -c {code})"'
    pattern = by_uv if context.installer == "uv" else by_pip
    return (filled(pattern, python=paste.python(context), code=REQUIRED),)


LIBRARIES = {"ubuntu": "x86_64-linux-gnu", "debian": "x86_64-linux-gnu", "pop": "x86_64-linux-gnu"}


def _libcuda_named(context: RuleContext) -> tuple[Line, ...]:
    """The two variables that name the folder of the driver's libcuda to Triton and its linker."""
    path = context.snapshot.driver.libcuda_path or ""
    family = packages.distribution(context) or ""
    folder = "/usr/lib/x86_64-linux-gnu" if family in LIBRARIES else "/usr/lib64"
    if context.snapshot.os.wsl:
        folder = "/usr/lib/wsl/lib"
    if path.startswith("/") and is_a_path(path):
        folder = path.rpartition("/")[0] or "/"
    return (
        paste.setting(context, "TRITON_LIBCUDA_PATH", folder),
        putting_first("LIBRARY_PATH", folder, "bash"),
    )


TRITON_LACKS = {
    "libcuda": (
        "the linker finds no libcuda.so",
        "Name the folder of the driver's libcuda.so.1, or make the link libcuda.so beside it",
    ),
    "cuda.h": (
        "the compiler finds no cuda.h",
        "Install Triton anew (it brings cuda.h), or let CUDA_HOME name a toolkit",
    ),
    "ptxas": (
        "Triton finds no ptxas",
        "Install Triton anew (its wheel brings ptxas), or let TRITON_PTXAS_PATH name a toolkit's",
    ),
    "python.h": (
        "the compiler finds no Python.h",
        "Install the headers of this Python",
    ),
}
"""What the helper's build lacks -> what that is, and what to do."""

PYTHON_HEADERS = {
    "ubuntu": "python3-dev",
    "debian": "python3-dev",
    "fedora": "python3-devel",
    "rhel": "python3-devel",
    "suse": "python3-devel",
}


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
)


def triton_build_failed(context: RuleContext) -> Iterator[Finding]:
    """A C compiler runs, and Triton's helper does not build."""
    messages = events(context, "triton-build-failed")
    if not messages:
        return
    lacks = (
        messages[0].values.get("lacks", "").lower().removesuffix(".so").replace("-lcuda", "libcuda")
    )
    what, text = TRITON_LACKS.get(
        lacks, ("its C code does not compile", "Read the compiler's first error above")
    )
    if lacks == "python.h" and on(context, "windows"):
        text = (
            "An embedded Python comes without headers: copy the folders include and libs of a full "
            "Python of the same version beside its python.exe"
        )
    commands = _what_brings(context, lacks)
    yield TRITON_BUILD_FAILED.found(
        f"Triton cannot build its helper: {what}",
        evidence=event_evidence(messages),
        fix=Fix(text=text, commands=commands, needs_root=lacks == "python.h" and bool(commands)),
    )


def _what_brings(context: RuleContext, lacks: str) -> tuple[Line, ...]:
    if on(context, "windows"):
        return ()
    if lacks == "libcuda":
        return _libcuda_named(context)
    if lacks in ("cuda.h", "ptxas"):
        return _the_required_triton(context)
    headers = PYTHON_HEADERS.get(packages.distribution(context) or "")
    return packages.system_package(context, headers) if lacks == "python.h" and headers else ()


TRITON_NO_COMPILER = Cause(
    id="triton-no-compiler",
    place=(Layer.LIBRARIES, 180),
    title="no C compiler for torch.compile",
    means="Triton builds a small helper with it.",
    proven_by="No cc, gcc, clang on PATH",
    way_out="Install one",
    source="Triton's own message",
)


def triton_no_compiler(context: RuleContext) -> Iterator[Finding]:
    """torch.compile on Linux builds a helper with the system's C compiler."""
    messages = events(context, "triton-no-compiler")
    looked = context.snapshot.origin != "report" and context.snapshot.packages is not None
    lacks = looked and context.snapshot.toolkit.compiler is None and on(context, "linux")
    if not messages and not (
        lacks and is_cuda_build(context.snapshot.torch) and has_nvidia(context)
    ):
        return
    make = TRITON_NO_COMPILER.found if messages else TRITON_NO_COMPILER.as_warning
    yield make(
        "torch.compile needs a C compiler and none is on PATH",
        evidence=event_evidence(messages) or (Evidence(source="PATH", text="no cc, gcc or clang"),),
        fix=_a_compiler(context),
    )


def _a_compiler(context: RuleContext) -> Fix:
    if on(context, "windows"):
        return Fix(
            text="Install the newest triton-windows, which brings a compiler (TinyCC); older "
            "releases of it take MSVC: the Build Tools for Visual Studio, with C++",
            commands=(paste.pip(context, "install", "--upgrade", "triton-windows"),),
        )
    return Fix(
        text="Install one (gcc: build-essential, gcc), or let CC name one that is there",
        commands=packages.compiler(context),
        needs_root=True,
    )


STALE_CUDA_PATH = Cause(
    id="stale-cuda-path",
    severity=Severity.WARNING,
    title="CUDA_HOME or CUDA_PATH names a missing folder",
    means="An uninstalled toolkit.",
    proven_by="The variable, and no such folder",
    not_when="A missing toolkit, which wheels do not need",
    way_out="Unset it",
    source="torch.utils.cpp_extension",
)


def stale_cuda_path(context: RuleContext) -> Iterator[Finding]:
    """CUDA_HOME or CUDA_PATH names a folder that is not there."""
    kit = context.snapshot.toolkit
    if kit.home and kit.home_exists is False:
        name = "CUDA_HOME" if "CUDA_HOME" in context.snapshot.environment else "CUDA_PATH"
        yield STALE_CUDA_PATH.found(
            f"{name} names a folder that is not there: {kit.home}",
            detail="torch's wheels need no toolkit; building extensions looks there and fails.",
            evidence=(Evidence(source="environment", text=f"{name}={kit.home}"),),
            fix=Fix(
                text=f"Unset {name}, or let it name the toolkit that is installed",
                commands=paste.unset(context, name),
            ),
        )


CUDA_TOOLKIT_DIFFERS = Cause(
    id="cuda-toolkit-differs",
    severity=Severity.NOTE,
    title="nvcc is of another major than torch",
    means="Matters for extensions only.",
    proven_by="Both versions",
    way_out="Nothing to do",
    source="torch.utils.cpp_extension",
)


def toolkit_differs(context: RuleContext) -> Iterator[Finding]:
    """The first nvcc is of another CUDA than torch: extensions would not build."""
    kit, needed = context.snapshot.toolkit, cuda_needed(context.snapshot.torch)
    if _is_asked_about(context):
        return  # the three versions are told apart in one note
    if kit.nvcc and needed and parsed(kit.nvcc).major != parsed(needed).major:
        yield CUDA_TOOLKIT_DIFFERS.found(
            f"nvcc is CUDA {kit.nvcc}, torch was built with {needed}",
            detail="No matter for wheels. An extension built here needs nvcc of torch's major "
            "version.",
            evidence=(
                value_evidence(
                    context, "toolkit.nvcc", f"{kit.nvcc_path or 'nvcc'}: release {kit.nvcc}"
                ),
            ),
        )


def _is_asked_about(context: RuleContext) -> bool:
    """Whether a text shows two versions of CUDA and no failure."""
    own, nvcc = context.snapshot.driver.cuda, context.snapshot.toolkit.nvcc
    return bool(is_report(context) and says_nothing_else(context) and own and nvcc and own != nvcc)


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
    machine = context.snapshot
    own, nvcc, built = machine.driver.cuda, machine.toolkit.nvcc, cuda_needed(machine.torch)
    if not _is_asked_about(context):
        return
    torch = f", torch was built with {built}" if built else ""
    yield CUDA_VERSIONS_DIFFER.found(
        f"The driver serves CUDA up to {own}, nvcc is {nvcc}{torch}: these need not agree",
        detail="nvidia-smi prints the newest CUDA that the driver can run, nvcc the toolkit's own "
        "version; torch's wheels bring theirs, which the driver must reach. nvcc matters only "
        "where CUDA code is compiled: then it needs torch's CUDA.",
        evidence=(
            value_evidence(context, "driver.cuda", f"driver: CUDA {own}"),
            value_evidence(context, "toolkit.nvcc", f"nvcc: release {nvcc}"),
        ),
    )


CUDA_TOOLKITS_DIFFER = Cause(
    id="cuda-toolkits-differ",
    severity=Severity.NOTE,
    title="two toolkits: PATH and CUDA_HOME",
    means="An extension build takes CUDA_HOME, a person sees nvcc.",
    proven_by="Both versions",
    way_out="Nothing to do",
    source="torch.utils.cpp_extension",
)


def two_toolkits(context: RuleContext) -> Iterator[Finding]:
    """CUDA_HOME and the nvcc on PATH are two toolkits."""
    kit = context.snapshot.toolkit
    if (
        kit.nvcc
        and kit.home_version
        and parsed(kit.nvcc).release[:2] != parsed(kit.home_version).release[:2]
    ):
        yield CUDA_TOOLKITS_DIFFER.found(
            f"The nvcc on PATH is CUDA {kit.nvcc}, {kit.home} is CUDA {kit.home_version}",
            evidence=(
                value_evidence(
                    context, "toolkit.nvcc", f"{kit.nvcc_path or 'nvcc'}: release {kit.nvcc}"
                ),
            ),
        )


RULES = (
    triton_missing_windows,
    triton_no_compiler,
    triton_build_failed,
    stale_cuda_path,
    toolkit_differs,
    cuda_versions_told,
    two_toolkits,
)
