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
    is_report = machine.origin == "report"
    if is_a_step_back(machine):
        machine = replace(machine, wanted=Wanted())
    wanted, version = machine.wanted, machine.torch.version
    kinds = {event.kind for event in machine.events}
    cuda = wanted.cuda
    # If the report shows a torch, extensions must be built for that torch's CUDA version.
    if not version and "cuda-toolkit-mismatch-extension-build" in kinds:
        cuda = cuda or machine.toolkit.nvcc
    backend = shown_backend(machine, cuda, catalog)
    if not is_report:
        yield Wish(torch=wanted.torch, backend=backend)
        return
    # The author of a report usually wants the installed torch version to work.
    installed = f"=={public(version)}" if version else None
    torch = wanted.torch or installed or torch_of_companion(machine, catalog)
    # An index that has any versions of a package lists them in pip's message. If the requested
    # build exists, the index refused it for another reason.
    is_refused = "wrong-index" in kinds or any(
        event.kind == "no-matching-distribution" and not event.values.get("versions")
        for event in machine.events
    )
    exists = ((torch or "").removeprefix("=="), backend) in {
        (row.torch, row.backend) for row in catalog.builds
    }
    strict = []
    number = parsed(cuda or "0")
    if number.major and not wanted.backend:
        # Building an extension needs an nvcc of torch's CUDA major version, best one that is not
        # older than torch's CUDA, because it then knows all that torch's headers use.
        versions = {one: parsed(cuda_of(one) or "0") for one in catalog.backends}
        strict = [one for one, its in versions.items() if its.major == number.major]
        strict.sort(
            key=lambda one: (versions[one] > number, abs(versions[one].minor - number.minor))
        )
    wishes = (
        *(Wish(torch=torch, backend=one) for one in strict or [backend]),
        *(Wish(backend=one) for one in strict),
        Wish(torch=torch),
        Wish(torch=installed),
        Wish(),
    )
    for wish in dict.fromkeys(wishes):
        if wish.backend == "auto" or exists or not is_refused:
            yield wish


def shown_backend(machine: Snapshot, cuda: str | None, catalog: Catalog) -> str:
    """The backend that the snapshot requests by name or by a CUDA version; for a report, also the
    one in the label of its companions. `auto` if any is accepted."""
    torch, packages = machine.torch, installed_packages(machine)
    is_report = machine.origin == "report"
    digits = (cuda or "").replace(".", "")
    # For example, `12.4` becomes `cu124`.
    backend = machine.wanted.backend or (f"cu{digits}" if digits else "auto")
    # A torch with a GPU label is the one that fails, so any other may be right. Without such a
    # label, its companions show which index was meant.
    if is_report and backend == "auto" and torch.backend in (None, "cpu"):
        versions = [packages[name].version for name in COMPANIONS if name in packages]
        labels = [version.partition("+")[2] for version in versions]
        # A vendor's label does not name a backend.
        backend = next((label for label in labels if cuda_of(label)), "auto")
    if backend not in catalog.backends:
        return "auto"
    # If a CPU build is installed on a machine with a GPU, the author probably asks why the GPU is
    # not used, and needs another build.
    has_gpu = bool(machine.gpus or machine.driver.version)
    is_about_cpu = backend == "cpu" and torch.backend == "cpu" and has_gpu
    # A CUDA build cannot work on a machine without an NVIDIA GPU, even if the user asks for it.
    is_without_gpu = cuda_of(backend) is not None and machine.gpus == ()
    return "auto" if is_report and (is_about_cpu or is_without_gpu) else backend


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
