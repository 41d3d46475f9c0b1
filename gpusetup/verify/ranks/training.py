"""Trains on several ranks, with each way to parallelize, and compares with the same steps in one
process.

The single process computes what all ranks compute, one rank after the other.
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Any, Callable, Dict, List, NamedTuple

import torch
from torch import nn

from ..values import asked
from .group import GroupState, Members, ProcessGroup, RankCall, check, hold
from .numbers import signature

TOLERANCE = 1e-9
"""The allowed relative difference in float64. Another order of a sum changes a step by about 1e-15,
a lost gradient by much more than the tolerance."""
ROWS = 8
"""How many examples a rank gets in a step."""
WIDTH = 24
"""The number of inputs of the network."""
OUT = 8
"""The number of outputs of the network."""
STEPS = 3
"""The number of training steps."""


class SharedTraining(NamedTuple):
    """A way to parallelize a training over ranks."""

    share: Callable[..., Any]
    """Wraps a model for these ranks. It is called with the model, the process group, its members
    and the options."""
    options: Dict[str, Any] = {}
    hidden: int = 47
    """The width between the layers. It is prime, so that it cannot be divided evenly among ranks.
    """
    group: str = "world"
    turns: int = 1
    """How many backward passes a step has. The ranks exchange their gradients after the last one.
    """
    dtype: str = "float64"
    limit: float = TOLERANCE
    """The allowed relative difference."""

    @property
    def is_ddp(self) -> bool:
        """Whether the training uses DDP: each rank holds the whole model, and gradients are
        averaged."""
        return self.share is ddp


def net(form: SharedTraining, seed: int) -> Any:
    """A network of two layers; the same seed gives the same weights."""
    torch.manual_seed(seed)
    hidden = form.hidden
    layers = [nn.Linear(WIDTH, hidden), nn.Tanh(), nn.LayerNorm(hidden), nn.Linear(hidden, OUT)]
    return nn.Sequential(*layers).to(getattr(torch, form.dtype))


def ddp(model: Any, group: ProcessGroup, members: Members, **options: Any) -> Any:
    """The model wrapped in DDP: each rank holds all of it, and gradients are averaged."""
    from torch.nn.parallel import DistributedDataParallel

    # On a CPU, DDP accepts no device list.
    device_ids = [group.device] if group.device.startswith("cuda") else None
    return DistributedDataParallel(model, device_ids, process_group=members.handle, **options)


def mesh_of(group: ProcessGroup) -> Any:
    """A one-dimensional device mesh of all ranks."""
    from torch.distributed.device_mesh import init_device_mesh

    kind = group.device.partition(":")[0]
    return init_device_mesh(kind, (group.world,))


def fsdp(model: Any, group: ProcessGroup, members: Members, narrow: bool = False) -> Any:
    """The model sharded with FSDP2: each rank holds a part of every parameter; `narrow` computes in
    bfloat16."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    # Without a policy, FSDP keeps the parameters' format.
    mesh, policy = mesh_of(group), MixedPrecisionPolicy()
    if narrow:
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    return fully_shard(model, mesh=mesh, mp_policy=policy)


SMALL_BUCKETS = {"bucket_cap_mb": 0.001}
"""A bucket limit so small that the gradients are sent in several messages."""
FORMS: Dict[str, Dict[str, SharedTraining]] = {
    "ddp_step": {
        "many buckets": SharedTraining(ddp, {"gradient_as_bucket_view": True, **SMALL_BUCKETS}),
        "accumulated": SharedTraining(ddp, SMALL_BUCKETS, turns=2),
        "in a sub-group": SharedTraining(ddp, SMALL_BUCKETS, group="stripes"),
    },
    "fsdp_step": {
        "steps": SharedTraining(fsdp),
        "in bfloat16": SharedTraining(fsdp, {"narrow": True}, dtype="float32", limit=0.05),
    },
}
"""Check -> the ways to parallelize that it tries, by name."""


def forms_of(name: str, group: ProcessGroup) -> List[RankCall]:
    """The trainings of a check, each as one call."""
    calls = []
    for form_name, form in FORMS[name].items():
        calls.append(RankCall(form_name, partial(trained, group, form, form_name)))
    return calls


