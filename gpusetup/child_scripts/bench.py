"""Runs real training steps of one setting and says what they took: one trial of `gpusetup tune`.

Run by the target interpreter by path; each line of standard input is a request in JSON, each line
of standard output its answer (what the user's code prints goes to standard error). `bench_serve.py`
says which requests share a process. Python 3.8 syntax.

    {"code": "module:function" | null, "reference": "conv" | null, "pickle": path | null,
     "wish": {"base_channels": 64}, "batch": 32, "steps": 12, "warm": 1, "device": "auto|cpu|cuda",
     "amp": "bf16|fp16" | null, "compile": false, "optimizer": "adamw", "workers": null | 4,
     "memory_limit_bytes": null, "mode": "steps|losses|loader|devices", "seconds": 60,
     "timed": true}
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import time
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

HERE = os.path.dirname(os.path.abspath(__file__))
Answer = Dict[str, Any]
PHASES = ("forward", "backward", "optimizer")


def sibling(name: str) -> Any:
    """A file of this folder as a module, without this folder on the search path."""
    import importlib.util

    known = sys.modules.get("gpusetup_" + name)
    if known is not None:
        return known
    path = os.path.join(HERE, name + ".py")
    spec = importlib.util.spec_from_file_location("gpusetup_" + name, path)
    if spec is None or spec.loader is None:
        raise ImportError(name)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


# --- what is trained ---------------------------------------------------------------------------


def function_named(code: str) -> Callable[..., Any]:
    """The function of `MODULE:FUNCTION`; MODULE may be the path of a file."""
    import importlib

    place, _, name = code.rpartition(":")
    folders = [os.getcwd()]
    if place.endswith(".py"):
        folders.insert(0, os.path.dirname(os.path.abspath(place)))
        place = os.path.splitext(os.path.basename(place))[0]
    sys.path[:0] = [folder for folder in folders if folder not in sys.path]
    found: Any = importlib.import_module(place)
    for part in name.split("."):
        found = getattr(found, part)
    return found  # type: ignore[no-any-return]


def function_of(request: Answer) -> Callable[..., Any]:
    if request.get("code"):
        return function_named(request["code"])
    if request.get("pickle"):
        return sibling("bench_pickle").function_of(request["pickle"])  # type: ignore[no-any-return]
    return sibling("bench_models").reference(  # type: ignore[no-any-return]
        request["reference"], request.get("wish") or {}
    )


def made(request: Answer) -> Tuple[Any, Any, Any]:
    """(steps module, job, data set or None)."""
    steps = sibling("trace_step")
    function = function_of(request)
    takes = steps.takes_batch(function)
    returned = function(request["batch"]) if takes else function()
    samples = None
    if isinstance(returned, dict):
        samples = returned.pop("dataset", None)
    job = steps.job_of(returned)
    if not takes:
        job.batch = repeated(job.batch, request["batch"], steps)
    return steps, job, samples


def repeated(value: Any, batch: int, steps: Any) -> Any:
    """An example batch made `batch` long by its own samples, over and over."""
    import torch

    first = next((one for one in steps.tensors(value) if one.dim()), None)
    if first is None:
        raise steps.Contract("no tensor of the batch has a first dimension to size")
    count = len(first)
    index = torch.arange(batch) % count

    def sized(one: Any) -> Any:
        fits = isinstance(one, torch.Tensor) and one.dim() and len(one) == count
        return one[index.to(one.device)] if fits else one

    return mapped(value, sized)


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, dict):
        return {key: mapped(inner, change) for key, inner in value.items()}
    if isinstance(value, tuple):
        return tuple(mapped(inner, change) for inner in value)
    if isinstance(value, list):
        return [mapped(inner, change) for inner in value]
    return change(value)


def moved(value: Any, device: str) -> Any:
    to = getattr(value, "to", None)
    if not isinstance(value, (dict, tuple, list)):
        return to(device, non_blocking=True) if to is not None else value
    return mapped(value, lambda one: moved(one, device))


# --- where it runs ------------------------------------------------------------------------------


def device_of(request: Answer) -> str:
    import torch

    wished = str(request.get("device") or "auto")
    if wished.startswith("cuda:"):
        torch.cuda.set_device(wished)  # what counts memory and time asks the current device
    return ("cuda" if torch.cuda.is_available() else "cpu") if wished == "auto" else wished


def memory_of(device: str, request: Answer) -> Any:
    memory = sibling("bench_memory")
    kind = memory.Cuda if device.startswith("cuda") else memory.Host
    return kind(request.get("memory_limit_bytes"))


def scaler_of(torch: Any, scale: float = 65536.0) -> Any:
    """`torch.amp.GradScaler` came with torch 2.3."""
    if hasattr(torch.amp, "GradScaler"):
        return torch.amp.GradScaler("cuda", init_scale=scale)
    return torch.cuda.amp.GradScaler(init_scale=scale)


# --- the steps ---------------------------------------------------------------------------------


def optimizer_of(job: Any, name: str, steps: Any) -> Any:
    """The code's own optimizer, or the one it can make, or the one that is named."""
    import torch

    if isinstance(job.optimizer, torch.optim.Optimizer):
        return job.optimizer
    trained = [one for one in job.model.parameters() if one.requires_grad]
    if not trained:
        raise steps.Contract("the model has no parameter that is trained")
    return (job.optimizer or steps.OPTIMIZERS[name])(trained)


