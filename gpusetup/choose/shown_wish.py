"""The request for torch that a machine or a pasted report shows, and the installer that its
environment uses. Pure functions.

A report often asks for a build that does not exist for its machine, which is why it was written. In
that case the request is relaxed: first its backend, at last its torch.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.catalog.builds import Catalog
from gpusetup.choose.installed import public
from gpusetup.choose.wish import Wish
from gpusetup.model.machine import Snapshot


def wishes_shown(machine: Snapshot, catalog: Catalog) -> Iterator[Wish]:
    """Yields the requests that a machine or a report shows, strictest first."""
    wanted, version = machine.wanted, machine.torch.version
    kinds = {event.kind for event in machine.events}
    cuda = wanted.cuda
    # If the report shows no torch, extensions need one for the CUDA version of their toolkit.
    if not version and "cuda-toolkit-mismatch-extension-build" in kinds:
        cuda = cuda or machine.toolkit.nvcc
    # For example, `12.4` becomes `cu124`.
    backend = wanted.backend or f"cu{(cuda or '').replace('.', '')}"
    backend = backend if backend in catalog.backends else "auto"
    if machine.origin != "report":
        yield Wish(torch=wanted.torch, backend=backend)
        return
    # The author of a report usually wants the installed torch version to work.
    installed = f"=={public(version)}" if version else None
    torch = wanted.torch or installed
    # An index that has any versions of a package lists them in pip's message. If the requested
    # build exists, the index refused it for another reason.
    is_refused = "wrong-index" in kinds or any(
        event.kind == "no-matching-distribution" and not event.values.get("versions")
        for event in machine.events
    )
    builds = {(row.torch, row.backend) for row in catalog.builds}
    exists = ((torch or "").removeprefix("=="), backend) in builds
    if backend == "auto" or exists or not is_refused:
        yield Wish(torch=torch, backend=backend)
    yield from dict.fromkeys((Wish(torch=torch), Wish(torch=installed), Wish()))


def shown_installer(machine: Snapshot) -> str:
    """The installer whose commands are shown: `uv`, `pip` or `conda`.

    It is the installer that installed torch; if that is unknown, the one that created the
    environment; failing that, any that is available.
    """
    manager, torch = machine.python.manager, machine.torch
    installed_by = (torch.installer or "").lower()
    # In a uv project, show uv's commands, because `uv sync` removes what pip installed.
    if manager == "uv project" and installed_by != "conda":
        return "uv"
    if installed_by in ("uv", "pip", "conda"):
        return installed_by
    # conda's torch has no label. Installing it over pip's torch, or over an unknown one, would mix
    # the two.
    is_unlabelled = torch.version is not None and "+" not in torch.version
    if manager == "conda" and machine.origin == "report" and not is_unlabelled:
        return "pip"
    if manager in ("uv", "conda"):
        return manager
    return "uv" if machine.python.has_pip is False else "pip"
