"""What torch stands on and beside: companions, CUDA libraries, numpy, Triton, toolkit."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.model import Evidence, Finding, Fix, Package, parsed
from gpusetup.rules import ways
from gpusetup.rules.case import (
    Case,
    cuda_needed,
    error,
    events,
    has_nvidia,
    is_cuda_build,
    note,
    on,
    package,
    shown,
    told,
    warning,
)

# --- companions ----------------------------------------------------------------------------------


def torchvision_mismatch(case: Case) -> Iterator[Finding]:
    yield from _companion(case, "torchvision")


def torchaudio_mismatch(case: Case) -> Iterator[Finding]:
    yield from _companion(case, "torchaudio")


def _companion(case: Case, name: str) -> Iterator[Finding]:
    torch, beside = case.snapshot.torch.version, package(case, name)
    said = events(case, f"{name}-mismatch")
    reason = _release_differs(case, name) or _label_differs(case, name)
    if not said and not reason:
        return
    have = f"{name} {beside.version}" if beside else name
    yield error(
        f"{name}-mismatch",
        f"{have} does not belong to torch {torch or 'as installed'}: "
        f"{reason or 'it fails to load'}",
        evidence=(*told(said), shown(case, "packages", f"{have} beside torch {torch}")),
        fix=_companion_fix(case, name),
    )


def _release_differs(case: Case, name: str) -> str | None:
    """Why the release is the wrong one; None where it is right or the catalog does not know it."""
    torch, beside = case.snapshot.torch.version, package(case, name)
    row = case.catalog.release_of(torch) if torch else None
    if beside is None or torch is None or row is None:
        return None
    wanted = row.torchvision if name == "torchvision" else row.torchaudio
    have = _public(beside.version)
    if name == "torchvision":
        fits = case.catalog.torchvision_fits(have, torch)
        return None if fits is not False else f"that one takes {wanted}"
    # torchaudio 2.11 is the last one and pins no torch: it is built for many.
    if wanted is None or parsed(have).release[:2] == parsed(wanted).release[:2]:
        return None
    return f"that one takes {wanted}"


def _public(version: str) -> str:
    return version.partition("+")[0]


def _label_differs(case: Case, name: str) -> str | None:
    """A companion of another backend: `+cpu` beside `+cu130`."""
    torch, beside = case.snapshot.torch, package(case, name)
    label = beside.version.partition("+")[2] if beside else ""
    if not label or not torch.backend or label.partition(".")[0] == torch.backend:
        return None
    if not label.startswith(("cu", "cpu", "rocm", "xpu")):
        return None
    return f"it is built for {label}, torch for {torch.backend}"


def _companion_fix(case: Case, name: str) -> Fix:
    """The companion of the torch that is there, from torch's own index."""
    torch = case.snapshot.torch
    row = case.catalog.release_of(torch.version) if torch.version else None
    wanted = (row.torchvision if name == "torchvision" else row.torchaudio) if row else None
    if not wanted or not torch.backend or case.installer == "conda":
        return ways.install_torch(case, f"Install torch and {name} together. ")
    index = f"https://download.pytorch.org/whl/{torch.backend}"
    label = f"+{torch.backend}" if "+" in (torch.version or "") else ""
    words: tuple[str, ...] = (
        "install",
        "--no-deps",
        "--force-reinstall",
        "--index-url",
        index,
        f"{name}=={wanted}{label}",
    )
    if case.installer == "uv":
        words = tuple("--reinstall" if word == "--force-reinstall" else word for word in words)
    return Fix(
        text=f"Install the {name} that belongs to this torch", commands=(ways.pip(case, *words),)
    )


# --- CUDA libraries ------------------------------------------------------------------------------


