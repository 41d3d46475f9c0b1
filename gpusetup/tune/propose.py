"""What to change in a config on this machine, and what to say about the rest. Pure."""

from __future__ import annotations

from gpusetup.configs.config import Config, changed
from gpusetup.model.frozen import replace
from gpusetup.tune.batch import batch, cannot_fit
from gpusetup.tune.case import MEASURED, Case, Facts, Option, Proposal, Proposed
from gpusetup.tune.refusals import fixed_by_another
from gpusetup.tune.rules import RULES, several_gpus
from gpusetup.tune.trainers import meant

NOTHING_ASKED = Option()


def propose(config: Config, facts: Facts, option: Option = NOTHING_ASKED) -> Proposal:
    """Every rule's changes and words, in the file's order."""
    found = tuple(one for one in meant(config) if not one[1].plan)
    fixed = fixed_by_another(config)
    case = Case(config=config, facts=facts, option=option, found=found, fixed=fixed)
    parts = [part for rule in RULES for part in rule(case)]
    if option.interrupted:
        parts = [one for one in parts if isinstance(one, str) or one.change.source == MEASURED]
    edits = [part.edit for part in parts if isinstance(part, Proposed)]
    case = replace(case, changed=changed(config, edits))
    if option.measured or not option.interrupted:
        parts = [*several_gpus(case), *batch(case), *parts]
    stopped = cannot_fit(case)
    made = [part for part in parts if isinstance(part, Proposed) and not stopped]
    made.sort(key=lambda one: (one.edit.start, one.edit.text))
    return Proposal(
        changes=tuple(one.change for one in made),
        edits=tuple(one.edit for one in made),
        words=tuple(dict.fromkeys(part for part in parts if isinstance(part, str))),
        cannot_fit=stopped,
    )
