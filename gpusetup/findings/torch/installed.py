"""Whether torch is installed: there, whole, one, and in the environment that is asked about."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.evidence.context import (
    RuleContext,
    event_evidence,
    events,
    packages,
    readings,
    value_evidence,
)
from gpusetup.evidence.plausible import is_a_path
from gpusetup.findings.layers import BROKEN_TORCH, COMPANIONS, NO_TORCH, Layer
from gpusetup.findings.message_rules import from_messages
from gpusetup.findings.record import Alike, Cause, Message
from gpusetup.findings.sources import WHEELS
from gpusetup.findings.torch.build import named
from gpusetup.fixes import paste
from gpusetup.model.finding import Finding, Fix, Severity
from gpusetup.model.frozen import replace
from gpusetup.model.shell import Line
from gpusetup.model.versions import parsed

CONDA = ("conda", "mamba", "micromamba", "pixi")


def _recover(context: RuleContext, text: str) -> Fix:
    words = ("gpusetup", "install", "--python", paste.python(context), "--recover")
    return Fix(text=text, commands=(paste.command(context, *words),))


INSTALL_UNFINISHED = Cause(
    id="install-unfinished",
    place=(Layer.UNFINISHED, 10),
    title="gpusetup was interrupted while it installed",
    means="A kill, a power cut: the environment is between two states.",
    proven_by="Its journal is still there",
    way_out="gpusetup install --recover",
    source="gpusetup",
    explains=(*BROKEN_TORCH, *COMPANIONS, *NO_TORCH, "torch-cpu-build"),
    message=Message(
        title="An installation into {prefix} was interrupted",
        plain="An installation into this environment was interrupted",
        detail="What was there before is kept until it is ended.",
        text="End it: the environment becomes exactly the former or exactly the new one",
        way=_recover,
    ),
)


def installed_messages(context: RuleContext) -> Iterator[Finding]:
    """Nothing else that is found in such an environment says anything about it."""
    yield from from_messages(context, (INSTALL_UNFINISHED,))


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
    stage="import",
)


def torch_missing(context: RuleContext) -> Iterator[Finding]:
    """No torch in the target interpreter."""
    python, torch = context.snapshot.python, context.snapshot.torch
    built = torch.version and events(context, "build-isolation-no-torch")
    messages = () if built else events(context, "torch-missing")
    if torch.installed is False or messages:
        where = python.site_packages or python.prefix or "its site-packages"
        yield TORCH_MISSING.found(
            f"torch is not installed in {python.executable or python.prefix or 'this Python'}",
            evidence=event_evidence(messages)
            or (value_evidence(context, "torch.installed", f"no torch in {where}"),),
            fix=_install(context),
        )


def _install(context: RuleContext) -> Fix:
    """The way, and the Python on PATH that has a torch, where there is one."""
    if context.snapshot.os.jetson:
        from gpusetup.findings.jetson.jetpack import jetson_fix

        return jetson_fix(context)
    way = paste.install_torch(context)
    for other in readings(context, "python.others"):
        if other.value and is_a_path(other.source):
            ask = paste.command(context, "gpusetup", "doctor", "--python", other.source)
            looks = paste.look(f"see whether the {other.value} of another Python works", ask)
            return replace(way, looks=(*way.looks, *looks))
    return way


TORCH_HALF_INSTALLED = Cause(
    id="torch-half-installed",
    place=(Layer.WHEEL, 80),
    title="torch's files are not all there",
    means="An install was cut, or another wrote over it.",
    proven_by="Libraries of its RECORD are missing",
    way_out="Install it whole",
    source="the RECORD of the distribution",
    explains=(*BROKEN_TORCH, *COMPANIONS),
    stage="import",
)


def torch_half_installed(context: RuleContext) -> Iterator[Finding]:
    """torch's files are not all there: an install was cut."""
    cut = any(p.intact is False for p in packages(context, "torch"))
    messages = events(context, "torch-half-installed")
    if cut or messages:
        missing = value_evidence(context, "torch.version", "files of torch are missing")
        yield TORCH_HALF_INSTALLED.found(
            f"{named(context)} is installed only in part",
            evidence=event_evidence(messages) or (missing,),
            # First: an installer would take what is left for an installed torch.
            fix=_anew(context, "what is left of it", _no_torch(context)),
        )


def _no_torch(context: RuleContext) -> Line:
    return paste.pip(context, "uninstall", "-y", "torch")


def _anew(context: RuleContext, what: str, *remove: Line) -> Fix:
    """One torch, after all that is there is taken away."""
    way, build = paste.install_torch(context), paste.chosen(context)
    install = paste.install_commands(context, removed=True) if build else way.commands
    return replace(
        way,
        text=f"Remove {what}. {way.text}",
        commands=(*remove, *install),
        alternatives=paste.by_hand(context, *remove),
    )


