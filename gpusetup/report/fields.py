"""Reads single fields of a machine, such as a version, a system or a printed answer; one row per
wording.

Sources: torch's and vLLM's `collect_env`, `transformers env`, `accelerate env`, the start lines of
ultralytics, ComfyUI, A1111 and Unsloth, the kernel's and pip's lines, Python's banner, uv's
remarks; and what people write in their own words.
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
from gpusetup.readings.nvidia_smi import memory
from gpusetup.report.facts import GUESS, HINT, SURE, USUAL, Claim, Facts


class FieldPattern(NamedTuple):
    """A pattern for one snapshot field. It is only tried near certain strings, the needles."""

    subject: str
    needle: str | tuple[str, ...]
    """A lower-case string that every match contains, or several strings of which every match
    contains one."""
    pattern: str
    """A pattern whose first group is the field's value, unless `value` gives a fixed value."""
    trust: int = USUAL
    value: str | bool | int | None = None


# `2.5.1+cu124`, but not the beginning of a longer version.
TORCH = rf"({TORCH_VERSION})(?![\w+]|\.\w)"
# `2.5.1+cu124`.
LABELLED_VERSION = rf"({RELEASE}\+(?:{LABEL}))\b(?!-|\.\d)"
"""A version with a build label that only torch and its companions use."""
LABELS = ("+cpu", "+cu", "+rocm", "+xpu")
PYTHON_RELEASE = r"([23]\.\d{1,2}(?:\.\d{1,2})?)"
DRIVER = rf"({DRIVER_VERSION})"
# Words between a name and its value, in several languages.
IS = r"(?:is|ist|est|es|é|是|为|prints?|gives?|shows?|returns?|says)"
VERSION = r"(?:version|ver\b\.?|版本号?|バージョン|버전|версия)"
# Here and below, a lookahead for the first letter halves the time of a case-insensitive
# alternation. `requires a driver`, `older than driver`, `minimum driver`.
REQUIRED_DRIVER = r"(?=[rnamsopbu])\b(?:requir|need|at least|minim|recommend|(?:un)?support|older than|newer than|prior to|before)\w{0,6}[^.]{0,24}?\bdrivers?\b"
"""A driver version that is required, not installed.

It is the first alternative of a pattern, so that it consumes the words and their number is not read
as the installed version.
"""
HAS_NO_CUDA = r"\b(?:returns? False|(?:is |are )?not available|unavailable|not (?:found|detected|working)|doesn't work)\b"
"""Words of a title that say that CUDA is missing, before the title names the torch version."""
# `MacBook`, `M2 Max`, `my M2`; not `Mac and Linux`, which a program supports.
MAC = (
    r"\b[Ii]?Mac[Bb]ook|\biMac\b|\bMac (?:[Mm]ini|Studio|Pro)\b"
    r"|\bM[1-5] (?:Pro|Max|Ultra|Air|[Mm]ac|[Cc]hip|[Cc]pu)\b|\b[Mm]ac ?(?:OS )?M[1-5](?![A-Za-z0-9.])"
    r"|\b[Mm]y (?:base )?M[1-5]\b(?!\.\d|-)|\b[Mm]ac ?OS (?:Sonoma|Ventura|Sequoia|Monterey|Tahoe)\b"
    r"|\b(?:[Mm]y|[Oo]n an?|[Uu]n|[Uu]m|[Mm]einem|[Mm]on|[Mm]eu|[Mm]i) [Mm]ac(?:OS)?\b(?! (?:and|or|et|und|y|e|o) )"
    r"|苹果|蘋果|アップル|애플|マックブック|맥북|макбук|\b[Ii]n [Mm]ac ?OS\b(?! and| or|,|/)|(?:我的|适合|在) ?[Mm]ac|(?<![A-Za-z])[Mm]ac(?:OS|[Bb]ook)?(?:で|の|에서)"
)
# `ComfyUI_windows_portable`, `the portable build of ComfyUI`, but not in a sentence that says that
# it works there.
PORTABLE = r"(?<!not )(?<!non-)\b(?:ComfyUI[ _-]{1,3}(?:windows[ _-])?portable\b|portable (?:version |install(?:ation)? |build |package |release )?(?:of )?ComfyUI\b)(?! (?:works|runs|is fine))"
"""ComfyUI's portable package for Windows, whose commands are typed in its own folder."""
DRIVER_WORDS = (
    "驱动", "驅動", "драйвер", "ドライバ", "드라이버", "treiber", "pilote", "controlador",
)  # fmt: skip
"""The words for a driver in several languages."""
# `services: web: image: ...`
COMPOSED = r"\bservices:\s+[\w.-]{1,60}:\s+(?:image|build|command|container_name|deploy|environment|ports|restart|runtime|shm_size|volumes|gpus):"
"""The beginning of a compose file. Such a file shows whether the container gets GPUs, because it
lists the reserved devices (Compose Specification, services)."""
WITH_CUDA = (" with cuda", " for cuda", " and cuda", "(cuda", ", cuda", "torch cuda")
NAMED_SYSTEMS = ("ubuntu", "debian", "fedora", "centos", "rocky linux", "almalinux", "rhel", "mint", "pop!_os", "opensuse", "arch linux", "manjaro", "nixos", "windows ", "macos ")  # fmt: skip
PATTERNS = (
    # `PyTorch version: 2.5.1+cu124`, `Name: torch Version: 2.5.1`, `Python-3.12.1 torch-2.5.1`.
    FieldPattern("torch.version", ("you have ", "have torch ", "installed torch==", "torch version", "torch.version", "-torch-", " torch-"), rf"(?=[pyn])(?:PyTorch \S{{3,40}}(?: with CUDA \w+)? \(you have |you(?:'ll)? have torch |your installed torch==|name: torch version: |\bPython-\d\.\d+\.\d+\S* torch-|\bpytorch[ .]version(?: \((?:GPU|accelerator)\?\))?: ?(?:py|torch|[ :=v])*)(?:torch )?{TORCH}", SURE),
    # `torch.__version__ is 2.5.1`, `already satisfied: torch in ... (2.5.1)`, `Successfully installed torch-2.5.1`.
    FieldPattern("torch.version", "torch", rf"(?=[t\"'*as+-])(?:\btorch(?:\.__version__(?:, ?torch\.[\w.]{{3,24}}(?:\(\))?){{0,3}}| ?{VERSION})\)?(?! ?(?:[<>~!]=?|==))\W{{1,60}}(?:{IS}\W{{1,4}})?|\"torch\" ?: ?\"|'PyTorch': '|[-*] torch: |already satisfied: torch(?:[=<>!~]\S{{1,30}})? in .{{3,200}}? \(|Successfully installed .{{0,700}}?\btorch-|(?<!\S)\+ torch==|(?<![\w.-])(?<!install )torch ?[:=] {{0,2}}`?){TORCH}(?! with CUDA)", USUAL),
    # `PyTorch 2.5.1` and `torch 2.5.1` in a sentence, unless somebody requires or installs it.
    FieldPattern("torch.version", "torch", rf"(?=[pt])(?:(?<!for: )(?<!build )(?<!compile )(?<!install )(?<!requires )(?<!needs )(?<!installation: )(?<![\w.-])(?:PyTorch(?: version)?(?: \(if[^)]{{0,24}}\))?[ :=v*`]{{1,6}}|torch v?)(?=[\w.+]+(?:[ ,;)`]|$))(?!\S+ with CUDA)|\btorch (?=\S+/cu\d)|torch-(?=\S{{3,40}}-cp\d+\S{{1,60}}\.whl,? {{0,2}}Success)){TORCH}", HINT),
    # A labelled version near torch's name: `torch 2.5.1+cpu`, `torch.cuda.is_available() False 2.5.1+cpu`.
    FieldPattern("torch.version", LABELS, rf"(?=[ptrianud])(?:(?<![\w./=-])(?<!install )(?<!for: )(?<!installation: )(?:Py)?torch(?:\.version ?=)?[ :|-]{{1,3}}v?|\btorch\.cuda\.\w+\(\)\W{{1,6}}(?:(?:{IS}|False|True|0|and|on|with|version)\W{{1,6}}){{0,3}}|{HAS_NO_CUDA}[^$>#\n]{{0,60}}?\btorch==){LABELLED_VERSION}", HINT),
    # `Downloading torch-2.5.1+cu124-cp312-...whl`, `pip install https://.../torch-2.5.1+cu124-cp312-...whl`.
    # The installation may still fail.
    FieldPattern("torch.version", "torch-", rf"\b(?:Using cached|Download(?:ing|ed)|install(?:ing|ed)?|used?|with)\b[^\n]{{1,3}}(?:\S{{1,200}}/)?torch-({RELEASE}(?:\+(?:{LABEL}))?)(?=-cp3)", GUESS),
    # `PyTorch version: N/A`, which collect_env prints if torch is not installed.
    FieldPattern("torch.installed", "torch version:", r"\bpytorch version: (?:N/A|none)\b", USUAL, value=False),
    # collect_env's `Is CUDA available: True`, Lightning's `CUDA: - GPU: ... - available: True`.
    *(
        FieldPattern("torch.cuda_available", ("cuda available", "gpu available", "available: "), rf"(?=[cg])(?:(?:CUDA|GPU) available(?: \(PyTorch\))?\??\W{{1,24}}|\bCUDA: (?:- )?GPU: .{{0,600}}?\bavailable: )({answer})", SURE)
        for answer in ("True|Yes", r"False|No\b")
    ),
    # accelerate's `PyTorch version (GPU?): 2.5.1 (True)`.
    FieldPattern("torch.cuda_available", "torch version", r"PyTorch version(?: \((?:GPU|accelerator)\?\))?: \S{3,40} \((True|False|GPU|CUDA|NA)\)", SURE),
    # `CUDA used to build PyTorch: 12.4`, `torch.version.cuda is 12.4`, conda's build `py3.10_cuda12.4_cudnn9`.
    FieldPattern("torch.cuda", ("used to build", "version.cuda", "cuda version", "available: true", "_cuda"), rf"(?=[ctp])(?:\bCUDA used to build PyTorch: |torch\.version\.cuda\)?\W{{1,8}}(?!{RELEASE})(?:{IS}\W{{1,4}})?(?:CUDA )?|torch cuda version\W{{1,40}}|\bCUDA: (?:- )?GPU: .{{0,600}}?\bavailable: True (?:- )?version: |py\d\.\d{{1,2}}_cuda(?=\S{{3,9}}_cudnn))(\d{{1,2}}\.\d{{1,2}})", SURE),
    # `CUDA used to build PyTorch: None`.
    FieldPattern("torch.backend", "cuda used to", r"\bCUDA used to build PyTorch: (?:none|could not collect)", HINT, value="cpu"),
    # `ROCM used to build PyTorch: 6.2`.
    FieldPattern("torch.hip", "rocm used to", r"\bROCM used to build PyTorch: ((?!0\.0)\d+\.\d+)", SURE),
    # `OSError: [WinError 126] ... Error loading "...c10.dll"`, `ImportError: ...: undefined symbol: ...`.
    FieldPattern("torch.import_error", ("[winerror", "undefined symbol"), r"(?:OSError|ImportError): (\[WinError \d+\].{0,200}?Error loading \S.{0,160}?\.dll|\S{0,200}torch/lib/lib\w+\.so: undefined symbol: \w+)", USUAL),
    # `Python version: 3.12.3`, `Python-3.12.3`.
    FieldPattern("python.version", ("python", "파이썬"), rf"(?=[p파])(?:\bPython \d\.\d+\.\d+ \(you have |\bPython-(?=\d\.\d+\.\d)|(?<!different )(?:python|파이썬)[_ ]?{VERSION}(?: \((?:e\.g\.|if)[^)]{{0,24}}\))?\W{{1,24}}(?:python)?\W?){PYTHON_RELEASE}\b(?! Requires-Python)", SURE),
    # `python=3.10` or `Python 3.10` in a sentence, but not a range or a choice: `Python 3.10 or
    # 3.11`.
    FieldPattern("python.version", "python", r"(?<![\w-])C?python[ :=|]{0,3}v?(3\.\d{1,2}(?:\.\d{1,2})?)(?!\w|\.\d|\+|/)(?! ?(?:or|and|-|to) |[-–]\d|, ?3\.\d)", HINT),
    # conda's build of torch: `pytorch 2.5.1 py3.12_cuda12.4`.
    FieldPattern("python.version", "pytorch", r"\bpytorch[ =-]{1,3}\d\.[\d.]{1,6}[ =-]{1,3}\w{0,8}?py(3\.?\d{1,2})(?=_|h)", GUESS),
    # `requires torch 2.5.1 built with CUDA 12.4`.
    FieldPattern("wanted.torch", WITH_CUDA, rf"\b(?:install|use|take|want|wants|requires?|recommends?)\W{{1,3}}(?:py)?torch v?({RELEASE}) (?:built |compiled )?(?:for|with) CUDA \d", HINT),
    # The CUDA version in the same sentence.
    FieldPattern("wanted.cuda", WITH_CUDA, rf"\b(?:install|use|take|want|wants|requires?|recommends?)\W{{1,3}}(?:py)?torch v?{RELEASE} (?:built |compiled )?(?:for|with) CUDA (\d{{1,2}}\.\d)", HINT),
    # `conda install pytorch pytorch-cuda=12.4`.
    FieldPattern("wanted.cuda", "install", r"\b(?:install|create) .{0,300}?(?:pytorch-cuda|cudatoolkit|cuda-version) ?={1,2}(\d{1,2}\.\d)", HINT),
    # uv's `Distribution `torch==2.5.1+cu124 @ registry+https://...` can't be installed`, `Because you
    # require torch==2.5.1`, `your project depends on torch==2.5.1`.
    FieldPattern("wanted.torch", ("torch==", "torch{"), r"(?:Distribution `|(?:you require|depends on|requires|Because|and) )torch(?:\{[^}]{1,60}\})?==(\d[\d.]*\d)", USUAL),
    # The build label in the same message.
    FieldPattern("wanted.backend", ("torch==", "torch{"), rf"(?:Distribution `|(?:you require|depends on|requires|Because|and) )torch(?:\{{[^}}]{{1,60}}\}})?==\d[\d.]*\d\+({LABEL})\b", USUAL),
    # The index in uv's message, and those that pip uses, including configured ones.
    FieldPattern("wanted.backend", ("registry+", "looking in indexes"), rf"(?:`torch==\S{{1,40}} @ registry\+|Looking in indexes: .{{0,400}}?)https?://download\.pytorch\.org/whl/(?:nightly/|test/|lts/[\d.]+/)?({LABEL})\b", USUAL),
    # `pip install torch`, `conda create ... pytorch`.
    FieldPattern("torch.installer", (" install", " create"), r"(pip3?|python\S* -m pip|conda|mamba|micromamba) (?:install|create)\b.{0,80}?[ :'\"](?:py)?torch(?:[-=<>~ '\"]|$)", HINT),
    # Commands and files of a uv project: `uv sync`, `uv.lock`, `[tool.uv]`.
    FieldPattern("python.manager", "uv", r"\buv (?:sync|lock|add|run (?!-[wis]|--(?:with|no-project|isolated|script)))\b|\buv\.lock\b|\[\[?tool\.uv\b", SURE, value="uv project"),
    # uv's remarks: `Using CPython 3.12.3`, `No solution found when resolving dependencies`, `uv pip install`.
    FieldPattern("python.manager", ("using python", "using cpython", "no solution found", "uv "), r"Using C?Python \d\.\d{1,2}\S* (?:environment|interpreter)|Using CPython \d|No solution found when resolving (?:dependencies|tool|script)|(?:^|[$>#%❯`*-] ?)uv (?:pip (?:install|sync|compile)|sync|add|lock)\b", USUAL, value="uv"),
    # Python's banner on Windows: `[MSC v.1938 64 bit (AMD64)]`.
    FieldPattern("python.bits", "[msc v.", r"\[MSC v\.\d+ (32|64) bit \((?:Intel|A(?:MD|RM)64)\)\]", SURE),
    # `(64-bit runtime)`, as .NET and transformers print it.
    FieldPattern("python.bits", "-bit runtime", r"\((32|64)-bit runtime\)"),
    # `[GCC 11.4.0] on linux`, `sys.platform: win32`, uv's `You're on Linux`.
    FieldPattern("os.family", ("] on ", "sys.platform", "you're on"), r"(?:\] on |sys\.platform\W{1,24}|You're on )(win32|windows|linux|darwin|macos)", SURE),
    # The portable ComfyUI, whose Python is always in the same folder.
    FieldPattern("python.executable", "portable", PORTABLE, GUESS, value=r".\python_embeded\python.exe"),
    # A typed command: `/opt/venv/bin/python -m pip`, `C:\\x\\python.exe -c`.
    FieldPattern("python.executable", (" -c", " -m pip", " -m torch"), r"((?:[A-Z]:\\(?:[\w .()~@-]{1,60}\\){1,10}|(?<![\w.~$/])(?:\.{1,2})?/(?!usr/bin/|bin/)(?:[\w.@+~-]{1,60}/){1,10})python(?:3(?:\.\d{1,2})?)?(?:\.exe)?)[\"']? (?:-c\b|-m (?:pip|torch)\b)", HINT),
    # Short forms of "Windows": `Win11`, `win 10`; also in Korean, Japanese, Chinese and Russian.
    FieldPattern("os.family", ("win", "윈도우", "ウィンドウズ", "винд"), r"\b[Ww]in ?(?:1[01]|7|8\.1)\b|[Ww]indows ?(?:平台|系统|环境)|윈도우|ウィンドウズ|\b[Вв]инд", USUAL, value="windows"),
    # Messages about Apple's Metal backend.
    FieldPattern("os.family", "mps", r"requires a GPU \(not 'mps'\)|Device mps not supported|MPS backend out of memory|(?:for|at) the MPS device|\(MPS\w{3,12}Type\)|\buse mps instead\b|\bdevice: mps\b|not built with MPS|\[MPS\w+ ", USUAL, value="macos"),
    # `MacBook`, `M2 Max`.
    FieldPattern("os.family", ("mac", " chip", "m1 ", "m2 ", "m3 ", "m4 ", "m5 ", "苹果", "蘋果", "アップル", "애플", "マックブック", "맥북", "макбук"), MAC, GUESS, value="macos"),
    # `Mac mini M4`, `macOS M CPUs`, `Apple silicon`: not `MacBook Pro, Python for x86_64`.
    FieldPattern("os.machine", ("mac", "apple"), r"\b(?:[Mm]ac ?(?:OS|os|[Bb]ook(?: (?:Pro|Air))?|mini|[Ss]tudio)?|Apple|iMac)\b[^.\n]{0,24}?\bM(?:[1-5]\b|(?= (?:CPU|chip|series)))|\bM[1-5](?: (?:Pro|Max|Ultra))? (?:[Mm]ac|chip)|\bApple [Ss]ilicon\b", GUESS, value="aarch64"),
    # uv's `You're on Linux (`manylinux_2_35_x86_64`)`.
    FieldPattern("os.machine", "you're on", r"You're on [^`]{3,40}\(`\w{3,30}_(aarch64|arm64|x86_64|amd64)`\)", SURE),
    # `platform.machine() x86_64`, `PROCESSOR_ARCHITECTURE=AMD64`.
    FieldPattern("os.machine", ("machine()", "windowspe", "processor_architecture"), r"(?:machine\(\)\)?['\")]{0,3}\W{1,12}(?:\('64bit', ?'\w{0,9}'\)\W{1,4})?|'WindowsPE'\)\W{1,4}|PROCESSOR_ARCHITECTURE%?\W{1,6})(AMD64|ARM64|x86_64|aarch64)\b", SURE),
    # Windows on Arm, shown by its processor or a wheel's tag.
    FieldPattern("os.machine", ("snapdragon", "windows", "win_arm64"), r"\bSnapdragon\b|\bWindows (?:11 )?(?:on |for )?\(?ARM(?:64)?\b|\bwin_arm64\b", HINT, value="aarch64"),
    # collect_env's `OS: Ubuntu 24.04.1 LTS (x86_64)`.
    FieldPattern("os.machine", "os: ", r"\bOS: [^:]{3,60}?\([^)]{0,24}?(x86_64|arm64|aarch64|AMD64|ppc64le|i686)\)", USUAL),
    # The system's name in the same line.
    FieldPattern("os.name", "os: ", r"(?<![\w.*-])OS: (?!N/A|none|could not)((?:Microsoft )?[A-Z][\w.!' -]{2,60}?)(?= ?\(| - |$| [A-Z]{3,6} version)", SURE),
    # `/etc/os-release` and `/etc/lsb-release`: `PRETTY_NAME="Ubuntu 24.04.1 LTS"`.
    FieldPattern("os.name", ("pretty_name", "distrib_description"), r'(?:PRETTY_NAME|DISTRIB_DESCRIPTION)="?([^"=]{3,60})"?', SURE),
    # A system's name in a sentence: `Ubuntu 22.04`, `Windows 11`.
    FieldPattern("os.name", NAMED_SYSTEMS, r"(?=[udfcrlpoamnw])(?<![\w/-])(?!\w{4,7} \d{1,2}(?:\.\d{1,2}){1,2}-\d)((?:Ubuntu|Debian|Fedora|CentOS|Rocky Linux|AlmaLinux|RHEL|Linux Mint|Pop!_OS|openSUSE|Arch Linux|Manjaro|NixOS|Windows (?:10|11|7|8\.1|Server \d{4})|macOS (?:Ventura|Sonoma|Sequoia|Monterey|Big Sur|\d\d))(?: ?-?\d{1,2}(?:\.\d{1,2})?)?)(?![\w-])", HINT),
    # `uname -a`: `Linux host 6.8.0-45-generic #45-Ubuntu`.
    FieldPattern("os.kernel", ("linux", "build on kernel", "/lib/modules/"), r"(?:\bLinux \S{1,64} |module build on kernel: |in directory /lib/modules/)(\d\.\d{1,3}[\w.+-]{1,60})(?= #?\d| \(|$)"),
    # What Python's `platform.platform()` prints: `Linux-6.8.0-45-generic-x86_64-with-glibc2.39`,
    # `macOS-14.5-arm64-arm-64bit`, `Windows-11-10.0.22631-SP0`.
    FieldPattern("os.family", ("macos-1", "macos-2", "-with-glibc", "windows-1"), r"(?<![\w./-])(macOS(?=-\d[\w.]{0,8}-(?:x86_64|arm64))|Linux(?=-\d\S{1,80}-with-glibc\d)|Windows(?=-1[01]-[\w.-]{3}))", USUAL),
    # Its architecture, its C library and its kernel.
    FieldPattern("os.machine", ("linux-", "macos-", "windows-"), r"(?<![\w./-])(?:Linux|macOS|Windows)-\d\S{0,100}?[-_](x86_64|amd64|aarch64|arm64|ppc64le|i686)(?=[-_\s]|$)", USUAL),
    FieldPattern("os.libc", "-with-glibc", r"-with-glibc(\d\.\d{1,2})\b", HINT),
    FieldPattern("os.kernel", "linux-", r"(?<![\w./-])Linux-(\d[\d.]+[\w.+-]*?)-(?:x86|aarch|arm|ppc)", USUAL),
    # collect_env's `Libc version: glibc-2.35`.
    FieldPattern("os.libc", "libc version", r"\bLibc version: ((?:glibc|musl)-\d[\d.]*)", SURE),
    # mokutil's `SecureBoot enabled`.
    FieldPattern("os.secure_boot", "secureboot", r"SecureBoot (enabled|disabled)"),
    # `/etc/nv_tegra_release`: `# R36 (release), REVISION: 4.0`.
    FieldPattern("os.jetson", "release), revision", r"# (R\d{2} \(release\), REVISION: [\d.]+)", SURE),
    # `L4T 36.4.0`, an image's tag `l4t-pytorch:r35.2.1`.
    FieldPattern("os.jetson", ("l4t", "jetson linux"), r"\b(?:L4T[ :v]{1,3}|l4t-[\w-]{2,24}:r|nvidia-l4t-core[\s|:]{1,40}|Jetson Linux \(?r?)(R?\d{2}(?:\.\d){0,2})(?![\w])", USUAL),
    # `JetPack 6.1`, `JP5.1`.
    FieldPattern("os.jetson", ("jetpack", "jp"), r"\b(JetPack[ -]?\d(?:\.\d){0,2}|JP[ -]?[4-9]\.\d(?:\.\d)?)", HINT),
    # `Jetson Orin Nano`, `on my Jetson.`
    FieldPattern("os.jetson", "jetson", r"\b((?i:Jetson[ -](?:AGX[ -])?(?:Orin|Xavier|Nano|TX\d|Thor|T[45]000)(?:[ -]Nano|[ -]NX)?)|Jetson AGX|Jetson(?!: ?[Nn]ot )(?= (?:board|device|dev|module)|[,.:;]|$))", GUESS),
    # A Jetson without the word "Jetson": `Orin NX`, or the driver `nvgpu`.
    FieldPattern("os.jetson", ("orin", "xavier", "thor", "nvgpu"), r"\b(AGX (?:Orin|Xavier|Thor)|(?:Orin|Xavier) (?:Nano|NX|AGX)|NVIDIA Thor|nvgpu)\b", GUESS),
    # `in WSL2`, `WSL2 Ubuntu`, `wsl:` at the start of one of WSL's messages.
    FieldPattern("os.wsl", "wsl", r"\b(?:in|on|under|inside|within|using|with|via|from) (?:my |the )?(?:Ubuntu \S{1,8} )?(?:in |on |under )?WSL ?2?\b|\bWSL ?2 ?(?:\(|,|Ubuntu|Debian)|\bmicrosoft-standard-WSL|^ ?wsl:|\bUbuntu[^.\n]{0,12} WSL\b|\b(?:Ubuntu|Debian) \d\d(?:\.\d{1,2}){0,2}(?: LTS)?,? \(wsl2?\)", USUAL, value=True),
    # `nvcc --version`: `Cuda compilation tools, release 12.4, V12.4.131`.
    FieldPattern("toolkit.nvcc", "release ", r"Cuda compilation tools, release (\d{1,2}\.\d{1,2})", SURE),
    # collect_env's `CUDA runtime version: 12.4.131`.
    FieldPattern("toolkit.nvcc", "cuda runtime", r"CUDA runtime version: (\d{1,2}\.\d{1,2})", USUAL),
    # The kernel's log: `NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.54.14`.
    FieldPattern("driver.version", "nvidia unix", rf"(?:NVRM version:?|NVRM: loading|nvidia-modeset: Loading) NVIDIA UNIX.{{0,60}}?\s{DRIVER}\s", SURE),
    # `libcuda reported version is: 550.54.14`, `NVML library version: 550.54`.
    FieldPattern("driver.library_version", ("libcuda reported version", "nvml library version"), rf"(?:libcuda reported version is|NVML library version): {DRIVER}", USUAL),
    # `driver version: 550.54.14`, `updated the driver to 550.54`, but not `requires driver 550 or
    # newer`.
    FieldPattern("driver.version", "driver", rf"{REQUIRED_DRIVER}|(?=[duirmw])(?:\bdrivers?\*{{0,2}}(?:[ _]version)?(?: (?:is|are))?[^\w<>≥]{{1,4}}(?:version )?|\b(?:updated|upgraded|installed|downgraded|rolled back|reverted|moved|went)\b[^.\n]{{0,24}}?\bdrivers?\b[^.\d\n]{{0,16}}?\b(?:to|version) (?:version )?)v?{DRIVER}(?!\d|[\d.]*[-_]|\.\d)(?! ?(?:\+|or (?:newer|later|higher|above)))", HINT),
    # torch's `The NVIDIA driver on your system is too old (found version 11040)`.
    FieldPattern("driver.cuda", "found version", r"found version (\d{4,6})\)", SURE),
    # NVIDIA's container hook: `unsupported CUDA version: driver 11.4 < image 12.4`.
    FieldPattern("driver.cuda", "cuda version: driver", r"unsupported CUDA version: driver (\d{1,2}\.\d)", USUAL),
    # `my driver 550`. Numbers that documents often give as a minimum (450, 525, 528, 580) do not count.
    FieldPattern("driver.version", "driver", rf"{REQUIRED_DRIVER}|(?:(?=[ngmwto])\b(?:nvidia|gpu|graphics|geforce|my|with|the|on) drivers?(?: version)?(?: is| are|:| =)? v?|^\W{{0,6}}(?:nvidia )?driver(?: version)?\W{{1,5}})((?!450|525|528|580)[3-6]\d\d)(?![\w+-]|\.\d| ?\+| or | and (?:newer|later|above))", GUESS),
    # Values after their names in people's sentences. They come last, because the output of programs
    # has priority. `torch build is 2.5.1+cu124`, with up to four words between.
    FieldPattern("torch.version", LABELS, rf"(?<![\w./=-])(?<!install )(?<!for )(?<!index )(?<!installation: )(?:py)?torch(?! ?(?:[<>~!]=?|==))(?:[ ,:(]+(?!(?:need|want|requir|install|instead|to|from|for|whl|index)\w{{0,3}}\b)[^\s\d]{{1,14}}){{0,4}}[ ,:(]{{1,3}}v?({RELEASE}(?:\.dev\d{{8}}|[abrc.]{{1,3}}\d{{1,3}})?\+(?:{LABEL}))\b", GUESS),
    # `I have torch 2.5.1 with CUDA 12.4`.
    FieldPattern("torch.version", WITH_CUDA, rf"\b(?:it is|it's|this is|I have|I use|we have|we use|have|using|installed|runs?|with|uses) (?:py)?torch v?({RELEASE})(?=,? (?:with|and|built for|for|\() ?CUDA \d)", HINT),
    # The CUDA version in the same sentence.
    FieldPattern("torch.cuda", WITH_CUDA, rf"\b(?:it is|it's|this is|I have|I use|we have|we use|have|using|installed|runs?|with|uses) (?:py)?torch v?{RELEASE},? (?:with|and|built for|for|\()? ?CUDA (\d{{1,2}}\.\d)", HINT),
    # `torch.cuda.get_arch_list()` with its output: `['sm_80', 'sm_90']`.
    FieldPattern("torch.kernels", "get_arch_list", r"get_arch_list\(\)[^\[\n]{0,40}\[((?:\W{1,4}(?:sm|compute|gfx)_?\d\w{1,4}){1,24})", SURE),
    # `驱动版本 550.54.14`, `Treiber 550.54`, and in other languages.
    FieldPattern("driver.version", DRIVER_WORDS, rf"(?:驱动(?:程序)?(?:版本)?|驅動(?:程式)?|драйвер\w{{0,2}}|ドライバー?|드라이버|\bTreiber\w{{0,8}}|\bpilotes?|\bcontrolador\w{{0,2}}|\bdriver(?:s|é)?)(?:[^\w\d]|是|为|版本|version|Version|версии|のバージョン|버전|:){{0,12}}{DRIVER}(?!\d|[\d.]*[-_]|\.\d)", HINT),
    # `get_arch_list() contains sm_90`.
    FieldPattern("torch.kernels", "get_arch_list", r"get_arch_list\(\)(?! (?:does|has no|lacks))[^.\n\[]{0,24}? (?:has|contains|includes|lists|shows|with) (sm_\d{2,3}|gfx\d{3,4}\w?)\b", HINT),
    # conda's virtual package: `__cuda=12.4=0`.
    FieldPattern("driver.cuda", "__cuda", r"\b__cuda(?:==|=|-)(\d{1,2}\.\d)[=-]0\b", USUAL),
    # `kubectl get pods`, `0/3 nodes are available`.
    FieldPattern("container.kind", ("kube", "gpu-operator", "k8s-device-plugin", "nvidia.com/gpu:", "nodes are", "pod/", "namespace:"), r"\bkubectl\b|-n gpu-operator\b|\bkubelet\b|k8s-device-plugin|nvidia\.com/gpu:|nodes are available|\bpod/|kubepods|Namespace: {2,}", USUAL, value="kubernetes"),
    # `podman run`.
    FieldPattern("container.kind", ("podman", "libpod"), r"\bpodman (?:run|exec|build|start|compose)|libpod|Emulate Docker CLI using podman", USUAL, value="podman"),
    # `docker compose up`, `Error response from daemon`, `/vllm-workspace/`, a compose file.
    FieldPattern("container.kind", ("docker", "from daemon", "oci runtime", "nvidia-container", "attaching to", "-workspace/", "services:"), rf"\b(?:nvidia-)?docker(?:-compose| compose)? (?:run|exec|up|start)\b|Error response from daemon|docker: Error|/\.dockerenv|\bOCI runtime\b|nvidia-container-cli|Attaching to (?!shared)|(?<![\w/])/(?:vllm|sgl)-workspace/|{COMPOSED}", USUAL, value="docker"),
    # A shell prompt with a container's id as the host name: `root@3f2a9c01b7de:/#`.
    FieldPattern("container.kind", ("@",), r"\b[\w.-]{1,40}@[0-9a-f]{12}[: ][^$#%>]{0,120}[$#%>]", USUAL, value="docker"),
    # `singularity exec`, the prompt `Apptainer>`.
    FieldPattern("container.kind", ("singularity", "apptainer"), r"\b(?:singularity|apptainer)['\", ]{1,5}(?:--?\w[\w-]{0,20}['\", ]{1,5}){0,4}(?:run|exec|shell)\b|Singularity>|Apptainer>", USUAL, value="singularity"),
    # `nvcr.io/nvidia/pytorch:24.05-py3`, the banner of NVIDIA's images, `outside of docker`.
    FieldPattern("container.kind", ("nvidia container", "nvcr.io", "container image", "outside"), r"NVIDIA Container|nvcr\.io/nvidia|deep learning container image|This container image and its contents|\boutside (?:of )?(?:the )?(?:docker|container)\b", HINT, value="docker"),
    # `in a docker container` (unless it works there), and folders that images use: `/app/`.
    FieldPattern("container.kind", ("docker container", "/workspace/", "/app/", "dist-packages/"), r"(?=[Ii/])(?:(?<!works )(?<!worked )(?<!fine )(?<!runs )(?<!well )(?<!only )(?<!not )\b[Ii](?:n|nside|nside of) (?:an? |my |the |this |our )?docker container\b|(?<![\w/])/(?:workspace|app)/\w|/usr/local/lib/python\d\.\d+/dist-packages/(?:vllm|sglang))", GUESS, value="docker"),
    # `--gpus all` (not `--gpus none` or `0`), a compose file's `capabilities: [gpu]`, `--nv`.
    FieldPattern("container.nvidia_requested", ("--gpus", "gpus:", "runtime", "nvidia.com/gpu=", "--nv", "nvidia-docker run", "driver: nvidia", "capabilities: ["), r"(?=[-grndc])(?:--gpus[= ](?!none|['\"]?0\b)\S+|\bgpus:\s{1,20}(?:all\b|\d|-)|\bruntime: nvidia\b|- nvidia\.com/gpu=|--runtime[= ]nvidia|--device[= ]nvidia\.com/gpu|--nv\b|nvidia-docker run|driver: nvidia|capabilities: \[\W{0,2}gpu)", GUESS, value=True),
    # `docker run IMAGE`, `singularity exec IMAGE`: without these options, it was started without a GPU.
    FieldPattern("container.nvidia_requested", ("docker", "podman", "nerdctl", "singularity", "apptainer", "services:"), rf"(?<![\w'/-])(?:docker|podman|nerdctl) (?:container )?run\s+(?!--help)[^\s`]|(?:singularity|apptainer) (?:exec|run|shell) [^\s`]|{COMPOSED}", GUESS, value=False),
    # The remark in a command that doctor asks for: `df -h /dev/shm  # in the container`.
    FieldPattern("container.kind", "container", r" # ?in (?:the|a|my) container\b", USUAL, value="docker"),
    # `shm              64M   64M     0 100% /dev/shm`: a row of `df -h`.
    FieldPattern("memory.shm_total_bytes", "/dev/shm", r"(?:shm|tmpfs) (\d{1,6}(?:\.\d{1,6})?[KMG])i? [^%]{0,40}% /dev/shm\b", SURE),
    # A torch in the system's Python, where the makers of container images install it.
    FieldPattern("torch.location", "dist-packages", r"(/usr/(?:local/)?lib/python3(?:\.\d{1,2})?/dist-packages)/torch/", HINT),
    # The Python of a portable package for Windows: `.\\python_embeded\\python.exe`.
    FieldPattern("python.executable", "python_embed", r"((?:[A-Z]:|\.)(?:\\[\w .()~@-]{1,60}){0,8}?\\python_embedd?ed\\python\.exe)", HINT),
    # `/home/me/miniconda3/`, `/envs/ml/lib`.
    FieldPattern("python.manager", ("conda", "mamba", "forge", "envs"), r"[/\\](?:(?:ana|mini|micro)(?:conda|mamba|forge)\d?[/\\]|envs[/\\][\w.-]+[/\\]lib)", HINT, value="conda"),
    # `~/.local/share/uv/tools/`.
    FieldPattern("python.manager", "tools", r"[/\\]uv[/\\]tools[/\\]", HINT, value="uv tool"),
    # `/.venv/`, `\\venv\\`.
    FieldPattern("python.manager", "venv", r"[/\\]\.?venv[/\\]", HINT, value="venv"),
)  # fmt: skip


