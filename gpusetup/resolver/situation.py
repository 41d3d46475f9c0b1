"""Snapshot and request as the resolver reads them: parsed once, judged many times."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from gpusetup.accelerators.makers import judged_on
from gpusetup.catalog.builds import Catalog, Channel, completed
from gpusetup.catalog.facts import JetPack, pci_name
from gpusetup.catalog.jetpack import board_of, jetpack_of
from gpusetup.errors import UsageError
from gpusetup.model.frozen import Frozen
from gpusetup.model.machine import Gpu, Snapshot, visible_gpus
from gpusetup.model.resolution import Request
from gpusetup.model.versions import allows, parsed

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet

CONDA_CHANNELS: tuple[Channel, ...] = ("conda-pytorch", "conda-forge")
WHEELS: tuple[Channel, ...] = ("pytorch",)
CHANNELS = (*WHEELS, *CONDA_CHANNELS)
"""Of the same torch the one from the previous channel is taken."""


class Situation(Frozen):
    """What the constraints look at: the machine, the request and the catalog, parsed once."""

    catalog: Catalog
    family: str
    machine: str
    floors: str
    """Whose numbers the driver has: `windows` on WSL."""
    python: str | None
    """`3.11`, `3.13t`; None when unknown."""
    python_bits: int | None
    libc: str | None
    """`glibc 2.35`, `musl 1.2.5`; None when unknown."""
    macos: str | None
    driver: str | None
    driver_cuda: str | None
    """The newest CUDA that the driver serves; None when the driver is unknown."""
    trusts_cuda: bool
    """Whether the driver's CUDA decides instead of its version (cuda-compat lifts it)."""
    jetpack: JetPack | None
    """The release of a Jetson, whose driver is numbered apart."""
    board: str | None
    """What says that this is a Jetson."""
    gpus: tuple[Gpu, ...]
    first_drivers: tuple[tuple[str, str], ...]
    """GPUs that no driver listed, and the first driver that knows each: `("RTX 5090", "570")`."""
    presence: Literal["some", "none", "unknown"]
    """Whether there is an NVIDIA GPU; `none` only if a source said so."""
    torch: str | None
    """As it was asked for."""
    backend: str
    channels: tuple[Channel, ...]
    assumed_driver: str | None = None
    """What an unknown driver is taken to reach; None for a known one."""

    def takes(self, torch: str) -> bool:
        """Whether the request allows a torch."""
        return _allows(self.torch, torch)


def situation_of(snapshot: Snapshot, request: Request, catalog: Catalog) -> Situation:
    """Snapshot and request as the constraints read them."""
    os, driver, gpus = snapshot.os, snapshot.driver, gpus_to_serve(snapshot, catalog)
    jetson = board_of(snapshot)
    jetpack, first = jetpack_of(jetson), first_drivers(snapshot, catalog)
    floors, presence = driver_family(snapshot), "some" if gpus else "unknown"
    cuda = driver.cuda or (jetpack and jetpack.cuda)
    if not (driver.cuda or driver.version) and (snapshot.gpus == () or os.family == "macos"):
        presence = presence.replace("unknown", "none")
    assumed = None
    if not (driver.version or driver.cuda or jetson):
        # The last CUDA major but one, and what each GPU needs to start.
        families = sorted((f for row in catalog.families if (f := row.on(floors))), key=parsed)
        known = (*families[-2:-1], *(one for _, one in first))
        assumed = max(known, key=parsed, default=None)
    return Situation(
        catalog=catalog,
        family=os.family or "linux",
        machine=os.machine or "x86_64",
        floors=floors,
        python=python_tag(snapshot),
        python_bits=snapshot.python.bits,
        libc=os.libc,
        macos=os.version if os.family == "macos" else None,
        driver=driver.version,
        driver_cuda=cuda or (catalog.driver_cuda(driver.version) if driver.version else None),
        trusts_cuda=not driver.version or bool(snapshot.container.cuda_compat_path or jetson),
        jetpack=jetpack,
        board=jetson,
        gpus=tuple(Gpu(name=g.name, compute_capability=g.compute_capability) for g in gpus),
        first_drivers=first,
        presence=presence,  # type: ignore[arg-type]
        torch=request.torch,
        backend=label_of(request.torch) or request.backend,
        channels=CONDA_CHANNELS if request.installer == "conda" else WHEELS,
        assumed_driver=assumed,
    )


