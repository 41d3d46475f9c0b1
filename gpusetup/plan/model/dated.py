"""What trainers did by default before a day: one row a change, with the release that made it."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

from gpusetup.errors import UsageError
from gpusetup.model.frozen import Frozen

TRAINERS_OF_HF = ("hf", "trl", "llama-factory", "axolotl", "ms-swift")
EACH = ("*",)
"""Whoever trains."""
BY_ACCELERATE = ("accelerate", "diffusers", "finetrainers")


class Before(Frozen):
    """A default that another one took the place of."""

    day: str
    """When the release that changed it came out."""
    release: str
    trainers: tuple[str, ...]
    sets: Mapping[str, Any]
    since: str = ""
    """When the release came out that had begun it; always before where nothing is said."""


CHANGES = (
    Before(
        day="2026-09-03",
        release="torchtitan 0.3.0",
        trainers=("torchtitan",),
        sets={"loss": "hf"},
    ),
    Before(day="2026-06-25", release="TRL 1.7.0", trainers=("trl",), sets={"loss": "hf"}),
    Before(
        day="2026-01-26",
        release="transformers 5.0.0",
        trainers=TRAINERS_OF_HF,
        sets={"reentrant": True},
    ),
    Before(
        since="2024-06-07",
        day="2025-12-31",
        release="LLaMA-Factory 0.9.4",
        trainers=("llama-factory",),
        sets={"overlap_comm": True},
    ),
    Before(
        day="2025-09-10", release="TRL 0.23.0", trainers=("trl",), sets={"checkpointing": False}
    ),
    Before(
        day="2025-07-25",
        release="transformers 4.54.0, with torch 2.8",
        trainers=TRAINERS_OF_HF,
        sets={"step": "foreach"},
    ),
    Before(
        since="2024-04-15",
        day="2025-06-02",
        release="DeepSpeed 0.17.0",
        trainers=(*TRAINERS_OF_HF, *BY_ACCELERATE, "deepspeed", "openrlhf"),
        sets={"parts_on_gpu": True},
    ),
    Before(
        since="2024-09-18",
        day="2025-04-11",
        release="ms-swift 3.3.0",
        trainers=("ms-swift",),
        sets={"overlap_comm": True},
    ),
    Before(
        day="2025-02-17",
        release="transformers 4.49.0",
        trainers=(*TRAINERS_OF_HF, "llama-recipes", "lightning"),
        sets={"loss": "eager-old"},
    ),
    Before(
        day="2024-07-23",
        release="bitsandbytes 0.43.2",
        trainers=(*TRAINERS_OF_HF, "llama-recipes"),
        sets={"kept_inputs": 1},
    ),
    Before(
        day="2024-01-10",
        release="accelerate 0.26.0",
        trainers=(*TRAINERS_OF_HF, "accelerate"),
        sets={"gather_ahead": True},
    ),
    Before(
        day="2023-12-11",
        release="transformers 4.36.0",
        trainers=(*TRAINERS_OF_HF, "llama-recipes", "accelerate", "lightning"),
        sets={"attention": "eager"},
    ),
    Before(
        day="2023-09-04",
        release="transformers 4.33.0",
        trainers=TRAINERS_OF_HF,
        sets={"step": "loop"},
    ),
    Before(
        day="2023-07-18",
        release="transformers 4.31.0",
        trainers=(*TRAINERS_OF_HF, "llama-recipes", "accelerate", "lightning"),
        sets={"clamped_scores": True},
    ),
    Before(
        since="2020-10-27",
        day="2022-10-28",
        release="torch 1.13.0",
        trainers=EACH,
        sets={"all_kernels": True},
    ),
)
"""Read in the wheels of both sides of each change, whose files bear the day (2026-11-22)."""


def as_of(trainer: str | None, day: str | None) -> dict[str, Any]:
    """What a trainer's row did not say on a day; UsageError for what is no day.

    >>> as_of("hf", "2025-06-30")
    {'reentrant': True, 'step': 'foreach'}
    >>> as_of("torchtune", "2023-01"), as_of("hf", None), as_of(None, "2022")
    ({}, {}, {'all_kernels': True})
    """
    if day is None:
        return {}
    date = _date(day)
    found: dict[str, Any] = {}
    for change in CHANGES:
        known = change.trainers is EACH or trainer in change.trainers
        if known and change.since <= date < change.day:
            found |= change.sets
    return found


def compiled_loss(how: Mapping[str, Any], trainer: str | None, day: str | None) -> dict[str, str]:
    """The loss that torchtitan compiled on a day where its layers were compiled.

    From 0.1.0 on (2025-06-18; before, its train.py left it out because of errors), until it came in
    chunks. What its graph keeps of the logits is their 16 bits, and their gradient is written in as
    many (torch 2.13's partitioner, on the CPU): as much as a loss in place.

    >>> compiled_loss({"compile": True}, "torchtitan", "2025-07")
    {'loss': 'in-place'}
    >>> compiled_loss({"compile": True}, "torchtitan", "2024-12"), compiled_loss({}, None, None)
    ({}, {})
    """
    alone = trainer == "torchtitan" and how.get("compile") and day is not None
    if alone and "2025-06-18" <= _date(day or "") < "2026-09-03":
        return {"loss": "in-place"}
    return {}


def _date(text: str) -> str:
    """A day, or the first of a month or a year.

    >>> _date("2024"), _date("2024-05")
    ('2024-01-01', '2024-05-01')
    """
    whole = text + "-01-01"[len(text) - 4 :] if len(text) in (4, 7) else text
    try:
        return datetime.date.fromisoformat(whole).isoformat()
    except ValueError:
        raise UsageError(f"`--as-of {text}` is no day", hint="2024-05, or 2024-05-17") from None
