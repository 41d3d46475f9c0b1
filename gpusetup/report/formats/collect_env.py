"""`torch.utils.collect_env` of every torch since 0.4, and what vLLM and others made of it.

Its labels are the frame: a value is what stands between one label and the next, however the lines
were broken. Facts: torch/utils/collect_env.py of torch 0.4 to 2.13, vLLM's collect_env.py, and the
issue templates that repeat its labels.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from gpusetup.model.machine import Event, Gpu, Package
from gpusetup.model.patterns import lazy
from gpusetup.report.facts import GUESS, HINT, SURE, USUAL, Claim, Fact, Gpus
from gpusetup.report.text import Text

NEEDLES = ("pytorch version:", "cuda used to build pytorch", "nvidia driver version:",
           "gpu models and configuration", "python platform:", "is cuda available:",
           "libc version:", "cuda runtime version:", "is debug build:")  # fmt: skip
LABELS = (
    "PyTorch version", "Is debug build", "CUDA used to build PyTorch",
    "ROCM used to build PyTorch", "XPU used to build PyTorch", "OS", "GCC version", "Clang version",
    "CMake version", "Libc version", "Python version", "Python platform", "Is CUDA available",
    "CUDA runtime version", "CUDA_MODULE_LOADING set to", "GPU models and configuration",
    "Nvidia driver version", "cuDNN version", "Is XPU available", "HIP runtime version",
    "MIOpen runtime version", "Is XNNPACK available", "Caching allocator config", "CPU",
    "Versions of relevant libraries", "ROCM Version", "Neuron SDK Version", "vLLM Version",
    "vLLM Build Flags", "GPU Topology", "CUDA Archs", "How you installed PyTorch",
    "Build command you used", "CUDA/cuDNN version", "Any other relevant information",
    "Additional context", "Intel GPU models onboard", "Intel GPU models detected",
    "Intel GPU driver version", "Is debug", "Python executable",
)  # fmt: skip
LABEL = lazy(
    rf"(?<![\w/])({'|'.join(re.escape(label) for label in LABELS)})(?: \(e\.g\.[^)]{{0,40}}\))?\s?:"
)
SECTION = lazy(r"=={8,}|--- [a-z_ ]+ ---|<details>|```")
VALUE_KEPT = 6000
NOTHING = ("", "n/a", "none", "could not collect", "no cuda", "unknown", "not set")


def collect_env(text: Text) -> Iterator[Fact]:
    """The facts of every collect_env in the text, the first one's first."""
    if not any(needle in text.low for needle in NEEDLES):
        yield from packages(text)
        yield from _torch_among_packages(text)
        return
    told: dict[str, str] = {}
    for label, value, place in pairs(text.flat):
        told.setdefault(label, value)
        if reader := READERS.get(label):
            yield from reader(value, text.source(place))
    yield from without_trace(told)
    yield from packages(text)


def without_trace(told: dict[str, str]) -> Iterator[Event]:
    """`No CUDA` beside a GPU's name: nvidia-smi and nvcc gave nothing, torch has no device."""
    shown = told.get("GPU models and configuration", "")
    if not shown.startswith("No CUDA"):
        return
    built = told.get("CUDA used to build PyTorch", "")
    kind = "smi-not-found" if built[:1].isdigit() else "no-nvidia-gpu"
    line = f"CUDA used to build PyTorch: {built[:12]}, GPU models and configuration: No CUDA"
    yield Event(kind=kind, source="collect_env", text=line)


def pairs(flat: str) -> Iterator[tuple[str, str, int]]:
    """Each label, its value, and where it stands.

    >>> list(pairs("PyTorch version: 2.5.1 Is debug build: False"))
    [('PyTorch version', '2.5.1', 0), ('Is debug build', 'False', 23)]
    """
    found = list(LABEL.finditer(flat))
    for here, after in zip(found, [*found[1:], None], strict=False):
        end = after.start() if after else len(flat)
        value = flat[here.end() : min(end, here.end() + VALUE_KEPT)]
        if cut := SECTION.search(value):
            value = value[: cut.start()]
        yield here.group(1), value.strip(" *-"), here.start()


