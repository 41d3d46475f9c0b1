"""Finds the last failure in a text, complaints, and the program that failed.

A failure is an exception, or a line that a program marks as its error. Ordinary Python errors (a
KeyError, a wrong shape, a missing file), and errors whose message does not mention the GPU stack,
are blamed on the program itself. For all others the text does not tell the cause.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gpusetup.messages.programs import PROGRAMS, Program, of_package
from gpusetup.messages.search import Text, line_source
from gpusetup.messages.working import NOTICES
from gpusetup.model.finding import COMPLAINT, Failing, Stage
from gpusetup.model.machine import Event
from gpusetup.model.patterns import lazy
from gpusetup.report.facts import Claim, Facts

# `torch.cuda.OutOfMemoryError: ...`, `ERROR: ...`, `[Fatal] ...`, `Failed to start ...`; the group
# `message` is what follows.
FAILURE = lazy(
    r"(?:^|[\s:(`])(?:(?:[A-Za-z_]\w{0,40}\.){0,8}(?P<name>[A-Z]\w{0,40}(?:Error|Exception|NotFound\w{0,5}|Failed))(?=:|$|[\]`')])"
    r"|(?P<marked>\[?(?:[Ee]rror|ERROR|[Ff]atal|FATAL|[Ff]ailed)\b\]?(?=:|\]|\s-?\s?[A-Z]))"
    r"|(?<!\w )(?:[Cc]annot|[Cc]ould not|[Ff]ailed to|unknown|[Ii]nvalid|[Pp]ermission denied|[Ii]llegal instruction|[Ss]egmentation fault)\b)"
    r"(?P<message>.*)$"
)
"""An exception, a line that a program marks as an error, or the words that such lines begin with."""
# The kernel's `NVRM: Xid ...`, a launcher's `ChildFailedError`, `errors: 0`.
OF_ANOTHER_PROCESS = lazy(
    r"Could not collect|NVRM: |\bnvidia[\w-]*: |ActorDied|RayActor|RayTask|ChildFailed|EngineDead|unavailable|Warning:|[Ee]rrors?: (?:0|None)\b"
)
"""Lines from the kernel, and lines in which a program reports that another process failed."""
# `error: metadata-generation-failed`, `ERROR: Failed building wheel for mamba_ssm`.
REPORTS_A_BUILD = lazy(
    r"(?i)metadata-generation-failed|subprocess-exited-with-error|generating package metadata"
    r"|failed building wheel|failed to build (?:installable )?wheels?\b|failed to build [\w.-]+$"
    r"|could not build wheels"
)
"""Lines in which an installer reports that a build failed. The build's own error is above them."""
# `KeyError`, `FileNotFoundError`, `HTTPError`.
ORDINARY_ERROR = lazy(
    r"^(?:Key|Value|Type|Attribute|Index|Name|UnboundLocal|FileNotFound|NotADirectory|JSONDecode|Unicode\w+|Unpickling"
    r"|ModuleNotFound|Import|Syntax|Indentation|ZeroDivision|Assertion|HTTP|HfHubHTTP|GatedRepo|\w*EntryNotFound"
    r"|RepositoryNotFound|Validation|Safetensor)Error$"
)
"""Exception classes that come from ordinary Python code and not from the GPU stack itself."""
# `worker died`, `exit code 1`, `internal error`.
VAGUE = lazy(
    r"fail(?:ed|ure) to (?:start|load|import|init|launch|run|build)|initiali[sz]|\bdied\b|worker|process\b|unknown\.?$|unspecified"
    r"|start$|internal|thread|timed? ?out|engine|exit(?:ed)? (?:code|status)|[Tt]ensor cores?|unhandled|fault|failed$",
    re.I,
)
"""Words of an error that only passes on another error or does not tell its cause."""
# `libcudnn`, `nccl`, `no device`, `undefined symbol`, `kernel`.
GPU_STACK_WORD = lazy(
    r"cu(?:da|dnn|blas|fft|rand|solver|sparse)|nccl|nvidia|nvcc|nvml|\bgpus?\b|driver|\bhip|rocm|\bxpu|triton|ninja|\.so\b|\bdll\b"
    r"|compil|symbol|kernel|memory|\bshm|flash_attn|\b_C\b|libtorch|torchvision|torchaudio|xformers|bitsandbytes|sycl|vulkan"
    r"|\.(?:cuh?|h|hpp|cpp)\b|identifier|declared|pcie|_inductor|_dynamo|cupy|numba|wheel|abi\b|capabilit|\barch(?:e?s)?\b|accelerator|\bdevices?\b(?! argument)|\bg?loo\b|distributed|backend|'(?:gcc|cc|cl|g\+\+)'",
    re.I,
)
"""Words of a failure that may come from the GPU stack."""
# `torch.cuda.FloatTensor`, `wrapper_CUDA_addmm`, `found at least two devices, cuda:0 and cpu`.
GPU_WORKS = lazy(
    r"torch\.cuda\.\w+Tensor|wrapper_CUDA\w*|\bcuda:\d|same device|two devices|is_available\(|_cuda\w*\" not implemented",
    re.I,
)
"""Words that mention the GPU stack but show that it works."""
# `CUDA is not available`, `no GPU found`, `driver too old`.
GPU_STACK_COMPLAINT = lazy(
    r"(?:cuda|gpus?\b|nvidia|nvml|cudnn|\bhip\b|rocm|\bxpu\b|driver)[^.\n:]{0,50}?(?:fail|error|not (?:found|available|support|detect|work|enabled|compiled)|unavailable|missing|mismatch|incompatible|too old|invalid|none\b|false\b)"
    r"|(?:\bno|unable|cannot|can't|could not|fail(?:ed)?|error|without|missing|falling back)[^.\n]{0,40}?(?:cuda|\bgpus?\b|nvidia|nvml|cudnn|\bhip\b|rocm|\bxpu\b|driver)",
    re.I,
)
"""A complaint about the GPU stack, in many wordings."""
# `Failed to build`, `setup.py`, `torch.utils.cpp_extension`.
BUILD_WORD = lazy(
    r"setup\.py|pyproject|cpp_extension|build_meta|[Ff]ailed to build|[Bb]uilding wheel|to build wheel|no-build-isolation"
)
"""Words that show that a package is being compiled, so its GPU part may be what failed."""
# `No module named 'x'`, `cannot find -lx`, `libx.so: cannot open shared object file`.
SAYS_MISSING = lazy(
    r"No module named|No package metadata was found|distribution was not found|PackageNotFoundError: "
    r"|\bis not (?:installed|installable)\b|must be installed to|not properly installed|seems to be not installed|error: (?!torch/)[\w/]{2,40}\.h(?:pp)?: No such file"
    r"|cannot find -l|Could NOT find|COMPILER not set|\.so[.\d]*: cannot open shared|missing dependency|requires (?:the latest version of )?[`'\"]?\w+[`'\"]?(?:: `pip| ?>=)"
)
"""Messages that something is missing. It need not have to do with the GPU."""
# `cannot import name 'x'`, `module 'x' has no attribute 'y'`. An object without an attribute (group
# `object`) may be the program's own mistake.
SAYS_MISMATCH = lazy(
    r"cannot import name|'(?P<object> object)? has no attribute|not compatible with (?:this version of|PyTorch)|incompatible function arguments"
)
"""Messages that two packages come from releases that do not fit together."""
# `requests.exceptions.HTTPError: ...`, `huggingface_hub.errors.GatedRepoError: ...`.
ERROR_WITHOUT_GPU = lazy(
    r"(?m)^\s*(?:requests|urllib3?|httpx|httpcore|aiohttp|http|huggingface_hub|datasets|yaml|json|ssl|socket|fsspec|botocore|s3fs|gcsfs|git|wandb|mlflow|pydantic(?:_core)?|jsonschema|jinja2|omegaconf|hydra|click|sqlalchemy|sqlite3|zipfile|tarfile|csv|pandas|PIL|soundfile|librosa|av|gradio|fastapi|starlette|uvicorn|safetensors_rust)\.[\w.]*(?:Error|Exception|Timeout|Warning)\b"
)
"""An exception of a package that reads files or talks to servers, where no GPU is involved."""
FAILURE_FORMS = (FAILURE, SAYS_MISMATCH, SAYS_MISSING)
TELLING_LENGTH = 12
"""A message with fewer characters says too little to tell whose failure it is."""
LINES_READ = 400
"""The last failure is looked for in this many lines at the end of the text."""
LINES_BEFORE, LINES_AFTER = 16, 3
"""The number of lines before a failure, and from its own line on, that are read for its context."""
SHOWN_CHARACTERS = 200
"""At most this many characters of the line are quoted as evidence."""


