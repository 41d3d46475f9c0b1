"""Runs one training step of the user's code on fake tensors and says what memory it takes.

Run by the target interpreter by path, the request as JSON on standard input, the answer as one
line of JSON on standard output (what the user's code prints goes to standard error). Nothing is
computed: the tensors have shapes and no values. No GPU is touched and no connection made.
Python 3.8 syntax.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import traceback
import weakref
from typing import Any, Callable, Dict, Iterator, List, Set

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

HERE = os.path.dirname(os.path.abspath(__file__))
# Python leaves a script's own folder off the path under PYTHONSAFEPATH or `-P`.
if HERE not in sys.path:
    sys.path.insert(0, HERE)

import driver_answers  # type: ignore[import-not-found, unused-ignore]  # noqa: E402
import trace_step as steps  # type: ignore[import-not-found, unused-ignore]  # noqa: E402

OLDEST = (2, 4)
"""The oldest torch that has what is needed here."""
PHASES = ("forward", "backward", "optimizer")
aten: Any = torch.ops.aten


class TouchesGpu(BaseException):
    """The code asked for a device that a trace does not have. No `except Exception` hides it."""


class NoNetwork(OSError):
    """The code asked for a connection."""


# --- counting ------------------------------------------------------------------------------------


class Ledger(TorchDispatchMode):  # type: ignore[misc]
    """While it is entered, it counts the bytes of each storage that an operator makes, until the
    storage is gone."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: Dict[int, int] = {}
        self.state_keys: Set[int] = set()
        """Storages of weights, gradients and optimizer states."""
        self.total = self.states = 0
        self.values_read = 0
        """How often a number was invented."""
        self.peaks: Dict[str, int] = {}
        """Phase -> the most at once."""
        self.transient: Dict[str, int] = {}
        """Phase -> the most at once of all but weights, gradients and optimizer states."""
        self.begin("before")

    def begin(self, phase: str) -> None:
        self.phase = phase
        self.peaks[phase] = self.transient[phase] = 0
        self.count(None)

    def count(self, value: Any, workspace: int = 0) -> None:
        """Count every tensor in `value` that is not known yet, and what came and went with it."""
        for one in tensors_in(value):
            self.key_of(one)
        now = self.total + workspace
        self.peaks[self.phase] = max(self.peaks[self.phase], now)
        self.transient[self.phase] = max(self.transient[self.phase], now - self.states)

    def mark_states(self, value: Any) -> None:
        """The tensors in `value` are weights, gradients or optimizer states."""
        keys = {self.key_of(one) for one in tensors_in(value)} - self.state_keys
        self.state_keys |= keys
        self.states += sum(self.sizes[key] for key in keys)

    def key_of(self, tensor: Any) -> int:
        storage = tensor.untyped_storage()
        key: int = storage._cdata
        if key not in self.sizes:
            self.sizes[key] = storage.nbytes()
            self.total += self.sizes[key]
            weakref.finalize(storage, self.forget, key)
        return key

    def forget(self, key: int) -> None:
        size = self.sizes.pop(key)
        self.total -= size
        self.states -= size * (key in self.state_keys)
        self.state_keys.discard(key)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if any(hasattr(kind, "__tensor_flatten__") for kind in types):
            return NotImplemented  # the wrapper's own tensors come by here next
        device = kwargs.get("device")
        if device is not None and torch.device(device).type not in ("cpu", "meta"):
            raise TouchesGpu("it asks for the device `%s`" % (device,))
        value = self.value_of(args[0]) if func is aten._local_scalar_dense.default else None
        result = func(*args, **kwargs) if value is None else value
        # The kernels bring gradient and input into their own layout (oneDNN: a copy of each, seen
        # in the allocator's events; cuDNN does likewise if it computes in another order).
        convolves = func is aten.convolution_backward.default
        self.count(result, sum(one.nbytes for one in args[:2]) if convolves else 0)
        if func is aten._to_copy.default and isinstance(args[0], nn.Parameter):
            self.mark_states(result)  # autocast's copy of a weight
        return result

    def value_of(self, tensor: Any) -> Any:
        """1.0 for a number with a fraction (a loss that is logged); None: no other is invented.

        A DataLoader draws 0 for its seed and every index. A mask of transformers that asks whether
        the batch is full hears that it is.
        """
        if getattr(tensor, "constant", None) is not None:
            return None
        if tensor.dtype == torch.bool and is_called_from("masking_utils.py"):
            return True
        if not tensor.is_floating_point():
            return 0 if is_called_from("dataloader.py", "sampler.py") else None
        self.values_read += 1
        return 1.0


def tensors_in(value: Any) -> Iterator[Any]:
    return (one for one in tree_iter(value) if isinstance(one, torch.Tensor))


