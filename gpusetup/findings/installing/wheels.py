"""No such wheel: why an installer found no file for torch.

The index may be wrong, or have no wheel for this system, or none for this Python. What was asked,
what was offered and what the catalog knows decide between them, or the installer says it itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpusetup.accelerators.makers import LABEL
from gpusetup.catalog.jetpack import board_of
from gpusetup.evidence.context import RuleContext, event_evidence, events
from gpusetup.findings import alike
from gpusetup.findings.installing.other_python import (
    FAMILY,
    catalog_rows,
    no_python_for,
    other_python,
    rows_here,
    torch_of,
)
from gpusetup.findings.installing.python import (
    NO_WHEEL_FOR_PLATFORM,
    PYTHON_NO_WHEEL,
    no_platform_way,
)
from gpusetup.findings.layers import UNINSTALLABLE, Layer
from gpusetup.findings.record import Alike, Cause
from gpusetup.findings.sources import PIP, WHEELS
from gpusetup.fixes import paste
from gpusetup.model.finding import Finding, Fix
from gpusetup.model.machine import Event
from gpusetup.model.versions import parsed
from gpusetup.readings.packages import normalised

WRONG_INDEX = Cause(
    id="wrong-index",
    place=(Layer.INSTALL, 20),
    title="the index, or the local label, does not exist where the installer looked",
    means="Local labels such as +cu128 are only in torch's own index, and not every CUDA has one.",
    proven_by="An index that no torch was ever in, a label asked of another index, 403 or 404, "
    "a release inside the range of those offered",
    not_when="python-no-wheel: the index has the release, for other Pythons",
    way_out="The index that the resolver names",
    source=WHEELS,
    explains=(*UNINSTALLABLE, "python-no-wheel"),
    alike=(
        Alike(causes=("python-no-wheel", "python-32bit"), asks=alike.BITS, settled_by=("python",)),
    ),
)
PACKAGE_NOT_FOUND = Cause(
    id="package-not-found",
    kind_of="wrong-index",
    place=(Layer.INSTALL, 140),
    title="the installer finds no file of another package",
    means="A wrong name or version, or torch's index given as the only one.",
    proven_by="No matching distribution for a name outside the torch family",
    way_out="Give torch's index for torch alone",
    source=PIP,
)

Asked = tuple[Cause, str, tuple[Event, ...]]
"""Why there is no file, what was asked for, and who says so."""


def no_file(context: RuleContext) -> Iterator[Finding]:
    """An installer found no file: of what, and why."""
    if context.snapshot.python.bits == 32:
        return
    for why in (_said, _pinned, _not_there, _conda, _not_matching, _wheel):
        for cause, asked, messages in why(context):
            yield cause.found(
                TITLES[cause.id].format(asked=asked or "torch"),
                evidence=event_evidence(messages),
                fix=_way(context, cause, asked, messages[0]),
            )


TITLES = {
    "wrong-index": "{asked} does not exist where the installer looked",
    "no-wheel-for-platform": "{asked} has no wheel for this system",
    "python-no-wheel": "The installer finds no wheel of {asked} for this Python",
    "package-not-found": "The installer finds no file of {asked} for this Python and system",
}
ITS_INDEX = (
    "Look at its name and its version (in an environment file take out the builds, what stands "
    "behind the second `=`), and give torch's index for torch alone, not as --index-url: in "
    "pyproject.toml `explicit = true` under [[tool.uv.index]] and a row of [tool.uv.sources] for "
    "torch, torchvision and torchaudio; with `uv pip`, --torch-backend does it"
)


def _way(context: RuleContext, cause: Cause, asked: str, event: Event) -> Fix:
    """Another index, or another Python: with the build that the resolver found."""
    if cause is PACKAGE_NOT_FOUND:
        return Fix(text=ITS_INDEX)
    if event.values.get("said") and asked:
        return Fix(
            text=f"Take a release of {asked} that has a wheel for this system, torch and CUDA, use "
            "WSL, or do without it where the program allows; else build it from source"
        )
    if board_of(context.snapshot) and paste.chosen(context) is None:
        from gpusetup.findings.jetson.jetpack import jetson_fix

        return jetson_fix(context)
    tags = re.search(r"-cp(\d)(\d+)t?-", asked)
    if cause is PYTHON_NO_WHEEL and tags:
        python = f"{tags[1]}.{tags[2]}"
        text = f"This file is for Python {python}, 64 bits: make an environment with that, or let "
        return paste.with_python(context, python, text + "the installer choose the file for yours")
    if cause is PYTHON_NO_WHEEL:
        name, version, label = requirement(asked)
        return other_python(context, torch_of(context, name, version), label)
    if cause is NO_WHEEL_FOR_PLATFORM and paste.chosen(context) is None:
        return Fix(text=no_platform_way(context))
    return paste.install_torch(context, "Ask for what exists. ")


def _not_matching(context: RuleContext) -> Iterator[Asked]:
    """pip or uv found no file for a requirement: of the torch family first."""
    messages = events(context, "no-matching-distribution")
    for event in messages:
        asked = event.values.get("requirement", "")
        if requirement(asked)[0] in FAMILY:
            yield _why_no_file(context, event, *requirement(asked)), asked, (event,)
            return
    for event in messages[:1]:
        yield PACKAGE_NOT_FOUND, event.values.get("requirement", "a package"), messages


def _said(context: RuleContext) -> Iterator[Asked]:
    """An installer that says itself which of Python and platform has no wheel."""
    python, system = events(context, "python-no-wheel"), events(context, "no-wheel-for-platform")
    others = tuple(event for event in (*system, *python) if _is_another(event))
    ours = tuple(event for event in (*python, *system) if event not in others)
    for event in ours[:1]:
        asked = event.values.get("requirement", "")
        # Releases of one pin may lack the Python, others the system: another Python helps first.
        of_python = event in python or (
            not event.values.get("platform") and _no_python_for(context, asked)
        )
        yield PYTHON_NO_WHEEL if of_python else NO_WHEEL_FOR_PLATFORM, asked, ours
    for event in others[:1] if not ours else ():
        yield PACKAGE_NOT_FOUND, event.values["requirement"], others


def _no_python_for(context: RuleContext, asked: str) -> bool:
    """Whether the wheels that are there are for other Pythons."""
    name, version, label = requirement(asked)
    return bool(version) and no_python_for(context, torch_of(context, name, version), label)


OURS = ("torch", "triton", "nvidia-", "pytorch")
"""How the names begin of what torch's index holds in its own right."""


