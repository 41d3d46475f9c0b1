"""One training step as a trainer runs it, for the trials of `tune`.

This file defines what a user's function may return, how its model is called, and the phases of the
step. Python 3.8 syntax.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, RandomSampler

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Contract(Exception):
    """The user's function does not return what `--code` needs."""


class NoLoss(Contract):
    """The model returns no loss, and the user gave no loss function."""


@dataclass
class TrainingJob:
    """A model, a batch, how to train with them and, if given, the data set that the batches come
    from: the keys of a dict that the user's function returns, or the order of a tuple."""

    model: Any
    batch: Any = None
    loss: Any = None
    optimizer: Any = None
    dataset: Any = None


PARTS = tuple(field.name for field in fields(TrainingJob))


# --- what the user's function returns ---------------------------------------------------------


def function_named(code: str) -> Callable[..., Any]:
    """Import the function `MODULE:FUNCTION`; MODULE may be the path of a file."""
    module_text, _, name = code.rpartition(":")
    folder, module = os.getcwd(), module_text
    if module_text.endswith(".py"):
        folder, module = os.path.split(os.path.abspath(module_text[: -len(".py")]))
    # The module finds its neighbours as if Python ran it.
    sys.path.insert(0, folder)
    imported = importlib.import_module(module)
    return getattr(imported, name)  # type: ignore[no-any-return]


def job_for(function: Callable[..., Any], batch: int) -> TrainingJob:
    """The job that the user's function returns for a batch size.

    A function with a parameter gets the batch size. A function without one returns an example
    batch, whose samples are repeated until the batch has the requested size.
    """
    takes_size = takes_batch_size(function)
    job = job_of(function(batch) if takes_size else function())
    if job.batch is None:  # the function gave a data set instead
        job.batch = next(batches_of(job.dataset, batch))
    elif not takes_size:
        job.batch = resized(job.batch, batch)
    # Only tensors use memory that we count.
    if not tensors(job.batch):
        raise Contract("the batch is %s, without any tensor" % kind(job.batch))
    return job


def takes_batch_size(function: Callable[..., Any]) -> bool:
    """Whether a function can be called with one positional argument, which gets the batch size.

    >>> takes_batch_size(lambda batch=8: None), takes_batch_size(lambda: None)
    (True, False)
    """
    example_size = 1
    try:
        # `bind` only matches the argument with the parameters, and calls nothing.
        inspect.signature(function).bind(example_size)
    except (TypeError, ValueError):  # no parameter, or a builtin whose signature Python cannot read
        return False
    return True


def job_of(returned: Any) -> TrainingJob:
    """Read the job from what the user's function returned. Raises Contract if that is not a job."""
    job = TrainingJob(**named_parts(returned))
    # A tuple of a model and a data set, for example, has its data set at the place of the batch.
    if isinstance(job.batch, (Dataset, DataLoader)):
        job.batch, job.dataset = None, job.batch
    if not isinstance(job.model, nn.Module):
        raise Contract("the model is %s, no torch.nn.Module" % kind(job.model))
    if job.batch is None and job.dataset is None:
        raise Contract("it returned neither a batch nor a data set")
    # Some functions return the loss itself, a tensor, instead of a loss function.
    if job.loss is not None and not callable(job.loss):
        raise Contract("the loss is %s, nothing to call" % kind(job.loss))
    if job.dataset is not None and not isinstance(job.dataset, (Dataset, DataLoader)):
        raise Contract("the data set is %s, no Dataset or DataLoader of torch" % kind(job.dataset))
    return job


