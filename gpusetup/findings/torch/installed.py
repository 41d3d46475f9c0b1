"""Whether torch is installed: there, whole, one, and in the environment that is asked about."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.evidence.context import (
    RuleContext,
    event_evidence,
    events,
    is_report,
    packages,
    readings,
    value_evidence,
)
from gpusetup.evidence.plausible import is_a_path
from gpusetup.findings.layers import BROKEN_TORCH, COMPANIONS, NO_TORCH, Layer
from gpusetup.findings.programs import is_beside_torch
from gpusetup.findings.record import Cause
from gpusetup.findings.sources import WHEELS
from gpusetup.fixes import paste
from gpusetup.model.finding import Finding, Fix
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Event
from gpusetup.model.versions import parsed

CONDA = ("conda", "mamba", "micromamba", "pixi")


INSTALL_UNFINISHED = Cause(
    id="install-unfinished",
    place=(Layer.UNFINISHED, 10),
    title="gpusetup was interrupted while it installed",
    means="A kill, a power cut: the environment is between two states.",
    proven_by="Its journal is still there",
    way_out="gpusetup install --recover",
    source="gpusetup",
    explains=(*BROKEN_TORCH, *COMPANIONS, *NO_TORCH, "torch-cpu-build"),
)


def install_unfinished(context: RuleContext) -> Iterator[Finding]:
    """Nothing else that is found in such an environment says anything about it."""
    messages = events(context, "install-unfinished")
    if messages:
        values = messages[0].values
        recover = paste.command(
            context, "gpusetup", "install", "--python", paste.python(context), "--recover"
        )
        yield INSTALL_UNFINISHED.found(
            f"An installation into {values.get('prefix', 'this environment')} was interrupted",
            detail=f"It stopped in the phase {values.get('phase')}. What was there before is kept "
            "until it is ended.",
            evidence=event_evidence(messages),
            fix=Fix(
                text="End it: the environment becomes exactly the former or exactly the new one",
                commands=(recover,),
            ),
        )


TORCH_MISSING = Cause(
    id="torch-missing",
    place=(Layer.WHEEL, 150),
    title="torch is not installed",
    means="The interpreter that was judged has none.",
    proven_by="No torch in its folders",
    not_when="Another interpreter has it: `--python`",
    way_out="Install it",
    source=WHEELS,
    explains=("torchvision-mismatch", "torchaudio-mismatch"),
)


def torch_missing(context: RuleContext) -> Iterator[Finding]:
    """No torch in the target interpreter."""
    built = context.snapshot.torch.version and events(context, "build-isolation-no-torch")
    messages = () if built else events(context, "torch-missing")
    looked = context.snapshot.torch.installed is False
    if looked or messages:
        where = (
            context.snapshot.python.executable or context.snapshot.python.prefix or "this Python"
        )
        seen = (
            (value_evidence(context, "torch.installed", f"no torch in {_site(context)}"),)
            if looked
            else ()
        )
        make = TORCH_MISSING.as_note if _ran_elsewhere(context) else TORCH_MISSING.found
        yield make(
            f"torch is not installed in {where}",
            evidence=(*event_evidence(messages), *seen),
            fix=_or_the_other(context, _install(context)),
        )


def _ran_elsewhere(context: RuleContext) -> bool:
    """A text in which only a listing lacks torch, and a program that stands on torch runs: the
    listing is of another Python."""
    name = context.snapshot.failing.program
    if not is_report(context) or events(context, "torch-missing") or name in (None, "torch"):
        return False
    return not is_beside_torch(context) and context.snapshot.failing.stage != "install"


def _install(context: RuleContext) -> Fix:
    if not context.snapshot.os.jetson:
        return paste.install_torch(context)
    from gpusetup.findings.jetson.jetpack import jetson_fix

    return jetson_fix(context)


def _or_the_other(context: RuleContext, way: Fix) -> Fix:
    """The way, and the Python on PATH that has a torch, where there is one."""
    having = [r for r in readings(context, "python.others") if r.value and is_a_path(r.source)]
    if not having:
        return way
    other = having[0]
    ask = paste.command(context, "gpusetup", "doctor", "--python", other.source)
    return replace(
        way,
        text=f"{way.text}. Another Python on PATH has {other.value}: {other.source}",
        looks=(*way.looks, *paste.look("see whether that one works here", ask)),
    )


def _site(context: RuleContext) -> str:
    return (
        context.snapshot.python.site_packages
        or context.snapshot.python.prefix
        or "its site-packages"
    )


TORCH_HALF_INSTALLED = Cause(
    id="torch-half-installed",
    place=(Layer.WHEEL, 80),
    title="torch's files are not all there",
    means="An install was cut, or another wrote over it.",
    proven_by="Libraries of its RECORD are missing",
    way_out="Install it whole",
    source="the RECORD of the distribution",
    explains=(*BROKEN_TORCH, *COMPANIONS),
)


def torch_half_installed(context: RuleContext) -> Iterator[Finding]:
    """torch's files are not all there: an install was cut."""
    cut = [p for p in packages(context, "torch") if p.intact is False]
    messages = events(context, "torch-half-installed")
    if cut or messages:
        version = cut[0].version if cut else context.snapshot.torch.version or ""
        yield TORCH_HALF_INSTALLED.found(
            f"torch {version} is installed only in part".replace("  ", " "),
            evidence=event_evidence(messages)
            or (
                value_evidence(
                    context, "torch.version", f"files of torch are missing in {_site(context)}"
                ),
            ),
            fix=_clean_install(context),
        )


