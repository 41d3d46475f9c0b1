"""No such wheel: why an installer found no file for torch.

The index may be wrong, or have no wheel for this system, or none for this Python. What was asked,
what was offered and what the catalog knows decide between them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpusetup.accelerators.makers import LABEL
from gpusetup.catalog.jetpack import board_of
from gpusetup.evidence.context import RuleContext, event_evidence, events, value_evidence
from gpusetup.findings.installing.other_python import (
    FAMILY,
    catalog_rows,
    has_python_for,
    new_environment,
    no_python_for,
    other_python,
    torch_of,
)
from gpusetup.findings.installing.python import (
    NO_WHEEL_FOR_PLATFORM,
    PYTHON_NO_WHEEL,
    no_platform_way,
)
from gpusetup.findings.layers import UNINSTALLABLE, Layer
from gpusetup.findings.record import Cause
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
)


def no_matching_distribution(context: RuleContext) -> Iterator[Finding]:
    """pip or uv found no file for a requirement of the torch family: why."""
    if context.snapshot.python.bits == 32:
        return
    for event in events(context, "no-matching-distribution"):
        name, version, label = requirement(event.values.get("requirement", ""))
        if name in FAMILY:
            cause = _why_no_file(context, event, name, version, label)
            yield _no_file(context, event, cause)
            return
    yield from _no_other_file(context)


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
    if (
        _never_was(context, label)
        or _never_was(context, index)
        or _no_release(context, name, version)
    ):
        return WRONG_INDEX
    offered = versions(event)
    if _elsewhere(context, torch_of(context, name, version), label or index):
        return NO_WHEEL_FOR_PLATFORM
    if name == "torch" and version and _is_intel_mac(context, version, offered):
        return NO_WHEEL_FOR_PLATFORM
    if no_python_for(context, torch_of(context, name, version), label or index):
        return PYTHON_NO_WHEEL
    if label and not index and any("+" not in one for one in offered):
        # A local label is only in torch's own index.
        return (
            WRONG_INDEX
            if _plain_is_there(version, offered) or not version
            else _by_age(version, offered)
        )
    if version and offered:
        only = {one.partition("+")[2] for one in offered}
        if name == "torch" and len(only) == 1 and _lacks_release(context, version, *only):
            return WRONG_INDEX
        return _by_age(version, offered)
    if label and not event.values.get("index"):
        return WRONG_INDEX
    return PYTHON_NO_WHEEL


INTEL_MAC = ("macos", "x86_64", "pytorch")


def _is_intel_mac(context: RuleContext, version: str, offered: tuple[str, ...]) -> bool:
    """A Mac that is offered nothing after the last release for Intel's."""
    mac = context.snapshot.os.family == "macos" and context.snapshot.os.machine != "aarch64"
    if not mac or not offered:
        return False
    newest = max(offered, key=parsed)
    rows = (b for b in context.catalog.builds if (b.os, b.machine, b.channel) == INTEL_MAC)
    newest_there = max((row.torch for row in rows), key=parsed)
    return newest == newest_there and parsed(version) > parsed(newest)


def versions(event: Event) -> tuple[str, ...]:
    """
    >>> versions(Event(kind="no-matching-distribution", values={"versions": "2.0.0, 2.0.1"}))
    ('2.0.0', '2.0.1')
    """
    listed = re.split(r"[,\s]+", event.values.get("versions", ""))
    return tuple(one for one in listed if one[:1].isdigit())


def index_label(url: str) -> str | None:
    """The backend in the address of an index.

    >>> index_label("https://download.pytorch.org/whl/nightly/cu128/")
    'cu128'
    """
    found = re.search(rf"(?:^|/)({LABEL})/?$", url.strip())
    return found.group(1) if found else None


def _never_was(context: RuleContext, label: str | None) -> bool:
    return label is not None and label.startswith("cu") and label not in context.catalog.backends


def _no_release(context: RuleContext, name: str, version: str | None) -> bool:
    """Whether a torch of that number never came out, or was a nightly: those are deleted."""
    if name == "torch" and ".dev" in (version or ""):
        return True
    known = {row.torch for row in context.catalog.releases}
    if name != "torch" or not version or not re.fullmatch(r"\d+\.\d+\.\d+", version):
        return False
    oldest, newest = min(known, key=parsed), max(known, key=parsed)
    return version not in known and parsed(oldest) < parsed(version) < parsed(newest)


def _plain_is_there(version: str | None, offered: tuple[str, ...]) -> bool:
    return version in {one.partition("+")[0] for one in offered}


def _by_age(version: str, offered: tuple[str, ...]) -> Cause:
    """Files of other releases only: the Python (or the platform) is newer or older than this one's;
    a release inside the range of those offered was never made with that label or number."""
    known = sorted(parsed(one.partition("+")[0]) for one in offered)
    wanted = parsed(version)
    return WRONG_INDEX if known[0] < wanted < known[-1] else PYTHON_NO_WHEEL


def _lacks_release(context: RuleContext, version: str, label: str) -> bool:
    """Whether a release came out, and never for the CUDA of which all that is offered is."""
    labels = {row.backend for row in context.catalog.builds if row.torch == version}
    return label.startswith("cu") and bool(labels) and label not in labels


