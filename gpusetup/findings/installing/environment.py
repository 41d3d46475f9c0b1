"""The Python environment: its pip, its owner, what stands before it."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.evidence.context import (
    RuleContext,
    event_evidence,
    events,
    is_report,
    on,
    value_evidence,
)
from gpusetup.findings.layers import BROKEN_TORCH, Layer
from gpusetup.findings.record import Cause, Message
from gpusetup.fixes import paste
from gpusetup.model.finding import Evidence, Finding, Fix, Severity

PIP_MISSING = Cause(
    id="pip-missing",
    place=(Layer.INSTALL, 80),
    title="the environment has no pip",
    means="`pip install` would go elsewhere.",
    proven_by="No pip in the target",
    way_out="uv, or ensurepip",
    source="Python documentation, venv",
    explains=("torch-missing",),
)


def pip_missing(context: RuleContext) -> Iterator[Finding]:
    """The environment has no pip: `pip install` would go elsewhere, or fail."""
    messages = events(context, "pip-missing")
    if context.snapshot.python.has_pip is False or messages:
        make = PIP_MISSING.found if messages else PIP_MISSING.as_note
        yield make(
            "The target environment has no pip: `pip install` would go elsewhere",
            evidence=event_evidence(messages)
            or (
                value_evidence(
                    context, "python.has_pip", f"no pip in {context.snapshot.python.prefix or 'it'}"
                ),
            ),
            fix=Fix(
                text="Use uv (as gpusetup does), or add pip",
                commands=(
                    paste.command(
                        context, "uv", "pip", "install", "--python", paste.python(context), "pip"
                    ),
                ),
            ),
        )


CONDA_MISSING = Cause(
    id="conda-missing",
    severity=Severity.WARNING,
    place=(Layer.LOSSES, 90),
    title="there is no conda",
    means="A guide's line asks for conda, which is not installed or not on PATH.",
    proven_by="The shell does not find conda",
    not_when="`conda activate` asks for `conda init`",
    way_out="uv, which needs no conda, or Miniforge",
    source="conda-forge, Miniforge's README",
    message=Message(
        title="conda is not installed, or not on PATH",
        text="You need no conda: gpusetup makes an environment with uv. Do you want conda? Install "
        "Miniforge (https://conda-forge.org/download/), then open its Miniforge Prompt (Windows) "
        "or a new shell",
        commands=("gpusetup install --venv .venv",),
    ),
)
EXTERNALLY_MANAGED = Cause(
    id="externally-managed",
    place=(Layer.INSTALL, 90),
    title="the system's own Python",
    means="pip is kept from it.",
    proven_by="EXTERNALLY-MANAGED",
    way_out="A virtual environment",
    source="PEP 668",
    explains=("torch-missing",),
    message=Message(
        title="This Python belongs to the operating system: pip may not install there",
        text="Make an environment and install there",
        commands=("gpusetup install --venv .venv",),
    ),
)


def externally_managed(context: RuleContext) -> Iterator[Finding]:
    """The distribution's own Python, which does not let pip in (PEP 668)."""
    if context.snapshot.python.externally_managed:
        yield EXTERNALLY_MANAGED.as_warning(
            f"{paste.python(context)} belongs to the operating system: pip may not install there",
            evidence=(value_evidence(context, "python.externally_managed", "EXTERNALLY-MANAGED"),),
            fix=Fix(
                text="Make an environment and install there",
                commands=(paste.into_new_environment(context),),
            ),
        )


NO_TARGET = Cause(
    id="no-target",
    severity=Severity.NOTE,
    title="no Python environment was named",
    means="gpusetup's own tool environment is not judged.",
    proven_by="No target",
    way_out="--python PATH",
    source="gpusetup",
)


def tool_environment(context: RuleContext) -> Iterator[Finding]:
    """Nothing to judge: no interpreter but the one that gpusetup itself lives in."""
    python = context.snapshot.python
    problems = [r for r in context.snapshot.readings if r.subject == "python" and r.problem]
    if python.version is None and python.executable is None and problems:
        yield NO_TARGET.found(
            "No Python environment was named: torch was not looked for",
            evidence=tuple(Evidence(source=r.source, text=r.problem or "") for r in problems[:1]),
            fix=Fix(text="Activate an environment, or name one with `--python PATH`"),
        )


STALE_ENVIRONMENT = Cause(
    id="stale-environment",
    severity=Severity.WARNING,
    title="an activated environment that is gone",
    means="VIRTUAL_ENV names a folder that is none.",
    proven_by="The variable",
    way_out="Activate anew",
    source="Python documentation, venv",
)


