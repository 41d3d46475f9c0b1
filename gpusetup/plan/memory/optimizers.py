"""What an optimizer keeps and what its step takes, one row each."""

from __future__ import annotations

from gpusetup.model.frozen import Frozen


class Optimizer(Frozen):
    """Bytes a trained parameter."""

    moments: float = 0.0
    """States in the dtype of the parameters (32 bits where a 32-bit copy is kept)."""
    fixed: float = 0.0
    """Bytes of other states."""
    copies: float = 0.0
    """Copies of the parameters that a `foreach` step makes at once."""
    paged: bool = False
    """Whether states leave the GPU when the rest needs the room (CUDA's unified memory)."""


EIGHT_BITS = 1 + 4 / 256
"""A byte and a 32-bit scale for 256 of them (Dettmers et al., arXiv 2110.02861)."""

OPTIMIZERS: dict[str, Optimizer] = {
    "adamw": Optimizer(moments=2, copies=1),
    "adam": Optimizer(moments=2, copies=1),
    "adamw-bf16": Optimizer(fixed=4),
    "adamw8bit": Optimizer(fixed=2 * EIGHT_BITS),
    "adamw4bit": Optimizer(fixed=2 * (0.5 + 4 / 128)),
    "paged-adamw": Optimizer(moments=2, paged=True),
    "paged-adamw8bit": Optimizer(fixed=2 * EIGHT_BITS, paged=True),
    "adafactor": Optimizer(),
    "muon": Optimizer(moments=1),
    "prodigy": Optimizer(moments=4),
    "lion": Optimizer(moments=1),
    "lion8bit": Optimizer(fixed=EIGHT_BITS),
    "adam-mini": Optimizer(moments=1),
    "came": Optimizer(moments=1),
    "ademamix": Optimizer(moments=3),
    "ademamix8bit": Optimizer(fixed=3 * EIGHT_BITS),
    "adan": Optimizer(moments=4),
    "lamb": Optimizer(moments=2),
    "sophia": Optimizer(moments=2),
    "schedule-free": Optimizer(moments=2, copies=1),
    "adamw-fp8": Optimizer(fixed=2 * EIGHT_BITS),
    "adagrad": Optimizer(moments=1, copies=1),
    "rmsprop": Optimizer(moments=1, copies=1),
    "sgd": Optimizer(),
    "sgd-momentum": Optimizer(moments=1),
}
"""AdamW keeps two moments, SGD none or one, `foreach` takes the square root of all second moments
at once (torch.optim, whose documentation says sizeof(parameters) more); bitsandbytes and torchao
keep one byte or half of one a moment; Lion one moment (Chen et al., arXiv 2302.06675); Prodigy
AdamW's two, its own sums and the first weights (prodigyopt 1.1.2 with `slice_p=1`); Muon one for
matrices, AdamW for the rest (not counted); Adafactor a row and a column for each matrix (Shazeer
and Stern, arXiv 1804.04235: next to nothing)."""
