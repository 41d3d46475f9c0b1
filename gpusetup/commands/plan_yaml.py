"""`gpusetup plan --format yaml`: the settings of a plan, in the words of the trainer."""

from __future__ import annotations

from gpusetup.model.documents import PlanCell
from gpusetup.plan.answer.cell import Asked
from gpusetup.plan.answer.decide import Decision
from gpusetup.plan.answer.trainer_config import Job, trainer_config
from gpusetup.plan.answer.yaml import Own, plan_yaml, trinity_settings, yaml_text


def settings(found: PlanCell, decision: Decision, asked: Asked) -> str:
    """A trainer's own configuration where one was named; Unsatisfiable where nothing fits."""
    trainer, recipe = asked.trainer, decision.recipe
    w = decision.fit.workload
    if trainer is None or recipe is None:
        return plan_yaml(found, text=not w.shape.no_decoder)
    from gpusetup.plan.config.unsaid import unsaid

    written = trainer_config(trainer, Job(w=w, r=recipe, accumulate=asked.accumulate))
    start, values = written or ("", trinity_settings(found))
    text = yaml_text(values)
    left = unsaid(text, trainer, w, recipe) if written or trainer == "trinity" else ()
    own = Own(start=start, text=text) if written else None
    return plan_yaml(found, own, text=not w.shape.no_decoder, unsaid=", ".join(left))
