"""A machine on which commands are typed: its snapshot, and what a snapshot does not show."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from dataclasses import replace as with_fields
from typing import Any

from closing import facts
from gpusetup.catalog.file import load_catalog
from gpusetup.catalog.gpus import rows_named
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Driver, Gpu, Package, PciDevice, Snapshot
from gpusetup.model.versions import Capability

CONDA = ("conda", "mamba", "micromamba", "pixi")
FAMILY = ("torch", "torchvision", "torchaudio")


@dataclass(frozen=True)
class DriverPackage:
    """A driver that is installed on disk, loaded or not."""

    version: str
    open: bool
    signed: bool = False
    """Whether its module needs no key of the machine's owner (built by the distribution)."""


@dataclass(frozen=True)
class World:
    snapshot: Snapshot
    hardware: tuple[Gpu, ...] = ()
    """The NVIDIA GPUs that are really there, whether a driver shows them or not."""
    on_disk: DriverPackage | None = None
    repositories: frozenset[str] = frozenset()
    """What the package tool was told of, beyond the distribution's own."""
    building: bool = False
    """Whether the kernel module on disk is still being built."""
    kernel_updated: bool = False
    """Whether the kernel that runs is no longer the one on disk."""
    folder: str = ""
    """The folder that the shell stands in, where it left its own."""
    key_pending: bool = False
    """Whether the firmware asks for a key at the next start."""
    key_enrolled: bool = False
    nouveau_blacklisted: bool = False
    fabric_down: bool = False
    uvm_is_bad: bool = False
    stale_libcuda: str | None = None
    shells: tuple[str, ...] = ()
    """What was typed so far."""

    @property
    def os(self) -> Any:
        return self.snapshot.os

    def having(self, **changes: Any) -> World:
        return with_fields(self, **changes)

    def showing(self, **changes: Any) -> World:
        """With other parts of its snapshot, without the readings of what was there before."""
        readings = self.snapshot.readings
        kept = tuple(r for r in readings if r.subject.partition(".")[0] not in changes)
        return self.having(snapshot=replace(self.snapshot, **{"readings": kept, **changes}))

    def without_events(self, *kinds: str) -> World:
        kept = tuple(e for e in self.snapshot.events if e.kind not in kinds)
        return self.having(snapshot=replace(self.snapshot, events=kept))


Step = Callable[[World], World]


def world_of(snapshot: Snapshot) -> World:
    """A machine as its snapshot shows it, and what must lie behind that."""
    code, api = snapshot.cuda_api.init_code, snapshot.driver
    differ = api.library_version != api.version and not snapshot.os.wsl
    bad = code == 999 and api.uvm_loaded is not False and not _lacks_uvm(snapshot)
    stale = api.libcuda_path if code == 803 and not differ else None
    return World(
        snapshot=snapshot,
        hardware=hardware_of(snapshot),
        on_disk=driver_on_disk(api),
        fabric_down=code == 802,
        uvm_is_bad=bad,
        stale_libcuda=None if snapshot.container.cuda_compat_path else stale,
    )


def _lacks_uvm(snapshot: Snapshot) -> bool:
    paths = {node.path for node in snapshot.devices or ()}
    return snapshot.devices is not None and "/dev/nvidia-uvm" not in paths


def driver_on_disk(driver: Driver) -> DriverPackage | None:
    version = driver.library_version or driver.module_version or driver.version
    if not version or driver.library_found is False:
        return None
    return DriverPackage(version=version, open=bool(driver.open_module), signed=True)


def hardware_of(snapshot: Snapshot) -> tuple[Gpu, ...]:
    """What the driver lists; else what stands on the bus; a container's host has an L40S."""
    if snapshot.gpus:
        return tuple(healthy(gpu) for gpu in snapshot.gpus)
    on_bus = tuple(d for d in snapshot.pci_devices or () if d.vendor == "nvidia")
    if on_bus:
        return tuple(gpu_of(device, index) for index, device in enumerate(on_bus))
    shut_in = snapshot.container.kind not in (None, "none") or snapshot.os.wsl
    return (gpu_named("NVIDIA L40S"),) if shut_in else ()


def gpu_of(device: PciDevice, index: int) -> Gpu:
    name = device.name or facts.PCI_NAMES[device.device_id or ""]
    return gpu_named(name.split("[")[-1].rstrip("]"), index, device.bus_id)


def gpu_named(name: str, index: int = 0, bus_id: str | None = None) -> Gpu:
    """A healthy GPU of the catalog's."""
    row = rows_named(name, load_catalog().gpus)[0]
    return Gpu(
        name=name,
        uuid=f"GPU-{index + 1:04d}",
        memory_total_bytes=round((row.memory_gb or 8) * (1 << 30)),
        memory_used_bytes=0,
        compute_capability=row.capability,
        nvml_index=index,
        cuda_index=index,
        pci_bus_id=bus_id or f"0000:{index + 1:02x}:00.0",
        visible=True,
        compute_mode="Default",
        temperature_celsius=45,
        throttle_reasons=(),
    )


def healthy(gpu: Gpu) -> Gpu:
    """The same GPU after a power cycle: nothing lost, no error that a reset does not clear."""
    faults = {"lost": None, "ecc_uncorrected": 0, "retired_pending": False, "visible": True}
    cool = {"throttle_reasons": (), "temperature_celsius": 45, "memory_used_bytes": 0}
    fabric = {"fabric_state": "completed"} if gpu.fabric_state else {}
    return replace(gpu, **faults, **cool, **fabric)


def packages_of(world: World) -> tuple[Package, ...]:
    return world.snapshot.packages or ()


def named(packages: Iterable[Package], *names: str) -> tuple[Package, ...]:
    wanted = {name.replace("_", "-").lower() for name in names}
    return tuple(p for p in packages if p.name.replace("_", "-").lower() in wanted)


def pair(capability: Capability | None) -> tuple[int, int]:
    return (capability.major, capability.minor) if capability else (0, 0)


def by_threshold(rows: Iterable[tuple[tuple[int, int], Any]], value: tuple[int, int]) -> Any:
    """The first row whose threshold the value reaches.

    >>> by_threshold((((8, 0), "new"), ((0, 0), "old")), (7, 5))
    'old'
    """
    return next(found for least, found in rows if value >= least)
