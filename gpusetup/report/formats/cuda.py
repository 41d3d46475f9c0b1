"""CUDA's errors in a text: by number, by name, by message; and those with which CUDA did not start."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpusetup.messages.cuda_codes import BY_PROGRAMS, ERRORS, OLD_CODES, STARTING
from gpusetup.model.patterns import lazy
from gpusetup.report.facts import SURE, USUAL, Claim, Fact
from gpusetup.report.messages import event
from gpusetup.report.text import Text

NAMES = {code: name for code, name, _ in ERRORS}
NEEDLES = tuple((code, (*texts, name.lower())) for code, name, texts in ERRORS)
SAID = lazy(r"(?:\b[Cc][Uu][Dd][Aa]\b|\bcuda[A-Z]\w{3,40}\(?\)?|\bcu[A-Z]\w{3,40}\(?\)?)[ \w'-]{0,40}?(?:[Ee]rror|[Ff]ail(?:ed|ure)|[Ss]tatus|[Rr]eturn(?:ed|s)|[Rr]esult)(?: with)?(?: error| result)?(?: code| number| status)?(?: is| of)?[ :=(]{1,3}([1-9]\d{2})(?!\.?\d|%|\w)")  # fmt: skip
"""A number in a sentence that names CUDA, or a function of it."""
NUMBERED = (
    ("error", lazy(r"(?<!HTTP )(?<!http )(?<![Ss]erver )(?<![Cc]lient )\b[Ee]rror (\d{1,3}): (?=[a-zA-Z])")),
    ("runtime error (", lazy(r"cuda runtime error \((\d{1,3})\)")),
    ("thcudacheck fail", lazy(r"THCudaCheck FAIL .{0,200}?error=(\d{1,3})\b")),
    ("call to", lazy(r"\[(\d{1,3})\] Call to cu\w+ results in")),
    ("cuinit", lazy(r"cuInit\W{0,3}(?:failed|returned|error|err|:)(?: with)?(?: code| error)?\W{1,3}(\d{1,3})\b")),
    ("cuda failure", lazy(r"C(?:UDA|uda) failure (\d{1,3})(?::| ')")),
    ("cuda error", lazy(r"CUDA [Ee]rror (?:code )?[=(]?(\d{1,3})\b")),
    ("init failure", lazy(r"(?:library|nvcuda) init failure: (\d{1,3})\b")),
    ("initialization failure", lazy(r"initiali[sz]ation (?:failure|error)\W{1,3}(\d{1,3})\b")),
    ("system error", lazy(r"CUDA init\w{0,12} (?:fails|failed|failing) with (?:an? )?(80[2-5]) system error")),
    ("with error", SAID),
    ("status", SAID),
    (" code", SAID),
    ("cudart init failure", lazy(r"cudart init failure: (\d{1,3})\b")),
    (" returned ", lazy(r"\bcuda[A-Z]\w{3,40} returned (\d{1,3})\b")),
    ("cudasetdevice err", lazy(r"cudaSetDevice err: (\d{1,3})\b")),
    ("get device context", lazy(r"failed to get device context (\d{1,3})(?!\d)")),
)  # fmt: skip
AT_START = lazy(
    r"cudaGetDeviceCount|(?<!ggml)_cuda_init|ggml_cuda_init: failed|_cuda_getDeviceCount|cuInit|CUDA initialization|THCGeneral|cudaInit|_lazy_init|PrimaryCtx|cuCtxCreate|failed to initialize CUDA",
    re.I,
)
UNKNOWN = lazy(r"(?:CUDA (?:runtime |driver )?error|cuda runtime error \(\d+\) ?|cuInit\S*|Error 999): ?unknown error|CUDA unknown error", re.I)  # fmt: skip
OUT_OF_MEMORY = lazy(
    r"(?:CUDA (?:runtime |driver )?error(?: \(\d+\))? ?:|CUDA failed with error|initialize CUDA:) ?out of memory",
    re.I,
)
LOOK_BACK, LOOK_ON = 500, 120
ONLY_CUDAS = 100
"""Smaller numbers, and a bare `Error N:`, are other programs' too: they count beside CUDA's name."""


def cuda_errors(text: Text) -> Iterator[Fact]:
    """Every CUDA error as an event; those of the start also as `cuda_api.init_code`."""
    seen: dict[int, tuple[int, int]] = {}
    for code, first, last in (*by_message(text), *by_number(text)):
        seen.setdefault(OLD_CODES.get(code, code), (first, last))
    for code, (first, last) in seen.items():
        yield event(text, "cuda-error", first, last, _values(code))
        yield from meaning(text, code, first, last)


def _values(code: int) -> dict[str, str]:
    return (
        {"code": str(code), "name": NAMES.get(code, "")} if code in NAMES else {"code": str(code)}
    )


def by_message(text: Text) -> Iterator[tuple[int, int, int]]:
    """Code and place of the first mention of each error's text or name.

    >>> from gpusetup.report.text import text_of
    >>> list(by_message(text_of("CUDA error: uncorrectable ECC error encountered")))[0][0]
    214
    """
    low = text.low
    for code, needles in NEEDLES:
        if code == 2:
            continue
        for needle in needles:
            place = _told(low, needle)
            if place >= 0:
                yield code, place, place + len(needle)
                break
    if "out of memory" in low and (found := OUT_OF_MEMORY.search(text.flat)):
        yield 2, found.start(), found.end()
    found = UNKNOWN.search(text.flat) if "unknown error" in low else None
    if found and not _is_example(low, found.start()):
        yield 999, found.start(), found.end()


def by_number(text: Text) -> Iterator[tuple[int, int, int]]:
    """Only numbers that are CUDA's: an `Error 2` of another program is none."""
    for needle, pattern in NUMBERED:
        if needle not in text.low:
            continue
        for start, window in text.near(needle):
            for found in pattern.finditer(window):
                number = int(found.group(1))
                code = OLD_CODES.get(number, number)
                place = start + found.start()
                shared = needle == "error" or number < ONLY_CUDAS or code in BY_PROGRAMS
                if code in NAMES and (not shared or _is_cuda(text, place)):
                    yield code, place, start + found.end()


