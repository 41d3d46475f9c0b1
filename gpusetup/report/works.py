"""What shows that a GPU computes although somebody asks a question: speeds, results, a plain word.

A text that shows a failure in any words yields nothing here: that part works is then no answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpusetup.messages.search import Text
from gpusetup.model.machine import Event
from gpusetup.model.patterns import lazy

CHARACTERS_READ = 60_000
PRINTED_LABELS = lazy(
    r"(?im)^\W*(?:is \w[\w ]{2,24} (?:available|build)|[\w ]{3,40} version|gpu models[\w ]*|cuda_module\w*|hip \w+|vulnerability [\w ]+|error_\w+|clang \w+)\b ?:.*$"
    r"|\berrors?: (?:0|none)\b|\b(?:is_available|cuda\.is_available)\(\)|\bno (?:errors?|failures?|problems?)\b|\bCould not collect\b|--kill-on-bad-exit\S*"
)
"""Lines of lists that a tool prints on every machine, and words that deny a failure."""
FAILURE_WORD = lazy(
    r"(?i)\w*Error\b|\bfail(?:s|ed|ing|ures?)?\b|\bcrash\w*|\bexceptions?\b|\btraceback\b|\bh[au]ng(?:s|ing)?\b|\bstuck\b|\bfreez\w+|\bfroze\w*|\bOOM\b|out of memory|\bsegfault|\bkilled\b"
    r"|(?:\bnot|n't|n’t) (?:\w+ ){0,2}?(?:work|detect|find|found|recogni|support|available|see|start|load|use[ds]?\b|using)|\bcould not\b|\bcannot\b|\bunable\b|\bno kernel|\bunavailable\b|(?<!=)\bFalse\b|\b(?:finds?|sees?|does|shows) nothing\b|\b(?:dis)?appears?\b(?! to)|\bvanish\w*|\b(?:is|are|gets?) (?:gone|lost)\b|\b(?:black|blank|green|grey|gray|garbled?|garbage|gibberish|noisy?|artifacts?|nonsense)\b|\bidl(?:e|es|ing)\b|(?<![\d.])0 ?%|\b(?:reboots?|restarts?|shuts? (?:off|down)|turns? off|powers? off|blue ?screen|BSOD)\b|\bmissing\b|\bbroken?\b\bcorrupt\w*|\bNaNs?\b|\bsilent"
    r"|(?:two|both|several|multi\w*|other) (?:gpus|cards) (?:do(?:es)?|did)(?: not|n't)|\bfalls? back\b|\binstead of (?:the |my )?(?:gpu|cuda)|\b(?:on|the) cpu (?:only|instead)\b"
    r"|报错|错误|失败|无法|不能|崩溃|卡住|エラー|できない|落ち|오류|안 ?됨|ошибк|не работ|не вид|падает|вылета|\bfehler|\babsturz|stürzt|funktioniert n|\berreur|plante|ne (?:fonctionne|marche)|no funciona|não funciona|\bXid\b"
)
"""What names a failure, in whatever words."""
SPEED = lazy(
    r"(?i)(?<![\w.])\d[\d.,]{0,8} ?(?:it/s|its/s|s/it|sec(?:onds?)?/it|tokens?/s(?:ec(?:ond)?)?|tok/s|t/s\b|tps\b|tokens? (?:a|per|each) second|tokens? pro Sekunde|токен\w* в секунду|samples?/s\w*|im(?:g|ages?)/s\w*|fps\b|steps?/s\w*|ms/(?:step|iter\w*|batch|token|image)|TFLOPS)"
    r"|(?<![\w.])\d[\d.,]{0,8} ?(?:ms|s|sec(?:onds?)?|秒|сек\w*|Sekunden)(?: ?/ ?| (?:per|a|an|each|pro|на) )(?:step|batch|image|iter\w*|epoch|token|frame|item|Bild|Schritt|шаг)"
    r"|\b(?:on|with|using|auf|sur|на) (?:my |an? |the |meiner |ma )?(?:RTX |GeForce |GTX )?(?:[2-5]0[5-9]0\w{0,3}(?: Ti| Super)?|A100|H100|A6000|V100|L40S?|T4)\b[^.\n]{0,24}?[:=,]? ?\d[\d.,]{0,6} ?(?:ms|s|sec\w*|min\w*)\b"
    r"|每(?:个)? ?(?:step|步|张|轮|epoch) ?\d[\d.]* ?(?:秒|ms|分钟)|\d[\d.]* ?(?:token|步|张)/?(?:每)?秒"
)
"""How fast something computes, in the units that programs and people use."""
OF_SPEED = lazy(
    r"(?i)\bspeeds?(?:up)?\b|\bslow(?:er|ly|down)?\b|\bfast(?:er)?\b|\bperformance\b|\bexpect(?:ed)?\b|\bnormal\b|\butili[sz]ation\b|\bbenchmarks?\b|\bthroughput\b|\boptimi[sz]\w*|\baccelerat\w*|\bimprov\w*|\bmy friend\b"
    r"|正常|慢|快|提高|加速|优化|利用率|遅い|速[くい]|느리|빠르|медленн|быстр|нормальн|скорост|langsam|schnell|\blente?s?\b|rapide|lento|rápido|velocidad|vitesse"
)
"""What a question of speed speaks of."""
A_GPU = lazy(
    r"(?i)(?:\b|(?<=\d[x×]))(?:[RG]TX ?\d{3,4}|[2-5]0[5-9]0(?: ?Ti)?|[ABH]\d00|A\d{1,2}00|L40S?|T4|V100|MI\d{3}|RX ?\d{4}|Arc [AB]\d{3})\b|--device cuda|\bcuda:\d\b|\bon the GPU\b|显卡"
)
"""A GPU on which it computes, by its name or its device."""
WORKS_THERE = lazy(
    r"(?i)(?<!smi )(?<!smi` )(?<!driver )\b(?:works?|worked|runs?|ran) (?:perfectly|great|fine|well|flawlessly|as expected|nicely|smoothly|like a charm)\b"
    r"|\b(?:tested|verified|confirmed|checked) (?:on|with) (?:my |an? |the |two )?(?:\S{1,16} ){0,4}?(?:GPUs?|cards?|[RG]TX ?\d{3,4}|machine|Arc \w+)\b|\ball good\b|一切正常|funktioniert einwandfrei|всё работает|tout fonctionne|funciona perfectamente|funciona perfeitamente"
)
"""A person's plain word that it works."""
CONTRAST = lazy(
    r"(?i)\b(?:but|however|except|although|though|whereas|unless)\b|但是?|不过|可是|aber|но\b|mais|pero|mas\b|\?"
)
TRAINS_WELL = lazy(
    r"(?i)\bloss(?:es)? (?:go(?:es)?|is going|decreas\w+|keeps? (?:going|falling)|falls?|drops?|converges?)(?: down)?\b|\b(?:epochs?|training|it) (?:finish(?:es|ed)?|completes?|runs? through)\b|\btrains? (?:fine|well|ok)\b|(?:训练|学习|跑)(?:得|能)?(?:起来|正常)|\bobučenie|обучение идёт|Training läuft"
)
"""A person's word that a training goes on."""
DIFFERENT_RESULT = lazy(
    r"(?i)\b(?:different|wrong|inaccurate|unequal|inconsistent|mismatch\w*)\b[^.\n]{0,30}\b(?:results?|outputs?|values?|numbers?|digits?)\b|\b(?:results?|outputs?|values?|digits?)\b[^.\n]{0,60}?\b(?:differs?|different|wrong|not (?:equal|the same)|deviates?|diverges?|mismatch\w*)\b"
    r"|\berrors? of (?:about |up to |around )?\d?[\d.]*e-\d|\b(?:numerical|rounding) (?:errors?|differences?)\b|\bprecision\b[^.\n]{0,30}\b(?:loss|lower|differ\w+|lost)|结果[^。\n]{0,8}(?:不一致|不同|不一样)|精度[^。\n]{0,6}(?:不|差|损失)|結果が(?:異な|違)|결과가 (?:다르|달라)|результат\w*[^.\n]{0,20}отлича|Ergebnis\w*[^.\n]{0,20}(?:anders|unterschied|abweich)"
)
OF_UTILISATION = lazy(r"(?i)\b(?:utili[sz]ation|usage)\b|利用率|Auslastung|загрузка")
"""What a text about a GPU that waits speaks of."""
OF_COMPILE = lazy(r"(?i)\btorch[._]compile\b|--compile\b")
ON_A_DEVICE = lazy(r"device='cuda:\d|\bcuda:\d\b|\.to\(['\"]cuda|\.cuda\(\)")
SHOWN = 160


