"""The last failure that a text reports, its complaints, and the program they belong to.

A failure is an exception, or a line that a program marks as its error. One of ordinary Python (a
key, a shape, a file, a name), and any other one whose words say nothing of a GPU, is the program's
own; of the rest the text does not say why.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from gpusetup.messages.programs import PROGRAMS, of_package
from gpusetup.messages.search import Text
from gpusetup.model.finding import COMPLAINT, Failing, Stage
from gpusetup.model.machine import Event
from gpusetup.model.patterns import lazy
from gpusetup.report.facts import Claim, Facts

FAILURE = lazy(
    r"(?:^|[\s:(`])(?:(?:[A-Za-z_]\w{0,40}\.){0,8}(?P<name>[A-Z]\w{0,40}(?:Error|Exception|NotFound\w{0,5}|Failed))(?=:|$|[\]`')])"
    r"|(?P<marked>\[?(?:[Ee]rror|ERROR|[Ff]atal|FATAL|[Ff]ailed)\b\]?(?=:|\]|\s-?\s?[A-Z]))"
    r"|(?<!\w )(?:[Cc]annot|[Cc]ould not|[Ff]ailed to|unknown|[Ii]nvalid|[Pp]ermission denied|[Ii]llegal instruction|[Ss]egmentation fault)\b)"
    r"(?P<message>.*)$"
)
"""An exception, a line that is marked as an error, or one that begins as programs say it."""
OF_OTHERS = lazy(
    r"Could not collect|NVRM: |\bnvidia[\w-]*: |ActorDied|RayActor|RayTask|ChildFailed|EngineDead|unavailable|Warning:|[Ee]rrors?: (?:0|None)\b"
)
"""Lines of the kernel, and of a program another process of which failed."""
ORDINARY_ERROR = lazy(
    r"^(?:Key|Value|Type|Attribute|Index|Name|UnboundLocal|FileNotFound|NotADirectory|JSONDecode|Unicode\w+|Unpickling"
    r"|ModuleNotFound|Import|Syntax|Indentation|ZeroDivision|Assertion|HTTP|HfHubHTTP|GatedRepo|\w*EntryNotFound"
    r"|RepositoryNotFound|Validation|Safetensor)Error$"
)
"""Classes of errors that the GPU's stack does not raise for itself."""
VAGUE = lazy(
    r"fail(?:ed|ure) to (?:start|load|import|init|launch|run|build)|initiali[sz]|\bdied\b|worker|process\b|unknown\.?$|unspecified"
    r"|start$|internal|thread|timed? ?out|engine|exit(?:ed)? (?:code|status)|[Tt]ensor cores?|unhandled|fault|failed$",
    re.I,
)
"""Words of an error that only passes another one on, or may be anything."""
GPU_STACK_WORD = lazy(
    r"cu(?:da|dnn|blas|fft|rand|solver|sparse)|nccl|nvidia|nvcc|nvml|\bgpus?\b|driver|\bhip|rocm|\bxpu|triton|ninja|\.so\b|\bdll\b"
    r"|compil|symbol|kernel|memory|\bshm|flash_attn|\b_C\b|libtorch|torchvision|torchaudio|xformers|bitsandbytes|sycl|vulkan"
    r"|\.(?:cuh?|h|hpp|cpp)\b|identifier|declared|pcie|_inductor|_dynamo|cupy|numba|wheel|abi\b|capabilit|\barch(?:e?s)?\b|accelerator|\bdevices?\b(?! argument)|\bg?loo\b|distributed|backend|'(?:gcc|cc|cl|g\+\+)'",
    re.I,
)
"""Words of a failure that may be of the GPU's stack."""
GPU_WORKS = lazy(
    r"torch\.cuda\.\w+Tensor|wrapper_CUDA\w*|\bcuda:\d|same device|two devices|is_available\(|_cuda\w*\" not implemented",
    re.I,
)
"""Words that name the GPU's stack and show that it works."""
GPU_STACK_COMPLAINT = lazy(
    r"(?:cuda|gpus?\b|nvidia|nvml|cudnn|\bhip\b|rocm|\bxpu\b|driver)[^.\n:]{0,50}?(?:fail|error|not (?:found|available|support|detect|work|enabled|compiled)|unavailable|missing|mismatch|incompatible|too old|invalid|none\b|false\b)"
    r"|(?:\bno|unable|cannot|can't|could not|fail(?:ed)?|error|without|missing|falling back)[^.\n]{0,40}?(?:cuda|\bgpus?\b|nvidia|nvml|cudnn|\bhip\b|rocm|\bxpu\b|driver)",
    re.I,
)
"""A line that complains of the GPU's stack, in whatever words."""
BUILD_WORD = lazy(
    r"setup\.py|pyproject|cpp_extension|build_meta|[Ff]ailed to build|[Bb]uilding wheel|to build wheel|no-build-isolation"
)
"""A build: what fails there may be the GPU's part of it."""
SAYS_MISSING = lazy(
    r"No module named|No package metadata was found|distribution was not found|PackageNotFoundError: "
    r"|\bis not (?:installed|installable)\b|must be installed to|not properly installed|seems to be not installed|error: (?!torch/)[\w/]{2,40}\.h(?:pp)?: No such file"
    r"|cannot find -l|Could NOT find|COMPILER not set|\.so[.\d]*: cannot open shared|missing dependency|requires (?:the latest version of )?[`'\"]?\w+[`'\"]?(?:: `pip| ?>=)"
)
"""Messages that something is missing, whatever it is for."""
SAYS_MISMATCH = lazy(
    r"cannot import name|'(?P<object> object)? has no attribute|not compatible with (?:this version of|PyTorch)|incompatible function arguments"
)
"""Messages that two packages are of releases that do not belong together."""
TELLING_LENGTH = 12
LINES_READ, LINES_BEFORE, LINES_AFTER = 400, 16, 3
"""Lines that are looked at: of the text, before a failure and from it on."""
SHOWN_CHARACTERS = 200


