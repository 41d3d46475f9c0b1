"""What the `version.py` and the version of a torch say of its build."""

from __future__ import annotations

import re
from typing import Any

from gpusetup.accelerators.makers import LABEL


def parse_version_file(text: str) -> dict[str, Any]:
    """The constants of a `torch/version.py`.

    >>> parse_version_file("__version__ = '2.5.1+cu124'\\ncuda: Optional[str] = '12.4'\\n")
    {'__version__': '2.5.1+cu124', 'cuda': '12.4'}
    """
    lines = re.findall(
        r"^(\w+)\s*(?::[^=]*)?=\s*(None|True|False|'[^'\n]*'|\"[^\"\n]*\")", text, re.M
    )
    import ast

    return {name: ast.literal_eval(value) for name, value in lines}


def backend_of(
    version: str | None, cuda: str | None, hip: str | None, *, known: bool = False
) -> str | None:
    """The backend that a version's local label or its CUDA names; `known`: None means CPU.

    >>> backend_of("2.5.1+cu124", "12.4", None), backend_of("2.5.1", "12.4", None)
    ('cu124', 'cu124')
    >>> backend_of("2.9.0", None, None, known=True), backend_of("2.9.0", None, "6.4.43483")
    ('cpu', 'rocm6.4')
    """
    label = (version or "").partition("+")[2]
    if label and (found := re.match(rf"({LABEL})\b", label)):
        return found[1]
    if cuda:
        return "cu" + "".join(cuda.split(".")[:2])
    if hip:
        return "rocm" + ".".join(hip.split(".")[:2])
    return "cpu" if known else None