def failures(text: Text) -> Facts:
    """The last failure in the text, and whether the program itself caused it.

    >>> from gpusetup.report.cleaning import text_of
    >>> [event.values for event in failures(text_of("KeyError: 'qwen3'"))]
    [{'exception': 'KeyError', 'own': 'yes'}]
    >>> [event.values for event in failures(text_of("RuntimeError: CUDA does not start"))]
    [{'exception': 'RuntimeError'}]
    """
    lines = text.lines[-LINES_READ:]
    unread_lines = len(text.lines) - len(lines)
    last_report: int | None = None
    for index in reversed(range(len(lines))):
        line = lines[index].strip()
        if not _is_failure(line):
            continue
        if not REPORTS_A_BUILD.search(line):
            yield _failure_event(lines, index, line_source(unread_lines + index + 1))
            return
        if last_report is None:
            last_report = index
    # The text does not show the build's own error, so the installer's report is used.
    if last_report is not None:
        yield _failure_event(lines, last_report, line_source(unread_lines + last_report + 1))


def _is_failure(line: str) -> bool:
    """Whether a line reports a failure of the program that printed it and is not just a notice."""
    if not any(form.search(line) for form in FAILURE_FORMS):
        return False
    without_notices = NOTICES.sub(" ", line)
    if not any(form.search(without_notices) for form in FAILURE_FORMS):
        return False
    return not OF_ANOTHER_PROCESS.search(line)


