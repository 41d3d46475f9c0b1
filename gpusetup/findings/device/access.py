"""Whether the device nodes are there and can be opened."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpusetup.evidence.context import (
    RuleContext,
    asked_for_cuda,
    driver_answers,
    event_evidence,
    events,
    gpus,
    in_container,
    is_report,
    value_evidence,
)
from gpusetup.findings.layers import INIT_FAILS, Layer
from gpusetup.findings.record import Cause
from gpusetup.fixes import paste
from gpusetup.model.finding import Finding, Fix
from gpusetup.model.machine import DeviceNode, Event
from gpusetup.model.shell import filled, lines

UVM = "/dev/nvidia-uvm"


UVM_MISSING = Cause(
    id="uvm-missing",
    place=(Layer.READINESS, 20),
    title="nvidia_uvm or its node is missing",
    means="NVML and nvidia-smi work without it, CUDA does not.",
    proven_by="Module or node missing, and cuInit fails",
    way_out="modprobe nvidia_uvm; nvidia-modprobe -u",
    source="manual page of nvidia-modprobe",
    explains=INIT_FAILS,
)


def uvm_missing(context: RuleContext) -> Iterator[Finding]:
    """The unified memory module, or its node, is missing: NVML works, CUDA does not."""
    machine = context.snapshot
    paths = {node.path for node in machine.devices or ()}
    no_node = machine.devices is not None and "/dev/nvidiactl" in paths and UVM not in paths
    asked_in_vain = machine.cuda_api.init_code not in (0, None)
    missing = machine.driver.uvm_loaded is False or no_node
    proven = missing and asked_in_vain and driver_answers(context)
    messages = (*events(context, "uvm-missing"), *_module_not_found(context))
    if machine.os.wsl or not (messages or proven):
        return
    facts = list(event_evidence(messages))
    if machine.driver.uvm_loaded is False:
        facts.append(
            value_evidence(context, "driver.uvm_loaded", "module nvidia_uvm is not loaded")
        )
    if no_node:
        facts.append(value_evidence(context, "devices", f"{UVM} is missing"))
    text = "Load nvidia_uvm and make its node"
    if in_container(context):
        text = f"On the host load nvidia_uvm, and give the container {UVM}{_by_lxc(context)}"
    yield UVM_MISSING.found(
        "CUDA's unified memory module (nvidia_uvm) or its device node is missing",
        evidence=tuple(facts),
        fix=Fix(
            text=text,
            commands=lines("sudo modprobe nvidia_uvm", "sudo nvidia-modprobe -u -c=0"),
            needs_root=True,
        ),
    )


def _by_lxc(context: RuleContext) -> str:
    """The line of a container's configuration that hands on a node (lxc.container.conf(5))."""
    if context.snapshot.container.kind != "lxc":
        return ", then start it again"
    entry = f"lxc.mount.entry = {UVM} {UVM[1:]} none bind,optional,create=file"
    return f" (`{entry}` in its configuration), then start it again"


def _module_not_found(context: RuleContext) -> tuple[Event, ...]:
    names = ("nvidia-uvm", "nvidia_uvm")
    return tuple(e for e in events(context, "module-not-found") if e.values.get("module") in names)


DEVICE_NODE_MISSING = Cause(
    id="device-node-missing",
    place=(Layer.READINESS, 15),
    title="a GPU's device node is missing",
    means="Nothing can open that GPU: the driver lists one fewer, or CUDA does without it.",
    proven_by="Outside a container fewer /dev/nvidia0, 1, … than GPUs in the kernel driver's hand",
    not_when="A container, which is given the nodes of its own GPUs",
    way_out="nvidia-modprobe -c",
    source="manual page of nvidia-modprobe",
    explains=(*INIT_FAILS, "gpu-init-failed", "cuda-misses-gpu"),
)


def device_node_missing(context: RuleContext) -> Iterator[Finding]:
    """A GPU that the kernel's driver holds has no node; a container is given those of its own."""
    lacking = events(context, "device-node-missing")
    if lacking and not in_container(context):
        numbers = [event.values.get("gpu", "") for event in lacking]
        nodes = ", ".join(f"/dev/nvidia{number}" for number in numbers)
        who = ", ".join(f"GPU {e.values.get('gpu')} ({e.values.get('bus')})" for e in lacking)
        yield DEVICE_NODE_MISSING.found(
            f"{nodes} {'is' if len(lacking) == 1 else 'are'} missing: nothing can use {who}",
            evidence=(
                *event_evidence(lacking),
                value_evidence(context, "gpus", f"{len(gpus(context))} GPUs are listed"),
            ),
            fix=Fix(
                text="Make the node; it is lost at a reboot, so let the driver's udev rules or "
                "nvidia-persistenced make the nodes at each start",
                commands=tuple(
                    filled("sudo nvidia-modprobe -c={number}", number=number) for number in numbers
                ),
                looks=paste.look("see the nodes", *lines("ls -l /dev/nvidia*")),
                needs_root=True,
            ),
        )


