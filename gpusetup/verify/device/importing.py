"""The first check: whether `import torch` works and, if not, why. No earlier code imports torch."""

from __future__ import annotations

import importlib.util
import os
import sys
from typing import Any, List, Tuple

from ..values import FAILED, PASSED, Outcome

REINSTALL = "reinstall it: `gpusetup install`"
CAUSES: Tuple[Tuple[Tuple[str, ...], str], ...] = (
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
        ("cannot open shared object", "[WinError", "Library not loaded", "ELF", "incompatible"),
        "a library of it is missing, incomplete or for another architecture; " + REINSTALL,
    ),
    (
        ("undefined symbol", "version `", "Symbol not found"),
        "libraries of two versions are mixed (look at LD_LIBRARY_PATH, conda with pip)",
    ),
)
"""Parts of the loader's messages -> what they mean, and the next step. The first match counts."""


def torch_imports(_: str) -> Outcome:
    """Check that torch can be imported, and that it really is PyTorch."""
    try:
        spec = importlib.util.find_spec("torch")
    except (ImportError, ValueError):  # a startup hook has set a `torch` without a spec
        spec = None
    if spec is None:
        hint = "run `gpusetup install` to install the right torch build into this environment"
        return Outcome(FAILED, f"torch is not installed for {sys.executable}", hint=hint)
    # A folder without `__init__.py` has no origin, only search locations.
    origin = spec.origin or next(iter(spec.submodule_search_locations or ()), "torch")
    folder, file_name = os.path.split(origin)
    if os.path.basename(folder) != "torch" or not file_name.startswith("__init__."):
        return shadowed(origin)
    try:
        import torch
    except (Exception, SystemExit) as problem:  # any module that torch imports may fail or exit
        detail = f"import torch failed: {first_line(problem)}"
        return Outcome(FAILED, detail, hint=cause(problem))
    if not all(hasattr(torch, name) for name in ("version", "_C", "Tensor")):
        return shadowed(origin)
    facts = {
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda,
        "arch": arch_list(torch),
        # For a CUDA build, the check `gpu` finds it out.
        "available": None if cuda_build(torch) else False,
    }
    return Outcome(PASSED, f"torch {facts['torch']} from {folder}", facts=facts)


def shadowed(origin: str) -> Outcome:
    """The failed outcome if a file or folder called `torch` hides PyTorch."""
    return Outcome(
        FAILED,
        f"{origin} is what `import torch` finds, and it is not PyTorch",
        hint="rename it, or start from another folder; if nothing of yours is there, " + REINSTALL,
    )


def cause(problem: BaseException) -> str:
    """What an import error means, and the next step."""
    message = str(problem)
    for parts, meaning in CAUSES:
        if any(part in message for part in parts):
            return meaning
    if isinstance(problem, ModuleNotFoundError):
        return f"torch needs the package {problem.name!r}: `gpusetup install` installs it"
    return '`python -c "import torch"` shows the whole error; ' + REINSTALL


def cuda_build(torch: Any) -> bool:
    """Whether this torch was built for NVIDIA or AMD GPUs, for which torch uses the same names."""
    return bool(torch.version.cuda or getattr(torch.version, "hip", None))


def arch_list(torch: Any) -> List[str]:
    """The architectures that the build was compiled for, even if no GPU is visible."""
    # A CPU build lacks this function.
    get_flags = getattr(torch._C, "_cuda_getArchFlags", None)
    return str(get_flags() or "").split() if get_flags else []


def first_line(problem: BaseException) -> str:
    """The type of an error, and the first line of its message."""
    message = str(problem).strip().split("\n")[0]
    return ": ".join(filter(None, (type(problem).__name__, message)))
