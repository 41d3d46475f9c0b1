"""The check `masks`: attention and its gradients with masks, and the elements that masks select."""

from __future__ import annotations

from ...values import Outcome
from .answers import ask_all
from .attention_gradients import gradients_of_attention
from .decoding import few_queries_and_padding
from .masks import attentions, elements_that_masks_pick


def masks(device: str) -> Outcome:
    """Check that attention uses exactly the keys that its mask allows, and that masks select the
    right elements."""
    questions = (
        attentions,
        few_queries_and_padding,
        gradients_of_attention,
        elements_that_masks_pick,
    )
    return ask_all(device, questions, "weighted sums in Python")
