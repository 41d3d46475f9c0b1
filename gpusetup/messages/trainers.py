"""What trainers and the people who train say: a device by a word, a cure that tells the cause.

Sources, as of November 2026: ultralytics' and yolov5's torch_utils.py (select_device), titles and
first lines of threads in issue trackers, NVIDIA's manual of nvidia-smi (ECC, row remapping).
"""

from __future__ import annotations

from gpusetup.messages.row import failed, row, rows
from gpusetup.messages.spoken import in_any_order

A_NUMBER = "It takes a GPU by its number: `device=0`, or `0,1` for two; without it, it chooses one"
BY_A_WORD = (
    failed(
        "The trainer",
        "invalid cuda",
        r"Invalid CUDA '?(?:--)?device[ =](?i:cuda|gpu)'? requested",
        says="The trainer takes no GPU of this name: `cuda` and `gpu` are no numbers",
        way=A_NUMBER,
    ),
)
BY_A_NUMBER = rows(
    "cuda-unavailable",
    {
        "invalid cuda": r"Invalid CUDA '?(?:--)?device[ =](?!(?i:cuda|gpu)')[^\s{]{1,12} requested",
        "`cudaaccelerator` can not run on your system": "",
    },
)

WORKS = r"(?:works?|worked|working|starts?|started|runs?|ran|solv(?:es|ed)|fix(?:es|ed)|helps?|helped|resum\w{1,3}|no longer hangs?|stopped hanging|did the trick|unblock\w{0,3})"
SETS = r"(?:export |set(?:ting|s)? |with |env |using |add(?:ing|ed)? )?[`'\"]{0,3}(?:export )?NCCL_P2P_DISABLE[`'\"]?(?: ?= ?| to )[`'\"]?(?:1|true)"
CURED = (
    row(
        "nccl-p2p-failure",
        "nccl_p2p_disable",
        rf"\b{WORKS}\b[^.\n]{{0,50}}?\b(?:after|with|when|once|if|by|using|setting|only|because)\b[^.\n]{{0,60}}?{SETS}"
        rf"|{SETS}[^.\n]{{0,60}}?\b{WORKS}\b",
        unless=r"\b(?:not|n't|never|still|did nothing|without success|no effect|tried|suggest\w*|should|try|neither)\b[^.\n]{0,40}NCCL_P2P|NCCL_P2P_DISABLE[^.\n]{0,60}\b(?:not|n't|never|nothing|no effect|neither|but)\b",
    ),
)
"""Somebody whose ranks go on without peer access: that was what failed."""

ECC_OF_A_GPU = r"(?:\bGPUs?\b|\bcards?\b|nvidia|\b[ABHVLT]\d{1,3}\b|VRAM|显存)"
NO_ECC_FAILURE = (
    r"(?<!un)correct(?:able|ed)\b|single[- ]bit|\b(?:no|without|zero|0|never|disabl\w+|enabl\w+|turn\w*|support\w*) (?:\S{1,16} ){0,3}?ECC"
    r"|ECC(?: errors?| mode)?(?: is| are| was|:)? ?(?:off\b|disabled|enabled|0\b|none)|ECC is on\b|\b(?:if|when|unless|in case|may|might|could)\b[^.\n]{0,40}ECC|没有"
)
ECC = (
    row(
        "ecc-error",
        (
            "ecc error",
            "ecc fault",
            "ecc failure",
            "ecc memory ",
            "错误",
            "报错",
            "异常",
        ),
        rf"{ECC_OF_A_GPU}.{{0,120}}?\bECC (?:memory )?(?:errors?|faults?|failures?)\b|\bECC (?:memory )?(?:errors?|faults?|failures?)\b.{{0,120}}?{ECC_OF_A_GPU}|ECC ?(?:错误|报错|异常)",
        unless=NO_ECC_FAILURE,
    ),
    row(
        "ecc-error",
        "uncorrected",
        r"\buncorrected (?:volatile |aggregate )?ECC errors?\b(?!s?\s{0,9}[:=] ?0\b)",
        unless=r"\bno (?:\w+ )?uncorrected|\buncorrected ECC errors?\s{0,9}[:=] ?(?:0|N/A)",
    ),
    row(
        "ecc-error",
        "row remap",
        r"\brow[- ]remap(?:ping|per)?s?\b[^.\n]{0,30}?\b(?:failed|failure occurred: ?yes|pending: ?yes|is pending)",
        unless=r"\bif\b[^.\n]{0,40}row[- ]remap",
    ),
)
"""A GPU's memory that fails, as somebody says it."""

