"""What the machine's own tools show: lspci, lsmod, /proc, os-release, df, ulimit."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpusetup.accelerators.makers import MAKERS
from gpusetup.messages.fragments import DRIVER_VERSION
from gpusetup.model.machine import DeviceNode, PciDevice
from gpusetup.model.patterns import lazy
from gpusetup.readings.proc import MODULES
from gpusetup.report.elsewhere import is_in_passing
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
from gpusetup.report.formats.collect_env import family_of, foreign_gpu, kernel_facts
from gpusetup.report.text import Text

DRIVER = rf"({DRIVER_VERSION})"
# The look at one letter first halves the time of an alternation that knows no case.
ASKED_FOR = r"(?=[rnamsopb])(?:requir|need|at least|minim|recommend|support|older than|newer than|prior to|before)\w{0,6}[^.]{0,24}?\bdrivers?\b"
"""A driver that somebody names, and has not: consumed, so that its number is not read."""
FLOORS = "450|525|528|580"
"""Branches in which a CUDA begins: a bare number does not tell on which side of it."""
ROWS: tuple[Saying, ...] = (
    saying("driver.version", "nvrm version", rf"NVRM version:? NVIDIA UNIX.{{0,60}}?\s{DRIVER}\s", SURE),
    saying("driver.version", "kernel module", rf"NVRM: loading NVIDIA UNIX.{{0,60}}?\s{DRIVER}\s", USUAL),
    saying("driver.version", "mode setting driver", rf"nvidia-modeset: Loading NVIDIA UNIX.{{0,60}}?\s{DRIVER}\s", USUAL),
    saying("driver.version", "nvidia driver will ignore", rf"The {DRIVER} NVIDIA driver will ignore", USUAL),
    saying("driver.version", "driver release", rf"not supported by.{{0,40}}?NVIDIA {DRIVER} driver release", USUAL),
    saying("driver.version", "kernel reported version", rf"kernel reported version is: {DRIVER}", USUAL),
    saying("driver.library_version", "libcuda reported version", rf"libcuda reported version is: {DRIVER}", USUAL),
    saying("driver.library_version", "detected by library", rf"detected by library \S{{1,80}}libcuda\.so\.{DRIVER}", USUAL),
    saying("driver.module_version", "modinfo", rf"modinfo nvidia.{{0,300}}?version: {DRIVER}"),
    saying("driver.version", "nvidia.ko", rf"/nvidia\.ko\S{{0,6}} version: {DRIVER}", USUAL),
    saying("driver.open_module", "open kernel module", r"NVIDIA UNIX Open Kernel Module", value=True),
    saying("driver.version", "driver", rf"{ASKED_FOR}|\bdrivers?\*{{0,2}}(?:[ _]version)?(?: (?:is|are))?[^\w<>≥]{{1,4}}(?:version )?v?{DRIVER}(?!\d|[\d.]*[-_]|\.\d)(?! ?(?:\+|or (?:newer|later|higher|above)))", HINT),
    saying("driver.version", "driver", rf"\b(?:updated|upgraded|installed|downgraded|rolled back|reverted|moved|went)\b[^.\n]{{0,24}}?\bdrivers?\b[^.\d\n]{{0,16}}?\b(?:to|version) (?:version )?v?{DRIVER}\b", GUESS),
    saying("driver.version", "driver", rf"\b(?:have|had|running|using|use|with|on|the|my)(?: the)? (?:NVIDIA )?v?{DRIVER} (?:NVIDIA |Game Ready )?drivers?\b", GUESS),
    saying("driver.version", "driver", rf"{ASKED_FOR}|\b(?:nvidia|gpu|graphics|geforce|my|with|the|on) drivers?(?: version)?(?: is| are|:| =)? v?((?!{FLOORS})[3-6]\d\d)(?![\w+-]|\.\d| ?\+| or | and (?:newer|later|above))", GUESS),
    saying("driver.version", "driver", rf"^\W{{0,6}}(?:nvidia )?driver(?: version)?\W{{1,5}}((?!{FLOORS})[3-6]\d\d)(?![\w+-]|\.\d| ?\+| or )", GUESS),
    saying("driver.version", "with kernel driver", rf"with kernel driver version {DRIVER}", SURE),
    saying("driver.version", "up to date", rf"\bdrivers? (?:is|are) up to date \({DRIVER}\)", HINT),
    saying("driver.version", "nvidia-linux-", rf"NVIDIA-Linux-(?:x86_64|aarch64)-{DRIVER}", GUESS),
    saying("driver.version", "device-", rf"Device-\d: NVIDIA.{{0,120}}?driver: nvidia v: {DRIVER}", SURE),
    saying("driver.version", "was detected", rf"but\s+version {DRIVER} was detected", HINT),
    saying("os.secure_boot", "secureboot", r"SecureBoot enabled", value=True),
    saying("os.secure_boot", "secureboot", r"SecureBoot disabled", value=False),
    saying("os.name", "pretty_name", r'PRETTY_NAME="?([^"=]{3,60})"?', SURE),
    saying("os.name", "distrib_description", r'DISTRIB_DESCRIPTION="?([^"=]{3,60})"', SURE),
    saying("os.name", "operating system", r"Operating System: ([\w .()/-]{3,40}?)(?= {0,2}(?:Kernel|CPE|$))", USUAL),
    saying("os.id", "id=", r"(?<![\w_])ID=\"?([a-z]+)\"?\b", USUAL),
    saying("os.kernel", "platform: linux-", r"(?<!Python )Platform: Linux-([\w.+-]{3,60}?)-(?:x86_64|aarch64)-with", HINT),
    saying("os.kernel", "linux", r"\bLinux \S{1,64} (\d\.\d{1,3}[\w.+-]{1,60}) #?\d"),
    saying("os.kernel", "module build on kernel", r"module build on kernel: (\d\.\d{1,3}[\w.+~-]{1,60})"),
    saying("os.kernel", "kernel: linux", r"Kernel: Linux (\d[\w.+-]{3,60})"),
    saying("os.jetson", "release), revision", r"# (R\d{2} \(release\), REVISION: [\d.]+)", SURE),
    saying("os.jetson", "l4t", r"\bL4T[ :v]{1,3}(R?\d{2}(?:\.\d){0,2})\b", USUAL),
    saying("os.jetson", "l4t-", r"\bl4t-[\w-]{2,24}:r(\d{2}\.\d(?:\.\d)?)", USUAL),
    saying("os.jetson", "nvidia-l4t-core", r"\bnvidia-l4t-core[\s|:]{1,40}(\d{2}\.\d(?:\.\d)?)", USUAL),
    saying("os.jetson", "jetson linux", r"\bJetson Linux \(?[rR]?(\d{2}\.\d(?:\.\d)?)", USUAL),
    saying("os.jetson", "nvidia-jetpack", r"\b(nvidia-jetpack[\s|:]{1,40}\d\.\d(?:\.\d)?)(?=[+-]b)", USUAL),
    saying("os.jetson", "jetpack", r"\b(JetPack[ -]?\d(?:\.\d){0,2})", HINT),
    saying("os.jetson", "jp", r"\b(JP[ -]?[4-9]\.\d(?:\.\d)?)\b", GUESS),
    saying("os.jetson", "jetson", r"\b(Jetson[ -](?:AGX[ -])?(?:Orin|Xavier|Nano|TX\d|Thor|T[45]000)(?:[ -]Nano|[ -]NX)?|Jetson AGX)\b", GUESS),
    saying("os.jetson", "jetson", r"\b(?:on|my|our|a|the|this) (?:NVIDIA )?(Jetson)(?= (?:board|device|dev|module)|[,.:;]|$)", GUESS),
    *(
        saying("os.jetson", needle, r"\b(AGX (?:Orin|Xavier)|(?:Orin|Xavier) (?:Nano|NX|AGX))\b", GUESS)
        for needle in ("agx", "orin", "xavier")
    ),
    saying("os.jetson", "thor", r"\b(AGX Thor|NVIDIA Thor)\b", GUESS),
    saying("os.wsl", "wsl2", r"microsoft-standard-WSL2|\b(?:WSL|wsl)2\b", value=True),
    saying("os.wsl", "@desktop-", r"\w@DESKTOP-[0-9A-Z]{7}:[^\s\\]{1,60}[#$]", HINT, value=True),
    saying("os.wsl", "windows subsystem for linux", r"Windows Subsystem for Linux", HINT, value=True),
    saying("os.wsl", "wsl", r"\b(?:Ubuntu|Debian)(?:[ -]\d\d\.\d\d)?(?: LTS)? (?:app )?\(?WSL(?: ?[12])?\b|\bWSL (?:[Vv]ersion|Ubuntu|Debian|terminal|shell)\b", HINT, value=True),
    saying("os.wsl", "wsl", r"(?:^|[^\w\s])\s{0,4}WSL ?2?(?:[,:]| \(|(?= on Windows)) ?(?:Ubuntu|Debian| on Windows)|\b(?:OS|[Ss]ystem|[Pp]latform|[Ee]nvironment)\*{0,2}(?: version)?[:=|* ]{1,4}(?:Windows[\w ]{0,6}[/+,( ]{1,3})?WSL\b", HINT, value=True),
    saying("os.wsl", "/usr/lib/wsl", r"/usr/lib/wsl/lib", value=True),
    saying("os.wsl", "wsl", r"(?<!not )\b(?:[Oo]n|[Ii]n|[Uu]nder|[Uu]sing|[Ii]nside|[Mm]y|[Vv]ia|[Tt]hrough|[Ww]ith) (?:WSL|wsl)(?: ?[12])?\b", HINT, value=True),
    saying("os.libc", "ldd", r"ldd \((?:Ubuntu |Debian )?(GN?U|E?GLIBC)", GUESS, value=""),
    saying("memory.memlock_kib", "max locked memory", r"max locked memory\W{0,4}\(kbytes, -l\) (\d{1,12})\b"),
)  # fmt: skip

LSPCI = lazy(
    r"(?:^|\s)((?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]) "
    r"(?:VGA compatible controller|3D controller|Display controller)(?: \[\d{4}\])?: (.{3,160})"
)
IN_USE = lazy(r"Kernel driver in use: ([\w-]+)")
VENDORS = tuple((maker.id, maker.listed) for maker in MAKERS if maker.listed)


def machine_tools(text: Text) -> Iterator[Fact]:
    yield from _with_names(claims(text, ROWS))
    for reader in (lspci, lsmod, nodes, uname, systems, shm, computers):
        yield from reader(text)


def _with_names(told: Iterator[Claim]) -> Iterator[Fact]:
    """A system's name also says which family it is of, and a kernel's what it runs on."""
    for claim in told:
        if claim.subject == "os.name" and (family := family_of(str(claim.value))):
            yield Claim(subject="os.family", value=family, source=claim.source, trust=USUAL)
        if claim.subject == "os.kernel":
            yield Claim(subject="os.family", value="linux", source=claim.source, trust=USUAL)
            yield from kernel_facts(str(claim.value), claim.source)
        if claim.subject == "memory.memlock_kib":
            size = int(str(claim.value)) << 10
            yield Claim(subject="memory.memlock_bytes", value=size, source=claim.source)
        elif claim.value != "":
            yield claim


def lspci(text: Text) -> Iterator[Fact]:
    """Display controllers, with the kernel driver that the lines after one name."""
    if "controller" not in text.low:
        return
    for number, line in enumerate(text.lines):
        found = LSPCI.search(line)
        if found:
            after = " ".join(text.lines[number + 1 : number + 8]).split(" controller")[0]
            bound = IN_USE.search(after)
            yield pci_device(found.group(1), found.group(2), bound.group(1) if bound else None)


def pci_device(bus: str | None, name: str, driver: str | None) -> PciDevice:
    """
    >>> pci_device("01:00.0", "NVIDIA Corporation GA106M [GeForce RTX 3060] (rev a1)", None).vendor
    'nvidia'
    """
    vendor = next((v for v, words in VENDORS if re.search(words, name)), "unknown")
    return PciDevice(vendor=vendor, bus_id=bus, name=name.partition(" (rev")[0], driver=driver)


MODULE = lazy(rf"^({'|'.join(MODULES)})\s+\d{{4,9}}\s+\d+")


def lsmod(text: Text) -> Iterator[Fact]:
    for number, line in enumerate(text.lines):
        bare = line.lstrip()
        if bare[:2] in ("nv", "no") and (found := MODULE.match(bare)):
            source = f"lsmod, line {number + 1}"
            subject = f"driver.{MODULES[found.group(1)]}"
            yield Claim(subject=subject, value=True, source=source)


NODE = lazy(r"^(c[rwxstST-]{9})[.+]?\s+\d+\s+\S+\s+\S+\s+\d+,\s*\d+\s.{5,20}?\s(/dev/(?:nvidia|dxg|nvhost|nvmap)\S*)$")  # fmt: skip


SYSTEM = lazy(
    r"(?<![\w/-])(?!\w{4,7} \d{1,2}(?:\.\d{1,2}){1,2}-\d)(Ubuntu|Debian|Fedora|CentOS|Rocky Linux|AlmaLinux|RHEL|Linux Mint|Pop!_OS|openSUSE|Arch Linux|Manjaro|NixOS"
    r"|Windows (?:10|11|7|8\.1|Server \d{4})|macOS (?:Ventura|Sonoma|Sequoia|Monterey|Big Sur|\d\d)) ?-?(\d{1,2}(?:\.\d{1,2})?)?(?![\w-])",
    re.I,
)
"""A system and its version; not who built a compiler: `gcc (Ubuntu 11.4.0-1ubuntu1) 11.4.0`."""
NAMED_WITHIN = 100_000


def systems(text: Text) -> Iterator[Fact]:
    """A system's name in a remark: `Ubuntu 21.04`."""
    if found := SYSTEM.search(text.flat, 0, NAMED_WITHIN):
        source, name = text.source(found.start()), found.group().strip(" -")
        yield Claim(subject="os.name", value=name, source=source, trust=HINT)
        family = family_of(name)
        if family:
            yield Claim(subject="os.family", value=family, source=source, trust=HINT)


