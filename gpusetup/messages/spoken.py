"""What people say of torch, of a driver, of a board in a sentence of their own, in many languages.

Sources, as of November 2026: titles and first lines of threads in issue trackers and forums.
"""

from __future__ import annotations

from itertools import permutations

from gpusetup.messages.row import row, rows

SAID = (
    r"(?:返回值?|为|為|是|总是|總是|一直|就是|就|始终|发现|发现是|發現|还是|還是|显示|顯示|输出|輸出|打印|结果|得到|仍然?|都|却|變成|变成"
    r"|がいつも|が|は|を|も|常に|いつも|가|이|는|은|값이|항상|계속"
    r"|возвращает|выда[её]т|показывает|всегда|равно|=|dev[uo]elve|devolve|retorna(?:ndo)?|regresa|siempre|sempre|da|d[aá]|es|me|arroja"
    r"|renvoie|retourne|est|toujours|gibt|liefert|ist|immer|ergibt|restituisce|è|zwraca|zawsze|döndürüyor|trả về|luôn)"
)
"""Verbs and particles between torch's question and its answer."""
OTHERWISE = r"\b(?:if|when|whether|in case|make sure|unless|once) (?:\w+ ){0,3}?(?:py)?torch\b|如果|when torch"
NOT = r"(?:can ?not|can't|could not|couldn't|does(?: not|n't|nt)|do(?: not|n't)|is(?: not|n't)|still not|not|fails to|failed to|won't|unable to)"
SEES = r"(?:recogni[sz](?:e[sd]?|ing)|detect(?:s|ing|ed)?|see(?:s|ing)?|find(?:s|ing)?|us(?:es?|ing)|access(?:ing)?|identify(?:ing)?|utili[sz](?:es?|ing))"
A_GPU = r"(?:any |the |my |a |an |your |our |this )?(?:\w+ )?(?:CUDA cores?|CUDA|GPUs?|(?:RTX|GTX|[Gg]e[Ff]orce|Tesla|Quadro)[\w -]{0,16}\d{3,4}|graphics? card)\b"
TORCH = r"(?:(?:(?<![\w-])(?:[Pp]y)?[Tt]orch)(?: [\w.+]{1,20})?)"
FRONT = (
    "torch cannot ",
    "torch can't ",
    "torch doesn't ",
    "torch does not ",
    "torch is not ",
    "torch not ",
)
"""How such a sentence begins."""

TORCHS = (
    row(
        "cuda-unavailable",
        "cuda.is_available",
        rf"cuda\.is_available(?: ?\(\))?\W{{0,6}}(?:{SAID}[\s`'\"：:（(]{{0,4}}){{1,4}}False",
        asked="yes",
        unless=r"(?:如果|若|if|when|falls|wenn|si|se) \S{0,12}torch\.cuda\.is_available",
    ),
    *(
        row(
            "cuda-unavailable",
            front,
            rf"{TORCH} {NOT} (?:\w+ ){{0,2}}?{SEES} {A_GPU}",
            asked="yes",
            unless=OTHERWISE,
        )
        for front in FRONT
    ),
    *rows(
        "cuda-unavailable",
        {
            "torch to ": rf"\b(?:unable|cannot|can't|can not|not able|couldn't|could not|trouble|impossible|struggl\w+)\b[^.\n]{{0,30}}?\b(?:get|getting|make|making|force|forcing) {TORCH} to {SEES} {A_GPU}",
            "by pytorch": r"(?:GPU|CUDA|RTX \d{4}|card)\b[^.\n]{0,40}? (?:is |was )?not (?:being )?(?:detected|recogni[sz]ed|found|seen|used) by PyTorch",
        },
        asked="yes",
    ),
)

