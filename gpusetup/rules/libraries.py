"""The libraries under torch: CUDA's own, the driver's stub, numpy, MKL."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.model import Event, Evidence, Finding, Fix, Package, parsed
from gpusetup.rules import ways
from gpusetup.rules.asked_library import for_whoever_asks
from gpusetup.rules.case import (
    Case,
    cuda_needed,
    error,
    events,
    is_report,
    note,
    on,
    package,
    shown,
    told,
    warning,
)
from gpusetup.rules.companions import public
from gpusetup.rules.driver import DRIVER_LIBRARIES
from gpusetup.rules.jetson import undeclared_fix
from gpusetup.rules.messages import Message
from gpusetup.rules.messages import said as spoken
from gpusetup.rules.plausible import exactly, is_a_path
from gpusetup.shell import Line
from gpusetup.value import replace


def foreign_libraries(case: Case) -> Iterator[Finding]:
    """LD_LIBRARY_PATH puts other CUDA libraries in front of torch's own."""
    said = events(case, "foreign-library")
    clash = events(case, "library-conflict", "cudnn-version-mismatch")
    broken = clash or (said and case.snapshot.torch.import_error)
    if not (said or broken) or (not case.snapshot.torch.installed and not broken):
        return
    make = error if broken else warning
    folder = _foreign_folder(case)
    by = "LD_LIBRARY_PATH puts" if folder else "The loader finds"
    yield make(
        "ld-library-path-conflict",
        f"{by} libraries from {folder or 'another place'} in front of those that torch brings"
        + _which(clash),
        detail="torch's wheel needs exactly its own cuDNN, cuBLAS and nvJitLink; an older one "
        "in front fails to load or lacks symbols.",
        evidence=(*told(clash), *told(said), *_library_path(case)),
        fix=_own_libraries_first(case, clash),
    )


def _foreign_folder(case: Case) -> str | None:
    named = events(case, "foreign-library", "library-conflict")
    return next((e.values["folder"] for e in named if e.values.get("folder")), None)


def _which(clash: tuple[Event, ...]) -> str:
    """The library of which two versions meet, as far as the message says."""
    for event in clash:
        values = event.values
        if values.get("compiled") and values.get("loaded"):
            loaded, needed = (values[name].replace(", ", ".") for name in ("loaded", "compiled"))
            return f" (cuDNN {loaded} is loaded, {needed} is needed)"
        if values.get("library"):
            return f" ({values['library']})"
    return ""


def _library_path(case: Case) -> tuple[Evidence, ...]:
    value = case.snapshot.environment.get("LD_LIBRARY_PATH")
    return (Evidence(source="environment", text=f"LD_LIBRARY_PATH={value}"),) if value else ()


def _own_libraries_first(case: Case, clash: tuple[Event, ...]) -> Fix:
    if any("stdc++" in e.values.get("library", "") for e in clash):
        return Fix(
            text="Let the environment's own libstdc++ be found first (in conda install it; it is "
            "newer than the system's)",
            commands=(
                ways.command(case, "conda", "install", "-y", "-c", "conda-forge", "libstdcxx-ng"),
                *ways.posix(case, 'export LD_LIBRARY_PATH="$CONDA_PREFIX/lib"'),
            ),
        )
    if shared := _in_one_folder(case):
        return _one_of_two(case, *shared)
    if on(case, "windows"):
        return Fix(
            text="Take the folders of other CUDA and cuDNN versions out of PATH for torch, and "
            "remove their DLLs from Windows\\System32"
        )
    again = ways.install_torch(case).commands if not _foreign_folder(case) else ()
    return Fix(
        text="Take foreign folders out of LD_LIBRARY_PATH for torch",
        commands=ways.unset(case, "LD_LIBRARY_PATH"),
        alternatives=ways.other(
            "install torch anew, where two installs lie over each other", *again
        ),
    )


ONE_FOLDER = ("nvidia-cudnn", "nvidia-nccl", "nvidia-cusparselt", "nvidia-nvshmem")
"""Their wheels for CUDA 12 and for CUDA 13 unpack into one folder: the last one installed wins."""


def _in_one_folder(case: Case) -> tuple[Package, Package] | None:
    """A library of two CUDA majors in one folder: the one of torch's major, and the other."""
    listed = case.snapshot.packages or ()
    torch = case.snapshot.torch
    needed = cuda_needed(torch) or (case.resolution.build.cuda if case.resolution.build else None)
    major = (needed or "").partition(".")[0]
    for name in ONE_FOLDER:
        both = {_cuda_major(p.name): p for p in listed if p.name.startswith(f"{name}-cu")}
        if major in both and len(both) > 1:
            return both[major], next(p for m, p in both.items() if m != major)
    return None


