"""What each answer of the CUDA driver API means: a code, its cause, its way out."""

from __future__ import annotations

from gpusetup.causes.cuda_start import (
    CUDA_INIT_FAILED,
    CUDA_INIT_OUT_OF_MEMORY,
    CUDA_SEES_NO_DEVICE,
    CUDA_UNKNOWN_ERROR,
    DRIVER_CALL_UNSUPPORTED,
    FORWARD_COMPAT_UNSUPPORTED,
    INVALID_DEVICE_ORDINAL,
    LIBCUDA_DRIVER_MISMATCH,
    LIBCUDA_STUB,
    MPS_SERVER,
    OS_CALL_FAILED,
    SYSTEM_NOT_READY_FABRIC_MANAGER,
)
from gpusetup.causes.gpu_access import COMPUTE_MODE_EXCLUSIVE, VGPU_NO_COMPUTE
from gpusetup.causes.record import Cause, Message
from gpusetup.evidence.context import RuleContext, events, in_container, on
from gpusetup.evidence.plausible import is_a_path, is_a_version
from gpusetup.fixes import packages, paste
from gpusetup.model.finding import Fix
from gpusetup.model.shell import Lines, filled, lines


def fabric_manager(context: RuleContext, text: str) -> Fix:
    """The Fabric Manager of exactly the driver's version."""
    version = context.driver.version or ""
    family = None if in_container(context) else packages.distribution(context)
    row = FABRIC_PACKAGE.get(family or "") if is_a_version(version) else None
    branch = version.partition(".")[0]
    return Fix(
        text=f"{text} ({version or 'nvidia-smi shows it'})",
        commands=(
            *((filled(row, branch=branch, version=version),) if row else ()),
            *paste.posix(
                context,
                "sudo systemctl enable nvidia-fabricmanager",
                "sudo systemctl restart nvidia-fabricmanager",
            ),
        ),
        needs_root=True,
    )


BY_APT = "sudo apt install -y 'nvidia-fabricmanager-{branch}={version}*'"


FABRIC_PACKAGE = {
    "ubuntu": BY_APT,
    "debian": BY_APT,
    "rhel": "sudo dnf install -y nvidia-fabric-manager-{version}",
}
"""Distribution -> the package of the Fabric Manager of one driver version."""


def drivers_own(context: RuleContext, text: str) -> Fix:
    """What stands before the driver's libcuda goes: a compat folder, or a stale copy."""
    driver = context.driver
    path, version = driver.libcuda_path or "", driver.version or ""
    compat = context.snapshot.container.cuda_compat_path
    commands = without_folder(context, compat) if compat else ()
    stale = version and ".so." in path and path[-1:].isdigit() and not path.endswith(version)
    if stale and not compat and is_a_path(path) and path.count(".") > 2:
        move = filled("sudo mv {path} {aside}", path=path, aside=f"{path}.stale")
        commands = (move, *lines("sudo ldconfig"))
    return Fix(
        text=text,
        commands=commands,
        looks=paste.look(
            "find the libcuda in use", *paste.posix(context, "ldconfig -p | grep libcuda")
        ),
        needs_root=True,
    )


def without_folder(context: RuleContext, folder: str) -> Lines:
    """A folder out of LD_LIBRARY_PATH, or of the loader's own list."""
    named = context.snapshot.environment.get("LD_LIBRARY_PATH") or ""
    if on(context, "windows") or not is_a_path(folder):
        return ()
    if folder in named:
        return paste.without_folders(context, paste.literally(folder))
    line = rf"\#{folder.rstrip('/')}/*$#d"
    return (
        filled("sudo sed -i {line} /etc/ld.so.conf.d/*.conf", line=line),
        *lines("sudo ldconfig"),
    )


UNKNOWN_ERROR = Message(
    title="CUDA does not start: unknown error ({code})",
    plain="CUDA stopped working after the machine slept",
    text="On Linux reload the nvidia_uvm module (after suspend it is often in a bad state) "
    "and start the program again; otherwise reboot",
    commands=("sudo modprobe -r nvidia_uvm", "sudo modprobe nvidia_uvm"),
    needs_root=True,
    needs_reboot=True,
    cases=(
        Message(
            where=(lambda c: bool(c.snapshot.torch.cuda_available or events(c, "ran-first")),),
            having={"code": ""},
            title="A CUDA call failed after CUDA had started: unknown error ({code})",
            text="Look for an Xid of that time in the kernel's log; without one run it again with "
            "CUDA_LAUNCH_BLOCKING=1, to get the failing call",
            commands=("export CUDA_LAUNCH_BLOCKING=1",),
            look=("sudo dmesg -T | grep -i xid",),
        ),
    ),
)


MPS = (
    MPS_SERVER,
    Message(
        title="The CUDA MPS daemon refuses this process",
        text="Stop the daemon, or use the GPU as the user that started it",
        commands=("echo quit | nvidia-cuda-mps-control",),
    ),
)


