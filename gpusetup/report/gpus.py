"""The GPUs that a text names: those that programs list by number, else the one it speaks of.

A bare number is no GPU: the word of a maker or of a series stands in front of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpusetup.catalog.gpus import SERIES_WORDS, tokens
from gpusetup.messages.search import Text, event
from gpusetup.model.machine import Gpu
from gpusetup.model.patterns import lazy
from gpusetup.model.versions import Capability
from gpusetup.report.facts import GUESS, HINT, SURE, Claim, Facts, Gpus
from gpusetup.report.mentions import CARD_AROUND, is_another_card

LETTER = r"A-Za-z0-9_\u00c0-\u04ff"
"""What may not touch a name: Latin and Cyrillic letters. Chinese, Japanese and Korean have no space
between a name and the words around it."""
ENDING = (
    r"(?:[ -]?(?:Ti|SUPER)|D|[ -](?:Laptop(?: GPU)?|Mobile|(?:with )?Max-Q(?: Design)?|Ada(?: Generation)?|Blackwell"
    rf"|(?:Workstation|Server) Edition|D))(?![{LETTER}])"
)
BOARD = rf"(?:[ -](?:PCI-?e|SXM\d?|NVL|HBM\d\w?|\d{{1,3}} ?GB))(?![{LETTER}])"
NAME = (
    rf"(?P<name>(?<![{LETTER}.-])(?:NVIDIA[ -])?(?:(?:(?:GeForce |Quadro |TITAN )*(?:(?:RTX|GTX|GT|MX|Quadro|GeForce)[ -]?(?:PRO )?[APKMT]?\d{{3,4}}(?:MX?)?|TITAN (?:Xp|X|V|RTX|Black|Z))(?:{ENDING})*)"
    r"|(?:(?:(?<=NVIDIA )|(?:Tesla|GRID) )[ABHLTVPKMC]\d{1,3}\w{0,2}|(?<=NVIDIA )(?:Graphics Device|Thor)"
    rf"|V100S?|A[456]000|A100|H[12]00|B200|L40S|T4|K80|P100|P40|M40|GB10|DGX Spark|GH200|Orin \(nvgpu\))(?:{BOARD})*)(?![{LETTER}/]))"
)
"""An NVIDIA GPU as nvidia-smi, programs and people call it."""
GPU_NAME = lazy(NAME, re.I)
NUMBERED_GPU = lazy(
    rf"\b(?:GPU|CUDA|device)\W{{0,4}}(?:cuda:)?(?P<numbers>\d{{1,2}}(?:,\d{{1,2}}){{0,15}})(?:\b[\W_]{{1,6}}|: \d{{3,6}}MB \| |.{{0,20}}name='){NAME}(?: \(arch=(?P<capability>\d\.\d)\))?",
    re.I,
)
"""How programs list GPUs when they start."""
FAMILIES = {
    "Blackwell": (
        lazy(
            r"\bblackwell\b(?! support)|\bRTX ?50(?:[ -]?series|xx)\b|(?<![\d.])50 ?系(?:列)?", re.I
        ),
        12,
        0,
    ),
    "Pascal": (lazy(r"\bpascal gpu|\b(?:GTX ?)?10(?:[ -]?series|xx)\b", re.I), 6, 1),
}
"""What a GPU is called if no model is named."""
CHARACTERS_READ, MAX_GPUS = 200_000, 16


def gpus(text: Text) -> Facts:
    listed = {
        int(number): Gpu(
            name=listing["name"],
            cuda_index=int(number),
            compute_capability=Capability.parse(listing["capability"])
            if listing["capability"]
            else None,
        )
        for listing in reversed(list(NUMBERED_GPU.finditer(text.flat, 0, CHARACTERS_READ)))
        for number in listing["numbers"].split(",")
    }
    if listed:
        numbered = tuple(gpu for _, gpu in sorted(listed.items()))[:MAX_GPUS]
        yield Gpus(numbered, "report", HINT)
    elif gpu := only_gpu_named(text):
        yield Gpus((gpu,), "report", GUESS)


BARE_NUMBER = lazy(
    r"(?<![A-Za-z0-9_.$€/:+-])(?P<number>(?:[2345]0[5-9]0|16[56]0|10[5-8]0)(?:[ -]?(?:Ti|SUPER)|[SD](?![A-Za-z]))*)(?P<laptop>[ -]?(?:Laptop|Mobile|Notebook))?(?![\w%]|[.:]\d|xx)"
    r"(?P<size> ?\(?(?:\d{1,2} ?G(?:i?B)?\b|\d{1,2} ?ГБ|\d{1,2}GB))?(?P<laptop2> ?Laptop)?",
    re.I,
)
"""A GeForce card by its number alone, as people call it."""
SUFFIXES = {"ti": " Ti", "super": " Super", "s": " Super"}
CARD_WORD = lazy(
    r"(?:\b(?:my|an?|the|new|laptop|notebook|desktop|with|on|has|have|got|own|own an?|NVIDIA|GeForce|card|graphics|gpu|cards?|gpu is|using an?|bought an?)|neuen?|neuer|alten?|meiner?|meinem|auf|mit|einer?|einem|une?|ma|mon|sur|avec|mi|una?|con|minha|uma|com|на|моей|моя|с|显卡(?:是|为)?|显卡:|видеокарт\w|карт\w|グラボ(?:は)?|그래픽카드(?:는)?|Karte|carte|tarjeta|placa)[ :]{0,3}$",
    re.I,
)
"""What stands before such a number, so that it is a card's."""
SERIES = lazy(r"\b(?:RTX ?|GTX ?)?(?P<series>10|16|20|30|40|50)(?:[ -]?series|xx)\b", re.I)


