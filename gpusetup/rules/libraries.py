"""The libraries under torch: CUDA's own, the driver's stub, numpy, MKL."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.model import Finding, Fix, Package, parsed
from gpusetup.rules import ways
from gpusetup.rules.case import (
    Case,
    cuda_needed,
    error,
    events,
    note,
    package,
    shown,
    told,
    warning,
)
from gpusetup.rules.companions import public


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
    return Fix(
        text="Install these packages anew",
        commands=(ways.pip(case, "install", ways.anew(case), "--no-deps", *exact),),
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
    old = bool(torch.version and parsed(public(torch.version)) < parsed(NUMPY2_FROM))
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
    old = by_conda and parsed(public(torch.version or "0")) < parsed("2.4")
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


RULES = (
    foreign_libraries,
    libcuda_stub,
    cuda_lib_missing,
    cuda_libraries_mixed,
    numpy_abi_mismatch,
    mkl_version_mismatch,
)