class Trial:
    """One setting, ready to run steps."""

    def __init__(self, request: Answer) -> None:
        import torch

        self.torch, self.request = torch, request
        self.device = device_of(request)
        self.steps, self.job, self.samples = made(request)
        self.memory = memory_of(self.device, request)
        self.job.model.to(self.device)
        self.job.model.train()
        self.optimizer = optimizer_of(self.job, request.get("optimizer") or "adamw", self.steps)
        self.batch = moved(self.job.batch, self.device)
        if request.get("compile"):
            self.job.model = torch.compile(self.job.model)
        scaled = request.get("amp") == "fp16" and self.device.startswith("cuda")
        # Where memory is read no step may be skipped for an overflow: the optimizer's states would
        # not be there yet.
        scale = 65536.0 if request.get("mode") == "losses" else 1.0
        self.scaler = scaler_of(torch, scale) if scaled else None

    def batches(self) -> Iterator[Any]:
        """From the loader where workers are asked for, else the same batch again."""
        workers = self.request.get("workers")
        if workers is None or self.samples is None:
            while True:
                yield self.batch
        feed = loader(self.samples, self.request["batch"], workers, self.device)
        while True:
            for batch in started(feed, self.request):
                yield moved(batch, self.device)

    def step(self, batch: Any, phase: Callable[[str], None] = lambda _: None) -> Any:
        """One training step, as training does it; its loss. `phase` is told the end of each."""
        cast: Any = contextlib.nullcontext()
        if self.request.get("amp"):
            kind = self.device.partition(":")[0]
            cast = self.torch.autocast(kind, self.steps.DTYPES[self.request["amp"]])
        with cast:
            _, loss = self.steps.loss_of(self.job.model, batch, self.job.loss)
        phase("forward")
        (self.scaler.scale(loss) if self.scaler else loss).backward()
        phase("backward")
        if self.scaler:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        loss = loss.detach()
        phase("optimizer")
        return loss

    def read(self, batch: Any) -> Dict[str, Optional[int]]:
        """One step, synchronised after each phase: phase -> its peak, where the device tells."""
        peaks: Dict[str, Optional[int]] = {}

        def ended(phase: str) -> None:
            peaks[phase] = self.memory.peak()
            self.memory.begin()

        self.memory.begin()
        self.step(batch, ended)
        return {**peaks, **self.memory.also()}


PREFETCHED = 2
"""Batches that each worker loads ahead."""


def loader(samples: Any, batch: int, workers: int, device: str) -> Any:
    """The user's data set as a training run would load it."""
    from torch.utils.data import DataLoader

    more = {"persistent_workers": True, "prefetch_factor": PREFETCHED} if workers else {}
    return DataLoader(
        samples, batch_size=batch, num_workers=workers, pin_memory=device.startswith("cuda"),
        drop_last=True, **more,
    )  # fmt: skip


def started(feed: Any, request: Answer) -> Iterator[Any]:
    """An epoch of a loader, where it holds one whole batch."""
    with contextlib.suppress(TypeError):  # a stream of samples has no length
        if not len(feed):
            raise ValueError("the data set holds fewer than %d samples" % request["batch"])
    return iter(feed)