def only_gpu_named(text: Text) -> Gpu | None:
    """The GPU that people name in a sentence, if the whole text speaks of one only.

    A card that is named beside the one that failed ("on my old 3080 it worked") does not count.
    """
    named: dict[frozenset[str], str] = {}
    for name in (*_full_names(text), *_bare_numbers(text)):
        words = tokens(name) - SERIES_WORDS
        # "5070 Ti" and "RTX 5070 Ti Laptop GPU" are one card: the fuller name stays.
        if any(words < other for other in named) or len(named.get(words, "")) > len(name):
            continue
        named = {other: full for other, full in named.items() if not other <= words}
        named[words] = name
    if named:
        name = named.popitem()[1].replace("DGX Spark", "GB10")
        return None if named else Gpu(name=name)
    if len({match["series"] for match in SERIES.finditer(text.flat, 0, CHARACTERS_READ)}) > 1:
        return None  # a list of what a program supports
    for family, (pattern, *capability) in FAMILIES.items():
        if pattern.search(text.flat, 0, CHARACTERS_READ):
            return Gpu(name=f"a {family} GPU", compute_capability=Capability(*capability))
    return None


def _full_names(text: Text) -> Iterator[str]:
    for match in GPU_NAME.finditer(text.flat, 0, CHARACTERS_READ):
        if not is_another_card(text.flat, match.start(), match.end()):
            yield match["name"]


def _bare_numbers(text: Text) -> Iterator[str]:
    """Cards by their numbers, if a word of a card, a size or a suffix stands beside the number."""
    for match in BARE_NUMBER.finditer(text.flat, 0, CHARACTERS_READ):
        before = text.flat[max(match.start() - CARD_AROUND, 0) : match.start()]
        suffixed = not match["number"][-1].isdigit() or match["laptop"] or match["laptop2"]
        if not (suffixed or match["size"] or CARD_WORD.search(before)):
            continue
        if not is_another_card(text.flat, match.start(), match.end()):
            line = "GTX" if match["number"].startswith("1") else "RTX"
            number = re.sub(
                r"(?i)(?<=[\di])[ -]?(ti|super|s)(?![a-z])",
                lambda suffix: SUFFIXES[suffix[1].lower()],
                match["number"],
            )
            laptop = " Laptop GPU" if match["laptop"] or match["laptop2"] else ""
            yield f"{line} {number}{laptop}"


# --- torch's own words about a GPU that it has no kernels for, torch 0.3 to 2.13 -------------------
# `old_gpu_warn`, `incompatible_device_warn` and `_warn_unsupported_code` of torch/cuda/__init__.py.

