"""What is built here: Triton's kernels, extensions, and the toolkit they need."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.model import Evidence, Finding, Fix, parsed
from gpusetup.rules import packages, ways
from gpusetup.rules.case import (
    Case,
    cuda_needed,
    error,
    events,
    has_nvidia,
    is_cuda_build,
    is_report,
    note,
    on,
    package,
    says_nothing_else,
    shown,
    told,
    warning,
)
from gpusetup.rules.plausible import is_a_path
from gpusetup.shell import Line, filled, putting_first


def triton_missing_windows(case: Case) -> Iterator[Finding]:
    """torch.compile on Windows needs a triton that torch does not bring."""
    said = events(case, "triton-missing-windows")
    have = package(case, "triton") or package(case, "triton-windows")
    if said and on(case, "linux"):
        yield _triton_missing(case)
    windows = on(case, "windows") or (said and case.snapshot.os.family is None)
    if not windows or (have and not said) or not (said or is_cuda_build(case.snapshot.torch)):
        return
    fix = Fix(
        text="Install the community's build, or do without torch.compile",
        commands=(ways.pip(case, "install", "triton-windows"),),
    )
    title = "torch.compile needs Triton, which torch does not bring for Windows"
    if said:
        yield error("triton-missing-windows", title, evidence=told(said), fix=fix)
    elif case.snapshot.packages is not None:
        yield note("triton-missing-windows", title, fix=fix)


def _triton_missing(case: Case) -> Finding:
    """torch's wheels for Linux require Triton: it was removed, or is of another torch."""
    return error(
        "triton-missing",
        "torch.compile finds no working Triton",
        detail="torch's wheels for Linux bring it as a dependency: it was removed or replaced, it "
        "does not import, or the driver that it asks for the GPU does not answer.",
        evidence=told(events(case, "triton-missing-windows")),
        fix=Fix(
            text="Install the version that torch requires",
            commands=_the_required_triton(case),
            looks=ways.look(
                "see first why it does not import",
                ways.command(case, ways.python(case), "-c", "import triton"),
            ),
        ),
    )


REQUIRED = (
    "import importlib.metadata as m; "
    "print(next(r.split(';')[0].strip() for r in m.requires('torch') if 'triton' in r))"
)
"""Prints the requirement that the installed torch names: `triton==3.5.0`."""


def _the_required_triton(case: Case) -> tuple[Line, ...]:
    """Triton as torch's own metadata asks for it, by this environment's installer."""
    by_pip = '{python} -m pip install --force-reinstall --no-deps "$({python} -c {code})"'
    by_uv = 'uv pip install --python {python} --reinstall --no-deps "$({python} -c {code})"'
    pattern = by_uv if case.installer == "uv" else by_pip
    return (filled(pattern, python=ways.python(case), code=REQUIRED),)


LIBRARIES = {"ubuntu": "x86_64-linux-gnu", "debian": "x86_64-linux-gnu", "pop": "x86_64-linux-gnu"}


