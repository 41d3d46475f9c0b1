"""What programs and people say of the kernel: of Xids, of lost GPUs, of who builds and loads modules.

What the kernel itself logs stands in `messages/kernel.py`. Sources: NVML's and nvidia-smi's errors,
modprobe, dkms, NVIDIA's installer.
"""

from __future__ import annotations

from gpusetup.messages.fragments import BUS
from gpusetup.messages.kernel import KERNEL_LOG
from gpusetup.messages.row import row, rows

MODULE_BUILDS = (
    *rows(
        "driver-build-failed",
        {
            "/var/lib/dkms/nvidia": (
                r"Bad return status for module build on kernel: (?P<kernel>[\w.+~-]{3,60}).{0,80}?"
                r"/var/lib/dkms/nvidia[\w-]{0,20}/(?P<driver>\d{3}[\d.]{1,10}\d)/"
            ),
            "dkms autoinstall on": r"dkms autoinstall on (?P<kernel>[\w.+~-]{3,60})/\w{3,10} failed for (?:[\w.()-]{1,60} ){0,4}nvidia",
            "nvidia-dkms-": r"dpkg: error processing package nvidia-dkms-(?P<branch>\d{3})",
            "building dkms module": r"Building DKMS module:? '?nvidia-(?P<driver>\d{3}[\d.]{1,10}\d)'?(?: for \S{3,60})?\.{0,3} ?FAILED",
            "dkms module": r"DKMS module '?nvidia-(?P<driver>\d{3}[\d.]{1,10}\d)'? failed to build",
            "make[": r"make\[\d\]: \*\*\* \[[^\]]{0,160}/dkms/nvidia[\w-]{0,20}/(?P<driver>\d{3}[\d.]{1,10}\d)/build[^\]]{0,80}\] \w{2,12} \d",
            ": error: ": r"\b(?:nvidia(?:-\w+)?/|common/inc/)nv[\w-]{2,40}\.[ch]:\d{1,5}:\d{1,4}: error: ",
            "/var/cache/akmods/nvidia": r"/var/cache/akmods/nvidia[\w-]{0,12}/(?P<driver>\d{3}[\d.]{1,10}\d)-[\w.]{1,10}-for-(?P<kernel>[\w.+~-]{3,60}?)\.failed\.log",
            "building and installing nvidia-": r"Building and installing nvidia-(?:open-)?kmod ?\[? ?FAILED",
            "building kernel modules": r'the step: "Building kernel modules"',
            "nvidia kernel module": r"ERROR: Unable to build the NVIDIA kernel module",
        },
    ),
    row(
        "driver-build-failed",
        "autoinstall for kernel",
        r"nvidia\b.{0,600}?dkms:? autoinstall for kernel:? (?P<kernel>[\w.+~-]{3,60}) failed|dkms:? autoinstall for kernel:? (?P<kernel2>[\w.+~-]{3,60}) failed.{0,400}?nvidia",
        unless=r"amdgpu/|virtualbox|zfs/",
    ),
    *rows(
        "driver-build-failed",
        {
            "the development tool": r"ERROR: Unable to find the development tool \W?\w{2,5}",
            "not found": r"(?:\[ ?nvidia[\w-]{0,12} ?\] .{0,400}?|nvidia[\w-]{0,12}-dkms\b.{0,900}?)\b(?:g\+\+|gcc(?:-\d{1,2})?|cc|c\+\+|clang|ld): (?:command )?not found\b",
        },
        why="compiler",
    ),
    row(
        "driver-build-failed",
        "kernel source tree",
        r"ERROR: Unable to find the kernel source tree for the currently running kernel",
        why="headers",
    ),
    row(
        "driver-build-failed",
        "kernel headers for kernel",
        r"Your kernel headers for kernel (?P<kernel>[\w.+~-]{3,60}) cannot be found",
        why="headers",
        unless=r"(?:Module|dkms (?:install|build))[:= ]{1,3}(?:-m )?(?!nvidia)[a-z]",
    ),
)
"""dkms and NVIDIA's installer: the module does not compile against this kernel."""

