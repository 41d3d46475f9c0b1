"""CUDA does not start, or not with every GPU: what the driver API answers."""

from __future__ import annotations

from gpusetup.causes import alike
from gpusetup.causes.layers import NO_DRIVER, NO_INIT, Layer
from gpusetup.causes.libraries import without_folders_of
from gpusetup.causes.record import Alike, Cause, Message
from gpusetup.causes.sources import CUDA_DRIVER
from gpusetup.evidence.context import RuleContext, in_container, on
from gpusetup.fixes import drivers, paste
from gpusetup.messages.row import any_of, says
from gpusetup.model.finding import Fix, Severity
from gpusetup.model.shell import lines

LIBCUDA_MISSING = Cause(
    id="libcuda-missing",
    kind_of="driver-missing",
    place=(Layer.DRIVER, 100),
    title="the driver's libcuda is missing or does not load",
    means="nvidia-smi works without it, CUDA does not.",
    proven_by="nvidia-smi prints CUDA Version ERR!",
    not_when="wsl-driver; container-driver-capability-missing (in a container)",
    way_out="The driver's compute libraries, of its exact version",
    source="nvidia-smi's manual page; NVIDIA, driver README, installed components",
    explains=("nvml-init-failed",),
    by_check=True,
    message=Message(
        title="The driver's CUDA library is missing or does not load: CUDA cannot start",
        detail="nvidia-smi talks to the kernel driver through another library. Server installs and "
        "containers at times leave the compute libraries out; an installation that broke off "
        "leaves files of two versions.",
        text="Install the compute libraries of exactly this driver version (libnvidia-compute, "
        "nvidia-driver-cuda-libs); in a container give it the capability compute",
        way=lambda context, text: _compute_libraries(context, text),
        cases=(
            Message(
                having={"asker": ""},
                title="{asker} does not find libcuda.so",
                detail="The driver's library is there as libcuda.so.1; the name without a number "
                "is a link to it.",
                text="Add the folder of the driver's libcuda.so to the loader's path",
                way=lambda context, text: Fix(
                    text=text, commands=(paste.first_on(context, *where_libcuda_is(context)),)
                ),
            ),
        ),
    ),
    stage="import",
)


def where_libcuda_is(context: RuleContext) -> tuple[str, str]:
    wsl = context.os.wsl
    return "LD_LIBRARY_PATH", "/usr/lib/wsl/lib" if wsl else "/usr/lib/x86_64-linux-gnu"


WITH_COMPUTE = Fix(
    text="Start the container again with compute and utility among its driver capabilities (the "
    "command does it with a plain image); keep driver packages out of the image",
    commands=lines(
        'docker run --rm --gpus all -e "NVIDIA_DRIVER_CAPABILITIES=compute,utility" '
        "ubuntu nvidia-smi"
    ),
)


def _compute_libraries(context: RuleContext, text: str) -> Fix:
    """The libraries of the driver that CUDA needs, where only the others are installed."""
    if in_container(context):
        return WITH_COMPUTE
    if on(context, "windows") or context.os.wsl:
        return drivers.driver(context, "Install the NVIDIA driver again")
    return Fix(text=text, commands=drivers.driver_commands(context), needs_root=True)


CUDA_SEES_NO_DEVICE = Cause(
    id="cuda-sees-no-device",
    symptom=True,
    place=(Layer.READINESS, 170),
    title="CUDA finds no device although the machine has one",
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
    says=any_of(
        {
            "machine only has": r"requested gpus?: \[(?P<asked>[\d, ]{1,40})\].{0,20}?But your machine only has: \[(?P<has>\d[\d, ]{0,40})\]",
            "invalid device ordinal": "",
            "invalid device id": r"AssertionError: Invalid device id",
            "torch.cuda.device_count() is": r"CUDA device (?P<index>\d+) but torch\.cuda\.device_count\(\) is (?P<count>[1-9]\d*)",
            "device id must be in the range": "",
        },
    ),
    examples=(
        "AssertionError: Invalid device id",
        "RuntimeError: Attempting to deserialize object on CUDA device 3 but torch.cuda.device_count() is 2. Please use torch.load with map_location",
        "RuntimeError: Device id must be in the range of GPUs",
        "MisconfigurationException: You requested GPUs: [0, 1]\n But your machine only has: [0]",
    ),
    not_examples=("your machine only has: [0, 1]",),
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
            settled_by=("program",),
        ),
    ),
    says=any_of(
        {
            "fabric": r"(?:Failed to start|nvidia-fabricmanager\.service.{0,60}(?:failed|inactive)|fabric ?manager never reported|Fabric Manager .{0,60}(?:failed|not running|is not))",
            "in progress": r"\bFabric State ?: In Progress",
            "fabric manager": r"fabric manager .{0,40}version (?P<version>\d[\d.]+) (?:don.?t|doesn.?t|does not|do not) match with driver version (?P<driver>\d[\d.]+)",
        },
    ),
    examples=(
        "nvidia-fabricmanager.service: Main process exited, code=exited; state failed",
        "Fabric\n    State : In Progress\n    Status : N/A",
        "fabric manager NVIDIA GPU driver interface version 535.54.03 don't match with driver version 535.86.10. Please update",
    ),
)