def works(text: Text) -> Iterator[Event]:
    """Speeds and results on a GPU, and the word that all works, in a text that names no failure.

    >>> from gpusetup.report.cleaning import text_of
    >>> [event.kind for event in works(text_of("42 tokens per second on my RTX 4080. Normal?"))]
    ['gpu-speed']
    >>> list(works(text_of("42 tokens per second on my RTX 4080, normal? Then it crashes")))
    []
    """
    flat = PRINTED_LABELS.sub(" ", "\n".join(text.lines))[:CHARACTERS_READ]
    if FAILURE_WORD.search(flat):
        return
    if OF_UTILISATION.search(flat):
        yield Event(kind="names-no-failure", source="report")
    on_a_gpu = A_GPU.search(flat)
    # A speed alone proves no health: who is content, or asks of speed, has no other complaint.
    of_speed = on_a_gpu and OF_SPEED.search(flat)
    for kind, pattern, needs in (
        ("gpu-speed", SPEED, of_speed),
        ("gpu-trains", TRAINS_WELL, of_speed),
        ("asks-of-compile", OF_COMPILE, on_a_gpu),
        ("works-there", WORKS_THERE, True),
        ("result-differs", DIFFERENT_RESULT, ON_A_DEVICE.search(flat)),
    ):
        found = pattern.search(flat) if needs else None
        if kind == "works-there" and CONTRAST.search(flat):
            continue  # that one thing works introduces the one that does not
        if found:
            yield Event(kind=kind, source=_line(flat, found), text=_sentence(flat, found))


def _line(flat: str, found: re.Match[str]) -> str:
    return f"report, line {flat.count(chr(10), 0, found.start()) + 1}"


def _sentence(flat: str, found: re.Match[str]) -> str:
    """The words and what stands around them on their line."""
    first = flat.rfind("\n", 0, found.start()) + 1
    last = flat.find("\n", found.end())
    line = flat[first : last if last >= 0 else len(flat)].strip()
    return line if len(line) <= SHOWN else found[0][:SHOWN]
