"""One training step as a trainer does it: the same on fake tensors and on real ones.

What a user's function may return, how its model is called, where checkpoints are put, and the
phases of the step. `trace_code.py` runs it on fake tensors; the comparison with real
memory (tests/plan/real_steps.py) runs it on real ones. Python 3.8 syntax.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import os
import random
import sys
from collections.abc import Mapping
from typing import Any, Callable, Dict, Iterator, List, Optional, Set, Tuple

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint as recompute
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, Sampler

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
OPTIMIZERS = {"adamw": "AdamW", "adam": "Adam", "sgd": "SGD", "adafactor": "Adafactor"}


class Contract(Exception):
    """The user's function is not what `--code` takes."""


class Question(Exception):
    """There is no such function."""


class NoLoss(Contract):
    """The model gives something that is no loss, and no function for one came with it."""


class Job:
    """A model, a batch for it, and how to train it; perhaps the data set that batches come from."""

    def __init__(
        self,
        model: Any,
        batch: Any = None,
        loss: Any = None,
        optimizer: Any = None,
        dataset: Any = None,
    ) -> None:
        if isinstance(batch, (Dataset, DataLoader)):
            batch, dataset = None, batch
        self.model, self.batch, self.loss, self.optimizer = model, batch, loss, optimizer
        self.dataset = dataset


PARTS = ("model", "batch", "loss", "optimizer", "dataset")
"""What a job is made of: the keys of a dict that a function returns, or the order of a tuple."""


# --- what the user's function gives ------------------------------------------------------------


def function_named(code: str) -> Callable[..., Any]:
    """The function of `MODULE:FUNCTION`; MODULE may be the path of a file."""
    place, _, name = code.rpartition(":")
    folder, module = os.getcwd(), place
    if place.endswith(".py"):
        folder, module = os.path.split(os.path.abspath(place[: -len(".py")]))
    sys.path.insert(0, folder)
    try:
        function = getattr(importlib.import_module(module), name, None)
    except ModuleNotFoundError as problem:
        if (module + ".").startswith("%s." % problem.name):
            raise Question("there is no `%s`" % place) from problem
        raise
    if not callable(function):
        raise Question("`%s` has no function `%s`" % (place, name))
    return function  # type: ignore[no-any-return]


def job_for(function: Callable[..., Any], batch: int) -> Job:
    """What the user's function returns for a batch size.

    A function with a parameter gets the batch size. One without returns an example batch, whose
    samples are repeated until the batch is as long.
    """
    takes = takes_batch(function)
    job = job_of(function(batch) if takes else function())
    if job.batch is None:
        job.batch = next(batches_of(job.dataset, batch))
    elif not takes:
        job.batch = resized(job.batch, batch)
    if not tensors(job.batch):
        raise Contract("the batch is %s, without any tensor" % kind(job.batch))
    return job


def takes_batch(function: Callable[..., Any]) -> bool:
    """Whether it can be called with one positional argument.

    >>> takes_batch(lambda batch=8: None), takes_batch(lambda: None)
    (True, False)
    """
    try:
        inspect.signature(function).bind(1)
    except (TypeError, ValueError):
        return False
    return True


def job_of(returned: Any) -> Job:
    """The job in what the function returned; `Contract` if it is something else."""
    job = Job(**named_parts(returned))
    if not isinstance(job.model, nn.Module):
        raise Contract("the model is %s, no torch.nn.Module" % kind(job.model))
    if job.batch is None and job.dataset is None:
        raise Contract("it returned neither a batch nor a data set")
    if job.loss is not None and not callable(job.loss):
        raise Contract("the loss is %s, nothing to call" % kind(job.loss))
    if job.dataset is not None and not isinstance(job.dataset, (Dataset, DataLoader)):
        raise Contract("the data set is %s, no Dataset or DataLoader of torch" % kind(job.dataset))
    return job


def named_parts(returned: Any) -> Dict[str, Any]:
    """The parts of a job by their names, from a dict or a tuple."""
    if isinstance(returned, Mapping):
        unknown = [repr(key) for key in returned if key not in PARTS]
        if unknown:
            takes = "gpusetup takes %s" % ", ".join(PARTS)
            raise Contract("it returned a dict with %s; %s" % (", ".join(unknown[:5]), takes))
        if "model" not in returned:
            raise Contract("it returned a dict without a model")
        return dict(returned)
    if not isinstance(returned, (tuple, list)):
        raise Contract("it returned %s, and no model with a batch" % kind(returned))
    if not 2 <= len(returned) <= len(PARTS):
        raise Contract("it returned %d values, and no model with a batch" % len(returned))
    return {name: value for name, value in zip(PARTS, returned)}  # noqa: B905, C416 - Python 3.8