def run_steps(request: Answer) -> Answer:
    """Warm-up, steps whose memory is read until it is steady, and then steps that are timed.

    Without `timed` the speed is that of the steps that were read, which wait after each phase.
    """
    trial = Trial(request)
    batches = trial.batches()
    warming = time.perf_counter()
    for _ in range(request.get("warm") or 1):
        trial.step(next(batches))
    warming = time.perf_counter() - warming
    memory, ends = trial.memory, time.monotonic() + float(request.get("seconds") or 60)
    rows: List[Dict[str, Optional[int]]] = []
    seconds: List[float] = []
    stands = [memory.now()]
    while len(rows) < (request.get("steps") or 12) and (not rows or time.monotonic() < ends):
        began = time.perf_counter()
        rows.append(trial.read(next(batches)))
        seconds.append(time.perf_counter() - began)
        stands.append(memory.now())
        enough = warming + sum(seconds) > memory.patience
        if sibling("bench_memory").steady(rows, stands, memory.least_rows, enough):
            break
    busy = None
    if request.get("timed", True):
        speed = sibling("bench_speed")
        workers = (request.get("workers") or 0) if trial.samples is not None else 0
        for _ in range(PREFETCHED * workers):  # what was loaded while memory was read came for free
            next(batches)
        left = max(0.0, ends - time.monotonic()) / min(seconds)
        count = int(min(max(request.get("steps") or 12, speed.LEAST_SECONDS / min(seconds)), left))
        seconds, busy = speed.timed(trial, batches, max(2, count, speed.ROUNDS * workers))
        seconds = speed.in_rounds(seconds, workers)
    batches.close()  # type: ignore[attr-defined]
    found = summary(rows, seconds, request["batch"])
    doubt = memory.holes() / 3 / max(1, found["peak_bytes"] or 1)
    return {**found, "noise": max(found["noise"], doubt), "static_bytes": stands[0],
            "leak_bytes": sibling("bench_memory").leaked(stands),
            "limit_bytes": memory.limit, "device": trial.device,
            "reserved_bytes": memory.reserved(), "utilization_percent": busy,
            "samples": length_of(trial.samples, request),
            "has_dataset": trial.samples is not None}  # fmt: skip


def summary(rows: List[Dict[str, Optional[int]]], seconds: List[float], batch: int) -> Answer:
    """
    >>> summary([{"forward": 10}, {"forward": 12}], [0.5, 0.5], 8)["phases"]
    {'forward': 11}
    """
    known = [name for name in rows[0] if all(row[name] is not None for row in rows)]
    phases = {name: sum(row[name] or 0 for row in rows) // len(rows) for name in known}
    if "space" in phases:  # the most so far
        phases["space"] = max(row["space"] or 0 for row in rows)
    peaks = [max((row[name] or 0 for name in known), default=0) for row in rows]
    middle = sorted(seconds)[len(seconds) // 2]
    return {
        "status": "ok",
        "phases": phases,
        "peak_bytes": max(peaks) if known else None,
        "noise": (max(peaks) - min(peaks)) / 2 / max(1, max(peaks)),
        "readings": len(rows),
        "step_seconds": middle,
        "samples_per_second": batch / middle,
        "spread_percent": sibling("bench_speed").spread(seconds),
    }


def length_of(samples: Any, request: Answer) -> Optional[int]:
    """How many samples an epoch has; None of a built-in data set, whose length means nothing."""
    with contextlib.suppress(Exception):
        return None if request.get("reference") else len(samples)
    return None


def run_losses(request: Answer) -> Answer:
    """The loss at each of the first steps, from the same weights on the same samples."""
    import random

    import torch

    random.seed(0)
    torch.manual_seed(0)
    trial = Trial(request)
    if trial.samples is not None:
        request["workers"] = 0
    torch.manual_seed(1)
    batches = trial.batches()
    found = [trial.step(next(batches)) for _ in range(request.get("steps") or 12)]
    batches.close()  # type: ignore[attr-defined]
    return {"status": "ok", "losses": [float(one) for one in found]}


def run_loader(request: Answer) -> Answer:
    """The loader alone: samples a second with so many workers, after the first batches."""
    _, _, samples = made(request)
    if samples is None:
        return {"status": "error", "detail": "the function returned no `dataset`"}
    feed = loader(samples, request["batch"], request.get("workers") or 0, "cpu")
    batches = (batch for _ in itertools.repeat(None) for batch in started(feed, request))
    for _ in range(max(2, request.get("workers") or 0)):
        next(batches)
    began, count = time.perf_counter(), 0
    ends = began + float(request.get("seconds") or 5)
    while time.perf_counter() < ends:
        next(batches)
        count += request["batch"]
    return {"status": "ok", "samples_per_second": count / (time.perf_counter() - began)}


def run_devices(request: Answer) -> Answer:
    """Which device there is, its name, and what may be used of its memory."""
    import torch

    device = device_of(request)
    cuda = device.startswith("cuda")
    memory = memory_of(device, request)
    name = torch.cuda.get_device_name(device) if cuda else "the CPU"
    where = {"status": "ok", "device": device, "name": name}
    old = cuda and torch.cuda.get_device_capability(device) < (8, 0)
    return {**where, "limit_bytes": memory.limit, "counts": memory.peak() is not None,
            "half": "fp16" if old else "bf16"}  # fmt: skip


MODES: Dict[str, Callable[[Answer], Answer]] = {
    "steps": run_steps,
    "losses": run_losses,
    "loader": run_loader,
    "devices": run_devices,
}


def run(request: Answer) -> Answer:
    return MODES[request.get("mode") or "steps"](request)


if __name__ == "__main__":
    code = sibling("bench_serve").serve(run, function_of)
    os._exit(code)  # at once: a driver in a bad state must not be asked to tidy up