def _known(value: str) -> str | None:
    return None if value.lower() in NOTHING else value


Said = Iterator[Fact]
VERSION = lazy(r"(?:py)?(?:torch)?[ :=v]?(\d+\.\d+[\w.+]*\w)", re.I)


def _torch(value: str, source: str) -> Said:
    if value[:3].lower() in ("n/a", "non"):
        # It says so of a torch too that is there and cannot be imported: a traceback knows better.
        yield Claim(subject="torch.installed", value=False, source=source, trust=USUAL)
    elif found := VERSION.match(value):
        yield Claim(subject="torch.version", value=found.group(1), source=source, trust=SURE)
        yield Claim(subject="torch.installed", value=True, source=source, trust=SURE)


def _debug(value: str, source: str) -> Said:
    if value[:4] == "True" or value[:3] == "Yes":
        yield Claim(subject="torch.debug", value=True, source=source)


def _cuda_built(value: str, source: str) -> Said:
    """`None` and `Could not collect` are torch.version.cuda being None: no CUDA in the build."""
    if found := re.match(r"\d+\.\d+[.\d]*", value):
        yield Claim(subject="torch.cuda", value=found.group(), source=source, trust=SURE)
    elif value.lower().startswith(("none", "could not collect")):
        yield Claim(subject="torch.backend", value="cpu", source=source, trust=HINT)


def _rocm_built(value: str, source: str) -> Said:
    if found := re.match(r"\d+\.\d+", value):
        yield Claim(subject="torch.hip", value=found.group(), source=source, trust=SURE)
        yield Claim(subject="torch.backend", value=f"rocm{found.group()}", source=source)


MACHINES = {
    "x86_64": "x86_64", "amd64": "x86_64", "x64": "x86_64", "arm64": "aarch64",
    "aarch64": "aarch64", "ppc64le": "ppc64le", "i686": "i686",
}  # fmt: skip
SYSTEMS = (
    ("windows", r"\bWindows\b"),
    ("macos", r"\bmac ?OS\b|Darwin|OS ?X"),
    ("linux", r"linux|ubuntu|debian|fedora|centos|red hat|rocky|alma|arch\b|manjaro|suse|mint"
              r"|pop!?_os|gentoo|kali|amazon|oracle|nixos|endeavour|zorin|elementary|wsl"),
)  # fmt: skip


def family_of(value: str) -> str | None:
    """The system that a name speaks of.

    >>> family_of("Ubuntu 22.04.3 LTS (x86_64)"), family_of("Mac OSX 10.12.6")
    ('linux', 'macos')
    """
    return next((name for name, words in SYSTEMS if re.search(words, value, re.I)), None)


def _name(value: str) -> str:
    """A system's name, without what follows it in brackets or in a list.

    >>> _name("Ubuntu 22.04.3 LTS (x86_64)"), _name("Windows 10 - How you installed PyTorch")
    ('Ubuntu 22.04.3 LTS', 'Windows 10')
    """
    return value.partition(" (")[0].partition(" - ")[0]


def _os(value: str, source: str) -> Said:
    value = value[:120]
    if _known(value) is None:
        return
    if family := family_of(value):
        yield Claim(subject="os.family", value=family, source=source, trust=SURE)
        yield Claim(subject="os.name", value=_name(value), source=source)
        if family == "macos" and re.search(r"\b10\.(?:\d|1[0-5])\b", value):
            # Apple's own machines begin with macOS 11 (which old programs read as 10.16).
            yield Claim(subject="os.machine", value="x86_64", source=source)
    if found := re.search(r"\(.{0,24}?(x86_64|arm64|aarch64|AMD64|ppc64le|i686)\)", value):
        yield Claim(subject="os.machine", value=MACHINES[found.group(1).lower()], source=source)


