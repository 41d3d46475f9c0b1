"""Writes a plan as settings for a trainer's config, and lists the settings for which the trainer
has no key."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from gpusetup.configs.config import read_config
from gpusetup.model.documents import TrainerSettings
from gpusetup.model.frozen import replace
from gpusetup.plan.config import for_gpus, question_of
from gpusetup.plan.decide import MachineLimits, RecipeDecision
from gpusetup.plan.job import BESIDE_FIELDS, JOB_DEFAULTS, TrainingJob
from gpusetup.plan.job_of_question import job_of
from gpusetup.plan.settings_text import Format, Values, without_none, written, yaml_text
from gpusetup.plan.trainer_words import (
    JobAndRecipe,
    axolotl,
    hf,
    llama_factory,
    trinity,
    trl,
    verl,
)


class Writer(NamedTuple):
    """How a trainer's settings are written: the function for its keys, the format, and a title that
    says where to paste them."""

    values: Callable[[JobAndRecipe], Values]
    format: Format
    title: str


WRITERS: Mapping[str, Writer] = {
    "trinity": Writer(trinity, "yaml", "Paste into Trinity-RFT's config"),
    "verl": Writer(verl, "overrides", "Paste after `python3 -m verl.trainer.main_ppo`"),
    "hf": Writer(hf, "flags", "Flags to paste after your script (transformers' Trainer)"),
    "trl": Writer(trl, "flags", "Flags to paste after `trl sft`"),
    "llama-factory": Writer(llama_factory, "yaml", "Paste into LLaMA-Factory's config"),
    "axolotl": Writer(axolotl, "yaml", "Paste into axolotl's config"),
}


def trainer_settings(trainer: str | None, decision: RecipeDecision) -> TrainerSettings | None:
    """The plan as settings for a trainer's config; None if the job does not fit or the trainer has
    no writer.

    `missing` lists the parts of the plan that the trainer has no key for. To find them, the
    settings are read back as a config and compared with the plan.
    """
    writer = WRITERS.get(trainer or "")
    if writer is None or trainer is None or not decision.fits:
        return None
    facts = JobAndRecipe(decision.job, decision.shown.recipe)
    values = without_none(writer.values(facts))
    return TrainerSettings(
        trainer=trainer,
        title=writer.title,
        text=written(values, writer.format),
        missing=tuple(missing(trainer, decision, yaml_text(values))),
    )


def missing(trainer: str, decision: RecipeDecision, text: str) -> Iterator[str]:
    """The parts of the plan that the settings do not express, so that the user must set them in
    another way."""
    job, recipe = decision.job, decision.shown.recipe
    read_back = job_read_back(trainer, job, text)
    for name in sorted(JOB_DEFAULTS.keys() - NOT_COMPARED):
        planned = getattr(job, name)
        written_down = getattr(read_back, name)
        is_same_key = planned in FSDP and written_down in FSDP
        if planned != written_down and not is_same_key:
            yield f"{name.replace('_', ' ')}: {planned}"
    if recipe.offload and trainer not in ("trinity", "verl"):
        yield "CPU offload of the parameters"
    if recipe.sp > 1 and trainer not in ("trinity", "verl"):
        yield f"sequence parallelism over {recipe.sp} GPUs"


FSDP = ("fsdp", "fsdp1")
"""Strategies that count as equal, because trainers set them with the same key."""


def job_read_back(trainer: str, job: TrainingJob, text: str) -> TrainingJob:
    """The job that plan reads from the settings which it has written for a trainer.

    If a field differs from the planned job, the settings do not express it, so `missing` lists it.
    """
    config = read_config(text.encode(), "train.yaml")
    from_config = question_of(config, trainer)
    question = for_gpus(from_config, job.gpus)
    # The settings only contain what affects memory, so the sequence length and the model come from
    # the plan.
    question = replace(question, context=job.context, tokens=job.tokens)
    # The LoRA rank comes from the plan too. Settings that quantise the base are already read as
    # LoRA training.
    is_quantised = question.job_fields.get("quantize") is not None
    if job.lora is not None and not is_quantised:
        job_fields = {**question.job_fields, "lora": job.lora}
        question = replace(question, job_fields=job_fields)
    # Only the job's fields are compared, so the machine does not matter.
    no_limits = MachineLimits(capacity=0)
    return job_of(question, job.shape, no_limits)


NOT_COMPARED = {
    "batch", "tokens", "step", "lora", "reentrant", "accumulate", "gpus", "context", "frozen",
    "tables", *BESIDE_FIELDS,
}  # fmt: skip
"""Job fields that are not compared: the trainer derives them itself, reading back adds them, or
they depend on the user's model and the additional models."""
