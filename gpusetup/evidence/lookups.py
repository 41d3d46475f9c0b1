"""What an installer looked for: the requirement, and the index that it searched."""

from __future__ import annotations

import re

from gpusetup.accelerators.makers import LABEL, is_seen_only, maker_of
from gpusetup.catalog.builds import Catalog
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


def maker_asked(event: Event) -> str | None:
    """The maker, AMD or Intel, for whose GPUs an installer looked for a build; None if none."""
    _, _, label = requirement(event.values.get("requirement", ""))
    maker = maker_of(label or index_label(event))
    return maker if is_seen_only(maker) else None


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