def is_called_from(*names: str) -> bool:
    """Whether a file of such a name is among what runs."""
    frame: Any = sys._getframe(1)
    while frame is not None and os.path.basename(frame.f_code.co_filename) not in names:
        frame = frame.f_back
    return frame is not None


# --- torch without values ------------------------------------------------------------------------

compiled: List[Any] = []
"""What the code asked `torch.compile` for, which a trace leaves out."""


def skip_compile(model: Any = None, *_: Any, **__: Any) -> Any:
    """`torch.compile`, as a function and as a decorator: the model itself."""
    compiled.append(model)
    return (lambda function: function) if model is None else model


def swap_data(one: Any, other: Any) -> None:
    """`torch.utils.swap_tensors`, by which a fake parameter is cast: weak references forbid torch's
    own; the parameter stays the same object."""
    one.data = other.data


def refuse_cuda(*_: Any, **__: Any) -> None:
    raise TouchesGpu("it asks for CUDA")


def prepare() -> None:
    """What ordinary code does before its first step (moving, casting, filling parameters,
    compiling), made to work without values; the child ends with it."""
    module: Any = nn.Module
    torch.utils.swap_tensors = swap_data
    for name in dir(nn.init):
        if name.endswith("_") and not name.startswith("_"):
            setattr(nn.init, name, lambda tensor, *_, **__: tensor)  # there is nothing to fill
    torch.compile = module.compile = skip_compile
    torch.cuda._lazy_init = refuse_cuda


def masks_as_in_training() -> None:
    """transformers makes whole masks for fake tensors, where a training step has none."""
    masks: Any = sys.modules.get("transformers.masking_utils")
    if hasattr(masks, "is_tracing"):
        masks.is_tracing = lambda *_: False


# --- as on CUDA ----------------------------------------------------------------------------------


def dropout_as_on_cuda() -> None:
    """CUDA's dropout keeps a mask of one byte an element, the CPU's one as wide as its input.

    Flash and memory-efficient attention keep the state of the random numbers alone, where the CPU
    would leave them for the form that holds every pair.
    """
    functional: Any = nn.functional
    whole, attend = functional.dropout, functional.scaled_dot_product_attention

    def dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
        if training and not inplace and 0 < p < 1 and input.is_floating_point():
            return torch.native_dropout(input, p, True)[0]
        return whole(input, p, training, inplace)

    def attention(
        query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, *more: Any,
        **named: Any,
    ) -> Any:  # fmt: skip
        return attend(query, key, value, attn_mask, 0.0, *more, **named)

    functional.dropout, functional.scaled_dot_product_attention = dropout, attention
    torch.dropout = lambda input, p, train: dropout(input, p, train)


IN_32_BITS = (
    "acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log2", "log1p",
    "reciprocal", "rsqrt", "sinh", "tan", "pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar",
    "softplus", "layer_norm", "native_layer_norm", "rms_norm", "group_norm", "cosine_similarity",
    "dist", "pdist", "renorm", "logsumexp", "upsample_nearest2d", "upsample_bilinear2d",
    "upsample_bicubic2d", "softmax.int", "log_softmax.int", "cumprod", "cumsum",
    "linalg_vector_norm", "linalg_matrix_norm", "sum", "sum.dim_IntList", "norm.Scalar",
    "norm.ScalarOpt_dim",
)  # fmt: skip
"""What autocast computes in 32 bits on CUDA, and in the smaller dtype on the CPU, which changes
what stands for the backward pass (ATen/autocast_mode.h)."""


def autocast_as_on_cuda() -> Any:
    """Register what this torch has on CUDA alone; it holds as long as the library is kept."""
    library = torch.library.Library("aten", "IMPL")
    known = torch._C._dispatch_get_registrations_for_dispatch_key
    on_cuda_alone = {*known("AutocastCUDA")} - {*known("AutocastCPU")}
    for name in IN_32_BITS:
        if "aten::" + name in on_cuda_alone:
            packet, _, kind = name.partition(".")
            operator = getattr(getattr(aten, packet), kind or "default")
            library.impl(name, in_32_bits(operator), "AutocastCPU")
    return library


