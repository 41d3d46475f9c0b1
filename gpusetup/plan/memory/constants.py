"""The numbers of the memory model that arithmetic cannot give: fitted, or set beforehand."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from gpusetup import named_file
from gpusetup.model.frozen import Frozen

SHIPPED = Path(__file__).resolve().parents[2] / "data" / "plan" / "constants.json"


class Constants(Frozen):
    """What was fitted to measured cells, and what was set beforehand."""

    alone: float
    """Bytes a parameter more on one GPU, where nothing is sharded."""
    unit: float
    """Bytes a parameter of the largest FSDP unit while it is gathered: 16-bit weights of it and
    of the one fetched ahead, and its gradients before they are reduced."""
    unit_offloaded: float
    """The same where states live on the CPU."""
    checkpoint: float
    """Bytes an element of the hidden state that a layer keeps; 2 in 16 bits where every GPU's
    budget of tokens is full, less where batches do not fill it."""
    logit: float
    """Bytes a logit: 16-bit logits and their gradient, and the 32-bit log-softmax between."""
    exchange: float
    """Bytes an element of the hidden state in sequence parallelism's exchanges: query, key, value
    and output, sent and received."""
    fragmentation: float
    """Bytes a logit that segments of fixed size leave unusable."""
    gaps: float = 0.15
    """The share of what comes and goes that segments of fixed size leave unusable in a plain
    loop; the median of published pairs."""
    gaps_sharded: float = 0.31
    """The same where units of parameters are gathered and free late: between the pairs' median,
    0.26, and the share of least error on published figures, 0.36."""
    gaps_shifted: float = 4.2
    """Bytes a logit more where the loss copies the logits one token shorter, so that the copy's
    segment serves nothing else."""
    gaps_varied: float = 1.47
    """The same where sequences are neither padded nor packed to one length: the median of the first
    half of ms-swift's runs (`tests/plan_published.csv`)."""
    gaps_expandable: float = 0.15
    """The same with expandable segments."""
    context_bytes: float
    """The CUDA context and the libraries' workspaces."""
    nccl_bytes: float
    """NCCL's buffers, with more than one GPU."""


@lru_cache(maxsize=1)
def shipped_constants() -> Constants:
    """The constants inside the package."""
    return constants_in(SHIPPED)


def constants_in(path: Path) -> Constants:
    """The constants of a file that `--calibrate` wrote."""
    from gpusetup.errors import BadInput
    from gpusetup.model.codec import from_json

    raw = named_file.read_text(path)
    try:
        found = from_json(raw, ConstantsFile, what=str(path)).constants
    except BadInput as problem:
        hint = "`gpusetup plan --calibrate runs.csv --json --output FILE` writes constants"
        raise BadInput(problem.message, hint=hint) from problem
    bad = [name for name in FITTED if not 0 <= getattr(found, name) < 1e4]
    if bad or found.logit <= 0:
        raise BadInput(f"{path}: `{(bad or ['logit'])[0]}` is out of range")
    return found


class ConstantsFile(Frozen):
    """What holds constants: the shipped file, and the answer of `--calibrate`."""

    constants: Constants


FITTED = ("alone", "unit", "unit_offloaded", "checkpoint", "logit", "exchange", "fragmentation")
"""The constants that a fit may move."""
