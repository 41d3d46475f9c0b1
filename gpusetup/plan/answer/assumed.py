"""What was taken where nobody said it, as sentences for the person."""

from __future__ import annotations

from gpusetup.plan.answer.decide import Case
from gpusetup.plan.answer.question import Question
from gpusetup.plan.answer.solve import max_batch
from gpusetup.plan.model.sample import a_sample, said_of_sample
from gpusetup.plan.model.workload import Workload


def assumed(question: Question, w: Workload, case: Case) -> tuple[str, ...]:
    """All of it, the model's own first."""
    notes = [w.shape.note] if w.shape.note else []
    notes += said_of_sample(w, question.frames, question.size)
    if question.params is not None:
        s = w.shape
        notes.append(f"shape taken as usual for this size: {s.layers} layers of {s.hidden}")
    notes += _length(question, w)
    notes += _positions(question, w)
    notes += _batch(question, w, case)
    notes += _plain_loop(question, w)
    if w.reference is not None and w.lora is not None:
        notes.append(
            "a LoRA needs no `--reference`: it is the base without adapters; one is counted"
        )
    return tuple(notes)


def _length(question: Question, w: Workload) -> list[str]:
    if question.context is not None or question.solve == "context":
        return []
    if w.context == 1 and question.params is not None:
        return ["no `--context`: activations are those of one token (one row) a sample"]
    if w.shape.writers:
        most = w.shape.native_context or w.context
        return [f"a text of {most:,} tokens a sample, the most it writes; `--context` says fewer"]
    if w.shape.encoder and w.context == w.shape.native_context:
        return [f"no `--context`: {w.context:,} tokens, the most that {w.shape.name} reads"]
    return []


def _positions(question: Question, w: Workload) -> list[str]:
    """Whether a config's YaRN reaches its length; a longer reach changes short texts as well."""
    if question.yarn is None or w.shape.native_context is None:
        return []
    factor, start = question.yarn[0], w.shape.native_context
    needs, reach = max(w.context / start, 1.0), round(factor * start)
    if abs(factor - needs) < SAME_FACTOR:
        return []
    said = f"`rope_scaling` has factor {factor:g}, which reaches {reach:,} tokens"
    if reach < w.context:
        return [f"{said}: {w.context:,} need factor {needs:g}"]
    return [f"{said}: for {w.context:,} factor {needs:g} is enough; more changes short texts"]


SAME_FACTOR = 0.005


def _batch(question: Question, w: Workload, case: Case) -> list[str]:
    """One sample a GPU, and how many there could be; what Trinity-RFT does with a batch."""
    if question.trainer == "trinity" and question.batch is not None:
        fills = "Trinity-RFT fills batches to a budget of tokens unless `use_dynamic_bsz: false`"
        return [f"{fills}: leave `--batch` out to count the tokens that one GPU holds"]
    if w.batch is None or question.batch is not None or question.solve is not None:
        return []
    said = f"no `--batch`: one {a_sample(w.shape)} a GPU"
    most = max_batch(w, case)
    number = most.fit.workload.batch or 0
    more = most.recipe is not None and number > w.batch
    return [f"{said}; {number:,} would fit (`--max-batch`)" if more else said]


def _plain_loop(question: Question, w: Workload) -> list[str]:
    """What a plain loop leaves out, where nobody names a trainer."""
    if w.batch is None or question.trainer is not None:
        return []
    wide = question.amp is None and question.dtype is None and w.compute_bytes == 4
    kept = question.checkpointing is None and not w.checkpointing and w.context > 1
    what = ["in 32 bits"] * wide + ["without checkpointing"] * kept
    flags = ["`--amp bf16`"] * wide + ["`--checkpointing`"] * kept
    change = "change that" if len(flags) > 1 else "changes that"
    line = f"{' and '.join(what)}, as plain loops run; {' and '.join(flags)} {change}"
    return [line] if what else []
