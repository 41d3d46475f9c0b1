"""The first check: does `import torch` work, and if not, why. Nothing else imports torch before."""

from __future__ import annotations

import importlib.util
import os
import sys
from typing import Any, List, Tuple

from ..values import FAILED, PASSED, Outcome

REINSTALL = "reinstall it: `gpusetup install`"
CAUSES: Tuple[Tuple[Tuple[str, ...], str], ...] = (
    (
        ("wrong ELF class", "invalid ELF header", "not a valid Win32", "incompatible architecture"),
        "its libraries are incomplete or for another machine architecture; " + REINSTALL,
    ),
    (
        ("[WinError 1455]",),
        "the page file of Windows is too small: enlarge it (System, Advanced, Performance)",
    ),
    (
        ("DLL load failed", "[WinError 126]", "[WinError 127]", "[WinError 1114]"),
        "a DLL that torch needs is missing, usually the Visual C++ runtime (x64): "
        "`winget install Microsoft.VCRedist.2015+.x64`; if that does not help, " + REINSTALL,
    ),
    (
        ("cannot open shared object file", "[WinError", "Library not loaded"),
        "a library of it is missing or cannot be loaded; " + REINSTALL,
    ),
    (
        ("undefined symbol", "version `", "Symbol not found"),
        "libraries of two versions are mixed (look at LD_LIBRARY_PATH, conda with pip)",
    ),
    (
        ("circular import", "partially initialized", "No module named 'torch."),
        "its files are incomplete; " + REINSTALL,
    ),
)
"""Words of the loader's message -> what it means and the next step. First match wins."""


def torch_imports(_: str) -> Outcome:
    """torch imports, and what imports is torch."""
    try:
        found = importlib.util.find_spec("torch")
    except (ImportError, ValueError):
        found = None
    if found is None:
        hint = "`gpusetup install` installs the build that fits into this environment"
        return Outcome(FAILED, f"torch is not installed for {sys.executable}", hint=hint)
    origin = found.origin or next(iter(found.submodule_search_locations or ()), "torch")
    folder, name = os.path.split(origin)
    shadowed = Outcome(
        FAILED,
        f"{origin} is what `import torch` finds, and it is not PyTorch",
        hint="rename it, or start from another folder; if nothing of yours is there, " + REINSTALL,
    )
    if os.path.basename(folder) != "torch" or not name.startswith("__init__."):
        return shadowed
    try:
        import torch
    except (Exception, SystemExit) as problem:
        return Outcome(FAILED, f"import torch failed: {first_line(problem)}", hint=cause(problem))
    if not all(hasattr(torch, name) for name in ("version", "_C", "Tensor")):
        return shadowed
    facts = {
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda,
        "arch": arch_list(torch),
        "available": None if cuda_build(torch) else False,
    }
    return Outcome(PASSED, f"torch {facts['torch']} from {folder}", facts=facts)


def cause(problem: BaseException) -> str:
    """What an import error means and the next step."""
    for words, meaning in CAUSES:
        if any(word in str(problem) for word in words):
            return meaning
    if isinstance(problem, ModuleNotFoundError):
        return f"torch needs the package {problem.name!r}: `gpusetup install` brings it"
    return '`python -c "import torch"` shows the whole error; ' + REINSTALL


def cuda_build(torch: Any) -> bool:
    """Whether this torch was built for GPUs (of NVIDIA, or of AMD through the same names)."""
    return bool(torch.version.cuda or getattr(torch.version, "hip", None))


def arch_list(torch: Any) -> List[str]:
    """The architectures compiled into the build, also where no GPU is visible (there
    `torch.cuda.get_arch_list()` answers an empty list)."""
    flags = getattr(torch._C, "_cuda_getArchFlags", None)
    return str(flags() or "").split() if flags else []


def first_line(problem: BaseException) -> str:
    """The kind of an error and the first line of what it says."""
    said = str(problem).strip().split("\n")[0]
    return f"{type(problem).__name__}: {said}" if said else type(problem).__name__
