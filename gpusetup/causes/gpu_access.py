"""Causes that keep a process from using a GPU: device nodes, MIG, compute modes, licences."""

from __future__ import annotations

from gpusetup.causes import alike
from gpusetup.causes.record import Cause, CheckCommand, Message, Refutation
from gpusetup.evidence import gpu_facts, places, proofs
from gpusetup.evidence.command_values import is_an_identifier
from gpusetup.evidence.context import RuleContext, gpus
from gpusetup.evidence.places import in_wsl, on_windows_without_container
from gpusetup.fixes import paste
from gpusetup.messages.row import says
from gpusetup.model.shell import Lines

HIDES = "CUDA_VISIBLE_DEVICES"


def _chosen(context: RuleContext) -> Lines:
    """The command that selects the first MIG instance. Instances whose name is not safe to use in a
    command are skipped."""
    for gpu in gpus(context):
        for instance in gpu.mig_instances:
            if is_an_identifier(instance):
                return (paste.setting(context, HIDES, instance),)
    return ()


DESKTOP_PROFILE = (
    r"(?<![\w-])(?P<profile>(?:A(?:2|10|16|30|40|100\w{0,2})|L(?:2|4|20|40S?)|[TPM]\d{1,2}|P100\w?|V100\w{0,3}"
    r"|(?:RTX ?)?(?:PRO ?)?(?:A?[56]000(?:-?Ada|A)?|[68]000\w?)|B\d{2,3}\w?)-\d{1,2}[AB])(?![\w-])"
)
"""A vGPU profile for applications (A) or desktops (B) by its name: A16-8A, RTX6000-8A, T4-2B."""