def named_parts(returned: Any) -> Dict[str, Any]:
    """Maps part names to the parts that the user's function returned. A tuple's items are named in
    the order of PARTS. Raises Contract for a dict without a model or with an unknown name, for a
    tuple that is too short or too long, and for any other value."""
    if isinstance(returned, Mapping):
        unknown = [repr(key) for key in returned if key not in PARTS]
        if unknown:
            names = (", ".join(unknown), ", ".join(PARTS))
            raise Contract("it returned a dict with %s; gpusetup takes %s" % names)
        if "model" not in returned:
            raise Contract("it returned a dict without a model")
        return dict(returned)
    if not isinstance(returned, (tuple, list)):
        raise Contract("it returned %s, and no model with a batch" % kind(returned))
    count = len(returned)
    # A model alone cannot be trained.
    if not 2 <= count <= len(PARTS):
        raise Contract("it returned %d values; gpusetup takes %s" % (count, ", ".join(PARTS)))
    return dict(zip(PARTS, returned))  # noqa: B905 - Python 3.8


def kind(value: Any) -> str:
    """The type of a value, for error messages; a tensor is too long to print."""
    return "a value of type %s" % type(value).__name__


def tensors(value: Any) -> List[torch.Tensor]:
    """All tensors in nested dicts, lists and tuples."""
    leaves: List[Any] = []
    map_leaves(value, leaves.append)
    # Nested containers may also contain names and numbers.
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def resized(value: Any, batch: int) -> Any:
    """The same nested containers with another batch size: every tensor with one row per sample gets
    `batch` rows, by repeating its own rows."""
    # A tensor without dimensions is a number.
    with_rows = [tensor for tensor in tensors(value) if tensor.dim()]
    if not with_rows:
        raise Contract("no tensor of the batch has a first dimension to size")
    # The first one is usually the input, which has a row for each sample.
    length = len(with_rows[0])
    index = torch.arange(batch) % length

    def repeated(leaf: Any) -> Any:
        # A tensor of another length belongs to the whole batch, not to its samples.
        if isinstance(leaf, torch.Tensor) and leaf.dim() > 0 and len(leaf) == length:
            return leaf[index.to(leaf.device)]
        return leaf

    return map_leaves(value, repeated)


def map_leaves(value: Any, change: Callable[[Any], Any]) -> Any:
    """Apply a function to every leaf of nested dicts, lists and tuples."""
    if isinstance(value, Mapping):
        return {key: map_leaves(inner, change) for key, inner in value.items()}
    # A named tuple becomes a plain tuple, because models take its items by position.
    if isinstance(value, (tuple, list)):
        changed = [map_leaves(inner, change) for inner in value]
        return tuple(changed) if isinstance(value, tuple) else changed
    return change(value)


# --- a data set and its loader -------------------------------------------------------------------


def loader_of(data: Any, batch: int, workers: int = 0, seed: int = 0) -> Any:
    """A loader for a data set with this batch size, or a copy of the given loader with it."""
    # An incomplete last batch would need less memory and time than the others.
    options: Dict[str, Any] = {"batch_size": batch, "num_workers": workers, "drop_last": True}
    dataset = data
    if isinstance(data, DataLoader):
        dataset = data.dataset
        for name in ("collate_fn", "pin_memory", "worker_init_fn"):
            options[name] = getattr(data, name)
        # torch refuses this option if there are no workers.
        if workers and data.prefetch_factor:
            options["prefetch_factor"] = data.prefetch_factor
    # The samples of a stream can only be read one after the other.
    if isinstance(dataset, IterableDataset):
        return DataLoader(dataset, **options)
    # A sampler that yields whole batches cannot yield batches of another size.
    if isinstance(data, DataLoader) and type(data.batch_sampler) is not BatchSampler:
        raise Contract("its DataLoader makes the batches itself: return the data set instead")
    if not length_of(dataset):
        raise Contract("the data set is empty, or has no length")
    draw = torch.Generator().manual_seed(seed)
    endless = RandomSampler(dataset, replacement=True, num_samples=sys.maxsize, generator=draw)
    return DataLoader(dataset, sampler=endless, **options)


def batches_of(data: Any, batch: int, workers: int = 0, seed: int = 0) -> Iterator[Any]:
    """An endless sequence of batches of this size. If the data end, they start again."""
    loader = loader_of(data, batch, workers, seed)
    while True:
        count = 0
        for samples in loader:
            count += 1
            yield samples
        if not count:
            raise Contract("the data set has no batch of %d samples" % batch)