def in_32_bits(operator: Any) -> Callable[..., Any]:
    """The operator on 32-bit copies of what it is given, without autocast below it."""
    without = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)

    def wide(value: Any) -> Any:
        half = isinstance(value, torch.Tensor) and value.dtype in steps.DTYPES.values()
        return value.float() if half else value

    def run(*arguments: Any, **keywords: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(without):
            named = {name: wide(one) for name, one in keywords.items()}
            return operator(*map(wide, arguments), **named)

    return run


# --- one trace -----------------------------------------------------------------------------------


def trace_step_at(
    function: Callable[..., Any], batch: int, request: Dict[str, Any]
) -> Dict[str, Any]:
    """What one step with this batch takes, as from the second step on."""
    ledger = Ledger()
    with ledger:
        job = steps.job_for(function, batch)
        masks_as_in_training()
        model = job.model.train()
        if request["checkpointing"] and not steps.checkpoint(model):
            raise steps.Question("the model has no repeated block to checkpoint")
        optimizer = steps.optimizer_of(job, request["optimizer"], foreach=True)
        steps.warm(optimizer)
        trained = [one for one in model.parameters() if one.requires_grad]
        states = [*model.parameters(), *model.buffers(), *optimizer.state.values()]
        ledger.count(job.batch)
        ledger.mark_states(states)
        for one in trained:
            if request["accumulate"] > 1:  # gradients stand since the first micro-batch
                one.grad = torch.zeros_like(one)
                ledger.mark_states(one.grad)
            one.register_post_accumulate_grad_hook(lambda one: ledger.mark_states(one.grad))
        gc.collect()
        saved_bytes: List[int] = []

        def begin(phase: str) -> None:
            saved_bytes.append(ledger.total - ledger.states)
            ledger.begin(phase)

        steps.step(job, steps.autocast("cpu", request["amp"]), begin)
    blocks = [size_of(part.parameters()) for part in steps.blocks(model)]
    layers = [type(one).__name__ for one in model.modules()]  # a ViT has a Conv2d
    return {
        "batch": batch,
        "phases": {phase: ledger.peaks[phase] for phase in PHASES},
        "transient": {phase: ledger.transient[phase] for phase in PHASES},
        "activations": saved_bytes[PHASES.index("backward")],
        "states": size_of(states),
        "gradients": size_of(trained),
        "gathered": size_of(model.parameters()) - sum(blocks) + 2 * max(blocks, default=0),
        "parameters": sum(one.numel() for one in model.parameters()),
        "values_read": ledger.values_read,
        "compiled": bool(compiled),
        "convolves": sum("Conv2d" in one for one in layers) > layers.count("Linear"),
    }


def size_of(value: Any) -> int:
    """Bytes of the tensors in a value; one that is there twice counts once."""
    every = {id(one): one for one in tensors_in(list(value))}
    return sum(one.nbytes for one in every.values())


def answer(request: Dict[str, Any]) -> Dict[str, Any]:
    version = str(torch.__version__)
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST:
        old = "torch %s is too old: a trace needs %d.%d or newer"
        raise steps.Question(old % (version, *OLDEST))
    prepare()
    dropout_as_on_cuda()
    rules = autocast_as_on_cuda() if request["amp"] else None
    function, problem = steps.function_named(request["code"]), None
    with FakeTensorMode(allow_non_fake_inputs=True):
        traces = [trace_step_at(function, request["batch"], request)]
        try:
            if request["line"]:
                traces.append(trace_step_at(function, 2 * request["batch"], request))
        except Exception as trouble:  # code may refuse a batch that it was not asked about
            problem = "%s: %s" % (type(trouble).__name__, " ".join(str(trouble).split())[:200])
    del rules
    return {"torch": version, "traces": traces, "refused": problem}


# --- the program ---------------------------------------------------------------------------------

CONNECTING = {"socket.getaddrinfo": 0, "socket.gethostbyname": 0, "socket.connect": 1}
"""The audit event -> which of its arguments is the address (a text there is a local socket)."""


def refuse_connections(event: str, arguments: Any) -> None:
    """An audit hook: a trace downloads nothing."""
    place = CONNECTING.get(event)
    if place is not None and not (place and isinstance(arguments[place], (str, bytes))):
        raise NoNetwork("a trace makes no connection (%r)" % (arguments[place],))


def where(problem: BaseException) -> str:
    """`train.py:12 in forward`: the innermost line that is neither a library's nor ours."""
    foreign = (HERE, os.path.dirname(os.__file__), "<")
    for frame in reversed(traceback.extract_tb(problem.__traceback__)):
        if not frame.filename.startswith(foreign) and "site-packages" not in frame.filename:
            return "%s:%s in %s" % (os.path.basename(frame.filename), frame.lineno, frame.name)
    return ""


def error_answer(problem: BaseException) -> Dict[str, str]:
    """The answer that says what went wrong."""
    return {
        "problem": type(problem).__name__,
        "message": " ".join(str(problem).split())[:500],
        "where": where(problem),
        "trace": "".join(traceback.format_exception(type(problem), problem, problem.__traceback__)),
    }


def main() -> int:
    request = json.loads(sys.stdin.read())
    driver_answers.separate_output(to=2)
    sys.path[:] = [request["folder"]] + [one for one in sys.path if os.path.abspath(one) != HERE]
    sys.addaudithook(refuse_connections)
    try:
        reply = answer(request)
    except (Exception, TouchesGpu, SystemExit) as problem:
        reply = error_answer(problem)
    driver_answers.say(reply)
    return 1 if "problem" in reply else 0


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    os._exit(code)  # no fake storage is worth taking down in order
