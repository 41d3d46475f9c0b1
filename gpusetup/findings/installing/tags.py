"""No such file, as uv, poetry, an index and conda say it themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpusetup.evidence.context import RuleContext, event_evidence, events, value_evidence
from gpusetup.findings.installing.other_python import no_python_for, other_python, torch_of
from gpusetup.findings.installing.python import NO_WHEEL_FOR_PLATFORM, PYTHON_NO_WHEEL
from gpusetup.findings.installing.wheels import PACKAGE_NOT_FOUND, WRONG_INDEX, requirement
from gpusetup.fixes import paste
from gpusetup.model.finding import Finding, Fix
from gpusetup.model.machine import Event


def without_wheel(context: RuleContext) -> Iterator[Finding]:
    """An installer that says itself which of Python and platform has no wheel."""
    python, system = events(context, "python-no-wheel"), events(context, "no-wheel-for-platform")
    others = tuple(event for event in (*system, *python) if _is_another(event))
    python, system = (
        tuple(e for e in messages if e not in others) for messages in (python, system)
    )
    if others and not (python or system):
        yield _no_other(others)
    if python or (system and _is_of_python(context, system[0])):
        yield _no_python(context, (*python, *system))
    elif system:
        yield _no_system(context, system)


OURS = ("torch", "triton", "nvidia-", "pytorch")
"""How the names begin of what torch's index holds in its own right."""


def _is_another(event: Event) -> bool:
    """Whether a package that only came along has no file: torch's index holds some of those too."""
    if event.values.get("said"):
        return False
    name = requirement(event.values.get("requirement", ""))[0]
    return bool(name) and not name.startswith(OURS)


def _no_other(messages: tuple[Event, ...]) -> Finding:
    return PACKAGE_NOT_FOUND.found(
        f"The installer finds no file of {messages[0].values['requirement']} for this Python and "
        "system where it looked",
        detail="uv takes a package from the first index that has its name; torch's index has some "
        "files of other packages, for few systems.",
        evidence=event_evidence(messages),
        fix=Fix(
            text="Give torch's index for torch alone: in pyproject.toml `explicit = true` under "
            '[[tool.uv.index]], and under [tool.uv.sources] torch = { index = "its name" } (the '
            "same for torchvision and torchaudio); with `uv pip`, --torch-backend does it",
        ),
    )


def _is_of_python(context: RuleContext, event: Event) -> bool:
    """Whether the wheels that are there are for other Pythons, where the message leaves it open."""
    name, version, label = requirement(event.values.get("requirement", ""))
    left_open = not event.values.get("platform")
    return bool(
        left_open and version and no_python_for(context, torch_of(context, name, version), label)
    )


def _no_python(context: RuleContext, messages: tuple[Event, ...]) -> Finding:
    """Releases of one pin may lack the Python, others the system: another Python helps first."""
    asked = messages[0].values.get("requirement") or "torch"
    here = messages[0].values.get("python")
    name, version, label = requirement(asked)
    what = f"The {name} that was asked for" if asked == name else asked
    return PYTHON_NO_WHEEL.found(
        f"{what} has no wheel for this Python{f' ({here})' if here else ''}",
        evidence=event_evidence(messages),
        fix=other_python(context, torch_of(context, name, version), label),
    )


def _no_system(context: RuleContext, messages: tuple[Event, ...]) -> Finding:
    values = messages[0].values
    here, what = values.get("platform"), values.get("what") or "system"
    name = values.get("requirement")
    return NO_WHEEL_FOR_PLATFORM.found(
        f"{name or 'torch'} has no wheel for this {what}" + (f" ({here})" if here else ""),
        evidence=event_evidence(messages),
        fix=_built_elsewhere(name)
        if name and values.get("said")
        else paste.install_torch(context, "Ask for what exists. "),
    )


def _built_elsewhere(name: str) -> Fix:
    return Fix(
        text=f"Take a release of {name} that has a wheel for this system, torch and CUDA, use WSL, "
        f"or do without it where the program allows; else build it from source"
    )


def pinned_beyond_this_python(context: RuleContext) -> Iterator[Finding]:
    """A solver finds nothing for a pinned torch that has wheels, and none for this Python."""
    messages = events(context, "resolver-conflict")
    pin = context.snapshot.wanted.torch or ""
    if not messages or not pin.startswith("==") or events(context, "python-no-wheel"):
        return
    version = pin.removeprefix("==").partition("+")[0]
    if no_python_for(context, version, None):
        here = context.snapshot.python.version
        yield PYTHON_NO_WHEEL.found(
            f"torch {version} has no wheel for this Python ({here})",
            evidence=(
                *event_evidence(messages),
                value_evidence(context, "python.version", f"Python {here}"),
            ),
            fix=other_python(context, version),
        )


def wrong_index(context: RuleContext) -> Iterator[Finding]:
    """An index, or a local label, that is not there."""
    messages = events(context, "wrong-index")
    if messages:
        values = messages[0].values
        what = values.get("index") or values.get("requirement") or "the index"
        status = f" ({values['status']})" if values.get("status") else ""
        yield WRONG_INDEX.found(
            f"{what} does not exist{status}",
            evidence=event_evidence(messages),
            fix=paste.install_torch(context, "Ask for what exists. "),
        )


def conda_not_found(context: RuleContext) -> Iterator[Finding]:
    """conda has no such package in its channels: they end early on some systems."""
    messages = events(context, "conda-not-found")
    package = messages[0].values.get("package", "") if messages else ""
    if "=" in package and re.fullmatch(EXPORTED, package):
        yield _of_another_platform(package, messages)
    elif messages:
        os = context.snapshot.os
        elsewhere = os.family == "macos" or (os.machine or "x86_64") != "x86_64"
        cause = NO_WHEEL_FOR_PLATFORM if elsewhere else WRONG_INDEX
        yield cause.found(
            f"conda's channels have no {package or 'such package'} here",
            detail="The channel pytorch ended with torch 2.5; conda-forge goes on.",
            evidence=event_evidence(messages),
            fix=paste.install_torch(context, "Ask for what exists. "),
        )


EXPORTED = r"[\w.-]+={1,2}[\w.]+=\w*\d\w*(?:[._]\w+)*"
"""`pytorch=2.0.1=py3.10_cuda11.8_cudnn8.7.0_0`: a name, a version and one build of it."""


def _of_another_platform(package: str, messages: tuple[Event, ...]) -> Finding:
    """An environment written down with its builds, which are of one system and one time."""
    return PACKAGE_NOT_FOUND.found(
        f"conda's channels have no {package} here: this very build is of another system, or gone",
        evidence=event_evidence(messages),
        fix=Fix(
            text="Take the builds (what stands behind the second `=`) out of the environment file; "
            "where it was made, `conda env export --from-history` writes it without them",
        ),
    )


RULES = (without_wheel, pinned_beyond_this_python, wrong_index, conda_not_found)
