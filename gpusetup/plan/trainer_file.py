"""A plan as the config of a trainer, by the keys of its row in `data/plan/trainers.json`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpusetup.configs.config import read_config
from gpusetup.errors import Unsatisfiable, UsageError
from gpusetup.model.documents import PlanCell
from gpusetup.model.frozen import replace
from gpusetup.plan.config import for_gpus, question_of
from gpusetup.plan.decide import Decision, Limits
from gpusetup.plan.job import FIELDS, samples, tokens, yarn
from gpusetup.plan.models import hub_id
from gpusetup.plan.question import job_of
from gpusetup.plan.trainers import rows

Values = dict[str, Any]


def facts(decision: Decision) -> Values:
    """What a key may say: the fields of the job, and what follows from several of them."""
    job, recipe = decision.job, decision.shown.recipe
    method = "full"
    if job.lora is not None:
        method = "qlora" if job.quantize in ("nf4", "nf4-dq") else "lora"
    return {name: getattr(job, name) for name in FIELDS} | {
        "model": hub_id(job.shape.name),
        "each": samples(job, recipe),
        "method": method,
        "half": job.amp or job.dtype,
        "pure": job.dtype if job.amp is None and job.lora is None else None,
        "sp": recipe.sp,
        "offload": recipe.offload,
        "trinity": f"${{oc.env:TRINITY_MODEL_PATH,{hub_id(job.shape.name)}}}",
        "prompt": job.context // 2,
        "rope_scaling": yarn(job),
        "dynamic": job.batch is None,
        "budget": tokens(job, recipe) if job.batch is None else None,
    }


def settings(trainer: str, decision: Decision) -> Values:
    """A trainer's own settings.

    Of a row's keys each has a fact, a fact with the text of each of its values, or one text in a
    list. A key with dots is inside maps.
    """
    found = facts(decision)
    written: Values = {}
    for key, what in rows()[trainer].get("writes", {}).items():
        if isinstance(what, str):
            value = found[what]
        elif isinstance(what, Mapping):
            ((fact, texts),) = what.items()
            value = texts.get(str(found[fact]).lower())
        else:
            value = what[0]
        if value is not None:
            *outer, last = key.split(".")
            place = written
            for name in outer:
                place = place.setdefault(name, {})
            place[last] = value
    return written


def unsaid(trainer: str, decision: Decision, text: str) -> Iterator[str]:
    """What a run must be told that is not read back from its config."""
    job = decision.job
    found = question_of(read_config(text.encode(), "train.yaml"), trainer)
    question = replace(for_gpus(found, job.gpus), context=job.context)
    read = job_of(question, job.shape, Limits(capacity=0))
    for name in sorted(FIELDS.keys() - {"batch", "tokens", "step"}):
        if (value := getattr(job, name)) != getattr(read, name):
            yield f"{name.replace('_', ' ')} {value}"
    if decision.shown.recipe.offload and trainer != "trinity":
        yield "parameters on the host"


def document(found: PlanCell, trainer: str, decision: Decision) -> str:
    """The trainer's own configuration, with what it does not say in comments."""
    row = rows().get(trainer, {})
    if "writes" not in row:
        known = ", ".join(name for name, one in rows().items() if "writes" in one)
        raise UsageError("`--format yaml` writes a trainer's config", hint=f"`--trainer`: {known}")
    if not found.fits:
        raise Unsatisfiable(
            f"{found.model} does not fit: there are no settings for it",
            hint="`gpusetup plan` without `--format yaml` says what would help",
        )
    own = yaml_text(settings(trainer, decision))
    left = ", ".join(unsaid(trainer, decision, own))
    lines = [f"{found.model}, {found.context:,} tokens, {found.gpus} x {found.gpu}: {found.recipe}"]
    lines += [f"export {name}={value}" for name, value in found.env.items()]
    lines += [f"These settings do not cover the following; set it yourself: {left}"] if left else []
    lines.append(row["start"].format(gpus=found.gpus))
    return "".join(f"# {line}\n" for line in lines) + own


def yaml_text(values: Mapping[str, Any], indent: str = "") -> str:
    """Block YAML of mappings of plain values, each as JSON, which YAML reads.

    >>> print(yaml_text({"a": {"b": True, "c": None}, "d": "x: y"}), end="")
    a:
      b: true
      c: null
    d: "x: y"
    """
    import json

    return "".join(
        f"{indent}{name}:\n{yaml_text(value, indent + '  ')}"
        if isinstance(value, Mapping) and value
        else f"{indent}{name}: {json.dumps(value)}\n"
        for name, value in values.items()
    )
