"""What installers say, and why one found no file for torch."""

from __future__ import annotations

import re

from gpusetup.accelerators.makers import LABEL
from gpusetup.catalog.jetpack import board_of
from gpusetup.causes.wheels import good_python, no_platform_way
from gpusetup.choose.host import python_tag
from gpusetup.evidence.context import RuleContext, events
from gpusetup.findings.message_rules import finding
from gpusetup.fixes import paste
from gpusetup.fixes.jetson import jetson_fix
from gpusetup.model.builds import FAMILY, TorchBuild
from gpusetup.model.finding import Finding, Findings, Fix
from gpusetup.model.machine import Event
from gpusetup.model.versions import parsed
from gpusetup.readings.packages import normalised

KINDS = (
    *("python-no-wheel", "no-wheel-for-platform", "wrong-index", "conda-not-found"),
    *("no-matching-distribution", "wheel-not-supported"),
)
"""What installers say where they find no file: those that know the reason first."""


NAMED = ("requirement", "index", "package", "wheel")


OURS = (*FAMILY, "triton", "nvidia-", "pytorch")
"""How the names begin of what torch's index holds in its own right."""


def no_file(context: RuleContext) -> Findings:
    """An installer found no file: of what, and why."""
    found: dict[str, Finding] = {}
    said = events(context, *KINDS) if context.snapshot.python.bits != 32 else ()
    for event in sorted(said, key=lambda event: KINDS.index(event.kind)):
        asked = next((event.values[name] for name in NAMED if name in event.values), "")
        cause = _why(context, event, asked)
        seen, fix = events(context, event.kind), _way(context, cause, asked, event)
        one = finding(context, cause, seen, fix=fix, asked=asked or "torch", what="this system")
        found.setdefault(cause, one)
    if len(found) > 1:
        found.pop("package-not-found", None)
    yield from found.values()


ITS_INDEX = (
    "Check the package's name and version. In a conda environment file, remove the builds, the "
    "part after the second `=`. Use PyTorch's index for torch only, not as --index-url. In "
    "pyproject.toml, write `explicit = true` under [[tool.uv.index]] and a row of "
    "[tool.uv.sources] for torch, torchvision and torchaudio. With `uv pip` use --torch-backend"
)


def _way(context: RuleContext, cause: str, asked: str, event: Event) -> Fix | None:
    """Another index, or another Python: with the build that the resolver found."""
    if cause == "package-not-found":
        return Fix(text=ITS_INDEX)
    if cause == "no-wheel-for-platform" and not _is_of_torch(asked):
        return _without_its_wheel(context, asked)
    if board_of(context.snapshot) and paste.chosen_build(context) is None:
        return jetson_fix(context)
    tags = re.search(r"-cp(\d)(\d+)t?-", asked)
    if cause == "python-no-wheel" and tags:
        python = f"{tags[1]}.{tags[2]}"
        text = (
            f"This file is for 64-bit Python {python}: create an environment with that Python, "
            "or let "
        )
        return paste.with_python(context, python, text + "the installer choose the file for yours")
    if cause == "python-no-wheel":
        return _other_python(context, asked)
    if cause == "no-wheel-for-platform" and paste.chosen_build(context) is None:
        return Fix(text=no_platform_way(context))
    if cause == "glibc-too-old" and paste.chosen_build(context) is None:
        return None
    return paste.install_torch(context, "Ask for what exists. ")


def _is_of_torch(asked: str) -> bool:
    """Whether an installer's message is about torch or what its index holds beside it."""
    name = requirement(asked)[0]
    return not name or (name.startswith(OURS) and name not in BESIDE_TORCH)


BESIDE_TORCH = ("torchcodec", "torch-geometric", "torch-scatter", "torch-sparse", "torch-cluster")
"""Packages whose names begin like torch's, and that are released on their own."""


def _without_its_wheel(context: RuleContext, asked: str) -> Fix:
    """Another package than torch has no wheel here: torch stays as it is."""
    name, exact, _ = requirement(asked)
    machine = context.os.machine or "this processor"
    releases = paste.pip(context, "index", "versions", name)
    markers = (
        "`tool.uv.environments`, or its own marker" if paste.in_a_project(context) else "a marker"
    )
    here = f"{name} {exact}" if exact else name
    return Fix(
        text=f"torch is not at fault, and stays. {here} has no wheel for {machine}: loosen its pin "
        f"to a release that has one, or leave it out on this system by {markers} "
        f"(`; platform_machine != '{machine}'`). If you need this release, build it from source",
        looks=paste.look("see its releases", releases) if context.installer != "uv" else (),
    )


