"""Reads the size of a batch from a training config: tokens per sequence, sequences per batch, or a
token budget."""

from __future__ import annotations

import re

from gpusetup.plan.config_reader import Fields, Reader
from gpusetup.plan.config_rl import method_of
from gpusetup.plan.question import LARGEST
from gpusetup.plan.rl import GENERATING
from gpusetup.plan.rope import RopeScaling
from gpusetup.plan.trainers import usual_batch

LENGTHS = {"trl": 1024, "llama-factory": 2048, "torchtitan": 2048}
"""Trainer -> its default sequence length in tokens, from its documentation."""


PROMPT_TOKENS, ANSWER_TOKENS = 512, 256
"""The default lengths in tokens of a prompt and of its answer (TRL, GRPOConfig)."""


def length(reader: Reader, fields: Fields) -> Fields:
    """The sequence length in tokens; RL trainers may give it as a prompt length and a response
    length."""
    trainer, most = fields["trainer"], LARGEST["context"]
    roles = ("length", "total-length", "prompt", "response")
    sequence, total, prompt, response = (reader.number(role, most) for role in roles)
    tokens = sequence or total
    is_trinity = trainer == "trinity" and not reader.has_map("actor_rollout_ref")
    if trainer == "trinity":
        tokens = total
    if is_trinity and not total and prompt and response:
        # Prompt and response each have a limit, so a sequence may be as long as their sum.
        tokens = prompt + response
        reader.assumed.append(f"the longest sequence is prompt plus response: {tokens:,}")
    # verl's total comes before its parts; other trainers generate answers to each prompt.
    has_total = is_trinity or (trainer == "trinity" and total)
    if not has_total and method_of(reader) in GENERATING:
        if response is None:
            new_tokens = reader.text_named("max_new_tokens", "tokens of an answer") or ""
            is_number = re.fullmatch(r"[1-9]\d{0,6}", new_tokens)
            response = int(new_tokens) if is_number else ANSWER_TOKENS
        prompt = sequence or prompt or PROMPT_TOKENS
        tokens = prompt + response
        reader.assumed.append(
            f"the longest sequence is a prompt of {prompt:,} tokens and an answer of {response:,}"
        )
    default = LENGTHS.get(trainer or "")
    if tokens is None and default:
        reader.assumed.append(f"no length is named: {trainer}'s own {default:,} tokens")
    return {"context": tokens or default}


def batch(reader: Reader, fields: Fields) -> Fields:
    """The batch as sequences per GPU or for all GPUs together, or the token budget of RL trainers.

    By default Trinity-RFT fills a token budget and verl does not.
    """
    if fields["trainer"] == "trinity":
        return trinity_batch(reader)
    per_gpu = reader.number("batch", LARGEST["batch"])
    total = reader.number("total", LARGEST["batch"])
    if per_gpu is None and total is None:
        trainer = fields["trainer"]
        per_gpu = usual_batch(trainer)
        default = f"{trainer}'s own {per_gpu}" if per_gpu > 1 else "plan assumes 1"
        reader.assumed.append(f"the config names no batch: {default} on each GPU")
    return {
        "per_gpu": per_gpu,
        "total": total,
    }


def trinity_batch(reader: Reader) -> Fields:
    """The token budget or the batch for Trinity-RFT and verl."""
    is_dynamic = reader.switch("dynamic")
    if is_dynamic is None:
        is_dynamic = not reader.has_map("actor_rollout_ref")
    tokens = reader.number("tokens", LARGEST["tokens"])
    if is_dynamic:
        log_prob_tokens = reader.number_anywhere(
            "log_prob_max_token_len_per_gpu", "tokens", LARGEST["tokens"]
        )
        return {"tokens": tokens, "log_prob_tokens": log_prob_tokens}
    # If the batch is a number of sequences, the token budget has no effect.
    per_gpu = reader.number("batch", LARGEST["batch"])
    if per_gpu is not None:
        return {"per_gpu": per_gpu}
    return {"total": reader.number("total", LARGEST["batch"])}


def rope_scaling(reader: Reader) -> RopeScaling | None:
    """The RoPE scaling with which the config extends the model's context; None if it sets none."""
    factor = reader.decimal("rope-factor")
    original = reader.number("rope-original", LARGEST["context"])
    kind = reader.word("rope-kind")
    if factor is None:
        return None
    return RopeScaling(
        key=reader.key_and_line("rope-factor"),
        factor=factor,
        original=original,
        kind=(kind or "yarn").lower(),
    )
