"""What goes wrong with a machine: its variables, driver, GPUs, container, or their maker."""

from __future__ import annotations

from dataclasses import replace as with_fields

from closing import facts
from closing.kernel import staged
from closing.seen import answering, loaded
from closing.world import DriverPackage, World
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Container, CudaApi, Driver, Event, PciDevice


def _with_variable(world: World, name: str, value: str) -> World:
    environment = {**world.snapshot.environment, name: value}
    return answering(world.showing(environment=environment))


def hidden(world: World) -> World:
    return _with_variable(world, "CUDA_VISIBLE_DEVICES", "")


def hidden_by_minus_one(world: World) -> World:
    return _with_variable(world, "CUDA_VISIBLE_DEVICES", "-1")


def hidden_by_a_number(world: World) -> World:
    return _with_variable(world, "CUDA_VISIBLE_DEVICES", "3")


def no_driver(world: World) -> World:
    bus = tuple(replace(d, driver=None) for d in world.snapshot.pci_devices or ())
    absent = Driver(module_loaded=False, library_found=False, uvm_loaded=False,
                    nouveau_loaded=False)  # fmt: skip
    return world.having(on_disk=None).showing(
        driver=absent, cuda_api=CudaApi(), gpus=None, devices=(), pci_devices=bus
    )


def no_driver_and_no_names(world: World) -> World:
    """The bus as the kernel shows it: ids, no names."""
    world = no_driver(world)
    ids = {name: id for id, name in facts.PCI_NAMES.items()}
    bus = tuple(
        replace(d, name=None, device_id=ids.get(d.name or "", d.device_id))
        for d in world.snapshot.pci_devices or ()
    )
    return world.showing(pci_devices=bus)


def no_driver_under_secure_boot(world: World) -> World:
    world = no_driver(world)
    return world.showing(os=replace(world.os, secure_boot=True))


def nouveau(world: World) -> World:
    world = no_driver(world)
    bus = tuple(replace(d, driver="nouveau") for d in world.snapshot.pci_devices or ())
    driver = replace(world.snapshot.driver, nouveau_loaded=True)
    return world.showing(driver=driver, pci_devices=bus)


def module_not_loaded(world: World) -> World:
    driver = world.snapshot.driver
    silent = Driver(module_loaded=False, module_version=driver.version, uvm_loaded=False,
                    library_version=driver.version, library_found=True, nouveau_loaded=False,
                    nvml_code=9)  # fmt: skip
    bus = tuple(replace(d, driver=None) for d in world.snapshot.pci_devices or ())
    return world.showing(driver=silent, cuda_api=CudaApi(), gpus=None, devices=(), pci_devices=bus)


def key_rejected(world: World) -> World:
    package_ = replace_signed(world)
    world = module_not_loaded(package_.showing(os=replace(world.os, secure_boot=True)))
    said = Event(kind="secure-boot-rejected", values={"module": "nvidia"}, source="dmesg",
                 text="nvidia: Loading of module with unavailable key is rejected")  # fmt: skip
    return world.showing(events=(said,))


def replace_signed(world: World) -> World:
    assert world.on_disk
    return world.having(on_disk=with_fields(world.on_disk, signed=False))


def updated_without_reboot(world: World) -> World:
    """The packages are of another release of the branch, the kernel runs what it ran."""
    own, opened = world.snapshot.driver.version or "", bool(world.snapshot.driver.open_module)
    later = f"{own.partition('.')[0]}.999.01"
    return staged(world, DriverPackage(later, opened, signed=True))


def uvm_unloaded(world: World) -> World:
    driver = replace(world.snapshot.driver, uvm_loaded=False)
    kept = tuple(n for n in world.snapshot.devices or () if "uvm" not in n.path)
    return answering(world.showing(driver=driver, devices=kept))


def uvm_bad(world: World) -> World:
    return answering(world.having(uvm_is_bad=True))


def nodes_closed(world: World) -> World:
    shut = tuple(replace(n, mode="crw-rw----", readable=False, writable=False)
                 for n in world.snapshot.devices or ())  # fmt: skip
    return answering(world.showing(devices=shut))


# --- the GPUs -----------------------------------------------------------------------------------


def _first(world: World, **changes: object) -> World:
    gpus = world.snapshot.gpus or ()
    return answering(world.showing(gpus=(replace(gpus[0], **changes), *gpus[1:])))


def lost(world: World) -> World:
    return _first(world, lost=True)


def ecc(world: World) -> World:
    return _first(world, ecc_uncorrected=7, retired_pending=True)


def ecc_on_two(world: World) -> World:
    gpus = tuple(replace(g, ecc_uncorrected=3) for g in (world.snapshot.gpus or ())[:2])
    return world.showing(gpus=(*gpus, *(world.snapshot.gpus or ())[2:]))


def prohibited(world: World) -> World:
    return _first(world, compute_mode="Prohibited")


