"""The device nodes through which a process reaches the driver: /dev/nvidia*, /dev/dxg under WSL."""

from __future__ import annotations

from gpusetup.model.machine import DeviceNode, Reading, Snapshot
from gpusetup.readings.side import missing
from gpusetup.system.system import Stat, System, list_or_empty, unless_refused

FOLDER = "/dev"
CAPABILITIES = "/dev/nvidia-caps"
"""The nodes of MIG instances."""
NAMES = ("nvidia", "dxg")


def read_nodes(system: System) -> Snapshot:
    try:
        names = system.list(FOLDER)
    except OSError as problem:
        return missing("devices", FOLDER, problem.strerror or "cannot be listed")
    ours = [f"{FOLDER}/{name}" for name in names if name.startswith(NAMES)]
    if CAPABILITIES in ours:
        ours.remove(CAPABILITIES)
        ours += [f"{CAPABILITIES}/{name}" for name in list_or_empty(system, CAPABILITIES)]
    nodes = tuple(_node(path, unless_refused(system.stat, path)) for path in ours)
    told = [f"{node.path} {node.mode or '(cannot be read)'}" for node in nodes]
    lines = told or ["no nvidia node"]
    readings = (Reading(subject="devices", source=FOLDER, value=line) for line in lines)
    return Snapshot(devices=nodes, readings=tuple(readings))


def _node(path: str, found: Stat | None) -> DeviceNode:
    if found is None:
        return DeviceNode(path=path)
    return DeviceNode(path=path, mode=found.mode, readable=found.readable, writable=found.writable)
