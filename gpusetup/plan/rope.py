"""Checks whether a config's RoPE scaling fits the sequence length of the job."""

from __future__ import annotations

import re
from typing import NamedTuple

from gpusetup.configs.settings import dotted
from gpusetup.plan.config_reader import Reader
from gpusetup.plan.job import TrainingJob
from gpusetup.plan.question import LARGEST

SAME_FACTOR = 0.01
"""Factors that differ by at most this share count as equal, because people write only one or two
decimals (1.25, 3.33)."""
STATIC_KINDS = ("yarn", "linear", "su", "longrope")
"""Kinds of scaling whose factor is the longest length divided by the original length. With other
kinds there is nothing to check: `dynamic` grows with the text, and `llama3` comes with the
model."""


class RopeScaling(NamedTuple):
    """The RoPE scaling that a config sets to extend the model's context."""

    key: str
    """The key and line number of the factor, as shown in the answer."""
    factor: float
    original: int | None
    """The original length in the config; None means the model's native context."""


def rope_scaling(reader: Reader) -> RopeScaling | None:
    """The RoPE scaling that the config sets; None if it sets none, or one of another kind."""
    is_number = re.compile(r"\d{1,9}(\.\d{1,9})?")
    factor = reader.word("rope-factor", lambda _, text: text if is_number.fullmatch(text) else None)
    original = reader.number("rope-original", LARGEST["context"])
    kind = reader.word("rope-kind") or "yarn"
    if factor is None or kind.lower() not in STATIC_KINDS:
        return None
    setting, _ = next(reader.all("rope-factor"))
    key = f"`{dotted(setting.path)}` (line {setting.line})"
    return RopeScaling(key, float(factor), original)


def factor_remark(scaling: RopeScaling, job: TrainingJob) -> str | None:
    """What is wrong with the config's RoPE factor for the job's length, as a sentence; None if
    nothing is.

    The factor must be at least the job's length divided by the original length; with a smaller
    factor, the model reaches positions that it was not trained for, and its text degenerates there.
    A larger factor costs quality in short texts (model cards of Qwen2.5 and Qwen3).
    """
    original = scaling.original or job.shape.native_context
    if original is None:
        return None
    needed = max(job.context / original, 1)
    reckoning = f"{job.context:,} tokens / {original:,}"
    if scaling.factor < needed * (1 - SAME_FACTOR):
        return (
            f"{scaling.key} is wrong: a factor of {scaling.factor:g} is too small for "
            f"{job.context:,} tokens, it must be {needed:g} ({reckoning})"
        )
    if scaling.factor > needed * (1 + SAME_FACTOR):
        leave_out = "; leave `rope_scaling` out" if needed == 1 else ""
        return (
            f"{scaling.key}: {reckoning} needs a factor of {needed:g}; {scaling.factor:g} works, "
            f"but makes short texts worse{leave_out}"
        )
    return None
