"""This machine, with the PCI devices, device nodes and kernel files of a driver that it has not."""

from __future__ import annotations

import errno
import posixpath
from collections.abc import Mapping

from gpusetup.system.system import Stat, System

NODE = Stat(mode="crw-rw-rw-", readable=True, writable=True)
PCI = "/sys/bus/pci/devices"
PROC = "/proc/driver/nvidia/gpus"
INFORMATION = "Model: \t\t NVIDIA A100-SXM4-40GB\nBus Location: \t {bus}\nGPU Excluded:\t No\n"
NVRM = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build\n"


def bus(place: int) -> str:
    """The address that GPU `place` of `standin.state` has, as the kernel writes it."""
    return f"0000:{7 + 8 * place:02x}:00.0"


class WithDriver(System):
    """Children and programs are real; NVML and libcuda are those that the test installed."""

    def __init__(self, gpus: int = 1, environment: Mapping[str, str] | None = None) -> None:
        super().__init__(environment)
        nodes = ("nvidiactl", "nvidia-uvm", *(f"nvidia{place}" for place in range(gpus)))
        self.files = {
            "/proc/driver/nvidia/version": NVRM,
            "/sys/module/nvidia/version": "580.95.05\n",
            "/proc/modules": "nvidia_uvm 1 0 - Live 0x0\nnvidia 2 1 nvidia_uvm, Live 0x0\n",
        }
        self.folders = {"/dev": nodes, PCI: tuple(bus(place) for place in range(gpus))}
        self.folders[PROC] = self.folders[PCI]
        for place in range(gpus):
            self.files[f"{PROC}/{bus(place)}/information"] = INFORMATION.format(bus=bus(place))
            ids = {"class": "0x030200\n", "vendor": "0x10de\n", "device": "0x20b0\n"}
            self.files |= {f"{PCI}/{bus(place)}/{name}": text for name, text in ids.items()}

    def read(self, path: str) -> str:
        if path in self.files:
            return self.files[path]
        if path.startswith((PCI, "/proc/driver/nvidia", "/sys/module/nvidia")):
            raise OSError(errno.ENOENT, "No such file or directory", path)
        return super().read(path)

    def list(self, path: str) -> tuple[str, ...]:
        return tuple(sorted(self.folders[path])) if path in self.folders else super().list(path)

    def link(self, path: str) -> str:
        folder, name = posixpath.split(path)
        if folder.startswith(PCI) and posixpath.basename(folder) in self.folders[PCI]:
            return f"../../../bus/pci/drivers/{'nvidia' if name == 'driver' else name}"
        return super().link(path)

    def stat(self, path: str) -> Stat:
        folder, name = posixpath.split(path)
        if folder == "/dev" and name in self.folders["/dev"]:
            return NODE
        return super().stat(path)
