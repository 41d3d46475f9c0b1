"""The state of the devices: nodes, permissions, MIG, compute mode, licences."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpusetup.model import (
    DeviceNode,
    Event,
    Evidence,
    Finding,
    Fix,
    Gpu,
    visible_gpus,
)
from gpusetup.rules import ways, which
from gpusetup.rules.case import (
    Case,
    asked_for_cuda,
    cuda_errors,
    driver_answers,
    error,
    events,
    gpus,
    in_container,
    is_report,
    numbered,
    on,
    shown,
    told,
    warning,
)
from gpusetup.rules.plausible import is_an_identifier
from gpusetup.shell import Line, filled, lines

HIDES = "CUDA_VISIBLE_DEVICES"
UVM = "/dev/nvidia-uvm"

INVALID_DEVICE = 101
"""cudaErrorInvalidDevice: of several MIG instances that are named, CUDA shows the first."""


def uvm_missing(case: Case) -> Iterator[Finding]:
    """The unified memory module, or its node, is missing: NVML works, CUDA does not."""
    machine = case.snapshot
    paths = {node.path for node in machine.devices or ()}
    no_node = machine.devices is not None and "/dev/nvidiactl" in paths and UVM not in paths
    asked_in_vain = machine.cuda_api.init_code not in (0, None)
    missing = machine.driver.uvm_loaded is False or no_node
    proven = missing and asked_in_vain and driver_answers(case)
    said = (*events(case, "uvm-missing"), *_module_not_found(case))
    if machine.os.wsl or not (said or proven):
        return
    facts = list(told(said))
    if machine.driver.uvm_loaded is False:
        facts.append(shown(case, "driver.uvm_loaded", "module nvidia_uvm is not loaded"))
    if no_node:
        facts.append(shown(case, "devices", f"{UVM} is missing"))
    text = "Load nvidia_uvm and make its node"
    if in_container(case):
        text = f"On the host load nvidia_uvm, and give the container {UVM}{_by_lxc(case)}"
    yield error(
        "uvm-missing",
        "CUDA's unified memory module (nvidia_uvm) or its device node is missing",
        evidence=tuple(facts),
        fix=Fix(
            text=text,
            commands=lines("sudo modprobe nvidia_uvm", "sudo nvidia-modprobe -u -c=0"),
            needs_root=True,
        ),
    )


def _by_lxc(case: Case) -> str:
    """The line of a container's configuration that hands on a node (lxc.container.conf(5))."""
    if case.snapshot.container.kind != "lxc":
        return ", then start it again"
    entry = f"lxc.mount.entry = {UVM} {UVM[1:]} none bind,optional,create=file"
    return f" (`{entry}` in its configuration), then start it again"


def _module_not_found(case: Case) -> tuple[Event, ...]:
    names = ("nvidia-uvm", "nvidia_uvm")
    return tuple(e for e in events(case, "module-not-found") if e.values.get("module") in names)


def _closed_to_others(case: Case) -> list[DeviceNode]:
    """Nodes that a text lists as their group's only, where a program looked for CUDA in vain."""
    if not (is_report(case) and asked_for_cuda(case)) or gpus(case):
        return []
    return [
        node
        for node in case.snapshot.devices or ()
        if re.fullmatch(CARD, node.path) and node.mode and node.mode[7:9] != "rw"
    ]


CARD = r"/dev/nvidia(?:\d+|ctl)"


def device_permission(case: Case) -> Iterator[Finding]:
    """This user may not open the device nodes."""
    shut = [
        node
        for node in case.snapshot.devices or ()
        if node.path.startswith("/dev/nvidia")
        and "caps" not in node.path
        and (node.readable is False or node.writable is False)
    ]
    shut = sorted(shut or _closed_to_others(case), key=_what_cuda_opens)
    said = events(case, "device-permission")
    if not shut and not said:
        return
    yield error(
        "device-permission",
        f"This user may not open {_counted(shut) if shut else 'the GPU'}",
        evidence=(
            *told(said),
            *(
                shown(case, "devices", f"{node.path} {node.mode or 'is closed'}")
                for node in shut[:3]
            ),
        ),
        fix=_in_the_group(case) if in_container(case) else _join_the_group(),
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
        alternatives=ways.other(
            "where the group is root: open them to everybody, until the next start",
            *lines("sudo chmod a+rw /dev/nvidia[0-9]* /dev/nvidiactl /dev/nvidia-uvm*"),
        ),
        looks=ways.look("see first which group owns the nodes", *lines("ls -l /dev/nvidia*")),
        needs_root=True,
    )