def _is_another(event: Event) -> bool:
    """Whether a package that only came along has no file: torch's index holds some of those too."""
    name = requirement(event.values.get("requirement", ""))[0]
    return bool(name) and not event.values.get("said") and not name.startswith(OURS)


def _pinned(context: RuleContext) -> Iterator[Asked]:
    """A solver finds nothing for a pinned torch that has wheels, and none for this Python."""
    messages, pin = events(context, "resolver-conflict"), context.snapshot.wanted.torch or ""
    asked = f"torch{pin.partition('+')[0]}"
    if messages and pin.startswith("==") and _no_python_for(context, asked):
        yield PYTHON_NO_WHEEL, asked, messages


def _not_there(context: RuleContext) -> Iterator[Asked]:
    """An index, or a local label, that is not there."""
    if messages := events(context, "wrong-index"):
        values = messages[0].values
        yield WRONG_INDEX, values.get("index") or values.get("requirement") or "The index", messages


def _conda(context: RuleContext) -> Iterator[Asked]:
    """conda has no such package in its channels: they end early on some systems."""
    if messages := events(context, "conda-not-found"):
        os, package = context.snapshot.os, messages[0].values.get("package", "A package")
        elsewhere = os.family == "macos" or (os.machine or "x86_64") != "x86_64"
        cause = NO_WHEEL_FOR_PLATFORM if elsewhere else WRONG_INDEX
        one_build = re.fullmatch(EXPORTED, package)
        yield PACKAGE_NOT_FOUND if one_build else cause, package, messages