def foreign_libraries(case: Case) -> Iterator[Finding]:
    """LD_LIBRARY_PATH puts other CUDA libraries in front of torch's own."""
    said = events(case, "foreign-library")
    broken = events(case, "library-conflict") or (said and case.snapshot.torch.import_error)
    if not (said or broken) or (not case.snapshot.torch.installed and not broken):
        return
    make = error if broken else warning
    folder = next((e.values["folder"] for e in said if "folder" in e.values), "a foreign folder")
    yield make(
        "ld-library-path-conflict",
        f"LD_LIBRARY_PATH puts libraries from {folder} in front of those that torch brings",
        detail="torch's wheel needs exactly its own cuDNN, cuBLAS and nvJitLink; an older one "
        "in front "
        "fails to load or lacks symbols.",
        evidence=(*told(events(case, "library-conflict")), *told(said)),
        fix=Fix(
            text="Take these folders out of LD_LIBRARY_PATH for torch",
            commands=("unset LD_LIBRARY_PATH",),
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
    make = error if loaded else warning
    yield make(
        "libcuda-stub",
        "The toolkit's stub libcuda is loaded instead of the driver's"
        if loaded
        else "The toolkit's stub libcuda is on LD_LIBRARY_PATH: it may be loaded instead of the "
        "driver's",
        evidence=(*((shown(case, "driver.libcuda_path", path),) if loaded else ()), *told(said)),
        fix=Fix(
            text="Take the stubs folder out of LD_LIBRARY_PATH",
            commands=_without_stubs(case),
        ),
    )


def _without_stubs(case: Case) -> tuple[str, ...]:
    named = case.snapshot.environment.get("LD_LIBRARY_PATH", "")
    kept = [folder for folder in named.split(":") if folder and "/stubs" not in folder]
    if not kept:
        return ("unset LD_LIBRARY_PATH",)
    return (ways.command(case, "export", "LD_LIBRARY_PATH=" + ":".join(kept)),)


def cuda_lib_missing(case: Case) -> Iterator[Finding]:
    """A CUDA library that torch links against is not installed, or only in part."""
    cut = [
        p
        for p in case.snapshot.packages or ()
        if p.name.startswith("nvidia-") and p.intact is False
    ]
    said = events(case, "cuda-lib-missing")
    if not cut and not said:
        return
    name = cut[0].name if cut else said[0].values.get("library", "a CUDA library")
    yield error(
        "cuda-lib-missing",
        f"{name} is missing or not whole: torch cannot load its CUDA libraries",
        evidence=(
            *told(said),
            *(shown(case, "packages", f"{p.name} {p.version}: files are missing") for p in cut[:3]),
        ),
        fix=_reinstall(case, cut)
        if cut
        else ways.install_torch(case, "Install torch with its libraries. "),
    )


def _reinstall(case: Case, cut: list[Package]) -> Fix:
    exact = tuple(f"{p.name}=={p.version}" for p in cut)
    flag = "--reinstall" if case.installer == "uv" else "--force-reinstall"
    return Fix(
        text="Install these packages anew",
        commands=(ways.pip(case, "install", flag, "--no-deps", *exact),),
    )


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
    old = bool(torch.version and parsed(_public(torch.version)) < parsed(NUMPY2_FROM))
    if not said and not (old and numpy and parsed(numpy.version).major >= 2):
        return
    have = f"numpy {numpy.version}" if numpy else "numpy 2"
    yield error(
        "numpy-abi-mismatch",
        f"torch {torch.version or ''} was built for NumPy 1 and {have} is installed".replace(
            "  ", " "
        ),
        evidence=(*told(said), shown(case, "packages", have)),
        fix=Fix(
            text=f"Install NumPy 1, or a torch from {NUMPY2_FROM} on",
            commands=(ways.pip(case, "install", "numpy<2"),),
        ),
    )


MKL_BROKE = "2024.1"
"""MKL without iJIT_NotifyEvent; conda builds of torch before 2.4 link against it."""


def mkl_version_mismatch(case: Case) -> Iterator[Finding]:
    mkl = package(case, "mkl")
    torch = case.snapshot.torch
    said = events(case, "mkl-version-mismatch")
    by_conda = torch.installer == "conda" and torch.version is not None
    old = by_conda and parsed(_public(torch.version or "0")) < parsed("2.4")
    if not said and not (old and mkl and parsed(mkl.version) >= parsed(MKL_BROKE)):
        return
    have = f"mkl {mkl.version}" if mkl else "mkl 2024.1 or newer"
    yield error(
        "mkl-version-mismatch",
        f"{have} lacks a symbol that this conda build of torch needs (iJIT_NotifyEvent)",
        evidence=(*told(said), shown(case, "packages", have)),
        fix=Fix(
            text="Install an older MKL in this environment",
            commands=(ways.command(case, "conda", "install", "mkl<2024.1"),),
        ),
    )


# --- Triton --------------------------------------------------------------------------------------


def triton_missing_windows(case: Case) -> Iterator[Finding]:
    """torch.compile on Windows needs a triton that torch does not bring."""
    said = events(case, "triton-missing-windows")
    have = package(case, "triton") or package(case, "triton-windows")
    if not on(case, "windows") or have or not (said or is_cuda_build(case.snapshot.torch)):
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
        fix=Fix(text="Install one", commands=ways.compiler(case), needs_root=True),
    )


# --- toolkit -------------------------------------------------------------------------------------


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
                commands=(f"Remove-Item Env:{name}" if on(case, "windows") else f"unset {name}",),
            ),
        )


