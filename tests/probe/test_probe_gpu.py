"""The GPU side as one answer: sources asked and merged."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import standin
from standin import A100, RTX_3050
from standin.machine import WithDriver
from tapes import ReplaySystem, Tape

from gpusetup.model.machine import GpuLink, PciDevice
from gpusetup.probe.gpu import read_driver_and_gpus
from gpusetup.probe.pci import WMI_QUERY
from gpusetup.system.processes import Output
from gpusetup.system.system import HOLD_BACK


class Deaf(ReplaySystem):
    """A machine on which no child may be started."""

    def ask(self, *words: Any, **more: Any) -> Any:
        raise AssertionError(f"asked {words}")

    def run(self, *words: Any, **more: Any) -> Any:
        raise AssertionError(f"ran {words}")


def test_a_machine_without_any_trace_of_nvidia_starts_no_child() -> None:
    tape = Tape(list={"/sys/bus/pci/devices": (), "/dev": ("null",)})
    side = read_driver_and_gpus(Deaf(tape))
    assert side.gpus == ()
    assert side.driver.library_found is False


@pytest.mark.parametrize("oddity", ["stub", "compat"])
def test_the_cuda_version_of_a_foreign_libcuda_is_not_believed(oddity: str) -> None:
    library = "/usr/local/cuda/x/libcuda.so.1"
    cuda = {"library": library, "init": 0, "version": "13.0", "devices": [], oddity: True}
    ask = {"read_nvml": {"init": 12, "message": "not found"}, "read_cuda": cuda}
    tape = Tape(list={"/dev": ("nvidia0",)}, ask=ask)
    driver = read_driver_and_gpus(ReplaySystem(tape)).driver
    assert (driver.cuda, driver.libcuda_path) == (None, library)


def test_windows_without_a_driver_still_lists_its_card() -> None:
    said_by_wmi = '[{"Name":"Microsoft Basic Display Adapter","PNPDeviceID":"ROOT\\\\BASIC"},'
    said_by_wmi += '{"Name":"Video Controller","PNPDeviceID":"PCI\\\\VEN_10DE&DEV_25A2&SUBSYS_1"}]'
    run = {" ".join(WMI_QUERY): Output(argv=(), exit=0, stdout=said_by_wmi)}
    side = read_driver_and_gpus(ReplaySystem(Tape(family="windows", run=run)))
    assert side.gpus is None
    assert side.pci_devices == (
        PciDevice(vendor="nvidia", device_id="25a2", name="Video Controller"),
    )


def test_two_real_children_agree_about_gpus_in_another_order(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    standin.install(monkeypatch, tmp_path, standin.state((RTX_3050, A100), cuda__order="1,0"))
    gpus = read_driver_and_gpus(WithDriver(2), limit=20.0).gpus or ()
    assert [(gpu.nvml_index, gpu.cuda_index) for gpu in gpus] == [(0, 1), (1, 0)]
    assert [str(gpu.compute_capability) for gpu in gpus] == ["8.6", "8.0"]
    assert [gpu.visible for gpu in gpus] == [True, True]


def test_nvidia_smi_tells_the_links_and_the_numa_nodes() -> None:
    """ask-30: only where there are several GPUs; the heading is underlined by terminal codes."""
    devices = [{"index": index, "name": "NVIDIA L4", "uuid": f"GPU-{index}a"} for index in (0, 1)]
    matrix = (
        "\t\x1b[4mGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
        "GPU0\t X \tNV4\t0-15\t0\tN/A\nGPU1\tNV4\t X \t16-31\t1\tN/A\n\nLegend:\n"
    )
    program = "/usr/bin/nvidia-smi"
    words = (sys.executable, "-I", "-S", HOLD_BACK, program, "topo", "-m")
    tape = Tape(
        list={"/proc/driver/nvidia/gpus": ("0000:01:00.0", "0000:02:00.0")},
        ask={"read_nvml": {"init": 0, "devices": devices}},
        which={"nvidia-smi": program},
        run={" ".join(words): Output(argv=(), exit=0, stdout=matrix)},
    )
    side = read_driver_and_gpus(ReplaySystem(tape))
    assert side.gpu_links == (GpuLink(first=0, second=1, kind="NV4"),)
    assert [(gpu.name, gpu.numa_node) for gpu in side.gpus or ()] == [
        ("NVIDIA L4", 0),
        ("NVIDIA L4", 1),
    ]
