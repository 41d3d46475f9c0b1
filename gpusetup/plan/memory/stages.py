"""The layers of which one GPU of a pipeline keeps something."""

from __future__ import annotations

from gpusetup.plan.model.workload import Workload


def stage_layers(w: Workload) -> float:
    """Layers of which a GPU keeps something: those of its stage, for every micro-batch in flight.

    One forward, one backward (Narayanan et al., arXiv 2104.04473): the first of p stages holds p
    micro-batches of L / p layers, which is L again, unless a step has fewer micro-batches. Frozen
    layers below the first that is trained are in no graph, unless layers are recomputed in a
    backward pass of its own, which needs an input that asks for a gradient
    (`enable_input_require_grads` in transformers).
    """
    p = w.pipeline_parallel
    in_flight = 1 / w.stages if w.strategy == "device-map" else min(1, (w.micro_batches or p) / p)
    if w.trained_layers is None or (w.checkpointing and w.reentrant):
        return w.even_layers * in_flight
    return float(min(w.trained_layers, w.shape.layers))
