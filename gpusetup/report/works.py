"""Signs in a text that a GPU computes: a device that a program names, a speed, or a training that
makes progress.

If somebody names a failure, in whatever words, that some part works is no answer. Only two things
outweigh the failure: the person's later word that it is mended, and a program that goes on after its
complaint.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gpusetup.messages import working
from gpusetup.messages.alternatives import Alternatives, has_any
from gpusetup.messages.search import Text, line_source
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Event
from gpusetup.model.patterns import lazy, lowered
from gpusetup.report.failures import ALIGNED_LABEL, TABLE_STARTS
from gpusetup.report.person import is_prose, prose_of

LINES_READ, CHARACTERS_READ = 2_000, 60_000
"""Of a text's beginning. 99 % of the labelled reports are shorter."""
# Behind a question or exclamation mark, behind a full stop (not at the dot of a version), at a line's end.
SENTENCE_END = lazy(r"(?<=[?!])|(?<=\.)\s+(?=\S)|\n")
SHOWN_CHARACTERS = 160
"""Characters of a quote."""
# `[1/4]`, `12 ...`, `ERROR: ...`, `WARNING]`.
PRINTED_FIRST = lazy(
    r"\s*(?:[\d\[(]|(?:ERROR|Error|FATAL|CRITICAL|WARN(?:ING)?|INFO|DEBUG)\b[\]:])"
)
"""How a program's line begins, although it has the words of a sentence."""
# `Traceback (most recent call last)`, `RuntimeError: ...`.
EXCEPTION = lazy(r"(?m)^\s*Traceback \(most recent|^\s*[\w.]{0,60}(?:Error|Exception): ")
"""The head of a traceback, or its last line."""
# `device='cuda:0'`, `.to("cuda")`, `.cuda()`.
ON_A_DEVICE = lazy(r"device='cuda:\d|\bcuda:\d\b|\.to\(['\"]cuda|\.cuda\(\)")
"""A tensor on the GPU, or the call that puts it there."""


# `tensor(22.63, device='cuda:0')`, the last line of a printed tensor; no call has it with a number.
PRINTED_TENSOR = lazy(
    r"(?m)^(?![^\n]*(?:>>>|\btorch\.\w+\(|=\s*tensor\())[^\n]*\bdevice='(?:cuda|xpu|mps):\d+'[^\n]*\)\s*$"
)
"""A tensor on a GPU as torch prints it."""
# `>>> (x.cuda() @ y).sum().item()` and below it `-13284.5`.
PRINTED_NUMBER = lazy(
    r"(?m)^(?:>>>|\$|In \[\d+\]:)[^\n]*(?:device=['\"](?:cuda|xpu|mps)|\.cuda\(\)|\.to\(['\"](?:cuda|xpu|mps))[^\n]*"
    r"\n(?:Out\[\d+\]: )?(?:-?\d+\.\d[\d.e+-]*|tensor\([^\n]*)\s*$"
)
"""A typed line that computes on a GPU, and the number that came out below it."""
# `nvcc: command not found`, `no CUDA toolkit`, `without cuDNN`.
TOOL = r"(?:nvcc|nvidia-smi|rocm-smi|rocminfo|(?:cuda )?toolkit|cudnn|CUDA_HOME)"
ABSENT_TOOL = lazy(
    rf"(?i)\b{TOOL}\b['\"`]?:?[^.\n]{{0,24}}\b(?:command )?(?:is |was )?not (?:found|installed|available)\b|\b(?:command )?not (?:found|installed):? {TOOL}\b|\b(?:no|without|missing) (?:the |a |an )?{TOOL}\b"
)
"""Words that a tool is not there. Who shows that the GPU computes does not need it."""
ABSENT_CUDA = lazy(
    r"(?i)(?<!=)\b(?:False|None)\b|\bcuda (?:is )?not (?:found|available)\b|\bno (?:matching distribution|cuda)\b"
)
"""Words that CUDA is not there. Whose result came from `mps` or `xpu` does not need it."""
ANOTHER_DEVICE = lazy(r"device='(?:mps|xpu)|\bdevice: (?:mps|xpu)\b|device=['\"](?:mps|xpu)")
"""A result, or a training, on Apple's or Intel's GPU."""


