"""What each answer of the CUDA driver API means: a code, its cause, its way out."""

from __future__ import annotations

from gpusetup.evidence.context import events
from gpusetup.findings import alike
from gpusetup.findings.device.sharing import COMPUTE_MODE_EXCLUSIVE, VGPU_NO_COMPUTE
from gpusetup.findings.driver.cuda_ways import drivers_own, fabric_manager, without_folder
from gpusetup.findings.layers import Layer
from gpusetup.findings.libraries.loading import LIBCUDA_STUB
from gpusetup.findings.record import Alike, Cause, Message
from gpusetup.findings.sources import CUDA_DRIVER
from gpusetup.model.finding import Fix

CUDA_SEES_NO_DEVICE = Cause(
    id="cuda-sees-no-device",
    symptom=True,
    place=(Layer.READINESS, 170),
    title="CUDA sees no device although there is one",
    means="cuInit answers 100.",
    proven_by="Code 100 and a GPU that another source lists",
    not_when="A machine without a GPU; hidden GPUs",
    way_out="Look at CUDA_VISIBLE_DEVICES, compute mode, MIG",
    source=CUDA_DRIVER,
    alike=(
        Alike(
            causes=("cuda-visible-devices-hidden", "container-no-gpu", "no-nvidia-gpu"),
            asks=alike.LIST_GPUS,
            settled_by=("gpus",),
        ),
    ),
)


INVALID_DEVICE_ORDINAL = Cause(
    id="invalid-device-ordinal",
    place=(Layer.READINESS, 120),
    title="a device index beyond the visible GPUs",
    means="More ranks than GPUs, or an index that does not exist.",
    proven_by="Code 101",
    way_out="Name only GPUs that nvidia-smi -L lists",
    source=CUDA_DRIVER,
    alike=(
        Alike(
            causes=("mig-misconfigured", "cuda-visible-devices-hidden"),
            asks=alike.LIST_GPUS,
            settled_by=("gpus",),
        ),
    ),
)


OS_CALL_FAILED = Cause(
    id="os-call-failed",
    place=(Layer.READINESS, 110),
    title="a system call of the CUDA driver failed",
    means="Missing or forbidden device nodes, cgroup or seccomp rules, limits.",
    proven_by="Code 304",
    not_when="uvm-missing and device-permission, which say which call",
    way_out="Make the nodes, lift the limit",
    source=CUDA_DRIVER,
)


SYSTEM_NOT_READY_FABRIC_MANAGER = Cause(
    id="system-not-ready-fabric-manager",
    place=(Layer.READINESS, 60),
    title="the NVSwitch fabric is not ready",
    means="Systems with NVSwitch need the Fabric Manager of exactly the driver's version.",
    proven_by="Code 802, or a fabric state that is not completed",
    not_when="A Hopper system where confidential computing waits for its ready state",
    way_out="Install and start nvidia-fabricmanager",
    source='CUDA Driver API reference, CUresult; NVIDIA, "Fabric Manager User Guide"',
    alike=(
        Alike(
            causes=("fabric-unhealthy",),
            asks="nvidia-smi -q | grep -A 3 Fabric",
            unless=alike.refused,
        ),
    ),
)


LIBCUDA_DRIVER_MISMATCH = Cause(
    id="libcuda-driver-mismatch",
    place=(Layer.READINESS, 70),
    title="libcuda does not belong to the loaded driver",
    means="A stale or mounted copy of libcuda, or cuda-compat in front.",
    proven_by="Code 803",
    not_when="nvml-mismatch, which a reboot mends",
    way_out="Remove the copy",
    source=CUDA_DRIVER,
)


FORWARD_COMPAT_UNSUPPORTED = Cause(
    id="forward-compat-unsupported",
    place=(Layer.READINESS, 80),
    title="cuda-compat on hardware or a driver that does not allow it",
    means="Forward compatibility is for data centre GPUs and some drivers.",
    proven_by="Code 804",
    way_out="Take cuda-compat out of the path, or update the host's driver",
    source='CUDA Driver API reference, CUresult; NVIDIA, "CUDA Compatibility"',
)


