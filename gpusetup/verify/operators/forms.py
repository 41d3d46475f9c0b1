"""The other forms of a call: the answer written into `out`, or over the first tensor."""

from __future__ import annotations

from typing import Any, Dict, Tuple

import torch
from torch.overrides import TorchFunctionMode


class IntoOut(TorchFunctionMode):  # type: ignore[misc, unused-ignore]
    """Each function of torch that has `out` writes its answer there."""

    def __torch_function__(
        self, func: Any, types: Any, args: Tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        options = dict(kwargs or {})
        found = func(*args, **options)
        run = getattr(torch, getattr(func, "__name__", ""), None)
        if not _plain(found) or run is None or "out" in options:
            return found
        try:
            return run(*args, **options, out=torch.empty_like(found))
        except (TypeError, RuntimeError):  # it has no such form
            return found


class InPlace(TorchFunctionMode):  # type: ignore[misc, unused-ignore]
    """Each method that has a form with `_` writes over a copy of its first tensor."""

    def __torch_function__(
        self, func: Any, types: Any, args: Tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        options: Dict[str, Any] = dict(kwargs or {})
        found = func(*args, **options)
        method = getattr(torch.Tensor, f"{getattr(func, '__name__', '')}_", None)
        first: Any = args[0] if args else None
        if method is None or not (_plain(found) and _plain(first) and _alike(found, first)):
            return found
        try:
            return method(first.clone(), *args[1:], **options)
        except (TypeError, RuntimeError):  # it has no such form
            return found


def _plain(found: Any) -> bool:
    return isinstance(found, torch.Tensor) and not found.is_sparse


def _alike(found: Any, first: Any) -> bool:
    """Whether the answer has room in the first tensor, and is not that tensor itself."""
    same = found.dtype == first.dtype and found.shape == first.shape
    return bool(same and found.data_ptr() != first.data_ptr())