def _failure_event(lines: Sequence[str], index: int, source: str) -> Event:
    """The event for the failure in a line, with what the lines around it say about the cause.

    The event's values: `exception` is the exception's class, or `error`. `needs` is set if
    something is missing, `releases` if two packages do not fit together, and `own` if the program
    itself and not the GPU stack failed. `plugin` names the plugin whose code failed.
    """
    line = lines[index].strip()
    lines_before = lines[max(index - LINES_BEFORE, 0) : index]
    lines_from_here = lines[index : index + LINES_AFTER]
    failure = FAILURE.search(line)
    mismatch = SAYS_MISMATCH.search(line)
    missing_line = _nearest_missing(line, lines_before)

    exception = failure["name"] if failure else None
    values = {"exception": exception or "error"}
    if missing_line:
        values["needs"] = "yes"
    if mismatch and not mismatch["object"]:
        values["releases"] = "yes"
    surroundings = "\n".join((*lines_before, *lines_from_here))
    is_of_the_program = failure is not None and _is_of_the_program(failure, surroundings)
    if missing_line or mismatch or is_of_the_program:
        values["own"] = "yes"
    plugin = _plugin_of_last_frame(lines_before)
    if plugin:
        values["plugin"] = plugin
    quoted_line = (missing_line or line).strip()
    return Event(
        kind="program-failed",
        values=values,
        source=source,
        text=quoted_line[:SHOWN_CHARACTERS],
    )


# `File "/x/ComfyUI/custom_nodes/NAME/nodes.py"`, `File "C:\\webui\\extensions\\NAME\\scripts\\a.py"`.
FRAME = lazy(r"^\s*File \"(?P<path>[^\"]{1,300})\"")
PLUGIN = lazy(r"[/\\](?:custom_nodes|extensions)[/\\](?P<name>[\w.-]{2,60})[/\\]")
"""The folders in which ComfyUI and Stable Diffusion's web UI install plugins by other people."""