MPS_SERVER = Cause(
    id="mps-server",
    place=(Layer.READINESS, 90),
    title="the CUDA MPS daemon refuses",
    means="Another user's daemon, one that is not ready, or too many clients.",
    proven_by="Codes 805 to 809",
    way_out="Stop the daemon",
    source='NVIDIA, "Multi-Process Service"',
)


CUDA_INIT_OUT_OF_MEMORY = Cause(
    id="cuda-init-out-of-memory",
    place=(Layer.READINESS, 100),
    title="CUDA cannot start for lack of memory or address space",
    means="CUDA reserves a large address space; ulimit -v or a small guest forbids it.",
    proven_by="Code 2 from cuInit",
    not_when="Out of memory while a program runs",
    way_out="Lift the limit",
    source=CUDA_DRIVER,
    explains=("out-of-memory",),
)


DRIVER_CALL_UNSUPPORTED = Cause(
    id="driver-call-unsupported",
    kind_of="libcuda-driver-mismatch",
    place=(Layer.READINESS, 140),
    title="libcuda asks more than the kernel driver can do",
    means="Libraries newer than the module.",
    proven_by="Code 36",
    way_out="One version of both",
    source=CUDA_DRIVER,
)


CUDA_UNKNOWN_ERROR = Cause(
    id="cuda-unknown-error",
    place=(Layer.READINESS, 150),
    title="CUDA does not start: unknown error",
    means="Often nvidia_uvm after suspend.",
    proven_by="Code 999 (30 in older runtimes)",
    not_when="uvm-missing; a container",
    way_out="Load nvidia_uvm anew, or reboot",
    source=CUDA_DRIVER,
    alike=(Alike(causes=("uvm-missing", "driver-not-loaded"), asks=alike.NODES),),
)


CUDA_INIT_FAILED = Cause(
    id="cuda-init-failed",
    symptom=True,
    place=(Layer.READINESS, 160),
    title="CUDA does not start, with another code",
    means="A code without a row of its own.",
    proven_by="cuInit answers neither 0 nor a known code",
    way_out="Reboot; install the driver anew",
    source=CUDA_DRIVER,
    holds=(lambda context: not context.other_host,),
    message=Message(
        title="CUDA fails when it is asked for its {field}: {problem}",
        plain="CUDA fails when it is asked for its devices",
        text="Reboot; if it stays, install the driver anew",
        commands=("sudo reboot",),
        needs_root=True,
        needs_reboot=True,
    ),
    alike=(
        Alike(
            causes=("cuda-unknown-error", "uvm-missing", "gpu-init-failed"), asks=alike.KERNEL_LOG
        ),
    ),
)


CUDA_MISSES_GPU = Cause(
    id="cuda-misses-gpu",
    symptom=True,
    place=(Layer.READINESS, 180),
    title="CUDA does not see a GPU that the driver lists",
    means="The GPU answers NVML, and CUDA leaves it out: it could not start it.",
    proven_by="NVML's and CUDA's lists, and no CUDA_VISIBLE_DEVICES",
    not_when="gpus-partly-hidden; gpu-fell-off-bus; mig-misconfigured",
    way_out="Kernel log, reset or reboot",
    source="CUDA Driver API reference, cuDeviceGetCount",
    holds=(lambda context: not context.other_host,),
    message=Message(
        title="CUDA does not see GPU {gpu}, which the driver lists",
        detail="Nothing hides it: CUDA_VISIBLE_DEVICES is not set.",
        text="Reboot (in a container the host); until then leave this GPU out "
        "(CUDA_VISIBLE_DEVICES)",
        look=("sudo dmesg | grep -iE 'nvrm|xid'",),
        needs_root=True,
        needs_reboot=True,
    ),
)


