"""What a compiled layer keeps under selective checkpointing, held against torch's partitioner."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from plan_job import LLAMA, VANILLA, a_job

from gpusetup.model.frozen import replace
from gpusetup.plan.answer.question import Question
from gpusetup.plan.answer.workload import workload_of
from gpusetup.plan.memory.activations import selected_bytes

WIDTH, HEADS, KEY_VALUE, INNER, TOKENS = 64, 4, 32, 224, 128


def test_a_compiled_layer_keeps_no_output_of_its_last_product() -> None:
    eager = a_job(checkpointing=True, selective="op")
    less = selected_bytes(eager, VANILLA) - selected_bytes(replace(eager, compile=True), VANILLA)
    assert less == LLAMA.layers * LLAMA.hidden * 4 * eager.context


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_torch_keeps_what_is_said_of_a_compiled_layer() -> None:
    torch = pytest.importorskip("torch", minversion="2.4")
    found = _kept_a_token(torch)
    inside = 2 * WIDTH + KEY_VALUE + INNER  # q, what attention gives, v, w1
    statistics = 4 * HEADS  # of attention, 32-bit
    assert found == 2 * (WIDTH + inside) + statistics


def _kept_a_token(torch: Any) -> float:
    """Bytes that a Llama layer keeps a token, compiled, with torchtitan's policy per op."""
    from torch.nn.functional import scaled_dot_product_attention, silu
    from torch.utils.checkpoint import (
        CheckpointPolicy,
        checkpoint,
        create_selective_checkpoint_contexts,
    )

    aten = torch.ops.aten
    saved = (aten.mm.default, aten._scaled_dot_product_flash_attention_for_cpu.default)
    sizes = [(WIDTH, WIDTH), (WIDTH, KEY_VALUE), (WIDTH, KEY_VALUE), (WIDTH, WIDTH)]
    sizes += [(WIDTH, INNER), (WIDTH, INNER), (INNER, WIDTH)]
    weights = [torch.randn(a, b, dtype=torch.bfloat16, requires_grad=True) for a, b in sizes]

    def heads(x: Any) -> Any:
        return x.view(1, TOKENS, -1, WIDTH // HEADS).transpose(1, 2)

    def layer(x: Any) -> Any:
        wq, wk, wv, wo, w1, w3, w2 = weights
        y = torch.rms_norm(x, (WIDTH,))
        q, k, v = (heads(y @ w) for w in (wq, wk, wv))
        k, v = (one.repeat_interleave(WIDTH // KEY_VALUE, 1) for one in (k, v))
        given = scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
        x = x + given.reshape(1, TOKENS, WIDTH) @ wo
        y = torch.rms_norm(x, (WIDTH,))
        return x + (silu(y @ w1) * (y @ w3)) @ w2

    def contexts() -> Any:
        counts: dict[bool, int] = defaultdict(int)

        def policy(context: Any, op: Any, *_: Any, **__: Any) -> Any:
            product = op == saved[0]
            counts[context.is_recompute] += product
            kept = op in saved and not (product and counts[context.is_recompute] % 2 == 0)
            return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE

        return create_selective_checkpoint_contexts(policy)

    def step(x: Any) -> Any:
        return checkpoint(layer, x, use_reentrant=False, context_fn=contexts)

    kept: dict[int, int] = {}

    def pack(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    x = torch.randn(1, TOKENS, WIDTH, dtype=torch.bfloat16, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        torch.compile(step, backend="aot_eager_decomp_partition", fullgraph=True)(x)
    own = {weight.untyped_storage().data_ptr() for weight in weights}
    return sum(size for place, size in kept.items() if place not in own) / TOKENS


def test_a_loss_that_was_compiled_alone_keeps_the_logits_as_they_are() -> None:
    asked = Question(
        model="llama-3.1-8b", trainer="torchtitan", compile=True, context=8192, batch=8
    )
    said = {day: workload_of(replace(asked, as_of=day), LLAMA, 8).loss
            for day in ("2024-12", "2025-07", None)}  # fmt: skip
    assert said == {"2024-12": "hf", "2025-07": "in-place", None: "chunked-head"}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_torch_keeps_logits_of_16_bits_of_a_compiled_loss() -> None:
    torch = pytest.importorskip("torch", minversion="2.4")

    def loss(logits: Any, labels: Any) -> Any:
        return torch.nn.functional.cross_entropy(logits.float(), labels)

    kept: dict[int, int] = {}

    def pack(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    logits = torch.randn(TOKENS, 512, dtype=torch.bfloat16, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        compiled = torch.compile(loss, backend="aot_eager_decomp_partition")
        compiled(logits, torch.randint(0, 512, (TOKENS,))).backward()
    assert max(kept.values()) == logits.untyped_storage().nbytes()
    assert sum(kept.values()) < 1.1 * logits.untyped_storage().nbytes()
    assert logits.grad.dtype == torch.bfloat16
