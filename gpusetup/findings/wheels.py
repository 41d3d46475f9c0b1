"""Errors of installers that find no wheel of torch, and the reason why there is none."""

from __future__ import annotations

import re

from gpusetup.accelerators.makers import BY_ID, LABEL, is_seen_only, maker_of
from gpusetup.causes.wheels import USUAL_PYTHON
from gpusetup.choose.host import python_tag
from gpusetup.evidence.context import RuleContext, events, on
from gpusetup.findings.message_rules import finding
from gpusetup.fixes import makers, paste
from gpusetup.model.builds import FAMILY, TorchBuild
from gpusetup.model.finding import Finding, Findings, Fix
from gpusetup.model.machine import Event
from gpusetup.model.versions import parsed
from gpusetup.readings.packages import normalised

KINDS = (
    *("python-no-wheel", "no-wheel-for-platform", "wrong-index", "conda-not-found"),
    *("no-matching-distribution", "wheel-not-supported"),
)
"""Events of installers that find no file. Events that show the reason come first."""

LOOKED_FOR = ("requirement", "index", "package", "wheel")
"""The values of an installer's message that say what it looked for."""
ON_TORCHS_INDEX = (*FAMILY, "triton", "nvidia-", "pytorch")
"""How the names of packages begin that PyTorch's own index offers."""


def no_file(context: RuleContext) -> Findings:
    """An installer found no matching file: the finding says for which package, and why."""
    # There are no wheels for a 32-bit Python, and another finding reports that.
    if context.snapshot.python.bits == 32:
        return
    findings: dict[str, Finding] = {}
    for message in sorted(events(context, *KINDS), key=lambda message: KINDS.index(message.kind)):
        values = message.values
        requested = next((values[name] for name in LOOKED_FOR if name in values), "")
        cause = _cause_of(context, message, requested)
        # The first message of a cause shows the reason best.
        if cause in findings:
            continue
        findings[cause] = finding(
            context,
            "wrong-index" if cause == ANOTHER_PACKAGE else cause,
            events(context, message.kind),
            fix=_fix_for(context, cause, requested, message),
            # `==2.5.1` without a name is a version of torch.
            asked=requested.strip("=<>~! ") or "torch",
            what="this system",
        )
    # Prefer a message about torch.
    if len(findings) > 1:
        findings.pop(ANOTHER_PACKAGE, None)
    yield from findings.values()


ANOTHER_PACKAGE = "wrong-index of another package"
"""In place of a cause's id: an index has no file of a package other than torch. The finding is
`wrong-index`, with another fix."""


FROM_ITS_INDEX = (
    "Check the package's name and version. In a conda environment file, remove the build strings "
    "(the part after the second `=`). PyTorch's index has only a few builds of other packages, so "
    "use it for torch only, not as the --index-url. In pyproject.toml, write `explicit = true` "
    "under its [[tool.uv.index]], and add entries to [tool.uv.sources] for torch, torchvision and "
    "torchaudio (`gpusetup install --project` writes both). With `uv pip`, use --torch-backend"
)


def _fix_for(context: RuleContext, cause: str, requested: str, event: Event) -> Fix | None:
    """The fix: another index, another Python, or an installation of the chosen build; None for the
    record's own fix, if no build fits this system."""
    _, _, label = requirement(event.values.get("requirement", ""))
    maker = maker_of(label or index_label(event))
    # The maker's own newest build for this system, never another maker's.
    if maker and is_seen_only(maker):
        if on(context, "macos"):
            return makers.for_mac(context)
        return makers.build_for(context, BY_ID[maker], makers.target_of(context))
    if cause == ANOTHER_PACKAGE or (cause == "wrong-index" and not _is_of_torch(requested)):
        return Fix(text=FROM_ITS_INDEX)
    if cause == "no-wheel-for-platform" and not _is_of_torch(requested):
        return _without_its_wheel(context, requested)
    if cause == "python-no-wheel":
        return _other_python(context, requested)
    if context.choice.build is None and cause in ("no-wheel-for-platform", "glibc-too-old"):
        return None
    why = "Install a release that has a wheel for this system. "
    return paste.install_torch(context, why)


