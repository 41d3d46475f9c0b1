"""Messages from the driver, its kernel module and GPU test programs. None of them proves a cause on
its own.

Sources: nvidia-smi 384 to 610, nvmlErrorString, NVIDIA's kernel modules and installer, modprobe,
torch's check of the driver.

Sources: gpu_burn-drv.cpp, DCGM's diagnostics (dcgmi diag), nccl-tests' common.cu, CUDA samples.
"""

from __future__ import annotations

from gpusetup.messages.fragments import BUS
from gpusetup.messages.row import row

LINKS = r"14[4-9]|150"
"""The Xids of NVLink 5. Their messages say whether the error is fatal."""
NONFATAL = rf"(?:{LINKS}), \w{{2,40}} Nonfatal\b"

KERNEL_LOG = (
    row("xid", rf"\bXid \((?:PCI:)?{BUS}[^)]{{0,20}}\): (?P<number>(?!154\b)(?!{NONFATAL})\d{{1,4}})", example="Xid (PCI:0000:c1:00): 119"),
    row("xid", rf"\bXid \((?:PCI:)?{BUS}[^)]{{0,20}}\): (?P<nonfatal>(?P<number>{LINKS}), \w{{2,40}} Nonfatal)\b", example="Xid (PCI:0000:04:00): 145, RLW_CTRL Nonfatal"),
    row("xid", rf"\bXid \((?:PCI:)?{BUS}[^)]{{0,20}}\): (?P<number>154)\b" r"(?:.{0,120}?recovery action changed from .{3,60}? to 0x\w{1,8} \((?P<recovery>[\w /-]{3,40})\))?"),
    row("sxid", rf"\bSXid \((?:PCI:)?{BUS}[^)]{{0,20}}\): (?P<number>\d{{5}}), (?:Always[ -])?Fatal\b", example="SXid (PCI:0000:c3:00.0): 22013, Always Fatal"),
    row("nvml-mismatch", r"API mismatch: \w+ client .{0,60}?version (?P<client>\d[\d.]{3,12}\d)(?:.{0,60}?module has(?: \S{1,40}){0,4}? the version (?P<kernel>\d[\d.]{3,12}\d))?"),
    row("nvml-mismatch", r"nvidia-nvswitch: Version mismatch, kernel version (?P<kernel>[\d.]{3,14}\d) user version (?P<client>[\d.]{3,14}\d)"),
    row("gpu-init-failed", rf"NVRM: (?:GPU (?:at )?(?:PCI:)?{BUS}:? ?)?:?\s?(?:RmInitAdapter)(?:: | )(?:failed|cannot)!?" r"(?: \((?P<code>0x[0-9a-fx:]{1,24})\))?"),
    row("gpu-init-failed", rf"(?:GPU {BUS}: )?rm_init_adapter.{{0,12}} failed"),
    row("gpu-init-failed", "none of the nvidia devices were"),
    row("gpu-init-failed", r"GSP-\w{3,4} reported an error while attempting to boot GSP"),
    row("gpu-init-failed", r"NVIDIA probe routine failed"),
    row("gpu-init-failed", rf"nvidia\w{{0,8}}:? .{{0,24}}probe of {BUS} failed with error"),
    row("gpu-init-failed", rf"{BUS}: probe with driver nvidia failed with error"),
    row("gpu-init-failed", r"failed to wait for GFW.?boot"),
    row("gpu-init-failed", r"I/?O region assigned to your NVIDIA device", lacks="address space"),
    row("gpu-init-failed", r"NVRM: BAR1 is 0M", lacks="address space"),
    row("gpu-fell-off-bus", r"\b(?:GPU|card) (?:has |had |is )?(?:fallen|fell|falls|falling) off of the bus"),
    row("gpu-fell-off-bus", rf"(?:(?:GPU (?:at )?|Xid \()(?:PCI:)?{BUS}\)?:?(?:(?!NVRM|Xid|GPU \S*:).){{0,80}})?fallen off the bus"),
    row("hardware-fault", r"\bReset required \[NV_ERR_RESET_REQUIRED\]", example="Reset required [NV_ERR_RESET_REQUIRED]"),
    row("gpu-not-supported-by-driver", rf"NVRM: The NVIDIA (?:GPU )?{BUS}.{{0,120}}?not supported by (?:the )?(?:NVIDIA )?(?P<driver>[\d.]{{3,14}}|open)?"),
    row("gpu-not-supported-by-driver", r"installed in this system is .{0,24}?not supported by.{0,40}?(?:NVIDIA (?P<driver>\d{3}[\d.]{1,10}\d) driver|open .{0,24}?nvidia\.ko)"),
    row("gpu-not-supported-by-driver", r"(?:The NVIDIA (?P<name>[\w ()-]{3,50}?) (?:GPU )?installed in this system is .{0,24}?)?supported through the NVIDIA (?P<driver>[\d.x]{3,14}) Legacy"),
    row("gpu-not-supported-by-driver", r"requires? use of the NVIDIA open kernel modules", driver="closed"),
    row("gpu-not-supported-by-driver", r"nvidia\.ko because it does not include", driver="open"),
    row("gsp-timeout", r"Time(?:d )?out (?:waiting for RPC|after \d+s? of waiting for RPC).{0,40}GSP", "rpc", example="Timeout after 6s of waiting for RPC response from GPU3 GSP"),
    row("gsp-timeout", r"GSP(?: |-)?RM heartbeat timed out|GSP task (?:timeout|exception)|GSP .{0,20}lockdown", example="GSP task timeout"),
    row("hardware-fault", r"uncorrectable NVLink error", what="nvlink"),
    row("secure-boot-rejected", r"(?:insert (?:module )?'?(?P<module>[\w./-]{1,80})'?: )?Key was rejected by service"),
    row("secure-boot-rejected", r"(?:insert '?(?P<module>nvidia[\w-]*)'?: )Required key not available"),
    row("secure-boot-rejected", r"(?:unsigned |nvidia.{0,20})module is rejected"),
    row("secure-boot-rejected", r"PKCS#7 signature not signed with a trusted key"),
    row("secure-boot-rejected", "module with unavailable key is rejected"),
    row("driver-does-not-answer", r"task (?:nvidia[\w-]{0,20}|nvc:\[driver\]|nv_\w{1,20}):\d{1,8} blocked for more than \d{2,6} seconds", how="is blocked in the kernel"),
    row("driver-does-not-answer", r"task:\S{1,40} state:D .{0,900}?\[nvidia(?:_uvm|_modeset)?\]", how="is blocked in the kernel"),
    row("nouveau-in-the-way", r"NVRM: .{0,80}nouveau", example="NVRM: Try unloading the conflicting kernel module (and/or nouveau"),
    row("xid", r"\bXid(?: error)?:? (?P<number>\d{2,3})\b(?! ?\()", example="XID error 31"),
    row("pcie-degraded", r"available PCIe bandwidth, limited by [\d.]+ GT/s(?: PCIe)? x(?P<width>\d{1,2}) link at \S{1,20} \(capable of [\d.]+ Gb/s with [\d.]+ GT/s(?: PCIe)? x(?P<width_max>16) link"),
)  # fmt: skip