def _other_python(context: RuleContext, asked: str) -> Fix:
    """A Python that this torch has wheels for; or the torch that this Python has."""
    name, exact, _ = requirement(asked)
    version = _torch_of(context, name, exact)
    if version is None and context.snapshot.python.version and paste.chosen_build(context):
        return paste.install_torch(context, "Other releases have wheels for this Python. ")
    rows = _here(context, version) if version else []
    tags = {tag for row in rows for tag in row.pythons if not tag.endswith("t")}
    last = version and context.catalog.last_python(version)
    python = max(tags, key=parsed, default=last or good_python(context))
    return paste.with_python(
        context,
        python,
        f"Make an environment with a 64-bit CPython {python}, or ask for a torch that has wheels "
        "for this one",
    )


def _torch_of(context: RuleContext, name: str, version: str | None) -> str | None:
    """The torch that a release of the family belongs to; None where it is not known."""
    beside = (r.torch for r in context.catalog.releases if getattr(r, name, None) == version)
    return version if name == "torch" or version is None else next(beside, None)


def _rows(context: RuleContext, version: str | None, label: str | None = None) -> list[TorchBuild]:
    """The catalog's wheels of a request."""
    return [
        row
        for row in context.catalog.builds
        if row.channel == "pytorch"
        and version in (None, row.torch)
        and label in (None, row.backend)
    ]


def _here(context: RuleContext, version: str | None, label: str | None = None) -> list[TorchBuild]:
    """Those of them that are for this system."""
    os, rows = context.os, _rows(context, version, label)
    return [r for r in rows if os.family in (None, r.os) and os.machine in (None, r.machine)]


def _why(context: RuleContext, event: Event, asked: str) -> str:
    """Which of index, system and Python an installer's message is about."""
    os, (name, version, label) = context.os, requirement(asked)
    if event.kind == "wrong-index":
        return "wrong-index"
    if event.kind == "conda-not-found":  # its channels end early on some systems
        cause = "no-wheel-for-platform" if os.family == "macos" else "wrong-index"
        return "package-not-found" if re.fullmatch(EXPORTED, asked) else cause
    if event.kind == "wheel-not-supported":
        return _tag_that_fails(context, asked)
    asks = event.kind == "no-matching-distribution"
    ours = name in FAMILY if asks else name.startswith(OURS)
    if not ours and event.kind == "no-wheel-for-platform":
        return event.kind
    if not ours and (name or asks):
        return "package-not-found"
    torch, where = _torch_of(context, name, version), label or index_label(event)
    here = _here(context, torch, where)
    if not asks:
        # Releases of one pin may lack the Python, others the system: another Python helps first.
        helps = events(context, "python-no-wheel")
        return "python-no-wheel" if helps else "no-wheel-for-platform"
    no_such = (where or "").startswith("cu") and where not in context.catalog.backends
    if no_such or ".dev" in (version or ""):  # nightlies are deleted
        return "wrong-index"
    listed = re.split(r"[,\s]+", event.values.get("versions", ""))
    offered = sorted(parsed(one.partition("+")[0]) for one in listed if one[:1].isdigit())
    number, intel = parsed(version or "0"), os.family == "macos" and parsed("2.2.2")
    last_on_intel = offered[-1:] == [intel] and number > offered[-1]
    if last_on_intel or (_rows(context, torch, where) and not here):
        return "no-wheel-for-platform"
    # A release inside the range of those offered was never made with that label or number; files of
    # older or newer ones only: the Python (or the platform) is another one's.
    inside = offered and offered[0] <= number <= offered[-1]
    return "wrong-index" if inside else "python-no-wheel"


def _tag_that_fails(context: RuleContext, wheel: str) -> str:
    """Which tag of a file's name does not fit here: its glibc, its system, else its Python."""
    os, tag = context.os, (python_tag(context.snapshot) or "").replace(".", "")
    needed = re.search(r"manylinux_2_(\d+)", wheel)
    libc = re.search(r"glibc 2\.(\d+)", os.libc or "")
    if needed and libc and int(libc[1]) < int(needed[1]):
        return "glibc-too-old"
    word = {"linux": os.machine or "linux", "windows": "win", "macos": "macosx"}
    fits = f"-cp{tag}-" in wheel or word.get(os.family or "", "") not in wheel
    return "no-wheel-for-platform" if fits else "python-no-wheel"


EXPORTED = r"[\w.-]+={1,2}[\w.]+=\w*\d\w*(?:[._]\w+)*"
"""`pytorch=2.0.1=py3.10_cuda11.8_cudnn8.7.0_0`: a name, a version and one build of it."""


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


def index_label(event: Event) -> str | None:
    """The backend in the address of an index: `https://download.pytorch.org/whl/nightly/cu128/`."""
    found = re.search(rf"(?:^|/)({LABEL})/?$", event.values.get("index", "").strip())
    return found.group(1) if found else None


RULES = (no_file,)
