"""Snapshot and request as the resolver reads them: parsed once, judged many times."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from gpusetup.accelerators.makers import judged_on
from gpusetup.catalog.builds import Catalog, Channel, completed
from gpusetup.catalog.facts import JetPack
from gpusetup.catalog.jetpack import board_of, jetpack_of
from gpusetup.catalog.pci_names import board
from gpusetup.catalog.rows import Dropped
from gpusetup.errors import UsageError
from gpusetup.model.frozen import Frozen
from gpusetup.model.machine import Gpu, PciDevice, Snapshot, visible_gpus
from gpusetup.model.resolution import Request
from gpusetup.model.versions import allows, parsed

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet

CONDA_CHANNELS: tuple[Channel, ...] = ("conda-pytorch", "conda-forge")
WHEELS: tuple[Channel, ...] = ("pytorch",)
CHANNELS = (*WHEELS, *CONDA_CHANNELS)
"""Of the same torch the one from the former channel is taken."""


class Situation(Frozen):
    """What the constraints look at: the machine and the request, parsed once."""

    family: str
    machine: str
    wsl: bool
    """Whether the driver's number is the Windows host's."""
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
    dropped: tuple[Dropped, ...]
    """What libraries of later torch leave out, of the architectures that are here."""
    presence: Literal["some", "none", "unknown"]
    """Whether there is an NVIDIA GPU; `none` only where a source said so."""
    torch: str | None
    """Its specifier; None: any."""
    torch_text: str | None
    backend: str
    channels: tuple[Channel, ...]
    catalog_as_of: str
    assumed_driver: str | None = None
    """What an unknown driver is taken to reach; None for a known one."""


def situation_of(snapshot: Snapshot, request: Request, catalog: Catalog) -> Situation:
    """Snapshot and request as the constraints read them."""
    torch = _plain(request.torch)
    gpus = gpus_to_serve(snapshot, catalog)
    board = board_of(snapshot)
    jetpack = jetpack_of(board)
    driver = snapshot.driver
    unknown = not (driver.version or driver.cuda or board)
    first = first_drivers(snapshot, catalog)
    return Situation(
        family=snapshot.os.family or "linux",
        machine=snapshot.os.machine or "x86_64",
        wsl=bool(snapshot.os.wsl),
        python=python_tag(snapshot),
        python_bits=snapshot.python.bits,
        libc=snapshot.os.libc,
        macos=snapshot.os.version if snapshot.os.family == "macos" else None,
        driver=driver.version,
        driver_cuda=driver.cuda
        or (jetpack.cuda if jetpack else None)
        or _cuda_of_driver(driver.version, snapshot, catalog),
        trusts_cuda=driver.version is None
        or snapshot.container.cuda_compat_path is not None
        or board is not None,
        jetpack=jetpack,
        board=board,
        gpus=gpus,
        first_drivers=first,
        dropped=_dropped(gpus, catalog),
        presence=_presence(snapshot, gpus),
        torch=torch,
        torch_text=request.torch,
        backend=label_of(request.torch) or request.backend,
        channels=CONDA_CHANNELS if request.installer == "conda" else WHEELS,
        catalog_as_of=catalog.as_of,
        assumed_driver=_assumed_driver(snapshot, first, catalog) if unknown else None,
    )


def _assumed_driver(
    snapshot: Snapshot, first: tuple[tuple[str, str], ...], catalog: Catalog
) -> str | None:
    """What an unknown driver is taken to reach: the floor of the last CUDA major but one, and the
    first driver of each GPU, without which it does not start."""
    family = "windows" if snapshot.os.wsl else snapshot.os.family or "linux"
    floors = sorted((f for row in catalog.families if (f := row.on(family))), key=parsed)
    return max((*floors[-2:-1], *(one for _, one in first)), key=parsed, default=None)


def python_tag(snapshot: Snapshot) -> str | None:
    """The interpreter as wheels name it: `3.11`, `3.13t`; None when unknown."""
    version = snapshot.python.version
    if not version:
        return None
    major, _, rest = version.partition(".")
    minor = "".join(c for c in rest.split(".")[0] if c.isdigit())
    free = snapshot.python.free_threaded or version.endswith("t")
    return f"{major}.{minor}{'t' if free else ''}"


def _cuda_of_driver(version: str | None, snapshot: Snapshot, catalog: Catalog) -> str | None:
    return catalog.driver_cuda(version, snapshot.os.family or "linux") if version else None


def gpus_to_serve(snapshot: Snapshot, catalog: Catalog) -> tuple[Gpu, ...]:
    """The GPUs to serve: the visible ones; all where a variable hides every one; else PCI's."""
    present = tuple(gpu for gpu in snapshot.gpus or () if not gpu.lost)
    if present:
        return tuple(completed(gpu, catalog)[0] for gpu in visible_gpus(snapshot) or present)
    nvidia = judged_on(snapshot.pci_devices)
    return tuple(completed(Gpu(name=_on_the_bus(device)), catalog)[0] for device in nvidia)


