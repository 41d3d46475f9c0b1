"""The GPU side as one answer: sources asked, merged, and what each of them said."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import standin
from each_row import each
from hypothesis import given
from hypothesis import strategies as st
from standin import A100, RTX_3050
from standin.machine import WithDriver

from gpusetup.model.machine import Gpu, PciDevice, Snapshot
from gpusetup.probe import patience
from gpusetup.probe.gpu import read_gpu_side
from gpusetup.probe.pci import WMI_QUERY
from gpusetup.readings.side import bus_key, united
from gpusetup.readings.visible import visible_by_variable
from gpusetup.system.processes import Output
from gpusetup.system.system import Stat
from gpusetup.system.tape import ReplaySystem, Tape

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


def test_a_healthy_machine_is_read_from_all_its_sources() -> None:
    side = read_gpu_side(ReplaySystem(linux()))
    driver = side.driver
    assert (driver.version, driver.cuda, driver.library_version) == (
        "580.95.05",
        "13.0",
        "580.95.05",
    )
    assert (driver.open_module, driver.module_loaded, driver.uvm_loaded) == (True, True, True)
    assert (driver.nouveau_loaded, driver.module_version) == (False, "580.95.05")
    assert (driver.nvml_code, driver.seconds, driver.persistence) == (0, 0.4, False)
    assert (driver.library_found, driver.libcuda_path) == (
        True,
        "/usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05",
    )
    assert (side.cuda_api.init_code, side.cuda_api.device_count) == (0, 1)
    assert [node.path for node in side.devices] == ["/dev/nvidia0", "/dev/nvidiactl"]
    assert said(side, "driver.version") == {
        "nvml": "580.95.05",
        "/proc/driver/nvidia/version": "580.95.05",
        "/sys/module/nvidia/version": "580.95.05",
    }


def test_a_gpu_is_one_although_sources_write_its_address_differently() -> None:
    (gpu,) = read_gpu_side(ReplaySystem(linux())).gpus or ()
    assert (gpu.nvml_index, gpu.cuda_index, gpu.visible) == (0, 0, True)
    assert str(gpu.compute_capability) == "8.6"
    assert gpu.memory_total_bytes == 24 << 30


def test_the_pci_device_has_its_driver() -> None:
    assert read_gpu_side(ReplaySystem(linux())).pci_devices == (
        PciDevice(
            vendor="nvidia",
            bus_id="0000:01:00.0",
            device_id="2204",
            driver="nvidia",
        ),
    )


def test_a_machine_without_any_trace_of_nvidia_starts_no_child() -> None:
    side = read_gpu_side(Deaf(bare()))
    assert side.gpus == ()
    assert side.driver.library_found is False
    assert said(side, "gpus")["nvml, libcuda"] == "not asked: no driver library, node or module"


def test_a_gpu_without_a_driver_is_no_empty_list() -> None:
    tape = bare()
    tape.list["/sys/bus/pci/devices"] = ("0000:01:00.0",)
    tape.read |= {f"/sys/bus/pci/devices/0000:01:00.0/{name}": t for name, t in PCI_3090.items()}
    side = read_gpu_side(Deaf(tape))
    assert side.gpus is None
    assert said(side, "gpus")["all sources"] == "no driver answered; 1 on the PCI bus"
    assert (side.pci_devices[0].vendor, side.pci_devices[0].driver) == ("nvidia", None)


def test_no_list_of_the_hardware_means_unknown() -> None:
    assert read_gpu_side(Deaf(Tape(list={"/dev": ("null",)}))).gpus is None


# --- trouble


def test_nvidia_smi_stands_in_where_nvml_does_not_answer() -> None:
    gpu = "<product_name>NVIDIA GeForce RTX 3090</product_name><uuid>GPU-0a</uuid>"
    gpu += "<minor_number>0</minor_number><pci><pci_bus_id>0000:01:00.0</pci_bus_id></pci>"
    xml = f"<nvidia_smi_log><gpu id='0000:01:00.0'>{gpu}</gpu></nvidia_smi_log>"
    program = "/usr/bin/nvidia-smi"
    tape = linux(
        ask={"read_nvml": {"problem": "crashed with SIGSEGV"}},
        which={"nvidia-smi": program},
        run={f"{program} -q -x": Output(argv=(), exit=0, stdout=xml, seconds=4.5)},
    )
    side = read_gpu_side(ReplaySystem(tape))
    assert (side.gpus[0].nvml_index, side.gpus[0].cuda_index) == (0, 0)
    assert side.driver.seconds == 4.5
    assert [dict(event.values)["how"] for event in side.events] == ["crashed"]


def test_a_healthy_answer_asks_no_nvidia_smi_unless_deep() -> None:
    class NoSmi(ReplaySystem):
        def which(self, name: str) -> str | None:
            raise AssertionError(f"looked for {name}")

    assert read_gpu_side(NoSmi(linux())).gpus
    with pytest.raises(AssertionError, match="looked for nvidia-smi"):
        read_gpu_side(NoSmi(linux()), deep=True)


def test_deep_asks_nvidia_smi_even_where_nothing_hints_at_a_driver() -> None:
    side = read_gpu_side(ReplaySystem(bare()), deep=True)
    assert said(side, "driver")["nvidia-smi"] == "no such program"
    assert "dmesg" in said(side, "events")


def test_versions_that_differ_ask_nvidia_smi() -> None:
    tape = linux(ask={"read_nvml": nvml(NVML_3090, driver_version="570.86.15")})
    side = read_gpu_side(ReplaySystem(tape))
    assert side.driver.version == "580.95.05"
    assert "nvidia-smi" in {reading.source for reading in side.readings}


def test_a_driver_that_is_not_loaded_is_looked_for_on_disk() -> None:
    modinfo = Output(argv=(), exit=0, stdout="580.95.05\n")
    missing = {
        "/proc/driver/nvidia/version": errno.ENOENT,
        "/sys/module/nvidia/version": errno.ENOENT,
        "/proc/modules": "nouveau 2 0 - Live 0x0\n",
    }
    tape = linux(
        read=missing,
        ask={
            "read_nvml": {"init": 9, "message": "Driver Not Loaded"},
            "read_cuda": cuda(init=100, init_name="CUDA_ERROR_NO_DEVICE", devices=None),
        },
        run={"modinfo -F version nvidia": modinfo},
    )
    side = read_gpu_side(ReplaySystem(tape))
    assert (side.driver.module_loaded, side.driver.nouveau_loaded) == (False, True)
    assert (side.driver.version, side.driver.module_version) == (None, "580.95.05")
    assert (side.driver.nvml_code, side.cuda_api.init_code, side.gpus) == (9, 100, None)


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
    side = read_gpu_side(ReplaySystem(tape))
    assert side.driver.cuda is None
    assert side.driver.libcuda_path == "/usr/local/cuda/x/libcuda.so.1"
    assert any(oddity in (r.problem or "") for r in side.readings if r.source == "libcuda")


def test_without_nvml_the_gpus_are_those_of_cuda() -> None:
    tape = linux(ask={"read_nvml": {"problem": "nvidia-ml-py cannot be imported"}})
    side = read_gpu_side(ReplaySystem(tape))
    assert [(gpu.cuda_index, gpu.nvml_index) for gpu in side.gpus] == [(0, None)]
    assert side.driver.cuda == "13.0"


def test_a_driver_that_lists_no_gpu_says_so() -> None:
    tape = linux(
        ask={"read_nvml": nvml(), "read_cuda": cuda(init=100, init_name="…", devices=None)}
    )
    assert read_gpu_side(ReplaySystem(tape)).gpus == ()


# --- Windows


def test_windows_without_a_driver_still_lists_its_card() -> None:
    said_by_wmi = '[{"Name":"Microsoft Basic Display Adapter","PNPDeviceID":"ROOT\\\\BASIC"},'
    said_by_wmi += '{"Name":"Video Controller","PNPDeviceID":"PCI\\\\VEN_10DE&DEV_25A2&SUBSYS_1"}]'
    run = {" ".join(WMI_QUERY): Output(argv=(), exit=0, stdout=said_by_wmi)}
    side = read_gpu_side(ReplaySystem(Tape(family="windows", run=run)))
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
    gpus = read_gpu_side(ReplaySystem(tape)).gpus
    assert [(gpu.visible, gpu.cuda_index) for gpu in gpus] == [(False, None), (True, 0)]


def test_a_mig_instance_makes_its_gpu_visible() -> None:
    instance = {**CUDA_3090, "uuid": "MIG-77"}
    tape = linux(ask={"read_nvml": nvml(*TWO), "read_cuda": cuda(instance)})
    assert [gpu.visible for gpu in read_gpu_side(ReplaySystem(tape)).gpus] == [True, False]


@pytest.mark.parametrize("variable", ["", "-1", "NoDevFiles", "7"])
def test_where_cuda_finds_nothing_the_variable_says_that_it_hides_all(variable: str) -> None:
    tape = linux(
        ask={"read_nvml": nvml(*TWO), "read_cuda": cuda(init=100, devices=None)},
        environ={"CUDA_VISIBLE_DEVICES": variable},
    )
    assert [gpu.visible for gpu in read_gpu_side(ReplaySystem(tape)).gpus] == [False, False]


def test_without_the_variable_a_silent_cuda_leaves_visibility_open() -> None:
    tape = linux(ask={"read_nvml": nvml(*TWO), "read_cuda": cuda(init=999, devices=None)})
    assert [gpu.visible for gpu in read_gpu_side(ReplaySystem(tape)).gpus] == [None, None]


MIXED = (
    Gpu(name="NVIDIA GeForce GTX 1080 Ti", uuid="GPU-1aaa"),
    Gpu(name="NVIDIA GeForce RTX 3090", uuid="GPU-1bbb", mig_instances=("MIG-cc", "MIG-dd")),
)


@each(
    "variable, pci_order, expected",
    [
        ("0", True, (True, False)),
        ("0", False, (None, None)),
        ("0,1", False, (True, True)),
        ("1,5,0", True, (False, True)),
        ("0,-1,1", True, (True, False)),
        ("0,0", True, (False, False)),
        ("1gpu", True, (False, True)),
        ("none", False, (False, False)),
        ("GPU-1b", False, (False, True)),
        ("GPU-1", False, (False, False)),
        ("GPU-1bbb,GPU-zz,GPU-1aaa", False, (False, True)),
        ("GPU-1aaa,GPU-1bbb", False, (True, True)),
        ("GPU-1aaa,GPU-1aaa", False, (False, False)),
        ("MIG-dd", False, (False, True)),
        ("MIG-GPU-1bbb/1/0", False, (False, True)),
        ("GPU-1aaa,1", False, (True, False)),
    ],
)
def test_the_variable_is_read_as_cuda_reads_it(
    variable: str, pci_order: bool, expected: Any
) -> None:
    assert visible_by_variable(variable, MIXED, pci_order=pci_order) == expected


@given(st.text(max_size=40), st.booleans())
def test_any_value_of_the_variable_has_a_meaning_for_each_gpu(variable: str, order: bool) -> None:
    assert len(visible_by_variable(variable, MIXED, pci_order=order)) == 2


@given(st.integers(0, 0xFFFF), st.integers(0, 255), st.integers(0, 31), st.integers(0, 7))
def test_an_address_has_one_key_in_every_spelling(
    domain: int, bus: int, device: int, fn: int
) -> None:
    tail = f"{bus:02x}:{device:02x}.{fn}"
    spellings = {f"{domain:08X}:{tail.upper()}", f"{domain:04x}:{tail}", f"{domain:08x}:{tail}"}
    assert {bus_key(spelling) for spelling in spellings} == {f"{domain:04x}:{tail}"}


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
        return read_gpu_side(WithDriver(len(gpus)), limit=limit, notify=notify)

    return read


def test_two_real_children_agree_about_gpus_in_another_order(live: Live) -> None:
    gpus = live((RTX_3050, A100), cuda__order="1,0").gpus
    assert [(gpu.nvml_index, gpu.cuda_index) for gpu in gpus] == [(0, 1), (1, 0)]
    assert [str(gpu.compute_capability) for gpu in gpus] == ["8.6", "8.0"]
    assert [gpu.visible for gpu in gpus] == [True, True]


def test_a_slow_driver_is_announced_and_its_seconds_are_kept(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "NOTICE_SECONDS", 0.2)
    heard: list[str] = []
    side = live(nvml__slow_ms=600, notify=heard.append)
    assert (side.driver.seconds or 0) >= 0.6
    assert heard[-1].startswith("waiting for NVML")
    assert heard[-1].endswith(": up to 20 s")


def test_a_quick_driver_is_not_announced(live: Live) -> None:
    heard: list[str] = []
    live(notify=heard.append)
    assert heard == []


def test_a_machine_that_loses_a_gpu_keeps_it_in_the_list(live: Live) -> None:
    gone = {**A100, "temperature": "!15"}
    assert [gpu.lost for gpu in live((A100, gone), cuda__devices=1).gpus] == [False, True]


def test_a_source_that_lists_no_instances_leaves_them_to_the_next() -> None:
    bare_gpu = Gpu(name="unknown", nvml_index=0)
    known = Gpu(name="NVIDIA A30", nvml_index=0, mig_instances=("MIG-1",), throttle_reasons=())
    other = Gpu(name="NVIDIA L4", nvml_index=1)
    assert united((bare_gpu,), (other, known)) == (known, other)