UNKNOWN_ERROR = Message(
    title="CUDA does not start: unknown error ({code})",
    plain="CUDA works no more after the machine slept",
    text="On Linux load the unified memory module anew (after suspend it is often in a bad state) "
    "and start the program again; else reboot",
    commands=("sudo modprobe -r nvidia_uvm", "sudo modprobe nvidia_uvm"),
    needs_root=True,
    needs_reboot=True,
    cases=(
        Message(
            where=(lambda c: bool(c.snapshot.torch.cuda_available or events(c, "ran-first")),),
            having={"code": ""},
            title="A CUDA call failed after CUDA had started: unknown error ({code})",
            text="Look for an Xid of that time in the kernel's log; without one run it again with "
            "CUDA_LAUNCH_BLOCKING=1, so that the failing call is the one that is named",
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
            text="Lift the limit on the address space (ulimit -v, the batch system), or give the "
            "virtual machine more memory",
            commands=("ulimit -v unlimited",),
        ),
    ),
    34: (
        LIBCUDA_STUB,
        Message(
            title="The toolkit's stub libcuda is loaded instead of the driver's (error 34)",
            text="Take the toolkit's stubs folder out of LD_LIBRARY_PATH",
            way=lambda context, text: Fix(text=text, commands=without_folder(context, "/stubs")),
        ),
    ),
    36: (
        DRIVER_CALL_UNSUPPORTED,
        Message(
            title="The CUDA library asks more of the kernel driver than it can do (error 36)",
            text="Install kernel driver and libraries of one version, then reboot",
            needs_root=True,
            needs_reboot=True,
        ),
    ),
    46: (
        COMPUTE_MODE_EXCLUSIVE,
        Message(
            title="The GPU is busy, or in exclusive mode and taken by another process (error 46)",
            text="End the other process, or set the compute mode to default; where no process "
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
            text="Look at CUDA_VISIBLE_DEVICES, the compute mode and MIG, and at what else is "
            "found",
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
            text="Name only GPUs that `nvidia-smi -L` lists, and start no more processes than "
            "there are GPUs",
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
            text="Usually device nodes are missing or forbidden, or a sandbox (cgroup, seccomp, "
            "limits) forbids the call",
            commands=("sudo nvidia-modprobe -u -c=0",),
            look=("ls -l /dev/nvidia*",),
            needs_root=True,
        ),
    ),
    800: (
        OS_CALL_FAILED,
        Message(
            title="The CUDA driver may not do what a program asks (error 800)",
            text="Start the container again: its rights to the device nodes are gone or were never "
            "given (cgroup rules, seccomp); outside of containers look at the nodes' owner and "
            "group",
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
            "library); where the driver was updated and not loaded anew, reboot",
            way=drivers_own,
        ),
    ),
    804: (
        FORWARD_COMPAT_UNSUPPORTED,
        Message(
            title="A forward compatibility library (cuda-compat) stands in front of the driver, on "
            "a GPU or driver that does not allow it (error 804)",
            text="Take the cuda-compat folder out of the loader's path, or update the driver of "
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
        text="Reboot; if it stays, install the driver anew",
        needs_root=True,
        needs_reboot=True,
    ),
)


SAID: dict[str, int] = {
    "cuda-init-out-of-memory": 2,
    "compute-mode-exclusive": 46,
    "invalid-device-ordinal": 101,
    "vgpu-no-compute": 801,
    "system-not-ready-fabric-manager": 802,
    "mps-server": 805,
    "cuda-lost-after-suspend": 999,
}
"""Kind of event -> the code of the same cause."""


ALIASES = {30: 999, 38: 100, 10: 101, 71: 801}
"""Numbers of the older runtime -> today's."""


RUNS_ALREADY = (2, 36)
"""Codes that mean another thing once CUDA runs: then they are no answer of cuInit."""