def _is_of_torch(requested: str) -> bool:
    """Whether an installer's message is about torch or about a package of torch's own index."""
    name, _, _ = requirement(requested)
    # A message without a package's name counts as one about torch.
    if not name:
        return True
    return name.startswith(ON_TORCHS_INDEX) and name not in NAMED_AFTER_TORCH


NAMED_AFTER_TORCH = (
    *("torchcodec", "torch-geometric", "torch-scatter", "torch-sparse", "torch-cluster"),
)
"""Packages whose names begin with torch but that have their own releases."""


def _without_its_wheel(context: RuleContext, requested: str) -> Fix:
    """A package other than torch has no wheel here, so torch stays as it is."""
    name, exact, _ = requirement(requested)
    machine = context.os.machine or "this processor"
    releases = paste.pip(context, "index", "versions", name)
    here = f"{name} {exact}" if exact else name
    return Fix(
        text=f"You do not need to change torch. {here} has no wheel for {machine}: allow a release "
        f"that has one, or skip the package on this system with a marker "
        f"(`; platform_machine != '{machine}'`). If you need this release, build it from source",
        looks=paste.titled("see its releases", releases) if context.installer != "uv" else (),
    )


def _other_python(context: RuleContext, requested: str) -> Fix:
    """Use a Python for which this torch has wheels, or a torch that has wheels for this Python."""
    name, exact, _ = requirement(requested)
    release = exact if name in ("torch", "") else None
    # `torch-2.0.1-cp310-cp310-win_amd64.whl`: a wheel's own file name says for which Python it is.
    of_wheel = re.search(r"-cp(\d)(\d{1,2})t?-", requested)
    if of_wheel:
        python = f"{of_wheel[1]}.{of_wheel[2]}"
    elif release:
        python = _newest_python_for(context, release)
    elif context.snapshot.python.version and context.choice.build:
        return paste.install_torch(context, "Other releases have wheels for this Python. ")
    else:
        python = USUAL_PYTHON
    text = (
        f"Create an environment with a 64-bit CPython {python}, or request a torch release that "
        "has wheels for this Python"
    )
    return paste.with_python(context, python, text)


PYTHON_OF_OLD_RELEASES = "3.8"
"""A Python for which the releases of torch before the catalog's first one have wheels."""


def _newest_python_for(context: RuleContext, release: str) -> str:
    """The newest Python for which a release of torch has wheels on this system, or the usual one
    if the catalog does not know the release."""
    builds = _builds_here(context, _builds(context, release))
    # "3.13t" is a Python without the GIL, which few packages support.
    pythons = {tag for build in builds for tag in build.pythons if not tag.endswith("t")}
    is_old = parsed(release) < parsed(context.catalog.releases[0].torch)
    return max(pythons, key=parsed, default=PYTHON_OF_OLD_RELEASES if is_old else USUAL_PYTHON)


def _builds(
    context: RuleContext, release: str | None, backend: str | None = None
) -> list[TorchBuild]:
    """The builds on PyTorch's index of a release and for a backend; None means any."""
    return [
        build
        for build in context.catalog.builds
        if build.channel == "pytorch"
        and release in (None, build.torch)
        and backend in (None, build.backend)
    ]


def _builds_here(context: RuleContext, builds: list[TorchBuild]) -> list[TorchBuild]:
    """Those builds that fit this operating system and processor, as far as these are known."""
    os = context.os
    return [
        build
        for build in builds
        if os.family in (None, build.os) and os.machine in (None, build.machine)
    ]


def _cause_of(context: RuleContext, event: Event, requested: str) -> str:
    """The id of the cause of a message: the index, system, Python, or `ANOTHER_PACKAGE`."""
    name, _, _ = requirement(requested)
    if event.kind == "wrong-index":
        return "wrong-index"
    if event.kind == "conda-not-found":
        return "no-wheel-for-platform" if context.os.family == "macos" else "wrong-index"
    if event.kind == "wheel-not-supported":
        return _tag_that_fails(context, requested)
    if event.kind == "no-matching-distribution":
        # The catalog contains only the releases of torch, torchvision and torchaudio.
        in_catalog = name in FAMILY
        return _why_no_release(context, event, requested) if in_catalog else ANOTHER_PACKAGE
    # The remaining case: the installer knows the release but has no file of it for this machine.
    is_in_torchs_index = name.startswith(ON_TORCHS_INDEX)
    if not is_in_torchs_index and event.kind == "no-wheel-for-platform":
        # PyTorch's index has a few other packages too, each in a few builds only.
        return "wrong-index" if "index" in event.values else "no-wheel-for-platform"
    # Some of uv's messages name no package. They count as messages about torch.
    if not is_in_torchs_index and name:
        return ANOTHER_PACKAGE
    # Some releases in the range may lack this Python and others this system. Another Python is the
    # easier fix.
    return "python-no-wheel" if events(context, "python-no-wheel") else "no-wheel-for-platform"