def kind(value: Any) -> str:
    return "a value of type %s" % type(value).__name__


def tensors(value: Any) -> List[torch.Tensor]:
    """Every tensor in a nest of dicts, lists and tuples."""
    leaves: List[Any] = []
    map_leaves(value, leaves.append)
    return [one for one in leaves if isinstance(one, torch.Tensor)]


def resized(value: Any, batch: int) -> Any:
    """The same nest; every tensor that counts the samples is `batch` long, by its own samples."""
    first = next((tensor for tensor in tensors(value) if tensor.dim()), None)
    if first is None:
        raise Contract("no tensor of the batch has a first dimension to size")
    index = torch.arange(batch) % len(first)

    def long(one: Any) -> Any:
        counts = isinstance(one, torch.Tensor) and one.dim() and len(one) == len(first)
        return one[index.to(one.device)] if counts else one

    return map_leaves(value, long)


def map_leaves(value: Any, change: Callable[[Any], Any]) -> Any:
    """A nest with each of its leaves changed."""
    if isinstance(value, Mapping):
        return {key: map_leaves(inner, change) for key, inner in value.items()}
    if isinstance(value, (tuple, list)):
        changed = [map_leaves(inner, change) for inner in value]
        return tuple(changed) if isinstance(value, tuple) else changed
    return change(value)


# --- a data set and its loader -------------------------------------------------------------------


class Endless(Sampler):  # type: ignore[misc]
    """The numbers of samples, in a loader's own order or drawn by a seed, without an end."""

    def __init__(self, order: Any, seed: int) -> None:
        self.order, self.seed = order, seed

    def __iter__(self) -> Iterator[Any]:
        # Python's random numbers: torch's are fake ones while `plan` traces the code.
        draw = random.Random(self.seed)
        while True:
            if isinstance(self.order, range):
                yield draw.choice(self.order)
            else:
                yield from self.order


def loader_of(data: Any, batch: int, workers: int = 0, seed: int = 0) -> Any:
    """A loader of a data set with this batch size, or a given loader made so again."""
    options: Dict[str, Any] = {"batch_size": batch, "num_workers": workers, "drop_last": True}
    dataset, order = data, None
    if isinstance(data, DataLoader):
        dataset, order = data.dataset, data.sampler
        options["collate_fn"] = data.collate_fn
        options["pin_memory"] = data.pin_memory
        options["worker_init_fn"] = data.worker_init_fn
        if workers and data.prefetch_factor:
            options["prefetch_factor"] = data.prefetch_factor
    if is_stream(dataset):
        return DataLoader(dataset, **options)
    if isinstance(data, DataLoader) and type(data.batch_sampler) is not BatchSampler:
        raise Contract("its DataLoader makes the batches itself: return the data set instead")
    if not length_of(dataset):
        raise Contract("the data set is empty, or has no length")
    if order is None:
        order = range(len(dataset))
    return DataLoader(dataset, sampler=Endless(order, seed), **options)


def batches_of(data: Any, batch: int, workers: int = 0, seed: int = 0) -> Iterator[Any]:
    """Batches of this size without an end; a stream that ends is read again."""
    loader = loader_of(data, batch, workers, seed)
    while True:
        count = 0
        for samples in loader:
            count += 1
            yield samples
        if not count:
            raise Contract("the data set has no batch of %d samples" % batch)


def is_stream(dataset: Any) -> bool:
    """Whether samples only come one after the other."""
    return isinstance(dataset, IterableDataset)


def length_of(data: Any) -> Optional[int]:
    """The samples of an epoch; None if the data set does not say.

    >>> length_of(["a", "b"]), length_of(object())
    (2, None)
    """
    samples = data
    if isinstance(data, DataLoader):
        # A sampler may draw a part of the data set; that of a stream counts nothing.
        samples = data.dataset if is_stream(data.dataset) else data.sampler
    try:
        return len(samples)
    except TypeError:
        return None


# --- how the model is called -------------------------------------------------------------------


def loss_of(model: Any, batch: Any, loss: Optional[Callable[..., Any]]) -> Tuple[Any, Any]:
    """(output, loss). A pair is (inputs, target); a dict is the model's keywords."""
    pair = isinstance(batch, (tuple, list)) and len(batch) == 2
    output = call_model(model, batch[0] if pair else batch)
    target = batch[1] if pair else batch
    if loss is not None:
        return output, loss(output, target)
    own = own_loss(output)
    if own is not None:
        return output, own
    if pair and isinstance(output, torch.Tensor) and isinstance(target, torch.Tensor):
        return output, usual_loss(output, target)
    raise NoLoss("there is no loss: the model gives %s" % kind(output))


