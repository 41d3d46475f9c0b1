"""Finds the hardware in a text: PCI devices, device nodes, and GPUs from other makers."""

from __future__ import annotations

import re

from gpusetup.accelerators.amd import BOARDS, gfx_of
from gpusetup.accelerators.makers import AMD, INTEL, MAKERS, judged_on
from gpusetup.accelerators.other_gpus import has_xpu, maker_named
from gpusetup.messages.search import Text
from gpusetup.model.machine import DeviceNode, Event, Gpu, MakerStack, PciDevice, Snapshot
from gpusetup.model.patterns import in_any_case
from gpusetup.report.facts import CHARACTERS_READ, HINT, Claim, Facts

# `01:00.0 VGA compatible controller [0300]: NVIDIA Corporation GA106M [GeForce RTX 3060]`.
LSPCI = re.compile(
    r"(?:^|\s)((?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]) "
    r"(?:VGA compatible controller|3D controller|Display controller)(?: \[\d{4}\])?: (.{3,160})"
)
IN_USE = re.compile(r"Kernel driver in use: ([\w-]+)")
# `[8086:0bda]`, or `Device 0bda` if the list of names does not have the device yet.
DEVICE_ID = re.compile(r"(?:\[[0-9a-f]{4}:(?=.{4}\])|\bDevice )([0-9a-f]{4})\b")
DETAIL_LINES = 7
"""The number of lines below a device in `lspci -k` that are searched for its driver."""
# `crw-rw-rw- 1 root root 195, 0 May  3 10:00 /dev/nvidia0`.
NODE = re.compile(r"^\s*(c[rwxstST-]{9})[.+]?\s+\d+\s+\S+\s+\S+\s+\d+,\s*\d+\s.{5,20}?\s(/dev/(?:nvidia|dxg|nvhost|nvmap)\S*)$")  # fmt: skip


def pci_devices_and_nodes(text: Text) -> Facts:
    """The GPUs listed by `lspci`, device nodes from `ls -l /dev`, and GPUs from other makers."""
    for index, line in enumerate(text.lines):
        if " controller" in line and (listing := LSPCI.search(line)):
            below = " ".join(text.lines[index + 1 : index + 1 + DETAIL_LINES])
            # From the next " controller" on, the lines belong to the next device.
            driver = IN_USE.search(below.partition(" controller")[0])
            name = listing[2]
            # `listed` is a pattern for how lspci names a maker.
            vendors = (one.id for one in MAKERS if one.listed and re.search(one.listed, name))
            device_id = DEVICE_ID.search(name)
            yield PciDevice(
                vendor=next(vendors, "unknown"),
                device_id=device_id[1] if device_id else None,
                bus_id=listing[1],
                name=name.partition(" (rev")[0],
                driver=driver[1] if driver else None,
            )
        elif "/dev/" in line and (node := NODE.match(line)):
            yield DeviceNode(path=node[2], mode=node[1])
    yield from other_makers_gpu_events(text)


def other_makers_gpu(vendor: str, name: str, source: str) -> Event:
    """The event for a GPU that is not from NVIDIA."""
    values = {"vendor": vendor, "name": name}
    return Event(kind="foreign-gpu", values=values, source=source, text=name)


# --- other makers' GPUs ---------------------------------------------------------------------------

NOT_IN_A_LIST = r"(?<!or )(?<!and )(?<!for )(?<!support )(?<!supports )(?<!your )"
"""A lookbehind that leaves out cards that are only one of several: "for NVIDIA or AMD cards",
"supports Intel Arc"."""


