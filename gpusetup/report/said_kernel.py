"""Messages of the kernel, of NVIDIA's modules in it, and of who builds and loads them.

Sources: the messages of the open kernel modules, NVIDIA's guide "Xid Errors" and its catalog, the
kernel's module loader, modprobe, dkms, NVIDIA's installer.
"""

from __future__ import annotations

from gpusetup.report.messages import row

BUS = r"(?P<bus_id>[0-9a-f]{2,8}:[0-9a-f:.]{2,14})"

MODULE_BUILDS = (
    row(
        "module-build-failed",
        "/var/lib/dkms/nvidia",
        r"Bad return status for module build on kernel: (?P<kernel>[\w.+~-]{3,60}).{0,80}?"
        r"/var/lib/dkms/nvidia[\w-]{0,20}/(?P<driver>\d{3}[\d.]{1,10}\d)/",
    ),
    row(
        "module-build-failed",
        "/var/lib/dkms/nvidia",
        r"\[\w{0,40}Makefile\w{0,10}:\d{1,6}: /var/lib/dkms/nvidia[\w-]{0,20}/(?P<driver>\d{3}[\d.]{1,10}\d)/build\] Error \d",
    ),
    row(
        "module-build-failed",
        "dkms autoinstall on",
        r"dkms autoinstall on (?P<kernel>[\w.+~-]{3,60})/\w{3,10} failed for (?:[\w.()-]{1,60} ){0,4}nvidia",
    ),
    row(
        "module-build-failed",
        "nvidia-dkms-",
        r"dpkg: error processing package nvidia-dkms-(?P<branch>\d{3})",
    ),
    row(
        "module-build-failed",
        "the development tool",
        r"ERROR: Unable to find the development tool \W?\w{2,5}",
        why="compiler",
    ),
    row("module-build-failed", "building kernel modules", r'the step: "Building kernel modules"'),
    row(
        "module-build-failed",
        "nvidia kernel module",
        r"ERROR: Unable to build the NVIDIA kernel module",
    ),
    row(
        "module-build-failed",
        "kernel source tree",
        r"ERROR: Unable to find the kernel source tree for the currently running kernel",
        why="headers",
    ),
    row(
        "module-build-failed",
        "kernel headers for kernel",
        r"Your kernel headers for kernel (?P<kernel>[\w.+~-]{3,60}) cannot be found",
        why="headers",
        unless=r"(?:Module|dkms (?:install|build))[:= ]{1,3}(?:-m )?(?!nvidia)[a-z]",
    ),
)
"""dkms and NVIDIA's installer: the module does not compile against this kernel."""

