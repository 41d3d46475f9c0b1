"""`plan` for GPUs of AMD, Intel and Apple: memory by name, unified memory as torch can take it."""

from __future__ import annotations

import pytest
from maker_tapes import amd, mac, snapshot

from gpusetup.catalog.file import load_catalog
from gpusetup.errors import Unsatisfiable, UsageError
from gpusetup.model.units import GIB
from gpusetup.plan.place import Place, place_of_machine, place_of_name


def place(name: str) -> Place:
    return place_of_name(name, load_catalog().gpus)


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("RX 7900 XTX", 23.5, 24.0),
        ("Radeon RX 7900 XT", 19.5, 20.0),
        ("RX 9070 XT", 15.6, 16.0),
        ("MI300X", 190.0, 192.0),
        ("Instinct MI250X", 63.0, 64.0),
        ("Arc B580", 11.6, 12.0),
        ("Arc A770 16GB", 15.6, 16.0),
        ("M3 Max 64GB", 48.0, 48.0),
        ("Apple M4 16GB", 10.6, 10.7),
        ("Strix Halo 128GB", 62.0, 63.0),
    ],
)
def test_a_card_has_the_memory_that_torch_can_take(name: str, least: float, most: float) -> None:
    hardware = place(name)
    assert least <= hardware.capacity / GIB <= most
    assert "GPU was measured" in hardware.remark


@pytest.mark.parametrize("name", ["Arc A770", "M3 Max", "Strix Halo", "MI50", "Radeon X9999 XT"])
def test_a_name_that_leaves_the_memory_open_is_asked_back(name: str) -> None:
    with pytest.raises(UsageError) as problem:
        place(name)
    assert "--gpu" in (problem.value.hint or "")


def test_unified_memory_gains_nothing_by_offloading() -> None:
    assert place("M3 Max 64GB").unified
    assert not place("M3 Max 64GB").can_offload
    assert not place("RX 7900 XTX").unified


def test_expandable_segments_are_advised_for_cuda_and_rocm_only() -> None:
    assert place("RX 7900 XTX").env
    assert not place("Arc B580").env
    assert not place("M3 Max 64GB").env


def test_this_machines_own_gpu_of_another_maker_is_planned_for() -> None:
    card = place_of_machine(snapshot(amd()))
    assert card.gpu == "AMD Radeon RX 7900 XTX"
    assert 23.0 < card.capacity / GIB < 24.0
    assert round(place_of_machine(snapshot(mac())).capacity / GIB) == 48


def test_a_card_on_which_torch_does_not_run_is_not_planned_for() -> None:
    with pytest.raises(Unsatisfiable, match="no ROCm build of torch has kernels"):
        place("RX 5700 XT")