SLEPT = r"\b(?:suspend(?:s|ed|ing)?|sleep(?:s|ing)?|slept|hibernat\w{1,4}|standby|wak(?:e|es|ing|ed)[ -]?up|woke up|resum(?:e|es|ed|ing) from)\b"
LOST = r"(?:\b(?:only|then|falls back to|back to|uses?|using|on) (?:the |my )?CPU\b|\b(?:without|no longer|not|n't|stops?|lost|loses?|fails?|unavailable|CUDA error)\b[^.\n]{0,40}?\b(?:cuda|gpu|nvidia|torch)\b|\b(?:cuda|gpu|nvidia|torch)\b[^.\n]{0,40}?\b(?:lost|not|n't|no longer|unavailable|gone|disappears?|fails?|error)\b)"
BACK = r"\b(?:re-?boot(?:s|ed|ing)?|restart(?:s|ed|ing)? (?:the |my )?(?:system|machine|computer|pc|server|laptop)|(?:rmmod|modprobe -r) nvidia[_-]uvm|reload\w{0,3} (?:the )?(?:driver|nvidia))\b"
AFTER_SLEEP = (
    row(
        "cuda-lost-after-suspend",
        ("suspend", "sleep", "hibernat", "standby", "wak"),
        in_any_order(SLEPT, LOST, BACK, within=300),
        unless=r"\b(?:sleep mode|wake[_-]?up|sleep\(|time\.sleep|sleep level|enable[_-]sleep|fails? to (?:suspend|resume|sleep)|freez\w+|black screen)\b",
    ),
)
"""A driver whose memory module did not come back from the machine's sleep."""

NO_KERNEL_OF_A_TYPE = (
    failed(
        "torch",
        "not implemented for '",
        r"\"\w{0,60}(?:cuda|mps|cpu)\w{0,30}\" not implemented for '(?!Half)\w{3,20}'",
        says="torch has no such operation for this type of number, in this release",
        way="Compute this operation in float32, or take a newer torch",
    ),
)

ISAACS = ()

PREBUILT = (
    row(
        "no-kernel-image",
        "gpu arch",
        r"your gpu arch \(\d{1,2}, \d\) isn'?t compiled in prebuilt",
        module="spconv",
    ),
)

OLD_CARD = r"(?:V100|T4|P100|P40|(?:GTX ?)?(?:10[5-8]0|16[5-6]0)(?: ?Ti)?|(?:RTX ?)?20[5-8]0(?: ?Ti)?|Volta|Turing|Pascal)"
FLASH = r"flash[-_ ]?att(?:ention|en|n)?(?:[- ]?2)?"
FLASH_ON_OLD = (
    row(
        "gpu-too-old-for-flash-attention",
        ("flash",),
        rf"\b{FLASH} (?:is |are )?(?:not|n't|un)[- ]?(?:be )?(?:support(?:ed)?|compatible|available|usable) (?:on|by|with|for) (?:the |my |a |an )?(?:\w+ )?{OLD_CARD}\b"
        rf"|\b{OLD_CARD}s? (?:gpus? )?(?:does(?: not|n't)|do(?: not|n't)|cannot|can't) (?:support|run|use) {FLASH}|{OLD_CARD} ?(?:显卡)?(?:不支持|不兼容) ?{FLASH}",
        unless=r"\b(?:if|since|because) flash|\bflash_attn_2_cuda|undefined symbol",
        needs="Ampere",
    ),
)
"""FlashAttention 2 needs Ampere, as somebody says it."""

XFORMERS = (
    row("bf16-unsupported", "bf16 is only supported on", r"bf16 is only supported on A100\+ GPUs"),
)

BETWEEN = (
    *rows(
        "nccl-p2p-failure",
        {
            "access is not supported": r"(?:peer[- ]to[- ]peer|P2P)(?: \(P2P\))? access is not supported|\bpeer \(P2P\) access is not supported",
            "cuda:1": r"tensor\(\[+ ?-?\d\.\d{2,}[^)]{0,200}device=.cuda:0.\).{0,300}?tensor\(\[+0\., 0\., 0\.[^\])]{0,80}\]+, ?device=.cuda:1",
        },
    ),
    row(
        "nccl-p2p-failure",
        (
            "gpu to gpu",
            "gpu0 -> gpu1",
            "gpu 0 to gpu 1",
            "gpu0 to gpu1",
            "to another gpu",
        ),
        r"\b(?:transfer|cop(?:y|ie)|mov|send|sent)\w{0,5}\b[^.\n]{0,60}?\bGPU ?\d? ?(?:->|to) ?(?:another )?GPU ?\d?\b[^.\n]{0,80}?\b(?:chang|modif|zeros?\b|corrupt|wrong|garbage|differ)",
        unless=r"\bif\b|\bhow (?:can|do|to)\b",
    ),
)
"""Numbers that change on their way from one GPU to the next: peer access does not work there."""

