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

NAMED = ("requirement", "index", "package", "wheel")
"""The values of an installer's message that say what it looked for."""
OURS = (*FAMILY, "triton", "nvidia-", "pytorch")
"""How the names of packages begin that PyTorch's own index offers."""


def no_file(context: RuleContext) -> Findings:
    """An installer found no matching file: the finding says for which package, and why."""
    # There are no wheels for a 32-bit Python, and another finding reports that.
    if context.snapshot.python.bits == 32:
        return
    findings: dict[str, Finding] = {}
    for message in sorted(events(context, *KINDS), key=lambda message: KINDS.index(message.kind)):
        requested = next((message.values[name] for name in NAMED if name in message.values), "")
        cause = _cause_of(context, message, requested)
        if cause not in findings:
            findings[cause] = finding(
                context,
                cause or "wrong-index",
                events(context, message.kind),
                fix=_fix_for(context, cause, requested, message),
                asked=requested.strip("=<>~! ") or "torch",
                what="this system",
            )
    # Prefer a message about torch.
    if len(findings) > 1:
        findings.pop(NOT_FOUND, None)
    yield from findings.values()


NOT_FOUND = ""
"""In place of a cause's id: an index has no file of a package other than torch."""


ITS_INDEX = (
    "Check the package's name and version. In a conda environment file, remove the builds, the "
    "part after the second `=`. Use PyTorch's index for torch only, not as --index-url. In "
    "pyproject.toml, write `explicit = true` under [[tool.uv.index]] and a row of "
    "[tool.uv.sources] for torch, torchvision and torchaudio. With `uv pip` use --torch-backend"
)

ITS_INDEX_IS_EXPLICIT = (
    "uv took {package} from PyTorch's index, which has only a few builds of it. In pyproject.toml, "
    "write `explicit = true` under [[tool.uv.index]] for that index, and rows of [tool.uv.sources] "
    "for torch, torchvision and torchaudio, so that {package} comes from your default index again. "
    "`gpusetup install --project` writes both"
)


def _fix_for(context: RuleContext, cause: str, requested: str, event: Event) -> Fix | None:
    """The fix: another index, another Python, or an installation of the chosen build."""
    _, _, label = requirement(event.values.get("requirement", ""))
    maker = maker_of(label or index_label(event))
    # The maker's own newest build for this system, never another maker's.
    if maker and is_seen_only(maker):
        if on(context, "macos"):
            return makers.for_mac(context)
        return makers.build_for(context, BY_ID[maker], makers.target_of(context))
    if cause == NOT_FOUND:
        return Fix(text=ITS_INDEX)
    if cause == "wrong-index" and not _is_of_torch(requested):
        return Fix(text=ITS_INDEX_IS_EXPLICIT.format(package=requirement(requested)[0]))
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
    return name.startswith(OURS) and name not in BESIDE_TORCH


BESIDE_TORCH = ("torchcodec", "torch-geometric", "torch-scatter", "torch-sparse", "torch-cluster")
"""Packages whose names begin with torch but that have their own releases."""


def _without_its_wheel(context: RuleContext, requested: str) -> Fix:
    """A package other than torch has no wheel here, so torch stays as it is."""
    name, exact, _ = requirement(requested)
    machine = context.os.machine or "this processor"
    releases = paste.pip(context, "index", "versions", name)
    here = f"{name} {exact}" if exact else name
    return Fix(
        text=f"torch is not at fault, and stays. {here} has no wheel for {machine}: loosen its pin "
        f"to a release that has one, or leave it out on this system by a marker "
        f"(`; platform_machine != '{machine}'`). If you need this release, build it from source",
        looks=paste.titled("see its releases", releases) if context.installer != "uv" else (),
    )


