"""What people write in their own words: a GPU that stays unused, what they tried, what they cannot do.

These are sentences of a language and no messages of a program. A sentence here shows a symptom or a
fact about the person's situation; it never names a cause by itself.
"""

from __future__ import annotations

from gpusetup.messages.fragments import IF_ONLY
from gpusetup.messages.row import Row, row

# --- the GPU stays unused -------------------------------------------------------------------------

GPU = r"(?:gpus?|graphics? ?cards?|video ?cards?|[rg]tx ?\d{3,4}\w{0,6}|[2-5]0[5-9]0(?: ?ti)?|vram|cuda|card)"
UNUSED_IN_ENGLISH = (
    r"\bf(?:a|e)ll(?:s|ing)?[- ]?back (?:in)?to (?:the )?cpu\b|\bfallback to (?:the )?cpu\b",
    rf"\b(?:does(?: not|n'?t)|do(?: not|n'?t)|did(?: not|n'?t)|is(?: not|n'?t)|won'?t|will not|can(?:not|'?t| not)|never|refuses? to|not) (?:even |be |being )?(?:us(?:e|es|ed|ing)|utili[sz](?:e|ed|ing)|touch(?:es|ing)?) (?:(?:my|the|any|its|your|our|nvidia|geforce|dedicated|discrete) ){{0,3}}{GPU}\b",
    rf"\b{GPU} (?:is |are |was |were |stays? |remains? |sits? )?(?:still |just |always |simply |completely )?(?:un-?used|idle|idling|not (?:being )?(?:used|utili[sz]ed|touched)|never used|does(?: not|n'?t) (?:do anything|get used)|does nothing|doing nothing)\b",
    rf"\b{GPU}(?: (?:usage|utili[sz]ation|load|use))?\W{{0,3}} (?:(?:\w+ ){{0,5}}?)?(?:is|stays?|sits?|stuck|remains?|shows?|at)(?: \w+){{0,2}}? 0(?: ?- ?[1-9])? ?(?:%|percent)",
    r"\b(?:only|just|everything|all of it|always|still) (?:use[sd]?|using|runs?|running|ran|computes?|goes|works|trains?)(?: (?:on|in|with|by))? (?:my |the )?(?:cpu|processor)\b",
    r"\b(?:runs?|running|ran|computes?|training|trains|works?) (?:only |entirely |just |always )?(?:on|by|with) (?:my |the )?(?:cpu|processor)(?: only| instead| and not)\b",
    rf"\b(?:why|how come)\b[^.?\n]{{0,50}}\b(?:cpu|processor)\b[^.?\n]{{0,30}}\b(?:instead of|and not|not)\b[^.?\n]{{0,20}}{GPU}",
    rf"\b(?:can ?not|can'?t|could(?: not|n'?t)|unable to|does(?: not|n'?t)|won'?t) (?:get (?:it|this|\w+) to )?(?:detect|find|see|recogni[sz]e|work with|run (?:on|with)) (?:(?:my|the|any|this|its) ){{0,2}}{GPU}\b",
    rf"\b{GPU} (?:is |was |are )?(?:not|n'?t|never|no longer) (?:being )?(?:recogni[sz]ed|detected|found|seen|picked up)\b",
)
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
"""What a graphics card is called, by language."""
UNUSED: dict[str, tuple[str, ...]] = {
    "zh": (
        rf"{CARD['zh']}[^,.\n]{{0,10}}(?:认不出|识别不(?:了|到|出)|檢測不到|检测不到|没(?:有)?(?:被)?(?:使用|识别|用上|调用|占用|反应)|不(?:被)?(?:识别|使用|工作|起作用)|用不(?:了|上)|占用(?:率)?(?:一直|始终|都)?(?:是|为)? ?0|利用率(?:一直|始终|都)?(?:是|为)? ?0|是空的)",
        rf"(?:(?:没有?|不|无法|不能|未能?|没办法|不会|沒有)(?:使用|调用|用上?|识别(?:到|出)?|检测(?:到)?|找到|认出)|找不到|检测不到|识别不到)(?:我的|到|出)?{CARD['zh']}",
        r"(?:一直|只能?|都|全|还是|总是|始终|仍然?|默认)(?:在|走|用|使|是)?(?:的)?(?:是)?(?:走|用|使用|跑|靠|占)(?:的)?(?:是)? ?(?:CPU|cpu|处理器)",
    ),
    "ja": (
        rf"{CARD['ja']}(?:が|を|は|も)?(?:まったく|全く|全然)?(?:使(?:われ|え|用され|用でき|わ)(?:ません|ない|てい?ない|ていません)|認識(?:され|し)(?:ません|ない|てい?ない|ていません)|検出(?:され|でき)(?:ません|ない)|動(?:き|か|作し)(?:ません|ない))",
        r"CPU(?:だけ|のみ|ばかり|しか|で(?:しか)?(?:動|処理|実行|計算))",
    ),
    "ko": (
        rf"{CARD['ko']}(?:를|을|가|이|는|은)? ?(?:전혀 )?(?:사용(?:하지|되지)|인식(?:하지|되지|이)?|잡(?:지|히지)|쓰지|감지(?:하지|되지)?) ?(?:못|않|안)",
        rf"{CARD['ko']}(?:를|을|가|이|는|은)? ?(?:안|못) ?(?:씁|써|쓰|잡|되|돼|돌|사용|인식)",
        r"(?:계속 |항상 |오직 )?(?:CPU|씨피유)(?:로만|만|로) ?(?:돌|실행|사용|작동|처리|동작)",
    ),
    "de": (
        rf"\b{CARD['de']}\b[^.\n]{{0,30}}\b(?:nicht|nie|gar nicht)\b (?:\w+ )?(?:benutzt|genutzt|verwendet|erkannt|gefunden|angesprochen|ausgelastet)\b",
        rf"\b(?:nutzt|benutzt|verwendet|erkennt|findet|sieht)\b[^.\n]{{0,30}}\b{CARD['de']}\b[^.\n]{{0,12}}\bnicht\b|\b(?:nutzt|benutzt|verwendet|erkennt|findet)\b[^.\n]{{0,12}}\b(?:nicht|keine)\b[^.\n]{{0,12}}{CARD['de']}\b",
        r"\b(?:l(?:äuft|auft|aeuft)|rechnet|arbeitet|nutzt|benutzt)\b[^.\n]{0,20}\b(?:nur|immer|alles|weiterhin)\b[^.\n]{0,14}\b(?:CPU|Prozessor)\b",
    ),
    "fr": (
        rf"\b(?:n'utilise|n'exploite|ne (?:d[ée]tecte|reconna[iî]t|voit|trouve|se sert)|n'est|ne)\b[^.\n]{{0,16}}\b(?:pas|jamais|aucune?)\b[^.\n]{{0,24}}\b{CARD['fr']}\b",
        rf"\b{CARD['fr']}\b[^.\n]{{0,20}}\b(?:n'est|ne sert|reste)\b[^.\n]{{0,16}}\b(?:pas|jamais|inutilis[ée]e?|[àa] 0|rien)\b",
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
        rf"{CARD['ru']}[^.\n]{{0,20}}\bне (?:использует(?:ся)?|определяется|видн[аы]|задействован[аы]?|работает|нагружа\w+|греется)",
        r"(?:только|всегда|вс[её]|лишь|по-прежнему|почему-то)[^.\n]{0,12}(?:работает|считает|идёт|идет|использует|грузит)?[^.\n]{0,8}\b(?:на )?(?:CPU|ЦП|процессор\w{0,2})\b|работает (?:только )?на (?:CPU|ЦП|процессоре)",
    ),
}
"""How people say it, by language: a sentence of the language, not of one text."""
NO_SYMPTOM = (
    r"\b(?:if it|if the|if your|in case|whether|make sure|ensure|avoid|on purpose|no gpu needed|without a gpu|supports?|option|feature request|should be able|could)\b"
    r"|如果|もし|\bwenn (?:die|der|das|es)\b|\bfalls (?:die|der|das|es)\b|\bsi (?:el|la|le|il|vous|tu|usted)\b|\bse (?:a|o|voc)|если "
)
"""What makes such a sentence a condition, or a wish."""