KERNEL = (
    row("xid", "xid", rf"\bXid \((?:PCI:)?{BUS}[^)]{{0,20}}\): (?P<number>\d{{1,4}})", by="number"),
    row("xid", "xid", r"\bXid ?= ?(?P<number>\d{1,3})\b", by="number"),
    row("xid", "xid", r"\bXid(?: error)?:? (?P<number>\d{2,3})\b(?! ?\()", by="number"),
    row(
        "sxid",
        "sxid",
        rf"\bSXid \((?:PCI:)?{BUS}[^)]{{0,20}}\): (?P<number>\d{{5}}), (?!Non-fatal)",
        by="number",
    ),
    row(
        "nvrm-api-mismatch",
        "api mismatch",
        r"API mismatch: \w+ client .{0,60}?version (?P<client>\d[\d.]{3,12}\d)"
        r"(?:.{0,60}?module has the version (?P<kernel>\d[\d.]{3,12}\d))?",
    ),
    row(
        "nvrm-api-mismatch",
        "nvidia-nvswitch: version mismatch",
        r"nvidia-nvswitch: Version mismatch, kernel version (?P<kernel>[\d.]{3,14}\d) user version (?P<client>[\d.]{3,14}\d)",
    ),
    row(
        "nvrm-api-mismatch",
        "does not match dso version",
        r"kernel version (?P<kernel>[\d.]{3,14}\d) does not match DSO version (?P<client>[\d.]{3,14}\d)",
    ),
    row(
        "gpu-init-failed",
        "initadapter",
        rf"NVRM: (?:GPU (?:at )?(?:PCI:)?{BUS}:? ?)?:?\s?(?:RmInitAdapter)(?:: | )(?:failed|cannot)!?"
        r"(?: \((?P<code>0x[0-9a-fx:]{1,24})\))?",
    ),
    row("gpu-init-failed", "rm_init_adapter", rf"(?:GPU {BUS}: )?rm_init_adapter.{{0,12}} failed"),
    row("gpu-init-failed", "none of the nvidia devices were"),
    row("gpu-init-failed", "probe routine failed", r"NVIDIA probe routine failed"),
    row(
        "gpu-init-failed",
        "probe of",
        rf"nvidia\w{{0,8}}:? .{{0,24}}probe of {BUS} failed with error",
    ),
    row(
        "gpu-init-failed",
        "region assigned to your nvidia",
        r"I/?O region assigned to your NVIDIA device",
        lacks="address space",
    ),
    row("gpu-init-failed", "bar1 is 0m", r"NVRM: BAR1 is 0M", lacks="address space"),
    row("gpu-init-failed", "failed to wait for gfw", r"failed to wait for GFW.?boot"),
    row("gpu-init-failed", "failed to copy vbios"),
    row(
        "gpu-fell-off-bus",
        "fallen off the bus",
        rf"(?:GPU (?:at )?(?:PCI:)?{BUS}:?)?.{{0,80}}fallen off the bus",
    ),
    row("gpu-fell-off-bus", "gpu is lost", rf"(?:GPU ?(?:\d+: )?{BUS}: )?(?:\bthe )?GPU is lost"),
    row("gpu-fell-off-bus", "nvmlerror_gpuislost"),
    row("gpu-fell-off-bus", "nvml_error_gpu_is_lost"),
    row(
        "gpu-fell-off-bus",
        "determine the device handle",
        rf"Unable to determine the device handle for (?:GPU ?)(?:\d+: )?{BUS}: (?:Unknown Error|Not Found|GPU is lost)",
    ),
    row("gpu-requires-reset", "gpu requires reset"),
    row(
        "gpu-requires-reset", "nv_err_reset_required", r"\bReset required \[NV_ERR_RESET_REQUIRED\]"
    ),
    row(
        "gpu-not-supported-by-driver",
        "not supported by",
        rf"NVRM: The NVIDIA (?:GPU )?{BUS}.{{0,120}}?not supported by (?:the )?(?:NVIDIA )?(?P<driver>[\d.]{{3,14}}|open)?",
    ),
    row(
        "gpu-not-supported-by-driver",
        "installed in this system is",
        r"installed in this system is .{0,24}?not supported by.{0,40}?"
        r"(?:NVIDIA (?P<driver>\d{3}[\d.]{1,10}\d) driver|open .{0,24}?nvidia\.ko)",
    ),
    row(
        "gpu-not-supported-by-driver",
        "legacy drivers",
        r"(?:The NVIDIA (?P<name>[\w ()-]{3,50}?) (?:GPU )?installed in this system is .{0,24}?)?"
        r"supported through the NVIDIA (?P<driver>[\d.x]{3,14}) Legacy",
    ),
    row(
        "gpu-not-supported-by-driver",
        "open kernel modules",
        r"requires? use of the NVIDIA open kernel modules",
        driver="closed",
    ),
    row("gpu-not-supported-by-driver", "nvidia.ko because it does not include", driver="open"),
    row(
        "gsp-timeout",
        "rpc",
        r"Time(?:d )?out (?:waiting for RPC|after \d+s? of waiting for RPC).{0,40}GSP",
    ),
    row(
        "gsp-timeout",
        "gsp",
        r"GSP(?: |-)?RM heartbeat timed out|GSP task (?:timeout|exception)|GSP .{0,20}lockdown",
    ),
    row("hardware-error", "nvlink", r"uncorrectable NVLink error", what="nvlink"),
    row("hardware-error", "nvlink", r"NVRM: .{0,40}NVLink: .{0,60}fatal", what="nvlink"),
    row("hardware-error", "cuda_error_nvlink_uncorrectable", what="nvlink"),
    row(
        "ecc-error",
        "ecc",
        r"uncorrectable (?:DRAM )?ECC error|double.bit ECC error|cudaErrorECCUncorrectable|CUDA_ERROR_ECC_UNCORRECTABLE",
    ),
    row(
        "module-key-rejected",
        "key was rejected by service",
        r"(?:insert (?:module )?'?(?P<module>[\w./-]{1,80})'?: )?Key was rejected by service",
    ),
    row(
        "module-key-rejected",
        "required key not available",
        r"(?:insert '?(?P<module>nvidia[\w-]*)'?: )Required key not available",
    ),
    row(
        "module-key-rejected",
        "module is rejected",
        r"(?:unsigned |nvidia.{0,20})module is rejected",
    ),
    row(
        "module-key-rejected",
        "not signed with a trusted key",
        r"PKCS#7 signature not signed with a trusted key",
    ),
    row(
        "module-key-rejected",
        "unsigned module loading",
        r"Lockdown: .{0,40}unsigned module loading is restricted",
    ),
    row(
        "module-key-rejected",
        "signed kernel module failed to load",
        r"The signed kernel module failed to load",
    ),
    row(
        "module-key-rejected",
        "not signed by a key",
        r"not signed by a key that is trusted by the (?:Linux )?kernel",
    ),
    row(
        "module-not-found",
        "not found in directory",
        r"'?(?P<module>\bnvidia[\w-]*)'? not found in directory",
    ),
    row(
        "module-not-found",
        "not found",
        r"(?:modinfo: ERROR: Module |ERROR: module not found: \W?)(?P<module>nvidia[\w-]*)",
    ),
    row("module-not-found", "module by name", r"find module by name '(?P<module>nvidia[\w-]*)'"),
    row(
        "module-not-found",
        "falling back to",
        r"NVIDIA kernel module \w+(?: \w+)?\. Falling back to",
    ),
    row(
        "module-not-inserted",
        "could not insert",
        r"could not insert '?(?P<module>nvidia[\w-]*)'?: (?P<why>(?!Key was|Required key)[\w ]{3,60})",
    ),
    row(
        "module-not-inserted",
        "nvidia.ko",
        r"Unable to load the kernel module '(?P<module>nvidia[\w-]*)\.ko'",
    ),
    *MODULE_BUILDS,
    row(
        "driver-does-not-answer",
        "blocked for more than",
        r"task (?:nvidia[\w-]{0,20}|nvc:\[driver\]|nv_\w{1,20}):\d{1,8} blocked for more than \d{2,6} seconds",
        how="is blocked in the kernel",
    ),
    row(
        "driver-does-not-answer",
        "blocked for more than",
        r"blocked for more than \d{2,6} seconds.{0,900}?\[nvidia(?:_uvm|_modeset)?\]",
        how="is blocked in the kernel",
    ),
    row(
        "driver-does-not-answer",
        "state:d",
        r"task:\S{1,40} state:D .{0,900}?\[nvidia(?:_uvm|_modeset)?\]",
        how="is blocked in the kernel",
    ),
    row("hardware-error", "err!", r"\|\s?ERR!\s+\S{1,6}\s+\S{1,8}\s+ERR!", what="smi"),
    row(
        "nouveau-in-the-way",
        "nouveau",
        r"Kernel driver in use: nouveau|NVRM: .{0,80}nouveau|Nouveau kernel driver is currently in use",
    ),
)
