"""CUDA's errors in a text: by number, by name, by message; and those with which CUDA did not start."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpusetup.messages.cuda_codes import BY_PROGRAMS, ERRORS, OLD_CODES, STARTING
from gpusetup.messages.search import Text, event
from gpusetup.model.patterns import lazy
from gpusetup.report.facts import SURE, USUAL, Claim, Facts

NAMES = {code: name for code, name, _ in ERRORS}
ERROR_NUMBER = lazy(
    r"(?:(?<!HTTP )(?<!http )(?<![Ss]erver )(?<![Cc]lient )\b[Ee]rror (?=\d{1,3}: [a-zA-Z])|cuda runtime error \((?=\d{1,3}\))"
    r"|THCudaCheck FAIL .{0,200}?error=|\[(?=\d{1,3}\] Call to cu)|C(?:UDA|uda) failure (?=\d{1,3}(?::| '))|CUDA [Ee]rror (?:code )?[=(]?"
    r"|cuInit\W{0,3}(?:failed|returned|error|err|:)(?: with)?(?: code| error)?\W{1,3}|(?:initiali[sz]ation|(?:library|nvcuda|cudart) init) (?:failure|error)\W{1,3}"
    r"|CUDA init\w{0,12} (?:fails|failed|failing) with (?:an? )?(?=80[2-5] system error)|\bcuda[A-Z]\w{3,40} returned |cudaSetDevice err: |failed to get device context "
    r"|(?:\b[Cc][Uu][Dd][Aa]\b|\bcuda[A-Z]\w{3,40}\(?\)?|\bcu[A-Z]\w{3,40}\(?\)?)[ \w'-]{0,40}?(?:[Ee]rror|[Ff]ail(?:ed|ure)|[Ss]tatus|[Rr]eturn(?:ed|s)|[Rr]esult)(?: with)?(?: error| result)?(?: code| number| status)?(?: is| of)?[ :=(]{1,3}(?=[1-9]\d\d(?!\.\d|%|\w)))"
    r"(\d{1,3})(?!\d)"
)
"""A number behind a word for an error; the last, in a sentence that names CUDA or a function of it."""
AT_START = lazy(
    r"cudaGetDeviceCount|(?<!ggml)_cuda_init|ggml_cuda_init: failed|_cuda_getDeviceCount|cuInit|CUDA initialization|THCGeneral|cudaInit|_lazy_init|PrimaryCtx|cuCtxCreate|failed to initialize CUDA",
    re.I,
)
IN_WORDS = (
    (2, "out of memory", lazy(r"(?:CUDA (?:runtime |driver )?error(?: \(\d+\))? ?:|CUDA failed with error|initialize CUDA:) ?out of memory", re.I)),
    (999, "unknown error", lazy(r"(?:CUDA (?:runtime |driver )?error|cuda runtime error \(\d+\) ?|cuInit\S*|Error 999): ?unknown error|CUDA unknown error", re.I)),
)  # fmt: skip
"""Errors whose words other programs have as well."""
CHARACTERS_BEFORE, CHARACTERS_AFTER = 500, 120
CHARACTERS_READ = 400_000
EXTENSION = lazy(
    r"[/\\](bitsandbytes|sageattention|flash[-_]att(?:n|ention)|xformers|exllamav?2?|ggml-cuda|spconv|detectron2|mmcv|apex|natten|gsplat|vllm|cupy|onnxruntime)\b"
    r"|(?<![\w.])(\w{2,40}_cuda|amp_C)\.\w{2,60}\(",
    re.I,
)
"""An extension with kernels of its own, near the error."""


def cuda_errors(text: Text) -> Facts:
    """Every CUDA error as an event; those of the start also as `cuda_api.init_code`."""
    seen: dict[int, tuple[int, int]] = {}
    for code, first, last in (*by_message(text), *by_number(text)):
        seen.setdefault(code, (first, last))
    for code, (first, last) in seen.items():
        name = NAMES.get(code, "")
        yield event(text, "cuda-error", first, last, {"code": str(code), "name": name})
        at_start = AT_START.search(_around(text.flat, first, last))
        if code in STARTING and (code != 2 or at_start):
            trust, source = SURE if at_start else USUAL, text.source(first)
            for subject, value in (("cuda_api.init_code", code), ("cuda_api.init_name", name)):
                yield Claim(subject, value, source, trust)
        if code == 2:
            kind = "cuda-init-out-of-memory" if at_start else "out-of-memory"
            yield event(text, kind, first, last, {})
        if code == 209:
            found = EXTENSION.search(_around(text.flat, first, first))
            module = found and found[found.lastindex or 0].lower()
            yield event(text, "no-kernel-image", first, last, {"module": module} if module else {})


def _around(text: str, start: int, end: int) -> str:
    return text[max(start - CHARACTERS_BEFORE, 0) : end + CHARACTERS_AFTER]


def by_message(text: Text) -> Iterator[tuple[int, int, int]]:
    """Code and place of the first mention of each error's text or name.

    >>> from gpusetup.report.cleaning import text_of
    >>> list(by_message(text_of("CUDA error: uncorrectable ECC error encountered")))[0][0]
    214
    """
    for code, name, texts in ERRORS:
        for needle in (*texts, name.lower()) if code != 2 else ():
            place = text.low.find(needle)
            if place >= 0:
                yield code, place, place + len(needle)
                break
    for code, needle, pattern in IN_WORDS:
        found = pattern.search(text.flat) if needle in text.low else None
        if found:
            yield code, found.start(), found.end()


def by_number(text: Text) -> Iterator[tuple[int, int, int]]:
    """Only numbers that are CUDA's: an `Error 2` of another program is none."""
    for found in ERROR_NUMBER.finditer(text.flat, 0, CHARACTERS_READ):
        number, place = int(found[1]), found.start()
        code = OLD_CODES.get(number, number)
        names_cuda = "cuda" in _around(text.low, place, place) or (
            number > 99 and code not in BY_PROGRAMS and "cu" in found[0]
        )
        if code in NAMES and names_cuda:
            yield code, place, found.end()
