"""Trains on several ranks with DDP, and compares with the same steps in one process, which computes
what all ranks compute."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Any, Dict, Tuple

import torch
from torch import nn

from ..judging.precision import UNIT_ROUNDOFF, read_precision
from ..values import asked
from .group import GroupState, ProcessGroup, check
from .numbers import signature

LIMIT = 1e-4
"""The allowed relative difference from float64. Rounding in float32 changes a step by about 1e-6, a
lost gradient by much more than the limit."""
ROWS, WIDTH, HIDDEN, OUT = 8, 24, 47, 8
"""The examples that a rank gets in a pass, and the widths of the network. The one between its
layers is prime, so that it cannot be divided evenly among ranks."""
STEPS = 3
PASSES = 2
"""How many backward passes a step has. The ranks exchange their gradients in the last one."""


def net(seed: int) -> Any:
    """A network of two layers; the same seed gives the same weights."""
    torch.manual_seed(seed)
    layers = [nn.Linear(WIDTH, HIDDEN), nn.Tanh(), nn.LayerNorm(HIDDEN), nn.Linear(HIDDEN, OUT)]
    return nn.Sequential(*layers)


def trained(group: ProcessGroup) -> str:
    """Where training on the ranks and in one process differ; empty if they agree."""
    from torch.nn.parallel import DistributedDataParallel

    # Each rank starts with different parameters, which DDP must replace with the first rank's.
    model = net(group.rank).to(group.device)
    alone = net(0).double()
    # On a CPU, DDP accepts no device list. It averages gradients in buckets of several messages.
    devices = [group.device] if group.device.startswith("cuda") else None
    shared_model = DistributedDataParallel(
        model, devices, bucket_cap_mb=0.001, gradient_as_bucket_view=True
    )
    loss = nn.functional.mse_loss
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.3) for each in (model, alone)]
    bits = [signature_of_all(model.state_dict())]
    # The user may have permitted coarser products.
    roundoff = UNIT_ROUNDOFF[read_precision(torch, group.device).name]
    differs = partial(apart, limit=max(LIMIT, 32 * roundoff))
    for number in range(STEPS * PASSES):
        exchanges = (number + 1) % PASSES == 0
        examples = [examples_of(1000 * number + rank) for rank in range(group.world)]
        with contextlib.nullcontext() if exchanges else shared_model.no_sync():
            inputs, targets = (x.float().to(group.device) for x in examples[group.rank])
            loss(shared_model(inputs), targets).backward()
        # The single process computes the mean over all ranks.
        for inputs, targets in examples:
            (loss(alone(inputs), targets) / group.world).backward()
        if not exchanges:
            continue
        problem = differs(gradients(model), gradients(alone))
        if problem:
            return f"the gradient of {problem} in pass {number + 1}"
        bits.append(signature_of_all(gradients(model)))
        for trained_model, optimizer in zip((model, alone), optimizers):
            nn.utils.clip_grad_norm_(trained_model.parameters(), 0.5)
            optimizer.step()
            optimizer.zero_grad()
    # All ranks must have the same bits, in whatever order their gradients were summed.
    GroupState.held["steps"] = bits
    return differs(model.state_dict(), alone.state_dict())


ddp_step = check("ddp_step", lambda group: {"steps": partial(trained, group)})


def examples_of(salt: int) -> Tuple[Any, Any]:
    """Random inputs and targets for one rank and pass, in float64 on the CPU."""
    generator = torch.Generator().manual_seed((asked().seed + salt) % 2**63)
    numbers = torch.randn(ROWS, WIDTH + OUT, generator=generator, dtype=torch.float64)
    inputs, targets = numbers.split((WIDTH, OUT), 1)
    return inputs, targets


def gradients(model: Any) -> Dict[str, Any]:
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def signature_of_all(values: Dict[str, Any]) -> int:
    """A checksum of the bits of several tensors."""
    return sum(signature(value) for value in values.values())


def apart(values: Dict[str, Any], exact_values: Dict[str, Any], limit: float) -> str:
    """A description of the first tensor that differs by more than the limit; empty if none does."""
    for name, exact in exact_values.items():
        # Numbers below 1 are compared absolutely, others relative to the largest of their tensor.
        difference = values[name].detach().cpu().double() - exact
        error = float(difference.abs().max() / max(1.0, exact.abs().max()))
        # Written this way, the comparison counts NaN as wrong too.
        if not error <= limit:
            return f"{name} is off by {error:.2g} (limit {limit:g})"
    return ""