def _closed_to_others(context: RuleContext) -> list[DeviceNode]:
    """Nodes that a text lists as their group's only, where a program looked for CUDA in vain."""
    if not (is_report(context) and asked_for_cuda(context)) or gpus(context):
        return []
    return [
        node
        for node in context.snapshot.devices or ()
        if re.fullmatch(CARD, node.path) and node.mode and node.mode[7:9] != "rw"
    ]


CARD = r"/dev/nvidia(?:\d+|ctl)"


DEVICE_PERMISSION = Cause(
    id="device-permission",
    place=(Layer.READINESS, 10),
    title="this user may not open the device nodes",
    means="Group, SELinux or cgroup rules.",
    proven_by="A node that is not readable and writable",
    way_out="Join the owning group",
    source="udev rules of the driver packages",
    explains=(*INIT_FAILS, "driver-not-loaded"),
)


def device_permission(context: RuleContext) -> Iterator[Finding]:
    """This user may not open the device nodes."""
    shut = [
        node
        for node in context.snapshot.devices or ()
        if node.path.startswith("/dev/nvidia")
        and "caps" not in node.path
        and (node.readable is False or node.writable is False)
    ]
    shut = sorted(shut or _closed_to_others(context), key=_what_cuda_opens)
    messages = events(context, "device-permission")
    if not shut and not messages:
        return
    yield DEVICE_PERMISSION.found(
        f"This user may not open {_counted(shut) if shut else 'the GPU'}",
        evidence=(
            *event_evidence(messages),
            *(
                value_evidence(context, "devices", f"{node.path} {node.mode or 'is closed'}")
                for node in shut[:3]
            ),
        ),
        fix=_in_the_group(context) if in_container(context) else _join_the_group(),
    )


def _what_cuda_opens(node: DeviceNode) -> tuple[bool, bool, str]:
    """CUDA opens nvidiactl and the GPUs' own nodes first; a display's comes last."""
    is_card = bool(re.fullmatch(CARD, node.path))
    return (node.path != "/dev/nvidiactl", not is_card, node.path)


def _counted(shut: list[DeviceNode]) -> str:
    more = len(shut) - 1
    others = f" and {more} other node{'s' if more > 1 else ''} of the driver" if more else ""
    return f"{shut[0].path}{others}"


def _join_the_group() -> Fix:
    return Fix(
        text="Join the group that owns the nodes, which the command reads from them, and log in "
        "again. Where the group is root, the nodes were closed on purpose, or by a setting "
        "(NVreg_DeviceFileMode): the driver itself makes them open to everybody",
        commands=lines('sudo usermod -aG "$(stat -c %G /dev/nvidiactl)" "$USER"'),
        alternatives=paste.other(
            "where the group is root: open them to everybody, until the next start",
            *lines("sudo chmod a+rw /dev/nvidia[0-9]* /dev/nvidiactl /dev/nvidia-uvm*"),
        ),
        looks=paste.look("see first which group owns the nodes", *lines("ls -l /dev/nvidia*")),
        needs_root=True,
    )


WITH_ITS_GROUP = {
    "docker": "docker run --rm --gpus all --group-add "
    '"$(stat -c %g /dev/nvidiactl)" ubuntu nvidia-smi',
    "podman": "podman run --rm --device nvidia.com/gpu=all --group-add keep-groups "
    "--security-opt label=disable ubuntu nvidia-smi",
}
"""How a container is started in the group of the nodes (podman-run(1): `keep-groups`)."""


def _in_the_group(context: RuleContext) -> Fix:
    """A user of a container is in its groups: they are given when it starts."""
    start = WITH_ITS_GROUP.get(context.snapshot.container.kind or "")
    return Fix(
        text="Start the container again in the group that owns the nodes (--group-add; podman "
        "keeps the user's own groups with keep-groups, and goes without the SELinux label), as "
        "the command does with a plain image; or run the program in it as root",
        alternatives=paste.other("on the host", *(lines(start) if start else ())),
        looks=paste.look("see which group owns the nodes", *lines("ls -ln /dev/nvidia*")),
    )


RULES = (
    uvm_missing,
    device_node_missing,
    device_permission,
)
