"""The request for torch that a machine or a pasted report shows, and the installer that its
environment uses. Pure functions.

A report often asks for a build that does not exist for its machine, which is why it was written. In
that case the request is relaxed: first its backend, at last its torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from gpusetup.catalog.builds import Catalog
from gpusetup.catalog.companions import releases_with
from gpusetup.choose.host import is_a_step_back
from gpusetup.choose.installed import COMPANIONS, installed_packages, public
from gpusetup.choose.wish import Wish
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Snapshot, Wanted
from gpusetup.model.versions import cuda_of, parsed


def wishes_shown(machine: Snapshot, catalog: Catalog) -> Iterator[Wish]:
    """Yields the requests that a machine or a report shows, strictest first."""
    if machine.origin != "report":
        yield shown_wish(machine, catalog)
        return
    if is_a_step_back(machine):
        machine = replace(machine, wanted=Wanted())
    shown = shown_wish(machine, catalog)
    strict = [
        replace(shown, backend=backend) for backend in backends_for_extension(machine, catalog)
    ]
    wishes = [
        *(strict or [shown]),
        *(replace(wish, torch=None) for wish in strict),
        replace(shown, backend="auto"),
        Wish(torch=installed_release(machine)),
        Wish(),
    ]
    is_any_backend = is_at_fault(shown, machine, catalog)
    for wish in dict.fromkeys(wishes):
        if wish.backend == "auto" or not is_any_backend:
            yield wish


def is_at_fault(wish: Wish, machine: Snapshot, catalog: Catalog) -> bool:
    """Whether the requested build itself is the problem: the index refused it, and no such build
    ever existed."""
    # If an index has any versions of a package, pip lists them.
    is_refused = any(
        event.kind == "wrong-index"
        or (event.kind == "no-matching-distribution" and not event.values.get("versions"))
        for event in machine.events
    )
    build = ((wish.torch or "").removeprefix("=="), wish.backend)
    # If the requested build exists, the index refused it for another reason.
    return is_refused and build not in {(row.torch, row.backend) for row in catalog.builds}


def backends_for_extension(machine: Snapshot, catalog: Catalog) -> list[str]:
    """The backends for building an extension that needs a certain CUDA version, nearest first;
    empty if no version is needed or the user named a backend."""
    wanted = parsed(cuda_shown(machine) or "0")
    if not wanted.major or machine.wanted.backend:
        return []

    def distance(backend: str) -> tuple[bool, int]:
        # Prefer a CUDA version below nvcc's, because nvcc then knows all that torch's headers use.
        cuda = parsed(cuda_of(backend) or "0")
        return cuda > wanted, abs(cuda.minor - wanted.minor)

    # Building an extension needs an nvcc of torch's CUDA major version.
    majors = [one for one in catalog.backends if parsed(cuda_of(one) or "0").major == wanted.major]
    return sorted(majors, key=distance)


def cuda_shown(machine: Snapshot) -> str | None:
    """The CUDA version that a report asks for. Without one, it is nvcc's version if building an
    extension failed and no torch is shown; otherwise None."""
    if machine.wanted.cuda:
        return machine.wanted.cuda
    # If the report shows a torch, extensions must be built for that torch's CUDA version.
    if machine.torch.version:
        return None
    kinds = {event.kind for event in machine.events}
    return machine.toolkit.nvcc if "cuda-toolkit-mismatch-extension-build" in kinds else None


def shown_wish(machine: Snapshot, catalog: Catalog) -> Wish:
    """The request that the snapshot shows. For a report without a request, it is the release that
    is installed or that belongs to the installed companions."""
    torch = machine.wanted.torch
    if machine.origin == "report" and torch is None:
        # The author of a report usually wants the installed torch version to work.
        torch = installed_release(machine) or torch_of_companion(machine, catalog)
    return Wish(torch=torch, backend=shown_backend(machine, catalog))


def shown_backend(machine: Snapshot, catalog: Catalog) -> str:
    """The backend that the snapshot requests by name or by a CUDA version; for a report, also the
    one in the label of its companions. `auto` if any is accepted."""
    torch, packages = machine.torch, installed_packages(machine)
    is_report = machine.origin == "report"
    digits = (cuda_shown(machine) or "").replace(".", "")
    # For example, `12.4` becomes `cu124`.
    backend = machine.wanted.backend or (f"cu{digits}" if digits else "auto")
    if is_report and backend == "auto" and torch.backend in (None, "cpu"):
        versions = [packages[name].version for name in COMPANIONS if name in packages]
        labels = [version.partition("+")[2] for version in versions]
        # A vendor's label does not name a backend.
        backend = next((label for label in labels if cuda_of(label)), "auto")
    if backend not in catalog.backends:
        return "auto"
    if not is_report:
        return backend
    # If a CPU build is installed on a machine with a GPU, the author probably asks why the GPU is
    # not used, and needs another build.
    has_gpu = bool(machine.gpus or machine.driver.version)
    if backend == "cpu" and torch.backend == "cpu" and has_gpu:
        return "auto"
    # A CUDA build cannot work on a machine without an NVIDIA GPU, even if the user asks for it.
    if cuda_of(backend) and machine.gpus == ():
        return "auto"
    return backend


def installed_release(machine: Snapshot) -> str | None:
    """The installed torch version as a specifier (`==2.5.1`); None if no torch is installed."""
    version = machine.torch.version
    return f"=={public(version)}" if version else None


def torch_of_companion(machine: Snapshot, catalog: Catalog) -> str | None:
    """The newest torch, as a specifier, that works with the requested or installed torchvision or
    torchaudio; None if unknown."""
    packages = installed_packages(machine)
    requested, _, pinned = (machine.wanted.companion or "").partition("==")
    # A requested version counts more than an installed one.
    installed = [(name, packages[name].version) for name in COMPANIONS if name in packages]
    for name, version in ((requested, pinned), *installed):
        if not version:
            continue
        with suppress(ValueError):  # a version string from a report, which may be malformed
            releases = releases_with(catalog, [(name, f"=={public(version)}")])
            if releases:
                return f"=={releases[-1]}"
    return None


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
    is_report = machine.origin == "report"
    if is_report and machine.failing.program == "uv":
        return "uv"
    # conda's torch has no label. Installing it over pip's torch, or over an unknown one, would mix
    # the two.
    if is_report and manager == "conda" and (torch.version is None or "+" in torch.version):
        return "pip"
    if manager in ("uv", "conda"):
        return manager
    return "uv" if machine.python.has_pip is False else "pip"