# --- the values -----------------------------------------------------------------------------------

SYSTEMS = (
    ("windows", r"\bWin(?:dows|32)\b"),
    ("macos", r"\bmac ?OS\b|Darwin|OS ?X"),
    ("linux", r"linux|ubuntu|debian|fedora|centos|red hat|rhel|rocky|alma|arch\b|manjaro|suse|mint"
              r"|pop!?_os|gentoo|kali|amazon|oracle|nixos|endeavour|zorin|elementary|wsl"),
)  # fmt: skip
"""The family of an operating system and a pattern for its names; the first match counts."""
L4T_BY_KERNEL = (("4.9.", "R32"), ("5.10.", "R35"), ("5.15.", "R36"), ("6.8.", "R38"))
"""The beginning of a Jetson's kernel version and the major version of its L4T release (source:
NVIDIA's Jetson Linux archive)."""


def family_of(value: str) -> str:
    """The family of an operating system by its name (`linux`, `windows`, `macos`); empty if
    unknown.

    >>> family_of("Ubuntu 22.04.3 LTS (x86_64)"), family_of("Mac OSX 10.12.6"), family_of("?")
    ('linux', 'macos', '')
    """
    for family, names in SYSTEMS:
        if re.search(names, value, re.I):
            return family
    return ""


def dotted_cuda(number: str) -> str:
    """A CUDA version such as `11.4`. The CUDA API's number, 11040, is converted.

    >>> dotted_cuda("11040"), dotted_cuda("9020"), dotted_cuda("12.4")
    ('11.4', '9.2', '12.4')
    """
    if not number.isdigit():
        return number
    # The API's number is 1000 * major + 10 * minor.
    major, rest_of_number = divmod(int(number), 1000)
    return f"{major}.{rest_of_number // 10}"


