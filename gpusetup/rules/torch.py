"""The wheel: is torch there, whole, one, and built for this driver and this machine."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.gpus import l4t_of
from gpusetup.model import (
    Evidence,
    Finding,
    Fix,
    parsed,
)
from gpusetup.rules import ways
from gpusetup.rules.case import (
    Case,
    asked_for_cuda,
    error,
    events,
    gpus,
    has_nvidia,
    is_report,
    on,
    one_of,
    packages,
    says_nothing_else,
    shown,
    told,
    warning,
)
from gpusetup.value import replace

CONDA = ("conda", "mamba", "micromamba", "pixi")


def torch_missing(case: Case) -> Iterator[Finding]:
    """No torch in the target interpreter."""
    built = case.snapshot.torch.version and events(case, "build-isolation-no-torch")
    said = () if built else events(case, "torch-missing")
    looked = case.snapshot.torch.installed is False
    if looked or said:
        where = case.snapshot.python.executable or case.snapshot.python.prefix or "this Python"
        seen = (shown(case, "torch.installed", f"no torch in {_site(case)}"),) if looked else ()
        yield error(
            "torch-missing",
            f"torch is not installed in {where}",
            evidence=(*told(said), *seen),
            fix=_jetson_fix(case) if case.snapshot.os.jetson else ways.install_torch(case),
        )


def _site(case: Case) -> str:
    return case.snapshot.python.site_packages or case.snapshot.python.prefix or "its site-packages"


def install_unfinished(case: Case) -> Iterator[Finding]:
    """Nothing else that is found in such an environment says anything about it."""
    said = events(case, "install-unfinished")
    if said:
        values = said[0].values
        recover = ways.command(case, "gpusetup", "install", "--python", ways.python(case))
        yield error(
            "install-unfinished",
            f"An installation into {values.get('prefix', 'this environment')} was interrupted",
            detail=f"It stopped in the phase {values.get('phase')}. What was there before is kept "
            "until it is ended.",
            evidence=told(said),
            fix=Fix(
                text="End it: the environment becomes exactly the former or exactly the new one",
                commands=(f"{recover} --recover",),
            ),
        )


def torch_half_installed(case: Case) -> Iterator[Finding]:
    """torch's files are not all there: an install was cut."""
    cut = [p for p in packages(case, "torch") if p.intact is False]
    said = events(case, "torch-half-installed")
    if cut or said:
        version = cut[0].version if cut else case.snapshot.torch.version or ""
        yield error(
            "torch-half-installed",
            f"torch {version} is installed only in part".replace("  ", " "),
            evidence=told(said)
            or (shown(case, "torch.version", f"files of torch are missing in {_site(case)}"),),
            fix=_clean_install(case),
        )


def _clean_install(case: Case) -> Fix:
    """Remove first: an installer would take what is left for an installed torch."""
    way = ways.install_torch(case)
    remove = ways.pip(case, "uninstall", "-y", "torch")
    return replace(
        way, text=f"Remove what is left of it. {way.text}", commands=(remove, *way.commands)
    )


def torch_cpu_build(case: Case) -> Iterator[Finding]:
    """The machine has an NVIDIA GPU and the installed torch has no CUDA."""
    torch = case.snapshot.torch
    said = events(case, "torch-not-compiled-with-cuda")
    about_it = asked_for_cuda(case) or says_nothing_else(case)
    suspected = has_nvidia(case) is None and about_it and is_report(case)
    if case.snapshot.os.jetson or not (has_nvidia(case) or suspected):
        return
    if not said and (torch.backend != "cpu" or torch.cuda_available):
        return
    yield error(
        "torch-cpu-build",
        f"torch {torch.version or ''} is a CPU build: it cannot use {ways.names(case)}".replace(
            "  ", " "
        ),
        detail=_why_cpu(case),
        evidence=(*told(said), *version_evidence(case)),
        fix=_replace_cpu_build(case),
    )


def _why_cpu(case: Case) -> str:
    torch = case.snapshot.torch
    if (torch.installer or "") == "conda":
        return "Plain `pytorch` in conda solves to a CPU build where conda sees no driver."
    if on(case, "windows") and "+" not in (torch.version or "+"):
        return "For Windows the default package index has CPU builds only."
    return ""


def version_evidence(case: Case) -> tuple[Evidence, ...]:
    torch = case.snapshot.torch
    driver = case.snapshot.driver
    beside = (
        ways.names(case),
        f"driver {driver.version}" if driver.version else None,
        f"CUDA {driver.cuda}" if driver.cuda else None,
    )
    lines = []
    if torch.version:
        backend = f", backend {torch.backend}" if torch.backend else ""
        lines.append(shown(case, "torch.version", f"torch {torch.version}{backend}"))
    if torch.cuda_available is False:
        lines.append(shown(case, "torch.cuda_available", "torch.cuda.is_available(): False"))
    if gpus(case):
        lines.append(shown(case, "gpus", ", ".join(word for word in beside if word)))
    return tuple(lines)


