"""CUDA does not start, or may not use a GPU: errors of the driver API, device nodes, MIG, compute
modes, licences.

Sources, where a record names no other: CUDA Driver API reference, CUresult; manual page of
nvidia-modprobe.
"""

from __future__ import annotations

from gpusetup.causes.layers import NO_DRIVER
from gpusetup.causes.record import Cause, CheckCommand, Message, Refutation
from gpusetup.evidence import checks, facts, proofs
from gpusetup.evidence.command_values import is_a_version
from gpusetup.evidence.context import RuleContext, in_container
from gpusetup.fixes import paste, system_packages
from gpusetup.messages.row import says
from gpusetup.model.finding import Fix
from gpusetup.model.shell import Lines, filled


def fabric_manager(context: RuleContext, text: str) -> Fix:
    """Install the Fabric Manager version that matches the driver exactly."""
    version = context.driver.version or ""
    # A container does not show its host's distribution, where the package must be installed.
    family = None if in_container(context) else system_packages.linux_family(context)
    # A text may contain anything as a version, so only a plausible one is put into the command.
    command = FABRIC_PACKAGE.get(family or "") if is_a_version(version) else None
    branch = version.partition(".")[0]
    install = (filled(command, branch=branch, version=version),) if command else ()
    start = paste.posix(
        context,
        "sudo systemctl enable nvidia-fabricmanager",
        "sudo systemctl restart nvidia-fabricmanager",
    )
    sentence = f"{text} (`nvidia-smi` shows the version)"
    if version:
        sentence = f"Install Fabric Manager {version} (the driver's version), and start it"
    return Fix(text=sentence, commands=(*install, *start), needs_root=True)


BY_APT = "sudo apt install -y 'nvidia-fabricmanager-{branch}={version}*'"

FABRIC_PACKAGE = {
    "ubuntu": BY_APT,
    "debian": BY_APT,
    "rhel": "sudo dnf install -y nvidia-fabric-manager-{version}",
}
"""A distribution -> the command that installs the Fabric Manager for one driver version."""


def _without_other_libcuda(context: RuleContext) -> Lines:
    """The command that takes the folder off LD_LIBRARY_PATH from which libcuda is loaded instead of
    the driver's: cuda-compat's folder, or one with an old copy; () if neither is on it."""
    machine = context.snapshot
    loaded_from = (machine.driver.libcuda_path or "").rpartition("/")[0]
    for folder in (machine.container.cuda_compat_path, loaded_from):
        if folder and folder in machine.environment.get("LD_LIBRARY_PATH", ""):
            return paste.without_folders(context, folder)
    return ()


AFTER_SUSPEND = r"\b(?:after|since|from) (?:\S{1,12} ){0,4}?(?:suspen\w+|sleep\w*|resum\w+|hibernat\w+|waking up)\b.{0,200}?\b(?:CUDA|GPU|CPU|torch)\b"
"""What people say of a GPU that does not work after the machine resumed."""