def _libc(value: str, source: str) -> Said:
    if found := re.match(r"(glibc|musl)-(\d[\d.]*)", value):
        libc = f"{found.group(1)} {found.group(2)}"
        yield Claim(subject="os.libc", value=libc, source=source, trust=SURE)


def _python(value: str, source: str) -> Said:
    found = re.match(r"(?:python)?[ :=]?v?(\d\.\d{1,2}(?:\.\d{1,2})?)", value[:60], re.I)
    if not found:
        return
    yield Claim(subject="python.version", value=found.group(1), source=source, trust=SURE)
    if "packaged by" in value[:60] or "Anaconda" in value[:60]:
        yield Claim(subject="python.manager", value="conda", source=source)
    if bits := re.search(r"\((32|64)-bit runtime\)", value):
        yield Claim(subject="python.bits", value=int(bits.group(1)), source=source)


L4T_BY_KERNEL = (("4.9.", "R32"), ("5.10.", "R35"), ("5.15.", "R36"), ("6.8.", "R38"))
"""The kernel of a Jetson -> the major of its L4T release (NVIDIA's Jetson Linux archive)."""


def _platform(value: str, source: str) -> Said:
    value = value.split(" ")[0]
    if family := family_of(value):
        yield Claim(subject="os.family", value=family, source=source, trust=SURE)
    for word, machine in MACHINES.items():
        if re.search(rf"[-_]{word}(?:[-_]|$)", value):
            yield Claim(subject="os.machine", value=machine, source=source)
            break
    if libc := re.search(r"-with-glibc(\d\.\d{1,2})$", value):
        yield Claim(subject="os.libc", value=f"glibc {libc.group(1)}", source=source, trust=HINT)
    if kernel := re.match(r"Linux-([\d.]+[\w.+-]*?)-(?:x86|aarch|arm|ppc)", value):
        yield Claim(subject="os.kernel", value=kernel.group(1), source=source)
        yield from kernel_facts(kernel.group(1), source)


def kernel_facts(kernel: str, source: str) -> Said:
    """What a kernel's name tells: WSL, a Jetson."""
    if "microsoft" in kernel.lower():
        yield Claim(subject="os.wsl", value=True, source=source)
    if "tegra" in kernel:
        release = next((r for start, r in L4T_BY_KERNEL if kernel.startswith(start)), "tegra")
        yield Claim(subject="os.jetson", value=release, source=source, trust=HINT)
        yield Claim(subject="os.machine", value="aarch64", source=source)


def _available(value: str, source: str) -> Said:
    word = value.split(" ")[0].lower()
    if word in ("true", "yes", "false", "no"):
        known = word in ("true", "yes")
        yield Claim(subject="torch.cuda_available", value=known, source=source, trust=SURE)


def _toolkit(value: str, source: str) -> Said:
    if found := re.match(r"(\d+\.\d+)", value):
        yield Claim(subject="toolkit.nvcc", value=found.group(1), source=source)


GPU_ENTRY = lazy(r"GPU (\d{1,3}): (.+?)(?= ?\(UUID| MIG \d| GPU \d{1,3}:|$)")
FOREIGN = lazy(r"\b(AMD|Radeon|gfx\d{3,4}|Intel|Arc|Apple M\d)", re.I)


def gpu_names(value: str) -> list[tuple[int, str]]:
    """The GPUs of one entry: numbered, or names alone, as very old versions print.

    >>> gpu_names("GPU 0: NVIDIA A10 GPU 1: Tesla T4")
    [(0, 'NVIDIA A10'), (1, 'Tesla T4')]
    """
    numbered = [(int(n), name.strip()) for n, name in GPU_ENTRY.findall(value[:4000])]
    if numbered or _known(value) is None or "No CUDA" in value[:10]:
        return numbered
    names = (part.strip() for part in re.split(r"[,;]| and ", value[:120]))
    return [(place, name) for place, name in enumerate(names) if NAMED.search(name)]


NAMED = lazy(r"(?:nvidia|geforce|quadro|tesla|titan|[rg]tx|nvgpu|\b[ahlbv]\d{2,3}\b)", re.I)