CPUS = (
    *rows(
        "torch-not-compiled-with-cuda",
        {
            " cpu_": r"\b(?:libtorch|pytorch) +\d[\w.]{1,12} +cpu_(?:mkl|generic|accelerate)_\w{3,40}",
            "cpu": r"\b(?:went|goes|gone|going|reverts?|reverted|falls?|fell|fallen|switched|switches|changed|changes|downgraded|replaced)(?: it)?(?: back)? (?:to|by|with) (?:using )?(?:the |a )?(?:(?:py)?torch[- ]?\+?CPU\b|CPU[- ](?:only )?(?:py)?torch\b|CPU(?:[- ]only)? (?:version|build|wheel) of (?:py)?torch\b)",
        },
    ),
    row(
        "torch-not-compiled-with-cuda",
        "cpu",
        r"(?<!cannot )(?<!can't )(?<!unable to )(?<!to )(?<!should )(?<!must )(?<!please )(?<!can )(?<!could )\b(?:installs?|installed|installing|get|gets|got|downloads?|downloaded|picks?) (?:only |just |always |me )?(?:the |a )?(?:CPU[- ]?(?:only )?(?:version|build|wheel|variant)s? of |CPU[- ]only )(?:(?:py|lib)?torch\b|it\b)|\b(?:installs?|installed|installing|got|downloads?|downloaded|picks?) (?:only |just |always |me )?(?:the |a )?PyTorch CPU\b",
        unless=r"(?:want|wants|need|to|for|only) (?:\w+ ){0,3}(?:install|get) (?:the |a )?CPU|no (?:NVIDIA )?GPU",
    ),
)

HAS_CPUS = (
    row(
        "torch-not-compiled-with-cuda",
        "+cpu",
        r"\b\d\.\d{1,2}\.\d\+cpu\b\W{0,3}(?:was|is|were|got|gets|has been|had been|keeps being) (?:always |still |being |automatically )?(?:installed|picked|downloaded|selected|chosen|resolved|used)\b"
        r"|\b(?:installs|installed|gets|got|gave|gives|picks|picked|downloads|downloaded|pulls|pulled|selects|selected|resolves to|resolved to|ends? up with|ended up with|left with)\W{1,3}(?:me |the |with )?(?:(?:py)?torch\W{1,3})?\d\.\d{1,2}\.\d\+cpu\b",
        unless=r"\b(?:want|wants|wanted|need|to) (?:\w+ ){0,3}(?:install|get|use)|no (?:NVIDIA )?GPU|\b(?:AMD|Radeon|ROCm)\b",
    ),
    row(
        "torch-not-compiled-with-cuda",
        "cpu",
        r"\b(?:py)?torch\b[^\n]{0,160}?\b(?:you|I) (?:only )?(?:have|got|installed) the CPU[- ]?(?:only )?(?:version|build)\b",
        unless=r"\b(?:if|unless|whether) (?:you|I) (?:only )?(?:have|got|installed) the CPU",
    ),
    row(
        "resolver-conflict",
        "conflict",
        r"\bconflicts? between (?:py)?torch(?:==[\w.+]{1,20})? and (?:the )?(?:\w+ )?(?:cuda|nvidia|torchvision|torchaudio|xformers)\b",
    ),
)

GPU_MEMORY = r"(?:(?:GPU|graphics?(?: card)?|video(?: card)?|CUDA) (?:memory|RAM)|VRAM)"
ASKED_WHETHER = r"\b(?:is|was|could|can|might|may) (?:it|this|that) (?:be )?(?:because|due|caused|related|a matter)\b[^.\n]{0,40}?(?:insufficient|not enough|out[- ]of)\b"
"""Somebody asks whether memory is the reason, and does not know it."""
ONLY_IF = (
    ASKED_WHETHER
    + r"|\b(?:if|in case|whether|unless|avoids?|avoiding|prevents?|preventing|without|never|won't|don't) (?:\w+ ){0,5}?(?:insufficient|not enough|out of)\b"
)
IF_CHINESE = r"显存(?:不足|不够)[，,]?(?:所以|就|才)?换|(?:是不是|是否|会不会|难道)[^。，,\n]{0,12}显存|(?:如果|若|避免|防止|以免|降低|减少|節省|节省)[^。，,]{0,16}显存"

