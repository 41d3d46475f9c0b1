"""A healthy machine from rows: host, GPU, driver, build, companions, installer, Python."""

from __future__ import annotations

from closing import facts
from closing.consistent import required_torch
from closing.rows import ARM, BUILDS, DRIVERS, PYTHONS, WINDOWS_DRIVERS, Host
from closing.seen import answering, importing, nodes, serves
from closing.world import DriverPackage, World, gpu_named, named, world_of
from gpusetup.catalog.file import load_catalog
from gpusetup.catalog.kernels import served_by
from gpusetup.model.frozen import replace
from gpusetup.model.machine import (
    Cpu,
    CudaApi,
    DeviceNode,
    Disk,
    Driver,
    Gpu,
    Memory,
    Package,
    PciDevice,
    Python,
    Snapshot,
)
from gpusetup.model.resolution import TorchBuild
from gpusetup.model.units import GIB
from gpusetup.model.versions import Capability


def driver_for(gpu: Gpu, oldest: int = 0) -> str:
    """The newest driver of the rows that knows the GPU; `oldest` counts towards older ones."""
    known = [d for d in DRIVERS if any(serves(DriverPackage(d, o), gpu) for o in (True, False))]
    return known[min(oldest, len(known) - 1)]


def build_for(
    host: Host, gpu: Gpu, driver: str, *, serves_gpu: bool = True, turn: int = 0
) -> TorchBuild | None:
    """A row of BUILDS that this driver runs and that serves the GPU, or does not; in turn."""
    known = builds_for(host, gpu, driver, serves_gpu=serves_gpu)
    return known[turn % len(known)] if known else None


def builds_for(host: Host, gpu: Gpu, driver: str, *, serves_gpu: bool) -> list[TorchBuild]:
    """All of them, the newest first."""
    known = []
    for torch, backend in BUILDS:
        row = load_catalog().row_of(torch, backend, host.os.family or "", host.os.machine or "")
        if row is None or not _driver_runs(row, driver, host) or not _python_for(row):
            continue
        capability = gpu.compute_capability
        served = bool(capability and served_by(row, capability, facts_cuda(driver)))
        if served is serves_gpu:
            known.append(row)
    return known


def facts_cuda(driver: str) -> str:
    return facts.CUDA_OF_BRANCH[driver.partition(".")[0]]


def _driver_runs(row: TorchBuild, driver: str, host: Host) -> bool:
    from packaging.version import Version

    family = "windows" if host.windows_driver else "linux"
    floor = facts.FLOOR_OF_MAJOR[(row.cuda or "0").partition(".")[0]][family]
    number = WINDOWS_DRIVERS[driver] if host.windows_driver else driver
    return Version(number).release >= floor


def _python_for(row: TorchBuild) -> str | None:
    return next((python for python in PYTHONS if python in row.pythons), None)


def machine(
    host: Host, gpu_name: str, build: TorchBuild | None, *, installer: str = "pip",
    driver: str | None = None, count: int = 1,
) -> World:  # fmt: skip
    """The healthy machine; without a build its environment is empty."""
    gpus = tuple(gpu_named(gpu_name, n) for n in range(count))
    own = driver or driver_for(gpus[0])
    shown = WINDOWS_DRIVERS[own] if host.windows_driver else own
    windows = host.os.family == "windows"
    bare = host.os.wsl or windows
    inner, site = _folders(host, build)
    snapshot = Snapshot(
        taken_at="2026-11-20T10:00:00Z",
        origin="composed",
        os=host.os,
        python=Python(
            version=f"{(_python_for(build) if build else None) or '3.12'}.4",
            executable=inner,
            prefix=host.folder,
            manager="uv" if installer == "uv" else "venv",
            chosen_by="VIRTUAL_ENV",
            bits=64,
            free_threaded=False,
            externally_managed=False,
            has_pip=installer != "uv",
            site_packages=site,
            site_writable=True,
        ),
        driver=_driver(host, shown, own, opened=_open(gpus[0], own)),
        cuda_api=CudaApi(init_code=0, init_name="CUDA_SUCCESS", device_count=count,
                         version=facts_cuda(own)),
        gpus=gpus,
        pci_devices=None if windows else () if host.os.wsl else tuple(map(_on_bus, gpus)),
        container=host.container,
        cpu=Cpu(logical_cores=16, usable_cores=16),
        memory=Memory(total_bytes=64 * GIB, shm_total_bytes=32 * GIB),
        disks=(Disk(subject="site-packages", path=site, free_bytes=100 * GIB, writable=True),),
        devices=None if windows else _nodes(host, count),
        environment={"PATH": f"{host.folder}/bin:/usr/bin", "VIRTUAL_ENV": host.folder},
        packages=packages(build, installer, site) if build else (),
    )  # fmt: skip
    assert bare or snapshot.pci_devices
    return importing(world_of(snapshot))


