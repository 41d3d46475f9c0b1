"""Checks of what a training program needs besides arithmetic: torch.compile, the data loader and
checkpoint files."""

from __future__ import annotations

import os
import re
import shutil
import sysconfig
import tempfile
from typing import Any, Dict, Iterator, List, Optional, Tuple

import torch

from ..device.importing import first_line
from ..judging.answers import generator, normal
from ..judging.tolerance import Comparison, agree, holds, outcome_of, same
from ..values import FAILED, SKIPPED, Outcome, sticky

NO_COMPILER = (
    "no C compiler",
    "`apt install g++` (Debian, Ubuntu), `dnf install gcc-c++` (Fedora), or set CXX",
)
NO_MSVC = (
    "no C compiler",
    "install the Visual C++ build tools, and start from their command prompt",
)
NO_TRITON = ("Triton is not installed", "install the Triton of this torch")
NO_HEADERS = ("Python's headers are missing", "`apt install python3-dev`")
OTHER_PYTHON = ("this torch compiles nothing under this Python", "a newer torch")
MISSING: Dict[str, Tuple[str, str]] = {
    "InvalidCxxCompiler|No working C.. compiler|Failed to find C compiler": NO_COMPILER,
    "Compiler: cl is not found": NO_MSVC,
    "TritonMissing|Cannot find a working triton|No module named 'triton'": NO_TRITON,
    "No module named 'setuptools'": (
        "setuptools is missing, which this torch needs",
        "`python -m pip install setuptools`",
    ),
    r"GPUTooOldForTriton|too old to be supported by the triton|'sm_[1-6]\da?' is not defined": (
        "this GPU is too old for Triton",
        "compile nothing on it",
    ),
    r"Python\.h": NO_HEADERS,
    "not supported on Python|Dynamo is not supported": OTHER_PYTHON,
    "Windows not yet supported": ("this torch compiles nothing on Windows", "a newer torch"),
}
"""A pattern of the error message -> why compiling cannot be tested here, and what would change it.
"""


def compiled(device: str) -> Outcome:
    """`torch.compile` builds a kernel that gives the same results and gradients."""
    if not hasattr(torch, "compile"):
        return Outcome(SKIPPED, f"torch {torch.__version__} has no torch.compile")
    try:
        return outcome_of(list(fused_block(device)), "the same uncompiled")
    except Exception as problem:  # the compilers raise many types of errors
        skipped = what_is_missing(problem)
        if skipped is None:
            raise
        return skipped


def what_is_missing(problem: Exception) -> Optional[Outcome]:
    """The skipped outcome if torch.compile failed because something that it needs is missing; None
    for other errors."""
    message = f"{type(problem).__name__} {problem}"
    for pattern, (reason, hint) in MISSING.items():
        if re.search(pattern, message):
            return Outcome(SKIPPED, reason, hint=hint)
    headers = os.path.join(sysconfig.get_path("include"), "Python.h")
    # If Python's headers are missing, the compiler that Triton runs says so only on the terminal,
    # not in the exception.
    if "non-zero exit status" in message and not os.path.isfile(headers):
        reason, hint = NO_HEADERS
        return Outcome(SKIPPED, reason, hint=hint)
    return None


FUSED_ERROR = 2.0**-15
"""The relative error allowed in a sum of 300 terms, a multiple of the unit roundoff."""


def fused_block(device: str) -> Iterator[Comparison]:
    """A compiled block of several layers, and its gradients, beside float64 on the CPU."""
    # A check that compiles nothing need not load the compiler.
    from torch._dynamo.utils import counters

    def block(x: Any, scale: Any) -> Any:
        y = torch.nn.functional.gelu(x * scale + 1)
        return (y.softmax(-1) * x).sum(-1) + y.mean(-1).tanh()

    def with_gradients(run: Any, inputs: List[Any]) -> List[Any]:
        # Make new leaf tensors, so that the gradients of each run are separate.
        leaves = [x.detach().requires_grad_() for x in inputs]
        outputs = run(*leaves)
        gradients = torch.autograd.grad(outputs.sum(), leaves)
        return [outputs, *gradients]

    # torch would reuse a kernel from an earlier check instead of compiling it again.
    torch._dynamo.reset()
    graphs_before = int(counters["stats"]["unique_graphs"])
    inputs = [normal("cpu", 300, 70, salt="block"), normal("cpu", 70, salt="scale")]
    exact_tensors = with_gradients(block, [x.double() for x in inputs])
    compiled_block = torch.compile(block, dynamic=False)
    tensors = with_gradients(compiled_block, [x.to(device) for x in inputs])
    for computed, exact in zip(tensors, exact_tensors):
        # Numbers near zero are sums of larger numbers, so their error is as large as the error of a
        # typical number.
        size = exact.abs() + exact.square().mean().sqrt()
        yield agree("fused", computed, exact, FUSED_ERROR * size)
    has_compiled = int(counters["stats"]["unique_graphs"]) > graphs_before
    yield holds("compiled", has_compiled, "torch compiled nothing: the model ran uncompiled")