SIZES = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
SHM = lazy(r"^(?:tmpfs|shm|none)\s+(\d{1,6}(?:\.\d)?)([KMGT])i?B?(?:\s+[\d.]+[KMGT]?i?B?){2}\s+\d+%\s+/dev/shm\b")  # fmt: skip


def shm(text: Text) -> Iterator[Fact]:
    """The line of `df -h` about /dev/shm."""
    for number, line in enumerate(text.lines):
        if "/dev/shm" in line and (found := SHM.match(line)):
            total, unit = found.groups()
            source = f"df, line {number + 1}"
            size = int(float(total) * SIZES[unit])
            yield Claim(subject="memory.shm_total_bytes", value=size, source=source)


ARC_NUMBERS = ("a310", "a380", "a580", "a750", "a770", "b570", "b580")
BY_MODEL = frozenset((*ARC_NUMBERS, "intel arc", "arc(tm)", "rx ", "rx", "0xt", "0 xt"))
"""The letters of rows that a card's name alone fulfils."""
NVIDIAS = lazy(r"NVIDIA|GeForce|\b(?:RTX|GTX|Tesla)\b")
NEAR = 120
"""So many letters around a card's number are its sentence."""
COMPUTERS = (
    (
        "radeon",
        lazy(
            r"(?<![Ww]ith )((?:AMD )?Radeon(?:\(TM\))? (?:RX|Pro|VII|Graphics|Instinct|\d{3,4}(?:[MS]| ?XTX?\b))[\w ]{0,16})"
        ),
        "amd",
    ),
    ("gfx", lazy(r"\b(gfx(?:9|10|11|12)\d{1,2}[a-f]?)\b"), "amd"),
    (
        "rocm",
        lazy(
            r"(?<![\w+.])(ROCk module is loaded|rocm-smi|rocBLAS error|HIP error|hipErrorNoBinaryForGpu)"
        ),
        "amd",
    ),
    (
        "amd",
        lazy(
            r"(?<![\w/])(?<!or )(?<!and )(?<![Nn]o )(?<!uses )(?<!for )(?<!support )(?<!supports )(?<!your )((?:[Aa][Mm][Dd] (?:GPU|gpu|i?GPU|APU|RX|[Gg]raphics? card|card|[Ss]etup|[5-9]\d{3} ?(?:XTX?|xtx?|GRE)))\b)"
        ),
        "amd",
    ),
    ("rx ", lazy(r"\b(RX ?(?:Vega|[4-9]\d{2,3}) ?(?:XTX?|GRE|M)?)\b"), "amd"),
    (
        "rx",
        lazy(
            r"\b([Rr][Xx][ -]?(?:4[678]0|5[5-9]0|5[3-7]00|6[3-9]50|6[4-9]00|7[6-9]00|90[67]0)(?: ?[Xx][Tt][Xx]?)?)\b"
        ),
        "amd",
    ),
    ("0xt", lazy(r"(?<![\w.])((?:RX ?)?[5-9]\d[056]0[Xx][Tt][Xx]?)\b"), "amd"),
    ("0 xt", lazy(r"(?<![\w.])((?:RX ?)?[5-9]\d[056]0 [Xx][Tt][Xx]?)\b"), "amd"),
    ("显卡", lazy(r"(AMD ?显卡)"), "amd"),
    ("vega", lazy(r"(?i)\b((?:radeon |rx ?)?vega ?(?:56|64|frontier))\b"), "amd"),
    ("r9 ", lazy(r"(?i)\b((?:amd |radeon )?r9 (?:2[789]0x?|3[89]0x?|fury|nano))\b"), "amd"),
    ("strix halo", lazy(r"(?i)\b(strix halo)\b"), "amd"),
    ("ryzen ai max", lazy(r"(?i)\b(ryzen ai max\+?)"), "amd"),
    ("0s", lazy(r"\b((?:Radeon )?80[56]0S)\b"), "amd"),
    ("00", lazy(r"(?<![\w.-])((?:Radeon )?(?:[Pp][Rr][Oo] )?W[67][5689]00)\b"), "amd"),
    ("hip_visible_devices", lazy(r"\b(HIP_VISIBLE_DEVICES ?= ?['\"]?\d)"), "amd"),
    ("hipm", lazy(r"\b(hipM(?:alloc|emcpy)\w{0,12})\b"), "amd"),
    ("hiperror", lazy(r"(hipErrorNoBinaryForGpu)"), "amd"),
    ("hip error", lazy(r"(HIP error): "), "amd"),
    ("rocm-capable", lazy(r"(no ROCm-capable device)"), "amd"),
    ("hsa_status_error", lazy(r"(HSA_STATUS_ERROR\w*)"), "amd"),
    ("access fault by gpu node", lazy(r"(Memory access fault by GPU node)"), "amd"),
    ("hsa_override", lazy(r"(HSA_OVERRIDE_GFX_VERSION ?=)"), "amd"),
    ("miopen", lazy(r"(MIOpen(?: Error|: [Ee]rror|\(HIP\)))"), "amd"),
    ("rocm error", lazy(r"(?<!no )(ROCm error): \w"), "amd"),
    (
        "libamdhip64",
        lazy(r"(?:fault|SIGSEGV|signal 11|crash\w*)\b.{0,300}?(libamdhip64\.so)"),
        "amd",
    ),
    ("/opt/rocm", lazy(r"#\d{1,2} .{0,90}?(/opt/rocm\S{0,40}/lib(?:64)?/\S{4,40}\.so)"), "amd"),
    (
        "mi",
        lazy(r"(?<![\w.-])(MI(?:100|210|250X?|300[AX]|325X|35[05]X))(?! or| and|,|/)\b"),
        "amd",
    ),
    (
        "intel arc",
        lazy(r"(?<!, )(?<!and )(?<!or )(Intel Arc (?:Pro [AB]\d{2}|B-[Ss]eries))\b"),
        "intel",
    ),
    ("intel arc", lazy(r"(Intel Arc (?:[AB]\d{3}\w?|1\d0[VT]))"), "intel"),
    (
        "intel arc",
        lazy(
            r"(?<!or )(?<!and )(?<!, )(?<!for )(?<!support )(?<!supports )(?<!with )(?<!your )(Intel Arc (?:GPU|[Gg]raphics|[Ii]ntegrated|iGPU))"
        ),
        "intel",
    ),
    *(
        (
            number,
            lazy(
                rf"(?i)(?<!or )(?<!and )(?<!, )(?<!for )(?<!support )(?<!supports )(?<!your )\b((?:Inte[lr](?:\(R\))?|Arc)(?: Arc(?:\(TM\))?)?(?: Pro)? ?{number}m?)\b"
            ),
            "intel",
        )
        for number in ARC_NUMBERS
    ),
    ("instinct", lazy(r"(AMD Instinct MI\d+\w?)"), "amd"),
    ("arc(tm)", lazy(r"(Intel\(R\) Arc\(TM\) [\w ]{1,24})"), "intel"),
    ("dispatch key: xpu", lazy(r"(dispatch key: XPU)"), "intel"),
    ("chip: apple", lazy(r"(?:Chip|CPU): (Apple M\d[\w ]{0,10})"), "apple"),
    ("apple m", lazy(r"\b(Apple M[1-9](?: Pro| Max| Ultra)?)\b"), "apple"),
)
"""Letters, a pattern that has the name, and the maker: words of programs that list graphics."""


