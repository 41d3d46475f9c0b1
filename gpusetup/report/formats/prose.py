"""The GPU that people name in a sentence, where the whole text speaks of one only.

The words are few and the names have a form of their own, so nothing is understood here but a name.
What a program prints is believed before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpusetup.model.machine import Gpu
from gpusetup.model.patterns import lazy
from gpusetup.model.versions import Capability
from gpusetup.report.facts import GUESS, Fact, Gpus
from gpusetup.report.text import Text

GPU_WORD = (
    r"(?:显卡|顯卡|グラボ|グラフィックボード|グラフィックカード|그래픽 ?카드|видеокарт[аеуы]|grafikkarte|carte graphique"
    r"|placa de v[ií]deo|tarjeta gr[aá]fica|scheda video|karta graficzna)"
)


MODEL = (
    r"(?:NVIDIA )?(?P<name>(?:GeForce )?(?:RTX|GTX) ?\d{3,4}(?: ?(?:Ti|TI|ti|SUPER|Super|Laptop)\b)?(?: ?(?:SUPER|Super)\b)?"
    r"|(?:RTX )?A[456]000\b|(?:Tesla )?(?:V100|A100|A800|H[12]00|H20|H800|T4|P100|P40|K80|M40|L40S?|L20|B200)\b)"
)
BEFORE = r"\b(?:GPU|gpu|[Dd]evice|[Cc]ard|using|have|with|[Oo]n|is|[Mm]y|a|an|one|single)[ :]{1,2}(?:(?:a|an|the|my|our|this|old|new|one|single|NVIDIA|Nvidia|nvidia) ){0,3}"
SPOKEN = lazy(
    rf"(?:{BEFORE}|\b(?=Tesla )|(?:(?i:{GPU_WORD})(?:是|为|為|は|[ :|*`-]{{1,4}}|)|(?<!\w)(?:eine[nr]?|une|uma|una) )(?:(?:是|为|ist|eine|est|une|é|uma|es|una) ?){{0,2}}){MODEL}"
)
ANOTHER = lazy(rf" ?(?:,|/|&|\+|and|or|und|et|y|e|vs\.?) ?{MODEL}")
"""What follows one of several that are enumerated: it is not the GPU of the text."""
MENTIONED = lazy(rf"(?<![\w-]){MODEL}")
COUNTED = (
    lazy(rf"(?<![\w.,])(?P<count>\d{{1,2}}) ?[x×*] ?{MODEL}"),
    lazy(rf"{MODEL} ?[x×*] ?(?P<count>\d{{1,2}})(?![\w.])"),
)
COUNTS = lazy(r"[x×*](?:(?<=\d.)|(?<=\d .)|(?<=[\dIiRrpS ].) ?\d)")
"""What every form of `COUNTED` has, and what else is multiplied."""
READ = 50_000


NAME_LENGTH = 40
MOST = 16
"""Of GPUs in one machine: more are a cluster's."""


def prose(text: Text) -> Iterator[Fact]:
    """`Device is RTX 5090`, `4 x RTX 4090`, where the whole text speaks of one GPU only."""
    flat = text.flat[:READ]
    counts = COUNTS.search(flat) is not None
    counted = [one for form in COUNTED for one in form.finditer(flat)][:50] if counts else []
    loose = None if counts else loosely_called(flat)
    if loose is not None:
        yield Gpus(gpus=(Gpu(name=loose),), source="report", trust=GUESS)
    elif family := family_of(flat):
        yield Gpus(gpus=(family,), source="report", trust=GUESS)
    else:
        named = SPOKEN.finditer(flat) if MENTIONED.search(flat) else ()
        spoken = (one for one in named if not ANOTHER.match(flat, one.end()))
        found = [*counted, *spoken][:100]
        names = {re.sub(r"\s|tesla|geforce", "", one["name"].lower()) for one in found}
        count = int(found[0]["count"]) if counted else 1
        if len(names) == 1 and 0 < count <= MOST:
            source = text.source(found[0].start())
            yield Gpus(gpus=(Gpu(name=found[0]["name"]),) * count, source=source, trust=GUESS)


