"""Whether the device nodes are there and can be opened."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.evidence import places
from gpusetup.evidence.context import (
    RuleContext,
    asked_for_cuda,
    driver_answers,
    events,
    gpus,
    is_report,
)
from gpusetup.evidence.places import in_windows_itself, in_wsl
from gpusetup.findings.layers import INIT_FAILS, Layer
from gpusetup.findings.message_rules import finding, from_messages, shown
from gpusetup.findings.record import Cause, Message
from gpusetup.model.finding import Finding
from gpusetup.model.machine import DeviceNode

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
    message=Message(
        title="CUDA's unified memory module (nvidia_uvm) or its device node is missing",
        text="Load nvidia_uvm and make its node",
        commands=("sudo modprobe nvidia_uvm", "sudo nvidia-modprobe -u -c=0"),
        needs_root=True,
        cases=(
            Message(
                where=(places.IN_A_CONTAINER,),
                text="On the host load nvidia_uvm, and give the container /dev/nvidia-uvm "
                "(`lxc.mount.entry = /dev/nvidia-uvm dev/nvidia-uvm none "
                "bind,optional,create=file` for LXC), then start it again",
                commands=("sudo modprobe nvidia_uvm", "sudo nvidia-modprobe -u -c=0"),
                needs_root=True,
            ),
        ),
    ),
)


def uvm_missing(context: RuleContext) -> Iterator[Finding]:
    """The unified memory module, or its node, is missing: NVML works, CUDA does not."""
    machine = context.snapshot
    paths = {node.path for node in machine.devices or ()}
    no_node = "/dev/nvidiactl" in paths and "/dev/nvidia-uvm" not in paths
    said = events(context, "uvm-missing", "module-not-found")
    said = tuple(event for event in said if "uvm" in event.values.get("module", event.kind))
    missing = (machine.driver.uvm_loaded is False or no_node) and driver_answers(context)
    if missing and machine.cuda_api.init_code:
        what = "module nvidia_uvm is not loaded, or /dev/nvidia-uvm is missing"
        said += (shown(context, "devices", what),)
    if said and not machine.os.wsl:
        yield finding(context, UVM_MISSING, said)


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


DEVICE_PERMISSION = Cause(
    id="device-permission",
    place=(Layer.READINESS, 10),
    title="this user may not open the device nodes",
    means="Group, SELinux or cgroup rules.",
    proven_by="A node that is not readable and writable",
    way_out="Join the owning group",
    source="udev rules of the driver packages",
    explains=(*INIT_FAILS, "driver-not-loaded"),
    message=Message(
        title="This user may not open {node}",
        plain="This user may not open the GPU",
        text="Join the group that owns the nodes, which the command reads from them, and log in "
        "again. Where the group is root, the nodes were closed on purpose, or by a setting "
        "(NVreg_DeviceFileMode): the driver itself makes them open to everybody",
        commands=('sudo usermod -aG "$(stat -c %G /dev/nvidiactl)" "$USER"',),
        other=("sudo chmod a+rw /dev/nvidia[0-9]* /dev/nvidiactl /dev/nvidia-uvm*",),
        other_title="where the group is root: open them to everybody, until the next start",
        look=("ls -l /dev/nvidia*",),
        see="see first which group owns the nodes",
        needs_root=True,
        cases=(
            Message(
                where=(places.IN_A_CONTAINER,),
                text="Start the container again in the group that owns the nodes (docker: "
                '`--group-add "$(stat -c %g /dev/nvidiactl)"`; podman: `--group-add keep-groups '
                "--security-opt label=disable`), or run the program in it as root",
                look=("ls -ln /dev/nvidia*",),
                see="see which group owns the nodes",
            ),
        ),
    ),
)


def device_permission(context: RuleContext) -> Iterator[Finding]:
    """This user may not open the device nodes."""
    shut = [node for node in context.snapshot.devices or () if _is_shut(context, node)]
    nodes = (
        shown(context, "devices", f"{node.path} {node.mode or 'is closed'}", node=node.path)
        for node in sorted(shut, key=lambda node: len(node.path))
    )
    if said := (*events(context, "device-permission"), *nodes):
        yield finding(context, DEVICE_PERMISSION, said)


def _is_shut(context: RuleContext, node: DeviceNode) -> bool:
    """Closed to this user; in a text to others than its group, where CUDA was asked in vain."""
    if not node.path.startswith("/dev/nvidia") or "caps" in node.path:
        return False
    blind = is_report(context) and asked_for_cuda(context) and not gpus(context)
    closed = blind and "uvm" not in node.path and node.mode and node.mode[7:9] != "rw"
    return False in (node.readable, node.writable) or bool(closed)


RULES = (
    uvm_missing,
    device_node_missing,
    device_permission,
)
