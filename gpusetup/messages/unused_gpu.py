"""How people say that a GPU stays unused or waits for data, in several languages.

Such a sentence shows a symptom. It never proves a cause.
"""

from __future__ import annotations

from gpusetup.messages.row import MessageRow, row

# --- the GPU stays unused -------------------------------------------------------------------------

GPU = r"(?:gpus?|graphics? ?cards?|video ?cards?|[rg]tx ?\d{3,4}\w{0,6}|[2-5]0[5-9]0(?: ?ti)?|vram|cuda|card)"
UNUSED_IN_ENGLISH: tuple[tuple[tuple[str, ...], str], ...] = (
    (
        (
            "back to",
            "back into",
            "fallback",
            "fall-back",
        ),
        r"\bf(?:a|e)ll(?:s|ing)?[- ]?back (?:in)?to (?:the )?cpu\b|\bfallback to (?:the )?cpu\b",
    ),
    (
        (
            "not ",
            "n't",
            "nt ",
            "won",
            "never",
            "refuse",
            "can",
        ),
        rf"\b(?:does(?: not|n'?t)|do(?: not|n'?t)|did(?: not|n'?t)|is(?: not|n'?t)|won'?t|will not|can(?:not|'?t| not)|never|refuses? to|not) (?:even |be |being )?(?:us(?:e|es|ed|ing)|utili[sz](?:e|ed|ing)|touch(?:es|ing)?) (?:(?:my|the|any|its|your|our|nvidia|geforce|dedicated|discrete) ){{0,3}}{GPU}\b",
    ),
    (
        (
            "unused",
            "un-used",
            "idl",
            "not ",
            "nothing",
            "anything",
        ),
        rf"\b{GPU} (?:is |are |was |were |stays? |remains? |sits? )?(?:still |just |always |simply |completely )?(?:un-?used|idle|idling|not (?:being )?(?:used|utili[sz]ed|touched)|never used|does(?: not|n'?t) (?:do anything|get used)|does nothing|doing nothing)\b",
    ),
    (
        (" 0",),
        rf"\b{GPU}(?: (?:usage|utili[sz]ation|load|use))?\W{{0,3}} (?:(?:\w+ ){{0,5}}?)?(?:is|stays?|sits?|stuck|remains?|shows?|at)(?: \w+){{0,2}}? 0(?: ?- ?[1-9])? ?(?:%|percent)",
    ),
    (
        (
            "only",
            "just",
            "everything",
            "all of it",
            "always",
            "still",
        ),
        r"\b(?:only|just|everything|all of it|always|still) (?:use[sd]?|using|runs?|running|ran|computes?|goes|works|trains?)(?: (?:on|in|with|by))? (?:my |the )?(?:cpu|processor)\b",
    ),
    (
        (
            "on cpu",
            "by cpu",
            "with cpu",
            "on the",
            "on my",
            "by the",
            "with the",
            "processor",
        ),
        r"\b(?:runs?|running|ran|computes?|training|trains|works?) (?:only |entirely |just |always )?(?:on|by|with) (?:my |the )?(?:cpu|processor)(?: only| instead| and not)\b",
    ),
    (
        (
            "instead of",
            "rather than",
            "and not",
            "but not",
        ),
        rf"\b(?:uses?|using|on|runs? on|trains? on) (?:the |my )?(?:cpu|processor),? (?:instead of|rather than|and not|but not)(?: on)? (?:(?:my|the|a) )?{GPU}\b",
    ),
    (
        (
            "ignor",
            "skip",
            "default",
            "device",
        ),
        rf"\b(?:ignor(?:es?|ing)|skips?) (?:my|the) {GPU}\b|\bdefault(?:s|ed|ing)? to (?:the )?cpu\b|\b(?:says?|shows?|prints?)\b[^.\n]{{0,16}}\bdevice\W{{1,3}}cpu\b",
    ),
    (
        (
            "acceleration",
            "everything",
        ),
        r"\bno gpu acceleration\b|\bgpu acceleration (?:does(?: not|n'?t)|is not|isn'?t) (?:work|active|used|enabled|available)\w*|\beverything (?:is |runs |goes |happens )?on (?:the )?cpu\b",
    ),
    (
        (
            "only",
            "just",
            "solely",
            "exclusiv",
            "entirely",
        ),
        r"\b(?:use[sd]?|using|runs?|running|works?) (?:only|just|solely|exclusively|entirely) (?:on )?(?:the |my )?(?:cpu|processor)\b",
    ),
    (
        (
            "why",
            "how come",
        ),
        rf"\b(?:why|how come)\b[^.?\n]{{0,50}}\b(?:cpu|processor)\b[^.?\n]{{0,30}}\b(?:instead of|and not|not)\b[^.?\n]{{0,20}}{GPU}",
    ),
    (
        (
            "can",
            "could",
            "unable",
            "does",
            "won",
        ),
        rf"\b(?:can ?not|can'?t|could(?: not|n'?t)|unable to|does(?: not|n'?t)|won'?t) (?:get (?:it|this|\w+) to )?(?:detect|find|see|recogni[sz]e|work with|run (?:on|with)) (?:(?:my|the|any|this|its) ){{0,2}}{GPU}\b",
    ),
    (
        (
            "recogni",
            "detect",
            "found",
            "seen",
            "picked",
        ),
        rf"\b{GPU} (?:is |was |are )?(?:not|n'?t|never|no longer) (?:being )?(?:recogni[sz]ed|detected|found|seen|picked up)\b",
    ),
)
"""Pairs of lower-case strings and a pattern. Every match of the pattern contains one of the
strings."""
CARD = {
    "zh": r"(?:显卡|顯卡|GPU|gpu|独显|独立显卡|CUDA|cuda|N卡)",
    "ja": r"(?:GPU|グラボ|グラフィック(?:ス)?(?:カード|ボード)|ビデオカード|CUDA)",
    "ko": r"(?:GPU|그래픽 ?카드|그래픽카드|글카|쿠다|CUDA)",
    "de": r"(?:GPU|Grafikkarte|Karte|Graka|CUDA)",
    "fr": r"(?:GPU|carte graphique|carte|CUDA)",
    "es": r"(?:GPU|tarjeta gr[aá]fica|tarjeta de v[ií]deo|tarjeta|gr[aá]fica|CUDA)",
    "pt": r"(?:GPU|placa de v[ií]deo|placa gr[aá]fica|placa|CUDA)",
    "ru": r"(?:GPU|ГПУ|видеокарт[аыуе]?|карт[аыуе]|видюх[аиуе]?|CUDA|куда)",
}
"""A language -> a pattern for the words for a graphics card."""
UNUSED: dict[str, tuple[str, ...]] = {
    "zh": (
        rf"{CARD['zh']}[^,.\n]{{0,10}}(?:认不出|识别不(?:了|到|出)|檢測不到|检测不到|没(?:有)?(?:被)?(?:使用|识别|用上|调用|占用|反应)|不(?:被)?(?:识别|使用|工作|起作用)|用不(?:了|上)|占用(?:率)?(?:一直|始终|都)?(?:是|为)? ?0|利用率(?:一直|始终|都)?(?:是|为)? ?0|是空的)",
        rf"(?:(?:没有?|不|无法|不能|未能?|没办法|不会|沒有)(?:使用|调用|用上?|识别(?:到|出)?|检测(?:到)?|找到|认出)|找不到|检测不到|识别不到)(?:我的|到|出)?{CARD['zh']}",
        r"(?:一直|只能?|都|全|还是|总是|始终|仍然?|默认)(?:在|走|用|使|是)?(?:的)?(?:是)?(?:走|用|使用|跑|靠|占)(?:的)?(?:是)? ?(?:CPU|cpu|处理器)",
    ),
    "ja": (
        rf"{CARD['ja']}(?:の)?使用率(?:が|は)?(?:ずっと|常に)? ?0",
        rf"{CARD['ja']}(?:が|を|は|も)?(?:まったく|全く|全然|ほとんど|あまり|一切)?(?:使(?:われ|え|用され|用でき|わ)(?:ません|ない|てい?ない|ていません)|認識(?:され|し)(?:ません|ない|てい?ない|ていません)|検出(?:され|でき)(?:ません|ない)|動(?:き|か|作し)(?:ません|ない))",
        r"CPU(?:だけ|のみ|ばかり|しか|で(?:しか)?(?:動|処理|実行|計算))",
    ),
    "ko": (
        rf"{CARD['ko']}(?:를|을|가|이|는|은)? ?(?:전혀 )?(?:사용(?:하지|되지)|인식(?:하지|되지|이)?|잡(?:지|히지)|쓰지|감지(?:하지|되지)?) ?(?:못|않|안)",
        rf"{CARD['ko']}[^.\n]{{0,14}}\b0 ?%|CPU(?:만|로만)",
        rf"{CARD['ko']}(?:를|을|가|이|는|은)? ?(?:안|못) ?(?:씁|써|쓰|잡|되|돼|돌|사용|인식)",
        r"(?:계속 |항상 |오직 )?(?:CPU|씨피유)(?:로만|만|로) ?(?:돌|실행|사용|작동|처리|동작)",
    ),
    "de": (
        rf"\b{CARD['de']}\b[^.\n]{{0,30}}\b(?:nicht|nie|gar nicht)\b (?:\w+ )?(?:benutzt|genutzt|verwendet|erkannt|gefunden|angesprochen|ausgelastet)\b",
        rf"\b{CARD['de']}\b[^.\n]{{0,20}}\b(?:bei|auf) 0 ?%",
        rf"\b(?:nutzt|benutzt|verwendet|erkennt|findet|sieht)\b[^.\n]{{0,30}}\b{CARD['de']}\b[^.\n]{{0,12}}\bnicht\b|\b(?:nutzt|benutzt|verwendet|erkennt|findet)\b[^.\n]{{0,12}}\b(?:nicht|keine)\b[^.\n]{{0,12}}{CARD['de']}\b",
        r"\b(?:l(?:äuft|auft|aeuft)|rechnet|arbeitet|nutzt|benutzt)\b[^.\n]{0,20}\b(?:nur|immer|alles|weiterhin)\b[^.\n]{0,14}\b(?:CPU|Prozessor)\b",
    ),
    "fr": (
        rf"\b(?:n'utilise|n'exploite|ne (?:d[ée]tecte|reconna[iî]t|voit|trouve|se sert)|n'est|ne)\b[^.\n]{{0,16}}\b(?:pas|jamais|aucune?)\b[^.\n]{{0,24}}\b{CARD['fr']}\b",
        rf"\b{CARD['fr']}\b[^.\n]{{0,20}}\b(?:n'est|ne sert|reste)\b[^.\n]{{0,16}}\b(?:pas|jamais|inutilis[ée]e?|[àa] 0|rien)\b",
        r"\b(?:utilise|emploie)\b[^.\n]{0,10}\b(?:que|uniquement|seulement)\b[^.\n]{0,10}\b(?:CPU|processeur)\b",
        r"\b(?:tourne|fonctionne|calcule|s'ex[ée]cute)\b[^.\n]{0,14}\b(?:que|uniquement|seulement|toujours)\b[^.\n]{0,10}\b(?:CPU|processeur)\b|\btourne sur (?:le )?(?:CPU|processeur)\b",
    ),
    "es": (
        rf"\bno (?:usa|utiliza|est[aá] usando|detecta|reconoce|ve|encuentra|aprovecha|me (?:detecta|reconoce))\b[^.\n]{{0,16}}\b{CARD['es']}",
        rf"\b{CARD['es']}[^.\n]{{0,20}}\b(?:no (?:se (?:usa|utiliza|detecta|reconoce)|est[aá] siendo|es (?:usada|detectada|reconocida)|trabaja|hace nada)|al 0 ?%)",
        r"\b(?:solo|s[oó]lo|siempre|todo|[uú]nicamente)\b[^.\n]{0,16}\b(?:usa|utiliza|corre|funciona|trabaja|usando|va)\b[^.\n]{0,12}\b(?:CPU|procesador)\b|\b(?:usa|utiliza|corre en|funciona con) (?:solo|s[oó]lo|siempre) (?:la |el )?(?:CPU|procesador)\b",
    ),
    "pt": (
        rf"\bn[aã]o (?:usa|utiliza|est[aá] (?:usando|utilizando)|detecta|reconhece|encontra|v[eê])\b[^.\n]{{0,16}}\b{CARD['pt']}",
        rf"\b{CARD['pt']}[^.\n]{{0,20}}\bn[aã]o (?:[eé] (?:usada|utilizada|detectada|reconhecida)|est[aá] sendo|trabalha|faz nada)",
        r"\b(?:s[oó]|somente|apenas|sempre|tudo)\b[^.\n]{0,16}\b(?:usa|utiliza|roda|funciona|usando)\b[^.\n]{0,12}\b(?:CPU|processador)\b|\b(?:usa|roda) (?:s[oó]|apenas|somente) (?:n[ao] |a |o )?(?:CPU|processador)\b",
    ),
    "ru": (
        rf"(?:не (?:использует(?:ся)?|видит|находит|определяет(?:ся)?|задействует|распозна[её]т(?:ся)?|нагружает(?:ся)?|работает (?:на|с)))[^.\n]{{0,16}}{CARD['ru']}",
        r"\bна (?:CPU|ЦП|процессоре)[^.\n]{0,10}\bа не на\b",
        rf"{CARD['ru']}[^.\n]{{0,20}}\bне (?:загруж\w+|использует(?:ся)?|определяется|видн[аы]|задействован[аы]?|работает|нагружа\w+|греется)",
        r"(?:только|всегда|вс[её]|лишь|по-прежнему|почему-то)[^.\n]{0,12}(?:работает|считает|идёт|идет|использует|грузит)?[^.\n]{0,8}\b(?:на )?(?:CPU|ЦП|процессор\w{0,2})\b|работает (?:только )?на (?:CPU|ЦП|процессоре)",
    ),
}
"""A language -> patterns for sentences that say that the GPU is not used. They cover the usual
wordings, not single texts."""
NO_SYMPTOM = (
    r"\b(?:if it|if the|if your|in case|whether|make sure|ensure|avoid|on purpose|no gpu needed|without a gpu|supports?|option|feature request|should be able|could|tensor ?cores?)\b"
    r"|如果|もし|\bwenn (?:die|der|das|es)\b|\bfalls (?:die|der|das|es)\b|\bsi (?:el|la|le|il|vous|tu|usted)\b|\bse (?:a|o|voc)|если "
)
"""Words that turn such a sentence into a condition or a wish."""


