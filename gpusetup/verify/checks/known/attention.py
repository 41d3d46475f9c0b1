"""The check `masks`: attention and its gradients under masks, and what masks pick."""

from __future__ import annotations

from ...values import Outcome
from .answers import ask_all
from .attention_gradients import gradients_of_attention
from .decoding import few_queries_and_padding
from .masks import attentions, elements_that_masks_pick


def masks(device: str) -> Outcome:
    """Attention sees the keys that its mask allows, and no other; masks pick what they name."""
    questions = (
        attentions,
        few_queries_and_padding,
        gradients_of_attention,
        elements_that_masks_pick,
    )
    return ask_all(device, questions, "weighted sums in Python")