def _clean_install(context: RuleContext) -> Fix:
    """Remove first: an installer would take what is left for an installed torch."""
    way, build = paste.install_torch(context), paste.chosen(context)
    remove = paste.pip(context, "uninstall", "-y", "torch")
    return replace(
        way,
        text=f"Remove what is left of it. {way.text}",
        commands=(
            remove,
            *(paste.install_commands(context, removed=True) if build else way.commands),
        ),
        alternatives=paste.by_hand(context, remove),
    )


TWO_TORCH_INSTALLS = Cause(
    id="two-torch-installs",
    place=(Layer.WHEEL, 60),
    title="torch is installed more than once",
    means="Files of two versions lie over each other, or one hides the other.",
    proven_by="Two distributions named torch of different versions",
    not_when="mixed-conda-pip",
    way_out="Remove all, install one",
    source="dist-info folders",
    explains=(*BROKEN_TORCH, *COMPANIONS, "torch-half-installed", "mixed-conda-pip"),
)


def two_torch_installs(context: RuleContext) -> Iterator[Finding]:
    """Two torch distributions lie over each other, or one hides another."""
    both = packages(context, "torch")
    versions = tuple(dict.fromkeys(p.version for p in both))
    if len(versions) < 2 or _by_conda_and_pip(context):
        return
    one_folder = len({p.location for p in both}) == 1
    make = TWO_TORCH_INSTALLS.found if one_folder else TWO_TORCH_INSTALLS.as_warning
    remove = paste.pip(context, "uninstall", "-y", "torch")
    yield make(
        f"torch is installed {len(versions)} times: {', '.join(versions)}",
        detail="Their files lie over each other."
        if one_folder
        else "The first on the path is used.",
        evidence=tuple(
            value_evidence(
                context,
                "packages",
                f"torch {p.version} by {p.installer or '?'} in {p.location or '?'}",
            )
            for p in both
        ),
        fix=Fix(
            text="Remove torch until none is left, then install one",
            commands=(*(remove for _ in versions), *paste.install_commands(context, removed=True)),
            alternatives=paste.by_hand(context, *(remove for _ in versions)),
        ),
    )


def _by_conda_and_pip(context: RuleContext) -> bool:
    return _conda_torch(context) is not None and _pip_torch(context) is not None


def _conda_torch(context: RuleContext) -> str | None:
    found = (*packages(context, "pytorch"), *packages(context, "torch"))
    return next((p.version for p in found if p.installer in CONDA), None)


def _pip_torch(context: RuleContext) -> str | None:
    return next((p.version for p in packages(context, "torch") if p.installer not in CONDA), None)


MIXED_CONDA_PIP = Cause(
    id="mixed-conda-pip",
    place=(Layer.WHEEL, 70),
    title="conda and pip installed torch over each other",
    means="Neither knows of the other's files.",
    proven_by="A conda package pytorch and a distribution torch of another version",
    way_out="Remove both, install one",
    source="conda documentation, using pip",
    explains=(*BROKEN_TORCH, *COMPANIONS, "torch-cpu-build"),
)


def mixed_conda_pip(context: RuleContext) -> Iterator[Finding]:
    """conda and pip installed torch over each other, in two versions."""
    conda, pip = _conda_torch(context), _pip_torch(context)
    messages = events(context, "mixed-conda-pip")
    if not messages and (not conda or not pip or parsed(conda).release == parsed(pip).release):
        return
    prefix = context.snapshot.conda.prefix or context.snapshot.python.prefix
    where = ("--prefix", prefix) if prefix else ()
    remove = paste.command(
        context, "conda", "remove", "--yes", *where, "--force", *_of_conda(context)
    )
    first = (
        *((remove,) if conda or context.snapshot.conda.prefix else ()),
        paste.command(context, paste.python(context), "-m", "pip", "uninstall", "-y", *OF_PIP),
    )
    listed = (value_evidence(context, "packages", f"conda: {conda}, pip: {pip}"),)
    yield MIXED_CONDA_PIP.found(
        f"conda installed torch {conda} and pip installed torch {pip} over it"
        if conda and pip
        else "Files of two torch installs lie over each other: its libraries do not fit together",
        detail="Files of both lie in one folder; which one is loaded is chance.",
        evidence=(
            *event_evidence(messages),
            *(listed if conda and pip else ()),
        ),
        fix=Fix(
            text="Remove both, then install one, by one installer",
            commands=(*first, *paste.install_commands(context, removed=True)),
            alternatives=paste.by_hand(context, *first),
        ),
    )


