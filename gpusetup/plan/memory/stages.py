"""The layers of which one GPU of a pipeline keeps something."""

from __future__ import annotations

from gpusetup.plan.model.workload import Workload


def stage_layers(w: Workload) -> float:
    """Layers of which a GPU keeps something: those of its stage, for every micro-batch in flight.

    One forward, one backward (Narayanan et al., arXiv 2104.04473): the first of p stages holds p
    micro-batches of L / p layers, which is L again. Frozen layers below the first that is trained
    are in no graph, unless layers are recomputed in a backward pass of its own, which needs an
    input that asks for a gradient (`enable_input_require_grads` in transformers).
    """
    in_flight = 1 / w.stages if w.strategy == "device-map" else interleaved(w)
    if w.trained_layers is None or (w.checkpointing and w.reentrant):
        return w.even_layers * in_flight
    return float(min(w.trained_layers, w.shape.layers))


def interleaved(w: Workload) -> float:
    """How much more the first stage of an interleaved pipeline holds: 1 + (p - 1) / (p v) of L.

    With v pieces a stage (Korthikanti et al., arXiv 2205.05198, section 4.2.3). A step of fewer
    micro-batches than stages has no more in flight than those.
    """
    p, pieces = w.pipeline_parallel, w.virtual_pipeline
    full = 1 + (p - 1) / (p * pieces) if pieces > 1 else 1.0
    return min(full, w.micro_batches / p) if w.micro_batches else full


def layers_together(w: Workload) -> float:
    """Layers that one checkpoint is for: not more than a GPU has."""
    return min(w.checkpoint_layers, w.shape.layers / w.stages)