def is_yes(value: str) -> bool:
    """Whether a program's answer means yes."""
    return value.lower() in ("true", "yes", "gpu", "cuda", "enabled", "available")


def libc_of(value: str) -> str:
    """The C library with its version; a bare version means glibc.

    >>> libc_of("2.35"), libc_of("musl-1.2.5")
    ('glibc 2.35', 'musl 1.2.5')
    """
    return f"glibc {value}" if value[0].isdigit() else value.replace("-", " ")


PARSERS: dict[str, Callable[[str], str | bool | int]] = {
    "torch.cuda_available": is_yes,
    "os.secure_boot": is_yes,
    "os.family": family_of,
    "os.machine": architecture_named,
    "driver.cuda": dotted_cuda,
    "python.bits": int,
    # Wheel tags leave out the dot: 312.
    "python.version": lambda value: value if "." in value else f"{value[0]}.{value[1:]}",
    # People who write 2.5 mean any release of it.
    "wanted.torch": lambda version: f"=={version}" + ("" if version.count(".") >= 2 else ".*"),
    "torch.installer": lambda command: "pip" if "pip" in command else "conda",
    "torch.kernels": lambda words: " ".join(re.findall(r"(?:sm_|compute_|gfx)\d\w{1,4}", words)),
    "os.libc": libc_of,
    # `df -h` writes 64M and means MiB.
    "memory.shm_total_bytes": lambda size: memory(f"{size}iB") or 0,
}
"""The function that turns the matched words into the field's value, for fields that need one."""


