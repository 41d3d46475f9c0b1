"""`gpusetup plan`: does a training workload fit on these GPUs, and with which recipe."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from argparse import _ArgumentGroup as ArgumentGroup
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, get_args

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
from gpusetup.plan.fetch_config import fetched_shape
from gpusetup.plan.job import SHARDED, Attention
from gpusetup.plan.place import (
    Place,
    count_in_name,
    machine_place,
    memory_size,
    named_gpu,
    place_of,
)
from gpusetup.plan.question import Question, job_of, shape_of_question
from gpusetup.plan.rl_methods import method_named
from gpusetup.plan.serve import serve_plan
from gpusetup.plan.shape import Shape
from gpusetup.plan.tables import table_named
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
JOB_OPTIONS = (
    "strategy", "optimizer", "dtype", "amp", "quantize", "lora",
    "tensor_parallel", "pipeline_parallel", "context_parallel", "expert_parallel", "attention",
    "loss",
)  # fmt: skip
"""Options that are fields of a job."""
QUESTION_OPTIONS = (
    "model", "params", "context", "batch", "accumulate", "gpus", "sp", "freeze", "solve", "method",
)  # fmt: skip
"""Options that are fields of a question."""
FIELDS = {
    "--tp": "tensor_parallel", "--pp": "pipeline_parallel", "--cp": "context_parallel",
    "--ep": "expert_parallel",
}  # fmt: skip
"""Option -> its field, if that has another name."""
QUANTIZATIONS = ("nf4", "nf4-dq", "int4", "mxfp4", "int8", "fp8")
CHECKPOINTINGS = ("full", "selective", "none")
OFFLOADED = ("optimizer", "checkpoints")


class Flag(NamedTuple):
    """An option with a value, as `--help` shows it."""

    name: str
    metavar: str
    help: str
    kind: Callable[[str], Any] = str
    choices: Collection[str] | None = None


MODEL_FLAGS = (
    Flag("--model", "NAME", "qwen3-8b, an id at the hub, or a config.json or its folder"),
    Flag("--params", "124M", "instead of --model: the number of parameters"),
    Flag("--from-config", "FILE", "a training config"),
    Flag("--code", "FILE:NAME", "a function in your code that returns model and batch"),
)
JOB_FLAGS = (
    Flag("--context", "N", "tokens a sequence: 32768", int),
    Flag("--batch", "N", "sequences in one micro-batch, on all GPUs together", int),
    Flag("--accumulate", "N", "micro-batches per optimizer step", int),
    Flag("--trainer", "NAME", "use its defaults, and print its own keys or flags: trinity, trl, "
         "hf, axolotl, verl, ..."),
    Flag("--method", "NAME", "sft (default), or what trains on preferences and rewards: dpo, kto, "
         "grpo, ppo, ...", method_named),
    Flag("--optimizer", "NAME", "adamw8bit, adafactor, ...", optimizer_named),
    Flag("--dtype", "TYPE", "type of the weights: fp32, bf16, fp16", str, ("fp32", "bf16", "fp16")),
    Flag("--amp", "TYPE", "mixed precision: bf16, fp16, none", str, ("bf16", "fp16", "none")),
    Flag("--attention", "TYPE", "flash, sdpa, or eager, which stores all scores", str,
         get_args(Attention)),
    Flag("--loss", "NAME", "how logits are held: fused (Liger, Unsloth), chunked, hf, eager, ..."),
    Flag("--lora", "RANK", "train only LoRA adapters of this rank", int),
    Flag("--quantize", "TYPE", "quantize the frozen model: nf4, int8, ...", str, QUANTIZATIONS),
)  # fmt: skip
GPU_FLAGS = (
    Flag("--gpus", "N", "number of GPUs that train (not those of inference servers)", int),
    Flag("--strategy", "NAME", "ddp, fsdp, zero2, dp (DataParallel), ...", strategy_named, SHARDED),
    Flag("--sp", "N", "sequence parallelism", int),
    Flag("--tp", "N", "tensor parallelism", int),
    Flag("--pp", "N", "pipeline parallelism", int),
    Flag("--cp", "N", "context parallelism", int),
    Flag("--ep", "N", "expert parallelism", int),
)
SERVING_FLAGS = (
    Flag("--weights", "TYPE", "type of the weights: bf16, fp8, int4, q4_k_m"),
    Flag("--cache", "TYPE", "type of the cache: bf16, fp8, q8_0"),
    Flag(
        "--gpu-memory-utilization",
        "SHARE",
        "the share of the GPU that the server may use: 0.95 (vLLM), --mem-fraction-static (SGLang)",
        float,
    ),
)


def configure(parser: ArgumentParser) -> None:
    parser.usage = "gpusetup plan (--model NAME | --from-config FILE | --code FILE:NAME) [options]"
    for title, example, add_options in (
        ("model", "--model meta-llama/Llama-3.1-8B", add_model),
        ("job", "--context 4096 --batch 8 --trainer trl --lora 16", add_job),
        ("GPUs", '--gpu "A100 80GB" --gpus 4 --strategy fsdp', add_gpus),
        ("answer", "--model qwen3-14b --gpu H20 --max-context", add_answer),
        ("serving", "--serve vllm --model qwen3-32b --context 8192 --batch 8", add_serving),
    ):
        add_options(parser.add_argument_group(title, f"for example: {example}"))


def add_flags(group: ArgumentGroup, flags: Iterable[Flag]) -> None:
    """Add options with a value; each is stored under the name of its field."""
    for flag in flags:
        dest = FIELDS.get(flag.name, flag.name.lstrip("-").replace("-", "_"))
        group.add_argument(
            flag.name,
            dest=dest,
            type=flag.kind,
            choices=flag.choices,
            metavar=flag.metavar,
            help=flag.help,
        )


def add_model(group: ArgumentGroup) -> None:
    """What is trained, and what of it."""
    add_flags(group, MODEL_FLAGS)
    group.add_argument(
        "--fetch-config",
        action="store_true",
        help="read the config.json of an unknown model from its hub (uses the network)",
    )
    group.add_argument(
        "--freeze",
        nargs="?",
        const="all",
        metavar="PART",
        help="the model is frozen, not trained; or: embeddings, 10 (first layers), 90%%",
    )
    group.add_argument(
        "--embedding",
        dest="tables",
        action="append",
        type=table_named,
        metavar="ROWSxWIDTH",
        help="an embedding table next to the model: users=6040x64; repeat it for items",
    )


def add_job(group: ArgumentGroup) -> None:
    """How is trained."""
    add_flags(group, JOB_FLAGS)
    group.add_argument(
        "--checkpointing",
        nargs="?",
        const="full",
        choices=CHECKPOINTINGS,
        metavar="full",
        help="full, selective or none",
    )
    group.add_argument(
        "--offload",
        action="append",
        choices=OFFLOADED,
        metavar="WHAT",
        help="keep in RAM: optimizer, checkpoints",
    )


def add_gpus(group: ArgumentGroup) -> None:
    """Where is trained: one way to name the GPU, their number, and how they share the work."""
    place = group.add_mutually_exclusive_group()
    place.add_argument("--gpu", metavar="NAME", help='a GPU by name: "A100 80GB"')
    place.add_argument("--gpu-mem", metavar="SIZE", help="a GPU by its memory: 24GiB")
    add_shared(place, "--from")
    add_flags(group, GPU_FLAGS)


def add_answer(group: ArgumentGroup) -> None:
    """What is looked for."""
    unknown = group.add_mutually_exclusive_group()
    for flag, name, help_text in (
        ("--max-context", "context", "find the longest context that fits"),
        ("--max-batch", "batch", "find the largest batch that fits"),
        ("--gpus-needed", "gpus", "find the fewest GPUs that are enough, without offload"),
    ):
        unknown.add_argument(flag, dest="solve", action="store_const", const=name, help=help_text)
    group.add_argument("--cells", metavar="CSV", help="answer every row of a CSV file, as JSON")
    group.add_argument(
        "--predict", action="store_true", help="only predict; do not use measured results"
    )


def add_serving(group: ArgumentGroup) -> None:
    """A server in place of a training."""
    group.add_argument(
        "--serve",
        nargs="?",
        const="vllm",
        metavar="ENGINE",
        help="vllm (default), sglang, llama.cpp; an older one: vllm==0.6.3",
    )
    add_flags(group, SERVING_FLAGS)


def run(options: Namespace, out: Console) -> int:
    check_modes(options)
    take_count_from_gpu(options)
    if options.cells:
        return run_cells(options, out)
    if options.serve:
        place = place_of_options(options, out)
        served = serve_plan(vars(options), place, fetcher(options, out))
        return out.answer(served, serve_text, yes=served.fits)
    if options.code:
        return run_code(options, out, place_of_options(options, out))
    plan = answer(request_of(options, out))
    return out.answer(plan, plan_text, yes=plan.fits)


def take_count_from_gpu(options: Namespace) -> None:
    """Read `--gpu "8x H100"` as eight of them; UsageError if `--gpus` says another number."""
    if not options.gpu:
        return
    count, options.gpu = count_in_name(options.gpu)
    if count is None:
        return
    if options.gpus not in (None, count):
        raise UsageError(f"`--gpu` names {count} GPUs, `--gpus` {options.gpus}")
    options.gpus = count


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


def request_of(options: Namespace, out: Console) -> PlanRequest:
    """The question, checked before the machine is read, and what its answer is made with."""
    question = question_of(options)
    from_config = None
    if options.from_config:
        from_config = config_question(options.from_config, question)
        question = from_config.question
    shape = shape_of_question(question, fetch=fetcher(options, out))
    place = place_of_options(options, out)
    uses_one = question.job_fields.get("strategy") == "single"
    usual_gpus = 1 if uses_one else place.count or question.group_size
    config_gpus = from_config.gpus if from_config else None
    gpus = options.gpus or config_gpus or usual_gpus
    question = config.for_gpus(from_config, gpus) if from_config else replace(question, gpus=gpus)
    limits = place.limits(question.sp, predict=options.predict)
    if question.solve == "gpus" and not options.gpus:  # their number is the unknown
        question = replace(question, gpus=None)
    return PlanRequest(
        question=question,
        place=place,
        limits=limits,
        job=job_of(question, shape, limits),
        config=config.read_for_gpus(from_config, gpus) if from_config else None,
        notes=from_config.notes if from_config else (),
        rope=from_config.rope if from_config else None,
        gpu_rows=tuple(load_catalog().gpus),
    )


def fetcher(options: Namespace, out: Console) -> Callable[[str], Shape] | None:
    """How an unknown model's shape is got from its hub; None if nobody allowed the network."""
    if not options.fetch_config:
        return None
    return lambda model: fetched_shape(model, out.talk)