def _unused() -> tuple[Row, ...]:
    english = tuple(
        row("gpu-unused", pattern, *NEEDLES["en"], unless=NO_SYMPTOM, language="en")
        for pattern in UNUSED_IN_ENGLISH
    )
    others = tuple(
        row("gpu-unused", pattern, *NEEDLES[language], unless=NO_SYMPTOM, language=language)
        for language, patterns in UNUSED.items()
        for pattern in patterns
    )
    return (*english, *others)


NEEDLES: dict[str, tuple[str, ...]] = {
    "en": ("gpu", "cpu", "card", "rtx", "gtx", "vram", "cuda", "processor"),
    "zh": ("不", "没", "未", "只", "都", "直", "是空的", "还是", "占用"),
    "ja": ("ない", "ません", "だけ", "のみ", "ばかり", "しか", "cpuで"),
    "ko": ("않", "안", "못", "로"),
    "de": ("nicht", "nie", "nur", "keine", "immer", "weiterhin"),
    "fr": ("n'", "ne ", "que ", "uniquement", "seulement", "toujours", "tourne sur"),
    "es": ("no ", "solo", "sólo", "siempre", "únicamente", "al 0"),
    "pt": ("não ", "nao ", "só ", "somente", "apenas", "sempre", "tudo"),
    "ru": ("не ", "только", "всегда", "всё", "все", "лишь", "почему-то", "работает"),
}
"""Letters, lower case, one of which each sentence of that language has."""

