"""The driver is missing, too old, not loaded, built or signed, has parts of two versions, or does not
respond.

Sources, where a record names no other: NVML API reference, nvmlReturn_t.
"""

from __future__ import annotations

from gpusetup.causes.record import Cause, CheckCommand, Message, Refutation
from gpusetup.evidence import checks, facts, proofs
from gpusetup.evidence.context import events, in_container, listed_gpus
from gpusetup.fixes import drivers
from gpusetup.fixes.drivers import ENROLL, ENROLL_KEY, REBOOT, load_fix, rebuild_with_headers
from gpusetup.messages.row import says

NOT_SUPPORTED = Message(
    title="The loaded driver does not support {gpus}",
    means="GPUs before Turing need the proprietary kernel modules, and Blackwell and newer GPUs "
    "need the open ones. Old GPUs work only with old drivers.",
    text="Install the driver branch and modules that this GPU needs",
    # Source: NVIDIA, "Driver Installation Guide"; the catalog's table of last branches.
    fix_for=drivers.driver_fix,
)

CAUSES = (
    Cause(
        "driver-too-old",
        by_check=True,
        certain_if=proofs.driver_and_need_are_read,
        check=CheckCommand("nvidia-smi --query-gpu=name,driver_version --format=csv", "name, driver_version\nTesla T4, 470.256.02"),
        refuted_by=(
            Refutation(facts.driver_is_new_enough, "wrong-libcuda-loaded", checks.WHICH_LIBCUDA),
        ),
        title="{who} needs {needs}, but the driver is {driver}",
        plain="The program or torch needs a newer driver",
        means="Each major CUDA version has a minimum driver, and a driver that meets it runs every "
        "minor version. On Linux, CUDA 12 needs driver 525, and CUDA 13 needs driver 580.",
        text="Update the driver, or install a torch build for an older CUDA",
        # Source: NVIDIA, "CUDA Compatibility".
        lacks="driver",
        explains=("cuda-sees-no-device", "container-hook-failed", "resolver-conflict"),
        says=(
            r"driver on your system is (?P<refused>too old)(?! \(found version \d{7})(?: \(found version (?P<found>\d{4,6})\))?",
            r"CUDA driver version is (?P<refused>insufficient for CUDA runtime version)",
            r"(?P<refused>cudaErrorInsufficientDriver)",
            r"undefined symbol: (?P<symbol>cu(?:GreenCtx|DevSm|DeviceGetDevResource|Multicast|MemcpyBatch|KernelGet|Library|StreamGetGreenCtx|StreamBatchMemOp|CtxFromGreenCtx|Coredump|Logs)\w{0,40})",
            says(r"has constraint __cuda >=(?P<cuda>\d+\.\d+) conflicting with __cuda-(?P<driver_cuda>\d+\.\d+)-", example="package pytorch-2.1.0 has constraint __cuda >=12.1 conflicting with __cuda-11.4-0"),
            says(r"minimum required CUDA driver version is (?P<cuda>\d+\.\d+), but the installed CUDA driver version is (?P<driver_cuda>[1-9]\d*\.\d+)", example="The minimum required CUDA driver version is 12.0, but the installed CUDA driver version is 11.4."),
        ),
    ),
    Cause(
        "driver-missing",
        check=CheckCommand("nvidia-smi", "bash: nvidia-smi: command not found"),
        title="{who}: no NVIDIA driver is installed",
        plain="gpusetup found no NVIDIA driver",
        means="The driver's kernel module, libraries and programs are missing. PyTorch includes "
        "its own CUDA libraries but not the driver.",
        text="Install your distribution's driver package and reboot",
        # Source: NVIDIA, "Driver Installation Guide".
        lacks="gpu",
        asks=(checks.PCI_GPUS,),
    ),
    Cause(
        "hybrid-gpu-off",
        check=CheckCommand("prime-select query", "intel"),
        certain_if=proofs.message_states_it,
        title="{tool} has switched the NVIDIA GPU off",
        means="Tools such as supergfxctl, prime-select and envycontrol can switch the GPU off or "
        "block its kernel module.",
        text="Turn the NVIDIA GPU on (`sudo prime-select on-demand`, `supergfxctl --mode Hybrid`, "
        "`sudo envycontrol --switch hybrid`, `sudo system76-power graphics hybrid`, or delete the "
        "line in /etc/modprobe.d), and reboot",
        # Source: the tools' own documentation.
        where=(lambda context: not listed_gpus(context),),
        commands=("sudo reboot",),
        says=(
            says(r"supergfxctl (?:-g|--get)\W{0,4}(?P<mode>Integrated|Vfio)", tool="supergfxctl", example="$ supergfxctl -g\nIntegrated"),
            says(r"envycontrol (?:-q|--query)\W{0,4}(?:Current graphics mode(?: is)?: )?(?P<mode>integrated)", tool="envycontrol"),
            says(r"prime-select query\W{0,4}(?P<mode>intel|amd)\b", tool="prime-select", example="$ prime-select query\namd"),
            says(r"system76-power graphics\W{0,4}(?P<mode>integrated)", tool="system76-power", example="$ system76-power graphics\nintegrated"),
            says(r"(?<![\w/-])blacklist nvidia(?:[-_]drm|[-_]modeset)?(?= |$)", tool="modprobe", unless=r"nouveau", example="/etc/modprobe.d/a.conf: blacklist nvidia-drm"),
            says(r"(?<![\w/-])install nvidia(?:[-_](?:drm|modeset))? /bin/(?:false|true)", tool="modprobe", unless=r"nouveau", example="$ cat /etc/modprobe.d/gpu.conf\ninstall nvidia /bin/false"),
        ),
    ),
    Cause(
        "driver-not-loaded",
        by_check=True,
        check=CheckCommand("nvidia-smi", "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA driver is installed and running."),
        title="The NVIDIA driver is installed, but its kernel module is not loaded",
        means="Often the module was not rebuilt after a kernel update, nouveau uses the GPU, or "
        "Secure Boot rejects the module.",
        text="Load or rebuild the module, block nouveau, or reboot",
        # Source: NVML API reference, nvmlReturn_t (DRIVER_NOT_LOADED); NVIDIA, "Driver
        # Installation Guide".
        lacks="gpu",
        explains=("amd-gpu", "intel-gpu", "wsl-driver"),
        fix_for=load_fix,
        certain_if=lambda context: any(
            "build" in event.values for event in events(context, "driver-not-loaded")
        ),
        cases=(
            Message(
                having={"build": ""},
                title="The kernel module of driver {driver} was not built for kernel {kernel}",
                plain="The NVIDIA driver's kernel module was not built for the running kernel",
                means="Usually the kernel is too new for this driver, which builds only for "
                "kernels that existed when it was released. Otherwise, kernel headers or a "
                "compiler are missing (see make.log).",
                text="Install the headers for this kernel, and a driver that supports the kernel. "
                "If the GPU needs an old driver branch, use an older kernel",
                # Source: dkms's manual page; messages of nvidia-installer.
                commands=rebuild_with_headers,
                needs_root=True,
            ),
        ),
        formerly=("driver-build-failed", "maker-driver-not-loaded", "wsl-rocm-missing"),
        says=(
            says("nvml error: driver not loaded", place="host"),
            says(r"\b(?:nvidia-driver-daemonset|nvidia-driver-ctr)\b.{0,300}?couldn't communicate with the NVIDIA driver", place="host", example="microk8s kubectl exec nvidia-driver-daemonset-x1 -c nvidia-driver-ctr -- nvidia-smi\nNVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver"),
            says(r'adding custom device "/dev/nvidia(?:\d+|ctl)": no such file', place="host", example='docker: error gathering device information while adding custom device "/dev/nvidiactl": no such file or directory'),
            "communicate with the nvidia driver",
            r"(?:NVML|nvml error|NVMLError\w*): ?driver not loaded",
            says(r"NVIDIA (?:kernel )?driver is not loaded", example="ERROR: NVIDIA driver is not loaded"),
            says(r"kernel driver does not appear to be running on this host \((?![0-9a-f]{12}\))", example="E cuda_diagnostics: kernel driver does not appear to be running on this host (node-17): /proc/driver/nvidia/version does not exist"),
            r"could not insert '?(?P<module>nvidia[\w-]*)'?: (?P<why>(?!Key was|Required key)[\w ]{3,60})",
            says(r"Bad return status for module build on kernel: (?P<kernel>[\w.+~-]{3,60}).{0,80}?/var/lib/dkms/nvidia[\w-]{0,20}/(?P<driver>\d{3}[\d.]{1,10}\d)/", build="failed"),
            says(r"\bdkms (?:install|build)\b[^\n]{0,40}?\bnvidia\b.{0,900}?Bad return status for module build on kernel: (?P<kernel>[\w.+~-]{3,60})", build="failed", example="sudo dkms install -m nvidia -v 470.86\nBuilding module:\nError! Bad return status for module build on kernel: 6.5.0-15-generic (x86_64)"),
            says(r"dkms autoinstall on (?P<kernel>[\w.+~-]{3,60})/\w{3,10} failed for (?:[\w.()-]{1,60} ){0,4}nvidia", build="failed", example="Error! One or more modules failed to install during autoinstall.\ndkms autoinstall on 6.5.0-15-generic/x86_64 failed for nvidia(10)"),
            says(r"dpkg: error processing package nvidia-dkms-(?P<branch>\d{3})", build="failed", example="dpkg: error processing package nvidia-dkms-550 (--configure):"),
            says(r"Building DKMS module:? '?nvidia-(?P<driver>\d{3}[\d.]{1,10}\d)'?(?: for \S{3,60})?\.{0,3} ?FAILED", build="failed", example="Building DKMS module: nvidia-565.77... FAILED!"),
            says(r"\b(?:nvidia(?:-\w+)?/|common/inc/)nv[\w-]{2,40}\.[ch]:\d{1,5}:\d{1,4}: error: ", build="failed", example="nvidia/nv-procfs.c:1431:17: error: passing argument 4 of 'proc_create_data' from incompatible pointer type"),
            says(r"/var/cache/akmods/nvidia[\w-]{0,12}/(?P<driver>\d{3}[\d.]{1,10}\d)-[\w.]{1,10}-for-(?P<kernel>[\w.+~-]{3,60}?)\.failed\.log", build="failed", example="akmodsbuild: see /var/cache/akmods/nvidia/565.77-1-for-6.13.5-200.fc41.x86_64.failed.log"),
            says(r"the step: \"Building kernel modules\"|ERROR: Unable to build the NVIDIA kernel module|Building and installing nvidia-(?:open-)?kmod ?\[? ?FAILED", build="failed", example="Building and installing nvidia-kmod [FAILED]"),
            says(r"ERROR: Unable to find the development tool \W?\w{2,5}", why="compiler", build="failed", example="ERROR: Unable to find the development tool 'make' in your path; please make sure that you have the package 'make' installed."),
            says(r"ERROR: Unable to find the kernel source tree for the currently running kernel", why="headers", build="failed"),
            says(r"Your kernel headers for kernel (?P<kernel>[\w.+~-]{3,60}) cannot be found", unless=r"(?:Module|dkms (?:install|build))[:= ]{1,3}(?:-m )?(?!nvidia)[a-z]", why="headers", build="failed", example="Error! Your kernel headers for kernel 6.1.0-18-amd64 cannot be found at /lib/modules/6.1.0-18-amd64/build or /lib/modules/6.1.0-18-amd64/source."),
            says(r"Unable to load the kernel module '(?P<module>nvidia[\w-]*)\.ko'", example="ERROR: Unable to load the kernel module 'nvidia-drm.ko'. This happens most frequently when"),
        ),
    ),
    Cause(
        "secure-boot-rejected",
        check=CheckCommand("mokutil --sb-state; sudo dmesg | grep -iE 'nvidia|key'", "SecureBoot enabled\n[    5.213847] nvidia: loading out-of-tree module taints kernel.\n[    5.213862] Loading of module with unavailable key is rejected"),
        certain_if=proofs.message_states_it,
        title="Secure Boot rejects the NVIDIA kernel module because its signing key is not enrolled",
        means="The firmware does not trust the key that signed the module.",
        text=f"{ENROLL[0].upper()}{ENROLL[1:]}. Or turn Secure Boot off in the firmware",
        # Source: Linux kernel, module signing.
        where=(lambda context: not listed_gpus(context),),
        but={"module": "^(?!.*nvidia)"},
        commands=(ENROLL_KEY, REBOOT),
        says=(
            r"The signed kernel module failed to load",
        ),
    ),
    Cause(
        "driver-does-not-answer",
        by_check=True,
        title="{asked}: {problem}",
        plain="The driver does not respond",
        means="If a GPU has stopped working, or the driver was only partly updated, one of the "
        "driver's libraries (NVML or libcuda) may crash, hang or return an error. A container may "
        "have lost its devices.",
        text="Reboot. If the error remains, reinstall the driver. If the driver only takes long to "
        "start its GPUs, let doctor wait longer (`--timeout 120`). If only one GPU does not "
        "respond, you can exclude it with CUDA_VISIBLE_DEVICES until you reboot",
        # Source: gpusetup itself queries the driver in child processes with a time limit.
        symptom=True,
        asks=(checks.KERNEL_LOG,),
        commands=("sudo reboot",),
        formerly=("driver-slow", "nvml-init-failed", "gpu-does-not-answer", "cuda-misses-gpu"),
    ),
    Cause(
        "nvml-mismatch",
        by_check=True,
        certain_if=lambda context: not in_container(context),
        check=CheckCommand("cat /proc/driver/nvidia/version; nvidia-smi", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.90.07  Fri May 31 09:35:42 UTC 2024\nFailed to initialize NVML: Driver/library version mismatch\nNVML library version: 550.120"),
        title="The kernel module and the driver libraries have different versions",
        means="Usually an update replaced the driver while the old kernel module stayed loaded.",
        text="If no job runs on the host, reboot it. To avoid a reboot, stop every program that "
        "uses the GPU (including nvidia-persistenced and the desktop), then run `sudo modprobe -r "
        "nvidia_uvm nvidia_drm nvidia_modeset nvidia && sudo modprobe nvidia`. If other people use "
        "this machine, tell them first. If nvidia-smi fails only in a container, restart the "
        "container, and keep driver packages out of its image. If a reboot changes nothing, "
        "reinstall the driver",
        # Source: NVML API reference, nvmlReturn_t (LIB_RM_VERSION_MISMATCH).
        explains=(
            "driver-does-not-answer",
            "forward-compat-unsupported", "libcuda-driver-mismatch",
        ),
        commands=("sudo reboot",),
        says=(
            r"Driver/library version mismatch(?:.{0,3}NVML library version: (?P<library>\d[\d.]+\d))?",
            says(r"nvml error: driver/library version mismatch", place="host"),
            "nvml/rm version mismatch",
        ),
    ),
    Cause(
        "gpu-init-failed",
        by_check=True,
        certain_if=lambda context: bool(events(context, "gpu-not-supported-by-driver")),
        explains=("driver-not-loaded",),
        formerly=("gpu-not-supported-by-driver",),
        title="The driver is loaded but cannot start {who}",
        means="The kernel log (`sudo dmesg | grep -i nvrm`) shows the reason. For example, the "
        "driver does not support the GPU, its power or seating is bad, its firmware (GSP) failed, "
        "or PCI address space is too small. A cluster job that requested no GPU also sees none.",
        text="Shut the machine down fully and start it again. If that does not help, reinstall the "
        "driver with the kernel modules that the GPU needs (open or proprietary)",
        # Source: messages of NVIDIA's open kernel modules.
        commands=drivers.driver_commands,
        needs_root=True,
        needs_reboot=True,
        asks=(checks.KERNEL_LOG,),
    ),
)  # fmt: skip
