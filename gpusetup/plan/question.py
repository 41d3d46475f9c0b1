"""The options of `gpusetup plan` as one record, and the shape of the model that they name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from gpusetup.errors import UsageError
from gpusetup.model.frozen import Frozen
from gpusetup.plan.config_json import MEASURE_HINT
from gpusetup.plan.models import (
    is_at_hand,
    model_of_size,
    parameter_count,
    refuse_uncounted,
    shape_or_assumed,
)
from gpusetup.plan.rl import RlSetup
from gpusetup.plan.shape import Shape
from gpusetup.plan.trained_parts import EmbeddingTable

LARGEST = {
    "context": 10**8, "batch": 10**8, "tokens": 10**9, "gpus": 10**5, "accumulate": 10**6,
    "lora": 10**5, "tensor_parallel": 1024,
    "pipeline_parallel": 1024, "context_parallel": 1024, "expert_parallel": 1024,
    "sp": 1024,
}  # fmt: skip
"""Option -> the largest number that makes sense; a larger one must be a typo."""
USUAL_CONTEXT = 2048
"""The default sequence length in tokens."""


class TrainingQuestion(Frozen):
    """The options of `gpusetup plan`; None for an option that was not given."""

    model: str | None = None
    params: str | None = None
    context: int | None = None
    batch: int | None = None
    tokens: int | None = None
    log_prob_tokens: int | None = None
    """The token budget of one GPU while log-probabilities are computed, without gradients."""
    accumulate: int | None = None
    gpus: int | None = None
    sp: int | None = None
    trainer: str | None = None
    freeze: str | None = None
    """The part of the model that is not trained, as `frozen_share` reads it."""
    tables: tuple[EmbeddingTable, ...] = ()
    """Embedding tables that are trained in addition to the model."""
    solve: Literal["context", "batch", "gpus"] | None = None
    """The value that plan should find: the longest context, the largest batch or the fewest
    GPUs."""
    method: str | None = None
    """The name of the training method (`dpo`, `grpo`), used if there is no `rl` from a config."""
    rl: RlSetup | None = None
    """The additional models of preference or reinforcement learning, as read from a config."""
    job_fields: Mapping[str, Any] = {}
    """Name -> value of other job fields that the user set."""

    @property
    def group_size(self) -> int:
        """The number of GPUs in one data-parallel group: the product of the SP, TP, PP and CP
        degrees."""
        size = self.sp or 1
        # Expert parallelism does not count, because the GPUs that share the experts process
        # different samples.
        for name in ("tensor_parallel", "pipeline_parallel", "context_parallel"):
            size *= self.job_fields.get(name) or 1
        return size

    @property
    def describes_training(self) -> bool:
        """Whether the user set any option about how to train the model, as opposed to the model and
        the length."""
        job = (self.trainer, self.method, self.job_fields, self.freeze, self.tables)
        return any((*job, self.batch, self.tokens, self.solve))


def counts_samples(question: TrainingQuestion, shape: Shape) -> bool:
    """Whether the batch is a number of samples, as opposed to a token budget that RL trainers fill.

    RL trainers train whole text decoders, so images, videos, encoders, classifiers and adapters are
    counted in samples.
    """
    if question.batch is not None or question.solve == "batch":
        return True
    # Without a batch, Trinity-RFT fills a token budget.
    if question.tokens is not None or question.trainer == "trinity":
        return False
    if question.trainer is not None or question.method is not None:
        return True
    trains_whole = question.job_fields.keys().isdisjoint(("lora", "quantize"))
    return not (shape.writes_text and trains_whole)


def context_of(question: TrainingQuestion, shape: Shape) -> int:
    """The number of tokens in a sample: from the question, otherwise fixed by the model, otherwise
    the default."""
    if question.context is not None or shape.tokens is not None:
        return question.context or shape.tokens or 1
    # If the user gives a model's size and a number of samples, the samples are probably not texts.
    if (question.params and question.batch) or question.solve == "context":
        return 1
    longest = shape.native_context or USUAL_CONTEXT
    return longest if shape.encoder else min(USUAL_CONTEXT, longest)


FLAGS = {"tensor_parallel": "tp", "pipeline_parallel": "pp", "context_parallel": "cp",
         "expert_parallel": "ep"}  # fmt: skip
"""Field name -> the name of its option, if the two differ."""


def shape_of_question(
    question: TrainingQuestion, fetch: Callable[[str], Shape] | None = None
) -> Shape:
    """The shape of the model in the question, by name, file or size; UsageError if the question
    names no model, or an unknown one, or if a number is absurd.

    `fetch` returns the shape of a model that plan does not know; None if downloads are not allowed.
    """
    for name, largest in LARGEST.items():
        value = getattr(question, name, question.job_fields.get(name))
        if value is not None and not 1 <= value <= largest:
            raise UsageError(
                f"`--{FLAGS.get(name, name)} {value}` is out of range",
                hint=f"1 to {largest:,}",
            )
    if question.model is not None and question.params is not None:
        refuse_uncounted(question.model)
        raise UsageError(
            "`--model` and `--params` both say what is trained",
            hint="leave one of them out",
        )
    if question.model is not None:
        if fetch is not None and not is_at_hand(question.model):
            return fetch(question.model)
        return shape_or_assumed(question.model)
    if question.params is not None:
        parameters = parameter_count(question.params)
        if question.solve == "batch" and question.context is None:
            # A convolution keeps a value for every pixel, so its batch may be a thousandth of that
            # of a network for rows of a table with as many parameters.
            raise UsageError(
                "The largest batch depends on what a sample keeps, which a number of parameters "
                "does not tell",
                hint="for texts, add their tokens: `--context 1024`; for rows of a table: "
                f"`--context 1`\nfor images and all else, {MEASURE_HINT}",
            )
        has_tokens = question.context is not None or question.solve == "context"
        return model_of_size(parameters) if has_tokens else model_of_size(parameters, 0)
    raise UsageError(
        "Say what to train: `--model`, `--from-config` or `--params`",
        hint='`gpusetup plan --model qwen3-8b --gpu "RTX 4090"`',
    )
