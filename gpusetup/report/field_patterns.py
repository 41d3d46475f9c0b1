"""Patterns for single fields of a machine, a version, a system, an answer: one row, one wording.

Facts: torch's and vLLM's `collect_env`, `transformers env`, `accelerate env`, the start lines of
ultralytics, ComfyUI, A1111 and Unsloth, the kernel's and pip's lines, Python's banner, uv's
remarks; and what people write themselves, a number behind its word.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from gpusetup.accelerators.makers import LABEL
from gpusetup.messages.fragments import DRIVER_VERSION, RELEASE, TORCH_VERSION
from gpusetup.messages.search import Text
from gpusetup.model.patterns import in_any_case
from gpusetup.model.units import architecture_named
from gpusetup.report.facts import GUESS, HINT, SURE, USUAL, Claim, Facts
from gpusetup.report.mentions import is_another_torch, is_only_mentioned


class FieldPattern(NamedTuple):
    """A pattern whose first group is the value of a field; it is tried near certain letters."""

    subject: str
    needle: str | tuple[str, ...]
    """These letters, lower case; of several, each form of the pattern has one."""
    pattern: str
    trust: int = USUAL
    value: str | bool | int | None = None
    """The value of a pattern without a group."""

    @property
    def needles(self) -> tuple[str, ...]:
        return (self.needle,) if isinstance(self.needle, str) else self.needle


TORCH = rf"({TORCH_VERSION})(?![\w+]|\.\w)"
LOCAL = rf"({RELEASE}\+(?:{LABEL}))\b(?!-)"
"""A version that only torch's builds have."""
OTHERS = r"['\"]?,? (?:'?\d{1,2}\.\d'?,? )?"
"""Between `torch.__version__` and `torch.cuda.is_available()`, printed together."""
LABELS = ("+cpu", "+cu", "+rocm", "+xpu")
WINDOWS_WORDS = ("win 1", "win1", "win 7", "win7", "win 8", "윈도우", "윈1", "ウィンドウズ", "винд")
"""How people write Windows, beside its own name."""
PYTHON = r"([23]\.\d{1,2}(?:\.\d{1,2})?)"
DRIVER = rf"({DRIVER_VERSION})"
IS = r"(?:is|prints?|gives?|shows?|returns?|says)"
VERSION = r"(?:version|ver\b\.?|版本号?|バージョン|버전|версия)"
NO_CONDITION = "".join(
    rf"(?<!{word}torch\.)"
    for word in (r"assert ", r"assert \(", r"assert\(", "if ", "if not ", "while ")
)
"""A comparison in a line of code is no answer."""
# A look at one letter first, here and below, halves the time of an alternation that knows no case.
ASKED_FOR = r"(?=[rnamsopbu])\b(?:requir|need|at least|minim|recommend|(?:un)?support|older than|newer than|prior to|before)\w{0,6}[^.]{0,24}?\bdrivers?\b"
"""A driver that somebody names, and has not: consumed, so that its number is not read."""
FAILS = r"\b(?:returns? False|(?:is |are )?not available|unavailable|not (?:found|detected|working)|doesn't work)\b"
"""What a title says of CUDA before it names the torch that does not see it."""
MAC = (
    r"\b[Ii]?Mac[Bb]ook\b|\biMac\b|\bMac (?:Mini|mini|Studio|Pro)\b|\b[Oo]n (?:a |my )?Mac\b(?! and Linux| or Linux|,| and Windows)"
    r"|\bM[1-5] (?:Pro|Max|Ultra|Air|Mac|[Cc]hip|[Cc]pu)\b|\b(?:[Mm]ac|[Mm]ac ?OS) {1,2}(?:with |on )?(?:an? )?M[1-5]\b|\bM[1-5] [Mm]ac(?:[Bb]ook)?\b|\b[Aa]pple [Ss]ilicon [Mm]ac\b"
)
CUDA_IN_A_REPORT = ("cuda available", "gpu available", "available: ")
AVAILABLE = (
    (CUDA_IN_A_REPORT, r"(?=[cg])(?:CUDA|GPU) available(?: \(PyTorch\))?\??\W{1,24}|\bCUDA: (?:- )?GPU: .{0,600}?\bavailable: "),
    (("cuda.is_available",), rf"{NO_CONDITION}cuda\.is_available(?:\(\))?\)?\W{{0,12}}(?:(?:returns?|returned|gives?|prints?|is)[: ]{{1,2}})?"),
)  # fmt: skip
"""What a report's line says of CUDA goes before what a person's session printed."""
PORTABLE = r"(?<!not )(?<!non-)\b(?:ComfyUI[ _-]{1,3}(?:windows[ _-])?portable\b|portable (?:version |install(?:ation)? |build |package |release )?(?:of )?ComfyUI\b)(?! (?:works|runs|is fine))"
"""ComfyUI's package for Windows: its commands are typed in its own folder."""
DRIVER_WORDS = (
    "驱动",
    "驅動",
    "драйвер",
    "ドライバ",
    "드라이버",
    "treiber",
    "pilote",
    "controlador",
)
"""What a driver is called in the languages that people post in."""
WITH_CUDA = (" with cuda", " for cuda", " and cuda", "(cuda", ", cuda", "torch cuda")
TORCH_IS = tuple(f"torch {verb}" for verb in ("is ", "at ", "version is", "shows", "says", "zeigt", "ist ", "est ", "es ", "是", "为"))  # fmt: skip
"""What stands between torch and its version, or its CUDA, in a sentence."""
NAMED_SYSTEMS = (
    "ubuntu",
    "debian",
    "fedora",
    "centos",
    "rocky linux",
    "almalinux",
    "rhel",
    "mint",
    "pop!_os",
    "opensuse",
    "arch linux",
    "manjaro",
    "nixos",
    "windows ",
    "macos ",
)
PATTERNS = (
    FieldPattern("torch.version", ("you have ", "have torch ", "installed torch==", "torch version", "torch.version", "-torch-", " torch-"), rf"(?=[pyn])(?:PyTorch \S{{3,40}}(?: with CUDA \w+)? \(you have |you(?:'ll)? have torch |your installed torch==|name: torch version: |\bPython-\d\.\d+\.\d+\S* torch-|\bpytorch[ .]version(?: \((?:GPU|accelerator)\?\))?: ?(?:py|torch|[ :=v])*)(?:torch )?{TORCH}", SURE),
    FieldPattern("torch.version", "torch", rf"(?=[t\"'*as+-])(?:\btorch(?:\.__version__(?:, ?torch\.[\w.]{{3,24}}(?:\(\))?){{0,3}}| ?{VERSION})\)?(?! ?(?:[<>~!]=?|==))\W{{1,60}}(?:{IS}\W{{1,4}})?|\"torch\" ?: ?\"|'PyTorch': '|[-*] torch: |already satisfied: torch(?:[=<>!~]\S{{1,30}})? in .{{3,200}}? \(|Successfully installed .{{0,700}}?\btorch-|(?<!\S)\+ torch==|(?<![\w.-])(?<!install )torch ?[:=] {{0,2}}`?){TORCH}(?! with CUDA)", USUAL),
    FieldPattern("torch.version", "torch", rf"(?=[pt])(?:(?<!for: )(?<!build )(?<!compile )(?<!install )(?<!requires )(?<!needs )(?<!installation: )(?<![\w.-])(?:PyTorch(?: version)?(?: \(if[^)]{{0,24}}\))?[ :=v*`]{{1,6}}|torch v?)(?=[\w.+]+(?:[ ,;)`]|$))(?!\S+ with CUDA)|\btorch (?=\S+/cu\d)|torch-(?=\S{{3,40}}-cp\d+\S{{1,60}}\.whl,? {{0,2}}Success)){TORCH}", HINT),
    FieldPattern("torch.version", LABELS, rf"(?=[ptrianud])(?:(?<![\w./=-])(?<!install )(?<!for: )(?<!installation: )(?:Py)?torch(?:\.version ?=)?[ :|-]{{1,3}}v?|\btorch\.cuda\.\w+\(\)\W{{1,6}}(?:(?:{IS}|False|True|0|and|on|with|version)\W{{1,6}}){{0,3}}|{FAILS}[^$>#\n]{{0,60}}?\btorch==){LOCAL}", HINT),
    FieldPattern("torch.version", LABELS, rf"(?=[sprgdf\d])(?:\b(?:says?|said|shows?|showed|prints?|printed|reads?|reports?|g(?:ives?|ave|ot)|displays?)(?: me)?:? [`'\"(]?|\bframework(?: ?(?:&|and|/))?(?: version)?:? ?v?|(?<![\w.+/=-])(?={RELEASE}\S{{4,6}}\W{{1,6}}torch\.cuda\.)){LOCAL}", HINT),
    FieldPattern("torch.version", "torch-", rf"\b(?:Using cached|Downloading|Downloaded) (?:\S{{1,200}}/)?torch-({RELEASE}(?:\+(?:{LABEL}))?)(?=-cp3)", GUESS),
    FieldPattern("torch.installed", "torch version:", r"\bpytorch version: (?:N/A|none)\b", USUAL, value=False),
    FieldPattern("torch.installed", ("pytorch version: ", "__init__.py", "undefined symbol"), r"(?=[pt-])(?:\bpytorch version: \D{0,8}\d\.\d|-packages[/\\]{1,2}torch[/\\]{1,2}__init__\.py\b|\btorch/lib/lib\w{2,30}\.so: undefined symbol)", SURE, value=True),
    *(
        FieldPattern("torch.cuda_available", needle, rf"(?:{question})({answer})", SURE)
        for needle, question in AVAILABLE
        for answer in ("True|Yes", r"False|No\b")
    ),
    FieldPattern("torch.version", "version.cuda", rf"torch\.__version__, ?torch\.version\.cuda(?:, ?[\w.]{{3,40}}(?:\(\))?){{0,3}}\)[\"']?\W{{1,6}}({RELEASE}) (?:None|\d)", SURE),
    FieldPattern("torch.backend", "version.cuda", rf"torch\.__version__, ?torch\.version\.cuda(?:, ?[\w.]{{3,40}}(?:\(\))?){{0,3}}\)[\"']?\W{{1,6}}{RELEASE} None\b(?! [56789]\.)", HINT, value="cpu"),
    FieldPattern("torch.cuda_available", "torch version", r"PyTorch version(?: \((?:GPU|accelerator)\?\))?: \S{3,40} \((True|False|GPU|CUDA|NA)\)", SURE),
    FieldPattern("torch.cuda", ("used to build", "version.cuda", "cuda version", "available: true", "_cuda"), rf"(?=[ctp])(?:\bCUDA used to build PyTorch: |torch\.version\.cuda\)?\W{{1,8}}(?!{RELEASE})(?:{IS}\W{{1,4}})?(?:CUDA )?|torch cuda version\W{{1,40}}|\bCUDA: (?:- )?GPU: .{{0,600}}?\bavailable: True (?:- )?version: |py\d\.\d{{1,2}}_cuda(?=\S{{3,9}}_cudnn))(\d{{1,2}}\.\d{{1,2}})", SURE),
    FieldPattern("torch.backend", "cuda used to", r"\bCUDA used to build PyTorch: (?:none|could not collect)", HINT, value="cpu"),
    FieldPattern("torch.hip", "rocm used to", r"\bROCM used to build PyTorch: (\d+\.\d+)", SURE),
    FieldPattern("torch.import_error", "error", r"(?:OSError|ImportError): (\[WinError \d+\].{0,200}?Error loading \S.{0,160}?\.dll|\S{0,200}torch/lib/lib\w+\.so: undefined symbol: \w+)", USUAL),
    FieldPattern("python.version", ("python", "파이썬"), rf"(?=[p파])(?:\bPython \d\.\d+\.\d+ \(you have |\bPython-(?=\d\.\d+\.\d)|(?<!different )(?:python|파이썬)[_ ]?{VERSION}(?: \((?:e\.g\.|if)[^)]{{0,24}}\))?\W{{1,24}}(?:python)?\W?){PYTHON}\b(?! Requires-Python)", SURE),
    FieldPattern("python.version", "python", r"(?<![\w>=.-])Python[: ]{1,24}([23]\.\d{1,2}\.\d{1,2})(?![\w.]* \(you have)\b", USUAL),
    FieldPattern("python.version", "python", r"(?<![\w-])C?python[ :=|]{0,3}v?(3\.\d{1,2}(?:\.\d{1,2})?)(?!\w|\.\d|\+|/)(?! ?(?:or|and|-|to) |[-–]\d|, ?3\.\d)", HINT),
    FieldPattern("python.version", "py3", r"(?<![\w.-])py(3\d{1,2})(?![\w.])", GUESS),
    FieldPattern("python.version", "pytorch", r"\bpytorch[ =-]{1,3}\d\.[\d.]{1,6}[ =-]{1,3}\w{0,8}?py(3\.?\d{1,2})(?=_|h)", GUESS),  # conda's build
    FieldPattern("wanted.torch", WITH_CUDA, rf"\b(?:install|use|take|want|wants|requires?|recommends?)\W{{1,3}}(?:py)?torch v?({RELEASE}) (?:built |compiled )?(?:for|with) CUDA \d", HINT),
    FieldPattern("wanted.cuda", WITH_CUDA, rf"\b(?:install|use|take|want|wants|requires?|recommends?)\W{{1,3}}(?:py)?torch v?{RELEASE} (?:built |compiled )?(?:for|with) CUDA (\d{{1,2}}\.\d)", HINT),
    FieldPattern("wanted.cuda", "install", r"\b(?:install|create) .{0,300}?(?:pytorch-cuda|cudatoolkit|cuda-version) ?={1,2}(\d{1,2}\.\d)", HINT),
    FieldPattern("wanted.torch", "pytorch-", r"\bpytorch-(\d{1,2}\.\d{1,2}\.\d{1,2})-\w{0,24}py3", GUESS),
    FieldPattern("torch.installer", (" install", " create"), r"(pip3?|python\S* -m pip|conda|mamba|micromamba) (?:install|create)\b.{0,80}?[ :'\"](?:py)?torch(?:[-=<>~ '\"]|$)", HINT),
    FieldPattern("python.manager", "uv", r"\buv (?:sync|lock|add|run (?!-[wis]|--(?:with|no-project|isolated|script)))\b|\buv\.lock\b|\[\[?tool\.uv\b", SURE, value="uv project"),
    FieldPattern("python.manager", ("using python", "using cpython", "no solution found", "uv "), r"Using C?Python \d\.\d{1,2}\S* (?:environment|interpreter)|Using CPython \d|No solution found when resolving (?:dependencies|tool|script)|(?:^|[$>#%❯`*-] ?)uv (?:pip (?:install|sync|compile)|sync|add|lock)\b", USUAL, value="uv"),
    FieldPattern("python.bits", "32", r"[/\\]Python3\d{1,2}-32[/\\]|(?<!match: )(?<![\w./-])cp3\d{1,2}-(?:cp3\d{1,2}m?|abi3|none)-win32(?![\w.-])|(?:temp|lib|bdist)\.win32-(?:cpython-)?\d|\('32bit', '(?:WindowsPE|ELF)?'\)|on Windows \(`win32`\)|struct\.calcsize\(['\"]P['\"]\) ?\* ?8\)?\W{0,12}32\b", USUAL, value=32),
    FieldPattern("python.bits", ("i386", "i486", "i586", "i686", "windows-x86"), r"(?:temp|lib)\.linux-i[3-6]86-(?:cpython-)?\d|\bPython platform: Linux-\S{0,80}-i[3-6]86-|\bcpython-3[\w.]{1,10}-(?:windows-x86|linux-i686)-|(?<!match: )(?<![\w./-])cp3\d{1,2}-(?:cp3\d{1,2}m?|abi3|none)-\w{5,20}_i686(?![\w.-])", USUAL, value=32),
    FieldPattern("python.bits", "[msc v.", r"\[MSC v\.\d+ (32|64) bit \((?:Intel|A(?:MD|RM)64)\)\]", SURE),
    FieldPattern("python.bits", "guessing wheel url", r"Guessing wheel URL: ? ?\S{20,200}torch\d", SURE, value=64),
    FieldPattern("python.bits", "-bit runtime", r"\((32|64)-bit runtime\)"),
    FieldPattern("os.family", ("] on ", "sys.platform", "you're on"), r"(?:\] on |sys\.platform\W{1,24}|You're on )(win32|windows|linux|darwin|macos)", SURE),
    FieldPattern("os.family", "operating system", r"\bOperating system\W{1,6}(Windows|Linux|mac ?OS)\b", USUAL),
    FieldPattern("python.executable", "portable", PORTABLE, GUESS, value=r".\python_embeded\python.exe"),
    FieldPattern("python.executable", (" -c", " -m pip", " -m torch"), r"((?:[A-Z]:\\(?:[\w .()~@-]{1,60}\\){1,10}|(?<![\w.~$/])(?:\.{1,2})?/(?!usr/bin/|bin/)(?:[\w.@+~-]{1,60}/){1,10})python(?:3(?:\.\d{1,2})?)?(?:\.exe)?)[\"']? (?:-c\b|-m (?:pip|torch)\b)", HINT),
    FieldPattern("os.family", "portable", PORTABLE, GUESS, value="windows"),
    FieldPattern("os.family", WINDOWS_WORDS, r"\bWin ?(?:1[01]|7|8\.1)\b|윈도우(?:즈)? ?(?:1[01]|에서|환경)|윈(?:1[01])|ウィンドウズ|\b(?:винд[аеуыо]\w{0,2}|виндовс\w{0,2})\b", USUAL, value="windows"),
    FieldPattern("os.family", "dll load failed", r"DLL load failed while importing", HINT, value="windows"),
    FieldPattern("os.family", "linux", r"\b(?:on|in|under|using|my) (?:(?!wsl|docker)\w+ )?linux\b(?! subsystem| kernel)", GUESS, value="linux"),
    FieldPattern("os.family", "mps", r"requires a GPU \(not 'mps'\)|Device mps not supported|MPS backend out of memory|for the MPS device|not built with MPS|\[MPS\w+ ", USUAL, value="macos"),
    FieldPattern("os.family", ("mac", " chip", "m1 ", "m2 ", "m3 ", "m4 ", "m5 "), MAC, GUESS, value="macos"),
    FieldPattern("os.machine", "10.", r"\b(?:mac ?OS|OS ?X)[ :]{0,2}(?:[A-Z]\w{2,10} ){0,2}v?10\.(?:\d|1[0-5])\b", USUAL, value="x86_64"),
    FieldPattern("os.machine", "mac", r"\b(?:MacBook(?: Pro| Air)?|iMac|Mac (?:Pro|mini))\b[^.\n]{0,30}?\b20(?:0[6-9]|1\d)\b", USUAL, value="x86_64"),
    FieldPattern("os.machine", "you're on", r"You're on [^`]{3,40}\(`\w{3,30}_(aarch64|arm64|x86_64|amd64)`\)", SURE),
    FieldPattern("os.machine", ("machine()", "windowspe", "processor_architecture"), r"(?:machine\(\)\)?['\")]{0,3}\W{1,12}(?:\('64bit', ?'\w{0,9}'\)\W{1,4})?|'WindowsPE'\)\W{1,4}|PROCESSOR_ARCHITECTURE%?\W{1,6})(AMD64|ARM64|x86_64|aarch64)\b", SURE),
    FieldPattern("os.machine", ("snapdragon", "windows", "win_arm64"), r"\bSnapdragon\b|\bWindows (?:11 )?(?:on |for )?\(?ARM(?:64)?\b|\bwin_arm64\b", HINT, value="aarch64"),
    FieldPattern("os.machine", "os: ", r"\bOS: [^:]{3,60}?\([^)]{0,24}?(x86_64|arm64|aarch64|AMD64|ppc64le|i686)\)", USUAL),
    FieldPattern("os.name", "os: ", r"(?<![\w.*-])OS: (?!N/A|none|could not)((?:Microsoft )?[A-Z][\w.!' -]{2,60}?)(?= ?\(| - |$| [A-Z]{3,6} version)", SURE),
    FieldPattern("os.name", ("pretty_name", "distrib_description"), r'(?:PRETTY_NAME|DISTRIB_DESCRIPTION)="?([^"=]{3,60})"?', SURE),
    FieldPattern("os.name", NAMED_SYSTEMS, r"(?=[udfcrlpoamnw])(?<![\w/-])(?!\w{4,7} \d{1,2}(?:\.\d{1,2}){1,2}-\d)((?:Ubuntu|Debian|Fedora|CentOS|Rocky Linux|AlmaLinux|RHEL|Linux Mint|Pop!_OS|openSUSE|Arch Linux|Manjaro|NixOS|Windows (?:10|11|7|8\.1|Server \d{4})|macOS (?:Ventura|Sonoma|Sequoia|Monterey|Big Sur|\d\d))(?: ?-?\d{1,2}(?:\.\d{1,2})?)?)(?![\w-])", HINT),
    FieldPattern("os.kernel", ("linux", "build on kernel"), r"(?:\bLinux \S{1,64}|module build on kernel:) (\d\.\d{1,3}[\w.+-]{1,60})(?= #?\d| \(|$)"),
    FieldPattern("os.kernel", ("/lib/modules/", "uname -r"), r"(?:in directory /lib/modules/|\buname -r )(\d\.\d{1,3}\.\d[\w.+-]{1,60})", USUAL),
    FieldPattern("platform", "platform: ", r"(?<!Client: )\bPlatform: ((?:Linux|Windows|macOS|Darwin)-\S{1,120})", SURE),
    FieldPattern("platform", ("macos-1", "macos-2", "-with-glibc", "windows-1"), r"(?<![\w./-])(?<!Platform: )((?:macOS-\d[\w.]{0,8}-(?:x86_64|arm64)[\w-]{0,30}|Linux-\d\S{1,80}-with-glibc[\d.]+|Windows-1[01]-[\w.-]{3,30}))(?![\w/])", USUAL),
    FieldPattern("os.libc", ("glibc", "ldd ("), r"(?<!needs )(?<!requires )(?<!least )(?<!than )(?:\bglibc[ -](?:version )?|\bldd \([^)]{3,40}\) )(2\.\d{1,2})\b(?! or|\+| and)", HINT),
    FieldPattern("os.libc", "libc version", r"\bLibc version: ((?:glibc|musl)-\d[\d.]*)", SURE),
    FieldPattern("os.secure_boot", "secureboot", r"SecureBoot (enabled|disabled)"),
    FieldPattern("os.jetson", "release), revision", r"# (R\d{2} \(release\), REVISION: [\d.]+)", SURE),
    FieldPattern("os.jetson", ("l4t", "jetson linux"), r"\b(?:L4T[ :v]{1,3}|l4t-[\w-]{2,24}:r|nvidia-l4t-core[\s|:]{1,40}|Jetson Linux \(?r?)(R?\d{2}(?:\.\d){0,2})(?![\w])", USUAL),
    FieldPattern("os.jetson", ("jetpack", "jp"), r"\b(JetPack[ -]?\d(?:\.\d){0,2}|JP[ -]?[4-9]\.\d(?:\.\d)?)", HINT),
    FieldPattern("os.jetson", "jetson", r"\b(Jetson[ -](?:AGX[ -])?(?:Orin|Xavier|Nano|TX\d|Thor|T[45]000)(?:[ -]Nano|[ -]NX)?|Jetson AGX|Jetson(?= (?:board|device|dev|module)|[,.:;]|$))", GUESS),
    FieldPattern("os.jetson", ("orin", "xavier", "thor", "nvgpu"), r"\b(AGX (?:Orin|Xavier|Thor)|(?:Orin|Xavier) (?:Nano|NX|AGX)|NVIDIA Thor|nvgpu)\b", GUESS),
    FieldPattern("os.wsl", "wsl", r"\b(?:in|on|under|inside|within|using|with|via|from) (?:my |the )?(?:Ubuntu \S{1,8} )?(?:in |on |under )?WSL ?2?\b|\bWSL ?2 ?(?:\(|,|Ubuntu|Debian)|^ ?wsl:|\bUbuntu[^.\n]{0,12} WSL\b", USUAL, value=True),
    FieldPattern("os.wsl", "wsl2", r"microsoft-standard-WSL2|\b(?:WSL|wsl)2\b", value=True),
    FieldPattern("os.wsl", "wsl", r"\b(?:Ubuntu|Debian)(?:[ -]\d\d\.\d\d)?(?: LTS)? (?:app )?\(?WSL(?: ?[12])?\b|(?<!not )\b(?:on|in|under|using|inside|my|via|through|with) WSL(?: ?[12])?\b|\b(?:OS|system|platform|environment)\*{0,2}(?: version)?[:=|* ]{1,4}(?:Windows[\w ]{0,6}[/+,( ]{1,3})?WSL\b", HINT, value=True),
    FieldPattern("toolkit.nvcc", "release ", r"Cuda compilation tools, release (\d{1,2}\.\d{1,2})", SURE),
    FieldPattern("toolkit.nvcc", "cuda version", r"(?:detected CUDA version \(|Installed CUDA version |use the same CUDA versions\.', ')(\d{1,2}\.\d{1,2})", SURE),
    FieldPattern("toolkit.nvcc", "cuda runtime", r"CUDA runtime version: (\d{1,2}\.\d{1,2})", USUAL),
    FieldPattern("driver.version", "nvidia unix", rf"(?:NVRM version:?|NVRM: loading|nvidia-modeset: Loading) NVIDIA UNIX.{{0,60}}?\s{DRIVER}\s", SURE),
    FieldPattern("driver.version", "driver", rf"(?=[ntwd])(?:not supported by.{{0,40}}?NVIDIA (?=\S+ driver release)|The (?=\S+ NVIDIA driver will ignore)|with kernel driver version |drivers? (?:is|are) up to date \(){DRIVER}", USUAL),
    FieldPattern("driver.version", "kernel reported version", rf"kernel reported version is: {DRIVER}", USUAL),
    FieldPattern("driver.library_version", ("libcuda reported version", "nvml library version"), rf"(?:libcuda reported version is|NVML library version): {DRIVER}", USUAL),
    FieldPattern("driver.open_module", "open kernel module", r"NVIDIA UNIX Open Kernel Module", value=True),
    FieldPattern("driver.version", "driver", rf"{ASKED_FOR}|(?=[duirmw])(?:\bdrivers?\*{{0,2}}(?:[ _]version)?(?: (?:is|are))?[^\w<>≥]{{1,4}}(?:version )?|\b(?:updated|upgraded|installed|downgraded|rolled back|reverted|moved|went)\b[^.\n]{{0,24}}?\bdrivers?\b[^.\d\n]{{0,16}}?\b(?:to|version) (?:version )?)v?{DRIVER}(?!\d|[\d.]*[-_]|\.\d)(?! ?(?:\+|or (?:newer|later|higher|above)))", HINT),
    FieldPattern("driver.version", "driver", rf"{ASKED_FOR}|(?:(?=[ngmwto])\b(?:nvidia|gpu|graphics|geforce|my|with|the|on) drivers?(?: version)?(?: is| are|:| =)? v?|^\W{{0,6}}(?:nvidia )?driver(?: version)?\W{{1,5}})((?!450|525|528|580)[3-6]\d\d)(?![\w+-]|\.\d| ?\+| or | and (?:newer|later|above))", GUESS),
    FieldPattern("driver.version", "nvidia", rf"(?=[nsu])(?:\bnvidia(?:-\w+)*,? \(?(?:\d:)?\d{{3}}[\w.:~-]* ?(?:->|→) ?(?:\d:)?|\b(?:Setting up|Unpacking) nvidia-(?:driver|dkms|utils|kernel)\S* \()({DRIVER_VERSION}|[3-9]\d\d\b)(?!\.\d)", HINT),
    FieldPattern("driver.version", "was detected", rf"but\s+version {DRIVER} was detected", HINT),
    FieldPattern("driver.cuda", "found version", r"found version (\d{4,6})\)", SURE),
    FieldPattern("driver.cuda", "cuda version: driver", r"unsupported CUDA version: driver (\d{1,2}\.\d)", USUAL),
    FieldPattern("torch.version", LABELS, rf"(?<![\w.-]){LOCAL}{OTHERS}(?:True|False)\b", HINT),
    FieldPattern("torch.cuda_available", LABELS, rf"(?<![\w.-]){RELEASE}\+(?:{LABEL}){OTHERS}(True|False)\b"),
    FieldPattern("driver.cuda", "__cuda", r"\b__cuda(?:==|=|-)(\d{1,2}\.\d)[=-]0\b", USUAL),
    # What people write in sentences, a value behind its word; the words of programs go before it.
    FieldPattern("torch.version", LABELS, rf"(?<![\w./=-])(?<!install )(?<!for )(?<!index )(?<!installation: )(?:py)?torch(?! ?(?:[<>~!]=?|==))(?:[ ,:(]+(?!(?:need|want|requir|install|instead|to|from|for|whl|index)\w{{0,3}}\b)[^\s\d]{{1,14}}){{0,4}}[ ,:(]{{1,3}}v?({RELEASE}(?:\.dev\d{{8}}|[abrc.]{{1,3}}\d{{1,3}})?\+(?:{LABEL}))\b", GUESS),
    FieldPattern("torch.version", "+cpu", rf"(?<![\w./=-])(?<!vision )(?<!audio )(?<!install )({RELEASE}\+cpu)(?![\w-])", GUESS),
    FieldPattern("torch.version", "torch", rf"(?<![\w./=-])(?:py)?torch({RELEASE}(?:\+(?:{LABEL}))?)(?![\w+]|\.\w)", GUESS),
    FieldPattern("torch.version", WITH_CUDA, rf"\b(?:it is|it's|this is|I have|I use|we have|we use|have|using|installed|runs?|with|uses) (?:py)?torch v?({RELEASE})(?=,? (?:with|and|built for|for|\() ?CUDA \d)", HINT),
    FieldPattern("torch.cuda", WITH_CUDA, rf"\b(?:it is|it's|this is|I have|I use|we have|we use|have|using|installed|runs?|with|uses) (?:py)?torch v?{RELEASE},? (?:with|and|built for|for|\()? ?CUDA (\d{{1,2}}\.\d)", HINT),
    FieldPattern("torch.version", TORCH_IS, rf"\b(?:py)?torch (?:is|is at|at|version is|shows|says|zeigt|ist|est|es|是|为)\W{{1,3}}v?({RELEASE}(?:\+(?:{LABEL}))?)\b", HINT),
    FieldPattern("torch.kernels", "get_arch_list", r"get_arch_list\(\)[^\[\n]{0,40}\[((?:\W{1,4}(?:sm|compute|gfx)_?\d\w{1,4}){1,24})", SURE),
    FieldPattern("torch.kernels", "get_arch_list", r"(?<!no )(?<!not )(?<!without )\b((?:sm_\d{2,3}|gfx\d{3,4}\w?)) (?:is |was )?(?:listed |also )?(?:in|among|part of|one of|there in)\b(?! not)[^\n]{0,60}?get_arch_list", HINT),
    FieldPattern("torch.kernels", "get_arch_list", r"get_arch_list\(\)(?! (?:does|has no|lacks))[^.\n\[]{0,24}? (?:has|contains|includes|lists|shows|with) (sm_\d{2,3}|gfx\d{3,4}\w?)\b", HINT),
    FieldPattern("driver.version", DRIVER_WORDS, rf"(?:驱动(?:程序)?(?:版本)?|驅動(?:程式)?|драйвер\w{{0,2}}|ドライバー?|드라이버|\bTreiber\w{{0,8}}|\bpilotes?|\bcontrolador\w{{0,2}}|\bdriver(?:s|é)?)(?:[^\w\d]|是|为|版本|version|Version|версии|のバージョン|버전|:){{0,12}}{DRIVER}(?!\d|[\d.]*[-_]|\.\d)", HINT),
    FieldPattern("driver.version", DRIVER_WORDS, r"(?:驱动(?:程序)?(?:版本)?|драйвер\w{0,2}|ドライバー?|드라이버|\bTreiber)(?:[^\w\d]|是|为|版本|:){0,4}((?!450|525|528|580)[3-6]\d\d)(?![\w+.-])", GUESS),
)  # fmt: skip

