"""Display controllers on the PCI bus, whoever made them: sysfs on Linux, WMI on Windows."""

from __future__ import annotations

import re
from typing import Any

from gpusetup.accelerators.makers import maker_on_bus
from gpusetup.model.machine import PciDevice, Reading
from gpusetup.readings.side import GpuSide, missing
from gpusetup.system.system import System, read_or_none

FOLDER = "/sys/bus/pci/devices"
DISPLAY_CLASS = "0x03"
WMI = "Win32_VideoController"
WMI_QUERY = (
    "powershell",
    "-NoProfile",
    "-NonInteractive",
    "-Command",
    f"Get-CimInstance {WMI} | Select-Object Name,PNPDeviceID | ConvertTo-Json -Compress",
)
WMI_SECONDS = 10.0


def read_pci(system: System) -> GpuSide:
    try:
        names = system.list(FOLDER)
    except OSError as problem:
        return missing("pci_devices", FOLDER, problem.strerror or "cannot be listed")
    shown = (name for name in names if is_display(_id(system, name, "class")))
    devices = tuple(read_device(system, name) for name in shown)
    return GpuSide(pci_devices=devices, readings=_told(FOLDER, devices))


def is_display(pci_class: str | None) -> bool:
    """VGA, 3D and other display controllers; not the sound device of the same card.

    >>> is_display("0x030200"), is_display("0x040300"), is_display(None)
    (True, False, False)
    """
    return (pci_class or "").startswith(DISPLAY_CLASS)


def read_device(system: System, bus_id: str) -> PciDevice:
    vendor = (_id(system, bus_id, "vendor") or "").removeprefix("0x")
    device = (_id(system, bus_id, "device") or "").removeprefix("0x")
    return PciDevice(
        vendor=maker_on_bus(vendor),
        bus_id=bus_id,
        device_id=device or None,
        driver=_driver(system, bus_id),
        power_state=_id(system, bus_id, "power_state"),
    )


def _id(system: System, bus_id: str, name: str) -> str | None:
    text = read_or_none(system, f"{FOLDER}/{bus_id}/{name}")
    return None if text is None else text.strip() or None


def _driver(system: System, bus_id: str) -> str | None:
    """The link `driver` ends with the name of the driver that is bound."""
    try:
        return system.link(f"{FOLDER}/{bus_id}/driver").rpartition("/")[2] or None
    except OSError:
        return None


def read_wmi(system: System) -> GpuSide:
    """Windows' own list: it also has a GPU whose driver is missing."""
    said = system.run(WMI_QUERY, WMI_SECONDS)
    if not said.ok:
        return missing("pci_devices", WMI, said.problem or f"exit {said.exit}")
    devices = parse_wmi(said.stdout)
    if devices is None:
        return missing("pci_devices", WMI, "the answer is not JSON")
    return GpuSide(pci_devices=devices, readings=_told(WMI, devices))


def parse_wmi(text: str) -> tuple[PciDevice, ...] | None:
    """One object, or a list of them; a virtual adapter has no PCI id and is left out.

    >>> text = '{"Name":"NVIDIA L4","PNPDeviceID":"PCI\\\\\\\\VEN_10DE&DEV_27B8&SUBSYS_1"}'
    >>> [(device.vendor, device.device_id) for device in parse_wmi(text)]
    [('nvidia', '27b8')]
    """
    import json

    try:
        answer = json.loads(text or "[]")
    except ValueError:
        return None
    rows = answer if isinstance(answer, list) else [answer]
    found = (_wmi_device(row) for row in rows if isinstance(row, dict))
    return tuple(device for device in found if device is not None)


def _wmi_device(row: dict[str, Any]) -> PciDevice | None:
    ids = re.search(r"VEN_([0-9A-F]{4})&DEV_([0-9A-F]{4})", str(row.get("PNPDeviceID")), re.I)
    if not ids:
        return None
    vendor, device = (part.lower() for part in ids.groups())
    name = row.get("Name")
    return PciDevice(
        vendor=maker_on_bus(vendor), device_id=device, name=str(name) if name else None
    )


def _told(source: str, devices: tuple[PciDevice, ...]) -> tuple[Reading, ...]:
    return tuple(
        Reading(subject="pci_devices", source=source, value=_line(device)) for device in devices
    ) or (Reading(subject="pci_devices", source=source, value="no display controller"),)


def _line(device: PciDevice) -> str:
    bound = f"driver {device.driver}" if device.driver else None
    parts = (device.bus_id, device.vendor, device.device_id, device.name, bound, device.power_state)
    return " ".join(part for part in parts if part)
