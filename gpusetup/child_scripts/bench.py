"""Runs real training steps of one setting and says what they took: one trial of `gpusetup tune`.

Run by the target interpreter by path, the request as JSON on standard input, the answer as one line
of JSON on standard output (what the user's code prints goes to standard error). One process for one
trial, so that an allocator or a driver in a bad state ends with it. Python 3.8 syntax.

    {"code": "module:function" | null, "reference": "conv" | null, "pickle": path | null,
     "wish": {"base_channels": 64}, "batch": 32, "steps": 12, "warm": 2, "device": "auto|cpu|cuda",
     "amp": "bf16|fp16" | null, "compile": false, "optimizer": "adamw", "workers": null | 4,
     "memory_limit_bytes": null, "mode": "steps|loader|devices", "seconds": 60}
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
import traceback
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

HERE = os.path.dirname(os.path.abspath(__file__))
Answer = Dict[str, Any]
PHASES = ("forward", "backward", "optimizer")


def sibling(name: str) -> Any:
    """A file of this folder as a module, without this folder on the search path."""
    import importlib.util

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
    sys.path.insert(0, os.getcwd())
    if place.endswith(".py"):
        sys.path.insert(0, os.path.dirname(os.path.abspath(place)))
        place = os.path.splitext(os.path.basename(place))[0]
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


# --- memory ------------------------------------------------------------------------------------


class Cuda:
    """What torch's CUDA allocator counts."""

    def __init__(self, limit: Optional[int]) -> None:
        import torch

        self.cuda = torch.cuda
        free, total = self.cuda.mem_get_info()
        self.limit = free + self.cuda.memory_reserved()
        self.limit = min(self.limit, limit or self.limit)
        # Always: the drivers of Windows and WSL give the host's memory instead of saying no, and a
        # batch that spills into it would seem to fit.
        self.cuda.set_per_process_memory_fraction(min(1.0, self.limit / total))

    def begin(self) -> None:
        self.cuda.synchronize()
        self.cuda.reset_peak_memory_stats()

    def peak(self) -> Optional[int]:
        self.cuda.synchronize()
        return int(self.cuda.max_memory_allocated())

    def now(self) -> Optional[int]:
        return int(self.cuda.memory_allocated())

    def busy(self) -> Optional[float]:
        """What NVML says of the last moments; None without its binding."""
        with contextlib.suppress(Exception):
            return float(self.cuda.utilization())
        return None


class Host:
    """The process's memory: its address space under a limit, else what is resident."""

    def __init__(self, limit: Optional[int]) -> None:
        host = sibling("bench_memory")
        self.status: Callable[[str], Optional[int]] = host.status
        wished, limit = limit, host.least(limit, host.address_limit())
        self.by_space = limit is not None
        if wished is not None and limit == wished:
            import resource

            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        self.limit = limit if limit is not None else host.available()

    def begin(self) -> None:
        if not self.by_space:
            with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w") as file:
                file.write("5")

    def peak(self) -> Optional[int]:
        return self.status("VmPeak" if self.by_space else "VmHWM")

    def now(self) -> Optional[int]:
        return self.status("VmSize" if self.by_space else "VmRSS")

    def busy(self) -> Optional[float]:
        return None


def device_of(request: Answer) -> str:
    import torch

    wished = str(request.get("device") or "auto")
    if wished.startswith("cuda:"):
        torch.cuda.set_device(wished)  # what counts memory and time asks the current device
    return ("cuda" if torch.cuda.is_available() else "cpu") if wished == "auto" else wished


def scaler_of(torch: Any) -> Any:
    """`torch.amp.GradScaler` came with torch 2.3."""
    if hasattr(torch.amp, "GradScaler"):
        return torch.amp.GradScaler("cuda")
    return torch.cuda.amp.GradScaler()


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
        kind = Cuda if self.device.startswith("cuda") else Host
        self.memory = kind(request.get("memory_limit_bytes"))
        self.job.model.to(self.device)
        self.job.model.train()
        self.optimizer = optimizer_of(self.job, request.get("optimizer") or "adamw", self.steps)
        self.batch = moved(self.job.batch, self.device)
        if request.get("compile"):
            self.job.model = torch.compile(self.job.model)
        scaled = request.get("amp") == "fp16" and self.device.startswith("cuda")
        self.scaler = scaler_of(torch) if scaled else None

    def batches(self) -> Iterator[Any]:
        """From the loader where workers are asked for, else the same batch again."""
        workers = self.request.get("workers")
        if workers is None or self.samples is None:
            while True:
                yield self.batch
        for batch in loader(self.samples, self.request["batch"], workers, self.device):
            yield moved(batch, self.device)

    def step(self, batch: Any) -> Dict[str, Optional[int]]:
        """One training step; phase -> its peak, where the device tells them apart."""
        peaks: Dict[str, Optional[int]] = {}
        cast: Any = contextlib.nullcontext()
        if self.request.get("amp"):
            kind = self.device.partition(":")[0]
            cast = self.torch.autocast(kind, self.steps.DTYPES[self.request["amp"]])
        self.memory.begin()
        with cast:
            _, loss = self.steps.loss_of(self.job.model, batch, self.job.loss)
        peaks["forward"] = self._next()
        (self.scaler.scale(loss) if self.scaler else loss).backward()
        peaks["backward"] = self._next()
        if self.scaler:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        del loss
        peaks["optimizer"] = self.memory.peak()
        return peaks

    def _next(self) -> Optional[int]:
        peak = self.memory.peak()
        self.memory.begin()
        return peak