def call_model(model: Any, inputs: Any) -> Any:
    if isinstance(inputs, Mapping):
        return model(**inputs)
    if isinstance(inputs, (tuple, list)):
        return model(*inputs)
    return model(inputs)


def own_loss(output: Any) -> Any:
    """The loss that a model computed itself: `.loss`, `["loss"]`, or the one scalar it returned."""
    if isinstance(output, Mapping):
        return output.get("loss")
    if isinstance(output, (tuple, list)):
        scalars = [one for one in output if isinstance(one, torch.Tensor) and not one.dim()]
        return scalars[0] if len(scalars) == 1 else None
    if isinstance(output, torch.Tensor):
        return None if output.dim() else output
    return getattr(output, "loss", None)


def usual_loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Cross entropy for whole-number targets, mean squared error for the others."""
    if target.is_floating_point():
        return nn.functional.mse_loss(output, target)
    if output.dim() == target.dim() + 1 and output.dim() > 2 and output.shape[:-1] == target.shape:
        return nn.functional.cross_entropy(output.flatten(0, -2), target.flatten())
    return nn.functional.cross_entropy(output, target)


# --- checkpoints ---------------------------------------------------------------------------------


def blocks(model: nn.Module) -> List[nn.Module]:
    """The repeated parts: members of a ModuleList or Sequential that have a twin in it.

    A part inside another one is left out; so is one without parameters.
    """
    repeated: List[nn.Module] = []
    inside: Set[int] = set()
    for module in model.modules():
        if id(module) not in inside and isinstance(module, (nn.ModuleList, nn.Sequential)):
            kinds = [type(one) for one in module]
            twins = [one for one in module if kinds.count(type(one)) > 1 and is_block(one)]
            inside.update(id(inner) for one in twins for inner in one.modules())
            repeated += twins
    return repeated


def is_block(module: nn.Module) -> bool:
    """Whether it has parameters and parts of its own: a block, no single layer."""
    return any(True for _ in module.parameters()) and any(True for _ in module.children())


def checkpoint(model: nn.Module) -> int:
    """Recompute the repeated blocks in backward instead of keeping what they made; how many.

    A Hugging Face model is asked to do it itself.
    """
    parts, own = blocks(model), getattr(model, "gradient_checkpointing_enable", None)
    if own is not None:
        own(gradient_checkpointing_kwargs={"use_reentrant": False})
        return len(parts)
    for part in parts:
        part.forward = functools.partial(recompute, part.forward, use_reentrant=False)
    return len(parts)


# --- the optimizer and the step ----------------------------------------------------------------


def optimizer_of(job: Job, name: str, foreach: bool = False) -> Any:
    """The job's optimizer, made where it is not; `foreach`: all parameters at once, as on CUDA."""
    trained = [one for one in job.model.parameters() if one.requires_grad]
    if not trained:
        raise Contract("the model has no parameter that is trained")
    optimizer = job.optimizer
    if optimizer is None and name not in OPTIMIZERS:
        raise Question("gpusetup knows no optimizer `%s`: %s" % (name, ", ".join(OPTIMIZERS)))
    if not isinstance(optimizer, torch.optim.Optimizer):
        optimizer = (optimizer or getattr(torch.optim, OPTIMIZERS[name]))(trained)
    for group in optimizer.param_groups:
        if foreach and group.get("foreach", True) is None and not group.get("fused"):
            group["foreach"] = True
    job.optimizer = optimizer
    return optimizer


def warm(optimizer: Any) -> None:
    """Make the optimizer's states, as they stand from the second step on."""
    for group in optimizer.param_groups:
        for one in group["params"]:
            one.grad = torch.empty_like(one) if one.requires_grad else None
    optimizer.step()
    optimizer.zero_grad()


def step(
    job: Job, cast: Any, begin: Callable[[str], None] = lambda _: None, scaler: Any = None
) -> torch.Tensor:
    """Forward and loss, backward, optimizer; `begin` hears of each, and of what comes after."""
    begin("forward")
    with cast:
        output, loss = loss_of(job.model, job.batch, job.loss)
    if not isinstance(loss, torch.Tensor) or loss.dim():
        raise NoLoss("the loss is %s, no tensor with one value" % kind(loss))
    begin("backward")
    (scaler.scale(loss) if scaler else loss).backward()
    begin("optimizer")
    if scaler:
        scaler.step(job.optimizer)
        scaler.update()
    else:
        job.optimizer.step()
    job.optimizer.zero_grad()
    del output
    begin("after")
    return loss.detach()


def autocast(device: str, amp: Optional[str]) -> Any:
    return torch.autocast(device, DTYPES[amp]) if amp else contextlib.nullcontext()
