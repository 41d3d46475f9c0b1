"""Whether torch is installed: there, whole, one, and in the environment that is asked about."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.model import (
    Finding,
    Fix,
    parsed,
)
from gpusetup.rules import ways
from gpusetup.rules.case import (
    Case,
    error,
    events,
    packages,
    readings,
    shown,
    told,
    warning,
)
from gpusetup.rules.jetson import jetson_fix
from gpusetup.rules.plausible import is_a_path
from gpusetup.value import replace

CONDA = ("conda", "mamba", "micromamba", "pixi")


def install_unfinished(case: Case) -> Iterator[Finding]:
    """Nothing else that is found in such an environment says anything about it."""
    said = events(case, "install-unfinished")
    if said:
        values = said[0].values
        recover = ways.command(
            case, "gpusetup", "install", "--python", ways.python(case), "--recover"
        )
        yield error(
            "install-unfinished",
            f"An installation into {values.get('prefix', 'this environment')} was interrupted",
            detail=f"It stopped in the phase {values.get('phase')}. What was there before is kept "
            "until it is ended.",
            evidence=told(said),
            fix=Fix(
                text="End it: the environment becomes exactly the former or exactly the new one",
                commands=(recover,),
            ),
        )


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
            fix=_or_the_other(
                case, jetson_fix(case) if case.snapshot.os.jetson else ways.install_torch(case)
            ),
        )


def _or_the_other(case: Case, way: Fix) -> Fix:
    """The way, and the Python on PATH that has a torch, where there is one."""
    having = [r for r in readings(case, "python.others") if r.value and is_a_path(r.source)]
    if not having:
        return way
    other = having[0]
    ask = ways.command(case, "gpusetup", "doctor", "--python", other.source)
    return replace(
        way,
        text=f"{way.text}. Another Python on PATH has {other.value}: {other.source}",
        looks=(*way.looks, *ways.look("see whether that one works here", ask)),
    )


def _site(case: Case) -> str:
    return case.snapshot.python.site_packages or case.snapshot.python.prefix or "its site-packages"


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
    way, build = ways.install_torch(case), ways.chosen(case)
    remove = ways.pip(case, "uninstall", "-y", "torch")
    return replace(
        way,
        text=f"Remove what is left of it. {way.text}",
        commands=(remove, *(ways.install_commands(case, removed=True) if build else way.commands)),
        alternatives=ways.by_hand(case, remove),
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
            commands=(*(remove for _ in versions), *ways.install_commands(case, removed=True)),
            alternatives=ways.by_hand(case, *(remove for _ in versions)),
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
    where = ("--prefix", prefix) if prefix else ()
    remove = ways.command(case, "conda", "remove", "--yes", *where, "--force", *_of_conda(case))
    first = (
        *((remove,) if conda or case.snapshot.conda.prefix else ()),
        ways.command(case, ways.python(case), "-m", "pip", "uninstall", "-y", "torch"),
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
            commands=(*first, *ways.install_commands(case, removed=True)),
            alternatives=ways.by_hand(case, *first),
        ),
    )


def _of_conda(case: Case) -> tuple[str, ...]:
    """torch and its companions by conda's own names; what one of them leaves hides pip's."""
    names = ("pytorch", "torchvision", "torchaudio")
    there = {p.name for p in case.snapshot.packages or () if p.installer in CONDA}
    return tuple(name for name in names if name in there) or ("pytorch",)


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


def torch_outside_target(case: Case) -> Iterator[Finding]:
    """The torch that would be imported lies outside the environment (user site, PYTHONPATH).

    Where it is not right for this machine, no other one in the environment would be seen.
    """
    place, prefix = case.snapshot.torch.location, case.snapshot.python.prefix
    site = case.snapshot.python.site_packages
    if not place or not prefix or place.startswith(prefix) or (site and place.startswith(site)):
        return
    by = "PYTHONPATH" if case.snapshot.environment.get("PYTHONPATH") else "the user's site-packages"
    in_the_way = case.decision is not None and case.decision.how != "kept"
    make = error if in_the_way and not ways.target_refuses(case) else warning
    yield make(
        "torch-outside-environment",
        f"The torch that Python imports is not the environment's own: it comes from {place}",
        detail=f"{by} stands before {site or prefix}.",
        evidence=(shown(case, "torch.location", place),),
        fix=Fix(
            text="Leave that folder out of the path"
            + (": unset PYTHONPATH" if by == "PYTHONPATH" else ": set PYTHONNOUSERSITE=1"),
            commands=ways.unset(case, "PYTHONPATH")
            if by == "PYTHONPATH"
            else (ways.setting(case, "PYTHONNOUSERSITE", "1"),),
        ),
    )


RULES = (
    install_unfinished,
    torch_missing,
    torch_half_installed,
    two_torch_installs,
    mixed_conda_pip,
    torch_import_failed,
    torch_outside_target,
)