ROWS = (
    *KERNEL_LOG,
    row("pcie-errors", rf"\bnvidia {BUS}: (?:AER: )?PCIe Bus Error: severity=(?P<severity>Correct(?:ed|able)|Uncorrect(?:ed|able) \([\w-]{{3,12}}\))", example="nvidia 0000:01:00.0: PCIe Bus Error: severity=Corrected"),
    row("xid", r"\bXid ?= ?(?P<number>\d{1,3})\b", example="Xid = 95"),
    row("module-not-found", r"'?(?P<module>\bnvidia[\w-]*)'? not found in directory"),
    row("module-not-found", r"(?:modinfo: ERROR: Module |ERROR: module not found: \W?)(?P<module>nvidia[\w-]*)"),
    row("module-not-found", r"find module by name '(?P<module>nvidia[\w-]*)'"),
    row("module-not-found", r"NVIDIA kernel module \w+(?: \w+)?\. Falling back to"),
    row("nouveau-in-use", r"Kernel driver in use: nouveau|Nouveau kernel driver is currently in use|\bNVIDIA\b.{0,400}? configuration: (?:\w+=\S+ ){0,4}driver=nouveau\b|Device-\d: NVIDIA.{0,120}? driver: nouveau\b|\bnouveau \d{5,8} \d{1,3}\b", example="Nouveau kernel driver is currently in use"),
    row("no-nvidia-driver", "found no nvidia driver"),
    row("no-nvidia-driver", r"(?:could not load dynamic library '|couldn't open CUDA library |cannot load |unable to load |(?:failed to|could not|cannot|can't|unable to) dlopen (?:library )?)(?P<library>libcuda\.so[.\d]*)"),
    row("no-nvidia-driver", r"(?:could not|cannot|unable to|failed to) (?:load|find|locate).{0,30}(?P<library>nvcuda\.dll)"),
    row("no-nvidia-driver", r"(?P<library>libnvidia-ml\.so(?:\.1)?): cannot open shared object"),
    row("driver-check-failed", r"in _check_driver\b(?!.{0,400}?(?:Error|too old|Found no NVIDIA|not compiled))", example="in _check_driver"),
    row("no-nvidia-driver", r"couldn.?t find libnvidia-ml\.so", library="libnvidia-ml.so"),
    row("no-nvidia-driver", "nvml shared library not found", library="libnvidia-ml"),
    row("no-nvidia-driver", "nvml doesn't exist on this system", library="libnvidia-ml"),
    row("no-nvidia-driver", r"NVML.{0,24}ERROR_LIBRARY_NOT_FOUND", library="libnvidia-ml"),
    # `libcuda.so.1:`.
    row("no-nvidia-driver", r"(?<![\w.])(?P<library>libcuda\.so(?:\.1)?): (?!undefined|version|file too short)(?=\S)", unless=r"dlerror|Could not load library libcudnn"),
    row("libcuda-unlinked", r"Could not load library (?P<asker>libcudnn\w+\.so(?:\.\d+)*)\W{1,2} ?Error: (?P<library>libcuda\.so): cannot open", example="Could not load library libcudnn_graph.so.9. Error: libcuda.so: cannot open"),
    row("smi-not-found", r"\b(?:ba|z|da|k|fi|a)?sh: (?:line )?(?:\d+: )?command not found: nvidia-smi"),
    row("smi-not-found", r"nvidia-smi.{0,3}: (?:command )?not found|Command 'nvidia-smi' not found"),
    row("smi-not-found", r"nvidia-smi\W{1,2} (?:is not recognized|: The term|\u4e0d\u662f\u5185\u90e8|wurde nicht|n'est pas reconnu)"),
    row("smi-not-found", r"no such file or directory: '?\S{0,60}nvidia-smi"),
    row("no-devices-found", "no devices were found"),
    row("image-needs-newer-driver", r"unsatisfied condition: (?:[\w =,]{0,40}?)cuda ?>= ?(?P<cuda>\d+\.\d+)"),
    row("image-needs-newer-driver", r"unsatisfied condition: driver ?>?= ?(?P<needs_driver>\d{3}[.\d]*)"),
    row("image-needs-newer-driver", r"unsupported CUDA version: driver (?P<driver_cuda>[\d.]+) < image (?P<cuda>[\d.]+)"),
    row("image-needs-newer-driver", r"built for NVIDIA Driver Release (?P<needs_driver>[\d.]+) or later, but\s+version (?P<driver>[\d.]+) was detected and compatibility mode is (?:UNAVAILABLE|FAILED)", "was built for nvidia driver release"),
    row("pcie-slow", r"Speed (?P<best>[\d.]+GT/s)[^()]{0,200}?LnkSta:\s{0,4}Speed (?P<speed>[\d.]+GT/s) \(downgraded\), Width x\d{1,2} \(ok\)"),
    row("no-nvswitch", "nv_warn_nothing_to_do"),
    # `Out of bounds values : 0 OK` … `# Avg bus bandwidth`.
    row("gpu-computes", r"Tested \d{1,3} GPUs:(?: GPU \d{1,3}: OK){1,64}(?! GPU \d{1,3}: FAULTY)"),
    row("gpu-computes", r"Out of bounds values : 0 OK.{0,60}?Avg bus bandwidth"),
    row("gpu-computes", r"deviceQuery.{0,300}?Result = PASS"),
    row("ran-first", r"\b(?:step|iter(?:ation)?|epoch)s?\b[ =:#\[]{0,3}\d{1,8}\b.{0,60}?\bloss\b.{0,3}\d|\{'loss': \d|\bEpoch:? ?\d[^\n]{0,20}?[1-9]\d?%\||\bafter (?:about |~ ?)?\d[\d,.]*k? (?:hours?|minutes|days|steps|iterations|epochs?)\b", "loss", "after ", "epoch", example="after 3 hours"),
)  # fmt: skip
