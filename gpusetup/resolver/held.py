"""The torch that is installed, as a build, and whether it serves the machine as it is. Pure."""

from __future__ import annotations

import re

from gpusetup.accelerators.makers import is_seen_only, maker_of
from gpusetup.catalog.builds import Catalog, index_url
from gpusetup.catalog.companions import beside
from gpusetup.catalog.default_wheels import UNREAD, backend_beside, default_backend
from gpusetup.catalog.kernels import served_by
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Snapshot, Torch
from gpusetup.model.resolution import Resolution, Served, TorchBuild
from gpusetup.model.versions import cuda_of
from gpusetup.resolver.constraints import covers_every_gpu, driver_reaches
from gpusetup.resolver.situation import Situation


def public(version: str | None) -> str:
    """A version without its local label.

    >>> public("2.5.1+cu124")
    '2.5.1'
    """
    return (version or "").partition("+")[0]


def backend_of(torch: Torch) -> str | None:
    """The backend of the installed torch: as read, else from its label or its CUDA."""
    if torch.backend:
        return torch.backend
    label = (torch.version or "").partition("+")[2].lower()
    if label == "cpu" or cuda_of(label) or maker_of(label):
        return label
    return "cu" + "".join(torch.cuda.split(".")[:2]) if torch.cuda else None


def backend_held(machine: Snapshot, catalog: Catalog) -> str:
    """The backend of an installed torch: as read, else as what is known says, else `UNREAD`.

    A text shows no environment, so nothing is concluded from it; conda and a Jetson have torch
    from elsewhere than the default index.
    """
    torch = machine.torch
    elsewhere = machine.os.jetson or torch.installer == "conda" or machine.origin == "report"
    if (read := backend_of(torch)) or elsewhere:
        return read or UNREAD
    version, place = torch.version or "0", (machine.os.family or "", machine.os.machine or "")
    usual = default_backend(catalog, version, *place)
    beside = backend_beside(machine.packages or ()) if usual and cuda_of(usual) else None
    if beside and catalog.row_of(version, beside, *place):
        return beside
    return usual or UNREAD


def concluded(machine: Snapshot, catalog: Catalog) -> str | None:
    """In words, where nothing that was read says for which GPUs the installed torch is."""
    torch = machine.torch
    if not torch.version or torch.installed is False or backend_of(torch) is not None:
        return None
    if machine.os.family == "macos":  # its wheels are all of one kind
        return None
    backend = backend_held(machine, catalog)
    if backend == UNREAD:
        return f"for which GPUs torch {torch.version} was built could not be read"
    return (
        f"which CUDA torch {torch.version} was built with could not be read: it counts as "
        f"{backend}, as the default index has it for this platform"
    )


ARCHITECTURE = r"(sm|compute)_\d{2,3}[af]?"
"""A code that names one; what else a snapshot lists was written by strangers."""


def held_build(machine: Snapshot, situation: Situation, catalog: Catalog) -> TorchBuild | None:
    """The installed torch as a build: the catalog's row, else what was read of it; None: none.

    A nightly, a vendor's or one's own build has no row: its companions are not known then. What
    a text does not say of a torch leaves the answer to what the text asks for.
    """
    torch = machine.torch
    if not torch.version or torch.installed is False:
        return None
    backend = backend_held(machine, catalog)
    if backend == UNREAD and machine.origin == "report":
        return None
    floors = "windows" if situation.wsl else situation.family
    row = catalog.row_of(torch.version, backend, situation.family, situation.machine)
    if row is not None:
        row = _of_conda(row, catalog) if torch.installer == "conda" else row
        floor = catalog.driver_floor(row.cuda, floors) if row.cuda else None
        audio = beside(catalog, "torchaudio", row)
        return replace(row, torchaudio=audio, driver_floor=floor)
    cuda = torch.cuda or cuda_of(backend)
    own = catalog.release_of(torch.version) if torch.installer == "conda" else None
    kernels = tuple(k for k in torch.kernels or () if re.fullmatch(ARCHITECTURE, k))
    return TorchBuild(
        torch=public(torch.version),
        backend=backend,
        cuda=cuda,
        os="linux" if situation.family == "linux" else situation.family,  # type: ignore[arg-type]
        machine=situation.machine,
        pythons=(),
        kernels=tuple(k for k in kernels if k.startswith("sm_")),
        ptx=tuple(k for k in kernels if k.startswith("compute_")),
        driver_floor=catalog.driver_floor(cuda, floors) if cuda else None,
        labelled="+" in torch.version,
        torchvision=own.torchvision if own else None,
        torchaudio=own.torchaudio if own else None,
    )


def _of_conda(row: TorchBuild, catalog: Catalog) -> TorchBuild:
    """A build as conda's channels have it, which is for other architectures than the wheel."""
    for channel in ("conda-pytorch", "conda-forge"):
        own = catalog.row_of(row.torch, row.backend, row.os, row.machine, channel)
        if own is not None:
            return replace(row, kernels=own.kernels, ptx=own.ptx)
    return row


def serves(build: TorchBuild, machine: Snapshot, situation: Situation) -> bool:
    """Whether the installed build does what it can on this machine, as far as is known.

    An accelerator build on a machine without such a GPU serves nothing; a CPU build serves a
    machine that has no NVIDIA GPU; what is not known is not held against it.
    """
    known = bool(build.kernels or build.ptx)
    if machine.torch.cuda_available:  # its driver starts, which says nothing of its kernels
        return not known or covers_every_gpu(build, situation) is None
    maker = maker_of(build.backend)
    if build.backend == UNREAD:
        return True
    if is_seen_only(maker):
        return situation.presence != "some" and maker in vendors_of(machine)
    if maker is None:
        return situation.presence == "none" or situation.family == "macos"
    if situation.presence == "none":
        return False
    reasons = (
        driver_reaches(build, situation),
        covers_every_gpu(build, situation) if known else None,
    )
    return not any(reasons)


def vendors_of(machine: Snapshot) -> frozenset[str]:
    """Whose devices the PCI bus shows, or a text names."""
    named = (e.values.get("vendor", "") for e in machine.events if e.kind == "foreign-gpu")
    return frozenset((*(device.vendor for device in machine.pci_devices or ()), *named))


def as_it_is(build: TorchBuild, situation: Situation, notes: tuple[str, ...] = ()) -> Resolution:
    """The installed build as a resolution: nothing is chosen, nothing is in its place."""
    served = tuple(
        Served(gpu=gpu.name, compute_capability=gpu.compute_capability, by=by)
        for gpu in situation.gpus
        if gpu.compute_capability is not None
        and (by := served_by(build, gpu.compute_capability, situation.driver_cuda)) is not None
    )
    return Resolution(
        build=build,
        index_url=None if build.backend == UNREAD else index_url(build.backend),
        served=served,
        notes=notes,
        catalog_as_of=situation.catalog_as_of,
    )