OF_PIP = ("torch", "torchvision", "torchaudio")
"""What pip takes away; it only warns of one that is not there."""


def _of_conda(context: RuleContext) -> tuple[str, ...]:
    """torch and its companions by conda's own names; what one of them leaves hides pip's."""
    there = {p.name for p in context.snapshot.packages or () if p.installer in CONDA}
    return tuple(name for name in ("pytorch", *OF_PIP[1:]) if name in there) or ("pytorch",)


TORCH_IMPORT_FAILED = Cause(
    id="torch-import-failed",
    symptom=True,
    place=(Layer.LIBRARIES, 80),
    title="torch does not import",
    means="It was asked to.",
    proven_by="The error of the import",
    way_out="Install it anew",
    source="torch's own message",
)


def torch_import_failed(context: RuleContext) -> Iterator[Finding]:
    """torch was asked to import, and did not."""
    problem = context.snapshot.torch.import_error
    if problem:
        yield TORCH_IMPORT_FAILED.found(
            f"torch {context.snapshot.torch.version or ''} does not import".replace("  ", " "),
            evidence=(value_evidence(context, "torch.import_error", problem),),
            fix=paste.install_torch(context, "Install it anew. "),
        )


TORCH_OUTSIDE_ENVIRONMENT = Cause(
    id="torch-outside-environment",
    place=(Layer.WHEEL, 50),
    title="the imported torch is not the environment's",
    means="PYTHONPATH or the user's site-packages stand before it.",
    proven_by="The folder of the torch that would be imported",
    way_out="Leave that folder out",
    source="Python documentation, site",
    explains=(
        *BROKEN_TORCH,
        *COMPANIONS,
        *("torch-half-installed", "two-torch-installs", "torch-cpu-build"),
        *("rocm-wheel-on-nvidia", "xpu-wheel-on-nvidia", "arch-too-new-for-wheel"),
        *("arch-too-old-for-wheel", "driver-too-old"),
    ),
)


HALVES_DO_NOT_FIT = ("torchvision-mismatch", "torchaudio-mismatch", "extension-abi-mismatch")
"""What fails where a package of the environment meets a torch from elsewhere."""


def _seen_in_a_traceback(context: RuleContext, messages: tuple[Event, ...]) -> Finding:
    """One traceback with the environment's package and the user's own torch."""
    return TORCH_OUTSIDE_ENVIRONMENT.found(
        "The torch that Python imports is not the environment's own: the traceback shows it in "
        "the user's site-packages",
        detail="What lies in the user's site-packages stands beside, or before, every environment.",
        evidence=event_evidence(messages),
        fix=Fix(
            text="Leave that folder out of the path: set PYTHONNOUSERSITE=1; then see whether the "
            "environment has a torch of its own",
            commands=(paste.setting(context, "PYTHONNOUSERSITE", "1"),),
        ),
    )


def torch_outside_target(context: RuleContext) -> Iterator[Finding]:
    """The torch that would be imported lies outside the environment (user site, PYTHONPATH).

    Where it is not right for this machine, no other one in the environment would be seen.
    """
    messages = events(context, "torch-outside-environment")
    if messages and events(context, *HALVES_DO_NOT_FIT):
        yield _seen_in_a_traceback(context, messages)
        return
    place, prefix = context.snapshot.torch.location, context.snapshot.python.prefix
    site = context.snapshot.python.site_packages
    if not place or not prefix or place.startswith(prefix) or (site and place.startswith(site)):
        return
    by = (
        "PYTHONPATH"
        if context.snapshot.environment.get("PYTHONPATH")
        else "the user's site-packages"
    )
    in_the_way = context.decision is not None and context.decision.how != "kept"
    make = (
        TORCH_OUTSIDE_ENVIRONMENT.found
        if in_the_way and not paste.target_refuses(context)
        else TORCH_OUTSIDE_ENVIRONMENT.as_warning
    )
    yield make(
        f"The torch that Python imports is not the environment's own: it comes from {place}",
        detail=f"{by} stands before {site or prefix}.",
        evidence=(value_evidence(context, "torch.location", place),),
        fix=Fix(
            text="Leave that folder out of the path"
            + (": unset PYTHONPATH" if by == "PYTHONPATH" else ": set PYTHONNOUSERSITE=1"),
            commands=paste.unset(context, "PYTHONPATH")
            if by == "PYTHONPATH"
            else (paste.setting(context, "PYTHONNOUSERSITE", "1"),),
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