TWO_TORCH_INSTALLS = Cause(
    id="two-torch-installs",
    before_torch=(Severity.ERROR,),
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
    if len(versions) < 2 or all(_of(context)):
        return
    one_folder = len({p.location for p in both}) == 1
    make = TWO_TORCH_INSTALLS.found if one_folder else TWO_TORCH_INSTALLS.as_warning
    places = (f"torch {p.version} by {p.installer or '?'} in {p.location or '?'}" for p in both)
    yield make(
        f"torch is installed {len(versions)} times: {', '.join(versions)}",
        detail="Their files lie over each other, or the first on the path is used.",
        evidence=tuple(value_evidence(context, "packages", place) for place in places),
        fix=_anew(context, "all of them", *(_no_torch(context) for _ in versions)),
    )


def _of(context: RuleContext) -> tuple[str | None, str | None]:
    """The version that conda installed, and the one of pip or uv."""
    found = (*packages(context, "pytorch"), *packages(context, "torch"))
    conda = (p.version for p in found if p.installer in CONDA)
    pip = (p.version for p in found if p.installer not in CONDA and p.name == "torch")
    return next(conda, None), next(pip, None)


MIXED_CONDA_PIP = Cause(
    id="mixed-conda-pip",
    before_torch=(Severity.ERROR,),
    place=(Layer.WHEEL, 70),
    title="conda and pip installed torch over each other",
    means="Neither knows of the other's files.",
    proven_by="A conda package pytorch and a distribution torch of another version",
    way_out="Remove both, install one",
    source="conda documentation, using pip",
    explains=(*BROKEN_TORCH, *COMPANIONS, "torch-cpu-build"),
    alike=(
        Alike(causes=("ld-library-path-conflict", "torch-half-installed"), asks="conda list torch"),
    ),
)


def mixed_conda_pip(context: RuleContext) -> Iterator[Finding]:
    """conda and pip installed torch over each other, in two versions."""
    conda, pip = _of(context)
    messages = events(context, "mixed-conda-pip")
    if messages or (conda and pip and parsed(conda).release != parsed(pip).release):
        both = f"conda has torch {conda or '?'}, pip {pip or '?'}"
        yield MIXED_CONDA_PIP.found(
            f"Files of two torch installs lie over each other: {both}",
            detail="Which one is loaded is chance.",
            evidence=event_evidence(messages) or (value_evidence(context, "packages", both),),
            fix=_anew(context, "both", *_remove_both(context, conda)),
        )


def _remove_both(context: RuleContext, conda: str | None) -> Iterator[Line]:
    """By conda's names and pip's; what one of them leaves hides the other's."""
    family = ("torch", "torchvision", "torchaudio")
    prefix = context.snapshot.conda.prefix or context.snapshot.python.prefix
    there = {p.name for p in context.snapshot.packages or () if p.installer in CONDA}
    names = tuple(name for name in family[1:] if name in there)
    if conda or context.snapshot.conda.prefix:
        where = ("--prefix", prefix) if prefix else ()
        words = ("conda", "remove", "--yes", *where, "--force", "pytorch", *names)
        yield paste.command(context, *words)
    words = ("-m", "pip", "uninstall", "-y", *family)
    yield paste.command(context, paste.python(context), *words)


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
    if problem := context.snapshot.torch.import_error:
        yield TORCH_IMPORT_FAILED.found(
            f"{named(context)} does not import",
            evidence=(value_evidence(context, "torch.import_error", problem),),
            fix=paste.install_torch(context, "Install it anew. "),
        )


TORCH_OUTSIDE_ENVIRONMENT = Cause(
    id="torch-outside-environment",
    before_torch=(Severity.ERROR, Severity.WARNING),
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


def torch_outside_target(context: RuleContext) -> Iterator[Finding]:
    """The torch that would be imported lies outside the environment (user site, PYTHONPATH).

    Where it is not right for this machine, no other one in the environment would be seen.
    """
    python, place = context.snapshot.python, context.snapshot.torch.location
    messages = events(context, "torch-outside-environment")
    seen = messages if events(context, *HALVES_DO_NOT_FIT) else ()
    own = tuple(filter(None, (python.prefix, python.site_packages)))
    if not seen and (not place or not python.prefix or place.startswith(own)):
        return
    in_the_way = context.decision is not None and context.decision.how != "kept"
    broken = seen or (in_the_way and not paste.target_refuses(context))
    cause = TORCH_OUTSIDE_ENVIRONMENT
    by_path = not seen and context.snapshot.environment.get("PYTHONPATH")
    yield (cause.found if broken else cause.as_warning)(
        "The torch that Python imports is not the environment's own: it comes from "
        f"{'the user' if seen else place}",
        detail="PYTHONPATH and the user's site-packages stand before every environment.",
        evidence=event_evidence(seen) or (value_evidence(context, "torch.location", place or ""),),
        fix=Fix(
            text="Leave that folder out of the path; then see whether the environment has a torch",
            commands=paste.unset(context, "PYTHONPATH")
            if by_path
            else (paste.setting(context, "PYTHONNOUSERSITE", "1"),),
        ),
    )


RULES = (
    installed_messages,
    torch_missing,
    torch_half_installed,
    two_torch_installs,
    mixed_conda_pip,
    torch_import_failed,
    torch_outside_target,
)