def _gpus(value: str, source: str) -> Said:
    names = gpu_names(value)
    ours = [(n, name) for n, name in names if not FOREIGN.search(name)]
    if ours:
        gpus = tuple(Gpu(name=name, nvml_index=n) for n, name in ours)
        yield Gpus(gpus=gpus, source=source, trust=USUAL)
    if foreign := FOREIGN.search(value[:200]):
        vendor = "intel" if foreign.group(1).lower() in ("intel", "arc") else "amd"
        yield foreign_gpu(vendor, value[:80].partition(" Nvidia driver")[0], source)
    if any("nvgpu" in name for _, name in names):
        yield Claim(subject="os.jetson", value="nvgpu", source=source, trust=GUESS)


def foreign_gpu(vendor: str, name: str, source: str) -> Event:
    values = {"vendor": vendor, "name": name}
    return Event(kind="foreign-gpu", values=values, source=source, text=name)


def _driver(value: str, source: str) -> Said:
    if found := re.match(r"(\d{3}\.\d+(?:\.\d+)?)", value):
        yield Claim(subject="driver.version", value=found.group(1), source=source, trust=SURE)


def _cudnn(value: str, source: str) -> Said:
    if found := re.search(r"libcudnn\.so\.([\d.]+\d)|cudnn\w*64_(\d+)\.dll", value[:400]):
        version = found.group(1) or found.group(2)
        yield Claim(subject="torch.cudnn", value=version, source=source, trust=GUESS)


def _xpu(value: str, source: str) -> Said:
    if value.startswith("True"):
        yield foreign_gpu("intel", "Is XPU available: True", source)


def _cuda_remark(value: str, source: str) -> Said:
    """`CUDA/cuDNN version: 12.8`, the template's own line."""
    if found := re.match(r"(?:CUDA )?(\d{1,2}\.\d)\b", value):
        yield Claim(subject="toolkit.nvcc", value=found.group(1), source=source, trust=GUESS)


READERS: dict[str, Callable[[str, str], Said]] = {
    "PyTorch version": _torch,
    "Is debug build": _debug,
    "CUDA used to build PyTorch": _cuda_built,
    "ROCM used to build PyTorch": _rocm_built,
    "OS": _os,
    "Libc version": _libc,
    "Python version": _python,
    "Python platform": _platform,
    "Is CUDA available": _available,
    "CUDA runtime version": _toolkit,
    "GPU models and configuration": _gpus,
    "Nvidia driver version": _driver,
    "cuDNN version": _cudnn,
    "Is XPU available": _xpu,
    "CUDA/cuDNN version": _cuda_remark,
}

LISTED = lazy(r"\[(pip3?|conda)\] ([\w.-]+)(?:==| )([\w.+!-]+)(?: ([\w.]+))?(?: ([\w./-]+))?")


def _torch_among_packages(text: Text) -> Iterator[Claim]:
    """torch's own line, where no header says its version."""
    for _, name, version, *_ in LISTED.findall(text.flat) if "] torch==" in text.low else ():
        if name == "torch":
            yield Claim(subject="torch.version", value=version, source="report", trust=HINT)


def packages(text: Text) -> Iterator[Package]:
    """The `[pip3] torch==2.5.1` and `[conda] pytorch 2.5.1 build channel` lines."""
    from gpusetup.readings.packages import CONDA_WATCHED, is_watched, normalised

    if "[pip" not in text.low and "[conda]" not in text.low:
        return
    for by, name, version, build, channel in LISTED.findall(text.flat):
        plain = normalised(name)
        if not version[:1].isdigit() or not (is_watched(plain) or plain in CONDA_WATCHED):
            continue
        if by == "conda":
            installer = "pip" if build == "pypi" or build == "pypi_0" else "conda"
            yield Package(
                name=plain, version=version, installer=installer, build=build or None,
                channel=channel or None,
            )  # fmt: skip
        else:
            yield Package(name=plain, version=version, installer=None)