def driver_family(snapshot: Snapshot) -> str:
    """Whose driver numbers count: WSL uses the driver of Windows."""
    return "windows" if snapshot.os.wsl else snapshot.os.family or "linux"


def python_tag(snapshot: Snapshot) -> str | None:
    """The interpreter as wheels name it: `3.11`, `3.13t`; None when unknown."""
    version = snapshot.python.version or ""
    free = snapshot.python.free_threaded or version.endswith("t")
    found = re.match(r"\d+\.\d+", version)
    return f"{found[0]}{'t' if free else ''}" if found else None


def gpus_to_serve(snapshot: Snapshot, catalog: Catalog) -> tuple[Gpu, ...]:
    """The GPUs to serve: the visible ones; all if a variable hides every one; else PCI's."""
    present = tuple(gpu for gpu in snapshot.gpus or () if not gpu.lost)
    found = (present and visible_gpus(snapshot)) or present
    if not found:  # a board by its id, else by its PCI name: `GA107M [GeForce RTX 3050]`
        seen = [
            d.name or pci_name(d.device_id) or "NVIDIA GPU" for d in judged_on(snapshot.pci_devices)
        ]
        names = (name.partition("[")[2].partition("]")[0] or name for name in seen)
        found = tuple(Gpu(name=name) for name in names)
    return tuple(completed(gpu, catalog)[0] for gpu in found)


def first_drivers(snapshot: Snapshot, catalog: Catalog) -> tuple[tuple[str, str], ...]:
    """The GPUs that no driver listed, each with the first driver that knows it.

    A GPU that a driver listed is known to it; the driver of a Jetson is numbered apart.
    """
    if board_of(snapshot):
        return ()
    unlisted = (
        gpu
        for gpu in gpus_to_serve(snapshot, catalog)
        if not gpu.uuid and gpu.nvml_index is None and gpu.cuda_index is None
    )
    floors = driver_family(snapshot)
    found = ((gpu.name, catalog.first_driver(gpu, floors)) for gpu in unlisted)
    return tuple(dict.fromkeys((name, first) for name, first in found if first))


def _plain(text: str | None) -> str | None:
    """The specifier of the torch that is asked for, as a text."""
    plain = (text or "").strip().removeprefix("torch").strip().split("+")[0]
    if not plain or plain == "latest":
        return None
    if plain[0].isdigit():
        return f"=={plain}.*" if plain.count(".") < 2 and "*" not in plain else f"=={plain}"
    return plain


def specifier(text: str | None) -> SpecifierSet | None:
    """The torch that is asked for; UsageError if the text is no version or specifier.

    A bare version means that version, `2.5` its newest patch; a local label is set aside.

    >>> str(specifier("2.5")), str(specifier("torch==2.5.1+cu124")), str(specifier(">=2.6,<2.9"))
    ('==2.5.*', '==2.5.1', '<2.9,>=2.6')
    """
    plain = _plain(text)
    if plain is None:
        return None
    from packaging.specifiers import SpecifierSet

    try:
        return SpecifierSet(plain)
    except ValueError:
        raise UsageError(
            f"{text!r} is no torch version",
            hint="such as `2.5.1` or `>=2.6,<2.9`; for a nightly build, `gpusetup resolve --torch "
            "nightly` prints the commands",
        ) from None


def label_of(text: str | None) -> str | None:
    """The backend in a torch that is asked for: `cu124` in `2.5.1+cu124`."""
    return text.partition("+")[2].strip().lower() or None if text else None


@lru_cache(maxsize=4096)
def _allows(asked: str | None, torch: str) -> bool:
    """With a memory: every row of the catalog asks it of every machine."""
    wanted = _plain(asked)
    try:
        return wanted is None or allows(wanted, torch)
    except ValueError:  # an unreadable one matches nothing
        return False
