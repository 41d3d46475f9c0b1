"""Runs one training step of the user's code on fake tensors and says what memory it takes.

Run by the target interpreter by path, the request as JSON on standard input, the answer as one
line of JSON on standard output (what the user's code prints goes to standard error). Nothing is
computed: the tensors have shapes and no values. No GPU is touched and no connection made.
Python 3.8 syntax.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
import traceback
from typing import Any, Callable, Dict, Iterator, Optional

HERE = os.path.dirname(os.path.abspath(__file__))
OLDEST = (2, 4)
"""The oldest torch whose fake tensors and storages do what is needed here."""
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


class TouchesGpu(BaseException):
    """The code asked for a device that a trace does not have. No `except Exception` hides it."""


class NoNetwork(OSError):
    """The code asked for a connection."""


class Problem(Exception):
    """What ends the trace: its kind, and the message."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def sibling(name: str) -> Any:
    """A file of this folder as a module, without this folder on the search path."""
    spec = importlib.util.spec_from_file_location(
        "gpusetup_" + name, os.path.join(HERE, name + ".py")
    )
    if spec is None or spec.loader is None:
        raise ImportError(name)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


# --- what the code may not do ------------------------------------------------------------------


def no_connections(event: str, arguments: Any) -> None:
    """An audit hook: a trace downloads nothing."""
    if event == "socket.getaddrinfo" or (
        event == "socket.connect" and not isinstance(arguments[1], (str, bytes))
    ):
        raise NoNetwork(
            "a trace makes no connection (%r)"
            % (arguments[1 if event != "socket.getaddrinfo" else 0],)
        )


def no_cuda(*_: Any, **__: Any) -> None:
    raise TouchesGpu("it asks for CUDA")


