"""What people write of their machine themselves, in English and in other languages.

A word for the thing, then its value: `Treiber 551.23`, `显卡: RTX 4060`, `torch 버전: 2.1.0+cpu`, a
row of a table. The words are few and the values have a form of their own, so nothing is understood
here but numbers and names. What a program prints is believed before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from gpusetup.messages.fragments import DRIVER_VERSION, RELEASE
from gpusetup.model.machine import Gpu
from gpusetup.model.patterns import lazy
from gpusetup.model.versions import Capability
from gpusetup.report.facts import GUESS, HINT, Fact, Gpus, claims, saying
from gpusetup.report.text import Text

VERSION_WORD = r"(?:版本号?|バージョン|버전|версия|версии|versione|versión|versão|version|ver\.?)"
TORCH_WORD = r"(?:py ?)?torch"
DRIVER_WORDS = (
    ("驱动", r"驱动(?:程序)?"),
    ("驅動", r"驅動(?:程式)?"),
    ("ドライバ", r"ドライバー?"),
    ("드라이버", r"드라이버"),
    ("драйвер", r"драйвер(?:а|ы|ов)?"),
    ("treiber", r"(?:grafik|nvidia-?)?treiber"),
    ("pilote", r"pilotes?"),
    ("controlador", r"controlador(?:es)?"),
    ("driver's", r"driver's"),
)
"""The letters to look for, and the word; plain English is read with the kernel's lines."""
GPU_WORD = (
    r"(?:显卡|顯卡|グラボ|グラフィックボード|グラフィックカード|그래픽 ?카드|видеокарт[аеуы]|grafikkarte|carte graphique"
    r"|placa de v[ií]deo|tarjeta gr[aá]fica|scheda video|karta graficzna)"
)
BETWEEN = r"[ :|=*`]{1,5}(?:(?:is|ist|est|es|é|это|вышла|是|为|は)[ :]{1,2})?"
TORCH = rf"v?({RELEASE}(?:\+(?:cu\d{{2,3}}|cpu|rocm[\d.]{{1,5}}))?)(?![\w.+])"
LOCAL = r"([12]\.\d{1,2}\.\d\+(?:cu\d{2,3}|cpu|rocm\d\.\d))(?![\w.+])"
"""A version that only torch's builds have: beside a word on torch it is torch's."""
DRIVER = rf"v?({DRIVER_VERSION})(?![\w.+]| ?(?:or |oder |以上|及以上|이상|и выше))"
NEEDED = (
    r"(?:最低|至少|需要|要求|必要|最小|최소|필요|требуе|нуж[не]|необходим|минимал|mindest|benötigt|braucht|minim|au moins"
    r"|nécessit|mínim|requer|requier|at least|needs?|requires?|install)"
)
"""Before a version that is asked for, not had."""
FAILS = r"\b(?:returns? False|(?:is |are )?not available|unavailable|not (?:found|detected|working)|doesn't work)\b"
"""What a title says of CUDA before it names the torch that does not see it."""
PRINTED = r"(?:is|prints?|gives?|shows?|returns?|says|输出|显示|返回|打印|结果是|出力|출력|выводит|выдает|выдаёт)"

ROWS = (
    saying("torch.version", "torch", rf"(?<![\w./=-]){TORCH_WORD} ?{VERSION_WORD}{BETWEEN}{TORCH}", HINT),
    saying("torch.version", "torch", rf"(?<![\w./=-]){VERSION_WORD} {TORCH_WORD}{BETWEEN}{TORCH}", HINT),
    saying("torch.version", "torch", rf"\| ?{TORCH_WORD} ?\| ?{TORCH}", HINT),
    saying("torch.version", "torch==", rf"{FAILS}[^$>#\n]{{0,60}}?\btorch=={TORCH}(?<=\+\w\w\w|\w\w\d\d)", HINT),
    saying("torch.version", "+cpu", r"\b(?:says?|said|shows?|showed|prints?|printed|reads?|reports?|gives?|displays?)(?: me)?:? [`'\"(]?(2\.\d{1,2}\.\d\+cpu)\b", HINT),
    saying("wanted.torch", "+cpu", r"\b(?:wants?|needs?) (?:torch )?(2\.\d{1,2}\.\d)\+cpu\b", GUESS),
    saying("torch.version", "torch.cuda.", rf"(?<![\w./=-])torch\.cuda\.\w+\(\)\W{{1,6}}(?:(?:{PRINTED}|False|True|0|and|on|with|version)\W{{1,6}}){{0,3}}{LOCAL}", HINT),
    saying("torch.version", "torch.cuda.", rf"(?<![\w.+/=-]){LOCAL}\W{{1,6}}torch\.cuda\.\w+\(\)", HINT),
    saying("torch.version", "framework", rf"\bframework(?: ?(?:&|and|/))?(?: version)?:? ?v?({RELEASE}\+cu\d{{2,3}})\b", HINT),
    saying("torch.version", "torch-", rf"\b(?:Using cached|Downloading|Downloaded) (?:\S{{1,200}}/)?torch-{TORCH[2:]}(?=-cp3)", GUESS),
    saying("torch.version", "torch.__version__", rf"torch\.__version__\W{{0,6}}{PRINTED}\W{{0,6}}{TORCH}", HINT),
    *(
        saying("python.version", needle, rf"(?<![\w./=-]){needle} ?{VERSION_WORD}{BETWEEN}(3\.\d{{1,2}}(?:\.\d{{1,2}})?)(?![\w.+])", HINT)
        for needle in ("python", "파이썬", "パイソン", "питон")
    ),
    saying("python.version", "python", r"\| ?python ?\| ?(3\.\d{1,2}(?:\.\d{1,2})?)(?![\w.+])", HINT),
    *(
        saying("driver.version", needle, rf"{NEEDED}[^\d\n]{{0,40}}\d{{3}}\.\d{{2,3}}|(?<![\w./=-])(?:{word})(?: ?{VERSION_WORD})?(?:{BETWEEN}|){DRIVER}", GUESS)
        for needle, word in DRIVER_WORDS
    ),
    saying("driver.version", "nvidia-smi", rf"(?<!\w)NVIDIA-SMI:? v?({DRIVER_VERSION})(?![\w.+])(?!\W{{1,40}}(?:Driver|KMD) Version)", HINT),
)  # fmt: skip