NEEDLES = ("which is of cuda capability", "which is of compute capability", "is not compatible", "supports cuda capabilities")  # fmt: skip
WARNING = lazy(
    r"(?:Found GPU ?(?P<index>\d{1,3}|%d) (?P<model>%s|[\w .()/+-]{2,56}?) which is of (?:cuda|compute) capability (?:\(CC\) )?(?P<capability>\d{1,2}\.\d|%d\.%d)\.?"
    r"|(?P<words>(?:[\w()/+.-]{1,24} ){1,8})with CUDA capability (?P<sm>sm_\d{2,3}a?) is not compatible(?: with the current PyTorch|$|[^\w ])"
    r"|PyTorch install (?=supports CUDA capabilities))(?=(?P<rest>.{0,800}))"
)
KERNELS = lazy(r"^.{0,90}?supports CUDA capabilities((?: (?:sm|compute)_\d{2,3}[af]?){1,20})")
CAPABILITIES = r"- (\d{1,2}\.\d) which supports hardware CC >="
LIMITS = lazy(
    r"minimum cuda capability supported by this library is (\d{1,2}\.\d)"
    r"|supported by this version of PyTorch is \(?(\d{1,2}\.\d)\)? - \(?(\d{1,2}\.\d)\)?"
)
BRAND = r"(?:NVIDIA|GeForce|Quadro|Tesla|TITAN|GRID).*"


def capability_warnings(text: Text) -> Facts:
    """Warnings about the compute capability, as events and as GPUs."""
    warned: dict[tuple[str | None, str], Gpu] = {}
    for offset, window in text.near(*NEEDLES):
        for warning in WARNING.finditer(window):
            rest = warning["rest"].split("Found GPU")[0]
            start, end = offset + warning.start(), offset + warning.start("rest")
            if kernels := _kernels(rest):
                yield Claim("torch.kernels", " ".join(kernels), text.source(start), SURE)
            capability = warning["capability"] or warning["sm"] or ""
            if "%" in capability:
                yield event(text, "gpu-not-in-wheel", start, end, {"side": "old"})
            elif capability:
                gpu = _warned_gpu(warning, capability)
                warned[warning["index"], gpu.name] = gpu
                by_name = warning["sm"] is not None
                kind, values = _warning_event(gpu, kernels, rest, by_name=by_name)
                if kind:
                    yield event(text, kind, start, end, values)
    numbered = {name for index, name in warned if index}
    gpus = (gpu for (index, name), gpu in warned.items() if index or name not in numbered)
    if different := tuple(gpus):
        yield Gpus(different, "torch's warning", HINT)


def _kernels(warning: str) -> list[str]:
    if named := KERNELS.search(warning):
        return named[1].split()
    return [f"sm_{capability.replace('.', '')}" for capability in re.findall(CAPABILITIES, warning)]


def _warned_gpu(warning: re.Match[str], capability: str) -> Gpu:
    brand = re.search(BRAND, warning["words"] or "")
    name = brand[0] if brand else warning["model"] or warning["words"].split()[-1]
    return Gpu(
        name=name.strip(),
        cuda_index=None if warning["index"] is None else int(warning["index"]),
        compute_capability=Capability.parse(capability),
    )


def _warning_event(
    gpu: Gpu, kernels: list[str], rest: str, *, by_name: bool
) -> tuple[str, dict[str, str]]:
    """What a warning shows of the GPU that it names: that it is older or newer than the kernels, or
    nothing but a later minor of the newest major, which runs them."""
    own = gpu.compute_capability or Capability(0, 0)
    values = {"gpu": gpu.name, "capability": str(own)}
    limits = LIMITS.search(rest)
    known = [Capability.parse(text) for text in limits.groups() if text] if limits else []
    if len(known) == 2 and known[0] <= own and own.major <= known[1].major:
        return "capability-warning", values
    known = known or [*map(Capability.parse, kernels)]
    if not (known or by_name or "too old" in rest):
        return "", {}
    old = own < max(known) if known else own <= Capability(7, 5)
    listed = {"kernels": " ".join(capability.sm for capability in known)} if known else {}
    return "gpu-not-in-wheel", {**values, "side": "old" if old else "new", **listed}
