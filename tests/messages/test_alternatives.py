"""A list of forms that leaves out what a text cannot have finds what the whole pattern finds."""

from __future__ import annotations

import re

from each_row import each

from gpusetup.messages import working
from gpusetup.messages.alternatives import Alternatives, alternatives_of, letters_needed_by

LISTS = {name: value for name, value in vars(working).items() if isinstance(value, Alternatives)}
SENTENCES = (
    "It crashes at step 3",
    "ничего не работает, RTX 3090",
    "显卡认不出来",
    "Die Karte wird nicht erkannt",
    "GPU usage: 0 %",
    "the screen goes black, then it reboots",
    "Using device: cuda:0",
    "nothing wrong here, 12 it/s on an A100",
    "It does not.",
    "loss stays the same",
    "训练越来越慢",
    "I fixed it",
    "2 GPUs, but no device is found",
    "It runs on the CPU although the GPU is there",
    "it uses the igpu",
    "the program takes 20 minutes",
    "exit code 1",
    "It worked until yesterday",
    "no CUDA support",
    "memory keeps growing",
    "what am I doing wrong?",
)


def test_there_are_lists_to_compare() -> None:
    assert {"FAILURE", "WORRY", "SLOW"} <= LISTS.keys()


@each("sentence", SENTENCES)
def test_the_forms_find_what_the_whole_pattern_finds(sentence: str) -> None:
    for name, forms in LISTS.items():
        whole = re.search(forms.pattern, sentence, re.IGNORECASE)
        assert bool(forms.search(sentence)) is bool(whole), name


def test_a_class_of_letters_and_an_escaped_sign_divide_nothing() -> None:
    assert list(alternatives_of(r"[(|]a|b\|c|(?:d|e)f")) == [r"[(|]a", r"b\|c", r"(?:d|e)f"]


def test_an_optional_group_needs_no_letters() -> None:
    assert letters_needed_by(r"\d(?:hours?|days)?") == ()
    assert letters_needed_by(r"\d(?:hours?|days)") == ("hour", "days")