# --- what was tried, and did not help -------------------------------------------------------------

AGAIN = r"(?:re-?install(?:ed|ing)?|(?:un)?install(?:ed)? (?:it )?(?:and (?:re)?install(?:ed)? )?(?:again|twice|several times|many times)|removed (?:it |\S{2,20} )?and (?:put|installed)|(?:remov|uninstall)\w+ and (?:re)?install\w+)"
NO_CHANGE = r"(?:no (?:change|difference|effect|luck|success|help)|same (?:error|result|problem|thing|story)|nothing (?:chang|help|work)|(?:did|does)(?: not|n'?t) (?:help|change|work|fix)|still (?:the same|fails?|broken|there)|in vain|to no avail|not? (?:solved?|fixed))"
TORCH = r"(?:py)?torch"
DRIVER = r"(?:(?:nvidia|graphics|gpu|geforce) )?drivers?"
CJK_TORCH = r"(?:py)?torch\s?(?:都|也|已经)?(?:卸(?:载)?了?(?:又|再|重新)?(?:重?装)|重(?:新)?(?:装|安装)(?:了|过)?)"
CJK_DRIVER = r"(?:显卡)?驱动(?:程序)?(?:都|也|已经)?(?:重(?:新)?(?:装|安装)|更新)(?:了|过)"
TRIED: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "torch",
        (
            rf"\b{AGAIN}\b[^.\n]{{0,24}}\b{TORCH}\b[^\n]{{0,90}}?\b{NO_CHANGE}",
            rf"\b{TORCH}\b[^.\n]{{0,24}}\b{AGAIN}\b[^\n]{{0,90}}?\b{NO_CHANGE}",
            rf"\b{TORCH}\b[^.\n]{{0,24}}\b{AGAIN}\b[^.\n]{{0,10}}\b(?:twice|several times|many times|[2-9] times)",
            CJK_TORCH,
            r"переустан(?:авливал|овил)\w{0,2} (?:и )?torch|Переставлял\w? (?:и )?(?:py)?torch",
            r"torch (?:mehrfach |schon |bereits )?neu installiert|(?:reinstal[ée]|réinstallé|reinstalei)\w{0,3} (?:py)?torch",
        ),
    ),
    (
        "driver",
        (
            rf"\b{AGAIN}\b[^.\n]{{0,24}}\b{DRIVER}\b",
            rf"\b{DRIVER}\b[^.\n]{{0,16}}\b{AGAIN}\b",
            CJK_DRIVER,
            r"переустан(?:авливал|овил)\w{0,2} (?:и )?драйвер|Treiber neu installiert",
        ),
    ),
    (
        "reboot",
        (
            r"\b(?:rebooted|restarted (?:the |my )?(?:machine|pc|computer|laptop|host|server|system|windows|node))\b[^\n]{0,60}?\b(?:no change|same|still|did(?: not|n'?t) help|twice|several times)",
            r"\b(?:after|despite|even (?:with|after)) (?:a |the |several |many |two |another )?(?:reboots?|restarts? of the (?:machine|pc|host|node))\b[^\n]{0,40}?\b(?:still|same|remains|persists)",
            r"重启(?:了|过)[^,.\n]{0,8}(?:没用|无效|一样|也不行|还是)",
        ),
    ),
    (
        "vc-runtime",
        (
            r"\b(?:VC(?:\+\+|_)? ?(?:Redist\w{0,14}|runtime)|Visual C\+\+(?: Redist\w*| runtime)?|vcredist)\b[^.\n]{0,40}?\b(?:is |are |was |already )?(?:installed|newest|latest|up to date|current|the latest)",
            r"\b(?:installed|have|updated)(?: the)? (?:newest |latest |current )?(?:VC(?:\+\+|_)? ?(?:Redist\w*|runtime)|Visual C\+\+(?: Redist\w*| runtime)?|vcredist)",
            r"(?:VC(?:\+\+)?|vc_?redist) ?(?:运行库|运行时|runtime)?[^,.;\n]{0,8}(?:是最新|最新的|装了|已装|装过|已经装|重装)",
        ),
    ),
    (
        "toolkit",
        (
            r"\b(?:nvidia-)?container[- ]toolkit\b[^.\n]{0,24}?\b(?:is|are|was|version)? ?(?:already |properly )?(?:installed|in place|there|configured|v?1\.\d{1,2}\.\d)",
            r"\btoolkit is v?1\.\d{1,2}(?:\.\d)?\b",
        ),
    ),
    (
        "package",
        (
            rf"\b{AGAIN}\b[^\n]{{0,100}}?\b{NO_CHANGE}",
            rf"\b(?:removed|uninstalled) (?:it|\S{{2,20}}) and (?:put|installed) (?:it )?(?:back|again)\b[^\n]{{0,80}}?\b{NO_CHANGE}",
        ),
    ),
)
"""What was done already, for nothing -> how people say it."""
NOT_TRIED = rf"{IF_ONLY}|没有?装|未装|not (?:yet )?installed|n't installed|\b(?:should|will|going to|could|must|do I (?:need|have) to|try to) (?:\w+ )?(?:re)?install"