BATCH = 32
ITEMS = 1003
"""The size of the dataset. It is not a multiple of BATCH, so the last batch is not full."""
SMALL_SHM = "/dev/shm is too small: `docker run --shm-size=8g`, in Kubernetes an emptyDir there"


class Rows:
    """A dataset whose items contain their number."""

    def __len__(self) -> int:
        return ITEMS

    def __getitem__(self, index: int) -> Any:
        return torch.arange(8) + 8 * index


def dataloader(device: str) -> Outcome:
    """A DataLoader with workers returns every item exactly once, complete and in order. Workers
    that hang, or are killed for lack of shared memory, show."""

    def rows_of(shuffle: bool) -> Any:
        """All items in the order in which they arrive, moved to the device batch by batch."""
        loader: Any = torch.utils.data.DataLoader(
            Rows(),
            BATCH,
            shuffle=shuffle,
            num_workers=2,
            pin_memory=device.startswith("cuda"),
            # A worker starts in seconds, even on a busy machine.
            timeout=45,
            generator=generator("loader"),
        )
        return torch.cat([batch.to(device, non_blocking=True) for batch in loader]).cpu()

    # The workers' sockets lie in the temporary folder. Without one, the workers hang; this raises.
    tempfile.gettempdir()
    try:
        ordered, shuffled = rows_of(shuffle=False), rows_of(shuffle=True)
    except (RuntimeError, OSError) as problem:
        # Workers pass their batches through files in /dev/shm.
        if any(words in str(problem) for words in ("shared memory", "Bus error", "No space left")):
            detail = f"a worker was killed: {first_line(problem)}"
            return Outcome(FAILED, detail, hint=SMALL_SHM)
        hint = "num_workers=0 works without worker processes"
        return Outcome(FAILED, first_line(problem), hint=hint, spent=sticky(problem))
    all_rows = torch.arange(8 * ITEMS).view(ITEMS, 8)
    parts = [
        same("rows in order", ordered, all_rows),
        same("mixed, each once", shuffled[shuffled[:, 0].argsort()], all_rows),
        holds("mixed", not torch.equal(shuffled, all_rows), "the items come unshuffled"),
    ]
    return outcome_of(parts, "the data that went in")


FORMATS = ("float64", "float32", "float16", "bfloat16", "int64", "int32", "uint8", "bool")
LARGE = 5_000_011
"""The number of elements of the large tensor, about 40 MB."""


def save_load(device: str) -> Outcome:
    """Tensors saved from the device load again bit for bit, on the host and on the device."""
    state = state_to_save(device)
    parts: List[Comparison] = []
    folder = tempfile.mkdtemp(prefix="verify-")
    try:
        path = os.path.join(folder, "state.pt")
        torch.save({"state": state, "step": 17}, path)
        # If the device is the CPU, both targets are the same.
        for target in dict.fromkeys(("cpu", device)):
            loaded = torch.load(path, map_location=target, weights_only=True)
            has_all = set(loaded["state"]) == set(state) and loaded["step"] == 17
            parts.append(holds(f"keys on {target}", has_all, "names are missing"))
            for name, tensor in loaded["state"].items():
                parts.append(holds(f"device of {name}", str(tensor.device) == target, "another"))
                parts.append(same(f"{name} on {target}", tensor, state[name]))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return outcome_of(parts, "what was saved, every bit")


def state_to_save(device: str) -> Dict[str, Any]:
    """For each format a whole tensor and views that share its memory, and one large tensor."""
    values = normal(device, 64, 33, salt="state").mul(100)
    state = {}
    for name in FORMATS:
        whole = values.to(getattr(torch, name))
        state[name] = whole
        state[f"{name} from a row on"] = whole[3:]
        state[f"{name} in steps"] = whole.t()[5::2, 1:-1:3]
    state["large"] = torch.arange(LARGE, dtype=torch.int64).mul_(2_654_435_761).to(device)
    return state
