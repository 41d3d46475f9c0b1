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

_HOMES = {
    "load_ipython_extension": "gpusetup.notebooks.magic",
    "unload_ipython_extension": "gpusetup.notebooks.magic",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
