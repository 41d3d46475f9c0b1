"""Runs one training step of the user's code on fake tensors and says what memory it takes.

Run by the target interpreter by path, the request as JSON on standard input, the answer as one
line of JSON on standard output (what the user's code prints goes to standard error). Nothing is
computed: the tensors have shapes and no values. No GPU is touched and no connection made.
Python 3.8 syntax.
"""

from __future__ import annotations

import gc
import importlib.util
import json
import os
import sys
import traceback
from typing import Any, Dict, List, Optional

HERE = os.path.dirname(os.path.abspath(__file__))
OLDEST = {"single": (2, 4), "fsdp": (2, 6)}
"""The oldest torch that has what is needed here; FSDP2's public name is younger."""
PARTS = ("trace_storages", "trace_step", "trace_guard", "trace_patches")
PHASES = ("forward", "backward", "optimizer")
GROWS = ("@forward", "@backward", "batch")
"""What grows with the batch, of what stands in forward and backward."""
FARTHEST = 1 << 16
"""How many times the batch that was asked for a further trace may be."""
KINDS = {
    "@standing": "other",
    "@forward": "activations",
    "@backward": "backward",
    "@optimizer": "step",
}
"""The phase that made a storage -> what it counts as, where nothing else is known of it."""


def sibling(name: str) -> Any:
    """A file of this folder as a module, without this folder on the search path."""
    known = "gpusetup_" + name
    if known not in sys.modules:
        spec: Any = importlib.util.spec_from_file_location(known, os.path.join(HERE, name + ".py"))
        sys.modules[known] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[known])
    return sys.modules[known]


# --- one trace ---------------------------------------------------------------------------------


class Tracer:
    """Traces the step of one function; everything that does not depend on the batch."""

    def __init__(self, request: Dict[str, Any]) -> None:
        import torch
        from torch._subclasses.fake_tensor import FakeTensorMode

        self.torch = torch
        self.request = request
        self.storages, self.steps, self.guards, patches = map(sibling, PARTS)
        patches.install()
        if request["as_on"] == "cuda":
            patches.dropout_as_on_cuda()
            self.rules = sibling("trace_amp").as_on_cuda() if request["amp"] else None
        self.mesh = self.fake_mesh() if request["strategy"] == "fsdp" else None
        torch.cuda._lazy_init = self.guards.no_cuda
        self.function = self.steps.function_named(request["code"])
        self.fake = FakeTensorMode(allow_non_fake_inputs=True)
        self.ledger = self.storages.Ledger()
        self.guard = self.guards.Guard(torch)
        self.counting = self.storages.Counting(self.ledger, self.guard)
        self.compiled = patches.compiled
        self.job: Any = None

    def fake_mesh(self) -> Any:
        """As many processes as GPUs, of which only this one exists."""
        import torch.distributed as dist
        from torch.distributed.device_mesh import init_device_mesh
        from torch.testing._internal.distributed.fake_pg import FakeStore

        gpus = self.request["gpus"]
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=gpus)
        return init_device_mesh("cpu", (gpus,))

    def trace(self, batch: int) -> Dict[str, Any]:
        """What one step with this batch takes."""
        with self.fake, self.counting:
            job = self.steps.made(self.function, batch)
            self.guards.masks_as_in_training()
            if self.job is None or self.shape != shape_of(job.model):
                self.prepare(job)
            self.job.batch = job.batch
            del job
            gc.collect()  # a second model, made for the sake of its batch
            self.ledger.restart()
            self.run(self.job, self.ledger)
            return self.report(batch, self.ledger)

    def prepare(self, job: Any) -> None:
        """Everything before the first step; a later batch takes the same model."""
        steps, request = self.steps, self.request
        self.shape = shape_of(job.model)
        before = steps.names_of(job.model)
        job.model.train()
        if request["checkpointing"] and not steps.checkpoint(job.model):
            raise steps.Question("the model has no repeated block to checkpoint")
        if self.mesh is not None:
            whole, self.torch.chunk = self.torch.chunk, first_chunk
            steps.shard(job.model, self.mesh, request["amp"])
            self.torch.chunk = whole
        self.now = {name: local(one) for name, one in job.model.named_parameters()}
        name, foreach = request["optimizer"], request["foreach"]
        self.optimizer = steps.optimizer_of(job, name, foreach, before, self.now)
        steps.warm(self.optimizer)
        self.job = job

    def run(self, job: Any, ledger: Any) -> None:
        self.name_what_stands(job, ledger)
        if self.request["accumulate"] > 1:  # gradients stand since the first micro-batch
            for name, parameter in job.model.named_parameters():
                if parameter.requires_grad:
                    parameter.grad = self.torch.zeros_like(parameter)
                    ledger.label(parameter.grad, "gradients", name)
        amp = None if self.mesh is not None else self.request["amp"]
        with self.storages.following(job.model, ledger):
            self.steps.step(job, self.optimizer, amp, ledger.begin, self.hand_over)
        ledger.begin("after")
        self.name_what_stands(job, ledger)

    def name_what_stands(self, job: Any, ledger: Any) -> None:
        ledger.label(job.batch, "batch")
        for name, buffer in job.model.named_buffers():
            ledger.label(buffer, "parameters", name)
        for name, parameter in self.now.items():
            ledger.label(parameter, "parameters", name)
            ledger.label(self.optimizer.state.get(parameter, {}), "optimizer", name)

    def hand_over(self) -> None:
        """The gradients stand: name them, and give those of the shards to the optimizer."""
        for name, parameter in self.job.model.named_parameters():
            if parameter.grad is not None:
                self.ledger.label(parameter.grad, "gradients", name)
                self.now[name].grad = local(parameter.grad)

    def report(self, batch: int, ledger: Any) -> Dict[str, Any]:
        peaks = ledger.peaks()
        model, sizes = self.job.model, {phase: peaks[phase][0] for phase in PHASES}
        top, busy = (max(phases, key=lambda phase: sizes[phase]) for phases in (PHASES, PHASES[:2]))
        grows = ledger.standing_at(peaks[busy][1])
        trained = [one for one in self.now.values() if one.requires_grad]
        layers = [type(one).__name__ for one in model.modules()]  # a ViT has a Conv2d
        return {
            "batch": batch,
            "phases": sizes,
            "grows": sum(size for (kind, _), size in grows.items() if kind in GROWS),
            "parameters": sum(one.numel() for one in model.parameters()),
            "trained_bytes": sum(one.numel() * one.element_size() for one in trained),
            "values_read": self.guard.values_read,
            "compiled": bool(self.compiled[0]),
            "convolves": sum("Conv2d" in one for one in layers) > layers.count("Linear"),
            "standing": [
                {"kind": KINDS.get(kind, kind), "module": module, "bytes": size}
                for (kind, module), size in ledger.standing_at(peaks[top][1]).items()
            ],
        }