CAUSES = (
    Cause(
        "uvm-missing",
        cases=(
            Message(
                where=(places.IN_A_CONTAINER,),
                text="On the host, load nvidia_uvm, pass /dev/nvidia-uvm to the container, and "
                "start the container again. For LXC, the setting is `lxc.mount.entry = "
                "/dev/nvidia-uvm dev/nvidia-uvm none bind,optional,create=file`",
                commands=("sudo modprobe nvidia_uvm", "sudo nvidia-modprobe -u -c=0"),
            ),
        ),
        title="CUDA's unified memory module (nvidia_uvm) or its device node is missing",
        means="NVML and nvidia-smi work without this module, but CUDA does not.",
        text="Load nvidia_uvm and create its device node",
        # Source: manual page of nvidia-modprobe.
        impossible=(on_windows_without_container, in_wsl),
        commands=("sudo modprobe nvidia_uvm", "sudo nvidia-modprobe -u -c=0"),
        says=(
            says(r'adding custom device "/dev/nvidia-uvm[\w-]*": no', example='docker: error gathering device information while adding custom device "/dev/nvidia-uvm-tools": no such file or directory'),
            says(r"could not load (?:the )?UVM kernel module", example="nvidia-modprobe: could not load the UVM kernel module"),
            says(r"/dev/nvidia-uvm'?\W{1,3}(?:no such file|not found|does not exist|is missing)", example="stat failed: /dev/nvidia-uvm: no such file or directory"),
            says(r"(?:Module '?nvidia[-_]uvm'? not found|could not insert '?nvidia[-_]uvm)", "uvm"),
        ),
    ),
    Cause(
        "device-node-missing",
        title="/dev/nvidia{gpu} is missing: nothing can use GPU {gpu} ({bus})",
        plain="A GPU's device node is missing: nothing can use it",
        means="No program can open that GPU: NVML lists one GPU fewer, or CUDA skips it.",
        text="Create the device node. A reboot removes the node, so also enable the driver's "
        "udev rules or nvidia-persistenced",
        # Source: manual page of nvidia-modprobe.
        explains=("gpu-init-failed", "cuda-misses-gpu"),
        where=(places.no(places.IN_A_CONTAINER),),
        commands=("sudo nvidia-modprobe -c={gpu}",),
        look=("ls -l /dev/nvidia*",),
    ),
    Cause(
        "device-permission",
        title="This user has no permission to open {node}",
        means="Only members of one group can open the device nodes, or SELinux or cgroup rules "
        "block access.",
        text="Join the group that owns the device nodes (the command below shows the group), and "
        "log in again. If the group is root, an administrator or a setting "
        "(NVreg_DeviceFileMode) restricted access: by default, every user can open the nodes. "
        "`sudo chmod a+rw /dev/nvidia*` opens them until the next boot",
        # Source: udev rules of the driver packages.
        explains=("driver-not-loaded",),
        commands=('sudo usermod -aG "$(stat -c %G /dev/nvidiactl)" "$USER"',),
        look=("ls -l /dev/nvidia*",),
        cases=(
            Message(
                where=(places.IN_A_CONTAINER,),
                text="Start the container again in the group that owns the device nodes (docker: "
                '`--group-add "$(stat -c %g /dev/nvidiactl)"`; podman: `--group-add keep-groups '
                "--security-opt label=disable`), or run the program in the container as root",
                look=("ls -ln /dev/nvidia*",),
            ),
        ),
        says=(
            says(r"(?<! C )(?<! G )(?<!C\+G )(?:NVML: |nvml error: )?Insufficient Permissions", unless=r"(?:utilization|performance) counter|accounting mode|persistence mode|fabric (?:status|state)"),
            "nvmlerror_nopermission",
            says(r"(?:open(?:ing)?|access)? ?'?(?P<path>/dev/nv[\w/-]+)'?\W{1,3}(?:permission denied|operation not permitted|eacces|eperm)", example="Error opening /dev/nvidia0: Permission denied"),
            says(r"permission denied:? '?(?P<path>/dev/nv[\w/-]+)", example="[Errno 13] Permission denied: '/dev/nvidia-uvm'"),
            says(r"NvRmMemInit\w* failed with Permission denied", example="NvRmMemInitNvmap failed with Permission denied"),
            says(r"\bSELinux\b.{0,400}?--security-opt[ =]label[=:]disable.{0,300}?\bGPU|\bGPU.{0,300}?\bSELinux\b.{0,300}?--security-opt[ =]label[=:]disable", unless=r"(?:did not|didn't|doesn't|does not) (?:help|work)", example="with podman and SELinux on, the container needs `--security-opt label=disable`; else it may not open the GPU"),
            says(r"avc: +denied .{0,200}(?P<path>nvidia\w*)", example='type=AVC msg=audit(1): avc:  denied  { read write } for pid=7 comm="python3" path="/dev/nvidia0"'),
        ),
        not_examples=('the guest reported fabric status "Insufficient Permissions"',),
    ),
    Cause(
        "mig-misconfigured",
        title="{who}: {what}",
        plain="MIG is on, but there is no MIG instance, or there are several and none is selected",
        means="NVML counts GPUs but CUDA counts MIG instances, so torch's index is too large. If "
        "you do not select an instance, CUDA uses only the first one, and no GPU without MIG.",
        text="Set CUDA_VISIBLE_DEVICES to one instance (`nvidia-smi -L` lists them), or to the "
        "UUIDs of GPUs without MIG. As an alternative, turn MIG off as administrator while no "
        "program uses the GPUs: `sudo nvidia-smi -mig 0`",
        # Source: NVIDIA, "MIG User Guide".
        explains=("invalid-device-ordinal", "torch-internal-error"),
        commands=_chosen,
        look=("nvidia-smi -L",),
        says=(
            says(r"device >= 0 && device < num_gpus.{0,20}INTERNAL ASSERT", shown="by MIG alone"),
            says(r"\b(?:shows?|sees?|finds?|returns?|lists?|detects?|counts?|uses?)\b[^.\n]{0,30}?\b(?:only |just )(?:one|1|a single) (?:gpus?|devices?|instances?)\b.{0,160}?\bMIG\b|\bMIG\b.{0,160}?\b(?:shows?|sees?|finds?|returns?|lists?|detects?|counts?|uses?)\b[^.\n]{0,30}?\b(?:only |just )(?:one|1|a single) (?:gpus?|devices?|instances?)\b", example="torch shows only one GPU, MIG is enabled with three instances"),
            says(r"""(?x)
        invalid\ device\ ordinal.{0,900}?CUDA_VISIBLE_DEVICES=(?P<first>MIG[-\w]+)\b
        .{0,300}?CUDA_VISIBLE_DEVICES=(?!(?P=first)\b)(?P<second>MIG[-\w]+)
        """, "cuda_visible_devices=mig"),
        ),
    ),
    Cause(
        "compute-mode-exclusive",
        title="{who}: its compute mode allows one process at a time",
        plain="The GPU is busy, or another process uses it in exclusive mode (error 46)",
        means="The compute mode Exclusive_Process allows one process at a time, and another "
        "process uses the GPU.",
        text="End the other process, or set the compute mode to default. If no process uses the "
        "GPU, reboot",
        # Source: nvidia-smi's manual page; CUDA Driver API reference, CUresult.
        says=(r"CUDA-capable device(?:s|\(s\))? (?:is/)?are busy or unavailable",),
        look=("nvidia-smi",),
        commands=("sudo nvidia-smi -c DEFAULT",),
    ),
    Cause(
        "compute-mode-prohibited",
        title="{who}: its compute mode does not allow CUDA programs",
        means="An administrator set the compute mode Prohibited, which allows no CUDA program.",
        text="Set the compute mode to default",
        # Source: nvidia-smi's manual page.
    ),
    Cause(
        "vgpu-no-compute",
        check=CheckCommand("nvidia-smi --query-gpu=name,compute_mode --format=csv", "name, compute_mode\nGRID T4-2A, Prohibited"),
        refuted_by=(Refutation(gpu_facts.no_virtual_gpu_is_named, "", "nvidia-smi"),),
        title="{who}: the profile of this virtual GPU does not support CUDA",
        means="vGPU profiles A and B do not support compute. Without a licence, no vGPU profile "
        "supports compute.",
        text="Give the virtual machine a profile that supports compute (Q or C) and a licence "
        "for it, or enable compute on the host",
        # Source: NVIDIA, "Virtual GPU Software User Guide".
        explains=("compute-mode-prohibited",),
        says=(
            says("device context 801", code="801"),
            says(rf"{DESKTOP_PROFILE}.{{0,2500}}?CUDA error(?: 801)?[^:]{{0,60}}: operation not supported", code="801"),
            says(rf"CUDA error(?: 801)?[^:]{{0,60}}: operation not supported.{{0,2500}}?{DESKTOP_PROFILE}", code="801"),
        ),
    ),
    Cause(
        "vgpu-unlicensed",
        certain_if=proofs.message_states_it,
        title="{who}: the virtual GPU has no licence, so the driver slows it down and finally "
        "refuses to run",
        means="Without a licence, the driver reduces the vGPU's performance step by step.",
        text="Install the licence server's token (and gridd.conf) and restart the licence client. "
        "In Kubernetes, put both into the ConfigMap that the operator's `driver.licensingConfig` "
        "names",
        # Source: NVIDIA, "Virtual GPU Client Licensing User Guide".
        explains=(
            "cuda-unknown-error", "os-call-failed", "cuda-init-failed", "compute-mode-exclusive",
        ),
        commands=("sudo systemctl restart nvidia-gridd",),
        look=("ls /etc/nvidia/ClientConfigToken", "nvidia-smi -q | grep -i license"),
        says=(
            r"(?:License Status\s*:? ?|vGPU is |currently )Unlicensed(?: \((?P<state>\w+)\))?",
            says(r"Failed to acquire licen[sc]e from \S|nvidia-gridd.{0,60}(?:Failed to acquire|License .{0,40}(?:denied|expired)|error.{0,20}licen)", example="nvidia-gridd: Failed to acquire license from license-server.example (Error: no license available)"),
            r"valid Grid licen[sc]e",
        ),
    ),
    Cause(
        "invalid-device-ordinal",
        check=CheckCommand('python -c "import torch; print(torch.cuda.device_count())"', "1"),
        title="CUDA_VISIBLE_DEVICES or a rank names a GPU that does not exist (error 101)",
        means="There are more ranks (processes of a job) than GPUs, or an index names a GPU that "
        "does not exist.",
        text="Use only GPUs that `nvidia-smi -L` lists, and start at most one process per GPU",
        # Source: CUDA Driver API reference, CUresult.
        alike={alike.LIST_GPUS: ("mig-misconfigured", "cuda-visible-devices-hidden")},
        says=(
            says(r"requested gpus?: \[(?P<asked>[\d, ]{1,40})\].{0,20}?But your machine only has: \[(?P<has>\d[\d, ]{0,40})\]", example="MisconfigurationException: You requested GPUs: [0, 1]\n But your machine only has: [0]"),
            "invalid device ordinal",
            r"AssertionError: Invalid device id",
            says(r"CUDA device (?P<index>\d+) but torch\.cuda\.device_count\(\) is (?P<count>[1-9]\d*)", example="RuntimeError: Attempting to deserialize object on CUDA device 3 but torch.cuda.device_count() is 2. Please use torch.load with map_location"),
            "device id must be in the range",
        ),
        look=("nvidia-smi -L",),
    ),
)  # fmt: skip
