"""A step that needs more memory than its process may use is taken in parts (`test_recover.py`)."""

from __future__ import annotations

import resource
from pathlib import Path

import torch

from gpusetup.tune import recover_from_oom

ROOM = 600 << 20
"""Bytes that the process may use beyond what it has."""

torch.set_num_threads(1)
model = torch.nn.Linear(1024, 1)
x = torch.randn(64, 1024)
model(x).mean().backward()
model.zero_grad()
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, used + ROOM))


def step(part: torch.Tensor) -> torch.Tensor:
    wide = part.repeat_interleave(4096, dim=0)
    loss: torch.Tensor = model(wide).mean()
    return loss


said: list[str] = []
done = recover_from_oom(step, x, model=model, say=said.append)
print(1 <= done.micro_batch_size < done.batch_size, model.weight.grad is not None)
