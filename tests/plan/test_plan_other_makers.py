"""`plan` for GPUs of AMD, Intel and Apple: memory by name, unified memory as torch can take it."""

from __future__ import annotations

from typing import Any

from each_row import each
from maker_tapes import amd, mac, snapshot

from gpusetup.model.units import GIB
from gpusetup.plan.place import place_of_machine

JOB = ("--model", "qwen3-0.6b", "--context", "1024")


@each(
    "name, least, most, has_env",
    [
        ("RX 7900 XTX 24GB", 23.5, 24.0, True),
        ("RX 9070 XT 16GB", 15.6, 16.0, True),
        ("Instinct MI250X 64GB", 63.0, 64.0, True),
        ("Arc B580 12GB", 11.6, 12.0, False),
        ("Arc A770 16GB", 15.6, 16.0, False),
        ("M3 Max 64GB", 48.0, 48.0, False),
        ("Apple M4 16GB", 10.6, 10.7, False),
        ("Strix Halo 128GB", 62.0, 63.0, True),
    ],
)
def test_a_card_has_the_memory_that_torch_can_take(
    name: str, least: float, most: float, has_env: bool, planned: Any
) -> None:
    answer = planned(*JOB, "--strategy", "fsdp", "--gpu", name)
    assert least <= answer["memory_gib"]["capacity"] <= most
    assert any("GPU was measured" in line for line in answer["advice"])
    # Only the allocators for CUDA and ROCm have expandable segments, and where the GPU has the
    # machine's memory, offload gains nothing.
    tried = [step["recipe"] or "" for step in answer["helps"]]
    assert any("Env" in recipe for recipe in tried) <= has_env
    if name.startswith(("M3", "Apple", "Strix")):
        assert not any("Offload" in recipe for recipe in tried)


@each(
    "name, said",
    [
        ("Arc A770", "add it to the name"),
        ("M3 Max", "add it to the name"),
        ("RX 7900 XTX", "add it to the name"),
        ("RX 5700 XT", "no ROCm build of torch has kernels"),
    ],
)
def test_a_name_that_leaves_the_memory_open_is_asked_back(
    name: str, said: str, planned: Any
) -> None:
    answer = planned(*JOB, "--gpu", name)
    assert said in f"{answer['message']} {answer['hint']}"


def test_this_machines_own_gpu_of_another_maker_is_planned_for() -> None:
    card = place_of_machine(snapshot(amd()))
    assert card.gpu == "AMD Radeon RX 7900 XTX"
    assert 23.0 < card.capacity / GIB < 24.0
    assert round(place_of_machine(snapshot(mac())).capacity / GIB) == 48