def _elsewhere(context: RuleContext, version: str | None, label: str | None) -> bool:
    """Whether the release has wheels, but none for this system and machine."""
    os = context.snapshot.os
    rows = catalog_rows(context, version, label)
    if not rows or os.family is None:
        return False
    here = [r for r in rows if r.os == os.family and os.machine in (None, r.machine)]
    return not here


TITLES = {
    "wrong-index": "{what} does not exist where the installer looked{where}",
    "no-wheel-for-platform": "{what} has no wheel for this system",
    "python-no-wheel": "{what} has no wheel for this Python{python}",
}


def _no_file(context: RuleContext, event: Event, cause: Cause) -> Finding:
    asked = event.values.get("requirement") or "torch"
    index = event.values.get("index")
    version = context.snapshot.python.version
    title = TITLES[cause.id].format(
        what=asked,
        where=f" ({index})" if index else "",
        python=f" ({version})" if version else "",
    )
    lines = (value_evidence(context, "python.version", f"Python {version}"),) if version else ()
    torch, label = _asked_of(context, event)
    served = has_python_for(context, torch, label) or (not torch and paste.chosen(context))
    if cause is PYTHON_NO_WHEEL and served:
        title = f"The installer finds no wheel of {asked} for the Python that it runs in"
    fix = _other_file(context, event, cause)
    return cause.found(title, evidence=(*event_evidence((event,)), *lines), fix=fix)


def _other_file(context: RuleContext, event: Event, cause: Cause) -> Fix:
    """Another index, or another Python: with the build that the resolver found."""
    if board_of(context.snapshot) and paste.chosen(context) is None:
        from gpusetup.findings.jetson.jetpack import jetson_fix

        return jetson_fix(context)
    if cause is PYTHON_NO_WHEEL:
        return other_python(context, *_asked_of(context, event))
    if cause is NO_WHEEL_FOR_PLATFORM and paste.chosen(context) is None:
        return Fix(text=no_platform_way(context))
    return paste.install_torch(context, "Ask for what exists. ")


def _asked_of(context: RuleContext, event: Event) -> tuple[str | None, str | None]:
    """The torch and the local label that a requirement is about."""
    name, version, label = requirement(event.values.get("requirement", ""))
    return torch_of(context, name, version), label


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


def _no_other_file(context: RuleContext) -> Iterator[Finding]:
    """A requirement outside the torch family."""
    messages = events(context, "no-matching-distribution")
    if messages:
        asked = messages[0].values.get("requirement", "a package")
        yield PACKAGE_NOT_FOUND.found(
            f"The installer finds no file of {asked} for this Python and system",
            evidence=event_evidence(messages),
            fix=Fix(
                text="Look at its name, its version and the index; where torch's index was given "
                "as --index-url it has the torch family only: give it as an index for torch alone",
            ),
        )


def wheel_not_supported(context: RuleContext) -> Iterator[Finding]:
    """A wheel file whose tags are not this Python's or this system's."""
    for event in events(context, "wheel-not-supported"):
        wheel = event.values.get("wheel", "")
        cause = _why_not_supported(context, wheel)
        yield cause.found(
            f"{wheel or 'The wheel'} is made for another "
            + ("system" if cause is NO_WHEEL_FOR_PLATFORM else "Python"),
            evidence=event_evidence((event,)),
            fix=_for_this_wheel(context, wheel, cause),
        )
        return


def wheel_tags(wheel: str) -> tuple[str | None, str | None, str | None]:
    """Version, Python and platform in the name of a wheel.

    >>> wheel_tags("torch-1.13.1+cu117-cp310-cp310-linux_x86_64.whl")
    ('1.13.1+cu117', '3.10', 'linux_x86_64')
    """
    found = re.search(
        r"-([0-9][^-]*)-(?:\d+-)?cp(\d)(\d+)t?-\w+-([\w.]+?)(?:\.whl)?$", wheel.strip()
    )
    if not found:
        return None, None, None
    return found.group(1), f"{found.group(2)}.{found.group(3)}", found.group(4)


PLATFORM_WORDS = {"linux": "linux", "windows": "win", "macos": "macosx"}


def _why_not_supported(context: RuleContext, wheel: str) -> Cause:
    platform = wheel_tags(wheel)[2]
    os = context.snapshot.os
    word = PLATFORM_WORDS.get(os.family or "", "")
    if platform and word and word not in platform:
        return NO_WHEEL_FOR_PLATFORM
    machine = os.machine if os.machine in ("x86_64", "aarch64") else None
    other = {"x86_64": ("aarch64", "arm64"), "aarch64": ("x86_64", "amd64")}.get(machine or "", ())
    if platform and any(platform.endswith(one) for one in other):
        return NO_WHEEL_FOR_PLATFORM
    return PYTHON_NO_WHEEL


def _for_this_wheel(context: RuleContext, wheel: str, cause: Cause) -> Fix:
    python = wheel_tags(wheel)[1]
    if cause is NO_WHEEL_FOR_PLATFORM or python is None:
        return paste.install_torch(context, "Let the installer choose the file. ")
    own = context.snapshot.python.version
    has = f" (it is {own} now)" if own else ""
    return Fix(
        text=f"This file is for Python {python}{has}, 64 bits: make an environment with that, or "
        "let the installer choose the file for yours",
        commands=new_environment(context, python, None, None),
        python=python,
    )


RULES = (
    no_matching_distribution,
    wheel_not_supported,
)
