"""The rows from which variants are composed: hosts, GPUs, drivers, builds."""

from __future__ import annotations

from typing import Any

from gpusetup.model.frozen import Frozen
from gpusetup.model.machine import Container, Os

LINUX: dict[str, Any] = {"family": "linux", "machine": "x86_64", "wsl": False}


class Host(Frozen):
    name: str
    os: Os
    folder: str = "/home/user/project/.venv"
    container: Container = Container(kind="none")
    windows_driver: bool = False


def _linux(name: str, id: str, version: str, libc: str, **more: Any) -> Host:
    os = Os(id=id, name=name, version=version, libc=f"glibc {libc}", kernel="6.8.0", **LINUX)
    return Host(name=name, os=os, **more)


DOCKER = Container(kind="docker", nvidia_requested=True)

HOSTS = (
    _linux("Ubuntu 24.04", "ubuntu", "24.04", "2.39"),
    _linux("Fedora 43", "fedora", "43", "2.42"),
    _linux("Debian 13", "debian", "13", "2.41"),
    _linux("Rocky 9", "rocky", "9.6", "2.34"),
    _linux("Arch", "arch", "rolling", "2.42"),
    _linux("Tumbleweed", "opensuse-tumbleweed", "20261115", "2.42"),
    _linux("Rocky 10", "rocky", "10.1", "2.39"),
    _linux("Ubuntu 22.04", "ubuntu", "22.04", "2.35", folder="/home/user/my project/.venv"),
    _linux("Debian 12", "debian", "12", "2.36"),
    _linux("RHEL 8", "rhel", "8.10", "2.28"),
    _linux("Pop 22.04", "pop", "22.04", "2.35"),
    _linux("Mint 22", "linuxmint", "22", "2.39"),
    _linux("Leap 15.6", "opensuse-leap", "15.6", "2.38"),
    Host(
        name="Windows 11",
        os=Os(family="windows", name="Windows 11", version="10.0.26100", machine="x86_64"),
        folder="C:\\Users\\user\\project\\.venv",
        windows_driver=True,
    ),
    Host(
        name="Windows 10, a blank in the path",
        os=Os(family="windows", name="Windows 10", version="10.0.19045", machine="x86_64"),
        folder="C:\\Users\\Ada L\\my project\\.venv",
        windows_driver=True,
    ),
    Host(
        name="WSL",
        os=Os(
            family="linux",
            id="ubuntu",
            name="Ubuntu 24.04",
            version="24.04",
            machine="x86_64",
            libc="glibc 2.39",
            wsl=True,
            kernel="6.6.87-microsoft-standard-WSL2",
        ),
        windows_driver=True,
    ),
    _linux("Docker", "ubuntu", "24.04", "2.39", container=DOCKER),
)

ARM = Host(
    name="Ubuntu 24.04 on aarch64",
    os=Os(family="linux", id="ubuntu", name="Ubuntu 24.04", version="24.04", kernel="6.8.0",
          machine="aarch64", libc="glibc 2.39", wsl=False),
)  # fmt: skip
ARM_GPUS = ("NVIDIA GH200 480GB", "NVIDIA GB10", "NVIDIA H100 PCIe", "NVIDIA B200")

JETSONS = (
    ("R36.4.0", "Orin (nvgpu)", "540.4.0", "12.6", "3.10.12"),
    ("R35.4.1", "Orin (nvgpu)", "35.4.1", "11.4", "3.8.10"),
    ("R38.2.0", "NVIDIA Thor", "580.00", "13.0", "3.12.3"),
)
"""L4T, what its driver calls the GPU, driver, CUDA, the system's Python."""

GPUS = (
    "NVIDIA GeForce RTX 3090",
    "NVIDIA GeForce GTX 1080 Ti",
    "NVIDIA GeForce RTX 5090",
    "Tesla T4",
    "NVIDIA GeForce RTX 3050 Laptop GPU",
    "NVIDIA A100-SXM4-80GB",
    "NVIDIA GeForce RTX 4090",
    "Tesla V100-SXM2-16GB",
    "NVIDIA H100 PCIe",
    "NVIDIA L40S",
    "NVIDIA GeForce RTX 2080 Ti",
    "NVIDIA GeForce GTX 980",
    "NVIDIA B200",
    "Tesla K80",
)

DRIVERS = ("580.95.05", "570.172.08", "550.163.01", "535.183.01", "525.147.05", "470.256.02")
"""From the newest on; a GPU takes those that know it."""

WINDOWS_DRIVERS = {
    "580.95.05": "581.29", "570.172.08": "572.83", "550.163.01": "552.22",
    "535.183.01": "537.58", "525.147.05": "528.49", "470.256.02": "475.14",
}  # fmt: skip

BUILDS = (
    ("2.15.0", "cu130"), ("2.14.1", "cu126"), ("2.13.0", "cu129"), ("2.9.1", "cu128"),
    ("2.9.1", "cu126"), ("2.7.1", "cu128"), ("2.7.1", "cu118"), ("2.6.0", "cu124"),
    ("2.5.1", "cu124"), ("2.5.1", "cu121"), ("2.3.1", "cu118"), ("2.1.2", "cu118"),
)  # fmt: skip
"""torch and backend, the newest first: what people have."""

PYTHONS = ("3.12", "3.11", "3.10", "3.13", "3.9")

INSTALLERS = ("pip", "uv", "pip", "pip")