LINKS = (
    row(
        "pcie-errors",
        "pcie bus error",
        rf"\bnvidia {BUS}: (?:AER: )?PCIe Bus Error: severity=(?P<severity>Correct(?:ed|able)|Uncorrect(?:ed|able) \([\w-]{{3,12}}\))",
        by="severity",
    ),
)
"""The kernel's Advanced Error Reporting of NVIDIA's devices."""

TOOLS = (
    row("xid", "xid", r"\bXid ?= ?(?P<number>\d{1,3})\b", by="number"),
    row(
        "nvml-mismatch",
        "does not match dso version",
        r"kernel version (?P<kernel>[\d.]{3,14}\d) does not match DSO version (?P<client>[\d.]{3,14}\d)",
    ),
    *rows(
        "gpu-fell-off-bus",
        {
            "gpu is lost": rf"(?:GPU ?(?:\d+: )?{BUS}: )?(?:\bthe )?GPU is lost",
            "nvml_error_gpu_is_lost": "",
            "determine the device handle": rf"Unable to determine the device handle for (?:GPU ?)(?:\d+: )?{BUS}: (?:Not Found|GPU is lost)",
        },
    ),
    row(
        "gpu-fell-off-bus",
        "no longer",
        r"\b(?:crash\w*|launch failure|fr(?:eez|oz)\w+|failure state)\b.{0,300}?\b(?:driver|nvidia-smi|system) (?:can|could) no longer (?:access|see|find|reach|detect|talk to|communicate with) (?:the |my )?GPUs?\b",
        unless=r"\b(?:updat|upgrad|install|remov)(?:e|ed|ing)\b",
        said="unknown error",
    ),
    row(
        "gpu-fell-off-bus",
        "determine the device handle",
        rf"Unable to determine the device handle for (?:GPU ?)(?:\d+: )?{BUS}: Unknown Error",
        said="unknown error",
    ),
    *rows(
        "secure-boot-rejected",
        {
            "sig_enforce=1": r"module\.sig_enforce=1.{0,200}?nvidia.{0,60}?(?:reject|refus|not load)",
            " reject": r"\bnvidia[\w/ -]{0,40} (?:module )?(?:signing )?keys? (?:is|are|was|were|gets?|being) reject",
            "signed kernel module failed to load": r"The signed kernel module failed to load",
        },
    ),
    row("hardware-fault", "gpu requires reset"),
    row("hardware-fault", "cuda_error_nvlink_uncorrectable", what="nvlink"),
    row(
        "ecc-error",
        "ecc",
        r"(?:uncorrectable (?:DRAM )?|double.bit )ECC error(?!s?\s{0,9}[:=] ?0\b)|cudaErrorECCUncorrectable|CUDA_ERROR_ECC_UNCORRECTABLE",
    ),
    *rows(
        "module-not-found",
        {
            "not found in directory": r"'?(?P<module>\bnvidia[\w-]*)'? not found in directory",
            "not found": r"(?:modinfo: ERROR: Module |ERROR: module not found: \W?)(?P<module>nvidia[\w-]*)",
            "module by name": r"find module by name '(?P<module>nvidia[\w-]*)'",
            "falling back to": r"NVIDIA kernel module \w+(?: \w+)?\. Falling back to",
        },
    ),
    *rows(
        "driver-not-loaded",
        {
            "could not insert": r"could not insert '?(?P<module>nvidia[\w-]*)'?: (?P<why>(?!Key was|Required key)[\w ]{3,60})",
            "unable to load the kernel module": r"Unable to load the kernel module '(?P<module>nvidia[\w-]*)\.ko'",
        },
    ),
    *MODULE_BUILDS,
    row("hardware-fault", "err!", r"\|\s?ERR!\s+\S{1,6}\s+\S{1,8}\s+ERR!", what="smi"),
    row(
        "nouveau-in-the-way",
        "nouveau",
        r"Kernel driver in use: nouveau|Nouveau kernel driver is currently in use"
        r"|\bNVIDIA\b.{0,400}? configuration: (?:\w+=\S+ ){0,4}driver=nouveau\b"
        r"|Device-\d: NVIDIA.{0,120}? driver: nouveau\b",
    ),
)

KERNEL = (*KERNEL_LOG, *LINKS, *TOOLS)
