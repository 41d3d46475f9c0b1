"""The GPU side as one answer: sources asked, merged, and what each of them said."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import standin
from standin import A100, RTX_3050
from standin.machine import WithDriver
from tapes import ReplaySystem, Tape

from gpusetup.model.machine import GpuLink, PciDevice, Snapshot
from gpusetup.probe.gpu import read_driver_and_gpus
from gpusetup.probe.pci import WMI_QUERY
from gpusetup.system.processes import Output
from gpusetup.system.system import HOLD_BACK, Stat

LIBRARY = "/usr/lib/x86_64-linux-gnu/libcuda.so.1"
ML_LIBRARY = "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"
FILE = Stat(mode="-rw-r--r--", readable=True, writable=False)
Live = Callable[..., Snapshot]
NODE = Stat(mode="crw-rw-rw-", readable=True, writable=True)
OPEN_580 = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build"
    "  Tue Sep 23 09:55:41 UTC 2025\nGCC version:  gcc version 13.3.0\n"
)
PCI_3090 = {
    "class": "0x030000\n",
    "vendor": "0x10de\n",
    "device": "0x2204\n",
    "power_state": "D3cold\n",
}
NVML_3090 = {
    "index": 0,
    "name": "NVIDIA GeForce RTX 3090",
    "uuid": "GPU-0a",
    "pci_bus_id": "00000000:01:00.0",
    "memory_total_bytes": 24 << 30,
    "persistence": False,
    "problems": [],
}
CUDA_3090 = {
    "index": 0,
    "name": "NVIDIA GeForce RTX 3090",
    "uuid": "GPU-0a",
    "pci_bus_id": "0000:01:00.0",
    "compute_capability": "8.6",
}


def nvml(*devices: dict[str, Any], **more: Any) -> dict[str, Any]:
    """NVML's answer about a healthy driver."""
    return {
        "init": 0,
        "message": "Success",
        "driver_version": "580.95.05",
        "cuda_version": "13.0",
        "nvml_version": "13.580.95.05",
        "devices": list(devices),
        "problems": [],
        "seconds": 0.2,
        **more,
    }


def cuda(*devices: dict[str, Any], **more: Any) -> dict[str, Any]:
    """libcuda's answer about a healthy driver."""
    return {
        "library": "/usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05",
        "init": 0,
        "init_name": "CUDA_SUCCESS",
        "version": "13.0",
        "device_count": len(devices),
        "devices": list(devices),
        "problems": [],
        "seconds": 0.4,
        **more,
    }


def linux(
    *,
    ask: dict[str, Any] | None = None,
    pci: dict[str, dict[str, str]] | None = None,
    **more: Any,
) -> Tape:
    """A Linux machine with driver 580.95.05 loaded, unless keywords say otherwise."""
    pci = {"0000:01:00.0": PCI_3090} if pci is None else pci
    folder = "/sys/bus/pci/devices"
    read = {
        "/proc/driver/nvidia/version": OPEN_580,
        "/sys/module/nvidia/version": "580.95.05\n",
        "/proc/modules": "nvidia_uvm 1 0 - Live 0x0\nnvidia 9 1 nvidia_uvm, Live 0x0\n",
        **{
            f"{folder}/{bus}/{name}": text for bus, ids in pci.items() for name, text in ids.items()
        },
    }
    return Tape(
        read=read | more.pop("read", {}),
        list={folder: tuple(pci), "/dev": ("null", "nvidia0", "nvidiactl")} | more.pop("list", {}),
        stat={
            LIBRARY: FILE,
            ML_LIBRARY: FILE,
            "/dev/nvidia0": NODE,
            "/dev/nvidiactl": NODE,
        }
        | more.pop("stat", {}),
        link={
            LIBRARY: "libcuda.so.580.95.05",
            ML_LIBRARY: "libnvidia-ml.so.580.95.05",
            f"{folder}/0000:01:00.0/driver": "../../../bus/pci/drivers/nvidia",
        },
        ask={"read_nvml": nvml(NVML_3090), "read_cuda": cuda(CUDA_3090)} | (ask or {}),
        **more,
    )


def bare(**more: Any) -> Tape:
    """A Linux machine without any trace of NVIDIA."""
    return Tape(list={"/sys/bus/pci/devices": (), "/dev": ("null",)}, **more)


def said(side: Snapshot, subject: str) -> dict[str, str | None]:
    """Source -> value or problem of one subject."""
    return {r.source: r.value or r.problem for r in side.readings if r.subject == subject}


class Deaf(ReplaySystem):
    """A machine on which no child may be started."""

    def ask(self, *words: Any, **more: Any) -> Any:
        raise AssertionError(f"asked {words}")

    def run(self, *words: Any, **more: Any) -> Any:
        raise AssertionError(f"ran {words}")


# --- healthy and empty machines