LOOSELY = lazy(
    r"(?i)(?<![A-Za-z0-9_.,/-])(?:(?P<maker>(?:geforce )?(?P<line>[rg]tx|gt|mx) ?)(?P<number>\d{3,4}m?x?)|(?:geforce )(?P<mobile>[89]\d0mx?|[23]10m?|[89][4-8]00 ?g[st]x?)|(?P<plain>(?:50[5-9]0|40[6-9]0|30[5-9]0)(?= ?ti(?![a-z])))|(?P<bare>(?:^\W{0,4}|\b(?:on|for|with|my|an?|the|have|got|using|new|nvidia|gpu|card|to|support)[ :]{1,2}|(?:支持|换(?:成|了|到|用)?|換(?:成|了)?|升级(?:到|成|为)?|显卡|顯卡|用的?是?|使用|新的?|买了|我的|卡是|在|对) ?)(?:50[5-9]0|40[6-9]0|30[5-9]0)))d?"
    r"(?P<kind>(?: ?(?:ti|super)(?![a-z])){0,2})(?![A-Za-z0-9_]|\.\d|x\d| ?(?:steps|images|samples|epochs|tokens|iterations|files|[MG]i?B)\b)"
)
"""`rtx 5090`, `RTX5090D`, or the number alone, which a missing kernel tells from other numbers."""
QUADRO = lazy(r"(?i)(?<![\w.,/-])quadro (?P<number>[kmp]\d{3,4}m?|fx ?\d{3,4}m?)(?!\w)")
WORKS_ON = lazy(
    r"(?i)\b(?:(?:works?|worked|runs?|ran|fine)(?: \w+){0,2} (?:on|for|with)|replac(?:ed|ing)|swapp(?:ed|ing)(?: out)?|(?:upgrad|switch|mov|chang)(?:ed|ing) from|instead of|had|used)(?: (?:the|my|a|an|old|other|previous)){0,3} ?$"
)
WORKS_THERE = lazy(
    r"(?i) ?(?:(?:的时候|时|上|卡|显卡){0,2}(?:都|也|就|是|原来|之前)?(?:能|可以)?(?:正常|没问题|没有问题|能用|可用|可以)"
    r"|(?:(?:it |this |everything |all )?(?:works?|worked|runs?|ran|was|is)) (?:just |perfectly |totally )?(?:fine|well|ok|okay|great|perfectly|without))"
)
"""Before and behind a GPU: it is the one on which the program works, or worked."""


FAMILIES = {
    "blackwell": Gpu(name="a Blackwell GPU", compute_capability=Capability(12, 0)),
    "kepler": Gpu(name="a Kepler GPU", compute_capability=Capability(3, 5)),
    "maxwell": Gpu(name="a Maxwell GPU", compute_capability=Capability(5, 2)),
    "pascal": Gpu(name="a Pascal GPU", compute_capability=Capability(6, 1)),
}
CHIPS = {
    **{name.lower(): Gpu(name=name) for name in ("GB10", "GB200", "B300")},
    "dgx spark": Gpu(name="GB10"),
}
OF_A_FAMILY = lazy(
    r"(?i)\b(?P<family>blackwell|kepler|maxwell|pascal)\b(?! (?:support|only|works))|\bRTX ?(?P<series>50)(?:[ -]?series|xx)\b|(?<!sm_\d\d)(?<!sm_\d\d[ ,])(?<!sm_\d\d\d[ ,])\b(?P<sm>sm_1[02][0-3])\b(?!,? ?sm_)|\b(?P<chip>GB10|GB200|B300|DGX Spark)\b|\b(?:GTX ?)?(?P<ten>10)(?:xx(?: ?series)?)\b"
)
"""What a GPU is called where no model is named: a missing kernel is of that generation."""


KINDS = ("family", "chip", "series", "sm", "ten")
BY_NUMBER = {"50": "blackwell", "sm": "blackwell", "10": "pascal"}


def family_of(flat: str) -> Gpu | None:
    """
    >>> str(family_of("no kernel image is available (Blackwell GPU)").compute_capability)
    '12.0'
    """
    if MENTIONED.search(flat):
        return None
    found = OF_A_FAMILY.finditer(flat)
    named = {next(one.group(name) for name in KINDS if one.group(name)).lower() for one in found}
    chips = {CHIPS[name] for name in named & CHIPS.keys()}
    likely = chips or {FAMILIES[BY_NUMBER.get(name[:2], name)] for name in named}
    return likely.pop() if len(likely) == 1 else None


def loosely_called(flat: str) -> str | None:
    """The one GPU that is called by its number; None where several may be meant.

    >>> loosely_called("it works fine for 4090 but for 5090 there is no kernel image")
    'RTX 5090'
    """
    told: set[str] = set()
    for one in LOOSELY.finditer(flat):
        at = one.start("bare") + len(one["bare"]) - 4 if one["bare"] else one.start()
        before = WORKS_ON.search(flat, max(at - NAME_LENGTH, 0), at)
        if not before and not WORKS_THERE.match(flat, one.end()):
            told.add(_written_out(one))
    # `RTX 5000` beside an `RTX 5090` is its series.
    lines = {name[:5] for name in told if not name.endswith("000")}
    told = {name for name in told if not (name.endswith("000") and name[:5] in lines)}
    told |= {f"Quadro {one['number'].upper()}" for one in QUADRO.finditer(flat)}
    return told.pop() if len(told) == 1 else None


def _written_out(called: re.Match[str]) -> str:
    """
    >>> _written_out(LOOSELY.search("rtx5090")), _written_out(LOOSELY.search("GeForce gt 710"))
    ('RTX 5090', 'GeForce GT 710')
    """
    if called.group("mobile"):
        return f"GeForce {called.group('mobile').upper()}"
    line = (called.group("line") or "rtx").upper()
    number = (called.group("number") or called.group("plain") or called.group("bare")[-4:]).upper()
    kind = re.sub(r"(?i)ti", "Ti", called.group("kind")).strip()
    if line in ("GT", "MX"):
        return f"GeForce {line}{' ' if line == 'GT' else ''}{number}"
    return f"{line} {number} {kind}".strip()
