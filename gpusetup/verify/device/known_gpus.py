"""What NVIDIA publishes of its GPUs: `gpus.json`, written from the catalog by
`scripts/write_reference.py`, since this folder stands alone."""

from __future__ import annotations

import functools
import json
import os
from typing import Any, Dict, List, Optional, Tuple

from ..judging.speed import Figures

HERE = os.path.dirname(os.path.abspath(__file__))
FILE = os.path.join(os.path.dirname(HERE), "gpus.json")


@functools.lru_cache(maxsize=None)
def table() -> Dict[str, Any]:
    with open(FILE, encoding="utf-8") as file:
        return dict(json.load(file))


def peaks() -> Dict[str, List[Any]]:
    """`nvidia-smi` name -> dense float16 TFLOPS, boost clock in MHz, whether that clock varies."""
    return {name: row[:3] for name, row in table()["gpus"].items()}


def figures(name: str) -> Optional[Figures]:
    """What is published of a model; None where the table does not have it."""
    row = table()["gpus"].get(name)
    return Figures(row[0], row[3], row[4], bool(row[2])) if row else None


def stands_apart(capability: Tuple[int, int], cuda: Optional[str] = None) -> bool:
    """Whether only its own kernels run on a GPU, and its kernels on nothing else: Jetson boards,
    until the CUDA from which on the desktop kernels run on them.

    >>> stands_apart((8, 7)), stands_apart((8, 7), "13.2"), stands_apart((8, 6))
    (True, False, False)
    """
    apart = dict(table()["apart"])
    name = "%d.%d" % capability
    if name not in apart:
        return False
    first = apart[name]
    return not (first and cuda and _release(cuda) >= _release(first))


def _release(version: str) -> Tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
