"""What the driver, its kernel module and programs that test GPUs say, and proves no cause alone.

What the kernel itself logs stands in `messages/kernel.py`. Sources: NVML's and nvidia-smi's errors,
modprobe, dkms, NVIDIA's installer.

Sources: nvidia-smi 384 to 610, nvmlErrorString, torch's check of the driver, supergfxctl,
envycontrol, prime-select, nv-fabricmanager.

Sources: gpu_burn-drv.cpp, DCGM's diagnostics (dcgmi diag), nccl-tests' common.cu, CUDA samples.
"""

from __future__ import annotations

from gpusetup.messages.fragments import BUS
from gpusetup.messages.kernel import KERNEL_LOG
from gpusetup.messages.row import row, rows

LINKS = (
    row(
        "pcie-errors",
        rf"\bnvidia {BUS}: (?:AER: )?PCIe Bus Error: severity=(?P<severity>Correct(?:ed|able)|Uncorrect(?:ed|able) \([\w-]{{3,12}}\))",
    ),
)
"""The kernel's Advanced Error Reporting of NVIDIA's devices."""


TOOLS = (
    row("xid", r"\bXid ?= ?(?P<number>\d{1,3})\b"),
    *rows("module-not-found", r"'?(?P<module>\bnvidia[\w-]*)'? not found in directory"),
    row(
        "module-not-found",
        r"(?:modinfo: ERROR: Module |ERROR: module not found: \W?)(?P<module>nvidia[\w-]*)",
        "not found",
    ),
    *rows(
        "module-not-found",
        r"find module by name '(?P<module>nvidia[\w-]*)'",
        r"NVIDIA kernel module \w+(?: \w+)?\. Falling back to",
    ),
    row(
        "nouveau-in-the-way",
        (
            r"Kernel driver in use: nouveau|Nouveau kernel driver is currently in use"
            r"|\bNVIDIA\b.{0,400}? configuration: (?:\w+=\S+ ){0,4}driver=nouveau\b"
            r"|Device-\d: NVIDIA.{0,120}? driver: nouveau\b"
        ),
    ),
)


KERNEL = (*KERNEL_LOG, *LINKS, *TOOLS)


DRIVER = (
    *rows(
        "no-nvidia-driver",
        "found no nvidia driver",
        r"(?:could not load dynamic library '|couldn't open CUDA library |cannot load |unable to load |(?:failed to|could not|cannot|can't|unable to) dlopen (?:library )?)(?P<library>libcuda\.so[.\d]*)",
        r"(?:could not|cannot|unable to|failed to) (?:load|find|locate).{0,30}(?P<library>nvcuda\.dll)",
        r"(?P<library>libnvidia-ml\.so(?:\.1)?): cannot open shared object",
    ),
    row(
        "driver-check-failed",
        r"in _check_driver\b(?!.{0,400}?(?:Error|too old|Found no NVIDIA|not compiled))",
    ),
    row("no-nvidia-driver", r"couldn.?t find libnvidia-ml\.so", library="libnvidia-ml.so"),
    *rows(
        "no-nvidia-driver",
        "nvml shared library not found",
        "nvml doesn't exist on this system",
        r"NVML.{0,24}ERROR_LIBRARY_NOT_FOUND",
        library="libnvidia-ml",
    ),
    row(
        "no-nvidia-driver",
        r"(?<![\w.])(?P<library>libcuda\.so(?:\.1)?): (?!undefined|version|file too short)(?=\S)",
        unless=r"dlerror|Could not load library libcudnn",
    ),
    row(
        "libcuda-unlinked",
        r"Could not load library (?P<asker>libcudnn\w+\.so(?:\.\d+)*)\W{1,2} ?Error: (?P<library>libcuda\.so): cannot open",
    ),
    *rows(
        "smi-not-found",
        r"\b(?:ba|z|da|k|fi|a)?sh: (?:line )?(?:\d+: )?command not found: nvidia-smi",
        r"nvidia-smi.{0,3}: (?:command )?not found|Command 'nvidia-smi' not found",
        r"nvidia-smi\W{1,2} (?:is not recognized|: The term|\u4e0d\u662f\u5185\u90e8|wurde nicht|n'est pas reconnu)",
        r"no such file or directory: '?\S{0,60}nvidia-smi",
    ),
    row("no-devices-found", "no devices were found"),
    *rows(
        "image-needs-newer-driver",
        r"unsatisfied condition: (?:[\w =,]{0,40}?)cuda ?>= ?(?P<cuda>\d+\.\d+)",
        r"unsatisfied condition: driver ?>?= ?(?P<needs_driver>\d{3}[.\d]*)",
        r"unsupported CUDA version: driver (?P<driver_cuda>[\d.]+) < image (?P<cuda>[\d.]+)",
    ),
    row(
        "image-needs-newer-driver",
        r"""(?x)
        built\ for\ NVIDIA\ Driver\ Release
        \ (?P<needs_driver>[\d.]+)\ or\ later,\ but\s+version
        \ (?P<driver>[\d.]+)\ was\ detected\ and\ compatibility\ mode\ is
        \ (?:UNAVAILABLE|FAILED)
        """,
        "was built for nvidia driver release",
    ),
    row(
        "pcie-slow",
        r"Speed (?P<best>[\d.]+GT/s)[^()]{0,200}?LnkSta:\s{0,4}Speed (?P<speed>[\d.]+GT/s) \(downgraded\), Width x\d{1,2} \(ok\)",
    ),
    row("no-nvswitch", "nv_warn_nothing_to_do"),
)


ROWS = (
    *KERNEL,
    *DRIVER,
    *rows(
        "gpu-computes",
        r"Tested \d{1,3} GPUs:(?: GPU \d{1,3}: OK){1,64}(?! GPU \d{1,3}: FAULTY)",
        r"Out of bounds values : 0 OK.{0,60}?Avg bus bandwidth",
        r"Successfully ran diagnostic for group\.(?:(?!\| Fail).){0,1100}?(?:Memory|PCIe|Diagnostic|Denylist|Software) ?\| Pass(?!.{0,1100}\| Fail)",
        r"deviceQuery.{0,300}?Result = PASS",
    ),
    row(
        "ran-first",
        (
            r"\b(?:step|iter(?:ation)?|epoch)s?\b[ =:#\[]{0,3}\d{1,8}\b.{0,60}?\bloss\b.{0,3}\d|\{'loss': \d|\bEpoch:? ?\d[^\n]{0,20}?[1-9]\d?%\|"
            r"|\b(?:after|ran) (?:running |training )?(?:for )?(?:(?:about|around|roughly|some|a few|several|many|a couple of|~|over|only) ?)*(?:\d[\d,.]*k?|an?|one|two|three|few|several|some|many)? ?(?:hours?|minutes|mins|days|(?:training )?(?:steps|iterations)|epochs?|batches)\b(?! (?:of )?(?:suspend|sleep|uptime|idle|loading|waiting))"
        ),
        "loss",
        "after ",
        "ran ",
        "epoch",
    ),
)
