"""No such wheel: why an installer found no file for torch.

The index is not there, or the system has none, or this Python has none: told apart by what was
asked, what was offered, and what the catalog knows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpusetup.model import Event, Finding, Fix, TorchBuild, parsed
from gpusetup.rules import ways
from gpusetup.rules.case import Case, error, events, shown, told
from gpusetup.rules.plausible import is_a_version
from gpusetup.rules.python import good_python, no_platform_way, python_tag
from gpusetup.shell import Line

LAST_PYTHON = (
    ("1.4", "3.7"),
    ("1.7.1", "3.8"),
    ("1.11", "3.9"),
    ("1.13", "3.10"),
    ("2.2", "3.11"),
    ("2.5", "3.12"),
)
"""Releases before this one end with this Python (the wheels in torch's index)."""

FAMILY = ("torch", "torchvision", "torchaudio")


def no_matching_distribution(case: Case) -> Iterator[Finding]:
    """pip or uv found no file for a requirement of the torch family: why."""
    if case.snapshot.python.bits == 32:
        return
    for event in events(case, "no-matching-distribution"):
        name, version, label = requirement(event.values.get("requirement", ""))
        if name in FAMILY:
            id = _why_no_file(case, event, name, version, label)
            yield _no_file(case, event, id)
            return
    yield from _no_other_file(case)


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
        (name.group() if name else "").lower().replace("_", "-"),
        found.group(1) if found else None,
        found.group(2) if found else None,
    )


def _why_no_file(
    case: Case, event: Event, name: str, version: str | None, label: str | None
) -> str:
    """The id of the reason, from what was asked, what was offered, and what the catalog knows."""
    index = index_label(event.values.get("index", ""))
    if _never_was(case, label) or _never_was(case, index) or _no_release(case, name, version):
        return "wrong-index"
    offered = versions(event)
    if _elsewhere(case, torch_of(case, name, version), label or index):
        return "no-wheel-for-platform"
    if name == "torch" and version and _is_intel_mac(case, version, offered):
        return "no-wheel-for-platform"
    if no_python_for(case, torch_of(case, name, version), label or index):
        return "python-no-wheel"
    if label and not index and any("+" not in one for one in offered):
        # A local label is only in torch's own index.
        return (
            "wrong-index"
            if _plain_is_there(version, offered) or not version
            else _by_age(version, offered)
        )
    if version and offered:
        return _by_age(version, offered)
    if label and not event.values.get("index"):
        return "wrong-index"
    return "python-no-wheel"


def torch_of(case: Case, name: str, version: str | None) -> str | None:
    """The torch that a release of the family belongs to; None where it is not known."""
    if name in ("torch", "") or version is None:
        return version
    for row in case.catalog.releases:
        companion = row.torchvision if name == "torchvision" else row.torchaudio
        if name in FAMILY and companion == version:
            return row.torch
    return None


LAST_ON_INTEL_MACS = "2.2.2"


def _is_intel_mac(case: Case, version: str, offered: tuple[str, ...]) -> bool:
    """A Mac that is offered nothing after the last release for Intel's."""
    mac = case.snapshot.os.family == "macos" and case.snapshot.os.machine != "aarch64"
    newest = max(offered, key=parsed, default=None)
    return mac and newest == LAST_ON_INTEL_MACS and parsed(version) > parsed(newest)


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
    found = re.search(r"(?:^|/)(cpu|xpu|cu\d{2,3}|rocm[\d.]+)/?$", url.strip())
    return found.group(1) if found else None


def _never_was(case: Case, label: str | None) -> bool:
    return label is not None and label.startswith("cu") and label not in case.catalog.backends


def _no_release(case: Case, name: str, version: str | None) -> bool:
    """Whether a torch of that number never came out, or was a nightly: those are deleted."""
    if name == "torch" and ".dev" in (version or ""):
        return True
    known = {row.torch for row in case.catalog.releases}
    if name != "torch" or not version or not re.fullmatch(r"\d+\.\d+\.\d+", version):
        return False
    oldest, newest = min(known, key=parsed), max(known, key=parsed)
    return version not in known and parsed(oldest) < parsed(version) < parsed(newest)


def _plain_is_there(version: str | None, offered: tuple[str, ...]) -> bool:
    return version in {one.partition("+")[0] for one in offered}


def _by_age(version: str, offered: tuple[str, ...]) -> str:
    """Files of other releases only: the Python (or the platform) is newer or older than this one's;
    a release inside the range of those offered was never made with that label or number."""
    known = sorted(parsed(one.partition("+")[0]) for one in offered)
    wanted = parsed(version)
    return "wrong-index" if known[0] < wanted < known[-1] else "python-no-wheel"