MEMORY = (
    row(
        "out-of-memory",
        "outofmemory",
        r"(?<![\w.])CUDA ?OutOfMemory(?:Error)?\b",
        unless=r"(?i:tried to allocate)|\bexcept\b",
    ),
    *rows(
        "out-of-memory",
        {
            "insufficient": rf"\binsufficient {GPU_MEMORY}\b",
            "not enough": rf"\bnot enough (?:free |available )?{GPU_MEMORY}\b",
            "out of": rf"\b(?:ran|runs?|running) out of {GPU_MEMORY}\b",
            "out of memory": r"\b(?:shows?|showed|says?|said|gives?|gave|gets?|got|reports?|throws?) (?:me )?(?:a |an |the )?[\"'`“]out of memory[\"'`”]",
        },
        unless=ONLY_IF,
    ),
    row("out-of-memory", "显存", r"显存(?:不足|不够|溢出|耗尽)|爆显存", unless=IF_CHINESE),
)
"""A GPU's memory that does not suffice, in a title or a sentence."""

COMPUTES = (
    row(
        "gpu-computes",
        "using",
        r"\b(?:definitely|certainly|clearly|indeed|confirmed(?: that)? it(?: is|'s)|confirm(?: that)? it(?: is|'s)(?: definitely)?) using (?:the |my )GPU\b",
        unless=r"\b(?:not|isn't|never|stopped|if) (?:\w+ ){0,3}?using (?:the |my )GPU",
    ),
    row(
        "gpu-computes",
        "uses",
        r"(?:^|[.!\n] )(?P<program>[\w.]{2,30}) uses (?:the|my) GPU\b",
    ),
)

TRITONS = (
    row(
        "triton-build-failed",
        "python.h",
        r"\btriton\b[^.\n]{0,80}?\b(?:missing|lack\w*|without|not find|cannot find|can't find|couldn't find|no) [`'\"]?Python\.h\b|\btriton\b[^.\n]{0,80}?\bPython\.h[`'\"]? (?:is |was )?(?:missing|not found)\b",
        lacks="Python.h",
    ),
    row(
        "triton-build-failed",
        "undefined symbol",
        r"\btriton\b.{0,300}?undefined symbol:? ?[`'\"]?cu(?!Tensor)[A-Z][a-z]\w+",
        lacks="libcuda",
    ),
)

SEEN = (
    row(
        "smi-sees-it",
        "nvidia-smi",
        r"\bnvidia-smi[`'\"]? (?:command )?(?:(?:does|do|can|could|also|correctly|always|still|itself|clearly) ){0,2}(?:works?(?! (?:only )?(?:on|in) the host)|shows|showed|detects?|sees?|lists?|finds?|recogni[sz]es?|displays?|reports?) (?:fine|well|correctly|properly|(?:both|all|the|my|a|an|two|three|four|\d) (?:\S{1,16} ){0,3}?(?:GPUs?|cards?|devices?|[RG]TX|[345]0[5-9]0s?)|(?:it|them) (?:just )?fine)\b"
        r"|\bnvidia-smi[^.\n]{0,40}? (?:I|i|we) (?:can )?see (?:both|all|the|my|a|two|three|four|\d) (?:\S{1,16} ){0,3}?(?:GPUs?|cards?|[RG]TX|[345]0[5-9]0s?)\b",
        unless=r"\b(?:if|when|whether|make sure|check(?: that)?|no longer|ensure) (?!(?:i|I|we) (?:run|type|call|use)\b)(?:\S{1,12} ){0,3}?[`'\"]?nvidia-smi",
    ),
)

IN_THE_WAY = (
    row(
        "module-not-found",
        "nvidia kernel module",
        r"NVIDIA kernel module (?:is )?(?:missing|not found)",
        unless=r"\b(?:if|when)\b[^.\n]{0,40}NVIDIA kernel module",
    ),
)

CUDAS = r"(?:cudnn|cublas|cudart|cufft|curand|cusolver|cusparse|nvrtc)"
ONLY_WHERE = r"\b(?:if|when|in case|whether|make sure|no longer|never|not) (?:\w+ ){0,5}?"

LACKING = (
    row(
        "cuda-lib-missing",
        ".dll",
        rf"\b(?P<library>{CUDAS}[\w ]{{0,24}}\.dll)[`'\"]? (?:is |was |are )?(?:missing|not found)\b",
        unless=rf"{ONLY_WHERE}[`'\"]?{CUDAS}",
    ),
    row(
        "k8s-gpu-not-allocatable",
        "allocatable",
        r"\bno (?:GPUs? (?:are|is|were) allocatable|allocatable GPUs?)\b",
        unless=r"\bif no\b",
    ),
)

