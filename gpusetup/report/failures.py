"""The last failure that a program of a text reports, if no message of the GPU's stack explains it.

An exception, or a line that a program marks as its error. A failure of ordinary Python (a key, a
shape, a file, a name), and any other one whose words say nothing of a GPU, is the program's own;
of the rest the text does not say why. Last, which program a text is about.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

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
NOT_ITS_OWN = lazy(
    r"Could not collect|NVRM: |\bnvidia[\w-]*: |ActorDied|RayActor|RayTask|ChildFailed|EngineDead|unavailable|Warning:|[Ee]rrors?: (?:0|None)\b"
)
"""What the kernel says, and what a program says because another one of its processes failed."""
ORDINARY = lazy(
    r"^(?:Key|Value|Type|Attribute|Index|Name|UnboundLocal|FileNotFound|NotADirectory|JSONDecode|Unicode\w+|Unpickling"
    r"|ModuleNotFound|Import|Syntax|Indentation|ZeroDivision|Assertion|HTTP|HfHubHTTP|GatedRepo|\w*EntryNotFound"
    r"|RepositoryNotFound|Validation|Safetensor)Error$"
)
"""Classes of errors that the GPU's stack does not raise for itself."""
WRAPS = lazy(
    r"fail(?:ed|ure) to (?:start|load|import|init|launch|run|build)|initiali[sz]|\bdied\b|worker|process\b|unknown\.?$|unspecified"
    r"|start$|internal|thread|timed? ?out|engine|exit(?:ed)? (?:code|status)|[Tt]ensor cores?|unhandled|fault|failed$",
    re.I,
)
"""What an error says that only passes another one on, or may be anything."""
STACK = lazy(
    r"cu(?:da|dnn|blas|fft|rand|solver|sparse)|nccl|nvidia|nvcc|nvml|\bgpus?\b|driver|\bhip|rocm|\bxpu|triton|ninja|\.so\b|\bdll\b"
    r"|compil|symbol|kernel|memory|\bshm|flash_attn|\b_C\b|libtorch|torchvision|torchaudio|xformers|bitsandbytes|sycl|vulkan"
    r"|\.(?:cuh?|h|hpp|cpp)\b|identifier|declared|pcie|_inductor|_dynamo|cupy|numba|wheel|abi\b|capabilit|\barch(?:e?s)?\b|accelerator|\bdevices?\b(?! argument)|\bg?loo\b|distributed|backend|'(?:gcc|cc|cl|g\+\+)'",
    re.I,
)
"""Words of a failure that may be of the GPU's stack."""
WORKING = lazy(
    r"torch\.cuda\.\w+Tensor|wrapper_CUDA\w*|\bcuda:\d|same device|two devices|is_available\(|_cuda\w*\" not implemented",
    re.I,
)
"""What such a line says of a GPU that works."""
OF_THE_STACK = lazy(
    r"(?:cuda|gpus?\b|nvidia|nvml|cudnn|\bhip\b|rocm|\bxpu\b|driver)[^.\n:]{0,50}?(?:fail|error|not (?:found|available|support|detect|work|enabled|compiled)|unavailable|missing|mismatch|incompatible|too old|invalid|none\b|false\b)"
    r"|(?:\bno|unable|cannot|can't|could not|fail(?:ed)?|error|without|missing|falling back)[^.\n]{0,40}?(?:cuda|\bgpus?\b|nvidia|nvml|cudnn|\bhip\b|rocm|\bxpu\b|driver)",
    re.I,
)
"""A line that complains of the GPU's stack, in whatever words."""
BUILDS = lazy(
    r"setup\.py|pyproject|cpp_extension|build_meta|[Ff]ailed to build|[Bb]uilding wheel|to build wheel|no-build-isolation"
)
"""A build: what fails there may be the GPU's part of it."""
NEEDS = lazy(
    r"No module named|No package metadata was found|distribution was not found|PackageNotFoundError: "
    r"|\bis not (?:installed|installable)\b|must be installed to|not properly installed|seems to be not installed|error: (?!torch/)[\w/]{2,40}\.h(?:pp)?: No such file"
    r"|cannot find -l|Could NOT find|COMPILER not set|\.so[.\d]*: cannot open shared|missing dependency|requires (?:the latest version of )?[`'\"]?\w+[`'\"]?(?:: `pip| ?>=)"
)
"""What says of itself that something is missing, whatever it is for."""
OTHER_RELEASE = lazy(
    r"cannot import name|'(?P<object> object)? has no attribute|not compatible with (?:this version of|PyTorch)|incompatible function arguments"
)
"""What says of itself that two packages are of releases that do not belong together."""
LONG_ENOUGH = 12
LAST, BEFORE, AFTER = 400, 16, 3
"""Lines that are looked at: of the text, before a failure and from it on."""
SHOWN = 200