TRIED_NEEDLES = {
    "torch": ("torch",),
    "driver": ("driver", "驱动", "драйвер", "treiber"),
    "reboot": ("reboot", "restart", "重启"),
    "vc-runtime": ("vc", "visual c++"),
    "toolkit": ("toolkit",),
    "package": ("install",),
}

# --- who the machine belongs to, and what cannot be done there ------------------------------------


def _situation(
    kind: str, needles: tuple[str, ...], *patterns: str, unless: str = ""
) -> tuple[Row, ...]:
    return tuple(row(kind, pattern, *needles, unless=unless) for pattern in patterns)


SITUATION: tuple[Row, ...] = (
    *_situation(
        "no-root-rights",
        ("root", "sudo", "admin", "user", "tenant", "guest", "管理员", "администратора"),
        r"\b(?:no|without|not? have|n'?t have|lack(?:ing)?|have no)(?: any)? (?:root|sudo|admin(?:istrator)?)(?: rights?| access| privileges?| permissions?)?\b",
        r"\bI(?: am|'m) (?:only |just )?a (?:plain |normal |mere )?(?:user|tenant|guest)(?: (?:there|here|on it))?\b",
        r"\b(?:the )?admins? (?:update|updates|maintain|install|manage|only)\b|\bnot in the sudoers\b",
        r"(?:没有|無|无) ?(?:root|sudo|管理员) ?权限|kein(?:e)? (?:root|sudo|Admin)\w*|нет (?:прав )?(?:root|sudo|администратора)|sin (?:permisos de )?(?:root|sudo)",
        unless=rf"{IF_ONLY}|\bas root\b",
    ),
    *_situation(
        "cloud-machine",
        (
            "azure",
            "aws",
            "ec2",
            "gcp",
            "cloud",
            "ovh",
            "hetzner",
            "ocean",
            "vultr",
            "linode",
            "scaleway",
            "standard_n",
            "_v",
            "large",
        ),
        r"\b(?:Azure|AWS|EC2|GCP|Google Cloud|Alibaba Cloud|OVH(?:cloud)?|Hetzner|Oracle Cloud|DigitalOcean|Vultr|Linode|Scaleway|Lambda Cloud)\b",
        r"\bStandard_N[CDV]\w+|\bN[CDV]\d{1,3}\w{0,8}_v\d\b|\b[gp][2-6](?:dn|de|d|e|en)?\.\d*x?large\b|-(?:azure|aws|gcp|gke|oracle)\b(?=[\s,)])",
    ),
    *_situation(
        "no-boot-screen",
        (
            "ssh",
            "console",
            "headless",
            "monitor",
            "screen",
            "display",
            "keyboard",
            "kvm",
            "physical access",
            "remote access",
        ),
        r"\bonly (?:have |got )?(?:ssh|remote access|a serial console)\b|\b(?:no|without a?) (?:monitor|display|screen|keyboard|console|physical access|KVM)\b|\bheadless\b",
        r"\b(?:serial console|ssh)\b[^.\n]{0,80}\b(?:already|passed|too late|after|never)\b",
        unless=IF_ONLY,
    ),
    *_situation(
        "ran-alone",
        (
            "alone",
            "itself",
            "its own",
            "separate",
            "direct",
            "plain ",
            "fresh ",
            "bare ",
            "单独",
            "自己跑",
            "allein",
            "отдельно",
            "単体",
        ),
        r"\b(?:alone|by itself|on its own|standalone|separately|directly|in a (?:plain|fresh|separate|bare) (?:python|script|shell|console))\b[^.\n]{0,30}\b(?:works?|worked|runs?|ran|is (?:fine|ok))\b",
        r"\b(?:works?|worked|runs?|ran)(?: (?:fine|well|perfectly|without (?:an? )?(?:error|problem)s?))? (?:alone|by itself|on its own|standalone|when (?:run|started) (?:alone|directly|separately)|in a (?:plain|fresh|separate|bare) (?:python|script|shell|console))\b",
        r"单独(?:跑|运行|执行|测试|import)?[^,.\n]{0,8}(?:没事|正常|没问题|可以|能)|自己跑(?:完全|都)?(?:正常|没事|没问题)",
        r"\ballein(?:e)? (?:läuft|funktioniert)|отдельно (?:вс[её] )?(?:работает|запускается)|単体(?:では|だと)(?:動|問題)",
        unless=IF_ONLY,
    ),
)