def _libcuda_named(case: Case) -> tuple[Line, ...]:
    """The two variables that name the folder of the driver's libcuda to Triton and its linker."""
    path = case.snapshot.driver.libcuda_path or ""
    family = packages.distribution(case) or ""
    folder = "/usr/lib/x86_64-linux-gnu" if family in LIBRARIES else "/usr/lib64"
    if case.snapshot.os.wsl:
        folder = "/usr/lib/wsl/lib"
    if path.startswith("/") and is_a_path(path):
        folder = path.rpartition("/")[0] or "/"
    return (
        ways.setting(case, "TRITON_LIBCUDA_PATH", folder),
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


def triton_build_failed(case: Case) -> Iterator[Finding]:
    """A C compiler runs, and Triton's helper does not build."""
    said = events(case, "triton-build-failed")
    if not said:
        return
    lacks = said[0].values.get("lacks", "").lower().removesuffix(".so").replace("-lcuda", "libcuda")
    what, text = TRITON_LACKS.get(
        lacks, ("its C code does not compile", "Read the compiler's first error above")
    )
    if lacks == "python.h" and on(case, "windows"):
        text = (
            "An embedded Python comes without headers: copy the folders include and libs of a full "
            "Python of the same version beside its python.exe"
        )
    commands = _what_brings(case, lacks)
    yield error(
        "triton-build-failed",
        f"Triton cannot build its helper: {what}",
        evidence=told(said),
        fix=Fix(text=text, commands=commands, needs_root=lacks == "python.h" and bool(commands)),
    )


def _what_brings(case: Case, lacks: str) -> tuple[Line, ...]:
    if on(case, "windows"):
        return ()
    if lacks == "libcuda":
        return _libcuda_named(case)
    if lacks in ("cuda.h", "ptxas"):
        return _the_required_triton(case)
    headers = PYTHON_HEADERS.get(packages.distribution(case) or "")
    return packages.system_package(case, headers) if lacks == "python.h" and headers else ()


def triton_no_compiler(case: Case) -> Iterator[Finding]:
    """torch.compile on Linux builds a helper with the system's C compiler."""
    said = events(case, "triton-no-compiler")
    looked = case.snapshot.origin != "report" and case.snapshot.packages is not None
    lacks = looked and case.snapshot.toolkit.compiler is None and on(case, "linux")
    if not said and not (lacks and is_cuda_build(case.snapshot.torch) and has_nvidia(case)):
        return
    make = error if said else warning
    yield make(
        "triton-no-compiler",
        "torch.compile needs a C compiler and none is on PATH",
        evidence=told(said) or (Evidence(source="PATH", text="no cc, gcc or clang"),),
        fix=Fix(
            text="Install one (gcc: build-essential, gcc), or let CC name one that is there",
            commands=packages.compiler(case),
            needs_root=True,
        ),
    )


def stale_cuda_path(case: Case) -> Iterator[Finding]:
    """CUDA_HOME or CUDA_PATH names a folder that is not there."""
    kit = case.snapshot.toolkit
    if kit.home and kit.home_exists is False:
        name = "CUDA_HOME" if "CUDA_HOME" in case.snapshot.environment else "CUDA_PATH"
        yield warning(
            "stale-cuda-path",
            f"{name} names a folder that is not there: {kit.home}",
            detail="torch's wheels need no toolkit; building extensions looks there and fails.",
            evidence=(Evidence(source="environment", text=f"{name}={kit.home}"),),
            fix=Fix(
                text=f"Unset {name}, or let it name the toolkit that is installed",
                commands=ways.unset(case, name),
            ),
        )


def toolkit_differs(case: Case) -> Iterator[Finding]:
    """The first nvcc is of another CUDA than torch: extensions would not build."""
    kit, needed = case.snapshot.toolkit, cuda_needed(case.snapshot.torch)
    if _is_asked_about(case):
        return  # the three versions are told apart in one note
    if kit.nvcc and needed and parsed(kit.nvcc).major != parsed(needed).major:
        yield note(
            "cuda-toolkit-differs",
            f"nvcc is CUDA {kit.nvcc}, torch was built with {needed}",
            detail="No matter for wheels. An extension built here needs nvcc of torch's major "
            "version.",
            evidence=(
                shown(case, "toolkit.nvcc", f"{kit.nvcc_path or 'nvcc'}: release {kit.nvcc}"),
            ),
        )


def _is_asked_about(case: Case) -> bool:
    """Whether a text shows two versions of CUDA and no failure."""
    own, nvcc = case.snapshot.driver.cuda, case.snapshot.toolkit.nvcc
    return bool(is_report(case) and says_nothing_else(case) and own and nvcc and own != nvcc)


def cuda_versions_told(case: Case) -> Iterator[Finding]:
    """Somebody shows the driver's CUDA beside nvcc's, and nothing that fails."""
    machine = case.snapshot
    own, nvcc, built = machine.driver.cuda, machine.toolkit.nvcc, cuda_needed(machine.torch)
    if not _is_asked_about(case):
        return
    torch = f", torch was built with {built}" if built else ""
    yield note(
        "cuda-versions-differ",
        f"The driver serves CUDA up to {own}, nvcc is {nvcc}{torch}: these need not agree",
        detail="nvidia-smi prints the newest CUDA that the driver can run, nvcc the toolkit's own "
        "version; torch's wheels bring theirs, which the driver must reach. nvcc matters only "
        "where CUDA code is compiled: then it needs torch's CUDA.",
        evidence=(
            shown(case, "driver.cuda", f"driver: CUDA {own}"),
            shown(case, "toolkit.nvcc", f"nvcc: release {nvcc}"),
        ),
    )


def two_toolkits(case: Case) -> Iterator[Finding]:
    """CUDA_HOME and the nvcc on PATH are two toolkits."""
    kit = case.snapshot.toolkit
    if (
        kit.nvcc
        and kit.home_version
        and parsed(kit.nvcc).release[:2] != parsed(kit.home_version).release[:2]
    ):
        yield note(
            "cuda-toolkits-differ",
            f"The nvcc on PATH is CUDA {kit.nvcc}, {kit.home} is CUDA {kit.home_version}",
            evidence=(
                shown(case, "toolkit.nvcc", f"{kit.nvcc_path or 'nvcc'}: release {kit.nvcc}"),
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