def all_prohibited(world: World) -> World:
    gpus = tuple(replace(g, compute_mode="Prohibited") for g in world.snapshot.gpus or ())
    return answering(world.showing(gpus=gpus))


def mig_empty(world: World) -> World:
    return _first(world, mig_enabled=True, mig_instances=(), mig_count=0)


def fabric_down(world: World) -> World:
    gpus = tuple(replace(g, fabric_state="in_progress") for g in world.snapshot.gpus or ())
    return answering(world.having(fabric_down=True).showing(gpus=gpus))


# --- the boundary, other makers -----------------------------------------------------------------


def container_without_gpu(world: World) -> World:
    kind = world.snapshot.container.kind or "docker"
    bus = tuple(replace(d, driver="nvidia") for d in world.snapshot.pci_devices or ())
    version = world.on_disk.version if world.on_disk else None
    return world.showing(
        container=Container(kind="docker" if kind == "none" else kind, nvidia_requested=False),
        driver=Driver(library_found=False, module_loaded=True, module_version=version),
        cuda_api=CudaApi(), gpus=None, devices=(), pci_devices=bus,
    )  # fmt: skip


def podman_without_gpu(world: World) -> World:
    world = container_without_gpu(world)
    return world.showing(container=Container(kind="podman", nvidia_requested=False))


def compat_in_front(world: World) -> World:
    folder = "/usr/local/cuda/compat"
    container = replace(world.snapshot.container, cuda_compat_path=folder)
    driver = replace(world.snapshot.driver, libcuda_path=f"{folder}/libcuda.so.590.48.01")
    environment = {**world.snapshot.environment, "LD_LIBRARY_PATH": folder}
    world = world.showing(container=container, driver=driver, environment=environment)
    code = CudaApi(init_code=804, init_name="CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE")
    return world.showing(cuda_api=code)


def stale_libcuda(world: World) -> World:
    path = "/usr/local/lib/libcuda.so.535.161.08"
    driver = replace(world.snapshot.driver, libcuda_path=path)
    environment = {**world.snapshot.environment, "LD_LIBRARY_PATH": "/usr/local/lib"}
    world = world.having(stale_libcuda=path).showing(driver=driver, environment=environment)
    return answering(world)


def _maker(world: World, vendor: str, driver: str) -> World:
    bus = (PciDevice(vendor=vendor, bus_id="0000:03:00.0", driver=driver),)
    return no_driver(world.having(hardware=())).showing(pci_devices=bus)


def amd(world: World) -> World:
    return _maker(world, "amd", "amdgpu")


def intel(world: World) -> World:
    return _maker(world, "intel", "xe")


def no_gpu_at_all(world: World) -> World:
    return no_driver(world.having(hardware=())).showing(pci_devices=())


# --- a driver that is not the GPU's -------------------------------------------------------------


def driver_before_the_gpu(world: World) -> World:
    """The loaded driver is older than the GPU: it lists none."""
    return loaded(world, DriverPackage("535.183.01", open=True, signed=True))


def closed_module(world: World) -> World:
    """Blackwell under the closed modules, which do not drive it."""
    return loaded(world, DriverPackage("580.95.05", open=False, signed=True))


def linux_driver_in_wsl(world: World) -> World:
    path = "/usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05"
    driver = replace(world.snapshot.driver, libcuda_path=path)
    code = CudaApi(init_code=100, init_name="CUDA_ERROR_NO_DEVICE")
    return world.having(stale_libcuda=path).showing(driver=driver, cuda_api=code)


def wsl_without_bridge(world: World) -> World:
    return world.showing(driver=Driver(library_found=False), cuda_api=CudaApi(), gpus=None,
                         devices=())  # fmt: skip


def without_compute(world: World) -> World:
    """A container with the capability `utility` alone."""
    environment = {**world.snapshot.environment, "NVIDIA_DRIVER_CAPABILITIES": "utility"}
    driver = replace(world.snapshot.driver, library_found=False, libcuda_path=None)
    return world.showing(environment=environment, driver=driver, cuda_api=CudaApi())


def nvml_lost(world: World) -> World:
    """A `daemon-reload` on the host took the container's device rules away."""
    version = world.snapshot.driver.version
    driver = Driver(module_loaded=True, library_found=True, nvml_code=999, version=version)
    code = CudaApi(init_code=999, init_name="CUDA_ERROR_UNKNOWN")
    return world.showing(driver=driver, gpus=None, cuda_api=code)


def stub_in_front(world: World) -> World:
    folder = "/usr/local/cuda/lib64/stubs"
    driver = replace(world.snapshot.driver, libcuda_path=f"{folder}/libcuda.so")
    environment = {**world.snapshot.environment, "LD_LIBRARY_PATH": f"{folder}:/opt/mine/lib"}
    code = CudaApi(init_code=34, init_name="CUDA_ERROR_STUB_LIBRARY")
    return world.showing(driver=driver, environment=environment, cuda_api=code)
