"""What ZeRO 3 keeps gathered, held against what torch's autograd keeps of a weight."""

from __future__ import annotations

import pytest
from plan_job import LLAMA, VANILLA, C, a_job

from gpusetup.model.frozen import replace
from gpusetup.plan.memory.parts import parts
from gpusetup.plan.memory.states import LIVE, live_bytes

INIT = a_job(gpus=8, batch=8, strategy="zero3", amp="bf16")
PLAIN = {"without zero.Init": {"load_whole": True}, "mem_efficient_linear": {"reshard": False}}


@pytest.mark.parametrize("how", PLAIN.values(), ids=PLAIN)
def test_linear_layers_of_torch_keep_what_was_gathered(how: dict[str, bool]) -> None:
    assert live_bytes(INIT) == 2 * LIVE
    plain = replace(INIT, **how)
    assert live_bytes(plain) == 2 * (LLAMA.parameters - LLAMA.vocabulary * LLAMA.hidden)
    more = parts(plain, VANILLA, C).allocated - parts(INIT, VANILLA, C).allocated
    assert 0 < more <= live_bytes(plain) - live_bytes(INIT)
    assert live_bytes(replace(plain, checkpointing=True)) == 2 * LIVE
    assert live_bytes(replace(plain, gpus=1)) == 0


@pytest.mark.slow
def test_autograd_keeps_the_storage_of_a_weight_that_a_linear_layer_used() -> None:
    torch = pytest.importorskip("torch")
    layer = torch.nn.Linear(256, 512)
    given = layer(torch.randn(2, 8, 256, requires_grad=True))
    layer.weight.data = torch.empty(0)  # as DeepSpeed's `free_param` does
    node = given.grad_fn
    while not hasattr(node, "_saved_mat2"):
        node = node.next_functions[0][0]
    assert node._saved_mat2.untyped_storage().nbytes() == 512 * 256 * 4
