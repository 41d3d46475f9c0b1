"""Finds the GPUs in a text: those that programs list by number, or else the only one named."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from gpusetup.catalog.gpus import SERIES_WORDS, tokens
from gpusetup.messages.search import Text
from gpusetup.model.machine import Gpu
from gpusetup.model.versions import Capability
from gpusetup.report.facts import CHARACTERS_READ, GUESS, HINT, SURE, Claim, Facts, Gpus
from gpusetup.report.statements import CHARACTERS_BEFORE_CARD, is_another_card

LETTER = r"A-Za-z0-9_\u00c0-\u04ff"
"""The characters that may not stand directly next to a GPU's name, for use inside a character
class: Latin and Cyrillic letters, digits and `_`.

Chinese, Japanese and Korean letters are not included, because these languages write no space
between a name and the words around it.
"""
# ` Ti`, ` Laptop GPU`, ` with Max-Q Design`.
ENDING = (
    r"(?:[ -]?(?:Ti|SUPER)|D|[ -](?:Laptop(?: GPU)?|Mobile|(?:with )?Max-Q(?: Design)?|Ada(?: Generation)?|Blackwell"
    rf"|(?:Workstation|Server) Edition|D))(?![{LETTER}])"
)
# ` PCIe`, `-SXM4`, ` 80GB`.
BOARD = rf"(?:[ -](?:PCI-?e|SXM\d?|NVL|HBM\d\w?|\d{{1,3}} ?GB))(?![{LETTER}])"
# `NVIDIA GeForce RTX 4090 Laptop GPU`, `A100-SXM4-80GB`, `Tesla T4`, `GTX 1080 Ti`, `Quadro P2000`.
NAME = (
    rf"(?P<name>(?<![{LETTER}.-])(?:NVIDIA[ -])?(?:(?:(?:GeForce |Quadro |TITAN )*(?:(?:RTX|GTX|GT|MX|Quadro|GeForce)[ -]?(?:PRO )?[APKMT]?\d{{3,4}}(?:MX?)?|TITAN (?:Xp|X|V|RTX|Black|Z))(?:{ENDING})*)"
    r"|(?:(?:(?<=NVIDIA )|(?:Tesla|GRID) )[ABHLTVPKMC]\d{1,3}\w{0,2}|(?<=NVIDIA )(?:Graphics Device|Thor)"
    rf"|V100S?|A[456]000|A100|H[12]00|B200|L40S|T4|K80|P100|P40|M40|GB10|DGX Spark|GH200|Orin \(nvgpu\))(?:{BOARD})*)(?![{LETTER}/]))"
)
"""An NVIDIA GPU's name as nvidia-smi, programs and people write it."""
GPU_NAME = re.compile(NAME, re.I)
# `GPU 0: NVIDIA A100`, `Device 1: Tesla T4`, `CUDA:0 (NVIDIA A100, 40GB)`, `cuda:0,1 RTX 3090`.
NUMBERED_GPU = re.compile(
    rf"\b(?:GPU|CUDA|device)\W{{0,4}}(?:cuda:)?(?P<numbers>\d{{1,2}}(?:,\d{{1,2}}){{0,15}})(?:\b[\W_]{{1,6}}|: \d{{3,6}}MB \| |.{{0,20}}name='){NAME}(?: \(arch=(?P<capability>\d\.\d)\))?",
    re.I,
)
"""A numbered GPU, as programs list them when they start."""


def gpus(text: Text) -> Facts:
    """The GPUs that programs list by number, or else the only GPU that the text names."""
    numbered: dict[int, Gpu] = {}
    for match in NUMBERED_GPU.finditer(text.flat, 0, CHARACTERS_READ):
        capability = Capability.parse(match["capability"]) if match["capability"] else None
        for number in map(int, match["numbers"].split(",")):
            gpu = Gpu(name=match["name"], cuda_index=number, compute_capability=capability)
            # Keep the first GPU with a number, because later lines may come from another process
            # with another numbering.
            numbered.setdefault(number, gpu)
    if numbered:
        yield Gpus(tuple(gpu for _, gpu in sorted(numbered.items())), "report", HINT)
    elif named := only_gpu_named(text):
        yield Gpus((named,), "report", GUESS)


# --- cards that people name -----------------------------------------------------------------------