def field_claims(text: Text) -> Facts:
    """The claims in a text about single fields, and those about other fields that follow."""
    for claim in claims(text, PATTERNS):
        subject, value, source, trust = claim
        # Values that are no strings are fixed by their row and need no parser.
        if isinstance(value, str) and subject in PARSERS:
            value = PARSERS[subject](value)
        yield Claim(subject, value, source, trust)
        for implied_subject, implied_value, implied_trust in implied(subject, str(value)):
            # An implied value is trusted no more than the claim that implies it.
            yield Claim(implied_subject, implied_value, source, min(trust, implied_trust))


MAX_VALUES = 4
"""The most different values that are read for one pattern."""


def claims(text: Text, patterns: Iterable[FieldPattern]) -> Iterator[Claim]:
    """The claims that these patterns find in a text; per pattern, the first `MAX_VALUES` different
    values.

    >>> from gpusetup.report.cleaning import text_of
    >>> row = FieldPattern("python.version", "python ", r"Python (\\d\\.\\d+\\.\\d+)")
    >>> next(claims(text_of("Python 3.13.5"), [row])).value
    '3.13.5'
    """
    for row in patterns:
        needles = (row.needle,) if isinstance(row.needle, str) else row.needle
        # A substring search is much faster than the pattern, and most texts contain no needle.
        if not text.has_any(needles):
            continue
        pattern = in_any_case(row.pattern)
        values: set[str | bool | int] = set()
        # A pattern with a fixed value may have no group.
        group = 1 if row.value is None else 0
        for offset, window in text.near(*needles):
            for match in pattern.finditer(window):
                value = (match[1] or "").strip() if row.value is None else row.value
                # An alternative that only consumes words (`REQUIRED_DRIVER`) leaves the group empty.
                if value == "" or value in values or len(values) == MAX_VALUES:
                    continue
                values.add(value)
                source = text.source(offset + match.start(group))
                yield Claim(row.subject, value, source, row.trust)


