"""Plain questions about torch, CUDA, drivers and GPUs in nine languages, sorted by topic.

A question consists of an intent ("must I", "which", "is it new enough") and the things that it
names. The tables contain words of each language, never whole sentences from one text.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from gpusetup.model.patterns import in_any_case

# --- what is wanted to be known -------------------------------------------------------------------

INTENTS: dict[str, str] = {
    "need": r"\b(?:need(?:ed)?|have to|must|required?|requires?|necessary|should I|do I install|enough to)\b|需要|必须|要不要|用不用|要装|要先|必要|要り|いる(?:の|ん)?ですか|入れないと|필요|설치해야|꼭|\b(?:brauch\w*|muss|n(?:ö|oe)tig|notwendig|reicht)\b|\b(?:faut-il|il faut|besoin|n[ée]cessaire|dois-je|doit-on|obligatoire)\b|\b(?:necesito|hace falta|tengo que|necesari[oa]|debo|hay que)\b|\b(?:preciso|precisa|necess[áa]ri[oa]|tenho que|devo)\b|нужен|нужн[аоы]|надо|обязательно|требуется",
    "which": r"\b(?:which|what)\b|哪个|哪一个|什么版本|哪种|几版|どの|どれ|何を|어떤|어느|몇|무슨|\bwelche[rsn]?\b|\bwas f(?:ü|ue)r\b|\bquel(?:le)?s?\b|\bqu[ée]\b|\bcu[áa]l(?:es)?\b|\bqual\b|\bque vers[aã]o\b|как(?:ую|ой|ая|ие|ое)",
    "either": r"\b(?:cu\d{2,3}|(?:cuda ?)?1[0-3]\.\d|cuda ?1[0-3]) or (?:cu\d{2,3}|(?:cuda ?)?1[0-3])",
    "works": r"\b(?:fine|ok(?:ay)?|good|alright) (?:for|with|on)\b|\bcan (?:I|we|you|one)\b|\b(?:supports?|supported|compatible|works?|runs?|use|usable|possible|train|together|fits?)\b|支持|兼容|能用|可以|能不能|能跑|可否|対応|サポート|使え|使う|動き|動く|互換|지원|호환|사용|가능|돌아가|돌릴|쓸 수|unterst(?:ü|ue)tz\w*|kompatibel|\bl(?:ä|ae)uft\b|\bgeht\b|\bkann\b|prend(?:re)? en charge|compatible|supporte|marche|fonctionne|puis-je|peut-on|soporta|funciona|puedo|sirve|suporta|compat[ií]vel|posso|\broda\b|поддержива|совместим|работа|можно|пойд[её]т|подойд",
    "enough": r"\b(?:new|recent|up to date|modern) enough\b|\bsufficient\b|\btoo old\b|\bis enough\b|够新|够用|够不够|太旧|太老|足够|十分|古すぎ|충분|오래된|neu genug|aktuell genug|ausreich|reicht|zu alt|assez r[ée]cent|suffi|trop (?:ancien|vieux)|suficiente|demasiado (?:viejo|antiguo)|recente o suficiente|antigo demais|достаточно|хватит|хватает|слишком стар",
    "downgrade": r"\b(?:downgrad\w*|roll(?:ing)? ?back|go(?:ing)? back\b|uninstall\w*|remove|removing)\b|降级|降到|降低|卸载|回退|换成|ダウングレード|下げ|アンインストール|다운그레이드|낮춰|낮추|제거|downgraden|herunterstufen|deinstallier|zur(?:ü|ue)ck auf|r[ée]trograder|revenir|d[ée]sinstaller|bajar|degradar|desinstalar|rebaixar|voltar para|понизить|понижать|откат|удал(?:ить|ять)|даунгрейд",
    "differs": r"\b(?:differen(?:ce|t)|differs?|mismatch|not the same|(?:a )?problem|match|two versions|why does)\b|区别|不一样|不一致|不同|有影响|揃え|合わせ(?:る|て|た)|対応させ|맞춰|对齐|统一|angleichen|abgleichen|faire correspondre|coincidir|igualar|совпада|совпасть|有问题|違い|違う|異な|차이|다른|다르|다릅|unterschied\w*|verschieden|Problem|diff[ée]ren\w*|diferen\w*|разниц|отлича|разн[ыао]|разные",
    "check": r"\bhow (?:do|can|to|would|could) (?:I |you |we )?(?:check|know|verify|tell|see|test|find out)\b|\bhow to (?:check|verify|test)\b|怎么(?:看|查|确认|知道|判断|检查|验证)|如何(?:检查|查看|确认|判断|验证)|確認(?:方法|する|でき|したい)|확인(?:하|방법|할)|wie (?:pr(?:ü|ue)f|kann ich|teste|sehe|(?:ü|ue)berpr(?:ü|ue)f)|comment (?:v[ée]rifier|savoir|tester)|c[óo]mo (?:compr|s[ée]\b|saber|verific|veo)|como (?:verific|sei|saber|test)|как (?:проверить|узнать|понять)",
    "amount": r"\bhow (?:much|many)\b|\benough\b|\bfits?\b|\bcan I (?:run|train|fine-?tune|load)\b|(?:posso|puedo|puis-je|peut-on|kann (?:ich|man)) [^?]{0,30}(?:tr[ei]|entr|fine|rodar|correr|lancer|laufen)\w*|можно ли [^?]{0,20}(?:обуч|запус|дообуч)|能(?:训练|跑|微调)|学習でき|動かせ|학습할 수|돌릴 수|多大|多少|够吗|够用|够不够|放得下|跑得动|どれくらい|どのくらい|足り|いくつ|얼마|충분|wie ?viel|reicht|passt|combien|suffi|tient|cu[áa]nt|alcanza|cabe|quant[oa]s?|сколько|хватит|хватает|влез",
    "exists": r"\bis there\b|\bare there\b|\bexists?\b|有没有|ありますか|있나요|\bgibt es\b|\by a-t-il\b|\bhay\b|\bexiste\b|есть ли",
    "one": r"\bas (?:if (?:it|they) (?:was|were) )?(?:one|a single)\b|\b(?:combin|pool|merg|add up|join|split|share|stack)\w*|\btogether\b|合并|合起来|叠加|当作|合わせ|まとめ|합쳐|합칠|하나처럼|zusammen|combiner|combinar|juntar|sumar|somar|объедин|сложить|как одн",
}
"""Intent -> its words."""

# --- what is named --------------------------------------------------------------------------------

THINGS: dict[str, str] = {
    "cuda": r"\bcuda\b(?!\W?cores?)|\bcu\d{2,3}\b|(?<=[\u3040-\uac00-\ud7a3\u4e00-\u9fff])cuda|cuda(?=[\u3040-\ud7a3])|쿠다",
    "toolkit": r"\b(?:cuda[- ]?)?toolkit\b|\bnvcc\b|\bcudnn\b|toolkit(?=[\u3040-\ud7a3])|nvcc(?=[\u3040-\ud7a3])|cudnn(?=[\u3040-\ud7a3])|工具包|ツールキット|툴킷",
    "driver": r"\bdrivers?\b|驱动|ドライバ|드라이버|Treiber|\bpilotes?\b|controlador|драйвер",
    "torch": r"(?:py)?torch|파이토치",
    "python": r"\bpython ?(?P<python>3\.\d{1,2})\b|python ?(?P<cjk_python>3\.\d{1,2})(?=[\u3040-\ud7a3])",
    "vram": r"\bv?ram\b|显存|\bgpu memory\b|\b\d{1,3} ?GB\b|メモリ|메모리|памят|Speicher|m[ée]moire|memoria|mem[oó]ria|VRAM",
    "model": r"\b\d{1,3}(?:\.\d)? ?[BM]\b|\b(?:llama|qwen|mistral|gemma|phi|flux|sdxl|stable diffusion|bert|gpt|deepseek|lora|qlora|model)\b|模型|モデル|모델|модел|Modell|mod[eè]le|modelo",
    "wsl": r"\bwsl ?2?\b|wsl2?(?=[\u3040-\ud7a3])",
    "smi": r"\bnvidia-smi\b|nvidia-smi(?=[\u3040-\ud7a3])",
    "other-cuda": r"torch\.version\.cuda|\bnvcc\b|\bpytorch\b|\btorch\b|\btoolkit\b",
    "maker": r"\b(?:amd|radeon|rx ?\d{4}\w{0,3}|rocm|intel arc|arc [ab]\d{3}|intel (?:gpu|graphics|iris)|mac(?:book|os| mini| studio)?|apple|m[1-5] (?:pro|max|ultra)?|mps)\b|(?:amd|rocm|mac)(?=[\u3040-\ud7a3])",
    "two-gpus": r"\b(?:two|2|three|3|four|4|several|multiple|both|zwei|drei|deux|dos|dois|duas) ?(?:x )?(?:\S{1,12} ){0,3}?(?:gpus?|cards?|[rg]tx ?\d{4}|[2-5]0[5-9]0|Karten|cartes|tarjetas|placas)\b|(?:两|多|双)(?:张|块|卡)|2枚|두 (?:개|장)|две (?:видео)?карты|двух",
    "several-cudas": r"\b(?:several|multiple|two|different|both|mehrere|plusieurs|varias|v[áa]rias|diferentes) (?:versions? of |versionen von |versions de |versiones de |vers[õo]es d[eo] )?cuda\b|\bcuda[- ]version(?:s|en)\b[^?]{0,40}(?:same time|side by side|parallel|gleichzeitig)|多个(?:版本的? ?)?cuda|複数の ?cuda|여러 ?(?:버전의 ?)?cuda|несколько (?:версий )?cuda",
    "jetson": r"\b(?:jetson|jetpack|orin|xavier)\b",
    "gpu": r"\bgpus?\b|\bcards?\b|gpu(?=[\u3040-\ud7a3])|显卡|グラボ|그래픽|видеокарт|Grafikkarte|carte graphique|tarjeta|placa|[RG]TX ?\d{3,4}|[2-5]0[5-9]0|\b[ABH]\d00\b",
}
"""Thing -> its names."""


class Topic(NamedTuple):
    """One topic that people ask about. A question has this topic if it has one of the intents and
    names all of the things."""

    name: str
    intents: tuple[str, ...]
    things: tuple[str, ...]


TOPICS: tuple[Topic, ...] = (
    Topic("build", ("either",), ("cuda",)),
    Topic("build", ("either",), ("torch",)),
    Topic("wsl-driver", ("need", "which", "works"), ("wsl", "driver")),
    Topic("two-numbers", ("differs",), ("smi", "other-cuda")),
    Topic("jetson", ("works", "which", "need", "exists"), ("torch", "jetson")),
    Topic("several-cudas", ("works", "need", "one"), ("several-cudas",)),
    Topic("python", ("works", "which", "need"), ("python", "torch")),
    Topic("downgrade", ("downgrade",), ("cuda",)),
    Topic("downgrade", ("downgrade",), ("driver",)),
    Topic("toolkit", ("need", "enough"), ("toolkit",)),
    Topic("several", ("one",), ("two-gpus",)),
    Topic("memory", ("amount",), ("vram", "model")),
    Topic("driver", ("enough", "works", "which", "need"), ("driver",)),
    Topic("maker", ("works", "which"), ("maker",)),
    Topic("torch-cuda", ("works",), ("torch", "cuda")),
    Topic("build", ("which", "need"), ("cuda",)),
    Topic("build", ("which",), ("torch",)),
    Topic("card", ("works",), ("torch", "gpu")),
    Topic("driver", ("works",), ("cuda",)),
    Topic("check", ("check",), ("gpu",)),
    Topic("check", ("check",), ("cuda",)),
)
"""All topics, with the most specific first. The first topic that fits a question counts."""


MEANT_BEFORE = ("need", "works", "enough", "differs")
"""The intents of questions whose subject may be named in earlier sentences: "I have CUDA 11.8. Does
that work?"."""