def _one_of_two(case: Case, own: Package, other: Package) -> Fix:
    (exact,) = exactly(((own.name, own.version),)) or (own.name,)
    return Fix(
        text=f"{other.name} and {own.name} lie in one folder: remove both, and install {own.name} "
        "anew",
        commands=(
            ways.pip(case, "uninstall", "-y", other.name, own.name),
            ways.pip(case, "install", "--no-deps", exact),
        ),
    )


def libcuda_stub(case: Case) -> Iterator[Finding]:
    """A stub libcuda that serves only to link programs is what is loaded."""
    path = case.snapshot.driver.libcuda_path or ""
    problem = [
        r for r in case.snapshot.readings if r.subject == "driver.libcuda_path" and r.problem
    ]
    loaded = "/stubs" in path or any("stub" in (r.problem or "") for r in problem)
    said = events(case, "libcuda-stub")
    if not loaded and not said:
        return
    # A text quotes what failed; on a live machine a folder on the path may do no harm yet.
    loaded = loaded or (is_report(case) and not any(e.values.get("folder") for e in said))
    make = error if loaded else warning
    yield make(
        "libcuda-stub",
        "The toolkit's stub libcuda is loaded instead of the driver's"
        if loaded
        else "The toolkit's stub libcuda is on LD_LIBRARY_PATH: it may be loaded instead of the "
        "driver's",
        evidence=(*((shown(case, "driver.libcuda_path", path),) if path else ()), *told(said)),
        fix=Fix(
            text="Take the stubs folder out of LD_LIBRARY_PATH",
            commands=_without_stubs(case),
        ),
    )


def _without_stubs(case: Case) -> tuple[Line, ...]:
    named = case.snapshot.environment.get("LD_LIBRARY_PATH", "")
    kept = [folder for folder in named.split(":") if folder and "/stubs" not in folder]
    if not kept:
        return ways.unset(case, "LD_LIBRARY_PATH")
    return (ways.setting(case, "LD_LIBRARY_PATH", ":".join(kept)),)


def cuda_lib_missing(case: Case) -> Iterator[Finding]:
    """A CUDA library that torch links against is not installed, or only in part."""
    cut = [
        p
        for p in case.snapshot.packages or ()
        if p.name.startswith("nvidia-") and p.intact is False
    ]
    said = tuple(
        e
        for e in events(case, "cuda-lib-missing")
        if not e.values.get("library", "").startswith(DRIVER_LIBRARIES)
    )
    if not cut and not said:
        return
    name = cut[0].name if cut else said[0].values.get("library", "a CUDA library")
    yield error(
        "cuda-lib-missing",
        f"{name} is missing or not whole: what links against it cannot load",
        detail="The number in a library's name is the CUDA that torch, or the extension, was built "
        "for.",
        evidence=(
            *told(said),
            *(shown(case, "packages", f"{p.name} {p.version}: files are missing") for p in cut[:3]),
        ),
        fix=_reinstall(case, cut)
        if cut
        else undeclared_fix(case, name) or for_whoever_asks(case, name, _asked_by(said)),
    )


def _asked_by(said: tuple[Event, ...]) -> str | None:
    """The package that looked for the library, where its message says so."""
    return next((e.values["module"] for e in said if e.values.get("module")), None)


def _reinstall(case: Case, cut: list[Package]) -> Fix:
    exact = exactly((p.name, p.version) for p in cut)
    again = (ways.pip(case, "install", ways.anew(case), "--no-deps", *exact),) if exact else ()
    return Fix(text="Install these packages anew", commands=again)


def cuda_libraries_mixed(case: Case) -> Iterator[Finding]:
    """nvidia-* packages of two CUDA majors, where torch uses one."""
    needed = cuda_needed(case.snapshot.torch)
    if not needed:
        return
    major = needed.partition(".")[0]
    other = [p for p in case.snapshot.packages or () if _cuda_major(p.name) not in (None, major)]
    if other:
        names = ", ".join(p.name for p in other[:4])
        yield note(
            "cuda-libraries-mixed",
            f"CUDA libraries of another major than torch's ({needed}) are installed: {names}",
            detail="They take room and are not used by this torch; leftovers of a former "
            "one, or of "
            "another package.",
            evidence=tuple(shown(case, "packages", f"{p.name} {p.version}") for p in other[:4]),
        )


def _cuda_major(name: str) -> str | None:
    """
    >>> _cuda_major("nvidia-cublas-cu12"), _cuda_major("nvidia-ml-py")
    ('12', None)
    """
    if not name.startswith("nvidia-"):
        return None
    _, found, digits = name.rpartition("-cu")
    return digits if found and digits.isdigit() else None