IN_PROSE_AND_LOGS: tuple[Row, ...] = (
    row("container-engine", r"\b(?P<engine>cri-o|containerd|docker)://\d", "://"),
    row("container-engine", r"/(?:var/)?run/(?P<engine>crio|containerd|k3s)\b[\w/.-]*\.sock", ".sock"),
    row("vendor-image", r"\b(?P<image>(?:intelanalytics|intel/(?:intel-extension-for-pytorch|vllm)|rocm/(?:pytorch|vllm|dev)|nvcr\.io/nvidia|nvidia/pytorch|dustynv|l4t-pytorch)[\w./:@-]*)", "intelanalytics", "intel/", "rocm/", "nvcr.io", "nvidia/pytorch", "dustynv", "l4t-pytorch"),
    row("pin-pulls-torch", r"Collecting torch ?==(?P<torch>[\w.+]+) \(from (?P<package>[\w.-]+)(?:[=<>~!]{1,2}(?P<version>[\w.*]+))?[^()\n]{0,40}?(?:->-r (?P<file>[\w./\\:-]+))?", "collecting torch"),
    row("container-start-failed", r"Failed to run mount hooks|error running (?:prestart |createRuntime )?hook|\bhooks?\b[^\n]{0,40}?exit status [1-9]|Failed to setup container", "hook", "setup container"),
    row("toolkit-installed", r"\bii +nvidia-container-toolkit +(?P<version>\d[\w.-]*)", "nvidia-container-toolkit"),
    row("toolkit-installed", r"\bnvidia-container-toolkit-(?P<version>1\.\d{1,2}\.\d)", "nvidia-container-toolkit-"),
    row("toolkit-installed", r"NVIDIA Container (?:Toolkit CLI|Runtime Hook) version (?P<version>\d[\w.-]*)", "nvidia container"),
    row("docker-runtime", r"\"runtimes\": ?\{ ?\"nvidia\": ?\{", "runtimes"),
)  # fmt: skip
"""What tools print about the engine of containers; a sentence of a person may say the same."""