# macOS 10.0 to 10.15. Old programs read macOS 11 as 10.16.
INTEL_MACOS = re.compile(r"\b10\.(?:\d|1[0-5])\b")


def implied(subject: str, value: str) -> Iterator[tuple[str, str | bool, int]]:
    """The fields, values and trust that follow from the name of a system or kernel, from ROCm's
    version or from the path of Python.

    >>> [value for _, value, _ in implied("os.kernel", "5.10.104-tegra")]
    ['linux', 'R35', 'aarch64']
    """
    if subject == "torch.hip":
        yield "torch.backend", f"rocm{value}", USUAL
    if subject == "python.executable" and "\\" in value:
        yield "os.family", "windows", USUAL
    if subject == "os.name" and (family := family_of(value)):
        yield "os.family", family, SURE
        # Macs with Apple's own processors started with macOS 11.
        if family == "macos" and INTEL_MACOS.search(value):
            yield "os.machine", "x86_64", USUAL
    if subject == "os.name" and value.startswith("Alpine"):
        yield "os.libc", "musl", USUAL
    if subject == "os.kernel":
        # The patterns only find the versions of Linux kernels.
        yield "os.family", "linux", USUAL
        if "microsoft" in value.lower():
            yield "os.wsl", True, USUAL
        if "tegra" in value:
            releases = (release for start, release in L4T_BY_KERNEL if value.startswith(start))
            # "tegra" stands for an unknown release: the kernel is a Jetson's in any case.
            yield "os.jetson", next(releases, "tegra"), HINT
            yield "os.machine", "aarch64", USUAL
