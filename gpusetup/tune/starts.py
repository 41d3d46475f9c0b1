"""The presets of the guides as files to start from (`data/presets/`); each line says whose number
it is, also once it was changed.

They are starting points: what fits a card and a config is `tune`'s and `plan`'s answer.
"""

from __future__ import annotations

from pathlib import Path

PRESETS = Path(__file__).resolve().parents[1] / "data" / "presets"


def start_file(name: str) -> str:
    """The YAML of a preset.

    >>> "batch_size: 48  # optimisation guide: 48\\n" in start_file("rtx-4080")
    True
    """
    return (PRESETS / f"{name}.yaml").read_text(encoding="utf-8")
