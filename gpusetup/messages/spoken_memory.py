"""What people say of a memory that does not suffice: the GPU's, or the host's.

"OOM" and "out of memory" are said of either. A word of the GPU in or near the sentence decides for
the GPU's; a killer, a signal or the system's RAM is the host's, and says so in rows of its own.

Sources, as of November 2026: titles and first lines of threads in issue trackers; Wan2GP's wgp.py.
"""

from __future__ import annotations

from gpusetup.messages.row import row, rows
from gpusetup.messages.spoken import ASKED_WHETHER

A_GPU = r"(?:\b|(?<=\d[x×]))(?:CUDA|GPUs?|VRAM|nvidia|(?:RTX|GTX)(?: ?\d{3,4})?|[ABHV]\d00|A\d{1,2}G?|L40S?|T4|P100|[345]0[5-9]0|vLLM|deepspeed|(?:fine-?)?tun(?:e|ing)|training)\b"
OF_A_GPU = r"(?:(?:GPUs?|graphics?(?: card)?|video(?: card)?|CUDA|device) (?:memory|RAM)|VRAM|CUDA)"
HOSTS = (
    r"oom.?kill|\bkill(?:ed|er|s)\b|sigkill|(?<!gb of )(?<!gig of )(?<!\dgb )(?<!\d gb )(?<!gigs of )\b(?:system|host|cpu|main|physical|node|pinned|java|heap|disk)(?:'s)? (?:ram|memory|oom)\b"
    r"|\bcpu out of memory|(?:code|status) ?:? ?-?(?:9|137)\b|bad_alloc|paging file|page file|defaultcpuallocator|\bswap\b"
)
"""Near the words: what says that the computer's memory is meant."""
NO_FAILURE = (
    r"\b(?:avoid|prevent|without|never|no|no more|not|before|until|unless|if|when|whenever|handle|handles|recover|recovers|risk of|potential|possible|may|might|could|would|fix(?:es|ed)?|reduce|estimate|likely)(?:ing|s)? "
    r"(?:\S{1,20} ){0,4}?(?:\bOOM|out[- ]of[- ](?:\w+ )?(?:memory|VRAM))"
)
"""Who speaks of such a failure, and has none."""
SUPPOSED = (
    ASKED_WHETHER
    + r"|\b(?:if|when|whenever|unless|avoids?|in case|without|prevents?|how to handle)\b (?:\S{1,16} ){0,6}?(?:exceed|fit|memory error|insufficient|VRAM|GPU memory)|\billegal|\bECC\b|correctable|corrupt|KeyError|\bworks (?:with|for|when)\b"
)
"""Who asks what would be, and has no such failure, or another one."""
HAS = (
    r"\b(?:after|get|gets|getting|got|gives?|giving|gave|hits?|hitting|r[au]ns?(?: \w+)? into|running into|throws?|threw|rais(?:es|ed)|caus(?:es|ed|ing)|lead(?:s|ing)? to|led to"
    r"|result(?:s|ed|ing)? in|encounter(?:s|ed|ing)?|fac(?:es|ed|ing)|shows?|goes|went|still|always|immediately|eventually|quickly|crash(?:es|ed|ing)? (?:with|due to|from|because of)"
    r"|fail(?:s|ed|ing)? (?:with|due to|from|because of)|due to|because of|is|are|was|were|the|have|has|had|having|following|report(?:s|ed))"
)
OOM = r"(?:OOM(?:s|ed|ing)?|out[- ]of[- ](?:the )?memory)\b"
NEAR = r".{0,700}?"
KEEPS = r"\b(?:keeps?|kept|always|constantly|constant|repeatedly|still|it|just|training|inference|generation|run|process|model) r[au]n(?:s|ning)?"
CARDS = r"(?:\b(?:GPUs?|VRAM|CUDA|nvidia|(?:RTX|GTX) ?\d{3,4})\b)"

