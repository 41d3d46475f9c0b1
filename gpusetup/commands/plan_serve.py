"""`gpusetup plan --serve`: weights and cache of a server, and what fits beside."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from gpusetup.errors import Unsatisfiable, UsageError
from gpusetup.render.console import Console

if TYPE_CHECKING:
    from gpusetup.plan.answer.place import Place
    from gpusetup.plan.memory.serve import Serving

ALONGSIDE = ("model", "params", "context", "batch", "gpu", "gpu_mem", "gpus", "weights", "cache")
"""What goes with `--serve`; all else is about training."""
TRAINING = (
    "users", "items", "embedding_dim", "mlm", "max_tokens", "lora", "trainer", "strategy",
    "optimizer", "step", "accumulate", "dtype", "amp", "quantize", "checkpointing", "selective",
    "loss", "attention", "offload", "lora_targets", "dora", "train_embeddings", "fused_kernels",
    "compile", "sp", "tp_sp", "cp", "ep", "shard", "load_whole", "reentrant",
    "reshard", "trained_layers", "reference",
    "eval_batch",
    "varied", "classes", "beside",
    "frames", "size", "encoders",

    "solve", "code", "cells", "calibrate", "png",
)  # fmt: skip
CONTEXT = 8192


def run_serve(options: argparse.Namespace, out: Console, place: Place) -> int:
    """Check, answer, show."""
    from gpusetup.plan.answer.serve import checked, serve_plan
    from gpusetup.render.plan_serve import serve_text

    found = serve_plan(checked(serving(options, place)), place.gpu)
    out.answer(found, lambda: serve_text(found))
    return 0 if found.fits else Unsatisfiable.exit_code


def serving(options: argparse.Namespace, place: Place) -> Serving:
    """The words of the command line as a server; UsageError for words about training."""
    from gpusetup.plan.answer.question import Question
    from gpusetup.plan.answer.workload import shape_of_question
    from gpusetup.plan.memory.serve import Serving

    for name in TRAINING:
        if getattr(options, name) not in (None, False, []):
            flag = f"--{name.replace('_', '-')}"
            raise UsageError(
                f"`{flag}` says nothing to `--serve`",
                hint=f"it takes {', '.join('--' + n.replace('_', '-') for n in ALONGSIDE)}",
            )
    context = options.context or CONTEXT
    question = Question(
        model=options.model, params=options.params, context=context, batch=options.batch
    )
    gguf = options.serve == "llama.cpp"
    return Serving(
        shape=shape_of_question(question),
        engine=options.serve,
        weights=options.weights or ("q4_k_m" if gguf else "bf16"),
        cache=options.cache or ("fp16" if gguf else "bf16"),
        gpus=options.gpus or place.count or 1,
        capacity=place.capacity,
        context=context,
        sequences=options.batch or 1,
    )
