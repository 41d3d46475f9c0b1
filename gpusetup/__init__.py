"""gpusetup: a PyTorch that sees its GPU, installed, proven, sized, tuned and watched.

`import gpusetup` costs a few milliseconds; the Python API is `gpusetup.api`. The notebook's
extension is loaded from its module on first use.
"""

from __future__ import annotations

import importlib

TYPE_CHECKING = False  # as typing's, without importing it
if TYPE_CHECKING:
    from typing import Any

__version__ = "1.0.0rc1"


def __getattr__(name: str) -> Any:
    if name == "load_ipython_extension":
        return importlib.import_module("gpusetup.notebooks.magic").load_ipython_extension
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
