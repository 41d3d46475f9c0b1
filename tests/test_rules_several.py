"""Among several GPUs a finding names the ones it is about, and its commands cover them."""

from __future__ import annotations

from typing import Any

import pytest
from each_row import each
from judging import HEALTHY, changed, event, judged

from gpusetup.model.finding import Finding
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Event, Gpu, GpuProcess, Snapshot
from gpusetup.model.versions import Capability

NAME = "NVIDIA A100-SXM4-80GB"


def node(*ill: int, events: tuple[Event, ...] = (), count: int = 4, **changes: Any) -> Snapshot:
    """A node of which the GPUs with these numbers are changed."""
    return changed(
        gpus=tuple(
            replace(a100(place), **(changes if place in ill else {})) for place in range(count)
        ),
        events=events,
    )


def a100(place: int) -> Gpu:
    assert HEALTHY.gpus
    return replace(
        HEALTHY.gpus[0],
        name=NAME,
        compute_capability=Capability(8, 0),
        uuid=f"GPU-{place:04d}",
        nvml_index=place,
        cuda_index=place,
        pci_bus_id=f"00000000:{place + 1:02X}:00.0",
    )


def finding(machine: Snapshot, id: str) -> Finding:
    return next(one for one in judged(machine).findings if one.id == id)


ILL: tuple[tuple[str, dict[str, Any], tuple[str, ...]], ...] = (
    ("ecc-error", {"ecc_uncorrected": 2}, ("sudo nvidia-smi --gpu-reset -i 1,3",)),
    ("ecc-error", {"remap_failed": True}, ("sudo nvidia-smi --gpu-reset -i 1,3",)),
    ("hardware-fault", {"recovery_action": "gpu_reset"}, ("sudo nvidia-smi --gpu-reset -i 1,3",)),
    ("hardware-fault", {"recovery_action": "node_reboot"}, ("sudo reboot",)),
    ("gpu-fell-off-bus", {"lost": True}, ("sudo reboot",)),
    ("power-thermal-throttle", {"temperature_celsius": 95}, ()),
    (
        "compute-mode-prohibited",
        {"compute_mode": "Prohibited"},
        ("sudo nvidia-smi -i 1 -c DEFAULT", "sudo nvidia-smi -i 3 -c DEFAULT"),
    ),
    (
        "compute-mode-exclusive",
        {"compute_mode": "Exclusive_Process"},
        ("sudo nvidia-smi -i 1 -c DEFAULT", "sudo nvidia-smi -i 3 -c DEFAULT"),
    ),
    (
        "mig-misconfigured",
        {"mig_enabled": True, "mig_count": 0},
        ("sudo nvidia-smi mig -i 1 -cgi 0 -C", "sudo nvidia-smi mig -i 3 -cgi 0 -C"),
    ),
    (
        "mig-misconfigured",
        {"mig_enabled": False, "mig_pending": True},
        ("sudo nvidia-smi --gpu-reset -i 1,3",),
    ),
    ("pcie-degraded", {"pcie_width": 4, "pcie_width_max": 16}, ()),
    ("fabric-unhealthy", {"fabric_state": "completed", "fabric_faults": ("no_partition",)}, None),
)  # type: ignore[assignment]


@each("id, changes, commands", ILL)
def test_titles_name_number_and_slot_and_commands_cover_all(
    id: str, changes: dict[str, Any], commands: tuple[str, ...] | None
) -> None:
    said = finding(node(1, 3, **changes), id)
    assert f"{NAME} (GPU 1, 00000000:02:00.0; GPU 3, 00000000:04:00.0)" in said.title
    assert "GPU 0" not in said.title and "GPU 2" not in said.title
    assert commands is None or (said.fix and said.fix.commands == commands)


def xids(number: int, *slots: str, **more: str) -> tuple[Event, ...]:
    joined = {"bus_ids": " ".join(slots)} if len(slots) > 1 else {}
    return event("xid", number=str(number), bus_id=slots[0], **joined, **more)


XIDS: tuple[tuple[str, int], ...] = (
    ("gpu-fell-off-bus", 79), ("gsp-timeout", 119), ("hardware-fault", 74), ("ecc-error", 48),
    ("gpu-hang", 109),
)  # fmt: skip


@pytest.mark.parametrize(("id", "number"), XIDS)
def test_the_gpus_that_the_kernel_names_are_named(id: str, number: int) -> None:
    machine = node(events=xids(number, "0000:02:00", "0000:04:00"))
    assert "(GPU 1, 00000000:02:00.0; GPU 3, 00000000:04:00.0)" in finding(machine, id).title


def test_a_gpu_that_only_the_kernel_knows_has_its_slot() -> None:
    machine = changed(node(events=xids(79, "0000:09:00")), events=xids(79, "0000:09:00"))
    assert "GPU 0000:09:00.0 has fallen" in finding(machine, "gpu-fell-off-bus").title


def test_more_than_eight_gpus_are_counted() -> None:
    said = finding(node(*range(16), count=16, temperature_celsius=95), "power-thermal-throttle")
    assert said.title.count("GPU ") == 8 and "and 8 more" in said.title


def test_what_the_driver_recommends_is_quoted_beside_the_cause_and_done() -> None:
    machine = node(events=(*xids(79, "0000:02:00"), *xids(154, "0000:02:00", recovery="OS Reboot")))
    said = finding(machine, "gpu-fell-off-bus")
    assert any("recommends to reboot the machine" in line.text for line in said.evidence)
    assert judged(machine).cause == "gpu-fell-off-bus"


def test_xid_154_alone_is_a_fault_with_the_drivers_own_way_out() -> None:
    machine = node(events=xids(154, "0000:02:00", recovery="GPU Reset Required"))
    said = finding(machine, "hardware-fault")
    assert said.fix and said.fix.commands == ("sudo nvidia-smi --gpu-reset -i 1",)


def test_whoever_holds_the_memory_is_named() -> None:
    held: dict[str, Any] = {
        "memory_used_bytes": 23 << 30,
        "processes": (GpuProcess(pid=7, name="python3"),),
    }
    said = finding(node(2, **held), "gpu-memory-taken")
    assert "(GPU 2, 00000000:03:00.0)" in said.title
    assert any("python3 (process 7)" in line.text for line in said.evidence)


def test_a_gpu_that_is_cut_and_has_no_instance_is_an_error_beside_whole_ones_too() -> None:
    some = finding(node(1, mig_enabled=True, mig_count=0, visible=False), "mig-misconfigured")
    every = finding(node(0, 1, 2, 3, mig_enabled=True, mig_count=0), "mig-misconfigured")
    assert (some.severity.value, every.severity.value) == ("error", "error")
