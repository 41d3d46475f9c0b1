"""The exception with which a Python program of a text ended, where it lies outside the GPU's stack.

An exception of ordinary Python (a key, a shape, a file, a name) whose words, and the text's, say
nothing of a GPU that fails. What may be the GPU's is left to the messages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpusetup.messages.row import FAILED
from gpusetup.model.machine import Event
from gpusetup.model.patterns import lazy
from gpusetup.report.facts import Fact
from gpusetup.report.text import Text

CLASSES = ("Error", "Exception", "NotFound")
"""How the name of an exception's class ends."""
NAME = rf"(?P<name>(?:[a-z_]\w{{0,40}}\.){{0,6}}[A-Z]\w{{1,40}}(?:{'|'.join(CLASSES)}))"
RAISED = lazy(
    rf"^(?:E {{2,8}}|#{{1,4}} )?(?:\[rank\d+\]: ?)?{NAME}(?:: ?(?P<message>.{{0,300}}))?$"
)
NAMED = (
    "KeyError ValueError TypeError AttributeError IndexError NameError UnboundLocalError"
    " FileNotFoundError NotADirectoryError IsADirectoryError JSONDecodeError UnicodeDecodeError"
    " UnpicklingError ModuleNotFoundError ImportError SyntaxError IndentationError"
    " ZeroDivisionError AssertionError HTTPError HfHubHTTPError GatedRepoError"
    " RepositoryNotFoundError EntryNotFoundError LocalEntryNotFoundError ValidationError"
    " SafetensorError InvalidHeaderDeserialization"
)
ORDINARY = frozenset(NAMED.split())
"""Classes of errors that the GPU's stack does not raise for itself."""
OF_A_PROGRAM = lazy(
    r"shapes cannot be multiplied|size of tensor|[Ee]xpected all tensors to be on the same device|[Ss]izes of tensors must match"
    r"|expected (?:scalar type|input|m1 and m2|[34]D)|shape '.{1,60}' is invalid|size mismatch for|loading state_dict"
    r"|[Tt]rying to backward|does not require grad|one of the variables needed for gradient|must be a (?:float|long|string)"
    r"|element 0 of tensors|stack expects each tensor|Input type .{1,60} and (?:weight|bias) type|unexpected key|[Mm]issing key"
    r"|PytorchStreamReader|unexpected EOF|[Ii]nvalid magic number|Sizes of tensors"
)
"""What a `RuntimeError` of a program's own numbers says."""
WRAPS = lazy(
    r"fail(?:ed|ure) to (?:start|load|import|init\w*|launch|run)|initiali[sz]|root cause|stack trace|\bdied\b|\bworkers?\b|process|unknown|unspecified"
    r"|internal error|assert|thread|timed? ?out|unable to load|could not load|engine|exited|exit code|[Tt]ensor cores?|unhandled|fault|code \d|not (?:available|supported|enabled)",
    re.I,
)
"""What a `RuntimeError` says that only passes another error on, or may be anything."""
LONG_ENOUGH = 12
OF_A_HUB = lazy(
    r"huggingface\.co|is not a local folder|does not appear to have a file named|[Cc]an't load (?:the )?(?:tokenizer|configuration|model|feature extractor|image processor)"
)
"""What an `OSError` says of files that a hub should have."""
OF_THE_STACK = lazy(
    r"cu(?:da|dnn|blas|fft|rand|solver|sparse)|nccl|nvidia|nvcc|nvml|\bgpus?\b|driver|\bhip|rocm|\bxpu|\bmps\b|triton|ninja|\.so\b|\.dll|\bdll\b"
    r"|compil|symbol|kernel|memory|shm|flash_attn|\b_C\b|libtorch|torchvision|torchaudio|xformers|bitsandbytes|sycl|level zero"
    r"|cupy|numba|metal|wheel|abi|capabilit|\barch(?:e?s)?\b|arch_list|\bdevices?\b(?! argument)|accelerator|numpy\.(?:core|dtype)|\btorch\b(?=['\"]?$)|'gcc'|'cc'|'cl'|'g\+\+'|__version__|\bc10\b|distributed|backend",
    re.I,
)
"""Words of an exception that may mean the GPU's stack."""
COMPLAINT = lazy(
    r"(?:cuda|gpus?\b|nvidia|nvml|cudnn|\bhip\b|rocm|\bxpu\b|driver)[^.\n]{0,50}?(?:fail|error|not (?:found|available|support|detect|work|enabled|compiled)|unavailable|missing|mismatch|unsupported|incompatible|too old|invalid|out of memory|insufficient|none\b|false\b)"
    r"|(?:\bno|unable|cannot|can't|could not|couldn't|fail(?:ed)?|error|without|missing|requires?|falling back)[^.\n]{0,40}?(?:cuda|\bgpus?\b|nvidia|nvml|cudnn|\bhip\b|rocm|\bxpu\b|driver)",
    re.I,
)
"""A line that complains of the GPU's stack, in whatever words."""
BUILDS = lazy(
    r"setuptools|build_meta|build_wheel|builds-v0|build-env|setup\.py|pyproject|cpp_extension|failed to build|build isolation"
    r"|building wheel|requirements to build|preparing metadata|flash.?attn|xformers|bitsandbytes|torchcodec|sageattention|mmcv|detectron2|op_builder|deepspeed[/\\.]ops"
    r"|cuda|nvidia|nvcc|\bgpus?\b|nccl|rocm|\bhip\b",
    re.I,
)
"""Near an exception: the build or the import of an extension, or a word of the GPU's stack."""
NEAR = 16
"""Lines of a traceback before its exception."""
OF_A_CALL = lazy(
    r"\.cuda\(|torch\.cuda\.(?:amp|is_available|set_device|empty_cache|synchronize)|['\"]cuda(?::\d)?['\"]|\bcuda:\d"
    r"|(?:single|multi|per)[_-]gpu|\S*Warning:[^\n]*",
    re.I,
)
"""What a program's line says of a GPU that works."""
OF_VERSIONS = lazy(
    r"^[^\w\n]{0,12}[a-z][\w. /()-]{0,30}\b(?:versions?|types?|number|count|memory|name|model|platform)\b\W{0,3}: [^\n]{1,120}$",
    re.I | re.M,
)
"""A line of a list of what is there: `- GPU type: NVIDIA H20`."""
LAST_LINES = 400