# `3080`, `4070 Ti`, `1080ti 11GB`, `3060 laptop`, but not a price, year, resolution or version.
BARE_NUMBER = re.compile(
    r"(?<![A-Za-z0-9_.$€/:+-])(?P<number>(?:[2345]0[5-9]0|16[56]0|10[5-8]0)(?:[ -]?(?:Ti|SUPER)|[SD](?![A-Za-z]))*)(?P<laptop>[ -]?(?:Laptop|Mobile|Notebook))?(?![A-Za-z0-9_%]|[.:]\d|xx)"
    r"(?P<size> ?\(?(?:\d{1,2} ?G(?:i?B)?\b|\d{1,2} ?ГБ|\d{1,2}GB))?(?P<laptop2> ?Laptop)?",
    re.I,
)
"""A GeForce card that people call by its number only."""
# `Ti`, `Super` or `S` after a number or another suffix.
SUFFIX = re.compile(r"(?i)(?<=[\di])[ -]?(ti|super|s)(?![a-z])")
SUFFIXES = {"ti": " Ti", "super": " Super", "s": " Super"}
"""A suffix that people write after a card's number -> NVIDIA's spelling."""
# `my `, `GeForce `, `graphics card `; in seven more languages.
CARD_WORD = re.compile(
    r"(?:\b(?:my|an?|the|new|laptop|notebook|desktop|with|on|has|have|got|own|own an?|NVIDIA|GeForce|card|graphics|gpu|cards?|gpu is|using an?|bought an?)|neuen?|neuer|alten?|meiner?|meinem|auf|mit|einer?|einem|une?|ma|mon|sur|avec|mi|una?|con|minha|uma|com|на|моей|моя|с|显卡(?:是|为)?|显卡:|видеокарт\w|карт\w|グラボ[はを]?|그래픽카드(?:는)?|Karte|carte|tarjeta|placa)[ :?!,(]{0,4}$",
    re.I,
)
"""Words before a number that show that the number means a card."""
CARD_BEHIND = re.compile(r" ?(?:显卡|グラボ|그래픽)")
"""The word for a graphics card, right after a number."""


def only_gpu_named(text: Text) -> Gpu | None:
    """The only GPU that people name in sentences; None if the text names several or none.

    A card that worked, or that another machine has ("on my old 3080 it worked"), does not count.
    """
    names = _different_names(_names_in(text.flat))
    if len(names) != 1:
        return None
    # The GPU in a DGX Spark is called GB10.
    return Gpu(name=names[0].replace("DGX Spark", "GB10"))


def _names_in(flat: str) -> Iterator[str]:
    """The card names in a text: those with a maker or a product line, then bare numbers."""
    for match in GPU_NAME.finditer(flat, 0, CHARACTERS_READ):
        if not is_another_card(flat, match.start()):
            yield match["name"]
    for match in BARE_NUMBER.finditer(flat, 0, CHARACTERS_READ):
        if _is_number_of_card(match, flat) and not is_another_card(flat, match.start()):
            number = SUFFIX.sub(lambda suffix: SUFFIXES[suffix[1].lower()], match["number"])
            # The 10 and 16 series are called GTX, all others RTX.
            product_line = "GTX" if number.startswith("1") else "RTX"
            laptop = " Laptop GPU" if match["laptop"] or match["laptop2"] else ""
            yield f"{product_line} {number}{laptop}"


def _different_names(names: Iterable[str]) -> list[str]:
    """The names of different cards. Of several names for one card, only the most complete one.

    >>> _different_names(["5070 Ti", "RTX 5070 Ti Laptop GPU", "RTX 3080"])
    ['RTX 5070 Ti Laptop GPU', 'RTX 3080']
    """
    by_words: dict[frozenset[str], str] = {}
    for name in names:
        words = tokens(name) - SERIES_WORDS
        # "3080" is taken as a short form of "3080 Ti", because few machines have both.
        is_short_form = any(words < of_other for of_other in by_words)
        # The same words, written out more fully: "NVIDIA GeForce RTX 3080" for "rtx3080".
        is_shorter = len(by_words.get(words, "")) > len(name)
        if is_short_form or is_shorter:
            continue
        # The name replaces its own short forms.
        by_words = {other: card for other, card in by_words.items() if not other <= words}
        by_words[words] = name
    return list(by_words.values())


def _is_number_of_card(match: re.Match[str], flat: str) -> bool:
    """Whether a number means a card, judging by a suffix, a memory size or nearby words."""
    has_suffix = not match["number"][-1].isdigit()
    if has_suffix or match["laptop"] or match["laptop2"] or match["size"]:
        return True
    before = flat[max(match.start() - CHARACTERS_BEFORE_CARD, 0) : match.start()]
    return bool(CARD_BEHIND.match(flat, match.end()) or CARD_WORD.search(before))


