"""The Python environment: its pip, its owner, what stands before it."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.evidence.context import RuleContext, events, is_report
from gpusetup.findings import alike
from gpusetup.findings.layers import BROKEN_TORCH, Layer
from gpusetup.findings.message_rules import from_messages, seen
from gpusetup.findings.record import Alike, Cause, Message
from gpusetup.fixes import paste
from gpusetup.model.finding import Finding, Fix, Severity


def _add_pip(context: RuleContext, text: str) -> Fix:
    words = ("uv", "pip", "install", "--python", paste.python(context), "pip")
    return Fix(text=text, commands=(paste.command(context, *words),))


def _elsewhere(context: RuleContext, text: str) -> Fix:
    return Fix(text=text, commands=(paste.into_new_environment(context),))


PIP_MISSING = Cause(
    id="pip-missing",
    place=(Layer.INSTALL, 80),
    title="the environment has no pip",
    means="`pip install` would go elsewhere.",
    proven_by="No pip in the target",
    way_out="uv, or ensurepip",
    source="Python documentation, venv",
    explains=("torch-missing",),
    message=Message(
        title="The target environment has no pip: `pip install` would go elsewhere",
        text="Use uv (as gpusetup does), or add pip",
        way=_add_pip,
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
        way=_elsewhere,
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
        way=_elsewhere,
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
    message=Message(
        title="No Python environment was named: torch was not looked for",
        text="Activate an environment, or name one with `--python PATH`",
    ),
)
STALE_ENVIRONMENT = Cause(
    id="stale-environment",
    severity=Severity.WARNING,
    title="an activated environment that is gone",
    means="VIRTUAL_ENV names a folder that is none.",
    proven_by="The variable",
    way_out="Activate anew",
    source="Python documentation, venv",
    message=Message(
        title="{variable} names {path}, which is no environment",
        text="Another interpreter was judged instead: activate anew",
    ),
)


def environment(context: RuleContext) -> Iterator[Finding]:
    python = context.snapshot.python
    yield from from_messages(context, (PIP_MISSING, STALE_ENVIRONMENT, MODULE_SHADOWED))
    if python.has_pip is False:
        yield seen(context, PIP_MISSING, "python.has_pip", "no pip", severity=Severity.NOTE)
    if python.externally_managed:
        text, weak = "EXTERNALLY-MANAGED", Severity.WARNING
        yield seen(context, EXTERNALLY_MANAGED, "python.externally_managed", text, severity=weak)
    elif python.site_writable is False:
        path, weak = python.site_packages or python.prefix or "it", Severity.WARNING
        about = "python.site_writable"
        yield seen(context, SITE_NOT_WRITABLE, about, "not writable", severity=weak, path=path)


def tool_environment(context: RuleContext) -> Iterator[Finding]:
    """Nothing to judge: no interpreter but the one that gpusetup itself lives in."""
    python = context.snapshot.python
    problems = [r for r in context.snapshot.readings if r.subject == "python" and r.problem]
    if python.version is None and python.executable is None and problems:
        yield seen(context, NO_TARGET, "python", problems[0].problem or "")


def _does_no_harm(context: RuleContext) -> bool:
    """No order: a text quotes the file because an import failed; live it may do no harm."""
    said = events(context, MODULE_SHADOWED.id)
    ours = any(e.values.get("module", "").startswith("torch") for e in said)
    return not (ours or context.snapshot.torch.import_error or is_report(context))


MODULE_SHADOWED = Cause(
    id="module-shadowed",
    place=(Layer.PROCESS, 10),
    title="a local file hides a module that torch imports",
    means="Python looks in the working folder first.",
    proven_by="A file or folder of such a name there",
    way_out="Rename it",
    source="Python documentation, sys.path",
    explains=(*BROKEN_TORCH, "torch-missing", "torch-half-installed"),
    events=("backport-in-the-way", "module-shadowed"),
    message=Message(
        title="{path} hides the module {module} from programs started in this folder",
        plain="A local file hides a module from programs started in this folder",
        text="Rename it (and delete its __pycache__), or start Python in another folder",
        cases=(
            Message(
                having={"package": ""},
                title="The package {package} hides Python's own module {module}",
                detail="It brought the module to Pythons that had none, and breaks those that do.",
                text="Remove it",
                commands=("pip uninstall -y {package}",),
            ),
            Message(where=(_does_no_harm,), severity=Severity.WARNING),
        ),
    ),
    stage="import",
    alike=(
        Alike(
            causes=("torch-half-installed",),
            asks='python -c "import torch; print(torch.__file__, torch.__path__)"',
            unless=alike.names_the_file,
        ),
    ),
)


RULES = (environment, tool_environment)