def _plugin_of_last_frame(lines_before: Sequence[str]) -> str:
    """The plugin whose folder contains the last frame of the traceback; "" if that frame is not in
    a plugin."""
    for line in reversed(lines_before):
        frame = FRAME.search(line)
        if frame:
            plugin = PLUGIN.search(frame["path"])
            return plugin["name"] if plugin else ""
    return ""


def _nearest_missing(line: str, lines_before: Sequence[str]) -> str | None:
    """The line that says that something is missing: the failure's line or the last such line before
    it; None if there is none."""
    for candidate in (line, *reversed(lines_before)):
        if SAYS_MISSING.search(candidate):
            return candidate
    return None


def _is_of_the_program(failure: re.Match[str], surroundings: str) -> bool:
    """Whether a failure is the program's own, because neither it nor the lines around it point to
    the GPU stack."""
    # The exception's class names the package that raised it, so it does not matter whether earlier
    # lines mention GPUs.
    if ERROR_WITHOUT_GPU.search(surroundings):
        return True
    is_marked = failure["name"] or failure["marked"]
    if not is_marked:
        return False
    # Words such as `cuda:0` show that the GPU works, so they do not count against the GPU stack.
    text_about_failure = GPU_WORKS.sub("", failure.string)
    if GPU_STACK_WORD.search(text_about_failure):
        return False
    surroundings_about_failure = GPU_WORKS.sub("", surroundings)
    if BUILD_WORD.search(surroundings) or GPU_STACK_COMPLAINT.search(surroundings_about_failure):
        return False
    if ORDINARY_ERROR.search(failure["name"] or ""):
        return True
    # Any other error counts as the program's own if its message is long enough and not vague.
    is_long_enough = len(failure["message"]) >= TELLING_LENGTH
    return is_long_enough and not VAGUE.search(failure.string)


# --- what complains -------------------------------------------------------------------------------

# `it crashes`, `an error`, `does not work`, `is stuck`, `so slow`, `after 20 minutes of training`; in
# eight more languages.
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
"""Words with which a person or a program says that something is wrong."""
TABLE_STARTS = ("|", "+-", "+=", "Vulnerability ", "[pip3]", "[conda]")
"""How lines in the tables and lists of nvidia-smi, lscpu and package managers begin."""
# `GPU Slowdown T.Limit Temp        : `
ALIGNED_LABEL = lazy(r"\s*[A-Z][^:\n]{0,60}?\s{2,}:")
"""The label before an aligned value in a tool's list. A healthy machine prints the same label, so
its words are not a complaint."""
FROZEN_MODULE = lazy(r"<frozen [\w.]+>")
"""Python's name for a frozen module. Here "frozen" is not a complaint.

`python -m torch.utils.collect_env` begins with `<frozen runpy>:128: RuntimeWarning`.
"""


XPU_IS_AVAILABLE = "xpu available: true"
"""The line, in lower case, that collect_env prints if torch sees an Intel GPU."""


def complaints(text: Text) -> Facts:
    """A claim for the first line that contains a complaint."""
    uses_xpu = XPU_IS_AVAILABLE in text.low
    for number, line in enumerate(text.lines, 1):
        is_of_a_table = line.lstrip().startswith(TABLE_STARTS)
        # torch's XPU build never has CUDA, so "CUDA available: False" is not a complaint there.
        is_of_another_backend = uses_xpu and "CUDA available" in line
        if not is_of_a_table and not is_of_another_backend and complains(line):
            yield Claim(COMPLAINT, True, line_source(number))
            return


ASKS_FOR_SUPPORT = lazy(r"(?i)\bnot support\w*[^.!?\n]{0,60}\?\s*$")
"""A question whether something is supported, which is not a complaint."""


