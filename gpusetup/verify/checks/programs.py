"""What a training program is made of besides arithmetic: compile, loader, files."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import sysconfig
import tempfile
from typing import Any, Dict, Iterator, List, Tuple

from ..device.importing import first_line
from ..judging.tolerance import Part, agree, holds, judged, numbers, same, source, summed
from ..values import FAILED, SKIPPED, Outcome, sticky

NO_COMPILER = "`apt install g++` (Debian, Ubuntu), `dnf install gcc-c++` (Fedora), or set CXX"
NO_MSVC = "install the Visual C++ build tools, and start from their command prompt"
SETUPTOOLS = "`python -m pip install setuptools`"
CANNOT: Tuple[Tuple[str, str, str], ...] = (
    ("InvalidCxxCompiler", "no C compiler", NO_COMPILER),
    ("No working C++ compiler", "no C compiler", NO_COMPILER),
    ("Failed to find C compiler", "no C compiler", NO_COMPILER),
    ("Compiler: cl is not found", "no C compiler", NO_MSVC),
    ("TritonMissing", "Triton is not installed", "install the Triton of this torch"),
    ("Cannot find a working triton", "Triton is not installed", "install the Triton of this torch"),
    ("No module named 'triton'", "Triton is not installed", "install the Triton of this torch"),
    ("No module named 'setuptools'", "setuptools is missing, which this torch needs", SETUPTOOLS),
    ("GPUTooOldForTriton", "this GPU is too old for Triton", "compile nothing on it"),
    ("too old to be supported by the triton", "this GPU is too old for Triton", "compile nothing"),
    ("Python.h", "Python's headers are missing", "`apt install python3-dev`"),
    ("not supported on Python", "this torch compiles nothing under this Python", "a newer torch"),
    ("Dynamo is not supported", "this torch compiles nothing under this Python", "a newer torch"),
    ("Windows not yet supported", "this torch compiles nothing on Windows", "a newer torch"),
)
"""Words of an error -> why compiling cannot be tried here, and what would change that."""


def compiled(device: str) -> Outcome:
    """`torch.compile` builds a kernel that computes what the same code computes uncompiled."""
    import torch

    if not hasattr(torch, "compile"):
        return Outcome(SKIPPED, f"torch {torch.__version__} has no torch.compile")
    if device == "cpu" and not has_compiler():
        return Outcome(SKIPPED, "no C compiler", hint=NO_MSVC if os.name == "nt" else NO_COMPILER)
    try:
        parts = [*_compiled(torch, device), *_recompiled(torch, device)]
        return judged(parts, "the same uncompiled")
    except Exception as problem:  # the compilers raise their own kinds
        return _uncompiled(problem)


def has_compiler() -> bool:
    """Whether a C++ compiler can be found as torch looks for it."""
    names = ("cl",) if os.name == "nt" else ("g++", "clang++")
    named = os.environ.get("CXX")
    return any(shutil.which(name) for name in ((named,) if named else names))


def has_headers() -> bool:
    """Whether this Python's headers are there, which Triton's launchers include."""
    return os.path.isfile(os.path.join(sysconfig.get_path("include"), "Python.h"))


NO_SUCH_GPU = re.compile(r"Value 'sm_(\d+)a?' is not defined for option 'gpu-name'")
"""What ptxas says of a GPU that it does not know: one that went, or one that came after it."""
TRITON_FROM = 70
PTXAS = "`TRITON_PTXAS_PATH=/usr/local/cuda/bin/ptxas` (of a newer CUDA), or a newer Triton"


def _uncompiled(problem: BaseException) -> Outcome:
    said = f"{type(problem).__name__} {problem}"
    unknown = NO_SUCH_GPU.search(said)
    if unknown and int(unknown.group(1)) >= TRITON_FROM:
        return Outcome(FAILED, f"this Triton does not know sm_{unknown.group(1)} yet", hint=PTXAS)
    if unknown:
        return Outcome(SKIPPED, "this GPU is too old for Triton", hint="compile nothing on it")
    for words, why, fix in CANNOT:
        if words in said:
            return Outcome(SKIPPED, why, hint=fix)
    if "non-zero exit status" in said and not has_headers():
        # The compiler that Triton calls says so on the terminal, not in its exception.
        return Outcome(SKIPPED, "Python's headers are missing", hint="`apt install python3-dev`")
    return Outcome(FAILED, with_cause(problem), spent=sticky(problem))


CAUSE = re.compile(r"\berror: |Error: |cannot find |No such file|not found|undefined reference")
"""What a compiler's or linker's line has in it that says what is wrong."""
LONGEST = 300


def with_cause(problem: BaseException) -> str:
    """The first line of an error, and the line that says why, where it stands further below.

    >>> with_cause(RuntimeError("C++ error\\n\\nOutput:\\nx.cpp:3: fatal error: omp.h: none"))
    'RuntimeError: C++ error: x.cpp:3: fatal error: omp.h: none'
    """
    first, *others = [line.strip() for line in str(problem).splitlines() if line.strip()] or [""]
    if first.endswith(":") and others:
        first = f"{first} {others.pop(0)}"
    output = others[others.index("Output:") :] if "Output:" in others else others
    why = next((line for line in output if CAUSE.search(line)), "")
    said = f"{first}: {why}" if why and why not in first else first
    return f"{type(problem).__name__}: {said}"[:LONGEST] if said else type(problem).__name__


COUNT = 300
WIDTH = 70


def _compiled(torch: Any, device: str) -> List[Part]:
    """Sums, softmax and a residual: a function that the compiler fuses into kernels of its own."""

    def block(x: Any, scale: Any) -> Any:
        y = torch.nn.functional.gelu(x * scale + 1)
        return (y.softmax(-1) * x).sum(-1) + y.mean(-1).tanh()

    torch._dynamo.reset()
    before = _graphs(torch)
    built = torch.compile(block, dynamic=False)
    x, scale = numbers(torch, COUNT, WIDTH, salt=120), numbers(torch, WIDTH, salt=121)
    upstream = numbers(torch, COUNT, salt=122)
    exact = _with_gradients(block, x.double(), scale.double(), upstream.double())
    found = _with_gradients(built, *(each.to(device) for each in (x, scale, upstream)))
    parts = [holds("compiled", _graphs(torch) > before, "nothing was compiled: it ran as it is")]
    for what, here, wanted in zip(("output", "gradient of x", "gradient of scale"), found, exact):
        size = wanted.abs() + wanted.square().mean().sqrt()
        parts.append(agree(what, here, wanted, 2 * summed(COUNT) * size))
    return parts


TURNS = (((5, 17), 2.0), ((9, 33), 3.0), ((5, 17), 3.0), ((9, 33), 2.0))
"""Shape and factor. The second turn needs a new kernel. The third and fourth each differ from the
first in one of both: a compiler that forgets to look at it comes back with the first's kernel."""