WITH_ITS_GROUP = {
    "docker": "docker run --rm --gpus all --group-add "
    '"$(stat -c %g /dev/nvidiactl)" ubuntu nvidia-smi',
    "podman": "podman run --rm --device nvidia.com/gpu=all --group-add keep-groups "
    "--security-opt label=disable ubuntu nvidia-smi",
}
"""How a container is started in the group of the nodes (podman-run(1): `keep-groups`)."""


def _in_the_group(case: Case) -> Fix:
    """A user of a container is in its groups: they are given when it starts."""
    start = WITH_ITS_GROUP.get(case.snapshot.container.kind or "")
    return Fix(
        text="Start the container again in the group that owns the nodes (--group-add; podman "
        "keeps the user's own groups with keep-groups, and goes without the SELinux label), as "
        "the command does with a plain image; or run the program in it as root",
        alternatives=ways.other("on the host", *(lines(start) if start else ())),
        looks=ways.look("see which group owns the nodes", *lines("ls -ln /dev/nvidia*")),
    )


def mig_misconfigured(case: Case) -> Iterator[Finding]:
    """MIG is on and there is no instance to use, or several to choose from."""
    sliced = [gpu for gpu in visible_gpus(case.snapshot) if gpu.mig_enabled]
    chosen = case.snapshot.environment.get("CUDA_VISIBLE_DEVICES", "")
    said = events(case, "mig-assert")
    if chosen.count("MIG-") > 1:
        said = (*said, *cuda_errors(case, INVALID_DEVICE))
    if said:
        yield _mig_said(case, said, sliced)
    if said or not sliced:
        return
    empty = [gpu for gpu in sliced if instances(gpu) == 0]
    whole = [gpu for gpu in visible_gpus(case.snapshot) if not gpu.mig_enabled]
    several = sum(instances(gpu) or 0 for gpu in sliced) > 1
    if empty:
        usable = bool(whole) or len(empty) < len(sliced)
        yield _mig_without_instances(case, empty, usable=usable)
    if several and not chosen.startswith("MIG-"):
        yield _mig_to_choose(case, [gpu for gpu in sliced if instances(gpu)])


def instances(gpu: Gpu) -> int | None:
    """How many MIG instances a GPU has, named or counted; None where no source told.

    >>> instances(Gpu(name="A30", mig_instances=("MIG-1",))), instances(Gpu(name="A30"))
    (1, None)
    """
    return len(gpu.mig_instances) or gpu.mig_count


def mig_pending(case: Case) -> Iterator[Finding]:
    """The MIG mode was changed, and waits for a reset of the GPU."""
    waiting = [gpu for gpu in visible_gpus(case.snapshot) if gpu.mig_pending is not None]
    if waiting:
        then = "on" if waiting[0].mig_pending else "off"
        yield warning(
            "mig-misconfigured",
            f"MIG of {which.titled(case, waiting)} will be {then} after a reset, and is not yet",
            evidence=tuple(
                shown(case, "gpus", f"{numbered(gpu)}: MIG mode waits for a reset")
                for gpu in waiting[:8]
            ),
            fix=Fix(
                text="Reset with nothing running on them (or reboot)",
                commands=(
                    filled(
                        "sudo nvidia-smi --gpu-reset -i {gpus}", gpus=which.selected(waiting) or "0"
                    ),
                ),
                needs_root=True,
            ),
        )


def _mig_said(case: Case, said: tuple[Event, ...], sliced: list[Gpu]) -> Finding:
    instances = tuple(one for gpu in sliced for one in gpu.mig_instances)
    return error(
        "mig-misconfigured",
        "MIG is on, and the process does not use exactly one MIG instance",
        detail="NVML counts the GPUs, CUDA the instances: torch's index is beyond what it sees.",
        evidence=(
            *told(said),
            *(shown(case, "gpus", f"{gpu.name}: MIG enabled") for gpu in sliced[:2]),
        ),
        fix=Fix(
            text="Name one instance (nvidia-smi -L lists them) in CUDA_VISIBLE_DEVICES; or switch "
            "MIG off on every GPU, as administrator, with nothing running: sudo nvidia-smi -mig 0",
            commands=_one_instance(case, instances),
            looks=ways.look("see the instances", *lines("nvidia-smi -L")),
        ),
    )