LIBCUDA_DRIVER_MISMATCH = Cause(
    id="libcuda-driver-mismatch",
    place=(Layer.READINESS, 70),
    title="libcuda does not belong to the loaded driver",
    means="A stale or mounted copy of libcuda, or cuda-compat in front.",
    proven_by="Code 803",
    not_when="nvml-mismatch, which a reboot fixes",
    way_out="Remove the copy",
    source=CUDA_DRIVER,
)

FORWARD_COMPAT_UNSUPPORTED = Cause(
    id="forward-compat-unsupported",
    place=(Layer.READINESS, 80),
    title="cuda-compat on hardware or a driver that does not allow it",
    means="Forward compatibility is for data centre GPUs and some drivers.",
    proven_by="Code 804",
    way_out="Remove cuda-compat from LD_LIBRARY_PATH, or update the host's driver",
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
    says=(
        says(
            "mps",
            r"MPS (?:server is not ready|client failed to connect|server and the MPS client|server has been shut)",
        ),
        says("mps", r"cudaErrorMps\w+|CUDA_ERROR_MPS_\w+"),
    ),
)

CUDA_INIT_OUT_OF_MEMORY = Cause(
    id="cuda-init-out-of-memory",
    place=(Layer.READINESS, 100),
    title="CUDA cannot start: not enough memory or address space",
    means="CUDA reserves a large address space; ulimit -v or a small guest forbids it.",
    proven_by="Code 2 from cuInit",
    not_when="Out of memory while a program runs",
    way_out="Raise the limit",
    source=CUDA_DRIVER,
    explains=("out-of-memory",),
)

DRIVER_CALL_UNSUPPORTED = Cause(
    id="driver-call-unsupported",
    kind_of="libcuda-driver-mismatch",
    place=(Layer.READINESS, 140),
    title="libcuda needs a newer kernel driver",
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
    way_out="Reload nvidia_uvm, or reboot",
    source=CUDA_DRIVER,
    alike=(Alike(causes=("uvm-missing", "driver-not-loaded"), asks=alike.NODES),),
)

CUDA_INIT_FAILED = Cause(
    id="cuda-init-failed",
    symptom=True,
    place=(Layer.READINESS, 160),
    title="CUDA does not start, with another code",
    means="A code without its own row.",
    proven_by="cuInit answers neither 0 nor a known code",
    way_out="Reboot; reinstall the driver",
    source=CUDA_DRIVER,
    holds=(lambda context: not context.other_host,),
    message=Message(
        title="CUDA cannot tell its {field}: {problem}",
        plain="CUDA cannot list its devices",
        text="Reboot; if it stays, reinstall the driver",
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
    means="The GPU answers NVML, but CUDA could not start it and leaves it out.",
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

LIBCUDA_STUB = Cause(
    id="libcuda-stub",
    place=(Layer.PROCESS, 20),
    title="the toolkit's stub libcuda is loaded",
    means="The stub only links programs on a machine without a driver; it cannot run them.",
    proven_by="Code 34, or a loaded libcuda in a folder `stubs`; as a warning, such a folder "
    "in LD_LIBRARY_PATH",
    way_out="Remove the folder from LD_LIBRARY_PATH",
    source="CUDA Driver API reference, CUresult (STUB_LIBRARY)",
    explains=(*NO_INIT, *NO_DRIVER, "driver-missing"),
    message=Message(
        title="The toolkit's stub libcuda is loaded, or on LD_LIBRARY_PATH, instead of the "
        "driver's",
        text="Remove the stubs folder from LD_LIBRARY_PATH",
        way=without_folders_of("/stubs"),
        cases=(
            Message(
                having={"folder": ""}, way=without_folders_of("/stubs"), severity=Severity.WARNING
            ),
        ),
    ),
    says=any_of(
        {
            "stub": r"CUDA_ERROR_STUB_LIBRARY|cudaErrorStubLibrary|CUDA driver is a stub library",
            "always run with libnvidia-ml": r"You should always run with libnvidia-ml\.so",
            "/stubs": r"libcuda\.so[.\d]* (?:=>|paths:) /\S{0,160}/stubs/libcuda",
        },
    ),
    examples=(
        "libcuda.so.1 => /usr/local/cuda/lib64/stubs/libcuda.so.1",
        "WARNING: You should always run with libnvidia-ml.so that is installed with your NVIDIA Display Driver.",
    ),
    not_examples=("Mapped libcuda.so paths:\n /usr/lib/x86_64-linux-gnu/libcuda.so.535.183.01",),
)
