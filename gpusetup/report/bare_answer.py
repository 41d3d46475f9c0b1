"""Reads answers of torch that were pasted without the call that printed them, for example only
`False`."""

from __future__ import annotations

from gpusetup.messages.search import Text, line_source
from gpusetup.model.machine import Event, Gpu
from gpusetup.model.patterns import lazy
from gpusetup.model.versions import Capability
from gpusetup.report.facts import HINT, SURE, Claim, Facts, Gpus

# `>>> False`, `Out [12]: False`, `"cuda:0"`.
WORD = lazy(
    r"(?:>>> ?|out ?\[\d{1,5}\]: ?|\[\d{1,3}\] ?)?[\W_]{0,4}(?P<word>true|false|none|cpu|cuda(?::\d{1,2})?)[\W_]{0,4}",
)
"""A one-word answer, with the prompt or the quotes that a shell, a notebook or a mail put around
it."""

QUESTIONS_BY_ANSWER = {
    "false": "torch.cuda.is_available()",
    "cpu": "the device that a program chose",
    "none": "torch.version.cuda",
}
"""An answer -> the call whose result it usually is. Each of these answers means that torch sees no
GPU."""

MAX_CHARACTERS = 40
"""Longer texts are not read as a one-word answer. The limit leaves room for a prompt and quotes."""


def bare_answer(text: Text) -> Facts:
    """What a text that consists of a single word shows about torch; nothing if the text is longer.

    >>> from gpusetup.report.cleaning import text_of
    >>> [fact.kind for fact in bare_answer(text_of("False\\n"))]
    ['cuda-unavailable']
    >>> list(bare_answer(text_of("False alarm")))
    []
    """
    if len(text.low) > MAX_CHARACTERS:
        return
    match = WORD.fullmatch(text.low.strip())
    if match is None:
        return
    answer = match["word"]
    whole_text = text.flat.strip()
    source = text.source(0)
    question = QUESTIONS_BY_ANSWER.get(answer)
    if question:
        values = {"asked": "yes", "bare": whole_text.strip("'\"`>. "), "question": question}
        yield Event(kind="cuda-unavailable", values=values, source=source, text=whole_text)
        return
    # The answer is `true` or a CUDA device, so torch sees the GPU.
    yield Claim("torch.cuda_available", True, source, HINT)
    printed_answer = "True" if answer == "true" else answer
    values = {"bare": printed_answer}
    yield Event(kind="bare-yes", values=values, source=source, text=whole_text)


# `2.6.0+cu124 ['sm_50', 'sm_90'] (12, 0)`: the output of the command that doctor suggests if torch
# lacks a kernel.
KERNELS_AND_CAPABILITY = lazy(
    r"^\W{0,6}(?:\d\.\d[\w.+]{0,40} )?\[(?P<kernels>'(?:sm|compute)_\d{2,3}[a-f]?'(?:, ?'\w{5,12}'){0,24})\]"
    r" \((?P<major>\d{1,2}), ?(?P<minor>\d)\)\s*$"
)
LINES_READ = 2_000
UNNAMED = "the GPU"
"""The name for a GPU whose compute capability is known but not its name."""


def kernels_and_capability(text: Text) -> Facts:
    """torch's list of kernels and the GPU's capability, printed in one line.

    >>> from gpusetup.report.cleaning import text_of
    >>> [type(fact).__name__ for fact in kernels_and_capability(text_of("2.6.0 ['sm_90'] (12, 0)"))]
    ['Claim', 'Gpus']
    """
    for number, line in enumerate(text.lines[:LINES_READ], 1):
        match = KERNELS_AND_CAPABILITY.search(line)
        if match is None:
            continue
        source = line_source(number)
        kernels = match["kernels"].replace("'", "").replace(",", " ").split()
        yield Claim("torch.kernels", " ".join(kernels), source, SURE)
        capability = Capability(int(match["major"]), int(match["minor"]))
        yield Gpus((Gpu(name=UNNAMED, compute_capability=capability),), source, HINT)
        return
