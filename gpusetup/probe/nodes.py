"""The device nodes through which a process reaches the driver: /dev/nvidia*, /dev/dxg under WSL."""

from __future__ import annotations

import re

from gpusetup.model.machine import DeviceNode, Reading, Snapshot
from gpusetup.readings.side import missing
from gpusetup.system.system import Stat, System, unless_refused

FOLDER = "/dev"
NODE = r"nvidia(?!-caps)|dxg"
"""Their names; in `nvidia-caps` are the instances of MIG."""


def read_nodes(system: System) -> Snapshot:
    names = unless_refused(system.list, FOLDER)
    if names is None:
        return missing("devices", FOLDER, "cannot be listed")
    paths = [f"{FOLDER}/{name}" for name in names if re.match(NODE, name)]
    nodes = tuple(_node(path, unless_refused(system.stat, path)) for path in paths)
    told = [f"{node.path} {node.mode or '(cannot be read)'}" for node in nodes]
    lines = told or ["no nvidia node"]
    readings = (Reading(subject="devices", source=FOLDER, value=line) for line in lines)
    return Snapshot(devices=nodes, readings=tuple(readings))


def _node(path: str, found: Stat | None) -> DeviceNode:
    if found is None:
        return DeviceNode(path=path)
    return DeviceNode(path=path, mode=found.mode, readable=found.readable, writable=found.writable)