AN_ENVIRONMENT = r"[/\\](?:envs[/\\][\w.-]{1,40}|\.?venv[\w.-]{0,20})[/\\](?:lib[/\\]python\d\.\d{1,2}[/\\]|Lib[/\\])?site-packages[/\\](?!torch[/\\])\w"
USERS_OWN = r"[/\\](?:\.local[/\\]lib[/\\]python\d\.\d{1,2}|Roaming[/\\]Python[/\\]Python\d{2,3})[/\\]site-packages[/\\]torch[/\\]"
OUTSIDE = (
    row(
        "torch-outside-environment",
        ("/.local/lib/python", "roaming\\python"),
        rf"{AN_ENVIRONMENT}.{{0,700}}?{USERS_OWN}|{USERS_OWN}.{{0,700}}?{AN_ENVIRONMENT}",
    ),
)
"""A traceback through an environment's package and the user's own torch."""

KOHYAS = (
    row(
        "program-requirement-missing",
        "import",
        r"ImportError: No (?P<lacks>bitsandbytes|xformers|dadaptation|prodigyopt|lion_pytorch|transformers|schedulefree)(?= / )",
        program="kohya_ss",
    ),
)

TRITONS = (
    row(
        "program-release-too-old",
        "has no attribute",
        r"\b[`'\"]?triton(?:\.\w{2,30}){0,4}[`'\"]{0,2} (?:module )?has no attribute [`'\"]?\w{2,40}",
        beside="installed Triton: each torch brings its own",
    ),
)

AMP = r"(?<![\w.])(?:AMP|autocast|(?:automatic )?mixed[- ]precision(?: training)?)\b"
NO_FASTER = (
    r"(?:\b(?:no|without(?: any)?|little|hardly any|any) (?:real |noticeable |significant |measurable )?(?:speed(?: |-)?ups?|acceleration|speed (?:gain|improvement)|gain in speed|improvement in (?:training )?speed)\b"
    r"|\b(?:not|isn't|n't|no|never|hardly) (?:train(?:ing)? |run(?:ning)? |get(?:ting)? |any |much |become )*faster\b"
    r"|\b(?:speed|throughput|(?:training|epoch|step) time)\b[^.\n]{0,20}? (?:(?:did|does|has|is|was|do)(?:n't| not)|never) (?:\w{2,12} )?(?:improv|chang|increas|decreas|better|differ)\w{0,6}"
    r"|\b(?:speed|throughput|(?:training|epoch|step) time) (?:is|stays|stayed|remains|remained) (?:exactly |about |almost )?(?:the same|unchanged))"
)

NO_GAIN = (
    row(
        "amp-without-gain",
        ("amp", "autocast", "mixed"),
        rf"(?:{AMP}[^.\n]{{0,90}}?{NO_FASTER}|{NO_FASTER}[^.\n]{{0,60}}? (?:with|from|by|using|under|after|when)\b[^.\n]{{0,40}}?{AMP})(?:[^.\n]{{0,60}}?(?P<old>\b(?:GTX ?(?:9|10|16)\d0(?: ?Ti)?|P100|P40|M40|Titan Xp?)\b))?",
        unless=r"\b(?:if|in case) (?:\w+ ){0,2}?(?:AMP|autocast|mixed)|\bCPU[- ]only\b|\bon (?:the |a |my )?CPU\b",
    ),
)
"""Mixed precision that brings nothing, as somebody says it (the acceleration guide's troubles)."""

ROWS = (
    *NO_GAIN,
    *BY_A_WORD,
    *BY_A_NUMBER,
    *CURED,
    *ECC,
    *AFTER_SLEEP,
    *NO_KERNEL_OF_A_TYPE,
    *ISAACS,
    *PREBUILT,
    *OUTSIDE,
    *KOHYAS,
    *FLASH_ON_OLD,
    *XFORMERS,
    *BETWEEN,
    *TRITONS,
)
