"""Adapts a training config to this machine, and finds a batch size that fits.

Importing this package is cheap, because the names in `__all__` are only loaded on first use.
"""

from __future__ import annotations

import importlib

TYPE_CHECKING = False  # replaces typing.TYPE_CHECKING, so that typing need not be imported
if TYPE_CHECKING:
    from typing import Any

_HOMES = {
    "BatchSizeOptimizer": "gpusetup.tune.optimizer",
    "auto_optimize_config": "gpusetup.tune.optimizer",
    "recover_from_oom": "gpusetup.tune.recover",
}

__all__ = ["BatchSizeOptimizer", "auto_optimize_config", "recover_from_oom"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