def failures(text: Text) -> Facts:
    """
    >>> from gpusetup.report.cleaning import text_of
    >>> [event.values for event in failures(text_of("KeyError: 'qwen3'"))]
    [{'exception': 'KeyError', 'own': 'yes'}]
    >>> [event.values for event in failures(text_of("RuntimeError: CUDA does not start"))]
    [{'exception': 'RuntimeError'}]
    """
    lines = text.lines[-LINES_READ:]
    for number, line in reversed([*enumerate(lines)]):
        words = line.strip()
        if any(form.search(words) for form in FAILURE_FORMS) and not OF_OTHERS.search(words):
            place = len(text.lines) - len(lines) + number + 1
            yield _failure_event(lines, number, f"report, line {place}")
            return


FAILURE_FORMS = (FAILURE, SAYS_MISMATCH, SAYS_MISSING)


def _failure_event(lines: Sequence[str], number: int, source: str) -> Event:
    line, before = lines[number].strip(), lines[max(number - LINES_BEFORE, 0) : number]
    found, mismatch = FAILURE.search(line), SAYS_MISMATCH.search(line)
    missing = next((one for one in (line, *reversed(before)) if SAYS_MISSING.search(one)), None)
    values = {"exception": (found and found["name"]) or "error"}
    if missing:
        values["needs"] = "yes"
    if mismatch and not mismatch["object"]:
        values["releases"] = "yes"
    near = "\n".join((*before, *lines[number : number + LINES_AFTER]))
    if missing or mismatch or (found and _is_of_the_program(found, near)):
        values["own"] = "yes"
    shown = (missing or line).strip()[:SHOWN_CHARACTERS]
    return Event(kind="program-failed", values=values, source=source, text=shown)