def _recompiled(torch: Any, device: str) -> Iterator[Part]:
    """One function for several shapes in turn, which writes over a tensor and follows a number
    that the program changes; what it computed for an earlier shape must not come back."""

    class Step:
        factor = 2.0

        def __call__(self, x: Any, kept: Any) -> Any:
            kept.add_(x.sum(0))
            return (x * self.factor).relu() + kept

    step = Step()
    built = torch.compile(step)
    for turn, (shape, factor) in enumerate(TURNS):
        x, kept = numbers(torch, *shape, salt=130 + turn), numbers(torch, shape[1], salt=140)
        step.factor = factor
        exact, here = kept.double(), kept.to(device)
        wanted = Step.__call__(step, x.double(), exact)
        found = built(x.to(device), here)
        label = f"shape {list(shape)}, turn {turn}"
        yield agree(label, found, wanted, summed(shape[0]) * (wanted.abs() + 4))
        yield agree(f"{label}, what it writes over", here, exact, summed(shape[0]) * 8)


def _graphs(torch: Any) -> int:
    """How many graphs the compiler took over in this process."""
    from torch._dynamo.utils import counters

    return int(counters["stats"]["unique_graphs"])


def _with_gradients(run: Any, x: Any, scale: Any, upstream: Any) -> Tuple[Any, Any, Any]:
    leaves = [each.detach().requires_grad_() for each in (x, scale)]
    out = run(*leaves)
    out.backward(upstream)
    return out.detach(), leaves[0].grad, leaves[1].grad


