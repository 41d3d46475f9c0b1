"""Whether torch is installed: there, whole, one, and in the environment that is asked about."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.evidence.context import RuleContext, events, packages, readings
from gpusetup.evidence.plausible import is_a_path
from gpusetup.findings.layers import BROKEN_TORCH, COMPANIONS, NO_TORCH, Layer
from gpusetup.findings.message_rules import finding, from_messages, seen, shown
from gpusetup.findings.record import Alike, Cause, Message
from gpusetup.findings.sources import WHEELS
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
    message=Message(
        title="torch is not installed in {python}",
        way=lambda context, _: _install(context),
    ),
)


def torch_missing(context: RuleContext) -> Iterator[Finding]:
    """No torch in the target interpreter."""
    python, torch = context.snapshot.python, context.snapshot.torch
    built = torch.version and events(context, "build-isolation-no-torch")
    said = () if built else events(context, "torch-missing")
    if torch.installed is False:
        place = python.site_packages or paste.python(context)
        said += (shown(context, "torch.installed", f"no torch in {place}"),)
    if said:
        named = python.executable or python.prefix or "this Python"
        yield finding(context, TORCH_MISSING, said, python=named)


def _install(context: RuleContext) -> Fix:
    """The way, and the Python on PATH that has a torch, where there is one."""
    if context.snapshot.os.jetson:
        from gpusetup.findings.jetson.jetpack import jetson_fix

        return jetson_fix(context)
    way = paste.install_torch(context)
    others = [
        one for one in readings(context, "python.others") if one.value and is_a_path(one.source)
    ]
    asks = [
        paste.command(context, "gpusetup", "doctor", "--python", one.source) for one in others[:1]
    ]
    return replace(
        way, looks=(*way.looks, *paste.look("see whether another Python's works", *asks))
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
    stage="import",
    message=Message(title="torch is installed only in part", way=lambda context, _: _anew(context)),
)


def torch_half_installed(context: RuleContext) -> Iterator[Finding]:
    yield from from_messages(context, (TORCH_HALF_INSTALLED,))
    if any(p.intact is False for p in packages(context, "torch")):
        yield seen(context, TORCH_HALF_INSTALLED, "torch.version", "files of torch are missing")


def _anew(context: RuleContext) -> Fix:
    """One torch, after all that is there is taken away: an installer would take what is left for
    an installed torch, and what conda or pip leaves hides the other's."""
    way, build, conda = paste.install_torch(context), paste.chosen(context), _of(context)[0]
    machine, beside = context.snapshot, ("torchvision", "torchaudio")
    prefix = machine.conda.prefix or machine.python.prefix
    where = ("--prefix", prefix) if prefix else ()
    theirs = {p.name for p in machine.packages or () if p.installer in CONDA}
    named = ("pytorch", *sorted(theirs & {*beside}))
    by_conda = paste.command(context, "conda", "remove", "--yes", *where, "--force", *named)
    both = conda or events(context, "mixed-conda-pip")
    by_pip = paste.pip(context, "uninstall", "-y", "torch", *(beside if both else ()))
    times = max(1, len({p.version for p in packages(context, "torch")}))
    remove: tuple[Line, ...] = (*((by_conda,) if conda else ()), *((by_pip,) * times))
    install = paste.install_commands(context, removed=True) if build else way.commands
    return replace(
        way,
        text=f"Remove what is left of it. {way.text}",
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
    message=Message(
        title="torch is installed {times} times: {versions}",
        detail="Their files lie over each other, or the first on the path is used.",
        way=lambda context, _: _anew(context),
    ),
)


def two_torch_installs(context: RuleContext) -> Iterator[Finding]:
    """Two torch distributions lie over each other, or one hides another."""
    both = packages(context, "torch")
    versions = tuple(dict.fromkeys(p.version for p in both))
    if len(versions) > 1 and not all(_of(context)):
        one_folder = len({p.location for p in both}) == 1
        said = [shown(context, "packages", f"torch {p.version} in {p.location}") for p in both]
        yield finding(
            context,
            TWO_TORCH_INSTALLS,
            said,
            severity=None if one_folder else Severity.WARNING,
            times=str(len(versions)),
            versions=", ".join(versions),
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
    message=Message(
        title="Files of two torch installs lie over each other, conda's and pip's",
        detail="Which one is loaded is chance.",
        way=lambda context, _: _anew(context),
    ),
)


def mixed_conda_pip(context: RuleContext) -> Iterator[Finding]:
    """conda and pip installed torch over each other, in two versions."""
    yield from from_messages(context, (MIXED_CONDA_PIP,))
    conda, pip = _of(context)
    if conda and pip and parsed(conda).release != parsed(pip).release:
        both = f"conda has torch {conda}, pip {pip}"
        yield seen(context, MIXED_CONDA_PIP, "packages", both)


TORCH_IMPORT_FAILED = Cause(
    id="torch-import-failed",
    symptom=True,
    place=(Layer.LIBRARIES, 80),
    title="torch does not import",
    means="It was asked to.",
    proven_by="The error of the import",
    way_out="Install it anew",
    source="torch's own message",
    message=Message(text="Install it anew. ", way=paste.install_torch),
)


def torch_import_failed(context: RuleContext) -> Iterator[Finding]:
    """torch was asked to import, and did not."""
    if problem := context.snapshot.torch.import_error:
        yield seen(context, TORCH_IMPORT_FAILED, "torch.import_error", problem)


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
    message=Message(
        title="The torch that Python imports is not the environment's own: it comes from {place}",
        plain="The torch that Python imports is not the environment's own",
        detail="PYTHONPATH and the user's site-packages stand before every environment.",
        text="Leave that folder out of the path; then see whether the environment has a torch",
        commands=("export PYTHONNOUSERSITE=1",),
        cases=(
            Message(
                where=(lambda context: bool(context.snapshot.environment.get("PYTHONPATH")),),
                having={"place": "."},
                commands=("unset PYTHONPATH",),
            ),
        ),
    ),
)


HALVES_DO_NOT_FIT = ("torchvision-mismatch", "torchaudio-mismatch", "extension-abi-mismatch")
"""What fails where a package of the environment meets a torch from elsewhere."""


def torch_outside_target(context: RuleContext) -> Iterator[Finding]:
    """The torch that would be imported lies outside the environment (user site, PYTHONPATH).

    Where it is not right for this machine, no other one in the environment would be seen.
    """
    python, place = context.snapshot.python, context.snapshot.torch.location or ""
    own = tuple(filter(None, (python.prefix, python.site_packages)))
    if events(context, *HALVES_DO_NOT_FIT):
        yield from from_messages(context, (TORCH_OUTSIDE_ENVIRONMENT,))
    elif place and python.prefix and not place.startswith(own):
        in_the_way = context.decision is not None and context.decision.how != "kept"
        broken = in_the_way and not paste.target_refuses(context)
        only = None if broken else Severity.WARNING
        cause = TORCH_OUTSIDE_ENVIRONMENT
        yield seen(context, cause, "torch.location", place, severity=only, place=place)


RULES = (
    installed_messages,
    torch_missing,
    torch_half_installed,
    two_torch_installs,
    mixed_conda_pip,
    torch_import_failed,
    torch_outside_target,
)
