"""`plan` for GPUs of AMD, Intel and Apple: the machine's own, with unified memory as torch can take
it; by its memory on the command line."""

from __future__ import annotations

from typing import Any

from each_row import each
from maker_tapes import amd, mac, snapshot

from gpusetup.model.units import GIB
from gpusetup.plan.place import place_of_machine


@each("name", ["Arc A770 16GB", "M3 Max", "RX 7900 XTX 24GB", "RX 5700 XT"])
def test_a_card_of_another_maker_is_given_by_its_memory(name: str, planned: Any) -> None:
    answer = planned("--model", "qwen3-0.6b", "--gpu", name)
    assert "whose memory plan does not know" in answer["message"]
    assert "--gpu-mem" in answer["hint"]


def test_this_machines_own_gpu_of_another_maker_is_planned_for() -> None:
    card = place_of_machine(snapshot(amd()))
    assert "7900 XTX" in card.gpu and "GPU was measured" in card.remark
    assert 23.0 < card.capacity / GIB < 24.0 and card.env
    own = place_of_machine(snapshot(mac()))
    assert round(own.capacity / GIB) == 48 and not own.env and not own.can_offload
