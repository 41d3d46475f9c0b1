"""The rows of the ration: `standard` asks a share that the seed turns, `census` all."""

from __future__ import annotations

from typing import Tuple

from ..values import Check


def of(name: str, proves: str, means: str) -> Check:
    return Check(
        name,
        f"checks.ration:{name}",
        on=("cuda", "cpu"),
        needs=("properties", "arch"),
        environment=(("CUBLAS_WORKSPACE_CONFIG", ":4096:8"),),
        proves=proves,
        means=means,
        then="the hint of the failed question repeats it; then look for Xid and ECC in `dmesg`",
        samples_seconds=7200.0,
    )


RATION: Tuple[Check, ...] = (
    of(
        "operators",
        "torch's operators, in lengths, numbers, layouts, formats, options and ways to call that"
        " come round by turns, agree with float64, forward and backward",
        "models would compute wrong numbers",
    ),
    of(
        "optimizers",
        "each form of each of torch's optimizers leaves the parameters that the"
        " plain one leaves in float64",
        "training would take wrong steps",
    ),
)
"""Loading torch's database changes its process (`database/loading.py` undoes what is known of
that). So these run last, in the process of `determinism`."""
