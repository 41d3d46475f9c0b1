"""Finds signs in a text that a GPU computes: a device that a program names, a speed, or a training
that makes progress.

If somebody mentions a failure, signs that some part works do not answer the question. Only two
things outweigh a failure: the person later says that it is fixed, or the program continues after
its complaint.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gpusetup.messages import working
from gpusetup.messages.alternatives import Alternatives
from gpusetup.messages.questions import topic_of
from gpusetup.messages.search import Text, line_source
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Event
from gpusetup.model.patterns import lazy
from gpusetup.report.failure_lines import FailureLines, failure_lines
from gpusetup.report.mended import (
    SENTENCE_END,
    SOLVED_TITLE,
    is_mended,
    reports_success,
    says_plainly,
    told_as_past,
)
from gpusetup.report.person import prose_of

LINES_READ, CHARACTERS_READ = 2_000, 60_000
"""Only this many lines and characters at the beginning are read. 99 % of the labelled reports are
shorter."""
SHOWN_CHARACTERS = 160
"""Characters of a quote."""
# `Traceback (most recent call last)`, `RuntimeError: ...`.
EXCEPTION = lazy(r"(?m)^\s*Traceback \(most recent|^\s*[\w.]{0,60}(?:Error|Exception): ")
"""The first or the last line of a traceback."""
# `device='cuda:0'`, `.to("cuda")`, `.cuda()`.
ON_A_DEVICE = lazy(r"device='cuda:\d|\bcuda:\d\b|\.to\(['\"]cuda|\.cuda\(\)")
"""A tensor on the GPU, or the call that puts it there."""


# `tensor(22.63, device='cuda:0')`: the last line of a printed tensor. Lines with a call are left
# out.
PRINTED_TENSOR = lazy(
    r"(?m)^(?![^\n]*(?:>>>|\btorch\.\w+\(|=\s*tensor\())[^\n]*\bdevice='(?:cuda|xpu|mps):\d+'[^\n]*\)\s*$"
)
"""A tensor on a GPU as torch prints it."""
# `>>> (x.cuda() @ y).sum().item()` and below it `-13284.5`.
PRINTED_NUMBER = lazy(
    r"(?m)^(?:>>>|\$|In \[\d+\]:)[^\n]*(?:device=['\"](?:cuda|xpu|mps)|\.cuda\(\)|\.to\(['\"](?:cuda|xpu|mps))[^\n]*"
    r"\n(?:Out\[\d+\]: )?(?:-?\d+\.\d[\d.e+-]*|tensor\([^\n]*)\s*$"
)
"""A typed line that computes on a GPU, followed by a line with the resulting number."""
# `nvcc: command not found`, `no CUDA toolkit`, `without cuDNN`.
TOOL = r"(?:nvcc|nvidia-smi|rocm-smi|rocminfo|(?:cuda )?toolkit|cudnn|CUDA_HOME)"
ABSENT_TOOL = lazy(
    rf"(?i)\b{TOOL}\b['\"`]?:?[^.\n]{{0,24}}\b(?:command )?(?:is |was )?not (?:found|installed|available)\b|\b(?:command )?not (?:found|installed):? {TOOL}\b|\b(?:no|without|missing) (?:the |a |an )?{TOOL}\b"
)
"""Words that say that a tool is missing. If the text shows that the GPU computes, the tool is not
needed."""
ABSENT_CUDA = lazy(
    r"(?i)(?<!=)\b(?:False|None)\b|\bcuda (?:is )?not (?:found|available)\b|\bno (?:matching distribution|cuda)\b"
)
"""Words that say that CUDA is missing. If the result came from `mps` or `xpu`, CUDA is not needed.
"""
ANOTHER_DEVICE = lazy(r"device='(?:mps|xpu)|\bdevice: (?:mps|xpu)\b|device=['\"](?:mps|xpu)")
"""A sign that a result or a training used Apple's or Intel's GPU."""


class Use(NamedTuple):
    """A line that a program prints only if it uses the GPU."""

    form: str
    """What the line shows: `device`, `found`, `training`, `server`, `available`, `tensor` or
    `computed` (a result from a GPU)."""
    match: re.Match[str]


class AskedTopic(NamedTuple):
    """The topic that a person asks about, and the words that show it."""

    name: str
    words: str


def works(text: Text) -> Iterator[Event]:
    """Devices, speeds and trainings on a GPU, and what the person asks about them.

    >>> from gpusetup.report.cleaning import text_of
    >>> [event.kind for event in works(text_of("42 tokens per second on my RTX 4080. Normal?"))]
    ['names-no-failure', 'gpu-speed', 'asks-about']
    >>> complaint = "My RTX 4080 makes 42 tokens per second, normal? Then it crashes"
    >>> [event.kind for event in works(text_of(complaint))]
    ['names-failure', 'speed-named']
    """
    lines = _lines_read(text)
    flat = "\n".join(lines)
    computes_on_cpu = working.ON_CPU.search(flat)
    if computes_on_cpu and working.A_GPU.search(flat):
        yield _event("names-failure", flat, computes_on_cpu)
        return
    failures = failure_lines(lines, text.logged)
    past = told_as_past(lines) if _reports_success_somewhere(flat) else ()
    failures = failures.without(past)
    uses = tuple(_uses(flat))
    success = _word_of_success(lines, failures, uses, past)
    if success:
        yield success
    elif not _is_outweighed(lines, failures, uses):
        # If a person mentions a failure that nothing outweighs, signs that something works are not
        # reported.
        if failures.by_person:
            yield _named_failure(lines, failures.by_person[0])
            yield from _taken_all_the_same(flat, uses)
        return
    if not failures.of_any:
        yield Event(kind="names-no-failure", source="report")
    topic = _topic_of_person(prose_of(text).words)
    for use in uses:
        event = _event("gpu-in-use", flat, use.match)
        yield replace(event, values={"form": use.form})
    yield from _words_of_success(flat, topic, has_gpu_in_use=bool(uses))
    if topic:
        values = {"topic": topic.name}
        yield Event(kind="asks-about", values=values, source="report", text=topic.words)


def _reports_success_somewhere(flat: str) -> bool:
    """Whether a title is marked as solved, or a sentence says that it works now."""
    return bool(working.SOLVED.search(flat) or SOLVED_TITLE.search(flat))


def _word_of_success(
    lines: Sequence[str], failures: FailureLines, uses: Sequence[Use], past: Sequence[int]
) -> Event | None:
    """The event that says that a failure is fixed; None if the text does not say so.

    Its form is `mended` if this is certain enough to ignore everything that failed before. `past`
    has the indexes of the lines that describe the time before the fix.
    """
    flat = "\n".join(lines)
    proof_after_failures = _proof_after_failures(lines, failures, uses)
    # The lines after the last failure describe the state that works.
    last_of_the_past = max((*failures.of_any, *past), default=0)
    source_of_the_present = line_source(last_of_the_past + 2)
    if SOLVED_TITLE.search(flat) and proof_after_failures:
        event = _event("works-there", flat, proof_after_failures.match)
        return replace(event, values={"form": "mended"}, source=source_of_the_present)
    last_word = _last_match(working.SOLVED, flat)
    if last_word is None or not is_mended(lines, failures):
        return None
    event = _event("works-there", flat, last_word)
    source = source_of_the_present if past else event.source
    tells_of_the_past = bool(past) and says_plainly(working.SOLVED, lines)
    if proof_after_failures or reports_success(lines) or tells_of_the_past:
        return replace(event, values={"form": "mended"}, source=source)
    return event


def _named_failure(lines: Sequence[str], index: int) -> Event:
    """The event for a line in which a person mentions a failure."""
    line = lines[index].strip()
    return Event(
        kind="names-failure",
        source=line_source(index + 1),
        text=line[:SHOWN_CHARACTERS],
    )


def _taken_all_the_same(flat: str, uses: Sequence[Use]) -> Iterator[Event]:
    """Events for the device and speed that the text shows although somebody complains."""
    for use in uses:
        if use.form == "device":
            yield _event("device-taken", flat, use.match)
    speed = working.SPEED.search(flat)
    if speed:
        yield _event("speed-named", flat, speed)


def _lines_read(text: Text) -> Sequence[str]:
    """The first lines of a text, up to `LINES_READ` lines and `CHARACTERS_READ` characters."""
    lines: list[str] = []
    characters = 0
    for line in text.lines[:LINES_READ]:
        characters += len(line)
        if characters > CHARACTERS_READ:
            break
        lines.append(line)
    return lines


# --- failures that are named ----------------------------------------------------------------------


def _proof_after_failures(
    lines: Sequence[str], failures: FailureLines, uses: Sequence[Use]
) -> Use | None:
    """The first sign after the last failure that the GPU is in use; None if there is none."""
    flat = "\n".join(lines)
    last_failure = max(failures.of_any, default=0)
    for use in uses:
        if _line_index(flat, use.match.start()) > last_failure:
            return use
    return None


def _is_outweighed(lines: Sequence[str], failures: FailureLines, uses: Sequence[Use]) -> bool:
    """Whether the signs of a working GPU contradict every failure that the text mentions."""
    flat = "\n".join(lines)
    last_use = max((_line_index(flat, use.match.end()) for use in uses), default=-1)
    forms = [use.form for use in uses]
    complaints = [lines[index] for index in failures.complaints]
    errors = list(failures.errors)
    if uses:
        complaints = [line for line in complaints if not _only_asks_for_a_toolkit(line)]
    # The text shows a result from the GPU, or a training on a device that the program names, so
    # missing tools do not matter.
    if "computed" in forms or {"device", "training"} <= set(forms):
        elsewhere = ANOTHER_DEVICE.search(flat) is not None

        def is_needless(line: str) -> bool:
            return says_absence_only(line, on_another_device=elsewhere)

        complaints = [line for line in complaints if not is_needless(line)]
        errors = [index for index in errors if not is_needless(lines[index])]
    if working.WORKS_THERE.search(flat) and not working.OUTSIDE.search(flat):
        # "Is it unsupported? It runs fine.": the question is not a complaint.
        complaints = [line for line in complaints if not working.ONLY_ASKS.search(line)]
    if not all(_is_denied(complaint, has_use=bool(uses)) for complaint in complaints):
        return False
    # If the program uses the GPU after a logged error, the error did not stop it.
    last_error = max(errors, default=-1)
    if last_error > last_use:
        return False
    # An exception does stop the program. Its position in the text does not matter, because people
    # paste the traceback before the log as often as after it.
    if EXCEPTION.search(flat):
        return False
    # A slow program may be running on the CPU, unless the text shows that it uses the GPU.
    has_gpu_at_work = any(use.form not in ("available", "found") for use in uses)
    return not failures.slow or has_gpu_at_work or _computes_on_a_gpu(flat)


def says_absence_only(line: str, *, on_another_device: bool) -> bool:
    """Whether a line only says that a tool is missing and names no other failure.

    `on_another_device`: the result came from a GPU that does not use CUDA, so CUDA may be missing
    too.

    >>> says_absence_only("bash: nvidia-smi: command not found", on_another_device=False)
    True
    >>> says_absence_only("CUDA is not available", on_another_device=False)
    False
    """
    other_words = ABSENT_TOOL.sub(" ", line)
    if on_another_device:
        other_words = ABSENT_CUDA.sub(" ", other_words)
    is_about_absence = other_words != line
    return is_about_absence and not working.FAILURE.search(other_words)


def _only_asks_for_a_toolkit(line: str) -> bool:
    """Whether a line only asks whether a CUDA toolkit is needed, because it is missing.

    torch does not need the toolkit to see the GPU.
    """
    return topic_of(line) == "toolkit" and says_absence_only(line, on_another_device=False)


SEVERAL = lazy(r"(?i)\b(?:second|third|2nd|3rd|other|both|two|three|all|one of)\b")
"""Words of a complaint that is about some of several GPUs."""


def _is_denied(complaint: str, *, has_use: bool) -> bool:
    """Whether a complaint only says that the GPU is not seen, although a program's output shows
    that it is.

    A program that prints the name of its GPU sees the GPU, whatever the person concludes.
    """
    if not has_use or not working.NOT_SEEN.search(complaint):
        return False
    # If one GPU is seen, another may still be missing.
    if SEVERAL.search(complaint):
        return False
    other_words = working.NOT_SEEN.sub(" ", complaint)
    return not working.FAILURE.search(other_words)


# --- what shows that it works ---------------------------------------------------------------------


def _computes_on_a_gpu(flat: str) -> bool:
    """Whether a text names a GPU, and also a speed or the loading of data."""
    if not working.A_GPU.search(flat):
        return False
    if working.SPEED.search(flat):
        return True
    names_loader = working.TOPICS["loader"].search(flat)
    return names_loader is not None


def _uses(flat: str) -> Iterator[Use]:
    """The lines that programs only print if they use the GPU; the last one of each kind."""
    names_gpu = working.A_GPU.search(flat) is not None
    compares_results = working.TOPICS["result"].search(flat) is not None
    forms = (
        ("computed", PRINTED_TENSOR, True),
        ("computed", PRINTED_NUMBER, True),
        ("device", working.DEVICE_SHOWN, True),
        ("found", working.FOUND_SHOWN, True),
        # A server or a training can also run on a CPU, so the text must name a GPU.
        ("training", working.TRAINING_SHOWN, names_gpu),
        ("server", working.SERVER_SHOWN, names_gpu),
        ("available", working.AVAILABLE_SHOWN, True),
        # Code that names a device may never have run, but somebody who compares results has run it.
        ("tensor", ON_A_DEVICE, compares_results),
    )
    for form, pattern, counts in forms:
        match = _last_match(pattern, flat) if counts else None
        if match:
            yield Use(form, match)


def _words_of_success(
    flat: str, topic: AskedTopic | None, *, has_gpu_in_use: bool
) -> Iterator[Event]:
    """Events for a speed, for a training that makes progress, or for a person's statement that
    something works."""
    names_gpu = working.A_GPU.search(flat) is not None
    if names_gpu:
        for kind, form in (("gpu-speed", working.SPEED), ("gpu-trains", working.TRAINS_WELL)):
            match = form.search(flat)
            if match:
                yield _event(kind, flat, match)
    plain_word = working.WORKS_THERE.search(flat)
    if plain_word is None:
        return
    # Games and nvidia-smi work with any driver, so they say nothing about torch.
    if working.OUTSIDE.search(flat):
        return
    # "X works, but ..." introduces what does not work.
    is_sure = has_gpu_in_use or (names_gpu and topic is not None)
    if is_sure or not working.CONTRAST.search(flat):
        yield _event("works-there", flat, plain_word)


# --- what is asked --------------------------------------------------------------------------------

TOPICS_OF_STATEMENTS = ("result", "first run", "compile", "loader", "warnings", "speed", "normal")
"""Topics that are also looked for in sentences that are not questions.

