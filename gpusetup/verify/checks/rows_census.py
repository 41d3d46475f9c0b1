"""The rows of the census of operators: `standard` draws a share, `census` takes all."""

from __future__ import annotations

from typing import Tuple

from ..values import Check

BOTH = ("cuda", "cpu")
AGAIN = "the hint of the failed sample repeats it; then look for Xid and ECC in `dmesg`"


def of(name: str, proves: str, means: str) -> Check:
    return Check(
        f"census-{name}",
        f"checks.census:{name}",
        on=BOTH,
        needs=("properties", "arch"),
        proves=f"{proves}, in every format, layout and size class that is drawn",
        means=means,
        then=AGAIN,
        samples_seconds=7200.0,
    )


CENSUS: Tuple[Check, ...] = (
    of("pointwise", "functions and arithmetic element by element", "activations would be wrong"),
    of("lists", "operators on lists of tensors", "optimizers and clipping would be wrong"),
    of(
        "reductions",
        "sums, extremes, running sums and softmax",
        "losses and metrics would be wrong",
    ),
    of("products", "matrix products of every form", "every model would compute wrong numbers"),
    of("algebra", "factorizations and solvers", "solvers would be wrong"),
    of("spectral", "Fourier transforms", "signals and some layers would be wrong"),
    of("sparse", "sparse matrices", "graph networks would be wrong"),
    of("moving", "copies, views, joins and pads keep every bit", "data would land in wrong places"),
    of("indexing", "lookups, scatters and masks", "data would land in wrong places"),
    of("sorting", "sort, topk, unique and search", "sampling and beam search would choose wrongly"),
    of("convolutions", "convolutions and their gradients", "image models would be wrong"),
    of("pools", "pools and resizing and their gradients", "image models would be wrong"),
    of("norms", "layer, rms, group, instance and batch norm", "networks would train wrongly"),
    of("sequences", "attention and recurrent nets", "language models would be wrong"),
    of("losses", "losses and their gradients", "training would follow wrong gradients"),
)


def of_torch(name: str, run: str, proves: str, means: str) -> Check:
    return Check(
        f"census-{name}",
        run,
        on=BOTH,
        needs=("properties", "arch"),
        environment=(("CUBLAS_WORKSPACE_CONFIG", ":4096:8"),),
        proves=proves,
        means=means,
        then=AGAIN,
        samples_seconds=7200.0,
    )


DATABASE: Tuple[Check, ...] = (
    of_torch(
        "database",
        "checks.database:database",
        "torch's own database of operators: its samples, with every option that they have,"
        " agree with float64, forward and backward",
        "a rarely used option, or an empty or strided input, would give wrong numbers",
    ),
    of_torch(
        "modules",
        "checks.built:modules",
        "torch's own database of modules, in training and evaluation, agrees with float64:"
        " answers, gradients of inputs and weights, running values",
        "a layer, or the fast path that evaluation takes, would give wrong numbers",
    ),
    of_torch(
        "optimizers",
        "checks.built:optimizers",
        "torch's own database of optimizers: each form of each leaves the parameters and the"
        " state that the plain one leaves in float64",
        "training would take wrong steps",
    ),
)
"""Loading one changes torch's process (`database/loading.py` undoes what is known of that). So it
runs in the process of `determinism`, which no other check uses after it."""
