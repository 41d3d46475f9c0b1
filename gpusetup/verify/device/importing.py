"""The first check: does `import torch` work, and if not, why. Nothing else imports torch before."""

from __future__ import annotations

import os
import platform
import sys
from typing import Any, Dict, List, Optional, Tuple

from ..values import FAILED, PASSED, Outcome

REINSTALL = "install it anew: `gpusetup install`"
CAUSES: Tuple[Tuple[Tuple[str, ...], str], ...] = (
    (
        ("wrong ELF class", "invalid ELF header", "not a valid Win32", "incompatible architecture"),
        "its libraries are for another machine architecture or cut; " + REINSTALL,
    ),
    (
        ("cannot open shared object file", "DLL load failed", "[WinError", "Library not loaded"),
        "a library of it is missing or cannot be loaded; " + REINSTALL,
    ),
    (
        ("undefined symbol", "version `", "Symbol not found"),
        "libraries of two versions are mixed (look at LD_LIBRARY_PATH, conda beside pip)",
    ),
    (
        ("circular import", "partially initialized", "No module named 'torch."),
        "its files are incomplete; " + REINSTALL,
    ),
)
"""Words of the loader's message -> what it means and the next step. First match wins."""


def torch_imports(_: str) -> Outcome:
    """torch imports, and what imports is torch."""
    origin = where_torch_is()
    if origin is None:
        return Outcome(
            FAILED,
            f"torch is not installed for {sys.executable}",
            hint="`gpusetup install` puts the build that fits into this environment",
        )
    if not is_a_package(origin):
        return _shadowed(origin)
    try:
        import torch
    except (Exception, SystemExit) as problem:
        return Outcome(FAILED, f"import torch failed: {first_line(problem)}", hint=cause(problem))
    missing = [name for name in ("version", "_C", "Tensor") if not hasattr(torch, name)]
    if missing:
        return _shadowed(origin)
    facts = read_facts(torch)
    folder = os.path.dirname(origin)
    return Outcome(PASSED, f"torch {facts['torch']} from {folder}", facts=facts)


def where_torch_is() -> Optional[str]:
    """The file or folder that `import torch` would load; None where there is none."""
    import importlib.util

    try:
        found = importlib.util.find_spec("torch")
    except (ImportError, ValueError):
        return None
    if found is None:
        return None
    places: List[str] = list(found.submodule_search_locations or ())
    return found.origin or (places[0] if places else "torch")


def is_a_package(origin: str) -> bool:
    """Whether the origin is a package's `__init__` beside the rest of torch.

    >>> is_a_package("/home/me/torch.py")
    False
    """
    folder, name = os.path.split(origin)
    return name.startswith("__init__.") and os.path.basename(folder) == "torch"


def _shadowed(origin: str) -> Outcome:
    return Outcome(
        FAILED,
        f"{origin} is what `import torch` finds, and it is not PyTorch",
        hint="rename it, or start from another folder; if nothing of yours is there, " + REINSTALL,
    )


def cause(problem: BaseException) -> str:
    """What an import error means and the next step."""
    text = str(problem)
    for words, meaning in CAUSES:
        if any(word in text for word in words):
            return meaning
    if isinstance(problem, ModuleNotFoundError):
        return f"torch needs the package {problem.name!r}: `gpusetup install` brings it"
    return '`python -c "import torch"` shows the whole error; ' + REINSTALL


def read_facts(torch: Any) -> Dict[str, Any]:
    """What the build says of itself; asks no GPU."""
    return {
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda,
        "hip": getattr(torch.version, "hip", None),
        "arch": arch_list(torch),
        "python": platform.python_version(),
        "available": False if not cuda_build(torch) else None,
    }


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