class FailureLines(NamedTuple):
    """The indexes (from 0) of the lines that mention a failure."""

    complaints: tuple[int, ...]
    """Lines in which a person names a failure."""
    errors: tuple[int, ...]
    """Lines in which a program names one."""
    slow: tuple[int, ...]
    """Lines that call something slow."""

    @property
    def by_person(self) -> tuple[int, ...]:
        """Lines in which a person complains about a failure or slowness."""
        return self.complaints + self.slow

    @property
    def of_any(self) -> tuple[int, ...]:
        """Lines that mention a failure, written by a person or a program."""
        return self.complaints + self.errors


class Use(NamedTuple):
    """A line that a program only prints if it uses the GPU."""

    form: str
    """What the line shows: `device`, `found`, `training`, `server`, `available`, `tensor`, or
    `computed`: a result that came from a GPU."""
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
    failures = _failure_lines(lines)
    uses = tuple(_uses(flat))
    last_word_of_success = _last_match(working.SOLVED, flat)
    proof_after_failures = _proof_of_a_solved_title(lines, failures, uses)
    if proof_after_failures:
        event = _event("works-there", flat, proof_after_failures.match)
        # What stands behind the last failure is of the state that works.
        source = line_source(max(failures.of_any, default=0) + 2)
        yield replace(event, values={"form": "mended"}, source=source)
    elif last_word_of_success and _is_mended(lines, failures):
        event = _event("works-there", flat, last_word_of_success)
        if reports_success(lines) or _proof_after_failures(lines, failures, uses):
            event = replace(event, values={"form": "mended"})
        yield event
    elif not _is_outweighed(lines, failures, uses):
        # What works beside a failure is no answer.
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


def _named_failure(lines: Sequence[str], index: int) -> Event:
    """The event for a line in which a person mentions a failure."""
    line = lines[index].strip()
    return Event(
        kind="names-failure",
        source=line_source(index + 1),
        text=line[:SHOWN_CHARACTERS],
    )


def _taken_all_the_same(flat: str, uses: Sequence[Use]) -> Iterator[Event]:
    """The device and speed that a program shows although somebody complains."""
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


def _failure_lines(lines: Sequence[str]) -> FailureLines:
    """The lines in which a person or a program mentions a failure, without notices and labels."""
    low = lowered("\n".join(lines))
    failures = working.FAILURE.possible_in(low)
    worries = working.WORRY.possible_in(low)
    slowness = working.SLOW.possible_in(low)
    complaints: list[int] = []
    errors: list[int] = []
    slow: list[int] = []
    for index, line in enumerate(lines):
        if line.lstrip().startswith(TABLE_STARTS):
            continue
        label = ALIGNED_LABEL.match(line)
        words = line[label.end() :] if label else line
        # Most lines name no failure at all: their notices need not be taken out.
        if not has_any((*failures, *worries, *slowness), words):
            continue
        without_labels = working.PRINTED_LABELS.sub(" ", words)
        without_notices = working.NOTICES.sub(" ", without_labels)
        if has_any(slowness, without_notices):
            slow.append(index)
        names_failure = has_any(failures, without_notices)
        if not names_failure and not has_any(worries, without_notices):
            continue
        if is_prose(words) and not PRINTED_FIRST.match(words):
            complaints.append(index)
        elif names_failure:
            # A program says a person's words of worry of its own progress.
            errors.append(index)
    return FailureLines(tuple(complaints), tuple(errors), tuple(slow))


def _is_mended(lines: Sequence[str], failures: FailureLines) -> bool:
    """Whether somebody says that it works now, and no failure is mentioned after that."""
    success_lines = [index for index, line in enumerate(lines) if _says_mended(line)]
    if not success_lines or failures.slow:
        return False
    last_success = success_lines[-1]
    if any(index > last_success for index in failures.of_any):
        return False
    # "It works now, but ..." introduces what does not.
    words_from_there = " ".join(lines[last_success:])
    return not working.CONTRAST.search(words_from_there)