def prose(text: Text) -> Iterator[Fact]:
    yield from claims(text, ROWS)
    yield from in_a_sentence(text)


# --- GPUs -----------------------------------------------------------------------------------------

MODEL = (
    r"(?:NVIDIA )?(?P<name>(?:GeForce )?(?:RTX|GTX) ?\d{3,4}(?: ?(?:Ti|TI|ti|SUPER|Super|Laptop)\b)?(?: ?(?:SUPER|Super)\b)?"
    r"|(?:RTX )?A[456]000\b|(?:Tesla )?(?:V100|A100|A800|H[12]00|H20|H800|T4|P100|P40|K80|M40|L40S?|L20|B200)\b)"
)
BEFORE = r"\b(?:GPU|gpu|[Dd]evice|[Cc]ard|using|have|with|[Oo]n|is|[Mm]y|a|an|one|single)[ :]{1,2}(?:(?:a|an|the|my|our|this|old|new|one|single|NVIDIA|Nvidia|nvidia) ){0,3}"
SPOKEN = lazy(rf"(?:{BEFORE}|\b(?=Tesla )){MODEL}")
ANOTHER = lazy(rf" ?(?:,|/|&|\+|and|or|und|et|y|e|vs\.?) ?{MODEL}")
"""What follows one of several that are enumerated: it is not the GPU of the text."""
CALLED = lazy(
    rf"(?:(?i:{GPU_WORD})(?:是|为|為|は|[ :|*`-]{{1,4}}|)|(?<!\w)(?:eine[nr]?|une|uma|una) )(?:(?:是|为|ist|eine|est|une|é|uma|es|una) ?){{0,2}}{MODEL}"
)
NAMED = (
    lazy(rf"^\W{{0,6}}(?:\w{{1,12}} ?\W{{3,6}})?{MODEL}(?=[ :,])"),
    lazy(rf"(?<![\w.,/-]){MODEL}$"),
)
CALLED_A = (" gpu", " card", " graphics card")
NAME_LENGTH = 40
"""A title that begins with a GPU's name; a name that is called a GPU."""
MENTIONED = lazy(rf"(?<![\w-]){MODEL}")
COUNTED = (
    lazy(rf"(?<![\w.,])(?P<count>\d{{1,2}}) ?[x×*] ?{MODEL}"),
    lazy(rf"{MODEL} ?[x×*] ?(?P<count>\d{{1,2}})(?![\w.])"),
)
COUNTS = lazy(r"[x×*](?:(?<=\d.)|(?<=\d .)|(?<=[\dIiRrpS ].) ?\d)")
"""What every form of `COUNTED` has."""
READ = 50_000


def in_a_sentence(text: Text) -> Iterator[Fact]:
    """`Device is RTX 5090`, `4 x RTX 4090`, where the whole text speaks of one GPU only."""
    flat, found = text.flat[:READ], None
    if not _lacks_a_kernel(text.low):
        found = _in_its_own_form(text)
    counted = COUNTS.search(flat)
    if found is None and not counted and (loose := _loosely_called(flat)):
        name, at = loose
        found = Gpus(gpus=(Gpu(name=name),), source=text.source(at), trust=GUESS)
    if found is None and (family := _family_of(flat)):
        found = Gpus(gpus=(family,), source="report", trust=GUESS)
    if found := found or _in_its_own_form(text):
        yield found