ddp_step = check("ddp_step", partial(forms_of, "ddp_step"))
fsdp_step = check("fsdp_step", partial(forms_of, "fsdp_step"))


class Examples(NamedTuple):
    """The inputs and targets of one training step."""

    inputs: Any
    targets: Any


def trained(group: ProcessGroup, form: SharedTraining, name: str) -> str:
    """Train on the ranks and in one process, and return where the two differ; empty if they
    agree."""
    members = GroupState.groups[form.group]
    ranks = members.ranks
    # With DDP each rank starts with different parameters, which DDP must replace with the first
    # rank's parameters.
    seed = group.rank if form.is_ddp else ranks[0]
    model = net(form, seed).to(group.device)
    alone = net(form, ranks[0]).to(group.device)
    shared_model = form.share(model, group, members, **form.options)
    both_models = (shared_model, alone)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.3) for m in both_models]
    # Checksums of the initial parameters, and of the exchanged gradients of each step.
    signatures = [signature_of_all(model.state_dict())]
    for turn in range(STEPS * form.turns):
        exchanges = (turn + 1) % form.turns == 0
        examples = [examples_of(group, form, 1000 * turn + rank) for rank in ranks]
        my_examples = examples[members.me]
        if not form.is_ddp and form.turns > 1:
            shared_model.set_requires_gradient_sync(exchanges)
        waits_with_exchange = form.is_ddp and not exchanges
        with shared_model.no_sync() if waits_with_exchange else contextlib.nullcontext():
            loss_of(shared_model, my_examples).backward()
        # The single process computes the mean over all ranks.
        for examples_of_rank in examples:
            share_of_loss = loss_of(alone, examples_of_rank) / len(ranks)
            share_of_loss.backward()
        if not exchanges:
            continue
        problem = apart(gradients(model), gradients(alone), form.limit)
        if problem:
            return f"the gradient of {problem} in step {turn + 1}"
        signatures.append(signature_of_all(gradients(model)))
        for trained_model, optimizer in zip(both_models, optimizers):
            nn.utils.clip_grad_norm_(trained_model.parameters(), 0.5)
            optimizer.step()
            optimizer.zero_grad()
    # With DDP, all ranks must have the same bits, whatever the order in which their gradients are
    # summed.
    if form.is_ddp:
        hold(members, name, signatures)
    return apart(model.state_dict(), alone.state_dict(), form.limit)


def examples_of(group: ProcessGroup, form: SharedTraining, salt: int) -> Examples:
    """Random inputs and targets for one rank."""
    seed = (asked().seed + salt) % 2**63
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.randn(ROWS, WIDTH + OUT, generator=generator, dtype=torch.float64)
    dtype = getattr(torch, form.dtype)
    numbers = numbers.to(group.device, dtype)
    inputs, targets = numbers.split((WIDTH, OUT), 1)
    return Examples(inputs, targets)


def loss_of(model: Any, examples: Examples) -> Any:
    """The mean squared error of the model's outputs."""
    outputs = model(examples.inputs)
    return nn.functional.mse_loss(outputs, examples.targets)


def whole(value: Any) -> Any:
    """A whole parameter or gradient, assembled from the parts of all ranks."""
    value = value.detach()
    return value.full_tensor() if hasattr(value, "full_tensor") else value


def gradients(model: Any) -> Dict[str, Any]:
    """The gradient of each parameter, by name."""
    parameters = dict(model.named_parameters())
    return {name: parameter.grad for name, parameter in parameters.items()}


def signature_of_all(values: Dict[str, Any]) -> int:
    """A checksum of the bits of several tensors."""
    total = 0
    for value in values.values():
        total += signature(whole(value))
    return total


def apart(values: Dict[str, Any], exact_values: Dict[str, Any], limit: float) -> str:
    """A description of the first tensor that differs by more than the limit; empty if none does."""
    for name, exact in exact_values.items():
        difference = (whole(values[name]) - exact).double()
        greatest_difference = difference.abs().max().item()
        # If all numbers of a tensor are below 1, compare the absolute difference. Otherwise compare
        # the difference relative to the largest number.
        size = max(1.0, float(exact.abs().max().item()))
        error = greatest_difference / size
        # Written this way, the comparison counts NaN as wrong too.
        if not error <= limit:
            return f"{name} is off by {error:.2g} (limit {limit:g})"
    return ""