def _folders(host: Host, build: TorchBuild | None) -> tuple[str, str]:
    python = (_python_for(build) if build else None) or "3.12"
    if host.os.family == "windows":
        return f"{host.folder}\\Scripts\\python.exe", f"{host.folder}\\Lib\\site-packages"
    return f"{host.folder}/bin/python", f"{host.folder}/lib/python{python}/site-packages"


def _open(gpu: Gpu, driver: str) -> bool:
    return serves(DriverPackage(driver, True), gpu)


def _driver(host: Host, shown: str, own: str, *, opened: bool) -> Driver:
    cuda = facts_cuda(own)
    if host.os.family == "windows":
        return Driver(version=shown, cuda=cuda, library_version=shown, library_found=True,
                      nvml_code=0, libcuda_path="C:\\Windows\\System32\\nvcuda.dll")  # fmt: skip
    if host.os.wsl:
        return Driver(version=shown, cuda=cuda, library_version=own, library_found=True,
                      nvml_code=0, libcuda_path="/usr/lib/wsl/lib/libcuda.so.1")  # fmt: skip
    return Driver(
        version=own,
        cuda=cuda,
        library_version=own,
        module_loaded=True,
        module_version=own,
        open_module=opened,
        uvm_loaded=True,
        library_found=True,
        libcuda_path=f"/usr/lib/x86_64-linux-gnu/libcuda.so.{own}",
        nouveau_loaded=False,
        nvml_code=0,
    )


def _on_bus(gpu: Gpu) -> PciDevice:
    return PciDevice(vendor="nvidia", bus_id=gpu.pci_bus_id, name=gpu.name, driver="nvidia")


def _nodes(host: Host, count: int) -> tuple[DeviceNode, ...]:
    if host.os.wsl:
        return (DeviceNode(path="/dev/dxg", readable=True, writable=True),)
    return nodes(count)


def jetson(row: tuple[str, str, str, str, str]) -> World:
    """A Jetson with the wheels of servers from the default index: CPU builds."""
    release, name, driver, cuda, python = row
    capability = Capability(11, 0) if "Thor" in name else Capability(8, 7)
    gpu = Gpu(name=name, compute_capability=capability, nvml_index=0, cuda_index=0, visible=True)
    base = machine(ARM, "NVIDIA GH200 480GB", None)
    snapshot = base.snapshot
    return importing(
        world_of(
            replace(
                snapshot,
                os=replace(snapshot.os, jetson=release, id="ubuntu"),
                python=replace(snapshot.python, version=python),
                driver=Driver(version=driver, cuda=cuda, library_version=driver,
                              library_found=True, module_loaded=True, uvm_loaded=True, nvml_code=0),
                gpus=(gpu,),
                pci_devices=(),
                packages=(package("torch", "2.4.1+cpu", "pip", snapshot.python.site_packages),),
            )
        )
    )  # fmt: skip


def with_gpu(world: World, name: str) -> World:
    """One more GPU of another kind."""
    count = len(world.hardware)
    more = (*world.hardware, gpu_named(name, count))
    bus = (*(world.snapshot.pci_devices or ()), _on_bus(more[-1]))
    world = world.having(hardware=more)
    return answering(world.showing(gpus=more, pci_devices=bus, devices=nodes(count + 1)))


# --- packages -----------------------------------------------------------------------------------


def packages(build: TorchBuild, installer: str, site: str) -> tuple[Package, ...]:
    """torch with its companions, as one installer leaves them."""
    versions = {"torch": build.torch, "torchvision": build.torchvision,
                "torchaudio": build.torchaudio}  # fmt: skip
    family = tuple(
        package(name, f"{version}+{build.backend}", installer, site)
        for name, version in versions.items()
        if version
    )
    return (*family, package("numpy", "1.26.4", installer, site))


def package(name: str, version: str, installer: str, site: str | None) -> Package:
    needs = required_torch(name, version)
    return Package(
        name=name,
        version=version,
        installer=installer,
        location=site,
        intact=True,
        requires=(f"torch{needs}",) if needs else (),
    )


def with_packages(world: World, *new: Package) -> World:
    """Packages in place of those of the same names."""
    kept = tuple(p for p in world.snapshot.packages or () if not named([p], *(n.name for n in new)))
    return importing(world.showing(packages=(*kept, *new)))


def relabelled(world: World, label: str, *names: str) -> World:
    """The named packages (all of the family where none is named) as builds of another backend."""
    wanted = names or ("torch", "torchvision", "torchaudio")
    changed = tuple(
        replace(p, version=f"{p.version.partition('+')[0]}+{label}") if named([p], *wanted) else p
        for p in world.snapshot.packages or ()
    )
    return importing(world.showing(packages=changed))
