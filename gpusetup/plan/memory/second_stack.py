"""What a stack that writes a text keeps of the sample it looks at (Whisper's decoder)."""

from __future__ import annotations

from gpusetup.plan.memory.activations import norm_bytes, pair_bytes
from gpusetup.plan.memory.states import casts
from gpusetup.plan.model.workload import Recipe, Workload, tokens_per_gpu


def looking_bytes(w: Workload, r: Recipe) -> float:
    """What each of its layers keeps beside what a layer of its own few tokens keeps.

    A second attention: its norm, queries and output for the text, keys and values of the whole
    sample, whose copies autocast narrows for each. Its scores are of every token of the text with
    all of the sample's, those of the first one with the text alone. A layer of transformers'
    Whisper with 448 tokens keeps 0.50 of what an encoder's layer with 1,500 does, 0.58 under
    autocast.
    """
    s = w.shape
    if not s.writers or w.checkpointing:
        return 0.0
    text = norm_bytes(w) * s.hidden + 2 * s.query * w.compute_bytes + w.written * pair_bytes(w)
    sample = 2 * s.key_value * w.compute_bytes * (1 + casts(w))
    return s.writers * (text * w.written + sample) * tokens_per_gpu(w, r)