def _is_of_the_program(found: re.Match[str], near: str) -> bool:
    """Whether neither the words of a failure nor what stands near it may mean the GPU's stack."""
    words = GPU_WORKS.sub("", found.string)
    if not (found["name"] or found["marked"]) or GPU_STACK_WORD.search(words):
        return False
    if BUILD_WORD.search(near) or GPU_STACK_COMPLAINT.search(GPU_WORKS.sub("", near)):
        return False
    vague = len(found["message"]) < TELLING_LENGTH or VAGUE.search(found.string)
    return bool(ORDINARY_ERROR.search(found["name"] or "")) or not vague


COMPLAINT_WORD = lazy(
    r"\btraceback \(most recent|segfault|aborted|core dumped|\bcrash\w*|out of memory|\boom\b"
    r"|(?<!ecc )(?<!bus )\b(?:[a-z]{2,40})?errors?[\])]?: (?!0|n/a|none|no\b)|(?<!without )(?<!no )exceptions?\b"
    r"|\b(?:an|this|that|these|same|some|following|fatal|with|get|gets|got|getting|gives?|throws?|raises?|shows?|see|hits?|still) (?:\S{1,30} ){0,3}?errors?\b"
    r"|\bfail(?:s|ed|ing|ure)?\b(?! ?(?:occurred)? *:)|^\W*false\W*$|# ?false\b|\b(?:cuda|gpu)\b.{0,40}\bfalse\b|device_count\(\)\W{1,12}0(?!\d)"
    r"|\bexit(?:ed)?(?: with)?(?: (?:code|status))?:? ?-?[1-9]\d{0,2}\b|\bbugs?\b(?!.report\.sh)|(?<!no )(?<!any )(?<!without )\b(?:issues?|problems?|trouble)\b(?!/)"
    r"|n(?:o|')t (?:work|run|start|detect|recogni|find|us(?:e|ed|ing)\b|see(?:n|s|ing)?\b)|(?<!: )\bnot found\b|\b(?:gpu|cuda|card|device)\b[^.\n]{0,40}?\bnot support"
    r"|\b(?:do|does|did)(?: not|n't)(?: help\w*)?(?: me)? ?(?:[.,;!?]|$)|\b(?:did|does) nothing\b|\b(?:stops|stopped|stalls?) (?:at|in|during)\b|\bmakes? no difference\b|\bno (?:luck|success)\b"
    r"|\bcannot (?!collect)|can't |(?<!warning: )\bunable to\b|without gpu|\bno gpus?\b|\bcpu only\b|instead of|\bwrong\b|\bstuck\b|\b(?:hangs|hanging|hung|hang)\b|\bfr(?:eez|oz)\w+"
    r"|\b(?:runs?|running|only|still|entirely|computes?|everything) on (?:the )?cpu\b|\b(?:using|uses|use|runs?|running|only|still|entirely|back|falls?|instead)\b[^.\n]{0,30}\bthe cpu\b"
    r"|\b(?:so|very|too|really|extremely|painfully|is|much|how)\b ?slow|\bslow(?:er|ness|down)\b(?! ?(?:threshold|temp)? *:)|\blow gpu (?:usage|util)"
    r"|\b(?:after|during|while|when(?:ever)?|as soon as|every time|until|within|middle of)\b[^.\n]{0,40}\b(?:\w*train\w*|(?:fine-?)?tun(?:e|ing)|runs?|running|epochs?|steps|min(?:ute)?s?|hours?|load|inference|(?:start|begin)\w*)\b"
    r"|\b(?:shuts|switches|turns|powers|goes|went) (?:\w+ )?(?:off|down|black|dark|blank)\b|\b(?:reboots|restarts|resets) (?:itself\b|by\b)|\btakes? (?:\S+ ){0,3}(?:hours?|minutes|days|forever|ages)\b"
    r"|\bwhy (?:is|are|does|do|did|can|it|this|my|the)\b|报错|错误|失败|无法|不能|卡住|很慢|エラー|できない|ошибк|не работ|не вид|\bfehler|funktioniert n|\berreur|ne fonctionne|no funciona|não funciona|오류",
)
TABLE_STARTS = ("|", "+-", "+=", "Vulnerability ", "[pip3]", "[conda]")
"""How the lines begin of what is only printed: nvidia-smi's tables, lscpu's, lists of packages."""
ALIGNED_LABEL = lazy(r"\s*[A-Z][^:\n]{0,60}?\s{2,}:")
"""The label of a value in a list that a tool aligned: `GPU Slowdown T.Limit Temp        : -2 C`. It
stands there on a healthy machine too."""
FROZEN_MODULE = lazy(r"<frozen [\w.]+>")
"""Python's name of a module that is built into it: in `<frozen runpy>:128: RuntimeWarning`, which
`python -m torch.utils.collect_env` begins with, nothing is frozen."""