CAUSES = (
    Cause(
        "libcuda-missing",
        by_check=True,
        title="CUDA cannot start because the driver's libcuda is missing or does not load",
        means="nvidia-smi works without libcuda. Containers and driver packages for servers "
        "sometimes lack the compute libraries. An interrupted installation can mix two driver "
        "versions.",
        text="On the host, install the compute libraries of exactly this driver version "
        "(libnvidia-compute, nvidia-driver-cuda-libs; on Windows, the whole driver). If this is a "
        "container, start it again with `-e NVIDIA_DRIVER_CAPABILITIES=compute,utility`",
        needs_root=True,
        # Source: nvidia-smi's manual page; NVIDIA, driver README, installed components.
    ),
    Cause(
        "cuda-sees-no-device",
        check=CheckCommand("env | grep CUDA_VISIBLE; python -c 'import torch; torch.cuda.init()'", "CUDA_VISIBLE_DEVICES=7\nRuntimeError: Error 100: no CUDA-capable device is detected"),
        title="CUDA detects no device (error 100)",
        means="CUDA starts, but it is not allowed to use any GPU.",
        text="Check CUDA_VISIBLE_DEVICES, the compute mode, MIG, and doctor's other results",
        symptom=True,
        asks=(checks.LIST_GPUS,),
    ),
    Cause(
        "os-call-failed",
        title="A system call of the CUDA driver failed (error {code})",
        means="Device nodes are missing or not accessible, or cgroup rules, seccomp rules or "
        "limits block the call.",
        text="A container may have lost its device nodes, so start it again. Outside containers, "
        "create the device nodes, and check their owner and group",
        look=("ls -l /dev/nvidia*",),
        commands=("sudo nvidia-modprobe -u -c=0",),
    ),
    Cause(
        "system-not-ready-fabric-manager",
        by_check=True,
        check=CheckCommand("systemctl is-active nvidia-fabricmanager; python -c 'import torch; torch.cuda.init()'", "inactive\nRuntimeError: Error 802: system not yet initialized"),
        certain_if=proofs.gpus_are_on_nvswitch,
        title="The NVSwitch fabric is not ready on {who}",
        means="With NVSwitch, the Fabric Manager and driver versions must match exactly.",
        text="Install the Fabric Manager version that matches the driver, and start it",
        # Source: CUDA Driver API reference, CUresult; NVIDIA, "Fabric Manager User Guide".
        asks=("nvidia-smi -q | grep -A 3 Fabric",),
        says=(
            says(r"(?:Failed to start|nvidia-fabricmanager\.service.{0,60}(?:failed|inactive)|fabric ?manager never reported|Fabric Manager .{0,60}(?:failed|not running|is not))", "fabric", example="nvidia-fabricmanager.service: Main process exited, code=exited; state failed"),
            says(r"\bFabric State ?: In Progress", example="Fabric\n    State : In Progress\n    Status : N/A"),
            says(r"fabric manager .{0,40}version (?P<version>\d[\d.]+) (?:don.?t|doesn.?t|does not|do not) match with driver version (?P<driver>\d[\d.]+)", example="fabric manager NVIDIA GPU driver interface version 535.54.03 don't match with driver version 535.86.10. Please update"),
        ),
        fix_for=fabric_manager,
        plain="The NVSwitch fabric is not ready (error 802): Fabric Manager is not running, or "
        "does not match the driver",
    ),
    Cause(
        "libcuda-driver-mismatch",
        certain_if=proofs.message_states_it,
        title="The loaded libcuda does not match the loaded kernel driver (error {code})",
        means="The loader finds an old or mounted copy of libcuda, or the one from cuda-compat, "
        "before the driver's own.",
        text="Remove old copies of libcuda (cuda-compat, mounted or copied libraries). If the "
        "driver was updated but not reloaded, reboot",
        commands=_without_other_libcuda,
        look=("ldconfig -p | grep libcuda",),
        needs_root=True,
        formerly=("driver-call-unsupported",),
    ),
    Cause(
        "forward-compat-unsupported",
        title="CUDA loads a forward compatibility library (cuda-compat) that this GPU or driver "
        "does not support (error 804)",
        text="Remove the cuda-compat folder from the loader's path, or update the host's driver. "
        "cuda-compat works only on data centre GPUs, and only with some drivers",
        # Source: CUDA Driver API reference, CUresult; NVIDIA, "CUDA Compatibility".
        commands=_without_other_libcuda,
        look=("ldconfig -p | grep libcuda",),
        needs_root=True,
    ),
    Cause(
        "mps-server",
        by_check=True,
        title="The CUDA MPS daemon rejects this process",
        means="The daemon lets programs share the GPU. It belongs to another user, is not ready, "
        "or has too many clients.",
        text="Stop the MPS daemon, or use the GPU as the user that started it",
        # Source: NVIDIA, "Multi-Process Service".
        says=(says(r"MPS (?:server is not ready|client failed to connect|server and the MPS client|server has been shut)|cudaErrorMps\w+|CUDA_ERROR_MPS_\w+", "mps"),),
        commands=("echo quit | nvidia-cuda-mps-control",),
    ),
    Cause(
        "cuda-init-out-of-memory",
        by_check=True,
        title="CUDA failed to start because it ran out of memory (error 2)",
        means="CUDA reserves a large address space, which `ulimit -v` or a small VM can prevent.",
        text="Raise the address space limit (`ulimit -v`, or the batch system's limit), or give "
        "the virtual machine more memory",
        explains=("out-of-memory",),
        commands=("ulimit -v unlimited",),
    ),
    Cause(
        "cuda-unknown-error",
        check=CheckCommand('nvidia-smi -L; python -c "import torch; torch.cuda.init()"', "GPU 0: NVIDIA GeForce RTX 3070 Laptop GPU (UUID: GPU-…)\nRuntimeError: CUDA unknown error - this may be due to an incorrectly set up environment"),
        title="CUDA does not start: unknown error ({code})",
        means="Often the nvidia_uvm module breaks after suspend, although `nvidia-smi` works.",
        text="On Linux, reload nvidia_uvm and restart the program. If that does not help, reboot",
        asks=(checks.DEVICE_NODES,),
        needs_reboot=True,
        commands=("sudo modprobe -r nvidia_uvm", "sudo modprobe nvidia_uvm"),
        plain="CUDA stopped working after the machine slept",
        says=(says(AFTER_SUSPEND, "suspen", "sleep", "resum", "hibernat", "waking", example="After suspend the GPU is no longer used by ollama, until I reboot"),),
    ),
    Cause(
        "cuda-init-failed",
        title="CUDA does not start",
        means="gpusetup does not know what causes this error code.",
        text="Reboot. If the error remains, reinstall the driver",
        symptom=True,
        commands=("sudo reboot",),
        asks=(checks.KERNEL_LOG,),
    ),
    Cause(
        "libcuda-stub",
        certain_if=proofs.message_names_the_stub,
        title="CUDA loads the toolkit's stub libcuda instead of the driver's, or LD_LIBRARY_PATH "
        "contains the stub's folder",
        means="The stub is only for linking programs on a machine without a driver. Programs "
        "cannot run with it.",
        text="Remove the stubs folder from LD_LIBRARY_PATH",
        # Source: CUDA Driver API reference, CUresult (STUB_LIBRARY).
        explains=NO_DRIVER,
        commands=lambda context: paste.without_folders(context, "/stubs"),
        says=(
            r"CUDA_ERROR_STUB_LIBRARY|cudaErrorStubLibrary|CUDA driver is a stub library",
            says(r"libcuda\.so[.\d]* (?:=>|paths:) /\S{0,160}/stubs/libcuda", example="libcuda.so.1 => /usr/local/cuda/lib64/stubs/libcuda.so.1"),
        ),
    ),
    Cause(
        "uvm-missing",
        by_check=True,
        check=CheckCommand("ls -l /dev/nvidia-uvm; lsmod | grep nvidia_uvm", "ls: cannot access '/dev/nvidia-uvm': No such file or directory"),
        cases=(
            Message(
                where=(in_container,),
                text="On the host, load nvidia_uvm, pass /dev/nvidia-uvm to the container, and "
                "start the container again. For LXC, the setting is `lxc.mount.entry = "
                "/dev/nvidia-uvm dev/nvidia-uvm none bind,optional,create=file`",
                commands=("sudo modprobe nvidia_uvm", "sudo nvidia-modprobe -u -c=0"),
            ),
        ),
        title="CUDA's unified memory module (nvidia_uvm) or its device node is missing",
        means="NVML and nvidia-smi work without this module, but CUDA does not.",
        text="Load nvidia_uvm and create its device node",
        formerly=("device-node-missing",),
        commands=("sudo modprobe nvidia_uvm", "sudo nvidia-modprobe -u -c=0"),
        says=(
            says(r"could not load (?:the )?UVM kernel module", example="nvidia-modprobe: could not load the UVM kernel module"),
            says(r'adding custom device "/dev/nvidia-uvm[\w-]*": no', example='docker: error gathering device information while adding custom device "/dev/nvidia-uvm-tools": no such file or directory'),
            says(r"/dev/nvidia-uvm'?\W{1,3}(?:no such file|not found|does not exist|is missing)", example="stat failed: /dev/nvidia-uvm: no such file or directory"),
            says(r"(?:Module '?nvidia[-_]uvm'? not found|could not insert '?nvidia[-_]uvm)", "uvm"),
        ),
    ),
    Cause(
        "device-permission",
        by_check=True,
        check=CheckCommand("ls -l /dev/nvidia* /dev/kfd /dev/dri/renderD*; id -nG", "crw-rw---- 1 root render 234, 0 /dev/kfd\nme sudo"),
        title="This user has no permission to open {node}",
        means="Only one group may open the device nodes, or SELinux or cgroup rules block access.",
        text="Join the group that owns the device nodes (the command below shows it), and log out "
        "and in again. If that group is root, an administrator or a setting (NVreg_DeviceFileMode) "
        "has restricted access. `sudo chmod a+rw /dev/nvidia[0-9]* /dev/nvidiactl /dev/nvidia-uvm` "
        "opens the nodes to everyone until the next boot",
        # Source: udev rules of the driver packages.
        explains=("driver-not-loaded", "amd-gpu", "intel-gpu"),
        formerly=("maker-device-permission",),
        commands=('sudo usermod -aG "$(stat -c %G /dev/nvidiactl | grep -vx root)" "$USER"',),
        look=("ls -l /dev/nvidia*",),
        cases=(
            Message(
                where=(in_container,),
                text="Start the container again in the group that owns the device nodes (docker: "
                '`--group-add "$(stat -c %g /dev/nvidiactl)"`; podman: `--group-add keep-groups '
                "--security-opt label=disable`), or run the program in the container as root",
                look=("ls -ln /dev/nvidia*",),
            ),
        ),
        says=(
            says(r"(?<! C )(?<! G )(?<!C\+G )(?:NVML: |nvml error: )?Insufficient Permissions", unless=r"(?:utilization|performance) counter|accounting mode|persistence mode|fabric (?:status|state)"),
            says(r"nvmlerror_nopermission|NvRmMemInit\w* failed with Permission denied", example="NvRmMemInitNvmap failed with Permission denied"),
            says(r"(?:open(?:ing)?|access)? ?'?(?P<path>/dev/nv[\w/-]+)'?\W{1,3}(?:permission denied|operation not permitted|eacces|eperm)", example="Error opening /dev/nvidia0: Permission denied"),
            says(r"permission denied:? '?(?P<path>/dev/nv[\w/-]+)", example="[Errno 13] Permission denied: '/dev/nvidia-uvm'"),
            says(r"avc: +denied .{0,200}(?P<path>nvidia\w*)", example='type=AVC msg=audit(1): avc:  denied  { read write } for pid=7 comm="python3" path="/dev/nvidia0"'),
        ),
    ),
    Cause(
        "mig-misconfigured",
        by_check=True,
        title="{who}: {what}",
        plain="MIG is on, but there is no MIG instance, or there are several and none is selected",
        means="With MIG, a process uses one instance: the first, unless you select another.",
        text="Set CUDA_VISIBLE_DEVICES to one instance (`nvidia-smi -L` lists them), or to the "
        "UUIDs of GPUs without MIG. Or turn MIG off while no program uses the GPUs: `sudo "
        "nvidia-smi -mig 0`",
        # Source: NVIDIA, "MIG User Guide".
        explains=("invalid-device-ordinal",),
        look=("nvidia-smi -L",),
        says=(
            says(r"device >= 0 && device < num_gpus.{0,20}INTERNAL ASSERT", only_with="MIG"),
            says(r"invalid device ordinal.{0,900}?CUDA_VISIBLE_DEVICES=(?P<first>MIG[-\w]+)\b.{0,300}?CUDA_VISIBLE_DEVICES=(?!(?P=first)\b)(?P<second>MIG[-\w]+)", "cuda_visible_devices=mig"),
        ),
    ),
    Cause(
        "compute-mode-exclusive",
        by_check=True,
        check=CheckCommand("nvidia-smi --query-gpu=name,compute_mode --format=csv", "name, compute_mode\nTesla T4, Exclusive_Process"),
        title="{who}: its compute mode does not allow another CUDA program",
        plain="The GPU is busy, or another process uses it in exclusive mode (error 46)",
        means="Exclusive_Process allows one process at a time, and Prohibited allows none.",
        text="Stop the other process, or set the compute mode back to Default. If no process uses "
        "the GPU, reboot",
        # Source: nvidia-smi's manual page; CUDA Driver API reference, CUresult.
        says=(r"CUDA-capable device(?:s|\(s\))? (?:is/)?are busy or unavailable",),
        commands=("sudo nvidia-smi -c DEFAULT",),
        formerly=("compute-mode-prohibited",),
    ),
    Cause(
        "vgpu-no-compute",
        by_check=True,
        check=CheckCommand("nvidia-smi --query-gpu=name,compute_mode --format=csv", "name, compute_mode\nGRID T4-2A, Prohibited"),
        refuted_by=(Refutation(facts.no_virtual_gpu_is_named, "", "nvidia-smi"),),
        title="{who}: the profile of this virtual GPU does not support CUDA",
        plain="The profile of this virtual GPU does not support CUDA",
        means="vGPU profiles whose names end in A or B do not support CUDA.",
        text="Give the virtual machine a profile that supports CUDA (one that ends in Q or C) and "
        "a licence for that profile",
        # Source: NVIDIA, "Virtual GPU Software User Guide".
        says=(
            says("device context 801", code="801"),
        ),
    ),
    Cause(
        "vgpu-unlicensed",
        by_check=True,
        check=CheckCommand("nvidia-smi -q | grep -i license", "    License Status                    : Unlicensed (Restricted)"),
        certain_if=proofs.message_states_it,
        title="{who}: the virtual GPU has no licence, so the driver slows it down and finally "
        "refuses to run",
        plain="The virtual GPU has no licence, so the driver slows it down and finally refuses to run",
        text="Install the token from the licence server (and gridd.conf), and restart the licence "
        "client. In Kubernetes, put both files into the ConfigMap that you set in the GPU "
        "operator's `driver.licensingConfig`",
        # Source: NVIDIA, "Virtual GPU Client Licensing User Guide".
        explains=(
            "cuda-unknown-error", "os-call-failed", "cuda-init-failed", "compute-mode-exclusive",
        ),
        commands=("sudo systemctl restart nvidia-gridd",),
        says=(
            r"(?:License Status\s*:? ?|vGPU is |currently )Unlicensed(?: \((?P<state>\w+)\))?",
            says(r"Failed to acquire licen[sc]e from \S|nvidia-gridd.{0,60}(?:Failed to acquire|License .{0,40}(?:denied|expired)|error.{0,20}licen)", example="nvidia-gridd: Failed to acquire license from license-server.example (Error: no license available)"),
            r"valid Grid licen[sc]e",
        ),
    ),
    Cause(
        "invalid-device-ordinal",
        by_check=True,
        check=CheckCommand('python -c "import torch; print(torch.cuda.device_count())"', "1"),
        title="CUDA_VISIBLE_DEVICES or a rank refers to a GPU that does not exist (error 101)",
        means="The job has more processes (ranks) than GPUs, or a GPU index is too large.",
        text="Use only GPUs that `nvidia-smi -L` lists, and start at most one process per GPU",
        asks=(checks.LIST_GPUS,),
        says=(
            says(r"requested gpus?: \[(?P<asked>[\d, ]{1,40})\].{0,20}?But your machine only has: \[(?P<has>\d[\d, ]{0,40})\]", example="MisconfigurationException: You requested GPUs: [0, 1]\n But your machine only has: [0]"),
            "invalid device ordinal",
            r"AssertionError: Invalid device id",
            says(r"CUDA device (?P<index>\d+) but torch\.cuda\.device_count\(\) is (?P<count>[1-9]\d*)", example="RuntimeError: Attempting to deserialize object on CUDA device 3 but torch.cuda.device_count() is 2. Please use torch.load with map_location"),
            "device id must be in the range",
        ),
    ),
)  # fmt: skip
