"""One table for the kernel's log: whoever is shown it hears what whoever reads it live hears."""

from __future__ import annotations

import time

import pytest

from gpusetup.messages.kernel import KERNEL_LOG
from gpusetup.model import Event
from gpusetup.probe.dmesg import parse_kernel_log
from gpusetup.report.read import read_report

Told = list[tuple[str, tuple[tuple[str, str], ...]]]

LINES = (
    "NVRM: Xid (PCI:0000:65:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
    "NVRM: Xid (PCI:0000:65:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 "
    "(OS Reboot)",
    "NVRM: Xid (PCI:0008:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 "
    "(GPU Reset Required)",
    "NVRM: GPU 0000:65:00.0: GPU has fallen off the bus.",
    "NVRM: GPU 0000:98:00.0: RmInitAdapter failed! (0x62:0x55:1860)",
    "NVRM: GPU at PCI:0000:98:00: rm_init_adapter failed",
    "NVRM: BAR1 is 0M @ 0x0 (PCI:0000:01:00.0)",
    "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 12 LTSSM Fault Up",
    "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV",
    "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Severity 0 Engine instance 32",
    "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Data {0x00140004, 0x00100000, 0x00140004}",
    "NVRM: _kgspProcessRpcEvent: GSP task timeout @ pc:0x5f2a, partition 4",
    "NVRM: GPU0 Assertion failed: Reset required [NV_ERR_RESET_REQUIRED] (0x00000074)",
    "NVRM: The NVIDIA GPU 0000:01:00.0 (PCI ID: 10de:1184)\n"
    "NVRM: installed in this system is not supported by the\n"
    "NVRM: NVIDIA 580.95.05 driver release.",
    "NVRM: API mismatch: the client 'nvidia-smi' (pid 4711)\n"
    "NVRM: has the version 580.95.05, but this kernel module has\n"
    "NVRM: the version 570.172.08.  Please make sure that this",
    "NVRM: Try unloading the conflicting kernel module (and/or nouveau) and retry",
    "nvidia: module verification failed: signature and/or required key missing - tainting kernel",
    "Lockdown: modprobe: unsigned module loading is restricted; see man kernel_lockdown.7",
    "INFO: task nvidia-smi:4711 blocked for more than 122 seconds.",
    "usb 1-1: new high-speed USB device number 7 using xhci_hcd",
)


def heard(events: tuple[Event, ...]) -> Told:
    kinds = {one.kind for one in KERNEL_LOG}
    return sorted(
        (event.kind, tuple(sorted(event.values.items()))) for event in events if event.kind in kinds
    )


def clocked(text: str, prefix: str) -> str:
    return "\n".join(prefix.format(n=n) + line for n, line in enumerate(text.splitlines()))


PREFIXES = (
    "",
    "[{n:5d}.123456] ",
    "kern  :err   : [Fri Nov 20 06:03:41 2026] ",
    "Nov 20 06:03:41 node-1 kernel: ",
)


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("line", LINES, ids=lambda line: line[:30])
def test_a_message_is_the_same_event_live_and_in_a_report(line: str, prefix: str) -> None:
    log = clocked(line, prefix)
    assert heard(parse_kernel_log(log)) == heard(read_report(log).events)


@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_whole_log_is_the_same_live_and_in_a_report(prefix: str) -> None:
    log = clocked("\n".join(LINES), prefix)
    live = heard(parse_kernel_log(log))
    assert live == heard(read_report(log).events)
    assert {kind for kind, _ in live} >= {"xid", "sxid", "gsp-timeout", "driver-does-not-answer"}


def test_a_switchs_error_that_is_not_fatal_is_no_fault() -> None:
    switches = [e.values for e in parse_kernel_log("\n".join(LINES)) if e.kind == "sxid"]
    assert [values["number"] for values in switches] == ["20034"]


def test_the_drivers_own_recommendation_is_kept_for_each_gpu() -> None:
    told = [e.values for e in parse_kernel_log("\n".join(LINES)) if e.values.get("recovery")]
    assert [(one["bus_id"], one["recovery"]) for one in told] == [
        ("0000:65:00", "OS Reboot"),
        ("0008:01:00", "GPU Reset Required"),
    ]


def test_one_xid_of_many_gpus_is_one_event_that_names_them() -> None:
    lines = [f"NVRM: Xid (PCI:0000:{bus:02x}:00): 48, pid=1, DBE" for bus in (5, 6, 0x9D, 5)]
    for events in (parse_kernel_log("\n".join(lines)), read_report("\n".join(lines)).events):
        values = [event.values for event in events if event.kind == "xid"]
        assert [one["number"] for one in values] == ["48"]
        assert set(values[0]["bus_ids"].split()) == {"0000:05:00", "0000:06:00", "0000:9d:00"}


def test_a_long_log_takes_no_time_and_its_end_counts() -> None:
    flood = "NVRM: Xid (PCI:0000:05:00): 13, pid=7, name=python3, Graphics Exception\n" * 100_000
    began = time.monotonic()
    events = parse_kernel_log(flood + LINES[0])
    assert {event.values.get("number") for event in events if event.kind == "xid"} == {"13", "79"}
    assert time.monotonic() - began < 10
