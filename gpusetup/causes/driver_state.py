"""Causes in which the driver is loaded but has parts of two versions, does not support this GPU, or
does not respond."""

from __future__ import annotations

from gpusetup.causes import alike
from gpusetup.causes.record import Cause, CheckCommand, Message
from gpusetup.evidence import proofs
from gpusetup.evidence.context import RuleContext, driver_answers, events, in_container
from gpusetup.evidence.places import IN_A_CONTAINER
from gpusetup.fixes import drivers
from gpusetup.messages.row import says
from gpusetup.model.finding import Severity
from gpusetup.model.versions import parsed

HERE = Message(
    where=(IN_A_CONTAINER,),
    text="Check the GPU on the container's host, where the kernel log shows the reason. Then "
    "start the container again with its GPUs",
    needs_root=True,
)


def image_brings_the_library(context: RuleContext) -> bool:
    """Whether a text about an image shows a library that is newer than the host's driver.

    On a host, an update can also leave a library that is newer than the loaded module. In that
    case, a restart helps, and the text names no image.
    """
    library, host = context.driver.library_version, context.driver.version
    if not (library and host and events(context, "image-named")):
        return False
    return parsed(library) > parsed(host)


CAUSES = (
    Cause(
        "driver-does-not-answer",
        title="{asked}: {problem}",
        plain="The driver does not respond",
        means="If a GPU stopped, or the driver was only partly updated, a library of the driver "
        "may crash or hang.",
        text="Reboot. If the driver only takes a long time to start its GPUs, let doctor wait "
        "longer (`--timeout 120`)",
        # Source: gpusetup itself queries the driver in child processes with a time limit.
        symptom=True,
        explains=("gpu-does-not-answer", "cuda-misses-gpu"),
        look=(alike.KERNEL_LOG,),
        commands=("sudo reboot",),
    ),
    Cause(
        "gpu-does-not-answer",
        title="A GPU does not respond properly",
        means="The driver lists the GPU but cannot read it, or reads impossible values.",
        text="Reboot. Before the reboot, you can exclude this GPU with CUDA_VISIBLE_DEVICES",
        # Source: NVML API reference, nvmlReturn_t.
        symptom=True,
        explains=("cuda-misses-gpu",),
        look=(alike.KERNEL_LOG,),
        commands=("sudo reboot",),
    ),
    Cause(
        "nvml-init-failed",
        title="NVML starts but does not report its {field}: {problem}",
        plain="The driver's NVML does not start: it returns an unknown error (code 999)",
        means="On a host, the device nodes or the module nvidia_uvm are often in a bad state "
        "after suspend or a driver update. In a container, the usual reason is that the "
        "container has lost access to its devices.",
        text="Reboot. If the error remains, reinstall the driver",
        # Source: NVML API reference, nvmlReturn_t.
        symptom=True,
        where=(
            lambda context: (
                bool(events(context, "nvml-init-failed"))
                or not (in_container(context) or driver_answers(context))
            ),
            lambda context: not context.other_host,
        ),
        alike={"nvidia-smi": ("container-nvml-lost", "uvm-missing", "cuda-unknown-error")},
        look=(alike.KERNEL_LOG,),
        commands=("sudo reboot",),
    ),
    Cause(
        "driver-slow",
        severity=Severity.WARNING,
        title="The driver took {seconds} s to respond",
        plain="The driver took long to respond",
        means="Without persistence mode the driver restarts every GPU for each program: 10"
        " to 30 s on a big node.",
        text="Keep the driver loaded between programs. If it already stays loaded, check the "
        "machine's load and the kernel log",
        # Source: NVIDIA, "Driver Persistence".
        commands=("sudo systemctl enable --now nvidia-persistenced",),
    ),
    Cause(
        "nvml-mismatch",
        certain_if=proofs.not_in_a_container,
        check=CheckCommand("cat /proc/driver/nvidia/version; nvidia-smi", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.90.07  Fri May 31 09:35:42 UTC 2024\nFailed to initialize NVML: Driver/library version mismatch\nNVML library version: 550.120"),
        title="The kernel module and the driver libraries have different versions",
        means="Usually an update replaced the driver's packages while the old kernel module stayed "
        "loaded, so the two no longer match.",
        text="If no job runs on the host, reboot it. To avoid a reboot, stop every program that uses"
        " the GPU, then run `sudo modprobe -r nvidia_uvm nvidia_drm nvidia_modeset nvidia && "
        "sudo modprobe nvidia`. If other people use this machine, tell them first. In a "
        "container, restart the container instead, and keep driver packages out of its image. "
        "If a reboot changes nothing, reinstall the driver",
        # Source: NVML API reference, nvmlReturn_t (LIB_RM_VERSION_MISMATCH).
        explains=(
            "driver-does-not-answer", "gpu-does-not-answer", "cuda-misses-gpu",
            "forward-compat-unsupported", "libcuda-driver-mismatch",
        ),
        commands=("sudo reboot",),
        look=("modinfo -F version nvidia", "cat /proc/driver/nvidia/version"),
        cases=(
            Message(
                where=(image_brings_the_library,),
                title="The image contains libraries of a different driver from the host's",
                means="The container toolkit puts the host's own driver libraries into each "
                "container. Libraries that come with the image are loaded instead and do not "
                "match.",
                text="Remove the driver's libraries from the image (packages such as libnvidia-* "
                "and nvidia-utils), or use an image without them. You do not need to restart the "
                "host or change its driver",
                commands=(),
            ),
        ),
        says=(
            r"Driver/library version mismatch(?:.{0,3}NVML library version: (?P<library>\d[\d.]+\d))?",
            says(r"nvml error: driver/library version mismatch", place="host"),
            "nvml/rm version mismatch",
            says(r"kernel version (?P<kernel>[\d.]{3,14}\d) does not match DSO version (?P<client>[\d.]{3,14}\d)", example="NVRM: kernel version 535.54.03 does not match DSO version 535.86.10 -- cannot continue"),
        ),
    ),
    Cause(
        "gpu-init-failed",
        title="The driver is loaded but cannot start {who}",
        means="The kernel log (`sudo dmesg | grep -i nvrm`) shows the reason: a GPU that the "
        "driver does not support, power or seating, firmware (GSP), or too little PCI address "
        "space. A cluster job that did not request a GPU sees none: request one first (Slurm: "
        "`--gres=gpu:1`).",
        text="Shut the machine down fully and start it again. If a full restart does not help, "
        "reinstall the driver with the modules that the GPU needs (open or closed)",
        # Source: messages of NVIDIA's open kernel modules.
        commands=drivers.driver_commands,
        look=("sudo dmesg | grep -i nvrm",),
        needs_root=True,
        needs_reboot=True,
        alike={
            alike.KERNEL_LOG: (
                "gpu-fell-off-bus",
                "gpu-not-supported-by-driver",
                "device-permission",
            )
        },
    ),
    Cause(
        "gpu-not-supported-by-driver",
        certain_if=proofs.message_states_it,
        title="The loaded driver does not support {gpus}",
        means="GPUs before Turing need closed kernel modules; Blackwell and newer GPUs need open "
        "ones. Old GPUs work only with old drivers.",
        text="Install the driver branch and modules that this GPU needs",
        # Source: NVIDIA, "Driver Installation Guide"; the catalog's table of last branches.
        kind_of="gpu-init-failed",
        explains=("driver-not-loaded",),
        way=drivers.driver_fix,
        alike={alike.KERNEL_LOG: ("driver-not-loaded", "gpu-init-failed")},
    ),
)  # fmt: skip
