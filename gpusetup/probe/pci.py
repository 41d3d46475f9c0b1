"""Display controllers on the PCI bus, from any maker: from sysfs on Linux, from WMI on Windows."""

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
"""PowerShell's time limit in seconds: its first start after a boot is slow."""


def read_pci(system: System) -> Snapshot:
    """The display controllers on the PCI bus, from any maker. The class of a VGA, 3D or other
    display controller begins with 0x03; a graphics card's audio device has 0x04."""
    names = unless_refused(system.list, FOLDER)
    if names is None:
        return missing("pci_devices", FOLDER, "cannot be listed")
    devices = []
    for bus_id in names:
        if not _pci_value(system, bus_id, "class").startswith("0x03"):
            continue
        vendor = _pci_value(system, bus_id, "vendor").removeprefix("0x")
        device = _pci_value(system, bus_id, "device").removeprefix("0x")
        # If a driver is bound to the device, this link points to the driver, as in
        # `../../../bus/pci/drivers/nvidia`.
        driver = unless_refused(system.link, f"{FOLDER}/{bus_id}/driver") or ""
        controller = PciDevice(
            vendor=maker_on_bus(vendor),
            bus_id=bus_id,
            device_id=device or None,
            driver=driver.rpartition("/")[2] or None,
        )
        devices.append(controller)
    return _pci_snapshot(FOLDER, tuple(devices))


def _pci_value(system: System, bus_id: str, name: str) -> str:
    """A value of a PCI device in sysfs, such as `0x10de`; "" if it cannot be read."""
    return (read_or_none(system, f"{FOLDER}/{bus_id}/{name}") or "").strip()


def read_wmi(system: System) -> Snapshot:
    """The display controllers that Windows lists, including GPUs whose driver is missing."""
    output = system.run(WMI_QUERY, WMI_SECONDS)
    if not output.ok:
        return missing("pci_devices", WMI, output.problem or f"exit {output.exit}")
    return _pci_snapshot(WMI, parse_wmi(output.stdout))


WMI_ROW = re.compile(
    # The device's name, which may be null.
    r'(?i)"Name":(?:null|"([^"]*)"),'
    # `"PNPDeviceID":"PCI\\VEN_10DE&DEV_27B8&SUBSYS_..."`; PowerShell 5 writes & as \u0026.
    r'"PNPDeviceID":"[^"]*?VEN_(\w{4})(?:&|\\u0026)DEV_(\w{4})'
)
"""One row in the query's JSON output."""


def parse_wmi(text: str) -> tuple[PciDevice, ...]:
    """The devices in the query's JSON output. Virtual adapters have no PCI id, so they are left
    out.

    >>> text = '{"Name":"NVIDIA L4","PNPDeviceID":"PCI\\\\VEN_10DE&DEV_27B8&SUBSYS_1"}'
    >>> [(device.vendor, device.device_id) for device in parse_wmi(text)]
    [('nvidia', '27b8')]
    """
    return tuple(
        PciDevice(
            vendor=maker_on_bus(vendor.lower()), device_id=device_id.lower(), name=name or None
        )
        for name, vendor, device_id in WMI_ROW.findall(text)
    )


def _pci_snapshot(source: str, devices: tuple[PciDevice, ...]) -> Snapshot:
    value = f"display controllers: {len(devices)}"
    reading = Reading(subject="pci_devices", source=source, value=value)
    return Snapshot(pci_devices=devices, readings=(reading,))