def question_of(options: Namespace) -> Question:
    """The question of the command line."""
    job_fields = {
        name: getattr(options, name) for name in JOB_OPTIONS if getattr(options, name) is not None
    }
    job_fields |= {f"offload_{what}": True for what in options.offload or ()}
    if options.checkpointing:
        field = "selective" if options.checkpointing == "selective" else "checkpointing"
        job_fields[field] = options.checkpointing != "none"
    return Question(
        **{name: getattr(options, name) for name in QUESTION_OPTIONS},
        trainer=trainer_named(options.trainer),
        tables=tuple(options.tables or ()),
        job_fields=job_fields,
    )


def config_question(file: str, from_options: Question) -> config.FromConfig:
    """The question of a config, with the options over it; UsageError if neither names a model."""
    from_config = config.question_of(
        read_config(read_bytes(file), Path(file).name), from_options.trainer, os.environ
    )
    overrides: dict[str, Any] = {}
    for name in QUESTION_OPTIONS:
        value = getattr(from_options, name)
        if value is not None:
            overrides[name] = value
    if from_options.tables:
        overrides["tables"] = from_options.tables
    if from_options.solve in ("context", "batch"):  # the config's value is not the answer
        overrides[from_options.solve] = None
    if from_options.params is not None:
        overrides["model"] = None
    job_fields = {**from_config.question.job_fields, **from_options.job_fields}
    if needs_config_rank(job_fields, from_config):
        job_fields["lora"] = from_config.rank
    question = replace(from_config.question, **overrides, job_fields=job_fields)
    if question.model is None and question.params is None:
        variables = [line for line in from_config.read.assumed if "variable" in line]
        hint = "add `--model NAME` (a hub id, a short name, or a config.json) or `--params 7B`"
        raise UsageError(
            f"{file} does not say which model is trained", hint="\n".join((*variables, hint))
        )
    if from_options.batch is not None or from_options.solve == "batch":
        from_config = replace(from_config, per_gpu=None, total=None)
    return replace(from_config, question=question)