def length_of(data: Any) -> Optional[int]:
    """The number of samples in an epoch; None if the data set does not report it.

    >>> length_of(["a", "b"]), length_of(object())
    (2, None)
    """
    samples = data
    if isinstance(data, DataLoader):
        # A sampler may draw only a part of the data set. A stream's sampler has no useful length.
        is_stream = isinstance(data.dataset, IterableDataset)
        samples = data.dataset if is_stream else data.sampler
    try:
        return len(samples)
    except TypeError:
        return None


# --- how the model is called -------------------------------------------------------------------


def loss_of(model: Any, batch: Any, loss: Optional[Callable[..., Any]]) -> Tuple[Any, Any]:
    """Calls the model, and returns its output and the loss. A batch that is a pair contains
    (inputs, target). A batch that is a dict contains the model's keyword arguments."""
    is_pair = isinstance(batch, (tuple, list)) and len(batch) == 2
    inputs = batch[0] if is_pair else batch
    # A loss function for a batch that is no pair gets the whole batch.
    target = batch[1] if is_pair else batch
    if isinstance(inputs, Mapping):
        output = model(**inputs)
    else:
        output = model(*inputs) if isinstance(inputs, (tuple, list)) else model(inputs)
    if loss is not None:
        return output, loss(output, target)
    models_loss = loss_in(output)
    if models_loss is not None:
        return output, models_loss
    # If there is a target, and it and the output are plain tensors, use one of the usual losses.
    are_tensors = isinstance(output, torch.Tensor) and isinstance(target, torch.Tensor)
    if is_pair and are_tensors:
        return output, usual_loss(output, target)
    raise NoLoss("there is no loss: the model gives %s" % kind(output))


def loss_in(output: Any) -> Any:
    """The loss that the model computed: `.loss`, `["loss"]`, or the single scalar that it returned;
    None if there is none."""
    if isinstance(output, Mapping):
        return output.get("loss")
    if isinstance(output, torch.Tensor):
        return None if output.dim() else output
    if not isinstance(output, (tuple, list)):
        return getattr(output, "loss", None)
    scalars = [value for value in output if isinstance(value, torch.Tensor) and value.dim() == 0]
    # With several scalars, we cannot know which one is the loss.
    return scalars[0] if len(scalars) == 1 else None


def usual_loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Cross entropy for whole-number targets, mean squared error for all others."""
    if target.is_floating_point():
        return nn.functional.mse_loss(output, target)
    # A language model has the classes in the last dimension, torch expects them in the second.
    if output.dim() > 2 and output.shape[:-1] == target.shape:
        return nn.functional.cross_entropy(output.flatten(0, -2), target.flatten())
    return nn.functional.cross_entropy(output, target)


# --- the optimizer and the step ----------------------------------------------------------------


def create_optimizer(job: TrainingJob) -> None:
    """Replace the optimizer class in the job by an optimizer; AdamW if the user gave none."""
    trained = [parameter for parameter in job.model.parameters() if parameter.requires_grad]
    if not trained:
        raise Contract("the model has no parameter that is trained")
    job.optimizer = job.optimizer or torch.optim.AdamW
    # The user gave an optimizer class, or a function of the parameters.
    if not isinstance(job.optimizer, torch.optim.Optimizer):
        job.optimizer = job.optimizer(trained)


def step(
    job: TrainingJob, cast: Any, begin: Callable[[str], None] = lambda _: None, scaler: Any = None
) -> torch.Tensor:
    """Run the forward pass with the loss, the backward pass, and the optimizer; calls `begin`
    before each phase and after the last one."""
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
    # Keep the output until here, because a trainer's loop also holds it during the whole step.
    del output
    begin("after")
    return loss.detach()


def autocast(device: str, amp: Optional[str]) -> Any:
    """A context for mixed precision in a 16-bit type, or one that does nothing."""
    return torch.autocast(device, DTYPES[amp]) if amp else contextlib.nullcontext()
