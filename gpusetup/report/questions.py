"""Finds the question that a person asks: its topic, and the versions that it names."""

from __future__ import annotations

from gpusetup.messages.questions import THINGS, topic_of
from gpusetup.messages.search import Text, line_source
from gpusetup.messages.working import SPEED, TOPICS
from gpusetup.model.machine import Event
from gpusetup.model.patterns import in_any_case, lazy
from gpusetup.report.facts import Facts
from gpusetup.report.person import prose_of

SENTENCE_END = lazy(r"(?<=[?!])|(?<=\.)\s+(?=\S)|\n")
"""The end of a sentence, but not the dot in a version."""
# A question mark, or a particle that ends a question in Chinese, Korean or Japanese.
ASKS = lazy(r"\?|(?:吗|呢|か|까|나요|까요|니까|인가요)\s*[.!]?\s*$")
"""The end of a question. In Chinese, Japanese and Korean the question mark is optional."""
# `CUDA 12.4`, `cuda toolkit 12`; `torch 2.5.1`, `PyTorch version 2.5`.
CUDA_NUMBER = lazy(r"(?i)\bcuda(?: ?toolkit| version)? ?(\d{1,2}(?:\.\d)?)\b")
TORCH_NUMBER = lazy(r"(?i)torch(?: version)?(?: ?==)? ?v?(\d\.\d{1,2}(?:\.\d{1,2})?)(?![\d.]*\d)")
BUILD_LABEL = lazy(r"(?i)(?<![A-Za-z0-9])cu(\d{2,3})(?![A-Za-z0-9])")
"""The label of a build: `cu128`."""
SHOWN_CHARACTERS = 200
"""At most this many characters of the question are quoted as evidence."""
QUESTIONS_READ = 40
"""The most questions of a text that are read. A post has a few, but a pasted FAQ has hundreds."""
SENTENCES_BEFORE = 3
"""The number of sentences before a question that may name what "that" in the question means."""


def questions(text: Text) -> Facts:
    """The first question about torch, CUDA, a driver or a GPU, as an event.

    >>> from gpusetup.report.cleaning import text_of
    >>> next(questions(text_of("Does PyTorch support Python 3.14?"))).values
    {'topic': 'python', 'python': '3.14'}
    """
    prose = prose_of(text)
    end = 0
    question_count = 0
    sentences_before: list[str] = []
    for sentence in SENTENCE_END.split(prose.words):
        start = prose.words.find(sentence, end)
        end = start + len(sentence)
        if not ASKS.search(sentence):
            sentences_before.append(sentence)
            continue
        question_count += 1
        words_before = " ".join(sentences_before[-SENTENCES_BEFORE:])
        # A question about a working GPU ("is this speed normal?") does not refer to versions in
        # earlier sentences.
        if any(form.search(sentence) for form in TOPICS.values()):
            words_before = ""
        # A question that names a measured speed ("is 48 tokens/s right?") is not about versions at
        # all.
        if SPEED.search(sentence):
            continue
        topic = topic_of(sentence, words_before)
        if topic:
            versions = _versions(sentence) or _versions(words_before)
            names_its_thing = topic_of(sentence) == topic
            named = {} if names_its_thing else {"named": "before"}
            yield Event(
                kind="question-asked",
                values={"topic": topic, **named, **versions},
                source=line_source(prose.line_at(start)),
                text=sentence.strip()[:SHOWN_CHARACTERS],
            )
            return
        if question_count >= QUESTIONS_READ:
            return


def _versions(sentence: str) -> dict[str, str]:
    """The versions of Python, torch and CUDA in a sentence, by name."""
    values: dict[str, str] = {}
    python = in_any_case(THINGS["python"]).search(sentence)
    if python:
        values["python"] = python["python"] or python["cjk_python"]
    torch = TORCH_NUMBER.search(sentence)
    if torch:
        values["torch"] = torch[1]
    # A build label has priority, because it is the build that the person wants. Another CUDA number
    # may be the driver's.
    label = BUILD_LABEL.search(sentence)
    cuda = CUDA_NUMBER.search(sentence)
    if label:
        # The last digit of a label is the minor version: cu128 is 12.8.
        digits = label[1]
        values["cuda"] = f"{digits[:-1]}.{digits[-1]}"
    elif cuda:
        values["cuda"] = cuda[1]
    return values