def _why_no_release(context: RuleContext, event: Event, requested: str) -> str:
    """The cause if an index has no release that fits a requirement of torch's family."""
    name, version, label = requirement(requested)
    backend = label or index_label(event)
    # No label of CUDA, ROCm or XPU has wheels for macOS, whatever the Python.
    if context.os.family == "macos" and maker_of(backend):
        return "no-wheel-for-platform"
    is_unknown_cuda = (backend or "").startswith("cu") and backend not in context.catalog.backends
    # Nightly builds are deleted after some weeks.
    if is_unknown_cuda or ".dev" in (version or ""):
        return "wrong-index"
    # The releases of torchvision and torchaudio have other numbers than the builds of torch.
    builds = _builds(context, version if name == "torch" else None, backend)
    builds_here = _builds_here(context, builds)
    if builds and not builds_here:
        return "no-wheel-for-platform"
    # The versions in the message ("from versions: 2.4.0+cpu, 2.5.1"), without their labels.
    words = re.split(r"[,\s]+", event.values.get("versions", ""))
    offered = sorted(parsed(word.partition("+")[0]) for word in words if word[:1].isdigit())
    # Inside the range of the offered releases, one with this number or label was never made. If
    # only older or newer ones are offered, the Python has wheels of those releases alone.
    is_inside = bool(offered) and offered[0] <= parsed(version or "0") <= offered[-1]
    # The index that was asked lacks what PyTorch's index has for this Python.
    python = python_tag(context.snapshot)
    is_made = not offered and any(python in build.pythons for build in builds_here)
    return "wrong-index" if is_inside or is_made else "python-no-wheel"


def _tag_that_fails(context: RuleContext, wheel: str) -> str:
    """Why a wheel's tags do not fit: its glibc is too new, or its platform or Python differs."""
    # `torch-2.6.0-cp311-cp311-manylinux_2_28_x86_64.whl` needs glibc 2.28.
    libc_needed = re.search(r"manylinux_2_(\d+)", wheel)
    libc_here = re.search(r"glibc 2\.(\d+)", context.os.libc or "")
    if libc_needed and libc_here and int(libc_here[1]) < int(libc_needed[1]):
        return "glibc-too-old"
    # An unknown Python counts as one that differs.
    python = (python_tag(context.snapshot) or "").replace(".", "")
    return "no-wheel-for-platform" if f"-cp{python}-" in wheel else "python-no-wheel"


# --- what an installer looked for -----------------------------------------------------------------


def requirement(text: str) -> tuple[str, str | None, str | None]:
    """Name, exact version and local label of a requirement; a version or a label that it lacks is
    None.

    >>> requirement("torch==2.5.1+cu124"), requirement("torch (2.5.1+cu124)")
    (('torch', '2.5.1', 'cu124'), ('torch', '2.5.1', 'cu124'))
    >>> requirement("Torchvision>=0.20")
    ('torchvision', None, None)
    """
    name = re.match(r"[A-Za-z0-9._-]*", text.strip())
    project = normalised(name[0] if name else "")
    pin = re.search(r"(?:==\s*| \()([0-9][^,;\s+)]*)(?:\+([A-Za-z0-9.]+))?", text)
    return (project, pin[1], pin[2]) if pin else (project, None, None)


def index_label(event: Event) -> str | None:
    """The backend in an index's address (`https://download.pytorch.org/whl/cu128/`), or None."""
    address = event.values.get("index", "").strip()
    last_folder = re.search(rf"(?:^|/)({LABEL})/?$", address)
    return last_folder[1] if last_folder else None


RULES = (no_file,)
