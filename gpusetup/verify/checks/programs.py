"""What a training program is made of besides arithmetic: compile, loader, files."""

from __future__ import annotations

import os
import re
import shutil
import sysconfig
import tempfile
from typing import Any, Dict, Iterator, List, Tuple

import torch

from ..device.importing import first_line
from ..judging.tolerance import Part, agree, holds, judged, numbers, same, source
from ..values import FAILED, SKIPPED, Outcome, sticky

NO_COMPILER = "no C compiler"
INSTALL_COMPILER = "`apt install g++` (Debian, Ubuntu), `dnf install gcc-c++` (Fedora), or set CXX"
INSTALL_MSVC = "install the Visual C++ build tools, and start from their command prompt"
NO_TRITON = ("Triton is not installed", "install the Triton of this torch")
NO_HEADERS = ("Python's headers are missing", "`apt install python3-dev`")
OTHER_PYTHON = ("this torch compiles nothing under this Python", "a newer torch")
CANNOT: Dict[str, Tuple[str, str]] = {
    "InvalidCxxCompiler|No working C.. compiler|Failed to find C compiler": (
        *(NO_COMPILER, INSTALL_COMPILER),
    ),
    "Compiler: cl is not found": (NO_COMPILER, INSTALL_MSVC),
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
"""Words of an error -> why compiling cannot be tried here, and what would change that."""


def compiled(device: str) -> Outcome:
    """`torch.compile` builds a kernel that computes what the same code computes uncompiled."""
    if not hasattr(torch, "compile"):
        return Outcome(SKIPPED, f"torch {torch.__version__} has no torch.compile")
    if device == "cpu" and not has_compiler():
        hint = INSTALL_MSVC if os.name == "nt" else INSTALL_COMPILER
        return Outcome(SKIPPED, NO_COMPILER, hint=hint)
    try:
        return judged(list(_fused(device)), "the same uncompiled")
    except Exception as problem:  # the compilers raise their own kinds
        return uncompiled(problem)


def has_compiler() -> bool:
    """Whether a C++ compiler can be found as torch looks for it."""
    names = ("cl",) if os.name == "nt" else ("g++", "clang++")
    named = os.environ.get("CXX")
    return any(shutil.which(name) for name in ((named,) if named else names))


def uncompiled(problem: BaseException) -> Outcome:
    """What an error of the compiler means."""
    said = f"{type(problem).__name__} {problem}"
    reasons = [reason for words, reason in CANNOT.items() if re.search(words, said)]
    headers = os.path.join(sysconfig.get_path("include"), "Python.h")
    if "non-zero exit status" in said and not os.path.isfile(headers):
        # The compiler that Triton calls says so on the terminal, not in its exception.
        reasons.append(NO_HEADERS)
    if reasons:
        return Outcome(SKIPPED, reasons[0][0], hint=reasons[0][1])
    return Outcome(FAILED, with_cause(problem), spent=sticky(problem))


CAUSE = re.compile(r"\berror: |Error: |cannot find |No such file|not found|undefined reference")
"""What a compiler's or linker's line has in it that says what is wrong."""
LONGEST = 300


def with_cause(problem: BaseException) -> str:
    """The first line of an error, and the line that says why, where it stands further below.

    >>> with_cause(RuntimeError("C++ error\\n\\nOutput:\\nx.cpp:3: fatal error: omp.h: none"))
    'RuntimeError: C++ error: x.cpp:3: fatal error: omp.h: none'
    """
    first, *others = str(problem).splitlines() or [""]
    why = [line.strip() for line in others if CAUSE.search(line)]
    return ": ".join([type(problem).__name__, first.strip(), *why[:1]])[:LONGEST]


FUSED = 2.0**-15
"""Of the size of what 300 terms give: a multiple of the roundoff of their sum."""


def _fused(device: str) -> Iterator[Part]:
    """Sums, softmax and a residual, with their gradients: fused into kernels of their own."""
    from torch._dynamo.utils import counters

    def block(x: Any, scale: Any) -> Any:
        y = torch.nn.functional.gelu(x * scale + 1)
        return (y.softmax(-1) * x).sum(-1) + y.mean(-1).tanh()

    def differentiated(run: Any, given: List[Any]) -> List[Any]:
        leaves = [x.detach().requires_grad_() for x in given]
        found = run(*leaves)
        return [found, *torch.autograd.grad(found.sum(), leaves)]

    torch._dynamo.reset()
    before = int(counters["stats"]["unique_graphs"])
    given = [numbers(torch, *shape, salt=120) for shape in ((300, 70), (70,))]
    exact = differentiated(block, [x.double() for x in given])
    built = torch.compile(block, dynamic=False)
    for found, wanted in zip(differentiated(built, [x.to(device) for x in given]), exact):
        size = wanted.abs() + wanted.square().mean().sqrt()
        yield agree("fused", found, wanted, FUSED * size)
    graphs = int(counters["stats"]["unique_graphs"])
    yield holds("compiled", graphs > before, "torch compiled nothing: the model ran uncompiled")


ITEMS, BATCH, WORKERS = 1003, 32, 2


class Rows:
    """Each item: its number, and what chance gives in the worker that makes it."""

    def __len__(self) -> int:
        return ITEMS

    def __getitem__(self, place: int) -> Any:
        return torch.arange(8) + 8 * place, torch.rand(3)


def dataloader(device: str) -> Outcome:
    """A DataLoader with workers hands over every item once, whole and in the order asked for; its
    workers draw other numbers than their neighbours and than an epoch before; a seed repeats
    them all."""
    from torch.utils.data import DataLoader

    on_gpu = device.startswith("cuda")

    def loader(mixed: bool) -> Any:
        return DataLoader(
            Rows(),
            BATCH,
            shuffle=mixed,
            num_workers=WORKERS,
            pin_memory=on_gpu,
            timeout=120,
            generator=source(torch, 123),
        )

    try:
        mixed = loader(True)
        epochs = [list(each) for each in (loader(False), mixed, mixed, loader(True))]
    except (RuntimeError, OSError) as problem:
        return unloaded(problem)
    rows, drawn = (
        [torch.cat([batch[field] for batch in epoch]) for epoch in epochs] for field in range(2)
    )
    moved = torch.cat([batch[0].to(device, non_blocking=True) for batch in epochs[1]])
    whole, each = torch.arange(8 * ITEMS).view(ITEMS, 8), torch.cat(drawn[1:3])
    parts = [
        same("rows in order", rows[0], whole),
        same("mixed, each once", moved.cpu()[rows[1][:, 0].argsort()], whole),
        holds("mixed", not torch.equal(rows[1], rows[2]), "the items come unshuffled"),
        holds("numbers of workers", len(torch.unique(each, dim=0)) == len(each), "repeat"),
        same("a seed again, order", rows[3], rows[1]),
        same("a seed again, numbers", drawn[3], drawn[1]),
    ]
    return judged(parts, "the data that went in")


def unloaded(problem: BaseException) -> Outcome:
    """What an error of the loader means."""
    said = str(problem)
    if "shared memory" in said or "Bus error" in said or "No space left" in said:
        hint = "/dev/shm is too small: `docker run --shm-size=8g`, in Kubernetes an emptyDir there"
        return Outcome(FAILED, f"a worker was killed: {first_line(problem)}", hint=hint)
    hint = "num_workers=0 works without worker processes"
    return Outcome(FAILED, first_line(problem), hint=hint, spent=sticky(problem))


FORMATS = ("float64", "float32", "float16", "bfloat16", "int64", "int32", "uint8", "bool")
LARGE = 5_000_011


def save_and_load(device: str) -> Outcome:
    """What is saved from the device is loaded again bit for bit, onto the host and the device:
    each format, parts of tensors, 38 MiB."""
    values = numbers(torch, 64, 33, salt=124).mul(100).to(device)
    state = {name: values.to(getattr(torch, name)) for name in FORMATS}
    for name in FORMATS:
        whole = state[name]
        state[f"{name} from a row on"], state[f"{name} apart"] = whole[3:], whole.t()[5::2, 1:-1:3]
        state[f"{name} turned"], state[f"{name} repeated"] = whole.t(), whole[:1].expand(3, 33)
    state["conjugate"] = values.to(torch.complex64).mul(1 + 2j).conj()
    state["large"] = torch.arange(LARGE, dtype=torch.int64).mul_(2_654_435_761).to(device)
    parts: List[Part] = []
    folder = tempfile.mkdtemp(prefix="verify-")
    try:
        path = os.path.join(folder, "state.pt")
        torch.save({"state": state, "step": 17}, path)
        for target in dict.fromkeys(("cpu", device)):
            loaded = torch.load(path, map_location=target, weights_only=True)
            fit = set(loaded["state"]) == set(state) and loaded["step"] == 17
            parts.append(holds(f"keys on {target}", fit, "names are missing"))
            for name, found in loaded["state"].items():
                parts.append(holds(f"device of {name}", str(found.device) == target, "another"))
                parts.append(same(f"{name} on {target}", found, state[name]))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return judged(parts, "what was saved, every bit")