OTHER_MAKERS: tuple[Row, ...] = (
    *(
        row(
            "foreign-gpu",
            pattern,
            "amd",
            "radeon",
            vendor="amd",
            unless=r"\bNVIDIA\b|\b[RG]TX\b|Ryzen",
        )
        for pattern in (
            r"\b(?:I have|I own|I use|using|with|has|have|got|own) (?:only )?an? (?:AMD|Radeon)\b(?! (?:processor|cpu|ryzen))",
            r"\b(?:AMD|Radeon)(?: (?:card|gpu|graphics))?s? only\b|\bonly (?:an? )?(?:AMD|Radeon)\b",
            r"\b(?:on|my|with|for) (?:an? |my )?(?:AMD|Radeon) (?:card|gpu|graphics)\b|\brun on (?:an? )?Radeon\b",
            r"(?:显卡|グラボ|видеокарт\w|Grafikkarte|carte|tarjeta|placa)[^.\n]{0,12}(?:AMD|Radeon)",
        )
    ),
)
"""A card of another maker, in a sentence."""

ENGINE: tuple[Row, ...] = (
    *_situation(
        "container-engine",
        ("cri-o", "crio", "containerd", "k3s", "rke2", "microk8s"),
        r"\b(?P<engine>cri-?o|containerd|k3s|rke2|microk8s)\b",
        unless=r"\b(?:not|instead of|without|no) (?:\w+ )?(?:cri-?o|containerd|k3s|rke2|microk8s)",
    ),
    *_situation(
        "toolkit-installed",
        ("toolkit",),
        r"\b(?:nvidia[- ])?(?:container[- ])?toolkit (?:is |version |v)?\W?(?P<version>1\.\d{1,2}\.\d)\b",
        r"\b(?:nvidia[- ])?container[- ]toolkit (?:is |was )?(?:already |properly )?(?:installed|in place|there|up to date)\b",
        unless=NOT_TRIED,
    ),
    *_situation(
        "python-bound",
        ("python",),
        r"\bpython[ =]{1,3}(?P<python>3\.\d{1,2})\b[^\n]{0,60}?\b(?:cannot be (?:a )?newer|can'?t (?:be upgraded|use a newer)|(?:must|has to) (?:stay|remain|be)|is required|only|no newer)\b",
        r"\b(?:requires?|needs?|bound to|stuck (?:on|with|at)|only (?:works?|supports?|runs?)(?: with| on| for)?|limited to)(?: \w+){0,2} python[ =]{1,3}(?P<python>3\.\d{1,2})\b(?! ?(?:\+|or (?:newer|later|higher)))",
        unless=r">=|or newer|or later|or higher",
    ),
)