def _unused() -> tuple[MessageRow, ...]:
    english = tuple(
        row("gpu-unused", pattern, *needles, unless=NO_SYMPTOM, language="en")
        for needles, pattern in UNUSED_IN_ENGLISH
    )
    others = tuple(
        row("gpu-unused", pattern, *NEEDLES[language], unless=NO_SYMPTOM, language=language)
        for language, patterns in UNUSED.items()
        for pattern in patterns
    )
    return (*english, *others)


NEEDLES: dict[str, tuple[str, ...]] = {
    "zh": ("不", "没", "无", "找不到", "未", "只", "都", "直", "是空的", "还是", "占用"),
    "ja": ("ない", "ません", "だけ", "のみ", "ばかり", "しか", "cpuで", "使用率"),
    "ko": ("않", "안", "못", "로", "만", "0%", "0 %"),
    "de": ("nicht", "nie", "nur", "bei 0", "auf 0", "keine", "immer", "weiterhin"),
    "fr": ("n'", "ne ", "que ", "uniquement", "seulement", "toujours", "tourne sur"),
    "es": ("no ", "solo", "sólo", "siempre", "únicamente", "al 0"),
    "pt": ("não ", "nao ", "só ", "somente", "apenas", "sempre", "tudo"),
    "ru": ("не ", "а не", "только", "всегда", "всё", "все", "лишь", "почему-то", "работает"),
}
"""A language -> lower-case strings. Every such sentence in that language contains one of them."""

