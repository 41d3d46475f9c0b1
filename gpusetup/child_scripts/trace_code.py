"""Runs one training step of the user's code on fake tensors and says what memory it takes.

Run by the target interpreter by path, the request as JSON on standard input, the answer as one
line of JSON on standard output (what the user's code prints goes to standard error). Nothing is
computed: the tensors have shapes and no values. No GPU is touched and no connection made.
Python 3.8 syntax.
"""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import json
import os
import sys
import traceback
from typing import Any, Dict, Iterator, List, Optional

HERE = os.path.dirname(os.path.abspath(__file__))
OLDEST = {"single": (2, 4), "fsdp": (2, 6)}
"""The oldest torch that has what is needed here; FSDP2's public name is younger."""
PHASES = ("forward", "backward", "optimizer")
GROWS = ("@forward", "@backward", "batch")
"""What grows with the batch, of what stands in forward and backward."""
NEAR = 0.03
"""A trace this near to the limit, as a share of it, needs no further one."""
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
        self.storages = sibling("trace_storages")
        self.steps = sibling("trace_step")
        self.guards = sibling("trace_guard")
        self.patches = sibling("trace_patches")
        self.patches.install()
        if request["as_on"] == "cuda":
            self.patches.dropout_as_on_cuda()
        self.mesh = self.fake_mesh() if request["strategy"] == "fsdp" else None
        torch.cuda._lazy_init = self.guards.no_cuda
        if request["amp"] and request["as_on"] == "cuda":
            self.rules = sibling("trace_amp").as_on_cuda()
        self.function = self.steps.function_named(request["code"])
        self.fake = FakeTensorMode(allow_non_fake_inputs=True)
        self.ledger = self.storages.Ledger()
        self.guard = self.guards.Guard(torch)
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
        with self.fake, self.storages.Counting(self.ledger, self.guard):
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
            raise self.steps.Question("the model has no repeated block to checkpoint")
        if self.mesh is not None:
            with first_chunk_only(self.torch):
                steps.shard(job.model, self.mesh, request["amp"])
        self.now = {name: local(one) for name, one in job.model.named_parameters()}
        name, foreach = request["optimizer"], request["foreach"]
        self.optimizer = steps.optimizer_of(job, name, foreach, before, self.now)
        steps.warm(self.optimizer)
        self.job = job

    def run(self, job: Any, ledger: Any) -> None:
        self.name_what_stands(job, ledger)
        if self.request["accumulate"] > 1:
            self.gradients_of_earlier_batches(job.model, ledger)
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

    def gradients_of_earlier_batches(self, model: Any, ledger: Any) -> None:
        """The last micro-batch of a step adds to gradients that stand since the first."""
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                parameter.grad = self.torch.zeros_like(parameter)
                ledger.label(parameter.grad, "gradients", name)

    def hand_over(self) -> None:
        """The gradients stand: name them, and give those of the shards to the optimizer."""
        for name, parameter in self.job.model.named_parameters():
            if parameter.grad is not None:
                self.ledger.label(parameter.grad, "gradients", name)
                self.now[name].grad = local(parameter.grad)

    def report(self, batch: int, ledger: Any) -> Dict[str, Any]:
        peaks = ledger.peaks()
        top = max(PHASES, key=lambda phase: peaks[phase][0])
        rows = ledger.standing_at(peaks[top][1])
        busy = max(PHASES[:2], key=lambda phase: peaks[phase][0])
        grows = ledger.standing_at(peaks[busy][1])
        trained = [one for one in self.now.values() if one.requires_grad]
        layers = [type(one).__name__ for one in self.job.model.modules()]  # a ViT has a Conv2d
        return {
            "batch": batch,
            "phases": {phase: peaks[phase][0] for phase in PHASES},
            "grows": sum(size for (kind, _), size in grows.items() if kind in GROWS),
            "parameters": sum(one.numel() for one in self.job.model.parameters()),
            "trained_bytes": sum(one.numel() * one.element_size() for one in trained),
            "values_read": self.guard.values_read,
            "compiled": bool(self.patches.compiled[0]),
            "convolves": sum("Conv2d" in one for one in layers) > layers.count("Linear"),
            "peak_phase": top,
            "standing": [
                {"kind": KINDS.get(kind, kind), "module": module, "bytes": size}
                for (kind, module), size in sorted(rows.items(), key=lambda row: -row[1])
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


@contextlib.contextmanager
def first_chunk_only(torch: Any) -> Iterator[None]:
    """While FSDP2 cuts parameters, only this process's piece is cut off: the first.

    The others, one for every GPU, would be tensors that nobody looks at.
    """
    whole = torch.chunk

    def chunk(tensor: Any, chunks: int, dim: int = 0) -> Any:
        length = tensor.shape[dim]
        each = -(-length // chunks)
        return [tensor.narrow(dim, 0, each)] * -(-length // max(each, 1))

    torch.chunk = chunk
    try:
        yield
    finally:
        torch.chunk = whole


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


def third_batch(one: Dict[str, Any], two: Dict[str, Any], limit: Optional[int]) -> Optional[int]:
    """Where the line through two traces meets the limit; None if the second is near enough.

    >>> def said(batch, peak):
    ...     return {"batch": batch, "phases": {"forward": 0, "backward": peak}}
    >>> third_batch(said(1, 100), said(4, 160), 1000), third_batch(said(1, 100), said(4, 160), 165)
    (46, None)
    >>> third_batch(said(10, 100), said(20, 160), 100)  # the first again
    """
    if limit is None:
        return None
    low, high = (max(said["phases"].values()) for said in (one, two))
    slope = (high - low) / (two["batch"] - one["batch"])
    if slope <= 0 or abs(high - limit) <= NEAR * limit:
        return None
    batch = int(two["batch"] + (limit - high) / slope)
    known = (one["batch"], two["batch"])
    return batch if 1 <= batch <= one["batch"] * FARTHEST and batch not in known else None


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
            traces.extend(more_traces(tracer, traces[0], request["limit_bytes"]))
    except Exception as trouble:  # the code of the user may refuse a batch it was not asked about
        problem = "%s: %s" % (type(trouble).__name__, " ".join(str(trouble).split())[:200])
    return {"torch": version, "traces": traces, "refused": problem}


def more_traces(
    tracer: Tracer, first: Dict[str, Any], limit: Optional[int]
) -> Iterator[Dict[str, Any]]:
    """One or two more, that show how memory grows with the batch up to the limit."""
    second = tracer.trace(second_batch(first, limit))
    yield second
    third = third_batch(first, second, limit)
    if third is not None:
        yield tracer.trace(third)


def where(problem: BaseException) -> str:
    """`train.py:12 in forward`: the innermost line that is neither a library's nor ours."""
    frames = traceback.extract_tb(problem.__traceback__)
    own = [one for one in frames if not foreign(one.filename)]
    return (
        "%s:%s in %s" % (os.path.basename(own[-1].filename), own[-1].lineno, own[-1].name)
        if own
        else ""
    )


def foreign(path: str) -> bool:
    library = os.path.dirname(os.__file__)
    return path.startswith((HERE, library, "<")) or "site-packages" in path


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
