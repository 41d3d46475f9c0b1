"""What programs on top of torch print about themselves: versions, GPUs, memory.

Facts: the start lines of ultralytics, ComfyUI, A1111, vLLM, the tables of detectron2, mmcv,
transformers, accelerate, DeepSpeed, lightning and xformers, Python's own banner, uv's remarks.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.accelerators.makers import LABEL
from gpusetup.messages.cuda import IN_PROSE
from gpusetup.messages.fragments import TORCH_VERSION
from gpusetup.model.machine import Event
from gpusetup.model.patterns import lazy
from gpusetup.report.facts import (
    GUESS,
    HINT,
    SURE,
    USUAL,
    Claim,
    Fact,
    Saying,
    claims,
    saying,
)
from gpusetup.report.formats.collect_env import MACHINES
from gpusetup.report.formats.program_gpus import program_gpus
from gpusetup.report.text import Text

TORCH = rf"({TORCH_VERSION})"
PYTHON = r"([23]\.\d{1,2}(?:\.\d{1,2})?)"
BACKEND = rf"({LABEL})"
SHOWS = r"(?:(?:it|shows?|says?|said|prints?|reports?|reported|gives?|displays?|outputs?|is|the|that|a|my|cuda|version|release|of|to|be) ?:? ?){1,6}"
"""Between a program and the version that somebody says it prints."""
NO_CONDITION = "".join(
    rf"(?<!{word}torch\.)"
    for word in (r"assert ", r"assert \(", r"assert\(", "if ", "if not ", "while ")
)
"""A comparison in a line of code is no answer."""

ROWS: tuple[Saying, ...] = (
    saying("torch.version", "(you have", rf"PyTorch \S{{3,40}}(?: with CUDA \w+)? \(you have {TORCH}\)", SURE),
    saying("torch.version", "you have torch", rf"you have torch {TORCH}\b", SURE),
    saying("torch.version", "your installed torch==", rf"Your installed torch=={TORCH} does not include kernels", SURE),
    saying("torch.version", "you'll have torch", rf"you'll have torch {TORCH}\b", SURE),
    saying("torch.version", " torch-", rf"\bPython-\d\.\d+\.\d+\S* torch-{TORCH}", SURE),
    saying("torch.version", "torch.__version__", rf"\btorch\.__version__(?:, ?torch\.[\w.]{{3,24}}(?:\(\))?){{0,3}}\)?(?! ?(?:[<>~!]=?|==))\W{{1,60}}{TORCH}(?![\w.])", USUAL),
    saying("torch.version", "torch version", rf"\btorch version\)?(?! ?(?:[<>~!]=?|==))\W{{1,60}}{TORCH}(?![\w.])", USUAL),
    saying("torch.version", '"torch"', rf'"torch" ?: ?"{TORCH}"', USUAL),
    saying("torch.version", "torch is ", rf"\b(?:py)?torch is {TORCH} \(py3", USUAL),
    saying("torch.version", "/cu", rf"\btorch {TORCH}/cu\d{{2,3}}\b", HINT),
    saying("torch.backend", "/cu", r"\btorch \d{1,2}\.\d{1,2}\.\d{1,2}/(cu\d{2,3})\b", HINT),
    saying("torch.version", "pytorch", rf"(?<!for: )(?<!build )(?<!compile )(?<![\w.-])PyTorch(?: version)?[ :=v]{{1,4}}{TORCH}(?= |,|$|\)|;)(?! with CUDA)", HINT),
    saying("torch.version", "pytorch ", rf"\bPyTorch {{1,24}}{TORCH} @", SURE),
    saying("torch.version", "pytorch version (gpu?)", rf"PyTorch version \(GPU\?\): {TORCH}", SURE),
    saying("torch.version", "torch:", rf"[-*] torch: {TORCH}", USUAL),
    saying("torch.version", "torch", rf"(?<![\w.-])(?<!install )torch\*{{0,2}} ?[:=]\*{{0,2}} {{0,2}}`?{TORCH}(?=[ `,;)]|$)", USUAL),
    saying("torch.version", "pytorch", rf"(?<!for: )(?<!build )(?<!compile )(?<![\w.-])PyTorch(?: version)?[ :=*`]{{1,6}}{TORCH}(?=[ `,;)]|$)(?! with CUDA)", HINT),
    saying("torch.version", "pytorch version (", r"\bPyTorch version \((?:e\.g\.|if)[^)]{0,24}\)[ :=*`]{1,6}(\d{1,2}\.\d{1,2}\.\d{1,2}(?:\+\w{3,6})?)(?=[ `,;)]|$)", HINT),
    saying("torch.version", "torch.version", rf"\btorch\.version[ =:]{{1,4}}{TORCH}(?=[ `,;)]|$)", HINT),
    saying("torch.version", "torch", rf"(?<![\w./=-])(?<!install )(?:Py)?[Tt]orch[ :-]{{1,3}}v?(\d{{1,2}}\.\d{{1,2}}\.\d{{1,2}}\+(?:{BACKEND[1:-1]}))\b(?!-)", HINT),
    saying("torch.version", "'pytorch'", rf"'PyTorch': '{TORCH}'", USUAL),
    saying("torch.version", "pytorch_version:", rf"\bpyTorch_version: {TORCH}", USUAL),
    saying("torch.version", "already satisfied: torch", rf"already satisfied: torch(?:[=<>!~]\S{{1,30}})? in .{{3,200}}? \({TORCH}\)", USUAL),
    saying("torch.version", "successfully installed", rf"Successfully installed .{{0,700}}?\btorch-{TORCH}(?= |$)", USUAL),
    saying("torch.version", "torch-", rf"torch-{TORCH}-cp\d+\S{{1,60}}\.whl,? {{0,2}}Success", HINT),
    saying("torch.version", "name: torch", rf"Name: torch Version: {TORCH}", SURE),
    saying("torch.version", "+ torch==", rf"(?<!\S)\+ torch=={TORCH}", USUAL),
    saying("torch.version", "for pytorch", rf"(?:running|built|using) (?:on|with|for)? ?(?:py)?torch {TORCH}\b", GUESS),
    saying("torch.cuda_available", "pytorch version (gpu?)", r"PyTorch version \(GPU\?\): \S+ \(True\)", SURE, value=True),
    saying("torch.cuda_available", "pytorch version (gpu?)", r"PyTorch version \(GPU\?\): \S+ \(False\)", SURE, value=False),
    saying("torch.cuda_available", "pytorch version: ", r"PyTorch version: \S{3,40} \(GPU\)", SURE, value=True),
    saying("torch.cuda_available", "available", r"(?:CUDA|GPU) available\??\W{1,24}True\b", SURE, value=True),
    saying("torch.cuda_available", "available", r"(?:CUDA|GPU) available\??\W{1,24}False\b", SURE, value=False),
    saying("torch.cuda_available", "cuda: - gpu:", r"(?:\* )?CUDA: - GPU: .{0,600}?- available: True\b", SURE, value=True),
    saying("torch.cuda_available", "cuda: - gpu:", r"(?:\* )?CUDA: - GPU: .{0,600}?- available: False\b", SURE, value=False),
    saying("torch.cuda_available", "cuda: gpu:", r"\bcuda: GPU: .{0,600}?\bavailable: True\b", SURE, value=True),
    saying("torch.cuda_available", "cuda: gpu:", r"\bcuda: GPU: .{0,600}?\bavailable: False\b", SURE, value=False),
    saying("torch.cuda", "available: true", r"\bCUDA: (?:- )?GPU: .{0,600}?\bavailable: True (?:- )?version: (\d{1,2}\.\d)\b", SURE),
    saying("torch.cuda_available", "num gpus = ", r"\. Num GPUs = [1-9]\d?\. ", SURE, value=True),
    saying("torch.cuda_available", "cuda:", r"cuda:\d NVIDIA [\w .-]{3,48} : (?:cudaMallocAsync|native)", USUAL, value=True),
    saying("torch.cuda_available", "torch detected gpu: ", r"Torch detected GPU: NVIDIA", USUAL, value=True),
    saying("torch.cuda_available", "torch cuda :", r"torch cuda : [\d.]{3,9} / is available", SURE, value=True),
    saying("torch.cuda_available", "torch cuda :", r"torch cuda : [\d.]{3,9} / Not available", SURE, value=False),
    saying("torch.cuda", "torch cuda :", r"torch cuda : (\d{1,2}\.\d)", SURE),
    saying("torch.cuda_available", "gpu available yes", r"GPU available Yes\b", SURE, value=True),
    saying("torch.cuda_available", "gpu available no", r"GPU available No: torch\.cuda", SURE, value=False),
    saying("torch.cuda_available", "is_available", rf"{NO_CONDITION}cuda\.is_available(?:\(\))?\)?\W{{0,12}}(?:(?:returns?|returned|gives?|prints?|is)[: ]{{1,2}})?True\b", SURE, value=True),
    saying("torch.cuda_available", "is_available", rf"{NO_CONDITION}cuda\.is_available(?:\(\))?\)?\W{{0,12}}(?:(?:returns?|returned|gives?|prints?|is)[: ]{{1,2}})?False\b", SURE, value=False),
    saying("torch.cuda_available", "cuda.is_available", IN_PROSE, HINT, value=False),
    saying("torch.cuda_available", "is cuda available (pytorch)", r"Is CUDA available \(PyTorch\): Yes", SURE, value=True),
    saying("torch.cuda_available", "is cuda available (pytorch)", r"Is CUDA available \(PyTorch\): No\b", SURE, value=False),
    saying("torch.cuda", "torch.version.cuda", r"torch\.version\.cuda\)?\W{1,4}(?:is|shows?|says?|prints?|returns?|gives?)\W{1,4}(?:CUDA )?(\d{1,2}\.\d{1,2})\b", USUAL),
    saying("torch.cuda", "torch.version.cuda", r"torch\.version\.cuda\)?\W{1,8}(\d{1,2}\.\d{1,2})\b", SURE),
    saying("torch.cuda", "torch cuda version", r"torch cuda version\W{1,40}(\d{1,2}\.\d{1,2})\b", SURE),
    saying("torch.cuda", "to compile", r"used to compile (?:PyTorch|Pytorch binaries)\W{1,4}(?:were compiled with Cuda )?\(?(\d{1,2}\.\d)", SURE),
    saying("torch.cuda", "torch was compiled with", r"torch was compiled with (\d{1,2}\.\d)\b", USUAL),
    saying("torch.cuda", "different cuda versions", r"PyTorch has CUDA [vV]ersion=?\s?(\d{1,2}\.\d)\b", USUAL),
    saying("torch.cuda", "pytorch has cuda", r"PyTorch has CUDA [vV]ersion=?\s?(\d{1,2}\.\d)\b", USUAL),
    saying("torch.cuda", "compiled with cuda_version", r"PyTorch was compiled with CUDA_VERSION (\d{4,5})\b", USUAL),
    saying("python.version", "(you have", rf"Python \d\.\d+\.\d+ \(you have {PYTHON}\)", SURE),
    saying("python.version", "python-", r"\bPython-(\d\.\d{1,2}\.\d{1,2})\b", SURE),
    saying("python.version", "python", r"(?<![\w>=.])Python[: ]{1,24}(\d\.\d{1,2}\.\d{1,2})(?![\w.]* \(you have)\b", USUAL),
    saying("python.version", "python version", rf"(?<!different )python[_ ]version\W{{1,24}}{PYTHON}\b(?! Requires-Python)", SURE),
    saying("python.version", '"python"', rf'"python" ?: ?"{PYTHON}"', USUAL),
    saying("torch.cuda", "_cudnn", r"py\d\.\d{1,2}_cuda(\d{1,2}\.\d)(?:\.\d+)?_cudnn", USUAL),
    saying("python.version", "python version (", rf"Python version \((?:e\.g\.|if)[^)]{{0,24}}\)[ :*`]{{1,6}}{PYTHON}\b", USUAL),
    saying("python.version", "your python:", rf"Your python: python[= ]{{1,3}}{PYTHON}\b", SURE),
    saying("python.version", "python", r"(?<![\w-])python ?v?(3\.\d{1,2}\.\d{1,2})\b(?!/)", HINT),
    saying("python.version", "python", r"(?<![\w-])python[ :=]{1,3}v?(3\.\d{1,2})(?!\w|\.\d|\+)(?! ?(?:or|and|-|to|,) )", GUESS),
    saying("python.version", "cpython", rf"\bCPython {PYTHON}\b", HINT),
    saying("python.bits", "32 bit (intel)", r"\[MSC v\.\d+ 32 bit \(Intel\)\]", SURE, value="32"),
    saying("python.bits", "64 bit", r"\[MSC v\.\d+ 64 bit \(A(?:MD|RM)64\)\]", SURE, value="64"),
    saying("python.bits", "32-bit", r"(?:32-bit Python|Python (?:version: )?[\d.]{1,7}[^.]{0,12}\(?32-bit\)?)", SURE, value="32"),
    saying("python.bits", "win32.whl", r"(?:Downloading|Using cached|Stored in|Processing) \S{0,200}-win32\.whl", HINT, value="32"),
    saying("python.bits", "-32", r"[/\\]Python3\d{1,2}-32[/\\]", HINT, value="32"),
    saying("python.bits", "-win32", r"(?<!match: )(?<![\w./-])cp3\d{1,2}-(?:cp3\d{1,2}m?|abi3|none)-win32(?![\w.-])", USUAL, value="32"),
    saying("python.bits", "_i686", r"(?<!match: )(?<![\w./-])cp3\d{1,2}-(?:cp3\d{1,2}m?|abi3|none)-\w{5,20}_i686(?![\w.-])", USUAL, value="32"),
    saying("python.bits", ".win32-", r"(?:temp|lib|bdist)\.win32-(?:cpython-)?\d", HINT, value="32"),
    saying("python.bits", ".linux-i", r"(?:temp|lib)\.linux-i[3-6]86-(?:cpython-)?\d", USUAL, value="32"),
    saying("python.bits", "guessing wheel url", r"Guessing wheel URL: ? ?\S{20,200}torch\d", SURE, value="64"),
    saying("python.bits", "(`win32`)", r"on Windows \(`win32`\)", SURE, value="32"),
    saying("python.bits", "cpython-", r"\bcpython-3[\w.]{1,10}-(?:windows-x86|linux-i686)-", USUAL, value="32"),
    saying("python.bits", "maxsize", r"sys\.maxsize\W{1,12}2147483647\b", SURE, value="32"),
    saying("python.bits", "calcsize", r"struct\.calcsize\(['\"]P['\"]\) ?\* ?8\)?\W{0,12}32\b", SURE, value="32"),
    saying("python.bits", "32bit", r"\('32bit', '(?:WindowsPE|ELF)?'\)", SURE, value="32"),
    saying("python.bits", "python platform", r"Python platform: Linux-\S{0,80}-i[3-6]86-", SURE, value="32"),
    saying("python.bits", "-win32", r"Python platform: Windows\S{0,40}-win32\b", USUAL, value="32"),
    saying("os.family", "on win32", r"\] on win32\b", SURE, value="windows"),
    saying("os.family", "on linux", r"\] on linux\d?\b", SURE, value="linux"),
    saying("os.family", "on darwin", r"\] on darwin\b", SURE, value="macos"),
    saying("os.family", "sys.platform", r"sys\.platform\W{1,24}linux", SURE, value="linux"),
    saying("os.family", "sys.platform", r"sys\.platform\W{1,24}win32", SURE, value="windows"),
    saying("os.family", "sys.platform", r"sys\.platform\W{1,24}darwin", SURE, value="macos"),
    saying("os.family", "operating system", r"\bOperating [Ss]ystem\W{1,6}Windows\b", USUAL, value="windows"),
    saying("os.family", "operating system", r"\bOperating [Ss]ystem\W{1,6}Linux\b", USUAL, value="linux"),
    saying("os.family", "operating system", r"\bOperating [Ss]ystem\W{1,6}mac ?OS\b", USUAL, value="macos"),
    saying("os.family", "platform: ", r"Platform: Linux-", USUAL, value="linux"),
    saying("os.family", "dll load failed", r"DLL load failed while importing", HINT, value="windows"),
    saying("os.family", "platform: ", r"Platform: Windows-", USUAL, value="windows"),
    saying("os.family", "platform: ", r"(?<!Client: )Platform: macOS-", USUAL, value="macos"),
    *(
        saying("os.machine", needle, r"\b(?:mac ?OS|OS ?X)[ :]{0,2}(?:[A-Z]\w{2,10} ){0,2}v?10\.(?:\d|1[0-5])\b", USUAL, value="x86_64")
        for needle in ("osx", "os x", "macos", "mac os")
    ),
    *(
        saying("os.machine", needle, r"\b(?:MacBook(?: Pro| Air)?|iMac|Mac (?:Pro|mini))\b[^.\n]{0,30}?\b20(?:0[6-9]|1\d)\b", USUAL, value="x86_64")
        for needle in ("macbook", "imac", "mac pro", "mac mini")
    ),
    saying("os.machine", "macosx-", r"(?:temp|lib|bdist)\.macosx-[\d.]{2,6}-(x86_64)\b", HINT),
    saying("os.machine", "platform: linux-aarch64", r"platform: linux-aarch64", USUAL, value="aarch64"),
    saying("os.machine", "platform: ", r"(?<!Client: )Platform: macOS-\S*-(arm64)-", USUAL, value="aarch64"),
    saying("os.name", "on macos", r"You're on (macOS)\b", USUAL),
    saying("os.family", "you're on", r"You're on macOS\b", SURE, value="macos"),
    saying("os.family", "you're on", r"You're on Windows\b", SURE, value="windows"),
    saying("os.family", "you're on", r"You're on Linux\b", SURE, value="linux"),
    saying("os.machine", "you're on", r"You're on [^`]{3,40}\(`\w{3,30}_(?:aarch64|arm64)`\)", SURE, value="aarch64"),
    saying("os.machine", "you're on", r"You're on [^`]{3,40}\(`\w{3,30}_(?:x86_64|amd64)`\)", SURE, value="x86_64"),
    saying("toolkit.nvcc", "release ", r"Cuda compilation tools, release (\d{1,2}\.\d{1,2})", SURE),
    saying("toolkit.nvcc", "detected cuda version", r"detected CUDA version \((\d{1,2}\.\d)", SURE),
    saying("toolkit.nvcc", "detected cuda version (%s)", r"use the same CUDA versions\.', '(\d{1,2}\.\d{1,2})', '", SURE),
    saying("torch.cuda", "detected cuda version (%s)", r"use the same CUDA versions\.', '\d{1,2}\.\d{1,2}', '(\d{1,2}\.\d{1,2})'", SURE),
    saying("wanted.backend", "was built for", r"was built for: ?PyTorch \d[\w.]*\+(cu\d{2,3}) with CUDA \w+ \(you have \d[\w.]*\+cpu\)", USUAL),
    saying("driver.cuda", "__cuda", r"\b__cuda(?:==|=|-)(\d{1,2}\.\d)[=-]0\b", USUAL),
    saying("toolkit.nvcc", "installed cuda version", r"Installed CUDA version (\d{1,2}\.\d)", USUAL),
    saying("toolkit.nvcc", "nvcc version", r"nvcc version\W{1,40}(\d{1,2}\.\d{1,2})", USUAL),
    saying("toolkit.home", "cuda_home", r"CUDA_HOME\W{1,24}(/[\w./ -]{3,80}?|[A-Z]:\\(?:Program Files(?: \(x86\))?\\NVIDIA GPU Computing Toolkit\\)?[\w.\\-]{2,80})(?=['\"]| [A-Z]|$)", HINT),
    saying("toolkit.nvcc", "nvcc", rf"\bnvcc(?: (?:--version|-V))?`?,? {SHOWS}(\d{{1,2}}\.\d{{1,2}})\b", HINT),
    saying("driver.cuda", "nvidia-smi", rf"\bnvidia-smi`?,? {SHOWS}(\d{{1,2}}\.\d)\b", HINT),
    *(
        saying("driver.version", f"{whose} driver version", rf"{whose} driver version(?: is|:) ?v?(\d{{3}}\.\d{{2,3}}(?:\.\d{{2}})?)\b", HINT)
        for whose in ("nvidia", "gpu", "my")
    ),
    saying("os.family", "mps", r"requires a GPU \(not 'mps'\)|Device mps not supported|MPS backend out of memory|for the MPS device|not built with MPS|\[MPS\w+ ", USUAL, value="macos"),
    *(
        saying("os.family", needle, r"\b[Ii]?Mac[Bb]ook\b|\biMac\b|\bMac (?:Mini|mini|Studio|Pro)\b|\b[Oo]n (?:a |my )?Mac\b(?! and Linux| or Linux|,| and Windows)|\bM[1-5] (?:Pro|Max|Ultra|Air|Mac|[Cc]hip|[Cc]pu)\b|\b(?:[Mm]ac|[Mm]ac ?OS) {1,2}(?:with |on )?(?:an? )?M[1-5]\b|\bM[1-5] [Mm]ac(?:[Bb]ook)?\b|\b[Aa]pple [Ss]ilicon [Mm]ac\b", GUESS, value="macos")
        for needle in ("mac", " chip", " m1 ", " m2 ", " m3 ", " m4 ", " m5 ")
    ),
    saying("torch.backend", "_cpu_", r"\bpy3\.\d{1,2}_cpu_\d\b", USUAL, value="cpu"),
    *(
        saying(subject, needle, rf"(?:(?<=::)|(?<![\w-])){needle}\d[\d.]{{2,12}}{needle[-1]}(?:\w[\w.]{{0,24}}_)?cpu_\w", USUAL, value=value)
        for needle in ("pytorch=", "pytorch-")
        for subject, value in (("torch.backend", "cpu"), ("torch.installer", "conda"))
    ),
    saying("os.libc", "(`manylinux_", r"You're on Linux \(`manylinux_(\d_\d{1,2})_", SURE),
    saying("os.machine", "platform.machine", r"platform\.machine\(\)[\W]{0,12}(ARM64|AMD64|x86_64|aarch64|i686|armv7l)\b", SURE),
    saying("driver.windows", "driver", r"\b(\d{2}\.\d{1,2}\.1\d\.\d{4})\b", HINT),
    saying("driver.found", "found version", r"found version (\d{4,6})\)", SURE),
    saying("driver.cuda", "driver's cuda version is", r"driver's CUDA version is (\d{1,2}\.\d)", USUAL),
    saying("driver.cuda", "unsupported cuda version: driver", r"unsupported CUDA version: driver (\d{1,2}\.\d)", USUAL),
    saying("driver.cuda", "cuda driver version", r"CUDA Driver(?: Version)?(?: / Runtime Version)?\W{1,12}(\d{1,2}\.\d)\b", HINT),
    saying("torch.import_error", "error loading", r"(?:OSError|ImportError): (\[WinError \d+\].{0,200}?Error loading \S.{0,160}?\.dll)", USUAL),
    saying("torch.import_error", "torch/lib", r"(?:OSError|ImportError): (\S{0,200}torch/lib/lib\w+\.so: undefined symbol: \w+)", USUAL),
)  # fmt: skip

LABELLED = lazy(
    r"^[('\"]{0,2}(\d{1,2}\.\d{1,2}\.\d{1,2}[\w.]{0,16}\+"
    rf"(?:{LABEL}))['\"]?"
    r"(?:[, ]{1,2}(?:'?\d{1,2}\.\d'?|None))?(?:[, ]{1,2}(True|False))?\)?$"
)
"""`print(torch.__version__)`, and with it `torch.version.cuda` and `torch.cuda.is_available()`."""


def programs(text: Text) -> Iterator[Fact]:
    for claim in claims(text, ROWS):
        yield from _understood(claim)
    yield from bare_versions(text)
    yield from in_comments(text)
    yield from program_gpus(text)


def _understood(claim: Claim) -> Iterator[Fact]:
    """Numbers as the model writes them."""
    value = str(claim.value)
    if claim.subject == "driver.found":
        cuda = cuda_of_number(value)
        yield Claim(subject="driver.cuda", value=cuda, source=claim.source, trust=SURE)
    elif claim.subject == "driver.windows":
        driver = driver_of_windows(value)
        yield Claim(subject="driver.version", value=driver, source=claim.source, trust=claim.trust)
        yield Claim(subject="os.family", value="windows", source=claim.source, trust=claim.trust)
    elif claim.subject == "python.bits":
        yield Claim(subject="python.bits", value=int(value), source=claim.source, trust=claim.trust)
    elif claim.subject == "os.libc":
        libc = f"glibc {value.replace('_', '.')}"
        yield Claim(subject="os.libc", value=libc, source=claim.source, trust=claim.trust)
    elif claim.subject == "os.machine":
        machine = MACHINES.get(value.lower(), value)
        yield Claim(subject="os.machine", value=machine, source=claim.source, trust=claim.trust)
    elif claim.subject == "torch.cuda" and value.isdigit():
        cuda = cuda_of_number(value)
        yield Claim(subject="torch.cuda", value=cuda, source=claim.source)
    else:
        yield claim


def driver_of_windows(number: str) -> str:
    """NVIDIA's version in the last five digits of Windows' own.

    >>> driver_of_windows("31.0.15.3699")
    '536.99'
    """
    digits = number.replace(".", "")[-5:]
    return f"{digits[:3]}.{digits[3:]}"


def cuda_of_number(number: str) -> str:
    """CUDA's version as one number, thousands and tens.

    >>> cuda_of_number("11040"), cuda_of_number("9020")
    ('11.4', '9.2')
    """
    return f"{int(number) // 1000}.{int(number) % 1000 // 10}"


def bare_versions(text: Text) -> Iterator[Fact]:
    """A line that is nothing but a torch version with its label: `print(torch.__version__)`."""
    if "+c" not in text.low and "+rocm" not in text.low and "+xpu" not in text.low:
        return
    for number, line in enumerate(text.lines):
        if len(line) < 48 and "+" in line and (found := LABELLED.match(line.strip())):
            source = f"report, line {number + 1}"
            yield Claim(subject="torch.version", value=found.group(1), source=source, trust=HINT)
            if said := found.group(2):
                known = said == "True"
                yield Claim(subject="torch.cuda_available", value=known, source=source, trust=USUAL)
            return


ANSWER = lazy(r"#\s*(?:[-=]*>|:)?\s*(True|False)\b")
"""What a line of code gave, as people write it behind the line or below it."""


def in_comments(text: Text) -> Iterator[Fact]:
    """What `torch.cuda.is_available()` gave here and there, by the comments in somebody's text."""
    asked = ""
    for number, line in enumerate(text.lines if "cuda.is_available" in text.low else ()):
        asked = line if "is_available" in line else asked
        if "cuda.is_available" in asked and (found := ANSWER.search(line)):
            source, known = f"report, line {number + 1}", found.group(1) == "True"
            yield Claim(subject="torch.cuda_available", value=known, source=source, trust=USUAL)
            if not known:
                said = {"asked": "yes"}
                yield Event(kind="cuda-unavailable", values=said, source=source, text=line.strip())