ITEMS, BATCH, WORKERS = 1003, 32, 2


def dataloader(device: str) -> Outcome:
    """A DataLoader with workers hands over every item once, whole and in the order asked for."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    rows = torch.arange(ITEMS * 8).reshape(ITEMS, 8)
    data = TensorDataset(rows, torch.arange(ITEMS))
    on_gpu = device.startswith("cuda")
    options: Dict[str, Any] = {"num_workers": WORKERS, "pin_memory": on_gpu, "timeout": 120}
    try:
        plain = list(DataLoader(data, BATCH, **options))
        made = source(torch, 123)
        mixed = list(DataLoader(data, BATCH, shuffle=True, generator=made, **options))
    except (RuntimeError, OSError) as problem:
        return _unloaded(problem)
    parts = [
        same("rows in order", torch.cat([batch[0] for batch in plain]), rows),
        same(
            "mixed, each once", torch.cat([batch[1] for batch in mixed]).sort()[0], data.tensors[1]
        ),
        holds("mixed", _differs(torch, mixed, plain), "the order is not mixed"),
        holds("pinned", all(batch[0].is_pinned() for batch in plain) or not on_gpu, "it is not"),
    ]
    moved = [batch[0].to(device, non_blocking=True) for batch in mixed]
    order = torch.cat([batch[1] for batch in mixed])
    parts.append(same("rows on the device", torch.cat(moved), rows[order]))
    parts += _seeded(torch)
    return judged(parts, "the data that went in")


class Drawn:
    """Each item is what chance gives in the worker that makes it."""

    def __len__(self) -> int:
        return 16

    def __getitem__(self, place: int) -> Any:
        import random

        import torch

        worker = torch.utils.data.get_worker_info()
        return torch.rand(3), random.random(), worker.id, worker.seed % 2**32


def _seeded(torch: Any) -> Iterator[Part]:
    """Workers draw other numbers than their neighbours and than an epoch before; a seed repeats
    them all."""
    from torch.utils.data import DataLoader

    def epochs() -> List[List[Any]]:
        made = source(torch, 124)
        loader = DataLoader(Drawn(), 4, num_workers=WORKERS, timeout=120, generator=made)
        return [list(loader), list(loader)]

    first, again = epochs(), epochs()
    rows = [torch.cat([batch[0] for batch in epoch]) for epoch in (*first, *again)]
    plain = [torch.cat([batch[1] for batch in epoch]) for epoch in first]
    each = torch.cat(rows[:2])
    yield holds("numbers of workers", len(torch.unique(each, dim=0)) == len(each), "repeat")
    yield holds("plain numbers of workers", len(torch.unique(torch.cat(plain))) == 32, "repeat")
    yield same("a seeded loader, first epoch", rows[2], rows[0])
    yield same("a seeded loader, second epoch", rows[3], rows[1])
    used = {int(worker) for batch in first[0] for worker in batch[2]}
    yield holds("workers", used == set(range(WORKERS)), f"only {sorted(used)} worked")


def _differs(torch: Any, one: Any, other: Any) -> bool:
    return not torch.equal(one[0][1], other[0][1])


def _unloaded(problem: BaseException) -> Outcome:
    said = str(problem)
    if "shared memory" in said or "Bus error" in said or "No space left" in said:
        hint = "/dev/shm is too small: `docker run --shm-size=8g`, in Kubernetes an emptyDir there"
        return Outcome(FAILED, f"a worker was killed: {first_line(problem)}", hint=hint)
    hint = "num_workers=0 works without worker processes"
    return Outcome(FAILED, first_line(problem), hint=hint, spent=sticky(problem))


FORMATS = ("float64", "float32", "float16", "bfloat16", "int64", "int32", "uint8", "bool")


def save_and_load(device: str) -> Outcome:
    """What is saved from the device is loaded again bit for bit, onto the host and the device."""
    import torch

    state = _state(torch)
    here = {name: each.to(device) for name, each in state.items()}
    here, state = ({**each, **_views(each)} for each in (here, state))
    parts: List[Part] = []
    for target in dict.fromkeys(("cpu", device)):
        with contextlib.closing(io.BytesIO()) as file:
            torch.save({"state": here, "step": 17}, file)
            file.seek(0)
            loaded = _load(torch, file, target)
        parts.append(holds(f"keys on {target}", _keys_fit(loaded, state), "names are missing"))
        for name in sorted(set(state) & set(loaded["state"])):
            found = loaded["state"][name]
            parts.append(
                holds(f"{name} on {target}", str(found.device) == target, str(found.device))
            )
            parts.append(
                same(f"{name} on {target}", _bits(torch, found), _bits(torch, state[name]))
            )
    parts += _large(torch, device)
    return judged(parts, "what was saved, every bit")


LARGE = 5_000_011


def _large(torch: Any, device: str) -> Iterator[Part]:
    """A tensor of 38 MiB, a view of it and a tensor that shares its memory, by a real file."""
    words = torch.arange(LARGE, dtype=torch.int64).mul_(2_654_435_761).to(device)
    folder = tempfile.mkdtemp(prefix="verify-")
    try:
        path = os.path.join(folder, "large.pt")
        torch.save({"words": words, "part": words[1_000_003::7], "again": words}, path)
        loaded = _load(torch, path, device)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    yield same("38 MiB", loaded["words"], words)
    yield same("a part of it", loaded["part"], words[1_000_003::7])
    shared = loaded["words"].data_ptr() == loaded["again"].data_ptr()
    yield holds("shared memory", shared, "two names of one tensor became two")


def _keys_fit(loaded: Dict[str, Any], state: Dict[str, Any]) -> bool:
    return set(loaded["state"]) == set(state) and loaded["step"] == 17


def _state(torch: Any) -> Dict[str, Any]:
    values = numbers(torch, 64, 33, salt=124) * 100
    state = {name: values.to(getattr(torch, name)) for name in FORMATS if name != "bool"}
    state["bool"] = values > 0
    state["turned"] = values.t()
    return state


def _views(state: Dict[str, Any]) -> Dict[str, Any]:
    """Of each format a part that begins behind its storage's first number, one whose numbers lie
    apart, and a line that is told often."""
    views: Dict[str, Any] = {}
    for name in FORMATS:
        whole = state[name]
        views[f"{name} from a row on"] = whole[3:]
        views[f"{name} apart"] = whole.t()[5::2, 1:-1:3]
        views[f"{name} told often"] = whole[7, 2:].expand(3, -1)
    return views


def _bits(torch: Any, given: Any) -> Any:
    """The bit pattern of each value, so that a NaN equals itself."""
    sizes = {8: torch.int64, 4: torch.int32, 2: torch.int16}
    given = given.cpu().contiguous()
    if not given.is_floating_point():
        return given
    return given.view(sizes[given.element_size()])


def _load(torch: Any, file: Any, device: str) -> Any:
    """With `weights_only` where this torch has it."""
    try:
        return torch.load(file, map_location=device, weights_only=True)
    except TypeError:
        if hasattr(file, "seek"):
            file.seek(0)
        return torch.load(file, map_location=device)