class Guard:
    """Asked before each operator: a GPU is refused, a value that is asked for is invented."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.values_read = 0
        """How often a number was invented."""

    def __call__(self, function: Any, arguments: Any, keywords: Dict[str, Any]) -> Any:
        device = keywords.get("device")
        if device is not None and self.torch.device(device).type not in ("cpu", "meta"):
            raise TouchesGpu("it asks for the device `%s`" % (device,))
        if function is self.torch.ops.aten._local_scalar_dense.default:
            return self.value_of(arguments[0])
        return None

    def value_of(self, tensor: Any) -> Any:
        """1.0 for a number with a fraction (a loss that is logged); None: no other is invented.

        A mask of transformers that asks whether the batch is full hears that it is.
        """
        if getattr(tensor, "constant", None) is not None:
            return None
        if tensor.dtype == self.torch.bool and asked_by("masking_utils.py"):
            return True
        if not tensor.is_floating_point():
            return None
        self.values_read += 1
        return 1.0


def asked_by(name: str) -> bool:
    """Whether the nearest caller outside torch is a file of this name."""
    frame: Any = sys._getframe(1)
    inner = (HERE, os.path.dirname(sys.modules["torch"].__file__ or ""))
    while frame is not None and frame.f_code.co_filename.startswith(inner):
        frame = frame.f_back
    return frame is not None and os.path.basename(frame.f_code.co_filename) == name


def masks_as_in_training() -> None:
    """transformers makes whole masks for fake tensors, where a training step has none."""
    masks: Any = sys.modules.get("transformers.masking_utils")
    if hasattr(masks, "is_tracing"):
        masks.is_tracing = lambda *_: False


# --- the user's function -----------------------------------------------------------------------


def function_named(code: str) -> Callable[..., Any]:
    """The function of `MODULE:FUNCTION`; MODULE may be the path of a file."""
    place, _, name = code.rpartition(":")
    module = module_named(place)
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise Problem("question", "`%s` has no `%s`%s" % (place, name, nearest(part, found)))
        found = getattr(found, part)
    if not callable(found):
        raise Problem("question", "`%s` in `%s` is no function" % (name, place))
    return found  # type: ignore[no-any-return]


def module_named(place: str) -> Any:
    if place.endswith(".py"):
        if not os.path.isfile(place):
            raise Problem("question", "there is no file `%s`" % place)
        sys.path.insert(0, os.path.dirname(os.path.abspath(place)))
        place = os.path.splitext(os.path.basename(place))[0]
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as problem:
        if problem.name and (place + ".").startswith(problem.name + "."):
            raise Problem("question", "there is no module `%s`" % place) from problem
        raise


def nearest(name: str, module: Any) -> str:
    """`; it has ...`: the names that look most like it."""
    import difflib

    own = (
        [one for one in vars(module) if not one.startswith("_")]
        if hasattr(module, "__dict__")
        else []
    )
    close = difflib.get_close_matches(name, own, 3, 0.5)
    return "; it has %s" % ", ".join("`%s`" % one for one in close) if close else ""


# --- one trace ---------------------------------------------------------------------------------


class Tracer:
    """Traces the step of one function; everything that does not depend on the batch."""

    def __init__(self, request: Dict[str, Any]) -> None:
        import torch

        self.torch = torch
        self.request = request
        self.storages = sibling("trace_storages")
        self.steps = sibling("trace_step")
        self.mesh = self.fake_mesh() if request["strategy"] == "fsdp" else None
        torch.cuda._lazy_init = no_cuda
        if request["amp"] and request["as_on"] == "cuda":
            self.rules = sibling("trace_amp").as_on_cuda()
        self.function = function_named(request["code"])

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
        from torch._subclasses.fake_tensor import FakeTensorMode

        ledger, guard = self.storages.Ledger(), Guard(self.torch)
        with FakeTensorMode(allow_non_fake_inputs=True), self.storages.Counting(ledger, guard):
            job = self.steps.made(self.function, batch)
            masks_as_in_training()
            self.run(job, ledger)
            trained = [one for one in job.model.parameters() if one.requires_grad]
            said = self.report(batch, ledger)
            said["parameters"] = sum(one.numel() for one in job.model.parameters())
            said["trained_bytes"] = sum(one.numel() * one.element_size() for one in trained)
            said["values_read"] = guard.values_read
        return said

    def run(self, job: Any, ledger: Any) -> None:
        steps, request = self.steps, self.request
        before = steps.names_of(job.model)
        job.model.train()
        if request["checkpointing"] and not steps.checkpoint(job.model):
            raise Problem("question", "the model has no repeated block to checkpoint")
        if self.mesh is not None:
            steps.shard(job.model, self.mesh, request["amp"])
        optimizer = steps.optimizer_of(job, request["optimizer"], request["foreach"], before)
        steps.warm(optimizer)
        self.name_what_stands(job, optimizer, ledger)
        with self.storages.following(job.model, ledger):
            amp = None if self.mesh is not None else request["amp"]
            steps.step(job, optimizer, amp, ledger.begin, lambda: self.name_gradients(job, ledger))
        ledger.begin("after")
        self.name_what_stands(job, optimizer, ledger)

    def name_what_stands(self, job: Any, optimizer: Any, ledger: Any) -> None:
        ledger.label(job.batch, "batch")
        for name, buffer in job.model.named_buffers():
            ledger.label(buffer, "parameters", name)
        for name, parameter in job.model.named_parameters():
            ledger.label(parameter, "parameters", name)
            ledger.label(optimizer.state.get(parameter, {}), "optimizer", name)

    def name_gradients(self, job: Any, ledger: Any) -> None:
        for name, parameter in job.model.named_parameters():
            if parameter.grad is not None:
                ledger.label(parameter.grad, "gradients", name)

    def report(self, batch: int, ledger: Any) -> Dict[str, Any]:
        peaks = ledger.peaks()
        top = max(PHASES, key=lambda phase: peaks[phase][0])
        rows = ledger.standing_at(peaks[top][1])
        busy = max(PHASES[:2], key=lambda phase: peaks[phase][0])
        grows = ledger.standing_at(peaks[busy][1])
        return {
            "batch": batch,
            "phases": {phase: peaks[phase][0] for phase in PHASES},
            "grows": sum(size for (kind, _), size in grows.items() if kind in GROWS),
            "peak_phase": top,
            "standing": [
                {"kind": KINDS.get(kind, kind), "module": module, "bytes": size}
                for (kind, module), size in sorted(rows.items(), key=lambda row: -row[1])
            ],
        }


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
    """Where the line through two traces meets the limit; None where the second is near enough.

    >>> def said(batch, peak):
    ...     return {"batch": batch, "phases": {"forward": 0, "backward": peak}}
    >>> third_batch(said(1, 100), said(4, 160), 1000), third_batch(said(1, 100), said(4, 160), 165)
    (46, None)
    """
    if limit is None:
        return None
    low, high = (max(said["phases"].values()) for said in (one, two))
    slope = (high - low) / (two["batch"] - one["batch"])
    if slope <= 0 or abs(high - limit) <= NEAR * limit:
        return None
    batch = int(two["batch"] + (limit - high) / slope)
    return batch if 1 <= batch <= one["batch"] * FARTHEST and batch != two["batch"] else None


# --- the program -------------------------------------------------------------------------------


def answer(request: Dict[str, Any]) -> Dict[str, Any]:
    import torch

    version = str(torch.__version__)
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST:
        raise Problem(
            "question", "torch %s is too old: a trace needs %d.%d or newer" % (version, *OLDEST)
        )
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
    kind = getattr(problem, "kind", type(problem).__name__)
    if isinstance(problem, TouchesGpu):
        kind = "gpu"
    return {
        "problem": kind,
        "message": " ".join(str(problem).split())[:500],
        "where": where(problem),
        "trace": "".join(traceback.format_exception(type(problem), problem, problem.__traceback__)),
    }


def main() -> int:
    request = json.loads(sys.stdin.read())
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    sys.path[:] = [request["folder"]] + [one for one in sys.path if os.path.abspath(one) != HERE]
    sys.addaudithook(no_connections)
    try:
        said: Dict[str, Any] = answer(request)
    except (Exception, TouchesGpu, SystemExit) as problem:
        said = told(problem)
    out.write(json.dumps(said) + "\n")
    out.close()
    return 1 if "problem" in said else 0


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    os._exit(code)  # no fake storage is worth taking down in order