# "VRAM is full, utilization 0 %", in English and Chinese.
MEMORY_IN_USE = (
    r"\b(?:v?ram|memory)\b[^.\n]{0,40}?\b(?:high|full|used|occupied|allocated|filled|taken)\b"
    r"[^.\n]{0,60}?\b(?:utili[sz]ation|usage|load|util)\b[^.\n]{0,40}?\b(?:0|zero)(?: ?%| percent|\b)"
    r"|显存[^。\n]{0,12}(?:占|满|高|用)[^。\n]{0,24}利用率[^。\n]{0,8}\b0"
)
"""Sentences about a GPU with full memory and a utilization of 0. Since a program holds its memory,
the GPU is in use but idle."""
WAITS_FOR_DATA: tuple[MessageRow, ...] = tuple(
    row(
        "gpu-starved", pattern, "gpu", "utili", "usage", "batches", "loader", "利用率", "auslastung"
    )
    for pattern in (
        r"\b(?:gpu|utili[sz]ation|usage)\b[^.\n]{0,60}?\b(?:jump(?:s|ing)?|fluctuat\w+|oscillat\w+|spik(?:es|ing)|goes up and down|drops to 0|sawtooth)\b",
        r"\b(?:utili[sz]ation|usage|load)\b[^.\n]{0,80}?\b(?:0 ?%?, ?){1,3}\d{2} ?%?, ?0\b",
        r"\b(?:low|poor|bad|terrible) (?:gpu|accelerator|device|cuda) (?:utili[sz]ation|usage|load)\b|\bgpu (?:utili[sz]ation|usage|load) (?:is |stays |remains )?(?:only |just |very |too |around |about |at )*(?:low|[1-5]?\d ?%)",
        r"\bgpu (?:is |sits )?(?:waiting|waits|starv\w+)(?: for (?:the )?(?:data|batches|input|cpu|loader|disk))?\b|\bbatches (?:come|arrive) too slow\w*|\b(?:data ?loader|data loading) (?:is|seems)(?: \w+)? (?:the )?(?:bottleneck|slow|too slow)",
        r"(?:显卡|GPU|gpu)?利用率(?:只有|才) ?[1-5]?\d ?%|(?:显卡|GPU|gpu)利用率(?:很|太|一直)?(?:低|上不去|忽高忽低|波动|不稳)|GPU-?Auslastung (?:springt|schwankt|nur|ist niedrig)|загрузка (?:GPU|видеокарты) (?:скачет|низкая|прыгает)",
    )
)
"""Sentences about a GPU that works but waits between batches."""
STARVED: tuple[MessageRow, ...] = (
    # This row comes first because it says more, and only the first match counts.
    row("gpu-starved", MEMORY_IN_USE, "utili", "usage", "load", "利用率", holds="memory"),
    *WAITS_FOR_DATA,
)

ROWS: tuple[MessageRow, ...] = (*_unused(), *STARVED)
"""All these sentences as message rows."""