def needs_config_rank(job_fields: Mapping[str, Any], from_config: config.FromConfig) -> bool:
    """Whether `--quantize` asks for adapters, whose rank the config has though it uses none."""
    has_rank = from_config.rank is not None and job_fields.get("lora") is None
    return has_rank and job_fields.get("quantize") not in (None, "fp8")


def place_of_options(options: Namespace, out: Console) -> Place:
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
    "--serve": ("--model", "--params", "--fetch-config", "--context", "--batch", "--gpus",
                "--weights", "--cache", "--gpu-memory-utilization", *WHERE),
    "--code": ("--batch", "--max-batch", "--amp", "--checkpointing",
               "--strategy", "--gpus", "--optimizer", "--accumulate", *WHERE),
    "--cells": ("--predict",),
}  # fmt: skip
"""What goes with a mode; all else says nothing to it."""


def check_modes(options: Namespace) -> None:
    """UsageError if two options ask for different things."""
    typed = {word.partition("=")[0] for word in options.typed if word.startswith("--")}
    only_for_servers = {flag.name for flag in SERVING_FLAGS} & typed
    if not options.serve and only_for_servers:
        raise UsageError(f"`{min(only_for_servers)}` needs a server: add `--serve`")
    for mode, options_of_mode in TAKES.items():
        others = typed - {mode, *options_of_mode, "--json", "--output"}
        if mode in typed and others:
            hint = f"it takes `{'`, `'.join(options_of_mode)}`"
            raise UsageError(f"`{min(others)}` says nothing to `{mode}`", hint=hint)
