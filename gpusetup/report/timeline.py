"""The two ends of a text's timeline: the last failure of a program, with its owner and place, and
the last success.

A failure is an exception, or a line that a program marks as its error. Something that is missing and
errors whose message does not name the GPU stack are the program's own. For all others the text does
not tell the cause.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from gpusetup.messages.programs import PROGRAMS, of_package
from gpusetup.messages.search import Text, line_source
from gpusetup.model.finding import Failing, Stage
from gpusetup.model.machine import Event
from gpusetup.report.facts import SHOWN_CHARACTERS

# `torch.cuda.OutOfMemoryError: ...`, `ERROR: ...`, `[Fatal] ...`, `Failed to start ...`.
FAILURE = re.compile(
    r"(?:^|[\s:(`])(?:(?:[A-Za-z_]\w{0,40}\.){0,8}(?P<name>[A-Z]\w{0,40}(?:Error|Exception|NotFound\w{0,5}|Failed))(?=:|$|[\]`')])"
    r"|\[?(?:[Ee]rror|ERROR|[Ff]atal|FATAL|[Ff]ailed)\b\]?(?=:|\]|\s-?\s?[A-Z])"
    r"|(?<!\w )(?:[Cc]annot|[Cc]ould not|[Ff]ailed to|unknown|[Ii]nvalid|[Pp]ermission denied|[Ii]llegal instruction|[Ss]egmentation fault)\b)"
)
"""An exception, a line that a program marks as an error, or the words that such lines begin with."""
NOTICE = re.compile(
    r"(?i)^\W*(?:\S{0,60}[: ])?(?:\w*Warning|INFO|NOTICE|DEBUG)\b(?!.*\b(?:Error\b|Traceback|Xid\b)).*$"
    r"|\b(?:defaulting to|skipping|will be (?:skipped|ignored)|registering factory|already registered)\b"
    r"|Could not collect|NVRM: |\bnvidia[\w-]*: |ActorDied|RayActor|RayTask|ChildFailed|Warning:|\berrors?: (?:0|None)\b"
)
"""Lines of the kernel, notices after which the program goes on, and lines in which a program reports
that another process failed."""
# `KeyError: 'train'`, `error: unrecognized arguments: --x`.
SAYS_AN_ERROR = re.compile(
    r"(?:\b[A-Z]\w{0,40}(?:Error|Exception)|\b[Ee]rror|\bERROR|\b[Ff]atal)\]?:? \S"
)
NOT_OWN = re.compile(
    r"cu(?:da|dnn|blas|fft|rand|solver|sparse)|nccl|nvidia|nvcc|nvml|\bgpus?\b|driver|\bhip|rocm|\bxpu|triton|ninja|\.so\b|\bdll\b"
    r"|compil|symbol|kernel|memory|\bshm|flash_attn|\b_C\b|libtorch|torchvision|torchaudio|xformers|bitsandbytes|sycl|vulkan"
    r"|\.(?:cuh?|h|hpp|cpp)\b|identifier|declared|pcie|_inductor|_dynamo|cupy|numba|wheel|abi\b|capabilit|\barch(?:e?s)?\b|accelerator|metadata-generation|subprocess-exited|failed to build|\bdevices?\b(?! argument)|\bg?loo\b|distributed|backend|'(?:gcc|cc|cl|g\+\+)'"
    r"|fail(?:ed|ure) to (?:start|load|import|init|launch|run)|initiali[sz]|\bdied\b|worker|process\b|unknown|internal|thread|timed? ?out|engine|exit(?:ed)? (?:code|status)|unhandled|fault|failed$",
    re.I,
)
"""Words of a failure that may come from the GPU stack, or that only passes on another error. Without
them, an error is the program's own."""
# `No module named 'x'`, `cannot find -lx`, `libx.so: cannot open shared object file`.
SAYS_MISSING = re.compile(
    r"No module named|No package metadata was found|distribution was not found|PackageNotFoundError: "
    r"|\bis not (?:installed|installable)\b|must be installed to|not properly installed|seems to be not installed|error: (?!torch/)[\w/]{2,40}\.h(?:pp)?: No such file"
    r"|cannot find -l|Could NOT find|COMPILER not set|\.so[.\d]*: cannot open shared|missing dependency|requires (?:the latest version of )?[`'\"]?\w+[`'\"]?(?:: `pip| ?>=)"
)
"""Messages that something is missing. It need not have to do with the GPU."""
ENDED_BADLY = re.compile(
    r"\bexit(?:s|ed)?(?: with)? (?:code|status):? ?-?[1-9]|^Traceback \(most recent"
)
LINES_READ = 400
"""The last failure is looked for in this many lines at the end of the text."""
FINISHED = re.compile(
    r"100%\|[^|]{0,80}\| ?(?P<count>\d+)/(?P=count) \["
    r"|\bPrompt executed in \d|\b[Tt]raining (?:completed|finished|done)\b|\bTest PASSED\b|\bResult = PASS\b"
    r"|'train_runtime': \d"
)
"""A progress bar at 100 %, or words that programs print when their work is done."""


