"""`gpusetup plan`: predicts whether a training run fits on these GPUs, and with which settings."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args

from gpusetup.catalog.builds import completed_from_catalog
from gpusetup.catalog.file import load_catalog
from gpusetup.commands.common import FROM, Machine, gather
from gpusetup.commands.question import CommandQuestion, HelpGroup, number, option, switch
from gpusetup.commands.reply import Reply
from gpusetup.configs.config import read_config
from gpusetup.configs.keys import name_in_plan
from gpusetup.errors import BadInput, UsageError
from gpusetup.model.documents import ConfigRead, PlanCellsAnswer
from gpusetup.model.frozen import replace
from gpusetup.plan import config
from gpusetup.plan.answer import PlanRequest, answer, plans
from gpusetup.plan.job import SHARDED, Attention
from gpusetup.plan.memory import LOSSES, OPTIMIZERS
from gpusetup.plan.place import (
    Place,
    count_in_name,
    memory_size,
    named_gpu,
    place_of,
    place_of_machine,
)
from gpusetup.plan.question import TrainingQuestion, job_of, shape_of_question
from gpusetup.plan.rl import method_named
from gpusetup.plan.trainers import trainer_named
from gpusetup.render.console import Console
from gpusetup.render.plan import plan_text
from gpusetup.tune.config_file import read_bytes

SUMMARY = """Tells you whether a training run fits on your GPUs, with which settings, and how much
memory is left. Without --gpu, it plans for the GPUs of this machine."""
EXAMPLES = (
    'gpusetup plan --model qwen3-8b --gpu "RTX 4090"',
    'gpusetup plan --from-config train.yaml --gpu "RTX 4090"',
)
QUESTION_OPTIONS = (
    "model", "params", "context", "batch", "accumulate", "gpus", "sp", "solve", "method",
)  # fmt: skip
"""Options that have the same name as a field of a question."""
JOB_OPTIONS = (
    "strategy", "optimizer", "dtype", "amp", "quantize", "lora", "attention", "loss",
)  # fmt: skip
"""Options that have the same name as a field of a job."""


class Question(CommandQuestion):
    _model = HelpGroup("model", "for example: --model meta-llama/Llama-3.1-8B")
    model: str | None = option(
        "a model: a short name (qwen3-8b), a hub id, a config.json or its folder", metavar="NAME"
    )
    params: str | None = option("instead of --model: the number of parameters", metavar="124M")
    from_config: str | None = option("read the job from this training config", metavar="FILE")

    _job = HelpGroup("job", "for example: --context 4096 --batch 8 --trainer trl --lora 16")
    context: int | None = number("tokens per sequence, e.g. 32768")
    batch: int | None = number("number of sequences in one micro-batch, for all GPUs together")
    accumulate: int | None = number("micro-batches per optimizer step")
    trainer: str | None = option(
        "use the defaults of this trainer (trinity, trl, hf, axolotl, verl, ...), and print the "
        "settings as its config keys or flags",
        metavar="NAME",
    )
    method: str | None = option(
        "training method: sft (default), or a method for preferences or rewards, such as dpo, kto, "
        "grpo or ppo",
        metavar="NAME",
        parse=method_named,
    )
    optimizer: str | None = option(
        "the optimizer, e.g. adamw8bit or adafactor",
        metavar="NAME",
        parse=name_in_plan("optimizer"),
        choices=OPTIMIZERS,
    )
    dtype: str | None = option(
        "type of the weights: fp32, bf16 or fp16", metavar="TYPE", choices=("fp32", "bf16", "fp16")
    )
    amp: Literal["bf16", "fp16", "none"] | None = option(
        "mixed precision: bf16, fp16 or none", metavar="TYPE", choices=("bf16", "fp16", "none")
    )
    attention: str | None = option(
        "attention implementation: flash, sdpa, or eager, which keeps all attention scores in "
        "memory",
        metavar="TYPE",
        choices=get_args(Attention),
    )
    loss: str | None = option(
        "how the loss is computed: fused (as in Liger and Unsloth; doesn't store the logits), "
        "chunked, hf, eager, ...",
        metavar="NAME",
        parse=name_in_plan("loss"),
        choices=LOSSES,
    )
    lora: int | None = option("train only LoRA adapters of this rank", metavar="RANK", parse=int)
    quantize: str | None = option(
        "quantize the frozen base model: nf4, int8, ...",
        metavar="TYPE",
        choices=("nf4", "nf4-dq", "int4", "mxfp4", "int8", "fp8"),
    )
    checkpointing: str | None = option(
        "recompute activations in the backward pass: full, selective or none",
        const="full",
        choices=("full", "selective", "none"),
        metavar="full",
    )

    _gpus = HelpGroup("GPUs", 'for example: --gpu "A100 80GB" --gpus 4 --strategy fsdp')
    gpu: str | None = option(
        'the name of the GPU, e.g. "A100 80GB"', metavar="NAME", one_of="place"
    )
    gpu_mem: str | None = option(
        "instead of --gpu: the memory of the GPU, e.g. 24GiB", metavar="SIZE", one_of="place"
    )
    machine: Machine | None = FROM._replace(one_of="place")
    gpus: int | None = number("number of GPUs used for training (not for inference)")
    strategy: str | None = option(
        "how the GPUs share the training: ddp, fsdp, zero2, dp (DataParallel), ...",
        metavar="NAME",
        parse=name_in_plan("strategy"),
        choices=SHARDED,
    )
    sp: int | None = number("degree of sequence parallelism")

    _answer = HelpGroup("answer", "for example: --model qwen3-14b --gpu H20 --max-context")
    max_context: bool = switch("find the longest context that fits", one_of="unknown")
    max_batch: bool = switch("find the largest batch that fits", one_of="unknown")
    gpus_needed: bool = switch("find the smallest number of GPUs without offload", one_of="unknown")
    cells: str | None = option("plan every row of a CSV file, and print JSON", metavar="CSV")
    predict: bool = switch("always estimate, even if a measurement of this job exists")

    @property
    def solve(self) -> str | None:
        """The job field to find: `context`, `batch` (the largest that fits) or `gpus` (the smallest
        number). None if all are given."""
        if self.max_context:
            return "context"
        if self.max_batch:
            return "batch"
        return "gpus" if self.gpus_needed else None

    def job_fields(self) -> dict[str, Any]:
        """The job fields that the options set. Fields that were not given are left out."""
        values = {name: getattr(self, name) for name in JOB_OPTIONS}
        fields = {name: value for name, value in values.items() if value is not None}
        if self.checkpointing:
            fields["checkpointing"] = self.checkpointing != "none"
            fields["selective"] = self.checkpointing == "selective"
        return fields


USAGE = "gpusetup plan (--model NAME | --from-config FILE | --params N) [options]"


def run(options: Question, out: Console) -> Reply:
    """Plan the job that the options describe, or every row of a CSV file."""
    without_effect = options.given - {"cells", "predict"}
    if options.cells and without_effect:
        # Name one of them, always the same.
        flag = options.OPTIONS[min(without_effect)].flags[-1]
        raise UsageError(f"`{flag}` has no effect with `--cells`", hint="put it into a CSV column")
    count, name = count_in_name(options.gpu or "")
    if count is not None:  # `--gpu "8x H100"`
        if options.gpus not in (None, count):
            raise UsageError(f"`--gpu` says {count} GPUs, but `--gpus` says {options.gpus}")
        options = options.replaced(gpu=name, gpus=count)
    if options.cells:
        return run_cells(Path(options.cells), predict=options.predict)
    plan = answer(request_of(options, out))
    return Reply(plan, plan_text, 0 if plan.fits else 1)


def run_cells(file: Path, *, predict: bool) -> Reply:
    """Plan every row of a CSV file; a row that fails has its error in the document. Raises BadInput
    if all rows fail."""
    try:
        cells = tuple(plans(file, load_catalog().gpus, predict=predict))
    except csv.Error as problem:
        raise BadInput(f"{file} is not a CSV file of jobs: {problem}") from problem
    errors = [cell.error for cell in cells if cell.error]
    if errors and len(errors) == len(cells):
        raise BadInput(f"{file}: plan cannot answer any row; {errors[0]}")
    return Reply(PlanCellsAnswer(cells=cells))


def request_of(options: Question, out: Console) -> PlanRequest:
    """The request from which `plan` makes its answer. Options and config are checked before the
    machine is read, so that an error comes without a delay."""
    question = TrainingQuestion(
        **{name: getattr(options, name) for name in QUESTION_OPTIONS},
        trainer=trainer_named(options.trainer),
        job_fields=options.job_fields(),
    )
    from_config = None
    if options.from_config:
        from_config = config_question(options.from_config, question)
        question = from_config.question
    shape = shape_of_question(question)
    place = place_of_options(options, out)
    gpus_of_config = from_config.gpus if from_config else None
    # Sequence parallelism of degree `sp` needs at least so many GPUs.
    gpus_of_place = place.count or question.sp or 1
    # The strategy `single` trains on one GPU, however many the machine has.
    usual_gpus = 1 if question.job_fields.get("strategy") == "single" else gpus_of_place
    gpus = options.gpus or gpus_of_config or usual_gpus
    question = config.for_gpus(from_config, gpus) if from_config else replace(question, gpus=gpus)
    place = replace(place, sp=question.sp, predict=options.predict)
    # plan finds the number of GPUs. If the user gives one too, `job_of` refuses the question.
    if question.solve == "gpus" and not options.gpus:
        question = replace(question, gpus=None)
    job = job_of(question, shape, place)
    return PlanRequest(question=question, place=place, job=job, from_config=from_config)


def config_question(file: str, from_options: TrainingQuestion) -> config.FromConfig:
    """The question in a config, overridden by the options; UsageError if neither names a model."""
    from_config = config.question_of(
        read_config(read_bytes(file), Path(file).name), from_options.trainer, os.environ
    )
    values = {name: getattr(from_options, name) for name in QUESTION_OPTIONS}
    overrides = {name: value for name, value in values.items() if value is not None}
    # plan finds this value itself, so the config's does not count. If the options give it too,
    # `job_of` refuses the question. `request_of` handles `gpus`.
    if from_options.solve in ("context", "batch"):
        overrides.setdefault(from_options.solve, None)
    # `--params` describes another model than the config's.
    if from_options.params is not None:
        overrides["model"] = None
    job_fields = {**from_config.question.job_fields, **from_options.job_fields}
    question = replace(from_config.question, **overrides, job_fields=job_fields)
    if question.model is None and question.params is None:
        hint = "\n".join(_how_to_name_a_model(from_config.read))
        raise UsageError(f"plan finds no model in {file}", hint=hint)
    # A batch that is named or searched for replaces the config's.
    if from_options.batch is not None or from_options.solve == "batch":
        from_config = replace(from_config, per_gpu=None, total=None)
    return replace(from_config, question=question)


def _how_to_name_a_model(read: ConfigRead) -> Iterator[str]:
    """Yields why a config names no model, as far as this is known, and the options that do."""
    # "model.path refers to the variable MODEL_PATH, which is not set: ..."
    yield from (sentence for sentence in read.assumed if "variable" in sentence)
    for key in read.not_understood:
        if "model" in key.key.split("."):
            yield f"line {key.line}: plan does not know the model in `{key.key}: {key.value}`"
    yield "add `--model NAME` (a hub id, a short name, or a config.json) or `--params 7B`"


def place_of_options(options: Question, out: Console) -> Place:
    """The GPUs to plan for: the one that the user named, or those of the machine."""
    if options.gpu_mem:
        return place_of(None, memory_size(options.gpu_mem))
    catalog = load_catalog()
    if options.gpu:
        return named_gpu(options.gpu, catalog.gpus)
    machine = gather(out, options.machine)
    return place_of_machine(completed_from_catalog(machine, catalog))
