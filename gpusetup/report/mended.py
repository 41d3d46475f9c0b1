"""Recognizes that a person says that a failure is fixed, and which lines describe the time before
the fix."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gpusetup.messages import working
from gpusetup.messages.alternatives import Alternatives
from gpusetup.model.patterns import lazy
from gpusetup.report.failure_lines import FailureLines

# The end of a sentence: after a question mark, an exclamation mark or a full stop (but not at the
# dot of a version), or at the end of a line.
SENTENCE_END = lazy(r"(?<=[?!])|(?<=\.)\s+(?=\S)|\n")
MARK = r"(?:solved|fixed|resolved|gel(?:ö|oe)st|r[ée]solu|resuelto|solucionado|resolvido|решено|已解决|解決(?:済み?|しました)?|해결)"
SOLVED_TITLE = lazy(rf"(?i)^\W*{MARK}(?!\w)(?!\W{{0,2}}\?)|^[^\n]{{0,200}}[\[(]\s?{MARK}\s?[\])]")
"""The mark that a forum or its user adds to the title of a solved question."""


def is_mended(lines: Sequence[str], failures: FailureLines) -> bool:
    """Whether somebody says that the problem is solved, and no failure is mentioned after that."""
    success_lines = [index for index, line in enumerate(lines) if _says_mended(line)]
    if not success_lines or failures.slow:
        return False
    last_success = success_lines[-1]
    if any(index > last_success for index in failures.of_any):
        return False
    # "It works now, but ..." introduces something that does not work.
    words_from_there = " ".join(lines[last_success:])
    return not working.CONTRAST.search(words_from_there)


# `Before that I had:`, `Old log:`, `The reason was that ...`, `原因是 ...`.
TOLD_AS_PAST = lazy(
    r"(?i)^\W*(?:before(?: that| this| the \w+)?,? (?:I|it|we)\b|(?:before|earlier|previously|at first|originally)\b[^\n]{0,60}:\s*$|(?:the )?(?:old|original|previous|former|earlier) (?:log|error|output|problem|post|question|message)s?\b"
    r"|the (?:error|problem|cause|reason|culprit) (?:was|had been)\b|之前|以前|原来|原因(?:是|为|は)|이전|원인은|vorher\b|fr(?:ü|ue)her\b|die Ursache war|avant,? \b|la cause [ée]tait|antes\b|la causa era|a causa era|раньше|до этого|причина была)"
)
"""The beginning of a line that describes the time before the fix. The lines below it, up to an
empty line, belong to it."""
OF_THE_PRESENT = lazy(
    r"(?i)\b(?:now|but|still|again|today|jetzt|aber|maintenant|mais|ahora|pero|agora|mas)\b|现在|但|又|今は|しかし|지금|하지만|сейчас|теперь|\bно\b"
)
"""A word that shows that a line is about the present."""


def told_as_past(lines: Sequence[str]) -> tuple[int, ...]:
    """The indexes of the lines that describe the time before the fix: each line that matches
    `TOLD_AS_PAST`, and the lines below it up to an empty line."""
    past: list[int] = []
    is_past = False
    for index, line in enumerate(lines):
        if TOLD_AS_PAST.search(line) and not OF_THE_PRESENT.search(line):
            is_past = True
        elif not line.strip():
            is_past = False
        if is_past:
            past.append(index)
    return tuple(past)


# `After the upgrade, Ollama correctly offloads to both GPUs.`
AFTER_THE_REMEDY = lazy(
    r"(?i)^\W*after (?:the|that|this|an?|my) (?:\w+ )?(?:upgrade|update|downgrade|reinstall\w*|reboot|restart|change|fix)\b"
    r"[^\n]{0,60}?\b(?:correctly|properly|successfully|fully|finally) (?:uses?|detects?|sees?|finds?|offloads?|runs?|loads?|trains?|works?)\b"
)
"""A sentence that reports what works since the remedy."""
# `EDIT: solved.`, `Update: it works now`, `I finally fixed it`.
REPORT_OF_SUCCESS = lazy(
    r"(?i)^\W*(?:edit|update|upd|nachtrag|追記|追加|更新|추가|апд|дополнение)\b|^\W*(?:solved|fixed|resolved|gel(?:ö|oe)st|r[ée]solu|resuelto|resolvido|решено|已解决|解決)(?!\w)"
    r"|\bI (?:have |finally |just |already )*(?:solved|fixed|resolved) (?:it|this|the)\b"
)
"""The beginning of a line in which a person reports that a failure is fixed."""
RESERVATION = lazy(
    r"(?i)\?|\b(?:if|when|until|unless|hope\w*|think|thought|should|would|could|can|might|maybe|perhaps|how|someone|somebody|says?|said|they|others|people|maintainers?|colleague|only|not|partly|almost|sometimes|except|cpu)\b|n't\b"
)
"""Words of a question, a condition, a quote from somebody else, or a partial success. A sentence
with them does not say that the failure is fixed."""


def reports_success(lines: Sequence[str]) -> bool:
    """Whether a sentence in these lines says plainly that the failure is fixed.

    >>> reports_success(["EDIT: it is fixed now."]), reports_success(["How can I get it fixed?"])
    (True, False)
    """
    beginnings = [line for line in lines if REPORT_OF_SUCCESS.search(line)]
    if says_plainly(working.SOLVED, beginnings, also=REPORT_OF_SUCCESS):
        return True
    return says_plainly(working.SOLVED, lines, also=AFTER_THE_REMEDY)


def says_plainly(
    words: Alternatives, lines: Sequence[str], also: re.Pattern[str] | None = None
) -> bool:
    """Whether a sentence contains these words, matches `also` if it is given, and has no
    reservation."""
    for line in lines:
        for sentence in SENTENCE_END.split(line):
            has_words = words.search(sentence) and (also is None or also.search(sentence))
            if has_words and not RESERVATION.search(sentence):
                return True
    return False


def _says_mended(line: str) -> bool:
    """Whether a line says that the problem is solved, and mentions no failure after these words."""
    success = working.SOLVED.search(line)
    if success is None:
        return False
    words_behind = working.NOTICES.sub(" ", line[success.end() :])
    return not working.FAILURE.search(words_behind)