def _replace_cpu_build(case: Case) -> Fix:
    build = case.resolution.build
    if build is not None and build.backend == "cpu":
        return Fix(
            text="No CUDA build fits this machine yet: "
            + (_advice(case) or "see the other findings")
        )
    return ways.install_torch(case, "Replace the CPU build. ")


def _advice(case: Case) -> str | None:
    advice = case.resolution.advice
    return f"with {advice.change} {advice.to}, {advice.gives}" if advice else None


def rocm_wheel_on_nvidia(case: Case) -> Iterator[Finding]:
    yield from _foreign_wheel(case, "rocm", "ROCm (AMD)", "rocm-wheel-on-nvidia")


def xpu_wheel_on_nvidia(case: Case) -> Iterator[Finding]:
    yield from _foreign_wheel(case, "xpu", "XPU (Intel)", "xpu-wheel-on-nvidia")


def _foreign_wheel(case: Case, label: str, called: str, id: str) -> Iterator[Finding]:
    torch = case.snapshot.torch
    if not (torch.backend or "").startswith(label) or not gpus(case):
        return
    yield error(
        id,
        f"torch {torch.version or 'here'} is a {called} build: it cannot use {ways.names(case)}",
        evidence=version_evidence(case),
        fix=ways.install_torch(case, f"Replace the {called} build. "),
    )


def jetson_wrong_wheel(case: Case) -> Iterator[Finding]:
    """A Jetson with a torch that was not built for its JetPack."""
    board, torch = case.snapshot.os.jetson, case.snapshot.torch
    blind = torch.backend == "cpu" or torch.cuda_available is False
    wrong = blind and (torch.installed or is_report(case)) and torch.installed is not False
    lacks = events(case, "cuda-lib-missing")
    said = (*events(case, "jetson-wrong-wheel"), *lacks)
    if not board or not (wrong or said):
        return
    yield error(
        "jetson-wrong-wheel",
        f"torch {torch.version or ''} is not made for this Jetson ({board})".replace("  ", " "),
        detail="Until JetPack 7 a Jetson's CUDA is not that of the server wheels: it needs "
        "NVIDIA's "
        "wheels for its JetPack.",
        evidence=(*told(said), *version_evidence(case)),
        fix=_jetson_fix(case),
    )


JETPACK_WHEELS = {
    "R36": ("JetPack 6", "https://developer.download.nvidia.com/compute/redist/jp/v61/pytorch"),
    "R35": ("JetPack 5", "https://developer.download.nvidia.com/compute/redist/jp/v512/pytorch"),
}
"""L4T major -> its JetPack and the folder with NVIDIA's wheels for it (NVIDIA's install guide)."""


def _jetson_fix(case: Case) -> Fix:
    row = JETPACK_WHEELS.get(l4t_of(case.snapshot.os.jetson) or "")
    if row is None:
        return Fix(text="Install the torch wheel that NVIDIA publishes for this board's JetPack")
    jetpack, folder = row
    only_there = ("--force-reinstall", "--no-deps", "--no-index", "--find-links", folder)
    return Fix(
        text=f"Install NVIDIA's wheel for {jetpack}, then what it depends on",
        commands=(
            ways.pip(case, "install", *only_there, "torch"),
            ways.pip(case, "install", "torch"),
        ),
    )


def two_torch_installs(case: Case) -> Iterator[Finding]:
    """Two torch distributions lie over each other, or one hides another."""
    both = packages(case, "torch")
    versions = tuple(dict.fromkeys(p.version for p in both))
    if len(versions) < 2 or _by_conda_and_pip(case):
        return
    one_folder = len({p.location for p in both}) == 1
    make = error if one_folder else warning
    remove = ways.pip(case, "uninstall", "-y", "torch")
    yield make(
        "two-torch-installs",
        f"torch is installed {len(versions)} times: {', '.join(versions)}",
        detail="Their files lie over each other."
        if one_folder
        else "The first on the path is used.",
        evidence=tuple(
            shown(
                case,
                "packages",
                f"torch {p.version} by {p.installer or '?'} in {p.location or '?'}",
            )
            for p in both
        ),
        fix=Fix(
            text="Remove torch until none is left, then install one",
            commands=(*(remove for _ in versions), *ways.install_commands(case)),
        ),
    )


def _by_conda_and_pip(case: Case) -> bool:
    return _conda_torch(case) is not None and _pip_torch(case) is not None


def _conda_torch(case: Case) -> str | None:
    found = (*packages(case, "pytorch"), *packages(case, "torch"))
    return next((p.version for p in found if p.installer in CONDA), None)


def _pip_torch(case: Case) -> str | None:
    return next((p.version for p in packages(case, "torch") if p.installer not in CONDA), None)