STARVED: tuple[Row, ...] = tuple(
    row(
        "gpu-starved", pattern, "gpu", "utili", "usage", "batches", "loader", "利用率", "auslastung"
    )
    for pattern in (
        r"\b(?:gpu|utili[sz]ation|usage)\b[^.\n]{0,60}?\b(?:jump(?:s|ing)?|fluctuat\w+|oscillat\w+|spik(?:es|ing)|goes up and down|drops to 0|sawtooth)\b",
        r"\b(?:utili[sz]ation|usage|load)\b[^.\n]{0,80}?\b(?:0 ?%?, ?){1,3}\d{2} ?%?, ?0\b",
        r"\b(?:low|poor|bad|terrible) gpu (?:utili[sz]ation|usage|load)\b|\bgpu (?:utili[sz]ation|usage|load) (?:is |stays |remains )?(?:only |just |very |too |around |about |at )*(?:low|[1-5]?\d ?%)",
        r"\bgpu (?:is |sits )?(?:waiting|waits|starv\w+)(?: for (?:the )?(?:data|batches|input|cpu|loader|disk))?\b|\bbatches (?:come|arrive) too slow\w*|\b(?:data ?loader|data loading) (?:is|seems)(?: \w+)? (?:the )?(?:bottleneck|slow|too slow)",
        r"(?:显卡|GPU|gpu)利用率(?:很|太|一直)?(?:低|上不去|忽高忽低|波动|不稳)|GPU-?Auslastung (?:springt|schwankt|nur|ist niedrig)|загрузка (?:GPU|видеокарты) (?:скачет|низкая|прыгает)",
    )
)
"""A GPU that works, and waits between its batches."""

SEVERAL: tuple[Row, ...] = (
    row(
        "several-gpus",
        r"\b(?:[2-9]|[1-9]\d) ?x (?:NVIDIA )?(?:[A-Z]{1,3}\d{2,3}|RTX|\d{4})|\b(?:two|three|four|six|eight|[2-9]|[1-9]\d) (?:gpus|cards|nodes)\b|\bmulti-?(?:gpu|node)\b|\btorchrun\b|\b(?:DDP|FSDP)\b|\btensor[- ]parallel",
        "gpu",
        "x ",
        "card",
        "node",
        "torchrun",
        "ddp",
        "fsdp",
        "tensor",
    ),
    row(
        "run-hangs",
        r"\b(?:hangs?|hung|hanging|freez(?:es|ing)|froze|stuck|stalls?|deadlock\w*|never (?:returns|starts|continues))\b|卡住|不动了|зависает|hängt",
        "hang",
        "hung",
        "freez",
        "froze",
        "stuck",
        "stall",
        "deadlock",
        "never ",
        "卡住",
        "不动",
        "завис",
        "hängt",
    ),
)
"""A run over several GPUs, and one that does not go on."""

QUESTION_WORD = r"(?:must|do|should|shall|can|may|need|have|does|is|are|will|would|could)"
QUESTIONS: tuple[Row, ...] = tuple(
    row("question-asked", pattern, "cuda", "driver", "驱动", "treiber", "драйвер")
    for pattern in (
        rf"\b{QUESTION_WORD} (?:I|we|it|that|this|they|my|the)\b[^?\n]{{0,200}}\b(?:cuda|drivers?|fit|together|compatible|work with)\b[^?\n]{{0,120}}\?",
        r"\b(?:which|what) (?:version of )?(?:cuda|driver|torch|pytorch)\b[^?\n]{0,80}\?",
        r"(?:需要|必须|要不要|能不能|可以|是否|兼容)[^?\n]{0,40}(?:CUDA|cuda|驱动)[^?\n]{0,30}\?|(?:CUDA|cuda|驱动)[^?\n]{0,40}(?:需要|必须|兼容|可以|能用|吗)[^?\n]{0,20}\?",
        r"\b(?:muss|kann|soll|darf|brauche) ich\b[^?\n]{0,80}(?:CUDA|Treiber)[^?\n]{0,60}\?|(?:нужно ли|надо ли|можно ли|обязательно ли)[^?\n]{0,80}(?:CUDA|драйвер)[^?\n]{0,60}\?",
    )
)
"""A plain question about driver and CUDA."""

ROWS: tuple[Row, ...] = (
    *_unused(),
    *STARVED,
    *QUESTIONS,
    *SEVERAL,
    *(
        row("remedy-tried", pattern, *TRIED_NEEDLES[what], unless=NOT_TRIED, what=what)
        for what, patterns in TRIED
        for pattern in patterns
    ),
    *SITUATION,
    *ENGINE,
    *OTHER_MAKERS,
)
"""All sentences, as rows of the table of messages."""