TOO_OLD = (
    row(
        "driver-too-old",
        "minimum",
        r"\bdriver\b[^\n]{0,60}? (?:was|is) (?:below|under|lower than|older than) the (?:required )?\d{3}(?:\.\d+)* minimum",
    ),
    row(
        "driver-too-old",
        "newer",
        r"\b(?:needs?|requires?) a newer (?:nvidia |gpu )?driver than (?:my |the |our )?(?:installed|current)",
        unless=r"\bif (?:\w+ ){0,4}needs?\b",
    ),
    row(
        "gpu-not-in-wheel",
        "cuda 1",
        r"\b(?:RTX )?50(?:[5-9]0(?: ?Ti)?|(?: ?xx)? series|xx)\b[^.\n]{0,40}?\b(?:cannot|can't|can not|doesn't|does not|won't|don't|do not) (?:use|work with|run(?: on| with)?|support) (?:the )?CUDA 1(?:1|2\.[0-6])\b",
        side="new",
        said="in words",
    ),
)

IF_ONLY = r"\b(?:if|when|in case|whether|make sure|until|unless)\b"

WANTS_CPU = r"\b(?:want|wants|wanted|need|needs|prefer) (?:\S{1,12} ){0,3}(?:install|get|use)|no (?:NVIDIA )?GPU|\b(?:AMD|Radeon|ROCm)\b"
CPU_BUILD = r"(?:pytorch[- ])?cpu(?:[- ]only)? (?:version|build|variant|wheel)s?"
GOT_CPU = (
    rf"(?:\binstall(?:s|ed|ing)? (?:the |a |only (?:the )?)?(?:{CPU_BUILD}|pytorch-cpu) (?:instead|even|rather|although|though)\b"
    rf"|\b{CPU_BUILD} (?:of (?:py)?torch )?(?:is|was|gets|got|are|being|keeps being) (?:always |still )?installed\b)"
)
A_BUILD = r"\b(?:pip3?|setup(?:\.py)?|install(?:s|ed|ing|ation)?|build(?:s|ing)?|built|compil\w{1,4}|wheel)\b"

NEW_GPU = r"\bRTX ?(?:50(?:XX|[5-9]0)|PRO \d{4} Blackwell)(?: ?(?:Ti|series|cards?|GPUs?))*\b"
NEEDS_NEWER = r"\b(?:needs?|requires?|update|upgrade|must|only works? with|want)\b[^.\n]{0,60}?\b(?:torch|CUDA|cu)\b[^.\n]{0,24}?\b(?:12\.8|cu128|2\.7)\b"

AMPERE_ON = r"(?<![A-Za-z0-9])(?:RTX ?(?:A[2456]\d00|[345]0[5-9]0)|A(?:[2456]000|10|30|40|100)|L40S?|H100)(?![A-Za-z0-9])"
CUDA_10 = r"(?:\b(?:tensorflow|tf)(?:[-_ ]?gpu)?[ =:v]{0,24}1\.1[0-5]\b|\bcuda(?:[ -]?toolkit)?[ =:v]{0,24}(?:9|10)\.[0-2]\b)"
CUBLAS_FAILS = r"CUBLAS_STATUS_EXECUTION_FAILED"
ADA_ON = r"(?<![A-Za-z0-9])(?:RTX ?(?:40[5-9]0|6000 Ada)|L40S?|L4|H100)(?![A-Za-z0-9])"
CUDA_11_7 = r"(?:\b(?:py)?torch(?:[ =:v]|version){0,4}(?:1\.\d{1,2}\b|2\.0\.\d\+cu117)|\b(?:py)?torch ?< ?2\b|\+cu11[0-7]\b|\bCUDA(?: Version)?[ =:]{1,3}11\.[0-7]\b)"


def _in_any_order(first: str, second: str, third: str) -> str:
    orders = permutations((first, second, third))
    return "|".join(r".{0,700}?".join(order) for order in orders)


