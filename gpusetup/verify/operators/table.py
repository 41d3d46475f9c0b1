"""What a row of the census is."""

from __future__ import annotations

from typing import Any, Callable, NamedTuple, Optional, Tuple

from .drawing import CLASSES, Draw, Given

FLOATS = ("float32", "bfloat16", "float16", "float64")
FULL = ("float32", "float64")
WHOLE = ("int64", "int32", "uint8", "int16")
ANY = ("float32", "bfloat16", "float16", "float64", "int64", "int32", "uint8", "bool")
FEW = ("tiny", "warp")
"""For rows that draw their lengths themselves; two, so that they are not drawn too often."""


class Operator(NamedTuple):
    """One operator: what goes in, what is computed, and what should come out."""

    name: str
    make: Callable[[Draw], Given]
    """The numbers on the CPU: float64 for those that take the sample's format, else as they are."""
    run: Callable[..., Any]
    """(torch, tensors..., options...) -> a tensor, or several."""
    exact: Optional[Callable[..., Any]] = None
    """The same by the operator's definition, in float64, by other operators where there are any.
    None: the operator itself in float64, of contiguous tensors."""
    dtypes: Tuple[str, ...] = FLOATS
    sizes: Tuple[str, ...] = CLASSES
    learns: bool = True
    """Whether gradients are compared too."""
    slack: float = 1.0
    """What the limit is multiplied by, where the operator rounds more often than others."""
    weight: float = 1.0
    """How often standard draws it, against the others of its family."""
    split: bool = False
    """Whether each element depends on elements at the same place alone: the exact answer is then
    made of small pieces, which no fault of a size or a layout reaches."""
    arithmetic: str = ""
    """`product` or `convolution`: whose precision setting float32 follows."""
    steady: bool = True
    """Whether a second call gives the same bits."""
    serial: bool = False
    """Whether kernels add up a whole axis one number after the other in float32."""
    kept: bool = False
    """Whether the answer is made of the very numbers that went in: every bit must be right."""
    roundings: int = 0
    """How often half precision is rounded in every layout, all else being done in float32: once,
    or before something is added too. 0: not known, as it may be after each step."""
    roundings_back: int = 0
    """The same of the gradients."""


def itself(row: Operator) -> Callable[..., Any]:
    """How the exact answer of a row is computed."""
    return row.exact or row.run