PASS_ON = ("ActorDiedError", "RayActorError", "RayTaskError", "ChildFailedError", "EngineDeadError")
"""What a program raises because another one of its processes failed: that one says why."""


def exceptions(text: Text) -> Iterator[Fact]:
    """The last exception, where it and the rest of the text are about something else than a GPU."""
    if "error" not in text.low and "notfound" not in text.low and "exception" not in text.low:
        return
    lines = [line.strip() for line in text.lines[-LAST_LINES:]]
    for number in range(len(lines) - 1, -1, -1):
        found = raised(lines[number])
        if found is None:
            continue
        after = (line for line in lines[number + 1 : number + 3] if not passes_on(line))
        before = "\n".join(
            line for line in lines[max(number - NEAR, 0) : number] if line != lines[number]
        )
        of_a_build = BUILDS.search(OF_A_CALL.sub("", OF_VERSIONS.sub("", before)))
        if is_ordinary(found, " ".join(after)) and not of_a_build and not complains(text):
            yield Event(
                kind=FAILED,
                values={"exception": found["name"].rpartition(".")[2]},
                source=f"report, line {len(text.lines) - len(lines) + number + 1}",
                text=found[0].strip()[:200],
            )
        return


def raised(line: str) -> re.Match[str] | None:
    found = RAISED.match(line) if any(word in line for word in CLASSES) else None
    return None if passes_on(line) else found


def passes_on(line: str) -> bool:
    return any(f"{name}:" in line or line.endswith(name) for name in PASS_ON)


def complains(text: Text) -> bool:
    """Whether a line complains of the GPU's stack; an exception below a list of versions does not."""
    if not COMPLAINT.search(text.flat):
        return False
    return bool(COMPLAINT.search(OF_VERSIONS.sub("", "\n".join(text.lines)).replace("\n", " ")))


def is_ordinary(found: re.Match[str], after: str) -> bool:
    """
    >>> is_ordinary(RAISED.match("KeyError: 'qwen3'"), "")
    True
    >>> is_ordinary(RAISED.match("RuntimeError: CUDA error: invalid argument"), "")
    False
    """
    name, message = found["name"].rpartition(".")[2], found["message"] or ""
    words = f"{message} {after}"
    if name == "RuntimeError":
        said = message if len(message) >= LONG_ENOUGH and not WRAPS.search(words) else ""
        its_own = OF_A_PROGRAM.search(words) or (said and not OF_THE_STACK.search(words))
        return bool(its_own) and "CUDA error" not in words
    if name in ("OSError", "EnvironmentError"):
        return OF_A_HUB.search(words) is not None
    return name in ORDINARY and bool(words.strip()) and OF_THE_STACK.search(words) is None
