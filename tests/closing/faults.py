"""What goes wrong on a healthy machine: each fault a function from a world to a broken one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace as with_fields

from closing.compose import package, relabelled, with_packages
from closing.drivers import staged
from closing.seen import answering, importing
from closing.world import DriverPackage, World, named
from gpusetup.catalog_file import load_catalog
from gpusetup.model import Conda, Container, CudaApi, Driver, Event, Package, PciDevice
from gpusetup.value import replace

Fault = Callable[[World], World]


# --- the environment ----------------------------------------------------------------------------


def cpu_build(world: World) -> World:
    return relabelled(world, "cpu")


def cpu_build_alone(world: World) -> World:
    """torch alone became a CPU build: its companions stayed."""
    return relabelled(world, "cpu", "torch")


def rocm_build(world: World) -> World:
    return relabelled(world, "rocm6.4")


def xpu_build(world: World) -> World:
    return relabelled(world, "xpu")


def torchvision_left(world: World) -> World:
    """torch was updated, torchvision stayed."""
    return _older(world, "torchvision")


def torchaudio_left(world: World) -> World:
    return _older(world, "torchaudio")


def companions_left(world: World) -> World:
    return _older(_older(world, "torchvision"), "torchaudio")


def torchvision_of_cpu(world: World) -> World:
    return relabelled(world, "cpu", "torchvision")


def _older(world: World, name: str) -> World:
    """The companion of the release before this torch's."""
    own = named(world.snapshot.packages or (), "torch")[0].version
    public, _, label = own.partition("+")
    releases = load_catalog().releases
    place = next(n for n, row in enumerate(releases) if row.torch == public)
    version = next(v for row in reversed(releases[:place]) if (v := getattr(row, name))
                   and v[:4] != (getattr(releases[place], name) or "")[:4])  # fmt: skip
    site = world.snapshot.python.site_packages
    return with_packages(world, package(name, f"{version}+{label}", _by(world), site))


def _by(world: World) -> str:
    return "pip" if world.snapshot.python.has_pip else "uv"


def torch_missing(world: World) -> World:
    return importing(world.showing(packages=named(world.snapshot.packages or (), "numpy")))


def torch_gone_companions_left(world: World) -> World:
    kept = tuple(p for p in world.snapshot.packages or () if p.name != "torch")
    return importing(world.showing(packages=kept))


def torch_cut(world: World) -> World:
    """An install was killed: torch's files are not all there."""
    cut = tuple(replace(p, intact=False) if p.name == "torch" else p
                for p in world.snapshot.packages or ())  # fmt: skip
    return world.showing(packages=cut)


def installed_twice(world: World) -> World:
    """A second torch over the first one, in the same folder."""
    site = world.snapshot.python.site_packages
    other = package("torch", "2.4.0+cpu", _by(world), site)
    return importing(world.showing(packages=(other, *(world.snapshot.packages or ()))))


CONDA_ENV = "/home/user/miniforge3/envs/ml"


def _in_conda(world: World, *packages: Package) -> World:
    """The target is a conda environment with these packages."""
    python = replace(
        world.snapshot.python, version="3.11.9", executable=f"{CONDA_ENV}/bin/python",
        prefix=CONDA_ENV, manager="conda", site_packages=CONDA_SITE, has_pip=True,
    )  # fmt: skip
    conda = Conda(prefix=CONDA_ENV, name="ml", executable="/home/user/miniforge3/bin/conda")
    return importing(world.showing(python=python, conda=conda, packages=packages))


CONDA_SITE = f"{CONDA_ENV}/lib/python3.11/site-packages"


def _conda_stack(build: str, *names: tuple[str, str]) -> tuple[Package, ...]:
    """Each once as a distribution in site-packages, once in conda's own record."""
    rows = [(name, version, CONDA_SITE) for name, version in names]
    rows += [("pytorch" if n == "torch" else n, v, CONDA_ENV) for n, v in names]
    return tuple(
        Package(name=name, version=version, installer="conda", channel="pytorch", build=build,
                location=place)
        for name, version, place in rows
    )  # fmt: skip


def conda_and_pip(world: World) -> World:
    """pip's torch over conda's, in one environment; pip took conda's other distributions away."""
    moved = tuple(
        replace(p, location=CONDA_SITE, installer="pip") for p in world.snapshot.packages or ()
    )
    stack = _conda_stack("py3.11_cuda12.1_0", ("torch", "2.3.0"), ("torchvision", "0.18.0"))
    by_conda = tuple(p for p in stack if p.name != "torchvision" or p.location == CONDA_ENV)
    return _in_conda(world, *by_conda, *moved)


def conda_cpu_build(world: World) -> World:
    return _in_conda(world, *_conda_stack("py3.11_cpu_0", ("torch", "2.3.1"),
                                          ("torchvision", "0.18.1")))  # fmt: skip


def conda_empty(world: World) -> World:
    return _in_conda(world)


def cpu_build_beside_xformers(world: World) -> World:
    """xformers 0.0.28.post3 requires torch 2.5.1 (its Requires-Dist)."""
    return _beside_xformers(world, "cpu")


def torch_cut_beside_xformers(world: World) -> World:
    return torch_cut(_beside_xformers(world, "cu124"))


def _beside_xformers(world: World, label: str) -> World:
    site, by = world.snapshot.python.site_packages, _by(world)
    versions = {"torch": "2.5.1", "torchvision": "0.20.1", "torchaudio": "2.5.1"}
    family = tuple(package(n, f"{v}+{label}", by, site) for n, v in versions.items())
    python = replace(world.snapshot.python, version="3.11.9")
    pinned = package("xformers", "0.0.28.post3", by, site)
    return with_packages(world.showing(python=python), *family, pinned)


def numpy_2(world: World) -> World:
    site = world.snapshot.python.site_packages
    return with_packages(world, package("numpy", "2.3.1", _by(world), site))


def library_cut(world: World) -> World:
    site = world.snapshot.python.site_packages
    cut = replace(package("nvidia-cudnn-cu12", "9.10.2.21", _by(world), site), intact=False)
    return with_packages(world, cut)


def install_interrupted(world: World) -> World:
    values = {"phase": "switch", "prefix": world.snapshot.python.prefix or ""}
    said = Event(kind="install-unfinished", values=values, source="journal", text="a journal")
    return world.showing(events=(said,))


def of_the_system(world: World) -> World:
    """The distribution's own Python, without torch."""
    python = replace(
        world.snapshot.python, executable="/usr/bin/python3", prefix="/usr", manager="system",
        externally_managed=True, has_pip=False,
    )  # fmt: skip
    return torch_missing(world.showing(python=python))


def not_writable(world: World) -> World:
    python = replace(world.snapshot.python, site_writable=False)
    return torch_missing(world.showing(python=python))


def python_of_32_bits(world: World) -> World:
    return torch_missing(world.showing(python=replace(world.snapshot.python, bits=32)))


def python_too_old(world: World) -> World:
    return torch_missing(world.showing(python=replace(world.snapshot.python, version="3.6.9")))


def python_too_new(world: World) -> World:
    return torch_missing(world.showing(python=replace(world.snapshot.python, version="3.17.0")))


# --- the process and the driver -----------------------------------------------------------------


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
    said = Event(kind="module-key-rejected", values={"module": "nvidia"}, source="dmesg",
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
    return _first(world, mig_enabled=True, mig_instances=())


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
