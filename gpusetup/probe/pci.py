"""Display controllers on the PCI bus, whoever made them: sysfs on Linux, WMI on Windows."""

from __future__ import annotations

import re

from gpusetup.accelerators.makers import maker_on_bus
from gpusetup.model.machine import PciDevice, Reading, Snapshot
from gpusetup.readings.sources import missing
from gpusetup.system.system import System, read_or_none, unless_refused

FOLDER = "/sys/bus/pci/devices"
WMI = "Win32_VideoController"
WMI_QUERY = (
    "powershell",
    "-NoProfile",
    "-NonInteractive",
    "-Command",
    f"Get-CimInstance {WMI} | Select-Object Name,PNPDeviceID | ConvertTo-Json -Compress",
)
WMI_SECONDS = 10.0


def read_pci(system: System) -> Snapshot:
    """VGA, 3D and other display controllers; not the sound device of the same card."""
    names = unless_refused(system.list, FOLDER)
    if names is None:
        return missing("pci_devices", FOLDER, "cannot be listed")
    found = (name for name in names if (_pci_value(system, name, "class") or "").startswith("0x03"))
    return _pci_snapshot(FOLDER, tuple(read_device(system, name) for name in found))


def read_device(system: System, bus_id: str) -> PciDevice:
    vendor, device = (
        (_pci_value(system, bus_id, name) or "").removeprefix("0x") for name in ("vendor", "device")
    )
    numa_node = _pci_value(system, bus_id, "numa_node") or ""
    driver = unless_refused(system.link, f"{FOLDER}/{bus_id}/driver") or ""
    return PciDevice(
        vendor=maker_on_bus(vendor),
        bus_id=bus_id,
        device_id=device or None,
        driver=driver.rpartition("/")[2] or None,
        # The kernel writes -1 where the firmware names no node.
        numa_node=int(numa_node) if numa_node.isdecimal() else None,
    )


def _pci_value(system: System, bus_id: str, name: str) -> str | None:
    return (read_or_none(system, f"{FOLDER}/{bus_id}/{name}") or "").strip() or None


def read_wmi(system: System) -> Snapshot:
    """Windows' own list: it also has a GPU whose driver is missing."""
    output = system.run(WMI_QUERY, WMI_SECONDS)
    if not output.ok:
        return missing("pci_devices", WMI, output.problem or f"exit {output.exit}")
    return _pci_snapshot(WMI, parse_wmi(output.stdout))


WMI_ROW = r'(?i)"Name":(?:null|"([^"]*)"),"PNPDeviceID":"[^"]*?VEN_(\w{4})(?:&|\\u0026)DEV_(\w{4})'


def parse_wmi(text: str) -> tuple[PciDevice, ...]:
    """The rows of its JSON; a virtual adapter has no PCI id and is left out.

    >>> text = '{"Name":"NVIDIA L4","PNPDeviceID":"PCI\\\\VEN_10DE&DEV_27B8&SUBSYS_1"}'
    >>> [(device.vendor, device.device_id) for device in parse_wmi(text)]
    [('nvidia', '27b8')]
    """
    return tuple(
        PciDevice(vendor=maker_on_bus(vendor.lower()), device_id=device.lower(), name=name or None)
        for name, vendor, device in re.findall(WMI_ROW, text)
    )


def _pci_snapshot(source: str, devices: tuple[PciDevice, ...]) -> Snapshot:
    lines = []
    for device in devices:
        driver = device.driver and f"driver {device.driver}"
        parts = (device.bus_id, device.vendor, device.device_id, device.name, driver)
        lines.append(" ".join(filter(None, parts)))
    values = lines or ["no display controller"]
    readings = (Reading(subject="pci_devices", source=source, value=value) for value in values)
    return Snapshot(pci_devices=devices, readings=tuple(readings))