def local(tensor: Any) -> Any:
    """A shard's own tensor, on the same storage; anything else as it is.

    An optimizer does to the shards what it does to a DTensor, which costs ten times as long.
    """
    inner = getattr(tensor, "_local_tensor", None)
    if inner is None:
        return tensor
    if not tensor.is_leaf or not tensor.requires_grad:
        return inner
    return inner.detach().requires_grad_()


def shape_of(model: Any) -> List[Any]:
    """What two models that differ only in values have in common."""
    named = (*model.named_parameters(), *model.named_buffers())
    return [(name, tuple(one.shape), one.dtype) for name, one in named]


def first_chunk(tensor: Any, chunks: int, dim: int = 0) -> Any:
    """`torch.chunk` while FSDP2 cuts parameters: only this process's piece is cut off, the first.

    The others, one for every GPU, would be tensors that nobody looks at.
    """
    length = tensor.shape[dim]
    each = -(-length // chunks)
    return [tensor.narrow(dim, 0, each)] * -(-length // max(each, 1))


# --- which batches tell most -------------------------------------------------------------------


def second_batch(first: Dict[str, Any], limit: Optional[int]) -> int:
    """Another batch, near the one that fills `limit` bytes, so that the line through both tells.

    >>> said = {"batch": 4, "grows": 40, "phases": {"forward": 120, "backward": 140}}
    >>> second_batch(said, 500), second_batch(said, None), second_batch(said, 120)
    (40, 8, 2)
    """
    batch: int = first["batch"]
    if limit is None:
        return 2 * batch
    fixed = max(first["phases"]["forward"], first["phases"]["backward"]) - first["grows"]
    guess = int((limit - fixed) * batch / max(1, first["grows"]))
    if guess >= batch or batch == 1:
        return min(max(2 * batch, guess), batch * FARTHEST)
    return max(1, guess)


# --- the program -------------------------------------------------------------------------------


def answer(request: Dict[str, Any]) -> Dict[str, Any]:
    import torch

    version = str(torch.__version__)
    least = OLDEST[request["strategy"]]
    if tuple(int(part) for part in version.split(".")[:2]) < least:
        old = "torch %s is too old: this trace needs %d.%d or newer"
        raise sibling("trace_step").Question(old % (version, *least))
    tracer = Tracer(request)
    traces = [tracer.trace(request["batch"])]
    problem = None
    try:
        if request["line"]:
            traces.append(tracer.trace(second_batch(traces[0], request["limit_bytes"])))
    except Exception as trouble:  # the code of the user may refuse a batch it was not asked about
        problem = "%s: %s" % (type(trouble).__name__, " ".join(str(trouble).split())[:200])
    return {"torch": version, "traces": traces, "refused": problem}


def where(problem: BaseException) -> str:
    """`train.py:12 in forward`: the innermost line that is neither a library's nor ours."""
    foreign = (HERE, os.path.dirname(os.__file__), "<")
    for frame in reversed(traceback.extract_tb(problem.__traceback__)):
        if not frame.filename.startswith(foreign) and "site-packages" not in frame.filename:
            return "%s:%s in %s" % (os.path.basename(frame.filename), frame.lineno, frame.name)
    return ""


def told(problem: BaseException) -> Dict[str, str]:
    """The answer that says what went wrong."""
    kind, message = type(problem).__name__, str(problem)
    guards = sibling("trace_guard")
    if isinstance(problem, guards.TouchesGpu):
        kind = "gpu"
    elif any(words in message for words in guards.WITHOUT_CUDA):
        kind, message = "gpu", "it asks for CUDA"
    elif guards.NO_CONNECTION in message:
        kind = guards.NoNetwork.__name__
    return {
        "problem": kind,
        "message": " ".join(message.split())[:500],
        "where": where(problem),
        "trace": "".join(traceback.format_exception(type(problem), problem, problem.__traceback__)),
    }


def main() -> int:
    request = json.loads(sys.stdin.read())
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    sys.path[:] = [request["folder"]] + [one for one in sys.path if os.path.abspath(one) != HERE]
    guards = sibling("trace_guard")
    sys.addaudithook(guards.no_connections)
    try:
        said: Dict[str, Any] = answer(request)
    except (Exception, guards.TouchesGpu, SystemExit) as problem:
        said = told(problem)
    out.write(json.dumps(said) + "\n")
    out.close()
    return 1 if "problem" in said else 0


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    os._exit(code)  # no fake storage is worth taking down in order