def _stands_beside_nvidias(text: str, found: re.Match[str]) -> bool:
    """Whether a sentence names a card of NVIDIA's, too: then nothing tells which one computes."""
    return NVIDIAS.search(text[max(found.start() - NEAR, 0) : found.end() + NEAR]) is not None


def _is_another_mac(text: Text, found: re.Match[str]) -> bool:
    return is_in_passing("os.family", text.flat, *found.span())


def computers(text: Text) -> Iterator[Fact]:
    """Graphics that are not NVIDIA's, by the words of programs that list them."""
    for needle, pattern, vendor in COMPUTERS:
        if needle in text.low and (found := pattern.search(text.flat)):
            if needle in BY_MODEL and _stands_beside_nvidias(text.flat, found):
                continue
            if vendor == "apple" and _is_another_mac(text, found):
                continue
            yield foreign_gpu(vendor, found.group(1).strip(), text.source(found.start()))
            if vendor == "apple":
                for subject, value in (("os.machine", "aarch64"), ("os.family", "macos")):
                    yield Claim(subject=subject, value=value, source="report", trust=HINT)


def nodes(text: Text) -> Iterator[Fact]:
    for line in text.lines:
        bare = line.strip()
        if bare[:1] == "c" and (found := NODE.match(bare)):
            mode = found.group(1)
            yield DeviceNode(path=found.group(2), mode=mode)


UNAME = lazy(r"\b(Linux|Darwin) \S{1,64} \d[\w.+-]{3,60} .{10,160}?\b(x86_64|aarch64|arm64|ppc64le|armv[67]l|i[3-6]86)\b")  # fmt: skip


def uname(text: Text) -> Iterator[Fact]:
    if "gnu/linux" not in text.low and "darwin" not in text.low:
        return
    if found := UNAME.search(text.flat):
        source = text.source(found.start())
        family = "linux" if found.group(1) == "Linux" else "macos"
        machine = "aarch64" if found.group(2) == "arm64" else found.group(2)
        yield Claim(subject="os.family", value=family, source=source, trust=SURE)
        yield Claim(subject="os.machine", value=machine, source=source)