def _mig_without_instances(case: Case, empty: list[Gpu], *, usable: bool) -> Finding:
    """An error where CUDA sees nothing at all; a loss where other GPUs can be used."""
    make = warning if usable else error
    so = "they stay unused" if len(empty) > 1 else "it stays unused"
    return make(
        "mig-misconfigured",
        f"{which.titled(case, empty)} {which.are(empty)} in MIG mode and {which.have(empty)} no "
        f"compute instance: {so if usable else 'CUDA sees nothing'}",
        evidence=tuple(
            shown(case, "gpus", f"{numbered(gpu)}: MIG enabled, no instance") for gpu in empty[:8]
        ),
        fix=Fix(
            text="Create an instance of the whole GPU on each"
            if len(empty) > 1
            else "Create an instance of the whole GPU",
            commands=tuple(
                filled("sudo nvidia-smi mig -i {gpu} -cgi 0 -C", gpu=one)
                for one in which.each(empty)
            ),
            alternatives=ways.other(
                "switch MIG off, with nothing running on the GPU",
                *(filled("sudo nvidia-smi -i {gpu} -mig 0", gpu=one) for one in which.each(empty)),
            ),
            needs_root=True,
        ),
    )


def _one_instance(case: Case, instances: tuple[str, ...]) -> tuple[Line, ...]:
    """The setting that names the first instance whose name is known."""
    named = [one for one in instances if is_an_identifier(one)]
    return (ways.setting(case, HIDES, named[0]),) if named else ()


def _mig_to_choose(case: Case, sliced: list[Gpu]) -> Finding:
    """Which instance it is to be; those that are only counted are listed by `nvidia-smi -L`."""
    names = tuple(one for gpu in sliced for one in gpu.mig_instances)
    count = sum(instances(gpu) or 0 for gpu in sliced)
    make = error if case.snapshot.cuda_api.init_code else warning
    return make(
        "mig-misconfigured",
        f"{which.titled(case, sliced)} {which.are(sliced)} cut into {count} MIG instances: a "
        "process uses exactly one",
        detail="Without a choice it is the first one; torch may fail to match it with "
        "NVML's index.",
        evidence=tuple(shown(case, "gpus", f"MIG instance {one}") for one in names[:3])
        or tuple(
            shown(case, "gpus", f"{numbered(gpu)}: {instances(gpu)} MIG instances")
            for gpu in sliced[:8]
        ),
        fix=Fix(
            text="Name one instance in CUDA_VISIBLE_DEVICES",
            commands=_one_instance(case, names),
            alternatives=() if names else ways.look("see the instances", *lines("nvidia-smi -L")),
        ),
    )


def compute_mode(case: Case) -> Iterator[Finding]:
    """A compute mode that keeps processes out."""
    shut = [gpu for gpu in visible_gpus(case.snapshot) if _mode(gpu) == "prohibited"]
    taken = [gpu for gpu in visible_gpus(case.snapshot) if _mode(gpu).startswith("exclusive")]
    virtual = [gpu for gpu in shut if _is_virtual(gpu)]
    real = [gpu for gpu in shut if gpu not in virtual]
    if virtual:
        yield _prohibited_virtual(case, virtual)
    if real:
        yield _prohibited(case, real)
    if taken:
        yield warning(
            "compute-mode-exclusive",
            f"{which.titled(case, taken)} {which.are(taken)} in mode {taken[0].compute_mode}: one "
            "process at a time",
            evidence=_mode_lines(case, taken),
            fix=_compute_mode_default(taken),
        )


def _mode(gpu: Gpu) -> str:
    return (gpu.compute_mode or "").lower()


def _is_virtual(gpu: Gpu) -> bool:
    return (gpu.virtualization or "").lower() == "vgpu" or vgpu_profile(gpu) is not None