LIBRARIES_TOO_OLD = rows(
    "gpu-not-in-wheel",
    {
        "cublas_status_execution_failed": _in_any_order(AMPERE_ON, CUDA_10, CUBLAS_FAILS),
        "cufft_internal_error": _in_any_order(ADA_ON, CUDA_11_7, "CUFFT_INTERNAL_ERROR"),
    },
    side="new",
    said="in words",
)
"""CUDA 10's cuBLAS does not run on Ampere, CUDA 11.7's cuFFT not on Ada (pytorch issue 88038)."""

INSTALLS = (
    row(
        "gpu-not-in-wheel",
        "rtx",
        rf"(?:\bnot (?:run\w{{0,6}}|work\w{{0,4}}|support\w{{0,4}}|start\w{{0,4}})|n't (?:run|work|start)|\bcrash\w{{0,3}}|\bfail\w{{0,3}})\b[^.\n]{{0,60}}?{NEW_GPU}.{{0,400}}?{NEEDS_NEWER}",
        unless=r"\+cu1(?:28|29|30)\b",
        side="new",
        said="in words",
    ),
    *(
        row(
            "torch-not-compiled-with-cuda",
            needle,
            rf"torch.{{0,300}}?{GOT_CPU}|{GOT_CPU}.{{0,300}}?torch",
            unless=WANTS_CPU,
        )
        for needle in (
            *("cpu version", "cpu build", "cpu variant", "cpu wheel"),
            *("cpu-only ", "cpu only ", "pytorch-cpu"),
        )
    ),
    row(
        "build-isolation-no-torch",
        "find torch",
        rf"{A_BUILD}[^.\n]{{0,120}}?\b(?:fail\w{{0,4}}|errors?|unable|cannot|can't|does ?n[o']t|could ?n[o']t|not able)\b[^.\n]{{0,60}}?\bfind torch\b(?! ?[<>=~])",
        unless=r"\bif\b[^.\n]{0,40}find torch|python (?:-c|train|run|main)",
    ),
)

NO_KERNELS_FOR = r"\b(?:no|without|lacks?|lacking|missing|dropped|removed|not (?:include|contain|have|ship)|n't (?:include|contain|have|ship))\b (?:\S{1,16} ){0,7}?"
OF_OLD = r"(?P<capability>sm_(?:3[0257]|5[02]|6[01]|70))"
OF_AN_EXTENSION = r"flash|xformers|vllm|sglang|bitsandbytes|extension|deepspeed|apex|llama\.cpp|onnxruntime|ctranslate2|jax\b|tensorflow|sage|kernel library"

ARCHITECTURES = (
    row(
        "gpu-not-in-wheel",
        "sm_",
        rf"\b(?:(?:py)?torch|cu1[123]\d|wheels?)\b[^\n]{{0,240}}?{NO_KERNELS_FOR}[`'\"(]{{0,2}}{OF_OLD}\b[`'\"]?(?: (?:CUDA )?(?:kernels?|support|binar\w+|images?|code)\b|[^\w\n])",
        unless=rf"{OF_AN_EXTENSION}|\b(?:if|unless|whether) (?:\S{{1,16}} ){{0,4}}?(?:lacks|dropped|no|without)\b",
        side="old",
        said="in words",
    ),
)
"""The architecture of an old GPU, of which somebody says that torch's build has no kernels."""

IN_OTHER_WORDS = (
    *(
        row(
            "program-without-gpu-support",
            f"{called} build",
            rf"\b(?:GPUs?|CUDA)(?: support)?(?: is| are)? not (?:supported|enabled|included|available|compiled) (?:by|in|into|with) (?:your|this|the|my) {called} build\b",
            unless=rf"{IF_ONLY} (?:the )?(?:GPUs?|CUDA)",
            program=name,
        )
        for name, called in (
            ("onnxruntime", "onnxruntime"),
            ("onnxruntime", "onnx runtime"),
            ("TensorFlow", "tensorflow"),
        )
    ),
    row(
        "program-without-gpu-support",
        "cpu version of ",
        r"\bonly (?:the |a )?CPU version of (?P<program>JAX|TensorFlow|onnxruntime|PaddlePaddle|CuPy|llama\.cpp)\b[^.\n]{0,20}?(?:is|was|got|has been) installed",
        unless=rf"{IF_ONLY} only (?:the |a )?CPU version",
    ),
    row(
        "torch-not-compiled-with-cuda",
        "cpu",
        r"\b(?:only|keeps?|always|still)\b[^.\n]{0,24}?\binstall(?:s|ing|ed)?\b[^.\n]{0,24}?\b(?:(?:that|the|a|this) )?(?:non[- ]CUDA,? )CPU(?:[- ]only)?\b",
    ),
)