def loader(samples: Any, batch: int, workers: int, device: str) -> Any:
    """The user's data set as a training run would load it."""
    from torch.utils.data import DataLoader

    more = {"persistent_workers": True, "prefetch_factor": 2} if workers else {}
    return DataLoader(
        samples, batch_size=batch, num_workers=workers, pin_memory=device.startswith("cuda"),
        drop_last=True, **more,
    )  # fmt: skip


def run_steps(request: Answer) -> Answer:
    """Warm-up, then timed steps; peaks by phase, what stands, samples a second and their spread."""
    trial = Trial(request)
    batches = trial.batches()
    for _ in range(request.get("warm") or 2):
        trial.step(next(batches))
    static = trial.memory.now()
    rows: List[Dict[str, Optional[int]]] = []
    seconds: List[float] = []
    busy: List[float] = []
    stands = [static]
    ends = time.monotonic() + float(request.get("seconds") or 60)
    while len(rows) < (request.get("steps") or 12) and (not rows or time.monotonic() < ends):
        began = time.perf_counter()
        rows.append(trial.step(next(batches)))
        seconds.append(time.perf_counter() - began)
        stands.append(trial.memory.now())
        told = trial.memory.busy()
        busy += [] if told is None else [told]
    return {**summary(rows, seconds, request["batch"]), "static_bytes": static,
            "leak_bytes": sibling("bench_memory").leaked(stands),
            "limit_bytes": trial.memory.limit, "device": trial.device,
            "utilization_percent": sum(busy) / len(busy) if busy else None,
            "has_dataset": trial.samples is not None}  # fmt: skip


def summary(rows: List[Dict[str, Optional[int]]], seconds: List[float], batch: int) -> Answer:
    """
    >>> summary([{"forward": 10}, {"forward": 12}], [0.5, 0.5], 8)["phases"]
    {'forward': 11}
    """
    known = [name for name in rows[0] if all(row[name] is not None for row in rows)]
    phases = {name: sum(row[name] or 0 for row in rows) // len(rows) for name in known}
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
        "spread_percent": 100 * (max(seconds) - min(seconds)) / middle,
    }


def run_loader(request: Answer) -> Answer:
    """The loader alone: samples a second with so many workers, after the first batches."""
    _, _, samples = made(request)
    if samples is None:
        return {"status": "error", "detail": "the function returned no `dataset`"}
    batches = iter(loader(samples, request["batch"], request.get("workers") or 0, "cpu"))
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
    memory = (Cuda if cuda else Host)(request.get("memory_limit_bytes"))
    name = torch.cuda.get_device_name(device) if cuda else "the CPU"
    where = {"status": "ok", "device": device, "name": name}
    old = cuda and torch.cuda.get_device_capability(device) < (8, 0)
    return {**where, "limit_bytes": memory.limit, "counts": memory.peak() is not None,
            "half": "fp16" if old else "bf16"}  # fmt: skip


MODES: Dict[str, Callable[[Answer], Answer]] = {
    "steps": run_steps,
    "loader": run_loader,
    "devices": run_devices,
}


def main() -> int:
    request = json.loads(sys.stdin.read())
    answers, sys.stdout = sys.stdout, sys.stderr
    try:
        answer = MODES[request.get("mode") or "steps"](request)
    except BaseException as problem:
        answer = {
            "status": "error",
            "kind": type(problem).__name__,
            "kinds": [one.__name__ for one in type(problem).__mro__],
            "detail": str(problem)[:2000],
            "trace": traceback.format_exc()[-6000:],
        }
    answers.write(json.dumps(answer) + "\n")
    answers.flush()
    return 0


if __name__ == "__main__":
    os._exit(main())  # at once: a driver in a bad state must not be asked to tidy up