SYSTEMS = (
    ("windows", r"\bWin(?:dows|32)\b"),
    ("macos", r"\bmac ?OS\b|Darwin|OS ?X"),
    ("linux", r"linux|ubuntu|debian|fedora|centos|red hat|rhel|rocky|alma|arch\b|manjaro|suse|mint"
              r"|pop!?_os|gentoo|kali|amazon|oracle|nixos|endeavour|zorin|elementary|wsl"),
)  # fmt: skip
L4T_BY_KERNEL = (("4.9.", "R32"), ("5.10.", "R35"), ("5.15.", "R36"), ("6.8.", "R38"))
"""The kernel of a Jetson -> the major of its L4T release (NVIDIA's Jetson Linux archive)."""


def family_of(value: str) -> str:
    """The system that a name speaks of.

    >>> family_of("Ubuntu 22.04.3 LTS (x86_64)"), family_of("Mac OSX 10.12.6"), family_of("?")
    ('linux', 'macos', '')
    """
    return next((name for name, words in SYSTEMS if re.search(words, value, re.I)), "")


def cuda_of(number: str) -> str:
    """CUDA's version, which some say as one number of thousands and tens.

    >>> cuda_of("11040"), cuda_of("9020"), cuda_of("12.4")
    ('11.4', '9.2', '12.4')
    """
    return f"{int(number) // 1000}.{int(number) % 1000 // 10}" if number.isdigit() else number


