"""The GPUs that a text names: those that programs list by number, else the one it speaks of.

A bare number is no GPU: the word of a maker or of a series stands in front of it.
"""

from __future__ import annotations

import re

from gpusetup.catalog.gpus import SERIES_WORDS, tokens
from gpusetup.messages.search import Text
from gpusetup.model.machine import Gpu
from gpusetup.model.patterns import lazy
from gpusetup.model.versions import Capability
from gpusetup.report.facts import GUESS, HINT, Facts, Gpus

ENDING = (
    r"(?:[ -]?(?:Ti|SUPER)|[ -](?:Laptop(?: GPU)?|Mobile|(?:with )?Max-Q(?: Design)?|Ada(?: Generation)?|Blackwell"
    r"|(?:Workstation|Server) Edition|D))(?!\w)"
)
BOARD = r"(?:[ -](?:PCI-?e|SXM\d?|NVL|HBM\d\w?|\d{1,3} ?GB))(?!\w)"
NAME = (
    rf"(?P<name>(?<![\w.-])(?:NVIDIA[ -])?(?:(?:(?:GeForce |Quadro |TITAN )*(?:(?:RTX|GTX|GT|MX|Quadro|GeForce)[ -]?(?:PRO )?[APKMT]?\d{{3,4}}(?:MX?)?|TITAN (?:Xp|X|V|RTX|Black|Z))(?:{ENDING})*)"
    r"|(?:(?:(?<=NVIDIA )|(?:Tesla|GRID) )[ABHLTVPKMC]\d{1,3}\w{0,2}|(?<=NVIDIA )(?:Graphics Device|Thor)"
    rf"|V100S?|A100|H[12]00|B200|L40S|T4|K80|P100|P40|M40|GB10|DGX Spark|GH200|Orin \(nvgpu\))(?:{BOARD})*)(?![\w/]))"
)
"""An NVIDIA GPU as nvidia-smi, programs and people call it."""
NAMED = lazy(NAME, re.I)
LISTED = lazy(
    rf"\b(?:GPU|CUDA|device)\W{{0,4}}(?:cuda:)?(?P<numbers>\d{{1,2}}(?:,\d{{1,2}}){{0,15}})(?:\b[\W_]{{1,6}}|: \d{{3,6}}MB \| |.{{0,20}}name='){NAME}(?: \(arch=(?P<capability>\d\.\d)\))?",
    re.I,
)
"""How programs list GPUs when they start."""
FAMILIES = {
    "Blackwell": (lazy(r"\bblackwell\b(?! support)|\bRTX ?50(?:[ -]?series|xx)\b", re.I), 12, 0),
    "Pascal": (lazy(r"\bpascal gpu|\b(?:GTX ?)?10(?:[ -]?series|xx)\b", re.I), 6, 1),
}
"""What a GPU is called if no model is named."""
READ, MOST = 200_000, 16


def gpus(text: Text) -> Facts:
    listed = {
        int(number): Gpu(
            name=one["name"],
            cuda_index=int(number),
            compute_capability=Capability.parse(one["capability"]) if one["capability"] else None,
        )
        for one in reversed(list(LISTED.finditer(text.flat, 0, READ)))
        for number in one["numbers"].split(",")
    }
    if listed:
        numbered = tuple(gpu for _, gpu in sorted(listed.items()))[:MOST]
        yield Gpus(numbered, "report", HINT)
    elif gpu := spoken_of(text):
        yield Gpus((gpu,), "report", GUESS)


def spoken_of(text: Text) -> Gpu | None:
    """The GPU that people name in a sentence, if the whole text speaks of one only."""
    named = {
        tokens(one["name"]) - SERIES_WORDS: one["name"]
        for one in NAMED.finditer(text.flat, 0, READ)
    }
    if named:
        name = named.popitem()[1].replace("DGX Spark", "GB10")
        return None if named else Gpu(name=name)
    for family, (pattern, *capability) in FAMILIES.items():
        if pattern.search(text.flat, 0, READ):
            return Gpu(name=f"a {family} GPU", compute_capability=Capability(*capability))
    return None