def _mode_lines(case: Case, concerned: list[Gpu]) -> tuple[Evidence, ...]:
    return tuple(
        shown(case, "gpus", f"{numbered(gpu)}: compute mode {gpu.compute_mode}")
        for gpu in concerned[:8]
    )


def _prohibited(case: Case, shut: list[Gpu]) -> Finding:
    verb = "forbid" if len(shut) > 1 else "forbids"
    return error(
        "compute-mode-prohibited",
        f"{which.titled(case, shut)} {verb} compute: compute mode {shut[0].compute_mode}",
        evidence=_mode_lines(case, shut),
        fix=_compute_mode_default(shut),
    )


def _prohibited_virtual(case: Case, shut: list[Gpu]) -> Finding:
    verb = "forbid" if len(shut) > 1 else "forbids"
    return error(
        "vgpu-no-compute",
        f"{which.titled(case, shut)} {verb} compute: compute mode {shut[0].compute_mode}",
        detail="A vGPU profile without compute shows that.",
        evidence=_mode_lines(case, shut),
        fix=Fix(text="Give the virtual machine a profile with compute (Q or C)"),
    )


def _compute_mode_default(concerned: list[Gpu]) -> Fix:
    return Fix(
        text="Set the compute mode to default",
        commands=tuple(
            filled("sudo nvidia-smi -i {gpu} -c DEFAULT", gpu=one) for one in which.each(concerned)
        ),
        needs_root=True,
    )


def vgpu_profile(gpu: Gpu) -> str | None:
    """The letter of a vGPU profile in its name: Q and C have CUDA, A and B have none.

    >>> vgpu_profile(Gpu(name="GRID T4-8A")), vgpu_profile(Gpu(name="NVIDIA A100-SXM4-40GB"))
    ('A', None)
    """
    found = re.search(r"-\d{1,3}([ABCQ])$", gpu.name.strip())
    return found.group(1) if found else None


def vgpu_without_cuda(case: Case) -> Iterator[Finding]:
    """A vGPU profile for desktops or applications, where something looked for CUDA."""
    desktop = [gpu for gpu in visible_gpus(case.snapshot) if vgpu_profile(gpu) in ("A", "B")]
    if desktop and asked_for_cuda(case):
        yield error(
            "vgpu-no-compute",
            f"{desktop[0].name} is a vGPU profile without CUDA",
            evidence=(shown(case, "gpus", f"profile {desktop[0].name}"),),
            fix=Fix(text="Give the virtual machine a profile with compute (Q or C)"),
        )


BUSY = 46
"""cudaErrorDevicesUnavailable, with which a vGPU without a licence answers after a while."""


def vgpu_unlicensed(case: Case) -> Iterator[Finding]:
    unlicensed = [
        gpu for gpu in gpus(case) if gpu.licensed is False and (gpu.virtualization or "") != "none"
    ]
    said = events(case, "vgpu-unlicensed")
    if unlicensed or said:
        name = f"{unlicensed[0].name} is a" if unlicensed else "The GPU is a"
        refused = cuda_errors(case, BUSY) or case.snapshot.cuda_api.init_code == BUSY
        so = "CUDA is refused" if refused else "it is slowed down after 20 minutes"
        make = error if refused else warning
        yield make(
            "vgpu-unlicensed",
            f"{name} vGPU without a licence: {so}",
            evidence=(
                *told(said),
                *(shown(case, "gpus", f"{numbered(g)}: unlicensed") for g in unlicensed[:1]),
            ),
            fix=Fix(
                text="Put the licence server's token (and gridd.conf) in place and start the "
                "client again; in Kubernetes the operator takes both from the licensing ConfigMap",
                commands=lines("sudo systemctl restart nvidia-gridd") if on(case, "linux") else (),
                looks=ways.look(
                    "see the token and the state of the licence",
                    *ways.posix(
                        case,
                        "ls /etc/nvidia/ClientConfigToken",
                        "nvidia-smi -q | grep -i license",
                    ),
                ),
                needs_root=True,
            ),
        )


RULES = (
    uvm_missing,
    device_permission,
    mig_misconfigured,
    mig_pending,
    compute_mode,
    vgpu_without_cuda,
    vgpu_unlicensed,
)