def stale_environment(context: RuleContext) -> Iterator[Finding]:
    messages = events(context, "stale-environment")
    if messages:
        values = messages[0].values
        yield STALE_ENVIRONMENT.found(
            f"{values.get('variable')} names {values.get('path')}, which is no environment",
            evidence=event_evidence(messages),
            fix=Fix(
                text=f"{values.get('instead') or 'Another interpreter'} was judged instead: "
                "activate anew"
            ),
        )


SITE_NOT_WRITABLE = Cause(
    id="site-not-writable",
    place=(Layer.INSTALL, 100),
    title="this user may not install there",
    means="Another user's environment.",
    proven_by="No write permission",
    way_out="An environment of one's own",
    source="the file system",
    explains=("torch-missing",),
    message=Message(
        title="The installer may not write to {path}",
        plain="The installer may not write where it installs",
        text="Make an environment of your own and install there; end programs that use the files",
        commands=("gpusetup install --venv .venv",),
    ),
)


def site_not_writable(context: RuleContext) -> Iterator[Finding]:
    python = context.snapshot.python
    if python.site_writable is False and not python.externally_managed:
        yield SITE_NOT_WRITABLE.as_warning(
            f"This user may not write to {python.site_packages or python.prefix}",
            evidence=(value_evidence(context, "python.site_writable", "not writable"),),
            fix=Fix(
                text="Make an environment of your own and install there",
                commands=(paste.into_new_environment(context),),
            ),
        )


OTHER_PYTHON_FIRST = Cause(
    id="other-python-first",
    severity=Severity.NOTE,
    title="another Python comes first on PATH",
    means="`python` in the shell is not what was judged.",
    proven_by="PATH's order",
    way_out="Activate the environment",
    source="PATH",
)


def other_python_first(context: RuleContext) -> Iterator[Finding]:
    """The `python` that a shell starts is not the judged one."""
    python = context.snapshot.python
    if not python.executable or not python.others or not _stands_behind(context):
        return
    yield OTHER_PYTHON_FIRST.found(
        f"`python` in this shell is {python.others[0]}, not {python.executable}",
        evidence=(
            value_evidence(context, "python.others", "on PATH: " + ", ".join(python.others[:3])),
        ),
        fix=Fix(text=f"Start programs with `{python.executable}`, or activate its environment"),
    )


def _stands_behind(context: RuleContext) -> bool:
    """Whether the target comes after the first other interpreter on PATH, or not at all."""
    python = context.snapshot.python
    path = context.snapshot.environment.get("PATH")
    if path is None:
        return False
    folders = path.split(";" if on(context, "windows") else ":")
    own, first = _folder(python.executable or ""), _folder(python.others[0])
    if first not in folders:
        return False
    return own not in folders or folders.index(own) > folders.index(first)


def _folder(path: str) -> str:
    """
    >>> _folder("/usr/bin/python3")
    '/usr/bin'
    """
    return path[: max(path.rfind("/"), path.rfind("\\"), 0)]


MODULE_SHADOWED = Cause(
    id="module-shadowed",
    place=(Layer.PROCESS, 10),
    title="a local file hides a module that torch imports",
    means="Python looks in the working folder first.",
    proven_by="A file or folder of such a name there",
    way_out="Rename it",
    source="Python documentation, sys.path",
    explains=(*BROKEN_TORCH, "torch-missing", "torch-half-installed"),
    events=("backport-in-the-way",),
    message=Message(
        title="The package {package} hides Python's own module {module}",
        detail="It brought the module to Pythons that had none, and breaks those that do.",
        text="Remove it",
        commands=("pip uninstall -y {package}",),
    ),
)


def module_shadowed(context: RuleContext) -> Iterator[Finding]:
    """A file in the working folder hides a module that torch imports."""
    messages = events(context, "module-shadowed")
    if messages:
        module, path = (
            messages[0].values.get("module", "a module"),
            messages[0].values.get("path", ""),
        )
        # No order: a text quotes the file because an import failed; live it may do no harm.
        broken = (
            module in ("torch", "torchvision", "torchaudio")
            or context.snapshot.torch.import_error
            or is_report(context)
        )
        make = MODULE_SHADOWED.found if broken else MODULE_SHADOWED.as_warning
        yield make(
            f"{path or 'A local file'} hides the module {module} from programs started in "
            "this folder",
            evidence=event_evidence(messages),
            fix=Fix(
                text="Rename it (and delete its __pycache__), or start Python in another folder"
            ),
        )


RULES = (
    pip_missing,
    externally_managed,
    tool_environment,
    stale_environment,
    site_not_writable,
    other_python_first,
    module_shadowed,
)
