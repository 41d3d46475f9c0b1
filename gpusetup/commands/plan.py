"""`gpusetup plan`: does a training workload fit on these GPUs, and with which recipe."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from gpusetup.catalog.builds import with_catalog
from gpusetup.catalog.file import load_catalog
from gpusetup.commands.common import add_shared, gather
from gpusetup.commands.plan_code import run_code
from gpusetup.configs.config import read_config
from gpusetup.configs.keys import optimizer_named, strategy_named
from gpusetup.errors import BadInput, UsageError
from gpusetup.model.documents import PlanCellsAnswer
from gpusetup.model.frozen import replace
from gpusetup.plan import config
from gpusetup.plan.answer import PlanRequest, answer
from gpusetup.plan.cells import plans
from gpusetup.plan.job import SHARDED
from gpusetup.plan.place import Place, machine_place, memory_size, named_gpu, place_of
from gpusetup.plan.question import Question, job_of, shape_of_question
from gpusetup.plan.serve import serve_plan
from gpusetup.plan.trainers import trainer_named
from gpusetup.render.console import Console
from gpusetup.render.plan import plan_text, serve_text
from gpusetup.tune.config_file import read_bytes

SUMMARY = (
    "Says whether a training fits on GPUs (this machine's, if you name none), with which settings, "
    "and how much memory is left."
)
EXAMPLES = (
    'gpusetup plan --model qwen3-8b --gpu "RTX 4090"',
    'gpusetup plan --from-config train.yaml --gpu "RTX 4090"',
    'gpusetup plan --serve vllm --model qwen3-32b --context 32768 --batch 8 --gpu "H100 SXM5"',
)
HOW = (
    "strategy", "optimizer", "dtype", "amp", "quantize", "lora",
    "tensor_parallel", "pipeline_parallel", "context_parallel",
)  # fmt: skip
"""Options that are fields of a job."""
PARALLEL = {
    "--tp": "tensor_parallel", "--pp": "pipeline_parallel", "--cp": "context_parallel",
}  # fmt: skip
FROZEN = ("nf4", "nf4-dq", "int4", "mxfp4", "int8", "fp8")
CHECKPOINTED = ("full", "selective", "none")
OFFLOADED = ("optimizer", "checkpoints")
WHAT = ("model", "params", "context", "batch", "accumulate", "gpus", "sp",
        "solve")  # fmt: skip
"""Options that are fields of a question."""


def configure(parser: ArgumentParser) -> None:
    parser.usage = "gpusetup plan (--model NAME | --from-config FILE | --code FILE:NAME) [options]"
    what = parser.add_argument_group("what to train or serve, and where")
    place = what.add_mutually_exclusive_group()
    how, answer = parser.add_argument_group("how"), parser.add_argument_group("answer")
    add_shared(place, "--from")
    for group, flag, kind, metavar, said in (
        (place, "--gpu", str, "NAME", 'a GPU by name: "A100 80GB"'),
        (place, "--gpu-mem", str, "SIZE", "a GPU by its memory: 24GiB"),
        (what, "--gpus", int, "N", "number of GPUs"),
        (what, "--model", str, "NAME", "qwen3-8b, or a config.json or its folder"),
        (what, "--params", str, "124M", "instead of --model: the number of parameters"),
        (what, "--from-config", str, "FILE", "a training config"),
        (what, "--code", str, "FILE:NAME", "a function in your code that returns model and batch"),
        (what, "--context", int, "N", "tokens a sequence: 32768"),
        (what, "--batch", int, "N", "sequences in one micro-batch, on all GPUs together"),
        (what, "--accumulate", int, "N", "micro-batches per optimizer step"),
        (
            what,
            "--weights",
            str,
            "TYPE",
            "with --serve: type of the weights: bf16, fp8, int4, q4_k_m",
        ),
        (what, "--cache", str, "TYPE", "with --serve: type of the cache: bf16, fp8, q8_0"),
        (how, "--trainer", str, "NAME", "use its defaults: hf, trl, torchtune, ..."),
        (how, "--optimizer", optimizer_named, "NAME", "adamw8bit, adafactor, ..."),
        (how, "--lora", int, "RANK", "train only LoRA adapters of this rank"),
        (how, "--sp", int, "N", "sequence parallelism"),
        (how, "--tp", int, "N", "tensor parallelism"),
        (how, "--pp", int, "N", "pipeline parallelism"),
        (how, "--cp", int, "N", "context parallelism"),
        (answer, "--cells", str, "CSV", "answer every row of a CSV file, as JSON"),
    ):
        dest = PARALLEL.get(flag, flag[2:].replace("-", "_"))
        group.add_argument(flag, dest=dest, type=kind, metavar=metavar, help=said)
    add, strategies = how.add_argument, "ddp, fsdp, zero2, ..."
    add("--strategy", type=strategy_named, choices=SHARDED, metavar="NAME", help=strategies)
    for flag, choices, said in (
        ("--dtype", ("fp32", "bf16", "fp16"), "type of the weights: fp32, bf16, fp16"),
        ("--amp", ("bf16", "fp16", "none"), "mixed precision: bf16, fp16, none"),
        ("--quantize", FROZEN, "quantize the frozen model: nf4, int8, ..."),
    ):
        add(flag, choices=choices, metavar="TYPE", help=said)
    engines = "vllm (default), sglang, llama.cpp"
    what.add_argument("--serve", nargs="?", const="vllm", metavar="ENGINE", help=engines)
    some: dict[str, Any] = {"nargs": "?", "const": "full", "choices": CHECKPOINTED}
    add("--checkpointing", **some, metavar="full", help="full, selective or none")
    ram = "keep in RAM: optimizer, checkpoints"
    add("--offload", action="append", choices=OFFLOADED, metavar="WHAT", help=ram)
    unknown = answer.add_mutually_exclusive_group().add_argument
    for flag, name, said in (
        ("--max-context", "context", "find the longest context that fits"),
        ("--max-batch", "batch", "find the largest batch that fits"),
        ("--gpus-needed", "gpus", "find the fewest GPUs that are enough"),
    ):
        unknown(flag, dest="solve", action="store_const", const=name, help=said)
    answer.add_argument(
        "--predict", action="store_true", help="only predict; do not use measured results"
    )


def run(options: Namespace, out: Console) -> int:
    check_modes(options)
    if options.cells:
        return run_cells(options, out)
    if options.serve:
        served = serve_plan(vars(options), _place(options, out))
        return out.answer(served, serve_text, yes=served.fits)
    if options.code:
        return run_code(options, out, _place(options, out))
    found = answer(asked_of(options, out))
    return out.answer(found, plan_text, yes=found.fits)


def run_cells(options: Namespace, out: Console) -> int:
    """Answer each row; a row that cannot be answered fails alone, unless that is all of them."""
    gpus = load_catalog().gpus
    cells = tuple(plans(Path(options.cells), gpus, predict=options.predict))
    errors = [cell.error for cell in cells if cell.error]
    if errors and len(errors) == len(cells):
        raise BadInput(f"{options.cells}: no row can be answered; {errors[0]}")
    if errors:
        counted = f"{len(errors)} of {len(cells)} rows"
        out.talk(f"{options.cells}: {counted} could not be answered; the first: {errors[0]}")
    return out.answer(PlanCellsAnswer(cells=cells))


def asked_of(options: Namespace, out: Console) -> PlanRequest:
    """The question, checked before the machine is read, and what its answer is made with."""
    question, found = question_of(options), None
    if options.from_config:
        found = from_config(options.from_config, question)
        question = found.question
    shape = shape_of_question(question)
    place = _place(options, out)
    alone = question.job_fields.get("strategy") == "single"
    several = 1 if alone else place.count or question.group_size
    gpus = options.gpus or (found.gpus if found else None) or several
    question = config.for_gpus(found, gpus) if found else replace(question, gpus=gpus)
    limits = place.limits(question.sp, predict=options.predict)
    said = question if options.gpus or options.solve != "gpus" else replace(question, gpus=None)
    job = job_of(said, shape, limits)
    return PlanRequest(
        question=said,
        place=place,
        limits=limits,
        job=job,
        config=found.read if found else None,
        notes=found.notes if found else (),
        rope=found.rope if found else None,
        gpu_rows=tuple(load_catalog().gpus),
    )


def question_of(options: Namespace) -> Question:
    how = {name: getattr(options, name) for name in HOW if getattr(options, name) is not None}
    how |= {f"offload_{what}": True for what in options.offload or ()}
    if options.checkpointing:
        field = "selective" if options.checkpointing == "selective" else "checkpointing"
        how[field] = options.checkpointing != "none"
    said = {name: getattr(options, name) for name in WHAT}
    return Question(**said, trainer=trainer_named(options.trainer), job_fields=how)


def from_config(file: str, said: Question) -> config.FromConfig:
    """The question of a file under what was said; UsageError if neither names a model."""
    found = config.question_of(
        read_config(read_bytes(file), Path(file).name), said.trainer, os.environ
    )
    mine = {name: value for name in WHAT if (value := getattr(said, name)) is not None}
    mine |= {said.solve: None} if said.solve in ("context", "batch") else {}
    question = replace(
        found.question, **mine, job_fields={**found.question.job_fields, **said.job_fields}
    )
    if question.model is None:
        lines = [line for line in found.read.assumed if "variable" in line]
        hint = "add `--model NAME` (a hub id, a short name, or a config.json)"
        raise UsageError(
            f"{file} does not say which model is trained", hint="\n".join((*lines, hint))
        )
    if said.batch is not None or said.solve == "batch":
        found = replace(found, per_gpu=None, total=None)
    return replace(found, question=question)


def _place(options: Namespace, out: Console) -> Place:
    """The GPU that was named, or the machine's."""
    if options.gpu_mem:
        return place_of(None, memory_size(options.gpu_mem))
    catalog = load_catalog()
    if options.gpu:
        return named_gpu(options.gpu, catalog.gpus)
    return machine_place(with_catalog(gather(options, out), catalog))


# --- what goes together ---------------------------------------------------------------------------

WHERE = ("--gpu", "--gpu-mem", "--from")
TAKES = {
    "--serve": ("--model", "--params", "--context", "--batch", "--gpus", "--weights", "--cache",
                *WHERE),
    "--code": ("--batch", "--max-batch", "--amp", "--checkpointing",
               "--strategy", "--gpus", "--optimizer", "--accumulate", *WHERE),
    "--cells": ("--predict",),
}  # fmt: skip
"""What goes with a mode; all else says nothing to it."""


def check_modes(options: Namespace) -> None:
    """UsageError if two options ask for different things."""
    said = {word.partition("=")[0] for word in options.typed if word.startswith("--")}
    if not options.serve and {"--weights", "--cache"} & said:
        raise UsageError("`--weights` and `--cache` need a server: add `--serve`")
    for mode, takes in TAKES.items():
        if mode in said and (others := said - {mode, *takes, "--json", "--output"}):
            hint = f"it takes `{'`, `'.join(takes)}`"
            raise UsageError(f"`{min(others)}` says nothing to `{mode}`", hint=hint)
