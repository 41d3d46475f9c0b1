"""What NVIDIA publishes of its GPUs: `gpus.json`, written from the catalog by
`scripts/write_reference.py`, since this folder stands alone."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any, Dict, List, Optional

from ..judging.speed import Figures


@functools.lru_cache(maxsize=None)
def table() -> Dict[str, Any]:
    text = (Path(__file__).parent.parent / "gpus.json").read_text(encoding="utf-8")
    return dict(json.loads(text))


def peaks() -> Dict[str, List[Any]]:
    """`nvidia-smi` name -> dense float16 TFLOPS, boost clock in MHz, whether that clock varies."""
    return {name: row[:3] for name, row in table()["gpus"].items()}


def figures(name: str) -> Optional[Figures]:
    """What is published of a model; None where the table does not have it."""
    row = table()["gpus"].get(name)
    return Figures(row[0], row[3], row[4], bool(row[2])) if row else None
