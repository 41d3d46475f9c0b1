"""Each fault of a driver, as a state of the stand-in: its finding, its GPU, and how soon."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import standin
from judging import HEALTHY
from standin.machine import WithDriver

from gpusetup.catalog.file import load_catalog
from gpusetup.diagnosis.diagnose import diagnose
from gpusetup.model.documents import DoctorAnswer
from gpusetup.model.finding import Finding, Severity
from gpusetup.model.frozen import replace
from gpusetup.probe.gpu import read_driver_and_gpus

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the stand-in is for Linux")

GPU: dict[str, object] = {**standin.A100, "processes": ""}
ENOUGH_SECONDS = 60.0
"""For what ends by itself, on a machine that is busy."""


class Fault(NamedTuple):
    """A machine of two GPUs, what is wrong with it, and what must be said."""

    name: str
    finding: str
    gpu: int | None = None
    """The GPU that the finding must name, by its number and its address."""
    state: Mapping[str, object] = {}
    first: Mapping[str, object] = {}
    second: Mapping[str, object] = {}
    hangs: bool = False
    severity: Severity = Severity.ERROR
    root: bool = True
    each: tuple[Mapping[str, object], ...] = ()
    """What is wrong with each GPU, on a machine of another number of them."""
    no_node: tuple[int, ...] = ()
    """The GPUs without a device node."""


SILENT, LOST = "driver-does-not-answer", "gpu-fell-off-bus"
HANG, CRASH = "@hang", "@crash"


def second(field: str, value: object, finding: str, **more: object) -> Fault:
    """Something is wrong with one value of GPU 1."""
    deed = str(value).partition(" ")[0]
    name = f"GPU 1: {field} {deed}"
    more.setdefault("hangs", value == HANG)
    return Fault(name, finding, 1, second={field: value}, **more)  # type: ignore[arg-type]


FAULTS = (
    # --- NVML as a whole
    Fault("NVML hangs at its start", SILENT, state={"nvml.init": HANG}, hangs=True),
    Fault("NVML crashes at its start", SILENT, state={"nvml.init": CRASH}),
    Fault("no permission", "device-permission", state={"nvml.init": 4}),
    Fault("two versions", "nvml-mismatch", state={"nvml.init": 18}),
    Fault("NVML cannot count", SILENT, state={"devices": "!999", "cuda.devices": 2}),
    # --- one GPU in NVML
    second("handle", 999, SILENT),
    second("handle", 15, LOST),
    second("uuid", CRASH, SILENT),
    second("memory", HANG, SILENT),
    second("temperature", 4294967295, SILENT, severity=Severity.WARNING, root=False),
    Fault("no GPU tells its power", SILENT, 0, first={"power_mw": "!999"},
          second={"power_mw": "!999"}, severity=Severity.WARNING, root=False),
    # --- libcuda
    Fault("cuInit hangs", SILENT, state={"cuda.init": HANG}, hangs=True),
    Fault("CUDA cannot count", SILENT, state={"cuda.devices": "!999"}),
    second("cuda.name", "!999", SILENT),
    Fault("CUDA misses a GPU", SILENT, 1, state={"cuda.devices": 1}),
    *(Fault(f"cuInit answers {code}", finding, state={"cuda.init": code}) for code, finding in (
        (2, "cuda-init-out-of-memory"), (34, "libcuda-stub"), (46, "compute-mode-exclusive"),
        (100, "cuda-sees-no-device"), (101, "invalid-device-ordinal"), (304, "os-call-failed"),
        (802, "system-not-ready-fabric-manager"), (803, "libcuda-driver-mismatch"),
        (804, "forward-compat-unsupported"), (805, "mps-server"), (999, "cuda-unknown-error"),
        (3, "cuda-init-failed"),
    )),
    Fault("libcuda is missing", "libcuda-missing", state={"libraries": "libnvidia-ml.so.1"}),
    # --- one library's word beside another's
    Fault("NVML finds no driver, CUDA does", SILENT, state={"nvml.init": 9}),
    Fault("no library lists a GPU of the bus", "gpu-init-failed", 1,
          state={"devices": 1, "cuda.devices": 1}),
    # --- what the hardware says of itself
    second("recovery_action", 4, "hardware-fault"),
    Fault("NVML and the driver are of two releases", "nvml-mismatch",
          state={"nvml.version": "13.590.44.01"}, severity=Severity.WARNING, root=False),
    second("fabric", 1, "system-not-ready-fabric-manager"),
)  # fmt: skip


def folder(kind: str, place: Path) -> Path:
    """Where the libraries are: both, or only the one that is named."""
    whole = standin.libraries()
    if not kind:
        return whole
    place.mkdir()
    (place / kind).symlink_to(whole / kind)
    return place


def gpus_of(fault: Fault) -> tuple[dict[str, object], ...]:
    both = fault.first, fault.second
    return tuple({**GPU, **each} for each in fault.each or both)


def environment(fault: Fault, place: Path) -> dict[str, str]:
    """What the children of a machine with this fault find."""
    state = dict(fault.state)
    libraries = folder(str(state.pop("libraries", "")), place / "lib")
    gpus = gpus_of(fault)
    file = place / "state"
    file.write_text(standin.state(gpus, **state))
    hidden = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")
    kept = {name: value for name, value in os.environ.items() if name not in hidden}
    return {
        **kept,
        "GPUSETUP_STANDIN": str(file),
        "LD_LIBRARY_PATH": str(libraries),
        "PATH": str(place),
    }


@cache
def quick_seconds() -> float:
    """One second, or more where a child that answers at once takes a good part of it to start."""
    began = time.monotonic()
    WithDriver().ask("read_nvml", timeout=ENOUGH_SECONDS)
    return max(1.0, 5 * (time.monotonic() - began))


def judged(
    fault: Fault, place: Path, limit: float | None = None, **more: Any
) -> tuple[DoctorAnswer, float]:
    limit = limit or (quick_seconds() if fault.hangs else ENOUGH_SECONDS)
    system = WithDriver(len(gpus_of(fault)), environment(fault, place))
    lacks = {f"nvidia{number}" for number in fault.no_node}
    system.folders["/dev"] = tuple(name for name in system.folders["/dev"] if name not in lacks)
    began = time.monotonic()
    side = read_driver_and_gpus(system, limit=limit)
    taken = time.monotonic() - began
    machine = replace(
        HEALTHY,
        origin="live",
        driver=side.driver,
        cuda_api=side.cuda_api,
        gpus=side.gpus,
        pci_devices=side.pci_devices,
        devices=side.devices,
        events=side.events,
        readings=side.readings,
        **more,
    )
    return diagnose(machine, load_catalog()), taken


def told_of(fault: Fault, diagnosis: DoctorAnswer) -> dict[str, Finding]:
    """All findings by their ids, after a look at the one that the fault must have."""
    found = {finding.id: finding for finding in diagnosis.findings}
    told = [f"{f.id}: {f.title}" for f in diagnosis.findings]
    assert fault.finding in found, told
    finding = found[fault.finding]
    assert finding.severity is fault.severity and finding.evidence and finding.fix, told
    assert diagnosis.cause == fault.finding or not fault.root, told
    if fault.gpu is not None:
        said = " ".join((finding.title, *(line.text for line in finding.evidence)))
        assert f"GPU {fault.gpu}" in said
        assert standin.machine.bus(fault.gpu)[-7:] in said.lower()
    return found


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
@pytest.mark.one_in(12)
def test_a_fault_is_named_with_its_gpu_and_in_time(fault: Fault, tmp_path: Path) -> None:
    diagnosis, taken = judged(fault, tmp_path)
    told_of(fault, diagnosis)
    if fault.hangs:
        assert taken < quick_seconds() + 2.0


def test_a_machine_without_a_fault_has_none(tmp_path: Path) -> None:
    diagnosis, _ = judged(Fault("none", ""), tmp_path)
    assert diagnosis.cause == "ok", diagnosis.findings
    assert diagnosis.proof == "torch 2.14.1+cu130 can use NVIDIA A100-SXM4-40GB"


# --- whole processes ------------------------------------------------------------------------------


def started(fault: Fault, place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """gpusetup as a person starts it; the libraries are all that it finds."""
    argv = (sys.executable, "-m", "gpusetup", *words)
    return subprocess.run(argv, capture_output=True, text=True, env=environment(fault, place))


def test_a_wait_is_announced(tmp_path: Path) -> None:
    fault = Fault("all", SILENT, state={"nvml.init": HANG})
    began = time.monotonic()
    said = started(fault, tmp_path, "doctor", "--python", sys.executable, "--timeout", "4")
    assert (said.returncode, said.stderr) == (1, "waiting for NVML: up to 4 s\n")
    assert time.monotonic() - began < 10


@pytest.mark.parametrize(
    "fault",
    [
        second("memory", HANG, SILENT),
        second("memory", CRASH, SILENT),
        second("temperature", "@bus", SILENT),
    ],
    ids=lambda value: value.name,
)
def test_the_monitor_ends_and_sends_to_doctor(fault: Fault, tmp_path: Path) -> None:
    limit = ("--timeout", f"{quick_seconds():.1f}") if fault.hangs else ()
    done = started(fault, tmp_path, "monitor", "--once", *limit)
    said = done.stdout + done.stderr
    assert done.returncode == 0, "the machine is watched all the same"
    assert "no NVIDIA GPU can be watched" in said and "`gpusetup doctor` names the cause" in said