CARD = r"(?:GPU|graphics card|graphics processor|NVIDIA (?:card|adapter))s?\b(?! (?:memory|RAM|usage|load|acceleration|flag|process|driver|left|free|in the queue))"
MY_MACHINE = r"(?:laptop|notebook|PC|computer|desktop|machine|workstation|server|VM|VPS|droplet|box|instance|system|Mac)"
KIND = r"(?:NVIDIA|dedicated|discrete|CUDA|real|external|physical)"
HAVE_NONE = (
    rf"\b(?:I|we) (?:do not|don['\u2019]?t|dont|do n't) (?:have|own) (?:an? |any )?(?:{KIND} )*{CARD}"
    rf"|\b(?:I have|I['\u2019]ve|I got|(?:my|this|the) {MY_MACHINE} (?:has|comes with)) (?:got )?no (?:{KIND} )*{CARD}"
    rf"|\b(?:my|this|the) {MY_MACHINE} (?:does not|doesn['\u2019]?t|doesnt) have (?:an? |any )?(?:{KIND} )*{CARD}"
    rf"|(?:^|[:,;.] ?)no (?:dedicated|discrete) {CARD}"
    r"|\bonly (?:an? |has |have )*(?:integrated|onboard) (?:GPU|graphics)\b|\b(?:integrated|onboard) (?:GPU|graphics) only\b"
)
A_MACHINE_WITHOUT = rf"\b{MY_MACHINE} (?:without|with no) (?:an? |any )?(?:{KIND} )*{CARD}"
NONE_HERE = (
    rf"(?:^|[:,;.(] ?)no {CARD}(?: here(?! so\b|, so)|,? (?:just|only)\b)"
    rf"|\bno (?:{KIND} )*{CARD} (?:in|on) (?:my|this|the) {MY_MACHINE}"
)
ONLY_A_CPU = (
    rf"(?<!running on a )\bCPU[- ]only (?:cloud |linux |docker |windows )?{MY_MACHINE}\b"
    r"|\b(?:I|we) only have (?:an? |my |the )?CPU\b"
)
HAVE_NOT = tuple(
    f"{no} {verb}"
    for no in ("not", "n't", "n\u2019t", "dont", "doesnt")
    for verb in ("have", "own")
)
DENIALS = (
    ((" no ", "no dedicated", "no discrete", *HAVE_NOT, "integrated", "onboard"), HAVE_NONE),
    (("without", "with no"), A_MACHINE_WITHOUT),
    (("no gpu", "no graphics", "no nvidia ", " no "), NONE_HERE),
    (("cpu-only", "cpu only", "only have"), ONLY_A_CPU),
)
WITHOUT = tuple(
    row(
        "no-nvidia-gpu",
        needle,
        pattern,
        unless=r"\b(?:if|unless|whether|when|says?|said|claims?|thinks?|thought|reports?|tells?|complains|though|container|node|partition|queue)\b[^.:]{0,30}\b(?:don['\u2019]?t|dont|not|no|without)\b|\bbut (?:I (?:do )?have|there is)\b|\b(?:as (?:if|for|on)|according to|thinks?|behaves|work(?:s|ed) (?:fine )?on|build\b[^.]{0,24} on)\b",
    )
    for needle, pattern in DENIALS
)
"""A machine without an NVIDIA GPU, as its owner says it."""

ROWS = (
    *WITHOUT,
    *TORCHS,
    *CPUS,
    *HAS_CPUS,
    *MEMORY,
    *COMPUTES,
    *TRITONS,
    *SEEN,
    *IN_THE_WAY,
    *LACKING,
    *TOO_OLD,
    *LIBRARIES_TOO_OLD,
    *INSTALLS,
    *ARCHITECTURES,
    *IN_OTHER_WORDS,
)