NUMPY2_FROM = "2.3.0"
"""The first torch built so that it runs with NumPy 1 and 2 (release notes of torch 2.3)."""


def numpy_abi_mismatch(case: Case) -> Iterator[Finding]:
    """A torch built for NumPy 1 beside NumPy 2."""
    numpy, torch = package(case, "numpy"), case.snapshot.torch
    said = events(case, "numpy-abi-mismatch")
    old = bool(torch.version and parsed(public(torch.version)) < parsed(NUMPY2_FROM))
    if not said and not (old and numpy and parsed(numpy.version).major >= 2):
        return
    have = f"numpy {numpy.version}" if numpy else "numpy 2"
    what = f"torch {torch.version}" if old else "A compiled module (torch or one beside it)"
    make = warning if not said and torch.cuda_available else error
    yield make(
        "numpy-abi-mismatch",
        f"{what} was built for NumPy 1 and {have} is installed",
        evidence=(*told(said), *((shown(case, "packages", have),) if numpy else ())),
        fix=Fix(
            text=f"Install NumPy 1, or a torch from {NUMPY2_FROM} on",
            commands=(ways.pip(case, "install", "numpy<2"),),
        ),
    )


MKL_BROKE = "2024.1"
"""MKL without iJIT_NotifyEvent; conda builds of torch before 2.4 link against it."""


def _there(case: Case) -> tuple[str, ...]:
    """The environment as conda's programs name it; none where it is the active one."""
    prefix = case.snapshot.conda.prefix or ""
    return ("--prefix", prefix) if is_a_path(prefix) else ()


def mkl_version_mismatch(case: Case) -> Iterator[Finding]:
    mkl = package(case, "mkl")
    torch = case.snapshot.torch
    said = events(case, "mkl-version-mismatch")
    by_conda = torch.installer == "conda" and torch.version is not None
    old = by_conda and parsed(public(torch.version or "0")) < parsed("2.4")
    old = old and torch.cuda_available is None  # whoever said so had imported torch
    if not said and not (old and mkl and parsed(mkl.version) >= parsed(MKL_BROKE)):
        return
    have = f"mkl {mkl.version}" if mkl else "mkl 2024.1 or newer"
    yield error(
        "mkl-version-mismatch",
        f"{have} lacks a symbol that this conda build of torch needs (iJIT_NotifyEvent)",
        evidence=(*told(said), *((shown(case, "packages", have),) if mkl else ())),
        fix=Fix(
            text="Install an older MKL in this environment, or take torch from pip",
            commands=(ways.command(case, "conda", "install", "-y", *_there(case), "mkl<2024.1"),),
        ),
    )


DLLS = (
    Message(
        kind="dll-missing",
        id="windows-dll-missing",
        title="Windows cannot load {dll}: a DLL that it needs is missing or of another version",
        plain="Windows cannot load torch's DLLs: one that they need is missing",
        detail="Mostly the runtime of Visual C++ (msvcp140, vcruntime140_1), for torch 2.4.0 also "
        "libomp140.x86_64.dll; error 1114 comes from an outdated runtime too.",
        text="Install the current Visual C++ runtime (x64), then torch anew (2.4.1 or newer)",
        windows=("winget install Microsoft.VCRedist.2015+.x64",),
        then=("gpusetup install",),
        needs_root=True,
    ),
    Message(
        kind="pagefile-too-small",
        id="windows-pagefile-too-small",
        title="The Windows page file is too small to load torch's DLLs (error 1455)",
        detail="Windows reserves room for the CUDA DLLs in every process; each DataLoader worker "
        "is a process.",
        text="Let Windows manage the page file, or enlarge it on a disk with room (System, "
        "Advanced, Performance, Virtual memory), and start again; use fewer workers",
        windows=("SystemPropertiesPerformance.exe",),
        needs_root=True,
    ),
)


def windows_dlls(case: Case) -> Iterator[Finding]:
    """Of torch and what it loads; an extension that belongs to another torch is that finding."""
    others = {e.values.get("module") for e in events(case, "extension-abi-mismatch")} - {None}
    kept = tuple(
        e
        for e in case.snapshot.events
        if e.kind != "dll-missing" or e.values.get("module") not in others
    )
    yield from spoken(replace(case, snapshot=replace(case.snapshot, events=kept)), DLLS)


RULES = (
    windows_dlls,
    foreign_libraries,
    libcuda_stub,
    cuda_lib_missing,
    cuda_libraries_mixed,
    numpy_abi_mismatch,
    mkl_version_mismatch,
)