CODES: dict[int, tuple[Cause, Message]] = {
    2: (
        CUDA_INIT_OUT_OF_MEMORY,
        Message(
            title="CUDA cannot start: out of memory while it starts (error 2)",
            text="Raise the limit on the address space (ulimit -v, the batch system), or give the "
            "virtual machine more memory",
            commands=("ulimit -v unlimited",),
        ),
    ),
    34: (
        LIBCUDA_STUB,
        Message(
            title="The toolkit's stub libcuda is loaded instead of the driver's (error 34)",
            text="Remove the toolkit's stubs folder from LD_LIBRARY_PATH",
            way=lambda context, text: Fix(text=text, commands=without_folder(context, "/stubs")),
        ),
    ),
    36: (
        DRIVER_CALL_UNSUPPORTED,
        Message(
            title="The CUDA library needs a newer kernel driver (error 36)",
            text="Install the kernel driver and the libraries in the same version, then reboot",
            needs_root=True,
            needs_reboot=True,
        ),
    ),
    46: (
        COMPUTE_MODE_EXCLUSIVE,
        Message(
            title="The GPU is busy, or in exclusive mode and taken by another process (error 46)",
            text="End the other process, or set the compute mode to default; if no process "
            "holds the GPU, reboot",
            commands=("sudo nvidia-smi -c DEFAULT",),
            look=("nvidia-smi",),
            needs_root=True,
        ),
    ),
    100: (
        CUDA_SEES_NO_DEVICE,
        Message(
            title="CUDA sees no device (error 100)",
            text="Check CUDA_VISIBLE_DEVICES, the compute mode, MIG and the other findings",
            look=(
                "nvidia-smi -L",
                'nvidia-smi "--query-gpu=compute_mode,mig.mode.current" --format=csv',
            ),
        ),
    ),
    101: (
        INVALID_DEVICE_ORDINAL,
        Message(
            title="CUDA_VISIBLE_DEVICES or a rank names a GPU that does not exist (error 101)",
            text="Name only GPUs that `nvidia-smi -L` lists, and start at most one process per GPU",
            look=("nvidia-smi -L",),
        ),
    ),
    102: (
        VGPU_NO_COMPUTE,
        Message(
            title="The vGPU has no licence for CUDA (error 102)",
            text="Give the virtual machine a licence (NVIDIA License System) for a profile with "
            "compute",
        ),
    ),
    304: (
        OS_CALL_FAILED,
        Message(
            title="A system call of the CUDA driver failed (error 304)",
            text="Usually device nodes are missing or not accessible, or a sandbox (cgroup, "
            "seccomp, limits) blocks the call",
            commands=("sudo nvidia-modprobe -u -c=0",),
            look=("ls -l /dev/nvidia*",),
            needs_root=True,
        ),
    ),
    800: (
        OS_CALL_FAILED,
        Message(
            title="The CUDA driver may not do what a program asks (error 800)",
            text="Start the container again: it has lost or never had access to the device nodes "
            "(cgroup rules, seccomp); outside of containers check the nodes' owner and group",
            look=("ls -l /dev/nvidia*",),
        ),
    ),
    801: (
        VGPU_NO_COMPUTE,
        Message(
            title="This vGPU profile allows no CUDA (error 801)",
            text="Give the virtual machine a profile with compute (Q or C), or switch compute on "
            "in the host",
        ),
    ),
    802: (
        SYSTEM_NOT_READY_FABRIC_MANAGER,
        Message(
            title="The NVSwitch fabric is not ready (error 802): Fabric Manager does not run, or "
            "does not match",
            text="Install the Fabric Manager of exactly the driver's version, and start it",
            way=fabric_manager,
        ),
    ),
    803: (
        LIBCUDA_DRIVER_MISMATCH,
        Message(
            title="The loaded libcuda does not belong to the loaded kernel driver (error 803)",
            text="Remove stale copies of libcuda (a cuda-compat folder, a mounted or copied "
            "library); if the driver was updated and not reloaded, reboot",
            way=drivers_own,
        ),
    ),
    804: (
        FORWARD_COMPAT_UNSUPPORTED,
        Message(
            title="A forward compatibility library (cuda-compat) comes before the driver, on "
            "a GPU or driver that does not allow it (error 804)",
            text="Remove the cuda-compat folder from the loader's path, or update the driver of "
            "the host; forward compatibility is for data centre GPUs only",
            way=drivers_own,
        ),
    ),
    **dict.fromkeys(range(805, 810), MPS),
    999: (CUDA_UNKNOWN_ERROR, UNKNOWN_ERROR),
}
"""What the driver API answers (cuda.h, CUresult) -> what it means."""


OTHER_CODE = (
    CUDA_INIT_FAILED,
    Message(
        title="CUDA does not start: cuInit answers {code}",
        text="Reboot; if it stays, reinstall the driver",
        needs_root=True,
        needs_reboot=True,
    ),
)


SAID: dict[str, int] = {
    CUDA_INIT_OUT_OF_MEMORY.id: 2,
    COMPUTE_MODE_EXCLUSIVE.id: 46,
    INVALID_DEVICE_ORDINAL.id: 101,
    VGPU_NO_COMPUTE.id: 801,
    SYSTEM_NOT_READY_FABRIC_MANAGER.id: 802,
    MPS_SERVER.id: 805,
}
"""Kind of event -> the code of the same cause."""


ALIASES = {30: 999, 38: 100, 10: 101, 71: 801}
"""Numbers of the older runtime -> today's."""


RUNS_ALREADY = (2, 36)
"""Codes that mean another thing once CUDA runs: then they are no answer of cuInit."""