def test_a_machine_without_any_trace_of_nvidia_starts_no_child() -> None:
    side = read_driver_and_gpus(Deaf(bare()))
    assert side.gpus == ()
    assert side.driver.library_found is False
    assert said(side, "gpus")["nvml, libcuda"] == "not asked: no driver library, node or module"


# --- trouble


@pytest.mark.parametrize("oddity", ["stub", "compat"])
def test_a_foreign_libcuda_is_named_and_its_cuda_version_not_believed(oddity: str) -> None:
    tape = linux(
        ask={
            "read_nvml": {"init": 12, "message": "not found"},
            "read_cuda": cuda(
                CUDA_3090, **{oddity: True, "library": "/usr/local/cuda/x/libcuda.so.1"}
            ),
        }
    )
    side = read_driver_and_gpus(ReplaySystem(tape))
    assert side.driver.cuda is None
    assert side.driver.libcuda_path == "/usr/local/cuda/x/libcuda.so.1"


# --- Windows


def test_windows_without_a_driver_still_lists_its_card() -> None:
    said_by_wmi = '[{"Name":"Microsoft Basic Display Adapter","PNPDeviceID":"ROOT\\\\BASIC"},'
    said_by_wmi += '{"Name":"Video Controller","PNPDeviceID":"PCI\\\\VEN_10DE&DEV_25A2&SUBSYS_1"}]'
    run = {" ".join(WMI_QUERY): Output(argv=(), exit=0, stdout=said_by_wmi)}
    side = read_driver_and_gpus(ReplaySystem(Tape(family="windows", run=run)))
    assert side.gpus is None
    assert side.pci_devices == (
        PciDevice(vendor="nvidia", device_id="25a2", name="Video Controller"),
    )


# --- visibility

TWO = (NVML_3090, {**NVML_3090, "index": 1, "uuid": "GPU-0b", "pci_bus_id": "00000000:02:00.0"})


def test_cuda_itself_says_which_gpus_are_visible() -> None:
    second = {**CUDA_3090, "uuid": "GPU-0b", "pci_bus_id": "0000:02:00.0"}
    tape = linux(
        ask={"read_nvml": nvml(*TWO), "read_cuda": cuda(second)},
        environ={"CUDA_VISIBLE_DEVICES": "1"},
    )
    gpus = read_driver_and_gpus(ReplaySystem(tape)).gpus
    assert [(gpu.visible, gpu.cuda_index) for gpu in gpus] == [(False, None), (True, 0)]


# --- the real children, with stand-in libraries


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Live:
    """This machine with a driver of the given state, its nodes, and no nvidia-smi on PATH."""

    def read(
        gpus: tuple[Mapping[str, object], ...] = (A100,),
        *,
        limit: float = 20.0,
        notify: Callable[[str], None] | None = None,
        **more: object,
    ) -> Snapshot:
        monkeypatch.setenv("PATH", str(tmp_path))
        standin.install(monkeypatch, tmp_path, standin.state(gpus, **more))
        return read_driver_and_gpus(WithDriver(len(gpus)), limit=limit, notify=notify)

    return read


def test_two_real_children_agree_about_gpus_in_another_order(live: Live) -> None:
    gpus = live((RTX_3050, A100), cuda__order="1,0").gpus
    assert [(gpu.nvml_index, gpu.cuda_index) for gpu in gpus] == [(0, 1), (1, 0)]
    assert [str(gpu.compute_capability) for gpu in gpus] == ["8.6", "8.0"]
    assert [gpu.visible for gpu in gpus] == [True, True]


# --- how several GPUs are connected ---------------------------------------------------------------


def test_nvidia_smi_tells_the_links_and_the_numa_nodes() -> None:
    """ask-30: only where there are several GPUs; the heading is underlined by terminal codes."""
    two = nvml(NVML_3090, {**NVML_3090, "index": 1, "uuid": "GPU-1b", "pci_bus_id": "0000:02:00.0"})
    matrix = (
        "\t\x1b[4mGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
        "GPU0\t X \tNV4\t0-15\t0\tN/A\nGPU1\tNV4\t X \t16-31\t1\tN/A\n\nLegend:\n"
    )
    program = "/usr/bin/nvidia-smi"
    words = (sys.executable, "-I", "-S", HOLD_BACK, program, "topo", "-m")
    tape = linux(
        ask={"read_nvml": two},
        which={"nvidia-smi": program},
        run={" ".join(words): Output(argv=(), exit=0, stdout=matrix)},
    )
    side = read_driver_and_gpus(ReplaySystem(tape))
    assert side.gpu_links == (GpuLink(first=0, second=1, kind="NV4"),)
    assert [gpu.numa_node for gpu in side.gpus or ()] == [0, 1]
    assert [gpu.name for gpu in side.gpus or ()] == ["NVIDIA GeForce RTX 3090"] * 2