def is_yes(value: str) -> bool:
    return value.lower() in ("true", "yes", "gpu", "cuda", "enabled", "available")


PARSERS: dict[str, Callable[[str], str | bool | int]] = {
    "torch.cuda_available": is_yes,
    "os.secure_boot": is_yes,
    "os.family": family_of,
    "os.machine": architecture_named,
    "driver.cuda": cuda_of,
    "python.bits": int,
    "python.version": lambda value: value if "." in value else f"{value[0]}.{value[1:]}",
    "wanted.torch": "=={}".format,
    "torch.installer": lambda value: "pip" if "pip" in value else "conda",
    "torch.kernels": lambda value: " ".join(re.findall(r"(?:sm_|compute_|gfx)\d\w{1,4}", value)),
    "os.libc": lambda value: f"glibc {value}" if value[0].isdigit() else value.replace("-", " "),
}
"""How the words of a field become its value."""


def field_claims(text: Text) -> Facts:
    """What the text says of fields, and what that implies of others."""
    for subject, words, source, trust in claims(text, PATTERNS):
        parse = PARSERS.get(subject)
        value = parse(words) if parse and isinstance(words, str) else words
        if subject != "platform":
            yield Claim(subject, value, source, trust)
        for other, implied_value, most in implied(subject, str(value)):
            yield Claim(other, implied_value, source, min(trust, most))


