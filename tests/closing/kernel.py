"""The kernel and the GPUs: what a reboot, modprobe or nvidia-smi leaves."""

from __future__ import annotations

from collections.abc import Sequence

from closing.seen import answering, loaded, nodes, rejected
from closing.shells import Refused
from closing.world import DriverPackage, World, healthy
from gpusetup.model.frozen import replace

NVML_NO_PERMISSION = 4


def staged(world: World, package: DriverPackage) -> World:
    """On disk: the libraries are the new ones, the kernel runs what it ran until it loads anew."""
    world = world.having(on_disk=package)
    driver = world.snapshot.driver
    if driver.module_loaded and driver.version:
        code = 18 if driver.version != package.version else driver.nvml_code
        changed = replace(driver, library_version=package.version, nvml_code=code)
        return answering(world.showing(driver=changed))
    changed = replace(
        driver,
        library_found=True,
        library_version=package.version,
        module_version=package.version,
        module_loaded=False,
    )
    return world.showing(driver=changed)


def reboot(world: World) -> World:
    """All that lives in memory is gone; what is on disk is loaded."""
    if world.snapshot.container.kind not in (None, "none"):
        raise Refused("reboot: a container does not reboot its host")
    lasting = {"VIRTUAL_ENV", "PATH", "CONDA_PREFIX", "HOME"}
    world = world.showing(environment={
        name: value
        for name, value in world.snapshot.environment.items()
        if name in lasting or name not in world.shells
    })  # fmt: skip
    hardware = tuple(healthy(gpu) for gpu in world.hardware)
    fabric = world.fabric_down and "nvidia-fabricmanager" not in world.shells
    return loaded(
        world.having(
            hardware=hardware,
            fabric_down=fabric,
            building=False,
            kernel_updated=False,
            key_enrolled=world.key_enrolled or world.key_pending,
        )
    )


def modprobe(world: World, words: Sequence[str]) -> World:
    name = words[-1].replace("-", "_")
    driver = world.snapshot.driver
    if name == "nvidia_uvm":
        if "-r" in words:
            return world.showing(driver=replace(driver, uvm_loaded=False))
        changed = replace(driver, uvm_loaded=True)
        return answering(with_uvm_node(world.having(uvm_is_bad=False).showing(driver=changed)))
    if world.kernel_updated:
        raise Refused("modprobe: FATAL: Module nvidia not found in directory of the running kernel")
    if world.building:
        raise Refused("modprobe: FATAL: Module nvidia not found: akmods has not built it yet")
    held = any(d.driver == "nouveau" for d in world.snapshot.pci_devices or ())
    if world.on_disk is None or held:
        raise Refused("modprobe: FATAL: Module nvidia not found, or another driver holds the GPU")
    if rejected(world, world.on_disk):
        raise Refused("modprobe: ERROR: could not insert 'nvidia': Key was rejected by service")
    return world if driver.module_loaded else loaded(world)


def with_uvm_node(world: World) -> World:
    have = {node.path for node in world.snapshot.devices}
    new = tuple(n for n in nodes(1) if "uvm" in n.path and n.path not in have)
    return world.showing(devices=(*(world.snapshot.devices or ()), *new))


def may_open(world: World) -> World:
    """After joining the groups and logging in again."""
    opened = tuple(replace(n, readable=True, writable=True) for n in world.snapshot.devices)
    gpus = world.snapshot.gpus or world.hardware
    driver = world.snapshot.driver
    code = 0 if driver.nvml_code == NVML_NO_PERMISSION else driver.nvml_code
    driver = replace(driver, nvml_code=code)
    return answering(world.showing(devices=opened, gpus=gpus, driver=driver))


def reset(world: World, words: Sequence[str]) -> World:
    """`nvidia-smi --gpu-reset -i LIST`, by index, bus id or UUID; all GPUs where none is named."""
    chosen = _after(words, "-i", "--id")
    names = set(chosen.split(",")) if chosen else None
    gpus = world.snapshot.gpus or ()
    after = tuple(
        healthy(gpu) if names is None or names & {str(n), gpu.pci_bus_id, gpu.uuid} else gpu
        for n, gpu in enumerate(gpus)
    )
    kinds = ("xid", "ecc-error", "hardware-fault")
    cleared = world if any(gpu.ecc_uncorrected for gpu in after) else world.without_events(*kinds)
    return answering(cleared.showing(gpus=after))


def _after(words: Sequence[str], *names: str) -> str | None:
    for place, word in enumerate(words):
        if word in names and place + 1 < len(words):
            return words[place + 1]
    return None