def toolkit_differs(case: Case) -> Iterator[Finding]:
    """The first nvcc is of another CUDA than torch: extensions would not build."""
    kit, needed = case.snapshot.toolkit, cuda_needed(case.snapshot.torch)
    if kit.nvcc and needed and parsed(kit.nvcc).major != parsed(needed).major:
        yield note(
            "cuda-toolkit-differs",
            f"nvcc is CUDA {kit.nvcc}, torch was built with {needed}",
            detail="No matter for wheels. An extension built here needs nvcc of torch's major "
            "version.",
            evidence=(shown(case, "toolkit", f"{kit.nvcc_path}: release {kit.nvcc}"),),
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
            evidence=(shown(case, "toolkit", f"{kit.nvcc_path}: release {kit.nvcc}"),),
        )


def incomplete_packages(case: Case) -> Iterator[Finding]:
    """Other distributions whose files are not all there."""
    told_of = [
        e
        for e in events(case, "package-incomplete")
        if e.values.get("name") not in ("torch", "pytorch")
        and not e.values.get("name", "").startswith("nvidia-")
    ]
    if told_of:
        names = ", ".join(e.values.get("name", "?") for e in told_of)
        yield warning(
            "package-incomplete",
            f"Installed only in part: {names}",
            evidence=told(tuple(told_of)),
            fix=Fix(
                text="Install them anew",
                commands=(
                    ways.pip(
                        case,
                        "install",
                        "--reinstall" if case.installer == "uv" else "--force-reinstall",
                        "--no-deps",
                        *(f"{e.values.get('name')}=={e.values.get('version')}" for e in told_of),
                    ),
                ),
            ),
        )


def pip_leftover(case: Case) -> Iterator[Finding]:
    said = events(case, "pip-leftover")
    if said:
        yield note(
            "pip-leftover",
            "pip left parts of a former install behind (`~orch`): it could not remove files in use",
            evidence=told(said),
            fix=Fix(text="End the programs that use torch, then delete these folders"),
        )


RULES = (
    torchvision_mismatch,
    torchaudio_mismatch,
    foreign_libraries,
    libcuda_stub,
    cuda_lib_missing,
    cuda_libraries_mixed,
    numpy_abi_mismatch,
    mkl_version_mismatch,
    triton_missing_windows,
    triton_no_compiler,
    stale_cuda_path,
    toolkit_differs,
    two_toolkits,
    incomplete_packages,
    pip_leftover,
)
