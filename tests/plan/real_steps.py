"""Models that `plan --code` traces, and what a real step of one allocates on the CPU.

    python tests/plan/real_steps.py transformer 16 bf16 checkpointing    phase -> most bytes

The step is that of gpusetup/child_scripts/trace_step.py; the profiler records every allocation and
release of torch's CPU allocator.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

INSIDE = Path(__file__).resolve().parents[2] / "gpusetup" / "child_scripts"


class Transformer(nn.Module):
    """A small one on 128 tokens a sample."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(2048, 128)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True) for _ in range(6)
        )
        self.head = nn.Linear(128, 2048)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        out: Tensor = self.head(x)
        return out


def transformer(batch: int) -> Any:
    tokens = torch.randint(0, 2048, (batch, 128))
    return Transformer(), (tokens, tokens)


def mlp(batch: int) -> Any:
    layers = (layer for _ in range(8) for layer in (nn.Linear(512, 512), nn.ReLU()))
    model = nn.Sequential(nn.Linear(256, 512), *layers, nn.Linear(512, 10))
    return model, (torch.randn(batch, 256), torch.randint(0, 10, (batch,)))


def real(function: str, batch: int, amp: str | None, *, checkpointing: bool) -> dict[str, int]:
    """The peak of each phase in the second of two steps."""
    sys.path.insert(0, str(INSIDE))
    import trace_step as steps  # type: ignore[import-not-found, unused-ignore]
    from torch.profiler import ProfilerActivity, profile, record_function

    def begin(phase: str) -> None:
        with record_function(f"phase:{phase}"):
            pass

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        job = steps.job_for(globals()[function], batch)
        job.model.train()
        if checkpointing:
            steps.checkpoint(job.model)
        steps.warm(steps.optimizer_of(job, "adamw", foreach=True))
        for _ in range(2):
            steps.step(job, steps.autocast("cpu", amp), begin)
    return peaks(profiled.profiler.kineto_results.experimental_event_tree())


def peaks(tree: list[Any]) -> dict[str, int]:
    waiting, events = list(tree), list[Any]()
    while waiting:
        event = waiting.pop()
        waiting += event.children
        if event.name == "[memory]" or event.name.startswith("phase:"):
            events.append(event)
    most, ours, total, phase = dict[str, int](), set[int](), 0, "before"
    for event in sorted(events, key=lambda one: one.start_time_ns):
        if event.name.startswith("phase:"):
            phase = event.name[6:]
            most[phase] = total
            continue
        size, place = event.extra_fields.alloc_size, event.extra_fields.ptr
        if size > 0 or place in ours:  # not something that was there before the profile began
            (ours.add if size > 0 else ours.discard)(place)
            total += size
        most[phase] = max(most.get(phase, 0), total)
    return most


if __name__ == "__main__":
    words = sys.argv[1:]
    amp = "bf16" if "bf16" in words else None
    print(json.dumps(real(words[0], int(words[1]), amp, checkpointing="checkpointing" in words)))