OF_THE_GPU = (
    *rows(
        "out-of-memory",
        {
            "oom": rf"\b(?:CUDA|GPU|VRAM|torch)(?:[ -]memory)? OOM(?:s|ed)?\b|\bOOM(?:s|ed)? (?:errors? )?(?:on|in|from) (?:the |my |a |an |one |each |every |both |single |\dx? ?)?(?:\S{{1,20}} )?{A_GPU}",
            "out of ": rf"\bout[ -]of[ -]{OF_A_GPU}\b(?! out of)",
            "out of memory": r"\b(?:GPU|VRAM|CUDA)(?:s|'s)? (?:is |are |was |runs? |ran |goes |went |still |always )?out of memory\b",
        },
        unless=rf"{HOSTS}|{NO_FAILURE}|tried to allocate",
    ),
    *(
        row(
            "out-of-memory",
            needle,
            rf"{HAS} (?:\S{{1,24}} ){{0,3}}?[\"'`“]?{OOM}{NEAR}{A_GPU}|{A_GPU}{NEAR}{HAS} (?:\S{{1,24}} ){{0,3}}?[\"'`“]?{OOM}",
            unless=rf"{HOSTS}|{NO_FAILURE}|tried to allocate",
        )
        for needle in ("oom", "out of memory", "out-of-memory", "out of the memory")
    ),
    row(
        "out-of-memory",
        "oom",
        rf"\b(?:but|it|then|still|always|model|training|inference|run|job|script|this|that|which) (?:OOMs\b|OOM'?d\b|OOMed\b|OOM (?:when|while|during|at|after|on)\b){NEAR}{A_GPU}|{A_GPU}{NEAR}\b(?:but|it|then|still|always|model|training|inference|run|job|script|this|that|which) (?:OOMs\b|OOM'?d\b|OOMed\b|OOM (?:when|while|during|at|after|on)\b)",
        unless=rf"{HOSTS}|\b(?:if|unless|until|before|might|may|could|would|avoid\w*|prevent\w*|no longer|never)\b (?:\S{{1,16}} ){{0,4}}?OOM",
    ),
    *(
        row(
            "out-of-memory",
            needle,
            rf"{KEEPS} out[- ]of[- ](?:the )?memory\b{NEAR}{CARDS}|{CARDS}{NEAR}{KEEPS} out[- ]of[- ](?:the )?memory\b",
            unless=rf"{HOSTS}|{NO_FAILURE}|tried to allocate",
        )
        for needle in ("running out of memory", "runs out of memory", "ran out of memory")
    ),
    row(
        "out-of-memory",
        "exhausted",
        rf"{OF_A_GPU}(?: memory)? (?:is|was|gets?|got|has been|becomes?) (?:\w{{2,12}} )?exhausted\b",
        unless=rf"{HOSTS}|\b(?:if|when|whenever|unless|until|once|before|avoids?|prevents?|in case|may|might|could|would)\b (?:\S{{1,16}} ){{0,4}}?(?:GPU|VRAM|video|graphics|CUDA|device)",
    ),
    row(
        "out-of-memory",
        "until",
        rf"\b{OF_A_GPU}\b[^.\n]{{0,80}}?\b(?:increas|grow|climb|ris|fill|accumulat)(?:e|es|ing|s)\b[^.\n]{{0,40}}?\buntil (?:\S{{1,12}} ){{0,4}}?(?:OOM|(?:run(?:s|ning)? )?out[- ]of[- ](?:\w+ )?(?:memory|VRAM))\b",
        unless=HOSTS,
    ),
    *(
        row(
            "out-of-memory",
            needle,
            rf"(?<![a-z0-9])[\"'`“]?out[- ]of[- ]memory[\"'`”]? (?:errors?|issues?|problems?|crash(?:es)?|exceptions?)(?![a-z:]){NEAR}{A_GPU}|{A_GPU}{NEAR}(?<![a-z0-9])out[- ]of[- ]memory (?:errors?|issues?|problems?|crash(?:es)?|exceptions?)(?![a-z:])",
            unless=rf"{HOSTS}|{NO_FAILURE}|tried to allocate",
        )
        for needle in ("out of memory", "out-of-memory")
    ),
    row(
        "out-of-memory",
        "outofmemoryerror",
        r"(?<![\w.])OutOfMemoryError\s{1,60}Traceback \(most recent call last\)",
    ),
    row(
        "out-of-memory",
        "vram",
        r"\b(?:exceed(?:s|ed|ing)?|overflow(?:s|ed|ing)?) (?:the |my |all )?(?:\S{1,12} ){0,3}?VRAM\b[^.\n]{0,60}?\b(?:crash|fail|error|die)|\bVRAM (?:overflow(?:s|ed)?|(?:is|was) (?:exceeded|exhausted|insufficient|not enough))",
        unless=r"\b(?:if|when|unless|avoid)\b[^.\n]{0,30}VRAM",
    ),
    *(
        row("out-of-memory", needle, pattern, unless=rf"{HOSTS}|{SUPPOSED}")
        for needle, pattern in (
            (
                "exceed",
                rf"\b(?:says?|said|still|shows?|showed|reports?|errors?|that|but) (?:\S{{1,12}} ){{0,4}}?{OF_A_GPU}(?: memory)?(?: limit)? (?:is |was |has been |gets? |got )?exceeded\b",
            ),
            (
                "exceed",
                rf"\b(?:fail\w*|crash\w*|error\w*|stop\w*|abort\w*|because|since|but)\b[^.\n]{{0,60}}?\bexceed(?:s|ed|ing)? (?:the |my |all |its |available |total )*(?:\S{{1,12}} ){{0,2}}?{OF_A_GPU}",
            ),
            (
                " fit ",
                rf"\b(?:does ?n[o']t|did ?n[o']t|can ?n[o']t|can't|could ?n[o']t|won't|will not|not) (?:\w+ ){{0,3}}?fit (?:\w+ ){{0,3}}?(?:in|into|on|onto|inside) (?:\S{{1,12}} ){{0,4}}?{OF_A_GPU}[^.\n]{{0,80}}?\b(?:error|fail|crash)",
            ),
            (
                "memory error",
                r"\b(?:CUDA|GPU|VRAM)[ -](?:out[ -]of[ -])?memory errors?\b|(?<!of[ -])\bmemory errors? (?:on|with|from) (?:the |my |a |an )?(?:\S{1,12} )?GPU\b",
            ),
            (
                "insufficient",
                rf"{OF_A_GPU}(?: memory)? (?:is |was |are )?insufficient\b",
            ),
        )
    ),
)

OF_THE_HOST = (
    row(
        "host-out-of-memory",
        "available ram",
        r"\bcrashed after using (?:up )?all (?:of )?(?:the |its |your )?available RAM\b",
    ),
    *(
        row(
            "host-out-of-memory",
            needle,
            rf"\b(?:in|un)sufficient {RAM}|\bnot enough (?:free |available )?{RAM}|\b(?:ran|runs?|running|goes|went) out of (?:my |the |all )?{RAM}",
            unless=r"\bGPU RAM|video RAM|graphics RAM|\b(?:if|avoid|unless|in case|may|might|could) (?:\w+ ){0,4}?(?:insufficient|not enough|run|runs|running)",
        )
        for needle, RAM in (
            ("ram", r"(?:system |CPU |host |physical |main |computer |PC )?RAM\b"),
            ("system memory", r"system memory\b"),
            ("host memory", r"host memory\b"),
            ("cpu memory", r"CPU memory\b"),
        )
    ),
)

ROWS = (*OF_THE_GPU, *OF_THE_HOST)
