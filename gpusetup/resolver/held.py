"""The torch that is installed, as a build, and whether it serves the machine as it is. Pure."""

from __future__ import annotations

from gpusetup.accelerators.makers import is_seen_only, maker_of
from gpusetup.catalog.builds import Catalog, index_url
from gpusetup.catalog.companions import UNREAD, beside, default_backend
from gpusetup.catalog.kernels import readable, served
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Snapshot, Torch
from gpusetup.model.resolution import Resolution, TorchBuild
from gpusetup.model.versions import cuda_of
from gpusetup.resolver.constraints import covers_every_gpu, driver_reaches
from gpusetup.resolver.situation import Situation


def public(version: str | None) -> str:
    """A version without its local label.

    >>> public("2.5.1+cu124")
    '2.5.1'
    """
    return (version or "").partition("+")[0]


def _backend_of(torch: Torch) -> str | None:
    """The backend of the installed torch: as read, else from its label or its CUDA."""
    label = (torch.version or "").partition("+")[2].lower()
    named = label if label == "cpu" or cuda_of(label) or maker_of(label) else None
    of_cuda = "cu" + "".join(torch.cuda.split(".")[:2]) if torch.cuda else None
    return torch.backend or named or of_cuda


def backend_held(machine: Snapshot, catalog: Catalog) -> str:
    """The backend of an installed torch: as read, else as what is known says, else `UNREAD`.

    A text shows no environment, so nothing is concluded from it; conda and a Jetson have torch
    from elsewhere than the default index.
    """
    torch = machine.torch
    elsewhere = machine.os.jetson or torch.installer == "conda" or machine.origin == "report"
    if (read := _backend_of(torch)) or elsewhere:
        return read or UNREAD
    version, place = torch.version or "0", (machine.os.family or "", machine.os.machine or "")
    return default_backend(catalog, version, *place) or UNREAD


def held_build(machine: Snapshot, host: Situation) -> TorchBuild | None:
    """The installed torch as a build: the catalog's row, else what was read of it; None: none.

    A nightly, a vendor's or one's own build has no row: its companions are not known then. What
    a text does not say of a torch leaves the answer to what the text asks for.
    """
    torch, catalog, place = machine.torch, host.catalog, (host.family, host.machine)
    backend = backend_held(machine, catalog)
    if not torch.version or torch.installed is False:
        return None
    if backend == UNREAD and machine.origin == "report":
        return None
    row = catalog.row_of(torch.version, backend, *place)
    cuda = row.cuda if row else torch.cuda or cuda_of(backend)
    own = catalog.release_of(torch.version) if torch.installer == "conda" else None
    build = row or TorchBuild(
        torch=public(torch.version),
        backend=backend,
        cuda=cuda,
        os=host.family,  # type: ignore[arg-type]
        machine=host.machine,
        pythons=(),
        kernels=(),
        labelled="+" in torch.version,
        torchvision=own.torchvision if own else None,
        torchaudio=own.torchaudio if own else None,
    )
    codes = readable(torch.kernels) if torch.kernels else (*build.kernels, *build.ptx)
    return replace(
        build,
        kernels=tuple(code for code in codes if code.startswith("sm_")),
        ptx=tuple(code for code in codes if code.startswith("compute_")),
        driver_floor=catalog.driver_floor(cuda, host.floors) if cuda else None,
        torchaudio=beside(catalog, "torchaudio", build) if row else build.torchaudio,
    )


def serves(build: TorchBuild, machine: Snapshot, host: Situation) -> bool:
    """Whether the installed build does what it can on this machine, as far as is known.

    An accelerator build on a machine without such a GPU serves nothing; a CPU build serves a
    machine that has no NVIDIA GPU; what is not known is not held against it.
    """
    maker = maker_of(build.backend)
    covers = not (build.kernels or build.ptx) or covers_every_gpu(build, host) is None
    if machine.torch.cuda_available:  # its driver starts, which says nothing of its kernels
        return covers
    if build.backend == UNREAD:
        return True
    if is_seen_only(maker):
        return host.presence != "some" and maker in vendors_of(machine)
    if maker is None:
        return host.presence == "none" or host.family == "macos"
    return host.presence != "none" and covers and driver_reaches(build, host) is None


def vendors_of(machine: Snapshot) -> frozenset[str]:
    """Whose devices the PCI bus shows, or a text names."""
    named = (e.values.get("vendor", "") for e in machine.events if e.kind == "foreign-gpu")
    return frozenset((*(device.vendor for device in machine.pci_devices or ()), *named))


def as_it_is(build: TorchBuild, host: Situation) -> Resolution:
    """The installed build as a resolution: nothing is chosen, nothing is in its place."""
    return Resolution(
        build=build,
        index_url=None if build.backend == UNREAD else index_url(build.backend),
        served=served(build, host.gpus, host.driver_cuda),
        catalog_as_of=host.catalog.as_of,
    )
