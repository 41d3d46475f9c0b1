"""The judgement: one root, what it explains, and the ways out that are exact for a machine."""

from __future__ import annotations

from typing import Any

import pytest
from each_row import each
from judging import (
    HEALTHY,
    IN_DOCKER,
    NO_DRIVER,
    ON_THE_BUS,
    WINDOWS,
    WSL,
    changed,
    found,
    gpu,
    judged,
)

from gpusetup.catalog.file import load_catalog
from gpusetup.diagnosis.explanations import records
from gpusetup.model.finding import Fix, Severity, command_lines
from gpusetup.model.frozen import fields as fields_of
from gpusetup.model.frozen import replace
from gpusetup.model.machine import (
    Container,
    CudaApi,
    DeviceNode,
    Driver,
    PciDevice,
    Snapshot,
    Torch,
)

CATALOG = load_catalog()
CPU_TORCH = Torch(installed=True, version="2.14.1+cpu", backend="cpu", installer="pip")


def fix(machine: Snapshot, id: str) -> Fix:
    made = found(machine, id)
    assert made and made.fix
    return made.fix


# --- the root ------------------------------------------------------------------------------------

ROOTS = (
    ("ok", HEALTHY),
    ("unknown", Snapshot()),
    # A missing driver outranks the CPU build above it: the driver is needed either way.
    ("driver-missing", replace(NO_DRIVER, torch=CPU_TORCH)),
    ("torch-cpu-build", changed(torch=CPU_TORCH)),
    # What the process is told outranks the wheel.
    (
        "cuda-visible-devices-hidden",
        changed(gpu(visible=False), torch=CPU_TORCH, env={"CUDA_VISIBLE_DEVICES": ""}),
    ),
    # A lost GPU outranks everything that then fails to start.
    ("gpu-fell-off-bus", changed(gpu(lost=True), cuda_api=CudaApi(init_code=999))),
    # Error 803 with an NVML that works: a stale libcuda, not a mismatch of the driver.
    (
        "libcuda-driver-mismatch",
        changed(driver={"library_version": "535.161.08"}, cuda_api=CudaApi(init_code=803)),
    ),
    ("driver-too-old", changed(driver={"version": "550.54.14", "cuda": "12.4"})),
    # A loss of speed is the root only where nothing is broken.
    ("power-thermal-throttle", gpu(temperature_celsius=95)),
    ("ok", replace(NO_DRIVER, pci_devices=(), torch=CPU_TORCH, packages=())),
)


CLOSED = (DeviceNode(path="/dev/nvidia0", mode="crw-------", readable=False),)


def test_what_is_explained_is_not_the_root_even_where_it_stands_first_in_the_order() -> None:
    silent = {"library_found": True, "nvml_code": 9}
    diagnosis = judged(changed(NO_DRIVER, driver=silent, devices=CLOSED))
    explained = {f.id: f.explained_by for f in diagnosis.findings}
    assert diagnosis.cause == "device-permission"
    assert explained["driver-not-loaded"] == "device-permission"


@each("cause, machine", ROOTS)
def test_one_cause_is_named(cause: str, machine: Snapshot) -> None:
    diagnosis = judged(machine)
    assert diagnosis.cause == cause
    order = {row.id for row in records() if row.place}
    assert [f.id for f in diagnosis.findings if f.root] == ([cause] if cause in order else [])


def test_ok_needs_gpu_driver_and_a_torch_that_serves_them_to_be_shown() -> None:
    for part in (
        {"gpus": None},
        {"gpus": ()},
        {"torch": Torch()},
        {"torch": Torch(installed=True, version="2.14.1")},
        {"driver": Driver(), "gpus": None},
    ):
        assert judged(changed(**part, pci_devices=None)).cause != "ok", part


# --- ways out ------------------------------------------------------------------------------------


def silent(id: str, *bus: str, **system: str) -> Snapshot:
    """A machine of a distribution whose driver is missing, with these GPUs on its bus."""
    devices = {
        "pci_devices": tuple(
            PciDevice(vendor="nvidia", bus_id=f"0000:0{n}:00.0", device_id=device)
            for n, device in enumerate(bus, 1)
        )
    }
    return changed(NO_DRIVER, os={"id": id, **system}, **(devices if bus else {}))