def _is_cuda(text: Text, place: int) -> bool:
    return "cuda" in text.low[max(place - LOOK_BACK, 0) : place + LOOK_ON]


def meaning(text: Text, code: int, first: int, last: int) -> Iterator[Fact]:
    """What an error says beyond itself."""
    started = bool(AT_START.search(text.flat[max(first - LOOK_BACK, 0) : last + LOOK_ON]))
    if code == 2:
        kind = "cuda-init-out-of-memory" if started else "out-of-memory"
        yield event(text, kind, first, last, {})
    if code in STARTING and (code != 2 or started):
        trust = SURE if started else USUAL
        source = text.source(first)
        yield Claim(subject="cuda_api.init_code", value=code, source=source, trust=trust)
        if code in NAMES:
            yield Claim(subject="cuda_api.init_name", value=NAMES[code], source=source, trust=trust)
    if code == 209:
        yield event(text, "no-kernel-image", first, last, without_kernels(text, first))


MODULE_PATH = lazy(r"(?:site|dist)-packages[/\\]([A-Za-z]\w+)(?:-[\w.+-]{1,60}\.egg)?[/\\.]")
COMPILED = lazy(r"(?<![\w.])(\w{2,40}_cuda|amp_C)\.\w{2,60}\(")
SOURCE_PATH = lazy(r"[/\\](bitsandbytes|flash[-_]att(?:n|ention)|xformers|exllamav?2?|ggml-cuda|spconv|detectron2|mmcv|apex|natten|gsplat|vllm|cupy|onnxruntime)\b", re.I)  # fmt: skip
OWN = ("torch", "torchvision", "torchaudio", "functorch")
CALLERS = (
    "transformers", "accelerate", "lightning", "pytorch_lightning", "diffusers", "fastai", "ultralytics",
    "gradio", "numpy", "ray", "multiprocess", "tqdm", "fairseq", "timm", "peft", "trl", "datasets",
)  # fmt: skip


def without_kernels(text: Text, place: int) -> dict[str, str]:
    """The module that raised it: the last frame above that is an extension of its own."""
    before = text.flat[max(place - 1500, 0) : place + LOOK_ON]
    if named := SOURCE_PATH.search(text.flat[max(place - 300, 0) : place + 300]):
        return {"module": named.group(1).lower()}
    if called := COMPILED.findall(text.flat[max(place - LOOK_BACK, 0) : place]):
        return {"module": called[-1]}
    frames = MODULE_PATH.findall(before)
    if frames and frames[-1] not in OWN and frames[-1] not in CALLERS:
        return {"module": frames[-1]}
    return {}


def _told(low: str, needle: str) -> int:
    """Where a message first stands that is not an example of one; -1 where it does not."""
    place, seen = low.find(needle), 0
    while place >= 0 and seen < EXAMPLES and _is_example(low, place):
        place, seen = low.find(needle, place + len(needle)), seen + 1
    return place


def _is_example(low: str, place: int) -> bool:
    return EXAMPLE.search(low[max(place - 40, 0) : place]) is not None


EXAMPLES = 20


EXAMPLE = lazy(r"(?:\bsuch as|\be\.g\.|\bfor example|\bfor instance|比如|例如|诸如|譬如|例えば|たとえば|예를 들어|например|zum beispiel|z\.b\.|par exemple|por exemplo)[ ,:]{0,2}[\"'`]{0,2}(?:runtimeerror: ?)?$")  # fmt: skip
"""What stands before a message that a text only speaks of."""