SOLVED_TITLE = lazy(
    r"(?i)^\W*(?:solved|fixed|resolved|gel(?:ö|oe)st|r[ée]solu|resuelto|solucionado|resolvido|решено|已解决|解決(?:済み?|しました)?|해결)(?!\w)"
)
"""The mark that a forum, or its user, puts before the title of a question that is answered."""


def _proof_of_a_solved_title(
    lines: Sequence[str], failures: FailureLines, uses: Sequence[Use]
) -> Use | None:
    """What shows the GPU at work after every failure of a text whose title says that it is solved."""
    if not lines or not SOLVED_TITLE.search(lines[0]):
        return None
    return _proof_after_failures(lines, failures, uses)


def _proof_after_failures(
    lines: Sequence[str], failures: FailureLines, uses: Sequence[Use]
) -> Use | None:
    """The first line after every failure that shows the GPU at work; None if there is none."""
    flat = "\n".join(lines)
    last_failure = max(failures.of_any, default=0)
    for use in uses:
        if _line_index(flat, use.match.start()) > last_failure:
            return use
    return None


# `EDIT: solved.`, `Update: it works now`, `I finally fixed it`.
REPORT_OF_SUCCESS = lazy(
    r"(?i)^\W*(?:edit|update|upd|nachtrag|追記|追加|更新|추가|апд|дополнение)\b|^\W*(?:solved|fixed|resolved|gel(?:ö|oe)st|r[ée]solu|resuelto|resolvido|решено|已解决|解決)(?!\w)"
    r"|\bI (?:have |finally |just |already )*(?:solved|fixed|resolved) (?:it|this|the)\b"
)
"""How a person begins who reports that a failure is over."""
RESERVATION = lazy(
    r"(?i)\?|\b(?:if|when|until|unless|hope\w*|think|thought|should|would|could|can|might|maybe|perhaps|how|someone|somebody|says?|said|they|others|people|maintainers?|colleague|only|not|partly|almost|sometimes|except|cpu)\b|n't\b"
)
"""A question, a condition, somebody else's word, or a part: then nothing is over."""


def reports_success(lines: Sequence[str]) -> bool:
    """Whether a person reports plainly, in a sentence of this text, that it works now.

    >>> reports_success(["EDIT: it is fixed now."]), reports_success(["How can I get it fixed?"])
    (True, False)
    """
    for line in lines:
        for sentence in SENTENCE_END.split(line):
            is_report = REPORT_OF_SUCCESS.search(sentence) and working.SOLVED.search(sentence)
            if is_report and not RESERVATION.search(sentence):
                return True
    return False


def _says_mended(line: str) -> bool:
    """Whether a line says that it works now, and mentions no failure after these words."""
    success = working.SOLVED.search(line)
    if success is None:
        return False
    words_behind = line[success.end() :]
    return not working.FAILURE.search(words_behind)


def _is_outweighed(lines: Sequence[str], failures: FailureLines, uses: Sequence[Use]) -> bool:
    """Whether the signs of a working GPU contradict every failure that the text mentions."""
    flat = "\n".join(lines)
    last_use = max((_line_index(flat, use.match.end()) for use in uses), default=-1)
    forms = [use.form for use in uses]
    complaints = [lines[index] for index in failures.complaints]
    errors = list(failures.errors)
    # A result from the GPU, or a training on a device that the program names.
    if "computed" in forms or {"device", "training"} <= set(forms):
        elsewhere = ANOTHER_DEVICE.search(flat) is not None

        def is_needless(line: str) -> bool:
            return says_absence_only(line, on_another_device=elsewhere)

        complaints = [line for line in complaints if not is_needless(line)]
        errors = [index for index in errors if not is_needless(lines[index])]
    if not all(_is_denied(complaint, has_use=bool(uses)) for complaint in complaints):
        return False
    # A program that goes on after a logged error got over it.
    last_error = max(errors, default=-1)
    if last_error > last_use:
        return False
    # It does not get over an exception; people paste the traceback before the head of the log as
    # often as behind it.
    if EXCEPTION.search(flat):
        return False
    # A program that somebody calls slow may run on the CPU, unless the text shows the GPU at work.
    has_gpu_at_work = any(use.form not in ("available", "found") for use in uses)
    return not failures.slow or has_gpu_at_work or _computes_on_a_gpu(flat)


