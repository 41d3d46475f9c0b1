"""Machines for the tests of rules and judgement: a healthy one, and changes to it."""

from __future__ import annotations

from typing import Any

from gpusetup.catalog.file import load_catalog
from gpusetup.diagnosis.diagnose import diagnose
from gpusetup.model.documents import DoctorAnswer
from gpusetup.model.finding import Finding
from gpusetup.model.frozen import replace
from gpusetup.model.machine import (
    Container,
    Cpu,
    CudaApi,
    DeviceNode,
    Disk,
    Driver,
    Event,
    Gpu,
    Memory,
    Os,
    Package,
    PciDevice,
    Python,
    Snapshot,
    Toolkit,
    Torch,
)
from gpusetup.model.units import GIB
from gpusetup.model.versions import Capability

SITE = "/home/me/env/lib/python3.12/site-packages"

RTX_3090 = Gpu(
    name="NVIDIA GeForce RTX 3090",
    uuid="GPU-0001",
    memory_total_bytes=24 * GIB,
    memory_used_bytes=GIB,
    compute_capability=Capability(8, 6),
    nvml_index=0,
    cuda_index=0,
    pci_bus_id="0000:01:00.0",
    visible=True,
    compute_mode="Default",
    temperature_celsius=40,
    throttle_reasons=(),
    pcie_generation=4,
    pcie_generation_max=4,
    pcie_width=16,
    pcie_width_max=16,
    utilization_percent=0,
)
A100 = replace(RTX_3090, name="NVIDIA A100-SXM4-80GB", compute_capability=Capability(8, 0))

ON_THE_BUS = PciDevice(
    vendor="nvidia",
    bus_id="0000:01:00.0",
    device_id="2204",
    name="GA102 [GeForce RTX 3090]",
    driver="nvidia",
)
NODES = tuple(
    DeviceNode(path=f"/dev/{name}", mode="crw-rw-rw-", readable=True, writable=True)
    for name in ("nvidia0", "nvidiactl", "nvidia-uvm")
)
HEALTHY = Snapshot(
    taken_at="2026-11-20T10:00:00Z",
    origin="composed",
    os=Os(
        family="linux",
        name="Ubuntu 24.04.1 LTS",
        id="ubuntu",
        version="24.04",
        kernel="6.8.0",
        machine="x86_64",
        libc="glibc 2.39",
        wsl=False,
    ),
    python=Python(
        version="3.12.7",
        executable="/home/me/env/bin/python",
        prefix="/home/me/env",
        manager="venv",
        chosen_by="VIRTUAL_ENV",
        bits=64,
        free_threaded=False,
        externally_managed=False,
        has_pip=True,
        site_packages=SITE,
        site_writable=True,
    ),
    driver=Driver(
        version="580.95.05",
        cuda="13.0",
        library_version="580.95.05",
        module_loaded=True,
        module_version="580.95.05",
        uvm_loaded=True,
        library_found=True,
        libcuda_path="/usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05",
        nvml_code=0,
    ),
    cuda_api=CudaApi(init_code=0, init_name="CUDA_SUCCESS", device_count=1, version="13.0"),
    gpus=(RTX_3090,),
    pci_devices=(ON_THE_BUS,),
    torch=Torch(
        installed=True,
        version="2.14.1+cu130",
        cuda="13.0",
        backend="cu130",
        installer="pip",
        location=SITE,
    ),
    packages=(
        Package(name="torch", version="2.14.1+cu130", installer="pip", location=SITE, intact=True),
        Package(name="torchvision", version="0.29.1+cu130", installer="pip", location=SITE),
        Package(name="numpy", version="2.3.0", installer="pip", location=SITE),
    ),
    container=Container(kind="none"),
    cpu=Cpu(logical_cores=16, usable_cores=16),
    memory=Memory(total_bytes=64 * GIB, shm_total_bytes=32 * GIB),
    disks=(Disk(subject="site-packages", path=SITE, free_bytes=100 * GIB),),
    devices=NODES,
    environment={"PATH": "/home/me/env/bin:/usr/bin"},
)


def changed(base: Snapshot = HEALTHY, **changes: Any) -> Snapshot:
    """A machine with changes: `torch={"backend": "cpu"}` changes fields of a part, other values
    replace the part. `env` adds variables, `packages_of` replaces versions by name."""
    parts: dict[str, Any] = {}
    for name, value in changes.items():
        if name == "env":
            parts["environment"] = {**base.environment, **value}
        elif isinstance(value, dict) and name != "environment":
            parts[name] = replace(getattr(base, name), **value)
        else:
            parts[name] = value
    return replace(base, **parts)


def gpu(**changes: Any) -> Snapshot:
    """The healthy machine with one GPU that is changed."""
    return changed(gpus=(replace(RTX_3090, **changes),))


def event(kind: str, text: str = "", **values: str) -> tuple[Event, ...]:
    return (Event(kind=kind, values=values, source="a log", text=text or kind),)


def judged(machine: Snapshot) -> DoctorAnswer:
    return diagnose(machine, load_catalog())


def found(machine: Snapshot, id: str) -> Finding | None:
    return next((finding for finding in judged(machine).findings if finding.id == id), None)


NO_DRIVER = changed(
    driver=Driver(module_loaded=False, library_found=False, uvm_loaded=False),
    cuda_api=CudaApi(),
    gpus=None,
    devices=(),
    pci_devices=(replace(ON_THE_BUS, driver=None),),
)
WINDOWS = changed(
    os=Os(family="windows", name="Windows 11", version="10.0.26100", machine="x86_64"),
    python={
        "executable": "C:\\My Env\\Scripts\\python.exe",
        "prefix": "C:\\My Env",
        "site_packages": "C:\\My Env\\Lib\\site-packages",
    },
    driver=Driver(version="581.29", cuda="13.0", library_found=True, nvml_code=0),
    devices=None,
    pci_devices=None,
    torch={"location": "C:\\My Env\\Lib\\site-packages"},
    toolkit=Toolkit(),
    environment={},
)
IN_DOCKER = changed(container=Container(kind="docker", nvidia_requested=True))
WSL = changed(
    os={"wsl": True},
    driver={"version": "581.29", "library_version": "580.82.10", "module_loaded": None,
            "libcuda_path": "/usr/lib/wsl/lib/libcuda.so.1"},
    pci_devices=(),
    devices=(DeviceNode(path="/dev/dxg", readable=True, writable=True),),
)  # fmt: skip


def spoken_of(answer: DoctorAnswer) -> str:
    """The finding that an answer is about: what a text shows, else its root, else its cause."""
    root = next((f.id for f in answer.findings if f.root), None)
    return answer.symptom or root or answer.cause
