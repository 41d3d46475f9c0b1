"""`gpusetup plan --from-config`: the file is read, what the command line says comes before it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from gpusetup.errors import UsageError
from gpusetup.model.frozen import fields, replace
from gpusetup.plan.answer.question import Question
from gpusetup.plan.config.question import FromConfig, question_of

NAME_IT = "add `--model NAME` (a hub id, a short name, or a config.json)"


def read(file: str, said: Question) -> FromConfig:
    """The question of a file under what was said; UsageError where neither names a model."""
    from gpusetup.configs.config import read_config
    from gpusetup.tune.files import read_bytes

    config = read_config(read_bytes(file), Path(file).name)
    found = question_of(config, said.trainer, os.environ)
    question = over(found.question, said)
    if question.model is None:
        raise UsageError(
            f"{file} does not say which model is trained",
            hint="\n".join((*(line for line in found.read.assumed if "variable" in line), NAME_IT)),
        )
    if said.batch is not None or said.tokens is not None:
        found = replace(found, per_gpu=None, total=None)
    if said.solve == "batch":
        found = replace(found, per_gpu=None, total=None)
    return replace(found, question=question)


def over(file: Question, said: Question) -> Question:
    """What was said on the command line, else what the file says.

    >>> over(Question(lora=8, context=2048), Question(context=4096)).context
    4096
    """
    silent = Question()
    values: dict[str, Any] = {}
    for field in fields(Question):
        mine = getattr(said, field.name)
        own = mine != getattr(silent, field.name)
        values[field.name] = mine if own else getattr(file, field.name)
    if said.solve in ("context", "batch"):
        values[said.solve] = None
    return Question(**values)
