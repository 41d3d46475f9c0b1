"""Runs one training step of the user's code on fake tensors and reports how much memory it needs.

The target interpreter runs it by path. The request comes as JSON on standard input, and the answer
goes to standard output as one line of JSON (what the user's code prints goes to standard error).
Nothing is computed, because the tensors have shapes but no values. The script uses no GPU and opens
no connection. Python 3.8 syntax.
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
# With PYTHONSAFEPATH or `-P`, Python leaves a script's own folder off the path.
if HERE not in sys.path:
    sys.path.insert(0, HERE)

import as_on_cuda  # type: ignore[import-not-found, unused-ignore]  # noqa: E402
import driver_answers  # type: ignore[import-not-found, unused-ignore]  # noqa: E402
import trace_step as steps  # type: ignore[import-not-found, unused-ignore]  # noqa: E402

OLDEST = (2, 4)
"""The oldest torch that has the functions needed here."""
PHASES = ("forward", "backward", "optimizer")
aten: Any = torch.ops.aten


class TouchesGpu(BaseException):
    """The code requested a device that a trace does not have. This class is not an `Exception`, so
    that the user's code does not catch it."""


class NoNetwork(OSError):
    """The code tried to open a network connection."""


# --- counting ------------------------------------------------------------------------------------


class Ledger(TorchDispatchMode):  # type: ignore[misc]
    """A context manager that counts the bytes of each storage, from the operator that creates it
    until it is freed."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: Dict[int, int] = {}
        self.state_keys: Set[int] = set()
        """The keys of the storages of weights, gradients and optimizer states."""
        self.total = self.states = 0
        self.values_read = 0
        """How many times a value was made up because the code read one."""
        self.peaks: Dict[str, int] = {}
        """Phase -> the most bytes at any moment."""
        self.transient: Dict[str, int] = {}
        """Phase -> the most bytes at any moment, without weights, gradients and optimizer states.
        """
        self.begin("before")

    def begin(self, phase: str) -> None:
        """Begin a phase; peaks are counted from now on."""
        self.phase = phase
        self.peaks[phase] = 0
        self.transient[phase] = 0
        # Tensors that already exist count in this phase too.
        self.count(None)

    def count(self, value: Any, workspace: int = 0) -> None:
        """Count every new tensor in `value`, and `workspace` bytes that were in use only while the
        operator ran."""
        for tensor in tensors_in(value):
            self.key_of(tensor)
        phase = self.phase
        all_bytes = self.total + workspace
        # Count everything except weights, gradients and optimizer states.
        transient_bytes = all_bytes - self.states
        self.peaks[phase] = max(self.peaks[phase], all_bytes)
        self.transient[phase] = max(self.transient[phase], transient_bytes)

    def mark_states(self, value: Any) -> None:
        """Record that the tensors in `value` are weights, gradients or optimizer states."""
        for tensor in tensors_in(value):
            key = self.key_of(tensor)
            # Two tensors may share a storage, which must count only once.
            if key not in self.state_keys:
                self.state_keys.add(key)
                self.states += self.sizes[key]

    def key_of(self, tensor: Any) -> int:
        """The key of a tensor's storage. The storage counts from now on until it is freed."""
        storage = tensor.untyped_storage()
        key: int = storage._cdata
        if key not in self.sizes:
            size = storage.nbytes()
            self.sizes[key] = size
            self.total += size
            # We hold no reference to the storage, which would keep it alive.
            weakref.finalize(storage, self.forget, key)
        return key

    def forget(self, key: int) -> None:
        """Remove a storage that was freed, because a new one may get the same key."""
        size = self.sizes.pop(key)
        self.total -= size
        if key in self.state_keys:
            self.states -= size
            self.state_keys.discard(key)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if any(hasattr(kind, "__tensor_flatten__") for kind in types):
            return NotImplemented  # torch calls us again for the wrapped tensors
        refuse_other_device(kwargs.get("device"))
        value = None
        # `.item()` reads the number in a tensor, but fake tensors have no values.
        if func is aten._local_scalar_dense.default:
            value = self.value_of(args[0])
        result = func(*args, **kwargs) if value is None else value
        workspace = 0
        # The kernels copy gradient and input into a layout of their own. (oneDNN copies both, as
        # the allocator's events show. cuDNN does the same if it computes in another order.)
        if func is aten.convolution_backward.default:
            gradient, input = args[:2]
            workspace = gradient.nbytes + input.nbytes
        self.count(result, workspace)
        if func is aten._to_copy.default and isinstance(args[0], nn.Parameter):
            self.mark_states(result)  # autocast's copy of a weight
        return result

    def value_of(self, tensor: Any) -> Any:
        """Returns 1.0 for a floating-point number, for example a loss that is logged, and None for
        other values, because we do not make those up. There are two exceptions.

        A DataLoader gets 0 for its seed and for every index. Transformers' code for masks, which
        checks whether the batch has no padding, gets True.
        """
        if getattr(tensor, "constant", None) is not None:
            return None
        if tensor.dtype == torch.bool and is_called_from(MASKS_FILE):
            return True
        if not tensor.is_floating_point():
            draws_samples = is_called_from(*LOADER_FILES)
            return 0 if draws_samples else None
        self.values_read += 1
        return 1.0