def failures(text: Text) -> Facts:
    """
    >>> from gpusetup.report.cleaning import text_of
    >>> [event.values for event in failures(text_of("KeyError: 'qwen3'"))]
    [{'exception': 'KeyError', 'own': 'yes'}]
    >>> [event.values for event in failures(text_of("RuntimeError: CUDA does not start"))]
    [{'exception': 'RuntimeError'}]
    """
    first = max(len(text.lines) - LAST, 0)
    for number in range(len(text.lines) - 1, first - 1, -1):
        line = text.lines[number].strip()
        found, releases = FAILURE.search(line), OTHER_RELEASE.search(line)
        if not (found or releases or NEEDS.search(line)) or NOT_ITS_OWN.search(line):
            continue
        before = text.lines[max(number - BEFORE, first) : number]
        needed = next((one for one in (line, *reversed(before)) if NEEDS.search(one)), None)
        values = {"exception": (found and found["name"]) or "error"}
        if needed:
            values["needs"] = "yes"
        if releases and not releases["object"]:
            values["releases"] = "yes"
        near = "\n".join((*before, *text.lines[number : number + AFTER]))
        if needed or releases or (found and _is_its_own(found, near)):
            values["own"] = "yes"
        source = f"report, line {number + 1}"
        shown = (needed or line).strip()[:SHOWN]
        yield Event(kind="program-failed", values=values, source=source, text=shown)
        return


def _is_its_own(found: re.Match[str], near: str) -> bool:
    """Whether neither the words of a failure nor what stands near it may mean the GPU's stack."""
    if not (found["name"] or found["marked"]) or STACK.search(WORKING.sub("", found.string)):
        return False
    if BUILDS.search(near) or OF_THE_STACK.search(WORKING.sub("", near)):
        return False
    vague = len(found["message"]) < LONG_ENOUGH or WRAPS.search(found.string)
    return bool(ORDINARY.search(found["name"] or "")) or not vague