# --- torch's own words about a GPU that it has no kernels for, torch 0.3 to 2.13 -------------------
# `old_gpu_warn`, `incompatible_device_warn` and `_warn_unsupported_code` of torch/cuda/__init__.py.
NEEDLES = ("which is of cuda capability", "which is of compute capability", "is not compatible", "supports cuda capabilities")  # fmt: skip
"""Lower-case strings from the three warnings, of which each warning contains one."""
# `Found GPU0 GeForce GT 730 which is of cuda capability 3.5.`; `NVIDIA GeForce RTX 5090 with CUDA
# capability sm_120 is not compatible`; `PyTorch install supports CUDA capabilities`. The group `rest`
# is what follows.
WARNING = re.compile(
    r"(?:Found GPU ?(?P<index>\d{1,3}|%d) (?P<model>%s|[\w .()/+-]{2,56}?) which is of (?:cuda|compute) capability (?:\(CC\) )?(?P<capability>\d{1,2}\.\d|%d\.%d)\.?"
    r"|(?P<words>(?:[\w()/+.-]{1,24} ){1,8})with CUDA capability (?P<sm>sm_\d{2,3}a?) is not compatible(?: with the current PyTorch|$|[^\w ])"
    r"|PyTorch install (?=supports CUDA capabilities))(?=(?P<rest>.{0,800}))"
)
# `supports CUDA capabilities sm_50 sm_60 sm_90`.
KERNELS = re.compile(r"^.{0,90}?supports CUDA capabilities((?: (?:sm|compute)_\d{2,3}[af]?){1,20})")
# `- 8.0 which supports hardware CC >=8.0,<9.0`.
CAPABILITIES = r"- (\d{1,2}\.\d) which supports hardware CC >="
# The GPU's name, if other words precede it in the line.
BRAND = r"(?:NVIDIA|GeForce|Quadro|Tesla|TITAN|GRID).*"
NEWEST_WITHOUT_KERNELS = Capability(7, 5)
"""If a warning lists no kernels, GPUs up to Turing count as too old for torch, others as too new."""


def capability_warnings(text: Text) -> Facts:
    """torch's warnings about compute capabilities as events, with their kernels and GPUs."""
    warned_of: dict[tuple[int | None, str], Gpu] = {}
    # The windows overlap, so a warning may be found twice; `report/merge.py` keeps one event.
    for offset, window in text.near(*NEEDLES):
        for match in WARNING.finditer(window):
            start, end = offset + match.start(), offset + match.start("rest")
            # From "Found GPU" on, the text belongs to the next GPU's warning.
            details = match["rest"].split("Found GPU")[0]
            kernels = _kernels(details)
            if kernels:
                yield Claim("torch.kernels", " ".join(kernels), text.source(start), SURE)
            # torch's template, printed without its values. Only the warning about old GPUs has it.
            if match["capability"] == "%d.%d":
                yield text.event("gpu-not-in-wheel", start, end, {"side": "old"})
                continue
            written = match["capability"] or match["sm"]
            # The warning that only lists kernels names no GPU.
            if not written:
                continue
            # One form has a group for the model. In the other, the model ends the words before
            # "with CUDA capability", from its brand on if they name one.
            words = match["words"] or ""
            brand = re.search(BRAND, words)
            name = (match["model"] or (brand[0] if brand else words.split()[-1])).strip()
            capability = Capability.parse(written)
            index = None if match["index"] is None else int(match["index"])
            gpu = Gpu(name=name, cuda_index=index, compute_capability=capability)
            warned_of[index, name] = gpu
            is_refusal = match["sm"] is not None
            side = _side_of_kernels(capability, kernels, details, is_refusal=is_refusal)
            if side:
                values = {"gpu": name, "capability": str(capability), "side": side}
                yield text.event("gpu-not-in-wheel", start, end, values)
    # A GPU without an index is left out if another warning has the same name with an index.
    indexed = {name for index, name in warned_of if index is not None}
    different = [
        gpu for (index, name), gpu in warned_of.items() if index is not None or name not in indexed
    ]
    if different:
        yield Gpus(tuple(different), "torch's warning", HINT)


def _kernels(warning: str) -> list[str]:
    """The kernels that a warning lists, e.g. `sm_90`; empty if it lists none."""
    if listed := KERNELS.search(warning):
        return listed[1].split()
    # Newer warnings list compute capabilities instead: 8.0 means sm_80.
    return [f"sm_{digits.replace('.', '')}" for digits in re.findall(CAPABILITIES, warning)]


def _side_of_kernels(
    capability: Capability, kernels: Sequence[str], details: str, *, is_refusal: bool
) -> str | None:
    """Whether a warning's GPU is older than torch's kernels (`old`) or newer (`new`); None if the
    warning does not show that torch cannot use it.

    `is_refusal`: whether the warning says that torch is not compatible with the GPU.
    """
    supported = [Capability.parse(name) for name in kernels]
    # Kernels also run on GPUs with the same major version and a higher minor version.
    if any(kernel.major == capability.major and kernel <= capability for kernel in supported):
        return None
    is_old = capability < max(supported) if supported else capability <= NEWEST_WITHOUT_KERNELS
    # torch also prints its two limits for a GPU with a higher minor version, which may work.
    is_too_old = "too old" in details or ("Minimum and Maximum" in details and is_old)
    if not (supported or is_refusal or is_too_old):
        return None
    return "old" if is_old else "new"
