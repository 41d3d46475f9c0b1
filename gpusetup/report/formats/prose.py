"""The GPU that people name in a sentence, if the whole text speaks of one only."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpusetup.model.machine import Gpu
from gpusetup.model.patterns import lazy
from gpusetup.model.versions import Capability
from gpusetup.report.facts import GUESS, Fact, Gpus
from gpusetup.report.text import Text

MODEL = lazy(
    r"(?<![\w.-])(?:(?P<line>RTX|GTX|Quadro|MX|GT) ?-?(?P<number>[PMKT]?\d{3,4}) ?(?P<kind>Ti|SUPER)?\b"
    r"|(?P<alone>50[5-9]0|40[6-9]0|30[5-9]0|20[678]0|10[5-8]0)(?: ?(?P<ti>Ti))?\b(?=[ ,.)]| cards?)"
    r"|(?P<name>(?:Tesla )?(?:V100|A100|H[12]00|H20|T4|P100|P40|K80|M40|L40S?|B200|GB10|DGX Spark)|RTX (?:PRO )?[A456]000)\b)",
    re.I,
)
BLACKWELL = lazy(r"\bblackwell\b(?! support)|\bRTX ?50(?:[ -]?series|xx)\b", re.I)
READ = 50_000


def prose(text: Text) -> Iterator[Fact]:
    """`Device is RTX 5090`, `my 3090`."""
    named = {_name(one) for one in MODEL.finditer(text.flat, 0, READ)}
    gpu = Gpu(name=named.pop()) if len(named) == 1 else None
    if not named and BLACKWELL.search(text.flat, 0, READ):
        gpu = Gpu(name="a Blackwell GPU", compute_capability=Capability(12, 0))
    if gpu:
        yield Gpus(gpus=(gpu,), source="report", trust=GUESS)


def _name(found: re.Match[str]) -> str:
    if found["name"]:
        return "GB10" if "park" in found["name"] else found["name"]
    line = (found["line"] or ("GTX" if found["alone"].startswith("10") else "RTX")).upper()
    more = (found["kind"] or found["ti"] or "").lower().replace("ti", "Ti")
    return f"{line.replace('QUADRO', 'Quadro')} {found['number'] or found['alone']} {more}".strip()
