"""A text that is one word: what torch answered to a question that was not pasted with it."""

from __future__ import annotations

from gpusetup.messages.search import Text
from gpusetup.model.machine import Event
from gpusetup.model.patterns import lazy
from gpusetup.report.facts import HINT, Claim, Facts

WORD = lazy(
    r"(?:>>> ?|out ?\[\d{1,5}\]: ?|\[\d{1,3}\] ?)?[\W_]{0,4}(?P<word>true|false|none|cpu|cuda(?::\d{1,2})?)[\W_]{0,4}",
)
"""The word, with the prompt or the quotes that a shell, a notebook or a mail put around it."""

QUESTIONS = {
    "false": "torch.cuda.is_available()",
    "cpu": "the device that a program chose",
    "none": "torch.version.cuda",
}
"""Word -> the question whose answer it usually is, if torch has no GPU."""

MAX_CHARACTERS = 40


def bare_answer(text: Text) -> Facts:
    """What the only word of a text says of torch; nothing of a text that has more.

    >>> from gpusetup.report.cleaning import text_of
    >>> [fact.kind for fact in bare_answer(text_of("False\\n"))]
    ['cuda-unavailable']
    >>> list(bare_answer(text_of("False alarm")))
    []
    """
    word = WORD.fullmatch(text.low.strip()) if len(text.low) <= MAX_CHARACTERS else None
    if word is None:
        return
    answer, source = word["word"], text.source(0)
    if question := QUESTIONS.get(answer):
        shown = text.flat.strip()
        values = {"asked": "yes", "bare": shown.strip("'\"`>. "), "question": question}
        yield Event(kind="cuda-unavailable", values=values, source=source, text=shown)
    else:
        yield Claim("torch.cuda_available", True, source, HINT)
        values = {"bare": answer.capitalize() if answer == "true" else answer}
        yield Event(kind="bare-yes", values=values, source=source, text=text.flat.strip())
