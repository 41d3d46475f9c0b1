"""The plain question that a person asks: what it is about, and the versions that it names."""

from __future__ import annotations

from gpusetup.messages.questions import THINGS, topic_of
from gpusetup.messages.search import Text
from gpusetup.messages.working import TOPICS
from gpusetup.model.machine import Event
from gpusetup.model.patterns import in_any_case, lazy
from gpusetup.report.facts import Facts
from gpusetup.report.person import prose_of

SENTENCE_END = lazy(r"(?<=[?!])|(?<=\.)\s+(?=\S)|\n")
"""Where a sentence ends: not at the dot of a version."""
ASKS = lazy(r"\?|(?:吗|呢|か|까|나요|까요|니까|인가요)\s*[.!]?\s*$")
"""How a question ends; Chinese, Japanese and Korean ones need no mark."""
CUDA_NUMBER = lazy(r"(?i)\bcuda(?: ?toolkit| version)? ?(\d{1,2}(?:\.\d)?)\b")
TORCH_NUMBER = lazy(r"(?i)torch(?: version)?(?: ?==)? ?v?(\d\.\d{1,2}(?:\.\d{1,2})?)(?![\d.]*\d)")
BUILD_LABEL = lazy(r"(?i)(?<![A-Za-z0-9])cu(\d{2,3})(?![A-Za-z0-9])")
"""The label of a build: `cu128`."""
SHOWN = 200
QUESTIONS_READ = 40
SENTENCES_BEFORE = 3
"""Sentences in which a question's "that" is looked for."""


def questions(text: Text) -> Facts:
    """The first question that is about torch, CUDA, a driver or a GPU.

    >>> from gpusetup.report.cleaning import text_of
    >>> next(questions(text_of("Does PyTorch support Python 3.14?"))).values
    {'topic': 'python', 'python': '3.14'}
    """
    prose = prose_of(text)
    place = 0
    asked = 0
    before: list[str] = []
    for sentence in SENTENCE_END.split(prose.words):
        start = prose.words.find(sentence, place)
        place = start + len(sentence)
        if not ASKS.search(sentence):
            before.append(sentence)
            continue
        asked += 1
        # What is asked about a GPU that works is no question about a version.
        is_of_the_work = any(form.search(sentence) for form in TOPICS.values())
        words_before = "" if is_of_the_work else " ".join(before[-SENTENCES_BEFORE:])
        topic = topic_of(sentence, words_before)
        if topic:
            source = f"report, line {prose.line_at(start)}"
            named = _versions(sentence) or _versions(words_before)
            values = {"topic": topic, **named}
            yield Event(
                kind="question-asked", values=values, source=source, text=sentence.strip()[:SHOWN]
            )
            return
        if asked >= QUESTIONS_READ:
            return


def _versions(sentence: str) -> dict[str, str]:
    """The Python, the torch and the CUDA that a question names."""
    values: dict[str, str] = {}
    python = in_any_case(THINGS["python"]).search(sentence)
    if python:
        values["python"] = python["python"] or python["cjk_python"]
    torch = TORCH_NUMBER.search(sentence)
    if torch:
        values["torch"] = torch[1]
    # A build's label is what is wished for; another number may be the driver's.
    label = BUILD_LABEL.search(sentence)
    named = CUDA_NUMBER.search(sentence)
    if label:
        values["cuda"] = f"{label[1][:-1]}.{label[1][-1]}"
    elif named:
        values["cuda"] = named[1]
    return values