EXPORTED = r"[\w.-]+={1,2}[\w.]+=\w*\d\w*(?:[._]\w+)*"
"""`pytorch=2.0.1=py3.10_cuda11.8_cudnn8.7.0_0`: a name, a version and one build of it."""


def _wheel(context: RuleContext) -> Iterator[Asked]:
    """A wheel file whose tags are not this Python's or this system's."""
    for event in events(context, "wheel-not-supported")[:1]:
        wheel, os = event.values.get("wheel", ""), context.snapshot.os
        word = {"linux": "linux", "windows": "win", "macos": "macosx"}.get(os.family or "", "")
        others = {"x86_64": ("aarch64", "arm64"), "aarch64": ("x86_64", "amd64")}
        name = wheel.removesuffix(".whl")
        elsewhere = word not in name or name.endswith(others.get(os.machine or "", ("?",)))
        yield NO_WHEEL_FOR_PLATFORM if elsewhere else PYTHON_NO_WHEEL, wheel, (event,)


def requirement(text: str) -> tuple[str, str | None, str | None]:
    """Name, exact version and local label of a requirement.

    >>> requirement("torch==2.5.1+cu124"), requirement("Torchvision>=0.20")
    (('torch', '2.5.1', 'cu124'), ('torchvision', None, None))
    >>> requirement("torch (2.5.1+cu124)")
    ('torch', '2.5.1', 'cu124')
    """
    name = re.match(r"[A-Za-z0-9._-]*", text.strip())
    found = re.search(r"(?:==\s*| \()([0-9][^,;\s+)]*)(?:\+([A-Za-z0-9.]+))?", text)
    return (
        normalised(name.group() if name else ""),
        found.group(1) if found else None,
        found.group(2) if found else None,
    )


def _why_no_file(
    context: RuleContext, event: Event, name: str, version: str | None, label: str | None
) -> Cause:
    """Why no file was found: the first reason that what was asked and offered shows."""
    index = index_label(event.values.get("index", ""))
    unknown = {label, index} - {None, *context.catalog.backends}
    # Nightlies are deleted.
    if any((one or "").startswith("cu") for one in unknown) or ".dev" in (version or ""):
        return WRONG_INDEX
    torch, where = torch_of(context, name, version), label or index
    if catalog_rows(context, torch, where) and not rows_here(context, torch, where):
        return NO_WHEEL_FOR_PLATFORM
    listed = re.split(r"[,\s]+", event.values.get("versions", ""))
    offered = sorted(parsed(one.partition("+")[0]) for one in listed if one[:1].isdigit())
    os, wanted = context.snapshot.os, parsed(version or "0")
    on_intel = os.family == "macos" and os.machine != "aarch64"
    if on_intel and offered and wanted > offered[-1] == parsed("2.2.2"):
        return NO_WHEEL_FOR_PLATFORM
    releases = sorted(parsed(row.torch) for row in context.catalog.releases)
    if name == "torch" and releases[0] < wanted < releases[-1] and wanted not in releases:
        return WRONG_INDEX
    if no_python_for(context, torch, where):
        return PYTHON_NO_WHEEL
    if version and offered:
        # A release inside the range of those offered was never made with that label or number;
        # files of older or newer ones only: the Python (or the platform) is another one's.
        inside = offered[0] <= wanted <= offered[-1]
        return WRONG_INDEX if inside else PYTHON_NO_WHEEL
    return WRONG_INDEX if label and not event.values.get("index") else PYTHON_NO_WHEEL


def index_label(url: str) -> str | None:
    """The backend in the address of an index.

    >>> index_label("https://download.pytorch.org/whl/nightly/cu128/")
    'cu128'
    """
    found = re.search(rf"(?:^|/)({LABEL})/?$", url.strip())
    return found.group(1) if found else None


RULES = (no_file,)
