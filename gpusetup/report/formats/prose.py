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
    r"|(?P<alone>50[5-9]0|40[6-9]0|30[5-9]0|20[678]0|10[5-8]0)(?: ?(?P<ti>Ti))?(?![\w-]| ?(?:steps|of \d))"
    r"|(?P<name>(?:Tesla )?(?:V100|A100|H[12]00|H20|T4|P100|P40|K80|M40|L40S?|B200|GB10|DGX Spark)|RTX (?:PRO )?[A456]000)\b)",
    re.I,
)
FAMILIES = {
    "Blackwell": (lazy(r"\bblackwell\b(?! support)|\bRTX ?50(?:[ -]?series|xx)\b", re.I), 12, 0),
    "Pascal": (lazy(r"\bpascal gpu|\b(?:GTX ?)?10(?:[ -]?series|xx)\b", re.I), 6, 1),
}
"""What a GPU is called if no model is named."""
WORKED = lazy(
    r"\b(?:(?:works?|worked|fine)(?: \w+){0,2} (?:on|for|with)|replaced|(?:upgraded|switched|moved) from|instead of|had)(?: (?:the|my|an?|old)){0,2} $",
    re.I,
)
WORKS = lazy(r" (?:works?|worked|runs?|ran) (?:fine|well|ok)", re.I)
"""Before and behind a GPU on which the program works: it is not the one that is meant."""
READ = 50_000


def prose(text: Text) -> Iterator[Fact]:
    """`Device is RTX 5090`, `my 3090`."""
    named = {
        _name(one).removeprefix("Tesla "): _name(one)
        for one in MODEL.finditer(text.flat, 0, READ)
        if not WORKED.search(text.flat, max(one.start() - 40, 0), one.start())
        and not WORKS.match(text.flat, one.end())
    }
    gpu = Gpu(name=named.popitem()[1]) if len(named) == 1 else None
    for family, (pattern, *capability) in () if gpu or named else FAMILIES.items():
        if pattern.search(text.flat, 0, READ):
            gpu = Gpu(name=f"a {family} GPU", compute_capability=Capability(*capability))
    if gpu:
        yield Gpus(gpus=(gpu,), source="report", trust=GUESS)


def _name(found: re.Match[str]) -> str:
    if found["name"]:
        return "GB10" if "park" in found["name"] else found["name"]
    line = (found["line"] or ("GTX" if found["alone"].startswith("10") else "RTX")).upper()
    more = (found["kind"] or found["ti"] or "").lower().replace("ti", "Ti")
    space = "" if line == "MX" else " "
    return f"{line.replace('QUADRO', 'Quadro')}{space}{found['number'] or found['alone']} {more}".strip()