NAMED_IN_A_SENTENCE = {"os.family": GUESS, "os.jetson": HINT, "os.wsl": USUAL}
"""The fields that a person's own words may claim, and how far such a claim is trusted at most."""
MAX_VALUES = 4


def claims(text: Text, patterns: Iterable[FieldPattern]) -> Iterator[Claim]:
    """What the text says by these patterns; each different value of a pattern once.

    >>> from gpusetup.report.cleaning import text_of
    >>> row = FieldPattern("python.version", "python ", r"Python (\\d\\.\\d+\\.\\d+)")
    >>> next(claims(text_of("Python 3.13.5"), [row])).value
    '3.13.5'
    """
    for row in patterns:
        if not any(needle in text.low for needle in row.needles):
            continue
        subject, _, pattern, trust, fixed = row
        in_a_sentence = trust <= NAMED_IN_A_SENTENCE.get(subject, -1)
        seen: set[str | bool | int] = {""}
        for offset, window in text.near(*row.needles):
            for found in in_any_case(pattern).finditer(window):
                value = (found[1] or "").strip() if fixed is None else fixed
                if value in seen or len(seen) > MAX_VALUES:
                    continue
                start, end = (offset + place for place in found.span())
                if in_a_sentence and is_only_mentioned(subject, text.flat, start, end):
                    continue
                is_named = subject == "torch.version" and trust <= HINT
                if is_named and is_another_torch(text.flat, start, end):
                    continue
                seen.add(value)
                place = offset + found.start(int(fixed is None))
                yield Claim(subject, value, text.source(place), trust)