OTHER_MAKERS: tuple[tuple[str, tuple[str, ...], re.Pattern[str]], ...] = (
    # ROCm's name for a GPU's architecture.
    ("amd", ("gfx",), re.compile(r"\bgfx(?:[78]0\d|(?:9|10|11|12)\d{1,2}[a-f]?)\b")),
    # `Radeon RX 7900 XTX`, `AMD GPU`, errors of ROCm, HIP and MIOpen, `Strix Halo`, `MI300X`.
    (
        "amd",
        ("radeon", "gpu node", "rocm", "amd", "vega", "r9 ", "strix halo", "80s", "60s", "50s", "w6", "w7", "mi1", "mi2", "mi3", "mi5", "mi6", "hip", "hsa_", "0m igpu", "0m apu", "0m gpu", "0m graphics"),
        re.compile(
            r"(?=[AR])(?<![Ww]ith )(?:AMD )?Radeon(?:\(TM\))? (?:RX|Pro|VII|Graphics|Instinct|\d{3,4}(?:[MS]| ?XTX?\b))(?: \d{3,4}\w?)?(?: ?(?:XTX?|GRE))?"
            r"|(?=[RrHhM])(?<![\w+.])(?<!no )(?:ROCk module is loaded|rocm-smi|rocBLAS error|HIP error(?=: )|hipErrorNoBinaryForGpu|ROCm error(?=: \w)|hipM(?:alloc|emcpy)\w{0,12}|HSA_STATUS_ERROR\w*|HSA_OVERRIDE_GFX_VERSION ?=|MIOpen(?: Error|: [Ee]rror|\(HIP\)))"
            r"|no ROCm-capable device|Memory access fault by GPU node|(?:fault|SIGSEGV|signal 11|crash\w*)\b.{0,300}?(libamdhip64\.so)|#\d{1,2} .{0,90}?(/opt/rocm\S{0,40}/lib(?:64)?/\S{4,40}\.so)"
            rf"|(?=[Aa][Mm][Dd])(?<![\w/]){NOT_IN_A_LIST}(?<![Nn]o )(?<!uses )[Aa][Mm][Dd] (?:GPU|gpu|i?GPU|APU|RX|[Gg]raphics? card|card|[Ss]etup|[5-9]\d{{3}} ?(?:XTX?|xtx?|GRE))\b"
            r"|(?=[Aa][Mm][Dd])(?<![A-Za-z0-9_/])[Aa][Mm][Dd](?: ?[\w-]{1,12})? ?(?:显卡|顯示卡|グラボ|グラフィックボード|그래픽 ?카드)"
            r"|(?=[RrVvAaSs])(?i:\b(?:radeon |rx ?)?vega ?(?:56|64|frontier)\b|\b(?:amd |radeon )?r9 (?:2[789]0x?|3[89]0x?|fury|nano)\b|\bstrix halo\b)"
            r"|\b(?:Radeon )?80[56]0S\b|(?<![\w.-])(?:Radeon )?(?:[Pp][Rr][Oo] )?W[67][5689]00\b|(?<![\w.-])MI(?:25|50|60|100|210|250X?|300[AX]|325X|35[05]X)(?!(?:,? (?:or|and) |, ?|/)(?:Instinct )?MI\d)\b|\b(?:7[468]0M|8[4-9]0M)(?= (?:iGPU|APU|GPU|graphics)\b)|\bVega (?:3|6|7|8|10|11)\b"
        ),
    ),
    # `RX 7900 XTX`, `7900xtx`.
    (
        "amd",
        ("rx", "0xt", "0 xt", "0gre", "0 gre"),
        re.compile(
            r"\bRX ?(?:Vega|[4-9]\d{2,3}) ?(?:XTX?|GRE|[MS])?\b|(?<![A-Za-z0-9_.])(?:RX ?)?[5-9]\d[0567]0 ?(?:[Xx][Tt][Xx]?|[Gg][Rr][Ee])(?![A-Za-z0-9_])"
            r"|\b[Rr][Xx][ -]?(?:4[678]0|5[5-9]0|5[3-7]00|6[3-9]50|6[4-9]00|7[6-9]00|90[67]0)(?: ?[Xx][Tt][Xx]?)?\b"
        ),
    ),
    # `Intel Arc A770`, `arc b580`; torch's `dispatch key: XPU`.
    (
        "intel",
        ("intel arc", "intel(r) arc", "arc(tm)", "arc 1", "gpu max", "gpu flex", "max 1", "flex 1", "a310", "a380", "a580", "a750", "a770", "b570", "b580", "dispatch key: xpu"),
        re.compile(
            rf"(?=[IiAa])(?<!, ){NOT_IN_A_LIST}\b(?:Intel Arc (?:Pro [AB]\d{{2}}|B-[Ss]eries|GPU|[Gg]raphics|[Ii]ntegrated|iGPU)|(?i:(?:Inte[lr](?:\(R\))?|Arc)(?: Arc(?:\(TM\))?)?(?: Pro)? ?(?:a310|a380|a580|a750|a770|b570|b580)m?)\b)"
            r"|(?i:Intel(?:\(R\))? Arc(?:\(TM\))? [AB]\d{3}\w?\b|\b(?:Intel(?:\(R\))? )?Arc(?:\(TM\))? 1\d0[VT]\b)|Intel\(R\) Arc\(TM\) [\w ]{1,24}|dispatch key: XPU"
            r"|(?i:\b(?:Data Cent(?:er|re) GPU|Intel(?:\(R\))?) (?:Max (?:1100|1550)|Flex 1[47]0)\b)|(?<=\b[Oo]n |\b[Mm]y |\b[Aa]n )Intel Arc\b"
        ),
    ),
    # `Apple M3 Max`.
    ("apple", ("apple m",), re.compile(r"\bApple M[1-9](?: Pro| Max| Ultra)?\b")),
)  # fmt: skip
"""A maker, lower-case strings of which every match contains one, and how its GPUs are named."""


