"""One table for the kernel's log: whoever is shown it hears what whoever reads it live hears."""

from __future__ import annotations

import time
from itertools import product

from each_row import each

from gpusetup.model.machine import Event
from gpusetup.probe.node import parse_kernel_log
from gpusetup.report.read import read_report

Told = list[tuple[str, tuple[tuple[str, str], ...]]]

LINES = (
    "NVRM: Xid (PCI:0000:65:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
    "NVRM: Xid (PCI:0000:65:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 "
    "(OS Reboot)",
    "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 12 LTSSM Fault Up",
    "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV",
    "NVRM: The NVIDIA GPU 0000:01:00.0 (PCI ID: 10de:1184)\n"
    "NVRM: installed in this system is not supported by the\n"
    "NVRM: NVIDIA 580.95.05 driver release.",
    "INFO: task nvidia-smi:4711 blocked for more than 122 seconds.",
    "pci 0000:01:00.0: 31.504 Gb/s available PCIe bandwidth, limited by 8.0 GT/s PCIe x4 link at "
    "0000:00:1c.0 (capable of 252.048 Gb/s with 16.0 GT/s PCIe x16 link)",
)
"""A process that the kernel ends for want of memory, or that SELinux stops, is no matter of the
driver: the live log, which holds those of all programs, is not asked for them."""


ABOUT_A_TEXT = ("names-failure", "names-no-failure", "asks-about")
"""Whether a text complains at all: a log that was read on this machine is no such text."""


def heard(events: tuple[Event, ...]) -> Told:
    messages = [event for event in events if event.kind not in ABOUT_A_TEXT]
    return sorted((event.kind, tuple(sorted(event.values.items()))) for event in messages)


def clocked(text: str, prefix: str) -> str:
    return "\n".join(prefix.format(n=n) + line for n, line in enumerate(text.splitlines()))


PREFIXES = (
    "",
    "[{n:5d}.123456] ",
    "kern  :err   : [Fri Nov 20 06:03:41 2026] ",
    "Nov 20 06:03:41 node-1 kernel: ",
)


@each("line, prefix", product(LINES, PREFIXES))
def test_a_message_is_the_same_event_live_and_in_a_report(line: str, prefix: str) -> None:
    assert heard(parse_kernel_log(line)) == heard(read_report(clocked(line, prefix)).events)


def test_a_long_log_takes_no_time_and_its_end_counts() -> None:
    flood = "NVRM: Xid (PCI:0000:05:00): 13, pid=7, name=python3, Graphics Exception\n" * 100_000
    began = time.process_time()
    events = parse_kernel_log(flood + LINES[0])
    assert {event.values.get("number") for event in events if event.kind == "xid"} == {"13", "79"}
    assert time.process_time() - began < 10
