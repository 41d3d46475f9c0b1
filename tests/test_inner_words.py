"""Words of the program's own inside never reach a person, whatever the machine or the text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from each_row import each
from machines_named import FOLDERS, machine_named, snapshot_of
from report_messages import MESSAGES

from gpusetup.catalog.file import load_catalog
from gpusetup.diagnosis.diagnose import diagnose
from gpusetup.model.finding import Finding, typed
from gpusetup.model.frozen import replace
from gpusetup.model.machine import PciDevice, Snapshot
from gpusetup.report.read import read_report

INNER = re.compile(
    r"on the tape|\b0 to 0\b|\b10de:|\bGPU\(s\)|\bNoneType\b|\bNone (?:is|has|of)\b|snapshot\.\w"
    r"|<[\w.]+ object|\bPython None\b|\bx\?|generation \?"
)
LINUX_ONLY = re.compile(r"nvcuda\.dll")


def words(finding: Finding) -> Iterator[str]:
    """What a finding says in our words; a quoted line of somebody's text is theirs."""
    yield from (finding.title, finding.detail or "", finding.fix.text if finding.fix else "")
    yield from typed(finding.fix)
    yield from (e.text for e in finding.evidence if not e.source.startswith("report"))


def check(machine: Snapshot) -> None:
    for finding in diagnose(machine, load_catalog()).findings:
        for text in words(finding):
            assert not INNER.search(text), (finding.id, text)
            assert machine.os.family != "linux" or not LINUX_ONLY.search(text), (finding.id, text)


@each("folder", FOLDERS)
def test_no_machine_shows_an_inner_word(folder: Path) -> None:
    check(snapshot_of(folder))


def test_no_message_shows_an_inner_word() -> None:
    for _, text in MESSAGES:
        check(read_report(text))


def test_a_gpu_that_only_the_bus_shows_goes_by_its_name() -> None:
    device = PciDevice(vendor="nvidia", bus_id="0000:01:00.0", device_id="25a2")
    machine = machine_named("no-driver")
    titles = [
        f.title for f in diagnose(replace(machine, pci_devices=(device,)), load_catalog()).findings
    ]
    assert any("NVIDIA GeForce RTX 3050 Laptop GPU" in title for title in titles)