def _rows(case: Case, version: str | None, label: str | None) -> list[TorchBuild]:
    """The catalog's wheels of a request, on every platform."""
    return [
        row
        for row in case.catalog.builds
        if row.channel == "pytorch"
        and (version is None or row.torch == version)
        and (label is None or row.backend == label)
    ]


def _elsewhere(case: Case, version: str | None, label: str | None) -> bool:
    """Whether it has wheels, and none for this system and machine."""
    os = case.snapshot.os
    rows = _rows(case, version, label)
    if not rows or os.family is None:
        return False
    here = [r for r in rows if r.os == os.family and os.machine in (None, r.machine)]
    return not here


def _rows_here(case: Case, version: str | None, label: str | None) -> list[TorchBuild]:
    os = case.snapshot.os
    return [
        r
        for r in _rows(case, version, label)
        if os.family in (None, r.os) and os.machine in (None, r.machine)
    ]


def no_python_for(case: Case, version: str | None, label: str | None) -> bool:
    """Whether it has wheels for this platform, and none for this Python."""
    tag, rows = python_tag(case), _rows_here(case, version, label)
    return bool(tag and rows and not any(tag in r.pythons for r in rows))


def has_python_for(case: Case, version: str | None, label: str | None) -> bool:
    """Whether it has a wheel for a 64-bit CPython of the version that the text shows."""
    tag = python_tag(case)
    if not tag or not version:
        return False
    if not _rows(case, version, None):
        return tag in _pythons_of_old(version)
    return any(tag in r.pythons for r in _rows_here(case, version, label))


def _pythons_of_old(version: str) -> tuple[str, ...]:
    """The Pythons of a release that is older than the catalog: the last one, and two before it.

    >>> _pythons_of_old("1.5.1")
    ('3.8', '3.7', '3.6')
    """
    last = next((p for before, p in LAST_PYTHON if parsed(version) < parsed(before)), None)
    minor = int(last.partition(".")[2]) if last else 0
    return tuple(f"3.{minor - back}" for back in range(3)) if last else ()


TITLES = {
    "wrong-index": "{what} does not exist where the installer looked{where}",
    "no-wheel-for-platform": "{what} has no wheel for this system",
    "python-no-wheel": "{what} has no wheel for this Python{python}",
}


def _no_file(case: Case, event: Event, id: str) -> Finding:
    asked = event.values.get("requirement") or "torch"
    index = event.values.get("index")
    version = case.snapshot.python.version
    title = TITLES[id].format(
        what=asked,
        where=f" ({index})" if index else "",
        python=f" ({version})" if version else "",
    )
    lines = (shown(case, "python.version", f"Python {version}"),) if version else ()
    if id == "python-no-wheel" and has_python_for(case, *_asked_of(case, event)):
        title = f"The installer finds no wheel of {asked} for the Python that it runs in"
    return error(id, title, evidence=(*told((event,)), *lines), fix=_other_file(case, event, id))


def _other_file(case: Case, event: Event, id: str) -> Fix:
    """Another index, or another Python: with the build that the resolver found."""
    if id == "python-no-wheel":
        return other_python(case, *_asked_of(case, event))
    if id == "no-wheel-for-platform" and ways.chosen(case) is None:
        return Fix(text=no_platform_way(case))
    return ways.install_torch(case, "Ask for what exists. ")


def _asked_of(case: Case, event: Event) -> tuple[str | None, str | None]:
    """The torch and the local label that a requirement is about."""
    name, version, label = requirement(event.values.get("requirement", ""))
    return torch_of(case, name, version), label


def other_python(case: Case, version: str | None, label: str | None = None) -> Fix:
    """A Python that this torch has wheels for; or the torch that this Python has."""
    if has_python_for(case, version, label):
        return _whole_python(case, version or "", label)
    python = python_for(case, version)
    build = ways.chosen(case)
    if version is None and case.snapshot.python.version and build is not None:
        return ways.install_torch(case, "Other releases have wheels for this Python. ")
    text = f"Make an environment with Python {python}"
    text += f", which torch {version} has wheels for" if version else " and install there"
    if case.snapshot.python.version and build is not None and version not in (None, build.torch):
        text += f"; or loosen the pin: this Python has torch {build.torch} ({build.backend})"
    return Fix(
        text=f"{text}. The Python must be a 64-bit one",
        commands=_anew(case, python, version, label),
        python=python,
    )


ASK_PYTHON = (
    "import sys, struct, platform; print(sys.version, struct.calcsize('P') * 8, platform.machine())"
)