def timeline(text: Text) -> Iterator[Event]:
    """The last failure of a program, and what succeeded after it.

    >>> from gpusetup.report.cleaning import text_of
    >>> [event.values for event in timeline(text_of("KeyError: 'qwen3'"))]
    [{'exception': 'KeyError', 'own': 'yes'}]
    >>> [event.kind for event in timeline(text_of("OSError: no\\nTraining completed"))]
    ['program-failed', 'run-finished']
    """
    unread = max(len(text.lines) - LINES_READ, 0)
    lines = text.lines[unread:]
    failed = _last_failure(lines)
    if failed is not None:
        yield _failure_event(lines[failed].strip(), line_source(unread + failed + 1))
    first = 0 if failed is None else failed + 1
    for index in reversed(range(first, len(lines))):
        line = lines[index].strip()
        if FINISHED.search(line):
            source = line_source(unread + index + 1)
            yield Event(kind="run-finished", source=source, text=line[:SHOWN_CHARACTERS])
            return


def _last_failure(lines: Sequence[str]) -> int | None:
    """The index of the last line in which a program reports its failure."""
    forms = (FAILURE, SAYS_MISSING, ENDED_BADLY)
    for index in reversed(range(len(lines))):
        line = lines[index].strip()
        if any(form.search(line) for form in forms) and not NOTICE.search(line):
            return index
    return None


def _failure_event(line: str, source: str) -> Event:
    """The event for the failure in a line, with what it says about the cause.

    The event's values: `exception` is the exception's class, or `error`. `needs` is set if
    something is missing, and `own` if the program itself and not the GPU stack failed.
    """
    failure, missing = FAILURE.search(line), SAYS_MISSING.search(line)
    values = {"exception": (failure["name"] if failure else None) or "error"}
    if missing:
        values["needs"] = "yes"
    # A message that names what is missing is no sign of a GPU stack that fails.
    if missing or (SAYS_AN_ERROR.search(line) and not NOT_OWN.search(line)):
        values["own"] = "yes"
    return Event(kind="program-failed", values=values, source=source, text=line[:SHOWN_CHARACTERS])


# --- the program that a text is about -------------------------------------------------------------

CHARACTERS_READ = 200_000
"""The failing program is looked for in this many characters at the end of the text."""
# `.../site-packages/vllm/engine.py`.
PACKAGE_IN_PATH = re.compile(r"-packages[/\\](\w{2,40})")
BUILT_PACKAGE = re.compile(
    r"(?:Failed to (?:download and )?build:? `|(?:Failed b|B)uilding wheel for "
    r"|Could not build wheels for |subprocess to build )([A-Za-z][\w.-]{1,40})"
)
"""A package that was being compiled on this machine."""

# The weights of the marks that tell which program failed, from the weakest to the strongest: its bare
# name anywhere in the text (weaker than the name of torch), words that only it prints, a path to one
# of its files (usually in a traceback), and its build on this machine.
BARE_NAME, TORCH_NAMED, MARK_OF_PROGRAM, PACKAGE_OF_FRAME, BUILT_HERE = range(5)
Mark = tuple[int, int, str, Stage | None]
"""Weight, position, program, stage. The greatest mark wins: by weight, then the last in the text."""


def failing_program(text: Text) -> Iterator[Failing]:
    """The program that failed; nothing if the text names no program."""
    if best := max(_marks(text), default=None):
        _, start, name, stage = best
        line = text.shown(start, start + 1)
        yield Failing(program=name, stage=stage, text=line, source=text.source(start))


def _marks(text: Text) -> Iterator[Mark]:
    """The marks of programs: builds and paths near the text's end, and each one's last own words."""
    first = max(len(text.flat) - CHARACTERS_READ, 0)
    for match in BUILT_PACKAGE.finditer(text.flat, first):
        package = match[1].lower()
        built = of_package(package)
        # If torch itself is being built, no other program failed.
        if package != "torch":
            yield BUILT_HERE, match.start(), built.name if built else package, "build"
    # The pattern is slow, and most texts have no such path.
    if "-packages" in text.low:
        for match in PACKAGE_IN_PATH.finditer(text.flat, first):
            if owner := of_package(match[1]):
                yield PACKAGE_OF_FRAME, match.start(), owner.name, None
    for program in PROGRAMS:
        for mark in program.marks:
            if (start := text.low.rfind(mark)) >= 0:
                weight = BARE_NAME if mark == program.name.lower() else MARK_OF_PROGRAM
                yield weight, start, program.name, None
    if (start := text.low.rfind("torch")) >= 0:
        yield TORCH_NAMED, start, "torch", None
