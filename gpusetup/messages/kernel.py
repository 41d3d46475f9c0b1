"""What the kernel's log says about NVIDIA GPUs: one table for the live log and for reports.

Sources: the messages of the open kernel modules, NVIDIA's guides "Xid Errors" and "Fabric Manager
User Guide" (SXid), the kernel's module loader and its watch over tasks that hang.
"""

from __future__ import annotations

from gpusetup.messages.fragments import BUS
from gpusetup.messages.row import row, rows

LINKS = r"14[4-9]|150"
"""Xids of NVLink 5, which say themselves whether they are fatal."""
NONFATAL = rf"(?:{LINKS}), \w{{2,40}} Nonfatal\b"

KERNEL_LOG = (
    row(
        "xid",
        rf"\bXid \((?:PCI:)?{BUS}[^)]{{0,20}}\): (?P<number>(?!154\b)(?!{NONFATAL})\d{{1,4}})",
    ),
    row(
        "xid",
        rf"\bXid \((?:PCI:)?{BUS}[^)]{{0,20}}\): (?P<nonfatal>(?P<number>{LINKS}), \w{{2,40}} Nonfatal)\b",
    ),
    row(
        "xid",
        (
            rf"\bXid \((?:PCI:)?{BUS}[^)]{{0,20}}\): (?P<number>154)\b"
            r"(?:.{0,120}?recovery action changed from .{3,60}? to 0x\w{1,8} \((?P<recovery>[\w /-]{3,40})\))?"
        ),
    ),
    row(
        "sxid",
        rf"\bSXid \((?:PCI:)?{BUS}[^)]{{0,20}}\): (?P<number>\d{{5}}), (?:Always[ -])?Fatal\b",
    ),
    *rows(
        "nvml-mismatch",
        (
            r"API mismatch: \w+ client .{0,60}?version (?P<client>\d[\d.]{3,12}\d)"
            r"(?:.{0,60}?module has(?: \S{1,40}){0,4}? the version (?P<kernel>\d[\d.]{3,12}\d))?"
        ),
        r"nvidia-nvswitch: Version mismatch, kernel version (?P<kernel>[\d.]{3,14}\d) user version (?P<client>[\d.]{3,14}\d)",
    ),
    *rows(
        "gpu-init-failed",
        (
            rf"NVRM: (?:GPU (?:at )?(?:PCI:)?{BUS}:? ?)?:?\s?(?:RmInitAdapter)(?:: | )(?:failed|cannot)!?"
            r"(?: \((?P<code>0x[0-9a-fx:]{1,24})\))?"
        ),
        rf"(?:GPU {BUS}: )?rm_init_adapter.{{0,12}} failed",
        "none of the nvidia devices were",
        r"GSP-\w{3,4} reported an error while attempting to boot GSP",
        r"NVIDIA probe routine failed",
        rf"nvidia\w{{0,8}}:? .{{0,24}}probe of {BUS} failed with error",
        rf"{BUS}: probe with driver nvidia failed with error",
        r"failed to wait for GFW.?boot",
        "failed to copy vbios",
        r"(?<!NVRM: )(?<!\d: )(?<!\d )\bRmInitAdapter failed!",
    ),
    *rows(
        "gpu-init-failed",
        r"I/?O region assigned to your NVIDIA device",
        r"NVRM: BAR1 is 0M",
        lacks="address space",
    ),
    *rows(
        "gpu-fell-off-bus",
        r"\b(?:GPU|card) (?:has |had |is )?(?:fallen|fell|falls|falling) off of the bus",
        rf"(?:(?:GPU (?:at )?|Xid \()(?:PCI:)?{BUS}\)?:?(?:(?!NVRM|Xid|GPU \S*:).){{0,80}})?fallen off the bus",
    ),
    row("hardware-fault", r"\bReset required \[NV_ERR_RESET_REQUIRED\]"),
    *rows(
        "gpu-not-supported-by-driver",
        rf"NVRM: The NVIDIA (?:GPU )?{BUS}.{{0,120}}?not supported by (?:the )?(?:NVIDIA )?(?P<driver>[\d.]{{3,14}}|open)?",
        (
            r"installed in this system is .{0,24}?not supported by.{0,40}?"
            r"(?:NVIDIA (?P<driver>\d{3}[\d.]{1,10}\d) driver|open .{0,24}?nvidia\.ko)"
        ),
        (
            r"(?:The NVIDIA (?P<name>[\w ()-]{3,50}?) (?:GPU )?installed in this system is .{0,24}?)?"
            r"supported through the NVIDIA (?P<driver>[\d.x]{3,14}) Legacy"
        ),
    ),
    row(
        "gpu-not-supported-by-driver",
        r"requires? use of the NVIDIA open kernel modules",
        driver="closed",
    ),
    row("gpu-not-supported-by-driver", r"nvidia\.ko because it does not include", driver="open"),
    row(
        "gsp-timeout",
        r"Time(?:d )?out (?:waiting for RPC|after \d+s? of waiting for RPC).{0,40}GSP",
        "rpc",
    ),
    row(
        "gsp-timeout",
        r"GSP(?: |-)?RM heartbeat timed out|GSP task (?:timeout|exception)|GSP .{0,20}lockdown",
    ),
    row("hardware-fault", r"uncorrectable NVLink error", what="nvlink"),
    row("hardware-fault", r"NVRM: .{0,40}NVLink: .{0,60}fatal", what="nvlink"),
    *rows(
        "secure-boot-rejected",
        r"(?:insert (?:module )?'?(?P<module>[\w./-]{1,80})'?: )?Key was rejected by service",
        r"(?:insert '?(?P<module>nvidia[\w-]*)'?: )Required key not available",
        r"(?:unsigned |nvidia.{0,20})module is rejected",
        "module with unavailable key is rejected",
        r"PKCS#7 signature not signed with a trusted key",
        r"Lockdown: .{0,40}unsigned module loading is restricted",
        r"not signed by a key that is trusted by the (?:Linux )?kernel",
    ),
    *rows(
        "driver-does-not-answer",
        r"task (?:nvidia[\w-]{0,20}|nvc:\[driver\]|nv_\w{1,20}):\d{1,8} blocked for more than \d{2,6} seconds",
        r"task:\S{1,40} state:D .{0,900}?\[nvidia(?:_uvm|_modeset)?\]",
        how="is blocked in the kernel",
    ),
    row(
        "driver-does-not-answer",
        r"blocked for more than \d{2,6} seconds.{0,900}?\[nvidia(?:_uvm|_modeset)?\]",
        how="is blocked in the kernel",
    ),
    row("nouveau-in-the-way", r"NVRM: .{0,80}nouveau"),
    row("xid", r"\bXid(?: error)?:? (?P<number>\d{2,3})\b(?! ?\()"),
    row(
        "pcie-degraded",
        (
            r"available PCIe bandwidth, limited by [\d.]+ GT/s(?: PCIe)? x(?P<width>\d{1,2}) link at \S{1,20} "
            r"\(capable of [\d.]+ Gb/s with [\d.]+ GT/s(?: PCIe)? x(?P<width_max>16) link"
        ),
    ),
)