OLD_WHEELS = "https://download.pytorch.org/whl/torch_stable.html"


def _anew(case: Case, python: str, version: str | None, label: str | None) -> tuple[Line, ...]:
    """A new environment with that Python, and the torch in it."""
    if not is_a_version(python):
        return ()
    folder = ways.fresh(case, python)
    make = ways.command(case, "uv", "venv", "--python", python, folder)
    return (make, _install_there(case, folder, version, label))


def _install_there(case: Case, folder: str, version: str | None, label: str | None) -> Line:
    """The command that installs a torch there; one older than the catalog from its page."""
    into = ("gpusetup", "install", "--venv", folder)
    if version is None or not is_a_version(version):
        return ways.command(case, *into)
    if _rows(case, version, None):
        backend = ("--backend", label) if label and _rows(case, version, label) else ()
        return ways.command(case, *into, "--torch", version, *backend)
    label = label if label and is_a_version(f"{version}+{label}") else None
    exact = f"torch=={version}+{label}" if label else f"torch=={version}"
    where = ("--python", folder, "--find-links", OLD_WHEELS)
    return ways.command(case, "uv", "pip", "install", *where, exact)


def _whole_python(case: Case, version: str, label: str | None) -> Fix:
    """The wheel is there for a 64-bit CPython: then the installer runs in another kind."""
    tag = python_tag(case) or ""
    return Fix(
        text=f"torch {version} has a wheel for a 64-bit CPython {tag}, so the one that the "
        "installer runs in is of another kind (32 bits, ARM, PyPy, a musl system) or another "
        "version. Make an environment with a 64-bit one",
        commands=_anew(case, tag, version, label),
        looks=ways.look(
            "see first what the installer runs in",
            ways.command(case, ways.python(case), "-c", ASK_PYTHON),
        ),
        python=tag,
    )


def python_for(case: Case, version: str | None) -> str:
    """The newest Python that a release has wheels for; a good one of today where none is named."""
    if version is None:
        return good_python(case)
    family, own = case.snapshot.os.family, python_tag(case)
    rows = [row for row in _rows(case, version, None) if family in (None, row.os)]
    known = {p for row in rows for p in row.pythons if not p.endswith("t")} - {own}
    if known:
        return max(known, key=parsed)
    return next((p for before, p in LAST_PYTHON if parsed(version) < parsed(before)), "3.12")


def _no_other_file(case: Case) -> Iterator[Finding]:
    """A requirement outside the torch family."""
    heard = events(case, "no-matching-distribution")
    if heard:
        asked = heard[0].values.get("requirement", "a package")
        yield error(
            "package-not-found",
            f"The installer finds no file of {asked} for this Python and system",
            evidence=told(heard),
            fix=Fix(
                text="Look at its name, its version and the index; where torch's index was given "
                "as --index-url it has the torch family only: give it as an index for torch alone",
            ),
        )


def wheel_not_supported(case: Case) -> Iterator[Finding]:
    """A wheel file whose tags are not this Python's or this system's."""
    for event in events(case, "wheel-not-supported"):
        wheel = event.values.get("wheel", "")
        id = _why_not_supported(case, wheel)
        yield error(
            id,
            f"{wheel or 'The wheel'} is made for another "
            + ("system" if id == "no-wheel-for-platform" else "Python"),
            evidence=told((event,)),
            fix=_for_this_wheel(case, wheel, id),
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


def _why_not_supported(case: Case, wheel: str) -> str:
    platform = wheel_tags(wheel)[2]
    os = case.snapshot.os
    word = PLATFORM_WORDS.get(os.family or "", "")
    if platform and word and word not in platform:
        return "no-wheel-for-platform"
    machine = os.machine if os.machine in ("x86_64", "aarch64") else None
    other = {"x86_64": ("aarch64", "arm64"), "aarch64": ("x86_64", "amd64")}.get(machine or "", ())
    if platform and any(platform.endswith(one) for one in other):
        return "no-wheel-for-platform"
    return "python-no-wheel"


def _for_this_wheel(case: Case, wheel: str, id: str) -> Fix:
    python = wheel_tags(wheel)[1]
    if id == "no-wheel-for-platform" or python is None:
        return ways.install_torch(case, "Let the installer choose the file. ")
    own = case.snapshot.python.version
    has = f" (it is {own} now)" if own else ""
    return Fix(
        text=f"This file is for Python {python}{has}, 64 bits: make an environment with that, or "
        "let the installer choose the file for yours",
        commands=_anew(case, python, None, None),
        python=python,
    )


RULES = (
    no_matching_distribution,
    wheel_not_supported,
)