def _in_its_own_form(text: Text) -> Gpus | None:
    """The one GPU that a sentence says is this machine's, by its whole name."""
    flat = text.flat[:READ]
    counted = [one for form in COUNTED for one in form.finditer(flat)][:50]
    called = CALLED.finditer(flat) if _is_foreign(flat, text.low) else ()
    said = SPOKEN.finditer(flat)
    spoken = (one for one in said if not ANOTHER.match(flat, one.end()))
    found = [*counted, *spoken, *called][:100]
    if not found and (one := _called_so(flat, text.low) or _of_a_missing_kernel(flat, text.low)):
        found = [one] if len(_names(MENTIONED.finditer(flat))) == 1 else []
    if len(_names(found)) == 1:
        one = found[0]
        count = int(one.group("count")) if counted else 1
        if 0 < count <= MOST:
            gpus = (Gpu(name=one.group("name")),) * count
            return Gpus(gpus=gpus, source=text.source(one.start()), trust=GUESS)
    return None


NO_KERNEL = ("no kernel image", "cuda error: no kernel i")
"""The message, and what is left of it at the end of a text that was cut."""


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


def _lacks_a_kernel(low: str) -> bool:
    return any(said in low for said in NO_KERNEL)


def _family_of(flat: str) -> Gpu | None:
    """
    >>> str(_family_of("no kernel image is available (Blackwell GPU)").compute_capability)
    '12.0'
    """
    if MENTIONED.search(flat):
        return None
    found = OF_A_FAMILY.finditer(flat)
    named = {next(one.group(name) for name in KINDS if one.group(name)).lower() for one in found}
    chips = {CHIPS[name] for name in named & CHIPS.keys()}
    likely = chips or {FAMILIES[BY_NUMBER.get(name[:2], name)] for name in named}
    return likely.pop() if len(likely) == 1 else None


def _loosely_called(flat: str) -> tuple[str, int] | None:
    """The one GPU for which a kernel is missing, and where it stands; None where several may be.

    >>> _loosely_called("it works fine for 4090 but for 5090 there is no kernel image")
    ('RTX 5090', 27)
    """
    told: dict[str, int] = {}
    for one in LOOSELY.finditer(flat):
        at = one.start("bare") + len(one.group("bare")) - 4 if one.group("bare") else one.start()
        before = WORKS_ON.search(flat, max(at - NAME_LENGTH, 0), at)
        if not before and not WORKS_THERE.match(flat, one.end()):
            told.setdefault(_written_out(one), one.start())
    told = {name: at for name, at in told.items() if not _is_a_series(name, told)}
    for one in QUADRO.finditer(flat):
        told.setdefault(f"Quadro {one.group('number').upper()}", one.start())
    return next(iter(told.items())) if len(told) == 1 else None


def _is_a_series(name: str, others: Iterable[str]) -> bool:
    """
    >>> [_is_a_series(name, ["RTX 5000", "RTX 5090"]) for name in ("RTX 5000", "RTX 5090")]
    [True, False]
    """
    one_of_it = rf"{name[:5]}(?!000)\d{{3}}\b"
    return name.endswith("000") and any(re.match(one_of_it, other) for other in others)


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


def _of_a_missing_kernel(flat: str, low: str) -> re.Match[str] | None:
    """A GPU that is named wherever: who reports that a kernel is missing speaks of their own."""
    return MENTIONED.search(flat) if _lacks_a_kernel(low) else None


def _called_so(flat: str, low: str) -> re.Match[str] | None:
    """The GPU with which a text begins, or that it calls one: `Tesla V100 gpu`."""
    first, before = NAMED
    if found := first.match(flat, 0, 2 * NAME_LENGTH):
        return found
    for word in CALLED_A:
        at = low.find(word)
        while at >= 0:
            if found := before.search(flat, max(at - NAME_LENGTH, 0), at):
                return found
            at = low.find(word, at + 1)
    return None


def _names(found: Iterable[re.Match[str]]) -> set[str]:
    """
    >>> sorted(_names(MENTIONED.finditer("RTX 4090, RTX4090 and A100")))
    ['a100', 'rtx4090']
    """
    return {re.sub(r"\s|tesla|geforce", "", one.group("name").lower()) for one in found}


FOREIGN = ("grafik", "graphique", "placa", "tarjeta", "scheda", "karta", "eine", "une ", "uma ", "una ")  # fmt: skip
"""What `CALLED` needs of plain letters."""


def _is_foreign(flat: str, low: str) -> bool:
    return not flat.isascii() or any(word in low for word in FOREIGN)


MOST = 16
"""Of GPUs in one machine: more are a cluster's."""