NOUVEAU = (replace(ON_THE_BUS, driver="nouveau"),)
COMPAT = changed(
    IN_DOCKER,
    container={"cuda_compat_path": "/usr/local/cuda/compat"},
    cuda_api=CudaApi(init_code=804),
    env={"LD_LIBRARY_PATH": "/usr/local/cuda/compat:/opt/my libs"},
)


@each(
    "id, machine, told, never",
    [
        # The commands are of this interpreter, this index, and whoever installs here.
        ("torch-cpu-build", changed(torch=CPU_TORCH),
         "gpusetup install --python /home/me/env/bin/python|"
         "/home/me/env/bin/python -m pip install|"
         "--index-url https://download.pytorch.org/whl/cu130|torch==2.14.1+cu130", "uv pip"),
        ("torch-cpu-build", changed(WINDOWS, torch=CPU_TORCH),
         'gpusetup install --python "C:\\My Env\\Scripts\\python.exe"', "/home"),
        ("externally-managed",
         changed(torch=CPU_TORCH, python={"site_writable": False, "prefix": "/home/me/p/.venv"}),
         "--venv .venv-gpu ", "sudo"),
        # The driver comes by the distribution's own command.
        ("driver-missing", silent("ubuntu"),
         "sudo apt install -y nvidia-driver-580-open|sudo modprobe nvidia\nnvidia-smi",
         "sudo reboot"),
        ("driver-not-loaded",
         changed(NO_DRIVER, driver={"library_found": True, "nouveau_loaded": True},
                 pci_devices=NOUVEAU),
         "blacklist nouveau|\nsudo update-initramfs -u\nsudo reboot", "modprobe nvidia"),
        ("wsl-driver",
         changed(WSL, gpus=None, driver=Driver(library_found=False), cuda_api=CudaApi()),
         "wsl.exe --update\nwsl.exe --shutdown|not install a Linux driver", "modprobe"),
        ("forward-compat-unsupported", COMPAT, "export LD_LIBRARY_PATH='/opt/my libs'", "reboot"),
    ],
)  # fmt: skip
def test_the_way_out_is_exact_for_the_machine(
    id: str, machine: Snapshot, told: str, never: str
) -> None:
    way = fix(machine, id)
    shown = "\n".join((way.text, *command_lines(way), ""))
    assert [one for one in told.split("|") if one not in shown] == []
    assert never not in shown
    assert not way.commands or way.needs_reboot is ("sudo reboot" in way.commands)


DOCKER = Container(kind="docker", nvidia_requested=True)


@pytest.mark.parametrize(
    ("id", "changes"),
    (
        ("uvm-missing", {"driver": {"uvm_loaded": False}, "cuda_api": {"init_code": 999}}),
        ("gpu-fell-off-bus", {"gpus": (replace(HEALTHY.gpus[0], lost=True),)}),
    ),
)
def test_a_container_gets_no_command_of_its_host(id: str, changes: dict[str, Any]) -> None:
    way = fix(changed(container=DOCKER, **changes), id)
    assert way.commands == () and way.alternatives[0].title == "on the host, not in this container"
    assert fix(changed(**changes), id).commands == way.alternatives[0].commands


def test_an_old_driver_gets_its_floor_and_the_build_that_needs_no_update() -> None:
    way = fix(changed(driver={"version": "550.54.14", "cuda": "12.4"}), "driver-too-old")
    assert way.min_driver == CATALOG.driver_floor("13.0", "linux")
    assert "https://download.pytorch.org/whl/cu126" in way.alternatives[0].commands[0]
    assert not way.needs_reboot


# --- every machine -------------------------------------------------------------------------------


@each("base", [HEALTHY, WINDOWS, WSL, NO_DRIVER])
def test_whatever_is_not_known_one_cause_is_named_and_no_rule_breaks(base: Snapshot) -> None:
    for part in ("os", "python", "driver", "cuda_api", "torch", "container", "toolkit", "memory"):
        nothing = type(getattr(base, part))()
        for one in fields_of(type(nothing)):
            lacking = {part: {one.name: getattr(nothing, one.name)}}
            diagnosis = judged(changed(base, **lacking))
            ids = [finding.id for finding in diagnosis.findings]
            roots = [finding for finding in diagnosis.findings if finding.root]
            assert "rule-broken" not in ids and len(set(ids)) == len(ids), lacking
            assert len(roots) == (diagnosis.cause not in ("ok", "unknown")), lacking
            if any(f.severity is Severity.ERROR for f in diagnosis.findings):
                assert roots and roots[0].severity is Severity.ERROR, lacking
