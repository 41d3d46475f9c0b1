"""Runs of which too little is known to be sure that one fits."""

from __future__ import annotations

from gpusetup.plan.answer.measured import is_standard
from gpusetup.plan.memory.states import ZERO
from gpusetup.plan.model.workload import Recipe, Workload


def doubt(w: Workload, r: Recipe) -> str | None:
    """A sentence where published runs of this kind ran out too often to be sure that one fits.

    Those of the trainer that was measured are known by its cells.
    """
    if w.shape.kind == "unet":  # whose levels have widths of their own
        return f"the layers of {w.shape.name} are a rough picture, held against no published figure"
    if w.shape.tower and w.lora is None and w.frozen < 1 and w.trained_layers is None:
        return "what the tower of images keeps is not counted: `--frozen` or a LoRA leaves it out"
    kinds = {
        "with parts on the host": r.offload or w.offload_optimizer or w.offload_checkpoints,
        "with a reference model": w.reference is not None,
        "of adapters under ZeRO": w.lora is not None and w.strategy in ZERO,
    }
    kind = next((name for name, its in kinds.items() if its), None)
    if is_standard(w) or kind is None:
        return None
    return f"of published runs {kind} more than 5 % ran out of memory with a fifth to spare"
