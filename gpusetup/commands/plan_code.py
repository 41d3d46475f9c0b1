"""`gpusetup plan --code`: a child traces one step of the user's code."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from gpusetup.errors import Unsatisfiable, UsageError
from gpusetup.render.console import Console

if TYPE_CHECKING:
    from gpusetup.plan.answer.place import Place
    from gpusetup.plan.code.answer import CodeAsked
    from gpusetup.plan.code.trace import CodeRequest
    from gpusetup.plan.memory.constants import Constants

FIRST_BATCH = 8
"""The batch of a GPU that is traced first where `--max-batch` leaves it open."""
IGNORED = (
    "users", "items", "embedding_dim", "mlm", "context", "max_tokens", "lora", "sp", "shard",
    "loss", "trainer", "step", "quantize", "selective", "attention", "offload", "cp", "ep",
    "lora_targets", "dora", "train_embeddings", "fused_kernels", "compile", "tp_sp",
    "load_whole", "reentrant",
    "reshard", "trained_layers",
    "reference", "eval_batch",
    "varied", "classes", "beside",
    "frames", "size", "encoders",

)  # fmt: skip
"""Flags that describe a workload; the code is one."""


def run_code(options: argparse.Namespace, out: Console, place: Place, constants: Constants) -> int:
    """Trace, decide, show. What the code raised is shown in full under `-v`."""
    from gpusetup.commands.plan_trace import traced
    from gpusetup.model.documents import PlanAnswer
    from gpusetup.model.frozen import fields
    from gpusetup.plan.code.answer import plan_of
    from gpusetup.plan.code.trace import CodeFailed
    from gpusetup.render.plan_code import code_text

    asked = asked_of(options, place, constants)
    out.talk(f"tracing one step of {options.code}...")
    try:
        found, best = traced(asked)
    except CodeFailed as problem:
        out.debug(problem.trace)
        raise
    answer = plan_of(found, asked, best)
    document = PlanAnswer(**{f.name: getattr(answer, f.name) for f in fields(answer)})
    out.answer(document, lambda: code_text(answer, out.width))
    return 0 if answer.fits else Unsatisfiable.exit_code


def asked_of(options: argparse.Namespace, place: Place, constants: Constants) -> CodeAsked:
    """The words of the command line, checked."""
    from gpusetup.model.frozen import replace
    from gpusetup.plan.code.answer import CodeAsked, room

    check(options)
    asked = CodeAsked(
        request=request_of(options, place),
        place=place,
        limits=place.limits(safe=options.safe, sp=None),
        constants=constants,
        solved=options.solve == "batch",
    )
    return replace(asked, request=replace(asked.request, limit_bytes=max(room(asked), 1)))


def request_of(options: argparse.Namespace, place: Place) -> CodeRequest:
    from gpusetup.plan.code.trace import CodeRequest

    alone = options.strategy in (None, "single")
    gpus = options.gpus or (1 if alone else place.count or 1)
    strategy = options.strategy or ("ddp" if gpus > 1 else "single")
    if strategy == "single" and gpus > 1:
        raise UsageError(f"`--strategy single` uses one GPU, `--gpus {gpus}` names {gpus}")
    batch = FIRST_BATCH if options.batch is None else -(-options.batch // max(gpus, 1))
    return CodeRequest(
        code=options.code,
        batch=batch,
        amp=None if options.amp == "none" else options.amp,
        checkpointing=bool(options.checkpointing),
        strategy=strategy,
        gpus=gpus,
        optimizer=options.optimizer or "adamw",
        accumulate=1 if options.accumulate is None else options.accumulate,
    )


def check(options: argparse.Namespace) -> None:
    """Raise UsageError for what cannot go with `--code`."""
    if options.batch is None and options.solve != "batch":
        raise UsageError(
            "`--batch` is missing: how many samples one step has",
            hint="`--batch 32`; `--max-batch` finds the largest that fits",
        )
    if options.batch is not None and options.solve == "batch":
        raise UsageError("`--max-batch` looks for what `--batch` gives: leave one out")
    said = [name for name in IGNORED if getattr(options, name) is not None]
    said += [name for name in ("tp", "pp") if getattr(options, name) != 1]
    said += [name for name in ("table", "png") if getattr(options, name)]
    if options.frozen or options.dtype not in (None, "fp32"):
        said.append("frozen" if options.frozen else "dtype")
    if options.solve in ("context", "gpus") or options.format == "yaml":
        said.append({"context": "max-context", "gpus": "gpus-needed"}.get(options.solve, "format"))
    if said:
        raise UsageError(
            f"`--{said[0].replace('_', '-')}` says nothing to `--code`",
            hint="the function itself says what is trained; `--batch`, `--amp`, `--checkpointing`, "
            "`--strategy`, `--gpus`, `--optimizer`, `--accumulate` and `--max-batch` go with it",
        )
