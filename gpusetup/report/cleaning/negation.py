"""Errors that a text only speaks of: denied, past, possible, somebody else's, of a changelog.

"If you see error 804, update", "this is not the out-of-memory problem", "I already fixed the
libcudnn error": what stands there did not happen on this machine now. It is blanked before any
reader sees it, place by place, so that every other place keeps its line. Only sentences with a
plain sign are blanked; "what do I do if I get …" and "I get …" are reports.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence

from gpusetup.model.frozen import Frozen
from gpusetup.model.patterns import in_any_case, lazy

LONGEST = 260
"""Of a mention: a sentence without an end is cut there."""
BACK = 200
AROUND = 60
ATTEMPTS = 40
"""How often a sign is looked at: a log repeats itself."""
MEET = r"(?:see|get|got|getting|hit|face|encounter|receive|observe|experience|run\sinto|come\sacross|meet)"
ADVERB = (
    r"(?:(?:still|also|ever|then|already|just|since|finally|now|sometimes|often|even|only)\s){0,2}"
)
GET = r"(?:get|got|hit|face|encounter|receive|experience|run\sinto)"
THIS = r"(?:it|this|that|problem|issue|mine)"
NO_QUESTION = r"(?!\s(?:it|this|that|why|how|what|any|anything|the\spoint)\b)"
ABOUT = r"(?:related\sto|caused\sby|due\sto|because\sof|about|from)"
SOMETHING = rf"(?:the\s(?!first|only|last|problem|issue)|an?\s|{ABOUT}\b|['\"`]|(?-i:(?=[A-Z\[]|lib|nvidia)))"
ASKED = lazy(
    r"(?:what|how|help|advice|anyone|somebody|someone|idea|know)\b[^.!?]{0,40}$|\bas\s$", re.I
)
"""Before "if you get": a question of somebody who got it."""


class Sign(Frozen):
    """Words that say how what follows them (or stands before them) is meant."""

    needle: str
    """Letters, lower case, that every form has."""
    pattern: str
    colon_ends: bool = True
    """What follows a colon is a thing of its own: "it is not the driver: RuntimeError …"."""
    before: bool = False
    """The sentence before the words is meant, not the one after them."""


def sign(needle: str, pattern: str, colon_ends: bool = True, *, before: bool = False) -> Sign:
    return Sign(needle=needle, pattern=pattern, colon_ends=colon_ends, before=before)


SIGNS: tuple[Sign, ...] = (
    # --- possible
    sign("if you ", rf"\bif\syou(?:'re|\sare|\sdo)?\s{ADVERB}{MEET}\b", False),
    sign("if one ", rf"\bif\sone\s{ADVERB}{MEET}s?\b", False),
    sign("if users ", rf"\bif\susers\s{ADVERB}{MEET}\b", False),
    sign("should you ", rf"(?<!what\s)(?<!how\s)\bshould\syou\s{ADVERB}{MEET}\b", False),
    sign("in case ", rf"\bin\scase\s(?:of\b|(?:you|one)\s{ADVERB}{MEET}s?\b)", False),
    sign("when you ", rf"\bwhen(?:ever)?\syou\s{ADVERB}{MEET}\b", False),
    sign("you ", rf"\byou\s(?:might|may|could|will|would)\s{ADVERB}{MEET}\b", False),
    sign("you'll ", rf"\byou'll\s{ADVERB}{MEET}\b", False),
    sign("users ", rf"\b(?:other|some|many|most|linux|windows)\s(?:users|people)\s(?:who\s)?(?:may\s|might\s|could\s)?{ADVERB}{MEET}\b", False),
    sign("people ", rf"\b(?:other|some|many|most)\speople\s(?:who\s)?(?:may\s|might\s)?{ADVERB}{MEET}\b", False),
    *(
        sign(f"{verb} ", rf"\b{verb}\s(?:also\s|then\s)?(?:lead\sto|cause|result\sin|raise|trigger|throw|fail\swith|end\sin)\b")
        for verb in ("could", "might", "may", "would", "can")
    ),
    sign("avoid", r"\b(?:to|helps)\savoid\b|\bavoiding\b"),
    sign("prevent", r"\b(?:to|helps)\sprevent\b"),
    sign("common ", r"\bcommon\s(?:reasons?|causes?|sources?|errors?|problems?|issues?)\b"),
    *(
        sign(f"{verb}", rf"\b(?:error|message|warning|failure|exception)s?\s(?:\w+ly\s|often\s|sometimes\s|can\s|may\s|might\s){verb}s?\s(?:when|if|because|during|after|due)\b", before=True)
        for verb in ("occur", "happen", "arise", "appear")
    ),
    sign("also tried", r"\bI\salso\stried\b[^.!?\n]{0,200}?\bbut\s(?:that|this)\s(?:only\s|just\s)?(?:failed|fails|ended|gave)\s(?:with\b|in\b|me\b)?"),
    # --- denied
    sign(" not ", rf"\b{THIS}(?:'s|\sis|\swas)\s(?:\w+ly\s)?not\s{SOMETHING}"),
    sign("n't ", rf"\b{THIS}\s(?:is|was)n't\s{SOMETHING}"),
    sign("n't ", rf"\b(?:I|we|you)\s(?:do|did)n't\s{ADVERB}{GET}\b{NO_QUESTION}"),
    sign(" not ", rf"\b(?:I|we|you)\s(?:do|did)\snot\s{ADVERB}{GET}\b{NO_QUESTION}"),
    sign("unrelated to", r"\bunrelated\sto\b"),
    sign("nothing to do with", r"\bnothing\sto\sdo\swith\b"),
    sign("no longer ", rf"(?<!\bcan\s)(?<!could\s)\bno\slonger\s(?:{MEET}|shows?|gives?|fails?\swith|raises?|throws?)\b"),
    sign("unlike ", r"\bunlike\b"),
    sign("rather than ", r"\brather\sthan\s(?:an?\s|the\s)?(?=['\"`]|CUDA|\w+Error)"),
    sign("no more ", r"\bno\smore\s(?=['\"`]|CUDA|\w+Error|lib)"),
    sign("different from ", rf"\b{THIS}(?:'s|\sis|\slooks|\sseems)\sdifferent\sfrom\b"),
    # --- past
    *(
        sign(f"{verb} ", rf"\b(?:I|we)(?:'ve|\shave)?\s{ADVERB}{verb}\b")
        for verb in ("fixed", "solved", "resolved", "got rid of", "worked around")
    ),
    sign("used to ", rf"\b(?:I|we|it|which|that)\sused\sto\s(?:{MEET}|give|fail\swith|raise|say|show)\b"),
    sign("previously ", rf"\bpreviously,?\s(?:I|we)\s(?:had|{MEET})\b"),
    sign("last time ", rf"\blast\stime,?\s(?:I|we)\s(?:had|{MEET})\b"),
    *(
        sign(f" {word}", rf"\b(?:is|was|are|were|has\sbeen|got)\s(?:now\s|already\s|all\s)?{word}\b(?!\s(?:not|only|partially))", before=True)
        for word in ("solved", "fixed", "resolved")
    ),
    *(
        sign(f"{word} was ", rf"\b(?:but\s)?{word}\swas\s(?:back\s|only\s)?(?:last\s(?:week|month|year|time)|yesterday|(?:\w+\s){{1,2}}ago|before\s(?:I|we|the)|on\s(?:an?|my|our|the)\s?(?:old|other|former))\b", before=True)
        for word in ("that", "this", "it")
    ),
    # --- somebody else's, another machine's
    sign("other ", r"\b(?:on|in)\s(?:(?:my|our|the|an)\s?other|another)\s(?:machine|box|server|pc|computer|laptop|node|host|system|workstation|card)\b"),
    *(
        sign(f"{who} ", rf"\b(?:my|a|our)\s{who}\s(?:\w+\s){{0,5}}?(?:gets?|got|sees?|had|has)\b")
        for who in ("colleague", "friend", "coworker", "classmate")
    ),
    sign("gone", r"\b(?:error|it|problem|warning|that)(?:\sis|'s)\s(?:now\s)?gone\b", before=True),
    sign("went away", r"\b(?:error|it|problem|warning|that)\swent\saway\b", before=True),
    # --- a changelog
    sign("fixe", r"(?:^|(?<=[-*\u2022]\s)|(?<=:\s))Fixe[sd]\s(?!version\b|point\b|(?:this|it|that|now)\b)"),
    sign("fixe", r"\bfixe[sd]\s(?:an?\s|the\s)?(?:bug|regression|crash|issue|race|leak)\b"),
)  # fmt: skip
SECOND = r"\s(?:Error \d|Tried to allocate|Please check your CUDA|It is possible that dataloader)"
"""How the second sentence of a long message begins."""
STOP = lazy(
    rf"(?<!\(\))[.!?;:,](?=\s|$)(?!{SECOND})|\s(?:but|however|yet|although|though|instead|by(?=\s\w+ing))\s|Traceback\s\(most"
)
PROSE = lazy(r"[ a-z0-9#'-]*")
"""What stands before a colon or comma that ends a remark; in a message there are names."""
START = lazy(r"[.!?;]\s(?=[A-Z'\"`>*-])|\s(?:but|and|now)\s(?!that\b|it\b|this\b)")
QUOTES = {"'": "'", '"': '"', "`": "`", "(": ")"}
OPENING = lazy(r"[^.!?;:'\"`(]{0,40}?(['\"`(])")
GOES_ON = lazy(r"[a-z'\"`(]")
LITTLE = 12


def mentions(flat: str, low: str, starts: Sequence[int]) -> list[tuple[int, int]]:
    """The pieces of a text on one line that only speak of an error.

    >>> text = "If you see CUDA error 804, update. I get error 802"
    >>> [text[a:b] for a, b in mentions(text, text.lower(), [0])]
    [' CUDA error 804, update']
    """
    return sorted({span for one in SIGNS for span in _of(one, flat, low, starts)})


def _of(one: Sign, flat: str, low: str, starts: Sequence[int]) -> Iterator[tuple[int, int]]:
    at, seen, done = low.find(one.needle), 0, 0
    while at >= 0 and seen < ATTEMPTS:
        seen += 1
        found = in_any_case(one.pattern).search(flat, max(at - AROUND, done), at + 2 * AROUND)
        done = found.end() if found else at + 1
        if found is not None and not _is_asked(flat, found.start()):
            yield _span(one, flat, found, starts)
        at = low.find(one.needle, max(at + 1, done))


def _is_asked(flat: str, place: int) -> bool:
    return ASKED.search(flat[max(place - AROUND, 0) : place]) is not None


def _span(one: Sign, flat: str, found: re.Match[str], starts: Sequence[int]) -> tuple[int, int]:
    if one.before:
        return _before(flat, found.start(), starts)
    return _after(flat, found.end(), starts, one.colon_ends)


def _after(flat: str, first: int, starts: Sequence[int], colon_ends: bool) -> tuple[int, int]:
    """To the end of the sentence, or past what is quoted in it."""
    last = _line_end(flat, first, starts)
    end = _sentence_end(flat, first, last, colon_ends)
    opening = OPENING.match(flat, first, last)
    if opening is None or opening.end() > end:
        return first, end
    closing = flat.find(QUOTES[opening.group(1)], opening.end(), last)
    return first, _sentence_end(flat, closing, last, colon_ends) if closing > 0 else end


def _sentence_end(flat: str, first: int, last: int, colon_ends: bool) -> int:
    for stop in STOP.finditer(flat, first, last):
        if stop.group() not in ":," or (
            (colon_ends or stop.group() == ",") and PROSE.fullmatch(flat, first, stop.start())
        ):
            return stop.start()
    return last


def _line_end(flat: str, first: int, starts: Sequence[int]) -> int:
    """Of the line, and of the next ones where the sentence goes on in them."""
    number = bisect_right(starts, first)
    while number < len(starts) and starts[number] < first + LONGEST:
        place = starts[number]
        blank = number + 1 < len(starts) and starts[number + 1] == place
        if blank or (place > first + LITTLE and not GOES_ON.match(flat, place)):
            return max(place - 1, first)
        number += 1
    return min(first + LONGEST, len(flat))


def _before(flat: str, last: int, starts: Sequence[int]) -> tuple[int, int]:
    """From the beginning of the sentence, on the line of the words."""
    line = starts[max(bisect_right(starts, last) - 1, 0)] if starts else 0
    first = max(last - BACK, line)
    stops = [found.end() for found in START.finditer(flat, first, last)]
    return (stops[-1] if stops else first), last


def blanked(part: str, start: int, spans: Sequence[tuple[int, int]]) -> str:
    """A line without the mentions in it, of the same length.

    >>> blanked("not error 804 here", 10, [(13, 23)])
    'not           here'
    """
    for first, last in spans:
        a, b = max(first - start, 0), min(last - start, len(part))
        if a < b:
            part = part[:a] + " " * (b - a) + part[b:]
    return part
