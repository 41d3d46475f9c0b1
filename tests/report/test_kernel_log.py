"""One table for the kernel's log: whoever is shown it hears what whoever reads it live hears."""

from __future__ import annotations

import time
from itertools import product

from each_row import each
from judging import changed, judged

from gpusetup.model.machine import Event
from gpusetup.probe.node import parse_kernel_log
from gpusetup.report.read import read_report

Told = list[tuple[str, tuple[tuple[str, str], ...]]]

LINES = (
    "NVRM: Xid (PCI:0000:65:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
    "NVRM: Xid (PCI:0000:65:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 "
    "(OS Reboot)",
    "NVRM: Xid (PCI:0008:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 "
    "(GPU Reset Required)",
    "NVRM: GPU 0000:98:00.0: RmInitAdapter failed! (0x62:0x55:1860)",
    "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 12 LTSSM Fault Up",
    "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV",
    "NVRM: _kgspProcessRpcEvent: GSP task timeout @ pc:0x5f2a, partition 4",
    "NVRM: The NVIDIA GPU 0000:01:00.0 (PCI ID: 10de:1184)\n"
    "NVRM: installed in this system is not supported by the\n"
    "NVRM: NVIDIA 580.95.05 driver release.",
    "NVRM: API mismatch: the client 'nvidia-smi' (pid 4711)\n"
    "NVRM: has the version 580.95.05, but this kernel module has\n"
    "NVRM: the version 570.172.08.  Please make sure that this",
    "INFO: task nvidia-smi:4711 blocked for more than 122 seconds.",
    "NVRM: RmInitAdapter: Cannot initialize GSP firmware RM\n"
    "NVRM: GPU 0000:98:00.0: RmInitAdapter failed! (0x62:0x65:1792)\n"
    "NVRM: GPU 0000:98:00.0: rm_init_adapter failed, device minor number 0\n"
    "NVRM: gpuWaitForGfwBootComplete_TU102: failed to wait for GFW_BOOT: (progress 0x3)",
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
    log = clocked(line, prefix)
    assert heard(parse_kernel_log(log)) == heard(read_report(log).events)


def test_a_fatal_error_of_a_switch_is_a_fault_live_and_in_a_report() -> None:
    line = "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 12 LTSSM Fault Up"
    live = judged(changed(events=parse_kernel_log(line)))
    pasted = judged(read_report(line))
    assert (live.cause, pasted.cause) == ("hardware-fault", "hardware-fault")
    assert "SXid 20034" in pasted.findings[0].title


def test_the_drivers_own_recommendation_is_kept_for_each_gpu() -> None:
    told = [e.values for e in parse_kernel_log("\n".join(LINES)) if e.values.get("recovery")]
    assert [(one["bus_id"], one["recovery"]) for one in told] == [
        ("0000:65:00", "OS Reboot"),
        ("0008:01:00", "GPU Reset Required"),
    ]


def test_one_xid_of_many_gpus_names_them() -> None:
    lines = [f"NVRM: Xid (PCI:0000:{bus:02x}:00): 48, pid=1, DBE" for bus in (5, 6, 0x9D, 5)]
    for events in (parse_kernel_log("\n".join(lines)), read_report("\n".join(lines)).events):
        named = [event.values["bus_id"] for event in events if event.kind == "xid"]
        assert sorted(named) == ["0000:05:00", "0000:06:00", "0000:9d:00"]


def test_a_long_log_takes_no_time_and_its_end_counts() -> None:
    flood = "NVRM: Xid (PCI:0000:05:00): 13, pid=7, name=python3, Graphics Exception\n" * 100_000
    began = time.process_time()
    events = parse_kernel_log(flood + LINES[0])
    assert {event.values.get("number") for event in events if event.kind == "xid"} == {"13", "79"}
    assert time.process_time() - began < 10


def test_twice_as_many_spaces_take_no_more_than_a_few_times_as_long() -> None:
    def seconds(lines: int) -> float:
        began = time.process_time()
        read_report("\n".join(" " * 1500 + "a:" for _ in range(lines)))
        return time.process_time() - began

    seconds(10)
    # In proportion it would be 4; a pattern that is quadratic in the text would take 16.
    assert seconds(1600) < 10 * seconds(400)
