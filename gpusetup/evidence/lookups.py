"""What an installer looked for: the requirement, and the index that it searched."""

from __future__ import annotations

import re
from typing import NamedTuple

from gpusetup.accelerators.makers import LABEL, is_seen_only, maker_of
from gpusetup.catalog.builds import Catalog
from gpusetup.model.builds import FAMILY
from gpusetup.model.machine import Event
from gpusetup.model.versions import parsed
from gpusetup.readings.packages import normalised


def requirement(text: str) -> tuple[str, str | None, str | None]:
    """Name, exact version and local label of a requirement.

    >>> requirement("torch==2.5.1+cu124"), requirement("Torchvision>=0.20")
    (('torch', '2.5.1', 'cu124'), ('torchvision', None, None))
    >>> requirement("torch (2.5.1+cu124)")
    ('torch', '2.5.1', 'cu124')
    """
    name = re.match(r"[A-Za-z0-9._-]*", text.strip())
    project = normalised(name[0] if name else "")
    pin = re.search(r"(?:==\s*| \()([0-9][^,;\s+)]*)(?:\+([A-Za-z0-9.]+))?", text)
    if pin is None:
        return project, None, None
    return project, pin[1], pin[2]


def index_label(event: Event) -> str | None:
    """The backend in the address of an index: `https://download.pytorch.org/whl/nightly/cu128/`."""
    address = event.values.get("index", "").strip()
    last_folder = re.search(rf"(?:^|/)({LABEL})/?$", address)
    return last_folder[1] if last_folder else None


class Lookup(NamedTuple):
    """What an installer looked for among PyTorch's builds for AMD or Intel GPUs."""

    package: str
    """torch, torchvision or torchaudio."""
    version: str | None
    """The package's exact version."""
    torch: str | None
    """The release of torch that belongs to this version; None if it is unknown."""
    label: str
    """The label of the builds: `rocm5.6`, `xpu`."""
    maker: str
    """`amd` or `intel`."""
    offered: tuple[str, ...]
    """The releases of the package that the index offers to this Python and system, the oldest
    first; () if it offers none, or the message lists none."""


def lookup_in(event: Event, catalog: Catalog) -> Lookup | None:
    """What an installer looked for, if it was a build for AMD or Intel GPUs; None otherwise."""
    name, version, label = requirement(event.values.get("requirement", ""))
    listed = [version.partition("+") for version in _versions_listed(event)]
    # All releases on an index of other makers share its label (`2.2.0+rocm5.6, 2.2.1+rocm5.6`).
    labels = {label for _, _, label in listed}
    label = label or index_label(event) or (labels.pop() if len(labels) == 1 else None) or None
    maker = maker_of(label)
    if label is None or maker is None or not is_seen_only(maker):
        return None
    # pip prints a name alone for `torch==`. A message about an index names no package at all.
    if (name or "torch") not in FAMILY:
        return None
    return Lookup(
        package=name or "torch",
        version=version,
        torch=torch_of(catalog, name, version),
        label=label,
        maker=maker,
        offered=tuple(dict.fromkeys(releases_offered(event))),
    )


def torch_of(catalog: Catalog, name: str, version: str | None) -> str | None:
    """The torch to which a release of torchvision or torchaudio belongs; None if unknown."""
    if name in ("torch", "") or version is None:
        return version
    for release in catalog.releases:
        if getattr(release, name, None) == version:
            return release.torch
    return None


def releases_offered(event: Event) -> list[str]:
    """The releases in an installer's message, the oldest first."""
    return sorted((version.partition("+")[0] for version in _versions_listed(event)), key=parsed)


def _versions_listed(event: Event) -> list[str]:
    """The versions in an installer's message ("from versions: ..."), with their labels."""
    words = re.split(r"[,\s]+", event.values.get("versions", ""))
    return [word for word in words if word[:1].isdigit()]
