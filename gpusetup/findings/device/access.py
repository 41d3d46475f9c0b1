"""Whether the device nodes are there and can be opened."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpusetup.evidence import places
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
from gpusetup.evidence.places import in_windows_itself, in_wsl
from gpusetup.findings.layers import INIT_FAILS, Layer
from gpusetup.findings.message_rules import from_messages
from gpusetup.findings.record import Cause, Message
from gpusetup.fixes import paste
from gpusetup.model.finding import Finding, Fix
from gpusetup.model.machine import DeviceNode
from gpusetup.model.shell import lines

UVM = "/dev/nvidia-uvm"


UVM_MISSING = Cause(
    id="uvm-missing",
    impossible=(in_windows_itself, in_wsl),
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
    no_node = "/dev/nvidiactl" in paths and UVM not in paths
    missing = (machine.driver.uvm_loaded is False or no_node) and driver_answers(context)
    said = events(context, "uvm-missing", "module-not-found")
    said = tuple(event for event in said if "uvm" in event.values.get("module", event.kind))
    if machine.os.wsl or not (said or (missing and machine.cuda_api.init_code)):
        return
    what = f"module nvidia_uvm is not loaded, or {UVM} is missing"
    yield UVM_MISSING.found(
        "CUDA's unified memory module (nvidia_uvm) or its device node is missing",
        evidence=(
            *event_evidence(said),
            *((value_evidence(context, "devices", what),) if missing else ()),
        ),
        fix=Fix(
            text=OF_THE_HOST if in_container(context) else "Load nvidia_uvm and make its node",
            commands=lines("sudo modprobe nvidia_uvm", "sudo nvidia-modprobe -u -c=0"),
            needs_root=True,
        ),
    )


OF_THE_HOST = (
    f"On the host load nvidia_uvm, and give the container {UVM} (`lxc.mount.entry = {UVM} "
    f"{UVM[1:]} none bind,optional,create=file` for LXC), then start it again"
)


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
    holds=(places.no(places.IN_A_CONTAINER),),
    message=Message(
        title="/dev/nvidia{gpu} is missing: nothing can use GPU {gpu} ({bus})",
        plain="A GPU's device node is missing: nothing can use it",
        text="Make the node; it is lost at a reboot, so let the driver's udev rules or "
        "nvidia-persistenced make the nodes at each start",
        commands=("sudo nvidia-modprobe -c={gpu}",),
        look=("ls -l /dev/nvidia*",),
        see="see the nodes",
        needs_root=True,
    ),
)


def device_node_missing(context: RuleContext) -> Iterator[Finding]:
    """A GPU that the kernel's driver holds has no node; a container is given those of its own."""
    yield from from_messages(context, (DEVICE_NODE_MISSING,))


CARD = re.compile(r"/dev/nvidia(?:\d+|ctl)")


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
    messages = events(context, "device-permission")
    shut = sorted(
        (node for node in context.snapshot.devices or () if _is_shut(context, node)),
        key=lambda node: (node.path != "/dev/nvidiactl", not CARD.fullmatch(node.path), node.path),
    )
    if shut or messages:
        more = f" and {len(shut) - 1} more" if shut[1:] else ""
        yield DEVICE_PERMISSION.found(
            f"This user may not open {f'{shut[0].path}{more}' if shut else 'the GPU'}",
            evidence=(
                *event_evidence(messages),
                *(
                    value_evidence(context, "devices", f"{node.path} {node.mode or 'is closed'}")
                    for node in shut[:3]
                ),
            ),
            fix=_in_the_group(context) if in_container(context) else JOIN_THE_GROUP,
        )


def _is_shut(context: RuleContext, node: DeviceNode) -> bool:
    """Closed to this user; in a text to others than its group, where CUDA was asked in vain."""
    if not node.path.startswith("/dev/nvidia") or "caps" in node.path:
        return False
    blind = is_report(context) and asked_for_cuda(context) and not gpus(context)
    closed = blind and CARD.fullmatch(node.path) and node.mode and node.mode[7:9] != "rw"
    return False in (node.readable, node.writable) or bool(closed)


JOIN_THE_GROUP = Fix(
    text="Join the group that owns the nodes, which the command reads from them, and log in again. "
    "Where the group is root, the nodes were closed on purpose, or by a setting "
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