def complaints(text: Text) -> Facts:
    """The first line that complains."""
    for number, line in enumerate(text.lines, 1):
        if not line.lstrip().startswith(TABLE_STARTS) and complains(line):
            yield Claim(COMPLAINT, True, f"report, line {number}")
            return


def complains(line: str) -> bool:
    """Whether a line has a word of complaint that does not belong to a label.

    >>> complains("GPU Slowdown T.Limit Temp     : -2 C"), complains("it is a slowdown")
    (False, True)
    """
    line = FROZEN_MODULE.sub("", line)
    label = ALIGNED_LABEL.match(line)
    label_end = label.end() if label else 0
    return any(word.end() > label_end for word in COMPLAINT_WORD.finditer(line.lower()))


CHARACTERS_READ = 200_000
"""Of a text's end: there its failure stands."""
PACKAGE_IN_PATH = lazy(r"-packages[/\\](\w{2,40})")
BUILT_PACKAGE = lazy(
    r"(?:Failed to (?:download and )?build:? `|Failed building wheel for |Building wheel for "
    r"|Could not build wheels for |subprocess to build )(?P<built>[A-Za-z][\w.-]{1,40})"
    r"|Collecting (?P<collected>[A-Za-z][\w.-]{1,40})[^\0]{0,400}?"
    r"(?:Getting requirements to build|Preparing metadata|setup\.py egg_info)[^\0]{0,80}?error"
    r"|pip3? install (?:--no-build-isolation (?P<asked>[A-Za-z][\w.-]{1,40})|(?P<first>[A-Za-z][\w.-]{1,40}) --no-build-isolation)"
)
"""A package that is built here."""


def failing_program(text: Text) -> Iterator[Failing]:
    """The program that failed; nothing if no mark of one is there."""
    first = max(len(text.flat) - CHARACTERS_READ, 0)
    shown = max(_program_marks(text, first), default=None)
    if shown:
        _, place, name, stage = shown
        where = text.shown(place, place + 1)
        yield Failing(program=name, stage=stage, text=where, source=text.source(place))


def _program_marks(text: Text, first: int) -> Iterator[tuple[int, int, str, Stage | None]]:
    """The marks of programs: how much each says, its place, the name, the stage."""
    for found in BUILT_PACKAGE.finditer(text.flat, first):
        called = found[found.lastindex or 0]
        program = of_package(called)
        if called.lower() != "torch":
            yield 4, found.start(), program.name if program else called.lower(), "build"
    for found in PACKAGE_IN_PATH.finditer(text.flat, first) if "-packages" in text.low else ():
        if program := of_package(found[1]):
            yield 3, found.start(), program.name, None
    for program, mark in ((one, mark) for one in PROGRAMS for mark in one.marks):
        if (place := text.low.rfind(mark)) >= 0:
            # A bare name counts only if the text shows nothing else, not even torch.
            yield 0 if mark == program.name.lower() else 2, place, program.name, None
    if (place := text.low.rfind("torch")) >= 0:
        yield 1, place, "torch", None