OF_VERSIONS = ("two-numbers", "driver", "torch-cuda")
"""The topics that a question may have if its subject is only named in earlier sentences."""


def topic_of(sentence: str, before: str = "") -> str:
    """The topic of a question, which may depend on the sentences before it; "" if none fits.

    >>> topic_of("Do I need the CUDA toolkit?"), topic_of("どのCUDAを入れればいいですか?")
    ('toolkit', 'build')
    >>> topic_of("Does that go together?", "I have driver 535 and torch for CUDA 12.8.")
    'driver'
    """
    intents = [name for name, words in INTENTS.items() if in_any_case(words).search(sentence)]
    topic = _first_topic(intents, sentence)
    if topic or not before:
        return topic
    # In "Does that work?", "that" refers to something in an earlier sentence.
    intents_with_that = [intent for intent in intents if intent in MEANT_BEFORE]
    topic_with_that = _first_topic(intents_with_that, f"{before} {sentence}")
    return topic_with_that if topic_with_that in OF_VERSIONS else ""


def _first_topic(intents: Collection[str], words: str) -> str:
    """The most specific topic with one of these intents that mentions all its things; "" if there
    is none."""
    for topic in TOPICS:
        if not any(intent in intents for intent in topic.intents):
            continue
        names_all_things = all(in_any_case(THINGS[thing]).search(words) for thing in topic.things)
        if names_all_things:
            return topic.name
    return ""