def _other_python(context: RuleContext, requested: str) -> Fix:
    """Use a Python for which this torch has wheels, or a torch that has wheels for this Python."""
    name, exact, _ = requirement(requested)
    torch = exact if name in ("torch", "") else None
    is_file = requested.endswith(".whl")
    if torch is None and not is_file and context.snapshot.python.version and context.choice.build:
        return paste.install_torch(context, "Other releases have wheels for this Python. ")
    python = USUAL_PYTHON
    if of_file := re.search(r"-cp(\d)(\d{1,2})t?-", requested):
        # A wheel's own file name says for which Python it is.
        python = f"{of_file[1]}.{of_file[2]}"
    elif torch:
        # The newest Python with wheels of this torch on this system, or else on any. "3.13t" is a
        # Python without the GIL, which few packages support.
        tags = {tag for row in _rows(context, torch) for tag in row.pythons if tag[-1] != "t"}
        # Releases from before the catalog's first one have wheels for Python 3.8.
        is_older = parsed(torch) < parsed(context.catalog.releases[0].torch)
        python = max(tags, key=parsed, default="3.8" if is_older else python)
    text = (
        f"Create an environment with a 64-bit CPython {python}, or ask for a torch that has wheels "
        "for this one"
    )
    return paste.with_python(context, python, text)


def _rows(
    context: RuleContext, torch: str | None, backend: str | None = None, *, is_here: bool = True
) -> list[TorchBuild]:
    """The catalog's wheels for a release and a backend (None means any); with `is_here` only those
    that fit this operating system and processor, as far as these are known."""
    os = context.os
    return [
        row
        for row in context.catalog.builds
        if row.channel == "pytorch"
        and torch in (None, row.torch)
        and backend in (None, row.backend)
        and (not is_here or (os.family in (None, row.os) and os.machine in (None, row.machine)))
    ]


def _cause_of(context: RuleContext, event: Event, requested: str) -> str:
    """The id of the cause of an installer's message: the index, the package, the system or the
    Python."""
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
        return _why_no_release(context, event, requested) if in_catalog else NOT_FOUND
    # The remaining case: the installer knows the release but has no file of it for this machine.
    is_in_torchs_index = name.startswith(OURS)
    if not is_in_torchs_index and event.kind == "no-wheel-for-platform":
        # PyTorch's index has a few other packages too, each in a few builds only.
        return "wrong-index" if "index" in event.values else "no-wheel-for-platform"
    # Some of uv's messages name no package. They count as messages about torch.
    if not is_in_torchs_index and name:
        return NOT_FOUND
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
    torch = version if name == "torch" else None
    # The versions in the message ("from versions: ..."), without their labels.
    words = re.split(r"[,\s]+", event.values.get("versions", ""))
    offered = sorted(parsed(word.partition("+")[0]) for word in words if word[:1].isdigit())
    number = parsed(version or "0")
    exists = _rows(context, torch, backend, is_here=False)
    if exists and not _rows(context, torch, backend):
        return "no-wheel-for-platform"
    # Inside the range of the offered releases, one with this number or label was never made. If
    # only older or newer ones are offered, the Python has wheels of those releases alone.
    is_inside = bool(offered) and offered[0] <= number <= offered[-1]
    return "wrong-index" if is_inside else "python-no-wheel"


def _tag_that_fails(context: RuleContext, wheel: str) -> str:
    """The reason why a wheel's tags do not fit: its glibc is too new, its platform differs, or its
    Python does."""
    libc_needed = re.search(r"manylinux_2_(\d+)", wheel)
    libc_here = re.search(r"glibc 2\.(\d+)", context.os.libc or "")
    if libc_needed and libc_here and int(libc_here[1]) < int(libc_needed[1]):
        return "glibc-too-old"
    python = (python_tag(context.snapshot) or "").replace(".", "")
    return "no-wheel-for-platform" if f"-cp{python}-" in wheel else "python-no-wheel"


# --- what an installer looked for -----------------------------------------------------------------


def requirement(text: str) -> tuple[str, str | None, str | None]:
    """Name, exact version and local label of a requirement.

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
    """The backend in the address of an index: `https://download.pytorch.org/whl/nightly/cu128/`."""
    address = event.values.get("index", "").strip()
    last_folder = re.search(rf"(?:^|/)({LABEL})/?$", address)
    return last_folder[1] if last_folder else None


RULES = (no_file,)