SAYS_SO = lazy(
    r"\btraceback \(most recent|segfault|aborted|core dumped|\bcrash\w*|out of memory|\boom\b"
    r"|(?<!ecc )(?<!bus )\b(?:[a-z]{2,40})?errors?[\])]?: (?!0|n/a|none|no\b)|(?<!without )(?<!no )exceptions?\b"
    r"|\b(?:an|this|that|these|same|some|following|fatal|with|get|gets|got|getting|gives?|throws?|raises?|shows?|see|hits?|still) (?:\S{1,30} ){0,3}?errors?\b"
    r"|\bfail(?:s|ed|ing|ure)?\b(?! ?(?:occurred)? *:)|^\W*false\W*$|# ?false\b|\b(?:cuda|gpu)\b.{0,40}\bfalse\b|device_count\(\)\W{1,12}0(?!\d)"
    r"|\bexit(?:ed)?(?: with)?(?: (?:code|status))?:? ?-?[1-9]\d{0,2}\b|\bbugs?\b(?!.report\.sh)|(?<!no )(?<!any )(?<!without )\b(?:issues?|problems?|trouble)\b(?!/)"
    r"|n(?:o|')t (?:work|run|start|detect|recogni|find|us(?:e|ed|ing)\b|see(?:n|s|ing)?\b)|(?<!: )\bnot found\b|\b(?:gpu|cuda|card|device)\b[^.\n]{0,40}?\bnot support"
    r"|\bcannot (?!collect)|can't |(?<!warning: )\bunable to\b|without gpu|\bno gpus?\b|\bcpu only\b|instead of|\bwrong\b|\bstuck\b|\b(?:hangs|hanging|hung|hang)\b|\bfr(?:eez|oz)\w+"
    r"|\b(?:runs?|running|only|still|entirely|computes?|everything) on (?:the )?cpu\b|\b(?:using|uses|use|runs?|running|only|still|entirely|back|falls?|instead)\b[^.\n]{0,30}\bthe cpu\b"
    r"|\b(?:so|very|too|really|extremely|painfully|is|much|how)\b ?slow|\bslow(?:er|ness|down)\b(?! ?(?:threshold|temp)? *:)|\blow gpu (?:usage|util)"
    r"|\b(?:after|during|while|when(?:ever)?|as soon as|every time|until|within|middle of)\b[^.\n]{0,40}\b(?:\w*train\w*|(?:fine-?)?tun(?:e|ing)|runs?|running|epochs?|steps|min(?:ute)?s?|hours?|load|inference|(?:start|begin)\w*)\b"
    r"|\b(?:shuts|switches|turns|powers|goes|went) (?:\w+ )?(?:off|down|black|dark|blank)\b|\b(?:reboots|restarts|resets) (?:itself\b|by\b)|\btakes? (?:\S+ ){0,3}(?:hours?|minutes|days|forever|ages)\b"
    r"|\bwhy (?:is|are|does|do|did|can|it|this|my|the)\b|报错|错误|失败|无法|不能|卡住|很慢|エラー|できない|ошибк|не работ|не вид|\bfehler|funktioniert n|\berreur|ne fonctionne|no funciona|não funciona|오류",
)
OF_A_TABLE = ("|", "+-", "+=", "Vulnerability ", "[pip3]", "[conda]")
"""How the lines begin of what is only printed: nvidia-smi's tables, lscpu's, lists of packages."""


def complaints(text: Text) -> Facts:
    """The first line that complains."""
    for number, line in enumerate(text.lines, 1):
        if not line.lstrip().startswith(OF_A_TABLE) and SAYS_SO.search(line.lower()):
            yield Claim(COMPLAINT, True, f"report, line {number}")
            return


LOOKED_AT = 200_000
"""Of a text's end: there its failure stands."""
PACKAGE = lazy(r"-packages[/\\](\w{2,40})")
BUILT = lazy(
    r"(?:Failed to (?:download and )?build:? `|Failed building wheel for |Building wheel for "
    r"|Could not build wheels for |subprocess to build )(?P<built>[A-Za-z][\w.-]{1,40})"
    r"|Collecting (?P<collected>[A-Za-z][\w.-]{1,40})[^\0]{0,400}?"
    r"(?:Getting requirements to build|Preparing metadata|setup\.py egg_info)[^\0]{0,80}?error"
    r"|pip3? install (?:--no-build-isolation (?P<asked>[A-Za-z][\w.-]{1,40})|(?P<first>[A-Za-z][\w.-]{1,40}) --no-build-isolation)"
)
"""A package that is built here."""


def failing(text: Text) -> Iterator[Failing]:
    """The program that failed; nothing where no mark of one is there."""
    first = max(len(text.flat) - LOOKED_AT, 0)
    shown = max(_signs(text, first), default=None)
    if shown:
        _, place, name, stage = shown
        where = text.shown(place, place + 1)
        yield Failing(program=name, stage=stage, text=where, source=text.source(place))


def _signs(text: Text, first: int) -> Iterator[tuple[int, int, str, Stage | None]]:
    """What names a program: how much that says, its place, the name, the stage."""
    for found in BUILT.finditer(text.flat, first):
        called = found[found.lastindex or 0]
        program = of_package(called)
        if called.lower() != "torch":
            yield 4, found.start(), program.name if program else called.lower(), "build"
    for found in PACKAGE.finditer(text.flat, first) if "-packages" in text.low else ():
        if program := of_package(found[1]):
            yield 3, found.start(), program.name, None
    for program, mark in ((one, mark) for one in PROGRAMS for mark in one.marks):
        if (place := text.low.rfind(mark)) >= 0:
            # A bare name counts only if the text shows nothing else, not even torch.
            yield 0 if mark == program.name.lower() else 2, place, program.name, None
    if (place := text.low.rfind("torch")) >= 0:
        yield 1, place, "torch", None
