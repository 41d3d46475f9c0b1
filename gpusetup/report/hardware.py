"""The hardware that a text shows: PCI devices, device nodes, other makers' GPUs."""

from __future__ import annotations

import re

from gpusetup.accelerators.amd import BOARDS
from gpusetup.accelerators.makers import MAKERS
from gpusetup.messages.search import Text
from gpusetup.model.machine import DeviceNode, Event, PciDevice
from gpusetup.model.patterns import in_any_case, lazy
from gpusetup.report.facts import HINT, Claim, Facts
from gpusetup.report.mentions import is_another_card, is_only_mentioned

LSPCI = lazy(
    r"(?:^|\s)((?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]) "
    r"(?:VGA compatible controller|3D controller|Display controller)(?: \[\d{4}\])?: (.{3,160})"
)
IN_USE = lazy(r"Kernel driver in use: ([\w-]+)")
VENDORS = tuple((maker.id, maker.listed) for maker in MAKERS if maker.listed)
NODE = lazy(r"^\s*(c[rwxstST-]{9})[.+]?\s+\d+\s+\S+\s+\S+\s+\d+,\s*\d+\s.{5,20}?\s(/dev/(?:nvidia|dxg|nvhost|nvmap)\S*)$")  # fmt: skip


def pci_devices_and_nodes(text: Text) -> Facts:
    for number, line in enumerate(text.lines):
        if " controller" in line and (found := LSPCI.search(line)):
            after = " ".join(text.lines[number + 1 : number + 8]).split(" controller")[0]
            bound = IN_USE.search(after)
            yield pci_device(found[1], found[2], bound[1] if bound else None)
        elif "/dev/" in line and (node := NODE.match(line)):
            yield DeviceNode(path=node[2], mode=node[1])
    yield from amd_boards(text)
    yield from other_makers_gpu_events(text)


def pci_device(bus: str | None, name: str, driver: str | None) -> PciDevice:
    """
    >>> pci_device("01:00.0", "NVIDIA Corporation GA106M [GeForce RTX 3060] (rev a1)", None).vendor
    'nvidia'
    """
    vendor = next((v for v, words in VENDORS if re.search(words, name)), "unknown")
    return PciDevice(vendor=vendor, bus_id=bus, name=name.partition(" (rev")[0], driver=driver)


NVIDIA_WORD = lazy(r"NVIDIA|GeForce|\b(?:RTX|GTX|Tesla)\b")
CHARACTERS_NEAR = 120
"""So many letters around a card's number are its sentence."""
NOT_IN_A_LIST = r"(?<!or )(?<!and )(?<!for )(?<!support )(?<!supports )(?<!your )"
"""A card that is only one of several."""
OTHER_MAKERS = (
    ("amd", ("gfx",), lazy(r"\bgfx(?:9|10|11|12)\d{1,2}[a-f]?\b")),
    (
        "amd",
        ("radeon", "gpu node", "rocm", "amd", "vega", "r9 ", "strix halo", "80s", "60s", "50s", "w6", "w7", "mi1", "mi2", "mi3", "hip", "hsa_"),
        lazy(
            r"(?=[AR])(?<![Ww]ith )(?:AMD )?Radeon(?:\(TM\))? (?:RX|Pro|VII|Graphics|Instinct|\d{3,4}(?:[MS]| ?XTX?\b))(?: \d{3,4}\w?)?(?: ?(?:XTX?|GRE))?"
            r"|(?=[RrHhM])(?<![\w+.])(?<!no )(?:ROCk module is loaded|rocm-smi|rocBLAS error|HIP error(?=: )|hipErrorNoBinaryForGpu|ROCm error(?=: \w)|hipM(?:alloc|emcpy)\w{0,12}|HSA_STATUS_ERROR\w*|HSA_OVERRIDE_GFX_VERSION ?=|MIOpen(?: Error|: [Ee]rror|\(HIP\)))"
            r"|no ROCm-capable device|Memory access fault by GPU node|(?:fault|SIGSEGV|signal 11|crash\w*)\b.{0,300}?(libamdhip64\.so)|#\d{1,2} .{0,90}?(/opt/rocm\S{0,40}/lib(?:64)?/\S{4,40}\.so)"
            rf"|(?=[Aa][Mm][Dd])(?<![\w/]){NOT_IN_A_LIST}(?<![Nn]o )(?<!uses )[Aa][Mm][Dd] (?:GPU|gpu|i?GPU|APU|RX|[Gg]raphics? card|card|[Ss]etup|[5-9]\d{{3}} ?(?:XTX?|xtx?|GRE))\b"
            r"|(?=[RrVvAaSs])(?i:\b(?:radeon |rx ?)?vega ?(?:56|64|frontier)\b|\b(?:amd |radeon )?r9 (?:2[789]0x?|3[89]0x?|fury|nano)\b|\bstrix halo\b)"
            r"|\b(?:Radeon )?80[56]0S\b|(?<![\w.-])(?:Radeon )?(?:[Pp][Rr][Oo] )?W[67][5689]00\b|(?<![\w.-])MI(?:100|210|250X?|300[AX]|325X|35[05]X)(?! or| and|,|/)\b"
        ),
    ),
    (
        "amd",
        ("rx", "0xt", "0 xt"),
        lazy(
            r"\bRX ?(?:Vega|[4-9]\d{2,3}) ?(?:XTX?|GRE|M)?\b|(?<![\w.])(?:RX ?)?[5-9]\d[056]0 ?[Xx][Tt][Xx]?\b"
            r"|\b[Rr][Xx][ -]?(?:4[678]0|5[5-9]0|5[3-7]00|6[3-9]50|6[4-9]00|7[6-9]00|90[67]0)(?: ?[Xx][Tt][Xx]?)?\b"
        ),
    ),
    (
        "intel",
        ("intel arc", "intel(r) arc", "a310", "a380", "a580", "a750", "a770", "b570", "b580", "dispatch key: xpu"),
        lazy(
            rf"(?=[IiAa])(?<!, ){NOT_IN_A_LIST}\b(?:Intel Arc (?:Pro [AB]\d{{2}}|B-[Ss]eries|GPU|[Gg]raphics|[Ii]ntegrated|iGPU)|(?i:(?:Inte[lr](?:\(R\))?|Arc)(?: Arc(?:\(TM\))?)?(?: Pro)? ?(?:a310|a380|a580|a750|a770|b570|b580)m?)\b)"
            r"|Intel Arc (?:[AB]\d{3}\w?|1\d0[VT])|Intel\(R\) Arc\(TM\) [\w ]{1,24}|dispatch key: XPU"
        ),
    ),
    ("apple", ("apple m",), lazy(r"\bApple M[1-9](?: Pro| Max| Ultra)?\b")),
)  # fmt: skip
"""The maker, letters, and how programs and people name its graphics."""
MODEL_ALONE = r"(?!dispatch)(?:Intel|Arc|rx|\d)"
"""A card's name alone: beside one of NVIDIA's nothing tells which of them computes."""


