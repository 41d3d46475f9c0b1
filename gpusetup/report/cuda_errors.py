"""CUDA errors in a text, found by number, name or message."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpusetup.messages.cuda_codes import BY_PROGRAMS, ERRORS, OLD_CODES, STARTING
from gpusetup.messages.search import Text
from gpusetup.report.facts import CHARACTERS_READ, Claim, Facts

NAMES = {code: name for code, name, _ in ERRORS}
# `Error 803: system has ...`, `cuInit failed with error 999`, `cuda runtime error (38)`. In a
# sentence that names CUDA or one of its functions, also `cudaGetDeviceCount() returned status:
# 100`.
ERROR_NUMBER = re.compile(
    r"(?:(?<!HTTP )(?<!http )(?<![Ss]erver )(?<![Cc]lient )\b[Ee]rror (?=\d{1,3}: (?!hip)[a-zA-Z])|cuda runtime error \((?=\d{1,3}\))"
    r"|THCudaCheck FAIL .{0,200}?error=|\[(?=\d{1,3}\] Call to cu)|C(?:UDA|uda) failure (?=\d{1,3}(?::| '))|CUDA [Ee]rror (?:code )?[=(]?"
    r"|cuInit\W{0,3}(?:failed|returned|error|err|:)(?: with)?(?: code| error)?\W{1,3}|(?:initiali[sz]ation|(?:library|nvcuda|cudart) init) (?:failure|error)\W{1,3}"
    r"|CUDA init\w{0,12} (?:fails|failed|failing) with (?:an? )?(?=80[2-5] system error)|\bcuda[A-Z]\w{3,40} returned |cudaSetDevice err: |failed to get device context "
    r"|(?:\b[Cc][Uu][Dd][Aa]\b|\bcuda[A-Z]\w{3,40}\(?\)?|\bcu[A-Z]\w{3,40}\(?\)?)[ \w'-]{0,40}?(?:[Ee]rror|[Ff]ail(?:ed|ure)|[Ss]tatus|[Rr]eturn(?:ed|s)|[Rr]esult)(?: with)?(?: error| result)?(?: code| number| status)?(?: is| of)?[ :=(]{1,3}(?=[1-9]\d\d(?!\.\d|%|\w)))"
    r"(\d{1,3})(?!\d)"
)
"""An error number after a word such as "error" or "status"."""
# `CUDA error: out of memory`, `CUDA failed with error out of memory`.
SAYS_OUT_OF_MEMORY = re.compile(
    r"(?:CUDA (?:runtime |driver )?error(?: \(\d+\))? ?:|CUDA failed with error|initialize CUDA:) ?out of memory",
    re.I,
)
"""CUDA's own sentence."""
OUT_OF_MEMORY, NO_KERNEL_IMAGE = 2, 209
MOST_OF_PROGRAMS = 99
"""The greatest number that other programs often use as an error code, such as errno."""
CHARACTERS_AROUND = 500
"""The characters before and after an error number that are searched for the word CUDA."""
Found = tuple[int, tuple[int, int]]
"""A CUDA error's code, and where its message starts and ends in `Text.flat`."""


def cuda_errors(text: Text) -> Facts:
    """Every CUDA error as an event. An error with which CUDA fails to start is also a claim of
    `cuda_api.init_code`."""
    # Each code is reported once. Errors found by their message come first, because a message is
    # better evidence than a number.
    places: dict[int, tuple[int, int]] = {}
    for code, place in (*by_message(text), *by_number(text)):
        places.setdefault(code, place)
    for code, (start, end) in places.items():
        name = NAMES[code]
        yield text.event("cuda-error", start, end, {"code": str(code), "name": name})
        # "Out of memory" comes far more often from a running program than from CUDA's start.
        if code in STARTING and code != OUT_OF_MEMORY:
            source = text.source(start)
            yield Claim("cuda_api.init_code", code, source)
            yield Claim("cuda_api.init_name", name, source)
        if code == OUT_OF_MEMORY:
            yield text.event("out-of-memory", start, end, {})
        if code == NO_KERNEL_IMAGE:
            yield text.event("no-kernel-image", start, end, {})


def by_message(text: Text) -> Iterator[Found]:
    """Each CUDA error whose message or name the text contains, at its first position.

    >>> from gpusetup.report.cleaning import text_of
    >>> list(by_message(text_of("CUDA error: uncorrectable ECC error encountered")))[0][0]
    214
    """
    for code, name, messages in ERRORS:
        # Other programs say "out of memory" too, so only CUDA's whole sentence counts.
        if code == OUT_OF_MEMORY:
            if "out of memory" in text.low and (match := SAYS_OUT_OF_MEMORY.search(text.flat)):
                yield code, match.span()
            continue
        for words in (*messages, name.lower()):
            if (start := text.low.find(words)) >= 0:
                yield code, (start, start + len(words))
                break


def by_number(text: Text) -> Iterator[Found]:
    """CUDA errors that the text gives by number. Numbers that may be another program's are left
    out: CUDA is named near the number, or only CUDA uses it."""
    for match in ERROR_NUMBER.finditer(text.flat, 0, CHARACTERS_READ):
        number, start = int(match[1]), match.start()
        # Some errors had other numbers before CUDA 10.1.
        code = OLD_CODES.get(number, number)
        # Other programs use small numbers and those of `BY_PROGRAMS` as error codes too. With any
        # other number, a name such as `cuInit` next to it shows that the error is CUDA's.
        is_of_programs = number <= MOST_OF_PROGRAMS or code in BY_PROGRAMS
        is_only_of_cuda = not is_of_programs and "cu" in match[0]
        around = text.low[max(start - CHARACTERS_AROUND, 0) : start + CHARACTERS_AROUND]
        if code in NAMES and (is_only_of_cuda or "cuda" in around):
            yield code, match.span()