def mixed_conda_pip(case: Case) -> Iterator[Finding]:
    """conda and pip installed torch over each other, in two versions."""
    conda, pip = _conda_torch(case), _pip_torch(case)
    said = events(case, "mixed-conda-pip", "torch-libraries-mixed")
    if not said and (not conda or not pip or parsed(conda).release == parsed(pip).release):
        return
    prefix = case.snapshot.conda.prefix or case.snapshot.python.prefix
    remove = ways.command(
        case, "conda", "remove", *(("--prefix", prefix) if prefix else ()), "--force", "pytorch"
    )
    yield error(
        "mixed-conda-pip",
        f"conda installed torch {conda} and pip installed torch {pip} over it"
        if conda and pip
        else "Files of two torch installs lie over each other: its libraries do not fit together",
        detail="Files of both lie in one folder; which one is loaded is chance.",
        evidence=(
            *told(said),
            *((shown(case, "packages", f"conda: {conda}, pip: {pip}"),) if conda and pip else ()),
        ),
        fix=Fix(
            text="Remove both, then install one, by one installer",
            commands=(
                *((remove,) if conda or case.snapshot.conda.prefix else ()),
                ways.command(case, ways.python(case), "-m", "pip", "uninstall", "-y", "torch"),
                *ways.install_commands(case),
            ),
        ),
    )


def torch_import_failed(case: Case) -> Iterator[Finding]:
    """torch was asked to import, and did not."""
    problem = case.snapshot.torch.import_error
    if problem:
        yield error(
            "torch-import-failed",
            f"torch {case.snapshot.torch.version or ''} does not import".replace("  ", " "),
            evidence=(shown(case, "torch.import_error", problem),),
            fix=ways.install_torch(case, "Install it anew. "),
        )


def torch_sees_no_gpu(case: Case) -> Iterator[Finding]:
    """torch itself says that CUDA is not available."""
    torch = case.snapshot.torch
    said = events(case, "cuda-unavailable")
    if (torch.cuda_available is False or said) and has_nvidia(case) is not False:
        asked = torch.cuda_available is False
        line = shown(case, "torch.cuda_available", "torch.cuda.is_available(): False")
        yield error(
            "torch-sees-no-gpu",
            "torch.cuda.is_available() is False",
            evidence=(*told(said), *((line,) if asked else ())),
            fix=Fix(
                text="Ask torch for the reason: this raises it",
                commands=(
                    ways.command(case, ways.python(case), "-c", "import torch; torch.cuda.init()"),
                ),
            ),
        )


def gpu_check_failed(case: Case) -> Iterator[Finding]:
    """verify, run by `--deep`, could not compute what it should."""
    said = events(case, "check-failed")
    if said:
        failed = one_of(tuple(event.values.get("name", "?") for event in said))
        yield error(
            "gpu-check-failed",
            f"torch fails on this machine's GPU: {failed}",
            evidence=told(said),
            fix=Fix(
                text="See the checks one by one",
                commands=(
                    ways.command(case, "gpusetup", "verify", "--python", ways.python(case), "-v"),
                ),
            ),
        )


def torch_debug_build(case: Case) -> Iterator[Finding]:
    if case.snapshot.torch.debug:
        yield warning(
            "torch-debug-build",
            f"torch {case.snapshot.torch.version} is a debug build: many times slower",
            evidence=(shown(case, "torch.debug", "torch.version.debug is True"),),
            fix=ways.install_torch(case, "Install a release build. "),
        )


def torch_outside_target(case: Case) -> Iterator[Finding]:
    """The torch that would be imported lies outside the environment (user site, PYTHONPATH)."""
    place, prefix = case.snapshot.torch.location, case.snapshot.python.prefix
    site = case.snapshot.python.site_packages
    if not place or not prefix or place.startswith(prefix) or (site and place.startswith(site)):
        return
    by = "PYTHONPATH" if case.snapshot.environment.get("PYTHONPATH") else "the user's site-packages"
    yield warning(
        "torch-outside-environment",
        f"The torch that Python imports is not the environment's own: it comes from {place}",
        detail=f"{by} stands before {site or prefix}.",
        evidence=(shown(case, "torch.location", place),),
        fix=Fix(
            text="Leave that folder out of the path"
            + (": unset PYTHONPATH" if by == "PYTHONPATH" else ": set PYTHONNOUSERSITE=1"),
            commands=_unset(case, "PYTHONPATH")
            if by == "PYTHONPATH"
            else _set(case, "PYTHONNOUSERSITE"),
        ),
    )


def _unset(case: Case, name: str) -> tuple[str, ...]:
    return (f"set {name}=",) if on(case, "windows") else (f"unset {name}",)


def _set(case: Case, name: str) -> tuple[str, ...]:
    return (f"set {name}=1",) if on(case, "windows") else (f"export {name}=1",)


RULES = (
    install_unfinished,
    torch_missing,
    torch_half_installed,
    torch_cpu_build,
    rocm_wheel_on_nvidia,
    xpu_wheel_on_nvidia,
    jetson_wrong_wheel,
    two_torch_installs,
    mixed_conda_pip,
    torch_import_failed,
    torch_sees_no_gpu,
    gpu_check_failed,
    torch_debug_build,
    torch_outside_target,
)