# `HIP error: ...`, `amdgpu`, `gfx1100`, `rocm6.2`; but not "ROCM used to build", which collect_env
# prints on every machine.
HIP_WORDS = re.compile(r"hip error|hiperror|amdgpu|gfx[1789]\d|rocm(?! used to build)")
"""Words of a program that runs on an AMD GPU."""
BOARD_ENDING = "(?:(?: ?(?:XTX?|GRE)|[MS])(?![A-Za-z0-9]))?"
"""What may follow a board's number in its name: `RX 6600 XT`."""


def other_makers_gpu_events(text: Text) -> Facts:
    """The first GPU of each maker other than NVIDIA, found by its name or by messages of its
    software; and a board of AMD's whose target is known, if the text is about ROCm."""
    for vendor, needles, pattern in OTHER_MAKERS:
        # The patterns are slow, and most texts contain none of the needles.
        if not text.has_any(needles):
            continue
        match = pattern.search(text.flat)
        if match is None:
            continue
        # In a stack trace, a group holds ROCm's library. Other alternatives have no group.
        name, source = match[match.lastindex or 0], text.source(match.start())
        yield other_makers_gpu(vendor, name.strip(), source)
        if vendor == "apple":
            yield Claim("os.machine", "aarch64", source, HINT)
            yield Claim("os.family", "macos", source, HINT)
    # Without words of ROCm, a Radeon may be the second GPU of a machine with one from NVIDIA.
    if not HIP_WORDS.search(text.low):
        return
    for board, _ in BOARDS:
        pattern = in_any_case(f"(?:{board}){BOARD_ENDING}")
        if named := pattern.search(text.flat, 0, CHARACTERS_READ):
            yield other_makers_gpu("amd", named[0].strip(), text.source(named.start()))


def stack_named(machine: Snapshot) -> MakerStack | None:
    """The AMD or Intel GPU that a text names, for which torch's build is then chosen; None if it
    names neither or both, also shows an NVIDIA GPU, or names a GPU that torch has no build for."""
    kinds = ("foreign-gpu", "hip-kernel-missing")
    named = [event.values for event in machine.events if event.kind in kinds]
    names = [values.get("gfx") or values.get("name", "") for values in named]
    # A missing kernel of HIP names no maker, because HIP is AMD's.
    vendors = {values.get("vendor", AMD.id) for values in named}
    has_nvidia = machine.gpus or judged_on(machine.pci_devices) or machine.driver.version
    # torch has no ROCm or XPU build for a Mac.
    if has_nvidia or machine.os.family == "macos":
        return None
    if vendors == {AMD.id}:
        of_known_target = list(filter(gfx_of, names)) or ["AMD GPU"]
        # The first name tells the target, but a card's name says more to a reader.
        target = gfx_of(of_known_target[0])
        names_of_gpu = [name for name in of_known_target if gfx_of(name) == target]
        name = min(names_of_gpu, key=lambda name: name.startswith("gfx"))
        gpu = Gpu(name=name, maker=AMD.id, target=target)
        return MakerStack(maker=AMD.id, gpus=(gpu,))
    with_xpu = [name for name in names if maker_named(name) is INTEL and has_xpu(name)]
    if vendors == {INTEL.id} and with_xpu:
        return MakerStack(maker=INTEL.id, gpus=(Gpu(name=with_xpu[0], maker=INTEL.id),))
    return None