def implied(subject: str, value: str) -> Iterator[tuple[str, str | bool, int]]:
    """What the name of a system, a kernel or a platform says of other fields: field, value, trust.

    >>> name = "Linux-5.10.104-tegra-aarch64-with-glibc2.31"
    >>> [value for _, value, _ in implied("platform", name)][:3]
    ['linux', 'aarch64', 'glibc 2.31']
    """
    if subject == "torch.hip":
        yield "torch.backend", f"rocm{value}", USUAL
    if subject in ("os.name", "platform") and (family := family_of(value)):
        yield "os.family", family, SURE
        if family == "macos" and re.search(r"\b10\.(?:\d|1[0-5])\b", value):
            # Apple's own machines begin with macOS 11 (which old programs read as 10.16).
            yield "os.machine", "x86_64", USUAL
    kernel = value if subject == "os.kernel" else ""
    if subject == "platform":
        if machine := re.search(
            r"[-_](x86_64|amd64|aarch64|arm64|ppc64le|i686)(?=[-_]|$)", value, re.I
        ):
            yield "os.machine", architecture_named(machine[1]), USUAL
        if libc := re.search(r"-with-glibc(\d\.\d{1,2})$", value):
            yield "os.libc", f"glibc {libc[1]}", HINT
        if named := re.match(r"Linux-([\d.]+[\w.+-]*?)-(?:x86|aarch|arm|ppc)", value):
            kernel = named[1]
            yield "os.kernel", kernel, USUAL
    elif kernel:
        yield "os.family", "linux", USUAL
    if "microsoft" in kernel.lower():
        yield "os.wsl", True, USUAL
    if "tegra" in kernel:
        release = next((r for start, r in L4T_BY_KERNEL if kernel.startswith(start)), "tegra")
        yield "os.jetson", release, HINT
        yield "os.machine", "aarch64", USUAL