def says_absence_only(line: str, *, on_another_device: bool) -> bool:
    """Whether a line says that a tool is not there, and names no other failure.

    `on_another_device`: the result came from a GPU without CUDA, so that CUDA may be absent too.

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


SEVERAL = lazy(r"(?i)\b(?:second|third|2nd|3rd|other|both|two|three|all|one of)\b")
"""A complaint about one of several GPUs."""


def _is_denied(complaint: str, *, has_use: bool) -> bool:
    """Whether a complaint only says that the GPU is not seen, while a program shows that it is.

    A program that prints the name of its GPU sees it, whatever the person concludes.
    """
    if not has_use or not working.NOT_SEEN.search(complaint):
        return False
    # That one GPU is seen says nothing of the others.
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
        # A server and a training run on a CPU, too.
        ("training", working.TRAINING_SHOWN, names_gpu),
        ("server", working.SERVER_SHOWN, names_gpu),
        ("available", working.AVAILABLE_SHOWN, True),
        # Code that names a device need not have run; whoever compares results ran it.
        ("tensor", ON_A_DEVICE, compares_results),
    )
    for form, pattern, counts in forms:
        match = _last_match(pattern, flat) if counts else None
        if match:
            yield Use(form, match)


def _words_of_success(
    flat: str, topic: AskedTopic | None, *, has_gpu_in_use: bool
) -> Iterator[Event]:
    """A speed, a training that makes progress, or a person's statement that it works, as events."""
    names_gpu = working.A_GPU.search(flat) is not None
    if names_gpu:
        for kind, form in (("gpu-speed", working.SPEED), ("gpu-trains", working.TRAINS_WELL)):
            match = form.search(flat)
            if match:
                yield _event(kind, flat, match)
    plain_word = working.WORKS_THERE.search(flat)
    if plain_word is None:
        return
    # Games and nvidia-smi work on any driver, whatever torch does.
    if working.OUTSIDE.search(flat):
        return
    # "X works, but ..." introduces what does not work.
    is_sure = has_gpu_in_use or (names_gpu and topic is not None)
    if is_sure or not working.CONTRAST.search(flat):
        yield _event("works-there", flat, plain_word)


# --- what is asked --------------------------------------------------------------------------------

TOPICS_OF_STATEMENTS = ("result", "first run", "compile", "loader", "warnings", "speed", "normal")
"""Topics that are also read in sentences which ask nothing.

Not memory: programs print theirs in lines that read like sentences.
"""


def _topic_of_person(words: str) -> AskedTopic | None:
    """What somebody asks about, found first in questions, then in all sentences; None if nothing is
    found."""
    questions = []
    for sentence in SENTENCE_END.split(words):
        if "?" in sentence or working.WONDERS.search(sentence):
            questions.append(sentence)
    topic_of_questions = _topic(" ".join(questions), tuple(working.TOPICS))
    # "Is that normal?" asks about what the other sentences say.
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
    """The line around a match; if it is too long, the words from the match on."""
    line_start = flat.rfind("\n", 0, match.start()) + 1
    line_end = flat.find("\n", match.end())
    if line_end < 0:
        line_end = len(flat)
    line = " ".join(flat[line_start:line_end].split())
    if len(line) <= SHOWN_CHARACTERS:
        return line
    # The beginning of a long line is the prefix of a logger.
    words = " ".join(flat[match.start() : line_end].split())
    return words[:SHOWN_CHARACTERS]