def complains(line: str) -> bool:
    """Whether a line contains a complaint after its label, if it has one.

    >>> complains("GPU Slowdown T.Limit Temp     : -2 C"), complains("it is a slowdown")
    (False, True)
    """
    words = ASKS_FOR_SUPPORT.sub("", FROZEN_MODULE.sub("", line))
    label = ALIGNED_LABEL.match(words)
    label_end = label.end() if label else 0
    for match in COMPLAINT_WORD.finditer(words.lower()):
        is_behind_label = match.end() > label_end
        if is_behind_label:
            return True
    return False


# --- which program failed -------------------------------------------------------------------------

CHARACTERS_READ = 200_000
"""The failing program is looked for in this many characters at the end of the text."""
# `.../site-packages/vllm/engine.py`.
PACKAGE_IN_PATH = lazy(r"-packages[/\\](\w{2,40})")
# `Failed building wheel for X`; `Collecting X`, then `Getting requirements to build ... error`; `pip
# install X --no-build-isolation`. Each form has a group for the package's name.
BUILT_PACKAGE = lazy(
    r"(?:Failed to (?:download and )?build:? `|Failed building wheel for |Building wheel for "
    r"|Could not build wheels for |subprocess to build )(?P<built>[A-Za-z][\w.-]{1,40})"
    r"|Collecting (?P<collected>[A-Za-z][\w.-]{1,40})[^\0]{0,400}?"
    r"(?:Getting requirements to build|Preparing metadata|setup\.py egg_info)[^\0]{0,80}?error"
    r"|pip3? install (?:--no-build-isolation (?P<asked>[A-Za-z][\w.-]{1,40})|(?P<first>[A-Za-z][\w.-]{1,40}) --no-build-isolation)"
)
"""A package that was being compiled on this machine."""

# The weights of the marks that tell which program failed, from the weakest to the strongest.
BARE_NAME = 0
"""The program's name anywhere in the text. It is weaker than the name of torch, so it counts only
if torch is not named."""
TORCH_NAMED = 1
MARK_OF_PROGRAM = 2
"""Weight of words that only this program prints."""
PACKAGE_OF_FRAME = 3
"""A path to one of the package's files, usually in a traceback."""
BUILT_HERE = 4


class ProgramMark(NamedTuple):
    """Words that name the failing program. The mark with the highest weight wins; among equal
    weights, the last one in the text."""

    weight: int
    start: int
    name: str
    stage: Stage | None


def failing_program(text: Text) -> Iterator[Failing]:
    """The program that failed; nothing if the text names no program."""
    marks = _program_marks(text)
    best_mark = max(marks, default=None)
    if best_mark:
        start = best_mark.start
        yield Failing(
            program=best_mark.name,
            stage=best_mark.stage,
            text=text.shown(start, start + 1),
            source=text.source(start),
        )


def _program_marks(text: Text) -> Iterator[ProgramMark]:
    """All marks of programs near the end of the text."""
    first = max(len(text.flat) - CHARACTERS_READ, 0)
    for match in BUILT_PACKAGE.finditer(text.flat, first):
        package_name = match[match.lastindex or 0]
        program = of_package(package_name)
        # If torch itself is being built, no other program failed.
        if package_name.lower() != "torch":
            name = program.name if program else package_name.lower()
            yield ProgramMark(BUILT_HERE, match.start(), name, "build")
    # The pattern is slow on long texts, and most texts have no such path.
    if "-packages" in text.low:
        for match in PACKAGE_IN_PATH.finditer(text.flat, first):
            program = of_package(match[1])
            if program:
                yield ProgramMark(PACKAGE_OF_FRAME, match.start(), program.name, None)
    for known_program in PROGRAMS:
        yield from _marks_of(known_program, text)
    torch_start = text.low.rfind("torch")
    if torch_start >= 0:
        yield ProgramMark(TORCH_NAMED, torch_start, "torch", None)


def _marks_of(program: Program, text: Text) -> Iterator[ProgramMark]:
    """The last position of each mark of a program."""
    for mark in program.marks:
        start = text.low.rfind(mark)
        if start < 0:
            continue
        is_bare_name = mark == program.name.lower()
        weight = BARE_NAME if is_bare_name else MARK_OF_PROGRAM
        yield ProgramMark(weight, start, program.name, None)