MASKS_FILE = "masking_utils.py"
"""The file of transformers that creates masks."""


LOADER_FILES = ("dataloader.py", "sampler.py")
"""The files of torch.utils.data that draw samples."""


def refuse_other_device(device: Any) -> None:
    """Raise TouchesGpu for a device other than the CPU or `meta`. None means the default device."""
    if device is None:
        return
    # Tensors on `meta` are allowed: they have no values, and a trace needs none.
    if torch.device(device).type not in ("cpu", "meta"):
        raise TouchesGpu("it asks for the device `%s`" % (device,))


def tensors_in(value: Any) -> Iterator[Any]:
    """All tensors in nested containers of the kinds that torch supports."""
    for leaf in tree_iter(value):
        # Containers may also contain numbers and names.
        if isinstance(leaf, torch.Tensor):
            yield leaf


def is_called_from(*names: str) -> bool:
    """Whether a file with this name is on the call stack."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        path = frame.f_code.co_filename
        # Compare only the name, because the folder differs between environments.
        if os.path.basename(path) in names:
            return True
        frame = frame.f_back
    return False


# --- torch functions replaced for fake tensors ---------------------------------------------------

compiled: List[Any] = []
"""Calls to `torch.compile`, which a trace skips."""


def skip_compile(model: Any = None, *_: Any, **__: Any) -> Any:
    """A replacement for `torch.compile`, as a function or a decorator, that returns the model
    unchanged."""
    compiled.append(model)
    if model is not None:
        return model
    # With `@torch.compile(mode=...)`, the result is called with the function to decorate.
    return lambda function: function


def swap_data(one: Any, other: Any) -> None:
    """A replacement for `torch.utils.swap_tensors`, which torch uses to cast parameters. torch's
    own fails for fake parameters, because they have weak references. Here the parameter stays the
    same object."""
    # The caller throws the other tensor away, so copying its data is enough.
    cast_data = other.data
    one.data = cast_data


def refuse_cuda(*_: Any, **__: Any) -> None:
    raise TouchesGpu("it asks for CUDA")


def prepare() -> None:
    """Make the usual steps before training (moving, casting, filling parameters, compiling) work
    without values. The changes last until the child process ends."""
    module: Any = nn.Module
    torch.utils.swap_tensors = swap_data
    for name in dir(nn.init):
        is_public = not name.startswith("_")
        # `nn.init.normal_` and similar functions write into their tensor.
        if is_public and name.endswith("_"):
            setattr(
                nn.init, name, lambda tensor, *_, **__: tensor
            )  # there are no values to fill in
    torch.compile = skip_compile
    module.compile = skip_compile
    torch.cuda._lazy_init = refuse_cuda


def masks_as_in_training() -> None:
    """Let transformers create the same masks as in a real training step. For fake tensors it would
    create full masks."""
    masks: Any = sys.modules.get("transformers.masking_utils")
    # Other code, and older transformers, do not have this function.
    if hasattr(masks, "is_tracing"):
        masks.is_tracing = lambda *_: False


# --- one trace -----------------------------------------------------------------------------------


class Prepared:
    """A job whose optimizer states exist already, as in every step but the first."""

    def __init__(self, job: Any, ledger: Ledger, request: Dict[str, Any]) -> None:
        self.job = job
        self.ledger = ledger
        model = job.model.train()
        if request["checkpointing"] and not steps.checkpoint(model):
            raise steps.NoSuchFunction("the model has no repeated block to checkpoint")
        optimizer = steps.optimizer_of(job, request["optimizer"], foreach=True)
        steps.warm(optimizer)
        self.model = model
        self.trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.states = [*model.parameters(), *model.buffers(), *optimizer.state.values()]
        ledger.count(job.batch)
        ledger.mark_states(self.states)
        for parameter in self.trained:
            parameter.register_post_accumulate_grad_hook(self.mark_gradient)

    def mark_gradient(self, parameter: Any) -> None:
        """Record that the backward pass created a gradient."""
        gradient = parameter.grad
        # A gradient is a state, not an activation.
        self.ledger.mark_states(gradient)


def trace_step_at(
    function: Callable[..., Any], batch: int, request: Dict[str, Any]
) -> Dict[str, Any]:
    """The memory that a step with this batch size needs, from the second step on."""
    ledger = Ledger()
    with ledger:
        job = steps.job_for(function, batch)
        masks_as_in_training()
        prepared = Prepared(job, ledger, request)
        gc.collect()
        saved_bytes: List[int] = []

        def begin(phase: str) -> None:
            # Tensors that exist between two phases are kept for the backward pass.
            kept_bytes = ledger.total - ledger.states
            saved_bytes.append(kept_bytes)
            ledger.begin(phase)

        steps.step(job, steps.autocast("cpu", request["amp"]), begin)
    backward_begins = PHASES.index("backward")
    model = prepared.model
    return {
        "batch": batch,
        "phases": {phase: ledger.peaks[phase] for phase in PHASES},
        "transient": {phase: ledger.transient[phase] for phase in PHASES},
        "activations": saved_bytes[backward_begins],
        "states": size_of(prepared.states),
        "gradients": size_of(prepared.trained),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "values_read": ledger.values_read,
        "compiled": bool(compiled),
        "convolves": convolves(model),
    }


def convolves(model: Any) -> bool:
    """Whether most of the layers are convolutions, unlike in a vision transformer, which has only
    one."""
    names = [type(module).__name__ for module in model.modules()]
    # Libraries have their own classes, such as Conv2dSame and LazyConv2d.
    convolutions = [name for name in names if "Conv2d" in name]
    return len(convolutions) > names.count("Linear")


def size_of(value: Any) -> int:
    """The total bytes of the tensors in a value; a tensor that occurs twice counts once."""
    tensors = list(tensors_in(list(value)))
    distinct = {id(tensor): tensor for tensor in tensors}
    # Tied weights are the same tensor.
    sizes = [tensor.nbytes for tensor in distinct.values()]
    return sum(sizes)


MOST_LETTERS = 200
"""The greatest length, in characters, of the reason why the code refused another batch size."""


def answer(request: Dict[str, Any]) -> Dict[str, Any]:
    """Trace a step with the requested batch size and, if requested, a step with twice that size."""
    version = str(torch.__version__)
    release = tuple(int(part) for part in version.split(".")[:2])
    if release < OLDEST:
        sentence = "torch %s is too old: a trace needs %d.%d or newer"
        raise steps.NoSuchFunction(sentence % (version, *OLDEST))
    prepare()
    as_on_cuda.dropout()
    rules = as_on_cuda.autocast() if request["amp"] else None
    function = steps.function_named(request["code"])
    problem = None
    batch = request["batch"]
    with FakeTensorMode(allow_non_fake_inputs=True):
        traces = [trace_step_at(function, batch, request)]
        try:
            if request["line"]:
                traces.append(trace_step_at(function, 2 * batch, request))
        except (
            Exception
        ) as trouble:  # the code may refuse a batch size that the user did not request
            words = " ".join(str(trouble).split())
            problem = "%s: %s" % (type(trouble).__name__, words[:MOST_LETTERS])
    del rules
    return {"torch": version, "traces": traces, "refused": problem}


# --- the program ---------------------------------------------------------------------------------

CONNECTING = {"socket.getaddrinfo": 0, "socket.gethostbyname": 0, "socket.connect": 1}
"""Audit event -> the index of its address argument (an address that is a string belongs to a local
socket)."""


def refuse_connections(event: str, arguments: Any) -> None:
    """An audit hook that blocks connections, so that a trace cannot download anything."""
    index = CONNECTING.get(event)
    if index is None:
        return
    address = arguments[index]
    # If the address is a string, `connect` opens a socket on this machine.
    is_local = event == "socket.connect" and isinstance(address, (str, bytes))
    if not is_local:
        raise NoNetwork("a trace makes no connection (%r)" % (address,))


def where(problem: BaseException) -> str:
    """The innermost line that is neither in a library nor in our files, such as `train.py:12 in
    forward`."""
    standard_library = os.path.dirname(os.__file__)
    foreign = (HERE, standard_library, "<")
    frames = traceback.extract_tb(problem.__traceback__)
    for frame in reversed(frames):
        is_foreign = frame.filename.startswith(foreign)
        if is_foreign or "site-packages" in frame.filename:
            continue
        file = os.path.basename(frame.filename)
        return "%s:%s in %s" % (file, frame.lineno, frame.name)
    return ""


LONGEST_MESSAGE = 500
"""The greatest length of an error message, in characters; torch's messages on fake tensors fill
pages."""


def error_answer(problem: BaseException) -> Dict[str, str]:
    """The answer that says what went wrong."""
    kind = type(problem)
    message = " ".join(str(problem).split())
    trace = traceback.format_exception(kind, problem, problem.__traceback__)
    return {
        "problem": kind.__name__,
        "message": message[:LONGEST_MESSAGE],
        "where": where(problem),
        "trace": "".join(trace),
    }


def main() -> int:
    """Read the request from standard input, and print the answer."""
    request = json.loads(sys.stdin.read())
    driver_answers.separate_output(to=2)
    # Remove our folder, so that the user's code cannot import our files by their short names.
    others = [folder for folder in sys.path if os.path.abspath(folder) != HERE]
    sys.path[:] = [request["folder"], *others]
    sys.addaudithook(refuse_connections)
    try:
        reply = answer(request)
    except (Exception, TouchesGpu, SystemExit) as problem:
        reply = error_answer(problem)
    driver_answers.say(reply)
    has_failed = "problem" in reply
    return 1 if has_failed else 0


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    os._exit(code)  # exit at once, because cleaning up fake storages is useless