def first_drivers(snapshot: Snapshot, catalog: Catalog) -> tuple[tuple[str, str], ...]:
    """The GPUs that no driver listed, each with the first driver that knows it.

    A GPU that a driver listed is known to it; the driver of a Jetson is numbered apart.
    """
    if board_of(snapshot):
        return ()
    family = "windows" if snapshot.os.wsl else snapshot.os.family or "linux"
    found = ((gpu.name, catalog.first_driver(gpu, family)) for gpu in _unlisted(snapshot, catalog))
    return tuple(dict.fromkeys((name, first) for name, first in found if first))


def _dropped(gpus: tuple[Gpu, ...], catalog: Catalog) -> tuple[Dropped, ...]:
    majors = {gpu.compute_capability.major for gpu in gpus if gpu.compute_capability}
    return tuple(row for row in catalog.dropped if row.major in majors)


def _unlisted(snapshot: Snapshot, catalog: Catalog) -> tuple[Gpu, ...]:
    """GPUs that are only named, or seen on the PCI bus by a driver that lists none."""
    named = tuple(
        gpu for gpu in snapshot.gpus or () if not (gpu.uuid or gpu.nvml_index is not None)
    )
    if snapshot.gpus:
        return tuple(completed(gpu, catalog)[0] for gpu in named if not gpu.lost)
    return tuple(gpu for gpu in gpus_to_serve(snapshot, catalog) if gpu.compute_capability)


def _on_the_bus(device: PciDevice) -> str:
    """A board by its id, else by what stands in its PCI name: `GA107M [GeForce RTX 3050]`."""
    name = device.name or board(device.device_id) or "NVIDIA GPU"
    inside = name.partition("[")[2].partition("]")[0]
    return inside or name


def _presence(snapshot: Snapshot, gpus: tuple[Gpu, ...]) -> Literal["some", "none", "unknown"]:
    if gpus:
        return "some"
    if snapshot.driver.version or snapshot.driver.cuda:
        return "unknown"
    return "none" if snapshot.gpus == () or snapshot.os.family == "macos" else "unknown"


def _plain(text: str | None) -> str | None:
    """The specifier of the torch that is asked for, as a text."""
    plain = (text or "").strip().removeprefix("torch").strip().split("+")[0]
    if not plain or plain == "latest":
        return None
    if plain[0].isdigit():
        return f"=={plain}.*" if plain.count(".") < 2 and "*" not in plain else f"=={plain}"
    return plain


def specifier(text: str | None) -> SpecifierSet | None:
    """The torch that is asked for; UsageError where the text is no version or specifier.

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
            hint="such as `2.5.1` or `>=2.6,<2.9`; nightly: `gpusetup resolve --torch nightly`",
        ) from None


def label_of(text: str | None) -> str | None:
    """The backend in a torch that is asked for: `cu124` in `2.5.1+cu124`."""
    return text.partition("+")[2].strip().lower() or None if text else None


def is_allowed(torch: str, situation: Situation) -> bool:
    """Whether the request allows a torch."""
    return situation.torch is None or _allows(situation.torch_text, torch)


def is_any_allowed(situation: Situation, catalog: Catalog) -> bool:
    """Whether the request allows any torch that the catalog knows."""
    return any(is_allowed(row.torch, situation) for row in catalog.releases)


@lru_cache(maxsize=4096)
def _allows(asked: str | None, torch: str) -> bool:
    """The same, with a memory: every row of the catalog asks it of every machine."""
    wanted = _plain(asked)
    try:
        return wanted is None or allows(wanted, torch)
    except ValueError:  # an unreadable one matches nothing
        return False