Memory is not among them, because programs print their memory use in lines that read like sentences.
"""


def _topic_of_person(words: str) -> AskedTopic | None:
    """What somebody asks about, found first in questions, then in all sentences; None if nothing is
    found."""
    questions = []
    for sentence in SENTENCE_END.split(words):
        if "?" in sentence or working.WONDERS.search(sentence):
            questions.append(sentence)
    topic_of_questions = _topic(" ".join(questions), tuple(working.TOPICS))
    # "Is that normal?" refers to something in the other sentences.
    if topic_of_questions and topic_of_questions.name != "normal":
        return topic_of_questions
    return _topic(words, TOPICS_OF_STATEMENTS) or topic_of_questions


def _topic(words: str, names: Sequence[str]) -> AskedTopic | None:
    """The first of these topics that the words mention; None if they mention none."""
    for name in names:
        match = working.TOPICS[name].search(words)
        if match:
            return AskedTopic(name, match[0][:SHOWN_CHARACTERS])
    return None


# --- places ---------------------------------------------------------------------------------------


def _last_match(form: re.Pattern[str] | Alternatives, flat: str) -> re.Match[str] | None:
    """The last match of a pattern; None if there is none."""
    if isinstance(form, Alternatives):
        return form.last_in(flat)
    last = None
    for match in form.finditer(flat):
        last = match
    return last


def _line_index(flat: str, position: int) -> int:
    """The index (from 0) of the line that contains a position."""
    return flat.count("\n", 0, position)


def _event(kind: str, flat: str, match: re.Match[str]) -> Event:
    """An event with the line around the match as its evidence."""
    index = _line_index(flat, match.start())
    return Event(
        kind=kind,
        source=line_source(index + 1),
        text=_quote(flat, match),
    )


def _quote(flat: str, match: re.Match[str]) -> str:
    """The line that contains a match. If the line is too long, only its text from the match on."""
    line_start = flat.rfind("\n", 0, match.start()) + 1
    line_end = flat.find("\n", match.end())
    if line_end < 0:
        line_end = len(flat)
    line = " ".join(flat[line_start:line_end].split())
    if len(line) <= SHOWN_CHARACTERS:
        return line
    # A long line usually begins with a logger's prefix, so quote it from the match on.
    words = " ".join(flat[match.start() : line_end].split())
    return words[:SHOWN_CHARACTERS]