def other_makers_gpu_events(text: Text) -> Facts:
    """Graphics that are not NVIDIA's, by the words of programs that list them."""
    for vendor, needles, pattern in OTHER_MAKERS:
        found = pattern.search(text.flat) if any(needle in text.low for needle in needles) else None
        if found is None:
            continue
        near = text.flat[max(found.start() - CHARACTERS_NEAR, 0) : found.end() + CHARACTERS_NEAR]
        if re.match(MODEL_ALONE, found[0], re.I) and NVIDIA_WORD.search(near):
            continue
        if vendor == "apple" and is_only_mentioned("os.family", text.flat, *found.span()):
            continue
        source = text.source(found.start())
        yield other_makers_gpu(vendor, found[found.lastindex or 0].strip(), source)
        if vendor == "apple":
            for subject, value in (("os.machine", "aarch64"), ("os.family", "macos")):
                yield Claim(subject, value, source, HINT)


HIP_WORDS = lazy(r"hip error|hiperror|amdgpu|gfx[19]\d|rocm(?! used to build)")
"""What a text has that is about a program on an AMD GPU; an NVIDIA laptop names a Radeon too."""


def amd_boards(text: Text) -> Facts:
    """The AMD boards that such a text names, but those that stand beside the one that failed."""
    if not HIP_WORDS.search(text.low):
        return
    for board, _ in BOARDS:
        for found in in_any_case(board).finditer(text.flat, 0, BOARDS_READ):
            if not is_another_card(text.flat, found.start(), found.end()):
                yield other_makers_gpu("amd", found[0].strip(), text.source(found.start()))
                break


BOARDS_READ = 100_000

LISTED_GPUS = lazy(
    r"GPU models and configuration(?: \(e\.g\.[^)]{0,40}\))?\s?: ?(.{0,4000}?)"
    r"(?= ?[-*]* ?(?:Nvidia driver version|(?:cuDNN|PyTorch|Python|CUDA runtime|Libc|GCC) version|HIP runtime|Is (?:XNNPACK|CUDA|debug)"
    r"|Versions of|Any other|Additional context|(?:CPU|OS):|={8,}|```)|$)",
    re.I,
)
OTHER_MAKER = lazy(r"\b(AMD|Radeon|gfx\d{3,4}|Intel|Arc|Apple M\d)", re.I)
BUILT_WITH = lazy(r"CUDA used to build PyTorch: (\S{1,12})")


def collect_env(text: Text) -> Facts:
    """What the lack of NVIDIA GPUs in a collect_env shows."""
    for found in LISTED_GPUS.finditer(text.flat) if "gpu models and" in text.low else ():
        source, value = text.source(found.start()), found[1].strip(" *-")
        if value.startswith("No CUDA"):
            # Beside a CUDA build: nvidia-smi and nvcc gave nothing, torch has no device.
            built = BUILT_WITH.search(text.flat)
            kind = "smi-not-found" if built and built[1][0].isdigit() else "no-nvidia-gpu"
            line = f"{built[0] if built else ''}, GPU models and configuration: No CUDA"
            yield Event(kind=kind, source=source, text=line)
        if foreign := OTHER_MAKER.search(value[:200]):
            vendor = "intel" if foreign[1].lower() in ("intel", "arc") else "amd"
            yield other_makers_gpu(vendor, value[:80], source)


def other_makers_gpu(vendor: str, name: str, source: str) -> Event:
    values = {"vendor": vendor, "name": name}
    return Event(kind="foreign-gpu", values=values, source=source, text=name)
